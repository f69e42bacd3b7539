//! Nodes that form, join, leave and come back under the simulator. `CETO_SIM_SEEDS=n` plays n more seeds.

use crate::support;
use crate::support::{Dice, SECOND, Sea, create_keyspace, dir, host};
use cluster::{ChangeError, Cluster, ClusterError};
use runtime::sim::CrashKind;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;
use testkit::seeds;
use topology::NodeState;

#[test]
fn nodes_that_start_together_are_one_cluster_whose_members_vote() {
    for seed in seeds(0..3) {
        let mut sea = Sea::formed(seed, 3);
        sea.expect_voters(3);
        let versions = sea.cluster(0).peer_schema_versions();
        assert_eq!(versions.len(), 2, "others have said what they have");
        assert!(
            versions
                .values()
                .all(|version| *version == sea.cluster(0).metadata().schema.version)
        );
        let tokens: Vec<_> = sea
            .cluster(1)
            .metadata()
            .topology
            .members()
            .flat_map(|node| node.tokens.clone())
            .collect();
        assert_eq!(tokens.len(), 12, "each node has its tokens: {tokens:?}");
    }
}

#[test]
fn a_node_without_seeds_is_a_cluster_of_its_own() {
    let mut sea = Sea::new(10, 1);
    sea.nodes[0].config.borrow_mut().seeds.clear();
    sea.start(0);
    sea.expect_normal(0..1);
    sea.create(0, "ks").expect("it is its own majority");
    sea.crash(0, CrashKind::PowerLoss);
    sea.restart(0);
    sea.expect_normal(0..1);
    assert!(sea.cluster(0).metadata().schema.keyspaces.contains_key("ks"));
}

#[test]
fn concurrent_schema_changes_of_all_nodes_are_all_made_one_after_the_other() {
    for seed in seeds(20..22) {
        let mut sea = Sea::formed(seed, 5);
        let running: Vec<_> = (0..5)
            .map(|number| {
                sea.spawn(number, move |cluster| async move {
                    for turn in 0..4 {
                        create_keyspace(&cluster, &format!("ks_{number}_{turn}"))
                            .await
                            .expect("nothing fails here");
                        let live = cluster.live().len();
                        let version = cluster.metadata().schema.version;
                        assert_eq!(live, 5);
                        assert!(!version.is_nil());
                    }
                })
            })
            .collect();
        let is_done = sea
            .sim
            .run_until(60 * SECOND, || running.iter().all(|output| output.borrow().is_some()));
        assert!(is_done, "schema changes do not come to an end");
        sea.expect_normal(0..5);
        assert_eq!(sea.cluster(3).metadata().schema.keyspaces.len(), 21);
    }
}

#[test]
fn who_saw_a_schema_change_succeed_finds_it_on_every_live_node() {
    let mut sea = Sea::formed(30, 3);
    for (number, name) in [(0, "a"), (1, "b"), (2, "c")] {
        sea.create(number, name).expect("a majority is there");
        for other in 0..3 {
            assert!(
                sea.cluster(other).metadata().schema.keyspaces.contains_key(name),
                "node {other} does not have what node {number} was told is there"
            );
        }
    }
    let stale = sea.on(0, |cluster| async move {
        let now = cluster.metadata().schema.clone();
        create_keyspace(&cluster, "d").await.expect("a majority is there");
        cluster.propose_schema(now.version, now).await
    });
    assert_eq!(stale, Err(ChangeError::Conflict));
}

#[test]
fn each_node_and_all_of_them_come_back_with_what_was_agreed() {
    for (seed, kind) in seeds(40..44).zip([CrashKind::Kill, CrashKind::PowerLoss].into_iter().cycle()) {
        let mut sea = Sea::formed(seed, 3);
        for number in 0..3 {
            sea.crash(number, kind);
            sea.create((number + 1) % 3, &format!("while_{number}_is_down"))
                .expect("two of three are a majority");
            sea.restart(number);
            sea.expect_normal(0..3);
        }
        for number in 0..3 {
            sea.crash(number, kind);
        }
        for number in 0..3 {
            sea.restart(number);
        }
        sea.expect_normal(0..3);
        sea.create(1, "afterwards").expect("all are there");
        assert_eq!(sea.cluster(2).metadata().schema.keyspaces.len(), 5);
    }
}

