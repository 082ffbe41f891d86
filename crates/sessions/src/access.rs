//! What a caller may do: asked before anything is disclosed or done.

use std::time::Duration;

use mainspring_api::{
    Action, AuthorizeRequest, AuthzError, Caller, CallerIdentity, Classify as _, Condition,
    DeletionState, ErrorKind, Owner, SessionUid, SessionsError,
};
use mainspring_eventlog::SessionRow;

use crate::service::{Inner, deleted};

/// How long the authoriser may take over one question.
const AUTHORIZE_MAX: Duration = Duration::from_secs(10);

impl Inner {
    /// Asks whether the caller may do something that is about no session, or
    /// about one that does not exist yet.
    pub(crate) async fn allow(&self, caller: &Caller, action: Action) -> Result<(), SessionsError> {
        if self.options.authorizer.is_none() {
            return Ok(());
        }
        let identity = known(caller)?;
        self.ask(caller, identity, action, None, None).await
    }

    /// The session's row, if the caller may do all of `actions` to it: looked
    /// up and authorised in one step. They are asked in order.
    ///
    /// With an authoriser, a session that is not there, and one that cannot be
    /// read, answer as one that is somebody else's.
    pub(crate) async fn find_for(
        &self,
        caller: &Caller,
        actions: &[Action],
        session: &SessionUid,
    ) -> Result<SessionRow, SessionsError> {
        if self.options.authorizer.is_none() {
            return self.find(session).await;
        }
        let identity = known(caller).map_err(|error| error.on(session))?;
        let row = match self.find(session).await {
            Ok(row) => row,
            Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
            Err(error) => {
                let asked = self.ask(caller, identity, Action::Read, Some(session), None).await;
                return Err(asked.err().unwrap_or(error).on(session));
            }
        };
        for action in actions {
            let owner = row.session.owner.as_ref();
            let asked = self.ask(caller, identity, *action, Some(session), owner).await;
            asked.map_err(|error| error.on(session))?;
        }
        Ok(row)
    }

    /// As [`Inner::find_for`], and refuses a deleted session.
    pub(crate) async fn find_active_for(
        &self,
        caller: &Caller,
        actions: &[Action],
        session: &SessionUid,
    ) -> Result<SessionRow, SessionsError> {
        let row = self.find_for(caller, actions, session).await?;
        if row.view.deletion == DeletionState::Pending {
            return Err(deleted(session));
        }
        Ok(row)
    }

    /// Asks whether the caller may do something more to a session that it was
    /// allowed to see.
    pub(crate) async fn allow_on(
        &self,
        caller: &Caller,
        action: Action,
        row: &SessionRow,
    ) -> Result<(), SessionsError> {
        if self.options.authorizer.is_none() {
            return Ok(());
        }
        let session = &row.session.uid;
        let identity = known(caller).map_err(|error| error.on(session))?;
        let owner = row.session.owner.as_ref();
        let asked = self.ask(caller, identity, action, Some(session), owner).await;
        asked.map_err(|error| error.on(session))
    }

    /// Asks whether the caller may run turns on a session that does not exist
    /// yet, and will be its own.
    pub(crate) async fn allow_first_turn(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<(), SessionsError> {
        if self.options.authorizer.is_none() {
            return Ok(());
        }
        let identity = known(caller)?;
        let owner = owner_of(identity);
        self.ask(caller, identity, Action::Exec, Some(session), Some(&owner)).await
    }

    /// Asks whether the caller may bring a session, which will be its own, with
    /// decisions that a resume acts on.
    pub(crate) async fn allow_decisions(
        &self,
        caller: &Caller,
        session: &SessionUid,
    ) -> Result<(), SessionsError> {
        let identity = known(caller)?;
        let owner = owner_of(identity);
        self.ask(caller, identity, Action::Approve, Some(session), Some(&owner)).await
    }

    /// Whose sessions the caller's lists are restricted to; `None` without an
    /// authoriser.
    pub(crate) fn restricted_to(&self, caller: &Caller) -> Result<Option<Owner>, SessionsError> {
        match self.options.authorizer {
            None => Ok(None),
            Some(_) => known(caller).map(|identity| Some(owner_of(identity))),
        }
    }

    /// The owner of what the caller creates.
    pub(crate) fn owner_for(&self, caller: &Caller) -> Option<Owner> {
        caller.identity.as_ref().map(owner_of)
    }

    async fn ask(
        &self,
        caller: &Caller,
        identity: &CallerIdentity,
        action: Action,
        session: Option<&SessionUid>,
        owner: Option<&Owner>,
    ) -> Result<(), SessionsError> {
        let Some(authorizer) = &self.options.authorizer else { return Ok(()) };
        let method = caller.method;
        let request = AuthorizeRequest { caller: Some(identity), action, session, owner, method };
        let asked = tokio::time::timeout(AUTHORIZE_MAX, authorizer.authorize(request)).await;
        let refused = match asked.unwrap_or(Err(AuthzError::Unavailable)) {
            Ok(()) => return Ok(()),
            Err(AuthzError::Denied) => {
                SessionsError::new(Condition::PermissionDenied, "permission denied")
            }
            // Its own words may say more than the caller may know.
            Err(_) => {
                let condition = Condition::AuthorizationUnavailable;
                SessionsError::new(condition, "authorization unavailable")
            }
        };
        Err(refused)
    }
}

fn owner_of(identity: &CallerIdentity) -> Owner {
    Owner { issuer: identity.issuer.clone(), subject: identity.subject.clone() }
}

/// The verified identity, of which neither part is empty.
fn known(caller: &Caller) -> Result<&CallerIdentity, SessionsError> {
    let identity = caller.identity.as_ref();
    identity
        .filter(|identity| !identity.issuer.is_empty() && !identity.subject.is_empty())
        .ok_or_else(|| SessionsError::new(Condition::Unauthenticated, "no verified caller"))
}
