//! Repairs.

use serde_json::json;
use uuid::Uuid;

use super::Handler::Later;
use super::tasks::is_set;
use super::{Answer, Call, Route, failed};
use crate::operator::{RepairedTable, Repairs, TabletRepair};

const INCREMENTAL_MODE: &str = "incremental: leave out what earlier repairs have marked; full: read everything; disabled: and mark nothing. Incremental where possible without it";

pub(super) const ROUTES: &[Route] = &[
    Route::post(
        "/ceto/cluster/repair",
        "Repair the ranges of every node of these tables, and wait until none is left",
        Later(|c| Box::pin(repair_cluster(c))),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all of users without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("incremental_mode", INCREMENTAL_MODE),
    ]),
    Route::post(
        "/storage_service/tablets/repair",
        "Have the nodes repair tablets of a table, as a task",
        Later(|c| Box::pin(repair_tablets(c))),
    )
    .takes(&[
        ("ks", "the keyspace, with tablets"),
        ("table", "the table"),
        (
            "tokens",
            "all, or tokens separated by commas: the tablets that have them; all without it",
        ),
        (
            "hosts_filter",
            "only with replicas on these nodes, by host id, separated by commas",
        ),
        (
            "dcs_filter",
            "only with replicas in these datacenters, separated by commas",
        ),
        (
            "await_completion",
            "true: answer when the repair has ended; false: when it has begun. true without it",
        ),
        ("incremental_mode", INCREMENTAL_MODE),
    ]),
    Route::post(
        "/ceto/repair",
        "Make the replicas of the node's ranges equal, wait for it, and say what differed",
        Later(|c| Box::pin(repair(c))),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all of users without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("primary", "true: only ranges of which the node is the first replica"),
        ("start_token", "only tokens greater than this one"),
        ("end_token", "only tokens up to this one"),
        (
            "datacenters",
            "only with replicas in these datacenters, separated by commas",
        ),
        (
            "hosts",
            "only with these nodes, by host id or address, separated by commas",
        ),
        ("preview", "true: count what differs, and change nothing"),
        ("incremental_mode", INCREMENTAL_MODE),
    ]),
];

async fn repair_cluster(call: &Call) -> Answer {
    let ranges = call
        .operator
        .repair_cluster(call.selection()?, incremental_mode(call)?)
        .await
        .map_err(failed)?;
    Ok(json!({ "ranges": ranges }))
}

async fn repair_tablets(call: &Call) -> Answer {
    let mandatory = |name: &str| {
        let given = call.parameter(name);
        let given = given.ok_or_else(|| (400, format!("Missing mandatory parameter '{name}'")))?;
        Ok::<_, (u16, String)>(given.to_owned())
    };
    let (keyspace, table) = (mandatory("ks")?, mandatory("table")?);
    if !call.keyspace_named(&keyspace)?.tables.contains(&table) {
        return Err((400, format!("Can't find a table {table} in keyspace {keyspace}")));
    }
    let wrong = |name: &str, item: &str| (400_u16, format!("parameter {name}: expected {item}"));
    let tokens = list(call, "tokens");
    let tokens: Vec<i64> = match &tokens[..] {
        [word] if word == "all" => Vec::new(),
        given => {
            let parsed = given.iter().map(|token| {
                let token = token.trim();
                let parsed = token.parse();
                parsed.map_err(|_| wrong("tokens", &format!("'all' or tokens separated by commas, got '{token}'")))
            });
            parsed.collect::<Result<_, _>>()?
        }
    };
    let hosts = list(call, "hosts_filter");
    let hosts = hosts.iter().map(|host| {
        let parsed = host.trim().parse::<Uuid>();
        parsed.map_err(|_| wrong("hosts_filter", &format!("host ids separated by commas, got '{host}'")))
    });
    let wanted = TabletRepair {
        keyspace,
        table,
        tokens,
        hosts: hosts.collect::<Result<_, _>>()?,
        datacenters: list(call, "dcs_filter"),
        is_awaited: call.parameter("await_completion").is_none() || is_set(call, "await_completion")?,
        incremental_mode: incremental_mode(call)?,
    };
    let id = call.operator.repair_tablets(wanted).await.map_err(failed)?;
    Ok(json!({ "tablet_task_id": id.to_string() }))
}

async fn repair(call: &Call) -> Answer {
    let wanted = Repairs {
        what: call.selection()?,
        is_primary: is_set(call, "primary")?,
        range: range(call)?,
        datacenters: list(call, "datacenters"),
        hosts: list(call, "hosts"),
        is_preview: is_set(call, "preview")?,
        incremental_mode: incremental_mode(call)?,
    };
    let repaired = call.operator.repair(wanted).await.map_err(failed)?;
    let table = |table: &RepairedTable| {
        json!({
            "keyspace": table.keyspace,
            "table": table.table,
            "ranges": table.ranges,
            "rows": table.rows,
            "differing": table.differing,
            "sent_bytes": table.sent_bytes,
            "received_bytes": table.received_bytes,
            "read_bytes": table.read_bytes,
            "skipped_bytes": table.skipped_bytes,
            "incremental_ranges": table.incremental_ranges,
        })
    };
    Ok(repaired.iter().map(table).collect())
}

fn incremental_mode(call: &Call) -> Result<Option<String>, (u16, String)> {
    let Some(given) = call.parameter("incremental_mode") else {
        return Ok(None);
    };
    match given {
        "incremental" | "full" | "disabled" => Ok(Some(given.to_owned())),
        _ => Err((
            400,
            format!("parameter incremental_mode: expected incremental, full or disabled, got '{given}'"),
        )),
    }
}

fn list(call: &Call, name: &str) -> Vec<String> {
    let given = call.parameter(name).unwrap_or_default();
    given
        .split(',')
        .filter(|item| !item.is_empty())
        .map(str::to_owned)
        .collect()
}

/// The tokens, if either end is given.
fn range(call: &Call) -> Result<Option<(i64, i64)>, (u16, String)> {
    let token = |name: &str, usual: i64| match call.parameter(name) {
        None => Ok(usual),
        Some(given) => given
            .parse()
            .map_err(|_| (400, format!("parameter {name}: expected a token, got '{given}'"))),
    };
    let (first, last) = (token("start_token", i64::MIN)?, token("end_token", i64::MAX)?);
    if first >= last {
        return Err((
            400,
            format!("expected a start_token below the end_token, got {first} and {last}"),
        ));
    }
    Ok(Some((first, last)))
}
