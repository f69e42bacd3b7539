//! Tablets that are split and merged on their shard: no request waits, and every row is there once, whatever crashes.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::two_shards::*;
use memtable::Memtable;
use mutation::Mutation;
use replica::{BlockLimits, Shard, TabletScan, TokenRange, WantedTable};
use runtime::sim::{CrashKind, Simulation};
use stdx::planted::{Bug, Planted};
use tasks::{Origin, Spec};
use types::Token;
use types::token::token_of;

/// Four tablets of one shard.
fn quarters() -> Ranges {
    let cuts = [i64::MIN, i64::MIN / 2, 0, i64::MAX / 2, i64::MAX].map(Token);
    let ranges = cuts.windows(2).map(|ends| TokenRange {
        after: ends[0],
        to: ends[1],
    });
    [ranges.collect(), vec![]]
}

/// The ways of a shard's tablets, none of which is to make a request wait.
const WAYS: [fn() -> Ranges; 6] = [SPLIT, quarters, SPLIT, ONE, quarters, ONE];

/// The key of each row that has a token of a range.
fn keys_in(range: TokenRange) -> impl Iterator<Item = u32> {
    (0..KEYS).filter(move |k| range.contains(token_of(&k.to_be_bytes())))
}

/// The step alone in which a shard takes tablets over that are cut otherwise.
async fn take_over(local: &Local, ranges: &Ranges) {
    let (shard, wanted) = (&local.shards[0], &ranges[0]);
    let prepared = shard.prepare_to_leave(&store(shard), wanted, &cuts(ranges)).await;
    prepared.expect("the disk works");
    shard.flushes_end(&store(shard), wanted).await;
    step(shard, wanted).await;
}

/// Takes over without the preparation, so that memory keeps what it has. No token moves to another shard.
async fn step(shard: &Rc<Shard>, wanted: &[TokenRange]) {
    shard.keep_in_memory(&store(shard), wanted).await;
    shard.reconcile(&[WantedTable {
        table: table(),
        ranges: wanted.to_vec(),
        keeps_shards: true,
    }]);
}

async fn until_flushed(shard: &Shard) {
    for _ in 0..10_000 {
        let tablets = store(shard).tablets();
        if tablets.iter().all(|tablet| tablet.version().frozen.is_empty()) {
            return;
        }
        runtime::sleep(Duration::from_millis(1)).await;
    }
    panic!("what was inherited is never flushed");
}

fn memory(shard: &Shard) -> usize {
    shard.memory().dirty
}

#[test]
fn requests_go_on_while_a_tablet_is_split_and_merged() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let mut rows = fill(&local).await;
        let waits = RefCell::new(Vec::new());
        let mut next = 0;
        for (round, ranges) in WAYS.into_iter().enumerate() {
            let beside = async |local: &Local, at: &str| {
                let is_written = local.write(next, 40, next % 2 == 0).await;
                match next % 2 {
                    0 => rows.remove(&next),
                    _ => rows.insert(next),
                };
                next = (next + 7) % KEYS;
                let has_all = local.rows().await == rows;
                if !is_written || !has_all || store(&local.shards[0]).waits_for_hand_over() {
                    waits.borrow_mut().push((round, at.to_owned(), is_written, has_all));
                }
            };
            assert!(local.reconcile(&ranges(), beside).await);
        }
        assert_eq!(waits.take(), [], "steps in which a request waits or a row is missing");
        until_flushed(&local.shards[0]).await;
        local.flush().await;
        assert_eq!(memory(&local.shards[0]), 0, "bytes of memory that nobody gives back");
        local.compact().await;
        assert_eq!(local.rows().await, rows);
    });
}

#[test]
fn what_is_in_memory_is_of_several_tablets_until_each_has_flushed_its_part() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        local.flush().await;
        local.compact().await;
        let (shard, wanted) = (&local.shards[0], ONE());
        take_over(&local, &quarters()).await;
        for k in 0..KEYS {
            assert!(local.write(k, 50, false).await);
        }
        let before = memory(shard);
        // No file has tokens of two of these, and there is no time for a flush between them.
        for tablet in store(shard).tablets().iter() {
            assert!(tablet.version().sstables.iter().all(|reader| {
                let (first, last) = reader.tokens();
                tablet.range.contains(first) && tablet.range.contains(last)
            }));
        }
        shard
            .prepare_to_leave(&store(shard), &[], &[])
            .await
            .expect("the disk works");
        for k in 0..KEYS {
            assert!(local.write(k, 60, false).await);
        }
        step(shard, &wanted[0]).await;
        let tablets = store(shard).tablets();
        assert_eq!(tablets[0].version().frozen.len(), 4, "a memtable of each quarter");
        assert!(memory(shard) <= before * 2, "memory counts once");
        assert!(rows.len() < local.rows().await.len(), "all rows are there again");
        until_flushed(shard).await;
        assert_eq!(local.rows().await, (0..KEYS).collect());
    });
}

