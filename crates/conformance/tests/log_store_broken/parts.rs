//! The optional parts, as they should not be.

use futures_util::{StreamExt as _, future, stream};
use mainspring_api::{AppendId, BoxStream, Bytes, Head, Seq, SessionUid, async_trait};
use mainspring_eventlog::{
    Follow, HOST_ADDRESS_BYTES_MAX, Holder, Liveness, LogError, NAMED_ROW_BYTES_MAX, NamedRow,
    NamedRows, Purge, RowKey, SessionRow, StoredRecord, WarmHost, Warmth,
};
use mainspring_testkit::{read_all, sample};

use crate::fault::Fault;
use crate::store::Broken;

const OFFERED: &str = "the store underneath offers it";

impl Follow for Broken {
    fn follow(
        &self,
        session: &SessionUid,
        after: Head,
    ) -> BoxStream<'static, Result<StoredRecord, LogError>> {
        let sound = || self.inner.follow().expect(OFFERED).follow(session, after);
        match self.fault {
            // In its place the next one comes twice.
            Fault::FollowSkips => Box::pin(sound().skip(1).enumerate().flat_map(|(n, item)| {
                stream::iter(std::iter::repeat_n(item, if n == 0 { 2 } else { 1 }))
            })),
            // No error ends it, and nothing else does.
            Fault::FollowNeverEnds => Box::pin(
                sound().filter(|item| future::ready(item.is_ok())).chain(stream::pending()),
            ),
            Fault::FollowIgnoresHash if after.seq > Seq::ZERO => {
                let (inner, session) = (self.inner.clone(), session.clone());
                Box::pin(
                    stream::once(async move {
                        let all = read_all(&*inner, &session).await.unwrap_or_default();
                        stream::iter(all.into_iter().map(Ok)).chain(stream::pending())
                    })
                    .flatten(),
                )
            }
            _ => sound(),
        }
    }
}

#[async_trait]
impl Purge for Broken {
    async fn purge(&self, id: AppendId, session: &SessionUid) -> Result<SessionRow, LogError> {
        let purge = self.inner.purge().expect(OFFERED);
        let delete = async |uid: &SessionUid| {
            let deletion = sample::records([sample::deletion()]);
            mainspring_testkit::append(&*self.inner, uid, deletion).await
        };
        match self.fault {
            Fault::PurgesOnce if self.found(session).await?.purged => {
                Err(LogError::Invalid("it is purged"))
            }
            Fault::PurgesNothing => self.found(session).await,
            Fault::PurgesTheLiving => {
                delete(session).await?;
                purge.purge(id, session).await
            }
            Fault::PurgesForks => {
                let children = self.children.lock().unwrap().get(session).cloned();
                for child in children.into_iter().flatten() {
                    delete(&child).await?;
                    purge.purge(sample::fresh_id(), &child).await?;
                }
                purge.purge(id, session).await
            }
            _ => purge.purge(id, session).await,
        }
    }
}

impl Broken {
    fn rows_below(&self) -> &dyn NamedRows {
        self.inner.rows().expect(OFFERED)
    }

    fn key(&self, key: &RowKey) -> RowKey {
        match self.fault {
            Fault::RowsHaveOneKind => RowKey::new("kind", key.name()).unwrap(),
            _ => key.clone(),
        }
    }
}

#[async_trait]
impl NamedRows for Broken {
    async fn named(&self, key: &RowKey) -> Result<Option<NamedRow>, LogError> {
        self.rows_below().named(&self.key(key)).await
    }

    async fn named_of(
        &self,
        kind: &str,
        after: &str,
        limit: usize,
    ) -> Result<Vec<(String, NamedRow)>, LogError> {
        self.rows_below().named_of(kind, after, limit).await
    }

    async fn put_named(
        &self,
        id: AppendId,
        key: &RowKey,
        version: u64,
        mut value: Option<Bytes>,
    ) -> Result<u64, LogError> {
        let (below, key, id) = (self.rows_below(), self.key(key), self.id(id));
        if self.is(Fault::RowsCutValues) {
            value = value.map(|value| value.slice(..value.len().min(NAMED_ROW_BYTES_MAX)));
        }
        match below.put_named(id, &key, version, value.clone()).await {
            Err(LogError::Moved { .. }) if self.is(Fault::RowsIgnoreVersion) => {
                let there = below.named(&key).await?.map_or(0, |row| row.version);
                below.put_named(id, &key, there, value).await
            }
            Err(LogError::Moved { .. }) if self.is(Fault::RowsForgetVersions) && version == 0 => {
                below.put_named(id, &key, 2, value).await
            }
            answer => answer,
        }
    }
}

#[async_trait]
impl Liveness for Broken {
    async fn announce(&self, holder: &Holder) -> Result<(), LogError> {
        let mut alive = self.alive.lock().unwrap();
        if self.is(Fault::LivesOnlyOne) {
            alive.clear();
        }
        alive.push(holder.clone());
        Ok(())
    }

    async fn is_alive(&self, holder: &str) -> Result<bool, LogError> {
        let known = self.alive.lock().unwrap().iter().any(|known| known.id == holder);
        Ok(known || self.is(Fault::HoldersNeverDie))
    }
}

#[async_trait]
impl Warmth for Broken {
    fn warm_host(&self, _session: &SessionUid) -> Option<WarmHost> {
        let mut address = self.address.lock().unwrap().clone();
        if self.is(Fault::WarmHostsHaveNoAddress) {
            address.clear();
        }
        let holder = match self.fault {
            Fault::NobodyIsWarm => sample::holder("nobody"),
            _ => self.alive.lock().unwrap().first()?.clone(),
        };
        Some(WarmHost { holder, address })
    }

    async fn advertise(&self, address: &str) -> Result<(), LogError> {
        if address.len() > HOST_ADDRESS_BYTES_MAX && !self.is(Fault::TakesAnyAddress) {
            return Err(LogError::Invalid("the address of the host is too long"));
        }
        *self.address.lock().unwrap() = address.to_owned();
        Ok(())
    }
}
