//! The two log events of each call that is served.

use mainspring_api::RequestId;
use tokio::time::Instant;
use tonic::Code;
use tracing::{error, info, warn};

/// How a method answers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RpcKind {
    Unary,
    Stream,
}

impl RpcKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::Stream => "stream",
        }
    }
}

/// What a call counted, where it applies.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counts {
    /// Inputs that a turn was asked for with.
    pub(crate) input_count: Option<u64>,
    /// Whether the end of the journal was named.
    pub(crate) cas_requested: Option<bool>,
    pub(crate) records_sent: Option<u64>,
    pub(crate) deltas_sent: Option<u64>,
    pub(crate) sessions_returned: Option<u64>,
    pub(crate) children_created: Option<u64>,
}

impl Counts {
    /// Of a stream that sends records, and deltas between them.
    pub(crate) fn of_records() -> Self {
        Self { records_sent: Some(0), ..Self::default() }
    }

    pub(crate) fn add_record(&mut self) {
        *self.records_sent.get_or_insert(0) += 1;
    }

    pub(crate) fn add_delta(&mut self) {
        *self.deltas_sent.get_or_insert(0) += 1;
    }
}

/// How many there are, as logs have it.
pub(crate) fn count(items: usize) -> Option<u64> {
    u64::try_from(items).ok()
}

/// A call that is being served. Logs its finish when it is told the code, or,
/// when it is dropped before, that the client went away.
#[derive(Debug)]
pub(crate) struct CallLog {
    method: &'static str,
    kind: RpcKind,
    request_id: RequestId,
    session: String,
    started: Instant,
    finished: bool,
    pub(crate) counts: Counts,
}

impl CallLog {
    pub(crate) fn start(
        method: &'static str,
        kind: RpcKind,
        request_id: RequestId,
        session: &str,
    ) -> Self {
        let session = crate::status::bounded(session);
        info!(
            component = "grpc",
            operation = operation(method),
            phase = "start",
            rpc_method = method,
            rpc_kind = kind.name(),
            request_id = request_id.as_str(),
            session_uid = session,
            "operation started"
        );
        Self {
            method,
            kind,
            request_id,
            session,
            started: Instant::now(),
            finished: false,
            counts: Counts::default(),
        }
    }

    pub(crate) fn finish(mut self, code: Code) {
        self.log(code);
    }

    fn log(&mut self, code: Code) {
        if std::mem::replace(&mut self.finished, true) {
            return;
        }
        let outcome = if code == Code::Ok { "success" } else { "error" };
        let duration_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        let counts = self.counts;
        macro_rules! event {
            ($level:ident) => {
                $level!(
                    component = "grpc",
                    operation = operation(self.method),
                    phase = "finish",
                    outcome,
                    duration_ms,
                    rpc_method = self.method,
                    rpc_kind = self.kind.name(),
                    request_id = self.request_id.as_str(),
                    session_uid = self.session,
                    grpc_code = ?code,
                    error_kind = error_kind(code),
                    input_count = counts.input_count,
                    cas_requested = counts.cas_requested,
                    records_sent = counts.records_sent,
                    deltas_sent = counts.deltas_sent,
                    sessions_returned = counts.sessions_returned,
                    children_created = counts.children_created,
                    "operation finished"
                )
            };
        }
        match code {
            Code::Unavailable => event!(warn),
            _ if error_kind(code) == INTERNAL => event!(error),
            _ => event!(info),
        }
    }
}

impl Drop for CallLog {
    fn drop(&mut self) {
        self.log(Code::Cancelled);
    }
}

/// The last segment of a method's full name.
fn operation(method: &'static str) -> &'static str {
    method.rsplit('/').next().unwrap_or(method)
}

const INTERNAL: &str = "internal";

fn error_kind(code: Code) -> &'static str {
    match code {
        Code::Ok => "",
        Code::Aborted => "conflict",
        Code::FailedPrecondition => "failed_precondition",
        Code::InvalidArgument => "invalid_argument",
        Code::Cancelled => "canceled",
        Code::DeadlineExceeded => "deadline_exceeded",
        Code::Unavailable => "unavailable",
        Code::NotFound => "not_found",
        Code::AlreadyExists => "already_exists",
        Code::PermissionDenied => "permission_denied",
        Code::Unauthenticated => "unauthenticated",
        _ => INTERNAL,
    }
}
