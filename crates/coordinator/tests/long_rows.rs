//! Long rows: a replica sends one when its coordinator has reserved memory.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::support::{Cluster, Local, Shape, insert, partition, read_of, rows, table};
use coordinator::{CasRead, CasRequest, CoordinatorError, Decision, Extent, ReadResult, ReplicatedRead, Stretch};
use memory::{Reserving, RowMemory};
use mutation::{Mutation, PartitionBlock};
use topology::{Consistency, Replication};
use types::Token;
use types::token::token_of;

const KEY: &[u8] = b"key";
const LONG: usize = 300 << 10;
const NODES: [usize; 3] = [0, 1, 2];

/// Records the reservations, and grants or refuses them.
#[derive(Default)]
struct Room {
    asked: Mutex<Vec<usize>>,
    refuses: bool,
}

impl RowMemory for Room {
    fn reserve_row(&self, bytes: usize) -> Reserving<'_> {
        self.asked.lock().expect("one shard").push(bytes);
        let answer = if self.refuses {
            Err("no room".to_owned())
        } else {
            Ok(())
        };
        Box::pin(std::future::ready(answer))
    }

    fn hold(&self, bytes: usize) -> Reserving<'_> {
        self.reserve_row(bytes)
    }
}

/// The rows or the error of a read, and its reservations.
type Found = (Result<BTreeMap<i32, Vec<u8>>, CoordinatorError>, Vec<usize>);

async fn read(node: Local, extent: Extent, level: Consistency, refuses: bool) -> Found {
    let room = Arc::new(Room {
        refuses,
        ..Room::default()
    });
    let read = node.read(&table(), extent, level, 100).expect("all live");
    let mut read: ReplicatedRead = read.with_row_memory(Some(room.clone()));
    let mut blocks: Vec<PartitionBlock> = Vec::new();
    let found = loop {
        match read.next_block().await {
            Ok(Some(block)) => blocks.push(block),
            Ok(None) => break Ok(rows(&table(), &blocks)),
            Err(error) => break Err(error),
        }
    };
    let asked = room.asked.lock().expect("one shard").clone();
    (found, asked)
}

fn all_tokens() -> Extent {
    Extent::Tokens {
        after: Token(i64::MIN),
        to: Token(i64::MAX),
        from: (Token(i64::MIN), Vec::new()),
        inside: None,
    }
}

/// A cluster with a short and a long row in one partition, in memtables or in sstables.
fn with_a_long_row(seed: u64, copies: u16, is_flushed: bool) -> Cluster {
    let mut cluster = Cluster::new(
        seed,
        Shape {
            replication: Replication::Simple { factor: copies },
            ..Shape::default()
        },
    );
    cluster.on(0, |node| async move {
        node.insert(KEY, 1, b"short", 10, Consistency::All)
            .await
            .expect("all live");
        node.insert(KEY, 2, &vec![7; LONG], 10, Consistency::All)
            .await
            .expect("all live");
    });
    for node in NODES.into_iter().filter(|_| is_flushed) {
        cluster.on(node, |node| async move {
            node.shard.flush_all().await.expect("the disk has room")
        });
    }
    cluster
}

#[test]
fn a_long_row_comes_once_its_coordinator_has_room() {
    let expected = BTreeMap::from([(1, b"short".to_vec()), (2, vec![7; LONG])]);
    for (seed, copies, is_flushed) in [(1, 1, false), (2, 1, true), (3, 3, false), (4, 3, true)] {
        let mut cluster = with_a_long_row(seed, copies, is_flushed);
        for node in NODES {
            for extent in [partition(KEY), all_tokens()] {
                let (found, asked) = cluster.on(node, move |node| read(node, extent, Consistency::All, false));
                assert_eq!(found.as_ref(), Ok(&expected), "seed {seed}, node {node}");
                assert!(
                    !asked.is_empty() && asked.iter().all(|bytes| (LONG..2 * LONG).contains(bytes)),
                    "seed {seed}, node {node} asks for {asked:?}"
                );
            }
        }
    }
}

