//! What a coordinator asks per request: how many answers, from which replicas, in which order.

use crate::common::{Cluster, cluster, host};
use smallvec::smallvec;
use topology::{
    Acks, Boundaries, Consistency, Counts, DiskLevel, Factors, Liveness, Locality, NodeNumber, Proximity, ReadTargets,
    Replica, ReplicaCounts, ReplicaList, Replication, Requirement, Stage, TabletChange, TabletEdit, TabletId,
    TabletMap, Transition, WriteTargets,
};
use types::Token;

const NODES: &str = "a1 dc1 r1
                     a2 dc1 r2
                     a3 dc1 r3
                     b1 dc2 r1
                     b2 dc2 r2
                     b3 dc2 r3";

fn level(name: &str) -> Consistency {
    Consistency::all()
        .find(|c| c.to_string() == name)
        .expect("a consistency level")
}

/// So many nodes of each datacenter.
fn counts(requirement: &Requirement, locality: &Locality, of: [u16; 2]) -> Counts {
    let mut counts = Counts::default();
    for (name, n) in ["dc1", "dc2"].into_iter().zip(of) {
        for node in 0..n {
            counts.add(requirement, NodeNumber(node), locality.datacenter_number(name));
        }
    }
    counts
}

fn datacenters(a: u16, b: u16) -> Replication {
    Replication::NetworkTopology([("dc1".to_owned(), a.into()), ("dc2".to_owned(), b.into())].into())
}

/// `required/alive`, with the datacenter where one lacks them; `ok` when enough are alive.
fn availability(locality: &Locality, requirement: &Requirement, live: [u16; 2]) -> String {
    match requirement.is_sufficient(&counts(requirement, locality, live)) {
        Ok(()) => "ok".to_owned(),
        Err(e) => {
            let place = e.datacenter.and_then(|d| locality.datacenter_name(d)).unwrap_or("all");
            format!("{}/{} {place}", e.required, e.alive)
        }
    }
}

#[test]
fn each_level_needs_the_replicas_that_cassandra_needs() {
    let cluster = cluster(NODES);
    let locality = Locality::new(&cluster.topology, host(1)).expect("a node");
    let everywhere = Replication::Everywhere;
    let simple = Replication::Simple { factor: 3 };
    // Level, copies, answers needed, alive in dc1 and dc2, verdict.
    type Case = (&'static str, Replication, u16, [u16; 2], &'static str);
    let table: &[Case] = &[
        ("ANY", datacenters(3, 3), 1, [0, 0], "ok"),
        ("ONE", datacenters(3, 3), 1, [0, 1], "ok"),
        ("ONE", datacenters(3, 3), 1, [0, 0], "1/0 all"),
        ("TWO", datacenters(3, 3), 2, [1, 0], "2/1 all"),
        ("THREE", datacenters(3, 3), 3, [1, 2], "ok"),
        ("QUORUM", datacenters(3, 3), 4, [1, 3], "ok"),
        ("QUORUM", datacenters(3, 3), 4, [0, 3], "4/3 all"),
        ("QUORUM", datacenters(3, 2), 3, [3, 0], "ok"),
        ("ALL", datacenters(3, 3), 6, [3, 2], "6/5 all"),
        ("LOCAL_ONE", datacenters(3, 3), 1, [0, 3], "1/0 dc1"),
        ("LOCAL_ONE", datacenters(3, 3), 1, [1, 0], "ok"),
        ("LOCAL_QUORUM", datacenters(3, 3), 2, [1, 3], "2/1 dc1"),
        ("LOCAL_QUORUM", datacenters(3, 3), 2, [2, 0], "ok"),
        ("LOCAL_QUORUM", datacenters(0, 3), 1, [0, 3], "1/0 dc1"),
        ("EACH_QUORUM", datacenters(3, 3), 4, [3, 1], "2/1 dc2"),
        ("EACH_QUORUM", datacenters(3, 3), 4, [2, 2], "ok"),
        ("EACH_QUORUM", datacenters(3, 0), 2, [2, 0], "ok"),
        ("SERIAL", datacenters(3, 3), 4, [3, 0], "4/3 all"),
        ("LOCAL_SERIAL", datacenters(3, 3), 2, [1, 3], "2/1 dc1"),
        // Where datacenters do not count.
        ("LOCAL_QUORUM", simple.clone(), 2, [0, 2], "ok"),
        ("EACH_QUORUM", simple.clone(), 2, [1, 0], "2/1 all"),
        ("LOCAL_ONE", simple.clone(), 1, [0, 1], "ok"),
        ("ALL", simple, 3, [1, 2], "ok"),
        ("QUORUM", everywhere.clone(), 4, [3, 0], "4/3 all"),
        ("ALL", everywhere, 6, [3, 3], "ok"),
        ("ALL", Replication::Local, 1, [1, 0], "ok"),
    ];
    for (name, replication, block_for, live, verdict) in table {
        let story = format!("{name} with {replication:?}, alive {live:?}");
        let factors = Factors::of(replication, &locality);
        let requirement = Requirement::of(level(name), &factors, locality.local_datacenter());
        assert_eq!(requirement.block_for(), *block_for, "{story}");
        assert_eq!(availability(&locality, &requirement, *live), *verdict, "{story}");
    }
}

