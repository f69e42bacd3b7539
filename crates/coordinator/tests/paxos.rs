//! Conditional statements on three simulated nodes: what they cost, what they survive, and that they are executed in
//! one order.

use crate::support::{Cluster, Local, SECOND, Shape};
use coordinator::CoordinatorError;
use runtime::sim::CrashKind;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;
use stdx::planted::{Bug, Planted};
use testkit::linearizable::{self, Change, Operation, ROWS, Requires};
use topology::{Consistency, Replication};

const LEVELS: (Consistency, Consistency) = (Consistency::Serial, Consistency::Quorum);

fn swap(cluster: &mut Cluster, node: usize, from: u64, to: u64) -> Result<Result<(), u64>, CoordinatorError> {
    cluster.on(node, move |node| async move {
        node.swap(b"key", (from, to), LEVELS, 5 * SECOND).await
    })
}

fn calls(cluster: &Cluster, node: usize) -> u64 {
    cluster
        .local(node)
        .rpc
        .link_metrics()
        .iter()
        .map(|link| link.calls)
        .sum()
}

#[test]
fn a_statement_that_meets_no_other_asks_a_quorum_to_prepare_and_accept_and_all_to_learn_and_a_failed_one_to_prepare() {
    for shards in [1, 2] {
        let shape = Shape {
            shards,
            ..Shape::default()
        };
        let mut cluster = Cluster::new(1, shape);
        assert_eq!(swap(&mut cluster, 0, 0, 7), Ok(Ok(())));
        assert_eq!(
            calls(&cluster, 0),
            4,
            "to prepare and to accept one other replica, to learn both"
        );
        assert_eq!(swap(&mut cluster, 0, 0, 8), Ok(Err(7)));
        assert_eq!(
            calls(&cluster, 0),
            5,
            "a condition that does not hold costs one round trip"
        );
        assert_eq!(swap(&mut cluster, 1, 7, 9), Ok(Ok(())));
        for node in 0..3 {
            let read = cluster.on(node, |node| async move {
                node.read_register(b"key", Consistency::Serial, SECOND).await
            });
            assert_eq!(read, Ok(9), "a serial read on node {node}");
        }
        let metrics = cluster.local(0).coordinator.context.metrics();
        assert_eq!((metrics.cas_contentions, metrics.digest_mismatches), (0, 0));
    }
}

#[test]
fn a_decision_that_only_one_replica_learned_is_seen_by_the_next_statement() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed, Shape::default());
        assert_eq!(swap(&mut cluster, 0, 0, 1), Ok(Ok(())), "seed {seed}");
        // ANY is answered when the decision is made; its node dies before it is learned everywhere.
        let any = cluster.on(0, |node| async move {
            node.swap(b"key", (1, 2), (Consistency::Serial, Consistency::Any), SECOND)
                .await
        });
        assert_eq!(any, Ok(Ok(())), "seed {seed}");
        cluster.crash(0, CrashKind::PowerLoss);
        cluster.set_live(0, false);
        assert_eq!(
            swap(&mut cluster, 1, 1, 3),
            Ok(Err(2)),
            "seed {seed}: an answered decision is lost"
        );
        assert_eq!(swap(&mut cluster, 2, 2, 3), Ok(Ok(())), "seed {seed}");
    }
}

#[test]
fn what_acceptors_promised_and_accepted_survives_a_power_loss_of_all_nodes() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, Shape::default());
        for value in 0..3 {
            assert_eq!(swap(&mut cluster, 0, value, value + 1), Ok(Ok(())), "seed {seed}");
        }
        for node in 0..3 {
            cluster.crash(node, CrashKind::PowerLoss);
        }
        for node in 0..3 {
            cluster.start_again(node);
        }
        assert_eq!(swap(&mut cluster, 1, 0, 9), Ok(Err(3)), "seed {seed}");
        for node in 0..3 {
            let flushed = cluster.on(node, |node| async move { node.shard.flush_all().await });
            assert_eq!(flushed.map_err(|e| e.to_string()), Ok(()), "seed {seed}");
            cluster.kill(node);
        }
        for node in 0..3 {
            cluster.start_again(node);
        }
        assert_eq!(
            swap(&mut cluster, 2, 3, 4),
            Ok(Ok(())),
            "seed {seed}: flushed and killed"
        );
    }
}

