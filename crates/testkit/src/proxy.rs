//! A TCP proxy that cuts, delays, and stalls without closing.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// Bytes that are passed on at a time.
const PIECE_BYTES: usize = 16 << 10;

/// What the line is like.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Line {
    /// Bytes pass at once.
    #[default]
    Open,
    /// Bytes pass this much later.
    Slow(Duration),
    /// Bytes do not pass, and nobody is told: connections stay open, and new
    /// ones are taken.
    Stalled,
    /// Connections are refused, by closing them.
    Down,
}

/// A proxy in front of a server on this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct Shared {
    upstream: SocketAddr,
    line: watch::Sender<Line>,
    /// Moves when every connection is to be cut.
    cuts: watch::Sender<u64>,
    connections: AtomicUsize,
}

impl Proxy {
    /// A proxy to `upstream` on a port of its own. Must be called within a runtime.
    ///
    /// # Errors
    /// When no port can be bound.
    pub async fn to(upstream: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            line: watch::Sender::new(Line::Open),
            cuts: watch::Sender::new(0),
            connections: AtomicUsize::new(0),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared))).abort_handle();
        Ok(Self { address, shared, accepting })
    }

    /// Where to connect.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Changes the line, of connections that are there, too.
    pub fn set(&self, line: Line) {
        self.shared.line.send_replace(line);
    }

    /// Closes every connection that is there, in the middle of whatever it sends.
    pub fn cut(&self) {
        self.shared.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Connections that were taken so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends with this task, and every connection with it.
    let mut connections = JoinSet::new();
    loop {
        let Ok((client, _)) = listener.accept().await else { return };
        shared.connections.fetch_add(1, Ordering::Relaxed);
        if *shared.line.borrow() != Line::Down {
            connections.spawn(connection(client, Arc::clone(&shared)));
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    // A nod that waits for more bytes would be a delay of our own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        _ = cuts.changed() => {}
        _ = pass(from_client, to_server, shared.line.subscribe()) => {}
        _ = pass(from_server, to_client, shared.line.subscribe()) => {}
    }
}

/// Passes bytes on until one side closes.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut line: watch::Receiver<Line>,
) -> io::Result<()> {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(());
        }
        let now = *line.borrow_and_update();
        match now {
            Line::Open => {}
            Line::Slow(delay) => tokio::time::sleep(delay).await,
            Line::Stalled => {
                // The sender is gone only with the proxy, and this task with it.
                let _ = line.wait_for(|line| *line != Line::Stalled).await;
            }
            Line::Down => return Ok(()),
        }
        to.write_all(&piece[..read]).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    let _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn said(stream: &mut TcpStream, text: &[u8]) -> io::Result<Vec<u8>> {
        stream.write_all(text).await?;
        let mut back = vec![0; text.len()];
        stream.read_exact(&mut back).await?;
        Ok(back)
    }

    #[tokio::test]
    async fn bytes_pass_both_ways_until_the_line_is_cut() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(said(&mut stream, b"hello").await.unwrap(), b"hello");
        proxy.cut();
        assert!(said(&mut stream, b"again").await.is_err());
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(said(&mut stream, b"again").await.unwrap(), b"again");
        assert_eq!(proxy.connections(), 2);
    }

    #[tokio::test]
    async fn a_stalled_line_is_silent_and_stays_open() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut stream, b"one").await.unwrap();
        proxy.set(Line::Stalled);
        stream.write_all(b"two").await.unwrap();
        let mut back = [0; 3];
        let read = tokio::time::timeout(Duration::from_millis(50), stream.read_exact(&mut back));
        read.await.expect_err("nothing comes, not even an end");
        proxy.set(Line::Open);
        stream.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"two");
    }

    #[tokio::test]
    async fn a_line_that_is_down_takes_nobody() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        proxy.set(Line::Down);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(said(&mut stream, b"hello").await.is_err());
    }
}
