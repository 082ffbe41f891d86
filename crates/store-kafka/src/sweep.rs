//! Removing what imports staged and did not go on with for a long time.

use std::sync::{Arc, Weak};
use std::time::Duration;

use mainspring_api::{Clock as _, SystemClock, Timestamp};
use mainspring_eventlog::{Level, LogError};

use crate::import::ImportWriter;
use crate::shared::Core;

/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_secs(3_600);

/// Looks until the store is closed. One of the hosts that live does it.
pub(crate) async fn sweep(core: &Weak<Core>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(core) = core.upgrade() else { return };
        if core.progress.is_over() {
            return;
        }
        if core.hosts.get().is_none_or(|hosts| !hosts.is_first()) {
            continue;
        }
        if let Err(error) = remove_staged(&core).await {
            tracing::warn!(%error, "records that imports left behind are not removed");
        }
    }
}

/// Removes what was not gone on with for as long as it is kept.
pub(crate) async fn remove_staged(core: &Arc<Core>) -> Result<(), LogError> {
    core.all_up_to_date(Level::Committed).await?;
    let age = i64::try_from(core.config.staged_max.as_nanos()).unwrap_or(i64::MAX);
    let before = Timestamp::from_unix_nanos(SystemClock.now().unix_nanos().saturating_sub(age));
    for partition in 0..core.genesis.partitions {
        for store in core.replica(partition).staged_before(before).await? {
            let writer = ImportWriter::of_partition(Arc::clone(core), partition);
            writer.unstage(partition, &store).await?;
        }
    }
    Ok(())
}
