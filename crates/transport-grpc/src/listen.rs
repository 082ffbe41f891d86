//! Listeners: TCP, and unix sockets that only their owner can reach.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode, OFlags, fchmod, flock};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixSocket, UnixStream};
use tokio_rustls::server::TlsStream;

use crate::address::{AddressError, PeerAddress};
use crate::tls::TlsError;

/// Connections that may wait to be accepted.
const BACKLOG: u32 = 1024;

/// Why an address cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The address has no legal form.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Another live process serves there.
    #[error("{address} is served by another process")]
    InUse {
        /// Where.
        address: String,
    },
    /// What is at the socket's path, or at its lock's, is not ours to replace.
    #[error("{}: {why}", .path.display())]
    NotOurs {
        /// The path.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The address cannot be bound.
    #[error("{address} cannot be bound")]
    Bind {
        /// Where.
        address: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The server broke down.
    #[error("server failed")]
    Serve(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Calls were still running when the bound on draining was over; they were cut.
    #[error("calls were still running after {seconds} s of draining")]
    DrainTimeout {
        /// The bound.
        seconds: u64,
    },
}

/// A bound address that is not served yet.
#[derive(Debug)]
pub struct Listener {
    pub(crate) socket: Socket,
    address: PeerAddress,
    // Held while serving; dropping it removes the socket, then the lock.
    pub(crate) guard: Option<SocketGuard>,
}

#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Listener {
    /// Binds `host:port` (port 0 picks a free one), `unix:///abs` or `unix:path`.
    ///
    /// A unix socket has mode 0600. One that a dead process left behind is
    /// replaced; `PATH.lock` is held while it is served, so that two processes
    /// never take each other for dead.
    ///
    /// # Errors
    /// [`ServeError`]; nothing is left behind.
    pub async fn bind(address: &str) -> Result<Self, ServeError> {
        match PeerAddress::listen(address)? {
            PeerAddress::Tcp(authority) => {
                let bind = |source| ServeError::Bind { address: authority.clone(), source };
                let socket = TcpListener::bind(&authority).await.map_err(bind)?;
                let bound = socket.local_addr().map_err(bind)?;
                Ok(Self {
                    socket: Socket::Tcp(socket),
                    address: PeerAddress::Tcp(bound.to_string()),
                    guard: None,
                })
            }
            PeerAddress::Unix(path) => Self::bind_unix(path).await,
        }
    }

    async fn bind_unix(path: PathBuf) -> Result<Self, ServeError> {
        let address = PeerAddress::Unix(path.clone());
        let lock = lock(&path)?;
        clear_stale(&path).await?;
        let bind = |source| ServeError::Bind { address: address.to_string(), source };
        let socket = UnixSocket::new_stream().map_err(bind)?;
        // Before it has a name: at no moment can another user connect.
        fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(|error| bind(error.into()))?;
        socket.bind(&path).map_err(bind)?;
        let guard = SocketGuard::new(path, lock);
        let socket = socket.listen(BACKLOG).map_err(bind)?;
        Ok(Self { socket: Socket::Unix(socket), address, guard: Some(guard) })
    }

    /// Where it listens, with the port that was picked. Its text is an address
    /// that clients take.
    #[must_use]
    pub const fn address(&self) -> &PeerAddress {
        &self.address
    }
}

impl Socket {
    pub(crate) async fn accept(&self) -> io::Result<Accepted> {
        Ok(match self {
            Self::Tcp(socket) => {
                let (stream, _) = socket.accept().await?;
                stream.set_nodelay(true)?;
                Accepted::Tcp(stream)
            }
            Self::Unix(socket) => Accepted::Unix(socket.accept().await?.0),
        })
    }
}

/// Removes the socket when it is dropped, if it is still the one that was bound.
#[derive(Debug)]
pub(crate) struct SocketGuard {
    path: PathBuf,
    inode: Option<(u64, u64)>,
    _lock: File,
}

impl SocketGuard {
    fn new(path: PathBuf, lock: File) -> Self {
        let inode = inode(&path);
        Self { path, inode, _lock: lock }
    }
}

impl Drop for SocketGuard {
    fn drop(&mut self) {
        if self.inode.is_some() && inode(&self.path) == self.inode {
            // Someone else may have removed it; then there is nothing to do.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.dev(), found.ino()))
}

/// Takes the exclusive lock beside the socket. The file stays when the lock is
/// let go: removing it would let two processes lock two files of one name.
fn lock(socket: &Path) -> Result<File, ServeError> {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    let path = PathBuf::from(name);
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let opened = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(flags.bits().cast_signed())
        .open(&path);
    let file = opened.map_err(|source| match source.raw_os_error() {
        Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => {
            ServeError::NotOurs { path: path.clone(), why: "the lock is a symbolic link" }
        }
        _ => ServeError::Bind { address: path.display().to_string(), source },
    })?;
    let refuse = |why| ServeError::NotOurs { path: path.clone(), why };
    let found = file
        .metadata()
        .map_err(|source| ServeError::Bind { address: path.display().to_string(), source })?;
    if !found.is_file() {
        return Err(refuse("the lock is not a regular file"));
    }
    if found.nlink() != 1 {
        return Err(refuse("the lock has several names"));
    }
    if found.uid() != rustix::process::geteuid().as_raw() {
        return Err(refuse("the lock belongs to another user"));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| ServeError::InUse {
        address: PeerAddress::Unix(socket.to_owned()).to_string(),
    })?;
    Ok(file)
}

/// Removes a socket that nobody listens on. Anything else stays and is refused.
async fn clear_stale(path: &Path) -> Result<(), ServeError> {
    let Ok(found) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !found.file_type().is_socket() {
        return Err(ServeError::NotOurs {
            path: path.to_owned(),
            why: "there is something that is not a socket",
        });
    }
    let address = || PeerAddress::Unix(path.to_owned()).to_string();
    match UnixStream::connect(path).await {
        // A process that takes no lock serves there.
        Ok(_) => Err(ServeError::InUse { address: address() }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path)
                .map_err(|source| ServeError::Bind { address: address(), source })
        }
        Err(source) => Err(ServeError::Bind { address: address(), source }),
    }
}
