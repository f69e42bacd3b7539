//! What only the simulator can do: the same run twice, crashes at chosen moments, bad disks and bad networks.

use runtime::fs::{self, File, OpenOptions};
use runtime::net::{ListenOptions, TcpListener, TcpStream};
use runtime::sim::{CrashKind, DiskErrors, FailedSync, NodeId, Simulation, Stop};
use runtime::{
    ShardId, StopPoint, now, on_signal_terminate, sleep, spawn, spawn_job, stop_point, submit_to, wall_clock_us,
};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);
const PORT: u16 = 9042;

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::UNSPECIFIED), PORT);

/// Answers every byte with the same byte; never returns.
async fn serve() {
    let listener = TcpListener::bind(ANY, ListenOptions::default()).expect("the port is free on this machine");
    while let Ok(mut stream) = listener.accept().await {
        drop(spawn(async move {
            loop {
                let (read, bytes) = stream.read(Vec::with_capacity(100)).await;
                if read.unwrap_or(0) == 0 || stream.write_all(bytes).await.0.is_err() {
                    return;
                }
            }
        }));
    }
}

/// Sends a byte and waits for its echo.
async fn ask(stream: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    stream.write_all(vec![byte]).await.0?;
    let (read, bytes) = stream.read(Vec::with_capacity(1)).await;
    if read? == 0 {
        Err(ErrorKind::UnexpectedEof.into())
    } else {
        Ok(bytes[0])
    }
}

/// A busy cluster: sockets, messages, timers, files, jobs and crashes. Its trace and what a client saw.
fn busy_cluster(seed: u64) -> (u64, String) {
    let mut simulation = Simulation::new(seed);
    let servers: Vec<NodeId> = (0..2).map(|_| simulation.add_node(2)).collect();
    for &server in &servers {
        simulation.start(server, |shard| {
            Box::pin(async move {
                if shard == ShardId(0) {
                    return serve().await;
                }
                fs::create_dir_all("/data").expect("the disk works");
                for number in 0_u64.. {
                    let path = format!("/data/{}", number % 3);
                    let written = spawn_job("flush", move || fs::write(path, &number.to_le_bytes())).await;
                    written.expect("the disk works");
                    submit_to(ShardId(0), move || number).await;
                    sleep(Duration::from_millis(runtime::random_u64() % 10)).await;
                }
            })
        });
    }
    let client = simulation.add_node(1);
    let seen = Rc::new(RefCell::new(String::new()));
    let (log, address) = (Rc::clone(&seen), SocketAddr::new(simulation.address(servers[0]), PORT));
    simulation.start(client, move |_| {
        let log = Rc::clone(&log);
        Box::pin(async move {
            for byte in 0..200 {
                let Ok(mut stream) = TcpStream::connect(address).await else {
                    sleep(SECOND).await;
                    continue;
                };
                let answer = ask(&mut stream, byte).await;
                log.borrow_mut().push_str(&format!("{:?} {answer:?}\n", now()));
            }
        })
    });
    simulation.run_for(Duration::from_millis(20));
    simulation.crash_after_file_ops(servers[1], 10, CrashKind::PowerLoss);
    simulation.run_for(Duration::from_millis(30));
    simulation.crash(servers[0], CrashKind::Kill);
    simulation.run_for(SECOND);
    simulation.restart(servers[0]);
    simulation.run_for(5 * SECOND);
    let seen = seen.borrow().clone();
    (simulation.trace_hash(), seen)
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    for seed in 0..5 {
        assert_eq!(
            busy_cluster(seed),
            busy_cluster(seed),
            "seed {seed} gave two different runs"
        );
    }
    let traces: BTreeSet<u64> = (0..5).map(|seed| busy_cluster(seed).0).collect();
    assert_eq!(traces.len(), 5, "different seeds gave the same run");
}

