//! Commands that switch something in a node, or look something up in it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::client::{Client, string, strings};
use super::layout::columns;
use super::words::Given;
use ::http::escape;

pub(super) async fn drain(client: &mut Client) -> Result<String, String> {
    client.post("/storage_service/drain").await?;
    Ok(String::new())
}

pub(super) async fn set_binary(client: &mut Client, is_enabled: bool) -> Result<String, String> {
    let path = "/storage_service/native_transport";
    if is_enabled {
        client.post(path).await?
    } else {
        client.delete(path).await?
    }
    Ok(String::new())
}

/// Whether something runs, as Cassandra's tool says it.
pub(super) async fn status(client: &mut Client, path: &str) -> Result<String, String> {
    let is_running = client.get(path).await? == Value::Bool(true);
    Ok(if is_running { "running\n" } else { "not running\n" }.to_owned())
}

/// All keyspaces, or the one that is named.
async fn keyspaces(client: &mut Client, name: Option<&&str>) -> Result<Vec<String>, String> {
    match name {
        Some(name) => Ok(vec![(*name).to_owned()]),
        None => Ok(strings(&client.get("/storage_service/keyspaces").await?)),
    }
}

pub(super) async fn set_auto_compaction(
    client: &mut Client,
    names: &[&str],
    is_enabled: bool,
) -> Result<String, String> {
    let tables = names.get(1..).unwrap_or_default().join(",");
    for keyspace in keyspaces(client, names.first()).await? {
        let mut path = format!("/storage_service/auto_compaction/{}", escape(&keyspace));
        if !tables.is_empty() {
            path.push_str(&format!("?cf={}", escape(&tables)));
        }
        if is_enabled {
            client.post(&path).await?
        } else {
            client.delete(&path).await?
        }
    }
    Ok(String::new())
}

pub(super) async fn auto_compaction(client: &mut Client, names: &[&str]) -> Result<String, String> {
    let wanted = names.get(1..).unwrap_or_default();
    if let Some(keyspace) = names.first() {
        let known = strings(&client.get("/column_family/name").await?);
        let has = |table: &str| known.contains(&format!("{keyspace}:{table}"));
        if let Some(table) = wanted.iter().find(|table| !has(table)) {
            return Err(format!("Can't find a table {table} in keyspace {keyspace}"));
        }
    }
    let mut rows = vec![vec!["Table".to_owned(), "Automatic compaction".to_owned()]];
    for stats in client
        .get("/column_family/stats")
        .await?
        .as_array()
        .into_iter()
        .flatten()
    {
        let (keyspace, table) = (string(&stats["ks"]), string(&stats["cf"]));
        let is_meant =
            names.first().is_none_or(|name| *name == keyspace) && (wanted.is_empty() || wanted.contains(&table));
        if is_meant {
            let does = if stats["auto_compaction"] == Value::Bool(true) {
                "yes"
            } else {
                "no"
            };
            rows.push(vec![format!("{keyspace}.{table}"), does.to_owned()]);
        }
    }
    Ok(columns(&rows))
}

pub(super) async fn trace_probability(client: &mut Client) -> Result<String, String> {
    let probability = client.get("/storage_service/trace_probability").await?;
    Ok(format!("Current trace probability: {probability}\n"))
}

pub(super) async fn set_trace_probability(client: &mut Client, probability: &str) -> Result<String, String> {
    let path = format!("/storage_service/trace_probability?probability={}", escape(probability));
    client.post(&path).await?;
    Ok(String::new())
}

pub(super) async fn seeds(client: &mut Client) -> Result<String, String> {
    let seeds = strings(&client.get("/gossiper/seeds").await?);
    Ok(if seeds.is_empty() {
        "Seed node list does not contain any remote node IPs\n".to_owned()
    } else {
        format!(
            "Current list of seed node IPs, excluding the current node's IP: {}\n",
            seeds.join(" ")
        )
    })
}

pub(super) async fn endpoints(client: &mut Client, given: [&str; 3]) -> Result<String, String> {
    let [keyspace, table, key] = given.map(escape);
    let path = format!("/storage_service/natural_endpoints/{keyspace}?cf={table}&key={key}");
    Ok(lines(&strings(&client.get(&path).await?)))
}

pub(super) async fn sstables(client: &mut Client, given: [&str; 3]) -> Result<String, String> {
    let [keyspace, table, key] = given.map(escape);
    let path = format!("/column_family/sstables/by_key/{keyspace}:{table}?key={key}");
    Ok(lines(&strings(&client.get(&path).await?)))
}

