//! Tasks: what tools know as `/task_manager`, work that is started without waiting for it, and the limits of classes,
//! which are ceto's own paths.

use std::time::Duration;

use serde_json::{Value, json};
use tasks::{AbortError, Class, ClassStatus, Module, Status, WORKERS_MAX};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, storage};
use crate::operator::Work;

/// How long a task is waited for at once: so long after its client has gone a request ends.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// The longest time that can be set or waited, in seconds: about 30 years.
const SECONDS_MAX: u64 = 1_000_000_000;

pub(super) const ROUTES: &[Route] = &[
    Route::get("/task_manager/list_modules", "Modules of tasks", Now(modules)),
    Route::get(
        "/task_manager/list_module_tasks/{module}",
        "Tasks of a module",
        Now(list),
    )
    .takes(&[
        (
            "internal",
            "true: with those that no operator asked for, and parts of tasks",
        ),
        ("keyspace", "of this keyspace only"),
        ("table", "of this table only"),
    ]),
    Route::get("/task_manager/task_status/{id}", "A task", Now(status)),
    Route::get(
        "/task_manager/task_status_recursive/{id}",
        "A task and its parts",
        Now(tree),
    ),
    Route::get(
        "/task_manager/wait_task/{id}",
        "Wait until a task has ended",
        Later(|c| Box::pin(wait(c))),
    )
    .takes(&[("timeout", "seconds; 408 when they are over")]),
    Route::post(
        "/task_manager/abort_task/{id}",
        "Abort a task",
        Later(|c| Box::pin(abort(c))),
    ),
    Route::get(
        "/task_manager/ttl",
        "How long a task that the node began by itself is listed after its end, in seconds",
        Now(|c| Ok(json!(c.operator.tasks().ttls().0.as_secs()))),
    ),
    Route::post(
        "/task_manager/ttl",
        "Set how long a task that the node began by itself is listed after its end",
        Now(set_ttl),
    )
    .takes(&[("ttl", "seconds")]),
    Route::get(
        "/task_manager/user_ttl",
        "How long a task that an operator asked for is listed after its end, in seconds",
        Now(|c| Ok(json!(c.operator.tasks().ttls().1.as_secs()))),
    ),
    Route::post(
        "/task_manager/user_ttl",
        "Set how long a task that an operator asked for is listed after its end",
        Now(set_user_ttl),
    )
    .takes(&[("user_ttl", "seconds")]),
    Route::post(
        "/task_manager/drain/{module}",
        "Forget the tasks of a module that have ended",
        Now(drain),
    ),
    Route::post(
        "/tasks/compaction/keyspace_compaction/{keyspace}",
        "Begin to merge the sstables of a keyspace; answers with the task's id",
        Now(start_compaction),
    )
    .takes(&[
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("flush_memtables", "true: flush first"),
    ]),
    Route::post(
        "/ceto/tasks/compact",
        "Begin to merge sstables; answers with the task's id",
        Now(start_compaction),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
        ("flush_memtables", "true: flush first"),
    ]),
    Route::post(
        "/ceto/tasks/flush",
        "Begin to write memtables to sstables; answers with the task's id",
        Now(start_flush),
    )
    .takes(&[
        ("kn", "keyspaces, separated by commas; all without it"),
        ("cf", "tables of the keyspace, separated by commas; all without it"),
    ]),
    Route::post(
        "/ceto/tasks/rebuild_index",
        "Begin to make the files of a table's secondary indexes again, on this node; answers with the task's id",
        Now(start_index_rebuild),
    )
    .takes(&[
        ("ks", "the keyspace"),
        ("table", "the table"),
        (
            "indexes",
            "names of indexes, separated by commas; all of the table without it",
        ),
    ]),
    Route::post(
        "/ceto/tasks/snapshot",
        "Begin to take a snapshot; answers with the task's id",
        Now(start_snapshot),
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
    Route::get(
        "/ceto/task_classes",
        "Limits of the classes of tasks, and what they do",
        Now(classes),
    ),
    Route::post(
        "/ceto/task_classes/{class}",
        "Change the limits of a class of tasks",
        Now(set_limits),
    )
    .takes(&[
        ("workers", "jobs that a shard runs at once"),
        ("shard", "on this shard only"),
        ("bytes_per_second", "of all jobs together; 0 for no limit"),
    ]),
    Route::post(
        "/compaction_manager/stop_compaction",
        "Abort all compactions that run or wait",
        Now(stop_compactions),
    )
    .takes(&[("type", "COMPACTION")]),
    Route::post(
        "/compaction_manager/stop_keyspace_compaction/{keyspace}",
        "Abort the compactions of a keyspace",
        Now(stop_compactions),
    )
    .takes(&[
        ("type", "COMPACTION"),
        ("tables", "of these tables only, separated by commas"),
    ]),
];

