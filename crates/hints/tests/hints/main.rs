//! Hints under the simulator: what a killed process keeps, where an interrupted replay resumes, what is never handed
//! over.

mod power_losses;

use std::cell::RefCell;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use hints::{Delivery, Hint, Hints, Interrupted, Mark, MissedWrite, NotTaken, Options, Order, SyncPoint, Terms};
use mutation::{Mutation, MutationBuilder};
use runtime::sim::{CrashKind, FailedSync, NodeId, Simulation};
use schema::TableId;
use stdx::planted::{Bug, Planted};
use topology::HostId;
use uuid::Uuid;

const TABLE: TableId = TableId(Uuid::from_u128(7));
const OTHER_TABLE: TableId = TableId(Uuid::from_u128(8));
const TARGET: HostId = HostId(Uuid::from_u128(2));
const GRACE: u32 = 3600;
const PLACEMENT: u64 = 99;
const HOUR: Duration = Duration::from_hours(1);

fn options() -> Options {
    Options {
        dir: PathBuf::from("/hints"),
        shard: 0,
        shards: 1,
        bytes_max: 1 << 20,
        window: 3 * HOUR,
        allowed: hints::Allowed::default(),
        segment_bytes: 4096,
        bytes_per_second: 1 << 20,
    }
}

fn mutation(table: TableId, n: u32) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = MutationBuilder::begin(&mut out, table, &n.to_be_bytes());
    builder.row(b"", |out| out.resize(out.len() + 100, 7));
    out
}

fn number(bytes: &[u8]) -> u32 {
    let mutation = Mutation::new(bytes).expect("a whole mutation");
    u32::from_be_bytes(mutation.key.try_into().expect("a key of four bytes"))
}

fn start(options: Options) -> Rc<Hints> {
    Hints::start(options).expect("the directory can be read")
}

fn keep(hints: &Rc<Hints>, target: HostId, gc_grace_seconds: u32, mutation: &[u8]) -> bool {
    let write = MissedWrite {
        mutation,
        gc_grace_seconds,
        made_us: runtime::wall_clock_us(),
        placement: PLACEMENT,
        last_deletion: 0,
    };
    hints.note(target, write)
}

fn note(hints: &Rc<Hints>, numbers: std::ops::Range<u32>) {
    for n in numbers {
        assert!(keep(hints, TARGET, GRACE, &mutation(TABLE, n)), "hint {n} is dropped");
    }
}

/// The place that the hints of some shards have reached.
fn sync_point(shards: &[&Rc<Hints>]) -> SyncPoint {
    let marks: Vec<Mark> = shards.iter().map(|hints| hints.mark(None)).collect();
    SyncPoint {
        node: HostId(Uuid::from_u128(1)),
        below: marks.iter().map(|mark| mark.below).collect(),
        targets: marks.into_iter().flat_map(|mark| mark.waiting).collect(),
    }
}

/// What a replica got, and how many batches it takes still.
#[derive(Default)]
struct Replica {
    got: RefCell<Vec<u32>>,
    batches_left: RefCell<Option<u32>>,
}

