//! Who is in the cluster and how they are: gossiper, failure detector, snitch, raft, and the part of storage_service about members and
//! tokens.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::operator::{Member, Range, State};

pub(super) const ROUTES: &[Route] = &[
    (
        "GET",
        "/storage_service/hostid/local",
        Now(|c| Ok(json!(c.operator.node().host_id.to_string()))),
    ),
    (
        "GET",
        "/storage_service/host_id/local",
        Now(|c| Ok(json!(c.operator.node().host_id.to_string()))),
    ),
    ("GET", "/storage_service/host_id", Now(host_ids)),
    (
        "GET",
        "/storage_service/cluster_name",
        Now(|c| Ok(json!(c.operator.node().cluster_name))),
    ),
    (
        "GET",
        "/storage_service/partitioner_name",
        Now(|_| Ok(json!("org.apache.cassandra.dht.Murmur3Partitioner"))),
    ),
    (
        "GET",
        "/storage_service/schema_version",
        Now(|c| Ok(json!(c.operator.node().schema_version.to_string()))),
    ),
    (
        "GET",
        "/storage_service/release_version",
        Now(|c| Ok(json!(c.operator.node().release))),
    ),
    (
        "GET",
        "/storage_service/scylla_release_version",
        Now(|c| Ok(json!(c.operator.node().version))),
    ),
    (
        "GET",
        "/storage_service/operation_mode",
        Now(|c| Ok(json!(c.operator.node().mode))),
    ),
    ("GET", "/storage_service/is_initialized", Now(|_| Ok(json!(true)))),
    ("GET", "/storage_service/is_starting", Now(|_| Ok(json!(false)))),
    (
        "GET",
        "/storage_service/native_transport",
        Now(|c| Ok(json!(c.operator.node().serves_cql))),
    ),
    ("GET", "/storage_service/rpc_server", Now(|_| Ok(json!(false)))),
    ("GET", "/storage_service/gossiping", Now(|_| Ok(json!(true)))),
    ("GET", "/storage_service/tokens", Now(tokens)),
    ("GET", "/storage_service/tokens/{endpoint}", Now(tokens)),
    ("GET", "/storage_service/token_endpoint", Now(token_endpoint)),
    ("GET", "/storage_service/tokens_endpoint", Now(token_endpoint)),
    (
        "GET",
        "/storage_service/nodes/joining",
        Now(|c| in_state(c, State::Joining)),
    ),
    (
        "GET",
        "/storage_service/nodes/leaving",
        Now(|c| in_state(c, State::Leaving)),
    ),
    ("GET", "/storage_service/nodes/moving", Now(|_| Ok(json!([])))),
    (
        "POST",
        "/storage_service/remove_node",
        Later(|c| Box::pin(remove_node(c))),
    ),
    (
        "GET",
        "/storage_service/metadata_differences",
        Now(metadata_differences),
    ),
    ("GET", "/storage_service/describe_ring/{keyspace}", Now(describe_ring)),
    (
        "GET",
        "/storage_service/range_to_endpoint_map/{keyspace}",
        Now(range_to_endpoint_map),
    ),
    (
        "GET",
        "/storage_service/natural_endpoints/{keyspace}",
        Now(natural_endpoints),
    ),
    ("GET", "/storage_service/ownership", Now(ownership)),
    ("GET", "/storage_service/ownership/{keyspace}", Now(ownership)),
    ("GET", "/gossiper/endpoint/live/", Now(|c| alive(c, true))),
    ("GET", "/gossiper/endpoint/down/", Now(|c| alive(c, false))),
    ("GET", "/gossiper/generation_number/{endpoint}", Now(generation)),
    ("GET", "/gossiper/heart_beat_version/{endpoint}", Now(heart_beat)),
    ("GET", "/failure_detector/endpoints/", Now(endpoints)),
    ("GET", "/failure_detector/simple_states", Now(simple_states)),
    ("GET", "/failure_detector/count/endpoint/up", Now(|c| count(c, true))),
    ("GET", "/failure_detector/count/endpoint/down", Now(|c| count(c, false))),
    ("GET", "/failure_detector/endpoint_phi_values", Now(|_| Ok(json!([])))),
    ("GET", "/snitch/name", Now(|c| Ok(json!(c.operator.node().snitch)))),
    ("GET", "/snitch/datacenter", Now(|c| Ok(json!(c.member()?.datacenter)))),
    ("GET", "/snitch/rack", Now(|c| Ok(json!(c.member()?.rack)))),
    ("GET", "/raft/leader_host", Now(leader)),
    ("GET", "/raft/status", Now(raft)),
    (
        "POST",
        "/raft/read_barrier",
        Later(|c| Box::pin(async move { c.operator.barrier().await.map(|()| Value::Null).map_err(failed) })),
    ),
    ("GET", "/storage_proxy/schema_versions", Now(schema_versions)),
];

fn address(member: &Member) -> String {
    member.address.to_string()
}

/// A map as the API has them: a list of pairs.
fn pairs(entries: impl Iterator<Item = (String, String)>) -> Answer {
    Ok(entries
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect())
}

