//! Prints how long a node takes to see a version of the metadata: from nothing, and after another version, of a million
//! tablets of which one has made a step.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::Arc;

use coordinator::{ClusterView, Ring};
use schema::TableId;
use smallvec::SmallVec;
use topology::{
    HostId, Location, Node, NodeState, Replication, Stage, TabletChange, TabletEdit, TabletId, TabletMap, Topology,
    TopologyCommand, Transition, place_tablets,
};
use types::Token;
use uuid::Uuid;

const NODES: u8 = 100;
const TABLES: u32 = 1_024;
const TABLETS: u32 = 1_024;
const STEPS: u32 = 100;

fn main() -> Result<(), Box<dyn Error>> {
    let topology = Arc::new(topology()?);
    let replication = Replication::NetworkTopology([("dc1".to_owned(), 3.into())].into());
    let map = place_tablets(&topology, &replication, TABLETS)?;
    let tables: Vec<TableId> = (1..=TABLES)
        .map(|number| TableId(Uuid::from_u128(number.into())))
        .collect();
    let mut tablets: BTreeMap<_, _> = tables.iter().map(|table| (*table, Arc::new(map.clone()))).collect();
    let ring = Ring::at_rest(&topology);
    let view = |tablets: &BTreeMap<TableId, Arc<TabletMap>>, before: Option<&ClusterView>| {
        let keyspaces = [("ks", replication.clone(), tables.clone())].into_iter();
        ClusterView::with_ring(topology.clone(), host(0), keyspaces, (tablets, &ring), before)
    };
    println!("{NODES} nodes, {TABLES} tables, {} tablets", TABLES * TABLETS);
    let began = runtime::now();
    let mut seen = view(&tablets, None)?;
    println!("from nothing: {:.3} ms", began.elapsed().as_secs_f64() * 1e3);
    let began = runtime::now();
    for step in 0..STEPS {
        let table = tables[(step * 7 % TABLES) as usize];
        let mut map = TabletMap::clone(&tablets[&table]);
        begin_move(&mut map, TabletId(step))?;
        tablets.insert(table, Arc::new(map));
        seen = view(&tablets, Some(&seen))?;
    }
    let each = began.elapsed().as_secs_f64() * 1e3 / f64::from(STEPS);
    println!("behind a step of one tablet: {each:.3} ms");
    Ok(())
}

fn host(number: u8) -> HostId {
    HostId(Uuid::from_u128(number.into()))
}

fn topology() -> Result<Topology, Box<dyn Error>> {
    let mut topology = Topology::new("Example", Uuid::from_u128(1));
    for number in 0..NODES {
        let host_id = host(number);
        let node = Node {
            host_id,
            internode: ([127, 0, 0, number], 7000).into(),
            native: ([127, 0, 0, number], 9042).into(),
            native_shard_aware_port: None,
            location: Location {
                datacenter: "dc1".to_owned(),
                rack: format!("r{}", number % 3),
            },
            shards: 32,
            tokens: vec![Token(number.into())],
            state: NodeState::Joining,
            features: Default::default(),
            release: "example".to_owned(),
            loss: None,
        };
        topology.apply(&TopologyCommand::AddNode(Box::new(node)))?;
        let state = NodeState::Normal;
        topology.apply(&TopologyCommand::SetState { host_id, state })?;
    }
    Ok(topology)
}

/// The replicas of a tablet change places.
fn begin_move(map: &mut TabletMap, tablet: TabletId) -> Result<(), Box<dyn Error>> {
    let replicas = SmallVec::from_slice(map.tablet(tablet).ok_or("no such tablet")?.replicas);
    let version = map.version() + 1;
    let transition = Transition {
        stage: Stage::Streaming,
        next: replicas.iter().rev().copied().collect(),
        version,
        copied: SmallVec::new(),
    };
    let edit = TabletEdit {
        tablet,
        replicas,
        transition: Some(transition),
    };
    let change = TabletChange {
        from_version: map.version(),
        version,
        edits: vec![edit],
    };
    Ok(map.apply(&change)?)
}
