//! What a job, an operator and a tool see of tasks.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use runtime::sim::Simulation;
use tasks::{AbortError, Class, ENDED_MAX, ERROR_BYTES_MAX, Kind, Module, Origin, Spec, State, Status, Task, Tasks};
use uuid::Uuid;

const MERGE: Kind = Kind {
    name: "merge",
    module: Module::Compaction,
    class: Class::Compaction,
    units: "bytes",
    is_abortable: true,
};
const WRITE: Kind = Kind {
    name: "write",
    module: Module::Flush,
    class: Class::Flush,
    units: "bytes",
    is_abortable: false,
};
const LINK: Kind = Kind {
    name: "link",
    module: Module::Snapshot,
    class: Class::Maintenance,
    units: "files",
    is_abortable: false,
};

/// Runs a test on a simulated shard.
fn on_shard(test: impl AsyncFn() + Copy + 'static) {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.start(node, move |_| Box::pin(async move { test().await }));
    assert!(sim.run_until_ended(node, Duration::from_hours(24)), "it did not end");
}

fn start(tasks: &Arc<Tasks>, kind: &'static Kind, total: u64, origin: &Origin) -> Task {
    let spec = Spec {
        total,
        ..Spec::of(kind)
    };
    tasks.start(spec, origin)
}

fn status(tasks: &Tasks, id: Uuid) -> Status {
    tasks.status(id).expect("the task is kept")
}

fn ids(statuses: &[Status]) -> Vec<Uuid> {
    statuses.iter().map(|status| status.id).collect()
}

#[test]
fn a_task_tells_where_it_is_from_its_creation_to_its_end() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let task = start(&tasks, &MERGE, 200, &Origin::Operator);
        let id = task.id();
        assert_eq!(
            (status(&tasks, id).state, status(&tasks, id).started_us),
            (State::Created, 0)
        );
        task.begin();
        task.advance(50);
        let now = status(&tasks, id);
        assert_eq!((now.state, now.percent(), now.ended_us), (State::Running, 25, 0));
        runtime::sleep(Duration::from_secs(1)).await;
        task.done();
        let now = status(&tasks, id);
        assert_eq!((now.state, now.completed, now.percent()), (State::Done, 200, 100));
        assert!(now.ended_us >= now.started_us + 1_000_000 && now.started_us >= now.created_us);
        assert!(now.error.is_empty());
    });
}

#[test]
fn a_task_that_nobody_ended_has_failed() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let task = start(&tasks, &MERGE, 0, &Origin::Operator);
        let id = task.id();
        drop(task);
        let now = status(&tasks, id);
        assert_eq!(
            (now.state, now.error.as_str()),
            (State::Failed, "ended without a result")
        );
    });
}

#[test]
fn a_tree_is_listed_level_by_level_and_its_progress_adds_up() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let root = start(&tasks, &MERGE, 100, &Origin::Operator);
        let (first, second) = (
            start(&tasks, &MERGE, 60, &root.as_origin()),
            start(&tasks, &LINK, 9, &root.as_origin()),
        );
        let leaf = start(&tasks, &MERGE, 40, &first.as_origin());
        let expected = [root.id(), first.id(), second.id(), leaf.id()];
        assert_eq!(ids(&tasks.tree(root.id()).expect("it is there")), expected);
        leaf.advance(10);
        second.advance(9);
        let done = |task: &Task| status(&tasks, task.id()).completed;
        assert_eq!(
            (done(&leaf), done(&first), done(&root)),
            (10, 10, 10),
            "files are not bytes"
        );
        let root_id = root.id();
        leaf.done();
        assert_eq!(done(&root), 40, "what a task did not tell of is done when it is");
        let now = status(&tasks, root_id);
        assert_eq!(now.children, [first.id(), second.id()]);
        assert_eq!(status(&tasks, first.id()).parent, Some(root_id));
        let numbers: Vec<u64> = tasks
            .tree(root_id)
            .iter()
            .flatten()
            .map(|s| s.sequence_number)
            .collect();
        assert_eq!(numbers, [1; 4], "a tree has one sequence number");
    });
}

#[test]
fn lists_leave_out_what_no_operator_asked_for() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let asked = start(&tasks, &MERGE, 0, &Origin::Operator);
        let part = start(&tasks, &MERGE, 0, &asked.as_origin());
        let own = start(&tasks, &MERGE, 0, &Origin::Node);
        let other = start(&tasks, &WRITE, 0, &Origin::Operator);
        assert_eq!(ids(&tasks.list(Module::Compaction, false)), [asked.id()]);
        assert_eq!(
            ids(&tasks.list(Module::Compaction, true)),
            [asked.id(), part.id(), own.id()]
        );
        assert_eq!(ids(&tasks.list(Module::Flush, false)), [other.id()]);
    });
}