async fn replay_wanted(
    hints: &Rc<Hints>,
    replica: &Rc<Replica>,
    grace_of: impl Fn(&Mutation<'_>) -> Option<u32>,
) -> Result<(), Interrupted> {
    let replica = replica.clone();
    let deliver = move |batch: Rc<[Hint]>| -> Delivery {
        let replica = replica.clone();
        Box::pin(async move {
            runtime::sleep(Duration::from_millis(1)).await;
            if let Some(left) = &mut *replica.batches_left.borrow_mut() {
                *left = left
                    .checked_sub(1)
                    .ok_or_else(|| NotTaken::Later("the replica is gone".to_owned()))?;
            }
            assert!(batch.iter().all(|hint| hint.placement == Some(PLACEMENT)));
            replica
                .got
                .borrow_mut()
                .extend(batch.iter().map(|hint| number(&hint.mutation)));
            Ok(())
        })
    };
    let terms_of = |mutation: &Mutation<'_>| grace_of(mutation).map(Terms::from);
    hints.replay(TARGET, &terms_of, &deliver).await
}

async fn replay(hints: &Rc<Hints>, replica: &Rc<Replica>) -> Result<(), Interrupted> {
    replay_wanted(hints, replica, |_| Some(GRACE)).await
}

type Life = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>>>;

/// One machine, which lives several lives.
struct Machine {
    simulation: Simulation,
    node: NodeId,
    next: Rc<RefCell<Option<Life>>>,
}

impl Machine {
    fn new(seed: u64) -> Self {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        let next: Rc<RefCell<Option<Life>>> = Rc::default();
        let lives = next.clone();
        simulation.start(node, move |_| {
            let life = lives.borrow_mut().take();
            Box::pin(async move {
                if let Some(life) = life {
                    life().await;
                }
            })
        });
        simulation.run_for(Duration::from_millis(1));
        Self { simulation, node, next }
    }

    /// Runs a process to its end; None when the machine stopped it.
    fn live<T: 'static, F: Future<Output = T> + 'static>(&mut self, life: impl FnOnce() -> F + 'static) -> Option<T> {
        let output = Rc::new(RefCell::new(None));
        let result = output.clone();
        *self.next.borrow_mut() = Some(Box::new(move || {
            let life = life();
            Box::pin(async move {
                let value = life.await;
                *result.borrow_mut() = Some(value);
            })
        }));
        if self.simulation.is_running(self.node) {
            self.simulation.crash(self.node, CrashKind::Kill);
        }
        self.simulation.restart(self.node);
        self.simulation.run_until_ended(self.node, 24 * HOUR);
        output.take()
    }
}

impl Machine {
    /// Runs a process that nothing stops.
    fn run<T: 'static, F: Future<Output = T> + 'static>(&mut self, life: impl FnOnce() -> F + 'static) -> T {
        self.live(life).expect("nothing stops it")
    }
}

#[test]
fn hints_reach_their_node_in_the_order_in_which_they_were_noted() {
    let mut machine = Machine::new(1);
    machine.run(|| async {
        let (hints, replica) = (start(options()), Rc::<Replica>::default());
        note(&hints, 0..300);
        hints.write().expect("the disk takes it");
        note(&hints, 300..400);
        assert_eq!(hints.targets(), [TARGET]);
        assert_eq!(replay(&hints, &replica).await, Ok(()));
        assert_eq!(*replica.got.borrow(), (0..400).collect::<Vec<u32>>());
        let metrics = hints.metrics();
        assert_eq!(
            (metrics.written, metrics.replayed, metrics.waiting_bytes),
            (400, 400, 0)
        );
        assert_eq!(hints.targets(), [], "nothing waits");
        let left = runtime::fs::read_dir("/hints").expect("the directory is there");
        assert_eq!(left, [], "files that are done are removed");
    });
}

#[test]
fn hints_that_were_written_survive_that_the_process_is_killed_at_any_file_operation() {
    for operations in 0..30 {
        let mut machine = Machine::new(operations);
        let written = Rc::new(RefCell::new(0));
        let seen = written.clone();
        machine
            .simulation
            .crash_after_file_ops(machine.node, operations, CrashKind::Kill);
        machine.live(move || async move {
            let hints = start(options());
            for n in (0..200).step_by(10) {
                note(&hints, n..n + 10);
                hints.write().expect("the disk takes it");
                *seen.borrow_mut() = n + 10;
                runtime::sleep(Duration::from_millis(1)).await;
            }
        });
        machine.simulation.clear_file_faults(machine.node);
        let replica = Rc::<Replica>::default();
        let got = replica.clone();
        let ended = machine.run(move || async move { replay(&start(options()), &replica).await });
        assert_eq!(ended, Ok(()), "killed after {operations} operations");
        let (got, written) = (got.got.borrow(), *written.borrow());
        let all: Vec<u32> = (0..u32::try_from(got.len()).expect("few")).collect();
        assert_eq!(
            *got, all,
            "killed after {operations} operations: in order, without a gap"
        );
        assert!(
            got.len() >= written as usize,
            "killed after {operations}: {} of {written}",
            got.len()
        );
    }
}

#[test]
fn a_replay_that_was_interrupted_goes_on_where_it_stopped_also_after_a_restart() {
    for batches in 0..4 {
        let mut machine = Machine::new(5);
        let replica = Rc::<Replica>::default();
        *replica.batches_left.borrow_mut() = Some(batches);
        let (first, second) = (replica.clone(), replica.clone());
        let in_one_file = || Options {
            segment_bytes: 1 << 20,
            ..options()
        };
        let ended = machine.run(move || async move {
            let hints = start(in_one_file());
            note(&hints, 0..1000);
            replay(&hints, &first).await
        });
        let interrupted = Interrupted::NotTaken("the replica is gone".to_owned());
        let expected = if batches < 4 { Err(interrupted) } else { Ok(()) };
        assert_eq!(ended, expected);
        *replica.batches_left.borrow_mut() = None;
        let ended = machine.run(move || async move { replay(&start(in_one_file()), &second).await });
        assert_eq!(ended, Ok(()));
        let got = replica.got.borrow();
        assert_eq!(
            *got,
            (0..1000).collect::<Vec<u32>>(),
            "after {batches} batches: each once"
        );
    }
}

#[test]
fn a_replay_killed_at_any_file_operation_loses_no_hint() {
    for operations in 0..25 {
        let mut machine = Machine::new(operations);
        machine.run(|| async {
            let hints = start(options());
            note(&hints, 0..200);
            hints.write().expect("the disk takes it");
        });
        let replica = Rc::<Replica>::default();
        let (first, second) = (replica.clone(), replica.clone());
        machine
            .simulation
            .crash_after_file_ops(machine.node, operations, CrashKind::Kill);
        machine.live(move || async move { replay(&start(options()), &first).await });
        machine.simulation.clear_file_faults(machine.node);
        let ended = machine.run(move || async move { replay(&start(options()), &second).await });
        assert_eq!(ended, Ok(()), "killed after {operations} operations");
        let mut got = replica.got.borrow().clone();
        got.sort_unstable();
        got.dedup();
        assert_eq!(
            got,
            (0..200).collect::<Vec<u32>>(),
            "killed after {operations} operations"
        );
    }
}

/// The only file of hints.
fn only_file() -> String {
    let names = runtime::fs::read_dir("/hints").expect("the directory is there");
    let name = names.first().expect("there is a file").name.clone();
    format!("/hints/{name}")
}

#[test]
fn a_torn_end_is_the_end_and_damage_elsewhere_sets_the_file_aside() {
    let mut machine = Machine::new(7);
    machine.run(|| async {
        for (is_torn, expected) in [(true, 9), (false, 4)] {
            let (hints, replica) = (start(options()), Rc::<Replica>::default());
            note(&hints, 0..10);
            hints.write().expect("the disk takes it");
            let path = only_file();
            let mut bytes = runtime::fs::read(&path).expect("it is there");
            if is_torn {
                bytes.truncate(bytes.len() - 5);
                let file = runtime::fs::File::open(
                    &path,
                    runtime::fs::OpenOptions {
                        write: true,
                        ..Default::default()
                    },
                );
                file.and_then(|f| f.set_len(bytes.len() as u64)).expect("it can be cut");
            } else {
                let record = (bytes.len() - 80) / 10;
                bytes[80 + 4 * record + 50] ^= 1;
                runtime::fs::write(&path, &bytes).expect("it can be written");
            }
            assert_eq!(replay(&hints, &replica).await, Ok(()), "torn: {is_torn}");
            assert_eq!(*replica.got.borrow(), (0..expected).collect::<Vec<u32>>());
            assert!(!runtime::fs::exists(&path), "torn: {is_torn}");
            let aside = format!("{path}.damaged");
            assert_eq!(runtime::fs::exists(&aside), !is_torn);
            assert_eq!(hints.metrics().dropped, u64::from(!is_torn));
            note(&hints, 10..11);
            assert_eq!(replay(&hints, &replica).await, Ok(()), "later hints are handed over");
            assert_eq!(replica.got.borrow().last(), Some(&10));
        }
    });
}

#[test]
fn a_hint_is_not_handed_over_when_its_table_is_gone_or_its_grace_period_is_over() {
    // Seconds waited, the grace period when it was noted, the one at the end, whether it is handed over.
    let cases = [
        (10, 100, Some(100), true),
        (101, 100, Some(100), false),
        (101, 1000, Some(100), false),
        (101, 100, Some(1000), false),
        (10, 100, None, false),
    ];
    let mut machine = Machine::new(8);
    machine.run(move || async move {
        for (waited, noted, now, is_handed_over) in cases {
            let (hints, replica) = (start(options()), Rc::<Replica>::default());
            assert!(keep(&hints, TARGET, noted, &mutation(TABLE, 1)));
            runtime::sleep(Duration::from_secs(waited)).await;
            assert_eq!(replay_wanted(&hints, &replica, |_| now).await, Ok(()));
            let got = replica.got.borrow().len();
            assert_eq!(got == 1, is_handed_over, "waited {waited} s, grace {noted} and {now:?}");
            let is_lost = !is_handed_over && now.is_some();
            assert_eq!(
                hints.metrics().expired,
                u64::from(is_lost),
                "no replica lacks a write to a dropped table"
            );
        }
        let hints = start(options());
        assert!(!keep(&hints, TARGET, 0, &mutation(TABLE, 1)), "without a grace period");
        assert_eq!(hints.metrics().dropped, 0, "a table without hints loses none");
    });
}

#[test]
fn what_was_truncated_does_not_come_back_with_a_hint_even_after_a_kill() {
    let mut machine = Machine::new(9);
    let replica = Rc::<Replica>::default();
    let got = replica.clone();
    machine.run(|| async {
        let hints = start(options());
        note(&hints, 0..100);
        assert!(keep(&hints, TARGET, GRACE, &mutation(OTHER_TABLE, 1000)));
        hints.truncate(TABLE).await.expect("the disk takes it");
        note(&hints, 100..110);
        hints.write().expect("the disk takes it");
    });
    let ended = machine.run(move || async move { replay(&start(options()), &replica).await });
    assert_eq!(ended, Ok(()));
    let expected: Vec<u32> = std::iter::once(1000).chain(100..110).collect();
    assert_eq!(*got.got.borrow(), expected, "the other table's, and what came later");
}

#[test]
fn a_truncation_waits_for_hints_that_are_on_their_way() {
    let mut machine = Machine::new(10);
    machine.run(|| async {
        let hints = start(options());
        note(&hints, 0..1);
        let log: Rc<RefCell<Vec<&str>>> = Rc::default();
        let (other, delivered) = (hints.clone(), log.clone());
        let task = runtime::spawn(async move {
            let deliver = move |_: Rc<[Hint]>| -> Delivery {
                let delivered = delivered.clone();
                Box::pin(async move {
                    runtime::sleep(Duration::from_millis(50)).await;
                    delivered.borrow_mut().push("delivered");
                    Ok(())
                })
            };
            other.replay(TARGET, &|_| Some(GRACE.into()), &deliver).await
        });
        runtime::sleep(Duration::from_millis(20)).await;
        hints.truncate(TABLE).await.expect("the disk takes it");
        log.borrow_mut().push("truncated");
        assert_eq!(task.await, Ok(()));
        assert_eq!(*log.borrow(), ["delivered", "truncated"]);
    });
}

#[test]
fn no_hints_are_kept_beyond_their_room_or_for_a_node_that_is_down_for_longer_than_the_window() {
    let mut machine = Machine::new(11);
    machine.run(|| async {
        let hints = start(Options {
            bytes_max: 2000,
            ..options()
        });
        let taken = (0..100)
            .filter(|n| keep(&hints, TARGET, GRACE, &mutation(TABLE, *n)))
            .count();
        assert!((10..20).contains(&taken), "{taken} hints of about 165 bytes in 2000");
        assert_eq!(hints.metrics().dropped, 100 - taken as u64);
        replay(&hints, &Rc::default()).await.expect("all is taken");
        assert!(keep(&hints, TARGET, GRACE, &mutation(TABLE, 1)), "there is room again");
        replay(&hints, &Rc::default()).await.expect("all is taken");

        hints.set_live(TARGET, false);
        runtime::sleep(2 * HOUR).await;
        assert!(keep(&hints, TARGET, GRACE, &mutation(TABLE, 1)), "within the window");
        runtime::sleep(2 * HOUR).await;
        assert!(!keep(&hints, TARGET, GRACE, &mutation(TABLE, 2)), "beyond the window");
        hints.set_live(TARGET, true);
        assert!(keep(&hints, TARGET, GRACE, &mutation(TABLE, 3)), "it is back");
    });
    // The coordinator restarts: the window still counts from the oldest hint.
    machine.run(|| async {
        let hints = start(options());
        assert!(keep(&hints, TARGET, GRACE, &mutation(TABLE, 4)));
        runtime::sleep(2 * HOUR).await;
        hints.write().expect("the disk takes it");
    });
    machine.run(|| async {
        let hints = start(options());
        assert!(
            !keep(&hints, TARGET, GRACE, &mutation(TABLE, 5)),
            "its oldest hint is four hours old"
        );
    });
}

#[test]
fn who_waits_for_a_replay_waits_for_what_was_noted_before_and_not_for_what_comes_later() {
    let mut machine = Machine::new(12);
    machine.run(|| async {
        let (hints, replica) = (start(options()), Rc::<Replica>::default());
        note(&hints, 0..50);
        let point = sync_point(&[&hints]);
        assert!(
            !hints.wait_until_reached(&point, Duration::from_secs(1)).await,
            "nobody replays"
        );
        let waiting = hints.clone();
        let waiter = runtime::spawn(async move { waiting.wait_until_reached(&point, HOUR).await });
        runtime::sleep(Duration::from_millis(1)).await;
        note(&hints, 50..51);
        // The first segments are taken; the one after them is not.
        let noted = replica.clone();
        let deliver = move |batch: Rc<[Hint]>| -> Delivery {
            let noted = noted.clone();
            Box::pin(async move {
                let numbers: Vec<u32> = batch.iter().map(|hint| number(&hint.mutation)).collect();
                if numbers.contains(&50) {
                    return Err(NotTaken::Later("not this one".to_owned()));
                }
                noted.got.borrow_mut().extend(numbers);
                Ok(())
            })
        };
        assert!(hints.replay(TARGET, &|_| Some(GRACE.into()), &deliver).await.is_err());
        assert!(waiter.await, "all that was noted before is handed over");
    });
}

#[test]
fn a_shard_hands_over_the_hints_of_shards_that_the_node_has_no_more_and_not_what_was_truncated_there() {
    let mut machine = Machine::new(13);
    let replica = Rc::<Replica>::default();
    let got = replica.clone();
    machine.run(|| async {
        let of = |shard| Options {
            shard,
            shards: 2,
            ..options()
        };
        let (first, second) = (start(of(0)), start(of(1)));
        note(&first, 0..5);
        note(&second, 5..10);
        assert!(keep(&second, TARGET, GRACE, &mutation(OTHER_TABLE, 10)));
        second.truncate(OTHER_TABLE).await.expect("the disk takes it");
        first.write().expect("the disk takes it");
    });
    let ended = machine.run(move || async move { replay(&start(options()), &replica).await });
    assert_eq!(ended, Ok(()));
    let mut numbers = got.got.borrow().clone();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..10).collect::<Vec<u32>>());
}