fn modules(_: &Call) -> Answer {
    Ok(Module::ALL.iter().map(|module| json!(module.name())).collect())
}

fn module(call: &Call) -> Result<Module, (u16, String)> {
    let name = call.part();
    Module::of_name(name).ok_or_else(|| (400, format!("module {name} not found")))
}

fn id(call: &Call) -> Result<Uuid, (u16, String)> {
    let given = call.part();
    given
        .parse()
        .map_err(|_| (400, format!("expected the id of a task, got '{given}'")))
}

fn unknown(id: Uuid) -> (u16, String) {
    (
        400,
        format!(
            "task with id {id} not found: it never was on this node, ended some time ago, or ended with an earlier process"
        ),
    )
}

pub(super) fn is_set(call: &Call, name: &str) -> Result<bool, (u16, String)> {
    match call.parameter(name) {
        None | Some("false" | "0") => Ok(false),
        Some("true" | "1") => Ok(true),
        Some(given) => Err((400, format!("parameter {name}: expected true or false, got '{given}'"))),
    }
}

/// A number of the query; None when it is not given.
fn number(call: &Call, name: &str, max: u64) -> Result<Option<u64>, (u16, String)> {
    let Some(given) = call.parameter(name) else {
        return Ok(None);
    };
    let number = given.parse().ok().filter(|number| *number <= max);
    let number = number.ok_or_else(|| {
        (
            400,
            format!("parameter {name}: expected a number up to {max}, got '{given}'"),
        )
    });
    number.map(Some)
}

fn list(call: &Call) -> Answer {
    let (keyspace, table) = (call.parameter("keyspace"), call.parameter("table"));
    let mut listed = call.operator.tasks().list(module(call)?, is_set(call, "internal")?);
    listed.retain(|status| {
        keyspace.is_none_or(|keyspace| keyspace == status.keyspace) && table.is_none_or(|table| table == status.table)
    });
    Ok(listed
        .iter()
        .map(|status| Value::Object(stats("task_id", status)))
        .collect())
}

/// A time in ISO 8601; empty if the task has not reached it.
fn when(us: i64) -> String {
    match us {
        0 => String::new(),
        us => types::iso_seconds(us.div_euclid(1_000_000)),
    }
}

/// What lists have of a task.
fn stats(id: &str, status: &Status) -> serde_json::Map<String, Value> {
    let fields = [
        (id, json!(status.id.to_string())),
        ("type", json!(status.kind.name)),
        ("kind", json!("node")),
        ("scope", json!(status.scope)),
        ("state", json!(status.state.name())),
        ("sequence_number", json!(status.sequence_number)),
        ("keyspace", json!(status.keyspace)),
        ("table", json!(status.table)),
        ("entity", json!(status.entity)),
        ("shard", json!(status.shard.unwrap_or(0))),
        (
            "creation_time",
            json!(types::iso_seconds(status.created_us.div_euclid(1_000_000))),
        ),
        ("start_time", json!(when(status.started_us))),
        ("end_time", json!(when(status.ended_us))),
    ];
    fields
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}

