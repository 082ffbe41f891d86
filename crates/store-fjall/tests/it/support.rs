//! What these tests share.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use mainspring_api::{Fence, Head, SessionUid};
use mainspring_eventlog::{Batch, EventLog as _, KvOptions, LogError};
use mainspring_store_fjall::{FjallConfig, FjallStore, open_store};
use mainspring_testkit::sample;

pub(crate) fn open(path: &Path) -> Result<FjallStore, LogError> {
    open_store(&FjallConfig::at(path), KvOptions::default())
}

/// A store that writes tables often.
pub(crate) fn open_small(path: &Path) -> Result<FjallStore, LogError> {
    open_store(&small(path), KvOptions::default())
}

pub(crate) fn small(path: &Path) -> FjallConfig {
    let mut config = FjallConfig::at(path);
    config.memtable_bytes_max = 64 << 10;
    config
}

pub(crate) fn text_batch(base: Head, text: &str) -> Batch {
    Batch::link(base, sample::records([sample::input(text)])).unwrap()
}

/// Appends inputs to a new session and returns its uid and head.
pub(crate) async fn filled(log: &FjallStore, name: &str, len: usize) -> (SessionUid, Head) {
    let uid = sample::session(name);
    mainspring_testkit::create(log, &uid).await.unwrap();
    let mut at = Head::EMPTY;
    for number in 0..len {
        let batch = text_batch(at, &format!("{name} {number}"));
        at = log.append(&uid, sample::fresh_id(), Fence::NONE, &batch).await.unwrap();
    }
    (uid, at)
}

/// The journal that is written to.
pub(crate) fn last_journal(store: &Path) -> PathBuf {
    let is_journal = |path: &PathBuf| path.extension().is_some_and(|ext| ext == "jnl");
    let entries = std::fs::read_dir(store.join("data-1")).unwrap();
    let journals = entries.map(|entry| entry.unwrap().path()).filter(is_journal);
    journals.max_by_key(|path| number(path)).unwrap()
}

fn number(journal: &Path) -> u64 {
    journal.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

/// A file: what is in it up to its last byte that is not zero, and its length.
pub(crate) type Content = (Vec<u8>, u64);

/// Reads a file; a journal is made far longer than it is full.
pub(crate) fn content(file: &Path) -> Content {
    const ZEROES: [u8; 4_096] = [0; 4_096];
    let mut bytes = std::fs::read(file).unwrap();
    let len = bytes.len() as u64;
    // By blocks, which is quick also in a build that is not optimised.
    while !bytes.is_empty() && bytes.ends_with(&ZEROES[..bytes.len().min(ZEROES.len())]) {
        bytes.truncate(bytes.len() - bytes.len().min(ZEROES.len()));
    }
    let full = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(full);
    (bytes, len)
}

pub(crate) fn write(file: &Path, (bytes, len): &Content) {
    std::fs::write(file, bytes).unwrap();
    std::fs::File::options().write(true).open(file).unwrap().set_len(*len).unwrap();
}

/// Every file below `folder`, by its path in it.
pub(crate) fn contents(folder: &Path) -> BTreeMap<PathBuf, Content> {
    fn add(folder: &Path, base: &Path, out: &mut BTreeMap<PathBuf, Content>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(&path, base, out);
            } else {
                out.insert(path.strip_prefix(base).unwrap().to_owned(), content(&path));
            }
        }
    }
    let mut out = BTreeMap::new();
    add(folder, folder, &mut out);
    out
}

/// Writes files into a new folder.
pub(crate) fn lay(folder: &Path, files: &BTreeMap<PathBuf, Content>) {
    for (name, content) in files {
        let file = folder.join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        write(&file, content);
    }
}

/// A copy of the folder, also of an open store: as a crash leaves it.
pub(crate) fn copy(from: &Path, to: &Path) {
    lay(to, &contents(from));
}

/// This binary again, with the one test that is a child; and the lines it writes.
pub(crate) fn child(
    test: &str,
    variable: &str,
    value: &Path,
) -> (Child, Lines<BufReader<ChildStdout>>) {
    // A write beyond a limit on file sizes is to be an error, not a signal.
    let mut child = Command::new("sh")
        .args(["-c", r#"trap "" XFSZ; exec "$0" "$@""#])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(variable, value)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    (child, lines)
}
