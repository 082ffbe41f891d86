//! Tool calls: intent, effect, receipt.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use mainspring_api::{
    ApprovalRef, EventBody, Outcome, ResultCode, Resumability, Seq, SinkError, ToolCall, ToolError,
    ToolExecutor, ToolResult, ToolScope,
};
use mainspring_eventlog::{LogError, NewRecord};
use tokio::sync::OwnedMutexGuard;
use tracing::Instrument as _;

use super::{Guarded, Inner, Means, refused};
use crate::approval::Binding;
use crate::controller::ApprovedRetry;
use crate::machine::{Decided, Redriven, ToolStep, carries_receipt};
use crate::recorded::{
    EffectNotes, FAILED_NOTE, RESTARTED_NOTE, RETRIES_MAX, RETRY_NOTE, STARTED_NOTE,
    normalise_result,
};
use crate::resolve::{is_repeatable, offers};
use crate::run;
use crate::spans;

type Result<T> = std::result::Result<T, SinkError>;
type Reply = std::result::Result<ToolResult, ToolError>;

impl Inner {
    pub(super) async fn tool_call(
        self: &Arc<Self>,
        mut guarded: OwnedMutexGuard<Guarded>,
        call: ToolCall,
    ) -> Result<ToolResult> {
        loop {
            return match guarded.machine.tool_call(&call)? {
                ToolStep::Served(result) => Ok(*result),
                ToolStep::Call(intent) => self.call(&mut guarded, &call, *intent).await,
                ToolStep::Redrive(redriven) => self.redrive(&mut guarded, *redriven).await,
                ToolStep::Gate(intent) => self.park(&mut guarded, *intent).await,
                ToolStep::Decided(decided) => self.carry_out(&mut guarded, *decided).await,
                ToolStep::Describe => {
                    let stateless = self.describe().await?;
                    guarded.machine.described(stateless);
                    continue;
                }
            };
        }
    }

    /// Whether the harness resumes by replay.
    async fn describe(self: &Arc<Self>) -> Result<bool> {
        let Some(harness) = &self.means.harness else {
            return Err(SinkError::Unsupported("a description on replay"));
        };
        let described = self.calling(run::ask(harness, None)).await?;
        let descriptor =
            described.map_err(|error| SinkError::HarnessDescribeFailed(Arc::new(error)))?;
        Ok(descriptor.capabilities.resumability == Resumability::StatelessReplay)
    }

    /// A new call: the intent is recorded, then the tool is run with the
    /// arguments as the harness gave them.
    async fn call(
        self: &Arc<Self>,
        guarded: &mut Guarded,
        call: &ToolCall,
        intent: ToolCall,
    ) -> Result<ToolResult> {
        let executor = self.executor(&call.tool);
        let mut intent = NewRecord::from(self.means.tag.event(EventBody::ToolCall(Some(intent))));
        if executor.is_err() {
            // Whoever resumes with the tool may start it: nobody has.
            intent.notes.insert(format!("{RETRY_NOTE}1"), guarded.writer()?.note_value());
        }
        let seq = guarded.record(intent).await?.seq;
        self.execute(guarded, &executor?, (seq, &EffectNotes::default()), call).await
    }

    /// An intent whose result is missing: the tool is run under the recorded
    /// key. That it may be was checked before the run began.
    async fn redrive(
        self: &Arc<Self>,
        guarded: &mut Guarded,
        redriven: Redriven,
    ) -> Result<ToolResult> {
        let Redriven { seq, call, notes } = redriven;
        let executor = match self.executor(&call.tool) {
            Ok(executor) => executor,
            Err(error) => {
                guarded.note_failure(seq).await?;
                return Err(error);
            }
        };
        if !is_repeatable(&*executor, &call.tool) {
            self.use_allowance(guarded, seq, &notes).await?;
        }
        self.execute(guarded, &executor, (seq, &notes), &call).await
    }

