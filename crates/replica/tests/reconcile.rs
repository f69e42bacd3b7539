//! Tablets that split, merge and move between the shards of a node: every row is there once, whatever crashes, and
//! nothing comes back.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::two_shards::*;
use mutation::Mutation;
use replica::{TokenRange, WantedTable, WriteError};
use runtime::sim::{CrashKind, FailedSync, Simulation};
use stdx::planted::{self, Bug, Planted};
use tasks::{Origin, Spec};
use types::Token;
use types::token::token_of;

#[test]
fn tablets_split_merge_and_move_with_everything_they_have() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        let ways = [SPLIT, ONE, APART, ACROSS, OTHER, SPLIT, ACROSS, ONE];
        for (step, ranges) in ways.into_iter().enumerate() {
            local.reconcile(&ranges(), async |_, _| ()).await;
            assert_eq!(local.rows().await, rows, "step {step}");
            let tablets: Vec<Vec<TokenRange>> = local
                .shards
                .iter()
                .map(|shard| store(shard).tablets().iter().map(|tablet| tablet.range).collect())
                .collect();
            assert_eq!(tablets, ranges(), "step {step}");
            for tablet in local.shards.iter().flat_map(|shard| store(shard).tablets().to_vec()) {
                for reader in &tablet.version().sstables {
                    let (first, last) = reader.tokens();
                    assert!(
                        tablet.range.contains(first) && tablet.range.contains(last),
                        "step {step}"
                    );
                }
            }
        }
    });
}

#[test]
fn a_tablet_that_has_left_takes_no_write_and_its_shard_waits_for_one_that_arrives() {
    on_node(|| async {
        let local = Local::start(&APART()).await;
        let k = (0..KEYS)
            .find(|k| HIGH.contains(token_of(&k.to_be_bytes())))
            .expect("one is high");
        let token = token_of(&k.to_be_bytes());
        let before = store(&local.shards[1]).tablet(token).expect("it is here");
        let refused = RefCell::new(Vec::new());
        let beside = async |local: &Local, step: &str| {
            let is_arriving = store(&local.shards[0]).is_arriving(token);
            let is_written = local.write(k, 10, false).await;
            refused.borrow_mut().push((step.to_owned(), is_written, is_arriving));
        };
        local.reconcile(&[vec![LOW, HIGH], vec![]], beside).await;
        let expected = [
            ("prepared", true, false),
            ("left", false, true),
            ("sealed", false, true),
            ("arrived", true, false),
        ];
        let expected: Vec<_> = expected
            .iter()
            .map(|(step, w, a)| ((*step).to_owned(), *w, *a))
            .collect();
        assert_eq!(refused.take(), expected);
        local.reconcile(&APART(), async |_, _| ()).await;
        // A task that holds the previous tablet does not write to the one that came back.
        let bytes = mutation(k, 30, true);
        let mutation = Mutation::new(&bytes).expect("a whole one");
        let written = local.shards[1].write_to(&before, token, &mutation);
        assert_eq!(written, Err(WriteError::NotHere(token)));
        assert!(local.rows().await.contains(&k));
    });
}

/// Rows go to and fro while they are deleted and the deletions are purged; after a power loss at any point each row is
/// there exactly if it was not deleted.
#[test]
fn no_crash_loses_a_row_of_a_tablet_that_moves_or_brings_one_back() {
    let mut ended = 0;
    for operations in (0..1500).step_by(6) {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        // The keys whose deletion was acknowledged, and those whose deletion may have happened.
        let told: Rc<RefCell<[BTreeSet<u32>; 2]>> = Rc::default();
        let begun = Rc::new(RefCell::new(false));
        run(&mut simulation, node, || async {
            fill(&Local::start(&APART()).await).await;
        });
        let (seen, is_ready) = (told.clone(), begun.clone());
        simulation.start(node, move |_| {
            let (seen, is_ready) = (seen.clone(), is_ready.clone());
            Box::pin(async move {
                let local = Local::start(&APART()).await;
                *is_ready.borrow_mut() = true;
                runtime::sleep(Duration::from_millis(1)).await;
                let mut next = 1;
                let mut delete = async |local: &Local, _: &str| {
                    while next % 5 == 0 {
                        next += 1;
                    }
                    seen.borrow_mut()[1].insert(next);
                    if local.write(next, 30, true).await {
                        seen.borrow_mut()[0].insert(next);
                    } else {
                        seen.borrow_mut()[1].remove(&next);
                    }
                    next += 1;
                };
                for ranges in [ACROSS, APART, SPLIT] {
                    local.reconcile(&ranges(), &mut delete).await;
                    local.flush().await;
                    local.compact().await;
                }
                runtime::sleep(HOUR * 2).await;
            })
        });
        assert!(simulation.run_until(HOUR, || *begun.borrow()), "the start ends");
        simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
        if !simulation.run_until_ended(node, HOUR) {
            simulation.crash(node, CrashKind::PowerLoss);
            ended += 1;
        }
        simulation.clear_file_faults(node);
        for ranges in [ACROSS, APART, SPLIT] {
            let told = told.clone();
            run(&mut simulation, node, move || {
                let told = told.clone();
                async move {
                    let local = Local::start(&ranges()).await;
                    let rows = local.rows().await;
                    let [gone, maybe] = &*told.borrow();
                    for k in (0..KEYS).filter(|k| k % 5 != 0 && !maybe.contains(k)) {
                        assert!(
                            rows.contains(&k),
                            "row {k} is lost, power loss after {operations} operations"
                        );
                    }
                    for k in (0..KEYS).filter(|k| k % 5 == 0 || gone.contains(k)) {
                        assert!(
                            !rows.contains(&k),
                            "row {k} is back, power loss after {operations} operations"
                        );
                    }
                }
            });
        }
    }
    assert!(ended > 0, "the last crashes come when all is done");
}

