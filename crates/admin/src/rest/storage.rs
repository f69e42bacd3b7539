//! Keyspaces, what is stored, and what an operator has done with it: flush, compaction, snapshots.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tasks::Class;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::operator::{Snapshot, Table, Work};

pub(super) const ROUTES: &[Route] = &[
    ("GET", "/storage_service/keyspaces", Now(keyspaces)),
    ("GET", "/storage_service/load", Later(|c| Box::pin(load(c)))),
    ("GET", "/storage_service/load_map", Later(|c| Box::pin(load_map(c)))),
    (
        "POST",
        "/storage_service/keyspace_flush/{keyspace}",
        Later(|c| Box::pin(flush(c))),
    ),
    ("POST", "/storage_service/flush", Later(|c| Box::pin(flush(c)))),
    (
        "POST",
        "/storage_service/keyspace_compaction/{keyspace}",
        Later(|c| Box::pin(compact(c))),
    ),
    ("POST", "/storage_service/compact", Later(|c| Box::pin(compact(c)))),
    ("GET", "/storage_service/snapshots", Later(|c| Box::pin(snapshots(c)))),
    (
        "POST",
        "/storage_service/snapshots",
        Later(|c| Box::pin(take_snapshot(c))),
    ),
    (
        "DELETE",
        "/storage_service/snapshots",
        Later(|c| Box::pin(clear_snapshots(c))),
    ),
    (
        "GET",
        "/storage_service/snapshots/size/true",
        Later(|c| Box::pin(snapshot_size(c))),
    ),
    (
        "GET",
        "/storage_service/quarantined",
        Later(|c| Box::pin(quarantined(c))),
    ),
    (
        "DELETE",
        "/storage_service/quarantined/{keyspace}",
        Later(|c| Box::pin(accept_quarantined(c))),
    ),
    ("GET", "/storage_service/compaction_throughput", Now(throughput)),
    ("POST", "/storage_service/compaction_throughput", Now(set_throughput)),
];

/// Names of keyspaces: all, or with `type` those of users or those with replicas elsewhere.
fn keyspaces(call: &Call) -> Answer {
    let kind = call.request.parameter("type").unwrap_or("all");
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

/// The node's own load: what others have they are to be asked for.
async fn load_map(call: &Call) -> Answer {
    let node = call.operator.node();
    let bytes = bytes(call).await;
    Ok(node
        .me()
        .map(|me| json!({"key": me.address.to_string(), "value": bytes}))
        .into_iter()
        .collect())
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

/// Of one table, which the parameter `cf` names: nothing is accepted that was not meant. Tables that a node keeps for others, such as the
/// state of acceptors, are in no keyspace's list.
async fn accept_quarantined(call: &Call) -> Answer {
    let (keyspace, name) = (call.part(), call.request.parameter("cf").unwrap_or(""));
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
    let Some(tag) = call.request.parameter("tag") else {
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
    let ttl = call.request.parameter("ttl").filter(|text| !text.is_empty());
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

fn set_throughput(call: &Call) -> Answer {
    let given = call.request.parameter("value").unwrap_or("");
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
