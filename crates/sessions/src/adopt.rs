//! Giving a session that has no owner to one.

use mainspring_api::{
    Action, AdoptRequest, AppendId, Caller, Condition, Session, SessionUid, SessionsError,
};
use mainspring_controller::settle;
use mainspring_eventlog::{LogError, NewSession, RowPatch, SessionRow};

use crate::service::{Inner, invalid, log_failed};

/// How often an adoption follows a row that others keep changing.
const TRIES_MAX: usize = 8;

impl Inner {
    pub(crate) async fn adopt(
        &self,
        caller: &Caller,
        request: AdoptRequest,
    ) -> Result<Session, SessionsError> {
        let AdoptRequest { session, owner } = request;
        if owner.issuer.is_empty() || owner.subject.is_empty() {
            return Err(invalid("an owner has an issuer and a subject").on(&session));
        }
        let owned = NewSession {
            owner: Some(owner.clone()),
            ..NewSession::bare(session.clone(), &self.options.project)
        };
        owned.check().map_err(|error| log_failed(error).on(&session))?;
        let mut row = self.find_active_for(caller, &[Action::Adopt], &session).await?;
        for _ in 0..TRIES_MAX {
            match &row.session.owner {
                Some(there) if *there == owner => return Ok(self.seen(row)),
                Some(_) => return Err(owned_otherwise(&session)),
                None => {}
            }
            let patch = RowPatch { owner: Some(owner.clone()), ..RowPatch::default() };
            match self.update(&row, patch).await {
                Ok(adopted) => return Ok(self.seen(adopted)),
                Err(LogError::Moved { .. }) => row = self.find_active(&session).await?,
                Err(error) => return Err(log_failed(error).on(&session)),
            }
        }
        Err(log_failed(LogError::Moved { what: "the row's version" }).on(&session))
    }

    async fn update(&self, row: &SessionRow, patch: RowPatch) -> Result<SessionRow, LogError> {
        let id = AppendId::random(&*self.options.entropy);
        let (log, uid) = (&self.options.log, &row.session.uid);
        settle(|| log.update(id, uid, row.version, patch.clone())).await
    }
}

/// Whose it is, is not told.
fn owned_otherwise(session: &SessionUid) -> SessionsError {
    let message = format!("session {session} has another owner");
    SessionsError::new(Condition::FailedPrecondition, message).on(session)
}
