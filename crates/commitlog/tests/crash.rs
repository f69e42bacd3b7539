//! The log under the simulator: killed processes, lost power, full and failing disks, damaged files.
//!
//! Each run writes numbered mutations, notes which were acknowledged and which were known durable, is stopped in the
//! middle of some file operation, starts again, and must find what was promised: after a kill everything acknowledged;
//! after a power loss everything acknowledged in batch mode, and everything synced in periodic mode.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use commitlog::{
    Commitlog, Discard, LogError, LongRecord, OldLog, Options, Replay, ReplayError, ReplayPosition, SyncMode,
};
use mutation::{Mutation, MutationBuilder};
use runtime::sim::{CrashKind, FailedSync, Simulation};
use schema::TableId;
use types::Token;
use uuid::Uuid;

const SEGMENT_BYTES: u64 = 64 << 10;

fn dir() -> PathBuf {
    PathBuf::from("/log")
}

fn table() -> TableId {
    TableId(Uuid::from_u128(7))
}

fn mutation(n: u64, bytes: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut m = MutationBuilder::begin(&mut out, table(), &n.to_be_bytes());
    m.row(b"", |out| out.resize(out.len() + bytes, n as u8));
    out
}

fn number(mutation: &[u8]) -> u64 {
    let m = Mutation::new(mutation).expect("a whole mutation");
    u64::from_be_bytes(m.key.try_into().expect("an eight byte key"))
}

fn options(sync: SyncMode, boot_id: u128, first_segment: u64) -> Options {
    Options {
        dir: dir(),
        shard: 0,
        shards: 1,
        segment_bytes: SEGMENT_BYTES,
        sync,
        boot_id,
        first_segment,
    }
}

/// Replays everything in the directory; the numbers found.
fn replay_all(boot_id: u128) -> Result<BTreeSet<u64>, ReplayError> {
    let mut found = BTreeSet::new();
    let mut replay = Replay::open(&dir(), boot_id, 0, 1)?;
    while replay.next_segment(|r| {
        found.insert(number(r.mutation));
        Ok(())
    })? {}
    Ok(found)
}

#[derive(Default)]
struct Seen {
    next: u64,
    acknowledged: BTreeSet<u64>,
    /// Acknowledged before the last sync that succeeded.
    durable: BTreeSet<u64>,
    replayed: Option<Result<BTreeSet<u64>, String>>,
    refused: u64,
}

/// One process life: replays, then writes until it is stopped.
async fn live(sync: SyncMode, boot_id: u128, seen: Arc<Mutex<Seen>>, writes: usize) {
    runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
    runtime::fs::sync_dir("/").expect("the simulated disk works here");
    let found = replay_all(boot_id).map_err(|e| e.to_string());
    seen.lock().expect("one thread").replayed = Some(found);
    let old = OldLog::take(&dir()).expect("the simulated disk works here");
    let log = Commitlog::new(options(sync, boot_id, old.last_segment + 1));
    if sync != SyncMode::Batch {
        drop(runtime::spawn(log.clone().run_periodic()));
        // A second opinion on what is durable: note what was acknowledged before each sync that succeeds.
        let (log, seen) = (log.clone(), seen.clone());
        drop(runtime::spawn(async move {
            loop {
                runtime::sleep(Duration::from_millis(7)).await;
                let before = seen.lock().expect("one thread").acknowledged.clone();
                if log.sync().await.is_ok() {
                    seen.lock().expect("one thread").durable.extend(before);
                }
            }
        }));
    }
    for _ in 0..writes {
        let batch = 1 + runtime::random_u64() % 4;
        let mut numbers = Vec::new();
        for _ in 0..batch {
            let n = {
                let mut seen = seen.lock().expect("one thread");
                seen.next += 1;
                seen.next
            };
            let size = (runtime::random_u64() % 3000) as usize;
            let bytes = mutation(n, size);
            let appended = if runtime::random_u64().is_multiple_of(4) {
                log.append_long(LongRecord::new(&[&bytes]))
            } else {
                log.append(&bytes)
            };
            match appended {
                Ok(_) => numbers.push(n),
                Err(_) => seen.lock().expect("one thread").refused += 1,
            }
        }
        let Ok(position) = log.write() else {
            seen.lock().expect("one thread").refused += 1;
            continue;
        };
        if sync == SyncMode::Batch && log.synced(position).await.is_err() {
            continue;
        }
        seen.lock().expect("one thread").acknowledged.extend(numbers);
        runtime::sleep(Duration::from_millis(runtime::random_u64() % 4)).await;
    }
}

