//! Of one acceptor, message by message.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Poll;

use commitlog::LogPlace;
use paxos::{Ballot, Proposal};
use runtime::sim::CrashKind;
use topology::Consistency;

use super::handle_from_beside;
use super::row::WHOLE_BYTES_MAX;
use crate::cas::message::{PaxosAnswer, Phase, Reads};
use crate::fence::Stamp;
use crate::service::ReplicaError;
use crate::support::{Cluster, Local, SECOND, Shape, insert, table};

const KEY: &[u8] = b"key";

fn ballot(timestamp_us: i64) -> Ballot {
    Ballot {
        timestamp_us,
        ..Ballot::NONE
    }
}

/// To insert a row of so many bytes.
fn proposal(at: i64, c: i32, bytes: usize) -> Proposal {
    Proposal::new(ballot(at), None, &insert(&table(), KEY, c, &vec![7; bytes], at))
}

/// A node as an acceptor.
async fn ask(node: &Local, phase: Phase<'static>) -> Result<PaxosAnswer, ReplicaError> {
    handle_from_beside(&node.coordinator.cas, (table().id, KEY.to_vec()), phase, Stamp::PRESENT).await
}

async fn rows(node: Local) -> BTreeMap<i32, Vec<u8>> {
    node.select(KEY, Consistency::One).await.expect("it is a replica")
}

#[test]
fn what_was_accepted_since_is_not_applied_for_what_was_chosen() {
    let mut cluster = Cluster::new(1, Shape::default());
    let answer = cluster.on(1, |node| async move {
        for accepted in [proposal(10, 1, 1), proposal(20, 2, 1)] {
            ask(&node, Phase::Accept(accepted)).await.expect("the disk works");
        }
        ask(&node, Phase::Commit(ballot(10))).await
    });
    assert!(matches!(answer, Ok(PaxosAnswer::Lacking)), "{answer:?}");
    assert_eq!(
        cluster.on(1, rows),
        BTreeMap::new(),
        "nothing at the second ballot was chosen"
    );
}

#[test]
fn a_promise_that_the_log_lost_is_not_repeated_before_it_is_durable() {
    let shape = Shape {
        promises_in_rows: true,
        ..Shape::default()
    };
    let mut cluster = Cluster::new(1, shape);
    cluster.on(1, |node| async move {
        // Too long for the row to be written whole with each ballot.
        let accepted = ask(&node, Phase::Accept(proposal(10, 1, 2 * WHOLE_BYTES_MAX))).await;
        accepted.expect("the disk works");
    });
    let broken = cluster.id(1);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::StorageFull);
    let prepare = |at| move |node| async move { ask(&node, Phase::Prepare(ballot(at), Reads::default())).await };
    let lost = cluster.on(1, prepare(30));
    assert!(matches!(lost, Err(ReplicaError::Log(_))), "{lost:?}");
    // As a leader does that confirms what it has read.
    let repeated = cluster.on(1, prepare(30));
    assert!(matches!(repeated, Ok(PaxosAnswer::Promised(..))), "{repeated:?}");
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.start_again(1);
    let earlier = cluster.on(1, prepare(20));
    assert!(
        matches!(earlier, Ok(PaxosAnswer::Refused(promised)) if promised == ballot(30)),
        "a power loss took back what was promised"
    );
}

#[test]
fn a_decision_that_the_log_lost_is_not_known_as_learned() {
    let mut cluster = Cluster::new(1, Shape::default());
    cluster.on(1, |node| async move {
        ask(&node, Phase::Accept(proposal(10, 1, 1)))
            .await
            .expect("the disk works");
    });
    let broken = cluster.id(1);
    cluster
        .simulation
        .fail_file_op_after(broken, 0, std::io::ErrorKind::StorageFull);
    let lost = cluster.on(1, |node| async move { ask(&node, Phase::Commit(ballot(10))).await });
    assert!(matches!(lost, Err(ReplicaError::Log(_))), "{lost:?}");
    let answer = cluster.on(1, |node| async move {
        ask(&node, Phase::Prepare(ballot(20), Reads::default())).await
    });
    let Ok(PaxosAnswer::Promised(promise, _)) = answer else {
        panic!("no later ballot was promised: {answer:?}");
    };
    assert_eq!(promise.committed, Ballot::NONE, "a power loss would take it");
    assert_eq!(promise.proposal.map(|proposal| proposal.ballot), Some(ballot(10)));
}

