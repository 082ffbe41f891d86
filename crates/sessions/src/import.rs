//! Importing journals, and what a caller must be allowed for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Action, AppendId, BoxStream, Bytes, Caller, Condition, ExecutionId, Head, ImportRequest, Owner,
    Seq, Session, SessionUid, SessionsError,
};
use mainspring_eventlog::export::{Line, check_line, no_lines, parse_line};
use mainspring_eventlog::{
    ExecutionView, ImportRecord, ImportRow, LogError, NewSession, SessionView, StoredRecord,
};

use crate::repeat::digest;
use crate::service::{Inner, Service, log_failed};

/// Executions of a journal that are told apart while it is imported; one with
/// more is taken for one whose latest turn makes effects.
const EXECUTIONS_MAX: usize = 16_384;

impl Service {
    pub(crate) async fn import_lines(
        &self,
        caller: &Caller,
        request: ImportRequest,
        lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    ) -> Result<Session, SessionsError> {
        let inner = &self.inner;
        let overrides =
            request.session.is_some() || !request.harness.is_empty() || !request.name.is_empty();
        let chooses_uid = request.session.is_some();
        let id = request.id;
        let row = self.import_row(caller, request);
        row.session.check().map_err(log_failed)?;
        inner.allow(caller, Action::Create).await?;
        let owner = inner.restricted_to(caller)?;
        if owner.is_some() && chooses_uid {
            let message = "an import may not choose its uid here";
            return Err(SessionsError::new(Condition::PermissionDenied, message));
        }
        let id = match (id, &owner) {
            (None, _) => AppendId::random(&*inner.options.entropy),
            (Some(id), None) => id,
            (Some(id), Some(owner)) => id_of(owner, id),
        };
        let check = owner.is_some().then(|| Check {
            inner: Arc::clone(inner),
            caller: caller.clone(),
            uid: row.session.uid.clone(),
            decisions: Decisions::default(),
        });
        let restricted = owner.is_some();
        let project = inner.options.project.clone();
        let found = Found::Nothing;
        let lines = Lines { lines, number: 0, project, owner, overrides, found, check };
        let failed: Arc<Mutex<Option<SessionsError>>> = Arc::default();
        let records = lines.records(Arc::clone(&failed));
        match self.log().import(id, row, records).await {
            Ok(row) => {
                // Its request may expire, as if it had been made here.
                inner.watch_request(&row, None).await;
                Ok(inner.shown(row))
            }
            Err(LogError::AlreadyExists(uid)) if restricted => {
                // Whose it is decides what may be told of it.
                inner.find_for(caller, &[Action::Read], &uid).await?;
                Err(log_failed(LogError::AlreadyExists(uid)))
            }
            Err(error) => {
                let own = failed.lock().unwrap_or_else(PoisonError::into_inner).take();
                Err(own.unwrap_or_else(|| log_failed(error)))
            }
        }
    }

    /// The row of a journal that names none.
    fn import_row(&self, caller: &Caller, request: ImportRequest) -> ImportRow {
        let entropy = &*self.inner.options.entropy;
        let uid = request.session.unwrap_or_else(|| SessionUid::random(entropy));
        let mut session = NewSession::bare(uid, self.inner.project(&request.project));
        session.name = request.name;
        session.harness = request.harness;
        session.owner = self.inner.owner_for(caller);
        ImportRow { session, create_time: None, parent: None }
    }
}

/// An import's id as the log knows it: nobody goes on with, or is answered
/// with, what somebody else imports.
fn id_of(owner: &Owner, id: AppendId) -> AppendId {
    let digest = digest(&[&owner.issuer, &owner.subject, &id.to_string()]);
    AppendId::new(*digest.first_chunk().expect("it is longer"))
}

/// What is asked of a journal once it is all there.
struct Check {
    inner: Arc<Inner>,
    caller: Caller,
    uid: SessionUid,
    decisions: Decisions,
}

/// Whether a resume of the journal may act on a decision that stands in it.
/// Its chain holds no key: whoever can write a file can decide in it.
#[derive(Default)]
struct Decisions {
    view: SessionView,
    others: HashMap<ExecutionId, ExecutionView>,
    /// Not all of it was seen here: it goes on from what was staged before, or
    /// cannot be read.
    is_partial: bool,
}

