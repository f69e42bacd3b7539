//! What operators switch in a node, look up in it, and have counted for a while.

use std::time::Duration;

use serde_json::{Value, json};
use tasks::{Module, State, Status};

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::control::{Client, PastCompaction, REQUESTS_POOL, Sampling, Top, pool_name};
use crate::operator::total;

/// How long partitions may be counted.
const SAMPLING_MAX: Duration = Duration::from_hours(1);
/// Partitions that each shard keeps while it counts, unless the request says otherwise.
const SAMPLED_KEYS: usize = 256;
const SAMPLED_KEYS_MAX: usize = 4096;
/// Partitions that are listed, unless the request says otherwise.
const TOP_PARTITIONS: usize = 10;

pub(super) const ROUTES: &[Route] = &[
    Route::post(
        "/storage_service/drain",
        "Stop serving, flush everything, and stay until the process is stopped",
        Later(|c| Box::pin(async move { c.operator.drain().await.map(|()| Value::Null).map_err(failed) })),
    ),
    Route::post(
        "/storage_service/native_transport",
        "Listen for CQL clients again",
        Later(|c| Box::pin(native_transport(c, true))),
    ),
    Route::delete(
        "/storage_service/native_transport",
        "Close the connections of CQL clients and accept no new ones",
        Later(|c| Box::pin(native_transport(c, false))),
    ),
    Route::get(
        "/storage_service/trace_probability",
        "Which part of the requests is traced without their clients asking for it, 0 to 1",
        Now(|c| Ok(json!(c.operator.trace_probability()))),
    ),
    Route::post(
        "/storage_service/trace_probability",
        "Set which part of the requests is traced without their clients asking for it",
        Now(set_trace_probability),
    )
    .takes(&[("probability", "0 to 1")]),
    Route::get(
        "/gossiper/seeds",
        "Addresses that the node asks for its cluster when it starts, its own left out",
        Now(|c| Ok(json!(c.operator.seeds()))),
    ),
    Route::post(
        "/storage_service/auto_compaction/{keyspace}",
        "Enable automatic compaction of tables",
        Later(|c| Box::pin(auto_compaction(c, true))),
    )
    .takes(&[("cf", "tables of the keyspace, separated by commas; all without it")]),
    Route::delete(
        "/storage_service/auto_compaction/{keyspace}",
        "Disable automatic compaction of tables",
        Later(|c| Box::pin(auto_compaction(c, false))),
    )
    .takes(&[("cf", "tables of the keyspace, separated by commas; all without it")]),
    Route::get(
        "/column_family/autocompaction/{name}",
        "Whether the table keyspace:table has automatic compaction",
        Later(|c| Box::pin(is_auto_compacted(c))),
    ),
    Route::get(
        "/column_family/sstables/by_key/{name}",
        "Data files of this node that have a partition of the table keyspace:table",
        Later(|c| Box::pin(sstables_of(c))),
    )
    .takes(&[(
        "key",
        "the partition key; values of several columns are separated by colons",
    )]),
    Route::get(
        "/column_family/toppartitions/{name}",
        "Partitions of the table keyspace:table that are read and written most, counted for a time",
        Later(|c| Box::pin(top_partitions(c))),
    )
    .takes(&[
        ("duration", "milliseconds"),
        ("list_size", "how many partitions the answer lists; 10 without it"),
        ("capacity", "how many partitions each shard keeps; 256 without it"),
    ]),
    Route::get(
        "/compaction_manager/compactions",
        "Compactions that run",
        Now(compactions),
    ),
    Route::get(
        "/compaction_manager/metrics/pending_tasks_by_table",
        "Compactions that wait for a worker, by table",
        Now(pending_compactions),
    ),
    Route::get(
        "/compaction_manager/compaction_history",
        "Compactions that ended well in the last seven days",
        Later(|c| Box::pin(compaction_history(c))),
    ),
    Route::get("/ceto/clients", "Connections of CQL clients", Now(clients)),
    Route::get(
        "/ceto/thread_pools",
        "Classes of work: how much of it runs, waits and has ended",
        Later(|c| Box::pin(thread_pools(c))),
    ),
];

async fn native_transport(call: &Call, is_enabled: bool) -> Answer {
    let set = call.operator.set_native_transport(is_enabled).await;
    set.map(|()| Value::Null).map_err(|reason| (409, reason))
}

fn set_trace_probability(call: &Call) -> Answer {
    let given = call.parameter("probability").unwrap_or("");
    let probability = given.parse::<f64>().ok();
    if !probability.is_some_and(|probability| call.operator.set_trace_probability(probability)) {
        return Err((
            400,
            format!("parameter probability: expected a number from 0 to 1, got '{given}'"),
        ));
    }
    Ok(Value::Null)
}

async fn auto_compaction(call: &Call, is_enabled: bool) -> Answer {
    call.operator.set_auto_compaction(call.selection()?, is_enabled).await;
    Ok(Value::Null)
}

/// The table that the path names as `keyspace:table`, and which is stored.
fn table(call: &Call) -> Result<(String, String), (u16, String)> {
    let name = call.part();
    let unknown = || {
        (
            400,
            format!("Column family '{name}' not found: expected keyspace:table"),
        )
    };
    let (keyspace, table) = name.split_once(':').ok_or_else(unknown)?;
    let known = call.keyspace_named(keyspace)?;
    if !known.tables.iter().any(|known| known == table) {
        return Err(unknown());
    }
    Ok((keyspace.to_owned(), table.to_owned()))
}

