//! Which sstables are merged: a table of situations.

use compaction::strategy::{SizeTieredOptions, SstableInfo, Strategy, major, size_tiered};
use compaction::{Choice, Reason};

const MB: u64 = 1 << 20;

/// `sizes` in megabytes; the ids are 1, 2, 3 ….
fn sstables(sizes: &[u64]) -> Vec<SstableInfo> {
    sizes
        .iter()
        .zip(1..)
        .map(|(size, id)| SstableInfo {
            id,
            bytes: size * MB,
            min_timestamp: 100,
            max_timestamp: 200,
            droppable_ratio: 0.0,
            age_seconds: 1_000_000,
            overlap_min_timestamp: None,
            is_repaired: false,
        })
        .collect()
}

fn tier(ids: &[u64]) -> Option<Choice> {
    (!ids.is_empty()).then(|| Choice {
        inputs: ids.to_vec(),
        reason: Reason::SizeTier,
    })
}

#[test]
fn buckets_of_about_one_size_are_merged_smallest_first() {
    let cases: &[(&str, &[u64], &[u64])] = &[
        ("nothing to merge", &[], &[]),
        ("too few", &[100, 100, 100], &[]),
        ("enough of one size", &[100, 100, 100, 100], &[1, 2, 3, 4]),
        (
            "near enough: within half and one and a half of the average",
            &[100, 110, 90, 130],
            &[3, 1, 2, 4],
        ),
        ("too far apart", &[100, 200, 400, 800], &[]),
        (
            "small ones are of one size, whatever it is",
            &[1, 10, 20, 49],
            &[1, 2, 3, 4],
        ),
        ("small and large do not mix", &[1, 10, 20, 100], &[]),
        (
            "the bucket of the smaller ones comes first",
            &[1000, 1000, 1000, 1000, 100, 100, 100, 100],
            &[5, 6, 7, 8],
        ),
        ("a large one stays out", &[5000, 100, 100, 100, 100], &[2, 3, 4, 5]),
        // 60, then 75 (average 67.5), then 100 (78.3); 150 is beyond one and a half of that.
        ("the average moves with the members", &[60, 75, 100, 150], &[]),
        ("and takes in what it has moved to", &[60, 75, 100, 110], &[1, 2, 3, 4]),
    ];
    for (name, sizes, wanted) in cases {
        let found = size_tiered::choose(&sstables(sizes), &SizeTieredOptions::default());
        assert_eq!(found, tier(wanted), "{name}: {sizes:?}");
    }
}

#[test]
fn no_more_than_max_threshold_are_merged_at_once() {
    let options = SizeTieredOptions {
        max_threshold: 5,
        ..SizeTieredOptions::default()
    };
    assert_eq!(
        size_tiered::choose(&sstables(&[100; 9]), &options),
        tier(&[1, 2, 3, 4, 5])
    );
    let options = SizeTieredOptions {
        min_threshold: 2,
        ..SizeTieredOptions::default()
    };
    assert_eq!(size_tiered::choose(&sstables(&[100, 100]), &options), tier(&[1, 2]));
    let options = SizeTieredOptions {
        min_sstable_size: 0,
        ..SizeTieredOptions::default()
    };
    assert_eq!(size_tiered::choose(&sstables(&[1, 2, 4, 8]), &options), None);
}

#[test]
fn an_sstable_full_of_droppable_tombstones_is_rewritten_alone() {
    let base = SstableInfo {
        droppable_ratio: 0.5,
        ..sstables(&[500])[0]
    };
    let unchecked = SizeTieredOptions {
        unchecked_tombstone_compaction: true,
        ..SizeTieredOptions::default()
    };
    let cases = [
        ("old and full", base, SizeTieredOptions::default(), true),
        (
            "not full enough",
            SstableInfo {
                droppable_ratio: 0.2,
                ..base
            },
            SizeTieredOptions::default(),
            false,
        ),
        (
            "too young",
            SstableInfo {
                age_seconds: 86_399,
                ..base
            },
            SizeTieredOptions::default(),
            false,
        ),
        (
            "all it overlaps with is as old as itself",
            SstableInfo {
                overlap_min_timestamp: Some(100),
                ..base
            },
            SizeTieredOptions::default(),
            false,
        ),
        (
            "some of its tombstones are older than what it overlaps with",
            SstableInfo {
                overlap_min_timestamp: Some(150),
                ..base
            },
            SizeTieredOptions::default(),
            true,
        ),
        (
            "told not to look",
            SstableInfo {
                overlap_min_timestamp: Some(100),
                ..base
            },
            unchecked,
            true,
        ),
    ];
    for (name, sstable, options, wanted) in cases {
        let choice = wanted.then(|| Choice {
            inputs: vec![1],
            reason: Reason::Tombstones,
        });
        assert_eq!(size_tiered::choose(&[sstable], &options), choice, "{name}");
    }
    let larger = SstableInfo {
        id: 2,
        bytes: 5000 * MB,
        ..base
    };
    let choice = size_tiered::choose(&[base, larger], &SizeTieredOptions::default());
    assert_eq!(choice.map(|c| c.inputs), Some(vec![2]), "the largest first");
    let mut tiered = sstables(&[100; 4]);
    tiered.push(larger);
    let choice = size_tiered::choose(&tiered, &SizeTieredOptions::default());
    assert_eq!(
        choice.map(|c| c.reason),
        Some(Reason::SizeTier),
        "tiers before tombstones"
    );
}

