//! Running recorded turns again, with no model and nothing written.

use std::sync::{Arc, Mutex, PoisonError};

use mainspring_api::{Descriptor, EventBody, Harness, Seq, Start};
use mainspring_eventlog::{ExecutionTable as _, SessionView};

use crate::approval::scan_approvals;
use crate::controller::{Controller, is_stateless, unconsumed};
use crate::error::ControllerError;
use crate::execution::{self, Opening, check_evidence};
use crate::index::{Executions, Extent, Index};
use crate::journal::Journal;
use crate::legacy;
use crate::machine::{Beyond, Facts, Machine};
use crate::run;
use crate::sink::{Means, RunSink};
use crate::tape::Tape;
use crate::writer::Tag;

/// What a replay came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replayed {
    /// Turns that were run again.
    pub turns: u64,
    /// Recorded outputs that were served, over all turns in order.
    pub outputs: Vec<String>,
    /// Model calls that were made; a replay has no model in reach.
    pub model_calls: u64,
}

/// Is given each recorded output that is served, in order.
pub type OnOutput = Arc<dyn Fn(String) + Send + Sync>;

impl Controller {
    /// Runs every completed turn again, serving what was recorded.
    ///
    /// # Guarantees
    /// Neither model nor executor is called and nothing is appended: there is
    /// none in reach.
    ///
    /// # Errors
    /// A tampered journal, ill-formed evidence, another harness or version, a
    /// gate on a harness that cannot wait (before the first run); then the first
    /// turn that disagrees.
    pub async fn replay(&self, harness: &Arc<dyn Harness>) -> Result<Replayed, ControllerError> {
        let outputs: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&outputs);
        let on_output: OnOutput = Arc::new(move |text| {
            kept.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        });
        let turns = self.replay_into(harness, on_output).await?;
        let outputs = std::mem::take(&mut *outputs.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Replayed { turns, outputs, model_calls: self.model_invocations() })
    }

    /// As [`Controller::replay`], handing outputs out instead of keeping them:
    /// memory is bounded whatever the journal's length. Returns how many turns
    /// were run.
    ///
    /// # Errors
    /// As [`Controller::replay`].
    pub async fn replay_into(
        &self,
        harness: &Arc<dyn Harness>,
        on_output: OnOutput,
    ) -> Result<u64, ControllerError> {
        let row = self.journal.open().await?;
        check_evidence(&row.view)?;
        let executions = self.executions(row.view.head.seq).await?;
        let descriptor = self.check_executions(harness, &executions).await?;
        let mut run = Replay { controller: self, harness, descriptor, on_output, turns: 0 };
        if let Some((last, anchor)) = legacy_range(&row.view) {
            run.legacy(last, anchor).await?;
        }
        for turn in executions.completed {
            run.modern(turn).await?;
        }
        Ok(run.turns)
    }

    /// The executions of the journal. One pass over it.
    async fn executions(&self, head: Seq) -> Result<Executions, ControllerError> {
        let (mut view, mut index) = (SessionView::default(), Index::default());
        self.journal
            .read_range(Seq::new(1), head, |stored| {
                let event = stored.event()?;
                let size = stored.canonical.len();
                Ok(view.apply(&event, stored.head(), size, &mut index)?)
            })
            .await?;
        if let Some(latest) = &view.latest {
            index.store(latest)?;
        }
        Ok(index.executions())
    }

    /// Everything that can be refused is, before the first run. Approvals of
    /// turns that are not run again must hold too: what follows builds on them.
    async fn check_executions(
        &self,
        harness: &Arc<dyn Harness>,
        executions: &Executions,
    ) -> Result<Option<Descriptor>, ControllerError> {
        let Executions { completed, gated, harnesses } = executions;
        for turn in completed.iter().filter(|turn| turn.gated).chain(gated) {
            scan_approvals(&self.journal, turn.first, turn.last).await?;
        }
        let gated = completed.iter().any(|turn| turn.gated);
        let mut names = harnesses.iter();
        let named = names.any(|(name, version)| !(name.is_empty() && version.is_empty()));
        if !gated && !named {
            return Ok(None);
        }
        let descriptor = self.describe(harness, None).await?;
        harnesses
            .iter()
            .try_for_each(|(name, version)| self.check_names(name, version, &descriptor))?;
        if gated && !is_stateless(&descriptor) {
            return Err(ControllerError::ApprovalUnavailable);
        }
        Ok(Some(descriptor))
    }
}