#[test]
fn nodes_that_come_back_elsewhere_are_found_there() {
    for seed in seeds(50..52) {
        let mut sea = Sea::formed(seed, 3);
        sea.crash(2, CrashKind::Kill);
        sea.nodes[2].config.borrow_mut().internode.set_port(7001);
        sea.restart(2);
        sea.expect_normal(0..3);
        let moved = sea.nodes[2].config.borrow().internode;
        sea.expect("the new address is registered", |views| {
            views.iter().all(|view| {
                view.metadata()
                    .topology
                    .node(host(2))
                    .is_some_and(|node| node.internode == moved)
            })
        });
        for number in 0..3 {
            sea.crash(number, CrashKind::PowerLoss);
            sea.nodes[number].config.borrow_mut().internode.set_port(7002);
        }
        let moved = sea.seeds(0..2);
        for number in 0..3 {
            sea.nodes[number].config.borrow_mut().seeds = moved.clone();
            sea.restart(number);
        }
        sea.expect_normal(0..3);
        sea.expect("all new addresses are registered", |views| {
            views.iter().all(|view| {
                view.metadata()
                    .topology
                    .members()
                    .all(|node| node.internode.port() == 7002)
            })
        });
        sea.create(0, "elsewhere").expect("all are there");
    }
}

#[test]
fn a_node_that_may_not_join_is_told_why_and_has_written_nothing() {
    type Change = fn(&mut Sea);
    let cases: &[(&str, Change, &str)] = &[
        (
            "a wrong cluster name",
            |sea| sea.nodes[3].config.borrow_mut().cluster_name = "lake".to_owned(),
            "this node belongs to cluster \"sea\", and the one that connects to \"lake\": correct the cluster name",
        ),
        (
            "a clock that is ahead",
            |sea| {
                let id = sea.nodes[3].id;
                sea.sim.set_clock_skew_us(id, 60_000_000);
            },
            "The node's clock is 60.0 s ahead",
        ),
        ("no shards", |sea| sea.nodes[3].config.borrow_mut().shards = 0, "shards"),
        (
            "data from when it was alone",
            |sea| sea.nodes[3].seen.has_user_data.set(true),
            "The node holds data from when it was alone",
        ),
        (
            "the identity of a node that is there",
            |sea| sea.nodes[3].config.borrow_mut().host_id = host(0),
            "two nodes have one identity",
        ),
    ];
    for (seed, (story, change, expected)) in (71..).zip(cases) {
        let mut sea = Sea::new(seed, 4);
        for number in 0..3 {
            sea.start(number);
        }
        sea.expect_normal(0..3);
        change(&mut sea);
        sea.start(3);
        match sea.refusal(3) {
            ClusterError::Refused(reason) => assert!(reason.contains(expected), "{story}: {reason}"),
            other => panic!("{story}: {other:?}"),
        }
        assert!(!sea.has_files(3), "{story}: a refused node has written");
        assert_eq!(sea.cluster(0).metadata().topology.nodes().len(), 3, "{story}");
        sea.create(0, "ks").expect("the cluster is unharmed");
    }
}

#[test]
fn files_that_are_not_this_nodes_are_refused() {
    let mut sea = Sea::new(80, 4);
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect_normal(0..3);
    // The files of another node.
    sea.copy_files(0, 3);
    sea.start(3);
    let reason = sea.refusal(3).to_string();
    assert!(reason.contains("of another node"), "{reason}");
    // A copy of a node that is alive.
    sea.nodes[3].config.borrow_mut().host_id = host(0);
    sea.restart(3);
    let reason = sea.refusal(3).to_string();
    assert!(reason.contains("two nodes have one identity"), "{reason}");
    sea.create(0, "ks").expect("the cluster is unharmed");
    // Another cluster's files.
    let mut other = Sea::new(81, 4);
    other.nodes[3].config.borrow_mut().seeds.clear();
    for number in 0..4 {
        other.start(number);
    }
    other.expect("both clusters are there", |views| views.len() == 4);
    other.crash(3, CrashKind::Kill);
    let seeds = other.seeds(0..2);
    other.nodes[3].config.borrow_mut().seeds = seeds;
    other.restart(3);
    let reason = other.refusal(3).to_string();
    assert!(reason.contains("The node's files are of cluster"), "{reason}");
    assert!(reason.contains("Correct the seeds"), "{reason}");
}

