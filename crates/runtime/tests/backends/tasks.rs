//! Tasks, timers, and waiting for each other.

use crate::on_every_backend;
use runtime::{
    Elapsed, Group, Notify, Semaphore, continue_in, now, offload, offload_background, sleep, spawn, spawn_in,
    spawn_job, timeout, yield_now,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

#[test]
fn a_spawned_task_gives_its_output_to_who_awaits_it() {
    on_every_backend(1, async |_| {
        let tasks: Vec<_> = (0..1000).map(|number| spawn(async move { number * 2 })).collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await, number * 2);
        }
    });
}

#[test]
fn a_dropped_handle_lets_the_task_go_on() {
    on_every_backend(1, async |_| {
        let done = Rc::new(Cell::new(false));
        let notify = Notify::new();
        let finished = notify.notified();
        drop(spawn({
            let (done, notify) = (Rc::clone(&done), notify.clone());
            async move {
                yield_now().await;
                done.set(true);
                notify.notify_all();
            }
        }));
        finished.await;
        assert!(done.get());
    });
}

#[test]
fn tasks_that_are_left_are_dropped_with_their_shard() {
    struct Witness(std::sync::Arc<std::sync::atomic::AtomicU32>);
    impl Drop for Witness {
        fn drop(&mut self) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
    let dropped = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let before = std::sync::Arc::clone(&dropped);
    on_every_backend(1, move |_| {
        let dropped = std::sync::Arc::clone(&dropped);
        async move {
            dropped.store(0, std::sync::atomic::Ordering::SeqCst);
            let witness = Witness(dropped);
            drop(spawn(async move {
                sleep(Duration::from_secs(3600)).await;
                drop(witness);
            }));
            yield_now().await;
        }
    });
    assert_eq!(
        before.load(std::sync::atomic::Ordering::SeqCst),
        1,
        "the task outlived its shard"
    );
}

#[test]
fn timers_fire_in_the_order_of_their_deadlines() {
    on_every_backend(1, async |_| {
        let order = Rc::new(RefCell::new(Vec::new()));
        let start = now();
        let tasks: Vec<_> = [5_u32, 1, 3, 2, 4]
            .into_iter()
            .map(|delay| {
                let order = Rc::clone(&order);
                spawn(async move {
                    sleep(MS * delay).await;
                    assert!(now() - start >= MS * delay, "a timer fired early");
                    order.borrow_mut().push(delay);
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        assert_eq!(*order.borrow(), [1, 2, 3, 4, 5]);
    });
}

#[test]
fn a_timeout_ends_what_takes_too_long_and_nothing_else() {
    on_every_backend(1, async |_| {
        assert_eq!(timeout(MS, std::future::pending::<()>()).await, Err(Elapsed));
        assert_eq!(timeout(Duration::from_secs(3600), async { 7 }).await, Ok(7));
        assert_eq!(
            timeout(Duration::ZERO, async { 7 }).await,
            Ok(7),
            "a ready future wins over a timeout that is due"
        );
    });
}

#[test]
fn a_background_task_that_asks_does_not_keep_the_others_waiting() {
    on_every_backend(1, async |_| {
        let stop = Rc::new(Cell::new(false));
        let hog = spawn_in(Group::BACKGROUND, {
            let stop = Rc::clone(&stop);
            async move {
                let mut turns = 0_u64;
                while !stop.get() {
                    if runtime::should_yield() {
                        yield_now().await;
                        turns += 1;
                    }
                }
                turns
            }
        });
        for _ in 0..5 {
            sleep(MS).await;
        }
        stop.set(true);
        assert!(hog.await > 0, "the hog was never asked to yield");
    });
}

#[test]
fn a_task_that_changes_its_group_goes_on_in_the_other_with_what_it_starts() {
    on_every_backend(1, async |_| {
        let few = Group::new("few", 200);
        let began = spawn_in(few, async move {
            let before = (runtime::group(), spawn(async { runtime::group() }).await);
            continue_in(Group::STATEMENT).await;
            // Several polls, and a task of its own.
            sleep(MS).await;
            let after = (runtime::group(), spawn(async { runtime::group() }).await);
            (before, after)
        });
        let statement = Group::STATEMENT;
        assert_eq!(began.await, ((few, few), (statement, statement)));
    });
}

#[test]
fn a_task_that_is_put_into_another_group_runs_there_even_if_it_was_queued() {
    on_every_backend(1, async |_| {
        let few = Group::new("few", 200);
        let told = Rc::new(Notify::new());
        let waits = told.notified();
        let queued = spawn_in(few, async { runtime::group() });
        let waiting = spawn_in(few, async move {
            waits.await;
            runtime::group()
        });
        queued.set_group(Group::STATEMENT);
        assert_eq!(queued.await, Group::STATEMENT, "it was runnable");
        sleep(MS).await;
        waiting.set_group(Group::STATEMENT);
        told.notify_all();
        assert_eq!(waiting.await, Group::STATEMENT, "it waited");
    });
}

#[test]
fn offloaded_work_and_jobs_come_back_to_their_shard() {
    on_every_backend(2, async |shard| {
        let offloaded: Vec<_> = (0..20).map(|number| spawn(offload(move || number * number))).collect();
        let background: Vec<_> = (0..20)
            .map(|number| spawn(offload_background(move || number + number)))
            .collect();
        let jobs: Vec<_> = (0..5)
            .map(|number| spawn_job("test job", move || number + 100))
            .collect();
        for (number, task) in offloaded.into_iter().enumerate() {
            assert_eq!(task.await, number * number);
        }
        for (number, task) in background.into_iter().enumerate() {
            assert_eq!(task.await, 2 * number);
        }
        for (number, job) in jobs.into_iter().enumerate() {
            assert_eq!(job.await, number + 100);
        }
        assert_eq!(runtime::shard(), shard);
    });
}

/// Policy and nice value of the calling thread, from proc(5).
fn priority() -> (u32, i32) {
    let text = runtime::fs::read("/proc/thread-self/stat").expect("this is Linux");
    let text = String::from_utf8_lossy(&text).into_owned();
    // The name of the thread may hold blanks, so count from its closing bracket: nice is field 19, the policy field 41.
    let (_, fields) = text.rsplit_once(')').expect("a name in brackets");
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let field = |number: usize| fields[number - 3].parse::<i32>().expect("a number");
    (field(41).unsigned_abs(), field(19))
}

#[test]
fn background_work_and_jobs_run_at_a_lower_priority_than_shards_and_offloaded_work() {
    const BATCH: u32 = 3;
    crate::on_every_kernel_backend(1, async |_| {
        let of_shard = priority();
        assert_ne!(of_shard.0, BATCH);
        assert_eq!(offload(priority).await, of_shard, "requests wait for it");
        let low = (BATCH, of_shard.1.max(10));
        assert_eq!(offload_background(priority).await, low);
        assert_eq!(spawn_job("priority", priority).await, low);
    });
}

#[test]
fn at_most_the_allowed_jobs_run_at_once() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    on_every_backend(1, async |_| {
        runtime::set_jobs_max(2);
        assert_eq!(runtime::jobs_max(), 2);
        let running = Arc::new(AtomicUsize::new(0));
        let jobs: Vec<_> = (0..20)
            .map(|_| {
                let running = Arc::clone(&running);
                spawn_job("counted", move || {
                    let now_running = running.fetch_add(1, Ordering::SeqCst) + 1;
                    std::thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                    now_running
                })
            })
            .collect();
        for job in jobs {
            let running = job.await;
            assert!(running <= 2, "{running} jobs ran at once, 2 are allowed");
        }
    });
}

#[test]
fn a_semaphore_serves_in_line_and_a_dropped_waiter_leaves_it() {
    on_every_backend(1, async |_| {
        let semaphore = Semaphore::new(3);
        let held = semaphore.acquire(2).await;
        let order = Rc::new(RefCell::new(Vec::new()));
        let waiter = |name: &'static str, units| {
            let (semaphore, order) = (semaphore.clone(), Rc::clone(&order));
            spawn(async move {
                let _permit = semaphore.acquire(units).await;
                order.borrow_mut().push(name);
            })
        };
        let large = waiter("large", 3);
        yield_now().await;
        let small = waiter("small", 1);
        yield_now().await;
        assert_eq!(semaphore.waiting(), 2);
        assert!(
            semaphore.try_acquire(1).is_none(),
            "one unit is free, but others are first in line"
        );
        assert_eq!(timeout(MS, semaphore.acquire(1)).await.err(), Some(Elapsed));
        assert_eq!(
            semaphore.waiting(),
            2,
            "the waiter that was dropped still stands in line"
        );
        drop(held);
        large.await;
        small.await;
        assert_eq!(*order.borrow(), ["large", "small"]);
        assert_eq!(semaphore.available(), 3, "units were lost");
    });
}

#[test]
fn a_notification_for_one_is_passed_on_by_a_dropped_waiter() {
    on_every_backend(1, async |_| {
        let notify = Notify::new();
        let (first, second) = (notify.notified(), notify.notified());
        notify.notify_one();
        drop(first);
        second.await;
        let late = notify.notified();
        assert_eq!(
            timeout(MS, late).await,
            Err(Elapsed),
            "a notification was kept for who came later"
        );
    });
}

#[test]
fn a_notification_for_all_reaches_all_who_wait() {
    on_every_backend(1, async |_| {
        let notify = Notify::new();
        let tasks: Vec<_> = (0..10).map(|_| spawn(notify.notified())).collect();
        notify.notify_all();
        for task in tasks {
            task.await;
        }
    });
}

#[test]
fn threads_of_pools_are_not_bound_to_the_processor_of_a_pinned_shard() {
    let processors = || std::thread::available_parallelism().expect("the system tells").get();
    let all = processors();
    let options = runtime::Options {
        shards: 1,
        pin_cpus: Some(vec![0]),
        ..runtime::Options::default()
    };
    let result = runtime::run(options, move |_| {
        Box::pin(async move {
            assert_eq!(processors(), 1, "the shard was to be pinned");
            assert_eq!(
                offload(processors).await,
                all,
                "offloaded work is stuck on the shard's processor"
            );
            assert_eq!(
                spawn_job("count", processors).await,
                all,
                "jobs are stuck on the shard's processor"
            );
        })
    });
    result.expect("processor 0 exists");
}

/// A computation of so many steps, as of a list that a client sent.
fn count(steps: u64) -> u64 {
    stdx::preempt::allowed(|| {
        (0..steps).fold(0, |sum, step| {
            stdx::preempt::point();
            std::hint::black_box(sum + step)
        })
    })
}

#[test]
fn a_long_computation_is_suspended_in_the_middle_of_a_poll() {
    on_every_backend(1, |_| async {
        let turns = Rc::new(Cell::new(0));
        let others = Rc::clone(&turns);
        let beside = runtime::spawn(async move {
            loop {
                others.set(others.get() + 1);
                runtime::yield_now().await;
            }
        });
        let mut steps = 1 << 16;
        loop {
            let seen = Rc::clone(&turns);
            let computed = runtime::spawn(runtime::preemptible(async move {
                let before = seen.get();
                let sum = count(steps);
                // Its own waits are those of any future.
                runtime::sleep(Duration::from_micros(1)).await;
                (sum, seen.get() - before)
            }));
            let (sum, turns) = computed.await;
            assert_eq!(sum, steps * (steps - 1) / 2);
            if turns > 10 {
                break;
            }
            // Done within a slice.
            steps *= 2;
        }
        drop(beside);
    });
}

#[test]
fn the_companion_of_a_suspended_computation_is_not_visible() {
    on_every_backend(1, |_| async {
        let seen = Rc::new(Cell::new(false));
        let other = Rc::clone(&seen);
        let beside = runtime::spawn(async move {
            loop {
                other.set(other.get() || runtime::has_companion());
                runtime::yield_now().await;
            }
        });
        let computed = runtime::spawn(runtime::preemptible(async {
            let former = runtime::set_companion(Some(Rc::new(7_u32)));
            count(1 << 20);
            let own = runtime::set_companion(former).and_then(|own| own.downcast::<u32>().ok());
            own.as_deref().copied()
        }));
        assert_eq!(computed.await, Some(7));
        assert!(!seen.get(), "another task saw it");
        drop(beside);
    });
}

type Computation = std::pin::Pin<Box<dyn Future<Output = ()>>>;

/// Polls the computation once.
async fn poll_once(computation: &mut Computation) {
    std::future::poll_fn(|context| {
        let _ = computation.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}

#[test]
fn with_many_suspended_computations_further_ones_wait_and_long_ones_leave_stacks_to_others() {
    on_every_backend(1, |_| async {
        let begun = Rc::new(Cell::new(0));
        let computation = || {
            let begun = Rc::clone(&begun);
            async move {
                begun.set(begun.get() + 1);
                count(1 << 20);
            }
        };
        let mut computations: Vec<Computation> = Vec::new();
        for _ in 0..150 {
            computations.push(Box::pin(runtime::preemptible_long(computation())));
        }
        for _ in 0..150 {
            computations.push(Box::pin(runtime::preemptible(computation())));
        }
        let (long, others) = computations.split_at_mut(150);
        for computation in long {
            poll_once(computation).await;
        }
        assert_eq!(begun.get(), 96, "so many stacks are for long ones");
        for computation in others {
            poll_once(computation).await;
        }
        assert_eq!(begun.get(), 128, "and so many in all");
        // Each of the rest begins when one of these has ended; what has not begun is dropped without a poll.
        computations.truncate(1);
        for computation in computations {
            computation.await;
        }
    });
}

#[test]
fn with_very_many_long_computations_none_keeps_the_shard() {
    on_every_backend(1, |_| async {
        let (turns, kept) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
        let others = Rc::clone(&turns);
        let beside = runtime::spawn(async move {
            loop {
                others.set(others.get() + 1);
                runtime::yield_now().await;
            }
        });
        let compute = |_| {
            let (turns, kept) = (Rc::clone(&turns), Rc::clone(&kept));
            runtime::spawn(runtime::preemptible(async move {
                let before = turns.get();
                count(1 << 19);
                kept.set(kept.get() + usize::from(turns.get() == before));
            }))
        };
        let computations: Vec<_> = (0..300).map(compute).collect();
        for computation in computations {
            computation.await;
        }
        assert_eq!(kept.get(), 0, "so many ended in their first poll");
        drop(beside);
    });
}

#[test]
fn a_suspended_computation_that_is_dropped_ends_its_poll() {
    on_every_backend(1, |_| async {
        let ended = Rc::new(Cell::new(false));
        let end = Rc::clone(&ended);
        let mut computed = Box::pin(runtime::preemptible(async move {
            count(1 << 24);
            end.set(true);
            std::future::pending::<()>().await;
        }));
        let stopped = std::future::poll_fn(|context| {
            let polled = computed.as_mut().poll(context);
            std::task::Poll::Ready(polled.is_pending())
        });
        assert!(stopped.await, "it is not ready");
        assert!(!ended.get(), "16 million steps take more than a slice");
        drop(computed);
        assert!(ended.get());
    });
}

#[test]
#[should_panic(expected = "in the middle of a computation")]
fn a_panic_in_a_preemptible_task_reaches_the_test() {
    let mut simulation = runtime::sim::Simulation::new(1);
    let node = simulation.add_node(1);
    simulation.start(node, |_| {
        Box::pin(async {
            runtime::preemptible(async {
                count(1000);
                panic!("in the middle of a computation");
            })
            .await
        })
    });
    simulation.run_until_ended(node, Duration::from_secs(10));
}