fn host_ids(call: &Call) -> Answer {
    let members = call.operator.node().members;
    pairs(members.iter().map(|m| (address(m), m.host_id.to_string())))
}

fn tokens(call: &Call) -> Answer {
    let tokens = call.member()?.tokens;
    Ok(tokens.iter().map(|token| json!(token.to_string())).collect())
}

fn token_endpoint(call: &Call) -> Answer {
    if let Some(keyspace) = call.request.parameter("keyspace") {
        let ranges = ranges(call, keyspace)?;
        let node = call.operator.node();
        let first = |range: &Range| {
            range
                .replicas
                .first()
                .and_then(|id| node.member(&id.to_string()))
                .map(address)
        };
        return pairs(
            ranges
                .iter()
                .filter_map(|range| Some((range.end.to_string(), first(range)?))),
        );
    }
    let members = call.operator.node().members;
    let all = members
        .iter()
        .flat_map(|m| m.tokens.iter().map(move |token| (*token, address(m))));
    let all: BTreeMap<i64, String> = all.collect();
    pairs(all.into_iter().map(|(token, address)| (token.to_string(), address)))
}

/// Removes the member that the parameter `host_id` names.
async fn remove_node(call: &Call) -> Answer {
    let given = call
        .request
        .parameter("host_id")
        .ok_or_else(|| (400, "Missing mandatory parameter 'host_id'".to_owned()))?;
    let host_id =
        Uuid::try_parse(given.trim()).map_err(|_| (400, format!("host_id: expected a UUID, got '{given}'")))?;
    if call
        .request
        .parameter("ignore_nodes")
        .is_some_and(|nodes| !nodes.is_empty())
    {
        return Err((400, "ignore_nodes is not supported".to_owned()));
    }
    let removed = call.operator.remove_node(host_id).await;
    removed.map(|()| Value::Null).map_err(failed)
}

/// What is known of members whose metadata differs: why the node takes no part in the metadata group, and the members that differ from it.
fn metadata_differences(call: &Call) -> Answer {
    let node = call.operator.node();
    let differing = node.members.iter().filter_map(|member| {
        let index = member.differs_at?;
        Some(json!({
            "host_id": member.host_id.to_string(),
            "address": member.address.to_string(),
            "index": index,
        }))
    });
    Ok(json!({
        "withdrawn": node.raft.withdrawn,
        "members": differing.collect::<Vec<_>>(),
    }))
}

fn in_state(call: &Call, state: State) -> Answer {
    let members = call.operator.node().members;
    Ok(members
        .iter()
        .filter(|m| m.state == state)
        .map(|m| json!(address(m)))
        .collect())
}

/// The ranges of a keyspace, or of the table that the parameter `table` or `cf` names.
fn ranges(call: &Call, keyspace: &str) -> Result<Vec<Range>, (u16, String)> {
    let known = call.keyspace_named(keyspace)?;
    let table = call.request.parameter("table").or(call.request.parameter("cf"));
    if let Some(table) = table.filter(|table| !known.tables.iter().any(|t| t == table)) {
        return Err((400, format!("Can't find a table {table} in keyspace {keyspace}")));
    }
    Ok(call.operator.ring(keyspace, table).unwrap_or_default())
}

fn describe_ring(call: &Call) -> Answer {
    let node = call.operator.node();
    let described = ranges(call, call.part())?.into_iter().map(|range| {
        let members: Vec<&Member> = range
            .replicas
            .iter()
            .filter_map(|id| node.member(&id.to_string()))
            .collect();
        let details = members
            .iter()
            .map(|m| json!({"host": address(m), "datacenter": m.datacenter, "rack": m.rack}));
        json!({
            "start_token": range.start.to_string(),
            "end_token": range.end.to_string(),
            "endpoints": members.iter().map(|m| address(m)).collect::<Vec<_>>(),
            "rpc_endpoints": members.iter().map(|m| m.native.to_string()).collect::<Vec<_>>(),
            "endpoint_details": details.collect::<Vec<_>>(),
        })
    });
    Ok(described.collect())
}

fn range_to_endpoint_map(call: &Call) -> Answer {
    let node = call.operator.node();
    let mapped = ranges(call, call.part())?.into_iter().map(|range| {
        let members = range.replicas.iter().filter_map(|id| node.member(&id.to_string()));
        let addresses: Vec<String> = members.map(address).collect();
        json!({"key": [range.start.to_string(), range.end.to_string()], "value": addresses})
    });
    Ok(mapped.collect())
}

/// The replicas of a token, which the parameter `token` gives; keys are the client's to hash.
fn natural_endpoints(call: &Call) -> Answer {
    let token = call
        .request
        .parameter("token")
        .and_then(|token| token.parse::<i64>().ok());
    let token = token.ok_or((400, "parameter token: expected a whole number of 64 bits".to_owned()))?;
    let ranges = ranges(call, call.part())?;
    let node = call.operator.node();
    let inside = |range: &&Range| match range.start < range.end {
        true => range.start < token && token <= range.end,
        false => range.start < token || token <= range.end,
    };
    let replicas = ranges
        .iter()
        .find(inside)
        .map(|range| range.replicas.clone())
        .unwrap_or_default();
    let members = replicas.iter().filter_map(|id| node.member(&id.to_string()));
    Ok(members.map(|m| json!(address(m))).collect())
}

