//! What a message to another shard and its answer cost, with 1, 16 and 256 of them in flight; and a task, and a yield.
//!
//!     cargo run --release -p runtime --example messages
//!
//! Two shards on the first two processors. Wall time and processor time of both shards, for each round trip.

use runtime::{Options, ShardId, now, spawn, submit_to, yield_now};
use std::time::Duration;

fn main() {
    let options = Options {
        shards: 2,
        pin_cpus: Some(vec![0, 1]),
        ..Options::default()
    };
    let result = runtime::run(options, |shard| {
        Box::pin(async move {
            if shard == ShardId(0) {
                for (in_flight, count) in [(1, 20_000), (16, 200_000), (256, 1_000_000)] {
                    round_trips(in_flight, count).await;
                }
                tasks().await;
            }
        })
    });
    result.expect("the machine has two processors");
}

async fn round_trips(in_flight: u64, count: u64) {
    let (before, start) = (both_shards_nanos().await, now());
    let workers: Vec<_> = (0..in_flight)
        .map(|worker| {
            spawn(async move {
                for number in 0..count / in_flight {
                    let expected = worker + number + 1;
                    assert_eq!(submit_to(ShardId(1), move || worker + number + 1).await, expected);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.await;
    }
    let (wall, processor) = (start.elapsed(), both_shards_nanos().await - before);
    println!(
        "{in_flight:3} in flight: {:6} ns wall, {:6} ns processor",
        each(wall, count),
        processor / count
    );
}

async fn tasks() {
    const COUNT: u64 = 1_000_000;
    let start = now();
    for number in 0..COUNT {
        assert_eq!(spawn(async move { number }).await, number);
    }
    println!("spawn and await a task: {} ns", each(start.elapsed(), COUNT));
    let start = now();
    for _ in 0..COUNT {
        yield_now().await;
    }
    println!("yield: {} ns", each(start.elapsed(), COUNT));
}

fn each(time: Duration, count: u64) -> u64 {
    time.as_nanos() as u64 / count
}

async fn both_shards_nanos() -> u64 {
    submit_to(ShardId(1), thread_nanos).await + thread_nanos()
}

fn thread_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists on every Linux and the time is a valid local.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
