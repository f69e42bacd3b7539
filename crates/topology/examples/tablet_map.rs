//! Prints what a map of 131,072 tablets costs: memory, bytes encoded, and the time of a change of 1,000 tablets.

use std::error::Error;

use smallvec::SmallVec;
use topology::{
    HostId, Location, Node, NodeState, Replication, Stage, TabletChange, TabletEdit, TabletId, TabletMap, Topology,
    TopologyCommand, Transition, place_tablets,
};
use types::Token;
use uuid::Uuid;

const TABLETS: u32 = 1 << 17;
const EDITS: u32 = 1_000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut topology = Topology::new("Example", Uuid::from_u128(1));
    for n in 0..9_u8 {
        let host_id = HostId(Uuid::from_u128(u128::from(n)));
        let node = Node {
            host_id,
            internode: ([127, 0, 0, n], 7000).into(),
            native: ([127, 0, 0, n], 9042).into(),
            native_shard_aware_port: None,
            location: Location {
                datacenter: "dc1".to_owned(),
                rack: format!("r{}", n % 3),
            },
            shards: 32,
            tokens: Vec::new(),
            state: NodeState::Joining,
            features: Default::default(),
            release: "example".to_owned(),
            loss: None,
        };
        topology.apply(&TopologyCommand::AddNode(Box::new(node)))?;
        let state = NodeState::Normal;
        topology.apply(&TopologyCommand::SetState { host_id, state })?;
    }
    let replication = Replication::NetworkTopology([("dc1".to_owned(), 3.into())].into());
    let started = runtime::now();
    let mut map = place_tablets(&topology, &replication, TABLETS)?;
    println!("placing {TABLETS} tablets, 3 copies: {:?}", runtime::now() - started);
    println!("memory: {} bytes", map.memory_bytes());

    let encoded = map.encode();
    let started = runtime::now();
    let decoded = TabletMap::decode(&encoded)?;
    println!(
        "encoded: {} bytes, decoded in {:?}",
        encoded.len(),
        runtime::now() - started
    );
    assert_eq!(decoded, map);

    let edits = (0..EDITS).map(|n| {
        let tablet = TabletId(n * (TABLETS / EDITS));
        let replicas = SmallVec::from_slice(map.tablet(tablet).expect("a tablet of the map").replicas);
        let next = replicas.iter().rev().copied().collect();
        TabletEdit {
            tablet,
            replicas,
            transition: Some(Transition {
                stage: Stage::Streaming,
                next,
                version: 1,
                copied: SmallVec::new(),
            }),
        }
    });
    let change = TabletChange {
        from_version: 0,
        version: 1,
        edits: edits.collect(),
    };
    let bytes = change.encode();
    let reader = map.clone();
    let started = runtime::now();
    map.apply(&TabletChange::decode(&bytes)?)?;
    println!(
        "change of {EDITS} scattered tablets, {} bytes, decoded and applied: {:.3} ms",
        bytes.len(),
        (runtime::now() - started).as_secs_f64() * 1e3
    );
    println!("memory with {EDITS} transitions: {} bytes", map.memory_bytes());
    drop(reader);

    let rounds = 10_000_000_u32;
    let started = runtime::now();
    let mut sum = 0_u64;
    let mut token = 1_i64;
    for _ in 0..rounds {
        token = token.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        sum += u64::from(map.tablet_of(Token(token)).replicas[0].node.0);
    }
    println!(
        "lookup of a random token: {:?} (sum {sum})",
        (runtime::now() - started) / rounds
    );
    Ok(())
}
