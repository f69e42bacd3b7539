//! Sstables that are cut before their tablet is split: the split finds nothing to rewrite, and no row is lost or
//! doubled, whatever crashes.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::two_shards::*;
use replica::{Shard, TokenRange};
use runtime::sim::{CrashKind, Simulation};
use stdx::planted::{Bug, Planted};

fn halves() -> Option<Arc<[TokenRange]>> {
    Some(Arc::from([LOW, HIGH]))
}

/// The tokens that each of a shard's sstables has.
fn tokens(shard: &Shard) -> Vec<(types::Token, types::Token)> {
    let tablets = store(shard).tablets();
    let sstables = tablets.iter().flat_map(|tablet| tablet.version().sstables.clone());
    sstables.map(|reader| reader.tokens()).collect()
}

fn spans_both(tokens: &[(types::Token, types::Token)]) -> usize {
    let both = tokens
        .iter()
        .filter(|tokens| LOW.overlaps(**tokens) && HIGH.overlaps(**tokens));
    both.count()
}

/// The names of a shard's sstables.
fn names(shard: &Shard) -> BTreeSet<u64> {
    let tablets = store(shard).tablets();
    let sstables = tablets.iter().flat_map(|tablet| tablet.version().sstables.clone());
    sstables.map(|reader| number(reader.descriptor())).collect()
}

async fn until_cut(shard: &Shard) {
    for _ in 0..10_000 {
        if store(shard).uncut_bytes() == 0 {
            return;
        }
        runtime::sleep(Duration::from_millis(1)).await;
    }
    panic!("it is never cut");
}

#[test]
fn a_split_that_was_cut_ahead_rewrites_nothing_and_compactions_keep_to_the_halves() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        local.flush().await;
        let shard = &local.shards[0];
        assert_eq!(store(shard).uncut_bytes(), 0, "nobody wants it cut");
        shard.cut_ahead(&store(shard), halves());
        assert!(store(shard).uncut_bytes() > 0, "what is there has tokens of both");
        let rounds = 12;
        for round in 0..rounds {
            for k in (0..KEYS).filter(|k| k % 5 != 0) {
                assert!(local.write(k, 100 + round, false).await);
            }
            local.flush().await;
            until_cut(shard).await;
            // Compactions end.
            runtime::sleep(Duration::from_secs(1)).await;
            assert_eq!(spans_both(&tokens(shard)), 0, "round {round}");
        }
        assert!(
            tokens(shard).len() < 12,
            "halves are compacted: {} sstables",
            tokens(shard).len()
        );
        let before = names(shard);
        assert!(local.reconcile(&SPLIT(), async |_, _| ()).await);
        assert_eq!(names(shard), before, "nothing was left to cut");
        assert_eq!(local.rows().await, rows);
    });
}

async fn write_all(local: &Local) {
    for k in 0..KEYS {
        assert!(local.write(k, 10, false).await);
    }
}

#[test]
fn what_is_in_memory_is_written_to_each_half_at_once() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        write_all(&local).await;
        let shard = &local.shards[0];
        assert!(local.reconcile(&SPLIT(), async |_, _| ()).await);
        assert_eq!(
            names(shard),
            BTreeSet::from([1, 2]),
            "one flush, of which nothing is rewritten"
        );
        assert_eq!(spans_both(&tokens(shard)), 0);
        assert_eq!(local.rows().await, (0..KEYS).collect());
    });
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        write_all(&local).await;
        let shard = &local.shards[0];
        shard.cut_ahead(&store(shard), halves());
        local.flush().await;
        assert_eq!((store(shard).uncut_bytes(), names(shard)), (0, BTreeSet::from([1, 2])));
        assert_eq!(local.rows().await, (0..KEYS).collect());
    });
}

#[test]
fn what_is_not_to_be_split_any_more_is_merged_as_before() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        local.flush().await;
        let shard = &local.shards[0];
        shard.cut_ahead(&store(shard), halves());
        until_cut(shard).await;
        shard.cut_ahead(&store(shard), None);
        local.compact().await;
        assert_eq!(spans_both(&tokens(shard)), 1, "all of it is one sstable again");
        assert_eq!(local.rows().await, rows);
    });
}

/// Power is lost after any file operation of a cut, with deletions on top of it.
#[test]
fn no_crash_of_a_cut_loses_a_row_or_brings_one_back() {
    let mut ended = 0;
    for operations in (0..900).step_by(7) {
        let mut simulation = Simulation::new(1);
        let node = simulation.add_node(1);
        run(&mut simulation, node, || async {
            let local = Local::start(&ONE()).await;
            fill(&local).await;
            local.flush().await;
        });
        let is_ready = Rc::new(Cell::new(false));
        let ready = is_ready.clone();
        simulation.start(node, move |_| {
            let ready = ready.clone();
            Box::pin(async move {
                let local = Local::start(&ONE()).await;
                ready.set(true);
                runtime::sleep(Duration::from_millis(1)).await;
                let shard = &local.shards[0];
                shard.cut_ahead(&store(shard), halves());
                until_cut(shard).await;
                local.reconcile(&SPLIT(), async |_, _| ()).await;
                runtime::sleep(HOUR * 2).await;
            })
        });
        assert!(simulation.run_until(HOUR, || is_ready.get()), "the start ends");
        simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
        if !simulation.run_until_ended(node, HOUR) {
            simulation.crash(node, CrashKind::PowerLoss);
            ended += 1;
        }
        simulation.clear_file_faults(node);
        for ranges in [ONE, SPLIT] {
            run(&mut simulation, node, move || async move {
                let local = Local::start(&ranges()).await;
                let rows: BTreeSet<u32> = (0..KEYS).filter(|k| k % 5 != 0).collect();
                assert_eq!(local.rows().await, rows, "power loss after {operations} operations");
            });
        }
    }
    assert!(ended > 0, "the last crashes come when all is done");
}

#[test]
#[cfg(debug_assertions)]
fn a_file_of_both_halves_that_goes_to_one_alone_is_found() {
    let is_lost = Rc::new(Cell::new(false));
    let seen = is_lost.clone();
    let _planted = Planted::new(Some(Bug::HalvedFile));
    on_node(move || {
        let seen = seen.clone();
        async move {
            let local = Local::start(&ONE()).await;
            let rows = fill(&local).await;
            assert!(local.reconcile(&SPLIT(), async |_, _| ()).await);
            seen.set(local.rows().await != rows);
        }
    });
    assert!(is_lost.get(), "no row is missing");
}
