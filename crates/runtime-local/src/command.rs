//! Children as plain commands of this machine.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainspring_api::async_trait;
use mainspring_support_process::ProcessGroup;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::error::LaunchError;
use crate::launcher::{ChildProcess, Exit, Launch, Launcher};

/// How much of a child's standard error is kept.
pub const STDERR_TAIL_BYTES: usize = 4096;

/// How long the rest of standard error is read after the child has ended. Its
/// process group is dead by then, so only a pipe that was handed to another
/// group is still open.
const STDERR_REST_WITHIN: Duration = Duration::from_secs(1);

/// Starts a child as a command, in a process group of its own.
#[derive(Debug, Clone, Copy, Default)]
pub struct CommandLauncher;

#[async_trait]
impl Launcher for CommandLauncher {
    async fn launch(&self, launch: &Launch<'_>) -> Result<Box<dyn ChildProcess>, LaunchError> {
        let spec = launch.spec;
        let mut command = Command::new(&spec.program);
        for name in launch.env_withheld {
            command.env_remove(name);
        }
        command
            .args(&spec.args)
            .envs(&spec.env)
            // No payload travels by environment: whoever may list processes reads it.
            .env_remove("HARNESS_SESSION")
            .env("HARNESS_ADDR", launch.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let child = command
            .spawn()
            .map_err(|source| LaunchError::Spawn { program: spec.program.clone(), source })?;
        Ok(Box::new(CommandChild::watch(child)))
    }
}

/// A command that was started, watched by a task that reaps it.
#[derive(Debug)]
struct CommandChild {
    group: ProcessGroup,
    /// Open as long as the child is to live.
    stdin: Mutex<Option<ChildStdin>>,
    exit: watch::Receiver<Option<Exit>>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
}

impl CommandChild {
    fn watch(mut child: Child) -> Self {
        let group = ProcessGroup::led_by(child.id().unwrap_or_default());
        let stdin = child.stdin.take();
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let reading =
            child.stderr.take().map(|pipe| tokio::spawn(keep_tail(pipe, Arc::clone(&stderr))));
        let (ended, exit) = watch::channel(None);
        tokio::spawn(async move {
            let status = child.wait().await;
            // What the child left behind in its group must not outlive it.
            group.kill();
            if let Some(mut reading) = reading
                && timeout(STDERR_REST_WITHIN, &mut reading).await.is_err()
            {
                reading.abort();
            }
            ended.send_replace(Some(status.map_or(Exit::Unknown, exit_of)));
        });
        Self { group, stdin: Mutex::new(stdin), exit, stderr }
    }

    async fn ends_within(&self, grace: Duration) -> Option<Exit> {
        timeout(grace, self.wait()).await.ok()
    }
}

#[async_trait]
impl ChildProcess for CommandChild {
    fn pid(&self) -> u32 {
        self.group.leader()
    }

    fn exit(&self) -> Option<Exit> {
        *self.exit.borrow()
    }

    async fn wait(&self) -> Exit {
        let mut exit = self.exit.clone();
        // The sender is gone without a value only when the executor shut down.
        exit.wait_for(Option::is_some)
            .await
            .map_or(Exit::Unknown, |exit| exit.unwrap_or(Exit::Unknown))
    }

    async fn stop(&self, grace: Duration) -> Result<Exit, LaunchError> {
        drop(self.stdin.lock().unwrap_or_else(PoisonError::into_inner).take());
        for harder in [ProcessGroup::terminate, ProcessGroup::kill] {
            if let Some(exit) = self.ends_within(grace).await {
                return Ok(exit);
            }
            harder(self.group);
        }
        let within = grace + STDERR_REST_WITHIN;
        self.ends_within(within).await.ok_or(LaunchError::Unkillable { within })
    }

    fn stderr_tail(&self) -> String {
        let mut tail = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(tail.make_contiguous()).trim().to_owned()
    }
}

impl Drop for CommandChild {
    fn drop(&mut self) {
        if self.exit().is_none() {
            self.group.kill();
        }
    }
}

fn exit_of(status: ExitStatus) -> Exit {
    match (status.code(), status.signal()) {
        (Some(code), _) => Exit::Status(code),
        (None, Some(signal)) => Exit::Signal(signal),
        (None, None) => Exit::Unknown,
    }
}

/// Reads `pipe` to its end, so that the child never blocks on it.
async fn keep_tail(mut pipe: impl AsyncRead + Unpin, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = [0u8; STDERR_TAIL_BYTES];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        let mut tail = tail.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(&chunk[..n]);
        let over = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..over);
    }
}