#[test]
fn an_acceptor_whose_log_loses_a_record_promises_nothing_that_a_power_loss_takes_back() {
    let mut failed = 0;
    for operations in 0..24 {
        let mut cluster = Cluster::new(operations, Shape::default());
        // Both others are needed for a quorum.
        cluster.kill(2);
        (0..2).for_each(|node| cluster.local(node).coordinator.set_live(topology::NodeNumber(2), false));
        assert_eq!(swap(&mut cluster, 0, 0, 1), Ok(Ok(())), "{operations}");
        let id = cluster.id(1);
        cluster
            .simulation
            .fail_file_op_after(id, operations, std::io::ErrorKind::StorageFull);
        let mut last = 1;
        for _ in 0..4 {
            match swap(&mut cluster, 0, last, last + 1) {
                Ok(Ok(())) => last += 1,
                // A swap whose outcome was unknown, and which the others have finished in the meantime.
                Ok(Err(found)) => {
                    assert_eq!(found, last + 1, "{operations}");
                    last = found;
                }
                Err(_) => failed += 1,
            }
        }
        cluster.simulation.clear_file_faults(id);
        (0..2).for_each(|node| cluster.crash(node, CrashKind::PowerLoss));
        // Those that are left have what was decided by it alone.
        (1..3).for_each(|node| cluster.start_again(node));
        cluster.set_live(0, false);
        let found = swap(&mut cluster, 2, u64::MAX, 0);
        let found = found
            .expect("two nodes are a quorum")
            .expect_err("no register is that high");
        let is_next = found == last || found == last + 1;
        assert!(
            is_next,
            "after {operations} operations: {found}, and {last} was acknowledged"
        );
    }
    assert!(failed > 0, "no statement has met the failing disk");
}

/// Kills all nodes at once and starts them again.
fn restart_all(cluster: &mut Cluster) {
    (0..3).for_each(|node| cluster.kill(node));
    (0..3).for_each(|node| cluster.start_again(node));
}

#[test]
fn what_was_learned_is_noted_after_a_while_and_until_then_a_restart_costs_the_next_statement_a_round() {
    for (waits, finished) in [(0, 1), (61, 0)] {
        let mut cluster = Cluster::new(11, Shape::default());
        assert_eq!(swap(&mut cluster, 0, 0, 1), Ok(Ok(())));
        cluster.simulation.run_for(Duration::from_secs(waits));
        restart_all(&mut cluster);
        assert_eq!(swap(&mut cluster, 1, 1, 2), Ok(Ok(())), "after {waits} s");
        let metrics = cluster.local(1).coordinator.context.metrics();
        assert_eq!(
            metrics.cas_finished, finished,
            "proposals that were finished, {waits} s after the statement"
        );
    }
}

#[test]
fn a_truncated_row_does_not_come_back_with_what_acceptors_know_of_it() {
    for seed in 0..5 {
        let mut cluster = Cluster::new(seed, Shape::default());
        assert_eq!(swap(&mut cluster, 0, 0, 7), Ok(Ok(())), "seed {seed}");
        // The last replica learns it a moment after the answer.
        cluster.simulation.run_for(SECOND);
        assert_eq!(cluster.truncate(1, Duration::ZERO), Ok(()), "seed {seed}");
        for node in 0..3 {
            cluster.crash(node, CrashKind::PowerLoss);
        }
        (0..3).for_each(|node| cluster.start_again(node));
        assert_eq!(
            swap(&mut cluster, 2, 0, 1),
            Ok(Ok(())),
            "seed {seed}: the row is there again"
        );
    }
}

