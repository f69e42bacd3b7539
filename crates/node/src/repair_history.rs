//! `system.repair_history`: the ranges whose replicas repairs have made equal, in the last thirty days.
//!
//! A local table under ScyllaDB's name and with its columns: each node keeps what it took part in, through the usual storage, so a restart keeps it. At a start shards read from it up
//! to when their ranges are repaired. A row that cannot be written is left out with a line in the log: after a restart the range counts as repaired
//! longer ago, and tombstones are kept for longer.

use std::rc::Rc;

use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use query::{Engine, Outcome, Params, ValueRows};
use replica::{RepairedRange, TokenRange};
use runtime::ShardId;
use schema::{Table, TableId};
use system_tables::{Builder, Definition, Options};
use types::Token;
use types::token::token_of;
use uuid::Uuid;

/// How long a repair is remembered, in seconds.
const SECONDS_KEPT: i32 = 30 * 24 * 60 * 60;
const NAME: &str = "repair_history";

static DEFINITION: Definition = Definition {
    keyspace: "system",
    cql: "repair_history (table_uuid uuid, repair_time timestamp, repair_uuid uuid, range_start bigint, range_end bigint, keyspace_name text, \
     table_name text, PRIMARY KEY (table_uuid, repair_time, repair_uuid, range_start, range_end))",
    options: Options {
        default_time_to_live: SECONDS_KEPT,
        ..Options::NO_GRACE
    },
};

const READ: &str = "SELECT table_uuid, repair_time, range_start, range_end FROM system.repair_history";

pub(crate) fn register(tables: &mut Builder) {
    tables.local_table(&DEFINITION);
}

/// Remembers the ranges of this shard that are equal from here on.
pub(crate) fn keep(engine: &Rc<Engine>) {
    let weak = Rc::downgrade(engine);
    repair::on_equal(Box::new(move |equal| {
        if let Some(engine) = weak.upgrade() {
            drop(runtime::spawn(remember(engine, equal)));
        }
    }));
}

async fn remember(engine: Rc<Engine>, equal: RepairedRange) {
    let schema = engine.schema();
    let (Some(history), Some(of)) = (
        schema.table("system", NAME).cloned(),
        schema.table_by_id(equal.table).cloned(),
    ) else {
        return;
    };
    let id = Uuid::from_u64_pair(runtime::random_u64(), runtime::random_u64());
    let packed = pack(&history, &of, id, &equal);
    let token = token_of(equal.table.0.as_bytes());
    let shard = ShardId(engine.owner(history.id, token));
    let written = runtime::submit_to(shard, move || {
        let Some(engine) = runtime::local::<Engine>() else {
            return Err("the shard that keeps it has not started yet".to_owned());
        };
        let Some(store) = engine.shard.store(history.id) else {
            return Err("this node does not have the table".to_owned());
        };
        let mutation = Mutation::new(&packed).expect("it was packed just now");
        let written = engine.shard.write(&store, token, &mutation);
        written.map_err(|e| e.to_string())?;
        engine.shard.commit().map_err(|e| e.to_string()).map(drop)
    });
    if let Err(e) = written.await {
        log::warn!("a repair of {}.{} is not in system.{NAME}: {e}", of.keyspace, of.name);
    }
}

/// The row of a repaired range, as a mutation.
fn pack(history: &Table, of: &Table, id: Uuid, equal: &RepairedRange) -> Vec<u8> {
    let now_us = runtime::wall_clock_us();
    let ttl = SECONDS_KEPT.unsigned_abs();
    let now = u32::try_from(now_us / 1_000_000).unwrap_or(0);
    let (timestamp, expiry) = (now_us, now.saturating_add(ttl));
    let mut clustering = Vec::new();
    for part in [
        &(i64::from(equal.until) * 1_000).to_be_bytes()[..],
        id.as_bytes(),
        &equal.range.after.0.to_be_bytes(),
        &equal.range.to.0.to_be_bytes(),
    ] {
        schema::push_component(&mut clustering, part);
    }
    let mut cells: Vec<(usize, &[u8])> = [("keyspace_name", &of.keyspace), ("table_name", &of.name)]
        .into_iter()
        .filter_map(|(name, value)| {
            let column = history.columns.iter().find(|column| column.name == name)?;
            Some((usize::from(column.id.0), value.as_bytes()))
        })
        .collect();
    cells.sort_unstable();
    let mut packed = Vec::new();
    let mut builder = MutationBuilder::begin(&mut packed, history.id, equal.table.0.as_bytes());
    builder.row(&clustering, |out| {
        let shared = Shared { timestamp, ttl, expiry };
        let marker = Liveness { timestamp, ttl, expiry };
        let columns = history.layout.len();
        let layout = &history.layout;
        let mut row = RowBuilder::begin(out, layout, shared, Some(marker), Tombstone::NONE, false, columns);
        for (id, value) in &cells {
            row.value(*id, value);
        }
    });
    packed
}

/// Has every shard of this node know what an earlier run did. To be called once, when all shards serve.
pub(crate) async fn recall(engine: Rc<Engine>) {
    match read(&engine).await {
        Ok(ranges) => {
            for shard in 0..runtime::shard_count() {
                let ranges = ranges.clone();
                runtime::submit_to(ShardId(shard), move || {
                    let shard = &Engine::local().shard;
                    ranges.iter().for_each(|equal| shard.note_repaired(equal));
                })
                .await;
            }
        }
        Err(e) => log::warn!("system.{NAME} cannot be read: {e}; all ranges count as never repaired"),
    }
}

async fn read(engine: &Rc<Engine>) -> Result<Vec<RepairedRange>, String> {
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
    Ok(page.sink.rows.iter().filter_map(|row| range_of(row)).collect())
}

fn range_of(row: &[Option<Vec<u8>>]) -> Option<RepairedRange> {
    let [table, time, after, to] = row else { return None };
    let number = |value: &Option<Vec<u8>>| Some(i64::from_be_bytes(value.as_deref()?.try_into().ok()?));
    Some(RepairedRange {
        table: TableId(Uuid::from_slice(table.as_deref()?).ok()?),
        range: TokenRange {
            after: Token(number(after)?),
            to: Token(number(to)?),
        },
        until: u32::try_from(number(time)? / 1_000).ok()?,
    })
}
