//! What the stores stand beside: bare engines that commit the same rows.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use fjall::{KeyspaceCreateOptions, PersistMode};
use mainspring_eventlog::{Engine as _, Keep, MemoryEngine, Space};
use redb::{Durability, ReadableDatabase as _, TableDefinition};
use rusqlite::Connection;

/// One row that a store puts.
#[derive(Debug, Clone)]
pub struct Put {
    /// Where.
    pub space: Space,
    /// Under which key.
    pub key: Vec<u8>,
    /// What.
    pub value: Vec<u8>,
}

/// The rows of one transaction.
pub type Txn = Vec<Put>;

/// An engine without a store on top.
pub trait Bare: Send {
    /// Commits these transactions as one, durably where it is durable at all.
    fn commit(&mut self, txns: &[Txn]) -> Result<()>;

    /// Visits all records in key order; returns how many there are.
    fn scan(&self) -> Result<u64>;
}

/// The kinds of bare engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    /// A file that only grows: one write and one fdatasync for each commit.
    File,
    /// redb, one table for each space.
    Redb,
    /// fjall, one keyspace for each space; the batch itself is synchronous. Nothing is compressed.
    Fjall,
    /// SQLite, write-ahead log, synchronous = FULL.
    Sqlite,
    /// The engine in memory that the memory store stands on.
    Memory,
}

impl Peer {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::File, Self::Redb, Self::Fjall, Self::Sqlite, Self::Memory];

    /// Its name in the tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "write + fdatasync",
            Self::Redb => "bare redb",
            Self::Fjall => "bare fjall",
            Self::Sqlite => "SQLite",
            Self::Memory => "bare map",
        }
    }

    /// Makes an empty one in `dir`.
    pub fn open(self, dir: &Path) -> Result<Box<dyn Bare>> {
        Ok(match self {
            Self::File => Box::new(BareFile::create(&dir.join("bare.log"))?),
            Self::Redb => Box::new(BareRedb(
                redb::Builder::new().set_cache_size(64 << 20).create(dir.join("bare.redb"))?,
            )),
            Self::Fjall => Box::new(BareFjall::open(&dir.join("bare.fjall"))?),
            Self::Sqlite => Box::new(BareSqlite::open(&dir.join("bare.sqlite"))?),
            Self::Memory => Box::new(BareMemory::default()),
        })
    }
}

struct BareFile {
    file: File,
    buffer: Vec<u8>,
    records: u64,
}

impl BareFile {
    fn create(path: &Path) -> Result<Self> {
        Ok(Self { file: File::create_new(path)?, buffer: Vec::new(), records: 0 })
    }
}

impl Bare for BareFile {
    fn commit(&mut self, txns: &[Txn]) -> Result<()> {
        self.buffer.clear();
        for put in txns.iter().flatten() {
            self.buffer.extend_from_slice(&put.key);
            self.buffer.extend_from_slice(&put.value);
            self.records += u64::from(put.space == Space::Records);
        }
        self.file.write_all(&self.buffer)?;
        Ok(self.file.sync_data()?)
    }

    fn scan(&self) -> Result<u64> {
        Ok(self.records)
    }
}

struct BareRedb(redb::Database);

const fn table(space: Space) -> TableDefinition<'static, &'static [u8], &'static [u8]> {
    TableDefinition::new(space.name())
}

impl Bare for BareRedb {
    fn commit(&mut self, txns: &[Txn]) -> Result<()> {
        let mut txn = self.0.begin_write()?;
        txn.set_durability(Durability::Immediate)?;
        for space in Space::ALL {
            // A table is opened once for each transaction, and only if it is written.
            let mut puts = txns.iter().flatten().filter(|put| put.space == space).peekable();
            if puts.peek().is_some() {
                let mut table = txn.open_table(table(space))?;
                for put in puts {
                    table.insert(&*put.key, &*put.value)?;
                }
            }
        }
        Ok(txn.commit()?)
    }

