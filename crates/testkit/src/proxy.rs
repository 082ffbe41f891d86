//! A TCP proxy that cuts, delays, and stalls without closing.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
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
    /// Bytes of the server that still pass before that.
    budget: Mutex<Option<usize>>,
    /// Moves when every connection is to stand still for good.
    freezes: watch::Sender<u64>,
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
            budget: Mutex::default(),
            freezes: watch::Sender::new(0),
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

    /// Waits until so many more bytes have come from the server, over all
    /// connections, and closes every connection behind exactly these. What
    /// drops this before has nothing cut.
    pub async fn cut_after(&self, bytes: usize) {
        struct Disarmed<'a>(&'a Shared);
        impl Drop for Disarmed<'_> {
            fn drop(&mut self) {
                *self.0.budget() = None;
            }
        }
        let mut cuts = self.shared.cuts.subscribe();
        let _disarmed = Disarmed(&self.shared);
        *self.shared.budget() = Some(bytes);
        // The sender lives in `shared`, so waiting cannot fail.
        let _ = cuts.changed().await;
    }

    /// Lets the connections that are there stand still for good, without
    /// closing them: as when somebody on the way forgets them. New ones pass.
    pub fn freeze(&self) {
        self.shared.freezes.send_modify(|freezes| *freezes += 1);
    }

    /// Connections that were taken so far.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn budget(&self) -> std::sync::MutexGuard<'_, Option<usize>> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many of these bytes of the server still pass, and whether the cut
    /// is behind them.
    fn spend(&self, bytes: usize) -> (usize, bool) {
        let mut budget = self.budget();
        let Some(left) = *budget else { return (bytes, false) };
        *budget = left.checked_sub(bytes).filter(|left| *left > 0);
        (bytes.min(left), budget.is_none())
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
    let mut freezes = shared.freezes.subscribe();
    let Ok(server) = TcpStream::connect(shared.upstream).await else { return };
    // A nod that waits for more bytes would be a delay of our own.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // The halves must outlive what freezes.
    let up = pass(from_client, to_server, shared.line.subscribe(), None);
    let down = pass(from_server, to_client, shared.line.subscribe(), Some(&shared));
    let (mut up, mut down) = (std::pin::pin!(up), std::pin::pin!(down));
    tokio::select! {
        _ = cuts.changed() => {}
        _ = freezes.changed() => std::future::pending().await,
        _ = &mut up => {}
        _ = &mut down => {}
    }
}

/// Passes bytes on until one side closes. Bytes from the server are counted.
async fn pass(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut line: watch::Receiver<Line>,
    counted: Option<&Shared>,
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
        let (passes, is_last) = counted.map_or((read, false), |shared| shared.spend(read));
        to.write_all(&piece[..passes]).await?;
        if let Some(shared) = counted.filter(|_| is_last) {
            shared.cuts.send_modify(|cuts| *cuts += 1);
            return Ok(());
        }
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
    async fn a_cut_comes_behind_the_byte_that_was_asked_for() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut stream, b"before").await.unwrap();
        let mut back = Vec::new();
        let asked = async {
            stream.write_all(b"hello").await.unwrap();
            // What it still had of ours may come back as a reset.
            let _ = stream.read_to_end(&mut back).await;
        };
        tokio::join!(proxy.cut_after(3), asked);
        assert_eq!(back, b"hel");
        drop(proxy.cut_after(1));
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(said(&mut stream, b"again").await.unwrap(), b"again");
    }

    #[tokio::test]
    async fn connections_that_froze_stay_so_and_new_ones_pass() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        let mut frozen = TcpStream::connect(proxy.address()).await.unwrap();
        said(&mut frozen, b"one").await.unwrap();
        proxy.freeze();
        let mut fresh = TcpStream::connect(proxy.address()).await.unwrap();
        assert_eq!(said(&mut fresh, b"two").await.unwrap(), b"two");
        frozen.write_all(b"three").await.unwrap();
        let mut back = [0; 5];
        let read = tokio::time::timeout(Duration::from_millis(50), frozen.read_exact(&mut back));
        read.await.expect_err("nothing comes, not even an end");
    }

    #[tokio::test]
    async fn a_line_that_is_down_takes_nobody() {
        let proxy = Proxy::to(echo().await).await.unwrap();
        proxy.set(Line::Down);
        let mut stream = TcpStream::connect(proxy.address()).await.unwrap();
        assert!(said(&mut stream, b"hello").await.is_err());
    }
}
