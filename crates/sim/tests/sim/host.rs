//! One host: whatever its seed makes it do next, until it dies or has done enough.

use std::sync::Arc;

use mainspring_api::{
    ApprovalRef, CancelReason, Decision, EventBody, Harness, IdentityRef, Message, Resolution,
    SessionUid, Signal,
};
use mainspring_controller::{
    Approval, ApprovedRetry, Cancellation, Controller, ControllerError, Journal, Options,
    Resolving, Turn, TurnStop, approve, cancel, resolve,
};
use mainspring_eventlog::{EventLog, Holder, Level, SessionRow};
use mainspring_testkit::{HookedLog, ManualClock, SeededEntropy, read_all};

use crate::turnstile::{HostId, Turnstile};
use crate::world::{Ledger, SimLog, SimModel, SimTools, Told};

/// Everything that one host has.
#[derive(Debug, Clone)]
pub(crate) struct Host {
    pub(crate) id: HostId,
    pub(crate) uid: SessionUid,
    pub(crate) turnstile: Turnstile,
    pub(crate) ledger: Ledger,
    pub(crate) told: Told,
    pub(crate) store: Arc<dyn EventLog>,
    pub(crate) harness: Arc<dyn Harness>,
    pub(crate) entropy: Arc<SeededEntropy>,
    pub(crate) retry: ApprovedRetry,
}

impl Host {
    fn log(&self) -> Arc<dyn EventLog> {
        let (host, turnstile) = (self.id, self.turnstile.clone());
        Arc::new(HookedLog::with_hook(Arc::clone(&self.store), SimLog { host, turnstile }))
    }

    fn holder(&self) -> Holder {
        Holder { id: format!("host-{}", self.id), name: format!("host-{}", self.id) }
    }

    fn options(&self) -> Options {
        let (host, turnstile) = (self.id, self.turnstile.clone());
        let model = SimModel { host, turnstile: turnstile.clone() };
        let tools = SimTools { host, turnstile, ledger: self.ledger.clone() };
        Options {
            session: Some(self.uid.clone()),
            holder: self.holder(),
            tools: Some(Arc::new(tools)),
            approved_retry: self.retry,
            observer: Arc::new(self.told.clone()),
            clock: Arc::new(ManualClock::at_unix(1_800_000_000)),
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            ..Options::new(Arc::new(model))
        }
    }

    /// Random operations, any number of them at odds with what other hosts do.
    pub(crate) async fn live(self, operations: usize) {
        let journal = Journal::new(self.log(), self.uid.clone());
        for _ in 0..operations {
            self.turnstile.pass(self.id).await;
            let choice = self.turnstile.below(10);
            let Ok(row) = journal.open().await else { continue };
            match choice {
                0..=2 => self.drive(&journal, false).await,
                3..=5 => self.drive(&journal, true).await,
                6 | 7 => self.decide(&journal, &row).await,
                8 => self.cancel(&journal, &row).await,
                _ => self.settle_unknown(&journal, &row, false).await,
            }
        }
    }

    /// A new turn, or the open one; now and then stopped on the way.
    async fn drive(&self, journal: &Journal, resume: bool) {
        let stop = Signal::default();
        let options = Options { stop: stop.clone(), ..self.options() };
        let Ok(controller) = Controller::new(journal.clone(), options).await else { return };
        let stopper = self.turnstile.percent(30).then(|| {
            let (this, stop) = (self.clone(), stop.clone());
            tokio::spawn(async move {
                for _ in 0..this.turnstile.below(8) {
                    this.turnstile.pass(this.id).await;
                }
                let cancel = this.turnstile.percent(50);
                stop.set(match cancel {
                    true => TurnStop::Cancel(CancelReason::User),
                    false => TurnStop::Interrupt,
                });
            })
        });
        if resume {
            let _ = controller.resume(&self.harness, None).await;
        } else {
            let turn = Turn::new(vec![Message::user("go")]);
            let _ = controller.exec(&self.harness, turn).await;
        }
        if let Some(stopper) = stopper {
            stopper.abort();
        }
    }

