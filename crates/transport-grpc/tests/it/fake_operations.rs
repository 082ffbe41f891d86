//! Operations and a registry in memory that remember what they were asked.

use std::sync::Mutex;

use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    AdoptRequest, BoxStream, Bytes, Caller, Condition, ExportRequest, FindRequest,
    HarnessRegistration, HarnessRegistry, HarnessSource, HarnessSpec, HarnessState, Hash, Head,
    ImportRequest, ListPage, Operations, RegisterOutcome, Seq, Session, SessionsError, Timestamp,
    VerifyProgress, VerifyReport, VerifyRequest, async_trait,
};
use tokio::sync::Notify;

use crate::fake::session;

#[derive(Debug, Default)]
pub(crate) struct FakeOperations {
    pub(crate) seen: Mutex<Vec<String>>,
    /// The lines of the imports, and how each ended.
    pub(crate) imported: Mutex<Vec<Result<Vec<Bytes>, SessionsError>>>,
    pub(crate) import_ended: Notify,
    /// The lines of an export.
    pub(crate) lines: Mutex<Vec<Bytes>>,
}

impl FakeOperations {
    fn note(&self, caller: &Caller, request: impl std::fmt::Debug) {
        let line = format!("{} {request:?}", caller.method);
        self.seen.lock().unwrap().push(line);
    }

    pub(crate) fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

pub(crate) fn head() -> Head {
    Head::at(Seq::new(7), Hash::new([7; 32]))
}

/// Tells how an import ended, also when its future is dropped.
struct Ending<'a> {
    fake: &'a FakeOperations,
    outcome: Option<Result<Vec<Bytes>, SessionsError>>,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let gone = || Err(SessionsError::new(Condition::Cancelled, "dropped"));
        let outcome = self.outcome.take().unwrap_or_else(gone);
        self.fake.imported.lock().unwrap().push(outcome);
        self.fake.import_ended.notify_one();
    }
}

#[async_trait]
impl Operations for FakeOperations {
    async fn find(&self, caller: &Caller, request: FindRequest) -> Result<ListPage, SessionsError> {
        self.note(caller, &request);
        Ok(ListPage { sessions: vec![session("found")], next_page_token: "more".to_owned() })
    }

    async fn verify(
        &self,
        caller: &Caller,
        request: VerifyRequest,
    ) -> Result<BoxStream<'static, Result<VerifyProgress, SessionsError>>, SessionsError> {
        self.note(caller, &request);
        let mut updates = vec![Ok(VerifyProgress::Checked { records: 3, total: 7 })];
        match request.session.as_str() {
            "short" => {}
            "tampered" => updates
                .push(Err(SessionsError::new(Condition::JournalTampered, "seq 4 does not hold"))),
            _ => updates.push(Ok(VerifyProgress::Done(VerifyReport {
                session: Some(request.session),
                head: head(),
                head_attested: true,
            }))),
        }
        Ok(Box::pin(stream::iter(updates)))
    }

    async fn export(
        &self,
        caller: &Caller,
        request: ExportRequest,
    ) -> Result<BoxStream<'static, Result<Bytes, SessionsError>>, SessionsError> {
        self.note(caller, &request);
        let lines = self.lines.lock().unwrap().clone().into_iter().map(Ok);
        let lines = stream::iter(lines.collect::<Vec<_>>());
        Ok(match request.session.as_str() {
            "tampered" => {
                let error = SessionsError::new(Condition::JournalTampered, "seq 4 does not hold");
                Box::pin(lines.chain(stream::iter([Err(error)])))
            }
            _ => Box::pin(lines),
        })
    }

    async fn import(
        &self,
        caller: &Caller,
        request: ImportRequest,
        mut lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    ) -> Result<Session, SessionsError> {
        self.note(caller, &request);
        let mut ending = Ending { fake: self, outcome: None };
        let mut taken = Vec::new();
        while let Some(line) = lines.next().await {
            match line {
                Ok(line) => taken.push(line),
                Err(error) => {
                    ending.outcome = Some(Err(error.clone()));
                    return Err(error);
                }
            }
        }
        ending.outcome = Some(Ok(taken));
        Ok(session("imported"))
    }

    async fn adopt(
        &self,
        caller: &Caller,
        request: AdoptRequest,
    ) -> Result<Session, SessionsError> {
        self.note(caller, &request);
        if request.owner.subject == "other" {
            let text = "the session has another owner";
            return Err(SessionsError::new(Condition::FailedPrecondition, text));
        }
        Ok(session(request.session.as_str()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct FakeRegistry {
    pub(crate) seen: Mutex<Vec<String>>,
}

impl FakeRegistry {
    fn note(&self, caller: &Caller, request: impl std::fmt::Debug) {
        let line = format!("{} {request:?}", caller.method);
        self.seen.lock().unwrap().push(line);
    }

    pub(crate) fn last(&self) -> String {
        self.seen.lock().unwrap().last().cloned().unwrap_or_default()
    }
}

pub(crate) fn registration(name: &str, spec: Option<HarnessSpec>) -> HarnessRegistration {
    HarnessRegistration {
        name: name.to_owned(),
        uid: "harness-1".to_owned(),
        create_time: Some(Timestamp { seconds: 1, nanos: 2 }),
        spec,
        spec_digest: "sha256:x".to_owned(),
        state: HarnessState::Active,
        source: HarnessSource::Registered,
        retire_time: None,
        retire_reason: String::new(),
        observed: None,
        observe_error: "o".to_owned(),
        unservable_reason: "u".to_owned(),
    }
}

#[async_trait]
impl HarnessRegistry for FakeRegistry {
    async fn register(
        &self,
        caller: &Caller,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        self.note(caller, (name, &spec));
        if name == "hang" {
            std::future::pending::<()>().await;
        }
        Ok((registration(name, Some(spec)), RegisterOutcome::Unchanged))
    }

    async fn get(
        &self,
        caller: &Caller,
        name: &str,
        observe: bool,
    ) -> Result<HarnessRegistration, SessionsError> {
        self.note(caller, (name, observe));
        match name {
            "hang" => std::future::pending().await,
            "unknown" => Err(SessionsError::new(Condition::UnknownHarness, "no such harness")),
            _ => Ok(registration(name, None)),
        }
    }

    async fn list(
        &self,
        caller: &Caller,
        page_size: i32,
        page_token: &str,
        include_retired: bool,
    ) -> Result<(Vec<HarnessRegistration>, String), SessionsError> {
        self.note(caller, (page_size, page_token, include_retired));
        Ok((vec![registration("a", None), registration("b", None)], "more".to_owned()))
    }

    async fn retire(
        &self,
        caller: &Caller,
        name: &str,
        reason: &str,
    ) -> Result<HarnessRegistration, SessionsError> {
        self.note(caller, (name, reason));
        Ok(HarnessRegistration {
            state: HarnessState::Retired,
            retire_time: Some(Timestamp { seconds: 3, nanos: 4 }),
            retire_reason: reason.to_owned(),
            ..registration(name, None)
        })
    }
}
