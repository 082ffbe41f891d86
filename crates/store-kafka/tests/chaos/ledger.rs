//! What a host has tried and been told: one line of JSON for each, in its file
//! before the next thing happens, so that the end of the process loses none.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use mainspring_api::{AppendId, Classify as _, Fence, Hash, Head, Outcome, Seq};
use mainspring_eventlog::{Batch, Level, LogError};
use mainspring_testkit::sample;
use serde_json::{Value, json};

use crate::clock;

/// What an operation came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It took effect; for an append, the head after it.
    Ok(Head),
    /// The journal ends at this head.
    Conflict(Head),
    /// Another fence is in force.
    Fenced,
    /// Not judged, and nothing was sent.
    Refused,
    /// Not known.
    Unknown,
}

impl Answer {
    /// `None` for what no correct store answers here.
    pub(crate) fn of(error: &LogError) -> Option<Self> {
        match error {
            LogError::Conflict { head, .. } => Some(Self::Conflict(*head)),
            LogError::Fenced { .. } | LogError::Moved { .. } => Some(Self::Fenced),
            LogError::Unavailable { .. } if error.outcome() == Outcome::Unknown => {
                Some(Self::Unknown)
            }
            LogError::Unavailable { .. } => Some(Self::Refused),
            _ => None,
        }
    }

    /// Whether it is said for good.
    pub(crate) const fn is_settled(self) -> bool {
        !matches!(self, Self::Refused | Self::Unknown)
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Ok(_) => "ok",
            Self::Conflict(_) => "conflict",
            Self::Fenced => "fenced",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }

    fn read(line: &Value) -> Self {
        match line["answer"].as_str().expect("an answer has a name") {
            "ok" => Self::Ok(head(&line["head"])),
            "conflict" => Self::Conflict(head(&line["head"])),
            "fenced" => Self::Fenced,
            "refused" => Self::Refused,
            "unknown" => Self::Unknown,
            other => panic!("there is no answer `{other}`"),
        }
    }
}

fn json_of(head: Head) -> Value {
    json!([head.seq.get(), head.hash.map(|hash| hash.to_string())])
}

fn head(value: &Value) -> Head {
    let seq = Seq::new(value[0].as_u64().expect("a position"));
    match value[1].as_str() {
        Some(hash) => Head::at(seq, Hash::from_hex(hash).expect("a hash")),
        None => Head::EMPTY,
    }
}

/// An append before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Append {
    pub(crate) session: usize,
    pub(crate) id: AppendId,
    pub(crate) fence: Fence,
    /// The fence in force when the base was read.
    pub(crate) in_force: Fence,
    pub(crate) base: Head,
    /// Its events are inputs of these texts.
    pub(crate) texts: Vec<String>,
    /// How, and from when on, its base was read.
    pub(crate) level: Level,
    pub(crate) read_at: u64,
}

impl Append {
    /// The records, which follow from the rest.
    pub(crate) fn batch(&self) -> Batch {
        let events = self.texts.iter().map(|text| sample::input(text));
        Batch::link(self.base, sample::records(events)).expect("inputs can be recorded")
    }
}

/// A mint before it is sent.
#[derive(Debug, Clone)]
pub(crate) struct Mint {
    pub(crate) session: usize,
    pub(crate) id: AppendId,
    pub(crate) current: Fence,
    /// The head that it asks for, if it does.
    pub(crate) at: Option<Head>,
}

/// The file that a host writes.
#[derive(Debug)]
pub(crate) struct Ledger {
    file: File,
    next: AtomicU64,
}

impl Ledger {
    pub(crate) fn create(path: &Path) -> Self {
        let file = File::create_new(path).expect("each incarnation has a ledger of its own");
        Self { file, next: AtomicU64::new(0) }
    }