fn lines(texts: &[String]) -> String {
    texts.iter().map(|text| format!("{text}\n")).collect()
}

/// A cell of a number; n/a where there is none.
fn count(value: &Value) -> String {
    value
        .as_u64()
        .map_or_else(|| "n/a".to_owned(), |number| number.to_string())
}

pub(super) async fn thread_pools(client: &mut Client) -> Result<String, String> {
    let told = client.get("/ceto/thread_pools").await?;
    let header = ["Pool Name", "Active", "Limit", "Pending", "Completed"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for pool in told["pools"].as_array().into_iter().flatten() {
        let numbers = ["active", "active_limit", "pending", "completed"].map(|field| count(&pool[field]));
        rows.push(
            std::iter::once(string(&pool["name"]).to_owned())
                .chain(numbers)
                .collect(),
        );
    }
    Ok(format!(
        "{}\nCalls to other nodes that timed out: {}\n",
        columns(&rows),
        count(&told["timed_out_calls"])
    ))
}

pub(super) async fn client_stats(client: &mut Client, words: &[&str]) -> Result<String, String> {
    let known = [("--all", "all", false), ("--by-protocol", "by-protocol", false)];
    let given = Given::parse(words, &known)?;
    if let Some(word) = given.words.first() {
        return Err(format!("unexpected argument {word}"));
    }
    let told = client.get("/ceto/clients").await?;
    let clients = told.as_array().map(Vec::as_slice).unwrap_or_default();
    if given.option("all").is_some() {
        return Ok(all_clients(clients));
    }
    if given.option("by-protocol").is_some() {
        return Ok(by_protocol(clients));
    }
    let mut by_user: BTreeMap<&str, usize> = BTreeMap::new();
    for client in clients {
        *by_user.entry(string(&client["user"])).or_default() += 1;
    }
    let mut rows = vec![vec!["User".to_owned(), "Connections".to_owned()]];
    rows.extend(
        by_user
            .into_iter()
            .map(|(user, count)| vec![user.to_owned(), count.to_string()]),
    );
    Ok(format!(
        "Total connected clients: {}\n\n{}",
        clients.len(),
        columns(&rows)
    ))
}

fn all_clients(clients: &[Value]) -> String {
    let header = [
        "Address",
        "SSL",
        "Cipher",
        "Protocol",
        "Version",
        "User",
        "Stage",
        "Shard",
        "Requests",
        "Driver-Name",
        "Driver-Version",
    ];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for client in clients {
        let text = |field: &str| client[field].as_str().unwrap_or("undefined").to_owned();
        rows.push(vec![
            format!("/{}:{}", string(&client["address"]), client["port"]),
            (!client["ssl_protocol"].is_null()).to_string(),
            text("ssl_cipher"),
            text("ssl_protocol"),
            count(&client["protocol_version"]),
            text("user"),
            text("stage"),
            count(&client["shard"]),
            count(&client["requests"]),
            text("driver_name"),
            text("driver_version"),
        ]);
    }
    format!("{}\nTotal connected clients: {}\n", columns(&rows), clients.len())
}

fn by_protocol(clients: &[Value]) -> String {
    let mut counts: BTreeMap<(u64, String), usize> = BTreeMap::new();
    for client in clients {
        let version = client["protocol_version"].as_u64().unwrap_or(0);
        *counts
            .entry((version, string(&client["address"]).to_owned()))
            .or_default() += 1;
    }
    let header = ["Protocol-Version", "IP-Address", "Connections"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for ((version, address), count) in counts {
        let version = if version == 0 {
            "n/a".to_owned()
        } else {
            format!("{version}/v{version}")
        };
        rows.push(vec![version, address, count.to_string()]);
    }
    format!("Clients by protocol version\n\n{}", columns(&rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn clients_are_counted_by_protocol_and_listed_with_what_they_said() {
        let client = |port: u16, version: Option<u8>| {
            json!({"address": "10.0.0.1", "port": port, "shard": 0, "user": "anonymous", "stage": "ready", "protocol_version": version,
                   "driver_name": null, "requests": 7, "ssl_protocol": null, "ssl_cipher": null})
        };
        let clients = [client(1, Some(4)), client(2, Some(4)), client(3, None)];
        let told = by_protocol(&clients);
        assert!(told.contains("4/v4") && told.contains("n/a"), "{told}");
        let told = all_clients(&clients[..1]);
        assert!(
            told.contains("/10.0.0.1:1") && told.contains("undefined") && told.ends_with("clients: 1\n"),
            "{told}"
        );
    }
}
