//! Clusters and tablets as text, plans as text: the suites in tests/balance.
//!
//! A case begins with `plan`, and has limits and options as arguments: `in=`, `out=`, `shard=`, `total=`, `goal=`
//! (bytes), `load_min=`, `rounds=` (plans that are carried out one after the other; 1). The lines after it:
//!
//! - `node NAME DATACENTER RACK [shards=2] [role=drains] [capacity=10G] [used=1G] [replaces=NAME]`
//! - `table NAME CLASS [OPTION:VALUE…] [min=8]`, and after it a line for each tablet:
//!   `NAME/SHARD … [-> NAME/SHARD …] [=SIZE] [load=N]`,
//!   with an arrow for one in transition.
//!
//! The answer has the steps, what is unmet, and how far nodes are from their fair share of bytes and load, before and
//! after.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::common::world::{Table, World};
use crate::common::{Cluster, cluster};
use smallvec::SmallVec;
use testkit::Case;
use topology::{
    Deviation, Limits, NodeInput, NodeNumber, Options, Plan, Replica, ReplicaList, Replication, Role, Stage, Step,
    Transition,
};

fn bytes(text: &str) -> u64 {
    let (digits, unit) = match text.split_at(text.len() - 1) {
        (digits, "G") => (digits, 1 << 30),
        (digits, "M") => (digits, 1 << 20),
        _ => (text, 1),
    };
    digits.parse::<u64>().expect("a number of bytes") * unit
}

/// The value of `name=value` among the words.
fn value<'t>(words: &[&'t str], name: &str) -> Option<&'t str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn number(cluster: &Cluster, name: &str) -> NodeNumber {
    let at = cluster.names.iter().position(|n| n == name);
    NodeNumber(at.unwrap_or_else(|| panic!("node {name}")) as u16)
}

fn replica(cluster: &Cluster, text: &str) -> Replica {
    let (name, shard) = text.split_once('/').unwrap_or((text, "0"));
    Replica {
        node: number(cluster, name),
        shard: shard.parse().expect("a shard"),
    }
}

fn node_input(cluster: &Cluster, words: &[&str]) -> NodeInput {
    NodeInput {
        number: number(cluster, words[1]),
        role: match value(words, "role") {
            None => Role::Holds,
            Some("drains") => Role::Drains,
            Some("lost") => Role::Lost,
            Some("idle") => Role::Idle,
            Some("down") => Role::Down,
            Some(other) => panic!("role {other}"),
        },
        capacity_bytes: value(words, "capacity").map_or(0, bytes),
        used_bytes: value(words, "used").map_or(0, bytes),
        replaces: value(words, "replaces").map(|name| number(cluster, name)),
    }
}

fn table(cluster: &Cluster, words: &[&str]) -> Table {
    let class = ("class".to_owned(), words[2].to_owned());
    let options = words[3..].iter().filter_map(|word| word.split_once(':'));
    let options = options
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .chain([class]);
    let options: BTreeMap<String, String> = options.collect();
    let mut known = cluster.topology.datacenters();
    known.extend(options.keys().filter(|name| name.starts_with("dc")).map(String::as_str));
    Table {
        replication: Replication::parse(&options, &known).expect("a replication"),
        tablets: Vec::new(),
        transitions: BTreeMap::new(),
        sizes: Vec::new(),
        load: Vec::new(),
        tablet_count_min: value(words, "min").map_or(0, |n| n.parse().expect("a count")),
        tablet_count_wanted: value(words, "wanted").map_or(0, |n| n.parse().expect("a count")),
        tablet_count_max: value(words, "max").map_or(u32::MAX, |n| n.parse().expect("a count")),
        may_resize: value(words, "resize") != Some("no"),
    }
}

fn add_tablet(cluster: &Cluster, table: &mut Table, words: &[&str]) {
    let is_replica = |word: &&&str| !word.contains('=') && **word != "->";
    let mut sets = words.split(|word| *word == "->");
    let mut set = || -> Option<ReplicaList> {
        let words = sets.next()?.iter().filter(is_replica);
        Some(words.map(|word| replica(cluster, word)).collect())
    };
    let replicas = set().expect("replicas");
    if let Some(next) = set() {
        let transition = Transition {
            stage: Stage::Streaming,
            next,
            version: 1,
            copied: SmallVec::new(),
        };
        table.transitions.insert(table.tablets.len() as u32, transition);
    }
    table.tablets.push(replicas);
    table.sizes.push(value(words, "").map_or(1 << 30, bytes));
    table
        .load
        .push(value(words, "load").map_or(0.0, |n| n.parse().expect("a rate")));
}