#[test]
fn of_two_processes_with_one_identity_one_stops() {
    let mut sea = Sea::new(90, 4);
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect_normal(0..3);
    // A copy is started while the original is down, and then the original.
    sea.crash(2, CrashKind::Kill);
    sea.copy_files(2, 3);
    sea.nodes[3].config.borrow_mut().host_id = host(2);
    let location = sea.nodes[2].config.borrow().location.clone();
    sea.nodes[3].config.borrow_mut().location = location;
    sea.start(3);
    let copy = sea.nodes[3].config.borrow().internode;
    sea.expect("the copy is taken for the node", |views| {
        views.iter().all(|view| {
            view.metadata()
                .topology
                .node(host(2))
                .is_some_and(|node| node.internode == copy)
        })
    });
    sea.restart(2);
    let (original, copied) = (sea.nodes[2].seen.clone(), sea.nodes[3].seen.clone());
    let has_stopped = sea.sim.run_until(60 * SECOND, || {
        original.fatal.borrow().is_some() || original.error.borrow().is_some() || copied.fatal.borrow().is_some()
    });
    assert!(has_stopped, "two processes go on with one identity");
    sea.create(0, "ks").expect("the cluster is unharmed");
}

#[test]
fn a_directory_that_is_older_than_its_copy_is_refused_and_the_copy_goes_on() {
    let mut sea = Sea::new(95, 4);
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect_normal(0..3);
    sea.expect_voters(3);
    sea.on(2, |cluster| async move { cluster.stop().await });
    sea.crash(2, CrashKind::Kill);
    sea.copy_files(2, 3);
    sea.nodes[3].config.borrow_mut().host_id = host(2);
    let location = sea.nodes[2].config.borrow().location.clone();
    sea.nodes[3].config.borrow_mut().location = location;
    let is_at = |sea: &mut Sea, number: usize| {
        let address = sea.nodes[number].config.borrow().internode;
        sea.expect("the node is registered where it runs", |views| {
            let node = |view: &Rc<Cluster>| view.metadata().topology.node(host(2)).map(|node| node.internode);
            views.len() == 3 && views.iter().all(|view| node(view) == Some(address))
        });
    };
    sea.start(3);
    is_at(&mut sea, 3);
    sea.on(3, |cluster| async move { cluster.stop().await });
    sea.crash(3, CrashKind::Kill);
    sea.restart(2);
    let original = sea.nodes[2].seen.clone();
    // It is refused by a member that it asks before it is in, or by the leader right afterwards.
    let is_refused = sea.sim.run_until(150 * SECOND, || {
        original.error.borrow().is_some() || original.fatal.borrow().is_some()
    });
    assert!(is_refused, "node 2 goes on");
    let refused = original.error.borrow().as_ref().map(ToString::to_string);
    let reason = refused.or_else(|| original.fatal.take()).expect("one of the two");
    assert!(
        reason.contains("older") && reason.contains("directory that ran last"),
        "{reason}"
    );
    sea.crash(2, CrashKind::Kill);
    sea.create(0, "meanwhile").expect("the cluster is unharmed");
    // What ran last may come home.
    sea.copy_files(3, 2);
    sea.restart(2);
    is_at(&mut sea, 2);
    sea.expect_normal(0..3);
    assert_eq!(*original.fatal.borrow(), None);
}

#[test]
fn a_damaged_metadata_file_is_named() {
    let mut sea = Sea::formed(100, 1);
    sea.crash(0, CrashKind::Kill);
    sea.sim.on_node(sea.nodes[0].id, || {
        let path = dir().join("metadata");
        let mut bytes = runtime::fs::read(&path).expect("it is there");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        runtime::fs::write(&path, &bytes).expect("the disk has room");
    });
    sea.restart(0);
    let seen = sea.nodes[0].seen.clone();
    assert!(
        sea.sim.run_until(SECOND, || seen.load_error.borrow().is_some()),
        "damage is not seen"
    );
    let error = seen.load_error.take().expect("it is there");
    assert!(
        error.contains("/data/cluster/metadata") && error.contains("checksum"),
        "{error}"
    );
}