impl Decisions {
    fn fold(&mut self, record: &StoredRecord) {
        let Self { view, others, is_partial } = self;
        let is_next = record.seq == view.head.seq.next();
        if *is_partial || !is_next || others.len() > EXECUTIONS_MAX {
            *is_partial = true;
            return;
        }
        // The log says what is wrong with a record; here it only must not pass.
        let folded = record
            .event()
            .and_then(|event| view.apply(&event, record.head(), record.canonical.len(), others));
        *is_partial = folded.is_err();
    }

    fn ends_at(&mut self, head: Head) {
        self.is_partial |= head.seq > Seq::ZERO && self.view.head != head;
    }

    fn may_act(&self) -> bool {
        let gate = self.view.pending().and_then(|turn| turn.gate.as_ref());
        self.is_partial || gate.is_some_and(|gate| gate.receipt.is_none())
    }
}

/// Keeps an error that the log cannot carry.
fn fail(failed: &Mutex<Option<SessionsError>>, error: SessionsError) -> LogError {
    *failed.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
    LogError::Invalid("the lines failed")
}

/// Lines of a journal as they come.
struct Lines {
    lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    number: u64,
    project: String,
    /// Whose the session will be, whatever the file says; `None` believes it.
    owner: Option<Owner>,
    /// Whether the caller says what the file should not have to be told.
    overrides: bool,
    found: Found,
    /// Set with an authoriser, until the last line is judged.
    check: Option<Check>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Nothing,
    Records,
    Head,
}

impl Lines {
    /// The records of the lines. An error of the lines themselves is kept in
    /// `failed`, since the log can only carry its own.
    fn records(
        self,
        failed: Arc<Mutex<Option<SessionsError>>>,
    ) -> BoxStream<'static, Result<ImportRecord, LogError>> {
        Box::pin(stream::unfold((self, failed), |(mut lines, failed)| async move {
            let item = lines.next(&failed).await?;
            Some((item, (lines, failed)))
        }))
    }

    async fn next(
        &mut self,
        failed: &Mutex<Option<SessionsError>>,
    ) -> Option<Result<ImportRecord, LogError>> {
        loop {
            let line = match self.lines.next().await {
                Some(Ok(line)) => line,
                None if self.found == Found::Nothing => {
                    self.found = Found::Head;
                    return Some(Err(no_lines()));
                }
                None => return self.judge().await.err().map(|error| Err(fail(failed, error))),
                Some(Err(error)) => return Some(Err(fail(failed, error))),
            };
            self.number += 1;
            if line.trim_ascii().is_empty() {
                continue;
            }
            let parsed = check_line(&line).and_then(|()| parse_line(self.number, &line));
            return Some(parsed.and_then(|line| self.record(line)));
        }
    }

    /// Asks what is to be asked of the whole journal, before it is published.
    async fn judge(&mut self) -> Result<(), SessionsError> {
        let Some(Check { inner, caller, uid, decisions }) = self.check.take() else {
            return Ok(());
        };
        if decisions.may_act() { inner.allow_decisions(&caller, &uid).await } else { Ok(()) }
    }

    fn record(&mut self, line: Line) -> Result<ImportRecord, LogError> {
        let bad = |why: &str| LogError::BadLine { line: self.number, why: why.to_owned() };
        if self.found == Found::Head {
            return Err(bad("it follows the head line"));
        }
        match line {
            Line::Record(record) => {
                self.found = Found::Records;
                if let Some(check) = &mut self.check {
                    check.decisions.fold(&record);
                }
                Ok(ImportRecord::Record(record))
            }
            Line::Head(_, Some(_)) if self.overrides => {
                Err(bad("the journal names its own session, harness and name; give none of them"))
            }
            Line::Head(head, mut row) => {
                self.found = Found::Head;
                if let Some(check) = &mut self.check {
                    check.decisions.ends_at(head);
                    let named = row.as_ref().map(|row| row.session.uid.clone());
                    check.uid = named.unwrap_or_else(|| check.uid.clone());
                }
                if let (Some(row), Some(owner)) = (&mut row, &self.owner) {
                    row.session.owner = Some(owner.clone());
                }
                if let Some(row) = row.as_mut().filter(|row| row.session.project.is_empty()) {
                    row.session.project.clone_from(&self.project);
                }
                Ok(ImportRecord::Head(head, row))
            }
        }
    }
}