#[test]
fn a_sync_point_of_more_shards_is_reached_when_their_files_are_gone_whoever_has_taken_them_over() {
    let mut machine = Machine::new(14);
    let of = |shard, shards| Options {
        shard,
        shards,
        ..options()
    };
    let point = machine.run(move || async move {
        let shards: Vec<Rc<Hints>> = (0..3).map(|shard| start(of(shard, 3))).collect();
        note(&shards[0], 0..5);
        note(&shards[2], 5..10);
        sync_point(&shards.iter().collect::<Vec<_>>())
    });
    assert_eq!(point.below.len(), 3);
    let later = point.clone();
    machine.run(move || async move {
        let (first, second) = (start(of(0, 2)), start(of(1, 2)));
        assert!(!first.is_reached(&point), "it has its own files, and those of shard 2");
        assert!(second.is_reached(&point), "it never had any");
        note(&second, 20..25);
        let replica = Rc::<Replica>::default();
        assert_eq!(replay(&first, &replica).await, Ok(()));
        assert!(first.is_reached(&point));
        note(&first, 10..15);
        first.write().expect("the disk takes it");
        second.write().expect("the disk takes it");
        assert!(first.is_reached(&point) && second.is_reached(&point), "these are later");
    });
    // More shards again, of which the third writes new hints.
    machine.run(move || async move {
        let shards: Vec<Rc<Hints>> = (0..3).map(|shard| start(of(shard, 3))).collect();
        note(&shards[2], 30..35);
        shards[2].write().expect("the disk takes it");
        assert!(
            shards.iter().all(|hints| hints.is_reached(&later)),
            "all of them are later"
        );
    });
}