#[test]
fn a_node_that_does_not_bootstrap_is_a_member_without_tokens() {
    let mut sea = Sea::new(120, 3);
    sea.nodes[2].config.borrow_mut().auto_bootstrap = false;
    for number in 0..3 {
        sea.start(number);
    }
    sea.expect("the third is a member", |views| {
        views.iter().any(|view| {
            let metadata = view.metadata();
            metadata
                .topology
                .node(host(2))
                .is_some_and(|node| node.state == NodeState::Normal && node.tokens.is_empty())
        })
    });
}

#[test]
fn a_join_that_is_struck_down_is_completed_when_it_is_tried_again() {
    for (seed, operations) in seeds(130..142).zip((0..).step_by(3)) {
        let mut sea = Sea::new(seed, 3);
        sea.start(0);
        sea.start(1);
        sea.expect_normal(0..2);
        let kind = if seed % 2 == 0 {
            CrashKind::Kill
        } else {
            CrashKind::PowerLoss
        };
        let id = sea.nodes[2].id;
        sea.start(2);
        sea.sim.crash_after_file_ops(id, operations, kind);
        sea.sim.run_for(8 * SECOND);
        sea.sim.clear_file_faults(id);
        if !sea.sim.is_running(id) {
            sea.restart(2);
        }
        sea.expect_normal(0..3);
        sea.expect_voters(3);
        sea.create(2, "ks").expect("all are there");
    }
}

#[test]
fn a_first_node_that_is_struck_down_while_it_forms_forms_in_the_end() {
    for (seed, operations) in seeds(150..158).zip(0..) {
        let mut sea = Sea::new(seed, 1);
        let id = sea.nodes[0].id;
        sea.start(0);
        sea.sim.crash_after_file_ops(id, operations * 2, CrashKind::PowerLoss);
        sea.sim.run_for(5 * SECOND);
        sea.sim.clear_file_faults(id);
        if !sea.sim.is_running(id) {
            sea.restart(0);
        }
        sea.expect_normal(0..1);
        sea.create(0, "ks").expect("it is its own majority");
    }
}

#[test]
fn a_failing_disk_delays_a_change_and_loses_none() {
    let mut sea = Sea::formed(170, 3);
    for operations in 0..8 {
        let id = sea.nodes[1].id;
        sea.sim.fail_file_op_after(id, operations, std::io::ErrorKind::Other);
        sea.create(1, &format!("ks_{operations}"))
            .expect("the change waits for the disk");
    }
    sea.sim.clear_file_faults(sea.nodes[1].id);
    sea.expect_normal(0..3);
    sea.crash(1, CrashKind::PowerLoss);
    sea.restart(1);
    sea.expect("the node comes back", |views| views.len() == 3);
    assert_eq!(
        sea.cluster(1).metadata().schema.keyspaces.len(),
        9,
        "what was acknowledged is lost"
    );
}

#[test]
fn a_seed_whose_name_gets_another_address_is_found_without_a_restart() {
    for seed in seeds(310..312) {
        let mut sea = Sea::new(seed, 3);
        let (port, elsewhere) = (sea.addresses(0..1)[0].port(), sea.addresses(2..3)[0]);
        let address = sea.addresses(0..1)[0].ip();
        // The name leads to a machine where nothing runs.
        let named = cluster::Seed {
            host: Some("seed.example.com".to_owned()),
            address: SocketAddr::new(elsewhere.ip(), port),
        };
        sea.sim.set_name("seed.example.com", &[elsewhere.ip()]);
        sea.nodes[0].config.borrow_mut().seeds.clear();
        sea.nodes[1].config.borrow_mut().seeds = vec![named];
        sea.start(0);
        sea.start(1);
        let joined = sea.nodes[1].seen.clone();
        let is_in = || joined.cluster.borrow().is_some();
        assert!(!sea.sim.run_until(30 * SECOND, is_in), "there is nobody to let it in");
        // While the name server does not know the name, the last address stays.
        sea.sim.set_name("seed.example.com", &[]);
        assert!(!sea.sim.run_until(10 * SECOND, is_in), "nor now");
        sea.sim.set_name("seed.example.com", &[address]);
        assert!(
            sea.sim.run_until(10 * SECOND, is_in),
            "the seed is at the name's new address"
        );
        sea.expect_normal(0..2);
    }
}