fn check(seed: u64, sync: SyncMode, kind: CrashKind) {
    let mut sim = Simulation::new(seed);
    let node = sim.add_node(1);
    let seen = Arc::new(Mutex::new(Seen::default()));
    let boot = Arc::new(Mutex::new(1u128));
    let (s, b) = (seen.clone(), boot.clone());
    sim.start(node, move |_| {
        let (seen, boot_id) = (s.clone(), *b.lock().expect("one thread"));
        Box::pin(live(sync, boot_id, seen, 200))
    });
    for life in 0..4 {
        sim.crash_after_file_ops(node, 5 + seed * 13 % 97 + life * 31, kind);
        sim.run_until_ended(node, Duration::from_secs(20));
        if sim.is_running(node) {
            sim.crash(node, kind);
        }
        if kind == CrashKind::PowerLoss {
            *boot.lock().expect("one thread") += 1;
        }
        let promised = {
            let seen = seen.lock().expect("one thread");
            if kind == CrashKind::Kill || sync == SyncMode::Batch {
                seen.acknowledged.clone()
            } else {
                seen.durable.clone()
            }
        };
        sim.clear_file_faults(node);
        sim.restart(node);
        sim.run_for(Duration::from_millis(1));
        let mut seen = seen.lock().expect("one thread");
        let found =
            seen.replayed.take().expect("the process replayed").unwrap_or_else(|e| {
                panic!("seed {seed}, life {life}: a log that was only interrupted must replay: {e}")
            });
        let lost: Vec<&u64> = promised.difference(&found).collect();
        assert!(
            lost.is_empty(),
            "seed {seed}, life {life}: promised but lost after {kind:?}: {lost:?}"
        );
        let invented: Vec<&u64> = found.iter().filter(|n| **n > seen.next).collect();
        assert!(
            invented.is_empty(),
            "seed {seed}: never written but found: {invented:?}"
        );
        // What survived survives the next time too, by the promise of this life.
        if kind == CrashKind::PowerLoss {
            let acknowledged = seen.acknowledged.clone();
            let kept: BTreeSet<u64> = acknowledged.intersection(&found).copied().collect();
            seen.acknowledged = kept;
        }
    }
}

#[test]
fn an_acknowledged_write_survives_a_killed_process() {
    for seed in 0..60 {
        check(seed, SyncMode::Periodic(Duration::from_millis(20)), CrashKind::Kill);
        check(seed, SyncMode::Batch, CrashKind::Kill);
    }
}

#[test]
fn batch_mode_loses_nothing_when_the_power_goes() {
    for seed in 0..80 {
        check(seed, SyncMode::Batch, CrashKind::PowerLoss);
    }
}

/// Clients of the second process read what it has replayed, so the third has it too.
#[test]
fn what_a_start_has_replayed_after_a_kill_survives_a_power_loss() {
    for seed in 0..20 {
        let mut sim = Simulation::new(seed);
        let node = sim.add_node(1);
        let replayed = Arc::new(Mutex::new(Vec::new()));
        let of_lives = Arc::clone(&replayed);
        sim.start(node, move |_| {
            let replayed = Arc::clone(&of_lives);
            Box::pin(async move {
                runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
                runtime::fs::sync_dir("/").expect("the simulated disk works here");
                let life = replayed.lock().expect("one thread").len();
                let found = replay_all(life as u128 + 1).expect("the log is whole");
                replayed.lock().expect("one thread").push(found);
                let old = OldLog::take(&dir()).expect("the simulated disk works here");
                if life == 0 {
                    let log = Commitlog::new(options(SyncMode::Batch, 1, old.last_segment + 1));
                    log.append(&mutation(1, 100))
                        .expect("the log takes it")
                        .is_not_awaited();
                    log.write().expect("the kernel takes it");
                }
                std::future::pending::<()>().await;
            })
        });
        for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
            sim.run_for(Duration::from_millis(1));
            sim.crash(node, kind);
            sim.restart(node);
        }
        sim.run_for(Duration::from_millis(1));
        let replayed = replayed.lock().expect("one thread");
        let only = BTreeSet::from([1]);
        assert_eq!(*replayed, [BTreeSet::new(), only.clone(), only], "seed {seed}");
    }
}

