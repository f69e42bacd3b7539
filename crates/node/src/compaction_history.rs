//! `system.compaction_history`: the compactions of the last seven days that ended well.
//!
//! A local table: each node stores its own, through the usual storage, so a restart keeps it. Each shard writes a row
//! when a compaction ends well, to the shard that has the row's token. A row that cannot be written is left out with a
//! line in the log: no compaction waits for its history.

use std::rc::Rc;

use admin::control::PastCompaction;
use query::Engine;
use replica::Compacted;
use system_tables::{Builder, Definition, Options, table_id};
use types::timeuuid;
use upkeep::local_rows::{self, LocalRow};
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
    engine
        .coordinator
        .context
        .shard
        .on_compaction(Box::new(move |compacted| {
            // Compactions of this table are not recorded: each record would lead to further ones.
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
    let of = &compacted.table;
    let number = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX).to_be_bytes().to_vec();
    // How many rows were merged from how many sstables is not counted.
    let row = LocalRow {
        table,
        key: id.as_bytes().to_vec(),
        clustering: Vec::new(),
        values: vec![
            ("bytes_in", number(compacted.bytes_in)),
            ("bytes_out", number(compacted.bytes_out)),
            ("columnfamily_name", of.name.as_bytes().to_vec()),
            ("compacted_at", (now_us / 1000).to_be_bytes().to_vec()),
            ("keyspace_name", of.keyspace.as_bytes().to_vec()),
        ],
        now_us,
        ttl: SECONDS_KEPT.unsigned_abs(),
    };
    if let Err(e) = row.write(&engine).await {
        log::warn!(
            "a compaction of {}.{} is not in system.{NAME}: {e}",
            of.keyspace,
            of.name
        );
    }
}

/// The compactions that are remembered.
pub(crate) async fn read(engine: &Rc<Engine>) -> Result<Vec<PastCompaction>, String> {
    let rows = local_rows::read(engine, READ).await?;
    Ok(rows.iter().filter_map(|row| past(row)).collect())
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
