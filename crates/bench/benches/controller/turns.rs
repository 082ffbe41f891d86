//! The turn that is measured: a harness of five effects, a model and a tool
//! that answer at once, and the very records that such a turn leaves.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainspring_api::{
    Descriptor, EventBody, EventSink, ExecutionId, Fence, Harness, HarnessError, Head, Mediation,
    Message, ModelError, ModelProvider, ModelReply, ModelRequest, Seq, SessionUid, Start, ToolCall,
    ToolError, ToolExecutor, ToolResult, ToolScope, Usage, async_trait,
};
use mainspring_bench::run::store::Store;
use mainspring_bench::run::workload::fresh_id;
use mainspring_controller::{Controller, Journal, Options, Turn};
use mainspring_eventlog::{Batch, EventLog, Level, NewRecord, NewSession, ReadLimit, StoredRecord};

/// Records of one turn: start and input, model call and completion, usage,
/// output, tool call and receipt, report, end.
pub(crate) const TURN_RECORDS: u64 = 10;

/// Turns of one append when a journal is filled.
const FILL_TURNS: u64 = 100;

/// An agent's text of a few lines.
const TEXT: &str = "The second build failed because the linker ran out of memory, not because of the change itself. \
     I have looked at the log of the machine: three other builds ran beside it. I suggest to run it again alone, \
     and to lower the number of codegen units if that does not help. Shall I start it now?";

/// Makes each kind of effect once.
#[derive(Debug)]
pub(crate) struct Agent;

/// The key of an execution's only tool call.
fn key(id: &ExecutionId) -> String {
    format!("{id}/1")
}

fn usage() -> Usage {
    Usage { model: "echo".to_owned(), input_tokens: 912, output_tokens: 73, reasoning_tokens: 0 }
}

fn tool_result(id: &str) -> ToolResult {
    let output = [("status".to_owned(), "queued".into()), ("lines".to_owned(), 3.0.into())];
    ToolResult { id: id.to_owned(), output: Some(output.into()), ..ToolResult::default() }
}

#[async_trait]
impl Harness for Agent {
    async fn describe(&self) -> Result<Descriptor, HarnessError> {
        Ok(descriptor())
    }

    async fn run(&self, start: Start, sink: Arc<dyn EventSink>) -> Result<(), HarnessError> {
        let request = ModelRequest {
            model: "echo".to_owned(),
            messages: start.inputs,
            ..ModelRequest::default()
        };
        sink.model(request).await?;
        sink.usage(usage()).await?;
        sink.output(TEXT.to_owned()).await?;
        sink.tool_call(ToolCall {
            id: "call-1".to_owned(),
            tool: "build".to_owned(),
            args: Some([("jobs".to_owned(), 1.0.into())].into()),
            mediation: Mediation::ControllerMediated,
            idempotency_key: key(&start.execution_id),
        })
        .await?;
        sink.report(tool_result("call-2")).await?;
        Ok(())
    }
}

/// Says what the agent is.
pub(crate) fn descriptor() -> Descriptor {
    Descriptor { id: "bench".to_owned(), version: "1".to_owned(), ..Descriptor::default() }
}

/// Answers at once.
#[derive(Debug)]
struct Immediate;

#[async_trait]
impl ModelProvider for Immediate {
    async fn complete(&self, _request: &ModelRequest) -> Result<ModelReply, ModelError> {
        Ok(ModelReply { message: Message::assistant(TEXT.to_owned()), usage: usage() })
    }
}

#[async_trait]
impl ToolExecutor for Immediate {
    async fn execute(&self, _scope: &ToolScope, call: &ToolCall) -> Result<ToolResult, ToolError> {
        Ok(tool_result(&call.id))
    }

    fn is_repeatable(&self, _tool: &str) -> bool {
        true
    }

    fn offers(&self, _: &str) -> bool {
        true
    }
}

