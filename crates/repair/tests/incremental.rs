//! Repairs that mark sstables: what they leave out is equal, whatever fails, and they read what was written since
//! alone.

use std::time::Duration;

use crate::support;
use crate::support::writer::{Writer, insert, insert_for};
use crate::support::{MOMENT, SECOND, Sea, name_of, plain, wide};
use repair::Repaired;
use runtime::sim::CrashKind;
use schema::Table;
use stdx::planted::{Bug, Planted};
use stdx::random::SplitMix64;
use test_node::Tally;

/// Longer than any repair, with all its timeouts.
const LIMIT: Duration = Duration::from_hours(1);

/// The table of histories, of which nothing is forgotten.
fn kept_for_ever() -> Table {
    let mut table = wide();
    table.options.gc_grace_seconds = 100_000_000;
    table
}

fn differed(repaired: &Repaired) -> u64 {
    repaired.differed.iter().map(|one| one.rows).sum()
}

/// What happened in a history.
#[derive(Clone, Default, Debug)]
struct Seen {
    outcomes: Tally,
    incremental: u32,
    skipped_bytes: u64,
}

/// Writes that each replica misses some of, and what replicas do by themselves.
fn live(sea: &mut Sea, writer: &mut Writer<'_>, chance: &mut SplitMix64) {
    writer.now = sea.now();
    let (count, misses) = (1 + chance.below(25), 2 + chance.below(10));
    let writes: Vec<Vec<u8>> = (0..count).map(|_| writer.write()).collect();
    for node in 0..3 {
        let has = writes.iter().filter(|_| !chance.one_in(misses)).cloned().collect();
        sea.apply(node, has);
        match chance.below(5) {
            0 => sea.flush(node),
            1 => {
                sea.flush(node);
                sea.compact(node);
            }
            2 => sea.compact(node),
            _ => {}
        }
    }
    // Short lives end.
    if chance.one_in(3) {
        sea.simulation.run_for(SECOND * 60);
    }
}

/// An operator ends the repairs of a node.
fn abort(sea: &mut Sea, node: usize) {
    sea.on(node, async |local| {
        let of_repairs = |status: &tasks::Status| status.kind.module == tasks::Module::Repair;
        local.shard.tasks().abort_all(of_repairs)
    });
}

/// A repair in the middle of which something may fail.
fn repair(sea: &mut Sea, chance: &mut SplitMix64, seen: &mut Seen) {
    let node = usize::try_from(chance.below(3)).expect("small");
    let other = (node + 1 + usize::try_from(chance.below(2)).expect("small")) % 3;
    let repairing = sea.begin_marking(node, chance.one_in(6));
    let kind = if chance.one_in(2) {
        CrashKind::Kill
    } else {
        CrashKind::PowerLoss
    };
    let delay = MOMENT * u32::try_from(chance.below(120)).expect("small");
    let is_done = || repairing.borrow().is_some();
    match chance.below(7) {
        0 => {
            sea.simulation.run_until(delay, is_done);
            sea.restart(other, kind);
        }
        1 => {
            sea.simulation.run_until(delay, is_done);
            sea.restart(node, kind);
            seen.outcomes.note("the node that repairs was killed");
            return;
        }
        2 => {
            sea.simulation.run_until(delay, is_done);
            let (one, two) = (sea.id(node), sea.id(other));
            sea.simulation.partition(&[one], &[two]);
            sea.simulation.run_until(LIMIT, is_done);
            sea.simulation.heal(&[one], &[two]);
        }
        3 => {
            sea.simulation.run_until(delay, is_done);
            sea.compact(other);
        }
        4 => {
            sea.simulation.run_until(delay, is_done);
            abort(sea, node);
        }
        _ => {}
    }
    assert!(sea.simulation.run_until(LIMIT, is_done), "a repair ends");
    let repaired = repairing.take().expect("it has ended");
    seen.outcomes.note(name_of(&repaired));
    if let Ok(repaired) = repaired {
        seen.incremental += u32::from(repaired.is_incremental);
        seen.skipped_bytes += repaired.skipped_bytes;
    }
}

