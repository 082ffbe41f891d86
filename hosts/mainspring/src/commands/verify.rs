//! Recomputing hash chains.

use futures_util::StreamExt as _;
use mainspring::api::{
    Head, ReplayRequest, Seq, SessionUid, VerifyProgress, VerifyReport, VerifyRequest, method,
};
use mainspring::eventlog::export::LineVerifier;
use mainspring::eventlog::{ChainVerifier, LogError};
use serde_json::json;

use crate::args::{Global, HarnessArgs, Verify};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::lines::Journal;
use crate::output::Output;
use crate::{progress, records};

pub(crate) async fn verify(global: &Global, args: Verify, output: Output) -> Result<(), CliError> {
    let expect_head: Option<Head> = args
        .expect_head
        .as_deref()
        .map(str::parse)
        .transpose()
        .map_err(|error| CliError::usage(format!("--expect-head: {error}")))?;
    let report = match (&args.session, &args.file) {
        (Some(session), _) => verify_session(global, uid(session)?, expect_head).await?,
        (None, Some(path)) => verify_file(path, expect_head).await?,
        (None, None) => return Err(CliError::usage("--session or --file is needed")),
    };
    show(&report, output);
    Ok(())
}

fn show(report: &VerifyReport, output: Output) {
    output.line(
        || {
            let session = report.session.as_ref().map_or(String::new(), |uid| format!("{uid} "));
            let line = format!("ok {session}head={}", report.head);
            if report.head_attested { line } else { format!("{line}\nhead not attested") }
        },
        || {
            json!({
                "ok": true,
                "session": report.session.as_ref().map(|uid| uid.as_str()),
                "last_seq": report.head.seq.get(),
                "head": report.head.prev_hash(),
                "head_attested": report.head_attested,
            })
        },
    );
}

async fn verify_session(
    global: &Global,
    session: SessionUid,
    expect_head: Option<Head>,
) -> Result<VerifyReport, CliError> {
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let report = match &context.host {
        Some(_) => {
            let request = VerifyRequest { session, expect_head };
            let caller = caller(method::VERIFY);
            let mut steps = context.operations().await?.verify(&caller, request).await?;
            let bar = progress::bar("verify", 0);
            let mut report = None;
            while let Some(step) = steps.next().await {
                match step? {
                    VerifyProgress::Checked { records, total } => {
                        bar.set_length(total);
                        bar.set_position(records);
                    }
                    VerifyProgress::Done(done) => report = Some(done),
                }
            }
            bar.finish_and_clear();
            report.ok_or_else(|| CliError::internal("the verification ended without a verdict"))?
        }
        None => verify_remote(&context, session, expect_head).await?,
    };
    context.close().await;
    Ok(report)
}

/// Recomputes the chain here, over what the server sends.
async fn verify_remote(
    context: &Context,
    session: SessionUid,
    expect_head: Option<Head>,
) -> Result<VerifyReport, CliError> {
    let caller = caller(method::VERIFY);
    let row = context.sessions.get(&caller, &session).await?;
    let last = row.last_seq;
    let mut chain = ChainVerifier::after(Head::EMPTY);
    if last > Seq::ZERO {
        let request = ReplayRequest {
            session: session.clone(),
            from_seq: 0,
            to_seq: last.as_i64(),
            verify: false,
        };
        let mut stream = context.sessions.replay(&caller, request).await?;
        let bar = progress::bar("verify", last.get());
        while let Some(record) = stream.next().await {
            chain.check(&records::stored(&record?)?)?;
            bar.set_position(chain.head().seq.get());
        }
        bar.finish_and_clear();
    }
    let head = chain.head();
    if head.seq < last {
        let what = "records are missing at the end";
        return Err(LogError::Tampered { seq: head.seq.next(), what }.into());
    }
    if let Some(expected) = expect_head.filter(|expected| *expected != head) {
        let what = "the journal does not have the expected head";
        return Err(LogError::Tampered { seq: head.seq.min(expected.seq), what }.into());
    }
    // The server's word on the length is no attestation of the hash.
    Ok(VerifyReport { session: Some(session), head, head_attested: expect_head.is_some() })
}

async fn verify_file(path: &str, expect_head: Option<Head>) -> Result<VerifyReport, CliError> {
    let mut verifier = LineVerifier::default();
    match Journal::open(path).await? {
        Journal::Vector(lines) => {
            for line in &lines {
                verifier.push(line)?;
            }
        }
        Journal::Lines(mut lines) => {
            let bar = progress::bytes("verify", lines.bytes);
            while let Some(line) = lines.next().await? {
                verifier.push(&line)?;
                bar.set_position(lines.done);
                // Hashing is all that happens here: let an interrupt through.
                tokio::task::consume_budget().await;
            }
            bar.finish_and_clear();
        }
    }
    let (head, attested) = verifier.finish()?;
    if let Some(expected) = expect_head {
        verifier.expect(expected)?;
    }
    Ok(VerifyReport { session: None, head, head_attested: attested || expect_head.is_some() })
}