async fn is_auto_compacted(call: &Call) -> Answer {
    let (keyspace, table) = table(call)?;
    let tables = call.operator.tables().await;
    let found = tables.iter().find(|t| (&t.keyspace, &t.name) == (&keyspace, &table));
    Ok(json!(found.is_some_and(|table| !table.is_auto_compaction_off)))
}

async fn sstables_of(call: &Call) -> Answer {
    let (keyspace, table) = table(call)?;
    let key = call.parameter("key").unwrap_or("").to_owned();
    let found = call.operator.sstables_of(keyspace, table, key).await;
    found.map(|paths| json!(paths)).map_err(|reason| (400, reason))
}

/// A number of the query.
fn number(call: &Call, name: &str, default: u64, max: u64) -> Result<u64, (u16, String)> {
    let Some(given) = call.parameter(name) else {
        return Ok(default);
    };
    let number = given.parse().ok().filter(|number| (1..=max).contains(number));
    number.ok_or_else(|| {
        (
            400,
            format!("parameter {name}: expected a number from 1 to {max}, got '{given}'"),
        )
    })
}

async fn top_partitions(call: &Call) -> Answer {
    let (keyspace, table) = table(call)?;
    let small = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    let duration_max = u64::try_from(SAMPLING_MAX.as_millis()).unwrap_or(u64::MAX);
    let capacity = number(call, "capacity", SAMPLED_KEYS as u64, SAMPLED_KEYS_MAX as u64)?;
    let list_size = number(call, "list_size", TOP_PARTITIONS as u64, SAMPLED_KEYS_MAX as u64)?;
    if call.parameter("duration").is_none() {
        return Err((400, "parameter duration: expected milliseconds".to_owned()));
    }
    let sampling = Sampling {
        duration: Duration::from_millis(number(call, "duration", 0, duration_max)?),
        capacity: small(capacity),
    };
    let top = call.operator.top_partitions(keyspace, table, sampling).await;
    let top = top.map_err(|reason| (409, reason))?;
    let told = |top: &Top| -> Value {
        let partitions = top.partitions.iter().take(small(list_size));
        partitions
            .map(|(key, count, error)| json!({"partition": key, "count": count, "error": error}))
            .collect()
    };
    Ok(json!({
        "read": told(&top.reads),
        "read_cardinality": top.reads.distinct,
        "write": told(&top.writes),
        "write_cardinality": top.writes.distinct,
        "capacity": capacity,
    }))
}

/// The compactions of single tablets, in a state.
fn of_tablets(call: &Call, state: State) -> Vec<Status> {
    let mut listed = call.operator.tasks().list(Module::Compaction, true);
    listed.retain(|status| status.state == state && status.scope == "tablet");
    listed
}

fn compactions(call: &Call) -> Answer {
    let told = of_tablets(call, State::Running).into_iter().map(|status| {
        json!({
            "id": status.id.to_string(),
            "task_type": status.kind.name.to_uppercase(),
            "ks": status.keyspace,
            "cf": status.table,
            "shard": status.shard,
            "completed": status.completed,
            "total": status.total,
            "unit": status.kind.units,
        })
    });
    Ok(told.collect())
}

fn pending_compactions(call: &Call) -> Answer {
    let mut counts: std::collections::BTreeMap<(String, String), u64> = std::collections::BTreeMap::new();
    for status in of_tablets(call, State::Created) {
        *counts.entry((status.keyspace, status.table)).or_default() += 1;
    }
    let told = counts.into_iter();
    Ok(told
        .map(|((keyspace, table), count)| json!({"ks": keyspace, "cf": table, "task": count}))
        .collect())
}

async fn compaction_history(call: &Call) -> Answer {
    let mut history = call.operator.compaction_history().await.map_err(failed)?;
    history.sort_by_key(|past| std::cmp::Reverse((past.ended_ms, past.id)));
    let told = |past: &PastCompaction| {
        json!({
            "id": past.id.to_string(),
            "ks": past.keyspace,
            "cf": past.table,
            "compacted_at": past.ended_ms,
            "bytes_in": past.bytes_in,
            "bytes_out": past.bytes_out,
        })
    };
    Ok(history.iter().map(told).collect())
}

fn clients(call: &Call) -> Answer {
    let told = |client: &Client| {
        json!({
            "address": client.address.ip().to_string(),
            "port": client.address.port(),
            "shard": client.shard,
            "user": client.user,
            "stage": client.stage,
            "protocol_version": client.protocol_version,
            "driver_name": client.driver_name,
            "driver_version": client.driver_version,
            "options": client.options,
            "requests": client.requests,
            "ssl_protocol": client.tls.as_ref().map(|(protocol, _)| protocol),
            "ssl_cipher": client.tls.as_ref().map(|(_, cipher)| cipher),
        })
    };
    Ok(call.operator.clients().iter().map(told).collect())
}

/// Pools by the names that Cassandra's tools know, where the work is the same.
async fn thread_pools(call: &Call) -> Answer {
    let metrics = call.operator.metrics().await;
    let mut pools: Vec<Value> = call
        .operator
        .tasks()
        .classes()
        .iter()
        .map(|class| {
            json!({
                "name": pool_name(class.class),
                "active": class.running,
                "active_limit": class.workers.iter().map(|workers| u64::from(*workers)).sum::<u64>(),
                "pending": class.waiting,
                "completed": class.counts.done + class.counts.failed + class.counts.aborted,
            })
        })
        .collect();
    pools.push(json!({
        "name": REQUESTS_POOL,
        "active": Value::Null,
        "active_limit": Value::Null,
        "pending": Value::Null,
        "completed": total(&metrics, "frames_total"),
    }));
    Ok(json!({"pools": pools, "timed_out_calls": total(&metrics, "rpc_timeouts_total")}))
}
