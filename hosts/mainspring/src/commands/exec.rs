//! Running a turn.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use mainspring::api::{
    CancelReason, CancelRequest, Condition, CreateRequest, ExecRequest, ExecState, ExecStream,
    ExecUpdate, ExecutionId, OnDisconnect, Outcome, Session, SessionsError, method,
};
use serde_json::json;

use super::{advice, lifecycle};
use crate::args::{Disconnect, Exec, Global};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::input;
use crate::output::{Output, moved_line, session_json};
use crate::stops::{Stop, Stops};

pub(crate) async fn exec(global: &Global, args: Exec, output: Output) -> Result<(), CliError> {
    if args.detach && global.server.is_none() {
        return Err(CliError::usage(
            "--detach needs a server: a turn in this process would end with it",
        ));
    }
    if args.execution_id.is_some() && args.session.is_none() {
        return Err(CliError::usage(
            "--execution-id needs --session: a new session has no turn to join; \
             --idempotency-key names the session, too",
        ));
    }
    let mut stops = Stops::listen()?;
    // Until there is a turn, nothing is left behind that could be cancelled.
    let (context, begun) = tokio::select! {
        biased;
        _ = stops.next() => return Err(stopped(NOT_BEGUN)),
        begun = begin(global, &args, output) => begun?,
    };
    let result = match begun {
        Ok(turn) if args.detach => turn.detach(output, &mut stops).await,
        Ok(turn) => turn.show(&context, global, output, &mut stops).await,
        Err(error) => Err(error),
    };
    let result = match result {
        Err(error) => Err(advised(&context, global, &args, error).await),
        shown => shown,
    };
    if matches!(result, Ok(Shown::Left)) {
        // The journal says how far the turn got. Closing would wait for it.
        return Err(stopped("the turn is left as it is; it can be resumed"));
    }
    // The turn has been told of; what closing waits for may be left.
    tokio::select! {
        biased;
        _ = stops.next() => {}
        () = context.close() => {}
    }
    result.map(|_| ())
}

/// The error of a turn, and what to run next.
async fn advised(context: &Context, global: &Global, args: &Exec, error: CliError) -> CliError {
    let named = error.session.as_deref().or(args.session.as_deref());
    match named.map(uid) {
        Some(Ok(session)) => advice::advised(context, global, &session, error).await,
        _ => error,
    }
}

/// Starts the turn. The context comes with a turn that was refused, too: it is
/// to be closed.
async fn begin(
    global: &Global,
    args: &Exec,
    output: Output,
) -> Result<(Context, Result<Turn, CliError>), CliError> {
    let session = args.session.as_deref().map(uid).transpose()?;
    let execution_id = args.execution_id.as_deref().map(ExecutionId::chosen).transpose();
    let execution_id =
        execution_id.map_err(|error| CliError::usage(format!("--execution-id: {error}")))?;
    let request = ExecRequest {
        session,
        inputs: input::messages(args).await?,
        harness: args.harness.clone(),
        config: input::config(args).await?,
        expected_last_seq: args.expected_last_seq,
        deadline_unix: args.deadline.map_or(0, deadline_unix),
        approval_ttl: args.turn.approval.ttl(),
        execution_id,
        idempotency_key: args.idempotency_key.clone(),
        on_disconnect: match args.on_disconnect {
            Disconnect::Detach => OnDisconnect::Detach,
            Disconnect::Cancel => OnDisconnect::Cancel,
        },
        ..ExecRequest::default()
    };
    let context =
        Context::open(global, &args.turn.host, Some(&args.turn.model), Open::OrCreate).await?;
    let turn = start(&context, global, request, output).await;
    Ok((context, turn))
}