#[test]
fn nodes_that_start_one_after_the_other_wait_for_no_timer() {
    for seed in seeds(290..300) {
        let mut sea = Sea::new(seed, 4);
        let seed_address = sea.seeds(0..1);
        for number in 0..4 {
            sea.nodes[number].config.borrow_mut().seeds = seed_address.clone();
            let before = sea.sim.now();
            sea.start(number);
            let seen = sea.nodes[number].seen.clone();
            let is_in = sea.sim.run_until(30 * SECOND, || seen.cluster.borrow().is_some());
            let took = sea.sim.now() - before;
            assert!(
                is_in && took < Duration::from_millis(900),
                "seed {seed}: node {number} took {took:?}: {:#?}",
                sea.cluster(0).status()
            );
        }
    }
}

/// The number of the node that leads.
fn leader_of(sea: &Sea) -> usize {
    let leader = sea.cluster(0).status().leader.expect("somebody leads");
    (0..sea.nodes.len())
        .find(|number| host(*number) == leader)
        .expect("a member leads")
}

/// The longest of many schema changes made through another node while the leader stops in good order.
fn longest_change_while_the_leader_stops(sea: &mut Sea) -> Duration {
    let leader = leader_of(sea);
    let other = (leader + 1) % 3;
    let changes = sea.spawn(other, |cluster| async move {
        let mut longest = Duration::ZERO;
        for turn in 0..200 {
            let begun = runtime::now();
            create_keyspace(&cluster, &format!("ks_{turn}"))
                .await
                .expect("a majority is there");
            longest = longest.max(runtime::now() - begun);
            runtime::sleep(Duration::from_millis(15)).await;
        }
        longest
    });
    sea.sim.run_for(SECOND);
    sea.on(leader, |cluster| async move { cluster.stop().await });
    sea.crash(leader, CrashKind::Kill);
    let is_done = sea.sim.run_until(60 * SECOND, || changes.borrow().is_some());
    assert!(is_done, "changes do not come to an end");
    changes.take().expect("it is done")
}

#[test]
fn a_leader_that_stops_in_good_order_delays_no_change_by_an_election() {
    for seed in seeds(260..266) {
        let mut sea = Sea::formed(seed, 3);
        sea.expect_voters(3);
        let longest = longest_change_while_the_leader_stops(&mut sea);
        assert!(longest < Duration::from_millis(500), "seed {seed}: {longest:?}");
    }
}

#[test]
fn a_node_that_stops_in_good_order_is_down_for_the_others_at_once_and_up_as_soon_as_it_is_back() {
    let mut sea = Sea::formed(275, 3);
    sea.on(2, |cluster| async move { cluster.stop().await });
    sea.crash(2, CrashKind::Kill);
    for number in 0..2 {
        assert!(!sea.cluster(number).is_live(host(2)), "node {number} was told");
    }
    sea.sim.run_for(SECOND);
    for number in 0..2 {
        assert!(
            !sea.cluster(number).is_live(host(2)),
            "node {number} does not take it for alive"
        );
    }
    let before = sea.sim.now();
    sea.restart(2);
    sea.expect_normal(0..3);
    assert!(
        sea.sim.now() - before < SECOND,
        "it comes back after {:?}",
        sea.sim.now() - before
    );
}

#[test]
fn nodes_that_are_split_off_agree_again_afterwards() {
    for seed in seeds(200..203) {
        let mut sea = Sea::formed(seed, 5);
        sea.expect_voters(5);
        let ids: Vec<_> = sea.nodes.iter().map(|node| node.id).collect();
        let (few, many) = ids.split_at(2);
        sea.sim.partition(few, many);
        sea.sim.run_for(10 * SECOND);
        sea.create(4, "with_the_majority")
            .expect("three of five are a majority");
        let refused = sea.create(0, "with_the_minority");
        assert!(
            matches!(refused, Err(ChangeError::NoQuorum(_) | ChangeError::Timeout(_))),
            "{refused:?}"
        );
        sea.sim.heal(few, many);
        sea.expect_normal(0..5);
        let split_off = sea.cluster(0).metadata();
        assert!(split_off.schema.keyspaces.contains_key("with_the_majority"));
    }
}

