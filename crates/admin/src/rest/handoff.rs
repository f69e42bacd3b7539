//! Hinted handoff: hinted_handoff, and the part of storage_proxy about it.

use std::time::Duration;

use serde_json::{Value, json};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::handoff::Change;
use crate::operator::Node;

/// How long shards are asked to wait at once: so long after its client has gone a request ends.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// A longer wait is as good as one without end.
const WAIT_MAX: Duration = Duration::from_hours(24 * 365);

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/hinted_handoff/hints",
        "Nodes that hints wait for",
        Later(|c| Box::pin(targets(c))),
    ),
    Route::delete(
        "/hinted_handoff/hints",
        "Delete hints",
        Later(|c| Box::pin(truncate(c))),
    )
    .takes(&[("host", "of this node only")]),
    Route::get(
        "/hinted_handoff/pending",
        "Hints that wait, by node",
        Later(|c| Box::pin(pending(c))),
    ),
    Route::get(
        "/hinted_handoff/rejected",
        "Hints that their nodes have refused permanently",
        Later(|c| Box::pin(rejected(c))),
    ),
    Route::delete(
        "/hinted_handoff/rejected",
        "Delete hints that their nodes have refused permanently",
        Later(|c| Box::pin(clear_rejected(c))),
    )
    .takes(&[("host", "of this node only")]),
    Route::get(
        "/storage_service/missed_writes",
        "Why tombstones are kept beyond the grace period",
        Now(missed_writes),
    ),
    Route::post(
        "/storage_service/release_tombstones",
        "Declare that nodes have what the node reports as missed",
        Later(|c| Box::pin(release_tombstones(c))),
    )
    .takes(&[("host", "this node only")]),
    Route::post(
        "/hinted_handoff/schedule",
        "Send hints to a node now",
        Later(|c| Box::pin(schedule(c))),
    )
    .takes(&[("host", "the node")]),
    Route::get(
        "/hinted_handoff/pause",
        "Whether sending hints is paused",
        Now(|c| Ok(json!(c.operator.handoff().is_paused))),
    ),
    Route::post(
        "/hinted_handoff/pause",
        "Pause sending hints, or resume",
        Later(|c| Box::pin(pause(c))),
    )
    .takes(&[("pause", "true or false")]),
    Route::post(
        "/hinted_handoff/sync_point",
        "Name the hints that wait now; answers with the name",
        Later(|c| Box::pin(create_sync_point(c))),
    )
    .takes(&[(
        "target_hosts",
        "for these nodes, separated by commas; for all without it",
    )]),
    Route::get(
        "/hinted_handoff/sync_point",
        "Wait until the hints of a name have arrived",
        Later(|c| Box::pin(await_sync_point(c))),
    )
    .takes(&[
        ("id", "the name"),
        (
            "timeout",
            "seconds; 0 does not wait, a negative number waits without end",
        ),
    ]),
    Route::get(
        "/storage_proxy/hinted_handoff_enabled",
        "Whether hints are kept",
        Now(|c| Ok(json!(c.operator.handoff().is_enabled))),
    ),
    Route::post(
        "/storage_proxy/hinted_handoff_enabled",
        "Keep hints, or do not",
        Later(|c| Box::pin(enable(c))),
    )
    .takes(&[("enable", "true or false")]),
    Route::get(
        "/storage_proxy/hinted_handoff_enabled_by_dc",
        "Datacenters for whose nodes hints are kept",
        Now(by_datacenter),
    ),
    Route::post(
        "/storage_proxy/hinted_handoff_enabled_by_dc",
        "Keep hints for nodes of some datacenters only",
        Later(|c| Box::pin(enable_only(c))),
    )
    .takes(&[("dcs", "the datacenters, separated by commas")]),
    Route::post(
        "/storage_proxy/hinted_handoff_enabled_by_dc/{datacenter}",
        "Keep hints for nodes of a datacenter, or do not",
        Later(|c| Box::pin(enable_datacenter(c))),
    )
    .takes(&[("enable", "true or false")]),
    Route::get(
        "/storage_proxy/max_hint_window",
        "How long hints are kept for a node that is down, in milliseconds",
        Now(window),
    ),
    Route::post(
        "/storage_proxy/max_hint_window",
        "Set how long hints are kept for a node that is down",
        Later(|c| Box::pin(set_window(c))),
    )
    .takes(&[("ms", "milliseconds")]),
];