    /// The executor, if it has the tool.
    fn executor(&self, tool: &str) -> Result<Arc<dyn ToolExecutor>> {
        let executor = self.means.tools.clone().filter(|executor| offers(&**executor, tool));
        executor.ok_or(SinkError::MissingToolExecutor)
    }

    async fn execute(
        self: &Arc<Self>,
        guarded: &mut Guarded,
        executor: &Arc<dyn ToolExecutor>,
        (seq, notes): (Seq, &EffectNotes),
        call: &ToolCall,
    ) -> Result<ToolResult> {
        let mut result = match self.reply(executor, call).await? {
            Ok(result) => result,
            Err(error) => {
                // A report may come next, and must not be taken for its result.
                match error.outcome {
                    Outcome::NotApplied => guarded.allow_start(seq, notes).await?,
                    _ => guarded.note_failure(seq).await?,
                }
                return Err(SinkError::failed(Arc::new(error)));
            }
        };
        self.means.counters.count_tool();
        if carries_receipt(&result) {
            guarded.note_failure(seq).await?;
            return Err(SinkError::ApprovalReceiptReport);
        }
        result.id.clone_from(&call.id);
        guarded.record_result(self, result).await.map_err(refused)
    }

    /// Runs the executor. Its panic is a failure with an unknown outcome.
    async fn reply(
        self: &Arc<Self>,
        executor: &Arc<dyn ToolExecutor>,
        call: &ToolCall,
    ) -> Result<Reply> {
        let session = self.means.session.clone().ok_or(SinkError::MissingSessionUid)?;
        let span = spans::execute_tool(&self.means.span, Some(&session), call);
        let scope = ToolScope { session };
        let running = AssertUnwindSafe(executor.execute(&scope, call)).catch_unwind();
        let replied = self.calling(running.instrument(span.clone())).await.inspect_err(|error| {
            spans::record_error(&span, error);
        });
        let reply = replied?.unwrap_or_else(|_panic| {
            Err(ToolError {
                message: "it panicked".to_owned(),
                outcome: Outcome::Unknown,
                source: None,
            })
        });
        if let Err(error) = &reply {
            spans::record_error(&span, error);
        }
        Ok(reply)
    }

    /// Records the intent and its request as one unit, and parks the turn.
    async fn park(self: &Arc<Self>, guarded: &mut Guarded, intent: ToolCall) -> Result<ToolResult> {
        let tool_call_id = intent.id.clone();
        let Means { tag, approval_ttl, clock, .. } = &self.means;
        let request = tag.approval_request(&tool_call_id, *approval_ttl, &**clock);
        let intent = self.means.tag.event(EventBody::ToolCall(Some(intent)));
        let written = match guarded.writer()?.append(vec![intent.into(), request]).await {
            Ok(written) => written,
            Err(error @ (LogError::TooLarge { .. } | LogError::Unrecordable(_))) => {
                return guarded.machine.fail(refused(error));
            }
            Err(error) => return guarded.machine.stop(refused(error)),
        };
        let request_seq = written.last().map_or(0, |record| record.seq.as_i64());
        let execution_id = self.means.tag.id().to_string();
        guarded.machine.stop(SinkError::Parked(ApprovalRef {
            execution_id,
            tool_call_id,
            request_seq,
        }))
    }

    /// A decided gate: a denial is its receipt; an approved call is run once.
    async fn carry_out(
        self: &Arc<Self>,
        guarded: &mut Guarded,
        decided: Decided,
    ) -> Result<ToolResult> {
        let binding = Binding {
            call_id: &decided.call.id,
            request: decided.request,
            decision: decided.decision_seq,
        };
        let receipt = if decided.decision.approved {
            let reply = match self.start_approved(guarded, &decided).await {
                Ok(executor) => self.reply(&executor, &decided.call).await?,
                // Nothing may follow an approved call that could not be started.
                Err(error) => return guarded.machine.stop(error),
            };
            self.means.counters.count_tool();
            match reply {
                Ok(reply) => binding.replied(reply),
                Err(error) => binding.failed(mainspring_api::report(&error)),
            }
        } else {
            binding.denied()
        };
        match guarded.record_result(self, receipt).await {
            Ok(receipt) => Ok(ToolResult { decision: Some(decided.decision), ..receipt }),
            Err(error) => guarded.machine.stop(refused(error)),
        }
    }