/// Everything about a task.
fn told(call: &Call, status: &Status) -> Value {
    let node = call.operator.node();
    let address = node.me().map_or_else(String::new, |me| me.address.to_string());
    let children = status.children.iter();
    let children: Vec<Value> = children
        .map(|child| json!({"task_id": child.to_string(), "node": address}))
        .collect();
    let mut fields = stats("id", status);
    let more = [
        ("is_abortable", json!(status.is_abortable)),
        ("error", json!(status.error)),
        ("waits", json!(status.waits)),
        (
            "parent_id",
            json!(
                status
                    .parent
                    .map_or_else(|| "none".to_owned(), |parent| parent.to_string())
            ),
        ),
        ("progress_units", json!(status.kind.units)),
        ("progress_total", json!(status.total)),
        ("progress_completed", json!(status.completed)),
        ("children_ids", json!(children)),
    ];
    fields.extend(more.into_iter().map(|(name, value)| (name.to_owned(), value)));
    Value::Object(fields)
}

fn status(call: &Call) -> Answer {
    let id = id(call)?;
    let status = call.operator.tasks().status(id).ok_or_else(|| unknown(id))?;
    Ok(told(call, &status))
}

fn tree(call: &Call) -> Answer {
    let id = id(call)?;
    let tree = call.operator.tasks().tree(id).ok_or_else(|| unknown(id))?;
    Ok(tree.iter().map(|status| told(call, status)).collect())
}

/// Waits until a task has ended, or for `timeout` seconds: 408 then.
async fn wait(call: &Call) -> Answer {
    let id = id(call)?;
    let timeout = number(call, "timeout", SECONDS_MAX)?;
    let deadline = timeout.map(|seconds| runtime::now() + Duration::from_secs(seconds));
    let tasks = call.operator.tasks();
    loop {
        let left = deadline.map_or(WAIT_SLICE, |d| d.saturating_duration_since(runtime::now()));
        match runtime::timeout(left.min(WAIT_SLICE), tasks.wait(id)).await {
            Ok(ended) => return Ok(told(call, &ended.ok_or_else(|| unknown(id))?)),
            Err(_) if call.request.client_is_gone.get() => return Err((408, "the client has gone".to_owned())),
            Err(_) if left <= WAIT_SLICE && deadline.is_some() => {
                return Err((408, format!("task {id} has not ended in time")));
            }
            Err(_) => {}
        }
    }
}

async fn abort(call: &Call) -> Answer {
    let id = id(call)?;
    // Of the whole cluster: whether it stops is for the metadata group to say.
    if let Some(stopped) = call.operator.abort_operation(id) {
        stopped.await.map_err(|why| (409, why))?;
    }
    match call.operator.tasks().abort(id) {
        Ok(()) => Ok(Value::Null),
        Err(AbortError::Unknown) => Err(unknown(id)),
        Err(AbortError::NotAbortable) => Err((403, format!("task {id} cannot be aborted"))),
    }
}

fn time_to_live(call: &Call, name: &str) -> Result<Duration, (u16, String)> {
    let seconds = number(call, name, SECONDS_MAX)?;
    let seconds = seconds.ok_or_else(|| (400, format!("parameter {name}: expected a number of seconds")))?;
    Ok(Duration::from_secs(seconds))
}

fn set_ttl(call: &Call) -> Answer {
    call.operator.tasks().set_ttl(time_to_live(call, "ttl")?);
    Ok(Value::Null)
}

fn set_user_ttl(call: &Call) -> Answer {
    call.operator.tasks().set_user_ttl(time_to_live(call, "user_ttl")?);
    Ok(Value::Null)
}

fn drain(call: &Call) -> Answer {
    call.operator.tasks().drain(module(call)?);
    Ok(Value::Null)
}

/// The compaction that a request asks for.
pub(super) fn compaction(call: &Call) -> Result<Work, (u16, String)> {
    Ok(Work::Compact {
        what: call.selection()?,
        flushes: is_set(call, "flush_memtables")?,
    })
}