/// Whether an acceptor still knows what it has learned when its power goes at some operation on its disk while it
/// accepts the next proposal.
fn outlasts_the_next(seed: u64, operations: u64) -> bool {
    let mut cluster = Cluster::new(seed, Shape::default());
    cluster.on(1, |node| async move {
        // Longer than a sector, so that the mutation and what is written after it are lost or kept separately.
        for phase in [Phase::Accept(proposal(10, 1, 600)), Phase::Commit(ballot(10))] {
            ask(&node, phase).await.expect("the disk works");
        }
    });
    let acceptor = cluster.id(1);
    cluster
        .simulation
        .crash_after_file_ops(acceptor, operations, CrashKind::PowerLoss);
    drop(cluster.spawn(
        1,
        |node| async move { ask(&node, Phase::Accept(proposal(20, 2, 1))).await },
    ));
    cluster.simulation.run_until_ended(acceptor, SECOND);
    cluster.simulation.clear_file_faults(acceptor);
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.start_again(1);
    let promise = cluster.on(1, |node| async move {
        let promise = ask(&node, Phase::Prepare(ballot(30), Reads::default())).await;
        match promise.expect("the disk works") {
            PaxosAnswer::Promised(promise, _) => promise,
            other => panic!("no ballot is later: {other:?}"),
        }
    });
    let is_proposed = promise.proposal.is_some_and(|proposal| proposal.ballot == ballot(10));
    is_proposed || cluster.on(1, rows).contains_key(&1)
}

#[test]
fn what_was_learned_outlasts_a_power_loss_while_the_next_proposal_is_accepted() {
    for (seed, operations) in (0..40).flat_map(|seed| [0, 1, 2].map(|operations| (seed, operations))) {
        assert!(
            outlasts_the_next(seed, operations),
            "seed {seed}, after {operations} operations: neither its proposal nor its row is there"
        );
    }
}

/// A leader that has its quorum gives up what it asked of others.
#[test]
fn a_state_whose_change_is_given_up_is_as_before() {
    let mut cluster = Cluster::new(1, Shape::default());
    let accepted = Proposal::new(
        ballot(20),
        Some(&proposal(5, 1, 1)),
        &insert(&table(), KEY, 1, b"v", 20),
    );
    let known = accepted.clone();
    let promise = cluster.on(1, |node| async move {
        for phase in [Phase::Accept(known), Phase::Learn(proposal(10, 1, 1))] {
            ask(&node, phase).await.expect("the disk works");
        }
        // It waits for the log: what was learned is not what the row is about to lose.
        let mut next = Box::pin(ask(&node, Phase::Accept(proposal(30, 2, 1))));
        let is_done = poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_ready())).await;
        assert!(!is_done, "it does not wait");
        drop(next);
        match ask(&node, Phase::Prepare(ballot(25), Reads::default())).await {
            Ok(PaxosAnswer::Promised(promise, _)) => promise,
            other => panic!("it has promised no later ballot: {other:?}"),
        }
    });
    assert_eq!((promise.proposal, promise.committed), (Some(accepted), ballot(10)));
}

async fn prepare(node: &Local, at: i64) -> PaxosAnswer {
    let prepare = Phase::Prepare(ballot(at), Reads::default());
    ask(node, prepare).await.expect("the node has the table")
}

/// A node whose mark is ahead of the clock, and a ballot of the moment that it has promised without touching its disk.
fn with_a_promise_in_memory() -> (Cluster, i64) {
    let mut cluster = Cluster::new(1, Shape::default());
    let first = cluster.on(1, |node| async move { prepare(&node, runtime::wall_clock_us()).await });
    assert!(matches!(first, PaxosAnswer::Promised(..)), "{first:?}");
    cluster.simulation.run_for(SECOND / 10);
    let acceptor = cluster.id(1);
    cluster
        .simulation
        .fail_file_op_after(acceptor, 0, std::io::ErrorKind::StorageFull);
    let (at, answer) = cluster.on(1, |node| async move {
        let now = runtime::wall_clock_us();
        (now, prepare(&node, now).await)
    });
    assert!(
        matches!(answer, PaxosAnswer::Promised(..)),
        "it needs the disk: {answer:?}"
    );
    cluster.simulation.clear_file_faults(acceptor);
    (cluster, at)
}

/// What an acceptor that has promised a ballot says to proposals of an earlier one.
async fn takes_earlier(node: Local, promised: i64) -> bool {
    let earlier = ask(&node, Phase::Accept(proposal(promised - 1, 1, 1))).await;
    match earlier.expect("the disk works") {
        PaxosAnswer::Refused(by) => {
            assert!(
                by.timestamp_us >= promised,
                "refused for {by}, and {promised} was promised"
            );
            false
        }
        _ => true,
    }
}

#[test]
fn a_promise_that_was_never_written_outlasts_a_crash() {
    for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
        let (mut cluster, promised) = with_a_promise_in_memory();
        cluster.crash(1, kind);
        cluster.start_again(1);
        let is_taken = cluster.on(1, move |node| takes_earlier(node, promised));
        assert!(
            !is_taken,
            "a leader before the one that it promised had its way after {kind:?}"
        );
    }
}

#[test]
#[cfg(debug_assertions)]
fn that_a_restart_forgot_promises_would_be_seen() {
    let (mut cluster, promised) = with_a_promise_in_memory();
    cluster.crash(1, CrashKind::Kill);
    let _planted = stdx::planted::Planted::new(Some(stdx::planted::Bug::ForgottenPromise));
    cluster.start_again(1);
    assert!(cluster.on(1, move |node| takes_earlier(node, promised)));
}