/// Runs of tablets may be given once: `4 x a b c`.
fn world(case: &Case) -> (World, Cluster, Vec<String>) {
    let lines = || {
        case.input()
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
    };
    let nodes = lines().filter(|words| words[0] == "node").map(|words| {
        let known = words[1..]
            .iter()
            .filter(|w| !w.contains('=') || w.starts_with("shards="));
        known.copied().collect::<Vec<_>>().join(" ")
    });
    let cluster = cluster(&nodes.collect::<Vec<_>>().join("\n"));
    let (mut inputs, mut tables, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for words in lines() {
        match words[0] {
            "node" => inputs.push(node_input(&cluster, &words)),
            "table" => {
                names.push(words[1].to_owned());
                tables.push(table(&cluster, &words));
            }
            _ => {
                let (times, words) = match words.get(1) {
                    Some(&"x") => (words[0].parse().expect("a number of tablets"), &words[2..]),
                    _ => (1, &words[..]),
                };
                for _ in 0..times {
                    add_tablet(&cluster, tables.last_mut().expect("a table first"), words);
                }
            }
        }
    }
    let mut world = World::new(cluster.topology.clone(), inputs, tables);
    world.limits = Limits {
        per_node_in: case.number("in", u32::MAX),
        per_node_out: case.number("out", u32::MAX),
        per_node_shard_moves: case.number("shard", u32::MAX),
        total: case.number("total", u32::MAX),
    };
    world.options = Options {
        tablet_bytes_goal: case.argument("goal").map_or(0, bytes),
        load_min: case.number("load_min", 100.0),
        ..Options::default()
    };
    (world, cluster, names)
}

fn show(step: &Step, cluster: &Cluster, names: &[String]) -> String {
    let on = |r: &Replica| format!("{}/{}", cluster.name(r.node), r.shard);
    match step {
        Step::Move {
            table,
            tablet,
            from,
            to,
        } => {
            format!("move {} {}: {} -> {}", names[*table], tablet.0, on(from), on(to))
        }
        Step::Shard {
            table,
            tablet,
            node,
            from,
            to,
        } => format!(
            "shard {} {}: {}/{from} -> {to}",
            names[*table],
            tablet.0,
            cluster.name(*node)
        ),
        Step::Add { table, tablet, to } => format!("add {} {}: {}", names[*table], tablet.0, on(to)),
        Step::Remove { table, tablet, from } => format!("remove {} {}: {}", names[*table], tablet.0, on(from)),
        Step::Replace {
            table,
            tablet,
            lost,
            to,
        } => {
            format!("replace {} {}: {} by {}", names[*table], tablet.0, on(lost), on(to))
        }
        Step::Resize { table, tablet_count } => format!("resize {} to {tablet_count}", names[*table]),
    }
}

fn figures(name: &str, before: Deviation, after: Deviation) -> String {
    let percent = |d: Deviation| format!("{:.0} {:.0} {:.0}", d.rack * 100.0, d.node * 100.0, d.shard * 100.0);
    if before == Deviation::default() && after == before {
        return String::new();
    }
    format!(
        "{name} off by % (rack node shard): {} -> {}\n",
        percent(before),
        percent(after)
    )
}

fn answer(case: &Case) -> String {
    let (mut world, cluster, names) = world(case);
    let mut out = String::new();
    let rounds = case.number("rounds", 1);
    for round in 1..=rounds {
        let made: Plan = world.plan();
        if rounds > 1 {
            let _ = writeln!(out, "plan {round}");
        }
        for step in &made.steps {
            let _ = writeln!(out, "{}", show(step, &cluster, &names));
        }
        for unmet in &made.unmet {
            let _ = writeln!(out, "unmet {}: {unmet}", names[unmet.table]);
        }
        if made.deferred > 0 {
            let _ = writeln!(out, "deferred {}", made.deferred);
        }
        out += &figures("bytes", made.bytes_before, made.bytes_after);
        out += &figures("load", made.load_before, made.load_after);
        if made.steps.is_empty() {
            break;
        }
        world.apply(&made);
    }
    out
}

#[test]
fn copies_go_where_they_should_be() {
    testkit::run(testkit::path!("tests/balance/copies.txt"), answer);
}

#[test]
fn nodes_and_shards_get_their_fair_share() {
    testkit::run(testkit::path!("tests/balance/level.txt"), answer);
}

#[test]
fn tables_get_as_many_tablets_as_they_need() {
    testkit::run(testkit::path!("tests/balance/resize.txt"), answer);
}
