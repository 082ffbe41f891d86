//! Which lists besides the order a row stands in, so that looking for an
//! owner's sessions, or for open ones, does not look at the whole project.

use mainspring_api::{DeletionState, ExecState};

use super::keys;
use crate::engine::{EngineError, KvWrite, Space};
use crate::log::{ListQuery, Mark, SessionRow};

/// What decides where a row stands. A row's project, create time and owner
/// never change once they are set.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Indexed {
    owned: bool,
    open: bool,
    awaiting: bool,
    deleted: bool,
}

/// Whether sessions of this state are in the list of the open ones.
const fn is_open(state: ExecState) -> bool {
    matches!(state, ExecState::Running | ExecState::Awaiting)
}

impl Indexed {
    /// Where a row must stand.
    pub(super) fn of(row: &SessionRow) -> Self {
        let state = row.view.exec_state();
        let is_active = row.view.deletion == DeletionState::Active;
        Self {
            owned: row.session.owner.is_some(),
            open: is_open(state),
            awaiting: state == ExecState::Awaiting && is_active,
            // Until its records are gone, which the row does not say.
            deleted: !is_active,
        }
    }

    /// Moves a row from where it stands to where it must.
    pub(super) fn move_to(
        self,
        kv: &mut dyn KvWrite,
        row: &SessionRow,
        to: Self,
    ) -> Result<(), EngineError> {
        if self == to {
            return Ok(());
        }
        let (session, time) = (&row.session, row.create_time);
        let mut set = |was: bool, is: bool, key: &dyn Fn() -> Vec<u8>| match (was, is) {
            (false, true) => kv.put(Space::Index, &key(), &[]),
            (true, false) => kv.delete(Space::Index, &key()),
            _ => Ok(()),
        };
        if let Some(owner) = &session.owner {
            let prefix = || keys::owner_prefix(&session.project, owner);
            set(self.owned, to.owned, &|| keys::placed(prefix(), time, &session.uid))?;
        }
        let prefix = || keys::open_prefix(&session.project);
        set(self.open, to.open, &|| keys::placed(prefix(), time, &session.uid))?;
        set(self.awaiting, to.awaiting, &|| keys::marked(Mark::Awaiting, &session.uid))?;
        set(self.deleted, to.deleted, &|| keys::marked(Mark::Deleted, &session.uid))
    }
}

/// Where the rows of a query are looked for: the shortest list that has them all.
pub(super) fn list_of(query: &ListQuery) -> (Space, Vec<u8>) {
    if let Some(owner) = &query.owner {
        return (Space::Index, keys::owner_prefix(&query.project, owner));
    }
    if !query.states.is_empty() && query.states.iter().copied().all(is_open) {
        return (Space::Index, keys::open_prefix(&query.project));
    }
    (Space::Order, keys::project_prefix(&query.project))
}
