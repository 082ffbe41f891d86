//! Recomputing hash chains.

use std::io::{BufRead as _, Cursor};

use futures_util::StreamExt as _;
use mainspring::api::{
    Head, Operations as _, ReplayRequest, Seq, SessionUid, VerifyProgress, VerifyReport,
    VerifyRequest,
};
use mainspring::eventlog::export::{LineVerifier, vector_lines};
use mainspring::eventlog::{ChainVerifier, LogError};
use serde_json::json;

use crate::args::{Global, HarnessArgs, Verify};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
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
        (None, Some(path)) => verify_file(path, expect_head)?,
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
        Some(host) => {
            let request = VerifyRequest { session, expect_head };
            let caller = caller("mainspring verify");
            let mut steps = host.service().verify(&caller, request).await?;
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
    let caller = caller("mainspring verify");
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

fn verify_file(path: &str, expect_head: Option<Head>) -> Result<VerifyReport, CliError> {
    let failed = |error: std::io::Error| CliError::file(path, &error);
    let mut verifier = LineVerifier::default();
    let bar = progress::counter("verify");
    let mut reader: Box<dyn std::io::BufRead> = if path == "-" {
        Box::new(std::io::BufReader::new(std::io::stdin()))
    } else {
        Box::new(std::io::BufReader::new(std::fs::File::open(path).map_err(failed)?))
    };
    // A vector file is one document that starts with a lone brace; an export
    // has a whole document on its first line.
    let mut first = Vec::new();
    reader.read_until(b'\n', &mut first).map_err(failed)?;
    if first.trim_ascii() == b"{" {
        std::io::Read::read_to_end(&mut reader, &mut first).map_err(failed)?;
        for line in vector_lines(&first)?.ok_or_else(|| not_a_journal(path))? {
            verifier.push(&line)?;
            bar.inc(1);
        }
    } else {
        let mut lines = Cursor::new(first).chain_lines(reader);
        while let Some(line) = lines.next_line().map_err(failed)? {
            verifier.push(&line)?;
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (head, attested) = verifier.finish()?;
    if let Some(expected) = expect_head {
        verifier.expect(expected)?;
    }
    Ok(VerifyReport { session: None, head, head_attested: attested || expect_head.is_some() })
}

fn not_a_journal(path: &str) -> CliError {
    LogError::BadLine { line: 1, why: format!("{path} is neither an export nor a vector file") }
        .into()
}

/// The lines of what was read already and of the rest.
struct Lines<A, B> {
    first: Option<A>,
    rest: B,
}

trait ChainLines: Sized {
    fn chain_lines<B>(self, rest: B) -> Lines<Self, B>;
}

impl<A> ChainLines for A {
    fn chain_lines<B>(self, rest: B) -> Lines<Self, B> {
        Lines { first: Some(self), rest }
    }
}

impl<A: std::io::BufRead, B: std::io::BufRead> Lines<A, B> {
    fn next_line(&mut self) -> std::io::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if let Some(mut first) = self.first.take() {
            first.read_until(b'\n', &mut line)?;
            if !line.is_empty() {
                return Ok(Some(line));
            }
        }
        self.rest.read_until(b'\n', &mut line)?;
        Ok((!line.is_empty()).then_some(line))
    }
}