#[test]
fn hints_of_a_node_are_forgotten_while_they_are_handed_over_and_those_of_others_stay() {
    let mut machine = Machine::new(15);
    let other = HostId(Uuid::from_u128(3));
    machine.run(move || async move {
        let (hints, replica) = (start(options()), Rc::<Replica>::default());
        for part in 0..10 {
            note(&hints, part * 50..(part + 1) * 50);
            hints.write().expect("the disk takes it");
        }
        assert!(keep(&hints, other, GRACE, &mutation(TABLE, 1000)));
        let (replaying, getting) = (hints.clone(), replica.clone());
        let replayed = runtime::spawn(async move { replay(&replaying, &getting).await });
        // The first batch is on its way.
        runtime::sleep(Duration::from_micros(500)).await;
        note(&hints, 500..501);
        hints.forget(Some(TARGET)).await.expect("the disk works");
        let got = replica.got.borrow().len();
        assert!(got < 500, "{got} were on their way");
        note(&hints, 600..601);
        assert_eq!(replayed.await, Ok(()));
        let _ = replay(&hints, &replica).await;
        assert_eq!(
            replica.got.borrow()[got..],
            [600],
            "what is noted afterwards is handed over"
        );
        assert_eq!(hints.targets(), [other]);
        let left = runtime::fs::read_dir("/hints").expect("the directory is there");
        assert_eq!(left.len(), 1, "the other's file: {left:?}");
        let pending = hints.pending();
        assert_eq!((pending[0].target, pending[0].segments), (other, 1));
        assert_eq!(pending[0].bytes, hints.metrics().waiting_bytes, "the sum is right");
    });
}