/// Which part of a keyspace's data each member has; without one, which part of the ring's tokens.
fn ownership(call: &Call) -> Answer {
    let node = call.operator.node();
    let mut shares: BTreeMap<String, f64> = node.members.iter().map(|m| (address(m), 0.0)).collect();
    let mut give = |member: Option<&Member>, share: f64| {
        if let Some(member) = member {
            *shares.entry(address(member)).or_default() += share;
        }
    };
    if call.parts.is_empty() {
        let all = node
            .members
            .iter()
            .flat_map(|m| m.tokens.iter().map(move |token| (*token, m)));
        let all: BTreeMap<i64, &Member> = all.collect();
        let mut start = all.keys().next_back().copied().unwrap_or(i64::MIN);
        for (end, member) in all {
            let replicas = Vec::new();
            give(Some(member), Range { start, end, replicas }.share());
            start = end;
        }
    } else {
        for range in ranges(call, call.part())? {
            range
                .replicas
                .iter()
                .for_each(|id| give(node.member(&id.to_string()), range.share()));
        }
    }
    Ok(shares
        .into_iter()
        .map(|(address, share)| json!({"key": address, "value": share.to_string()}))
        .collect())
}

fn alive(call: &Call, is_live: bool) -> Answer {
    let members = call.operator.node().members;
    Ok(members
        .iter()
        .filter(|m| m.is_live == is_live)
        .map(|m| json!(address(m)))
        .collect())
}

fn count(call: &Call, is_live: bool) -> Answer {
    let members = call.operator.node().members;
    Ok(json!(members.iter().filter(|m| m.is_live == is_live).count()))
}

/// There is no gossip whose generation others could tell: the node answers for itself.
fn generation(call: &Call) -> Answer {
    let (member, node) = (call.member()?, call.operator.node());
    Ok(json!(if member.host_id == node.host_id {
        node.started_s
    } else {
        0
    }))
}

fn heart_beat(call: &Call) -> Answer {
    let (member, node) = (call.member()?, call.operator.node());
    Ok(json!(if member.host_id == node.host_id {
        node.uptime_ms / 1000
    } else {
        0
    }))
}

fn endpoints(call: &Call) -> Answer {
    let node = call.operator.node();
    let described = node.members.iter().map(|m| {
        let is_self = m.host_id == node.host_id;
        let schema = m.schema_version.map(|version| version.to_string()).unwrap_or_default();
        let tokens: Vec<String> = m.tokens.iter().map(i64::to_string).collect();
        // Numbers of Cassandra's application states.
        let states = [
            (0, state_name(m.state).to_owned()),
            (3, schema),
            (4, m.datacenter.clone()),
            (5, m.rack.clone()),
            (6, node.release.clone()),
            (9, m.native.to_string()),
            (13, m.host_id.to_string()),
            (14, tokens.join(";")),
        ];
        let states = states.map(|(state, value)| json!({"application_state": state, "value": value, "version": 0}));
        json!({
            "addrs": address(m),
            "is_alive": m.is_live,
            "generation": if is_self { node.started_s } else { 0 },
            "version": if is_self { node.uptime_ms / 1000 } else { 0 },
            "update_time": 0,
            "application_state": states,
        })
    });
    Ok(described.collect())
}

fn state_name(state: State) -> &'static str {
    match state {
        State::Joining => "BOOT",
        State::Normal => "NORMAL",
        State::Leaving => "LEAVING",
    }
}

fn simple_states(call: &Call) -> Answer {
    let members = call.operator.node().members;
    pairs(
        members
            .iter()
            .map(|m| (address(m), if m.is_live { "UP" } else { "DOWN" }.to_owned())),
    )
}

fn leader(call: &Call) -> Answer {
    let leader = call.operator.node().raft.leader;
    Ok(json!(
        leader.map_or_else(|| uuid::Uuid::nil().to_string(), |id| id.to_string())
    ))
}

fn raft(call: &Call) -> Answer {
    let raft = call.operator.node().raft;
    Ok(json!({
        "leader": raft.leader.map(|id| id.to_string()),
        "term": raft.term,
        "applied": raft.applied,
        "committed": raft.committed,
        "last": raft.last,
        "voters": raft.voters,
    }))
}

fn schema_versions(call: &Call) -> Answer {
    let mut versions: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for member in &call.operator.node().members {
        let version = match member.schema_version {
            Some(version) if member.is_live => version.to_string(),
            _ => "UNREACHABLE".to_owned(),
        };
        versions.entry(version).or_default().push(address(member));
    }
    let list: Vec<Value> = versions
        .into_iter()
        .map(|(version, addresses)| {
            let mut entry = Map::new();
            entry.insert("key".to_owned(), json!(version));
            entry.insert("value".to_owned(), json!(addresses));
            Value::Object(entry)
        })
        .collect();
    Ok(Value::Array(list))
}