/// A controller of `journal`, set up as a host does it.
pub(crate) async fn controller(journal: Journal) -> Result<Controller> {
    let options = Options {
        session: Some(journal.uid().clone()),
        tools: Some(Arc::new(Immediate)),
        descriptor: Some(descriptor()),
        ..Options::new(Arc::new(Immediate))
    };
    Ok(Controller::new(journal, options).await?)
}

/// A new turn.
pub(crate) fn turn() -> Turn {
    Turn::new(vec![Message::user(TEXT)])
}

/// Creates the session `name`.
pub(crate) async fn create(log: &dyn EventLog, name: &str) -> Result<SessionUid> {
    let uid = SessionUid::new(name)?;
    log.create(fresh_id(), NewSession::bare(uid.clone(), "bench")).await?;
    Ok(uid)
}

/// The appends of a turn, as the controller made them once.
#[derive(Debug)]
pub(crate) struct Template(Vec<Vec<NewRecord>>);

impl Template {
    pub(crate) async fn record() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let log = Store::Memory.open(dir.path())?;
        let uid = create(&*log, "template").await?;
        let controller = controller(Journal::new(Arc::clone(&log), uid.clone())).await?;
        let agent: Arc<dyn Harness> = Arc::new(Agent);
        controller.exec(&agent, turn()).await?;
        let page = log.read(&uid, Seq::new(1), ReadLimit::default(), Level::Committed).await?;
        anyhow::ensure!(page.len() as u64 == TURN_RECORDS, "a turn of {} records", page.len());
        let mut records = page.iter().map(recorded).collect::<Result<Vec<_>>>()?.into_iter();
        // Start and input are one append, everything else is one for itself.
        let first = records.by_ref().take(2).collect();
        Ok(Self(std::iter::once(first).chain(records.map(|record| vec![record])).collect()))
    }

    /// The appends of another turn of this kind.
    pub(crate) fn appends(&self, id: &ExecutionId) -> Vec<Vec<NewRecord>> {
        let mut appends = self.0.clone();
        for record in appends.iter_mut().flatten() {
            record.event.execution_id = Some(id.clone());
            if let EventBody::ToolCall(Some(call)) = &mut record.event.body {
                call.idempotency_key = key(id);
            }
        }
        appends
    }

    /// The records of a turn that was cut after its model call.
    pub(crate) fn cut(&self, id: &ExecutionId) -> Vec<NewRecord> {
        self.appends(id).into_iter().flatten().take(3).collect()
    }

    /// Appends turns until the journal has `length` records.
    pub(crate) async fn fill(
        &self,
        log: &dyn EventLog,
        uid: &SessionUid,
        length: u64,
    ) -> Result<()> {
        let mut head = Head::EMPTY;
        while head.seq.get() < length {
            let turns = ((length - head.seq.get()) / TURN_RECORDS).min(FILL_TURNS);
            let first = head.seq.get();
            let records = (0..turns)
                .map(|turn| execution(first + turn))
                .collect::<Result<Vec<_>>>()?
                .iter()
                .flat_map(|id| self.appends(id).into_iter().flatten())
                .collect();
            head = append(log, uid, head, Fence::NONE, records).await?;
        }
        Ok(())
    }
}

/// Links and appends.
pub(crate) async fn append(
    log: &dyn EventLog,
    uid: &SessionUid,
    head: Head,
    fence: Fence,
    records: Vec<NewRecord>,
) -> Result<Head> {
    let batch = Batch::link(head, records)?;
    Ok(log.append(uid, fresh_id(), fence, &batch).await?)
}

/// The execution with this number.
pub(crate) fn execution(number: u64) -> Result<ExecutionId> {
    Ok(ExecutionId::chosen(&format!("{number:016x}"))?)
}

/// A record, as it was given to the log.
fn recorded(stored: &StoredRecord) -> Result<NewRecord> {
    let event = stored.event().context("a record of the template")?;
    let noted = stored.notes.iter().filter(|(key, _)| *key == "usage");
    let notes = noted.map(|(key, value)| (key.clone(), value.clone())).collect();
    Ok(NewRecord { event, notes })
}
