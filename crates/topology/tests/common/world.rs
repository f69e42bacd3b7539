//! A cluster on which plans are carried out at once, and what must hold for each step.

use std::collections::{BTreeMap, BTreeSet};

use topology::{
    Boundaries, Limits, NodeInput, NodeNumber, Options, Plan, Replica, ReplicaList, Replication, Role, Step,
    TableInput, TabletChange, TabletEdit, TabletId, TabletMap, Topology, Transition, plan,
};

#[derive(Clone)]
pub struct Table {
    pub replication: Replication,
    pub tablets: Vec<ReplicaList>,
    /// Tablets in transition.
    pub transitions: BTreeMap<u32, Transition>,
    pub sizes: Vec<u64>,
    pub load: Vec<f32>,
    pub tablet_count_min: u32,
    pub tablet_count_wanted: u32,
    pub tablet_count_max: u32,
    pub may_resize: bool,
}

pub struct World {
    pub topology: Topology,
    pub nodes: Vec<NodeInput>,
    pub tables: Vec<Table>,
    pub limits: Limits,
    pub options: Options,
    /// Where copies have left by moves of holders, which is where they must not come back to.
    left: BTreeSet<(usize, TabletId, NodeNumber)>,
    pub moves: usize,
    pub returns: usize,
}

impl World {
    pub fn new(topology: Topology, nodes: Vec<NodeInput>, tables: Vec<Table>) -> Self {
        Self {
            topology,
            nodes,
            tables,
            limits: Limits::NONE,
            options: Options::default(),
            left: BTreeSet::new(),
            moves: 0,
            returns: 0,
        }
    }

    pub fn plan(&self) -> Plan {
        let maps: Vec<TabletMap> = self.tables.iter().map(Table::map).collect();
        let inputs: Vec<TableInput<'_>> = self
            .tables
            .iter()
            .zip(&maps)
            .map(|(table, map)| TableInput {
                map,
                replication: &table.replication,
                sizes: &table.sizes,
                load: &table.load,
                tablet_count_min: table.tablet_count_min,
                tablet_count_wanted: table.tablet_count_wanted,
                tablet_count_max: table.tablet_count_max,
                may_resize: table.may_resize,
                conversion: None,
            })
            .collect();
        let made = plan(&self.topology, &self.nodes, &inputs, &self.limits, &self.options);
        let again = plan(&self.topology, &self.nodes, &inputs, &self.limits, &self.options);
        assert_eq!(made, again, "the same input gives another plan");
        made
    }

    pub fn role(&self, node: NodeNumber) -> Role {
        let found = self.nodes.iter().find(|n| n.number == node);
        found.map_or(Role::Down, |n| n.role)
    }

    pub fn location(&self, node: NodeNumber) -> (&str, &str) {
        let location = &self.topology.numbered(node).expect("a node of the topology").location;
        (&location.datacenter, &location.rack)
    }

    fn racks(&self, replicas: &[Replica]) -> usize {
        let racks: BTreeSet<_> = replicas.iter().map(|r| self.location(r.node)).collect();
        racks.len()
    }

    /// Carries a plan out, and checks each step.
    pub fn apply(&mut self, plan: &Plan) {
        let mut touched = BTreeSet::new();
        let mut received: BTreeMap<NodeNumber, u32> = BTreeMap::new();
        for step in &plan.steps {
            if let Step::Resize { table, tablet_count } = step {
                assert!(
                    touched.iter().all(|(t, _)| t != table),
                    "{step:?} beside steps of its tablets"
                );
                self.tables[*table].resize(*tablet_count);
                self.left.retain(|(t, _, _)| t != table);
                continue;
            }
            let (table, tablet) = target(step);
            assert!(touched.insert((table, tablet)), "a second step of a tablet: {step:?}");
            if let Step::Move { to, .. } | Step::Add { to, .. } | Step::Replace { to, .. } = step {
                *received.entry(to.node).or_default() += 1;
            }
            let before = self.tables[table].tablets[tablet.0 as usize].clone();
            let after = self.step(step, &before);
            let nodes: BTreeSet<_> = after.iter().map(|r| r.node).collect();
            assert_eq!(nodes.len(), after.len(), "two replicas on a node: {step:?}");
            let live = |replicas: &[Replica]| {
                let is_live = |r: &&Replica| !matches!(self.role(r.node), Role::Lost | Role::Down);
                replicas.iter().filter(is_live).count()
            };
            assert!(live(&after) > 0 || live(&before) == 0, "no live copy is left: {step:?}");
            for replica in after.iter().filter(|r| !before.contains(r)) {
                let shards = self.topology.numbered(replica.node).expect("it exists").shards;
                assert!(replica.shard < shards, "{step:?}: no such shard");
            }
            self.tables[table].tablets[tablet.0 as usize] = after;
        }
        let most = received.values().max().copied().unwrap_or(0);
        assert!(most <= self.limits.per_node_in, "a node receives {most}");
        assert!(plan.steps.len() <= self.limits.total as usize);
    }

