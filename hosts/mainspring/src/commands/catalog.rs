//! Creating, listing and showing sessions.

use std::collections::BTreeMap;

use mainspring::api::{
    CreateRequest, ExecState, FindRequest, ListRequest, Session, SessionUid, method,
};

use crate::args::{Create, Global, HarnessArgs, List, OneSession, State};
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
    let listed = list_all(&context, global, &args, output).await;
    context.close().await;
    listed
}

async fn list_all(
    context: &Context,
    global: &Global,
    args: &List,
    output: Output,
) -> Result<(), CliError> {
    let filter = filter(global, args)?;
    let mut page_token = String::new();
    loop {
        let (project, page_size) = (global.project.clone(), args.page_size);
        let page = match &filter {
            None => {
                let request = ListRequest { project, page_size, page_token };
                context.sessions.list(&caller(method::LIST_SESSIONS), request).await?
            }
            Some(filter) => {
                let request = FindRequest { page_token, ..filter.clone() };
                context.operations().await?.find(&caller(method::FIND), request).await?
            }
        };
        for session in &page.sessions {
            output.line(|| list_line(session), || session_json(session));
        }
        // A page may be short, or empty, and still not be the last.
        if page.next_page_token.is_empty() {
            return Ok(());
        }
        page_token = page.next_page_token;
    }
}

/// What is asked for, when it is not every session.
fn filter(global: &Global, args: &List) -> Result<Option<FindRequest>, CliError> {
    let List { page_size, state, harness, label, owner } = args;
    if state.is_empty() && harness.is_none() && label.is_empty() && owner.is_none() {
        return Ok(None);
    }
    let mut labels = BTreeMap::new();
    for label in label {
        let pair = label.split_once('=').filter(|(key, _)| !key.is_empty());
        let (key, value) =
            pair.ok_or_else(|| CliError::usage(format!("--label {label:?} is not K=V")))?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(CliError::usage(format!("--label names {key:?} twice")));
        }
    }
    Ok(Some(FindRequest {
        project: global.project.clone(),
        // The caller's own, which is what "me" is.
        owner: None,
        states: state.iter().copied().map(exec_state).collect(),
        labels,
        harness: harness.clone().unwrap_or_default(),
        page_size: *page_size,
        page_token: String::new(),
    }))
}

const fn exec_state(state: State) -> ExecState {
    match state {
        State::Pending => ExecState::Pending,
        State::Running => ExecState::Running,
        State::Awaiting => ExecState::Awaiting,
        State::Completed => ExecState::Completed,
        State::Failed => ExecState::Failed,
        State::Canceled => ExecState::Canceled,
    }
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
