//! Bodies that end only where their sender ended them.
//!
//! The gRPC library takes a request whose client gave it up for one that has
//! ended, and an answer without a status for a good one. A cut import would be
//! published, and a cut turn taken for a finished one.

use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response, StatusCode};
use http_body::{Frame, SizeHint};
use mainspring_api::Bytes;
use tonic::body::Body;
use tonic::{Code, Status};

/// A request whose stream was cut is an error, and not an end.
pub(crate) fn request(request: Request<Body>) -> Request<Body> {
    request.map(|inner| Body::new(Whole { inner, ended: Ended::ByPeer }))
}

/// An answer without a status is an error, and not a success.
pub(crate) fn answer(response: Response<Body>) -> Response<Body> {
    // Another code than 200 says enough, and came from no gRPC server.
    let said = response.status() != StatusCode::OK;
    if said || Status::from_header_map(response.headers()).is_some() {
        return response;
    }
    response.map(|inner| Body::new(Whole { inner, ended: Ended::ByTrailers { seen: false } }))
}

/// How it is known that a body is whole.
#[derive(Debug)]
enum Ended {
    /// The other side has closed its direction of the stream.
    ByPeer,
    /// Trailers came.
    ByTrailers { seen: bool },
}

struct Whole {
    inner: Body,
    ended: Ended,
}

/// A body that was cut. Not a status: it was made on this side.
#[derive(Debug, thiserror::Error)]
#[error("the stream was cut")]
struct Cut;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl http_body::Body for Whole {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let frame = std::task::ready!(http_body::Body::poll_frame(Pin::new(&mut self.inner), cx));
        match frame {
            Some(Ok(frame)) => {
                if let Ended::ByTrailers { seen } = &mut self.ended {
                    *seen |= frame.is_trailers();
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(status)) => {
                let given_up =
                    matches!(self.ended, Ended::ByPeer) && status.code() == Code::Cancelled;
                Poll::Ready(Some(Err(if given_up { Cut.into() } else { status.into() })))
            }
            None => {
                let whole = match self.ended {
                    Ended::ByPeer => http_body::Body::is_end_stream(&self.inner),
                    Ended::ByTrailers { seen } => seen,
                };
                // An error is said once.
                self.ended = Ended::ByTrailers { seen: true };
                Poll::Ready((!whole).then(|| Err(Cut.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        // Never early: whether it is whole shows at the end alone.
        false
    }

    fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.inner)
    }
}