#[test]
fn a_tree_is_kept_for_its_time_to_live_and_no_longer() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        tasks.set_ttl(Duration::from_secs(10));
        tasks.set_user_ttl(Duration::from_secs(100));
        let (own, asked) = (
            start(&tasks, &MERGE, 0, &Origin::Node),
            start(&tasks, &MERGE, 0, &Origin::Operator),
        );
        let part = start(&tasks, &MERGE, 0, &asked.as_origin());
        let (own_id, asked_id, part_id) = (own.id(), asked.id(), part.id());
        own.done();
        part.done();
        let kept = || [own_id, asked_id, part_id].map(|id| tasks.status(id).is_some());
        runtime::sleep(Duration::from_secs(9)).await;
        assert_eq!(kept(), [true, true, true]);
        runtime::sleep(Duration::from_secs(2)).await;
        assert_eq!(kept(), [false, true, true], "a part stays as long as the task above it");
        asked.done();
        runtime::sleep(Duration::from_secs(99)).await;
        assert_eq!(kept(), [false, true, true]);
        tasks.set_user_ttl(Duration::from_secs(5));
        assert_eq!(
            kept(),
            [false, false, false],
            "a shorter time is in force for those that have ended"
        );
    });
}

#[test]
fn who_waits_for_a_task_learns_its_end_even_when_it_is_not_kept() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        tasks.set_user_ttl(Duration::ZERO);
        let task = start(&tasks, &MERGE, 0, &Origin::Operator);
        let id = task.id();
        let waiting = tasks.clone();
        let waiter = runtime::spawn(async move { waiting.wait(id).await });
        runtime::sleep(Duration::from_secs(1)).await;
        task.failed("no room");
        let told = waiter.await.expect("it was there");
        assert_eq!((told.state, told.error.as_str()), (State::Failed, "no room"));
        assert_eq!(tasks.wait(id).await, None, "it is not kept");
    });
}

#[test]
fn more_ended_tasks_than_are_kept_push_the_oldest_out() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let mut all = Vec::new();
        for _ in 0..ENDED_MAX + 10 {
            let task = start(&tasks, &WRITE, 0, &Origin::Operator);
            all.push(task.id());
            task.done();
        }
        assert_eq!(ids(&tasks.list(Module::Flush, false)), all[10..]);
        let failed = start(&tasks, &WRITE, 0, &Origin::Operator);
        let id = failed.id();
        failed.failed(&"é".repeat(ERROR_BYTES_MAX));
        let kept = status(&tasks, id).error;
        assert!(
            kept.len() <= ERROR_BYTES_MAX + 3 && kept.ends_with("é…"),
            "{} bytes",
            kept.len()
        );
    });
}

#[test]
fn draining_a_module_forgets_what_ended_and_nothing_else() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let running = start(&tasks, &MERGE, 0, &Origin::Operator);
        start(&tasks, &MERGE, 0, &Origin::Operator).done();
        start(&tasks, &WRITE, 0, &Origin::Operator).done();
        tasks.drain(Module::Compaction);
        assert_eq!(ids(&tasks.list(Module::Compaction, true)), [running.id()]);
        assert_eq!(tasks.list(Module::Flush, true).len(), 1);
    });
}

#[test]
fn an_abort_reaches_every_task_below_and_those_that_come_later() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let root = start(&tasks, &MERGE, 0, &Origin::Operator);
        let (part, write) = (
            start(&tasks, &MERGE, 0, &root.as_origin()),
            start(&tasks, &WRITE, 0, &root.as_origin()),
        );
        let leaf = start(&tasks, &MERGE, 0, &part.as_origin());
        let other = start(&tasks, &MERGE, 0, &Origin::Operator);
        assert_eq!(tasks.abort(root.id()), Ok(()));
        leaf.aborted().await;
        let late = start(&tasks, &MERGE, 0, &leaf.as_origin());
        let aborted = [&root, &part, &leaf, &late, &write, &other].map(Task::is_aborted);
        assert_eq!(
            aborted,
            [true, true, true, true, false, false],
            "the write cannot be stopped, and the last is no part of it"
        );
        assert_eq!(tasks.abort(write.id()), Err(AbortError::NotAbortable));
        assert_eq!(tasks.abort(Uuid::nil()), Err(AbortError::Unknown));
        root.failed("aborted");
        other.failed("the disk");
        let counts = tasks.classes()[Class::Compaction as usize].counts;
        assert_eq!((counts.done, counts.failed, counts.aborted), (0, 1, 1));
    });
}