/// A repair that nothing disturbs. The node may find an earlier one still open on others.
fn repair_at_last(sea: &mut Sea, node: usize, reads_all: bool) -> Repaired {
    sea.repair_marking(node, reads_all).expect("nothing fails")
}

/// Plays a history of three replicas. Returns what differs at its end, after an incremental repair that succeeded.
fn play(seed: u64, table: &Table, seen: &mut Seen) -> Option<String> {
    let mut sea = Sea::new(seed, 3, table);
    sea.slow_disks();
    let mut chance = SplitMix64::new(seed ^ 0x1234);
    let mut writer = Writer {
        table,
        chance: SplitMix64::new(seed),
        now: 0,
        keys: 1 + chance.below(4),
        rows: 1 + chance.below(4),
        has_short_lives: true,
    };
    for _ in 0..2 + chance.below(6) {
        live(&mut sea, &mut writer, &mut chance);
        repair(&mut sea, &mut chance, seen);
    }
    live(&mut sea, &mut writer, &mut chance);
    let node = usize::try_from(chance.below(3)).expect("small");
    let last = repair_at_last(&mut sea, node, false);
    seen.incremental += u32::from(last.is_incremental);
    seen.skipped_bytes += last.skipped_bytes;
    // What is equal stays so when lives end and sstables are merged.
    let difference = sea.difference();
    if difference.is_some() {
        return difference;
    }
    sea.simulation.run_for(SECOND * 200);
    for node in 0..3 {
        if chance.one_in(2) {
            sea.flush(node);
            sea.compact(node);
        }
    }
    sea.difference()
}

#[test]
fn replicas_of_any_history_are_equal_behind_an_incremental_repair() {
    let mut seen = Seen::default();
    let table = kept_for_ever();
    for seed in 0..400 {
        let difference = play(seed, &table, &mut seen);
        assert_eq!(difference, None, "seed {seed}");
    }
    for outcome in [
        "repaired",
        "the node that repairs was killed",
        "unreachable",
        "refused",
        "aborted",
    ] {
        assert!(seen.outcomes.has(outcome), "{outcome}: {seen:?}");
    }
    assert!(seen.incremental > 100 && seen.skipped_bytes > 10_000, "{seen:?}");
}

/// Deletions are purged on some replicas: a full repair finds what then differs.
#[test]
fn replicas_that_forget_deletions_are_equal_behind_a_full_repair() {
    let table = wide();
    for seed in 0..60 {
        let mut sea = Sea::new(seed, 3, &table);
        let mut chance = SplitMix64::new(seed ^ 0x77);
        let mut writer = Writer {
            table: &table,
            chance: SplitMix64::new(seed),
            now: 0,
            keys: 1 + chance.below(4),
            rows: 1 + chance.below(4),
            has_short_lives: true,
        };
        let mut seen = Seen::default();
        for _ in 0..2 + chance.below(3) {
            live(&mut sea, &mut writer, &mut chance);
            repair(&mut sea, &mut chance, &mut seen);
        }
        repair_at_last(&mut sea, 1, true);
        assert_eq!(sea.living_difference(), None, "seed {seed}");
        // When the grace period is over, a replica that has compacted and one that has not are equal.
        sea.simulation.run_for(SECOND * 15_000);
        repair_at_last(&mut sea, 2, true);
        for node in 0..3 {
            if chance.one_in(2) {
                sea.flush(node);
                sea.compact(node);
            }
        }
        let again = repair_at_last(&mut sea, 0, true);
        assert_eq!(differed(&again), 0, "seed {seed}");
        assert_eq!(sea.living_difference(), None, "seed {seed}");
    }
}

/// Long enough ago that no replica needs a deletion any more.
const LONG: u32 = 20_000;