    /// One line in one write, which the end of this process does not undo.
    fn line(&self, value: &Value) {
        (&self.file).write_all(format!("{value}\n").as_bytes()).expect("the disk takes a line");
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn opened(&self) {
        self.line(&json!({ "kind": "opened" }));
    }

    /// A command of the test is done.
    pub(crate) fn done(&self) {
        self.line(&json!({ "kind": "done" }));
    }

    pub(crate) fn append(&self, append: &Append) -> u64 {
        let number = self.number();
        self.line(&json!({
            "kind": "append", "number": number, "session": append.session,
            "id": append.id.to_string(), "fence": append.fence.get(),
            "in_force": append.in_force.get(), "base": json_of(append.base),
            "texts": append.texts, "strict": append.level == Level::Strict,
            "read_at": append.read_at, "at": clock::now(),
        }));
        number
    }

    pub(crate) fn mint(&self, mint: &Mint) -> u64 {
        let number = self.number();
        self.line(&json!({
            "kind": "mint", "number": number, "session": mint.session, "id": mint.id.to_string(),
            "current": mint.current.get(), "head": mint.at.map(json_of),
        }));
        number
    }

    pub(crate) fn answer(&self, number: u64, answer: Answer) {
        let mut line = json!({
            "kind": "answer", "number": number, "answer": answer.name(), "at": clock::now(),
        });
        if let Answer::Ok(head) | Answer::Conflict(head) = answer {
            line["head"] = json_of(head);
        }
        self.line(&line);
    }
}

/// An operation and all its answers, each with its time.
#[derive(Debug, Clone)]
pub(crate) struct Told<T> {
    pub(crate) what: T,
    pub(crate) answers: Vec<(Answer, u64)>,
}

impl<T> Told<T> {
    /// What it came to; `Unknown` when that was never said.
    ///
    /// What was refused before anything was sent and never sent again is
    /// settled by that: nothing is on its way.
    pub(crate) fn outcome(&self) -> Answer {
        let settled = self.answers.iter().map(|(answer, _)| *answer).find(|a| a.is_settled());
        match (settled, self.answers.as_slice()) {
            (Some(settled), _) => settled,
            (None, [(Answer::Refused, _)]) => Answer::Refused,
            _ => Answer::Unknown,
        }
    }

    /// When it was first said to have taken effect.
    pub(crate) fn ok_at(&self) -> Option<(Head, u64)> {
        self.answers.iter().find_map(|(answer, at)| match answer {
            Answer::Ok(head) => Some((*head, *at)),
            _ => None,
        })
    }
}

/// All that one incarnation wrote down.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    pub(crate) appends: BTreeMap<u64, Told<Append>>,
    pub(crate) mints: BTreeMap<u64, Told<Mint>>,
}

impl Entries {
    pub(crate) fn read(path: &Path) -> Self {
        let mut entries = Self::default();
        let text = std::fs::read_to_string(path).unwrap_or_default();
        // A last line without an end was not written before anything was done.
        for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            entries.take(&serde_json::from_str(line).expect("a ledger is lines of JSON"));
        }
        entries
    }

    fn take(&mut self, line: &Value) {
        let number = || line["number"].as_u64().expect("a number");
        match line["kind"].as_str() {
            Some("append") => {
                self.appends.insert(number(), told(read_append(line)));
            }
            Some("mint") => {
                self.mints.insert(number(), told(read_mint(line)));
            }
            Some("answer") => {
                let answer = (Answer::read(line), line["at"].as_u64().expect("a time"));
                let number = number();
                if let Some(append) = self.appends.get_mut(&number) {
                    append.answers.push(answer);
                } else {
                    let mint = self.mints.get_mut(&number);
                    mint.expect("an answer is to what was tried").answers.push(answer);
                }
            }
            _ => {}
        }
    }
}

const fn told<T>(what: T) -> Told<T> {
    Told { what, answers: Vec::new() }
}

fn session_and_id(line: &Value) -> (usize, AppendId) {
    let session = line["session"].as_u64().expect("a session");
    let id = line["id"].as_str().expect("an id");
    (usize::try_from(session).expect("few"), AppendId::from_hex(id).expect("an id"))
}

fn read_append(line: &Value) -> Append {
    let (session, id) = session_and_id(line);
    let fence = |key: &str| Fence::new(line[key].as_u64().expect("a fence"));
    let texts = line["texts"].as_array().expect("texts").iter();
    let strict = line["strict"].as_bool().expect("a flag");
    Append {
        session,
        id,
        fence: fence("fence"),
        in_force: fence("in_force"),
        base: head(&line["base"]),
        texts: texts.map(|text| text.as_str().expect("a text").to_owned()).collect(),
        level: if strict { Level::Strict } else { Level::Committed },
        read_at: line["read_at"].as_u64().expect("a time"),
    }
}

fn read_mint(line: &Value) -> Mint {
    let (session, id) = session_and_id(line);
    let at = &line["head"];
    Mint {
        session,
        id,
        current: Fence::new(line["current"].as_u64().expect("a fence")),
        at: (!at.is_null()).then(|| head(at)),
    }
}