/// A flush succeeds when the log does not take its note. A tablet does not leave without the note: the writes would be
/// replayed on top of what deleted them elsewhere.
#[test]
fn writes_that_the_log_does_not_know_to_be_in_files_do_not_come_back_on_top_of_a_tablet_that_left() {
    let mut outcomes = BTreeSet::new();
    for syncs in 0..90 {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        let filled = Rc::new(RefCell::new(false));
        // How many rows there are, if that is certain.
        let rows_left = Rc::new(RefCell::new(Some(48)));
        let (seen, certain) = (filled.clone(), rows_left.clone());
        simulation.start(node, move |_| {
            let (is_filled, left) = (seen.clone(), certain.clone());
            Box::pin(async move {
                let local = Local::start(&APART()).await;
                fill(&local).await;
                *is_filled.borrow_mut() = true;
                runtime::sleep(Duration::from_millis(1)).await;
                if !local.reconcile(&GATHERED(), async |_, _| ()).await {
                    return;
                }
                *left.borrow_mut() = None;
                for k in 0..KEYS {
                    if !local.write(k, 30, true).await {
                        return;
                    }
                }
                if local.shards[1].flush_all().await.is_ok() && local.shards[1].compact_all().await.is_ok() {
                    *left.borrow_mut() = Some(0);
                }
            })
        });
        assert!(simulation.run_until(HOUR, || *filled.borrow()), "the rows are written");
        simulation.fail_sync_after(node, syncs, FailedSync::Dropped);
        assert!(simulation.run_until_ended(node, HOUR), "the node ends");
        simulation.clear_file_faults(node);
        let expected = *rows_left.borrow();
        outcomes.insert(expected);
        run(&mut simulation, node, move || async move {
            let rows = Local::start(&GATHERED()).await.rows().await;
            assert_eq!(rows.len(), expected.unwrap_or(rows.len()), "rows, sync {syncs} failed");
        });
    }
    assert!(
        outcomes.contains(&Some(48)) && outcomes.contains(&Some(0)),
        "{outcomes:?}"
    );
}

/// A flush of another tablet releases the log that no memtable needs; that of a tablet that is leaving needs its part
/// until it is sealed.
#[test]
fn the_log_of_a_tablet_that_leaves_stays_until_it_is_in_files() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let key = |range: TokenRange| (0..KEYS).filter(move |k| range.contains(token_of(&k.to_be_bytes())));
    run(&mut simulation, node, move || async move {
        let local = Local::start(&SPLIT()).await;
        for k in key(HIGH) {
            assert!(local.write(k, 10, false).await);
        }
        // More than a segment of the log.
        let (shard, k) = (&local.shards[0], key(LOW).next().expect("one is low"));
        let bytes = mutation(k, 10, false);
        let (mutation, token) = (Mutation::new(&bytes).expect("a whole one"), token_of(&k.to_be_bytes()));
        for _ in 0..(3 << 20) / bytes.len() {
            shard
                .write(&store(shard), token, &mutation)
                .expect("there is room")
                .is_not_awaited();
        }
        shard.log.write().expect("the disk works");
        for (shard, ranges) in local.shards.iter().zip(APART()) {
            let table = table();
            shard.reconcile(&[WantedTable {
                table,
                ranges,
                keeps_shards: false,
            }]);
        }
        let low = store(shard).tablet(token).expect("it has not left");
        shard.flush(&store(shard), &low).await.expect("the disk works");
    });
    run(&mut simulation, node, move || async move {
        let rows = Local::start(&APART()).await.rows().await;
        assert!(key(HIGH).all(|k| rows.contains(&k)), "rows are lost: {rows:?}");
    });
}