#[test]
fn each_quorum_fails_while_a_datacenter_of_the_keyspace_has_no_node() {
    let cluster = cluster("a1 dc1 r1");
    let locality = Locality::new(&cluster.topology, host(1)).expect("a node");
    let factors = Factors::of(&datacenters(1, 1), &locality);
    let of = |name| Requirement::of(level(name), &factors, locality.local_datacenter());
    let live = counts(&of("ONE"), &locality, [1, 0]);
    assert!(of("EACH_QUORUM").is_sufficient(&live).is_err());
    let error = of("QUORUM").is_sufficient(&live).expect_err("one of two");
    assert_eq!(
        error.to_string(),
        "Cannot achieve consistency level for cl QUORUM. Requires 2, alive 1"
    );
    assert_eq!(of("LOCAL_QUORUM").is_sufficient(&live), Ok(()));
}

/// Answers in order: `1` or `2` for an ack of that datacenter, `x` or `y` for a failure of it. Each is followed by what
/// happened.
fn answers(level_name: &str, story: &str) -> String {
    let cluster = cluster(NODES);
    let locality = Locality::new(&cluster.topology, host(1)).expect("a node");
    let factors = Factors::of(&datacenters(3, 3), &locality);
    let requirement = Requirement::of(level(level_name), &factors, locality.local_datacenter());
    let possible = counts(&requirement, &locality, [3, 3]);
    let mut acks = Acks::new(requirement, possible);
    let [dc1, dc2] = ["dc1", "dc2"].map(|name| locality.datacenter_number(name));
    let mut shown = String::new();
    for answer in story.chars() {
        let happened = match answer {
            '1' if acks.ack(NodeNumber(0), dc1) => "done",
            '2' if acks.ack(NodeNumber(0), dc2) => "done",
            'x' if acks.fail(NodeNumber(0), dc1) => "hopeless",
            'y' if acks.fail(NodeNumber(0), dc2) => "hopeless",
            _ => "-",
        };
        shown = format!("{shown}{answer} {happened}, ");
    }
    format!("{shown}{} of {}", acks.received(), acks.requirement().block_for())
}

#[test]
fn answers_complete_a_request_once_or_doom_it() {
    let table = [
        ("ONE", "21", "2 done, 1 -, 2 of 1"),
        ("QUORUM", "2221", "2 -, 2 -, 2 -, 1 done, 4 of 4"),
        ("QUORUM", "xyx1", "x -, y -, x hopeless, 1 -, 1 of 4"),
        ("LOCAL_QUORUM", "22211", "2 -, 2 -, 2 -, 1 -, 1 done, 2 of 2"),
        ("LOCAL_QUORUM", "yyyxx", "y -, y -, y -, x -, x hopeless, 0 of 2"),
        ("EACH_QUORUM", "11122", "1 -, 1 -, 1 -, 2 -, 2 done, 5 of 4"),
        ("EACH_QUORUM", "xyy", "x -, y -, y hopeless, 0 of 4"),
        ("ALL", "11122x", "1 -, 1 -, 1 -, 2 -, 2 -, x hopeless, 5 of 6"),
    ];
    for (name, story, expected) in table {
        assert_eq!(answers(name, story), expected, "{name}");
    }
}

/// A write to a tablet that moves from the first set of nodes to the second. Nodes answer in the order of the names;
/// those with a `!` before them fail. Each is followed by what happened.
fn answers_in_a_move(level_name: &str, [read, other]: [&str; 2], story: &str) -> String {
    let cluster = cluster(NODES);
    let locality = Locality::new(&cluster.topology, host(1)).expect("a node");
    let factors = Factors::of(&datacenters(3, 3), &locality);
    let [read, other] = [read, other].map(|names| replicas(&cluster, names));
    let of = |replicas: &[Replica]| {
        let factors = factors.of_replicas(replicas, &locality);
        Requirement::of(level(level_name), &factors, locality.local_datacenter())
    };
    let requirement = of(&read).and(&read, of(&other), &other);
    let mut all = read.clone();
    all.extend(other.iter().filter(|replica| !read.contains(replica)).copied());
    let possible = requirement.count(all, &locality);
    let mut acks = Acks::new(requirement, possible);
    let mut shown = String::new();
    for word in story.split_whitespace() {
        let node = replicas(&cluster, word.trim_start_matches('!'))[0].node;
        let datacenter = locality.datacenter(node);
        let happened = match word.starts_with('!') {
            true if acks.fail(node, datacenter) => " hopeless",
            false if acks.ack(node, datacenter) => " done",
            _ => "",
        };
        shown = format!("{shown}{word}{happened}, ");
    }
    let (received, needed) = acks.tally();
    format!("{shown}{received} of {needed}")
}

