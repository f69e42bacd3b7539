//! Commands that change the members of the cluster.

use std::time::Duration;

use serde_json::Value;

use super::client::{Client, string, strings};
use super::layout::size;
use super::words::Given;
use ::http::escape;

/// Between two looks at what a command waits for.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);

/// Prints on standard error what the departure waits for, whenever that changes.
pub(super) async fn decommission(client: &mut Client) -> Result<String, String> {
    let own = client.get("/storage_service/hostid/local").await?;
    let mut watching = client.again().await?;
    drop(runtime::spawn(async move {
        let mut told = None;
        // The node ends when it has left, and the connection with it.
        while let Ok(operations) = watching.get("/ceto/operations").await {
            let waits = waits_of(&operations, "leave", string(&own));
            if waits != told {
                told = waits;
                if let Some(waits) = &told {
                    eprintln!("decommission waits: {waits}");
                }
            }
            runtime::sleep(LOOK_INTERVAL).await;
        }
    }));
    client.post("/storage_service/decommission").await?;
    Ok(String::new())
}

/// What an operation of a node waits for. `told` is what the API says.
fn waits_of(told: &Value, kind: &str, host_id: &str) -> Option<String> {
    let mut operations = told.as_array().into_iter().flatten();
    let found = operations.find(|operation| operation["kind"] == kind && operation["host_id"] == host_id);
    found?["waits"].as_str().map(str::to_owned)
}

pub(super) async fn stay(client: &mut Client) -> Result<String, String> {
    client.ask("DELETE", "/storage_service/decommission").await?;
    Ok("The node stays in the cluster\n".to_owned())
}

/// Takes the options of ScyllaDB's command, where the list of dead nodes may be attached by `=`.
pub(super) async fn remove_node(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let (host_id, ignored) = removal(words)?;
    let mut path = format!("/storage_service/remove_node?host_id={}", escape(host_id));
    if !ignored.is_empty() {
        path.push_str(&format!("&ignore_nodes={}", escape(&ignored)));
    }
    client.post(&path).await?;
    Ok(String::new())
}

/// The host id, and the dead nodes that are to be ignored, separated by commas.
fn removal<'w>(words: &[&'w str]) -> Result<(&'w str, String), String> {
    let (attached, words): (Vec<&str>, Vec<&str>) =
        words.iter().partition(|word| word.starts_with("--ignore-dead-nodes="));
    let given = Given::parse(&words, &[("--ignore-dead-nodes", "ignore_nodes", true)])?;
    let attached = attached
        .iter()
        .filter_map(|word| word.split_once('='))
        .map(|(_, nodes)| nodes);
    let ignored: Vec<&str> = attached.chain(given.option("ignore_nodes")).collect();
    match given.words.as_slice() {
        ["force"] => Err(
            "removenode: there is nothing to force: the removal continues until its copies are rebuilt; `removenode status` says what it waits for".to_owned(),
        ),
        [host_id] => Ok((host_id, ignored.join(","))),
        _ => Err("removenode: expected one HOST_ID".to_owned()),
    }
}

/// The removals and replacements in progress.
pub(super) async fn removals(client: &mut Client) -> Result<String, String> {
    let told = client.get("/ceto/operations").await?;
    let is_removal = |operation: &&Value| matches!(string(&operation["kind"]), "remove" | "replace");
    let removals: Vec<Value> = told
        .as_array()
        .into_iter()
        .flatten()
        .filter(is_removal)
        .cloned()
        .collect();
    Ok(if removals.is_empty() {
        "RemovalStatus: No removals in process\n".to_owned()
    } else {
        going_on(&Value::from(removals))
    })
}

/// A line for each operation of the cluster, and one for what it waits for. `told` is what the API says.
pub(super) fn going_on(told: &Value) -> String {
    let mut out = String::new();
    for operation in told.as_array().into_iter().flatten() {
        let subject = [&operation["address"], &operation["keyspace"]]
            .into_iter()
            .find_map(Value::as_str);
        let subject = subject.map_or_else(String::new, |subject| format!(" of {subject}"));
        let remaining = operation["remaining_seconds"].as_u64();
        let remaining = remaining.map_or_else(String::new, |seconds| format!(", about {seconds} s left"));
        out.push_str(&format!(
            "Operation {}{subject}: {}% done{remaining}; {} (task {})\n",
            string(&operation["kind"]),
            operation["percent"],
            string(&operation["stage"]),
            string(&operation["task_id"])
        ));
        if let Some(waits) = operation["waits"].as_str() {
            out.push_str(&format!("    waits: {waits}\n"));
        }
    }
    out
}

/// What `rebuild` takes.
pub(super) const REBUILD_USAGE: &str = "[--source-dc DATACENTER] [-ks KEYSPACE] [NAME]";