    fn step(&mut self, step: &Step, before: &[Replica]) -> ReplicaList {
        let has = |node: NodeNumber| before.iter().any(|r| r.node == node);
        let without = |gone: &Replica| -> ReplicaList {
            assert!(before.contains(gone), "{step:?}: no such copy in {before:?}");
            before.iter().filter(|r| *r != gone).copied().collect()
        };
        let receives = |to: &Replica| {
            assert_eq!(self.role(to.node), Role::Holds, "{step:?}");
            assert!(!has(to.node), "{step:?}: it has a copy");
        };
        match step {
            Step::Move {
                from,
                to,
                table,
                tablet,
            } => {
                receives(to);
                let mut after = without(from);
                after.push(*to);
                assert!(matches!(self.role(from.node), Role::Holds | Role::Drains), "{step:?}");
                let counts_datacenters = matches!(self.tables[*table].replication, Replication::NetworkTopology(_));
                if self.role(from.node) == Role::Holds || counts_datacenters {
                    let (source, target) = (self.location(from.node).0, self.location(to.node).0);
                    assert_eq!(source, target, "{step:?}");
                }
                if self.role(from.node) == Role::Holds {
                    assert!(self.racks(&after) >= self.racks(before), "fewer racks: {step:?}");
                    self.left.insert((*table, *tablet, from.node));
                }
                self.moves += 1;
                self.returns += usize::from(self.left.contains(&(*table, *tablet, to.node)));
                after
            }
            Step::Shard { node, from, to, .. } => {
                let (gone, come) = (
                    Replica {
                        node: *node,
                        shard: *from,
                    },
                    Replica {
                        node: *node,
                        shard: *to,
                    },
                );
                assert_eq!(self.role(*node), Role::Holds, "{step:?}");
                let mut after = without(&gone);
                after.push(come);
                after
            }
            Step::Add { to, .. } => {
                receives(to);
                before.iter().copied().chain([*to]).collect()
            }
            Step::Remove { from, .. } => {
                assert_ne!(self.role(from.node), Role::Down, "{step:?}");
                without(from)
            }
            Step::Replace { lost, to, .. } => {
                receives(to);
                assert_eq!(self.role(lost.node), Role::Lost, "{step:?}");
                let mut after = without(lost);
                after.push(*to);
                after
            }
            Step::Resize { .. } => unreachable!("it is of no tablet"),
        }
    }

    /// Plans and applies until a plan is empty; returns the plans.
    pub fn settle(&mut self, rounds_max: usize) -> Vec<Plan> {
        let mut plans = Vec::new();
        loop {
            let made = self.plan();
            let is_done = made.steps.is_empty();
            self.apply(&made);
            plans.push(made);
            if is_done {
                return plans;
            }
            assert!(
                plans.len() <= rounds_max,
                "no end after {rounds_max} plans: {:?}",
                &plans[plans.len() - 3..]
            );
        }
    }

    /// The weight on each node: bytes, and 1 MiB for each tablet.
    pub fn weights(&self) -> BTreeMap<NodeNumber, f64> {
        let mut weights: BTreeMap<NodeNumber, f64> = self.nodes.iter().map(|n| (n.number, 0.0)).collect();
        for table in &self.tables {
            for (tablet, size) in table.tablets.iter().zip(&table.sizes) {
                for replica in tablet {
                    *weights.entry(replica.node).or_default() += (*size + (1 << 20)) as f64;
                }
            }
        }
        weights
    }
}

fn target(step: &Step) -> (usize, TabletId) {
    match step {
        Step::Move { table, tablet, .. }
        | Step::Shard { table, tablet, .. }
        | Step::Add { table, tablet, .. }
        | Step::Remove { table, tablet, .. }
        | Step::Replace { table, tablet, .. } => (*table, *tablet),
        Step::Resize { table, .. } => (*table, TabletId(u32::MAX)),
    }
}

impl Table {
    pub fn map(&self) -> TabletMap {
        let log2 = u8::try_from(self.tablets.len().trailing_zeros()).expect("a power of two");
        let mut map = TabletMap::new(0, Boundaries::PowerOfTwo(log2), &self.tablets).expect("a map");
        let edit = |(tablet, transition): (&u32, &Transition)| TabletEdit {
            tablet: TabletId(*tablet),
            replicas: self.tablets[*tablet as usize].clone(),
            transition: Some(transition.clone()),
        };
        let change = TabletChange {
            from_version: 0,
            version: 1,
            edits: self.transitions.iter().map(edit).collect(),
        };
        map.apply(&change).expect("of this map");
        map
    }

    fn resize(&mut self, count: u32) {
        let count = count as usize;
        assert!(self.transitions.is_empty(), "resized in transition");
        if count == self.tablets.len() * 2 {
            let twice = |at: usize| at / 2;
            self.tablets = (0..count).map(|at| self.tablets[twice(at)].clone()).collect();
            self.sizes = (0..count).map(|at| self.sizes[twice(at)] / 2).collect();
            self.load = (0..count)
                .map(|at| self.load.get(twice(at)).copied().unwrap_or(0.0) / 2.0)
                .collect();
            return;
        }
        assert_eq!(count * 2, self.tablets.len());
        for pair in self.tablets.chunks(2) {
            let sorted = |set: &ReplicaList| set.iter().copied().collect::<BTreeSet<_>>();
            assert_eq!(sorted(&pair[0]), sorted(&pair[1]), "a pair is not together");
        }
        self.tablets = self.tablets.iter().step_by(2).cloned().collect();
        self.sizes = self.sizes.chunks(2).map(|pair| pair.iter().sum()).collect();
        self.load = self.load.chunks(2).map(|pair| pair.iter().sum()).collect();
    }
}
