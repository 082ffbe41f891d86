//! Bytes that the log takes: of a message, an append, a record, a mint and a
//! creation.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use mainspring_api::Fence;
use mainspring_bench::run::workload::{EVENT_BYTES, Events, Writer, fresh_id};
use mainspring_bench::{Costs, Line, Report, Unit};
use mainspring_eventlog::{EventLog as _, Holder, MemoryEngine};
use mainspring_store_kafka::KafkaStore;

use crate::Plan;
use crate::host::{self, Place};
use crate::rows::append::FRAME_BYTES;

const ROW: &str = "bytes";

/// Records of the longer append.
const MORE: u64 = 10;

pub(crate) async fn run(
    _plan: &Plan,
    place: &Place,
    report: &mut Report,
    costs: &mut Costs,
) -> Result<()> {
    let config = place.fresh(1).await?;
    let store = KafkaStore::open(config.clone(), Arc::new(MemoryEngine::default())).await?;
    let events = Events::of_bytes(EVENT_BYTES)?;
    // A uid as a host makes them.
    let mut writer = Writer::create(&store, "018f6a2e7c1b7d3e9a4f5b6c7d8e9f00", &events).await?;
    // Its first event starts an execution, and is of another size.
    writer.append_one(&store).await?;
    writer.append_one(&store).await?;
    let batch = writer.link(writer.head.seq.get() + MORE)?;
    writer.append(&store, &batch).await?;
    let holder = Holder { id: "a1".repeat(16), name: "bench.example/4711".to_owned() };
    store.mint(&writer.uid, fresh_id(), Fence::NONE, holder).await?;
    // One message each, for each waited for the one before; the genesis is the first.
    let sizes = host::sizes(&config, 0, 1)?;
    let [create, _, one, more, mint] =
        <[usize; 5]>::try_from(sizes).ok().context("other messages than were written")?;
    let entry = |bytes: usize| (bytes - FRAME_BYTES) as f64;
    let each = (entry(more) - entry(one)) / (MORE - 1) as f64;
    costs.message_bytes = FRAME_BYTES as f64;
    costs.append_bytes = entry(one) - each;
    costs.record_bytes = each - EVENT_BYTES as f64;
    costs.mint_bytes = entry(mint);
    costs.create_bytes = entry(create);
    for (what, bytes) in [
        ("a message, before its entries", costs.message_bytes),
        ("an append, beyond its records", costs.append_bytes),
        ("a record, beyond its canonical bytes", costs.record_bytes),
        ("a mint", costs.mint_bytes),
        ("a creation", costs.create_bytes),
    ] {
        report.push(Line::alone(ROW, what, Unit::Bytes, &[bytes]));
    }
    Ok(())
}