#[test]
fn virtual_hours_pass_in_no_time_and_clocks_are_skewed_per_node() {
    let mut simulation = Simulation::new(1);
    let (right, ahead) = (simulation.add_node(1), simulation.add_node(1));
    simulation.set_clock_skew_us(ahead, 5_000_000);
    let clocks = Rc::new(RefCell::new(Vec::new()));
    for node in [right, ahead] {
        let clocks = Rc::clone(&clocks);
        simulation.start(node, move |_| {
            let clocks = Rc::clone(&clocks);
            Box::pin(async move {
                sleep(24 * HOUR).await;
                clocks.borrow_mut().push(wall_clock_us());
            })
        });
    }
    assert!(simulation.run_until_ended(right, 25 * HOUR) && simulation.run_until_ended(ahead, HOUR));
    let skew = clocks.borrow()[0].abs_diff(clocks.borrow()[1]);
    assert!(
        skew.abs_diff(5_000_000) < 1000,
        "the clocks differ by {skew} us, not by 5 s"
    );
}

/// Writes numbered records until it is dropped. Each is synced before it counts as acknowledged, and the name of a
/// file is synced before its first record.
async fn write_log(acknowledged: Rc<Cell<u64>>, start: u64) {
    fs::create_dir_all("/log").expect("the disk works");
    fs::sync_dir("/").expect("the disk works");
    for segment in 0_u64.. {
        let path = format!("/log/{start}-{segment}");
        let file = File::open(path, OpenOptions::CREATE_NEW).expect("the name is new");
        fs::sync_dir("/log").expect("the disk works");
        for slot in 0..10_u64 {
            let record = acknowledged.get() + 1;
            let (written, _) = file.write_at(record.to_le_bytes().repeat(100), slot * 800).await;
            written.expect("the disk works");
            file.sync_data().await.expect("the disk works");
            acknowledged.set(record);
        }
    }
}

/// Records on the disk that are whole.
fn read_log() -> BTreeSet<u64> {
    let mut records = BTreeSet::new();
    for entry in fs::read_dir("/log").unwrap_or_default() {
        let bytes = fs::read(format!("/log/{}", entry.name)).expect("it was listed");
        for record in bytes.chunks_exact(800) {
            if record.chunks_exact(8).all(|word| *word == record[..8]) {
                records.insert(u64::from_le_bytes(record[..8].try_into().expect("8 bytes")));
            }
        }
    }
    records
}

#[test]
fn synced_records_survive_crashes_at_every_file_operation() {
    for (seed, kind) in (0..40).flat_map(|seed| [(seed, CrashKind::Kill), (seed, CrashKind::PowerLoss)]) {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        let acknowledged = Rc::new(Cell::new(0));
        let log = Rc::clone(&acknowledged);
        let starts = Cell::new(0);
        simulation.start(node, move |_| {
            starts.set(starts.get() + 1);
            Box::pin(write_log(Rc::clone(&log), starts.get()))
        });
        for round in 0..3 {
            simulation.crash_after_file_ops(node, seed + round * 7, kind);
            assert!(simulation.run_until_ended(node, HOUR), "the crash never came");
            let records = simulation.on_node(node, read_log);
            let expected = 1..=acknowledged.get();
            assert!(
                expected.clone().all(|record| records.contains(&record)),
                "{kind:?}, seed {seed}: {expected:?}, got {records:?}"
            );
            simulation.restart(node);
        }
    }
}

#[test]
fn power_loss_takes_what_was_not_synced_and_a_kill_does_not() {
    let run = |seed, kind| {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        simulation.start(node, |_| {
            Box::pin(async {
                fs::write("/unsynced", &[7; 5000]).expect("the disk works");
                std::future::pending::<()>().await;
            })
        });
        simulation.run_for(SECOND);
        simulation.crash(node, kind);
        simulation.on_node(node, || {
            fs::read("/unsynced")
                .ok()
                .map(|bytes| bytes.iter().filter(|byte| **byte == 7).count())
        })
    };
    let mut outcomes = BTreeSet::new();
    for seed in 0..50 {
        assert_eq!(
            run(seed, CrashKind::Kill),
            Some(5000),
            "the kernel lost what was written"
        );
        outcomes.insert(run(seed, CrashKind::PowerLoss));
    }
    assert!(
        outcomes.contains(&None) && outcomes.contains(&Some(5000)) && outcomes.len() > 4,
        "{outcomes:?}"
    );
}