#[test]
fn periodic_mode_loses_nothing_that_was_synced_when_the_power_goes() {
    for seed in 0..80 {
        check(
            seed,
            SyncMode::Periodic(Duration::from_millis(20)),
            CrashKind::PowerLoss,
        );
    }
}

/// Runs `f` in a process of a fresh simulated machine and returns what it returns.
fn on_a_machine<T: Send + 'static>(
    disk_bytes: Option<u64>,
    f: impl AsyncFn() -> T + Clone + Send + Sync + 'static,
) -> T {
    let mut sim = Simulation::new(1);
    let node = sim.add_node(1);
    sim.set_disk_capacity(node, disk_bytes);
    let result = Arc::new(Mutex::new(None));
    let r = result.clone();
    sim.start(node, move |_| {
        let (f, r) = (f.clone(), r.clone());
        Box::pin(async move {
            runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
            let value = f().await;
            *r.lock().expect("one thread") = Some(value);
        })
    });
    assert!(sim.run_until_ended(node, Duration::from_secs(60)), "the process ends");
    let value = result.lock().expect("one thread").take();
    value.expect("the process returned something")
}

fn periodic() -> SyncMode {
    SyncMode::Periodic(Duration::from_secs(10))
}

async fn write_numbers(log: &Rc<Commitlog>, numbers: std::ops::RangeInclusive<u64>) {
    for n in numbers {
        log.append(&mutation(n, 100)).expect("there is room").is_not_awaited();
        log.write().expect("the disk works");
    }
}

fn damage(file: &Path, at: u64) {
    let open = runtime::fs::OpenOptions {
        read: true,
        write: true,
        ..Default::default()
    };
    let file = runtime::fs::File::open(file, open).expect("the segment is there");
    let mut byte = [0];
    file.read_exact_at_blocking(&mut byte, at).expect("the byte is there");
    file.write_all_at_blocking(&[byte[0] ^ 0x40], at)
        .expect("the disk works");
}

#[test]
fn a_hole_in_the_middle_is_an_error_that_names_file_and_offset() {
    let message = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        write_numbers(&log, 1..=20).await;
        damage(&dir().join("commitlog-0-0000000000000001.log"), 64 + 5 * 168 + 60);
        replay_all(1)
            .expect_err("a damaged chunk before whole ones is no torn tail")
            .to_string()
    });
    assert!(message.contains("commitlog-0-0000000000000001.log"), "{message}");
    assert!(message.contains("offset 904"), "{message}");
}

#[test]
fn a_torn_tail_ends_the_log() {
    let found = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        write_numbers(&log, 1..=20).await;
        damage(&dir().join("commitlog-0-0000000000000001.log"), 64 + 19 * 168 + 60);
        replay_all(1).map_err(|e| e.to_string())
    });
    assert_eq!(found, Ok((1..=19).collect()));
}

#[test]
fn a_synced_tail_that_is_gone_is_damage_even_after_a_power_loss() {
    let message = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        write_numbers(&log, 1..=5).await;
        log.sync().await.expect("the disk works");
        write_numbers(&log, 6..=6).await;
        damage(&dir().join("commitlog-0-0000000000000001.log"), 64 + 2 * 168 + 60);
        replay_all(2).expect_err("it was promised durable").to_string()
    });
    assert!(message.contains("made durable"), "{message}");
}

#[test]
fn what_was_flushed_or_truncated_is_not_replayed() {
    let found = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        write_numbers(&log, 1..=5).await;
        let position = log.appended();
        log.append_discard(&Discard {
            table: table(),
            after: Token(i64::MIN),
            up_to_token: Token(i64::MAX),
            position,
        })
        .expect("there is room")
        .is_not_awaited();
        log.write().expect("the disk works");
        write_numbers(&log, 6..=8).await;
        replay_all(1).map_err(|e| e.to_string())
    });
    assert_eq!(found, Ok((6..=8).collect()));
}

/// A discard of these tokens, up to a position.
fn discard(after: Token, up_to_token: Token, position: ReplayPosition) -> Discard {
    Discard {
        table: table(),
        after,
        up_to_token,
        position,
    }
}