#[test]
fn states_that_leave_memory_keep_what_was_learned() {
    let mut cluster = Cluster::new(12, Shape::default());
    // More partitions than an acceptor keeps in memory.
    let statements = 17_000_u32;
    cluster.on(0, move |node| async move {
        for number in 0..statements {
            let key = number.to_be_bytes();
            let done = node.swap(&key, (0, 1), LEVELS, 5 * SECOND).await;
            assert_eq!(done, Ok(Ok(())), "statement {number}");
        }
    });
    for number in [0_u32, 1, 500] {
        let key = number.to_be_bytes();
        let again = cluster.on(1, move |node| async move {
            node.swap(&key, (1, 2), LEVELS, 5 * SECOND).await
        });
        assert_eq!(again, Ok(Ok(())), "partition {number}");
    }
    let metrics = cluster.local(1).coordinator.context.metrics();
    assert_eq!(metrics.cas_finished, 0, "a statement was finished once more");
}

#[test]
fn too_few_replicas_are_told_apart_from_replicas_that_do_not_answer() {
    let mut cluster = Cluster::new(3, Shape::default());
    assert_eq!(swap(&mut cluster, 0, 0, 1), Ok(Ok(())));
    cluster.split(&[0]);
    let cut_off = swap(&mut cluster, 0, 1, 2);
    assert!(
        matches!(cut_off, Err(CoordinatorError::CasTimeout { .. })),
        "{cut_off:?}"
    );
    assert_eq!(swap(&mut cluster, 1, 1, 3), Ok(Ok(())), "the others are a quorum");
    cluster.heal(&[0]);
    cluster.set_live(1, false);
    cluster.set_live(2, false);
    let alone = swap(&mut cluster, 0, 3, 4);
    assert!(matches!(alone, Err(CoordinatorError::Unavailable(_))), "{alone:?}");
}

#[test]
fn local_serial_needs_its_datacenter_only() {
    let factors = BTreeMap::from([("north".to_owned(), 3.into()), ("south".to_owned(), 3.into())]);
    let shape = Shape {
        datacenters: vec!["north", "north", "north", "south", "south", "south"],
        replication: Replication::NetworkTopology(factors),
        ..Shape::default()
    };
    let mut cluster = Cluster::new(4, shape);
    cluster.split(&[3, 4, 5]);
    let local = (Consistency::LocalSerial, Consistency::LocalQuorum);
    let swapped = cluster.on(0, move |node| async move {
        node.swap(b"key", (0, 1), local, 2 * SECOND).await
    });
    assert_eq!(swapped, Ok(Ok(())));
    let read = cluster.on(1, |node| async move {
        node.read_register(b"key", Consistency::LocalSerial, SECOND).await
    });
    assert_eq!(read, Ok(1));
    let global = cluster.on(
        0,
        |node| async move { node.swap(b"key", (1, 2), LEVELS, 2 * SECOND).await },
    );
    assert!(matches!(global, Err(CoordinatorError::CasTimeout { .. })), "{global:?}");
}

#[test]
fn a_row_written_in_the_future_is_overwritten_by_a_conditional_statement() {
    let mut cluster = Cluster::new(5, Shape::default());
    let future = 4_000_000_000_000_000;
    let written = cluster.on(0, move |node| async move {
        node.insert(b"key", 0, &7u64.to_be_bytes(), future, Consistency::Quorum)
            .await
    });
    assert_eq!(written, Ok(()));
    let swapped = cluster.on(
        1,
        move |node| async move { node.swap_above(b"key", (7, 8), future).await },
    );
    assert_eq!(swapped, Ok(true));
    assert_eq!(swap(&mut cluster, 2, 8, 9), Ok(Ok(())), "later ballots are later still");
}

