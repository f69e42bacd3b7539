//! Commands about the cluster and the node.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::client::{Client, pairs, string, strings};
use super::layout::{columns, size};
use super::operations::going_on;
use ::http::escape;

/// A member, as commands print it.
struct Line {
    address: String,
    host_id: String,
    datacenter: String,
    rack: String,
    state: &'static str,
    is_up: bool,
    is_excluded: bool,
    load: String,
}

impl Line {
    fn status(&self) -> char {
        match (self.is_excluded, self.is_up) {
            (true, _) => 'X',
            (false, true) => 'U',
            (false, false) => 'D',
        }
    }
}

async fn lines(client: &mut Client) -> Result<Vec<Line>, String> {
    let up: BTreeSet<String> = strings(&client.get("/gossiper/endpoint/live").await?)
        .into_iter()
        .collect();
    let joining = strings(&client.get("/storage_service/nodes/joining").await?);
    let leaving = strings(&client.get("/storage_service/nodes/leaving").await?);
    let excluded = strings(&client.get("/storage_service/nodes/excluded").await?);
    let loads: BTreeMap<String, Value> = pairs(&client.get("/storage_service/load_map").await?)
        .into_iter()
        .collect();
    let mut lines = Vec::new();
    for (address, host_id) in pairs(&client.get("/storage_service/host_id").await?) {
        let place = escape(&address);
        let datacenter = of_member(client, &format!("/snitch/datacenter?host={place}")).await?;
        let rack = of_member(client, &format!("/snitch/rack?host={place}")).await?;
        let (Some(datacenter), Some(rack)) = (datacenter, rack) else {
            continue;
        };
        lines.push(Line {
            host_id: string(&host_id).to_owned(),
            datacenter: string(&datacenter).to_owned(),
            rack: string(&rack).to_owned(),
            state: match () {
                () if joining.contains(&address) => "Joining",
                () if leaving.contains(&address) => "Leaving",
                () => "Normal",
            },
            is_up: up.contains(&address),
            is_excluded: excluded.contains(&address),
            // Only the node itself knows what it has.
            load: loads
                .get(&address)
                .and_then(Value::as_u64)
                .map_or_else(|| "?".to_owned(), size),
            address,
        });
    }
    Ok(lines)
}

/// What the node says of a member; None when that has left since it was listed.
async fn of_member(client: &mut Client, path: &str) -> Result<Option<Value>, String> {
    match client.answer("GET", path).await? {
        (200, value) => Ok(Some(value)),
        (400, _) => Ok(None),
        (status, _) => Err(format!("GET {path}: {status}")),
    }
}

/// Whose ranges are asked for: those of a table, of a keyspace, or of the ring.
#[derive(Clone, Copy)]
pub(super) struct Selected<'w> {
    keyspace: Option<&'w str>,
    table: Option<&'w str>,
}