#[test]
fn a_discard_covers_the_record_that_it_ends_with_and_none_behind_it() {
    let found = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        // One chunk: the position is in the middle of it.
        log.append(&mutation(1, 10)).expect("there is room").is_not_awaited();
        let position = log.append(&mutation(2, 10)).expect("there is room").place().position;
        log.append(&mutation(3, 10)).expect("there is room").is_not_awaited();
        log.append_discard(&discard(Token(i64::MIN), Token(i64::MAX), position))
            .expect("there is room")
            .is_not_awaited();
        log.write().expect("the disk works");
        replay_all(1).map_err(|e| e.to_string())
    });
    assert_eq!(found, Ok(BTreeSet::from([3])));
}

#[test]
fn a_discard_covers_the_last_token_of_its_range_and_not_that_before_its_first() {
    let [before, of] = on_a_machine(None, async || {
        let token = types::token::token_of(&7u64.to_be_bytes());
        let found = |first_segment, range: (Token, Token)| {
            let log = Commitlog::new(options(periodic(), 1, first_segment));
            let position = log.append(&mutation(7, 10)).expect("there is room").place().position;
            log.append_discard(&discard(range.0, range.1, position))
                .expect("there is room")
                .is_not_awaited();
            log.write().expect("the disk works");
            let found = replay_all(1).map_err(|e| e.to_string());
            let old = OldLog::take(&dir()).expect("the directory is there");
            old.remove().expect("the disk works");
            found
        };
        [found(1, (token, Token(i64::MAX))), found(2, (Token(i64::MIN), token))]
    });
    assert_eq!(before, Ok(BTreeSet::from([7])), "it is of the tablet before");
    assert_eq!(of, Ok(BTreeSet::new()), "it is of this tablet");
}

#[test]
fn a_segment_that_is_needed_stays_and_older_ones_go() {
    let ids = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        let mut n = 0;
        while log.appended().segment < 4 {
            n += 1;
            log.append(&mutation(n, 3_000)).expect("there is room").is_not_awaited();
            log.write().expect("the disk works");
        }
        log.sync().await.expect("the disk works");
        log.release_below(3).await;
        let entries = runtime::fs::read_dir(dir()).expect("the directory is there");
        let logs = entries.into_iter().filter(|e| e.name.ends_with(".log"));
        logs.map(|e| e.name).collect::<BTreeSet<_>>()
    });
    let wanted = [3, 4].map(|id| format!("commitlog-0-{id:016}.log"));
    assert_eq!(ids, wanted.into());
}

/// The log's first two segments, the last chunk of the first one damaged, as a machine of that boot replays them.
fn cut_short(boot_id: u128) -> Result<(u64, u64), String> {
    on_a_machine(None, async move || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        let (mut n, mut ends) = (0, Vec::new());
        while log.appended().segment < 2 {
            n += 1;
            log.append(&mutation(n, 3_000)).expect("there is room").is_not_awaited();
            ends.push(log.write().expect("the disk works"));
        }
        let in_first = ends.iter().filter(|end| end.segment == 1).count();
        let last = ends[in_first - 1];
        damage(
            &dir().join("commitlog-0-0000000000000001.log"),
            u64::from(last.offset) - 10,
        );
        let mut replay = Replay::open(&dir(), boot_id, 0, 1).map_err(|e| e.to_string())?;
        while replay.next_segment(|_| Ok(())).map_err(|e| e.to_string())? {}
        Ok((n - replay.stats().mutations, replay.stats().holes))
    })
}

#[test]
fn a_segment_that_is_cut_short_is_damage_unless_the_power_was_lost() {
    let message = cut_short(1).expect_err("no power loss explains it");
    assert!(message.contains("as the log continues after it"), "{message}");
    assert_eq!(cut_short(2), Ok((1, 1)), "one write that was not synced is lost");
}

