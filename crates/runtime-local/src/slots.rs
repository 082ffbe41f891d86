//! One slot per session, so that concurrent calls for one session take turns
//! and calls for different sessions do not wait for each other.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mainspring_api::{Resumability, RuntimeError, SessionUid};
use tempfile::TempDir;
use tokio::sync::OwnedMutexGuard;

use crate::child::ServingChild;

/// What a session has here.
#[derive(Debug, Default)]
pub(crate) enum Held {
    /// Nothing yet: somebody is about to put a child here, or gave up.
    #[default]
    Nothing,
    /// A child, which may have ended since.
    Child(Box<ServingChild>),
    /// The slot has left the map; look it up again.
    Retired,
}

type Slot = Arc<tokio::sync::Mutex<Held>>;

/// All slots, and what sessions of built-in harnesses said of themselves.
#[derive(Debug, Default)]
pub(crate) struct Slots(Mutex<Map>);

#[derive(Debug, Default)]
struct Map {
    closed: bool,
    children: HashMap<SessionUid, Slot>,
    built_in: HashMap<SessionUid, Resumability>,
    folder: Option<Arc<TempDir>>,
    sockets: u64,
}

impl Slots {
    fn map(&self) -> MutexGuard<'_, Map> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open(&self) -> Result<MutexGuard<'_, Map>, RuntimeError> {
        let map = self.map();
        if map.closed {
            return Err(RuntimeError::Closed);
        }
        Ok(map)
    }

    /// The session's slot, locked, and made if it is not there.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        uid: &SessionUid,
        children_max: usize,
    ) -> Result<Claim, RuntimeError> {
        loop {
            let slot = {
                let mut map = self.open()?;
                if !map.children.contains_key(uid) && map.children.len() >= children_max {
                    let message = format!(
                        "{children_max} sessions have a child, children_max allows no more"
                    );
                    return Err(RuntimeError::Busy { message });
                }
                map.built_in.remove(uid);
                Arc::clone(map.children.entry(uid.clone()).or_default())
            };
            if let Some(claim) = self.lock(uid, slot).await {
                return Ok(claim);
            }
        }
    }

    /// The session's slot, locked, if it is there. Works on a closed runtime too.
    pub(crate) async fn find(self: &Arc<Self>, uid: &SessionUid) -> Option<Claim> {
        loop {
            let slot = self.map().children.get(uid).cloned()?;
            if let Some(claim) = self.lock(uid, slot).await {
                return Some(claim);
            }
        }
    }

    async fn lock(self: &Arc<Self>, uid: &SessionUid, slot: Slot) -> Option<Claim> {
        let held = Arc::clone(&slot).lock_owned().await;
        if matches!(*held, Held::Retired) {
            return None;
        }
        Some(Claim { slots: Arc::clone(self), uid: uid.clone(), slot, held })
    }

    /// What the session holds, without waiting for whoever works on it.
    pub(crate) fn peek<T>(
        &self,
        uid: &SessionUid,
        look: impl FnOnce(Peek<'_>) -> T,
    ) -> Result<T, RuntimeError> {
        let map = self.open()?;
        let Some(slot) = map.children.get(uid).cloned() else {
            let built_in = map.built_in.contains_key(uid);
            return Ok(look(if built_in { Peek::BuiltIn } else { Peek::Nothing }));
        };
        drop(map);
        Ok(match slot.try_lock().as_deref() {
            Ok(Held::Child(child)) => look(Peek::Child(child)),
            Ok(_) => look(Peek::Nothing),
            Err(_) => look(Peek::InTransition),
        })
    }

    pub(crate) fn note_built_in(
        &self,
        uid: &SessionUid,
        resumability: Resumability,
    ) -> Result<(), RuntimeError> {
        self.open()?.built_in.insert(uid.clone(), resumability);
        Ok(())
    }

    pub(crate) fn built_in(&self, uid: &SessionUid) -> Result<Option<Resumability>, RuntimeError> {
        Ok(self.open()?.built_in.get(uid).copied())
    }

    pub(crate) fn forget_built_in(&self, uid: &SessionUid) {
        self.map().built_in.remove(uid);
    }

    /// Every session that holds something, in order.
    pub(crate) fn sessions(&self) -> Result<Vec<SessionUid>, RuntimeError> {
        let map = self.open()?;
        let mut uids: Vec<_> = map.built_in.keys().chain(map.children.keys()).cloned().collect();
        drop(map);
        uids.sort();
        Ok(uids)
    }

    /// A fresh place for a socket; `folder` makes the private folder, once.
    pub(crate) fn socket(
        &self,
        folder: impl FnOnce() -> Result<TempDir, RuntimeError>,
    ) -> Result<(Arc<TempDir>, PathBuf), RuntimeError> {
        let mut map = self.open()?;
        let folder = match &map.folder {
            Some(folder) => Arc::clone(folder),
            None => Arc::clone(map.folder.insert(Arc::new(folder()?))),
        };
        map.sockets += 1;
        let path = folder.path().join(format!("{}.sock", map.sockets));
        Ok((folder, path))
    }

    /// Lets nobody in any more. Returns who is still inside.
    pub(crate) fn close(&self) -> Vec<SessionUid> {
        let mut map = self.map();
        map.closed = true;
        map.built_in.clear();
        map.folder = None;
        map.children.keys().cloned().collect()
    }
}

/// What can be seen of a session without waiting.
#[derive(Debug)]
pub(crate) enum Peek<'a> {
    Nothing,
    BuiltIn,
    Child(&'a ServingChild),
    InTransition,
}

/// The right to change what one session holds. A claim that is dropped without
/// a child in it takes the slot out of the map, also when its owner's future
/// was dropped halfway.
#[derive(Debug)]
pub(crate) struct Claim {
    slots: Arc<Slots>,
    uid: SessionUid,
    slot: Slot,
    held: OwnedMutexGuard<Held>,
}

impl Claim {
    pub(crate) fn child(&self) -> Option<&ServingChild> {
        match &*self.held {
            Held::Child(child) => Some(child),
            _ => None,
        }
    }

    pub(crate) fn take(&mut self) -> Option<ServingChild> {
        match std::mem::take(&mut *self.held) {
            Held::Child(child) => Some(*child),
            Held::Nothing | Held::Retired => None,
        }
    }

    pub(crate) fn put(&mut self, child: ServingChild) -> &ServingChild {
        *self.held = Held::Child(Box::new(child));
        self.child().expect("it was put there in the line before")
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if matches!(*self.held, Held::Child(_)) {
            return;
        }
        *self.held = Held::Retired;
        let mut map = self.slots.map();
        if map.children.get(&self.uid).is_some_and(|slot| Arc::ptr_eq(slot, &self.slot)) {
            map.children.remove(&self.uid);
        }
    }
}