#[test]
fn a_node_that_starts_refuses_nobody_whose_clock_is_right() {
    let (mut cluster, _) = with_a_promise_in_memory();
    cluster.crash(1, CrashKind::Kill);
    cluster.start_again(1);
    let answer = cluster.on(1, |node| async move { prepare(&node, runtime::wall_clock_us()).await });
    assert!(matches!(answer, PaxosAnswer::Promised(..)), "{answer:?}");
}

#[test]
fn a_promise_that_was_never_written_outlasts_its_place_in_memory() {
    let (mut cluster, promised) = with_a_promise_in_memory();
    let is_taken = cluster.on(1, move |node| async move {
        node.coordinator.cas.acceptor.forget_left(table().id, |_| true);
        takes_earlier(node, promised).await
    });
    assert!(!is_taken, "what left memory was forgotten");
}

/// The mark is set ahead of the acceptor's clock, not of the leader's.
#[test]
fn a_ballot_far_ahead_of_the_clock_is_promised_in_its_row() {
    let (mut cluster, now) = with_a_promise_in_memory();
    let ahead = now + 3_600_000_000;
    let answer = cluster.on(1, move |node| async move { prepare(&node, ahead).await });
    assert!(matches!(answer, PaxosAnswer::Promised(..)), "{answer:?}");
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.start_again(1);
    let later = cluster.on(1, move |node| async move { prepare(&node, ahead - 1).await });
    assert!(
        matches!(later, PaxosAnswer::Refused(by) if by == ballot(ahead)),
        "{later:?}"
    );
}

/// A log that takes nothing for a moment, while the next proposal is accepted: the proposal before it was learned, and
/// its row is in memory alone.
#[test]
fn what_was_learned_outlasts_a_log_that_lost_it_with_the_next_proposal() {
    let mut cluster = Cluster::new(1, Shape::default());
    cluster.on(1, |node| async move {
        for phase in [Phase::Accept(proposal(10, 1, 600)), Phase::Commit(ballot(10))] {
            ask(&node, phase).await.expect("the disk works");
        }
    });
    let acceptor = cluster.id(1);
    let accept = |at| move |node| async move { ask(&node, Phase::Accept(proposal(at, 2, 1))).await };
    cluster
        .simulation
        .fail_file_op_after(acceptor, 0, std::io::ErrorKind::StorageFull);
    let lost = cluster.on(1, accept(20));
    assert!(matches!(lost, Err(ReplicaError::Log(_))), "{lost:?}");
    cluster.simulation.clear_file_faults(acceptor);
    let accepted = cluster.on(1, accept(30));
    assert!(matches!(accepted, Ok(PaxosAnswer::Done)), "{accepted:?}");
    cluster.crash(1, CrashKind::PowerLoss);
    cluster.start_again(1);
    let rows = cluster.on(1, rows);
    assert!(rows.contains_key(&1), "a proposal replaced it, and nothing has its row");
}

/// A promise is not sent before what another leader reads with it is durable: a crash must not take that back.
#[test]
fn a_promise_waits_until_what_its_shard_decided_alone_is_durable() {
    let (mut cluster, _) = with_a_promise_in_memory();
    cluster.on(1, |node| async move {
        let learned = ask(&node, Phase::Learn(proposal(10, 1, 1))).await;
        learned.expect("the disk works");
        let (log, mark) = (&node.shard.log, node.shard.log.mark());
        let written = log.written();
        assert!(!log.is_synced(written), "a sync comes once a second");
        node.coordinator.cas.acceptor.decided_alone(LogPlace {
            position: written,
            mark,
        });
        let answer = prepare(&node, runtime::wall_clock_us()).await;
        assert!(matches!(answer, PaxosAnswer::Promised(..)), "{answer:?}");
        assert!(log.is_synced(written), "a power loss takes what the leader has read");
    });
}

/// Its clock is an hour ahead, and corrected while it is down. Ballots are write timestamps: were leaders to take later
/// ones, writes without conditions would not be seen for an hour.
#[test]
fn an_acceptor_whose_clock_was_ahead_refuses_nobody_whose_clock_is_right() {
    const HOUR_US: i64 = 3_600_000_000;
    let mut cluster = Cluster::new(1, Shape::default());
    let acceptor = cluster.id(1);
    cluster.simulation.set_clock_skew_us(acceptor, HOUR_US);
    for _ in 0..2 {
        let answer = cluster.on(1, |node| async move {
            let of_leader = runtime::wall_clock_us() - HOUR_US;
            prepare(&node, of_leader).await
        });
        assert!(matches!(answer, PaxosAnswer::Promised(..)), "{answer:?}");
        cluster.simulation.run_for(SECOND / 10);
    }
    cluster.crash(1, CrashKind::Kill);
    cluster.simulation.set_clock_skew_us(acceptor, 0);
    cluster.start_again(1);
    let answer = cluster.on(1, |node| async move { prepare(&node, runtime::wall_clock_us()).await });
    assert!(matches!(answer, PaxosAnswer::Promised(..)), "{answer:?}");
}