#[test]
fn a_failed_write_is_seen_by_all_whose_records_it_lost_and_no_discard_from_before_covers_what_follows() {
    let mut sim = Simulation::new(5);
    let node = sim.add_node(1);
    let result = Arc::new(Mutex::new(None));
    let r = result.clone();
    sim.start(node, move |_| {
        let r = r.clone();
        Box::pin(async move {
            runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
            let log = Commitlog::new(options(periodic(), 1, 1));
            log.append(&mutation(1, 10)).expect("there is room").is_not_awaited();
            log.write().expect("the disk works");
            // The moment at which the disk fails.
            runtime::sleep(Duration::from_secs(1)).await;
            let mark = log.mark();
            log.append(&mutation(2, 10)).expect("there is room").is_not_awaited();
            let frozen_at = log.appended();
            let other = log.write();
            // The writer of record 2 finds nothing left to write.
            let own = log.write();
            let seen = (mark.has_losses(&log), log.durable_since(mark).await);
            log.append(&mutation(3, 10)).expect("there is room").is_not_awaited();
            log.append_discard(&discard(Token(i64::MIN), Token(i64::MAX), frozen_at))
                .expect("there is room")
                .is_not_awaited();
            log.write().expect("the disk works again");
            let found = replay_all(1).map_err(|e| e.to_string());
            *r.lock().expect("one thread") = Some((other.is_err(), own.is_ok(), seen, found));
        })
    });
    sim.run_for(Duration::from_millis(500));
    sim.fail_file_op_after(node, 0, std::io::ErrorKind::Other);
    assert!(sim.run_until_ended(node, Duration::from_secs(60)), "the process ends");
    let outcome = result
        .lock()
        .expect("one thread")
        .take()
        .expect("it returned something");
    let (failed, rest_is_written, (losses, durable), found) = outcome;
    assert!(failed && rest_is_written);
    assert_eq!((losses, durable), (true, Err(LogError::Lost)));
    assert_eq!(found, Ok(BTreeSet::from([3])), "the discard covers what was before it");
}

#[test]
fn a_batch_that_did_not_end_is_handed_out_again_and_one_that_did_is_not() {
    let (found, batches) = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        let parts: Vec<Vec<u8>> = (1..=3).map(|n| mutation(n, 10)).collect();
        let all = || parts.iter().map(Vec::as_slice);
        log.append_batch_begun(1, all())
            .expect("there is room")
            .is_not_awaited();
        log.append_batch_begun(2, all().take(2))
            .expect("there is room")
            .is_not_awaited();
        log.append_batch(all().skip(1)).expect("there is room").is_not_awaited();
        log.append_batch_ended(1).expect("there is room").is_not_awaited();
        log.write().expect("the disk works");
        let mut replay = Replay::open(&dir(), 1, 0, 1).expect("the log is whole");
        let mut found = BTreeSet::new();
        while replay
            .next_segment(|r| {
                found.insert(number(r.mutation));
                Ok(())
            })
            .expect("the log is whole")
        {}
        let batches: Vec<Vec<u64>> = replay
            .unfinished_batches()
            .iter()
            .map(|(_, b)| b.iter().map(|m| number(m)).collect())
            .collect();
        (found, batches)
    });
    assert_eq!(
        found,
        BTreeSet::from([2, 3]),
        "a batch of one shard is replayed as its mutations"
    );
    assert_eq!(batches, vec![vec![1, 2]]);
}

/// A log of a node with so many shards, which begins with that segment.
fn log_of(shard: u32, shards: u32, first_segment: u64) -> Rc<Commitlog> {
    Commitlog::new(Options {
        shard,
        shards,
        ..options(periodic(), 1, first_segment)
    })
}

#[test]
fn long_records_are_replayed_between_others() {
    let (positions, refused, found) = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        let mutations: Vec<Vec<u8>> = (1..=8).map(|n| mutation(n, 9_000)).collect();
        let of = |number: usize| &mutations[number][..];
        let appended = [
            log.append(of(0)),
            log.append_long(LongRecord::new(&[of(1)])),
            log.append(of(2)),
            log.append_long(LongRecord::new(&[of(3), of(4)])),
            log.append_long(LongRecord::new(&[of(5)])),
            // Does not fit into the first segment any more.
            log.append_long(LongRecord::new(&[of(6)])),
            log.append_batch([of(7)].into_iter()),
        ];
        let refused = log.append_long(LongRecord::new(&[&mutation(9, SEGMENT_BYTES as usize / 2)]));
        log.write().expect("the disk works");
        let positions = appended.map(|logged| logged.expect("there is room").place().position);
        (positions, refused, replay_all(1).expect("the log is whole"))
    });
    assert!(positions.is_sorted_by(|a, b| a < b), "{positions:?}");
    assert!(positions[0].segment < positions[6].segment, "{positions:?}");
    assert!(matches!(refused, Err(LogError::TooLarge { .. })), "{refused:?}");
    assert_eq!(found, (1..=8).collect());
}

