//! Turns on partitions: first come, first served, one at a time, and forgotten when the queue is empty.

use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use commitlog::ReplayPosition;
use coordinator::PartitionTurns;
use runtime::sim::Simulation;
use schema::TableId;

fn table(number: u128) -> TableId {
    TableId(uuid::Uuid::from_u128(number))
}

/// Runs on one simulated shard.
fn on_a_shard<F: Future<Output = ()> + 'static>(main: fn() -> F) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.start(node, move |_| Box::pin(main()));
    assert!(
        sim.run_until_ended(node, Duration::from_secs(10)),
        "somebody waits indefinitely"
    );
}

#[test]
fn turns_come_in_the_order_of_arrival_and_other_partitions_do_not_wait() {
    on_a_shard(|| async {
        let turns = PartitionTurns::default();
        let order = Rc::new(RefCell::new(Vec::new()));
        let first = turns.take(table(1), b"k").await;
        let waiting: Vec<_> = (0..5)
            .map(|number| {
                let (turns, order) = (turns.clone(), Rc::clone(&order));
                runtime::spawn(async move {
                    let _turn = turns.take(table(1), b"k").await;
                    runtime::sleep(Duration::from_millis(5 - number)).await;
                    order.borrow_mut().push(number);
                })
            })
            .collect();
        runtime::sleep(Duration::from_millis(1)).await;
        let (_key, _table) = (turns.take(table(1), b"l").await, turns.take(table(2), b"k").await);
        assert!(order.borrow().is_empty(), "somebody overtook the one who has the turn");
        drop(first);
        for one in waiting {
            one.await;
        }
        assert_eq!(*order.borrow(), [0, 1, 2, 3, 4]);
    });
}

#[test]
fn who_gives_up_waiting_does_not_hold_up_the_others() {
    on_a_shard(|| async {
        let turns = PartitionTurns::default();
        let first = turns.take(table(1), b"k").await;
        let late = runtime::timeout(Duration::from_millis(1), turns.take(table(1), b"k")).await;
        assert!(late.is_err(), "two have a turn on one partition");
        drop(first);
        drop(turns.take(table(1), b"k").await);
        assert_eq!(turns.partitions(), 0, "a partition that nobody waits for is remembered");
    });
}

#[test]
fn what_was_written_is_known_until_the_last_one_has_waited_for_the_log() {
    on_a_shard(|| async {
        let turns = PartitionTurns::default();
        let position = ReplayPosition {
            segment: 3,
            offset: 4096,
        };
        let writer = turns.take(table(1), b"k").await;
        writer.wrote(position);
        let writer = writer.end();
        let reader = turns.take(table(1), b"k").await.end();
        drop(writer);
        assert_eq!(
            reader.written(),
            position,
            "a statement that only read does not wait for what it saw"
        );
        drop(reader);
        let later = turns.take(table(1), b"k").await.end();
        assert_eq!(later.written(), ReplayPosition::default());
    });
}
