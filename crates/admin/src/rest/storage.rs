//! Keyspaces, what is stored, and what an operator has done with it: flush, compaction, snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tasks::Class;

use super::Handler::{Later, Now};
use super::tasks::is_set;
use super::{Answer, Call, Route, failed};
use crate::operator::{Member, Snapshot, Table, Work};

pub(super) const ROUTES: &[Route] = &[
    Route::get("/storage_service/keyspaces", "Names of keyspaces", Now(keyspaces))
        .takes(&[("type", "all, user or non_local_strategy")]),
    Route::get(
        "/storage_service/load",
        "Bytes of the node's sstables",
        Later(|c| Box::pin(load(c))),
    ),
    Route::get(
        "/storage_service/load_map",
        "Bytes of the sstables of each member that answers",
        Later(|c| Box::pin(load_map(c))),
    ),
    Route::post(
        "/storage_service/keyspace_flush/{keyspace}",
        "Write memtables to sstables",
        Later(|c| Box::pin(flush(c))),
    )
    .takes(&[("cf", "tables of the keyspace, separated by commas; all without it")]),
    Route::post(
        "/storage_service/flush",
        "Write memtables to sstables",
        Later(|c| Box::pin(flush(c))),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
    ]),
    Route::post(
        "/storage_service/keyspace_compaction/{keyspace}",
        "Merge the sstables of each tablet into one",
        Later(|c| Box::pin(compact(c))),
    )
    .takes(&[
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("flush_memtables", "true: flush first"),
    ]),
    Route::post(
        "/storage_service/compact",
        "Merge the sstables of each tablet into one",
        Later(|c| Box::pin(compact(c))),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("flush_memtables", "true: flush first"),
    ]),
    Route::get(
        "/storage_service/snapshots",
        "Snapshots, their tables and sizes",
        Later(|c| Box::pin(snapshots(c))),
    ),
    Route::post(
        "/storage_service/snapshots",
        "Take a snapshot",
        Later(|c| Box::pin(take_snapshot(c))),
    )
    .takes(&[
        ("tag", "the snapshot's name"),
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        (
            "ttl",
            "how long it is kept, such as 30d or 12h; until it is cleared without it",
        ),
        ("sf", "true: leave out what is in memory alone"),
    ]),
    Route::delete(
        "/storage_service/snapshots",
        "Delete snapshots",
        Later(|c| Box::pin(clear_snapshots(c))),
    )
    .takes(&[
        ("tag", "the snapshot's name; all without it"),
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
    ]),
    Route::get(
        "/storage_service/snapshots/size/true",
        "Bytes that snapshots alone keep on the disk",
        Later(|c| Box::pin(snapshot_size(c))),
    ),
    Route::get(
        "/storage_service/quarantined",
        "Damaged sstables that were moved aside",
        Later(|c| Box::pin(quarantined(c))),
    ),
    Route::delete(
        "/storage_service/quarantined/{keyspace}",
        "Accept the loss of what a table's damaged sstables had",
        Later(|c| Box::pin(accept_quarantined(c))),
    )
    .takes(&[("cf", "the table")]),
    Route::get(
        "/storage_service/compaction_throughput",
        "Limit of what compactions write, in MiB per second; 0 for no limit",
        Now(throughput),
    ),
    Route::post(
        "/storage_service/compaction_throughput",
        "Limit what compactions write",
        Now(set_throughput),
    )
    .takes(&[("value", "MiB per second; 0 for no limit")]),
    Route::get(
        "/storage_service/stream_throughput",
        "Limit of what streams to and from other nodes move, in bytes per second; 0 for no limit",
        Now(stream_throughput),
    ),
    Route::post(
        "/storage_service/stream_throughput",
        "Limit what streams move",
        Now(set_stream_throughput),
    )
    .takes(&[("value", "bytes per second; 0 for no limit")]),
];

/// Names of keyspaces: all, or with `type` those of users or those with replicas elsewhere.
fn keyspaces(call: &Call) -> Answer {
    let kind = call.parameter("type").unwrap_or("all");
    if !["all", "user", "non_local_strategy"].contains(&kind) {
        return Err((
            400,
            format!("parameter type: expected all, user or non_local_strategy, got '{kind}'"),
        ));
    }
    let listed = call.operator.keyspaces().into_iter().filter(|keyspace| match kind {
        "user" => !keyspace.is_system,
        "non_local_strategy" => !keyspace.is_local,
        _ => true,
    });
    Ok(listed.map(|keyspace| json!(keyspace.name)).collect())
}

async fn bytes(call: &Call) -> u64 {
    call.operator.tables().await.iter().map(|table| table.disk_bytes).sum()
}

async fn load(call: &Call) -> Answer {
    Ok(json!(bytes(call).await))
}

/// Of each member that answers in time.
async fn load_map(call: &Call) -> Answer {
    let loads = call.operator.loads().await;
    let node = call.operator.node();
    let of_member = |member: &Member| {
        let bytes = loads.get(&member.host_id)?;
        Some(json!({"key": member.address.to_string(), "value": bytes}))
    };
    Ok(node.members.iter().filter_map(of_member).collect())
}

async fn flush(call: &Call) -> Answer {
    let what = call.selection()?;
    let flushed = call.operator.start(Work::Flush(what)).ended.await;
    flushed.map(|()| Value::Null).map_err(failed)
}

async fn compact(call: &Call) -> Answer {
    let compacted = call.operator.start(super::tasks::compaction(call)?).ended.await;
    compacted.map(|()| Value::Null).map_err(failed)
}