#[test]
fn a_write_during_a_move_meets_its_level_in_both_sets_of_replicas() {
    let one_for_another = ["a1 a2 a3", "a1 a2 b1"];
    let table = [
        // Those that are in both sets count in both.
        ("QUORUM", one_for_another, "a1 a2", "a1, a2 done, 2 of 2"),
        ("QUORUM", one_for_another, "a1 a3 b1", "a1, a3, b1 done, 2 of 2"),
        ("QUORUM", one_for_another, "a1 a3", "a1, a3, 1 of 2"),
        ("QUORUM", one_for_another, "a1 b1", "a1, b1, 1 of 2"),
        ("QUORUM", one_for_another, "!a1 !b1", "!a1, !b1 hopeless, 0 of 2"),
        (
            "QUORUM",
            one_for_another,
            "!a3 !b1 a1 a2",
            "!a3, !b1, a1, a2 done, 2 of 2",
        ),
        ("ONE", one_for_another, "a3 b1", "a3, b1 done, 1 of 1"),
        ("ONE", one_for_another, "a2", "a2 done, 1 of 1"),
        ("ALL", one_for_another, "a1 a2 a3 b1", "a1, a2, a3, b1 done, 3 of 3"),
        ("LOCAL_QUORUM", one_for_another, "b1 a1 a3", "b1, a1, a3, 1 of 2"),
        // Three become two: one write on a2 and a3 would be on one of two then.
        ("QUORUM", ["a1 a2 a3", "a1 a2"], "a2 a3 a1", "a2, a3, a1 done, 3 of 2"),
        ("QUORUM", ["a1 a2 a3", "a1 a2"], "!a1", "!a1 hopeless, 0 of 2"),
        ("QUORUM", ["a1 a2 a3", "a1 a2"], "!a3 a1 a2", "!a3, a1, a2 done, 2 of 2"),
        // One becomes three, two become three.
        ("QUORUM", ["a1", "a1 a2 a3"], "a1 a2", "a1, a2 done, 1 of 1"),
        ("QUORUM", ["a1 a2", "a1 a2 a3"], "!a3 a1 a2", "!a3, a1, a2 done, 2 of 2"),
        (
            "EACH_QUORUM",
            ["a1 b1", "a1 b1 b2"],
            "a1 b2 b1",
            "a1, b2, b1 done, 2 of 2",
        ),
    ];
    for (name, sets, story, expected) in table {
        let shown = answers_in_a_move(name, sets, story);
        assert_eq!(shown, expected, "{name} while {} become {}", sets[0], sets[1]);
    }
}

fn replicas(cluster: &Cluster, names: &str) -> ReplicaList {
    let number = |name| {
        cluster
            .names
            .iter()
            .position(|n| n == name)
            .expect("a node of that name")
    };
    let replica = |name| Replica {
        node: NodeNumber(u16::try_from(number(name)).expect("few nodes")),
        shard: 0,
    };
    names.split_whitespace().map(replica).collect()
}

fn one_tablet(cluster: &Cluster, names: &str, transition: Option<(Stage, &str)>) -> TabletMap {
    let set = replicas(cluster, names);
    let mut map = TabletMap::new(0, Boundaries::PowerOfTwo(0), std::slice::from_ref(&set)).expect("a map");
    let transition = transition.map(|(stage, next)| Transition {
        stage,
        next: replicas(cluster, next),
        version: 1,
        copied: smallvec![],
    });
    let edit = TabletEdit {
        tablet: TabletId(0),
        replicas: set,
        transition,
    };
    let change = TabletChange {
        from_version: 0,
        version: 1,
        edits: vec![edit],
    };
    map.apply(&change).expect("a change");
    map
}

