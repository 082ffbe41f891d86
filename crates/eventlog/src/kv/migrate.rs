//! The version of the stored form, and moving an older one to this one.

use std::ops::ControlFlow;

use mainspring_api::{SessionUid, StoreId};

use super::index::Indexed;
use super::row::KvRow;
use super::{SCHEMA_VERSION, engine_failed, keys};
use crate::engine::{Engine, EngineError, Keep, KvRead, KvWrite, Space};
use crate::error::LogError;

const SCHEMA: &[u8] = b"schema";
const STORE_ID: &[u8] = b"store_id";

/// The id and version of the store that an engine holds; `None` for an empty one.
pub(super) fn identity(engine: &impl Engine) -> Result<Option<(StoreId, u64)>, LogError> {
    let mut meta = (None, None);
    engine
        .read(&mut |kv| {
            meta = (kv.get(Space::Meta, SCHEMA)?, kv.get(Space::Meta, STORE_ID)?);
            Ok(())
        })
        .map_err(engine_failed)?;
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    let corrupt = |what: &str| LogError::Corrupt { what: what.to_owned() };
    let (Some(schema), id) = meta else {
        return Ok(None);
    };
    let found: u64 = text(schema)
        .and_then(|schema| schema.parse().ok())
        .filter(|found| *found > 0)
        .ok_or_else(|| corrupt("schema version"))?;
    if found > SCHEMA_VERSION {
        return Err(LogError::UnsupportedSchema { found, supported: SCHEMA_VERSION });
    }
    let id = id.and_then(text).and_then(|id| StoreId::new(&id).ok());
    id.map(|id| Some((id, found))).ok_or_else(|| corrupt("store id"))
}

pub(super) fn initialise(engine: &impl Engine, id: &StoreId) -> Result<StoreId, LogError> {
    engine
        .write(&mut |kv| {
            kv.put(Space::Meta, SCHEMA, SCHEMA_VERSION.to_string().as_bytes())?;
            kv.put(Space::Meta, STORE_ID, id.as_str().as_bytes())?;
            Ok(Keep::Yes)
        })
        .map_err(engine_failed)?;
    Ok(id.clone())
}

/// Moves a store of version `from` to this version, in one transaction and
/// after a copy of it was put aside.
pub(super) fn migrate(engine: &impl Engine, from: u64) -> Result<(), LogError> {
    let copy = engine.backup(&format!("schema-{from}")).map_err(engine_failed)?;
    tracing::warn!(from, to = SCHEMA_VERSION, ?copy, "migrating the store");
    engine
        .write(&mut |kv| {
            if from < 2 {
                index_children(kv)?;
            }
            if from < 3 {
                index_rows(kv)?;
            }
            kv.put(Space::Meta, SCHEMA, SCHEMA_VERSION.to_string().as_bytes())?;
            Ok(Keep::Yes)
        })
        .map_err(engine_failed)
}

/// Rows that are looked at between two writes.
const PAGE: usize = 1_024;

/// Version 2: the forks that show records of a session can be looked up.
fn index_children(kv: &mut dyn KvWrite) -> Result<(), EngineError> {
    each_row(kv, |kv, row| {
        row.segments.iter().try_for_each(|segment| {
            let key = keys::child(&segment.uid, &row.store);
            kv.put(Space::Children, &key, &segment.upto.to_be_bytes())
        })
    })
}

/// Version 3: sessions can be looked up by owner, and open and deleted ones.
fn index_rows(kv: &mut dyn KvWrite) -> Result<(), EngineError> {
    each_row(kv, |kv, row| Indexed::default().move_to(kv, &row.row, Indexed::of(&row.row)))
}

/// A damaged row is left as it is: it refuses when it is used.
fn each_row(
    kv: &mut dyn KvWrite,
    mut visit: impl FnMut(&mut dyn KvWrite, &KvRow) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let mut from = Vec::new();
    loop {
        let page = rows_from(kv, &from)?;
        let Some((last, _)) = page.last() else {
            return Ok(());
        };
        from = last.as_str().as_bytes().to_vec();
        from.push(0);
        for row in page.iter().filter_map(|(_, row)| row.as_ref()) {
            visit(kv, row)?;
        }
    }
}

type RowPage = Vec<(SessionUid, Option<KvRow>)>;

fn rows_from(kv: &dyn KvRead, from: &[u8]) -> Result<RowPage, EngineError> {
    let mut page = RowPage::new();
    kv.scan(Space::Rows, from, &[0xff], &mut |key, value| {
        let uid = std::str::from_utf8(key).ok().and_then(|uid| SessionUid::new(uid).ok());
        if let Some(uid) = uid {
            let row = KvRow::decode(&uid, value);
            page.push((uid, row.ok()));
        }
        if page.len() < PAGE { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    })?;
    Ok(page)
}