#[test]
fn a_pause_ends_a_replay_between_two_batches_and_it_goes_on_there() {
    let mut machine = Machine::new(16);
    machine.run(|| async {
        let (hints, replica) = (start(options()), Rc::<Replica>::default());
        note(&hints, 0..300);
        let (replaying, getting) = (hints.clone(), replica.clone());
        let replayed = runtime::spawn(async move { replay(&replaying, &getting).await });
        runtime::sleep(Duration::from_micros(500)).await;
        hints.obey(Order::Pause(true));
        assert_eq!(replayed.await, Err(Interrupted::Paused));
        let got = replica.got.borrow().len();
        assert!((1..300).contains(&got), "{got} of 300");
        assert_eq!(replay(&hints, &replica).await, Err(Interrupted::Paused));
        assert_eq!(replica.got.borrow().len(), got, "nothing is handed over");
        hints.obey(Order::Pause(false));
        assert_eq!(replay(&hints, &replica).await, Ok(()));
        assert_eq!(*replica.got.borrow(), (0..300).collect::<Vec<u32>>());
    });
}

/// A replica that will never take some hints, and answers a batch with one of them as a whole.
async fn replay_picky(
    hints: &Rc<Hints>,
    got: &Rc<RefCell<Vec<u32>>>,
    refused: &'static [u32],
) -> Result<(), Interrupted> {
    let got = got.clone();
    let deliver = move |batch: Rc<[Hint]>| -> Delivery {
        let numbers: Vec<u32> = batch.iter().map(|hint| number(&hint.mutation)).collect();
        let got = got.clone();
        Box::pin(async move {
            if numbers.iter().any(|number| refused.contains(number)) {
                let reason = "too large".to_owned();
                // Some of several may be written before it.
                let is_alone = numbers.len() == 1;
                return Err(if is_alone {
                    NotTaken::Rejected(reason)
                } else {
                    NotTaken::Failed(reason)
                });
            }
            got.borrow_mut().extend(numbers);
            Ok(())
        })
    };
    hints.replay(TARGET, &|_| Some(GRACE.into()), &deliver).await
}