#[test]
fn a_crash_in_the_middle_of_a_job_ends_the_whole_process() {
    let mut simulation = Simulation::new(3);
    let node = simulation.add_node(2);
    let (after_job, other_shard) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0_u64)));
    let (job_flag, ticks) = (Rc::clone(&after_job), Rc::clone(&other_shard));
    simulation.start(node, move |shard| {
        let (job_flag, ticks) = (Rc::clone(&job_flag), Rc::clone(&ticks));
        Box::pin(async move {
            if shard == ShardId(1) {
                loop {
                    sleep(Duration::from_millis(1)).await;
                    ticks.set(ticks.get() + 1);
                }
            }
            spawn_job("compaction", || {
                (0..100).try_for_each(|number| fs::write(format!("/{number}"), b"x"))
            })
            .await
            .expect("the process is gone before it can see an error");
            job_flag.set(true);
        })
    });
    simulation.crash_after_file_ops(node, 51, CrashKind::Kill);
    assert!(simulation.run_until_ended(node, HOUR));
    assert!(!after_job.get(), "the task went on after its process had died");
    let files = simulation.on_node(node, || fs::read_dir("/").expect("the root is there").len());
    assert!((25..=27).contains(&files), "the job was stopped after {files} files");
    let stopped_at = other_shard.get();
    simulation.run_for(SECOND);
    assert_eq!(other_shard.get(), stopped_at, "another shard of a dead process ran");
}

#[test]
fn a_job_on_a_slow_disk_takes_its_time_and_holds_nobody_up() {
    let mut simulation = Simulation::new(7);
    let node = simulation.add_node(1);
    simulation.set_disk_delay(node, Duration::from_millis(20));
    let (ticks, done) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(None)));
    let (counted, ended) = (Rc::clone(&ticks), Rc::clone(&done));
    simulation.start(node, move |_| {
        let (ticks, done) = (Rc::clone(&counted), Rc::clone(&ended));
        Box::pin(async move {
            let begun = now();
            let job = spawn_job("flush", move || {
                (0_u64..100).for_each(|number| fs::write("/file", &number.to_le_bytes()).expect("the disk works"));
                now() - begun
            });
            drop(spawn(async move {
                loop {
                    sleep(Duration::from_millis(10)).await;
                    ticks.set(ticks.get() + 1);
                }
            }));
            let inside = job.await;
            done.set(Some((inside, now() - begun)));
            std::future::pending::<()>().await;
        })
    });
    simulation.run_for(SECOND);
    assert!(
        ticks.get() > 90,
        "a task that wakes a hundred times a second woke {} times",
        ticks.get()
    );
    assert_eq!(
        done.get(),
        None,
        "a hundred writes that take 20 ms each take longer than a second"
    );
    assert!(simulation.run_until(10 * SECOND, || done.get().is_some()), "it ends");
    let (inside, outside) = done.get().expect("it has ended");
    assert!(
        inside >= 2 * SECOND && outside >= inside && outside < inside + SECOND,
        "by the job's clock it took {inside:?}, by that of who waited {outside:?}"
    );
}

#[test]
fn a_failing_disk_and_a_full_disk_answer_with_errors() {
    let mut simulation = Simulation::new(4);
    let node = simulation.add_node(1);
    let errors = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&errors);
    simulation.set_disk_capacity(node, Some(10_000));
    simulation.fail_file_op_after(node, 3, ErrorKind::Other);
    simulation.start(node, move |_| {
        let seen = Rc::clone(&seen);
        Box::pin(async move {
            let file = File::open("/data", OpenOptions::CREATE_NEW).expect("the first operation succeeds");
            for number in 0..12 {
                let (written, _) = file.write_at(vec![0; 1000], number * 1000).await;
                seen.borrow_mut().push(written.err().map(|error| error.kind()));
            }
        })
    });
    assert!(simulation.run_until_ended(node, HOUR));
    let expected: Vec<Option<ErrorKind>> = (0..12)
        .map(|number| match number {
            2 => Some(ErrorKind::Other),
            10 | 11 => Some(ErrorKind::StorageFull),
            _ => None,
        })
        .collect();
    assert_eq!(*errors.borrow(), expected);
}

