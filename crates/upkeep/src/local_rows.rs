//! Rows that the node keeps of its own work in local tables, such as `system.compaction_history`: each is written
//! through the usual storage, on the shard that has its token, and expires.

use std::rc::Rc;
use std::sync::Arc;

use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use query::{Engine, Outcome, Request, ValueRows};
use runtime::ShardId;
use schema::Table;
use types::token::token_of;

/// A row of a local table.
pub struct LocalRow {
    /// The table.
    pub table: Arc<Table>,
    /// The serialised partition key.
    pub key: Vec<u8>,
    /// The serialised clustering key; empty where the table has none.
    pub clustering: Vec<u8>,
    /// By the names of their columns; those that the table does not have are left out.
    pub values: Vec<(&'static str, Vec<u8>)>,
    /// When it is written, microseconds.
    pub now_us: i64,
    /// Seconds until it expires.
    pub ttl: u32,
}

impl LocalRow {
    /// Writes it, as durably as the log is set to.
    ///
    /// # Errors
    /// A sentence: the shard that has its token has not started yet, or does not take it.
    pub async fn write(self, engine: &Engine) -> Result<(), String> {
        let (packed, token, table) = (self.pack(), token_of(&self.key), self.table.id);
        let shard = ShardId(engine.coordinator.own.owner(table, token));
        let written = runtime::submit_to(shard, move || {
            // Shards begin one after the other, and there may be something to remember before the last has begun.
            let Some(engine) = runtime::local::<Engine>() else {
                return Err("the shard that keeps it has not started yet".to_owned());
            };
            let Some(store) = engine.coordinator.context.shard.store(table) else {
                return Err("this node does not have the table".to_owned());
            };
            let mutation = Mutation::new(&packed).expect("it was packed just now");
            let written = engine.coordinator.context.shard.write(&store, token, &mutation);
            let logged = written.map_err(|e| e.to_string())?;
            engine
                .coordinator
                .context
                .shard
                .commit(&logged)
                .map_err(|e| e.to_string())
                .map(drop)
        });
        written.await
    }

    fn pack(&self) -> Vec<u8> {
        let now = u32::try_from(self.now_us / 1_000_000).unwrap_or(0);
        let (timestamp, ttl, expiry) = (self.now_us, self.ttl, now.saturating_add(self.ttl));
        let of_column = |(name, value): &(&str, Vec<u8>)| {
            let column = self.table.columns.iter().find(|column| column.name == *name)?;
            Some((usize::from(column.id.0), value.clone()))
        };
        let mut cells: Vec<(usize, Vec<u8>)> = self.values.iter().filter_map(of_column).collect();
        cells.sort_unstable();
        let mut packed = Vec::new();
        let mut builder = MutationBuilder::begin(&mut packed, self.table.id, &self.key);
        builder.row(&self.clustering, |out| {
            let shared = Shared { timestamp, ttl, expiry };
            let marker = Liveness { timestamp, ttl, expiry };
            let layout = &self.table.layout;
            let mut row = RowBuilder::begin(out, layout, shared, Some(marker), Tombstone::NONE, false, layout.len());
            for (id, value) in &cells {
                row.value(*id, value);
            }
        });
        packed
    }
}

/// The rows of a SELECT without values.
///
/// # Errors
/// A sentence.
pub async fn read(engine: &Rc<Engine>, select: &str) -> Result<Vec<Vec<Option<Vec<u8>>>>, String> {
    let prepared = engine.prepare(select, None).map_err(|e| e.message())?;
    let run = query::Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        now_in_seconds: None,
        random: runtime::random_u64(),
    };
    let request = Request::default();
    let read = engine.execute::<ValueRows>(&prepared.statement, &run, &request);
    match read.await.map_err(|e| e.message())? {
        Outcome::Rows(page) => Ok(page.sink.rows),
        _ => Err("a SELECT gave no rows".to_owned()),
    }
}