#[test]
fn a_long_memtable_that_two_tablets_share_is_freed_when_both_have_flushed_it() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let (shard, ranges) = (&local.shards[0], SPLIT());
        let prepared = shard.prepare_to_leave(&store(shard), &ranges[0], &cuts(&ranges)).await;
        prepared.expect("the disk works");
        for k in 0..20_000_u32 {
            let (bytes, token) = (mutation(k, 10, false), token_of(&k.to_be_bytes()));
            let mutation = Mutation::new(&bytes).expect("a whole one");
            let logged = shard.write(&store(shard), token, &mutation);
            logged.expect("there is room").is_not_awaited();
        }
        step(shard, &ranges[0]).await;
        let tablets = store(shard).tablets();
        let shared = tablets.iter().map(|tablet| tablet.version().frozen[0].memtable.clone());
        let shared: Vec<Arc<Memtable>> = shared.collect();
        assert!(Arc::ptr_eq(&shared[0], &shared[1]), "each has a memtable of its own");
        assert!(shared[0].bytes() > 1 << 20, "it is short: {} bytes", shared[0].bytes());
        let memtable = Arc::downgrade(&shared[0]);
        drop((shared, tablets));
        until_flushed(shard).await;
        runtime::sleep(Duration::from_secs(1)).await;
        assert!(memtable.upgrade().is_none(), "it is kept though no tablet has it");
        assert_eq!(memory(shard), 0);
    });
}

#[test]
fn a_tablet_that_is_split_and_merged_before_its_memory_is_flushed_keeps_every_row() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        for ranges in [SPLIT(), quarters(), SPLIT(), ONE(), SPLIT()] {
            let prepared = shard.prepare_to_leave(&store(shard), &ranges[0], &cuts(&ranges)).await;
            prepared.expect("the disk works");
            for k in 0..KEYS {
                assert!(local.write(k, 10, false).await);
            }
            step(shard, &ranges[0]).await;
            assert!(!store(shard).waits_for_hand_over());
            assert_eq!(local.rows().await.len(), KEYS as usize);
        }
        until_flushed(shard).await;
        assert_eq!(local.rows().await.len(), KEYS as usize);
        local.flush().await;
        assert_eq!(memory(shard), 0, "bytes of memory that nobody gives back");
    });
}

#[test]
fn a_truncation_takes_what_tablets_have_of_each_other_and_its_memory() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        let ranges = quarters();
        shard
            .prepare_to_leave(&store(shard), &ranges[0], &[])
            .await
            .expect("the disk works");
        for k in 0..KEYS {
            assert!(local.write(k, 10, false).await);
        }
        step(shard, &ranges[0]).await;
        shard.truncate(&store(shard)).await.expect("the disk works");
        assert_eq!(local.rows().await, BTreeSet::new());
        assert_eq!(memory(shard), 0, "bytes of memory that nobody gives back");
        until_flushed(shard).await;
        assert_eq!(local.rows().await, BTreeSet::new());
    });
}

#[test]
fn a_scan_that_began_before_a_split_reads_what_was_there() {
    on_node(|| async {
        let local = Local::start(&SPLIT()).await;
        let rows = fill(&local).await;
        let shard = &local.shards[0];
        let limits = BlockLimits {
            rows: 100,
            bytes: 1 << 20,
        };
        let mut scan = TabletScan::all(&store(shard), shard.cache.clone(), limits);
        let mut seen = usize::from(scan.next_block().await.expect("the files can be read").is_some());
        take_over(&local, &quarters()).await;
        until_flushed(shard).await;
        local.compact().await;
        while let Some(block) = scan.next_block().await.expect("the files can be read") {
            seen += usize::from(block.rows().any(|(_, row)| row.marker.is_some()) || block.rows().next().is_none());
        }
        assert!(seen >= rows.len(), "{seen} of {}", rows.len());
    });
}