#[test]
fn a_hundred_clients_of_three_nodes_on_one_partition_all_come_to_their_end() {
    let mut cluster = Cluster::new(6, Shape::default());
    let clients = 99;
    let turns: Vec<Rc<runtime::Semaphore>> = (0..3).map(|_| Rc::new(runtime::Semaphore::new(1))).collect();
    let outputs: Vec<_> = (0..clients)
        .map(|client: usize| {
            let turn = turns[client % 3].clone();
            cluster.spawn(client % 3, move |node: Local| async move {
                for _ in 0..3 {
                    // Statements of one shard on one partition take turns.
                    let _turn = turn.acquire(1).await;
                    node.increment(b"key", 30 * SECOND).await?;
                }
                Ok::<(), CoordinatorError>(())
            })
        })
        .collect();
    let is_done = cluster
        .simulation
        .run_until(60 * SECOND, || outputs.iter().all(|output| output.borrow().is_some()));
    assert!(is_done, "some client starves");
    for (client, output) in outputs.iter().enumerate() {
        assert_eq!(output.take(), Some(Ok(())), "client {client}");
    }
    let read = cluster.on(0, |node| async move {
        node.read_register(b"key", Consistency::Serial, SECOND).await
    });
    assert_eq!(read, Ok(3 * clients as u64), "each increment counts once");
    let refused: u64 = (0..3)
        .map(|node| cluster.local(node).coordinator.context.metrics().cas_contentions)
        .sum();
    assert!(
        refused <= 12,
        "{refused} ballots were refused: coordinators that contend do not take turns"
    );
}

struct History {
    now: Cell<u64>,
    value: Cell<u64>,
    operations: RefCell<Vec<Operation>>,
}

/// The register as a row of the checker: 0, its value at first, is no row.
fn row(value: u64) -> Option<i32> {
    (value > 0).then(|| value.try_into().expect("few values"))
}

/// What a client did to the register: required a value, and changed it unless it only looked.
fn operation(sent: u64, answered: Option<u64>, required: u64, to: Option<u64>) -> Operation {
    Operation {
        sent,
        answered,
        requires: [Requires::Is(row(required)), Requires::Anything],
        changes: [to.and_then(row).map_or(Change::Keep, Change::Set), Change::Keep],
        may_be_left_out: false,
        story: format!("{sent} to {answered:?}: {required} to {to:?}"),
    }
}

impl History {
    fn tick(&self) -> u64 {
        self.now.set(self.now.get() + 1);
        self.now.get()
    }

    /// A swap is sent. The number of its operation, which has no answer yet.
    fn begin(&self, from: u64, to: u64) -> usize {
        let sent = self.tick();
        let mut operations = self.operations.borrow_mut();
        operations.push(operation(sent, None, from, Some(to)));
        operations.len() - 1
    }

    /// It is answered.
    fn end(&self, at: usize, required: u64, to: Option<u64>) {
        let answered = self.tick();
        let answer = &mut self.operations.borrow_mut()[at];
        *answer = operation(answer.sent, Some(answered), required, to);
    }

    /// A read that was sent at some time is answered.
    fn read(&self, sent: u64, seen: u64) {
        let answered = self.tick();
        self.operations
            .borrow_mut()
            .push(operation(sent, Some(answered), seen, None));
    }
}

/// One client: swaps and reads a register, and notes the answers that it gets.
async fn client(node: Local, history: Rc<History>, commit: Consistency) {
    let mut known = 0;
    for _ in 0..6 {
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 120)).await;
        if runtime::random_u64().is_multiple_of(3) {
            let sent = history.tick();
            if let Ok(seen) = node.read_register(b"key", Consistency::Serial, 2 * SECOND).await {
                history.read(sent, seen);
                known = seen;
            }
            continue;
        }
        history.value.set(history.value.get() + 1);
        let to = history.value.get();
        let at = history.begin(known, to);
        let levels = (Consistency::Serial, commit);
        match node.swap(b"key", (known, to), levels, 2 * SECOND).await {
            Ok(Ok(())) => {
                history.end(at, known, Some(to));
                known = to;
            }
            Ok(Err(seen)) => {
                history.end(at, seen, None);
                known = seen;
            }
            // It was not proposed, so it changes nothing.
            Err(CoordinatorError::CasTimeout { .. } | CoordinatorError::Unavailable(_)) => {
                history.operations.borrow_mut()[at].changes = [Change::Keep; ROWS];
            }
            Err(_) => {}
        }
    }
}

