//! Running recorded turns again, with no model and nothing written.

use std::collections::HashMap;
use std::sync::Arc;

use mainspring_api::{EndState, EventBody, ExecutionId, Harness, Seq, Start};
use mainspring_eventlog::{ExecutionView, SessionView};

use crate::controller::Controller;
use crate::error::ControllerError;
use crate::execution::{self, Recorded, check_evidence};
use crate::journal::Journal;
use crate::legacy;
use crate::machine::{Beyond, Machine};
use crate::recorded::Effect;
use crate::resume::names_harness;
use crate::run;
use crate::sink::RunSink;
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

impl Controller {
    /// Runs every completed turn again, serving what was recorded.
    ///
    /// # Guarantees
    /// No model is called and nothing is appended: there is neither in reach.
    ///
    /// # Errors
    /// A tampered journal, ill-formed evidence, another harness or version
    /// (before the first run); then the first turn that disagrees.
    pub async fn replay(&self, harness: &Arc<dyn Harness>) -> Result<Replayed, ControllerError> {
        let row = self.journal.open().await?;
        check_evidence(&row)?;
        let turns = self.completed(row.view.head.seq).await?;
        self.check_identities(harness, &turns).await?;
        let mut replayed = Replayed { turns: 0, outputs: Vec::new(), model_calls: 0 };
        if let Some((last, anchor)) = legacy_range(&row.view) {
            let turn = legacy::load(&self.journal, Seq::new(1), last).await?;
            let session = self.options.session.as_ref();
            let token = legacy::token(&self.journal, session, anchor).await?;
            let recorded =
                Recorded { inputs: turn.inputs, effects: turn.effects, ..Recorded::default() };
            // An id-less prefix is one run over all of it, with all of it as history.
            let tag = Tag::Legacy(token);
            self.replay_turn(harness, tag, last.next(), recorded, &mut replayed).await?;
        }
        for view in &turns {
            let recorded = execution::load(&self.journal, view).await?;
            recorded.refuse_tools()?;
            let tag = Tag::Execution(view.id.clone());
            self.replay_turn(harness, tag, view.first_seq, recorded, &mut replayed).await?;
        }
        replayed.model_calls = self.model_invocations();
        Ok(replayed)
    }

    /// The completed executions, by first appearance. One pass over the journal.
    async fn completed(&self, head: Seq) -> Result<Vec<ExecutionView>, ControllerError> {
        let mut view = SessionView::default();
        let mut table: HashMap<ExecutionId, ExecutionView> = HashMap::new();
        self.journal
            .read_range(Seq::new(1), head, |stored| {
                let event = stored.event()?;
                let size = stored.canonical.len();
                Ok(view.apply(&event, stored.head(), size, &mut table)?)
            })
            .await?;
        let mut turns: Vec<ExecutionView> = table.into_values().chain(view.latest).collect();
        turns.retain(|turn| matches!(turn.end, Some((_, Some(EndState::Completed)))));
        turns.sort_by_key(|turn| turn.first_seq);
        Ok(turns)
    }

    async fn check_identities(
        &self,
        harness: &Arc<dyn Harness>,
        turns: &[ExecutionView],
    ) -> Result<(), ControllerError> {
        if !turns.iter().any(names_harness) {
            return Ok(());
        }
        let descriptor = self.describe(harness, None).await?;
        turns.iter().try_for_each(|turn| self.check_identity(turn, &descriptor))
    }

    async fn replay_turn(
        &self,
        harness: &Arc<dyn Harness>,
        tag: Tag,
        first: Seq,
        recorded: Recorded,
        replayed: &mut Replayed,
    ) -> Result<(), ControllerError> {
        let is_legacy = matches!(tag, Tag::Legacy(_));
        let start = Start {
            session: self.options.session.clone(),
            execution_id: tag.id().clone(),
            model: recorded.start.model,
            config: recorded.start.config,
            history: self.journal.history(first),
            inputs: recorded.inputs,
            resume_from_seq: recorded.start.resume_from_seq,
        };
        let outputs = output_texts(&recorded.effects);
        let machine = Machine::new(recorded.effects, Beyond::Nowhere, is_legacy);
        let sink = RunSink::replay(machine, tag);
        let ran = run::run(harness, start, sink, None, &self.options.cancel).await;
        let closing = ran.closing;
        if let Some(failure) = closing.failure {
            return Err(ControllerError::latched(failure));
        }
        ran.result.map_err(ControllerError::Run)?;
        if let Some(seq) = closing.unconsumed {
            return Err(ControllerError::ReplayDiverged(format!(
                "the effect recorded at seq {seq} was not asked for"
            )));
        }
        replayed.turns += 1;
        replayed.outputs.extend(outputs);
        Ok(())
    }
}

fn output_texts(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .filter_map(|effect| match &effect.body {
            EventBody::Output(Some(message)) => Some(message.plain_text()),
            _ => None,
        })
        .collect()
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