async fn snapshots(call: &Call) -> Answer {
    let mut by_tag: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for snapshot in call.operator.snapshots().await.map_err(failed)? {
        by_tag.entry(snapshot.tag.clone()).or_default().push(part(&snapshot));
    }
    let listed = by_tag
        .into_iter()
        .map(|(tag, parts)| json!({"key": tag, "value": parts}));
    Ok(listed.collect())
}

fn part(snapshot: &Snapshot) -> Value {
    json!({
        "ks": snapshot.keyspace,
        "cf": snapshot.table,
        "live": snapshot.own_bytes,
        "total": snapshot.bytes,
    })
}

async fn snapshot_size(call: &Call) -> Answer {
    let snapshots = call.operator.snapshots().await.map_err(failed)?;
    Ok(json!(snapshots.iter().map(|s| s.own_bytes).sum::<u64>()))
}

/// Damaged sstables that were moved aside: reads of their tokens are refused here.
async fn quarantined(call: &Call) -> Answer {
    let tables = call.operator.tables().await;
    let of_table = |table: &Table| -> Vec<Value> {
        let listed = table.quarantined.iter().map(|(name, q)| {
            json!({
                "ks": table.keyspace,
                "cf": table.name,
                "sstable": name,
                "first_token": q.first_token.to_string(),
                "last_token": q.last_token.to_string(),
                "reason": q.reason,
            })
        });
        listed.collect()
    };
    Ok(tables.iter().flat_map(of_table).collect())
}

/// Of one table, which the parameter `cf` names: nothing is accepted that was not meant. Tables that a node keeps for
/// others, such as the state of acceptors, are in no keyspace's list.
async fn accept_quarantined(call: &Call) -> Answer {
    let (keyspace, name) = (call.part(), call.parameter("cf").unwrap_or(""));
    let tables = call.operator.tables().await;
    if !tables
        .iter()
        .any(|table| table.keyspace == keyspace && table.name == name)
    {
        return Err((400, format!("Can't find a table {name} in keyspace {keyspace}")));
    }
    let accepted = call.operator.accept_quarantined(keyspace.to_owned(), name.to_owned());
    accepted.await.map(|()| Value::Null).map_err(failed)
}

/// A tag becomes a directory's name.
fn tag(call: &Call) -> Result<Option<String>, (u16, String)> {
    let Some(tag) = call.parameter("tag") else {
        return Ok(None);
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.: ".contains(c);
    if !tag.chars().all(is_name) || tag.starts_with('.') || tag.len() > 200 {
        return Err((
            400,
            format!("parameter tag: expected letters, digits, '-', '_', ':' and '.', not '.' first, got '{tag}'"),
        ));
    }
    Ok(Some(tag.to_owned()))
}

/// The snapshot that is to be taken.
pub(super) fn snapshot(call: &Call) -> Result<Work, (u16, String)> {
    let tag = tag(call)?.ok_or((400, "parameter tag: expected the snapshot's name".to_owned()))?;
    let ttl = call.parameter("ttl").filter(|text| !text.is_empty());
    let ttl = ttl.map(|text| {
        let expected = || {
            (
                400,
                format!("parameter ttl: expected a time of a second at least, such as 30d or 12h, got '{text}'"),
            )
        };
        time_to_live(text).ok_or_else(expected)
    });
    Ok(Work::Snapshot {
        tag,
        ttl: ttl.transpose()?,
        flushes: !is_set(call, "sf")?,
        what: call.selection()?,
    })
}

/// A duration as CQL writes it, of at least a second, without months.
fn time_to_live(text: &str) -> Option<Duration> {
    let duration = types::Duration::parse(text)
        .ok()
        .filter(|duration| duration.months == 0)?;
    let days = Duration::from_secs(u64::try_from(duration.days).ok()? * 24 * 60 * 60);
    let time = days + Duration::from_nanos(u64::try_from(duration.nanoseconds).ok()?);
    Some(time).filter(|time| *time >= Duration::from_secs(1))
}

async fn take_snapshot(call: &Call) -> Answer {
    let taken = call.operator.start(snapshot(call)?).ended.await;
    taken.map(|()| Value::Null).map_err(|e| (400, e))
}

async fn clear_snapshots(call: &Call) -> Answer {
    let (tag, what) = (tag(call)?, call.selection()?);
    call.operator
        .clear_snapshots(tag, what)
        .await
        .map(|()| Value::Null)
        .map_err(failed)
}

/// In MiB per second, 0 for no limit.
fn throughput(call: &Call) -> Answer {
    Ok(json!(call.operator.tasks().bytes_per_second(Class::Compaction) >> 20))
}

fn stream_throughput(call: &Call) -> Answer {
    Ok(json!(call.operator.tasks().bytes_per_second(Class::Streaming)))
}

fn set_stream_throughput(call: &Call) -> Answer {
    let given = call.parameter("value").unwrap_or("");
    let bytes = given.parse::<u64>();
    let bytes = bytes.map_err(|_| (400, format!("expected bytes per second (0 is no limit), got '{given}'")))?;
    call.operator.tasks().set_bytes_per_second(Class::Streaming, bytes);
    Ok(Value::Null)
}

fn set_throughput(call: &Call) -> Answer {
    let given = call.parameter("value").unwrap_or("");
    let mebibytes = given.parse::<u64>().ok().filter(|mebibytes| *mebibytes < 1 << 40);
    let mebibytes = mebibytes.ok_or_else(|| {
        (
            400,
            format!("expected megabytes per second (0 is no limit), got '{given}'"),
        )
    })?;
    let tasks = call.operator.tasks();
    tasks.set_bytes_per_second(Class::Compaction, mebibytes << 20);
    Ok(Value::Null)
}
