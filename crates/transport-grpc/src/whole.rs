//! A request that ends only where its client ended it.
//!
//! The libraries take a request whose stream was reset (with NO_ERROR, or with
//! CANCEL) for one that has ended: an import that was given up would be
//! published as far as it came.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::Request;
use http_body::{Frame, SizeHint};
use mainspring_api::Bytes;
use tonic::body::Body;
use tonic::{Code, Status};

/// The same request, where a cut is an error.
pub(crate) fn request(request: Request<Body>) -> Request<Body> {
    request.map(|inner| Body::new(Whole { inner, ended: false }))
}

struct Whole {
    inner: Body,
    ended: bool,
}

/// Not CANCELLED, which the library hides.
fn cut() -> Status {
    Status::unavailable("the request was cut")
}

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let frame = std::task::ready!(Pin::new(&mut self.inner).poll_frame(cx));
        Poll::Ready(match frame {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(status)) if status.code() == Code::Cancelled => Some(Err(cut())),
            Some(Err(status)) => Some(Err(status)),
            None => {
                self.ended = true;
                // Set only once the client has closed its side.
                (!self.inner.is_end_stream()).then(|| Err(cut()))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.ended
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
