//! Clusters of three, five and seven members in which everything goes wrong that may, by seeds. `CETO_SIM_SEEDS=n`
//! plays n more.

use crate::support::{Cluster, Dice, Setup, Weather};
use runtime::sim::{CrashKind, NodeId};
use std::time::Duration;
use testkit::seeds;

/// Strikes for a while, then heals and checks.
fn storm(setup: Setup, strikes: u64) -> (u64, u64, u64, u64) {
    let mut dice = Dice::new(setup.seed);
    let mut cluster = Cluster::start(setup);
    let nodes: Vec<NodeId> = cluster.ids().into_iter().map(|id| cluster.node(id)).collect();
    let count = nodes.len() as u64;
    for _ in 0..strikes {
        let target = nodes[dice.below(count) as usize];
        match dice.below(12) {
            0 => cluster.sim.crash(target, CrashKind::Kill),
            1 => cluster.sim.crash(target, CrashKind::PowerLoss),
            2 | 3 => cluster
                .sim
                .crash_after_file_ops(target, dice.below(12), CrashKind::PowerLoss),
            4 => {
                // The power of all of them.
                for node in &nodes {
                    cluster.sim.crash(*node, CrashKind::PowerLoss);
                }
            }
            5 | 6 => {
                let cut = dice.below(1 << count);
                let side = |wanted: u64| -> Vec<NodeId> {
                    (0..count)
                        .filter(|at| (cut >> at) & 1 == wanted)
                        .map(|at| nodes[at as usize])
                        .collect()
                };
                cluster.sim.partition(&side(0), &side(1));
            }
            7 => {
                // One way only.
                for other in &nodes {
                    cluster.sim.set_link_up(target, *other, *other == target);
                }
            }
            8 => cluster
                .sim
                .fail_file_op_after(target, dice.below(6), std::io::ErrorKind::Other),
            9 => cluster
                .sim
                .set_disk_delay(target, Duration::from_millis(dice.below(80))),
            _ => cluster.sim.heal(&nodes, &nodes),
        }
        cluster.sim.run_for(Duration::from_millis(dice.below(2500)));
        for node in &nodes {
            if !cluster.sim.is_running(*node) && dice.below(3) > 0 {
                cluster.sim.clear_file_faults(*node);
                cluster.sim.restart(*node);
            }
        }
    }
    cluster.heal_and_check();
    let record = cluster.record.borrow();
    (
        record.confirmed.len() as u64,
        record.barriers,
        record.snapshots_restored,
        record.changes_made,
    )
}

fn storms(nodes: u64, voters: u64, moves_votes: bool, seeds: impl Iterator<Item = u64>) -> (u64, u64, u64, u64) {
    let mut sum = (0, 0, 0, 0);
    for seed in seeds {
        let setup = Setup {
            weather: Weather {
                lost_percent: seed % 4 * 3,
                repeated_percent: 3,
                late_percent: 3,
            },
            has_workload: true,
            moves_votes,
            ..Setup::calm(seed, nodes, voters)
        };
        let seen = storm(setup, 25);
        sum = (sum.0 + seen.0, sum.1 + seen.1, sum.2 + seen.2, sum.3 + seen.3);
    }
    assert!(sum.0 > 50, "the storm leaves room for proposals: {sum:?}");
    assert!(sum.1 > 20, "the storm leaves room for reads: {sum:?}");
    sum
}

#[test]
fn three_members_lose_nothing_they_confirmed() {
    storms(3, 3, false, seeds(0..12));
}

#[test]
fn five_members_lose_nothing_they_confirmed() {
    storms(5, 5, false, seeds(100..106));
}

#[test]
fn seven_members_that_pass_votes_around_lose_nothing_they_confirmed() {
    let (_, _, snapshots, changes) = storms(7, 3, true, seeds(200..205));
    assert!(changes > 5, "votes moved, not only {changes} times");
    assert!(snapshots > 5, "members got snapshots, not only {snapshots}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let run = || {
        let mut cluster = Cluster::start(Setup {
            has_workload: true,
            ..Setup::calm(7, 3, 3)
        });
        cluster.sim.run_for(Duration::from_secs(20));
        let confirmed = cluster.record.borrow().confirmed.clone();
        (confirmed, cluster.sim.trace_hash())
    };
    let first = run();
    assert!(first.0.len() > 10, "the group works");
    assert_eq!(first, run(), "two runs of one seed differ");
}

#[test]
fn a_vote_binds_a_member_that_loses_its_power_the_moment_after() {
    let mut votes = 0;
    for seed in 300..310 {
        let mut cluster = Cluster::start(Setup::calm(seed, 3, 3));
        let mut dice = Dice::new(seed);
        for _ in 0..6 {
            let leader = cluster.wait_for_leader();
            let node = cluster.node(leader);
            cluster.sim.crash(node, CrashKind::PowerLoss);
            let before = cluster.record.borrow().votes.clone();
            let (record, known) = (cluster.record.clone(), before.clone());
            let voted = cluster
                .sim
                .run_until(Duration::from_secs(10), move || record.borrow().votes != known);
            assert!(voted, "seed {seed}: two of three elect a leader");
            let after = cluster.record.borrow().votes.clone();
            for (id, _) in after.iter().filter(|(id, vote)| before.get(id) != Some(vote)) {
                let voter = cluster.node(*id);
                cluster.sim.crash(voter, CrashKind::PowerLoss);
                cluster.sim.restart(voter);
                votes += 1;
            }
            cluster.sim.run_for(Duration::from_millis(dice.below(3000)));
            cluster.sim.restart(node);
        }
        cluster.heal_and_check();
    }
    assert!(votes >= 60, "only {votes} voters were struck");
}