#[test]
fn a_long_row_for_which_there_is_no_room_fails_its_read_and_no_other() {
    for (seed, is_flushed) in [(5, false), (6, true)] {
        let mut cluster = with_a_long_row(seed, 3, is_flushed);
        let (found, asked) = cluster.on(0, |node| read(node, partition(KEY), Consistency::Quorum, true));
        assert_eq!(found, Err(CoordinatorError::Overloaded("no room".to_owned())));
        assert_eq!(asked.len(), 1, "it is asked for once: {asked:?}");
        let (found, _) = cluster.on(0, |node| read(node, partition(b"other"), Consistency::Quorum, true));
        assert_eq!(found, Ok(BTreeMap::new()), "short rows need no room");
    }
}

#[test]
fn replicas_that_differ_in_a_long_row_are_asked_for_all_of_it_and_repaired() {
    for (seed, is_flushed) in [(7, false), (8, true)] {
        let mut cluster = with_a_long_row(seed, 3, is_flushed);
        let newer = insert(&table(), KEY, 2, &vec![8; LONG], 20);
        cluster.on(1, move |node| async move {
            let store = node.shard.store(table().id).expect("it has the table");
            let newer = Mutation::new(&newer).expect("a whole mutation");
            node.shard
                .write(&store, token_of(KEY), &newer)
                .expect("there is room")
                .is_not_awaited();
        });
        let (found, asked) = cluster.on(0, |node| read(node, partition(KEY), Consistency::All, false));
        let expected = BTreeMap::from([(1, b"short".to_vec()), (2, vec![8; LONG])]);
        assert_eq!(found, Ok(expected.clone()), "seed {seed}");
        assert!(asked.len() >= 2, "each that sends it is asked for: {asked:?}");
        let (found, _) = cluster.on(2, |node| read(node, partition(KEY), Consistency::One, false));
        assert_eq!(found, Ok(expected), "the others were repaired");
    }
}

/// A conditional statement that reads the whole partition, in stretches of one row, and deletes nothing: its outcome,
/// and its reservations.
async fn decide(node: Local, refuses: bool) -> (Result<bool, CoordinatorError>, Vec<usize>) {
    let room = Arc::new(Room {
        refuses,
        ..Room::default()
    });
    let timeouts = node.coordinator.context.timeouts();
    let request = CasRequest {
        table: table(),
        key: KEY.to_vec(),
        reads: vec![CasRead {
            stretch: Stretch {
                rows: 1,
                bytes: 1 << 20,
            },
            ..read_of(KEY)
        }],
        now: 1,
        serial: Consistency::Serial,
        commit: Consistency::Quorum,
        deadline: runtime::now() + timeouts.write,
        contention_deadline: runtime::now() + timeouts.cas_contention,
        timestamp_us: runtime::wall_clock_us(),
        memory: Some(room.clone()),
    };
    let mut decide = |found: &mut [ReadResult], timestamp| {
        if found[0].is_all {
            Decision::Write(insert(&table(), KEY, 100, b"decided", timestamp))
        } else {
            Decision::ReadOn(0)
        }
    };
    let decided = node.coordinator.cas.compare_and_set(&request, &mut decide).await;
    let asked = room.asked.lock().expect("one shard").clone();
    (decided, asked)
}

#[test]
fn a_conditional_statement_reads_on_once_its_node_has_room() {
    const ROWS: usize = 10;
    const BYTES: usize = 30 << 10;
    for (seed, copies) in [(9, 1), (10, 3)] {
        let shape = Shape {
            replication: Replication::Simple { factor: copies },
            ..Shape::default()
        };
        let mut cluster = Cluster::new(seed, shape);
        cluster.on(0, |node| async move {
            for row in 0..ROWS as i32 {
                node.insert(KEY, row, &vec![7; BYTES], 10, Consistency::All)
                    .await
                    .expect("all live");
            }
        });
        for node in NODES {
            let (decided, asked) = cluster.on(node, |node| decide(node, true));
            assert!(
                matches!(decided, Err(CoordinatorError::Overloaded(_))),
                "{copies} copies, node {node}: {decided:?}"
            );
            assert_eq!(asked.len(), 1, "it reads no further: {asked:?}");
        }
        for node in NODES {
            let (decided, asked) = cluster.on(node, |node| decide(node, false));
            assert_eq!(decided, Ok(true), "{copies} copies, node {node}");
            assert!(asked.is_sorted(), "{copies} copies, node {node}: {asked:?}");
            let (first, last) = (asked.first().copied(), asked.last().copied());
            assert!(
                first > Some(2 * BYTES) && last > Some((ROWS - 2) * BYTES),
                "{copies} copies, node {node}: {asked:?}"
            );
        }
    }
}