#[test]
fn a_major_compaction_takes_everything_and_a_disabled_one_nothing() {
    let all = sstables(&[1, 100, 10_000]);
    assert_eq!(
        major(&all),
        Some(Choice {
            inputs: vec![1, 2, 3],
            reason: Reason::Major
        })
    );
    assert_eq!(major(&[]), None);
    assert_eq!(Strategy::Disabled.choose(&sstables(&[100; 8])), None);
}

#[test]
fn options_are_those_of_cql() {
    let parse = |pairs: &[(&str, &str)]| {
        Strategy::of_options(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    };
    let size_tiered = |options| Ok(Strategy::SizeTiered(options));
    let default = SizeTieredOptions::default();
    assert_eq!(parse(&[]), size_tiered(default));
    assert_eq!(
        parse(&[("class", "SizeTieredCompactionStrategy"), ("enabled", "false")]),
        Ok(Strategy::Disabled)
    );
    assert_eq!(parse(&[("class", "NullCompactionStrategy")]), Ok(Strategy::Disabled));
    assert_eq!(
        parse(&[
            (
                "class",
                "org.apache.cassandra.db.compaction.SizeTieredCompactionStrategy"
            ),
            ("min_threshold", "6"),
            ("bucket_high", "2.5"),
            ("unchecked_tombstone_compaction", "true"),
        ]),
        size_tiered(SizeTieredOptions {
            min_threshold: 6,
            bucket_high: 2.5,
            unchecked_tombstone_compaction: true,
            ..default
        })
    );
    for (pairs, words) in [
        (
            [("class", "SomeStrategy"), ("a", "b")],
            "no compaction strategy 'SomeStrategy'",
        ),
        (
            [("min_threshold", "many"), ("a", "b")],
            "'many' is not a value of min_threshold",
        ),
        ([("min_threshold", "1"), ("a", "b")], "less than 2"),
        ([("max_threshold", "3"), ("a", "b")], "max_threshold is less"),
        (
            [("bucket_low", "2"), ("bucket_high", "NaN")],
            "bucket_low 2 is not less",
        ),
    ] {
        let error = parse(&pairs).expect_err(words);
        assert!(error.contains(words), "{error}");
    }
}

/// Whatever a strategy chooses, one choice after another, and whatever is asked for: no choice has sstables of both
/// sets.
#[test]
fn no_strategy_merges_repaired_sstables_with_unrepaired_ones() {
    let classes = [
        "SizeTieredCompactionStrategy",
        "LeveledCompactionStrategy",
        "TimeWindowCompactionStrategy",
        "IncrementalCompactionStrategy",
        "UnifiedCompactionStrategy",
        "NullCompactionStrategy",
    ];
    let mut chance = stdx::random::SplitMix64::new(5);
    for class in classes {
        let options = [("class".to_owned(), class.to_owned())].into();
        let strategy = Strategy::of_options(&options).expect("a known class");
        let mut seen = [0, 0];
        for _ in 0..200 {
            let sizes: Vec<u64> = (0..chance.below(24)).map(|_| 100 + chance.below(4) * 300).collect();
            let mut all = sstables(&sizes);
            for one in &mut all {
                one.is_repaired = chance.one_in(2);
                one.droppable_ratio = if chance.one_in(20) { 0.9 } else { 0.0 };
            }
            while let Some(choice) = strategy.choose(&all) {
                let chosen: Vec<_> = all.iter().filter(|one| choice.inputs.contains(&one.id)).collect();
                assert_eq!(chosen.len(), choice.inputs.len());
                let repaired = chosen.iter().filter(|one| one.is_repaired).count();
                assert!(repaired == 0 || repaired == chosen.len(), "{class}: {chosen:?}");
                seen[usize::from(repaired > 0)] += 1;
                all.retain(|one| !choice.inputs.contains(&one.id));
            }
        }
        let is_off = class.starts_with("Null");
        assert!(seen.iter().all(|count| (*count == 0) == is_off), "{class}: {seen:?}");
    }
    let mut all = sstables(&[1, 2, 3]);
    all[1].is_repaired = true;
    let majors: Vec<Option<Choice>> = compaction::strategy::sets(&all).iter().map(|set| major(set)).collect();
    let inputs: Vec<Vec<u64>> = majors.into_iter().flatten().map(|choice| choice.inputs).collect();
    assert_eq!(inputs, [vec![1, 3], vec![2]]);
}