async fn start(
    context: &Context,
    global: &Global,
    mut request: ExecRequest,
    output: Output,
) -> Result<Turn, CliError> {
    let caller = caller(method::EXEC);
    // A session of another project than the server's default is created first.
    let created = request.session.is_none();
    if created && request.expected_last_seq.is_none_or(|seq| seq == 0) {
        let create = CreateRequest {
            project: global.project.clone(),
            harness: std::mem::take(&mut request.harness),
            idempotency_key: request.idempotency_key.clone(),
            ..CreateRequest::default()
        };
        check(&request)?;
        let session = context.sessions.create(&caller, create).await?;
        output.line(
            || format!("session {}", session.uid),
            || json!({"session": session_json(&session)}),
        );
        request.session = Some(session.uid);
    }
    let stream = context.sessions.exec(&caller, request).await?;
    Ok(Turn { stream, first_shown: created, running: None, last: None })
}

/// Refuses an input that could not be recorded before a session is made for it.
fn check(request: &ExecRequest) -> Result<(), CliError> {
    let mut turn = mainspring::controller::Turn::new(request.inputs.clone());
    turn.config = request.config.clone();
    Ok(turn.check(&mainspring::eventlog::Limits::default())?)
}

/// A turn that is shown as it runs.
struct Turn {
    stream: ExecStream,
    /// Whether the session was shown that the turn begins with.
    first_shown: bool,
    /// What to cancel, once it is known.
    running: Option<CancelRequest>,
    /// The session that the turn ends with, if it shows one.
    last: Option<Box<Session>>,
}

/// What became of a turn that was shown.
enum Shown {
    Ended,
    /// It still runs in this process.
    Left,
}

type Cancelling<'a> = BoxFuture<'a, Result<Session, SessionsError>>;

impl Turn {
    /// Shows it to its end. The first interrupt asks for its cancellation; the
    /// second, or SIGTERM, leaves it: to its server, or to be resumed.
    async fn show(
        mut self,
        context: &Context,
        global: &Global,
        output: Output,
        stops: &mut Stops,
    ) -> Result<Shown, CliError> {
        let mut cancelling: Option<Cancelling<'_>> = None;
        let mut asked = false;
        let mut first = None;
        loop {
            tokio::select! {
                biased;
                stop = stops.next() => match self.running.take() {
                    Some(request) if stop == Stop::Interrupt => {
                        asked = true;
                        output.note("cancelling; a second interrupt leaves the turn");
                        let sessions = Arc::clone(&context.sessions);
                        cancelling = Some(Box::pin(async move {
                            sessions.cancel(&caller(method::CANCEL), request).await
                        }));
                    }
                    running => {
                        let how = match running {
                            _ if asked => Leaving::Canceled,
                            Some(_) => Leaving::Begun,
                            None => Leaving::NotBegun,
                        };
                        drop(self.stream);
                        return leave(context, how, stops).await;
                    }
                },
                canceled = pending(&mut cancelling) => {
                    cancelling = None;
                    match canceled {
                        Ok(session) => self.last = Some(Box::new(session)),
                        Err(error) => output.note(&format!("not cancelled: {error}")),
                    }
                }
                update = self.stream.next() => {
                    let Some(update) = update else { break };
                    let update = update?;
                    if let ExecUpdate::Record(record) = &update
                        && let (false, Some(session), Some(execution)) =
                            (asked, &first, &record.event.execution_id)
                        && self.running.is_none()
                    {
                        let (session, execution_id) = (Clone::clone(session), execution.clone());
                        let reason = CancelReason::User;
                        self.running = Some(CancelRequest { session, execution_id, reason });
                    }
                    let Some(session) = lifecycle::show(update, output)? else { continue };
                    if first.is_none() {
                        first = Some(session.uid.clone());
                        self.show_first(&session, output);
                    } else {
                        self.last = Some(session);
                    }
                }
            }
        }
        // A gate that was recorded first is closed once its turn has parked.
        if let Some(cancelling) = cancelling {
            tokio::select! {
                biased;
                _ = stops.next() => return Ok(Shown::Left),
                canceled = cancelling => self.last = Some(Box::new(canceled?)),
            }
        }
        self.end(context, global, output).await?;
        Ok(Shown::Ended)
    }

