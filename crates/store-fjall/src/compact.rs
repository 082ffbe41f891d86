//! Giving back what no reader can see any more, offline.

use std::fs;
use std::io;
use std::path::Path;

use fjall::Readable as _;
use mainspring_api::{Clock, report};
use mainspring_eventlog::{LogError, Space};
use xxhash_rust::xxh3::Xxh3;

use crate::config::FjallConfig;
use crate::engine::note_holder;
use crate::error::{damaged, io_failed, opened};
use crate::folder::{Folder, Missing, sync_names};
use crate::open::Open;

/// How many bytes are copied between two calls of `progress`.
const PROGRESS_BYTES: u64 = 4 << 20;

/// Copies what the store at `config.path` holds into new files, compares, and
/// lets them take the place of the old ones in one step. Answers the bytes of
/// its files before and after. `progress` is told bytes that are done, of how many.
///
/// It takes as much free disk as the store holds. A crash leaves the store as
/// it was; the next open removes what was copied.
///
/// # Errors
/// As [`FjallEngine::open`](crate::FjallEngine::open), with the store as it was.
/// A store that is not there is `NotAStore`, and is not created.
pub fn compact(
    config: &FjallConfig,
    clock: &dyn Clock,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(u64, u64), LogError> {
    let make = |_: &Path| unreachable!("a missing store is refused");
    let mut folder = Folder::open(&config.path, Missing::Refuse, make)?;
    let _note = note_holder(&folder, clock);
    let measure = |folder: &Folder| {
        folder.disk_bytes().map_err(|error| io_failed("look at", &config.path, error))
    };
    let before = measure(&folder)?;
    let (old, new) = (folder.data(), folder.next_data());
    let source = Open::existing(config, &old, folder.spaces())?;
    let copied = copy(config, &source, &new, progress);
    closed(source, &old)?;
    if let Err(error) = copied {
        let _ = fs::remove_dir_all(&new);
        return Err(error);
    }
    folder.switch_to(&new)?;
    Ok((before, measure(&folder)?))
}

fn closed(open: Open, data: &Path) -> Result<(), LogError> {
    open.close(data).map_err(|error| LogError::unavailable(report(&error)))
}

/// Makes a durable copy at `new` that was compared with its source.
fn copy(
    config: &FjallConfig,
    source: &Open,
    new: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(), LogError> {
    match fs::remove_dir_all(new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(io_failed("remove", new, error));
        }
        _ => {}
    }
    let target = Open::fresh(config, new)?;
    // What is stored twice or is dead is not copied, so this is an upper bound.
    let total = opened(new, || source.database.disk_space())?;
    let mut done = 0;
    let copied = Space::ALL.into_iter().try_for_each(|space| {
        let expected = opened(new, || {
            let mut told = done;
            copy_space(source, &target, space, &mut |bytes| {
                done += bytes;
                if done - told >= PROGRESS_BYTES {
                    told = done;
                    progress(done.min(total), total);
                }
            })
        })?;
        target.publish();
        match opened(new, || sum(&target, space, |_, _| Ok(())))? {
            found if found == expected => Ok(()),
            _ => Err(damaged(new, "the copy differs from the store")),
        }
    });
    closed(target, new)?;
    copied?;
    let parent = new.parent().expect("it lies in the store's folder");
    sync_names(new)
        .and_then(|()| fs::File::open(parent)?.sync_all())
        .map_err(|error| io_failed("make durable", new, error))?;
    progress(total, total);
    Ok(())
}

fn copy_space(
    source: &Open,
    target: &Open,
    space: Space,
    copied: &mut dyn FnMut(u64),
) -> Result<Sum, fjall::Error> {
    let mut tables = target.space(space).start_ingestion()?;
    let sum = sum(source, space, |key, value| {
        copied((key.len() + value.len()) as u64);
        tables.write(key, value)
    })?;
    tables.finish()?;
    Ok(sum)
}

/// How many entries, and a hash of them all.
type Sum = (u64, u64);

fn sum(
    open: &Open,
    space: Space,
    mut each: impl FnMut(&[u8], &[u8]) -> Result<(), fjall::Error>,
) -> Result<Sum, fjall::Error> {
    let (mut count, mut hash) = (0, Xxh3::new());
    for entry in open.snapshot().iter(open.space(space)) {
        let (key, value) = entry.into_inner()?;
        count += 1;
        for part in [&key, &value] {
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        each(&key, &value)?;
    }
    Ok((count, hash.digest()))
}
