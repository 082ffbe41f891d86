//! What the servers share: whose call it is, and how an answer ends.

use std::time::Duration;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use mainspring_api::{
    BoxStream, Caller, Condition, ExecStream, ExecUpdate, Session, SessionUid, Sessions,
    SessionsError,
};
use mainspring_wire::{NotesField, WireError, v1};
use tonic::metadata::MetadataMap;
use tonic::{Code, Extensions, Request, Response, Status};

use crate::call::{CallLog, Counts, RpcKind};
use crate::front::{Admitted, add_trailer};
use crate::heartbeat::{self, Beats, with_heartbeats};
use crate::metadata::{self, WARM_HOST};
use crate::status::to_status;

type ItemStream<T> = BoxStream<'static, Result<T, SessionsError>>;
pub(crate) type WireStream<T> = BoxStream<'static, Result<T, Status>>;

/// A call taken apart.
pub(crate) struct Call<T> {
    pub(crate) metadata: MetadataMap,
    pub(crate) caller: Caller,
    pub(crate) log: CallLog,
    /// The session that it names, as it came; empty when it names none.
    pub(crate) session: String,
    pub(crate) body: T,
}

/// Takes a call: who calls, as far as was verified, and the log of the call.
pub(crate) fn take<T>(
    request: Request<T>,
    method: &'static str,
    kind: RpcKind,
    session: impl FnOnce(&T) -> &str,
) -> Call<T> {
    let (metadata, extensions, body): (_, Extensions, _) = request.into_parts();
    let session = session(&body).to_owned();
    let (caller, log) = Admitted::of(&extensions).begin(method, kind, &session);
    Call { metadata, caller, log, session, body }
}

pub(crate) fn bad_request(error: WireError) -> SessionsError {
    SessionsError::new(Condition::InvalidArgument, error.to_string())
}

pub(crate) fn unsendable(error: WireError) -> SessionsError {
    SessionsError::new(Condition::Internal, format!("answer cannot be sent: {error}"))
}

pub(crate) fn answer<T>(
    log: CallLog,
    result: Result<T, SessionsError>,
) -> Result<Response<T>, Status> {
    match result {
        Ok(value) => {
            log.finish(Code::Ok);
            Ok(Response::new(value))
        }
        Err(error) => Err(refusal(log, &error)),
    }
}

fn refusal(log: CallLog, error: &SessionsError) -> Status {
    let status = to_status(error);
    log.finish(status.code());
    status
}

/// The service's stream as a response that ends at the first error.
pub(crate) fn answer_stream<T: 'static, U: 'static>(
    log: CallLog,
    result: Result<ItemStream<T>, SessionsError>,
    convert: impl Fn(T, &mut Counts) -> Result<U, SessionsError> + Send + 'static,
) -> Result<Response<WireStream<U>>, Status> {
    let items = match result {
        Ok(items) => items,
        Err(error) => return Err(refusal(log, &error)),
    };
    let state = Some((items, log, convert));
    let stream = stream::unfold(state, async |state| {
        let (mut items, mut log, convert) = state?;
        let item = match items.next().await {
            None => {
                log.finish(Code::Ok);
                return None;
            }
            Some(item) => item.and_then(|item| convert(item, &mut log.counts)),
        };
        match item {
            Ok(item) => Some((Ok(item), Some((items, log, convert)))),
            Err(error) => Some((Err(refusal(log, &error)), None)),
        }
    });
    Ok(Response::new(Box::pin(stream)))
}

/// An answer about a session, with the host that has it at hand as a trailer.
pub(crate) fn warmed<T>(
    sessions: &dyn Sessions,
    session: &str,
    answer: Result<Response<T>, Status>,
) -> Result<Response<T>, Status> {
    let mut response = answer?;
    let uid = SessionUid::new(session).ok();
    if let Some(warm) = uid.and_then(|uid| sessions.warm_host(&uid)) {
        let at = if warm.address.is_empty() { warm.name } else { warm.address };
        add_trailer(&mut response, WARM_HOST, &at);
    }
    Ok(response)
}

/// As [`warmed`], of a stream that [`begun`] gave. One with signs of life starts
/// before it is known whether the caller may know anything: it is told nothing.
pub(crate) fn warmed_if_begun<U: Beats + Send + 'static>(
    sessions: &dyn Sessions,
    session: &str,
    answer: Response<WireStream<U>>,
    sending: Sending,
) -> Result<Response<WireStream<U>>, Status> {
    let answer = Ok(beating(answer, sending.heartbeat));
    if sending.heartbeat.is_some() { answer } else { warmed(sessions, session, answer) }
}

/// Adds the signs of life that the call asked for, and says so.
pub(crate) fn beating<U: Beats + Send + 'static>(
    response: Response<WireStream<U>>,
    interval: Option<Duration>,
) -> Response<WireStream<U>> {
    let mut response = response.map(|stream| with_heartbeats(stream, interval));
    if let Some(interval) = interval {
        response.metadata_mut().insert(metadata::HEARTBEAT, interval.as_secs().into());
    }
    response
}

/// The stream that `begin` gives. Who asked for signs of life gets them also
/// while it begins, which may take long: its answer starts before. Everybody
/// else has the answer start with it, and an error instead of it.
pub(crate) async fn begun<T: 'static>(
    begin: impl Future<Output = Result<ItemStream<T>, SessionsError>> + Send + 'static,
    sending: Sending,
) -> Result<ItemStream<T>, SessionsError> {
    match sending.heartbeat {
        None => begin.await,
        Some(_) => Ok(Box::pin(stream::once(begin).try_flatten())),
    }
}

/// How the records of a stream are sent.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sending {
    pub(crate) notes: NotesField,
    pub(crate) heartbeat: Option<Duration>,
}

impl Sending {
    pub(crate) fn asked(metadata: &MetadataMap) -> Result<Self, SessionsError> {
        Ok(Self { notes: notes(metadata)?, heartbeat: heartbeat::asked(metadata)? })
    }
}

/// Splits what a stream begins with, so that an error needs none of it.
pub(crate) fn split<T>(
    begun: Result<(Sending, T), SessionsError>,
) -> (Sending, Result<T, SessionsError>) {
    match begun {
        Ok((sending, items)) => (sending, Ok(items)),
        Err(error) => (Sending::default(), Err(error)),
    }
}

pub(crate) fn notes(metadata: &MetadataMap) -> Result<NotesField, SessionsError> {
    Ok(if metadata::switch(metadata, metadata::NOTES)? {
        NotesField::Send
    } else {
        NotesField::Omit
    })
}

pub(crate) fn to_session(session: Session) -> Result<v1::Session, SessionsError> {
    session.try_into().map_err(unsendable)
}

/// An update for the wire, counted.
pub(crate) fn to_update(
    update: ExecUpdate,
    notes: NotesField,
    counts: &mut Counts,
) -> Result<v1::ExecUpdate, SessionsError> {
    match &update {
        ExecUpdate::Session(_) => {}
        ExecUpdate::Record(_) => counts.add_record(),
        ExecUpdate::Delta(_) => counts.add_delta(),
    }
    mainspring_wire::update_to_wire(update, notes).map_err(unsendable)
}

/// The session that a resume ends with.
pub(crate) async fn last_session(mut updates: ExecStream) -> Result<Session, SessionsError> {
    let mut last = None;
    while let Some(update) = updates.next().await {
        if let ExecUpdate::Session(session) = update? {
            last = Some(*session);
        }
    }
    last.ok_or_else(|| SessionsError::new(Condition::Internal, "resume ended without its session"))
}
