//! What a crash left of the journals, looked at before fjall does.
//!
//! fjall cuts a journal at the first byte that it cannot read, also when
//! thousands of commits follow, and refuses one whose last entry has a wrong
//! checksum, as when the power went while it was written. Here a damaged end is
//! cut, for what was acknowledged lies before it, and damage that is followed
//! by a whole commit refuses the store with nothing changed.
//!
//! ```text
//! batch = 01 items:u32 seqno:u64  item*  03 xxh3-of-the-items:u64 "FJL" 03
//! item  = 02 type:u8 compression:u8 keyspace:u64 key:u16 value:u32 stored:u32 ..key ..value
//!       | 04 keyspace:u64
//! ```
//! Integers are little-endian. New journals end with a run of zeroes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use mainspring_eventlog::LogError;
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use crate::error::{damaged, io_failed};

const CHUNK_BYTES: usize = 64 << 10;

/// The start of a damaged tail.
struct Torn {
    path: PathBuf,
    from: u64,
}

/// Checks the journals in `data`, and cuts a torn end.
pub(crate) fn check(data: &Path) -> Result<(), LogError> {
    let journals = list(data).map_err(|error| io_failed("look into", data, error))?;
    if journals.is_empty() {
        return Err(damaged(data, "its journals are gone"));
    }
    let mut torn: Vec<Torn> = Vec::new();
    let mut last = None;
    for path in journals {
        let failed = |error| io_failed("read", &path, error);
        let file = File::open(&path).map_err(failed)?;
        let mut reader = BufReader::with_capacity(CHUNK_BYTES, &file);
        let mut good = 0;
        while let Some(batch) = next_batch(&mut reader).map_err(failed)? {
            if let Some(torn) = torn.first() {
                return Err(followed(torn));
            }
            // The checksum does not cover it. Never cut: the batch is whole.
            if last.is_some_and(|last| batch.seqno <= last) {
                return Err(damaged(&path, "its commits are out of order"));
            }
            good += batch.len;
            last = Some(batch.seqno);
        }
        let rest = rest_of(&file, good).map_err(failed)?;
        if rest.is_empty() {
            continue;
        }
        let found = Torn { path: path.clone(), from: good };
        if has_batch(&rest, last) {
            return Err(followed(&found));
        }
        torn.push(found);
    }
    for Torn { path, from } in torn {
        tracing::warn!(path = %path.display(), from, "torn end of a journal cut");
        let cut = || {
            let file = OpenOptions::new().write(true).open(&path)?;
            file.set_len(from)?;
            file.sync_all()
        };
        cut().map_err(|error| io_failed("cut", &path, error))?;
    }
    Ok(())
}

fn followed(torn: &Torn) -> LogError {
    let why = format!("it is damaged at byte {}, and later commits follow", torn.from);
    damaged(&torn.path, &why)
}

/// The journals, oldest first.
pub(crate) fn list(data: &Path) -> io::Result<Vec<PathBuf>> {
    let mut journals = Vec::new();
    for entry in fs::read_dir(data)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(number) = name.and_then(|name| name.strip_suffix(".jnl")?.parse::<u64>().ok()) {
            journals.push((number, path));
        }
    }
    journals.sort();
    Ok(journals.into_iter().map(|(_, path)| path).collect())
}

struct Batch {
    len: u64,
    seqno: u64,
}

/// The batch at the start of `input`; `None` when there is no whole one.
fn next_batch(input: &mut impl Read) -> io::Result<Option<Batch>> {
    match try_batch(input) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        answer => answer,
    }
}

fn try_batch(input: &mut impl Read) -> io::Result<Option<Batch>> {
    if bytes(input)? != [1] {
        return Ok(None);
    }
    let items = u32::from_le_bytes(bytes(input)?);
    let seqno = u64::from_le_bytes(bytes(input)?);
    let mut len = 1 + 4 + 8;
    let mut hash = Xxh3::new();
    for _ in 0..items {
        let [tag] = bytes(input)?;
        hash.update(&[tag]);
        match tag {
            2 => {
                let head: [u8; 20] = bytes(input)?;
                hash.update(&head);
                // Compression is off in every store of ours.
                if head[1] != 0 {
                    return Ok(None);
                }
                let key = u16::from_le_bytes([head[10], head[11]]);
                let value = u32::from_le_bytes([head[16], head[17], head[18], head[19]]);
                let payload = u64::from(key) + u64::from(value);
                hash_bytes(input, payload, &mut hash)?;
                len += 1 + 20 + payload;
            }
            4 => {
                hash.update(&bytes::<8>(input)?);
                len += 1 + 8;
            }
            _ => return Ok(None),
        }
    }
    if bytes(input)? != [3]
        || u64::from_le_bytes(bytes(input)?) != hash.digest()
        || bytes(input)? != *b"FJL\x03"
    {
        return Ok(None);
    }
    len += 1 + 8 + 4;
    Ok(Some(Batch { len, seqno }))
}

fn bytes<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut out = [0; N];
    input.read_exact(&mut out)?;
    Ok(out)
}

fn hash_bytes(input: &mut impl Read, mut len: u64, hash: &mut Xxh3) -> io::Result<()> {
    let mut buffer = [0; 4_096];
    while len > 0 {
        let part = usize::try_from(len).unwrap_or(usize::MAX).min(buffer.len());
        input.read_exact(&mut buffer[..part])?;
        hash.update(&buffer[..part]);
        len -= part as u64;
    }
    Ok(())
}

