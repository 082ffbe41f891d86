//! What happens to a call before its method sees it: who calls is settled
//! before a byte of the message is read, and a message that cannot be read is
//! refused in the words of this service.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use http_body::Frame;
use http_body_util::BodyExt as _;
use mainspring_api::{
    Authenticator, AuthnError, BoxFuture, Bytes, Caller, Condition, Credentials, RequestId, Secret,
    SessionsError, Verified, method,
};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::{Code, Extensions, Status};
use tower::Service;

use crate::call::{CallLog, RpcKind};
use crate::metadata;
use crate::methods;
use crate::options::LinkOptions;
use crate::status::to_status;

/// How long an authenticator may take. Then the caller is told that its
/// credentials cannot be checked now.
pub const AUTHENTICATE_MAX: Duration = Duration::from_secs(10);

/// The longest `authorization` header that is looked at.
pub const AUTHORIZATION_BYTES_MAX: usize = 8 << 10;

// One text for all of them: which rule a credential broke is no business of
// somebody without one.
const UNAUTHENTICATED: &str = "the call has no valid credentials";
const UNCHECKED: &str = "credentials cannot be checked now";

/// What a connection proved of its client.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    /// DER of the client's certificate, verified in the handshake.
    pub(crate) certificate: Option<Bytes>,
}

/// What is known of a call whose message is still to be read.
#[derive(Debug, Clone)]
pub(crate) struct Admitted {
    request_id: RequestId,
    verified: Option<Verified>,
    /// Set once the call's method has it: its log is then its own matter.
    taken: Arc<AtomicBool>,
}

impl Admitted {
    /// Of a call that came through a [`Front`], which all do.
    pub(crate) fn of(extensions: &Extensions) -> Self {
        extensions.get::<Self>().cloned().expect("a front runs before every method")
    }

    /// Whose call it is, and the start of its log.
    pub(crate) fn begin(
        &self,
        method: &'static str,
        kind: RpcKind,
        session: &str,
    ) -> (Caller, CallLog) {
        self.taken.store(true, Ordering::Relaxed);
        let log = CallLog::start(method, kind, self.request_id.clone(), session);
        let mut caller = Caller::anonymous(method, self.request_id.clone());
        if let Some(verified) = self.verified.clone() {
            caller.identity = Some(verified.identity);
            caller.expires = verified.expires;
        }
        (caller, log)
    }
}

/// Trailers of an answer, set among its extensions.
#[derive(Debug, Clone, Default)]
struct Trailers(HeaderMap);

/// Adds a trailer to an answer that is about to be sent. What is no printable
/// ASCII of it is written as `%XX`.
pub(crate) fn add_trailer<T>(response: &mut tonic::Response<T>, name: &'static str, text: &str) {
    let Ok(value) = HeaderValue::from_str(&metadata::printable(text)) else { return };
    let extensions = response.extensions_mut();
    let mut trailers = extensions.remove::<Trailers>().unwrap_or_default();
    trailers.0.insert(HeaderName::from_static(name), value);
    extensions.insert(trailers);
}

/// Who may call the services that it is put before.
#[derive(Clone)]
pub(crate) struct Front {
    pub(crate) link: LinkOptions,
    pub(crate) authenticator: Option<Arc<dyn Authenticator>>,
}

impl fmt::Debug for Front {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Front").field("authenticator", &self.authenticator).finish_non_exhaustive()
    }
}

impl Front {
    pub(crate) fn new(link: LinkOptions) -> Self {
        Self { link, authenticator: None }
    }

    pub(crate) fn before<S>(self, inner: S) -> Fronted<S> {
        Fronted { inner, front: self }
    }

    async fn admit(&self, request: &mut Request<Body>) -> Result<Option<Verified>, SessionsError> {
        let Some(authenticator) = &self.authenticator else {
            return Ok(None);
        };
        let bearer = bearer(request.headers())?;
        let certificate =
            request.extensions().get::<Peer>().and_then(|peer| peer.certificate.clone());
        // Nothing behind this needs it.
        request.headers_mut().remove(AUTHORIZATION);
        if bearer.is_none() && certificate.is_none() {
            return Err(unauthenticated());
        }
        let credentials = Credentials { bearer, certificate };
        let checking = authenticator.authenticate(&credentials);
        match tokio::time::timeout(AUTHENTICATE_MAX, checking).await {
            Ok(Ok(verified)) => Ok(Some(verified)),
            Ok(Err(AuthnError::Unauthenticated(why))) => {
                tracing::debug!(why, "credentials refused");
                Err(unauthenticated())
            }
            Ok(Err(error)) => {
                tracing::warn!(error = &error as &dyn std::error::Error, UNCHECKED);
                Err(SessionsError::new(Condition::Unavailable, UNCHECKED))
            }
            Err(_) => {
                tracing::warn!(
                    seconds = AUTHENTICATE_MAX.as_secs(),
                    "an authenticator took too long"
                );
                Err(SessionsError::new(Condition::Unavailable, UNCHECKED))
            }
        }
    }

    /// The error of a message that could not be read; `None` leaves it as it is.
    fn unread(&self, status: &Status) -> Option<SessionsError> {
        unread(status, self.link.message_bytes_max)
    }
}