fn required<'c>(call: &'c Call, name: &str) -> Result<&'c str, (u16, String)> {
    let given = call.parameter(name);
    given.ok_or_else(|| (400, format!("Missing mandatory parameter '{name}'")))
}

fn switch(call: &Call, name: &str) -> Result<bool, (u16, String)> {
    match required(call, name)? {
        text if text.eq_ignore_ascii_case("true") => Ok(true),
        text if text.eq_ignore_ascii_case("false") => Ok(false),
        other => Err((400, format!("parameter {name}: expected true or false, got '{other}'"))),
    }
}

/// The node that a name means: a member by address or host id, or by its host id one that is none any more.
fn target(node: &Node, name: &str) -> Result<Uuid, (u16, String)> {
    let name = name.trim();
    let of_member = node.member(name).map(|member| member.host_id);
    let found = of_member.or_else(|| Uuid::try_parse(name).ok());
    found.ok_or_else(|| (400, format!("no member of the cluster is at '{name}'")))
}

/// How a node is called: by its address, or by its host id when it is no member any more.
fn name(node: &Node, target: Uuid) -> String {
    let member = node.members.iter().find(|member| member.host_id == target);
    member.map_or_else(|| target.to_string(), |member| member.address.to_string())
}

async fn targets(call: &Call) -> Answer {
    let pending = call.operator.pending_hints().await;
    let node = call.operator.node();
    Ok(pending.iter().map(|hints| json!(name(&node, hints.target))).collect())
}

async fn pending(call: &Call) -> Answer {
    let pending = call.operator.pending_hints().await;
    let node = call.operator.node();
    let told = pending.into_iter().map(|hints| {
        let member = node.members.iter().find(|member| member.host_id == hints.target);
        json!({
            "host_id": hints.target.to_string(),
            "address": member.map(|member| member.address.to_string()),
            "datacenter": member.map(|member| &member.datacenter),
            "rack": member.map(|member| &member.rack),
            "is_alive": member.is_some_and(|member| member.is_live),
            "files": hints.files,
            "bytes": hints.bytes,
            "oldest": hints.oldest,
            "newest": hints.newest,
        })
    });
    Ok(told.collect())
}

async fn rejected(call: &Call) -> Answer {
    let rejected = call.operator.rejected_hints().await;
    let node = call.operator.node();
    let told = rejected.into_iter().map(|rejected| {
        json!({
            "host_id": rejected.target.to_string(),
            "address": name(&node, rejected.target),
            "hints": rejected.hints,
            "bytes": rejected.bytes,
        })
    });
    Ok(told.collect())
}

async fn clear_rejected(call: &Call) -> Answer {
    let cleared = call.operator.clear_rejected_hints(host(call)?).await;
    cleared.map(|()| Value::Null).map_err(failed)
}

fn missed_writes(call: &Call) -> Answer {
    let node = call.operator.node();
    let told = call.operator.missed_writes().into_iter().map(|missed| {
        json!({
            "reporter": name(&node, missed.reporter),
            "target": missed.target.map(|target| name(&node, target)),
            "first_s": missed.first,
            "last_s": missed.last,
        })
    });
    Ok(told.collect())
}

async fn release_tombstones(call: &Call) -> Answer {
    let released = call.operator.release_tombstones(host(call)?).await;
    released.map(|()| Value::Null).map_err(failed)
}

/// The node that is named, if one is.
fn host(call: &Call) -> Result<Option<Uuid>, (u16, String)> {
    let host = call.parameter("host");
    host.map(|host| target(&call.operator.node(), host)).transpose()
}