/// What is in a file from `from` on, without the zeroes at its end. It is all
/// in memory at once: at most a journal, and only where one is damaged.
fn rest_of(file: &File, from: u64) -> io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    let (mut at, mut zeroes) = (from, 0);
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Some(data) = next_data(file, at)? {
        zeroes += usize::try_from(data - at).map_err(io::Error::other)?;
        let len = file.read_at(&mut chunk, data)?;
        if len == 0 {
            break;
        }
        match chunk[..len].iter().rposition(|byte| *byte != 0) {
            None => zeroes += len,
            Some(last) => {
                rest.resize(rest.len() + zeroes, 0);
                rest.extend_from_slice(&chunk[..=last]);
                zeroes = len - last - 1;
            }
        }
        at = data + len as u64;
    }
    Ok(rest)
}

/// Where the file holds data at or after `at`: a new journal is one long hole.
fn next_data(file: &File, at: u64) -> io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(data) => Ok(Some(data)),
        Err(Errno::NXIO) => Ok(None),
        // Some file systems have no holes.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((at < file.metadata()?.len()).then_some(at)),
        Err(error) => Err(error.into()),
    }
}

/// Whether a whole batch that is later than `last` starts somewhere in `bytes`.
fn has_batch(bytes: &[u8], last: Option<u64>) -> bool {
    let starts = bytes.iter().enumerate().filter(|(_, byte)| **byte == 1);
    starts.map(|(start, _)| &bytes[start..]).any(
        |mut rest| matches!(next_batch(&mut rest), Ok(Some(batch)) if Some(batch.seqno) > last),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(seqno: u64, items: &[(&[u8], &[u8])]) -> Vec<u8> {
        let mut out = vec![1];
        out.extend((items.len() as u32).to_le_bytes());
        out.extend(seqno.to_le_bytes());
        let start = out.len();
        for (key, value) in items {
            out.extend([2, 0, 0]);
            out.extend(3_u64.to_le_bytes());
            out.extend((key.len() as u16).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend(*key);
            out.extend(*value);
        }
        let mut hash = Xxh3::new();
        hash.update(&out[start..]);
        out.push(3);
        out.extend(hash.digest().to_le_bytes());
        out.extend(b"FJL\x03");
        out
    }

    /// Checks journals of these contents; answers how long each is afterwards.
    fn check_all(contents: &[&[u8]]) -> Result<Vec<usize>, LogError> {
        let dir = tempfile::tempdir().unwrap();
        for (number, content) in contents.iter().enumerate() {
            std::fs::write(dir.path().join(format!("{number}.jnl")), content).unwrap();
        }
        let checked = check(dir.path());
        let after: Vec<_> =
            list(dir.path()).unwrap().iter().map(|path| std::fs::read(path).unwrap()).collect();
        if checked.is_err() {
            assert!(after.iter().eq(contents.iter()), "a refused journal was changed");
        }
        checked.map(|()| after.iter().map(Vec::len).collect())
    }

    fn three() -> [Vec<u8>; 3] {
        [
            batch(5, &[(b"a", &[7; 10_000]), (b"b", b"")]),
            batch(6, &[(b"a", b"x")]),
            batch(9, &[(b"long", &[0; 300])]),
        ]
    }

    #[test]
    fn whole_journals_are_left_alone() {
        let [a, b, c] = three();
        let zeroes = vec![0; 100_000];
        let all = [a.clone(), b.clone(), c.clone(), zeroes.clone()].concat();
        assert_eq!(check_all(&[&all]).unwrap(), [all.len()]);
        assert_eq!(check_all(&[&[a, zeroes].concat(), &[b, c].concat(), b""]).unwrap().len(), 3);
        assert!(matches!(check_all(&[]), Err(LogError::Corrupt { .. })));
    }

    #[test]
    fn a_torn_end_is_cut_wherever_it_is_torn() {
        let [a, b, c] = three();
        let good = a.len() + b.len();
        for len in 1..c.len() {
            let mut torn = [a.clone(), b.clone(), c[..len].to_vec()].concat();
            assert_eq!(check_all(&[&torn]).unwrap(), [good]);
            torn.resize(torn.len() + 5_000, 0);
            let cut = check_all(&[&torn, b""]).unwrap();
            assert!(cut == [good, 0] || c[..len].iter().all(|byte| *byte == 0));
        }
        for at in 0..c.len() {
            let mut hole = [a.clone(), b.clone(), c.clone()].concat();
            hole[good + at] ^= 0x55;
            // Another number that still rises is not seen.
            let kept = if (5..13).contains(&at) { hole.len() } else { good };
            assert_eq!(check_all(&[&hole]).unwrap(), [kept], "at {at}");
        }
    }

    #[test]
    fn damage_before_a_whole_commit_is_refused() {
        let [a, b, c] = three();
        let all = [a.clone(), b.clone(), c.clone()].concat();
        for at in (0..a.len() + b.len()).step_by(7) {
            let mut bad = all.clone();
            bad[at] ^= 0x55;
            let error = check_all(&[&bad]).unwrap_err().to_string();
            let names = ["later commits follow", "out of order"];
            assert!(names.iter().any(|name| error.contains(name)), "at {at}: {error}");
            let (first, second) = bad.split_at(a.len() + b.len());
            check_all(&[first, second]).unwrap_err();
        }
    }
}