#[test]
fn a_compaction_of_a_tablet_that_leaves_gives_way_and_loses_nothing() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        local.flush().await;
        let shard = local.shards[0].clone();
        let compacting = runtime::spawn(async move { shard.compact_all().await });
        while local.shards[0].work().compactions == 0 {
            runtime::yield_now().await;
        }
        local.reconcile(&OTHER(), async |_, _| ()).await;
        let compacted = compacting.await;
        assert_eq!(
            compacted,
            Ok(()),
            "an operator's compaction that gives way has not failed"
        );
        assert_eq!(local.rows().await, rows);
        local.compact().await;
        assert_eq!(local.rows().await, rows);
        let tablet = store(&local.shards[1]).tablets()[0].clone();
        assert_eq!(tablet.version().sstables.len(), 1, "who has it now compacts it");
    });
}

#[test]
fn files_of_tokens_that_are_not_the_nodes_are_set_aside_at_a_start_and_do_not_come_back() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    run(&mut simulation, node, || async {
        let local = Local::start(&APART()).await;
        fill(&local).await;
        local.flush().await;
    });
    for ranges in [[vec![LOW], vec![]], APART()] {
        run(&mut simulation, node, move || {
            let ranges = ranges.clone();
            async move {
                let local = Local::start(&ranges).await;
                let files = local.shards.iter().flat_map(|shard| store(shard).tablets().to_vec());
                let files = files.flat_map(|tablet| tablet.version().sstables.clone());
                assert!(
                    files.into_iter().all(|reader| reader.tokens().1 <= LOW.to),
                    "{ranges:?}"
                );
                let aside = sstable::list(&dir().join("unowned")).expect("the disk works");
                assert!(!aside.is_empty(), "no file is deleted");
            }
        });
    }
}

/// A table's sstables in another directory: what fills, written by a node of its own.
async fn exported() -> Vec<sstable::Descriptor> {
    let local = Local::start(&APART()).await;
    fill(&local).await;
    local.flush().await;
    let to = Path::new("/export");
    runtime::fs::create_dir_all(to).expect("the disk works");
    for descriptor in sstable::list(&dir()).expect("the disk works") {
        sstable::move_to(&descriptor, to).expect("the disk works");
    }
    sstable::list(to).expect("the disk works")
}

#[test]
fn sstables_are_taken_in_all_or_none_whenever_power_goes() {
    let mut counts = BTreeSet::new();
    for operations in (0..300).step_by(2) {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        run(&mut simulation, node, || async {
            exported().await;
            for file in runtime::fs::read_dir("/log").expect("the disk works") {
                runtime::fs::remove_file(Path::new("/log").join(file.name)).expect("the disk works");
            }
            runtime::fs::sync_dir("/log").expect("the disk works");
        });
        let begun = Rc::new(RefCell::new(false));
        let taken = Rc::new(RefCell::new(false));
        let (is_ready, is_taken) = (begun.clone(), taken.clone());
        simulation.start(node, move |_| {
            let (is_ready, is_taken) = (is_ready.clone(), is_taken.clone());
            Box::pin(async move {
                let local = Local::start(&ONE()).await;
                assert_eq!(local.rows().await.len(), 0);
                *is_ready.borrow_mut() = true;
                runtime::sleep(Duration::from_millis(1)).await;
                let files = sstable::list(Path::new("/export")).expect("the disk works");
                let shard = &local.shards[0];
                shard
                    .adopt_sstables(&store(shard), files)
                    .await
                    .expect("they are the table's");
                *is_taken.borrow_mut() = true;
                assert_eq!(local.rows().await.len(), 48);
                runtime::sleep(HOUR * 2).await;
            })
        });
        assert!(simulation.run_until(HOUR, || *begun.borrow()), "the start ends");
        simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
        if !simulation.run_until_ended(node, HOUR) {
            simulation.crash(node, CrashKind::PowerLoss);
        }
        simulation.clear_file_faults(node);
        let found = Rc::new(RefCell::new(0));
        let count = found.clone();
        run(&mut simulation, node, move || {
            let count = count.clone();
            async move { *count.borrow_mut() = Local::start(&ONE()).await.rows().await.len() }
        });
        let found = *found.borrow();
        assert!(
            found == 0 || found == 48,
            "{found} rows, power loss after {operations} operations"
        );
        assert!(found == 48 || !*taken.borrow(), "what was taken is there, {operations}");
        counts.insert(found);
    }
    assert_eq!(counts.len(), 2, "power goes before and after");
}

