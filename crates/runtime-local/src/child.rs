//! A child process with its socket, from launch to end.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use mainspring_api::Resumability;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::error::LaunchError;
use crate::launcher::{ChildProcess, Launch, Launcher};

/// `sun_path` holds 108 bytes with its terminator.
const SOCKET_PATH_BYTES_MAX: usize = 107;

const CONNECT_BACKOFF_MIN: Duration = Duration::from_millis(5);
const CONNECT_BACKOFF_MAX: Duration = Duration::from_millis(100);

/// A folder that only this user can enter.
pub(crate) fn socket_folder(parent: Option<&Path>) -> Result<TempDir, LaunchError> {
    let mut builder = tempfile::Builder::new();
    builder.prefix("mainspring-").permissions(Permissions::from_mode(0o700));
    let made = match parent {
        Some(parent) => builder.tempdir_in(parent),
        None => builder.tempdir(),
    };
    made.map_err(LaunchError::SocketFolder)
}

/// A child that serves on its socket.
#[derive(Debug)]
pub(crate) struct ServingChild {
    pub(crate) harness: String,
    pub(crate) resumability: Resumability,
    pub(crate) process: Box<dyn ChildProcess>,
    socket: SocketFile,
}

impl ServingChild {
    /// Starts a child and waits until its socket accepts. When it does not, the
    /// child has been ended before this returns.
    pub(crate) async fn start(
        launcher: &dyn Launcher,
        launch: &Launch<'_>,
        folder: Arc<TempDir>,
        resumability: Resumability,
        ready_within: Duration,
        stop_grace: Duration,
    ) -> Result<Self, LaunchError> {
        let socket = SocketFile::checked(launch.socket, folder)?;
        let process = launcher.launch(launch).await?;
        let child = Self { harness: launch.harness.to_owned(), resumability, process, socket };
        match child.ready(ready_within).await {
            Ok(()) => Ok(child),
            Err(error) => {
                child.end(stop_grace).await?;
                Err(error)
            }
        }
    }

    async fn ready(&self, within: Duration) -> Result<(), LaunchError> {
        let accepted = timeout(within, accepts(&self.socket.path));
        tokio::select! {
            biased;
            exit = self.process.wait() => Err(LaunchError::Exited {
                exit,
                stderr: self.process.stderr_tail(),
            }),
            accepted = accepted => accepted.map_err(|_| LaunchError::NotReady {
                within,
                stderr: self.process.stderr_tail(),
            }),
        }
    }

    pub(crate) fn address(&self) -> String {
        format!("unix://{}", self.socket.path.display())
    }

    /// Ends the child and removes its socket. A dropped future kills it at once.
    pub(crate) async fn end(self, grace: Duration) -> Result<(), LaunchError> {
        self.process.stop(grace).await.map(|_| ())
    }
}

async fn accepts(path: &Path) {
    let mut backoff = CONNECT_BACKOFF_MIN;
    while UnixStream::connect(path).await.is_err() {
        sleep(backoff).await;
        backoff = (backoff * 2).min(CONNECT_BACKOFF_MAX);
    }
}

/// Removes the socket when it is dropped; keeps its folder until then.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    _folder: Arc<TempDir>,
}

impl SocketFile {
    fn checked(path: &Path, folder: Arc<TempDir>) -> Result<Self, LaunchError> {
        let bytes = path.as_os_str().len();
        if bytes > SOCKET_PATH_BYTES_MAX || path.to_str().is_none() {
            return Err(LaunchError::SocketPath { bytes, bytes_max: SOCKET_PATH_BYTES_MAX });
        }
        Ok(Self { path: path.to_owned(), _folder: folder })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}
