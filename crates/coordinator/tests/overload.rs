//! What is answered when there is no room: for a request, or for the answer to one that ran.

use crate::support::{Cluster, SECOND, Shape, addition, addressed, counters, partition, sum};
use coordinator::{CoordinatorError, WriteKind};
use rpc::Limits;
use stdx::planted::{Bug, Planted};
use topology::{Consistency, Replication};

/// Twenty keys of which the first node has no copy, so that others lead the additions to them.
const KEYS: u8 = 20;
/// Additions to each key.
const ADDITIONS: usize = 10;

/// Makes additions through node 0 while answers that it does not read fill the connections to it. What was
/// acknowledged, what may have been made besides, and what the counters say in the end.
fn additions_whose_answers_find_no_room(seed: u64) -> (i64, i64, i64) {
    let shape = Shape {
        replication: Replication::Simple { factor: 2 },
        limits: Limits {
            ping_interval: SECOND,
            answer_bytes_max: 64,
            ..Limits::default()
        },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(seed, shape);
    let first = cluster.local(0).coordinator.context.view().me;
    let keys = (0..=u8::MAX).map(|n| vec![n]);
    let keys: Vec<Vec<u8>> = keys
        .filter(|key| cluster.replicas(key).iter().all(|r| r.node != first))
        .take(usize::from(KEYS))
        .collect();
    let mut outcomes = Vec::new();
    for key in keys.iter().flat_map(|key| std::iter::repeat_n(key, ADDITIONS)) {
        let key = key.clone();
        outcomes.push(cluster.spawn(0, |node| async move {
            let additions = vec![addressed(addition(&key, 1))];
            node.coordinator
                .counters
                .add(additions, &node.dated(Consistency::One))
                .await
        }));
    }
    cluster.simulation.run_for(20 * SECOND);
    let (mut made, mut possible) = (0, 0);
    for outcome in outcomes {
        match outcome.take().expect("every addition is answered") {
            Ok(()) => made += 1,
            Err(CoordinatorError::Overloaded(_) | CoordinatorError::Unavailable(_)) => {}
            Err(CoordinatorError::WriteFailure { kind, .. } | CoordinatorError::WriteTimeout { kind, .. }) => {
                assert_eq!(kind, WriteKind::Counter);
                possible += 1;
            }
            Err(other) => panic!("{other}"),
        }
    }
    let mut total = 0;
    for key in keys {
        total += cluster.on(1, |node| async move {
            let read = node.read(&counters(), partition(&key), Consistency::All, 100);
            let mut read = read.expect("all replicas live");
            let mut blocks = Vec::new();
            while let Some(block) = read.next_block().await.expect("all replicas answer") {
                blocks.push(block);
            }
            sum(&blocks)
        });
    }
    (made, possible, total)
}

#[test]
fn an_addition_whose_answer_finds_no_room_is_not_made_again_by_another_leader() {
    let mut unanswered = 0;
    for seed in 0..5 {
        let (made, possible, total) = additions_whose_answers_find_no_room(seed);
        assert!(
            (made..=made + possible).contains(&total),
            "seed {seed}: {made} additions were acknowledged, {possible} more may have been made, and the counters say {total}"
        );
        unanswered += possible;
    }
    assert!(unanswered > 0, "some answers found no room");
}

#[test]
#[cfg(debug_assertions)]
fn that_it_was_made_again_would_be_seen() {
    let _planted = Planted::new(Some(Bug::LostAnswer));
    let is_counted_twice = |seed| {
        let (made, possible, total) = additions_whose_answers_find_no_room(seed);
        total > made + possible
    };
    assert!((0..5).any(is_counted_twice));
}