#[test]
fn sstables_of_several_tablets_and_of_a_table_that_is_truncated_meanwhile_are_not_taken() {
    on_node(|| async {
        let files = exported().await;
        let local = Local::start(&[vec![LOW], vec![HIGH]]).await;
        let shard = &local.shards[0];
        let refused = shard.adopt_sstables(&store(shard), files.clone()).await;
        let reason = refused.expect_err("half of them are of the other shard").to_string();
        assert!(
            reason.contains("expected tokens of one tablet of this shard"),
            "{reason}"
        );
        local.reconcile(&SPLIT(), async |_, _| ()).await;
        let shard = local.shards[0].clone();
        let taking = {
            let shard = shard.clone();
            runtime::spawn(async move { shard.adopt_sstables(&store(&shard), files).await })
        };
        runtime::yield_now().await;
        // Something that a truncation forgets.
        assert!(local.write(1, 5, false).await);
        shard.truncate(&store(&shard)).await.expect("the disk works");
        let taken = taking.await;
        let there = local.rows().await.len();
        match taken {
            Ok(_) => assert!(there == 0 || there == 48, "{there} rows"),
            Err(reason) => {
                assert!(reason.to_string().contains("truncated"), "{reason}");
                assert_eq!(there, 0);
            }
        }
    });
}

/// Ranges of which a shard is to get what other nodes have.
const GAPS: [TokenRange; 2] = [
    TokenRange {
        after: Token(i64::MIN),
        to: Token(i64::MIN / 2),
    },
    TokenRange {
        after: Token(0),
        to: Token(i64::MAX / 2),
    },
];

/// Keys whose tokens are in the gaps, and those whose tokens are not.
fn by_gaps() -> (BTreeSet<u32>, BTreeSet<u32>) {
    (0..KEYS).partition(|k| {
        let token = token_of(&k.to_be_bytes());
        GAPS.iter().any(|range| range.contains(token))
    })
}

/// Removes what the first shard has in the gaps. Whether the disk let it.
async fn discard(local: &Local) -> bool {
    let shard = &local.shards[0];
    let spec = Spec::of(&replica::kinds::RESHARD);
    let task = shard.tasks().start(spec, &Origin::Node);
    let done = shard.discard_ranges(&store(shard), &GAPS, &task).await;
    task.end(&done);
    done.is_ok()
}

#[test]
fn what_a_shard_has_of_ranges_that_it_is_about_to_get_does_not_come_back() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let (gone, kept) = by_gaps();
    let expected = kept.clone();
    run(&mut simulation, node, move || {
        let (gone, kept) = (gone.clone(), kept.clone());
        async move {
            let local = Local::start(&ONE()).await;
            for (turn, k) in (0..KEYS).enumerate() {
                assert!(local.write(k, 10, false).await);
                // Half of it is in files, half in the memtable.
                if turn == 30 {
                    local.flush().await;
                }
            }
            assert_eq!(local.rows().await.len(), 60);
            assert!(discard(&local).await, "the disk works");
            assert_eq!(local.rows().await, kept);
            local.compact().await;
            let before = store(&local.shards[0]).tablets()[0].version().sstables.clone();
            assert!(discard(&local).await, "the disk works");
            let after = store(&local.shards[0]).tablets()[0].version().sstables.clone();
            let is_same = before.iter().zip(&after).all(|(a, b)| Arc::ptr_eq(a, b));
            assert!(
                is_same && before.len() == after.len(),
                "a file without such tokens is rewritten"
            );
            // What is written since stays.
            let k = *gone.first().expect("one is in the gaps");
            assert!(local.write(k, 11, false).await);
            assert!(local.rows().await.contains(&k));
        }
    });
    let (gone, _) = by_gaps();
    run(&mut simulation, node, move || {
        let mut expected = expected.clone();
        expected.extend(gone.first());
        async move {
            let rows = Local::start(&ONE()).await.rows().await;
            assert_eq!(rows, expected, "after a start");
        }
    });
}

#[test]
fn what_a_shard_keeps_of_a_range_from_an_earlier_time_is_found() {
    let _planted = Planted::new(Some(Bug::KeptFormerRange));
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        for k in 0..KEYS {
            assert!(local.write(k, 10, false).await);
        }
        assert!(discard(&local).await, "the disk works");
        let (_, kept) = by_gaps();
        let is_kept = local.rows().await != kept;
        assert_eq!(is_kept, planted::is_planted(Bug::KeptFormerRange));
    });
}