#[test]
fn a_truncation_counts_for_what_a_node_with_other_shards_logged_before() {
    let found = on_a_machine(None, async || {
        let before = log_of(0, 1, 1);
        before.append(&mutation(1, 10)).expect("there is room").is_not_awaited();
        before.write().expect("the disk works");
        // The node has two shards now; the second one has replayed what is its own, and truncates.
        let after = log_of(1, 2, 2);
        let truncation = Discard {
            table: table(),
            after: Token(i64::MIN),
            up_to_token: Token(i64::MAX),
            position: after.end(),
        };
        after
            .append_discard(&truncation)
            .expect("there is room")
            .is_not_awaited();
        after.append(&mutation(2, 10)).expect("there is room").is_not_awaited();
        after.write().expect("the disk works");
        [1, 2, 3].map(replay_shards)
    });
    for found in found {
        assert_eq!(found, [2], "what was truncated does not come back");
    }
}

/// What all shards of a node with so many find, in order.
fn replay_shards(shards: u32) -> Vec<u64> {
    let mut found = Vec::new();
    for shard in 0..shards {
        let mut replay = Replay::open(&dir(), 1, shard, shards).expect("the log is whole");
        let mut note = |r: commitlog::Record<'_>| {
            found.push(number(r.mutation));
            Ok(())
        };
        while replay.next_segment(&mut note).expect("the log is whole") {}
    }
    found.sort_unstable();
    found
}

#[test]
fn each_log_is_read_by_one_shard_whatever_their_number_was() {
    let found = on_a_machine(None, async || {
        for shard in 0..3 {
            let log = log_of(shard, 3, 1);
            log.append(&mutation(u64::from(shard), 10))
                .expect("there is room")
                .is_not_awaited();
            log.write().expect("the disk works");
        }
        [1, 2, 3, 5].map(replay_shards)
    });
    for found in found {
        assert_eq!(found, [0, 1, 2], "each write once");
    }
}

#[test]
fn what_a_shard_flushed_before_a_tablet_left_it_says_nothing_of_the_log_of_the_next() {
    let found = on_a_machine(None, async || {
        // Two shards of one run: their positions mean nothing to each other.
        let (from, to) = (log_of(0, 2, 1), log_of(1, 2, 1));
        to.append(&mutation(2, 10)).expect("there is room").is_not_awaited();
        to.write().expect("the disk works");
        write_numbers(&from, 3..=5).await;
        from.append(&mutation(1, 10)).expect("there is room").is_not_awaited();
        let all = discard(Token(i64::MIN), Token(i64::MAX), from.end());
        from.append_discard(&all).expect("there is room").is_not_awaited();
        from.write().expect("the disk works");
        let same_shards = replay_shards(2);
        // A third run on one shard, whose discard counts for both.
        let last = log_of(0, 1, 3);
        let again = replay_shards(1);
        last.append_discard(&discard(Token(i64::MIN), Token(i64::MAX), last.end()))
            .expect("there is room")
            .is_not_awaited();
        last.write().expect("the disk works");
        (same_shards, again, replay_shards(1))
    });
    assert_eq!(found, (vec![2], vec![2], vec![]));
}

#[test]
fn a_batch_that_a_later_run_finished_is_not_begun_again() {
    let unfinished = on_a_machine(None, async || {
        let parts: Vec<Vec<u8>> = (1..=2).map(|n| mutation(n, 10)).collect();
        let before = log_of(1, 2, 1);
        for id in [1, 2] {
            let parts = parts.iter().map(Vec::as_slice);
            before
                .append_batch_begun(id, parts)
                .expect("there is room")
                .is_not_awaited();
        }
        before.write().expect("the disk works");
        // This log is read before the log of shard 1: the end of the batch comes before its beginning.
        let after = log_of(0, 1, 2);
        after.append_batch_ended(1).expect("there is room").is_not_awaited();
        after.write().expect("the disk works");
        let mut replay = Replay::open(&dir(), 1, 0, 1).expect("the log is whole");
        while replay.next_segment(|_| Ok(())).expect("the log is whole") {}
        replay.unfinished_batches()
    });
    let ids: Vec<u128> = unfinished.into_iter().map(|(id, _)| id).collect();
    assert_eq!(ids, [2]);
}

