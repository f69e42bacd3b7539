//! `system.compaction_history`: the compactions of the last seven days that ended well.
//!
//! A local table: each node stores its own, through the usual storage, so a restart keeps it. Each shard writes a row when a compaction ends well, to
//! the shard that has the row's token. A row that cannot be written is left out with a line in the log: no compaction waits for its history.

use std::rc::Rc;

use admin::control::PastCompaction;
use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use query::{Engine, Outcome, Params, ValueRows};
use replica::Compacted;
use runtime::ShardId;
use schema::Table;
use system_tables::{Builder, Definition, Options, table_id};
use types::timeuuid;
use types::token::token_of;
use uuid::Uuid;

/// How long a compaction is remembered, in seconds.
const SECONDS_KEPT: i32 = 604_800;
const NAME: &str = "compaction_history";

static DEFINITION: Definition = Definition {
    keyspace: "system",
    cql: "compaction_history (id timeuuid PRIMARY KEY, bytes_in bigint, bytes_out bigint, columnfamily_name text, \
     compacted_at timestamp, keyspace_name text, rows_merged map<int, bigint>)",
    options: Options {
        default_time_to_live: SECONDS_KEPT,
        ..Options::NO_GRACE
    },
};

const READ: &str =
    "SELECT id, keyspace_name, columnfamily_name, compacted_at, bytes_in, bytes_out FROM system.compaction_history";

pub(crate) fn register(tables: &mut Builder) {
    tables.local_table(&DEFINITION);
}

/// Remembers the compactions of this shard from here on.
pub(crate) fn keep(engine: &Rc<Engine>) {
    let weak = Rc::downgrade(engine);
    engine.shard.on_compaction(Box::new(move |compacted| {
        // Its own compactions would be told of for ever.
        if compacted.table.id == table_id("system", NAME) {
            return;
        }
        if let Some(engine) = weak.upgrade() {
            drop(runtime::spawn(remember(engine, compacted)));
        }
    }));
}

async fn remember(engine: Rc<Engine>, compacted: Compacted) {
    let Some(table) = engine.schema().table("system", NAME).cloned() else {
        return;
    };
    let now_us = runtime::wall_clock_us();
    let random = runtime::random_u64().to_be_bytes();
    let [sequence @ .., a, b, c, d, e, f] = random;
    let id = timeuuid::from_parts(now_us * 10, u16::from_be_bytes(sequence), [a | 1, b, c, d, e, f]);
    let packed = pack(&table, id, now_us, &compacted);
    let token = token_of(id.as_bytes());
    let shard = ShardId(engine.owner(table.id, token));
    let written = runtime::submit_to(shard, move || {
        // Shards begin one after the other, and a compaction may end before the last has begun.
        let Some(engine) = runtime::local::<Engine>() else {
            return Err("the shard that keeps it has not started yet".to_owned());
        };
        let Some(store) = engine.shard.store(table.id) else {
            return Err("this node does not have the table".to_owned());
        };
        let mutation = Mutation::new(&packed).expect("it was packed just now");
        let written = engine.shard.write(&store, token, &mutation);
        written.map_err(|e| e.to_string())?;
        engine.shard.commit().map_err(|e| e.to_string()).map(drop)
    });
    if let Err(e) = written.await {
        let of = &compacted.table;
        log::warn!(
            "a compaction of {}.{} is not in system.{NAME}: {e}",
            of.keyspace,
            of.name
        );
    }
}

/// The row of a compaction, as a mutation. How many rows were merged from how many sstables nobody counts.
fn pack(table: &Table, id: Uuid, now_us: i64, compacted: &Compacted) -> Vec<u8> {
    let ttl = SECONDS_KEPT.unsigned_abs();
    let now = u32::try_from(now_us / 1_000_000).unwrap_or(0);
    let (timestamp, expiry) = (now_us, now.saturating_add(ttl));
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX).to_be_bytes().to_vec();
    let values = [
        ("bytes_in", number(compacted.bytes_in)),
        ("bytes_out", number(compacted.bytes_out)),
        ("columnfamily_name", compacted.table.name.as_bytes().to_vec()),
        ("compacted_at", (now_us / 1000).to_be_bytes().to_vec()),
        ("keyspace_name", compacted.table.keyspace.as_bytes().to_vec()),
    ];
    let mut cells: Vec<(usize, Vec<u8>)> = values
        .into_iter()
        .filter_map(|(name, value)| {
            let column = table.columns.iter().find(|column| column.name == name)?;
            Some((usize::from(column.id.0), value))
        })
        .collect();
    cells.sort_unstable();
    let mut packed = Vec::new();
    let mut builder = MutationBuilder::begin(&mut packed, table.id, id.as_bytes());
    builder.row(&[], |out| {
        let shared = Shared { timestamp, ttl, expiry };
        let marker = Liveness { timestamp, ttl, expiry };
        let columns = table.layout.len();
        let mut row = RowBuilder::begin(
            out,
            &table.layout,
            shared,
            Some(marker),
            Tombstone::NONE,
            false,
            columns,
        );
        for (id, value) in &cells {
            row.value(*id, value);
        }
    });
    packed
}

/// The compactions that are remembered.
pub(crate) async fn read(engine: &Rc<Engine>) -> Result<Vec<PastCompaction>, String> {
    let prepared = engine.prepare(READ, None).map_err(|e| e.message())?;
    let run = query::Execution {
        values: Vec::new(),
        now_us: runtime::wall_clock_us(),
        random: runtime::random_u64(),
    };
    let params = Params::default();
    let read = engine.execute::<ValueRows>(&prepared.statement, &run, &params);
    let Outcome::Rows(page) = read.await.map_err(|e| e.message())? else {
        return Err("a SELECT gave no rows".to_owned());
    };
    Ok(page.sink.rows.iter().filter_map(|row| past(row)).collect())
}

fn past(row: &[Option<Vec<u8>>]) -> Option<PastCompaction> {
    let [id, keyspace, table, ended, bytes_in, bytes_out] = row else {
        return None;
    };
    let text = |value: &Option<Vec<u8>>| String::from_utf8(value.clone()?).ok();
    let number = |value: &Option<Vec<u8>>| Some(i64::from_be_bytes(value.as_deref()?.try_into().ok()?));
    Some(PastCompaction {
        id: Uuid::from_slice(id.as_deref()?).ok()?,
        keyspace: text(keyspace)?,
        table: text(table)?,
        ended_ms: number(ended)?,
        bytes_in: number(bytes_in)?.unsigned_abs(),
        bytes_out: number(bytes_out)?.unsigned_abs(),
    })
}