#[test]
fn nothing_beside_the_ranges_is_lost_whenever_power_goes_while_they_are_removed() {
    let (_, kept) = by_gaps();
    for operations in 0..60 {
        let mut simulation = Simulation::new(operations);
        let node = simulation.add_node(1);
        let is_ready = Rc::new(RefCell::new(false));
        let ready = is_ready.clone();
        simulation.start(node, move |_| {
            let ready = ready.clone();
            Box::pin(async move {
                let local = Local::start(&ONE()).await;
                for k in 0..KEYS {
                    assert!(local.write(k, 10, false).await);
                    if k % 20 == 19 {
                        local.flush().await;
                    }
                }
                *ready.borrow_mut() = true;
                runtime::sleep(Duration::from_millis(1)).await;
                discard(&local).await;
                runtime::sleep(HOUR * 2).await;
            })
        });
        assert!(simulation.run_until(HOUR, || *is_ready.borrow()), "the start ends");
        simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
        if !simulation.run_until_ended(node, HOUR) {
            simulation.crash(node, CrashKind::PowerLoss);
        }
        simulation.clear_file_faults(node);
        let kept = kept.clone();
        run(&mut simulation, node, move || {
            let kept = kept.clone();
            async move {
                let local = Local::start(&ONE()).await;
                assert!(local.rows().await.is_superset(&kept), "after {operations} operations");
                assert!(discard(&local).await, "the disk works");
                assert_eq!(local.rows().await, kept, "after {operations} operations");
            }
        });
    }
}

/// A range that no key of these tests has a token in.
const NOTHING: TokenRange = TokenRange {
    after: Token(0),
    to: Token(1),
};

#[test]
fn a_truncation_takes_what_a_removal_of_ranges_is_about_to_write_again() {
    for after_us in (0..4_000).step_by(50) {
        let mut simulation = Simulation::new(after_us);
        let node = simulation.add_node(1);
        run(&mut simulation, node, move || async move {
            let local = Local::start(&ONE()).await;
            for k in 0..KEYS {
                assert!(local.write(k, 10, false).await);
                if k == KEYS / 2 || k == KEYS / 4 {
                    local.flush().await;
                }
            }
            local.flush().await;
            let shard = local.shards[0].clone();
            let removing = shard.clone();
            let removal = runtime::spawn(async move {
                let task = removing
                    .tasks()
                    .start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
                let done = removing.discard_ranges(&store(&removing), &GAPS, &task).await;
                task.end(&done);
                done
            });
            runtime::sleep(Duration::from_micros(after_us)).await;
            shard.truncate(&store(&shard)).await.expect("the disk works");
            assert_eq!(removal.await, Ok(()));
            assert_eq!(
                local.rows().await,
                BTreeSet::new(),
                "a truncation {after_us} us after the removal began"
            );
        });
    }
}

#[test]
fn ranges_that_come_to_belong_here_while_a_removal_waits_for_its_turn_stay() {
    let mut simulation = Simulation::new(1);
    let node = simulation.add_node(1);
    let (_, kept) = by_gaps();
    run(&mut simulation, node, move || {
        let kept = kept.clone();
        async move {
            let local = Local::start(&ONE()).await;
            for k in 0..KEYS {
                assert!(local.write(k, 10, false).await);
            }
            let shard = local.shards[0].clone();
            let begin = || shard.tasks().start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
            // Another removal, of nothing that there is, has the turn; when it ends, the ranges have been given to this
            // node.
            let (has_turn, is_foreign) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(true)));
            let (other, before) = (shard.clone(), begin());
            let (taken, given) = (has_turn.clone(), is_foreign.clone());
            let earlier = runtime::spawn(async move {
                let holds = || {
                    taken.set(true);
                    true
                };
                let table = store(&other);
                let done = other.discard_ranges_while(&table, &[NOTHING], &before, &holds).await;
                before.end(&done);
                given.set(false);
                done
            });
            while !has_turn.get() {
                runtime::sleep(Duration::from_micros(10)).await;
            }
            let (task, asked) = (begin(), Cell::new(0));
            let holds = || {
                asked.set(asked.get() + 1);
                is_foreign.get()
            };
            let done = shard.discard_ranges_while(&store(&shard), &GAPS, &task, &holds).await;
            task.end(&done);
            assert_eq!(earlier.await, Ok(true));
            assert_eq!((done, asked.get()), (Ok(false), 1), "asked before it had the turn");
            assert_eq!(local.rows().await.len(), KEYS as usize, "rows of this node are gone");
            assert!(discard(&local).await, "the disk works");
            assert_eq!(local.rows().await, kept);
        }
    });
}