/// Rows that expired long ago, and were written longer ago than the grace period.
fn expired_rows(sea: &mut Sea, node: usize, keys: std::ops::Range<u32>) {
    let (table, life) = (sea.table.clone(), (100, sea.now() - LONG));
    let insert = |k| insert_for(&table, (k, 0), 10, life, &[7; 100]);
    sea.apply(node, keys.map(insert).collect());
}

#[test]
fn what_expired_long_ago_is_no_difference_in_a_full_repair_whoever_has_purged_it() {
    let mut sea = Sea::new(3, 3, &plain());
    for node in 0..3 {
        rows(&mut sea, node, 0..30);
        expired_rows(&mut sea, node, 30..70);
    }
    sea.flush(1);
    sea.compact(1);
    for node in [0, 1, 2, 0] {
        let repaired = repair_at_last(&mut sea, node, true);
        assert_eq!((repaired.rows, differed(&repaired)), (30, 0), "node {node}");
    }
}

#[test]
fn what_expired_long_ago_is_sent_where_it_hides_something() {
    for reads_all in [false, true] {
        let mut sea = Sea::new(4, 3, &plain());
        for node in 0..3 {
            rows(&mut sea, node, 0..30);
        }
        repair_at_last(&mut sea, 0, false);
        let table = sea.table.clone();
        sea.apply(2, vec![insert(&table, 100, 0, 9, b"older")]);
        expired_rows(&mut sea, 1, 100..101);
        let repaired = repair_at_last(&mut sea, 0, reads_all);
        assert_eq!(repaired.is_incremental, !reads_all);
        assert_eq!(sea.living_difference(), None);
        // After compactions, too.
        for node in 0..3 {
            sea.flush(node);
            sea.compact(node);
        }
        repair_at_last(&mut sea, 1, reads_all);
        assert_eq!(sea.living_difference(), None);
        let content = sea.content(2);
        let now = sea.now();
        let shown = support::shown(&table, &content, now);
        assert!(shown.iter().all(|line| !line.contains("older")), "{shown:?}");
    }
}

/// A replica that forgets at once what it receives would get it again from the next one, without end.
#[test]
fn what_expired_long_ago_does_not_go_from_replica_to_replica() {
    let mut sea = Sea::new(5, 3, &plain());
    for node in 0..3 {
        rows(&mut sea, node, 0..30);
    }
    repair_at_last(&mut sea, 0, false);
    expired_rows(&mut sea, 1, 30..70);
    for round in 0..4 {
        let repaired = repair_at_last(&mut sea, round % 3, false);
        assert!(repaired.is_incremental, "round {round}");
        assert_eq!(differed(&repaired), 0, "round {round}: {repaired:?}");
        for node in 0..3 {
            sea.flush(node);
            sea.compact(node);
        }
    }
    let last = repair_at_last(&mut sea, 2, false);
    assert_eq!((last.rows, last.read_bytes), (0, 0));
}

fn found_by(bug: Bug, seeds: std::ops::Range<u64>) -> usize {
    let _planted = Planted::new(Some(bug));
    let table = kept_for_ever();
    let plays = seeds.map(|seed| {
        let played = std::panic::catch_unwind(|| play(seed, &table, &mut Seen::default()));
        played.map_or(true, |difference| difference.is_some())
    });
    plays.filter(|found| *found).count()
}

#[test]
fn marks_of_a_repair_that_failed_are_found() {
    let found = found_by(Bug::MarkedUnrepaired, 0..60);
    assert_eq!(found > 0, cfg!(debug_assertions), "{found} of 60 seeds find the bug");
}

/// The tie of a cell that has expired and a deletion: neither shows anything, and a later write of the same timestamp
/// beats one of them alone.
#[test]
fn comparing_what_lives_alone_is_found() {
    let found = found_by(Bug::InexactElements, 0..100);
    assert_eq!(found > 0, cfg!(debug_assertions), "{found} of 100 seeds find the bug");
}

#[test]
fn expired_cells_that_become_deletions_on_one_replica_are_found() {
    let found = found_by(Bug::RepairedCellsExpire, 0..150);
    assert_eq!(found > 0, cfg!(debug_assertions), "{found} of 150 seeds find the bug");
}

