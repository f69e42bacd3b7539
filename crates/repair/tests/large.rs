//! How much goes over the network, and that partitions of any length are repaired.

use crate::support;
use crate::support::writer::{delete_partition, insert};
use crate::support::{Sea, merged, plain};
use mutation::Tombstone;
use repair::{Mode, Repaired};

const ROWS: u32 = 100_000;

fn bytes(repaired: &Repaired) -> u64 {
    repaired.sent_bytes + repaired.received_bytes
}

fn differed(repaired: &Repaired) -> Vec<u64> {
    repaired.differed.iter().map(|one| one.rows).collect()
}

/// One partition of 100,000 rows on the nodes that are named, in a file.
fn one_partition(nodes: &[usize]) -> Sea {
    let table = plain();
    let mut sea = Sea::new(1, 2, &table);
    for node in nodes {
        for begin in (0..ROWS).step_by(10_000) {
            let rows = begin..begin + 10_000;
            sea.apply(*node, rows.map(|c| insert(&table, 1, c, 10, &[7; 100])).collect());
        }
        sea.flush(*node);
    }
    sea
}

#[test]
fn one_row_of_a_hundred_thousand_costs_the_hashes_of_the_partition_and_of_a_bucket() {
    let mut sea = one_partition(&[0, 1]);
    let equal = sea.repair(0, Mode::Repair).expect("nothing fails");
    assert_eq!(
        (equal.partitions, equal.rows, differed(&equal)),
        (1, u64::from(ROWS), vec![0, 0])
    );
    assert!(bytes(&equal) < 60_000, "{} bytes for hashes", bytes(&equal));
    sea.apply(1, vec![insert(&plain(), 1, 77_777, 20, &[8; 100])]);
    let repaired = sea.repair(0, Mode::Repair).expect("nothing fails");
    assert_eq!(differed(&repaired), [1, 0]);
    let more = bytes(&repaired) - bytes(&equal);
    assert!(more < 10_000, "{more} bytes for one row");
    let (one, other) = (sea.content(0), sea.content(1));
    let now = sea.now();
    assert_eq!(
        support::shown(&sea.table, &one, now),
        support::shown(&sea.table, &other, now)
    );
}

#[test]
fn a_partition_that_one_side_lacks_goes_over_in_pieces() {
    for from in 0..2 {
        let mut sea = one_partition(&[from]);
        let repaired = sea.repair(0, Mode::Repair).expect("nothing fails");
        let mut wanted = vec![u64::from(ROWS); 2];
        wanted[from] = 0;
        assert_eq!(differed(&repaired), wanted);
        let (one, other) = (sea.content(0), sea.content(1));
        let now = sea.now();
        assert_eq!(
            support::shown(&sea.table, &one, now),
            support::shown(&sea.table, &other, now)
        );
    }
}

/// The deletion goes with each part of the partition, and is one unit.
#[test]
fn a_deletion_of_a_long_partition_is_counted_once_by_previews_and_repairs() {
    for from in 0..2 {
        let mut sea = one_partition(&[0, 1]);
        let tombstone = Tombstone {
            timestamp: 20,
            deletion_time: sea.now(),
        };
        sea.apply(from, vec![delete_partition(&plain(), 1, tombstone)]);
        let preview = sea.repair(0, Mode::Preview).expect("nothing fails");
        let repaired = sea.repair(0, Mode::Repair).expect("nothing fails");
        let mut wanted = vec![1; 2];
        wanted[from] = 0;
        assert_eq!(
            (differed(&preview), differed(&repaired)),
            (wanted.clone(), wanted),
            "node {from}"
        );
    }
}

#[test]
fn one_percent_that_differs_costs_less_than_three_times_its_bytes() {
    let table = plain();
    let mut sea = Sea::new(1, 2, &table);
    let (rows, each) = (5_000, 1_000);
    let writes: Vec<_> = (0..rows).map(|k| insert(&table, k, 0, 10, &vec![7; each])).collect();
    for node in 0..2 {
        sea.apply(node, writes.clone());
        sea.flush(node);
    }
    let newer: Vec<_> = (0..rows / 100)
        .map(|n| insert(&table, n * 97, 0, 20, &vec![8; each]))
        .collect();
    let (count, size) = (newer.len() as u64, newer.iter().map(Vec::len).sum::<usize>() as u64);
    let (here, there) = newer.split_at(newer.len() / 2);
    sea.apply(0, here.to_vec());
    sea.apply(1, there.to_vec());
    let contents = sea.contents();
    let expected = merged(&table, &contents);
    let repaired = sea.repair(0, Mode::Repair).expect("nothing fails");
    assert_eq!(differed(&repaired), [count / 2, count / 2]);
    sea.assert_shows(&expected, "one percent");
    assert!(
        bytes(&repaired) < 3 * size,
        "{} bytes for {size} that differ",
        bytes(&repaired)
    );
    let again = sea.repair(0, Mode::Repair).expect("nothing fails");
    assert_eq!(differed(&again), [0, 0]);
    assert!(bytes(&again) < u64::from(rows) * 3, "{} bytes of hashes", bytes(&again));
}
