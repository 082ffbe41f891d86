//! A registration is refused for a field that this schema does not know, which
//! protobuf would leave out without a word.

use std::convert::Infallible;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use mainspring_api::{BoxFuture, Bytes, Condition, SessionsError, method};
use mainspring_wire::registration_fields;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

use crate::sessions::bad_request;
use crate::status::to_status;

/// What precedes a message: whether it is compressed, and its length.
const FRAME_BYTES: usize = 5;

/// The registry's service, whose registrations are looked at as they came.
#[derive(Debug, Clone)]
pub(crate) struct Strict<S> {
    inner: S,
    bytes_max: usize,
}

impl<S> Strict<S> {
    pub(crate) const fn new(inner: S, bytes_max: usize) -> Self {
        Self { inner, bytes_max }
    }
}

impl<S: NamedService> NamedService for Strict<S> {
    const NAME: &'static str = S::NAME;
}

/// The message of a body with a single plain one.
fn message(body: &Bytes) -> Option<&[u8]> {
    let (frame, message) = body.split_at_checked(FRAME_BYTES)?;
    let length = u32::from_be_bytes(frame[1..].try_into().ok()?);
    let whole = usize::try_from(length).is_ok_and(|length| length == message.len());
    (frame[0] == 0 && whole).then_some(message)
}

async fn checked(request: Request<Body>, bytes_max: usize) -> Result<Request<Body>, SessionsError> {
    let (parts, body) = request.into_parts();
    let collected = Limited::new(body, bytes_max.saturating_add(FRAME_BYTES)).collect().await;
    let body = collected.map_err(|error| {
        if error.is::<http_body_util::LengthLimitError>() {
            let text = format!("the message is larger than message_bytes_max, {bytes_max} bytes");
            return SessionsError::new(Condition::ValueTooLarge, text);
        }
        SessionsError::new(Condition::Cancelled, "the request was cut")
    })?;
    let body = body.to_bytes();
    // Anything else is malformed, and what decodes it says so.
    if let Some(message) = message(&body) {
        registration_fields(message).map_err(bad_request)?;
    }
    Ok(Request::from_parts(parts, Body::new(Full::new(body))))
}

impl<S> Service<Request<Body>> for Strict<S>
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

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let clone = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, clone);
        let bytes_max = self.bytes_max;
        Box::pin(async move {
            let request = if request.uri().path() == method::REGISTER_HARNESS {
                match checked(request, bytes_max).await {
                    Ok(request) => request,
                    Err(error) => return Ok(to_status(&error).into_http()),
                }
            } else {
                request
            };
            inner.call(request).await
        })
    }
}