fn rows(sea: &mut Sea, node: usize, keys: std::ops::Range<u32>) {
    let table = sea.table.clone();
    sea.apply(node, keys.map(|k| insert(&table, k, 0, 10, &[7; 100])).collect());
}

#[test]
fn an_incremental_repair_reads_what_was_written_since_the_last_one() {
    let mut sea = Sea::new(1, 3, &plain());
    for node in 0..3 {
        rows(&mut sea, node, 0..100);
    }
    let first = repair_at_last(&mut sea, 0, false);
    assert!(!first.is_incremental, "there is no record yet");
    assert_eq!((first.rows, differed(&first), first.marked_sstables), (100, 0, 1));
    for node in 0..3 {
        let marks = sea.marks(node);
        assert!(
            marks.len() == 1 && marks[0].0 > 0 && marks[0].0 == marks[0].1,
            "{marks:?}"
        );
    }
    let second = repair_at_last(&mut sea, 1, false);
    assert!(second.is_incremental && second.skipped_bytes > 100 * 100, "{second:?}");
    assert_eq!((second.rows, second.read_bytes, second.marked_sstables), (0, 0, 0));
    // Also after a restart.
    for node in 0..3 {
        sea.restart(node, CrashKind::PowerLoss);
    }
    for node in 0..3 {
        rows(&mut sea, node, 200..207);
    }
    let third = repair_at_last(&mut sea, 2, false);
    assert!(third.is_incremental, "{third:?}");
    assert_eq!((third.rows, differed(&third)), (7, 0));
    let full = repair_at_last(&mut sea, 2, true);
    assert_eq!((full.is_incremental, full.rows, full.marked_sstables), (false, 107, 2));
}

/// What a repair writes is unrepaired where it was written, and must not be sent back and forth.
#[test]
fn what_was_sent_once_is_marked_by_the_next_repair_and_not_written_again() {
    let mut sea = Sea::new(2, 3, &plain());
    for node in 0..3u32 {
        rows(&mut sea, node as usize, node * 10..node * 10 + 20);
    }
    let first = repair_at_last(&mut sea, 0, false);
    assert!(differed(&first) > 0);
    assert_eq!(sea.difference(), None);
    let again = repair_at_last(&mut sea, 1, false);
    assert_eq!(differed(&again), 0, "what is in marked sstables is no difference");
    let is_empty = |local: support::Local| async move {
        let tablets = local.store().tablets();
        tablets.iter().all(|tablet| tablet.version().active.borrow().is_empty())
    };
    for node in 0..3 {
        assert!(sea.on(node, is_empty), "node {node} was written what it had");
    }
    for node in [2, 0, 1] {
        let later = repair_at_last(&mut sea, node, false);
        assert!(later.is_incremental);
        assert_eq!((later.rows, later.read_bytes, differed(&later)), (0, 0, 0));
    }
}

#[test]
fn a_crash_at_any_step_of_the_marking_marks_nothing_wrongly() {
    let table = plain();
    let (mut full, mut incremental) = (0, 0);
    for (victim, operations) in
        (0..2).flat_map(|victim| (0..180).step_by(3).map(move |operations| (victim, operations)))
    {
        let mut sea = Sea::new(operations, 3, &table);
        for node in 0..3u32 {
            rows(&mut sea, node as usize, node * 3..node * 3 + 12);
        }
        let kind = if operations % 2 == 0 {
            CrashKind::Kill
        } else {
            CrashKind::PowerLoss
        };
        let repairing = sea.begin_marking(0, false);
        let id = sea.id(victim);
        sea.simulation.crash_after_file_ops(id, operations, kind);
        sea.simulation.run_until(SECOND * 30, || repairing.borrow().is_some());
        sea.restart(victim, kind);
        sea.simulation
            .run_until(LIMIT, || repairing.borrow().is_some() || victim == 0);
        let next = repair_at_last(&mut sea, 1, false);
        if next.is_incremental {
            incremental += 1
        } else {
            full += 1
        }
        assert_eq!(
            sea.difference(),
            None,
            "node {victim} crashed after {operations} operations"
        );
    }
    assert!(
        full > 20 && incremental > 5,
        "{full} full repairs, {incremental} incremental ones"
    );
}

