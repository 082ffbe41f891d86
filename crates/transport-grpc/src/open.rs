//! The services beside those that are served for: health, which is open to
//! everybody, and reflection. Neither may hold up a server that stops.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body as HttpBody, Frame, SizeHint};
use mainspring_api::{BoxFuture, Bytes, Signal};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;
use tonic::body::Body;
use tonic::server::NamedService;
use tower::Service;

/// Streams of the health service (Watch) and of reflection that may be open on
/// one listener at a time. One more is refused with `RESOURCE_EXHAUSTED`.
pub const WATCHES_MAX: usize = 64;

/// The health service's method that is no stream.
const CHECK: &str = "/grpc.health.v1.Health/Check";

/// What the streams of one listener share.
#[derive(Debug, Clone)]
pub(crate) struct Watches {
    places: Arc<Semaphore>,
    stopping: Signal<()>,
}

impl Watches {
    pub(crate) fn new() -> Self {
        Self { places: Arc::new(Semaphore::new(WATCHES_MAX)), stopping: Signal::default() }
    }

    /// To be set once the last status was told.
    pub(crate) fn stopping(&self) -> Signal<()> {
        self.stopping.clone()
    }

    pub(crate) fn of<S>(&self, inner: S) -> Watched<S> {
        Watched { inner, watches: self.clone() }
    }
}

/// A service whose streams are bounded in number, and end with the server.
#[derive(Debug, Clone)]
pub(crate) struct Watched<S> {
    inner: S,
    watches: Watches,
}

impl<S: NamedService> NamedService for Watched<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Watched<S>
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
        let Watches { places, stopping } = self.watches.clone();
        Box::pin(async move {
            let place = match request.uri().path() {
                CHECK => None,
                _ => match places.try_acquire_owned() {
                    Ok(place) => Some(place),
                    Err(_) => {
                        let message =
                            format!("{WATCHES_MAX} streams are open already (WATCHES_MAX)");
                        return Ok(Status::resource_exhausted(message).into_http());
                    }
                },
            };
            let until_then = || Box::pin(stopping.wait()) as BoxFuture<'static, ()>;
            // A client that has not said its last word keeps nobody waiting either.
            let request = request.map(|body| Body::new(Ending::of(body, until_then(), Last::Word)));
            let answer = tokio::select! {
                biased;
                answer = inner.call(request) => answer?,
                // Its message never came.
                () = stopping.wait() => return Ok(Status::unavailable("draining").into_http()),
            };
            let last = Last::Status(place);
            Ok(answer.map(|body| Body::new(Ending::of(body, until_then(), last))))
        })
    }
}

/// A body that ends, and well, once it has nothing to say and the server stops.
struct Ending {
    body: Body,
    ending: BoxFuture<'static, ()>,
    ended: bool,
    last: Last,
}

/// How a body ends that was ended here.
enum Last {
    /// As a client's does.
    Word,
    /// As an answer does that was whole. Until then it has its place.
    Status(#[expect(dead_code, reason = "held")] Option<OwnedSemaphorePermit>),
}

impl Ending {
    fn of(body: Body, ending: BoxFuture<'static, ()>, last: Last) -> Self {
        Self { body, ending, ended: false, last }
    }
}

impl HttpBody for Ending {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        // The last status goes out before the end.
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            return Poll::Ready(frame);
        }
        if self.ending.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        self.ended = true;
        if matches!(self.last, Last::Word) {
            return Poll::Ready(None);
        }
        let ok = ("grpc-status".parse().expect("a name"), HeaderValue::from_static("0"));
        Poll::Ready(Some(Ok(Frame::trailers(HeaderMap::from_iter([ok])))))
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::default()
    }
}
