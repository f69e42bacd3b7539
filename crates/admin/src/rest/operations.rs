//! Operations on the members of the cluster.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::operations::{Cleaned, KeyspaceKind, Progress, Rebuild};
use crate::operator::Member;

pub(super) const ROUTES: &[Route] = &[
    Route::post(
        "/storage_service/decommission",
        "Have the node give its tablets to others and leave the cluster, and wait for it",
        Later(|c| Box::pin(async move { c.operator.decommission().await.map(|()| Value::Null).map_err(failed) })),
    ),
    Route::delete(
        "/storage_service/decommission",
        "Have the node stay, which is leaving",
        Later(|c| Box::pin(async move { c.operator.stay().await.map(|()| Value::Null).map_err(failed) })),
    ),
    Route::post(
        "/storage_service/remove_node",
        "Permanently remove a member that is down, and wait until the others have rebuilt its copies",
        Later(|c| Box::pin(remove_node(c))),
    )
    .takes(&[
        ("host_id", "the member"),
        (
            "ignore_nodes",
            "other members that are down permanently, by host id or address, separated by commas: they are excluded",
        ),
    ]),
    Route::post(
        "/storage_service/exclude_node",
        "Say of members that they are down permanently: nothing waits for them, and they may not come back",
        Later(|c| Box::pin(exclude_nodes(c))),
    )
    .takes(&[("hosts", "their host ids, separated by commas")]),
    Route::get(
        "/ceto/operations",
        "Operations in progress: nodes that join or leave, changes of replication, moves for balance",
        Later(|c| Box::pin(operations(c))),
    ),
    Route::post(
        "/ceto/keyspace_kind/{keyspace}",
        "Have the tables of a keyspace go to tablets or to the token ring while they serve; answers with what the operator should know",
        Later(|c| Box::pin(set_keyspace_kind(c))),
    )
    .takes(&[("tablets", "true for tablets, false for the token ring")]),
    Route::get(
        "/ceto/keyspace_kind/{keyspace}",
        "Which tables of a keyspace have tablets, are on the token ring, or are on their way",
        Now(keyspace_kind),
    ),
    Route::post(
        "/storage_service/rebuild",
        "Copy the data of the node's replicas again from other replicas, wait for it, and say how much was copied",
        Later(|c| Box::pin(rebuild(c))),
    )
    .takes(&[
        ("source_dc", "only from replicas in this datacenter"),
        ("kn", "keyspaces, separated by commas; all of users without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
    ]),
    Route::post(
        "/storage_service/keyspace_cleanup/{keyspace}",
        "Remove data of tokens that the node does not own, wait for it, and say what was removed",
        Later(|c| Box::pin(cleanup(c))),
    )
    .takes(&[("cf", "tables of the keyspace, separated by commas; all without it")]),
    Route::post(
        "/storage_service/cleanup_all",
        "The same for all keyspaces of users",
        Later(|c| Box::pin(cleanup(c))),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all of users without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
    ]),
    Route::get(
        "/storage_service/nodes/excluded",
        "Addresses of members that are down permanently by an operator's word",
        Now(|c| members(c, |member| member.is_excluded)),
    ),
    Route::get(
        "/ceto/zero_token_nodes",
        "Addresses of members that own nothing (join_ring: false)",
        Now(|c| members(c, |member| member.is_zero_token)),
    ),
];

fn members(call: &Call, is_wanted: fn(&Member) -> bool) -> Answer {
    let members = call.operator.node().members;
    let wanted = members.iter().filter(|member| is_wanted(member));
    Ok(wanted.map(|member| json!(member.address.to_string())).collect())
}

/// Removes the member that the parameter `host_id` names.
async fn remove_node(call: &Call) -> Answer {
    let host_id = host_id("host_id", mandatory(call, "host_id")?)?;
    let ignored = list(call.parameter("ignore_nodes").unwrap_or_default());
    let removed = call.operator.remove_node(host_id, ignored).await;
    removed.map(|()| Value::Null).map_err(failed)
}

/// Excludes the members that the parameter `hosts` names.
async fn exclude_nodes(call: &Call) -> Answer {
    let hosts = list(mandatory(call, "hosts")?);
    let hosts = hosts
        .iter()
        .map(|host| host_id("hosts", host))
        .collect::<Result<_, _>>()?;
    let excluded = call.operator.exclude_nodes(hosts).await;
    excluded.map(|()| Value::Null).map_err(failed)
}

async fn operations(call: &Call) -> Answer {
    let told = call.operator.operations().await;
    let operation = |progress: &Progress| {
        json!({
            "task_id": progress.task.to_string(),
            "kind": progress.kind,
            "host_id": progress.host_id.map(|host| host.to_string()),
            "address": progress.address.map(|address| address.to_string()),
            "keyspace": progress.keyspace,
            "stage": progress.stage,
            "waits": progress.waits,
            "progress_total": progress.total,
            "progress_completed": progress.done,
            "percent": progress.percent(),
            "elapsed_seconds": progress.elapsed.as_secs(),
            "remaining_seconds": progress.remaining.map(|rest| rest.as_secs()),
            "is_abortable": progress.is_abortable,
        })
    };
    Ok(told.iter().map(operation).collect())
}

async fn set_keyspace_kind(call: &Call) -> Answer {
    let keyspace = call.keyspace_named(call.part())?.name;
    let has_tablets = match mandatory(call, "tablets")? {
        "true" => true,
        "false" => false,
        other => return Err((400, format!("parameter tablets: expected true or false, got '{other}'"))),
    };
    let warnings = call.operator.set_keyspace_kind(keyspace, has_tablets).await;
    warnings.map(|warnings| json!(warnings)).map_err(failed)
}

fn keyspace_kind(call: &Call) -> Answer {
    call.keyspace_named(call.part())?;
    let kind: KeyspaceKind = call.operator.keyspace_kind(call.part()).map_err(failed)?;
    Ok(json!({
        "status": kind.name(),
        "with_tablets": kind.with_tablets,
        "on_ring": kind.on_ring,
        "on_their_way": kind.on_their_way,
    }))
}

async fn rebuild(call: &Call) -> Answer {
    let wanted = Rebuild {
        what: call.selection()?,
        datacenter: call.parameter("source_dc").map(str::to_owned),
    };
    let rebuilt = call.operator.rebuild(wanted).await.map_err(failed)?;
    Ok(json!({"tables": rebuilt.tables, "ranges": rebuilt.ranges, "bytes": rebuilt.bytes}))
}

async fn cleanup(call: &Call) -> Answer {
    let cleaned = call.operator.cleanup(call.selection()?).await.map_err(failed)?;
    let table = |table: &Cleaned| {
        json!({
            "keyspace": table.keyspace,
            "table": table.table,
            "removed_bytes": table.removed_bytes,
            "unowned_files": table.unowned_files,
            "skipped": table.is_skipped,
        })
    };
    Ok(cleaned.iter().map(table).collect())
}

fn mandatory<'c>(call: &'c Call, name: &str) -> Result<&'c str, (u16, String)> {
    let given = call.parameter(name);
    given.ok_or_else(|| (400, format!("Missing mandatory parameter '{name}'")))
}

fn host_id(name: &str, given: &str) -> Result<Uuid, (u16, String)> {
    Uuid::try_parse(given.trim()).map_err(|_| (400, format!("{name}: expected a UUID, got '{given}'")))
}

fn list(given: &str) -> Vec<String> {
    let items = given.split(',').map(str::trim).filter(|item| !item.is_empty());
    items.map(str::to_owned).collect()
}
