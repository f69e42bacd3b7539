//! Prints how long a balancing decision takes, what it decides, and the memory of the tablet maps and of the process.

use std::error::Error;
use std::fmt::Write;

use topology::{
    HostId, Limits, Load, Location, Node, NodeInput, NodeState, Options, Plan, Replication, Role, TableInput,
    TabletMap, Topology, TopologyCommand, place_tablets_beside, plan,
};
use uuid::Uuid;

const RACKS: u16 = 5;
const SHARDS: u16 = 32;
const GIB: u64 = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    for (nodes, tables, tablets) in [
        (100, 1, 1 << 17),
        (100, 128, 1 << 10),
        (1000, 1, 1 << 20),
        (1000, 128, 1 << 13),
    ] {
        measure(nodes, tables, tablets)?;
    }
    Ok(())
}

fn node(n: u16, state: NodeState) -> Node {
    let [high, low] = n.to_be_bytes();
    Node {
        host_id: HostId(Uuid::from_u128(u128::from(n))),
        internode: ([127, 0, high, low], 7000).into(),
        native: ([127, 0, high, low], 9042).into(),
        native_shard_aware_port: None,
        location: Location {
            datacenter: "dc1".to_owned(),
            rack: format!("r{}", n % RACKS),
        },
        shards: SHARDS,
        tokens: Vec::new(),
        state,
        features: Default::default(),
        release: "example".to_owned(),
        loss: None,
    }
}

fn add(topology: &mut Topology, n: u16) -> Result<(), Box<dyn Error>> {
    let node = node(n, NodeState::Joining);
    let host_id = node.host_id;
    topology.apply(&TopologyCommand::AddNode(Box::new(node)))?;
    let state = NodeState::Normal;
    topology.apply(&TopologyCommand::SetState { host_id, state })?;
    Ok(())
}

fn measure(nodes: u16, table_count: usize, tablets: u32) -> Result<(), Box<dyn Error>> {
    let total = table_count * tablets as usize;
    println!("{nodes} nodes in {RACKS} racks, {SHARDS} shards each; {table_count} tables, {total} tablets, 3 copies");
    let mut topology = Topology::new("Example", Uuid::from_u128(1));
    for n in 0..nodes {
        add(&mut topology, n)?;
    }
    let replication = Replication::NetworkTopology([("dc1".to_owned(), 3.into())].into());
    let mut load = Load::default();
    let mut maps: Vec<TabletMap> = Vec::new();
    for _ in 0..table_count {
        let map = place_tablets_beside(&topology, &replication, tablets, &load)?;
        load.add(&map);
        maps.push(map);
    }
    let bytes: usize = maps.iter().map(TabletMap::memory_bytes).sum();
    println!("  maps: {:.1} MB", bytes as f64 / 1e6);
    let sizes = vec![4 * GIB; tablets as usize];
    let rates = vec![200.0; tablets as usize];
    let tables: Vec<TableInput<'_>> = maps
        .iter()
        .map(|map| TableInput {
            map,
            replication: &replication,
            sizes: &sizes,
            load: &rates,
            tablet_count_min: 0,
            tablet_count_wanted: 0,
            tablet_count_max: u32::MAX,
            may_resize: true,
            conversion: None,
        })
        .collect();
    let mut inputs: Vec<NodeInput> = topology.numbered_nodes().map(|(number, _)| holder(number)).collect();
    decide("balanced", &topology, &inputs, &tables)?;
    inputs[0].role = Role::Drains;
    decide("a node drained", &topology, &inputs, &tables)?;
    inputs[0].role = Role::Lost;
    decide("a node lost", &topology, &inputs, &tables)?;
    inputs[0].role = Role::Holds;
    add(&mut topology, nodes)?;
    let numbers = topology.numbered_nodes().map(|(number, _)| number);
    inputs.extend(numbers.last().map(holder));
    decide("an empty node added", &topology, &inputs, &tables)?;
    inputs.pop();
    let more = Replication::NetworkTopology([("dc1".to_owned(), 4.into())].into());
    let tables: Vec<TableInput<'_>> = tables
        .iter()
        .map(|table| TableInput {
            replication: &more,
            ..*table
        })
        .collect();
    decide("a fourth copy of all", &topology, &inputs, &tables)
}

fn holder(number: topology::NodeNumber) -> NodeInput {
    NodeInput {
        number,
        role: Role::Holds,
        capacity_bytes: 0,
        used_bytes: 0,
        replaces: None,
    }
}

fn decide(
    what: &str,
    topology: &Topology,
    nodes: &[NodeInput],
    tables: &[TableInput<'_>],
) -> Result<(), Box<dyn Error>> {
    let mut line = String::new();
    for (name, limits) in [("all steps", Limits::NONE), ("limited", Limits::default())] {
        let started = runtime::now();
        let made: Plan = plan(topology, nodes, tables, &limits, &Options::default());
        let taken = runtime::now() - started;
        write!(
            line,
            "; {name}: {:.3} s, {} steps",
            taken.as_secs_f64(),
            made.steps.len()
        )?;
        if limits == Limits::NONE {
            let (before, after) = (made.bytes_before, made.bytes_after);
            write!(line, ", nodes off by {:.3} -> {:.3}", before.node, after.node)?;
            write!(line, ", shards {:.3} -> {:.3}", before.shard, after.shard)?;
            write!(line, ", {:.1} TB copied", made.copied_bytes as f64 / 1e12)?;
        }
    }
    println!("  {what}{line}; memory at most {} MB", peak_mb());
    Ok(())
}

/// The largest resident size of this process so far.
fn peak_mb() -> u64 {
    let status = runtime::fs::read("/proc/self/status").unwrap_or_default();
    let text = String::from_utf8_lossy(&status);
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    kib.unwrap_or(0) / 1024
}
