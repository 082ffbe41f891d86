//! Creating, listing and showing sessions.

use mainspring::api::{CreateRequest, ListRequest, Session, SessionUid, method};

use crate::args::{Create, Global, HarnessArgs, List, OneSession};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, get_line, list_line, session_json};
use crate::recorded::{self, RecordedCall};

pub(crate) async fn create(global: &Global, args: Create, output: Output) -> Result<(), CliError> {
    let context = Context::open(global, &args.host, None, Open::OrCreate).await?;
    let request = CreateRequest {
        project: global.project.clone(),
        name: args.name,
        harness: args.harness,
        model: args.model,
        ..CreateRequest::default()
    };
    let created = context.sessions.create(&caller(method::CREATE_SESSION), request).await;
    context.close().await;
    let session = created?;
    output.line(|| session.uid.to_string(), || session_json(&session));
    Ok(())
}

pub(crate) async fn list(global: &Global, args: List, output: Output) -> Result<(), CliError> {
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let mut page_token = String::new();
    loop {
        let request =
            ListRequest { project: global.project.clone(), page_size: args.page_size, page_token };
        let page = context.sessions.list(&caller(method::LIST_SESSIONS), request).await?;
        for session in &page.sessions {
            output.line(|| list_line(session), || session_json(session));
        }
        if page.next_page_token.is_empty() {
            break;
        }
        page_token = page.next_page_token;
    }
    context.close().await;
    Ok(())
}

pub(crate) async fn get(global: &Global, args: OneSession, output: Output) -> Result<(), CliError> {
    let session = uid(&args.session)?;
    let context = Context::open(global, &args.host, None, Open::Existing).await?;
    let found = find(&context, &session, output).await;
    context.close().await;
    let (session, waiting) = found?;
    let mut json = session_json(&session);
    if let Some(waiting) = &waiting {
        json["pending_approval"] = waiting.json();
    }
    let text = || match &waiting {
        None => get_line(&session),
        Some(waiting) => format!("{}\n{}", get_line(&session), waiting.line()),
    };
    output.line(text, || json);
    Ok(())
}

/// The session, and the call that it waits on.
async fn find(
    context: &Context,
    session: &SessionUid,
    output: Output,
) -> Result<(Session, Option<RecordedCall>), CliError> {
    let session = context.sessions.get(&caller(method::GET_SESSION), session).await?;
    let Some(approval) = &session.pending_approval else { return Ok((session, None)) };
    let waiting = match recorded::call(context, &session.uid, approval).await {
        Ok(call) => Some(call),
        // What is known of the session is shown all the same.
        Err(error) => {
            output.note(&format!("the call that waits cannot be shown: {error}"));
            None
        }
    };
    Ok((session, waiting))
}
