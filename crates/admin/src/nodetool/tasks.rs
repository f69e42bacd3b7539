//! Commands about tasks, and waiting for work with a progress bar.

use std::io::Write;

use serde_json::Value;

use super::client::{Client, string, strings};
use super::layout::{columns, size};
use super::words::Given;
use ::http::escape;

/// Exit codes of `tasks wait --quiet`.
const FAILED: u8 = 123;
const TIMED_OUT: u8 = 124;
const UNDETERMINED: u8 = 125;
/// What the API answers when a wait has timed out.
const TIMEOUT_STATUS: u16 = 408;
/// Characters of a progress bar.
const BAR_WIDTH: u64 = 40;
/// Seconds between two drawings of it.
const DRAW_SECONDS: u64 = 1;

pub(super) const USAGE: &str = "usage: ceto nodetool tasks list MODULE [--internal] [-ks KEYSPACE] [-t TABLE] [--interval SECONDS] [-i ITERATIONS] | tree [ID] | \
                     status ID | wait ID [-q] [--timeout SECONDS] | abort ID | modules | ttl [--set SECONDS] | user-ttl [--set SECONDS] | \
                     drain [--module MODULE] | limits [CLASS [--workers N] [--shard N] [--throughput MB]]";

/// What a command prints, and what it exits with.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Output {
    /// On standard output.
    pub text: String,
    /// 0 unless the command says how something ended.
    pub exit_code: u8,
}

impl From<String> for Output {
    fn from(text: String) -> Self {
        Self { text, exit_code: 0 }
    }
}

/// `tasks …`.
pub(super) async fn run(client: &mut Client, words: &[&str]) -> Result<Output, String> {
    let (command, words) = words.split_first().ok_or(USAGE)?;
    let given = Given::parse(
        words,
        &[
            ("--internal", "internal", false),
            ("-ks", "keyspace", true),
            ("--keyspace", "keyspace", true),
            ("-t", "table", true),
            ("--table", "table", true),
            ("--interval", "interval", true),
            ("-i", "iterations", true),
            ("--iterations", "iterations", true),
            ("-q", "quiet", false),
            ("--quiet", "quiet", false),
            ("--timeout", "timeout", true),
            ("--set", "set", true),
            ("--module", "module", true),
            ("--workers", "workers", true),
            ("--shard", "shard", true),
            ("--throughput", "throughput", true),
        ],
    )
    .map_err(|e| format!("{e}; {USAGE}"))?;
    let text = match (*command, given.words.as_slice()) {
        ("list", [module]) => list(client, module, &given).await,
        ("tree", []) => trees(client).await,
        ("tree", [id]) => tree(client, &[(*id).to_owned()]).await,
        ("status", [id]) => {
            let status = client.get(&format!("/task_manager/task_status/{}", escape(id))).await?;
            Ok(describe(&status))
        }
        ("wait", [id]) => return wait(client, id, &given).await,
        ("abort", [id]) => {
            client.post(&format!("/task_manager/abort_task/{}", escape(id))).await?;
            Ok(String::new())
        }
        ("modules", []) => Ok(strings(&client.get("/task_manager/list_modules").await?).join("\n") + "\n"),
        ("ttl", []) => time_to_live(client, "ttl", &given).await,
        ("user-ttl", []) => time_to_live(client, "user_ttl", &given).await,
        ("drain", []) => drain(client, given.option("module")).await,
        ("limits", []) => limits(client).await,
        ("limits", [class]) => set_limits(client, class, &given).await,
        _ => Err(USAGE.to_owned()),
    };
    text.map(Output::from)
}

/// `stop COMPACTION`.
pub(super) async fn stop(client: &mut Client, kind: &str) -> Result<String, String> {
    let path = format!("/compaction_manager/stop_compaction?type={}", escape(kind));
    client.post(&path).await?;
    Ok(String::new())
}

const LIST: &[&str] = &[
    "task_id",
    "type",
    "kind",
    "scope",
    "state",
    "sequence_number",
    "keyspace",
    "table",
    "entity",
];