/// What became of each of a few operations.
type Outcomes = Rc<RefCell<Vec<Option<i32>>>>;

/// Runs operations on a file of a machine, one after the other, and notes the error number of each.
fn outcomes(
    simulation: &mut Simulation,
    node: NodeId,
    operations: &'static [fn(&File) -> std::io::Result<()>],
) -> Outcomes {
    let outcomes = Outcomes::default();
    let seen = Rc::clone(&outcomes);
    simulation.start(node, move |_| {
        let seen = Rc::clone(&seen);
        Box::pin(async move {
            let file = File::open("/data", OpenOptions::CREATE_NEW).expect("no fault strikes yet");
            fs::sync_dir("/").expect("no fault strikes yet");
            for operation in operations {
                sleep(SECOND).await;
                let error = operation(&file).err();
                seen.borrow_mut().push(error.map(|e| e.raw_os_error().unwrap_or(0)));
            }
            std::future::pending::<()>().await;
        })
    });
    outcomes
}

const INPUT_OUTPUT_ERROR: Option<i32> = Some(5);

#[test]
fn a_sync_fails_once_and_the_next_one_succeeds_and_has_lost_what_was_written() {
    let mut lost = 0;
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        simulation.fail_sync_after(node, 1, FailedSync::Cleaned);
        let outcomes = outcomes(
            &mut simulation,
            node,
            &[
                |file| file.write_all_at_blocking(b"one", 0),
                File::sync_data_blocking,
                |file| file.write_all_at_blocking(b"two", 0),
                File::sync_data_blocking,
                File::sync_data_blocking,
            ],
        );
        simulation.run_for(10 * SECOND);
        assert_eq!(*outcomes.borrow(), [None, None, None, INPUT_OUTPUT_ERROR, None]);
        simulation.crash(node, CrashKind::PowerLoss);
        let left = simulation.on_node(node, || fs::read("/data").expect("its name was synced"));
        assert!(left == b"one" || left == b"two", "{left:?}");
        lost += u32::from(left == b"one");
    }
    assert!((2..19).contains(&lost), "{lost} of 20 runs lost what was written");
}

#[test]
fn a_broken_disk_fails_until_it_is_healed() {
    for (errors, read) in [(DiskErrors::Writes, None), (DiskErrors::All, INPUT_OUTPUT_ERROR)] {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        let outcomes = outcomes(
            &mut simulation,
            node,
            &[
                |file| file.write_all_at_blocking(b"one", 0),
                |file| file.write_all_at_blocking(b"two", 0),
                |file| file.read_at_blocking(&mut [0; 3], 0).map(drop),
                |file| file.write_all_at_blocking(b"two", 0),
            ],
        );
        simulation.run_for(Duration::from_millis(1500));
        simulation.set_disk_errors(node, Some(errors));
        simulation.run_for(2 * SECOND);
        let looked = simulation.on_node(node, || fs::read("/data").expect("no fault strikes a test"));
        assert_eq!(looked, b"one");
        simulation.set_disk_errors(node, None);
        simulation.run_for(SECOND);
        assert_eq!(*outcomes.borrow(), [None, INPUT_OUTPUT_ERROR, read, None], "{errors:?}");
    }
}

#[test]
fn a_torn_write_fails_and_leaves_a_part_of_its_bytes() {
    let mut lengths = BTreeSet::new();
    for seed in 0..20 {
        let mut simulation = Simulation::new(seed);
        let node = simulation.add_node(1);
        simulation.tear_write_after(node, 0);
        let outcomes = outcomes(
            &mut simulation,
            node,
            &[|file| file.write_all_at_blocking(b"0123456789", 0)],
        );
        simulation.run_for(2 * SECOND);
        assert_eq!(*outcomes.borrow(), [INPUT_OUTPUT_ERROR]);
        let left = simulation.on_node(node, || fs::read("/data").expect("it is there"));
        assert_eq!(left, b"0123456789"[..left.len()]);
        lengths.insert(left.len());
    }
    assert!(lengths.len() > 4, "{lengths:?}");
}

