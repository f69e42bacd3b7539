//! Messages between shards, and shard locals.

use crate::on_every_backend;
use runtime::{ShardId, local, set_local, shard, shard_count, spawn, submit_async_to, submit_to, yield_now};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Default)]
struct Seen(RefCell<Vec<u32>>);

#[test]
fn messages_run_on_their_target_in_the_order_they_were_sent() {
    on_every_backend(2, async |own| {
        set_local(Rc::new(Seen::default()));
        if own == ShardId(1) {
            // Wait until the other shard has sent everything.
            while local::<Seen>().is_none_or(|seen| seen.0.borrow().len() < 10_000) {
                runtime::sleep(std::time::Duration::from_millis(1)).await;
            }
            let seen = local::<Seen>().expect("it was set above");
            assert!(
                seen.0.borrow().iter().copied().eq(0..10_000),
                "messages overtook each other"
            );
            return;
        }
        // The other shard sets its local before its first message can arrive, or answers that it has not.
        while !submit_to(ShardId(1), || local::<Seen>().is_some()).await {
            yield_now().await;
        }
        // Many more than a ring holds, while the target is kept from taking them. A simulated target runs on our own
        // thread and cannot take them before we await.
        let sender_thread = std::thread::current().id();
        let (all_sent, wait_for_all) = std::sync::mpsc::channel::<()>();
        let blocked = submit_to(ShardId(1), move || {
            if std::thread::current().id() != sender_thread {
                assert!(wait_for_all.recv().is_err(), "nothing is ever sent");
            }
        });
        let answers: Vec<_> = (0..10_000_u32)
            .map(|number| {
                submit_to(ShardId(1), move || {
                    local::<Seen>().expect("asked above").0.borrow_mut().push(number);
                    (shard(), number)
                })
            })
            .collect();
        drop(all_sent);
        blocked.await;
        for (number, answer) in (0..).zip(answers) {
            assert_eq!(answer.await, (ShardId(1), number));
        }
        assert!(
            runtime::metrics().messages_overflowed > 0,
            "the ring was meant to be full"
        );
    });
}

#[test]
fn a_flood_beyond_ring_and_overflow_loses_nothing() {
    on_every_backend(2, async |own| {
        if own == ShardId(1) {
            return;
        }
        let answers: Vec<_> = (0..50_000_u64)
            .map(|number| spawn(submit_to(ShardId(1), move || number)))
            .collect();
        let mut sum = 0;
        for answer in answers {
            sum += answer.await;
        }
        assert_eq!(sum, 50_000 * 49_999 / 2);
    });
}

#[test]
fn every_shard_can_ask_every_shard_itself_included() {
    on_every_backend(3, async |own| {
        for target in (0..shard_count()).map(ShardId) {
            for round in 0..100 {
                assert_eq!(submit_to(target, move || (shard(), round)).await, (target, round));
            }
            let slow = submit_async_to(target, move || async move {
                runtime::sleep(std::time::Duration::from_millis(1)).await;
                (own, shard())
            });
            assert_eq!(slow.await, (own, target));
        }
    });
}

#[test]
fn a_dropped_answer_does_not_take_the_message_back() {
    on_every_backend(2, async |own| {
        if own == ShardId(1) {
            set_local(Rc::new(Seen::default()));
            while local::<Seen>().is_none_or(|seen| seen.0.borrow().is_empty()) {
                runtime::sleep(std::time::Duration::from_millis(1)).await;
            }
            return;
        }
        while !submit_to(ShardId(1), || local::<Seen>().is_some()).await {
            yield_now().await;
        }
        drop(submit_to(ShardId(1), || {
            local::<Seen>().expect("asked above").0.borrow_mut().push(1)
        }));
    });
}
