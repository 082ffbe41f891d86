//! Forking a session.

use std::sync::Arc;

use mainspring_api::{
    Action, Caller, Condition, ForkRequest, Seq, Session, SessionUid, SessionsError,
};
use mainspring_controller::ControllerError;
use mainspring_eventlog::{NewSession, SessionRow};
use mainspring_placement::Call;

use crate::service::{Inner, invalid, log_failed, placement_failed};

/// Children of one call.
const CHILDREN_MAX: i32 = 128;

/// Uids drawn for one child until the store accepts one.
const UID_TRIES_MAX: usize = 10_000;

impl Inner {
    /// A stateless fork takes no lease: it reads a prefix, and the parent's
    /// turn may run on.
    pub(crate) async fn fork(
        self: &Arc<Self>,
        caller: &Caller,
        request: ForkRequest,
    ) -> Result<Vec<Session>, SessionsError> {
        if request.identity.is_some() {
            return Err(invalid("a fork takes no identity"));
        }
        let count = request.count.max(1);
        if count > CHILDREN_MAX {
            return Err(invalid(format!("count is {count}, at most {CHILDREN_MAX} are made")));
        }
        let count = usize::try_from(count).expect("it is between 1 and 128");
        if !request.child_names.is_empty() && request.child_names.len() != count {
            return Err(invalid("child_names must be empty or name every child"));
        }
        let parent = &request.session;
        // What the request itself says is looked at before the session is.
        let mut child = NewSession::bare(parent.clone(), &self.options.project);
        child.labels.clone_from(&request.labels);
        child.check().map_err(log_failed)?;
        for name in &request.child_names {
            child.name.clone_from(name);
            child.check().map_err(|error| {
                let error = log_failed(error);
                SessionsError::new(error.condition(), format!("child_names: {error}"))
            })?;
        }
        let row = self.find_active_for(caller, &[Action::Fork], parent).await?;
        self.admit_turn()?;
        let at = match Seq::from_i64(request.at_seq) {
            None | Some(Seq::ZERO) => row.view.head.seq,
            Some(at) if at > row.view.head.seq => {
                let head = row.view.head.seq;
                return Err(
                    invalid(format!("at_seq is {at}, the journal ends at {head}")).on(parent)
                );
            }
            Some(at) => at,
        };
        let placer = self.route(&row, "").await?;
        let journal = self.unverified(parent);
        placer
            .admit(&journal, &Call::default())
            .await
            .map_err(|error| placement_failed(error).on(parent))?;
        let children = self.children(caller, &row, &request, count)?;
        let checked = children.iter().try_for_each(NewSession::check);
        checked.map_err(|error| log_failed(error).on(parent))?;
        let entropy = &*self.options.entropy;
        let forked = mainspring_controller::fork(&journal, at, children, entropy).await;
        let rows = forked
            .map_err(|error: ControllerError| SessionsError::because(Arc::new(error)).on(parent))?;
        Ok(rows.into_iter().map(|row| self.shown(row)).collect())
    }

    fn children(
        &self,
        caller: &Caller,
        parent: &SessionRow,
        request: &ForkRequest,
        count: usize,
    ) -> Result<Vec<NewSession>, SessionsError> {
        let s = &parent.session;
        (0..count)
            .map(|index| {
                Ok(NewSession {
                    uid: self.child_uid(&s.uid)?,
                    project: s.project.clone(),
                    name: request.child_names.get(index).cloned().unwrap_or_default(),
                    harness: s.harness.clone(),
                    model: s.model.clone(),
                    labels: request.labels.clone(),
                    annotations: s.annotations.clone(),
                    origin: s.origin.clone(),
                    identity: None,
                    owner: self.owner_for(caller),
                })
            })
            .collect()
    }

    /// A child must lie where its parent does; the store says which uids do.
    fn child_uid(&self, parent: &SessionUid) -> Result<SessionUid, SessionsError> {
        (0..UID_TRIES_MAX)
            .map(|_| SessionUid::random(&*self.options.entropy))
            .find(|uid| self.options.log.may_be_child(parent, uid))
            .ok_or_else(|| SessionsError::new(Condition::Internal, "no uid for a child was found"))
    }
}