#[test]
fn a_task_that_waits_for_a_worker_can_be_aborted_and_the_next_gets_its_turn() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut running = Vec::new();
        let mut ids = Vec::new();
        for number in 0..4 {
            let task = start(&tasks, &MERGE, 0, &Origin::Operator);
            ids.push(task.id());
            let order = order.clone();
            running.push(runtime::spawn(async move {
                let result = task.run_job(move |_| number).await;
                order.borrow_mut().push(result);
                task.end(&result);
            }));
        }
        runtime::yield_now().await;
        let states: Vec<State> = ids.iter().map(|id| status(&tasks, *id).state).collect();
        assert_eq!(
            states,
            [State::Running, State::Created, State::Created, State::Created],
            "one worker runs one job"
        );
        assert_eq!(tasks.abort(ids[1]), Ok(()));
        for job in running {
            job.await;
        }
        assert_eq!(*order.borrow(), [Err(tasks::Aborted), Ok(0), Ok(2), Ok(3)]);
        assert_eq!(status(&tasks, ids[1]).error, "aborted");
    });
}

#[test]
fn more_workers_let_jobs_that_wait_begin_at_once() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let mut jobs = Vec::new();
        for number in 0..3 {
            let task = start(&tasks, &MERGE, 0, &Origin::Operator);
            jobs.push(runtime::spawn(async move {
                let result = task.run_job(move |_| number).await;
                task.end(&result);
            }));
        }
        runtime::yield_now().await;
        let of_class = || tasks.classes().swap_remove(Class::Compaction as usize);
        assert_eq!((of_class().running, of_class().waiting), (1, 2));
        tasks.set_workers(Class::Compaction, None, 3);
        runtime::yield_now().await;
        assert_eq!((of_class().running, of_class().waiting), (3, 0));
        assert!(runtime::jobs_max() >= 3, "a worker without a thread");
        for job in jobs {
            job.await;
        }
        assert_eq!((of_class().running, of_class().counts.done), (0, 3));
    });
}

#[test]
fn a_limit_slows_jobs_of_its_class_down() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        tasks.set_bytes_per_second(Class::Compaction, 1_000);
        for (kind, least, most) in [(&MERGE, 99, 101), (&WRITE, 0, 1)] {
            let begun = runtime::now();
            let task = start(&tasks, kind, 0, &Origin::Operator);
            let result = task.run_job(|control| control.spend(100_000)).await;
            task.end(&result);
            let took = (runtime::now() - begun).as_secs();
            assert!((least..=most).contains(&took), "{}: {took} s", kind.name);
        }
        assert_eq!(tasks.classes()[Class::Compaction as usize].counts.bytes, 100_000);
    });
}

#[test]
fn a_job_that_waits_for_its_budget_goes_on_when_the_limit_is_lifted_or_it_is_aborted() {
    let options = runtime::Options {
        shards: 1,
        ..runtime::Options::default()
    };
    // Real threads: the job blocks for years unless it is woken.
    let ended = runtime::run(options, |_| {
        Box::pin(async {
            let tasks = Tasks::new(1, Uuid::nil());
            tasks.size_pool();
            for is_lifted in [true, false] {
                tasks.set_bytes_per_second(Class::Compaction, 1);
                let task = start(&tasks, &MERGE, 0, &Origin::Operator);
                let (id, of_job) = (task.id(), tasks.clone());
                let job = runtime::spawn(async move {
                    let result = task.run_job(|control| {
                        control.advance(1);
                        control.spend(1 << 40);
                        control.is_aborted()
                    });
                    let result = result.await;
                    task.end(&result);
                    drop(of_job);
                    result
                });
                while status(&tasks, id).state != State::Running {
                    runtime::yield_now().await;
                }
                if is_lifted {
                    tasks.set_bytes_per_second(Class::Compaction, 0)
                } else {
                    tasks.abort(id).expect("it runs")
                }
                assert_eq!(job.await, Ok(!is_lifted));
            }
        })
    });
    ended.expect("the shard started");
}

#[test]
fn ids_are_unique_and_tell_when_the_task_was_created() {
    on_shard(async || {
        let tasks = Tasks::new(1, Uuid::nil());
        let first = start(&tasks, &MERGE, 0, &Origin::Node);
        let second = start(&tasks, &MERGE, 0, &Origin::Node);
        assert_ne!(first.id(), second.id(), "two tasks of one microsecond");
        let time = first.id().get_timestamp().expect("a version 1 UUID").to_unix().0;
        assert_eq!(
            time,
            u64::try_from(runtime::wall_clock_us() / 1_000_000).expect("after 1970")
        );
    });
}