/// Whatever makes a replica lose data makes the next repair a full one.
#[test]
fn a_replica_that_lost_data_gets_it_back_from_marked_sstables() {
    for loss in ["quarantine", "wiped", "record"] {
        let mut sea = Sea::new(3, 3, &plain());
        for node in 0..3 {
            rows(&mut sea, node, 0..50);
        }
        repair_at_last(&mut sea, 0, false);
        sea.on(1, move |local| async move {
            let store = local.store();
            let descriptors: Vec<_> = store.tablets()[0]
                .version()
                .sstables
                .iter()
                .map(|r| r.descriptor().clone())
                .collect();
            let data = descriptors[0].path(sstable::Component::Statistics);
            match loss {
                "quarantine" => {
                    let mut bytes = runtime::fs::read(&data).expect("a file");
                    bytes[10] ^= 1;
                    runtime::fs::write(&data, &bytes).expect("the disk works");
                }
                "wiped" => {
                    for entry in runtime::fs::read_dir(&store.dir).expect("a directory") {
                        runtime::fs::remove_file(store.dir.join(entry.name)).expect("the disk works");
                    }
                }
                _ => {
                    sstable::remove_records(&store.dir, types::Token(0), types::Token(0)).expect("the disk works");
                }
            }
        });
        sea.restart(1, CrashKind::Kill);
        sea.on(1, |local| async move {
            let accepted = local.shard.accept_loss(&local.store()).await;
            accepted.expect("the disk works");
        });
        let next = repair_at_last(&mut sea, 0, false);
        assert!(!next.is_incremental, "{loss}");
        assert_eq!(sea.difference(), None, "{loss}");
        assert!(
            repair_at_last(&mut sea, 2, false).is_incremental,
            "{loss}: replicas agree again"
        );
    }
}

#[test]
fn a_truncation_and_a_replica_with_another_record_make_the_next_repair_a_full_one() {
    let mut sea = Sea::new(4, 3, &plain());
    for node in 0..3 {
        rows(&mut sea, node, 0..50);
    }
    repair_at_last(&mut sea, 0, false);
    for node in 0..3 {
        sea.on(node, |local| async move { local.truncate(1).await });
        rows(&mut sea, node, 0..10);
    }
    assert!(!repair_at_last(&mut sea, 0, false).is_incremental);
    assert!(repair_at_last(&mut sea, 0, false).is_incremental);
    // With fewer replicas: what each of them holds of the other's marks does not depend on a third.
    let mut others = sea.others(0);
    others.pop();
    let marks = repair::Marks {
        reads_all: false,
        full_before: 0,
    };
    let request = (support::WHOLE, others);
    let fewer = sea.on(0, move |local| async move {
        local.repair_with(request, repair::Mode::Repair, Some(marks)).await
    });
    assert!(fewer.expect("nothing fails").is_incremental);
    assert!(
        !repair_at_last(&mut sea, 0, false).is_incremental,
        "the third has another record"
    );
    // Too long ago.
    let others = sea.others(0);
    let marks = repair::Marks {
        reads_all: false,
        full_before: i64::MAX,
    };
    let late = sea.on(0, move |local| async move {
        local
            .repair_with((support::WHOLE, others), repair::Mode::Repair, Some(marks))
            .await
    });
    assert!(!late.expect("nothing fails").is_incremental);
    // A part of a tablet.
    let others = sea.others(0);
    let part = sea.on(0, move |local| async move {
        local
            .repair_with((support::LOW, others), repair::Mode::Repair, Some(marks))
            .await
    });
    assert_eq!(name_of(&part), "not here");
}
