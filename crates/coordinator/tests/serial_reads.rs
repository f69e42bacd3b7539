//! A serial read of two rows that another node writes one after the other, while messages come late.

use std::time::Duration;

use crate::support::{Cluster, Local, SECOND, Shape, insert, read_of, rows, table};
use coordinator::{CasRequest, CoordinatorError, Decision, ReadResult};
#[cfg(debug_assertions)]
use stdx::planted::{Bug, Planted};
use topology::Consistency;

/// Partitions: which two replicas a node asks depends on the key.
const KEYS: u8 = 8;

fn wall_seconds() -> u32 {
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Sets a row of a partition, conditionally.
async fn set(node: &Local, key: u8, c: i32, v: u8) -> Result<bool, CoordinatorError> {
    let request = CasRequest {
        table: table(),
        key: vec![key],
        reads: vec![read_of(&[key])],
        now: wall_seconds(),
        serial: Consistency::Serial,
        commit: Consistency::One,
        deadline: runtime::now() + 10 * SECOND,
        contention_deadline: runtime::now() + 10 * SECOND,
        timestamp_us: runtime::wall_clock_us(),
        memory: None,
    };
    let mut decide =
        |_: &mut [ReadResult], timestamp: i64| Decision::Write(insert(&table(), &[key], c, &[v], timestamp));
    node.coordinator.cas.compare_and_set(&request, &mut decide).await
}

/// What a serial read has of both rows.
async fn both(node: &Local, key: u8) -> Result<[u8; 2], CoordinatorError> {
    let (table, deadline) = (table(), runtime::now() + 10 * SECOND);
    let read = node.coordinator.cas.serial_read(
        &table,
        read_of(&[key]),
        usize::MAX,
        Consistency::Serial,
        wall_seconds(),
        deadline,
    );
    let found = rows(&table, &read.await?.blocks);
    Ok([0, 1].map(|c| found.get(&c).map_or(0, |v| v[0])))
}

/// As long as a message is on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(2);

/// Messages that come from one node to another from now on are up to 800 ms late, or in time.
fn make_late(cluster: &mut Cluster, from: usize, to: usize, are_late: bool) {
    let (from, to) = (cluster.id(from), cluster.id(to));
    let late = if are_late { 1_000_000 } else { 0 };
    cluster.simulation.set_message_faults(from, to, 0, late);
}

/// Node 2 sets a row, and waits for no other node.
fn set_by_2(cluster: &mut Cluster, key: u8, c: i32, v: u8) -> bool {
    cluster
        .on(2, move |node| async move { set(&node, key, c, v).await })
        .is_ok()
}

/// Node 0 reads both rows from itself and from node 1, which lacks the last write. After `delay` its messages come
/// late, and node 2 writes row 0, of which node 1 hears late, and then row 1, of which it hears at once. What the read
/// has; None where a message of another kind was late.
fn read_beside_writes(seed: u64, key: u8, delay: Duration) -> Option<[u8; 2]> {
    let mut cluster = Cluster::new(seed, Shape::default());
    let is_begun = set_by_2(&mut cluster, key, 0, 1) && set_by_2(&mut cluster, key, 1, 1);
    assert!(is_begun, "nothing is late yet");
    cluster.simulation.run_for(SECOND);
    make_late(&mut cluster, 2, 1, true);
    assert!(set_by_2(&mut cluster, key, 0, 2), "node 2 asks node 0");
    cluster.simulation.run_for(ON_ITS_WAY);
    make_late(&mut cluster, 2, 1, false);
    let read = cluster.spawn(0, move |node| async move { both(&node, key).await });
    cluster.simulation.run_for(delay);
    make_late(&mut cluster, 0, 1, true);
    if read.borrow().is_some() {
        return None;
    }
    make_late(&mut cluster, 2, 1, true);
    let is_first = set_by_2(&mut cluster, key, 0, 3);
    cluster.simulation.run_for(ON_ITS_WAY);
    make_late(&mut cluster, 2, 1, false);
    if !is_first || !set_by_2(&mut cluster, key, 1, 3) {
        return None;
    }
    make_late(&mut cluster, 0, 1, false);
    let is_over = cluster.simulation.run_until(30 * SECOND, || read.borrow().is_some());
    assert!(is_over, "seed {seed}: the read hangs");
    read.take().and_then(Result::ok)
}

/// How many reads were looked at, and those that had row 1 and not row 0, which was written before.
fn reads_beside_writes(seeds: std::ops::Range<u64>) -> (usize, Vec<[u8; 2]>) {
    let mut reads = Vec::new();
    for seed in seeds {
        for micros in (0..4000).step_by(100) {
            let key = u8::try_from(seed % u64::from(KEYS)).expect("few keys");
            reads.extend(read_beside_writes(seed, key, Duration::from_micros(micros)));
        }
    }
    let torn = reads
        .iter()
        .filter(|[first, second]| second > first || *second == 3 && *first < 3);
    (reads.len(), torn.copied().collect())
}

#[test]
fn a_serial_read_of_two_rows_is_of_one_moment() {
    let (count, torn) = reads_beside_writes(0..8);
    assert!(count > 20, "only {count} reads were beside the writes");
    assert!(torn.is_empty(), "{torn:?} of {count}");
}

#[test]
#[cfg(debug_assertions)]
fn that_a_leader_did_not_confirm_its_ballot_would_be_seen() {
    let _planted = Planted::new(Some(Bug::NoConfirm));
    // 5 of 231 with eight seeds.
    let (count, torn) = reads_beside_writes(0..24);
    assert!(!torn.is_empty(), "none of {count}");
}