fn without_id(turn: Extent) -> ControllerError {
    ControllerError::invalid(turn.first, "the execution has no id")
}

/// One replay under way.
struct Replay<'a> {
    controller: &'a Controller,
    harness: &'a Arc<dyn Harness>,
    descriptor: Option<Descriptor>,
    on_output: OnOutput,
    turns: u64,
}

impl Replay<'_> {
    /// An id-less prefix is one run over all of it, with all of it as history.
    async fn legacy(&mut self, last: Seq, anchor: Seq) -> Result<(), ControllerError> {
        let (journal, session) =
            (&self.controller.journal, self.controller.options.session.as_ref());
        let turn = legacy::turn(journal, Seq::new(1), last).await?;
        let tag = Tag::Legacy(legacy::token(journal, session, anchor).await?);
        let tape = Tape::legacy(journal, Seq::new(1), last);
        let opening = Opening { inputs: turn.inputs, ..Opening::default() };
        self.turn(tag, last.next(), opening, tape).await
    }

    async fn modern(&mut self, turn: Extent) -> Result<(), ControllerError> {
        let journal = &self.controller.journal;
        let opening = execution::opening(journal, turn.first, turn.last).await?;
        let id = opening.id.clone().ok_or_else(|| without_id(turn))?;
        let tape = Tape::of(journal, &id, turn.first, turn.last);
        self.turn(Tag::Execution(id), turn.first, opening, tape).await
    }

    async fn turn(
        &mut self,
        tag: Tag,
        first: Seq,
        opening: Opening,
        tape: Tape,
    ) -> Result<(), ControllerError> {
        let controller = self.controller;
        let start = Start {
            session: controller.options.session.clone(),
            execution_id: tag.id().clone(),
            model: opening.start.model.clone(),
            config: opening.start.config,
            history: controller.journal.history(first),
            inputs: opening.inputs,
            resume_from_seq: opening.start.resume_from_seq,
        };
        let facts = Facts {
            legacy: matches!(tag, Tag::Legacy(_)),
            // Today's policy is nothing to what was recorded.
            policy: None,
            ..controller.facts(opening.start.model, self.descriptor.as_ref())
        };
        let machine = Machine::new(Beyond::Nowhere, facts);
        let means = Means { on_output: Some(Arc::clone(&self.on_output)), ..controller.means(tag) };
        let sink = RunSink::new(machine, Some(tape), None, means);
        let ran = run::run(self.harness, start, sink, &controller.bounds(None)).await;
        let closing = ran.closing;
        if let Some(failure) = closing.stop.or(closing.failure) {
            return Err(ControllerError::latched(failure));
        }
        ran.result.map_err(ControllerError::Run)?;
        match closing.unconsumed {
            Some(seq) => Err(unconsumed(seq)),
            None => {
                self.turns += 1;
                Ok(())
            }
        }
    }
}

/// The last record of the id-less prefix that is replayed, and its anchor.
fn legacy_range(view: &SessionView) -> Option<(Seq, Seq)> {
    let legacy = view.legacy.as_ref()?;
    let last = if view.executions == 0 {
        // A purely id-less journal is replayed whole, finished or not.
        view.head.seq
    } else {
        legacy.last_end?.0
    };
    Some((last, legacy.first_input.unwrap_or(legacy.first_seq)))
}

/// The recorded output texts of a journal, in order. No harness, no model.
///
/// # Errors
/// A tampered journal, or a record that is not supported.
pub async fn outputs(journal: &Journal) -> Result<Vec<String>, ControllerError> {
    let row = journal.open().await?;
    let mut texts = Vec::new();
    journal
        .read_range(Seq::new(1), row.view.head.seq, |stored| {
            if let EventBody::Output(Some(message)) = stored.event()?.body {
                texts.push(message.plain_text());
            }
            Ok(())
        })
        .await?;
    Ok(texts)
}
