//! `system.topology`: the members of the cluster, the state of each, and the data movement of the cluster. Columns are
//! those in ScyllaDB's documentation; a value that is one for the whole cluster there is in each row here.

use std::collections::BTreeSet;
use std::rc::Rc;

use ::cluster::Metadata;
use system_tables::Builder;
use topology::{Node, NodeState, Stage};

use super::facts::of_operator;
use super::measured::{Cell, Row, add};
use crate::operator::AdminFacts;

const TOPOLOGY: &str = "topology (key text, host_id uuid, datacenter text, rack text, node_state text, topology_request text, \
     replaced_id uuid, cleanup_status text, shard_count int, num_tokens int, tokens set<text>, release_version text, \
     supported_features set<text>, enabled_features set<text>, version bigint, fence_version bigint, transition_state text, \
     tablet_balancing_enabled boolean, upgrade_state text, PRIMARY KEY (key, host_id))";

pub(super) fn register(tables: &mut Builder) {
    add(tables, "system", 1, TOPOLOGY, |_| Box::pin(rows()));
}

async fn rows() -> Vec<Row> {
    let known = of_operator(async |facts: Rc<AdminFacts>| facts.metadata()).await;
    let Some(metadata) = known.flatten() else {
        return Vec::new();
    };
    let nodes = metadata.topology.nodes().values();
    nodes.map(|node| row(&metadata, node)).collect()
}

/// What becomes of a node, in ScyllaDB's words.
fn state(node: &Node) -> &'static str {
    match (node.state, node.loss) {
        (NodeState::Joining, _) => "bootstrapping",
        (NodeState::Left, _) => "left",
        (_, Some(loss)) if loss.replaced_by.is_some() => "replacing",
        (_, Some(_)) => "removing",
        (NodeState::Leaving, None) => "decommissioning",
        (NodeState::Normal, None) => "normal",
    }
}

/// The movement of data in the cluster, in ScyllaDB's words; None while nothing moves.
fn transition(metadata: &Metadata) -> Option<&'static str> {
    match metadata.ring.as_ref().map(|ring| ring.stage) {
        Some(Stage::AllowWriteBothReadOld | Stage::WriteBothReadOld | Stage::Streaming | Stage::CleanupTarget) => {
            Some("write both read old")
        }
        Some(Stage::WriteBothReadNew | Stage::UseNew) => Some("write both read new"),
        None if metadata.moving().next().is_some() => Some("tablet migration"),
        None => None,
    }
}

fn row(metadata: &Metadata, node: &Node) -> Row {
    let topology = &metadata.topology;
    let request = match (node.state, node.loss) {
        (NodeState::Joining, _) => Some("join"),
        (NodeState::Leaving, None) => Some("leave"),
        _ => None,
    };
    let mut heirs = topology.nodes().values();
    let replaced = heirs.find(|other| other.state != NodeState::Left && other.is_replaced_by(node.host_id));
    let tokens = node.tokens.iter().map(|token| token.0.to_string()).collect();
    let set = |names: &BTreeSet<String>| Cell::Texts(names.iter().cloned().collect());
    let text = |text: Option<&str>| text.map_or(Cell::Null, Cell::text);
    vec![
        ("key", Cell::text("topology")),
        ("host_id", Cell::Uuid(node.host_id.0)),
        ("datacenter", Cell::text(&*node.location.datacenter)),
        ("rack", Cell::text(&*node.location.rack)),
        ("node_state", Cell::text(state(node))),
        ("topology_request", text(request)),
        (
            "replaced_id",
            replaced.map_or(Cell::Null, |node| Cell::Uuid(node.host_id.0)),
        ),
        // No operator has to clean up after a change.
        ("cleanup_status", Cell::text("clean")),
        ("shard_count", Cell::Int(i32::from(node.shards))),
        (
            "num_tokens",
            Cell::Int(i32::try_from(node.tokens.len()).unwrap_or(i32::MAX)),
        ),
        ("tokens", Cell::Texts(tokens)),
        ("release_version", Cell::text(&*node.release)),
        ("supported_features", set(&node.features)),
        ("enabled_features", set(topology.enabled_features())),
        ("version", Cell::count(metadata.index)),
        ("fence_version", Cell::count(metadata.fence)),
        ("transition_state", text(transition(metadata))),
        ("tablet_balancing_enabled", Cell::Boolean(metadata.is_balanced)),
        ("upgrade_state", Cell::text("done")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use topology::{HostId, Location, Loss};

    fn node(node_state: NodeState, loss: Option<Loss>) -> Node {
        Node {
            host_id: HostId(uuid::Uuid::from_u128(1)),
            internode: ([127, 0, 0, 1], 7000).into(),
            native: ([127, 0, 0, 1], 9042).into(),
            native_shard_aware_port: None,
            location: Location {
                datacenter: "dc1".to_owned(),
                rack: "rack1".to_owned(),
            },
            shards: 1,
            tokens: Vec::new(),
            state: node_state,
            features: BTreeSet::new(),
            release: "1".to_owned(),
            loss,
        }
    }

    #[test]
    fn what_becomes_of_a_node_has_a_word() {
        let gone = Some(Loss { replaced_by: None });
        let taken = Some(Loss {
            replaced_by: Some(HostId(uuid::Uuid::from_u128(2))),
        });
        let words = [
            (NodeState::Joining, None, "bootstrapping"),
            (NodeState::Normal, None, "normal"),
            (NodeState::Leaving, None, "decommissioning"),
            (NodeState::Leaving, gone, "removing"),
            (NodeState::Leaving, taken, "replacing"),
            (NodeState::Left, gone, "left"),
        ];
        for (node_state, loss, word) in words {
            assert_eq!(state(&node(node_state, loss)), word);
        }
    }
}