#[test]
fn a_hint_that_its_target_refuses_for_good_is_set_aside_and_those_behind_it_are_handed_over() {
    let mut machine = Machine::new(20);
    let got: Rc<RefCell<Vec<u32>>> = Rc::default();
    let seen = got.clone();
    machine.run(move || async move {
        let hints = start(options());
        note(&hints, 0..20);
        let early = replay_picky(&hints, &seen, &[3, 7]).await;
        assert!(early.is_err(), "the schema of the target may be behind: {early:?}");
        assert_eq!(*seen.borrow(), [0, 1, 2]);
        runtime::sleep(Duration::from_mins(2)).await;
        seen.borrow_mut().clear();
        assert_eq!(replay_picky(&hints, &seen, &[3, 7]).await, Ok(()));
        let expected: Vec<u32> = (0..20).filter(|n| ![3, 7].contains(n)).collect();
        assert_eq!(*seen.borrow(), expected);
        assert_eq!(hints.metrics().rejected, 2);
        assert!(hints.take_missed().contains_key(&TARGET), "it lacks them");
    });
    machine.simulation.crash(machine.node, CrashKind::PowerLoss);
    machine.run(move || async move {
        let hints = start(options());
        let told = hints.rejected();
        assert_eq!((told.len(), told[0].0, told[0].1.count), (1, TARGET, 2), "{told:?}");
        hints.clear_rejected(Some(TARGET)).await.expect("the disk works");
        assert_eq!(hints.rejected(), []);
        assert_eq!(start(options()).rejected(), []);
    });
}

