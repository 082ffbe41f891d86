//! Accepted connections, which can be cut when draining takes too long.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use mainspring_api::{BoxFuture, Signal};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tonic::transport::server::Connected;

use crate::listen::{Accepted, Socket};

/// After a failed accept, such as one for want of file descriptors: accepting
/// again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A connection that fails once the signal is set.
pub(crate) struct Connection {
    stream: Accepted,
    cut: BoxFuture<'static, ()>,
}

/// Connections, one after another, until the stream is dropped.
pub(crate) fn connections(
    socket: Socket,
    cut: Signal<()>,
) -> impl Stream<Item = io::Result<Connection>> {
    stream::unfold((socket, cut), async |(socket, cut)| {
        loop {
            match socket.accept().await {
                Ok(stream) => {
                    let connection = Connection { stream, cut: Box::pin(cut.wait()) };
                    return Some((Ok(connection), (socket, cut)));
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "connection not accepted"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

impl Connection {
    /// Also registers the connection's task to be woken by the signal.
    fn check(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        match self.cut.as_mut().poll(cx) {
            Poll::Pending => Ok(()),
            Poll::Ready(()) => {
                // A finished future must not be polled again.
                self.cut = Box::pin(std::future::ready(()));
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

macro_rules! forward {
    ($self:ident, $stream:ident => $call:expr) => {
        match &mut $self.stream {
            Accepted::Tcp($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Accepted::Unix($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
        }
    };
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(cx)?;
        forward!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        forward!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check(cx)?;
        forward!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Accepted::Tcp(stream) => stream.is_write_vectored(),
            Accepted::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.check(cx)?;
        forward!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        forward!(self, stream => stream.poll_shutdown(cx))
    }
}