/// The error of a message that could not be read, by the status of what read it.
pub(crate) fn unread(status: &Status, bytes_max: usize) -> Option<SessionsError> {
    match status.code() {
        Code::OutOfRange => Some(SessionsError::new(
            Condition::ValueTooLarge,
            format!("the message is larger than message_bytes_max, {bytes_max} bytes"),
        )),
        Code::Internal => {
            let text = match malformed_field(status.message()) {
                Some(field) => format!("the message is malformed at {field}"),
                None => "the message is malformed".to_owned(),
            };
            Some(SessionsError::new(Condition::InvalidArgument, text))
        }
        _ => None,
    }
}

/// The field that could not be read, by the words of what read the message:
/// they have its path and type, as `GetSessionRequest.uid`, before what is wrong
/// with it. The words themselves are another library's, and stay here.
fn malformed_field(words: &str) -> Option<String> {
    let rest = words.strip_prefix("failed to decode Protobuf message: ")?;
    let mut path: Vec<&str> = rest
        .split(": ")
        .map_while(|step| {
            let (message, field) = step.split_once('.')?;
            let is_name = |name: &str| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
            };
            (is_name(message) && is_name(field)).then_some(field)
        })
        .collect();
    // The innermost message comes first.
    path.reverse();
    (!path.is_empty()).then(|| path.join("."))
}

fn unauthenticated() -> SessionsError {
    SessionsError::new(Condition::Unauthenticated, UNAUTHENTICATED)
}

/// The bearer token of a call, if it has one.
fn bearer(headers: &HeaderMap) -> Result<Option<Secret>, SessionsError> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() || value.len() > AUTHORIZATION_BYTES_MAX {
        return Err(unauthenticated());
    }
    let text = value.to_str().map_err(|_| unauthenticated())?;
    let (scheme, token) = text.split_once(' ').ok_or_else(unauthenticated)?;
    let one_word = !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_graphic());
    if !scheme.eq_ignore_ascii_case("bearer") || !one_word {
        return Err(unauthenticated());
    }
    Ok(Some(Secret::new(token.to_owned())))
}

/// A gRPC service for a router: what the servers of this crate turn into.
pub trait GrpcService:
    Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
    > + NamedService
    + Clone
    + Send
    + Sync
    + 'static
{
}

impl<S> GrpcService for Fronted<S> where
    Self: Service<
            Request<Body>,
            Response = Response<Body>,
            Error = Infallible,
            Future = BoxFuture<'static, Result<Response<Body>, Infallible>>,
        > + NamedService
        + Clone
        + Send
        + Sync
        + 'static
{
}

/// A service with a [`Front`] before it.
#[derive(Debug, Clone)]
pub(crate) struct Fronted<S> {
    inner: S,
    front: Front,
}

impl<S: NamedService> NamedService for Fronted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Fronted<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        // The one that is ready is used, and a clone of it left.
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let front = self.front.clone();
        Box::pin(async move {
            let called = methods::called(request.uri().path());
            let request_id = metadata::request_id(request.headers(), &*front.link.entropy);
            let log_refusal = |code| {
                if let Some((method, kind)) = called {
                    CallLog::start(method, kind, request_id.clone(), "").finish(code);
                }
            };
            let verified = match front.admit(&mut request).await {
                Ok(verified) => verified,
                Err(error) => {
                    let status = to_status(&error);
                    log_refusal(status.code());
                    return Ok(status.into_http());
                }
            };
            let taken = Arc::new(AtomicBool::new(false));
            request.extensions_mut().insert(Admitted {
                request_id: request_id.clone(),
                verified,
                taken: Arc::clone(&taken),
            });
            // The one method whose client streams, and whose end means something.
            if matches!(called, Some((method::IMPORT, _))) {
                request = crate::whole::request(request);
            }
            let response = inner.call(request).await?;
            if taken.load(Ordering::Relaxed) {
                return Ok(with_trailers(response));
            }
            let Some(status) = Status::from_header_map(response.headers()) else {
                return Ok(response);
            };
            match called.and_then(|_| front.unread(&status)) {
                Some(error) => {
                    let status = to_status(&error);
                    log_refusal(status.code());
                    Ok(status.into_http())
                }
                None => {
                    log_refusal(status.code());
                    Ok(response)
                }
            }
        })
    }
}

fn with_trailers(mut response: Response<Body>) -> Response<Body> {
    let Some(Trailers(added)) = response.extensions_mut().remove::<Trailers>() else {
        return response;
    };
    response.map(|body| {
        Body::new(body.map_frame(move |frame| match frame.into_trailers() {
            Ok(mut trailers) => {
                trailers.extend(added.clone());
                Frame::trailers(trailers)
            }
            Err(frame) => frame,
        }))
    })
}

#[cfg(test)]
mod tests {
    use mainspring_wire::v1;
    use prost::Message as _;

    use super::malformed_field;

    #[test]
    fn a_field_that_cannot_be_read_is_named_and_nothing_else_is() {
        for (message, field) in [
            (&b"\x0a\x02\xff\xff"[..], Some("session")),
            (b"\x12\x04\x0a\x02\xff\xff", Some("inputs.role")),
            (b"\x08\x01", Some("session")),
            (b"\xff", None),
        ] {
            let error = v1::ExecRequest::decode(message).unwrap_err().to_string();
            assert_eq!(malformed_field(&error).as_deref(), field, "{error}");
        }
        for words in ["", "Unexpected EOF", "failed to decode Protobuf message: bytes a.b: c"] {
            assert_eq!(malformed_field(words), None);
        }
    }
}