#[test]
fn without_setting_aside_the_hints_behind_a_refused_one_wait_until_they_expire() {
    let _planted = Planted::new(Some(Bug::RejectedHintWaits));
    Machine::new(20).run(|| async {
        let (hints, got) = (start(options()), Rc::default());
        note(&hints, 0..2);
        runtime::sleep(GRACE / 2 * Duration::from_secs(1)).await;
        assert!(replay_picky(&hints, &got, &[0]).await.is_err());
        assert!(got.borrow().is_empty(), "hint 1 waits behind hint 0");
    });
}

/// A write is lost to its target, one way each.
#[test]
fn every_write_that_no_hint_will_bring_leaves_a_span_of_what_its_target_missed() {
    type Way = fn(Rc<Hints>) -> Pin<Box<dyn Future<Output = ()>>>;
    let ways: [(&str, Way); 5] = [
        ("no room", |hints| {
            Box::pin(async move { while keep(&hints, TARGET, GRACE, &mutation(TABLE, 1)) {} })
        }),
        ("down for longer than the window", |hints| {
            Box::pin(async move {
                hints.set_live(TARGET, false);
                runtime::sleep(4 * HOUR).await;
                assert!(!keep(&hints, TARGET, GRACE, &mutation(TABLE, 1)));
            })
        }),
        ("expired", |hints| {
            Box::pin(async move {
                note(&hints, 0..1);
                runtime::sleep(2 * HOUR).await;
                replay(&hints, &Rc::default()).await.expect("nothing is handed over");
            })
        }),
        ("forgotten", |hints| {
            Box::pin(async move {
                note(&hints, 0..1);
                hints.forget(Some(TARGET)).await.expect("the disk works");
            })
        }),
        ("damaged", |hints| {
            Box::pin(async move {
                note(&hints, 0..3);
                hints.write().expect("the disk works");
                let path = PathBuf::from("/hints").join(only_file());
                let mut bytes = runtime::fs::read(&path).expect("it is there");
                bytes[100] ^= 1;
                runtime::fs::write(&path, &bytes).expect("the disk works");
                replay(&hints, &Rc::default()).await.expect("the file is set aside");
            })
        }),
    ];
    for (name, way) in ways {
        let mut machine = Machine::new(21);
        machine.run(move || async move {
            let before = u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("a year below 2106");
            let hints = start(options());
            assert!(
                !keep(&hints, TARGET, 0, &mutation(TABLE, 1)),
                "of a table without a grace period"
            );
            assert!(hints.take_missed().is_empty(), "which promises nothing");
            way(hints.clone()).await;
            let missed = hints.take_missed();
            let spans = missed
                .get(&TARGET)
                .unwrap_or_else(|| panic!("{name}: nothing is noted"));
            let first = *spans.iter().next().expect("a span").start();
            let is_true = if name.starts_with("down") {
                first >= before + 4 * 3600
            } else {
                first <= before + 1
            };
            assert!(is_true, "{name}: {spans:?} from {before}");
        });
    }
}

#[test]
fn hints_that_are_handed_over_one_by_one_are_not_sent_behind_a_truncation() {
    let mut machine = Machine::new(23);
    machine.run(|| async {
        let hints = start(options());
        note(&hints, 0..3);
        let sent: Rc<RefCell<Vec<usize>>> = Rc::default();
        let (other, seen) = (hints.clone(), sent.clone());
        let task = runtime::spawn(async move {
            let deliver = move |batch: Rc<[Hint]>| -> Delivery {
                let seen = seen.clone();
                Box::pin(async move {
                    seen.borrow_mut().push(batch.len());
                    runtime::sleep(Duration::from_millis(50)).await;
                    // One of several is to blame, so each is sent alone.
                    Err(NotTaken::Failed("it failed".to_owned()))
                })
            };
            other.replay(TARGET, &|_| Some(GRACE.into()), &deliver).await
        });
        runtime::sleep(Duration::from_millis(20)).await;
        hints.truncate(TABLE).await.expect("the disk takes it");
        assert_eq!(task.await, Ok(()));
        assert_eq!(*sent.borrow(), [3], "none is sent alone behind the truncation");
    });
}