#[test]
fn the_logs_of_all_shards_are_removed_by_age() {
    let ids = on_a_machine(None, async || {
        for (shard, shards, id) in [(0, 1, 1), (1, 2, 2), (0, 2, 3), (2, 3, 4)] {
            let log = log_of(shard, shards, id);
            log.append(&mutation(1, 10)).expect("there is room").is_not_awaited();
            log.write().expect("the disk works");
        }
        let old = OldLog::take(&dir()).expect("the directory is there");
        assert_eq!(old.last_segment, 4);
        let name = |f: &PathBuf| f.file_name().map(|n| n.to_string_lossy().into_owned());
        old.segments.iter().filter_map(name).collect::<Vec<_>>()
    });
    let ages: Vec<u64> = ids
        .iter()
        .filter_map(|name| name.split(['-', '.']).rev().find_map(|part| part.parse().ok()))
        .collect();
    assert_eq!(
        ages,
        [1, 2, 3, 4],
        "an older segment goes before a younger one that may speak of it: {ids:?}"
    );
}

#[test]
fn a_full_disk_refuses_writes_before_they_are_half_done() {
    let (found, refused, after) = on_a_machine(Some(SEGMENT_BYTES * 3), async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        let (mut n, mut written) = (0, BTreeSet::new());
        let refused = loop {
            n += 1;
            match log.append(&mutation(n, 3000)) {
                Ok(_) => {
                    log.write().expect("allocated space takes what it was allocated for");
                    written.insert(n);
                }
                Err(e) => break e,
            }
        };
        let found = replay_all(1).map_err(|e| e.to_string());
        assert_eq!(found, Ok(written.clone()));
        // Once a segment is released there is room again.
        log.sync().await.expect("the disk works");
        log.release_below(u64::MAX).await;
        let after = log.append(&mutation(n + 1, 3000)).and_then(|_| log.write());
        (written.len(), refused, after)
    });
    assert!(found > 30, "three segments hold many writes, not {found}");
    assert!(matches!(refused, LogError::Io { .. }), "{refused}");
    assert!(after.is_ok(), "{after:?}");
}

/// Batches with whether each was acknowledged, and what replay found.
type Outcome = (Vec<(Vec<u64>, bool)>, BTreeSet<u64>);

/// Appends and commits in batches of ten while one file operation fails; for each batch, whether it may be
/// acknowledged, and what replay finds at the end.
fn with_one_failure(sync: SyncMode, after: u64, periodic_syncs: bool) -> Outcome {
    let mut sim = Simulation::new(3);
    let node = sim.add_node(1);
    let result: Arc<Mutex<Outcome>> = Arc::default();
    let r = result.clone();
    sim.start(node, move |_| {
        let r = r.clone();
        Box::pin(async move {
            runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
            let log = Commitlog::new(options(sync, 1, 1));
            let mut n = 0;
            for _ in 0..30 {
                let mark = log.mark();
                let (mut numbers, mut ok) = (Vec::new(), true);
                for _ in 0..10 {
                    n += 1;
                    numbers.push(n);
                    // Large enough that chunks and segments end in the middle of a batch.
                    ok &= log.append(&mutation(n, 4000)).is_ok();
                }
                ok &= log.commit_since(mark).is_ok();
                if ok && sync == SyncMode::Batch {
                    ok = log.synced(log.appended()).await.is_ok();
                }
                if periodic_syncs {
                    let _ = log.sync().await;
                }
                r.lock().expect("one thread").0.push((numbers, ok));
            }
            r.lock().expect("one thread").1 = replay_all(1).expect("the log is whole");
        })
    });
    sim.fail_file_op_after(node, after, std::io::ErrorKind::Other);
    assert!(sim.run_until_ended(node, Duration::from_secs(60)), "the process ends");
    let outcome = result.lock().expect("one thread");
    outcome.clone()
}

#[test]
fn a_batch_that_lost_a_record_to_a_failed_write_is_not_acknowledged() {
    let mut refused = 0;
    for after in 3..60 {
        let (batches, found) = with_one_failure(periodic(), after, false);
        for (numbers, acknowledged) in batches {
            refused += usize::from(!acknowledged);
            if acknowledged {
                let lost: Vec<&u64> = numbers.iter().filter(|n| !found.contains(n)).collect();
                assert!(
                    lost.is_empty(),
                    "failure after {after} operations: acknowledged but not in the log: {lost:?}"
                );
            }
        }
    }
    assert!(refused > 20, "most failures hit a batch, not {refused}");
}

