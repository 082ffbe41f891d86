//! Showing stored records, and running recorded turns again.

use std::sync::Arc;

use futures_util::{StreamExt as _, stream};
use mainspring::api::{
    AppendId, Fence, Head, OsEntropy, ReplayRequest, Seq, Session, SessionUid, method,
};
use mainspring::controller::{Journal, Replayed};
use mainspring::eventlog::{ChainVerifier, ImportRecord, ImportRow, LogError, NewSession};
use mainspring::placement::Call;
use mainspring::{HostBuilder, Stores};
use serde_json::json;

use crate::args::{Global, Replay};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, shown};
use crate::{parts, records};

pub(crate) async fn replay(global: &Global, args: Replay, output: Output) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    if args.re_execute {
        return re_execute(global, &args, &session, output).await;
    }
    let context = Context::open(global, &args.host, None, Open::Existing).await?;
    let request = ReplayRequest {
        session,
        from_seq: args.from.unwrap_or(0),
        to_seq: args.to.unwrap_or(0),
        verify: false,
    };
    // From the first record on, the chain is checked as it is shown.
    let mut chain = (request.from_seq <= 1).then(|| ChainVerifier::after(Head::EMPTY));
    let mut stream = context.sessions.replay(&caller(method::REPLAY), request).await?;
    while let Some(record) = stream.next().await {
        let record = record?;
        if let Some(chain) = &mut chain {
            chain.check(&records::stored(&record)?)?;
        }
        output.record(&record, None)?;
    }
    drop(stream);
    context.close().await;
    Ok(())
}

/// Runs the recorded turns again in this process: the journal is copied into
/// memory and its harness driven over it, with no model in reach.
async fn re_execute(
    global: &Global,
    args: &Replay,
    session: &SessionUid,
    output: Output,
) -> Result<(), CliError> {
    let source =
        Context::open(global, &crate::args::HarnessArgs::default(), None, Open::Existing).await?;
    let (row, copied) = copy(&source, session).await?;
    source.close().await;
    let log = Stores::with_defaults().open("memory:", Default::default())?;
    let imported = ImportRow {
        session: NewSession::bare(session.clone(), &row.project),
        create_time: None,
        parent: None,
    };
    let id = AppendId::random(&OsEntropy);
    let copied = copied.into_iter().map(|record| Ok(ImportRecord::Record(record)));
    let imported = log.import(id, imported, Box::pin(stream::iter(copied))).await?;
    let recorded = imported.view.latest.as_ref().and_then(|turn| turn.start.as_ref());
    let name = [
        args.harness.as_str(),
        recorded.map_or("", |start| start.harness.as_str()),
        row.harness.as_str(),
    ]
    .into_iter()
    .find(|name| !name.is_empty())
    .unwrap_or_default()
    .to_owned();
    let host =
        parts::configure(HostBuilder::new(Arc::clone(&log)), &global.config, false)?.build()?;
    let journal = Journal::new(log, session.clone());
    let replayed = host.harnesses().find(&name)?.replay(&journal, &Call::default()).await;
    host.close().await;
    show(&replayed?, output);
    Ok(())
}

fn show(replayed: &Replayed, output: Output) {
    for text in &replayed.outputs {
        output.line(|| shown(text), || json!({"output": text}));
    }
    output.line(
        || format!("turns={} model_calls={}", replayed.turns, replayed.model_calls),
        || json!({"turns": replayed.turns, "model_calls": replayed.model_calls}),
    );
}

/// Every record of a session, as it is stored.
async fn copy(
    source: &Context,
    session: &SessionUid,
) -> Result<(Session, Vec<mainspring::eventlog::StoredRecord>), CliError> {
    let caller = caller(method::REPLAY);
    let row = source.sessions.get(&caller, session).await?;
    let request = ReplayRequest {
        session: session.clone(),
        from_seq: 0,
        to_seq: row.last_seq.as_i64(),
        verify: false,
    };
    let mut copied = Vec::new();
    if row.last_seq > Seq::ZERO {
        let mut stream = source.sessions.replay(&caller, request).await?;
        while let Some(record) = stream.next().await {
            let mut record = records::stored(&record?)?;
            record.fence = record.fence.max(Fence::new(1));
            copied.push(record);
        }
    }
    if copied.len() as u64 != row.last_seq.get() {
        let missing = Seq::new(copied.len() as u64 + 1);
        let what = "records are missing at the end";
        return Err(LogError::Tampered { seq: missing, what }.into());
    }
    Ok((row, copied))
}