#[test]
fn reads_go_to_the_living_then_to_the_near_and_equal_ones_take_turns() {
    let cluster = cluster(
        "me dc1 r1
         near dc1 r1
         same1 dc1 r2
         same2 dc1 r3
         far1 dc2 r1
         far2 dc2 r2",
    );
    let locality = Locality::new(&cluster.topology, host(1)).expect("a node");
    let map = one_tablet(&cluster, "far1 far2 same1 same2 near me", None);
    // The dead by their names; with `!` after the name, a node that lives and takes no writes; with `%`, one
    // whose disk is full; with `~`, one whose disk is nearly full.
    let order = |token: i64, ill: &str| {
        let mut liveness = Liveness::default();
        for (number, _) in cluster.topology.numbered_nodes() {
            let name = cluster.name(number);
            let is_ill = |how: &str| ill.split_whitespace().any(|word| word == format!("{name}{how}"));
            liveness.set(number, !is_ill(""));
            liveness.set_takes_writes(number, !is_ill("!"));
            let level = [(is_ill("%"), DiskLevel::Critical), (is_ill("~"), DiskLevel::Warning)];
            let level = level
                .iter()
                .find(|(is, _)| *is)
                .map_or(DiskLevel::Normal, |(_, level)| *level);
            liveness.set_disk_level(number, level);
            assert_eq!(liveness.disk_level(number), level);
            assert_eq!(liveness.takes_writes(number), !is_ill("") && !is_ill("!"));
            assert_eq!(
                liveness.takes_growth(number),
                liveness.takes_writes(number) && !is_ill("%")
            );
        }
        assert_eq!(liveness.is_any_full(), ill.contains('%'));
        assert_eq!(liveness.is_any_nearly_full(), ill.contains(['%', '~']));
        let targets = ReadTargets::new(&map.tablet_of(Token(token)), Token(token), &locality, &liveness);
        format!(
            "{} of {}",
            cluster.show(targets.live()),
            cluster.show(&targets.replicas)
        )
    };
    let all = "me near same1 same2 far1 far2";
    assert_eq!(order(0, ""), format!("{all} of {all}"));
    let turned = "me near same2 same1 far2 far1";
    assert_eq!(
        order(3, ""),
        format!("{turned} of {turned}"),
        "another token begins with another"
    );
    assert_eq!(
        order(0, "me same1 far1"),
        "near same2 far2 of near same2 far2 me same1 far1",
        "the dead come last, in the same order"
    );
    assert_eq!(
        order(0, "me! same1! far1"),
        "near same2 far2 me same1 of near same2 far2 me same1 far1",
        "those that take no writes come before the dead"
    );
    assert_eq!(
        order(0, "me% same1! far1"),
        "near same2 far2 me same1 of near same2 far2 me same1 far1",
        "those whose disks are full too: a repair would make them fuller"
    );
    assert_eq!(
        order(0, "me~"),
        format!("{all} of {all}"),
        "one that warns is as good as others"
    );
    let to_same1 = (0..32).filter(|t| order(*t, "me near").starts_with("same1")).count();
    assert_eq!(to_same1, 16, "two equal replicas do not share the reads evenly");
    assert_eq!(
        locality.proximity(NodeNumber(99)),
        Proximity::Remote,
        "a node that is not known yet"
    );
}

#[test]
fn writes_go_to_those_that_are_read_and_to_those_that_will_be() {
    let cluster = cluster(NODES);
    let table = [
        (None, "a1 a2 a3 + "),
        (Some(Stage::AllowWriteBothReadOld), "a1 a2 a3 + "),
        (Some(Stage::WriteBothReadOld), "a1 a2 a3 + b1"),
        (Some(Stage::Streaming), "a1 a2 a3 + b1"),
        (Some(Stage::WriteBothReadNew), "a1 a2 b1 + a3"),
        (Some(Stage::UseNew), "a1 a2 b1 + "),
        (Some(Stage::CleanupTarget), "a1 a2 a3 + "),
    ];
    for (stage, expected) in table {
        let map = one_tablet(&cluster, "a1 a2 a3", stage.map(|s| (s, "a1 a2 b1")));
        let targets = WriteTargets::new(&map.tablet_of(Token(5)));
        let shown = format!(
            "{} + {}",
            cluster.show(&targets.natural),
            cluster.show(&targets.pending)
        );
        assert_eq!(shown, expected, "{stage:?}");
        assert!(
            !targets.natural.spilled() && !targets.pending.spilled(),
            "a write allocates"
        );
    }
}

#[test]
fn the_living_are_counted_by_datacenter() {
    let cluster = cluster(NODES);
    let locality = Locality::new(&cluster.topology, host(4)).expect("a node");
    let mut liveness = Liveness::default();
    for number in [0, 3, 4, 70] {
        liveness.set(NodeNumber(number), true);
    }
    liveness.set(NodeNumber(4), false);
    let set: ReplicaList = replicas(&cluster, "a1 a2 b1 b2");
    let live = ReplicaCounts::of(&set, &locality, |r| liveness.is_live(r.node));
    let of = |name| live.get(locality.datacenter_number(name));
    assert_eq!((of("dc1"), of("dc2"), live.total()), (1, 1, 2));
    assert_eq!(locality.datacenter_name(locality.local_datacenter()), Some("dc2"));
    let none: ReplicaList = smallvec![];
    assert_eq!(ReplicaCounts::of(&none, &locality, |_| true).total(), 0);
}
