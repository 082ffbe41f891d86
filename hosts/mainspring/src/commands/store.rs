//! Looking at a whole store, and giving its dead space back: offline.

use mainspring::api::SessionUid;
use mainspring::eventlog::{Level, StoreStats};
use serde_json::{Value, json};

use crate::args::{Global, Stats};
use crate::context::{self, Open, uid};
use crate::error::CliError;
use crate::output::Output;
use crate::progress::{self, Recovery};
use crate::standing;

pub(crate) async fn stats(global: &Global, args: Stats, output: Output) -> Result<(), CliError> {
    let session = args.session.as_deref().map(uid).transpose()?;
    let journal = offline(global, "stats")?;
    if let Some(session) = session {
        return session_stats(global, journal, &session, output).await;
    }
    let recovery = Recovery::default();
    let opening = recovery.watch();
    let (stores, _) = standing::stores(&global.config)?;
    let handle = tokio::runtime::Handle::current();
    let stats = context::blocking(move || {
        let bar = progress::sessions("stats");
        let mut tell = |sessions| bar.set_position(sessions);
        let read = stores.stats(&journal, Default::default(), &opening, &mut tell);
        let read = handle.block_on(read);
        bar.finish_and_clear();
        read
    })
    .await?;
    recovery.finish(stats.is_ok());
    let stats = stats?;
    output.line(|| store_text(&stats), || store_json(&stats));
    Ok(())
}

async fn session_stats(
    global: &Global,
    journal: String,
    session: &SessionUid,
    output: Output,
) -> Result<(), CliError> {
    let log = context::open_log(global, &journal).await?;
    let view = log.get(session, Level::Committed).await?.view;
    let (records, bytes) = (view.head.seq, view.bytes);
    output.line(
        || format!("session {session} records={records} canonical_bytes={bytes}"),
        || json!({"session": session.as_str(), "records": records.get(), "canonical_bytes": bytes}),
    );
    Ok(())
}

pub(crate) async fn compact(global: &Global, output: Output) -> Result<(), CliError> {
    let journal = offline(global, "compact")?;
    let path = journal.clone();
    let (stores, _) = standing::stores(&global.config)?;
    let done = context::blocking(move || {
        let bar = progress::bytes("compact", Some(0));
        let mut tell = |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        };
        let done = stores.compact(&path, &Default::default(), &mut tell);
        bar.finish_and_clear();
        done
    })
    .await??;
    let (before, after) = (done.before, done.after);
    let freed = before.saturating_sub(after);
    output.line(
        || format!("compacted {journal} before={before} after={after} freed={freed}"),
        || {
            json!({
                "journal": journal,
                "before_bytes": before,
                "after_bytes": after,
                "freed_bytes": freed,
            })
        },
    );
    Ok(())
}

/// The journal of a command that works on one that nobody has open.
fn offline(global: &Global, command: &str) -> Result<String, CliError> {
    if global.server_flag {
        return Err(CliError::usage(format!(
            "{command} works on a journal that no server has open; it takes no --server"
        )));
    }
    context::journal(global, Open::Existing).map(str::to_owned)
}

/// Dead bytes of what is on disk, in percent.
fn dead_percent(stats: &StoreStats) -> f64 {
    let usage = &stats.usage;
    if usage.disk_bytes == 0 {
        return 0.0;
    }
    let percent = usage.dead_bytes as f64 * 100.0 / usage.disk_bytes as f64;
    (percent * 10.0).round() / 10.0
}

fn store_text(stats: &StoreStats) -> String {
    let states: String = stats
        .by_state
        .iter()
        .map(|(state, count)| format!(" {}={count}", state.to_lowercase()))
        .collect();
    let usage = &stats.usage;
    let mut text = format!(
        "store {} schema={}\nsessions={}{states} purged={} damaged={} imports_under_way={}\nrecords={} shared={} \
         canonical_bytes={}\ndisk_bytes={} live_bytes={} dead_bytes={} dead_percent={:.1}",
        stats.store_id.as_str(),
        stats.schema_version,
        stats.sessions,
        stats.purged,
        stats.damaged_rows,
        stats.imports_under_way,
        stats.records,
        stats.shared_records,
        stats.canonical_bytes,
        usage.disk_bytes,
        usage.live_bytes,
        usage.dead_bytes,
        dead_percent(stats),
    );
    if let Some(largest) = &stats.largest {
        let (records, bytes) = (largest.records, largest.bytes);
        text.push_str(&format!(
            "\nlargest {} records={records} canonical_bytes={bytes}",
            largest.uid
        ));
    }
    text
}

fn store_json(stats: &StoreStats) -> Value {
    let states =
        stats.by_state.iter().map(|(state, count)| (format!("EXEC_{state}"), json!(count)));
    let largest = stats.largest.as_ref().map(|largest| {
        json!({
            "session": largest.uid.as_str(),
            "records": largest.records,
            "canonical_bytes": largest.bytes,
        })
    });
    json!({
        "store_id": stats.store_id.as_str(),
        "schema_version": stats.schema_version,
        "sessions": stats.sessions,
        "sessions_by_state": states.collect::<serde_json::Map<_, _>>(),
        "purged": stats.purged,
        "damaged_rows": stats.damaged_rows,
        "imports_under_way": stats.imports_under_way,
        "records": stats.records,
        "shared_records": stats.shared_records,
        "canonical_bytes": stats.canonical_bytes,
        "disk_bytes": stats.usage.disk_bytes,
        "live_bytes": stats.usage.live_bytes,
        "dead_bytes": stats.usage.dead_bytes,
        "dead_percent": dead_percent(stats),
        "largest": largest,
    })
}