#[test]
fn a_damaged_read_differs_once_and_rot_for_good() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    simulation.damage_read_after(node, 1);
    let outcomes = outcomes(
        &mut simulation,
        node,
        &[
            |file| {
                file.write_all_at_blocking(&[0; 1000], 0)
                    .and_then(|()| file.sync_data_blocking())
            },
            ones,
            ones,
            ones,
        ],
    );
    simulation.run_for(5 * SECOND);
    assert_eq!(
        *outcomes.borrow(),
        [None, Some(0), Some(1), Some(0)].map(|ones| ones.filter(|n| *n > 0))
    );
    let rotten = simulation.rot(node, Path::new("/data")).expect("it is there");
    simulation.crash(node, CrashKind::PowerLoss);
    let left = simulation.on_node(node, || fs::read("/data").expect("it is there"));
    let differ: Vec<u64> = (0..)
        .zip(&left)
        .filter(|(_, byte)| **byte != 0)
        .map(|(n, _)| n)
        .collect();
    assert_eq!(differ, Vec::from_iter(rotten), "one bit of one byte");
    assert!(simulation.rot(node, Path::new("/none")).is_err());
}

/// Fails with the number of bits that are set in the file, if there are any.
fn ones(file: &File) -> std::io::Result<()> {
    let mut bytes = [0; 1000];
    file.read_exact_at_blocking(&mut bytes, 0)?;
    match bytes.iter().map(|byte| byte.count_ones()).sum::<u32>() {
        0 => Ok(()),
        ones => Err(std::io::Error::from_raw_os_error(ones.cast_signed())),
    }
}

#[test]
fn a_paused_process_does_nothing_while_time_and_network_go_on() {
    let (mut simulation, server, client, answers) = server_and_client(9);
    let ticks = Rc::new(Cell::new(0_u64));
    let other = simulation.add_node(2);
    let counted = Rc::clone(&ticks);
    simulation.start(other, move |shard| {
        let ticks = Rc::clone(&counted);
        Box::pin(async move {
            loop {
                if shard == ShardId(0) {
                    sleep(Duration::from_millis(10)).await;
                } else {
                    spawn_job("work", || fs::write("/file", b"x"))
                        .await
                        .expect("the disk works");
                }
                ticks.set(ticks.get() + 1);
            }
        })
    });
    simulation.run_for(5 * SECOND);
    let (before, ticked) = (answers.borrow().len(), ticks.get());
    simulation.pause_for(server, 10 * SECOND);
    simulation.pause_for(other, 10 * SECOND);
    simulation.run_for(9 * SECOND);
    assert!(simulation.is_paused(server) && simulation.is_running(server));
    assert_eq!(ticks.get(), ticked, "a shard or a job of a paused process ran");
    assert!(answers.borrow().len() <= before + 1, "a paused process answered");
    simulation.run_for(5 * SECOND);
    assert!(!simulation.is_paused(server) && ticks.get() > ticked + 200);
    let answers = answers.borrow();
    assert!(answers.len() >= before + 3, "the connection did not survive a pause");
    assert!(answers.iter().copied().eq((0..).take(answers.len()).map(Ok)));
    drop(answers);
    simulation.pause_for(server, HOUR);
    simulation.crash(server, CrashKind::Kill);
    assert!(!simulation.is_paused(server), "a process that has ended is paused");
    assert!(
        simulation.run_until_ended(client, 3 * SECOND),
        "its kernel resets its connections"
    );
}