    /// What an approved call needs before its executor may start.
    async fn start_approved(
        &self,
        guarded: &mut Guarded,
        decided: &Decided,
    ) -> Result<Arc<dyn ToolExecutor>> {
        if self.means.session.is_none() {
            return Err(SinkError::MissingSessionUid);
        }
        let executor = self.executor(&decided.call.tool)?;
        if self.means.approved_retry == ApprovedRetry::Always {
            return Ok(executor);
        }
        if !decided.notes.started {
            guarded.annotate(decided.seq, STARTED_NOTE).await?;
        } else if !is_repeatable(&*executor, &decided.call.tool) {
            self.use_allowance(guarded, decided.seq, &decided.notes).await?;
        }
        Ok(executor)
    }

    /// Notes that the start which a person allowed is made now.
    async fn use_allowance(
        &self,
        guarded: &mut Guarded,
        seq: Seq,
        notes: &EffectNotes,
    ) -> Result<()> {
        let Some(number) = notes.allowed() else {
            // Checked before the run; a declaration that changed since is one more doubt.
            return guarded.machine.stop(SinkError::ToolResultMissing);
        };
        guarded.annotate(seq, &format!("{RESTARTED_NOTE}{number}")).await
    }
}

impl Guarded {
    /// Notes that one more start is allowed, since it is known that nothing came
    /// of the last one.
    async fn allow_start(&mut self, seq: Seq, notes: &EffectNotes) -> Result<()> {
        if notes.retries >= RETRIES_MAX {
            return self.note_failure(seq).await;
        }
        self.annotate(seq, &format!("{RETRY_NOTE}{}", notes.retries + 1)).await
    }

    /// Notes that a call failed; once is enough.
    async fn note_failure(&mut self, seq: Seq) -> Result<()> {
        match self.writer()?.annotate(seq, FAILED_NOTE).await {
            Ok(()) | Err(LogError::Moved { .. }) => Ok(()),
            Err(error) => self.machine.stop(refused(error)),
        }
    }

    async fn annotate(&mut self, seq: Seq, key: &str) -> Result<()> {
        let noted = self.writer()?.annotate(seq, key).await;
        match noted {
            Ok(()) => Ok(()),
            Err(error) => self.machine.stop(refused(error)),
        }
    }

    /// Records a result and returns it in its recorded form. The tool has been
    /// run: a result that cannot be recorded leaves a receipt that says so.
    async fn record_result(
        &mut self,
        inner: &Inner,
        mut result: ToolResult,
    ) -> std::result::Result<ToolResult, LogError> {
        normalise_result(&mut result);
        let event = |result: ToolResult| inner.means.tag.event(EventBody::ToolResult(Some(result)));
        let receipt = ran(&result);
        let Some(writer) = &mut self.writer else {
            return Err(LogError::unavailable("a replay has no writer"));
        };
        let written = match writer.append_one(event(result).into()).await {
            Err(error @ (LogError::TooLarge { .. } | LogError::Unrecordable(_))) => {
                let error = format!("the tool was run, and its result cannot be recorded: {error}");
                let receipt = ToolResult { error, ..receipt };
                writer.append_one(event(receipt).into()).await?
            }
            written => written?,
        };
        match written.event.body {
            EventBody::ToolResult(Some(result)) => Ok(result),
            _ => unreachable!("a result reads back as a result"),
        }
    }
}

/// The receipt of a call whose own result has no recorded form; its error is left open.
fn ran(result: &ToolResult) -> ToolResult {
    ToolResult {
        id: result.id.clone(),
        is_error: true,
        // A denial's receipt is a fixed text and always fits.
        code: ResultCode::ExecutorError,
        approval_request_seq: result.approval_request_seq,
        approval_decision_seq: result.approval_decision_seq,
        ..ToolResult::default()
    }
}