    async fn decide(&self, journal: &Journal, row: &SessionRow) {
        let Some((execution, gate, request)) = row.view.pending_gate() else { return };
        let approval = ApprovalRef {
            execution_id: execution.id.to_string(),
            tool_call_id: gate.call_id.clone(),
            request_seq: request.as_i64(),
        };
        let identity = IdentityRef { principal: "person".to_owned(), ..IdentityRef::default() };
        let decision = Decision {
            approved: self.turnstile.percent(70),
            reason: String::new(),
            identity: Some(identity),
        };
        let request = Approval {
            approval,
            decision,
            digest: None,
            holder: self.holder(),
            clock: Arc::new(ManualClock::at_unix(1_800_000_000)),
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            observer: Arc::new(self.told.clone()),
        };
        let _ = approve(journal, request).await;
    }

    async fn cancel(&self, journal: &Journal, row: &SessionRow) {
        let Some(latest) = &row.view.latest else { return };
        let request = Cancellation {
            execution: latest.id.clone(),
            reason: CancelReason::User,
            holder: self.holder(),
            clock: Arc::new(ManualClock::at_unix(1_800_000_000)),
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            observer: Arc::new(self.told.clone()),
        };
        let _ = cancel(journal, &request).await;
    }

    /// A person looks into the tool's own ledger. Only when nobody else can be
    /// at it may a call that did not happen be allowed once more.
    async fn settle_unknown(&self, journal: &Journal, row: &SessionRow, alone: bool) {
        let Some(latest) = row.view.pending() else { return };
        let gate = row.view.open_gate().map(|(_, gate)| gate);
        let seq = match (gate, latest.unanswered) {
            (Some(gate), _) if matches!(gate.decision, Some((_, true))) => gate.call,
            (None, Some(seq)) => seq,
            _ => return,
        };
        let Ok(records) = read_all(&*self.store, &self.uid).await else { return };
        let Some(record) = records.iter().find(|record| record.seq == seq) else { return };
        let Ok(EventBody::ToolCall(Some(call))) = record.event().map(|event| event.body) else {
            return;
        };
        let happened = self.ledger.of(&call.idempotency_key).effects > 0;
        let resolution = match (happened, alone) {
            (true, _) => Resolution::Result(Box::default()),
            (false, true) => {
                self.ledger.allow(&call.idempotency_key);
                Resolution::Retry
            }
            (false, false) => Resolution::Failed("nobody knows".to_owned()),
        };
        let request = Resolving {
            execution: latest.id.clone(),
            tool_call_id: call.id,
            resolution,
            holder: self.holder(),
            entropy: Arc::clone(&self.entropy) as Arc<_>,
            observer: Arc::new(self.told.clone()),
        };
        let _ = resolve(journal, request).await;
    }

    /// Brings the session to rest: no turn is left open.
    pub(crate) async fn recover(&self) -> Result<(), String> {
        let journal = Journal::new(self.log(), self.uid.clone());
        let mut last = String::new();
        for _ in 0..64 {
            let row = match journal.log().get(&self.uid, Level::Strict).await {
                Ok(row) => row,
                Err(error) => return Err(error.to_string()),
            };
            if row.view.latest.as_ref().is_none_or(|latest| latest.end.is_some()) {
                return Ok(());
            }
            if row.view.pending_gate().is_some() {
                self.decide(&journal, &row).await;
                continue;
            }
            let options = self.options();
            let Ok(controller) = Controller::new(journal.clone(), options).await else { continue };
            match controller.resume(&self.harness, None).await.result {
                Ok(()) | Err(ControllerError::ApprovalParked(_)) => {}
                Err(ControllerError::UnansweredToolCall { .. }) => {
                    self.settle_unknown(&journal, &row, true).await;
                }
                // What fails again and again, such as a tool that nobody handles, is cancelled.
                Err(error) => {
                    last = error.to_string();
                    if self.turnstile.percent(20) {
                        let Ok(row) = journal.open().await else { continue };
                        self.cancel(&journal, &row).await;
                    }
                }
            }
        }
        Err(format!("the session does not come to rest: {last}"))
    }
}