pub(super) async fn rebuild(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let words: Vec<&str> = words.iter().copied().filter(|word| *word != "--").collect();
    let given = Given::parse(
        &words,
        &[
            ("--source-dc", "source_dc", true),
            ("-ks", "kn", true),
            ("--keyspace", "kn", true),
        ],
    )?;
    let mut path = given.path("/storage_service/rebuild", &["source_dc", "kn"]);
    match given.words.as_slice() {
        [] => {}
        [name] => {
            // Cassandra's command has the datacenter there.
            let keyspaces = strings(&client.get("/storage_service/keyspaces").await?);
            let parameter = if keyspaces.iter().any(|keyspace| keyspace == name) {
                "kn"
            } else {
                "source_dc"
            };
            if given.option(parameter).is_some() {
                return Err(format!("usage: ceto nodetool rebuild {REBUILD_USAGE}"));
            }
            let mark = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{mark}{parameter}={}", escape(name)));
        }
        _ => return Err(format!("usage: ceto nodetool rebuild {REBUILD_USAGE}")),
    }
    let rebuilt = client.ask("POST", &path).await?;
    let count = |name: &str| rebuilt[name].as_u64().unwrap_or(0);
    Ok(match count("ranges") {
        0 => "There is nothing to rebuild: no range of these tables has a replica here and another elsewhere\n"
            .to_owned(),
        ranges => format!(
            "Copied {} in {ranges} ranges of {} tables\n",
            size(count("bytes")),
            count("tables")
        ),
    })
}

pub(super) async fn cleanup(client: &mut Client, words: &[&str]) -> Result<String, String> {
    // How many jobs Cassandra's command runs at once.
    let given = Given::parse(words, &[("-j", "jobs", true), ("--jobs", "jobs", true)])?;
    let mut path = "/storage_service/cleanup_all".to_owned();
    if let Some((keyspace, tables)) = given.words.split_first() {
        path.push_str(&format!("?kn={}", escape(keyspace)));
        if !tables.is_empty() {
            path.push_str(&format!("&cf={}", escape(&tables.join(","))));
        }
    }
    Ok(cleaned(&client.ask("POST", &path).await?))
}

/// What a cleanup reports of each table in which it found something, and how many it looked at.
fn cleaned(tables: &Value) -> String {
    let tables = tables.as_array().map(Vec::as_slice).unwrap_or_default();
    let mut out = String::new();
    for table in tables {
        let name = format!("{}.{}", string(&table["keyspace"]), string(&table["table"]));
        let count = |name: &str| table[name].as_u64().unwrap_or(0);
        if count("removed_bytes") > 0 {
            out.push_str(&format!(
                "{name}: removed {}, {} files that were set aside among it\n",
                size(count("removed_bytes")),
                count("unowned_files")
            ));
        }
        if table["skipped"].as_bool() == Some(true) {
            out.push_str(&format!(
                "{name}: nothing was removed, because the token ring goes to other owners at the moment; run cleanup again when it is at rest\n"
            ));
        }
    }
    out.push_str(&format!(
        "Checked {} tables for tokens that are not this node's\n",
        tables.len()
    ));
    out
}

pub(super) async fn exclude_nodes(client: &mut Client, hosts: &[&str]) -> Result<String, String> {
    let path = format!("/storage_service/exclude_node?hosts={}", escape(&hosts.join(",")));
    client.post(&path).await?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_is_told_with_how_far_it_is_and_what_it_waits_for() {
        let told = serde_json::json!([
            {"kind": "leave", "address": "10.0.0.3", "keyspace": null, "percent": 40, "remaining_seconds": 12, "stage": "6 tablets are on it",
             "task_id": "x", "waits": null},
            {"kind": "replication", "address": null, "keyspace": "ks", "percent": 0, "remaining_seconds": null, "stage": "s", "task_id": "y",
             "waits": "a node is down"},
        ]);
        assert_eq!(
            going_on(&told),
            "Operation leave of 10.0.0.3: 40% done, about 12 s left; 6 tablets are on it (task x)\n\
             Operation replication of ks: 0% done; s (task y)\n    waits: a node is down\n"
        );
        assert_eq!(going_on(&serde_json::json!([])), "");
    }

    #[test]
    fn a_cleanup_tells_what_it_removed_and_what_it_left() {
        let table = |name: &str, removed: u64, is_skipped: bool| serde_json::json!({"keyspace": "ks", "table": name, "removed_bytes": removed, "unowned_files": 1, "skipped": is_skipped});
        let told = cleaned(&Value::from(vec![
            table("a", 0, false),
            table("b", 2048, false),
            table("c", 0, true),
        ]));
        assert_eq!(
            told,
            "ks.b: removed 2 KiB, 1 files that were set aside among it\n\
             ks.c: nothing was removed, because the token ring goes to other owners at the moment; run cleanup again when it is at rest\n\
             Checked 3 tables for tokens that are not this node's\n"
        );
    }

    #[test]
    fn a_removal_names_one_node_and_any_that_it_ignores() {
        let given = |text: &str| {
            let words: Vec<&str> = text.split_whitespace().collect();
            removal(&words).map(|(host, ignored)| format!("{host} without {ignored}"))
        };
        assert_eq!(given("h"), Ok("h without ".to_owned()));
        for text in [
            "--ignore-dead-nodes a,b h",
            "h --ignore-dead-nodes a,b",
            "--ignore-dead-nodes=a,b h",
        ] {
            assert_eq!(given(text), Ok("h without a,b".to_owned()));
        }
        assert!(given("").is_err() && given("h i").is_err());
        assert!(given("--frobnicate h").is_err_and(|why| why.contains("--frobnicate")));
    }
}