#[test]
fn a_clock_that_jumps_stays_where_it_is_and_the_monotonic_clock_does_not_jump() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let clocks = Rc::new(RefCell::new(Vec::new()));
    let told = Rc::clone(&clocks);
    simulation.start(node, move |_| {
        let clocks = Rc::clone(&told);
        Box::pin(async move {
            loop {
                clocks.borrow_mut().push((now(), wall_clock_us()));
                sleep(SECOND).await;
            }
        })
    });
    simulation.run_for(Duration::from_millis(500));
    simulation.jump_clock_us(node, 3_600_000_000);
    simulation.run_for(SECOND);
    simulation.crash(node, CrashKind::PowerLoss);
    simulation.restart(node);
    simulation.run_for(Duration::from_millis(500));
    simulation.jump_clock_us(node, -7_200_000_000);
    simulation.run_for(SECOND);
    let clocks = clocks.borrow();
    let off: Vec<i64> = clocks
        .iter()
        .map(|(monotonic, wall)| {
            let since = (*monotonic - clocks[0].0).as_micros();
            let seconds = wall - clocks[0].1 - i64::try_from(since).expect("seconds");
            (seconds + 500_000).div_euclid(1_000_000)
        })
        .collect();
    assert_eq!(off, [0, 3600, 3600, -3600]);
}

#[test]
fn a_process_stops_at_the_point_where_it_is_told_to() {
    let counter = |stop| {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        let passed = Rc::new(Cell::new(0));
        let count = Rc::clone(&passed);
        simulation.start(node, move |_| {
            let passed = Rc::clone(&count);
            Box::pin(async move {
                loop {
                    stop_point(StopPoint::BatchNoted);
                    stop_point(StopPoint::BatchWritten);
                    passed.set(passed.get() + 1);
                    sleep(SECOND).await;
                }
            })
        });
        simulation.stop_at(node, StopPoint::BatchWritten, 2, stop);
        simulation.run_for(10 * SECOND);
        (simulation.is_running(node), passed.get())
    };
    if cfg!(debug_assertions) {
        assert_eq!(counter(Stop::Crash(CrashKind::Kill)), (false, 2));
        assert_eq!(counter(Stop::Pause(HOUR)), (true, 3));
        let (runs, passed) = counter(Stop::Pause(5 * SECOND));
        assert!(runs && (6..=8).contains(&passed), "{passed}");
    } else {
        assert_eq!(counter(Stop::Crash(CrashKind::Kill)), (true, 11));
    }
}

/// What a client got, in order.
type Answers = Rc<RefCell<Vec<Result<u8, ErrorKind>>>>;

/// A server and a client that asks once a virtual second and records the answers.
fn server_and_client(seed: u64) -> (Simulation, NodeId, NodeId, Answers) {
    let mut simulation = Simulation::new(seed);
    let (server, client) = (simulation.add_node(1), simulation.add_node(1));
    simulation.start(server, |_| Box::pin(serve()));
    simulation.run_for(SECOND);
    let answers = Rc::new(RefCell::new(Vec::new()));
    let (log, address) = (Rc::clone(&answers), SocketAddr::new(simulation.address(server), PORT));
    simulation.start(client, move |_| {
        let log = Rc::clone(&log);
        Box::pin(async move {
            let mut stream = TcpStream::connect(address).await.expect("the server is up");
            for byte in 0..255 {
                let answer = ask(&mut stream, byte).await.map_err(|error| error.kind());
                log.borrow_mut().push(answer);
                if answer.is_err() {
                    return;
                }
                sleep(SECOND).await;
            }
        })
    });
    (simulation, server, client, answers)
}

#[test]
fn a_short_network_split_delays_and_a_long_one_ends_the_connection() {
    let (mut simulation, server, client, answers) = server_and_client(5);
    simulation.run_for(5 * SECOND);
    let before = answers.borrow().len();
    assert!(before >= 4);
    simulation.partition(&[server], &[client]);
    simulation.run_for(10 * SECOND);
    assert!(answers.borrow().len() <= before + 1, "answers came over a cut link");
    simulation.heal(&[server], &[client]);
    simulation.run_for(5 * SECOND);
    assert!(
        answers.borrow().len() >= before + 4,
        "the connection did not survive ten seconds"
    );
    assert!(
        answers
            .borrow()
            .iter()
            .copied()
            .eq((0..).take(answers.borrow().len()).map(Ok)),
        "bytes were lost or mixed up"
    );
    simulation.partition(&[server], &[client]);
    assert!(
        simulation.run_until_ended(client, 3 * 60 * SECOND),
        "a dead connection was never given up"
    );
    assert_eq!(answers.borrow().last(), Some(&Err(ErrorKind::TimedOut)));
}