async fn truncate(call: &Call) -> Answer {
    let host = host(call)?;
    let truncated = call.operator.truncate_hints(host).await;
    truncated.map(|()| Value::Null).map_err(failed)
}

/// All nodes are looked at: what is asked for cannot be wrong then.
async fn schedule(call: &Call) -> Answer {
    target(&call.operator.node(), required(call, "host")?)?;
    call.operator.hand_over_now().await;
    Ok(Value::Null)
}

async fn change(call: &Call, change: Change) -> Answer {
    call.operator.change_handoff(change).await;
    Ok(Value::Null)
}

async fn pause(call: &Call) -> Answer {
    change(call, Change::Pause(switch(call, "pause")?)).await
}

async fn enable(call: &Call) -> Answer {
    change(call, Change::Enable(switch(call, "enable")?)).await
}

/// A datacenter that has nodes: another name is a mistake in typing.
fn datacenter(call: &Call, name: &str) -> Result<String, (u16, String)> {
    let known = call.operator.handoff().datacenters;
    if known.contains_key(name) {
        return Ok(name.to_owned());
    }
    let known: Vec<&str> = known.keys().map(String::as_str).collect();
    Err((400, format!("no datacenter '{name}'; known are: {}", known.join(", "))))
}

async fn enable_only(call: &Call) -> Answer {
    let named = required(call, "dcs")?
        .split(',')
        .map(|name| datacenter(call, name.trim()));
    let named = named.collect::<Result<Vec<String>, _>>()?;
    change(call, Change::Only(named)).await
}

async fn enable_datacenter(call: &Call) -> Answer {
    let named = datacenter(call, call.part())?;
    change(call, Change::Datacenter(named, switch(call, "enable")?)).await
}

fn by_datacenter(call: &Call) -> Answer {
    let state = call.operator.handoff();
    let told = state.datacenters.iter();
    Ok(told
        .map(|(name, gets)| json!({"key": name, "value": [gets.to_string()]}))
        .collect())
}

fn window(call: &Call) -> Answer {
    let window = call.operator.handoff().window.as_millis();
    Ok(json!(u64::try_from(window).unwrap_or(u64::MAX)))
}

async fn set_window(call: &Call) -> Answer {
    let given = required(call, "ms")?;
    let ms = given.parse::<u32>();
    let ms = ms.map_err(|_| {
        (
            400,
            format!("parameter ms: expected milliseconds from 0 on, got '{given}'"),
        )
    })?;
    change(call, Change::Window(Duration::from_millis(ms.into()))).await
}

async fn create_sync_point(call: &Call) -> Answer {
    let node = call.operator.node();
    let named = call.parameter("target_hosts").map(|names| {
        let names = names.split(',').filter(|name| !name.trim().is_empty());
        names.map(|name| target(&node, name)).collect::<Result<Vec<Uuid>, _>>()
    });
    Ok(json!(call.operator.create_sync_point(named.transpose()?).await))
}

async fn await_sync_point(call: &Call) -> Answer {
    let id = required(call, "id")?;
    // A negative number waits without end, none not at all.
    let given = call.parameter("timeout").unwrap_or("0");
    let seconds = given.parse::<i64>();
    let seconds = seconds.map_err(|_| (400, format!("parameter timeout: expected whole seconds, got '{given}'")))?;
    let deadline = u64::try_from(seconds).ok();
    let deadline = deadline.map(|seconds| runtime::now() + Duration::from_secs(seconds).min(WAIT_MAX));
    loop {
        let left = deadline.map_or(WAIT_SLICE, |d| d.saturating_duration_since(runtime::now()));
        let waited = call.operator.await_sync_point(id.to_owned(), left.min(WAIT_SLICE));
        let is_reached = waited.await.map_err(|reason| (400, reason))?;
        if is_reached {
            return Ok(json!("DONE"));
        }
        if left.is_zero() || call.request.client_is_gone.get() {
            return Ok(json!("IN_PROGRESS"));
        }
    }
}