impl<'w> Selected<'w> {
    /// By a keyspace and a table, both of which may be left out.
    pub(super) fn of(words: &[&'w str]) -> Self {
        Self {
            keyspace: words.first().copied(),
            table: words.get(1).copied(),
        }
    }

    /// A path that ends with the keyspace, and the table as a parameter.
    fn path(self, path: &str) -> String {
        let keyspace = self
            .keyspace
            .map_or_else(String::new, |name| format!("/{}", escape(name)));
        let table = self
            .table
            .map_or_else(String::new, |name| format!("?cf={}", escape(name)));
        format!("{path}{keyspace}{table}")
    }
}

/// What each member owns: of a table or a keyspace, if one is named.
async fn owned(client: &mut Client, of: Selected<'_>) -> Result<BTreeMap<String, f64>, String> {
    let path = of.path("/storage_service/ownership");
    let shares = pairs(&client.get(&path).await?).into_iter();
    Ok(shares
        .map(|(address, share)| (address, string(&share).parse().unwrap_or(0.0)))
        .collect())
}

fn percent(share: Option<&f64>) -> String {
    share.map_or_else(|| "?".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

fn by_datacenter(lines: &[Line]) -> BTreeMap<&str, Vec<&Line>> {
    let mut found: BTreeMap<&str, Vec<&Line>> = BTreeMap::new();
    for line in lines {
        found.entry(&line.datacenter).or_default().push(line);
    }
    found
}

/// The number of each member's tokens.
async fn token_counts(client: &mut Client, lines: &[Line]) -> Result<BTreeMap<String, usize>, String> {
    let mut counts = BTreeMap::new();
    for line in lines {
        let path = format!("/storage_service/tokens/{}", escape(&line.address));
        let tokens = of_member(client, &path).await?;
        counts.insert(line.address.clone(), tokens.map_or(0, |tokens| strings(&tokens).len()));
    }
    Ok(counts)
}

/// A second since 1970 as ISO 8601 has it.
pub(super) fn iso_second(second: u64) -> String {
    types::iso_seconds(i64::try_from(second).unwrap_or(i64::MAX))
}

pub(super) async fn status(client: &mut Client, of: Selected<'_>) -> Result<String, String> {
    let lines = lines(client).await?;
    let tokens = token_counts(client, &lines).await?;
    let owned = match of.keyspace {
        Some(_) => owned(client, of).await?,
        None => BTreeMap::new(),
    };
    let mut out = String::new();
    for (datacenter, members) in by_datacenter(&lines) {
        let title = format!("Datacenter: {datacenter}");
        let line = "=".repeat(title.chars().count());
        out.push_str(&format!(
            "{title}\n{line}\nStatus=Up/Down/eXcluded\n|/ State=Normal/Leaving/Joining/Moving\n"
        ));
        let owns = if of.keyspace.is_some() {
            "Owns (effective)"
        } else {
            "Owns"
        };
        let mut rows = vec![
            ["--", "Address", "Load", "Tokens", owns, "Host ID", "Rack"]
                .map(str::to_owned)
                .to_vec(),
        ];
        for member in members {
            rows.push(vec![
                format!("{}{}", member.status(), &member.state[..1]),
                member.address.clone(),
                member.load.clone(),
                tokens.get(&member.address).copied().unwrap_or(0).to_string(),
                percent(owned.get(&member.address)),
                member.host_id.clone(),
                member.rack.clone(),
            ]);
        }
        out.push_str(&columns(&rows));
        out.push('\n');
    }
    if of.keyspace.is_none() {
        out.push_str("Note: ownership is of a keyspace's replication; name a keyspace to see it.\n");
    }
    out.push_str(&going_on(&client.get("/ceto/operations").await?));
    // A node apart from its cluster cannot ask.
    if let Ok(told) = client.get("/storage_service/tablets/balancing").await {
        out.push_str(&lacks(&told));
    }
    let zero_token = strings(&client.get("/ceto/zero_token_nodes").await?);
    if !zero_token.is_empty() {
        out.push_str(&format!(
            "Note: these nodes own no data (join_ring: false): {}.\n",
            zero_token.join(", ")
        ));
    }
    let refusing = strings(&client.get("/ceto/refuse_writes").await?);
    if !refusing.is_empty() {
        out.push_str(&format!(
            "Note: these nodes take no writes, because their commitlogs refuse them: {}; their logs say why.\n",
            refusing.join(", ")
        ));
    }
    let disks = pairs(&client.get("/ceto/disks").await?);
    out.push_str(&full_disks(&disks));
    out.push_str(&differences(
        &client.get("/storage_service/metadata_differences").await?,
    ));
    Ok(out)
}

/// How many of what the cluster cannot give are lines of the status.
const LACKS_SHOWN: usize = 5;

/// Lines for what replications want and the cluster cannot give, as the leader of the metadata group says.
fn lacks(told: &Value) -> String {
    let all = strings(&told["lacks"]);
    let mut out = String::new();
    for lack in all.iter().take(LACKS_SHOWN) {
        out.push_str(&format!("Note: not where they should be: {lack}.\n"));
    }
    if all.len() > LACKS_SHOWN {
        let others = all.len() - LACKS_SHOWN;
        out.push_str(&format!(
            "Note: {others} more of these are shown by nodetool tabletbalancing.\n"
        ));
    }
    out
}

/// What the metric of that name says.
fn disk_level(level: u64) -> &'static str {
    match level {
        0 => "normal",
        1 => "warning: nearly full",
        _ => "critical: full, the node takes deletes and no data",
    }
}

/// A line for the nodes whose disks are full, and one for those whose disks are nearly full.
fn full_disks(disks: &[(String, Value)]) -> String {
    let line = |level: &str, what: &str| {
        let addresses: Vec<&str> = disks
            .iter()
            .filter(|(_, its)| its.as_str() == Some(level))
            .map(|(address, _)| address.as_str())
            .collect();
        if addresses.is_empty() {
            String::new()
        } else {
            format!("{what}: {}; see `ceto page full-disk`.\n", addresses.join(", "))
        }
    };
    let full = line(
        "critical",
        "Note: the disks of these nodes are full, and they take deletes and no data",
    );
    full + &line("warning", "Note: the disks of these nodes are nearly full")
}

/// A line for each member whose metadata differs from the node's, and the reason if the node takes no part in the
/// metadata group.
fn differences(told: &Value) -> String {
    let mut out = String::new();
    for member in told["members"].as_array().into_iter().flatten() {
        out.push_str(&format!(
            "Warning: the metadata of {} ({}) differs from this node's at index {}; see `ceto page metadata-differs`\n",
            string(&member["address"]),
            string(&member["host_id"]),
            member["index"]
        ));
    }
    if let Some(why) = told["withdrawn"].as_str() {
        out.push_str(&format!("Error: {why}\n"));
    }
    out
}

pub(super) async fn ring(client: &mut Client, of: Selected<'_>) -> Result<String, String> {
    let lines = lines(client).await?;
    let owned = owned(client, of).await?;
    // A table with tablets has ranges of its own, each with its first replica.
    let tokens = match (of.keyspace, of.table) {
        (Some(keyspace), Some(table)) => format!("?keyspace={}&cf={}", escape(keyspace), escape(table)),
        _ => String::new(),
    };
    let tokens = pairs(&client.get(&format!("/storage_service/tokens_endpoint{tokens}")).await?);
    let mut out = String::new();
    for (datacenter, members) in by_datacenter(&lines) {
        out.push_str(&format!("\nDatacenter: {datacenter}\n==========\n"));
        let header = ["Address", "Rack", "Status", "State", "Load", "Owns", "Token"];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        let of_member = |address: &str| members.iter().find(|member| member.address == address).copied();
        let here: Vec<(&String, &Line)> = tokens
            .iter()
            .filter_map(|(token, address)| Some((token, of_member(string(address))?)))
            .collect();
        if let Some((last, _)) = here.last() {
            let mut row = vec![String::new(); 6];
            row.push((*last).clone());
            rows.push(row);
        }
        for (token, member) in here {
            rows.push(vec![
                member.address.clone(),
                member.rack.clone(),
                if member.is_up { "Up" } else { "Down" }.to_owned(),
                member.state.to_owned(),
                member.load.clone(),
                percent(owned.get(&member.address)),
                token.clone(),
            ]);
        }
        out.push_str(&columns(&rows));
    }
    Ok(out)
}

pub(super) async fn describe_ring(client: &mut Client, of: Selected<'_>) -> Result<String, String> {
    let version = client.text("/storage_service/schema_version").await?;
    let ranges = client.get(&of.path("/storage_service/describe_ring")).await?;
    let mut out = format!("Schema Version:{version}\nTokenRange: \n");
    for range in ranges.as_array().map(Vec::as_slice).unwrap_or_default() {
        let details = range["endpoint_details"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let details: Vec<String> = details
            .iter()
            .map(|detail| {
                let [host, datacenter, rack] = ["host", "datacenter", "rack"].map(|name| string(&detail[name]));
                format!("EndpointDetails(host:{host}, datacenter:{datacenter}, rack:{rack})")
            })
            .collect();
        out.push_str(&format!(
            "\tTokenRange(start_token:{}, end_token:{}, endpoints:[{}], rpc_endpoints:[{}], endpoint_details:[{}])\n",
            string(&range["start_token"]),
            string(&range["end_token"]),
            strings(&range["endpoints"]).join(", "),
            strings(&range["rpc_endpoints"]).join(", "),
            details.join(", ")
        ));
    }
    Ok(out)
}

pub(super) async fn gossip_info(client: &mut Client) -> Result<String, String> {
    let endpoints = client.get("/failure_detector/endpoints").await?;
    let names: BTreeMap<u64, &str> = BTreeMap::from([
        (0, "STATUS"),
        (3, "SCHEMA"),
        (4, "DC"),
        (5, "RACK"),
        (6, "RELEASE_VERSION"),
        (9, "RPC_ADDRESS"),
        (13, "HOST_ID"),
        (14, "TOKENS"),
    ]);
    let mut out = String::new();
    for endpoint in endpoints.as_array().map(Vec::as_slice).unwrap_or_default() {
        out.push_str(&format!(
            "/{}\n  generation:{}\n  heartbeat:{}\n",
            string(&endpoint["addrs"]),
            endpoint["generation"],
            endpoint["version"]
        ));
        for state in endpoint["application_state"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let name = state["application_state"]
                .as_u64()
                .and_then(|number| names.get(&number));
            let value = match name {
                Some(&"TOKENS") => "<hidden>",
                _ => string(&state["value"]),
            };
            out.push_str(&format!("  {}:{}:{value}\n", name.unwrap_or(&"X"), state["version"]));
        }
    }
    Ok(out)
}

pub(super) async fn describe_cluster(client: &mut Client) -> Result<String, String> {
    let name = client.text("/storage_service/cluster_name").await?;
    let snitch = client.text("/snitch/name").await?;
    let partitioner = client.text("/storage_service/partitioner_name").await?;
    let mut out = format!(
        "Cluster Information:\n\tName: {name}\n\tSnitch: {snitch}\n\tDynamicEndPointSnitch: disabled\n\tPartitioner: {partitioner}\n\
         \tSchema versions:\n"
    );
    for (version, addresses) in pairs(&client.get("/storage_proxy/schema_versions").await?) {
        out.push_str(&format!("\t\t{version}: [{}]\n\n", strings(&addresses).join(", ")));
    }
    Ok(out)
}

pub(super) async fn confirm_clock(client: &mut Client) -> Result<String, String> {
    client.post("/ceto/clock/confirm").await?;
    Ok(String::new())
}

/// The clock in one line.
fn clock(clock: &Value) -> String {
    let seconds = clock["offset_seconds"].as_f64().unwrap_or(0.0);
    let direction = if seconds < 0.0 { "behind" } else { "ahead" };
    let (state, reason) = (string(&clock["state"]), string(&clock["reason"]));
    let reason = if reason.is_empty() {
        String::new()
    } else {
        format!(", {reason}")
    };
    format!("{state}{reason}, {:.1} s {direction}", seconds.abs())
}

pub(super) async fn info(client: &mut Client) -> Result<String, String> {
    let tokens = strings(&client.get("/storage_service/tokens").await?);
    let metrics = client.get("/metrics/all").await?;
    let metric = |name: &str| metrics[name].as_u64().unwrap_or(0);
    let megabytes = |bytes: u64| format!("{}.{:02}", bytes >> 20, ((bytes & 0xF_FFFF) * 100) >> 20);
    let rows = [
        ("ID", client.text("/storage_service/hostid/local").await?),
        (
            "Gossip active",
            client.get("/storage_service/gossiping").await?.to_string(),
        ),
        (
            "Native Transport active",
            client.get("/storage_service/native_transport").await?.to_string(),
        ),
        ("Load", size(client.number("/storage_service/load").await?)),
        ("Generation No", generation_of_self(client).await?),
        (
            "Uptime (seconds)",
            (client.number("/system/uptime_ms").await? / 1000).to_string(),
        ),
        (
            "Memtables (MB)",
            format!(
                "{} / {}",
                megabytes(metric("dirty_bytes")),
                megabytes(metric("dirty_bytes_max"))
            ),
        ),
        ("Commitlog (MB)", megabytes(metric("commitlog_bytes"))),
        ("Hints", hints_text(&metric)),
        (
            "Tombstones kept since",
            match metric("tombstones_held_since_seconds") {
                0 => "none beyond the grace period".to_owned(),
                second => format!("{} (nodetool listmissedwrites)", iso_second(second)),
            },
        ),
        ("Clock", clock(&client.get("/ceto/clock").await?)),
        ("Takes writes", (metric("takes_writes") == 1).to_string()),
        ("Disks", disk_level(metric("disk_level")).to_owned()),
        ("Data Center", client.text("/snitch/datacenter").await?),
        ("Rack", client.text("/snitch/rack").await?),
        ("Row Cache", format!("size {}", size(metric("row_cache_bytes")))),
        (
            "Chunk Cache",
            format!(
                "size {}, {} hits, {} misses",
                size(metric("chunk_cache_bytes")),
                metric("chunk_cache_hits_total"),
                metric("chunk_cache_misses_total")
            ),
        ),
        (
            "Token",
            match tokens.as_slice() {
                [token] => token.clone(),
                tokens => format!("({} tokens; see the command ring)", tokens.len()),
            },
        ),
    ];
    let lines = rows.into_iter().map(|(name, value)| format!("{name:<23}: {value}\n"));
    Ok(lines.collect())
}

fn hints_text(metric: &dyn Fn(&str) -> u64) -> String {
    format!(
        "{} written, {} replayed, {} dropped, {} expired, {} rejected, {} waiting",
        metric("hints_written_total"),
        metric("hints_replayed_total"),
        metric("hints_dropped_total"),
        metric("hints_expired_total"),
        metric("hints_rejected_total"),
        size(metric("hints_waiting_bytes"))
    )
}

async fn generation_of_self(client: &mut Client) -> Result<String, String> {
    let id = client.text("/storage_service/hostid/local").await?;
    let generation = client.number(&format!("/gossiper/generation_number/{id}")).await?;
    Ok(generation.to_string())
}

pub(super) async fn net_stats(client: &mut Client) -> Result<String, String> {
    let mode = client.text("/storage_service/operation_mode").await?;
    let metrics = client.get("/metrics/all").await?;
    let metric = |name: &str| metrics[name].as_u64().unwrap_or(0);
    let going_on = match going_on(&client.get("/ceto/operations").await?) {
        none if none.is_empty() => "Not sending any streams.\n".to_owned(),
        some => some,
    };
    let mut out = format!(
        "Mode: {mode}\n{going_on}Read Repair Statistics:\nAttempted: {}\nMismatch (Blocking): {}\nMismatch (Background): 0\n",
        metric("coordinator_repairs_total"),
        metric("coordinator_digest_mismatches_total")
    );
    let [pending, sent, dropped] =
        ["pending", "sent", "timeout"].map(|kind| format!("/messaging_service/messages/{kind}"));
    let pending = pairs(&client.get(&pending).await?);
    let sent: BTreeMap<String, Value> = pairs(&client.get(&sent).await?).into_iter().collect();
    let dropped: BTreeMap<String, Value> = pairs(&client.get(&dropped).await?).into_iter().collect();
    out.push_str(&format!(
        "{:<25}{:>10}{:>10}{:>15}{:>10}\n",
        "Messages to", "Active", "Pending", "Completed", "Dropped"
    ));
    for (address, pending) in pending {
        let of = |map: &BTreeMap<String, Value>| map.get(&address).and_then(Value::as_u64).unwrap_or(0);
        out.push_str(&format!(
            "{address:<25}{:>10}{:>10}{:>15}{:>10}\n",
            "n/a",
            pending.as_u64().unwrap_or(0),
            of(&sent),
            of(&dropped)
        ));
    }
    Ok(out)
}

pub(super) async fn version(client: &mut Client) -> Result<String, String> {
    let release = client.text("/storage_service/release_version").await?;
    Ok(format!("ReleaseVersion: {release}\n"))
}

pub(super) async fn proxy_histograms(client: &mut Client) -> Result<String, String> {
    let mut histograms = Vec::new();
    for kind in ["read", "write", "range", "cas_read", "cas_write"] {
        histograms.push(
            client
                .get(&format!("/storage_proxy/metrics/{kind}/latency/histogram"))
                .await?,
        );
    }
    let titles = [
        "Read Latency",
        "Write Latency",
        "Range Latency",
        "CAS Read Latency",
        "CAS Write Latency",
    ];
    let row = |name: &str, cells: Vec<String>| {
        let cells: String = cells.iter().map(|cell| format!("{cell:>19}")).collect();
        format!("{name:<10}{cells}\n")
    };
    let mut out = "proxy histograms\n".to_owned();
    out.push_str(&row("Percentile", titles.map(str::to_owned).to_vec()));
    out.push_str(&row("", vec!["(micros)".to_owned(); 5]));
    for (title, field) in [
        ("50%", "p50"),
        ("75%", "p75"),
        ("95%", "p95"),
        ("98%", "p98"),
        ("99%", "p99"),
        ("Min", "min"),
        ("Max", "max"),
    ] {
        let cells = histograms
            .iter()
            .map(|h| format!("{}.00", h[field].as_u64().unwrap_or(0)));
        out.push_str(&row(title, cells.collect()));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn members_that_differ_are_named_and_nothing_is_said_otherwise() {
        assert_eq!(differences(&json!({"withdrawn": null, "members": []})), "");
        let told = json!({
            "withdrawn": "the metadata of this node differs",
            "members": [{"host_id": "h", "address": "10.0.0.2", "index": 7}],
        });
        assert_eq!(
            differences(&told),
            "Warning: the metadata of 10.0.0.2 (h) differs from this node's at index 7; see `ceto page metadata-differs`\n\
             Error: the metadata of this node differs\n"
        );
    }
}