fn begin(call: &Call, work: Work) -> Answer {
    Ok(json!(call.operator.start(work).task.to_string()))
}

fn start_compaction(call: &Call) -> Answer {
    begin(call, compaction(call)?)
}

fn start_flush(call: &Call) -> Answer {
    begin(call, Work::Flush(call.selection()?))
}

fn start_index_rebuild(call: &Call) -> Answer {
    let given = |name: &str| {
        let value = call.parameter(name).map(str::to_owned);
        value.ok_or_else(|| (400, format!("Missing mandatory parameter '{name}'")))
    };
    let (keyspace, table) = (given("ks")?, given("table")?);
    if !call.keyspace_named(&keyspace)?.tables.contains(&table) {
        return Err((400, format!("Can't find a table {table} in keyspace {keyspace}")));
    }
    let names = call.parameter("indexes").unwrap_or_default().split(',');
    let indexes = names.map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned);
    let indexes = indexes.collect();
    begin(
        call,
        Work::RebuildIndexes {
            keyspace,
            table,
            indexes,
        },
    )
}

fn start_snapshot(call: &Call) -> Answer {
    begin(call, storage::snapshot(call)?)
}

fn classes(call: &Call) -> Answer {
    let of_class = |class: ClassStatus| {
        json!({
            "class": class.class.name(),
            "workers": class.workers,
            "bytes_per_second": class.bytes_per_second,
            "running": class.running,
            "waiting": class.waiting,
            "done": class.counts.done,
            "failed": class.counts.failed,
            "aborted": class.counts.aborted,
            "bytes": class.counts.bytes,
        })
    };
    Ok(call.operator.tasks().classes().into_iter().map(of_class).collect())
}

/// Changes the workers of a class, on one shard or on each, and its bytes per second. What is not given stays.
fn set_limits(call: &Call) -> Answer {
    let name = call.part();
    let names = || Class::ALL.map(Class::name).join(", ");
    let class = Class::of_name(name).ok_or_else(|| (400, format!("unknown class '{name}'; known are: {}", names())))?;
    let workers = number(call, "workers", u64::from(WORKERS_MAX))?;
    let bytes = number(call, "bytes_per_second", 1 << 60)?;
    let shards = u64::from(runtime::shard_count());
    let shard = number(call, "shard", shards - 1)?;
    if workers == Some(0) {
        return Err((400, "parameter workers: expected at least 1".to_owned()));
    }
    if workers.is_none() && (shard.is_some() || bytes.is_none()) {
        return Err((400, "expected workers, bytes_per_second or both".to_owned()));
    }
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    if let Some(workers) = workers {
        call.operator
            .tasks()
            .set_workers(class, shard.map(small), small(workers));
    }
    if let Some(bytes) = bytes {
        call.operator.tasks().set_bytes_per_second(class, bytes);
    }
    Ok(Value::Null)
}

/// Aborts compactions, automatic and requested ones: of all tables, or of a keyspace and perhaps some `tables` of it.
fn stop_compactions(call: &Call) -> Answer {
    match call.parameter("type") {
        None | Some("COMPACTION") => {}
        Some(other) => {
            return Err((
                400,
                format!("parameter type: expected COMPACTION, got '{other}', which never runs here"),
            ));
        }
    }
    let keyspace = call.parts.first();
    if let Some(name) = keyspace {
        call.keyspace_named(name)?;
    }
    let tables = keyspace.and_then(|_| call.parameter("tables"));
    let tables: Option<Vec<&str>> = tables.map(|names| names.split(',').collect());
    call.operator.tasks().abort_all(|status| {
        status.kind.class == Class::Compaction
            && keyspace.is_none_or(|keyspace| *keyspace == status.keyspace)
            && tables
                .as_ref()
                .is_none_or(|tables| tables.contains(&status.table.as_str()))
    });
    Ok(Value::Null)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_that_was_not_reached_is_empty() {
        assert_eq!(when(0), "");
        assert_eq!(when(1_700_000_000_000_000), "2023-11-14T22:13:20Z");
    }
}