#[test]
fn no_row_is_missing_on_an_owner_however_a_join_meets_the_first_writes() {
    for seed in seeds(220..250) {
        support::joins::join_meets_writes(seed).expect("the node that joined owns what it has");
    }
}

#[test]
fn in_a_storm_no_acknowledged_change_is_lost_and_all_agree_afterwards() {
    for seed in seeds(300..306) {
        let mut dice = Dice::new(seed);
        let count = 3 + 2 * (seed as usize % 2);
        let mut sea = Sea::formed(seed, count);
        let ids: Vec<_> = sea.nodes.iter().map(|node| node.id).collect();
        let acknowledged: Rc<RefCell<BTreeSet<String>>> = Rc::default();
        for strike in 0..14 {
            let number = dice.below(count as u64) as usize;
            match dice.below(8) {
                0 if sea.sim.is_running(ids[number]) => sea.crash(number, CrashKind::Kill),
                1 if sea.sim.is_running(ids[number]) => sea.crash(number, CrashKind::PowerLoss),
                2 => sea
                    .sim
                    .crash_after_file_ops(ids[number], dice.below(12), CrashKind::PowerLoss),
                3 => {
                    let (one, other) = ids.split_at(1 + dice.below(count as u64 - 1) as usize);
                    sea.sim.partition(one, other);
                }
                4 => sea.sim.set_link_up(ids[number], ids[(number + 1) % count], false),
                5 => sea
                    .sim
                    .fail_file_op_after(ids[number], dice.below(6), std::io::ErrorKind::Other),
                _ => sea.sim.heal(&ids, &ids),
            }
            for (number, id) in ids.iter().enumerate() {
                let is_in = sea.nodes[number].seen.cluster.borrow().is_some();
                if is_in && sea.sim.is_running(*id) {
                    let acknowledged = acknowledged.clone();
                    let name = format!("ks_{strike}_{number}");
                    drop(sea.spawn(number, move |cluster| async move {
                        if create_keyspace(&cluster, &name).await.is_ok() {
                            acknowledged.borrow_mut().insert(name);
                        }
                    }));
                }
            }
            sea.sim.run_for(Duration::from_millis(dice.below(4000)));
            for (number, id) in ids.iter().enumerate() {
                if !sea.sim.is_running(*id) && dice.below(3) > 0 {
                    sea.sim.clear_file_faults(*id);
                    if dice.below(4) == 0 {
                        let port = sea.nodes[number].config.borrow().internode.port();
                        sea.nodes[number].config.borrow_mut().internode.set_port(port + 1);
                    }
                    let addresses = sea.seeds(0..count);
                    sea.nodes[number].config.borrow_mut().seeds = addresses;
                    sea.restart(number);
                }
            }
        }
        sea.sim.heal(&ids, &ids);
        let addresses = sea.seeds(0..count);
        for (number, id) in ids.iter().enumerate() {
            sea.sim.clear_file_faults(*id);
            sea.nodes[number].config.borrow_mut().seeds = addresses.clone();
            if !sea.sim.is_running(*id) {
                sea.restart(number);
            }
        }
        sea.expect_normal(0..count);
        let metadata = sea.cluster(0).metadata();
        for name in &*acknowledged.borrow() {
            assert!(
                metadata.schema.keyspaces.contains_key(name),
                "seed {seed}: {name} was acknowledged and is lost"
            );
        }
        assert!(
            !acknowledged.borrow().is_empty(),
            "seed {seed}: the storm leaves room for changes"
        );
        for node in &sea.nodes {
            assert_eq!(*node.seen.fatal.borrow(), None, "seed {seed}: a node was told to stop");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let mut sea = Sea::formed(7, 3);
        sea.sim.run_for(Duration::from_secs(5));
        (sea.cluster(0).status(), sea.sim.trace_hash())
    };
    assert_eq!(run(), run(), "two runs of one seed differ");
}
