//! A tool as a command: one process group for each call, which does not outlive it.

use std::collections::VecDeque;
use std::mem;
use std::os::unix::process::ExitStatusExt as _;
use std::pin::pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use mainspring_api::{ToolCall, ToolResult, ToolScope};
use mainspring_support_process::ProcessGroup;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::{sleep, timeout};

use crate::answer::{failure, result_of, with_words};
use crate::config::ToolsOptions;
use crate::error::CallError;

/// How long the rest of the pipes is read after the command has ended. Its
/// group is dead by then, so only a process that left it holds them open.
const PIPES_REST_WITHIN: Duration = Duration::from_secs(1);

/// How long a killed command may take to be reaped.
const REAPED_WITHIN: Duration = Duration::from_secs(1);

const CHUNK_BYTES: usize = 16 << 10;

/// Variables of the host that begin so are settings of the host.
const HOST_PREFIX: &str = "MAINSPRING_";

pub(crate) async fn execute(
    program: &str,
    args: &[String],
    options: &ToolsOptions,
    within: Duration,
    scope: &ToolScope,
    call: &ToolCall,
    input: &[u8],
) -> Result<ToolResult, CallError> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.process_group(0).kill_on_drop(true);
    withhold(&mut command, options);
    command
        .env("MAINSPRING_IDEMPOTENCY_KEY", &call.idempotency_key)
        .env("MAINSPRING_SESSION", scope.session.as_str())
        .env("MAINSPRING_TOOL", &call.tool)
        .env("MAINSPRING_TOOL_CALL_ID", &call.id);
    let child = command
        .spawn()
        .map_err(|source| CallError::Spawn { program: program.to_owned(), source })?;
    let mut running = Running::new(child);
    let ended = running.end(options, within, input).await;
    if ended.is_err() {
        running.kill_and_reap().await;
    }
    let Ended { status, stdout, stderr } = ended?;
    if status.success() {
        return Ok(result_of(stdout));
    }
    match (status.code(), status.signal()) {
        (Some(code), _) => Ok(failure(with_words(&format!("exit status {code}"), &stderr))),
        (None, signal) => Err(CallError::Signal(signal.unwrap_or_default())),
    }
}

/// Keys and settings of the host are none of a command's business.
fn withhold(command: &mut Command, options: &ToolsOptions) {
    for name in &options.env_withheld {
        command.env_remove(name);
    }
    for (name, _) in std::env::vars_os() {
        if name.as_encoded_bytes().starts_with(HOST_PREFIX.as_bytes()) {
            command.env_remove(name);
        }
    }
}

/// A command that was started. Dropping it kills its whole group.
#[derive(Debug)]
struct Running {
    child: Child,
    group: ProcessGroup,
}

/// A command that ended.
struct Ended {
    status: ExitStatus,
    stdout: Vec<u8>,
    stderr: String,
}

impl Running {
    fn new(child: Child) -> Self {
        let group = ProcessGroup::led_by(child.id().unwrap_or_default());
        Self { child, group }
    }

    /// Feeds the command and reads it until it ends.
    async fn end(
        &mut self,
        options: &ToolsOptions,
        within: Duration,
        input: &[u8],
    ) -> Result<Ended, CallError> {
        const PIPED: &str = "all three pipes were asked for";
        let stdin = self.child.stdin.take().expect(PIPED);
        let out = self.child.stdout.take().expect(PIPED);
        let err = self.child.stderr.take().expect(PIPED);
        let (mut stdout, mut stderr) = (Vec::new(), VecDeque::new());
        let status = {
            let mut pipes = pin!(async {
                tokio::try_join!(
                    feed(stdin, input),
                    read_bounded(out, options.output_bytes_max, &mut stdout),
                    keep_tail(err, options.error_bytes_max, &mut stderr),
                )
            });
            let mut expired = pin!(sleep(within));
            let mut is_drained = false;
            let status = loop {
                // The timer first: a command that never stops writing must not keep it waiting.
                tokio::select! {
                    biased;
                    () = &mut expired => {
                        return Err(CallError::TimedOut { within: options.call_within });
                    }
                    status = self.child.wait() => break status.map_err(CallError::Lost)?,
                    done = &mut pipes, if !is_drained => {
                        done?;
                        is_drained = true;
                    }
                }
            };
            // What it left behind must not outlive the call.
            self.kill();
            if !is_drained && let Ok(done) = timeout(PIPES_REST_WITHIN, &mut pipes).await {
                done?;
            }
            status
        };
        let stderr = String::from_utf8_lossy(stderr.make_contiguous()).into_owned();
        Ok(Ended { status, stdout, stderr })
    }

    /// Kills the group, once: later its id may be another's.
    fn kill(&mut self) {
        mem::replace(&mut self.group, ProcessGroup::led_by(0)).kill();
    }

    async fn kill_and_reap(&mut self) {
        self.kill();
        // That it cannot be reaped changes nothing about the call.
        let _ = timeout(REAPED_WITHIN, self.child.wait()).await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Writes the arguments and closes. A command that does not read them, or not
/// to their end, is free to.
async fn feed(mut stdin: ChildStdin, input: &[u8]) -> Result<(), CallError> {
    let _ = stdin.write_all(input).await;
    Ok(())
}

async fn read_bounded(
    mut pipe: impl AsyncRead + Unpin,
    bytes_max: usize,
    into: &mut Vec<u8>,
) -> Result<(), CallError> {
    let mut chunk = [0u8; CHUNK_BYTES];
    loop {
        let n = pipe.read(&mut chunk).await.map_err(CallError::Lost)?;
        if n == 0 {
            return Ok(());
        }
        if n > bytes_max - into.len() {
            return Err(CallError::TooLarge { bytes_max });
        }
        into.extend_from_slice(&chunk[..n]);
    }
}

/// Reads `pipe` to its end, so that the command never blocks on it.
async fn keep_tail(
    mut pipe: impl AsyncRead + Unpin,
    bytes_max: usize,
    tail: &mut VecDeque<u8>,
) -> Result<(), CallError> {
    let mut chunk = [0u8; CHUNK_BYTES];
    while let Ok(n @ 1..) = pipe.read(&mut chunk).await {
        tail.extend(&chunk[..n]);
        let over = tail.len().saturating_sub(bytes_max);
        tail.drain(..over);
    }
    Ok(())
}
