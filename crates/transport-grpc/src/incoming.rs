//! Accepted connections, which can be cut when draining takes too long.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::{Stream, stream};
use mainspring_api::{BoxFuture, Bytes, Signal};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tonic::transport::server::Connected;

use crate::front::Peer;
use crate::listen::{Accepted, Socket};
use crate::tls::ServerTls;

/// After a failed accept, such as one for want of file descriptors: accepting
/// again at once would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How long a TLS handshake may take.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);

/// Handshakes at one time. Over it the oldest is given up: whoever is slow on
/// purpose makes room for those who are not.
const HANDSHAKES_MAX: usize = 1024;

/// A connection that fails once the signal is set.
pub(crate) struct Connection {
    stream: Accepted,
    peer: Peer,
    cut: BoxFuture<'static, ()>,
}

struct Incoming {
    socket: Socket,
    cut: Signal<()>,
    tls: Option<ServerTls>,
    handshakes: JoinSet<Option<TlsStream<TcpStream>>>,
    /// Of the handshakes, the oldest first.
    running: VecDeque<AbortHandle>,
}

/// Connections, one after another, until the stream is dropped.
///
/// With TLS they come as their handshakes end, so that none waits for another.
pub(crate) fn connections(
    socket: Socket,
    tls: Option<ServerTls>,
    cut: Signal<()>,
) -> impl Stream<Item = io::Result<Connection>> {
    let incoming =
        Incoming { socket, cut, tls, handshakes: JoinSet::new(), running: VecDeque::new() };
    stream::unfold(incoming, async |mut incoming| {
        let connection = incoming.next().await;
        Some((Ok(connection), incoming))
    })
}

impl Incoming {
    async fn next(&mut self) -> Connection {
        loop {
            let accepted = tokio::select! {
                accepted = self.socket.accept() => accepted,
                Some(ended) = self.handshakes.join_next() => {
                    if let Ok(Some(stream)) = ended {
                        return self.connection(Accepted::Tls(Box::new(stream)));
                    }
                    continue;
                }
            };
            match (accepted, &self.tls) {
                (Ok(Accepted::Tcp(stream)), Some(tls)) => {
                    let config = tls.config();
                    self.shake(stream, config);
                }
                (Ok(stream), _) => return self.connection(stream),
                (Err(error), _) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "connection not accepted"
                    );
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn shake(&mut self, stream: TcpStream, config: Arc<ServerConfig>) {
        while self.running.front().is_some_and(AbortHandle::is_finished) {
            self.running.pop_front();
        }
        if self.running.len() >= HANDSHAKES_MAX {
            tracing::warn!(HANDSHAKES_MAX, "too many TLS handshakes, the oldest is given up");
            if let Some(oldest) = self.running.pop_front() {
                oldest.abort();
            }
        }
        let shaking = self.handshakes.spawn(async move {
            let accepting = TlsAcceptor::from(config).accept(stream);
            match tokio::time::timeout(HANDSHAKE_MAX, accepting).await {
                Ok(Ok(stream)) => Some(stream),
                Ok(Err(error)) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::debug!(error, "TLS handshake failed");
                    None
                }
                Err(_) => {
                    tracing::debug!(seconds = HANDSHAKE_MAX.as_secs(), "TLS handshake too slow");
                    None
                }
            }
        });
        self.running.push_back(shaking);
    }

    fn connection(&self, stream: Accepted) -> Connection {
        let certificate = match &stream {
            Accepted::Tls(stream) => stream
                .get_ref()
                .1
                .peer_certificates()
                .and_then(<[_]>::first)
                .map(|certificate| Bytes::copy_from_slice(certificate)),
            Accepted::Tcp(_) | Accepted::Unix(_) => None,
        };
        Connection { stream, peer: Peer { certificate }, cut: Box::pin(self.cut.wait()) }
    }
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
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
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
            Accepted::Tls($stream) => {
                let $stream = Pin::new(&mut **$stream);
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
            Accepted::Tls(stream) => stream.is_write_vectored(),
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