#[test]
fn a_file_of_two_tablets_to_come_makes_them_wait_and_is_cut() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        local.flush().await;
        let waits = RefCell::new(false);
        // Without the preparation no task has cut the files.
        let (shard, ranges) = (&local.shards[0], SPLIT());
        step(shard, &ranges[0]).await;
        *waits.borrow_mut() |= store(shard).waits_for_hand_over();
        let sealed = shard
            .seal_leaving(&store(shard), &cuts(&ranges))
            .await
            .expect("the disk works");
        shard.open_arrived(&store(shard), &sealed);
        shard.forget_left(&store(shard)).await;
        assert!(waits.take());
        assert_eq!(local.rows().await, rows);
    });
}

/// The rows that were acknowledged and are gone after a power loss, while tablets change. Power is lost after so many
/// operations on files; None if all ended before that.
fn lost_after(operations: u64, bug: Option<Bug>) -> Option<BTreeSet<u32>> {
    let _planted = Planted::new(bug);
    let mut simulation = Simulation::new(operations);
    let node = simulation.add_node(1);
    let is_ready = Rc::new(RefCell::new(false));
    let told: Rc<RefCell<BTreeSet<u32>>> = Rc::default();
    let (began, seen) = (is_ready.clone(), told.clone());
    simulation.start(node, move |_| {
        let (began, seen) = (began.clone(), seen.clone());
        Box::pin(async move {
            let local = Local::start(&quarters()).await;
            *began.borrow_mut() = true;
            runtime::sleep(Duration::from_millis(1)).await;
            for (round, ranges) in (0..).zip(WAYS.into_iter().rev()) {
                // Each round writes rows of its own, after the flush that prepares it.
                let beside = async |local: &Local, at: &str| {
                    for k in (0..KEYS).filter(|k| at == "prepared" && k % 6 == round) {
                        if local.write(k, 30, false).await {
                            seen.borrow_mut().insert(k);
                        }
                    }
                };
                local.reconcile(&ranges(), beside).await;
                runtime::sleep(Duration::from_millis(20)).await;
            }
            runtime::sleep(HOUR * 2).await;
        })
    });
    assert!(simulation.run_until(HOUR, || *is_ready.borrow()), "the start ends");
    simulation.crash_after_file_ops(node, operations, CrashKind::PowerLoss);
    let has_crashed = simulation.run_until_ended(node, HOUR);
    if !has_crashed {
        simulation.crash(node, CrashKind::PowerLoss);
    }
    simulation.clear_file_faults(node);
    let lost = Rc::new(RefCell::new(told.take()));
    let acknowledged = lost.clone();
    run(&mut simulation, node, move || {
        let acknowledged = acknowledged.clone();
        async move {
            let rows = Local::start(&SPLIT()).await.rows().await;
            acknowledged.borrow_mut().retain(|k| !rows.contains(k));
        }
    });
    has_crashed.then(|| lost.take())
}

#[test]
fn power_loss_at_any_moment_of_splits_and_merges_loses_no_row() {
    let mut operations = 0;
    while let Some(lost) = lost_after(operations, None) {
        assert_eq!(lost, BTreeSet::new(), "power loss after {operations} operations");
        operations += 3;
    }
    assert!(operations > 300, "only {operations} operations");
}

#[test]
fn a_tablet_that_tells_the_log_of_more_than_it_has_written_is_found() {
    let mut lost = (0..2_000).map_while(|n| lost_after(n, Some(Bug::HeirDiscardsAll)));
    assert!(lost.any(|lost| !lost.is_empty()), "no row is lost");
}

/// Every token is of one heir, also those at the ends.
#[test]
fn keys_are_found_whatever_the_ranges_are_cut_at() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let rows = fill(&local).await;
        let shard = &local.shards[0];
        let mut tokens: Vec<Token> = (0..KEYS).map(|k| token_of(&k.to_be_bytes())).collect();
        tokens.sort_unstable();
        for cut in tokens.chunks(7).map(|some| some[0]) {
            let lower = TokenRange {
                after: Token(i64::MIN),
                to: cut,
            };
            let upper = TokenRange {
                after: cut,
                to: Token(i64::MAX),
            };
            for ranges in [vec![lower, upper], ONE()[0].clone()] {
                shard
                    .prepare_to_leave(&store(shard), &ranges, &ranges)
                    .await
                    .expect("the disk works");
                local.write(1, 70, false).await;
                step(shard, &ranges).await;
                assert_eq!(local.rows().await, rows, "cut at {cut:?}");
            }
        }
    });
}

