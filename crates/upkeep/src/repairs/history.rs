//! `system.repair_history`: the ranges whose replicas repairs have made equal, in the last thirty days.
//!
//! A local table under ScyllaDB's name and with its columns, and `incremental_mode`: how the range was repaired, by the
//! names of ScyllaDB's parameter. Each node keeps what it took part in, through the usual storage, so a restart keeps
//! it. At a start shards read from it up to when their ranges are repaired. A row that cannot be written is left out
//! with a line in the log: after a restart the range counts as repaired longer ago, and tombstones are kept for longer.

use std::rc::Rc;

use query::Engine;
use repair::IncrementalMode;
use replica::{RepairedRange, TokenRange};
use runtime::ShardId;
use schema::TableId;
use system_tables::{Builder, Definition, Options};
use types::Token;
use uuid::Uuid;

use crate::local_rows::{self, LocalRow};

/// How long a repair is remembered, in seconds.
const SECONDS_KEPT: i32 = 30 * 24 * 60 * 60;
const NAME: &str = "repair_history";

static DEFINITION: Definition = Definition {
    keyspace: "system",
    cql: "repair_history (table_uuid uuid, repair_time timestamp, repair_uuid uuid, range_start bigint, range_end bigint, keyspace_name text, \
     table_name text, incremental_mode text, PRIMARY KEY (table_uuid, repair_time, repair_uuid, range_start, range_end))",
    options: Options {
        default_time_to_live: SECONDS_KEPT,
        ..Options::NO_GRACE
    },
};

const READ: &str = "SELECT table_uuid, repair_time, range_start, range_end FROM system.repair_history";

/// Registers the table.
pub fn register(tables: &mut Builder) {
    tables.local_table(&DEFINITION);
}

/// Remembers the ranges of this shard that are equal from here on.
pub fn keep(engine: &Rc<Engine>) {
    let weak = Rc::downgrade(engine);
    repair::on_equal(Box::new(move |equal, mode| {
        if let Some(engine) = weak.upgrade() {
            drop(runtime::spawn(remember(engine, equal, mode)));
        }
    }));
}

async fn remember(engine: Rc<Engine>, equal: RepairedRange, mode: IncrementalMode) {
    let schema = engine.schema();
    let (Some(history), Some(of)) = (
        schema.table("system", NAME).cloned(),
        schema.table_by_id(equal.table).cloned(),
    ) else {
        return;
    };
    let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
    let mut clustering = Vec::new();
    for part in [
        &(i64::from(equal.until) * 1_000).to_be_bytes()[..],
        id.as_bytes(),
        &equal.range.after.0.to_be_bytes(),
        &equal.range.to.0.to_be_bytes(),
    ] {
        schema::push_component(&mut clustering, part);
    }
    let values = vec![
        ("keyspace_name", of.keyspace.as_bytes().to_vec()),
        ("table_name", of.name.as_bytes().to_vec()),
        ("incremental_mode", mode.name().as_bytes().to_vec()),
    ];
    let row = LocalRow {
        table: history,
        key: equal.table.0.as_bytes().to_vec(),
        clustering,
        values,
        now_us: runtime::wall_clock_us(),
        ttl: SECONDS_KEPT.unsigned_abs(),
    };
    if let Err(e) = row.write(&engine).await {
        log::warn!("a repair of {}.{} is not in system.{NAME}: {e}", of.keyspace, of.name);
    }
}

/// Has every shard of this node know what an earlier run did. To be called once, when all shards serve.
pub async fn recall(engine: Rc<Engine>) {
    match read(&engine).await {
        Ok(ranges) => {
            for shard in 0..runtime::shard_count() {
                let ranges = ranges.clone();
                runtime::submit_to(ShardId(shard), move || {
                    let engine = Engine::local();
                    let shard = &engine.coordinator.context.shard;
                    ranges.iter().for_each(|equal| shard.note_repaired(equal));
                })
                .await;
            }
        }
        Err(e) => log::warn!("system.{NAME} cannot be read: {e}; all ranges count as never repaired"),
    }
}

async fn read(engine: &Rc<Engine>) -> Result<Vec<RepairedRange>, String> {
    let rows = local_rows::read(engine, READ).await?;
    Ok(rows.iter().filter_map(|row| range_of(row)).collect())
}

fn range_of(row: &[Option<Vec<u8>>]) -> Option<RepairedRange> {
    let [table, time, after, to] = row else { return None };
    let number = |value: &Option<Vec<u8>>| Some(i64::from_be_bytes(value.as_deref()?.try_into().ok()?));
    let range = TokenRange {
        after: Token(number(after)?),
        to: Token(number(to)?),
    };
    let table = TableId(Uuid::from_slice(table.as_deref()?).ok()?);
    let until = u32::try_from(number(time)? / 1_000).ok()?;
    Some(RepairedRange::new(table, range, until))
}