#[test]
fn what_is_noted_behind_a_truncation_is_handed_over() {
    let mut machine = Machine::new(24);
    let replica: Rc<Replica> = Rc::default();
    let seen = replica.clone();
    machine.run(move || async move {
        let hints = start(options());
        note(&hints, 0..1);
        hints.write().expect("the disk works");
        hints.truncate(TABLE).await.expect("the disk takes it");
        note(&hints, 1..2);
        replay(&hints, &seen).await.expect("the replica lives");
    });
    assert_eq!(*replica.got.borrow(), [1]);
}

/// What a replica gets of hints that one run noted and the next one truncated.
fn truncated_by_the_next_run(seed: u64, former: fn() -> Options, between: impl FnOnce(&mut Machine)) -> Rc<Replica> {
    let mut machine = Machine::new(seed);
    machine.run(move || async move {
        let hints = start(former());
        note(&hints, 0..2);
        hints.write().expect("the disk works");
    });
    between(&mut machine);
    let replica: Rc<Replica> = Rc::default();
    let seen = replica.clone();
    machine.run(move || async move {
        let hints = start(options());
        hints.truncate(TABLE).await.expect("the disk takes it");
        replay(&hints, &seen).await.expect("the replica lives");
    });
    replica
}

#[test]
fn a_shard_truncates_in_the_files_that_it_has_taken_over() {
    let of_another_shard = || Options {
        shard: 1,
        shards: 2,
        ..options()
    };
    let replica = truncated_by_the_next_run(25, of_another_shard, |_| {});
    assert!(replica.got.borrow().is_empty(), "{:?}", replica.got.borrow());
}

#[test]
fn a_truncation_covers_the_hints_of_a_run_whose_clock_was_ahead() {
    let replica = truncated_by_the_next_run(26, options, |machine| {
        machine.simulation.jump_clock_us(machine.node, -60_000_000);
    });
    assert!(replica.got.borrow().is_empty(), "{:?}", replica.got.borrow());
}

#[test]
fn hints_that_the_disk_refuses_are_reported_as_missed() {
    let mut machine = Machine::new(27);
    machine.simulation.tear_write_after(machine.node, 0);
    machine.run(move || async move {
        let hints = start(options());
        let made_us = runtime::wall_clock_us();
        let before = u32::try_from(made_us / 1_000_000).expect("the clock is right");
        note(&hints, 0..1);
        // The clock of the coordinator that made this deletion is ahead.
        let deletion = MissedWrite {
            mutation: &mutation(TABLE, 1),
            gc_grace_seconds: GRACE,
            made_us,
            placement: PLACEMENT,
            last_deletion: before + 5,
        };
        assert!(hints.note(TARGET, deletion));
        hints.write().expect_err("the disk fails once");
        let span = |hints: &Hints| {
            let missed = hints.take_missed();
            let first = missed.get(&TARGET).and_then(|spans| spans.iter().next().cloned());
            first.expect("the target lacks it")
        };
        let lost = span(&hints);
        assert!(*lost.start() <= before, "{lost:?} begins when the first was made");
        assert!(*lost.end() >= before + 5, "{lost:?} ends with the last deletion");
        assert!(hints.note(TARGET, deletion));
        hints.forget(None).await.expect("the disk works");
        let forgotten = span(&hints);
        assert!(
            *forgotten.end() >= before + 5,
            "{forgotten:?} ends with the last deletion"
        );
    });
}

#[test]
fn a_run_knows_since_when_the_oldest_write_of_the_one_before_waits() {
    let mut machine = Machine::new(28);
    let made_us = machine.run(move || async move {
        let hints = start(options());
        note(&hints, 0..1);
        hints.write().expect("the disk works");
        // A logged batch that was made a while ago is given up, after a younger hint.
        let made_us = runtime::wall_clock_us() - 600_000_000;
        let write = MissedWrite {
            mutation: &mutation(TABLE, 1),
            gc_grace_seconds: GRACE,
            made_us,
            placement: PLACEMENT,
            last_deletion: 0,
        };
        assert!(hints.note(TARGET, write));
        hints.write().expect("the disk works");
        made_us
    });
    let since = machine.run(move || async move {
        let hints = start(options());
        hints.waiting_since().get(&TARGET).copied()
    });
    assert_eq!(since, Some(made_us));
}
