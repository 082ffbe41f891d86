//! Finding, verifying and exporting, over the service's own log.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{StreamExt as _, stream};
use mainspring_api::{
    Action, AdoptRequest, BoxStream, Bytes, Caller, Condition, ExportRequest, FindRequest, Head,
    ImportRequest, ListPage, Operations, Owner, Session, SessionUid, SessionsError, VerifyProgress,
    VerifyReport, VerifyRequest,
};
use mainspring_eventlog::export::{head_line, record_line};
use mainspring_eventlog::{
    ChainVerifier, Level, ListQuery, LogError, SessionRow, Verified, page_token,
};

use crate::replay::Pages;
use crate::service::{Inner, Service, deleted, invalid, log_failed};

/// The size of a page that was asked for.
pub(crate) fn page_size(asked: i32) -> usize {
    match usize::try_from(asked) {
        Ok(0) | Err(_) => 50,
        Ok(size) => size.min(500),
    }
}

impl Service {
    pub(crate) async fn list_page(
        &self,
        mut query: ListQuery,
        token: &str,
    ) -> Result<ListPage, SessionsError> {
        if !token.is_empty() {
            let key = page_token::decode(token);
            query.after = Some(key.ok_or_else(|| invalid("page_token is not one"))?);
        }
        let page = self.log().list(query, Level::Committed).await.map_err(log_failed)?;
        Ok(ListPage {
            sessions: page.rows.into_iter().map(|row| self.inner.seen(row)).collect(),
            next_page_token: page.next.as_ref().map(page_token::encode).unwrap_or_default(),
        })
    }
}

#[async_trait]
impl Operations for Service {
    async fn find(&self, caller: &Caller, request: FindRequest) -> Result<ListPage, SessionsError> {
        let query = ListQuery {
            project: self.inner.project(&request.project).to_owned(),
            states: request.states,
            harness: request.harness,
            labels: request.labels,
            page_size: page_size(request.page_size),
            owner: request.owner,
            after: None,
        };
        query.check().map_err(log_failed)?;
        self.inner.allow(caller, Action::List).await?;
        let owner = self.inner.owner_to_find(caller, query.owner.clone())?;
        let query = ListQuery { owner, ..query };
        self.list_page(query, &request.page_token).await
    }

    async fn verify(
        &self,
        caller: &Caller,
        request: VerifyRequest,
    ) -> Result<BoxStream<'static, Result<VerifyProgress, SessionsError>>, SessionsError> {
        let uid = request.session;
        if self.inner.find_for(caller, &[Action::Read], &uid).await?.purged {
            return Err(deleted(&uid));
        }
        let steps = self.log().verify(&uid, Head::EMPTY);
        Ok(Box::pin(steps.map(move |step| match step {
            Ok(Verified::Checked { seq, head }) => {
                Ok(VerifyProgress::Checked { records: seq.get(), total: head.get() })
            }
            Ok(Verified::Done(head)) => expect(head, request.expect_head, &uid),
            Err(error) => Err(log_failed(error).on(&uid)),
        })))
    }

    async fn export(
        &self,
        caller: &Caller,
        request: ExportRequest,
    ) -> Result<BoxStream<'static, Result<Bytes, SessionsError>>, SessionsError> {
        let ExportRequest { session, after } = request;
        let row = self.inner.find_for(caller, &[Action::Read], &session).await?;
        if row.purged {
            return Err(deleted(&session));
        }
        self.passes_through(&row, after).await?;
        let log = Arc::clone(self.log());
        let pages = Pages::of(log, session, after.seq.next(), row.view.head.seq);
        let chain = ChainVerifier::after(after);
        let state = Export { pages, chain, row: Some(row) };
        Ok(Box::pin(stream::unfold(state, Export::next)))
    }

    async fn import(
        &self,
        caller: &Caller,
        request: ImportRequest,
        lines: BoxStream<'static, Result<Bytes, SessionsError>>,
    ) -> Result<Session, SessionsError> {
        self.import_lines(caller, request, lines).await
    }

    async fn adopt(
        &self,
        caller: &Caller,
        request: AdoptRequest,
    ) -> Result<Session, SessionsError> {
        self.inner.adopt(caller, request).await
    }
}

impl Inner {
    /// Whose sessions a caller finds: their own, where an authoriser is set.
    fn owner_to_find(
        &self,
        caller: &Caller,
        asked: Option<Owner>,
    ) -> Result<Option<Owner>, SessionsError> {
        let is_whole = |owner: &Owner| !owner.issuer.is_empty() && !owner.subject.is_empty();
        if asked.as_ref().is_some_and(|owner| !is_whole(owner)) {
            return Err(invalid("an owner has an issuer and a subject"));
        }
        match (self.restricted_to(caller)?, asked) {
            (Some(own), Some(asked)) if own != asked => {
                let condition = Condition::PermissionDenied;
                Err(SessionsError::new(condition, "permission denied"))
            }
            (own, asked) => Ok(own.or(asked)),
        }
    }
}

impl Service {
    /// Refuses a position that the journal does not pass through.
    async fn passes_through(&self, row: &SessionRow, at: Head) -> Result<(), SessionsError> {
        let (uid, head) = (&row.session.uid, row.view.head);
        if at == Head::EMPTY || at == head {
            return Ok(());
        }
        let conflict = || log_failed(LogError::Conflict { expected: at, head }).on(uid);
        if at.seq > head.seq {
            return Err(conflict());
        }
        let mut record = Pages::of(Arc::clone(self.log()), uid.clone(), at.seq, at.seq);
        match record.stored().await.transpose()? {
            Some(record) if record.head() == at => Ok(()),
            _ => Err(conflict()),
        }
    }
}

fn expect(
    head: Head,
    expected: Option<Head>,
    uid: &SessionUid,
) -> Result<VerifyProgress, SessionsError> {
    if let Some(expected) = expected.filter(|expected| *expected != head) {
        let what = if head.seq < expected.seq {
            "records are missing at the end"
        } else {
            "the journal does not have the expected head"
        };
        let seq = head.seq.next().min(expected.seq);
        return Err(log_failed(LogError::Tampered { seq, what }).on(uid));
    }
    // The row's head stands outside of the records and moved with each append.
    Ok(VerifyProgress::Done(VerifyReport { session: Some(uid.clone()), head, head_attested: true }))
}

struct Export {
    pages: Pages,
    /// An export is evidence: it is verified as it is read.
    chain: ChainVerifier,
    row: Option<SessionRow>,
}

impl Export {
    async fn next(mut self) -> Option<(Result<Bytes, SessionsError>, Self)> {
        // After an error there is no row left, and nothing more comes.
        let row = self.row.take()?;
        match self.pages.stored().await {
            Some(Ok(record)) => match self.chain.check(&record) {
                Ok(()) => {
                    self.row = Some(row);
                    Some((Ok(record_line(&record)), self))
                }
                Err(error) => Some((Err(log_failed(error).on(&row.session.uid)), self)),
            },
            Some(Err(error)) => Some((Err(error), self)),
            None if self.chain.head() != row.view.head => {
                let (seq, what) = (row.view.head.seq, "the last hash is not the head's");
                let error = log_failed(LogError::Tampered { seq, what });
                Some((Err(error.on(&row.session.uid)), self))
            }
            None => Some((Ok(head_line(&row)), self)),
        }
    }
}