#[test]
fn a_table_leaves_the_ring_and_comes_back_without_a_wait_where_the_node_owns_a_part() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let shard = &local.shards[0];
        let owned: BTreeSet<u32> = keys_in(LOW).collect();
        for (round, wanted) in (0..).zip([vec![LOW], ONE()[0].clone(), vec![LOW], ONE()[0].clone()]) {
            for k in &owned {
                assert!(local.write(*k, 10 + round, false).await);
            }
            take_over(&local, &[wanted, vec![]]).await;
            assert!(!store(shard).waits_for_hand_over(), "round {round}");
            assert!(local.write(*owned.first().expect("some are low"), 20, false).await);
        }
        assert_eq!(local.rows().await, owned);
        until_flushed(shard).await;
        local.flush().await;
        assert_eq!(memory(shard), 0, "bytes of memory that nobody gives back");
        assert_eq!(local.rows().await, owned);
    });
}

#[test]
fn what_a_node_has_of_tokens_that_are_not_its_own_goes_the_slow_way() {
    on_node(|| async {
        for is_flushed in [false, true] {
            let local = Local::start(&ONE()).await;
            let shard = &local.shards[0];
            fill(&local).await;
            if is_flushed {
                local.flush().await;
            }
            take_over(&local, &[vec![LOW], vec![]]).await;
            assert!(store(shard).waits_for_hand_over(), "flushed before: {is_flushed}");
        }
    });
}

#[test]
fn a_flush_that_waits_while_its_tablet_is_split_ends_when_all_is_in_files() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let (shard, ranges) = (local.shards[0].clone(), SPLIT());
        let prepared = shard.prepare_to_leave(&store(&shard), &ranges[0], &ranges[0]).await;
        prepared.expect("the disk works");
        for k in 0..KEYS {
            assert!(local.write(k, 10, false).await);
        }
        shard.keep_in_memory(&store(&shard), &ranges[0]).await;
        let flushing = shard.clone();
        let flush = runtime::spawn(async move { flushing.flush_all().await });
        runtime::sleep(Duration::from_millis(1)).await;
        shard.reconcile(&[WantedTable {
            table: table(),
            ranges: ranges[0].clone(),
            keeps_shards: true,
        }]);
        flush.await.expect("the disk works");
        assert_eq!(
            memory(&shard),
            0,
            "something is not in files, as a drain would end the log"
        );
        assert_eq!(local.rows().await.len(), KEYS as usize);
    });
}

#[test]
fn what_is_flushed_between_the_preparation_and_the_step_is_cut_already() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        let (shard, ranges) = (&local.shards[0], SPLIT());
        let prepared = shard.prepare_to_leave(&store(shard), &ranges[0], &ranges[0]).await;
        prepared.expect("the disk works");
        for k in 0..KEYS {
            assert!(local.write(k, 10, false).await);
        }
        local.flush().await;
        step(shard, &ranges[0]).await;
        assert!(!store(shard).waits_for_hand_over(), "a file has rows of both halves");
        assert_eq!(local.rows().await.len(), KEYS as usize);
    });
}

/// What it would remove may be of the tablets that came since, which have the same files.
#[test]
fn a_removal_of_ranges_that_waits_while_its_tablet_is_split_removes_nothing() {
    on_node(|| async {
        let local = Local::start(&ONE()).await;
        for k in 0..KEYS {
            assert!(local.write(k, 10, false).await);
        }
        local.flush().await;
        let (shard, ranges) = (local.shards[0].clone(), quarters());
        let prepared = shard.prepare_to_leave(&store(&shard), &ranges[0], &ranges[0]).await;
        prepared.expect("the disk works");
        let removing = shard.clone();
        let removal = runtime::spawn(async move {
            let task = removing
                .tasks()
                .start(Spec::of(&replica::kinds::RESHARD), &Origin::Node);
            let first = store(&removing).tablets()[0].range;
            let half = TokenRange { to: Token(0), ..first };
            let done = removing.discard_ranges(&store(&removing), &[half], &task).await;
            task.end(&done);
            done
        });
        runtime::sleep(Duration::from_millis(1)).await;
        step(&shard, &ranges[0]).await;
        let refused = removal.await.expect_err("its tablet has left");
        assert!(refused.contains("boundaries of the tablets have changed"), "{refused}");
        assert_eq!(local.rows().await.len(), KEYS as usize);
        local.flush().await;
        local.compact().await;
        assert_eq!(local.rows().await.len(), KEYS as usize);
    });
}