#[test]
fn swaps_and_reads_are_in_one_order_whatever_is_killed_or_cut_off() {
    let mut swapped = 0;
    let mut finished = 0;
    for seed in 0..90 {
        let mut cluster = Cluster::new(seed, Shape::default());
        let history = Rc::new(History {
            now: Cell::new(0),
            value: Cell::new(0),
            operations: RefCell::default(),
        });
        let commit = [Consistency::Quorum, Consistency::One, Consistency::Any][seed as usize % 3];
        for number in 0..9 {
            let history = history.clone();
            drop(cluster.spawn(number % 3, move |node| client(node, history, commit)));
        }
        for fault in 0..4 {
            cluster.simulation.run_for(Duration::from_millis(60 + seed * 7 % 50));
            let node = (seed as usize + fault) % 3;
            match (seed as usize / 3 + fault) % 4 {
                0 => cluster.kill(node),
                1 => cluster.crash(node, CrashKind::PowerLoss),
                _ => cluster.split(&[node]),
            }
            cluster.simulation.run_for(Duration::from_millis(100 + seed * 13 % 300));
            if cluster.is_running(node) {
                cluster.heal(&[node]);
            } else {
                cluster.start_again(node);
                let history = history.clone();
                drop(cluster.spawn(node, move |node| client(node, history, commit)));
            }
        }
        cluster.simulation.run_for(30 * SECOND);
        for node in 0..3 {
            let sent = history.tick();
            let read = cluster.on(node, |node| async move {
                node.read_register(b"key", Consistency::Serial, 10 * SECOND).await
            });
            history.read(sent, read.expect("all nodes run"));
            finished += cluster.local(node).coordinator.context.metrics().cas_finished;
        }
        let operations = history.operations.borrow();
        let is_swap = |o: &&Operation| o.answered.is_some() && matches!(o.changes[0], Change::Set(_));
        swapped += operations.iter().filter(is_swap).count();
        if let Err(objection) = linearizable::check(&operations) {
            panic!("seed {seed}: {objection}");
        }
    }
    assert!(
        swapped > 300 && finished > 20,
        "too little happened: {swapped} swaps, {finished} finished by others"
    );
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = || {
        let mut cluster = Cluster::new(9, Shape::default());
        let swapped = swap(&mut cluster, 0, 0, 1);
        (swapped, cluster.simulation.trace_hash())
    };
    assert_eq!(run(), run());
}

/// A cluster in which a decision was made that perhaps no replica has learned.
fn undecided(seed: u64) -> Cluster {
    undecided_in(seed, Shape::default())
}

fn undecided_in(seed: u64, shape: Shape) -> Cluster {
    let mut cluster = Cluster::new(seed, shape);
    // ANY is answered when the decision is made; its node dies before it is learned everywhere.
    let any = cluster.on(0, |node| async move {
        node.swap(b"key", (0, 2), (Consistency::Serial, Consistency::Any), SECOND)
            .await
    });
    assert_eq!(any, Ok(Ok(())), "seed {seed}");
    cluster.crash(0, CrashKind::PowerLoss);
    cluster.start_again(0);
    cluster.simulation.run_for(SECOND);
    cluster
}

#[test]
fn a_truncation_takes_the_proposals_that_nobody_has_finished_with_it() {
    for seed in 0..10 {
        for restarts in [false, true] {
            let mut cluster = undecided(seed);
            assert_eq!(cluster.truncate(1, Duration::ZERO), Ok(()), "seed {seed}");
            for node in (0..3).filter(|_| restarts) {
                cluster.crash(node, CrashKind::PowerLoss);
                cluster.start_again(node);
            }
            for node in 0..3 {
                let read = cluster.on(node, |node| async move {
                    node.read_register(b"key", Consistency::Serial, SECOND).await
                });
                assert_eq!(
                    read,
                    Ok(0),
                    "seed {seed}, restarted: {restarts}: a row of before the truncation is back"
                );
            }
            assert_eq!(swap(&mut cluster, 2, 0, 5), Ok(Ok(())), "seed {seed}");
            assert_eq!(swap(&mut cluster, 0, 5, 6), Ok(Ok(())), "seed {seed}");
        }
    }
}

