//! Tablets that an operator moves, and whether they move by themselves.

use serde_json::{Value, json};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::operator::{TableStanding, Work};

pub(super) const ROUTES: &[Route] = &[
    Route::post(
        "/storage_service/tablets/move",
        "Move a tablet to another shard or another node, and wait for it",
        Later(|c| Box::pin(move_tablet(c))),
    )
    .takes(&[
        ("ks", "the keyspace"),
        ("table", "the table"),
        ("token", "a token of the tablet"),
        ("dst_shard", "the shard that gets it"),
        ("src_host", "the node's host id"),
        ("src_shard", "the shard that has it"),
        ("dst_host", "the host id of the node that gets it"),
    ]),
    Route::post(
        "/ceto/tasks/resize_table",
        "Begin to split each tablet of a table in two, or to merge each pair; answers with the task's id",
        Now(start_resize),
    )
    .takes(&[
        ("ks", "the keyspace"),
        ("table", "the table"),
        ("tablet_count", "twice as many tablets as the table has, or half"),
    ]),
    Route::get(
        "/storage_service/tablets/balancing",
        "Whether tablets move to be even among nodes and shards, how many move between nodes now, and how the tablets of each table stand",
        Later(|c| Box::pin(balance(c))),
    ),
    Route::post(
        "/storage_service/tablets/balancing",
        "Have tablets move to be even among nodes and shards, or only where a replication or a node that leaves needs it",
        Later(|c| Box::pin(set_balanced(c))),
    )
    .takes(&[("enabled", "true or false")]),
    Route::post(
        "/ceto/tasks/move_tablet",
        "Begin to move a tablet to another shard or another node; answers with the task's id",
        Now(start_move),
    )
    .takes(&[
        ("ks", "the keyspace"),
        ("table", "the table"),
        ("token", "a token of the tablet"),
        ("dst_shard", "the shard that gets it"),
        ("host", "the node's host id; the node itself without it"),
        (
            "dst_host",
            "the host id of the node that gets it; the same node without it",
        ),
    ]),
];

fn parameter<'c, T: std::str::FromStr>(call: &'c Call, name: &str, expected: &str) -> Result<T, (u16, String)> {
    let given: Option<&'c str> = call.parameter(name);
    let given = given.ok_or_else(|| (400, format!("Missing mandatory parameter '{name}'")))?;
    let parsed = given.trim().parse();
    parsed.map_err(|_| (400, format!("parameter {name}: expected {expected}, got '{given}'")))
}

fn wanted(call: &Call) -> Result<Work, (u16, String)> {
    let host_id: Uuid = parameter(call, "src_host", "the id of a node")?;
    let to_host: Uuid = parameter(call, "dst_host", "the id of a node")?;
    let from = parameter(call, "src_shard", "the number of a shard")?;
    let to_host = Some(to_host).filter(|to_host| *to_host != host_id);
    wanted_from(call, (Some(host_id), Some(from)), to_host)
}

fn wanted_from(
    call: &Call,
    (host_id, from): (Option<Uuid>, Option<u16>),
    to_host: Option<Uuid>,
) -> Result<Work, (u16, String)> {
    Ok(Work::MoveTablet {
        keyspace: parameter(call, "ks", "a keyspace")?,
        table: parameter(call, "table", "a table")?,
        token: parameter(call, "token", "a token of the tablet")?,
        host_id,
        from,
        to_host,
        to: parameter(call, "dst_shard", "the number of a shard")?,
    })
}

/// Moves a tablet to another shard or another node, and answers when it is there.
async fn move_tablet(call: &Call) -> Answer {
    let moved = call.operator.start(wanted(call)?).ended.await;
    moved.map(|()| Value::Null).map_err(failed)
}

/// Begins to do the same, from whichever shard has it, on the node `host` or the one that is asked. Answers with the
/// task.
fn start_move(call: &Call) -> Answer {
    let node = |name| match call.parameter(name) {
        Some(_) => parameter(call, name, "the id of a node").map(Some),
        None => Ok(None),
    };
    let (host, to_host) = (node("host")?, node("dst_host")?);
    let work = wanted_from(call, (host, None), to_host.filter(|to_host| Some(*to_host) != host))?;
    Ok(json!(call.operator.start(work).task.to_string()))
}

fn start_resize(call: &Call) -> Answer {
    let work = Work::ResizeTable {
        keyspace: parameter(call, "ks", "a keyspace")?,
        table: parameter(call, "table", "a table")?,
        tablet_count: parameter(call, "tablet_count", "a number of tablets")?,
    };
    Ok(json!(call.operator.start(work).task.to_string()))
}

async fn balance(call: &Call) -> Answer {
    let balance = call.operator.balance().await.map_err(failed)?;
    let mut told = json!({ "enabled": balance.is_on, "moving": balance.moving });
    match balance.standing {
        Err(why) => told["unknown"] = json!(why),
        Ok(standing) => {
            let off = |[rack, node, shard]: [f64; 3]| json!({ "rack": rack, "node": node, "shard": shard });
            told["tablet_bytes_goal"] = json!(standing.tablet_bytes_goal);
            told["bytes_off"] = off(standing.bytes_off);
            told["load_off"] = off(standing.load_off);
            told["lacks"] = json!(standing.lacks);
            told["tables"] = standing.tables.iter().map(table_standing).collect();
        }
    }
    Ok(told)
}

fn table_standing(table: &TableStanding) -> Value {
    json!({
        "ks": table.keyspace,
        "table": table.table,
        "tablets": table.tablets,
        "wanted": table.wanted,
        "least": table.least,
        "average_bytes": table.average_bytes,
        "largest_bytes": table.largest_bytes,
        "hottest": table.hottest,
        "waits_for": table.waits_for,
    })
}

async fn set_balanced(call: &Call) -> Answer {
    let is_balanced = parameter(call, "enabled", "true or false")?;
    let set = call.operator.set_balanced(is_balanced).await;
    set.map(|()| Value::Null).map_err(failed)
}
