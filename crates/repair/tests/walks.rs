//! Repairs of many stretches: each continues where the one before ended, whatever is written, flushed and compacted
//! concurrently.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::support::writer::insert;
use crate::support::{Content, HOUR, Local, Sea, plain};
use repair::{Mode, Repaired};
use runtime::random_u64;
use schema::Table;
use stdx::bytes::Reader;

const SEEDS: u64 = 4;
const PARTITIONS: u32 = 90;
const ROWS: u32 = 30;
/// Partitions from here on are written while repairs run.
const LATER: u32 = 1_000;
/// What one stretch reads.
const STRETCH_BYTES: u64 = 4 << 20;

fn below(n: u64) -> u64 {
    random_u64() % n
}

/// The timestamp of each row that was there before the repair, by partition and clustering.
fn rows(table: &Table, content: &Content) -> BTreeMap<(u32, Vec<u8>), i64> {
    let mut rows = BTreeMap::new();
    for block in content.values() {
        let key = Reader::new(block.key()).get_u32().expect("the key is an int");
        if key >= LATER {
            continue;
        }
        for (clustering, row) in block.rows() {
            let Some((_, mutation::Column::Simple(cell))) = row.columns(&table.layout).next() else {
                panic!("each row has a value");
            };
            rows.insert((key, clustering.to_vec()), cell.timestamp);
        }
    }
    rows
}

/// Writes what the replicas had before: each lacks some rows, has others older, and has its own sstables.
fn fill(sea: &mut Sea) {
    let table = plain();
    let written = sea.on(0, async move |_| {
        let mut written = [Vec::new(), Vec::new()];
        for k in 0..PARTITIONS {
            // Most partitions end inside a block, some go over several.
            let rows = if k % 3 == 0 { ROWS } else { 1 + k % ROWS };
            for c in 0..rows {
                let value = vec![7; usize::try_from(1 + below(20_000)).expect("a small number")];
                let who = below(40);
                for (node, written) in written.iter_mut().enumerate() {
                    if who == node as u64 {
                        continue;
                    }
                    let at = if who == 2 + node as u64 { 20 } else { 10 };
                    written.push(insert(&table, k, c, at, &value));
                }
            }
        }
        written
    });
    for (node, writes) in written.into_iter().enumerate() {
        for part in writes.chunks(writes.len() / 4 + 1) {
            sea.apply(node, part.to_vec());
            sea.flush(node);
        }
    }
}

/// Writes, flushes and compacts for a while.
async fn disturb(local: Local) {
    for turn in 0..40u32 {
        let k = LATER + turn;
        local.apply(&[insert(&plain(), k, 0, 10, &[9; 2_000])]).await;
        match below(8) {
            0 => local.compact().await,
            1..=3 => local.flush().await,
            _ => {}
        }
        runtime::sleep(Duration::from_millis(below(40))).await;
    }
}

fn repaired(sea: &mut Sea, marks: bool) -> Repaired {
    let repairing = if marks {
        sea.begin_marking(0, true)
    } else {
        sea.begin_repair(0, Mode::Repair)
    };
    let disturbing: Vec<_> = (0..2).map(|node| sea.spawn(node, disturb)).collect();
    let is_done = || repairing.borrow().is_some() && disturbing.iter().all(|done| done.borrow().is_some());
    assert!(sea.simulation.run_until(HOUR, is_done), "the repair ends");
    repairing.take().expect("it has ended").expect("nothing fails")
}

#[test]
fn every_stretch_is_repaired_whatever_is_flushed_and_compacted_meanwhile() {
    for seed in 0..SEEDS {
        let table = plain();
        let mut sea = Sea::new(seed, 2, &table);
        sea.slow_disks();
        fill(&mut sea);
        let before: Vec<_> = sea.contents().iter().map(|content| rows(&table, content)).collect();
        let [here, there] = [&before[0], &before[1]];
        let mut expected = here.clone();
        for (place, at) in there {
            let newest = expected.entry(place.clone()).or_insert(*at);
            *newest = (*newest).max(*at);
        }
        let lacking = |rows: &BTreeMap<_, i64>| {
            let differs = expected.iter().filter(|(place, at)| rows.get(*place) != Some(*at));
            differs.count() as u64
        };
        let lacked = [lacking(here), lacking(there)];
        assert!(lacked.iter().all(|lacked| *lacked > 0), "both lack rows");

        let done = repaired(&mut sea, seed % 2 == 0);
        assert!(done.read_bytes > 3 * STRETCH_BYTES, "several stretches are read");
        for (found, lacked) in done.differed.iter().zip(lacked) {
            assert!(
                found.rows >= lacked,
                "seed {seed}: {lacked} rows were lacking: {done:?}"
            );
        }
        for (node, content) in sea.contents().iter().enumerate() {
            assert_eq!(
                rows(&table, content),
                expected,
                "seed {seed}: node {node} has every row"
            );
        }
        let again = sea.repair(0, Mode::Repair).expect("nothing fails");
        let differs = again.differed.iter().map(|one| one.rows).sum::<u64>();
        assert!(differs <= 2 * 40, "only what was written meanwhile differs: {again:?}");
        assert_eq!(sea.difference(), None, "seed {seed}");

        // What was read ahead of one stretch is the beginning of the next one, on both sides: nothing is left out, and
        // nothing differs.
        let units = sea.content(0).values().map(|block| block.len() as u64).sum::<u64>();
        let before = sea.on(0, async |_| repair::metrics().read_bytes);
        let equal = sea.repair(0, Mode::Repair).expect("nothing fails");
        let read = sea.on(0, async |_| repair::metrics().read_bytes) - before;
        assert_eq!(
            (equal.rows, read),
            (units, equal.read_bytes),
            "seed {seed}: each row is read once"
        );
    }
}