#[test]
fn lost_segments_cost_time_and_nothing_else() {
    let (mut simulation, server, client, answers) = server_and_client(6);
    simulation.set_loss(client, server, 300_000);
    simulation.set_loss(server, client, 300_000);
    simulation.set_delay(client, server, Duration::from_millis(50));
    simulation.run_for(60 * SECOND);
    let count = answers.borrow().len();
    assert!((30..55).contains(&count), "{count} answers in a minute over a bad link");
    assert!(
        answers.borrow().iter().copied().eq((0..).take(count).map(Ok)),
        "bytes were lost or mixed up"
    );
}

#[test]
fn a_killed_server_resets_its_connections_and_one_without_power_is_silent() {
    for (kind, expected, at_once) in [
        (CrashKind::Kill, ErrorKind::ConnectionReset, true),
        (CrashKind::PowerLoss, ErrorKind::TimedOut, false),
    ] {
        let (mut simulation, server, client, answers) = server_and_client(7);
        simulation.run_for(5 * SECOND);
        simulation.crash(server, kind);
        assert_eq!(simulation.run_until_ended(client, 2 * SECOND), at_once, "{kind:?}");
        assert!(
            simulation.run_until_ended(client, 2 * 60 * SECOND),
            "{kind:?}: the client waits indefinitely"
        );
        assert_eq!(answers.borrow().last(), Some(&Err(expected)), "{kind:?}");
    }
}

#[test]
fn a_terminated_node_ends_by_itself_and_starts_again() {
    let mut simulation = Simulation::new(8);
    let node = simulation.add_node(3);
    let drained = Rc::new(Cell::new(0));
    let count = Rc::clone(&drained);
    simulation.start(node, move |_| {
        let count = Rc::clone(&count);
        Box::pin(async move {
            on_signal_terminate().await;
            count.set(count.get() + 1);
        })
    });
    for round in 1..=2 {
        simulation.run_for(SECOND);
        assert!(simulation.is_running(node), "it ended without being told");
        simulation.terminate(node);
        assert!(simulation.run_until_ended(node, SECOND), "it did not hear the signal");
        assert_eq!(drained.get(), 3 * round);
        simulation.restart(node);
    }
}

#[test]
#[should_panic(expected = "seen by the test")]
fn a_panic_in_a_simulated_task_reaches_the_test() {
    let mut simulation = Simulation::new(9);
    let node = simulation.add_node(1);
    simulation.start(node, |_| Box::pin(async { panic!("seen by the test") }));
    simulation.run_for(SECOND);
}

#[test]
fn a_copy_of_a_directory_that_is_put_back_is_durable_and_replaces_what_came_since() {
    let mut simulation = Simulation::new(10);
    let (node, other) = (simulation.add_node(1), simulation.add_node(1));
    let write = |path: &str, text: &str| fs::write(path, text.as_bytes()).expect("the disk works");
    simulation.on_node(node, || {
        fs::create_dir_all("/data/below/empty").expect("the disk works");
        write("/data/kept", "old");
        write("/data/below/kept", "old");
    });
    let copy = simulation.copy_directory(node, "/data");
    simulation.on_node(node, || {
        write("/data/kept", "newer");
        write("/data/below/created", "new");
    });
    simulation.put_directory(node, &copy);
    simulation.put_directory(other, &copy);
    for machine in [node, other] {
        simulation.crash(machine, CrashKind::PowerLoss);
        assert_eq!(simulation.copy_directory(machine, "/data"), copy);
    }
    simulation.empty_directory(node, "/data");
    simulation.crash(node, CrashKind::PowerLoss);
    let names = simulation.on_node(node, || fs::read_dir("/data").expect("the directory itself stays"));
    assert_eq!(names, []);
}
