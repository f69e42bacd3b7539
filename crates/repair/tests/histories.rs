//! Random histories, of which each replica misses some: repaired, all replicas show the merge of what they had.

use crate::support::writer::Writer;
use crate::support::{Sea, counting, merged, wide};
use repair::{Mode, Repaired};
use schema::Table;
use stdx::planted::{Bug, Planted};
use stdx::random::SplitMix64;

/// A sea whose replicas differ: what each has is in memory, in files, or compacted.
fn differing(seed: u64, table: &Table) -> Sea {
    let mut sea = Sea::new(seed, 3, table);
    let now = sea.now();
    let mut chance = SplitMix64::new(seed ^ 0xabcd);
    let mut writer = Writer {
        table,
        chance: SplitMix64::new(seed),
        now,
        keys: 1 + chance.below(40),
        rows: 1 + chance.below(12),
        has_short_lives: false,
    };
    let (count, misses) = (1 + chance.below(120), 2 + chance.below(20));
    let steps = 1 + chance.below(3);
    for _ in 0..steps {
        let writes: Vec<Vec<u8>> = (0..count).map(|_| writer.write()).collect();
        for node in 0..3 {
            let has = writes.iter().filter(|_| !chance.one_in(misses)).cloned().collect();
            sea.apply(node, has);
            match chance.below(4) {
                0 => sea.flush(node),
                1 => {
                    sea.flush(node);
                    sea.compact(node);
                }
                _ => {}
            }
        }
    }
    sea
}

fn differed(repaired: &Repaired) -> u64 {
    repaired.differed.iter().map(|one| one.rows).sum()
}

/// Plays a history; how many units were repaired.
fn play(seed: u64, table: &Table) -> u64 {
    let mut sea = differing(seed, table);
    let before = sea.contents();
    let expected = merged(table, &before);
    let preview = sea.repair(0, Mode::Preview).expect("nothing fails");
    for (node, before) in before.iter().enumerate() {
        let is_same = format!("{:?}", sea.content(node)) == format!("{before:?}");
        assert!(is_same, "seed {seed}: a preview writes nothing");
    }
    let repaired = sea.repair(0, Mode::Repair).expect("nothing fails");
    let at = repaired.began_at;
    assert_eq!(
        Repaired {
            began_at: at,
            ..preview
        },
        repaired,
        "seed {seed}: a preview counts the same"
    );
    sea.assert_shows(&expected, &format!("seed {seed}"));
    let again = sea.repair(1, Mode::Repair).expect("nothing fails");
    assert_eq!(
        differed(&again),
        0,
        "seed {seed}: the second repair finds no difference"
    );
    differed(&repaired)
}

#[test]
fn replicas_of_any_history_show_after_a_repair_what_any_of_them_had() {
    let found: u64 = (0..200).map(|seed| play(seed, &wide())).sum();
    assert!(found > 5_000, "{found}");
}

#[test]
fn replicas_of_counters_show_after_a_repair_what_any_of_them_had() {
    let found: u64 = (0..60).map(|seed| play(seed, &counting())).sum();
    assert!(found > 500, "{found}");
}

/// Partitions of several blocks, cut into buckets at other places on each replica.
#[test]
fn long_partitions_are_repaired_across_buckets() {
    let table = wide();
    for seed in 0..15 {
        let mut sea = Sea::new(seed, 3, &table);
        let now = sea.now();
        let mut chance = SplitMix64::new(seed ^ 0xabcd);
        let mut writer = Writer {
            table: &table,
            chance: SplitMix64::new(seed),
            now,
            keys: 2,
            rows: 900,
            has_short_lives: false,
        };
        let misses = [0, 3, 200][usize::try_from(seed % 3).expect("few")];
        for _ in 0..2 {
            let writes: Vec<Vec<u8>> = (0..700).map(|_| writer.write()).collect();
            for node in 0..3 {
                // Of the first kind, one replica has nothing.
                let has = writes
                    .iter()
                    .filter(|_| if misses == 0 { node != 1 } else { !chance.one_in(misses) });
                sea.apply(node, has.cloned().collect());
                sea.flush(node);
            }
        }
        let before = sea.contents();
        let expected = merged(&table, &before);
        sea.repair(0, Mode::Repair).expect("nothing fails");
        sea.assert_shows(&expected, &format!("seed {seed}"));
        let again = sea.repair(2, Mode::Repair).expect("nothing fails");
        assert_eq!(
            differed(&again),
            0,
            "seed {seed}: the second repair finds no difference"
        );
    }
}

#[test]
fn range_tombstones_that_are_not_compared_are_found_missing() {
    let _planted = Planted::new(Some(Bug::UncomparedRanges));
    let plays = (0..30).map(|seed| std::panic::catch_unwind(|| play(seed, &wide())));
    let failed = plays.filter(Result::is_err).count();
    assert_eq!(failed > 0, cfg!(debug_assertions), "{failed} of 30 seeds find the bug");
}
