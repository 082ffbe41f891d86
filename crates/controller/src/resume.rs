//! Finishing an interrupted turn.

use std::sync::Arc;

use mainspring_api::{Bytes, Descriptor, Harness, Seq, Start};
use mainspring_eventlog::{ExecutionView, SessionRow};
use tokio::time::Instant;

use crate::controller::{Controller, finish};
use crate::error::ControllerError;
use crate::execution::{self, check_evidence, check_inputs};
use crate::legacy;
use crate::machine::{Beyond, Machine};
use crate::run;
use crate::writer::Tag;

/// What a resume came to.
#[derive(Debug)]
pub struct Resumed {
    /// Whether a turn was driven (or found parked).
    pub resumed: bool,
    /// How it ended; `Ok` also when there was nothing to do.
    pub result: Result<(), ControllerError>,
}

impl Controller {
    /// Finishes the interrupted turn, if there is one.
    ///
    /// Recorded effects are served; a trailing model call is made once more,
    /// and from there the turn goes on live. The execution keeps its id.
    ///
    /// # Errors
    /// With `resumed` false nothing was run or appended; with true at most an
    /// error record was.
    ///
    /// # Cancellation
    /// A dropped future leaves a turn that can be resumed.
    pub async fn resume(&self, harness: &Arc<dyn Harness>, deadline: Option<Instant>) -> Resumed {
        match self.prepare(harness, deadline).await {
            Err(error) => Resumed { resumed: false, result: Err(error) },
            Ok(None) => Resumed { resumed: false, result: Ok(()) },
            Ok(Some(prepared)) => {
                let Prepared { machine, tag, start, row } = prepared;
                let sink = self.live_sink(machine, tag.clone(), self.writer(row.view.head));
                let ran = run::run(harness, start, sink, deadline, &self.options.cancel).await;
                Resumed { resumed: true, result: finish(&tag, ran).await.map(drop) }
            }
        }
    }

    async fn prepare(
        &self,
        harness: &Arc<dyn Harness>,
        deadline: Option<Instant>,
    ) -> Result<Option<Prepared>, ControllerError> {
        let row = self.journal.open().await?;
        check_evidence(&row)?;
        if let Some(view) = row.view.pending() {
            return self.prepare_modern(harness, deadline, &row, view).await.map(Some);
        }
        match &row.view.legacy {
            Some(legacy) if row.view.executions == 0 => match legacy.pending_input() {
                Some(input) => self.prepare_legacy(&row, input).await.map(Some),
                None => Ok(None),
            },
            _ => Ok(None),
        }
    }

    async fn prepare_modern(
        &self,
        harness: &Arc<dyn Harness>,
        deadline: Option<Instant>,
        row: &SessionRow,
        view: &ExecutionView,
    ) -> Result<Prepared, ControllerError> {
        check_inputs(view)?;
        let recorded = execution::load(&self.journal, view).await?;
        recorded.refuse_inherited_intent(row.view.last_fork)?;
        recorded.refuse_tools()?;
        if names_harness(view) {
            let descriptor = self.describe(harness, deadline).await?;
            self.check_identity(view, &descriptor)?;
        }
        let start = Start {
            session: self.options.session.clone(),
            execution_id: view.id.clone(),
            model: recorded.start.model,
            config: recorded.start.config,
            history: self.journal.history(view.first_seq),
            inputs: recorded.inputs,
            resume_from_seq: recorded.start.resume_from_seq,
        };
        let machine = Machine::new(recorded.effects, Beyond::Live, false);
        Ok(Prepared { machine, tag: Tag::Execution(view.id.clone()), start, row: row.clone() })
    }

    async fn prepare_legacy(
        &self,
        row: &SessionRow,
        input: Seq,
    ) -> Result<Prepared, ControllerError> {
        let session = self.options.session.as_ref();
        let token = legacy::token(&self.journal, session, input).await?;
        let turn = legacy::load(&self.journal, input, row.view.head.seq).await?;
        let start = Start {
            session: self.options.session.clone(),
            execution_id: token.clone(),
            model: String::new(),
            config: Bytes::new(),
            history: self.journal.history(input),
            inputs: turn.inputs,
            resume_from_seq: 0,
        };
        let machine = Machine::new(turn.effects, Beyond::Live, true);
        Ok(Prepared { machine, tag: Tag::Legacy(token), start, row: row.clone() })
    }

    /// Compares the harness with the one that recorded an execution.
    pub(crate) fn check_identity(
        &self,
        view: &ExecutionView,
        descriptor: &Descriptor,
    ) -> Result<(), ControllerError> {
        let Some(start) = &view.start else {
            return Ok(());
        };
        let actual = self.harness_name(descriptor);
        if !start.harness.is_empty() && start.harness != actual {
            return Err(ControllerError::HarnessMismatch {
                recorded: start.harness.clone(),
                actual: actual.to_owned(),
            });
        }
        if !start.harness_version.is_empty() && start.harness_version != descriptor.version {
            return Err(ControllerError::HarnessVersionMismatch {
                recorded: start.harness_version.clone(),
                actual: descriptor.version.clone(),
            });
        }
        Ok(())
    }
}

struct Prepared {
    machine: Machine,
    tag: Tag,
    start: Start,
    row: SessionRow,
}

/// Whether an execution records who ran it.
pub(crate) fn names_harness(view: &ExecutionView) -> bool {
    view.start
        .as_ref()
        .is_some_and(|start| !start.harness.is_empty() || !start.harness_version.is_empty())
}