    fn scan(&self) -> Result<u64> {
        let table = self.0.begin_read()?.open_table(table(Space::Records))?;
        let (mut count, mut bytes) = (0, 0);
        for entry in table.range::<&[u8]>(..)? {
            let (key, value) = entry?;
            bytes += key.value().len() + value.value().len();
            count += 1;
        }
        std::hint::black_box(bytes);
        Ok(count)
    }
}

struct BareFjall {
    database: fjall::Database,
    spaces: Vec<fjall::Keyspace>,
}

impl BareFjall {
    fn open(path: &Path) -> Result<Self> {
        let database = fjall::Database::builder(path).open()?;
        let spaces = Space::ALL
            .iter()
            .map(|space| database.keyspace(space.name(), KeyspaceCreateOptions::default))
            .collect::<Result<_, _>>()?;
        Ok(Self { database, spaces })
    }
}

impl Bare for BareFjall {
    fn commit(&mut self, txns: &[Txn]) -> Result<()> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncAll));
        for put in txns.iter().flatten() {
            batch.insert(&self.spaces[put.space as usize], &*put.key, &*put.value);
        }
        Ok(batch.commit()?)
    }

    fn scan(&self) -> Result<u64> {
        let (mut count, mut bytes) = (0, 0);
        for entry in self.spaces[Space::Records as usize].iter() {
            let (key, value) = entry.into_inner()?;
            bytes += key.len() + value.len();
            count += 1;
        }
        std::hint::black_box(bytes);
        Ok(count)
    }
}

struct BareSqlite(Connection);

impl BareSqlite {
    fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        let mode: String =
            connection.query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))?;
        anyhow::ensure!(mode == "wal", "SQLite's journal mode is {mode}");
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        for space in Space::ALL {
            let name = space.name();
            connection.execute_batch(&format!(
                "CREATE TABLE \"{name}\" (key BLOB PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
            ))?;
        }
        Ok(Self(connection))
    }
}

impl Bare for BareSqlite {
    fn commit(&mut self, txns: &[Txn]) -> Result<()> {
        let txn = self.0.transaction()?;
        for put in txns.iter().flatten() {
            let sql = match put.space {
                Space::Records => "INSERT OR REPLACE INTO records VALUES (?1, ?2)",
                Space::Rows => "INSERT OR REPLACE INTO rows VALUES (?1, ?2)",
                Space::Order => "INSERT OR REPLACE INTO \"order\" VALUES (?1, ?2)",
                other => anyhow::bail!("no bench writes to {}", other.name()),
            };
            txn.prepare_cached(sql)?.execute((&put.key, &put.value))?;
        }
        Ok(txn.commit()?)
    }

    fn scan(&self) -> Result<u64> {
        let mut select = self.0.prepare("SELECT key, value FROM records ORDER BY key")?;
        let mut rows = select.query([])?;
        let (mut count, mut bytes) = (0, 0);
        while let Some(row) = rows.next()? {
            bytes += row.get_ref(0)?.as_blob()?.len() + row.get_ref(1)?.as_blob()?.len();
            count += 1;
        }
        std::hint::black_box(bytes);
        Ok(count)
    }
}

#[derive(Default)]
struct BareMemory(MemoryEngine);

impl Bare for BareMemory {
    fn commit(&mut self, txns: &[Txn]) -> Result<()> {
        let put_all = self.0.write(&mut |kv| {
            for put in txns.iter().flatten() {
                kv.put(put.space, &put.key, &put.value)?;
            }
            Ok(Keep::Yes)
        });
        put_all.context("the map refused a write")
    }

    fn scan(&self) -> Result<u64> {
        let (mut count, mut bytes) = (0, 0);
        self.0.read(&mut |kv| {
            kv.scan(Space::Records, &[], &[0xff; 128], &mut |key, value| {
                bytes += key.len() + value.len();
                count += 1;
                std::ops::ControlFlow::Continue(())
            })
        })?;
        std::hint::black_box(bytes);
        Ok(count)
    }
}