    /// Waits until its start is recorded, and leaves it to its server.
    async fn detach(mut self, output: Output, stops: &mut Stops) -> Result<Shown, CliError> {
        let mut session = None;
        loop {
            let update = tokio::select! {
                biased;
                _ = stops.next() => return Err(stopped(NOT_BEGUN)),
                update = self.stream.next() => update,
            };
            let Some(update) = update.transpose()? else {
                return Err(CliError::internal("the turn ended without a record"));
            };
            match update {
                ExecUpdate::Session(found) => {
                    let shown = session.get_or_insert(found);
                    self.show_first(shown, output);
                }
                ExecUpdate::Record(record) => {
                    let Some(execution) = record.event.execution_id else { continue };
                    let uid = session.as_ref().map_or("", |session| session.uid.as_str());
                    output.line(
                        || format!("detached session={uid} execution={execution}"),
                        || {
                            let execution = execution.as_str();
                            json!({"detached": {"session": uid, "execution_id": execution}})
                        },
                    );
                    return Ok(Shown::Ended);
                }
                ExecUpdate::Delta(_) => {}
            }
        }
    }

    fn show_first(&self, session: &Session, output: Output) {
        if output.is_json() && !self.first_shown {
            output.line(String::new, || json!({"session": session_json(session)}));
        }
    }

    /// The session that a turn shows at its end is one that waits, or went on.
    async fn end(self, context: &Context, global: &Global, output: Output) -> Result<(), CliError> {
        let Some(session) = self.last else { return Ok(()) };
        output.line(|| moved_line(&session, "exec"), || json!({"session": session_json(&session)}));
        match advice::parked(context, global, &session).await {
            Some(parked) => Err(parked),
            None if session.exec_state == ExecState::Canceled => Err(CliError {
                outcome: Outcome::Applied,
                session: Some(session.uid.to_string()),
                ..stopped("the turn was cancelled")
            }),
            None => Ok(()),
        }
    }
}

/// Waits for a cancellation that was asked for; for ever without one.
async fn pending(cancelling: &mut Option<Cancelling<'_>>) -> Result<Session, SessionsError> {
    match cancelling {
        Some(cancelling) => cancelling.await,
        None => std::future::pending().await,
    }
}

/// How far a turn has got that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// It has recorded nothing that was shown.
    NotBegun,
    /// It runs.
    Begun,
    /// It does not end although it was cancelled.
    Canceled,
}

/// Leaves a turn: a server goes on with it; what this process runs ends with
/// it, and can be resumed. What is in flight has its grace, unless it had it.
async fn leave(context: &Context, how: Leaving, stops: &mut Stops) -> Result<Shown, CliError> {
    let begun = how != Leaving::NotBegun;
    let said = |message| Err(stopped(if begun { message } else { NOT_BEGUN }));
    let Some(host) = &context.host else { return said("the turn is left to the server") };
    if how != Leaving::Canceled {
        host.service().interrupt();
        tokio::select! {
            () = host.service().idle() => {
                return said("the turn was interrupted; it can be resumed");
            }
            _ = stops.next() => {}
        }
    }
    Ok(Shown::Left)
}

const NOT_BEGUN: &str = "interrupted before the turn began";

fn stopped(message: &str) -> CliError {
    CliError::of(Condition::Cancelled, message)
}

#[expect(clippy::disallowed_methods, reason = "a deadline is wall time, and this is the host")]
fn deadline_unix(seconds: u32) -> i64 {
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO)
        + Duration::from_secs(seconds.into());
    // Rounded up, so that a turn never has less time than was asked for.
    i64::try_from(at.as_secs()).unwrap_or(i64::MAX - 1) + i64::from(at.subsec_nanos() > 0)
}
