//! The members of the cluster and their state: gossiper, failure detector, snitch, raft, and the part of
//! storage_service about members and tokens.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::Handler::{Later, Now};
use super::{Answer, Call, Route, failed};
use crate::operator::{Member, Range, State};

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/storage_service/hostid/local",
        "The node's host id",
        Now(|c| Ok(json!(c.operator.node().host_id.to_string()))),
    ),
    Route::get(
        "/storage_service/host_id/local",
        "The node's host id",
        Now(|c| Ok(json!(c.operator.node().host_id.to_string()))),
    ),
    Route::get(
        "/storage_service/host_id",
        "Address and host id of each member",
        Now(host_ids),
    ),
    Route::get(
        "/storage_service/cluster_name",
        "The cluster's name",
        Now(|c| Ok(json!(c.operator.node().cluster_name))),
    ),
    Route::get(
        "/storage_service/partitioner_name",
        "The partitioner's class",
        Now(|_| Ok(json!("org.apache.cassandra.dht.Murmur3Partitioner"))),
    ),
    Route::get(
        "/storage_service/schema_version",
        "The version of the schema that the node has",
        Now(|c| Ok(json!(c.operator.node().schema_version.to_string()))),
    ),
    Route::get(
        "/storage_service/release_version",
        "The release of Cassandra that the node is compatible with",
        Now(|c| Ok(json!(c.operator.node().release))),
    ),
    Route::get(
        "/storage_service/scylla_release_version",
        "The node's release of ceto",
        Now(|c| Ok(json!(c.operator.node().version))),
    ),
    Route::get(
        "/storage_service/operation_mode",
        "What the node does: JOINING, NORMAL, LEAVING, OUT_OF_SERVICE, DRAINING or DRAINED",
        Now(|c| Ok(json!(c.operator.node().mode))),
    ),
    Route::get(
        "/storage_service/is_initialized",
        "Whether the node has started: true",
        Now(|_| Ok(json!(true))),
    ),
    Route::get(
        "/storage_service/is_starting",
        "Whether the node is starting: false",
        Now(|_| Ok(json!(false))),
    ),
    Route::get(
        "/storage_service/native_transport",
        "Whether CQL clients are served",
        Now(|c| Ok(json!(c.operator.node().serves_cql))),
    ),
    Route::get(
        "/storage_service/rpc_server",
        "Whether Thrift clients are served: false",
        Now(|_| Ok(json!(false))),
    ),
    Route::get(
        "/storage_service/gossiping",
        "Whether the node exchanges liveness with the others: true",
        Now(|_| Ok(json!(true))),
    ),
    Route::get("/storage_service/tokens", "Tokens of a member", Now(tokens)).takes(&[
        ("host", "a member's address or host id; the node itself without it"),
        ("endpoint", "the same"),
    ]),
    Route::get("/storage_service/tokens/{endpoint}", "Tokens of a member", Now(tokens)),
    Route::get(
        "/storage_service/token_endpoint",
        "Each token and the address of its member",
        Now(token_endpoint),
    )
    .takes(&[
        (
            "keyspace",
            "last tokens of the keyspace's ranges with their first replicas instead",
        ),
        ("table", "of one of its tables"),
        ("cf", "the same"),
    ]),
    Route::get(
        "/storage_service/tokens_endpoint",
        "Each token and the address of its member",
        Now(token_endpoint),
    )
    .takes(&[
        (
            "keyspace",
            "last tokens of the keyspace's ranges with their first replicas instead",
        ),
        ("table", "of one of its tables"),
        ("cf", "the same"),
    ]),
    Route::get(
        "/storage_service/nodes/joining",
        "Addresses of members that join",
        Now(|c| in_state(c, State::Joining)),
    ),
    Route::get(
        "/storage_service/nodes/leaving",
        "Addresses of members that leave",
        Now(|c| in_state(c, State::Leaving)),
    ),
    Route::get(
        "/storage_service/nodes/moving",
        "Addresses of members that move to other tokens: none ever does",
        Now(|_| Ok(json!([]))),
    ),
    Route::get(
        "/storage_service/metadata_differences",
        "Members whose metadata differs from the node's",
        Now(metadata_differences),
    ),
    Route::get(
        "/storage_service/describe_ring/{keyspace}",
        "Token ranges of a keyspace with their replicas",
        Now(describe_ring),
    )
    .takes(&[("table", "one of its tables"), ("cf", "the same")]),
    Route::get(
        "/storage_service/range_to_endpoint_map/{keyspace}",
        "Token ranges of a keyspace and the addresses of their replicas",
        Now(range_to_endpoint_map),
    )
    .takes(&[("table", "one of its tables"), ("cf", "the same")]),
    Route::get(
        "/storage_service/natural_endpoints/{keyspace}",
        "Addresses of the replicas of a partition",
        Now(natural_endpoints),
    )
    .takes(&[
        ("table", "one of its tables"),
        ("cf", "the same"),
        (
            "key",
            "the partition key; values of several columns are separated by colons",
        ),
        ("token", "its token, instead of the key"),
    ]),
    Route::get(
        "/storage_service/ownership",
        "Share of the ring's tokens of each member",
        Now(ownership),
    ),
    Route::get(
        "/storage_service/ownership/{keyspace}",
        "Share of a keyspace's data of each member",
        Now(ownership),
    )
    .takes(&[("table", "one of its tables"), ("cf", "the same")]),
    Route::get(
        "/gossiper/endpoint/live/",
        "Addresses of members that answer",
        Now(|c| alive(c, true)),
    ),
    Route::get(
        "/gossiper/endpoint/down/",
        "Addresses of members that do not answer",
        Now(|c| alive(c, false)),
    ),
    Route::get(
        "/gossiper/generation_number/{endpoint}",
        "Second in which the node started; 0 for other members",
        Now(generation),
    ),
    Route::get(
        "/gossiper/heart_beat_version/{endpoint}",
        "Seconds that the node has run; 0 for other members",
        Now(heart_beat),
    ),
    Route::get(
        "/failure_detector/endpoints/",
        "What the node knows of each member",
        Now(endpoints),
    ),
    Route::get(
        "/failure_detector/simple_states",
        "UP or DOWN of each member",
        Now(simple_states),
    ),
    Route::get(
        "/failure_detector/count/endpoint/up",
        "Number of members that answer",
        Now(|c| count(c, true)),
    ),
    Route::get(
        "/failure_detector/count/endpoint/down",
        "Number of members that do not answer",
        Now(|c| count(c, false)),
    ),
    Route::get(
        "/failure_detector/endpoint_phi_values",
        "Phi values: none, the failure detector does not compute any",
        Now(|_| Ok(json!([]))),
    ),
    Route::get(
        "/snitch/name",
        "The snitch's class",
        Now(|c| Ok(json!(c.operator.node().snitch))),
    ),
    Route::get(
        "/snitch/datacenter",
        "Datacenter of a member",
        Now(|c| Ok(json!(c.member()?.datacenter))),
    )
    .takes(&[
        ("host", "a member's address or host id; the node itself without it"),
        ("endpoint", "the same"),
    ]),
    Route::get("/snitch/rack", "Rack of a member", Now(|c| Ok(json!(c.member()?.rack)))).takes(&[
        ("host", "a member's address or host id; the node itself without it"),
        ("endpoint", "the same"),
    ]),
    Route::get(
        "/raft/leader_host",
        "Host id of the leader of the metadata group",
        Now(leader),
    ),
    Route::get("/raft/status", "The node's part in the metadata group", Now(raft)),
    Route::post(
        "/raft/read_barrier",
        "Wait until the node has all metadata that was agreed on before",
        Later(|c| Box::pin(async move { c.operator.barrier().await.map(|()| Value::Null).map_err(failed) })),
    ),
    Route::get(
        "/storage_proxy/schema_versions",
        "Schema versions and the members that have them",
        Now(schema_versions),
    ),
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
    if let Some(keyspace) = call.parameter("keyspace") {
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

/// What is known of members whose metadata differs: why the node takes no part in the metadata group, and the members
/// that differ from it.
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
    let table = call.parameter("table").or_else(|| call.parameter("cf"));
    if let Some(table) = table.filter(|table| !known.tables.iter().any(|t| t == table)) {
        return Err((400, format!("Can't find a table {table} in keyspace {keyspace}")));
    }
    if table.is_none() && known.has_tablets && known.tables.len() > 1 {
        return Err((
            400,
            format!("keyspace {keyspace} has tablets, and each of its tables ranges of its own: name a table of it"),
        ));
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

/// The replicas of a partition, which the parameters name by `key` and `cf`, or by `token`.
fn natural_endpoints(call: &Call) -> Answer {
    let token = match (
        call.parameter("key"),
        call.parameter("cf").or_else(|| call.parameter("table")),
    ) {
        (Some(key), Some(table)) => {
            call.keyspace_named(call.part())?;
            let token = call.operator.token_of(call.part(), table, key);
            token.map_err(|reason| (400, reason))?
        }
        (Some(_), None) => return Err((400, "parameter cf: expected the key's table".to_owned())),
        (None, _) => {
            let token = call.parameter("token").and_then(|token| token.parse::<i64>().ok());
            token.ok_or((400, "parameter token: expected a whole number of 64 bits".to_owned()))?
        }
    };
    let ranges = ranges(call, call.part())?;
    let node = call.operator.node();
    let inside = |range: &&Range| {
        if range.start < range.end {
            range.start < token && token <= range.end
        } else {
            range.start < token || token <= range.end
        }
    };
    let replicas = ranges
        .iter()
        .find(inside)
        .map(|range| range.replicas.clone())
        .unwrap_or_default();
    let members = replicas.iter().filter_map(|id| node.member(&id.to_string()));
    Ok(members.map(|m| json!(address(m))).collect())
}

/// Which part of a table's data each member has, or of a keyspace's, whose tables count alike; without one, which part
/// of the ring's tokens.
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
        let known = call.keyspace_named(call.part())?;
        let has_all = call.parameter("table").or_else(|| call.parameter("cf")).is_none() && known.has_tablets;
        let all: Vec<Vec<Range>> = if has_all {
            let tables = known.tables.iter();
            tables
                .filter_map(|table| call.operator.ring(&known.name, Some(table)))
                .collect()
        } else {
            vec![ranges(call, call.part())?]
        };
        for range in all.iter().flatten() {
            let share = range.share() / all.len() as f64;
            range
                .replicas
                .iter()
                .for_each(|id| give(node.member(&id.to_string()), share));
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

/// There is no gossip, so no generation of other nodes: the node answers for itself.
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