/// A row is deleted while the decision that wrote it may still be finished. A minute before that decision is too old,
/// another conditional statement begins, whose client waits for an hour. It cannot reach the acceptors for so long that
/// the deletion is purged. Whether it finds the row.
fn is_back_after_a_long_statement(seed: u64) -> bool {
    let mut cluster = undecided_in(
        seed,
        Shape {
            gc_grace_seconds: 300,
            ..Shape::default()
        },
    );
    let deleted = cluster.on(0, |node| async move {
        let timestamp = runtime::wall_clock_us();
        node.delete(b"key", 0, timestamp, Consistency::All).await
    });
    assert_eq!(deleted, Ok(()), "seed {seed}");
    cluster
        .simulation
        .run_for(replica::PROPOSAL_LIFE_MIN * SECOND - 60 * SECOND);
    cluster.split(&[1]);
    let swapped = cluster.spawn(1, |node| async move {
        node.swap(b"key", (0, 5), LEVELS, 3_600 * SECOND).await
    });
    cluster.simulation.run_for(12 * 60 * SECOND);
    cluster.compact(&[0, 1, 2]);
    cluster.heal(&[1]);
    cluster.simulation.run_for(60 * SECOND);
    match swapped.take() {
        Some(Ok(Ok(()))) => false,
        Some(Ok(Err(2))) => true,
        other => panic!("seed {seed}: {other:?}"),
    }
}

#[test]
fn a_statement_whose_client_waits_for_long_finishes_nothing_that_is_too_old() {
    for seed in 0..10 {
        assert!(!is_back_after_a_long_statement(seed), "seed {seed}");
    }
}

#[test]
#[cfg(debug_assertions)]
fn if_the_age_counted_from_the_beginning_of_the_statement_a_deleted_row_would_be_back() {
    let _planted = Planted::new(Some(Bug::ProposalLifeFromStatement));
    assert!((0..10).any(is_back_after_a_long_statement));
}

#[test]
fn a_statement_that_others_overtake_again_and_again_gives_up_when_its_contention_time_is_over() {
    let gave_up = (5..25).any(|seed| statements_that_gave_up(seed) > 0);
    assert!(gave_up, "eight rivals leave no statement alone");
}

/// How many of thirty statements give up, of a node that takes no more than 10 ms of contention.
fn statements_that_gave_up(seed: u64) -> u32 {
    // Statements of one shard take turns, so rivals are on shards of their own.
    let shape = Shape {
        shards: 4,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    let stops = Rc::new(Cell::new(false));
    for client in 0..8 {
        let stops = stops.clone();
        let _rival = cluster.spawn_on(1 + client % 2, client / 2, |node| async move {
            while !stops.get() {
                let _ = node.increment(b"key", SECOND).await;
            }
        });
    }
    let gave_up = cluster.on(0, |node| async move {
        let mut gave_up = 0;
        for _ in 0..30 {
            let began = runtime::now();
            let ended = node
                .increment_until(b"key", 20 * SECOND, Duration::from_millis(10))
                .await;
            let took = runtime::now().saturating_duration_since(began);
            match ended {
                Ok(_) | Err(CoordinatorError::CasUnknown { .. }) => {}
                Err(CoordinatorError::CasTimeout { contentions, .. }) => {
                    assert!(
                        contentions > 0 && took < SECOND,
                        "{contentions} contentions in {took:?}"
                    );
                    gave_up += 1;
                }
                other => panic!("{other:?}"),
            }
        }
        gave_up
    });
    stops.set(true);
    gave_up
}