async fn list(client: &mut Client, module: &str, given: &Given<'_>) -> Result<String, String> {
    let path = format!("/task_manager/list_module_tasks/{}", escape(module));
    let path = given.path(&path, &["internal", "keyspace", "table"]);
    let interval = given.seconds("interval")?;
    let iterations = given.seconds("iterations")?.unwrap_or(1).max(1);
    let mut out = String::new();
    for iteration in 0..iterations {
        if let Some(seconds) = interval.filter(|_| iteration > 0) {
            runtime::sleep(std::time::Duration::from_secs(seconds)).await;
        }
        let listed = client.get(&path).await?;
        if iteration > 0 {
            out.push('\n');
        }
        out.push_str(&table(LIST, listed.as_array().map(Vec::as_slice).unwrap_or_default()));
    }
    Ok(out)
}

/// A field as it is printed.
fn field(status: &Value, name: &str) -> String {
    match &status[name] {
        Value::String(text) => text.clone(),
        Value::Array(children) => {
            let told = children.iter().map(|child| {
                format!(
                    "{{task_id: {}, node: {} }}",
                    string(&child["task_id"]),
                    string(&child["node"])
                )
            });
            format!("[{}]", told.collect::<Vec<_>>().join(", "))
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn table(fields: &[&str], statuses: &[Value]) -> String {
    let mut rows = vec![fields.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    rows.extend(
        statuses
            .iter()
            .map(|status| fields.iter().map(|name| field(status, name)).collect()),
    );
    columns(&rows)
}

const STATUS: &[&str] = &[
    "id",
    "type",
    "kind",
    "scope",
    "state",
    "is_abortable",
    "start_time",
    "end_time",
    "error",
    "waits",
    "parent_id",
    "sequence_number",
    "shard",
    "keyspace",
    "table",
    "entity",
    "progress_units",
    "progress_total",
    "progress_completed",
    "children_ids",
];

fn describe(status: &Value) -> String {
    STATUS
        .iter()
        .map(|name| format!("{name} : {}\n", field(status, name)))
        .collect()
}

async fn trees(client: &mut Client) -> Result<String, String> {
    let mut roots = Vec::new();
    for module in strings(&client.get("/task_manager/list_modules").await?) {
        let listed = client
            .get(&format!("/task_manager/list_module_tasks/{}", escape(&module)))
            .await?;
        let listed = listed.as_array().map(Vec::as_slice).unwrap_or_default();
        roots.extend(listed.iter().map(|status| string(&status["task_id"]).to_owned()));
    }
    tree(client, &roots).await
}

async fn tree(client: &mut Client, roots: &[String]) -> Result<String, String> {
    let mut all = Vec::new();
    for root in roots {
        let told = client
            .get(&format!("/task_manager/task_status_recursive/{}", escape(root)))
            .await?;
        all.extend(told.as_array().cloned().unwrap_or_default());
    }
    Ok(table(STATUS, &all))
}

async fn wait(client: &mut Client, id: &str, given: &Given<'_>) -> Result<Output, String> {
    let is_quiet = given.option("quiet").is_some();
    let ended = end_of(client, id, given.seconds("timeout")?).await;
    match ended {
        Ok(Some(status)) if is_quiet => Ok(Output {
            text: String::new(),
            exit_code: if status["state"] == "done" { 0 } else { FAILED },
        }),
        Ok(Some(status)) => Ok(describe(&status).into()),
        Ok(None) if is_quiet => Ok(Output {
            text: String::new(),
            exit_code: TIMED_OUT,
        }),
        Ok(None) => Err(format!("task {id} has not ended in time")),
        Err(_) if is_quiet => Ok(Output {
            text: String::new(),
            exit_code: UNDETERMINED,
        }),
        Err(e) => Err(e),
    }
}

/// Waits until a task has ended, and returns its status. None when that takes longer than `timeout` seconds. In the
/// meantime a bar shows its progress, if a user looks.
async fn end_of(client: &mut Client, id: &str, timeout: Option<u64>) -> Result<Option<Value>, String> {
    let path = format!("/task_manager/wait_task/{}", escape(id));
    let mut left = timeout;
    let ended = loop {
        let step = match (left, client.shows_progress) {
            (left, false) => left,
            (Some(left), true) => Some(left.min(DRAW_SECONDS)),
            (None, true) => Some(DRAW_SECONDS),
        };
        let path = step.map_or_else(|| path.clone(), |seconds| format!("{path}?timeout={seconds}"));
        match client.answer("GET", &path).await? {
            (200, status) => break Ok(Some(status)),
            (TIMEOUT_STATUS, _) => {}
            (_, refused) => break Err(string(&refused["message"]).to_owned()),
        }
        left = left.map(|left| left.saturating_sub(step.unwrap_or(left)));
        if left == Some(0) {
            break Ok(None);
        }
        let status = client.get(&format!("/task_manager/task_status/{}", escape(id))).await?;
        show(&progress(&status));
    };
    if client.shows_progress {
        show("");
    }
    ended
}

/// A line instead of the one before.
fn show(line: &str) {
    let mut out = std::io::stdout();
    // A terminal that has gone misses nothing.
    let _ = write!(out, "\r\x1b[K{line}").and_then(|()| out.flush());
}

/// The progress of a task on one line, and what it waits for.
fn progress(status: &Value) -> String {
    match string(&status["waits"]) {
        "" => bar(status),
        waits => format!("{}; waits: {waits}", bar(status)),
    }
}

/// The progress of a task as a bar.
fn bar(status: &Value) -> String {
    let number = |name: &str| status[name].as_u64().unwrap_or(0);
    let (done, total) = (number("progress_completed"), number("progress_total"));
    let units = string(&status["progress_units"]);
    let amount = |n: u64| match units {
        "bytes" => size(n),
        units => format!("{n} {units}"),
    };
    let kind = string(&status["type"]);
    if total == 0 {
        return format!("{kind}: {} done", amount(done));
    }
    let part = |of: u64| u64::try_from(u128::from(done.min(total)) * u128::from(of) / u128::from(total)).unwrap_or(of);
    let filled = usize::try_from(part(BAR_WIDTH)).unwrap_or(0);
    let empty = usize::try_from(BAR_WIDTH).unwrap_or(0) - filled;
    format!(
        "{kind} [{}{}] {:>3}% of {}",
        "#".repeat(filled),
        ".".repeat(empty),
        part(100),
        amount(total)
    )
}

/// Does what `path` asks for and waits for it: with a progress bar if a user looks. `started` is the path that answers
/// with the task at once.
pub(super) async fn follow(client: &mut Client, path: &str, started: &str) -> Result<(), String> {
    if !client.shows_progress {
        return client.post(path).await;
    }
    begin_and_wait(client, started).await
}

/// Does what the path begins that answers with its task, and waits for it.
pub(super) async fn begin_and_wait(client: &mut Client, started: &str) -> Result<(), String> {
    let (status, answer) = client.answer("POST", started).await?;
    if status != 200 {
        return Err(string(&answer["message"]).to_owned());
    }
    let ended = end_of(client, string(&answer), None).await?.unwrap_or_default();
    match string(&ended["error"]) {
        "" => Ok(()),
        error => Err(error.to_owned()),
    }
}

async fn time_to_live(client: &mut Client, name: &str, given: &Given<'_>) -> Result<String, String> {
    let path = format!("/task_manager/{name}");
    match given.option("set") {
        Some(seconds) => {
            client.post(&format!("{path}?{name}={}", escape(seconds))).await?;
            Ok(String::new())
        }
        None => Ok(format!("Current {name}: {}\n", client.number(&path).await?)),
    }
}

async fn drain(client: &mut Client, module: Option<&str>) -> Result<String, String> {
    let modules = match module {
        Some(module) => vec![module.to_owned()],
        None => strings(&client.get("/task_manager/list_modules").await?),
    };
    for module in modules {
        client.post(&format!("/task_manager/drain/{}", escape(&module))).await?;
    }
    Ok(String::new())
}

async fn limits(client: &mut Client) -> Result<String, String> {
    let classes = client.get("/ceto/task_classes").await?;
    let header = [
        "class",
        "workers",
        "throughput",
        "running",
        "waiting",
        "done",
        "failed",
        "aborted",
        "bytes",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for class in classes.as_array().map(Vec::as_slice).unwrap_or_default() {
        let workers = class["workers"].as_array().map(Vec::as_slice).unwrap_or_default();
        let number = |name: &str| class[name].as_u64().unwrap_or(0);
        rows.push(vec![
            string(&class["class"]).to_owned(),
            workers.iter().map(Value::to_string).collect::<Vec<_>>().join(","),
            match number("bytes_per_second") {
                0 => "unlimited".to_owned(),
                bytes => format!("{}/s", size(bytes)),
            },
            number("running").to_string(),
            number("waiting").to_string(),
            number("done").to_string(),
            number("failed").to_string(),
            number("aborted").to_string(),
            size(number("bytes")),
        ]);
    }
    Ok(columns(&rows))
}

async fn set_limits(client: &mut Client, class: &str, given: &Given<'_>) -> Result<String, String> {
    let mut path = given.path(&format!("/ceto/task_classes/{}", escape(class)), &["workers", "shard"]);
    if let Some(mebibytes) = given.seconds("throughput")? {
        let separator = if path.contains('?') { '&' } else { '?' };
        path.push_str(&format!(
            "{separator}bytes_per_second={}",
            mebibytes.saturating_mul(1 << 20)
        ));
    }
    client.post(&path).await?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn options_become_parameters_of_the_path() {
        let known = &[("--internal", "internal", false), ("-ks", "keyspace", true)];
        let path = |words: &[&str]| Given::parse(words, known).map(|given| given.path("/p", &["internal", "keyspace"]));
        assert_eq!(path(&["m"]), Ok("/p".to_owned()));
        assert_eq!(
            path(&["m", "--internal", "-ks", "a b"]),
            Ok("/p?internal=true&keyspace=a%20b".to_owned())
        );
        assert_eq!(path(&["-ks"]), Err("-ks: expected a value".to_owned()));
        assert!(path(&["--set"]).is_err_and(|e| e.starts_with("unknown option --set")));
    }

    #[test]
    fn a_bar_shows_how_much_is_done() {
        let status = |done: u64, total: u64, units: &str| {
            bar(&json!({"type": "flush", "progress_completed": done, "progress_total": total, "progress_units": units}))
        };
        let half = format!("flush [{}{}]  50% of 8 tables", "#".repeat(20), ".".repeat(20));
        assert_eq!(status(4, 8, "tables"), half);
        assert!(status(8, 8, "tables").contains("100%"));
        assert!(status(9, 8, "tables").contains("100%"), "no bar is longer than itself");
        assert_eq!(
            status(3, 0, "tables"),
            "flush: 3 tables done",
            "nobody knows how much there is"
        );
    }

    #[test]
    fn what_a_task_waits_for_follows_its_bar() {
        let status = |waits: &str| json!({"type": "repair", "progress_completed": 3, "progress_total": 0, "progress_units": "ranges", "waits": waits});
        assert_eq!(progress(&status("")), "repair: 3 ranges done");
        assert_eq!(
            progress(&status("a disk is full")),
            "repair: 3 ranges done; waits: a disk is full"
        );
    }

    #[test]
    fn a_status_is_printed_field_by_field() {
        let status = json!({"id": "x", "error": "", "progress_total": 4, "children_ids": [{"task_id": "y", "node": "127.0.0.1"}]});
        let told = describe(&status);
        assert!(
            told.starts_with("id : x\n") && told.contains("progress_total : 4\n"),
            "{told}"
        );
        assert!(
            told.ends_with("children_ids : [{task_id: y, node: 127.0.0.1 }]\n"),
            "{told}"
        );
    }
}