#[test]
fn nothing_is_acknowledged_behind_a_failed_sync() {
    for sync in [SyncMode::Batch, periodic()] {
        let mut broke = 0;
        for after in 3..60 {
            let (batches, _) = with_one_failure(sync, after, sync != SyncMode::Batch);
            let acknowledged: Vec<bool> = batches.iter().map(|b| b.1).collect();
            let last = *acknowledged.last().expect("there are batches");
            if last {
                // A write failed, not a sync: the log continued.
                continue;
            }
            broke += 1;
            let first = acknowledged.iter().position(|a| !a).expect("the last one failed");
            assert!(
                acknowledged[first..].iter().all(|a| !a),
                "{sync:?}, failure after {after}: {acknowledged:?}"
            );
        }
        assert!(broke > 5, "{sync:?}: some failures hit a sync, not {broke}");
    }
}

/// Writes until a sync fails, chunks while syncs run among them; what was acknowledged.
async fn write_until_a_sync_fails(sync: SyncMode) -> BTreeSet<u64> {
    runtime::fs::create_dir_all(dir()).expect("the simulated disk works here");
    let log = Commitlog::new(options(sync, 1, 1));
    drop(runtime::spawn(log.clone().run_periodic()));
    let acknowledged: Rc<RefCell<BTreeSet<u64>>> = Rc::default();
    for n in 1..=2000 {
        if log.append(&mutation(n, 100)).is_err() || log.write().is_err() {
            break;
        }
        let (log, acknowledged, position) = (log.clone(), acknowledged.clone(), log.appended());
        drop(runtime::spawn(async move {
            if sync == SyncMode::Batch && log.synced(position).await.is_ok() {
                acknowledged.borrow_mut().insert(n);
            }
        }));
        runtime::sleep(Duration::from_micros(100)).await;
    }
    // Long enough for the sign.
    runtime::sleep(Duration::from_secs(1)).await;
    acknowledged.take()
}

#[test]
fn a_start_in_the_same_boot_goes_on_behind_a_failed_sync() {
    for sync in [SyncMode::Batch, SyncMode::Periodic(Duration::from_millis(5))] {
        let mut holes = 0;
        for after in 0..30 {
            let mut sim = Simulation::new(after);
            let node = sim.add_node(1);
            let written: Arc<Mutex<Option<BTreeSet<u64>>>> = Arc::default();
            let acknowledged = written.clone();
            sim.start(node, move |_| {
                let written = acknowledged.clone();
                Box::pin(async move {
                    let acknowledged = write_until_a_sync_fails(sync).await;
                    *written.lock().expect("one thread") = Some(acknowledged);
                })
            });
            sim.fail_sync_after(node, after, FailedSync::Dropped);
            assert!(sim.run_until_ended(node, Duration::from_secs(60)), "the process ends");
            let acknowledged = written.lock().expect("one thread").take().expect("it was written");
            let (found, without_signs) = sim.on_node(node, || {
                let found = replay_all(1).map_err(|e| e.to_string());
                for entry in runtime::fs::read_dir(dir()).expect("the disk works") {
                    if entry.name.ends_with(".unsynced") {
                        runtime::fs::remove_file(dir().join(entry.name)).expect("the disk works");
                    }
                }
                (found, replay_all(1).is_err())
            });
            let found = found.unwrap_or_else(|e| panic!("{sync:?}, sync {after} failed: {e}"));
            assert!(
                acknowledged.is_subset(&found),
                "{sync:?}, sync {after} failed: acknowledged writes are lost"
            );
            holes += usize::from(without_signs);
        }
        assert!(holes > 3, "{sync:?}: {holes} failed syncs left a hole");
    }
}

#[test]
fn a_mutation_larger_than_half_a_segment_is_refused_by_value() {
    let outcome = on_a_machine(None, async || {
        let log = Commitlog::new(options(periodic(), 1, 1));
        log.append(&mutation(1, SEGMENT_BYTES as usize))
            .map(|logged| logged.place())
    });
    assert!(matches!(outcome, Err(LogError::TooLarge { .. })), "{outcome:?}");
}
