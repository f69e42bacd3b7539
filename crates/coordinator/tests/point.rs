//! Reads of one row that this shard has in memory and other replicas confirm, without a task.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use crate::support::{Cluster, Local, SECOND, Shape, clustering, delete, insert, partition, table};
use coordinator::{Confirmation, CoordinatorError, ReadDone, ReplicatedRead, Stretch};
use mutation::Mutation;
use replica::{RowBuffers, RowName};
use rpc::Limits;
use runtime::Signal;
use schema::Table;
use topology::{Consistency, Replication};
use types::token::{KeyHash, token_of};

/// A key whose best replica for node 0 is node 0 itself.
const KEY: &[u8] = b"k";

#[derive(Default)]
struct Waiting {
    outcome: RefCell<Option<Confirmation>>,
    told: Signal,
}

impl ReadDone for Waiting {
    fn read_done(self: Rc<Self>, _: u32, confirmation: Confirmation) {
        let before = self.outcome.borrow_mut().replace(confirmation);
        assert_eq!(before, None, "a read is told of twice");
        self.told.ring();
    }
}

/// Reads a row from this shard's memory and has it confirmed. None: it is not read so.
async fn read(node: Local, table: Arc<Table>, key: &[u8], c: i32, level: Consistency) -> Option<Confirmation> {
    let (hash, clustering) = (KeyHash::of(key), clustering(c));
    let now = u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("a second of this century");
    let read = node.coordinator.reads.begin_point(table.id, hash.token(), level)?;
    let store = node.shard.store(table.id).expect("the table is open");
    let tablet = store.tablet(hash.token()).expect("the shard has the partition").clone();
    let digest = tablet.with_version(|version| {
        let name = RowName::new(key, &clustering);
        version.read_plain_row(&table, name, &mut RowBuffers::default(), |row| {
            node.coordinator.reads.digest_of_row(&table, name, &row, now)
        })
    })?;
    if read.is_enough() {
        return Some(Confirmation::Agreed);
    }
    let waiting = Rc::new(Waiting::default());
    let names = (key, &clustering[..], now);
    node.coordinator
        .reads
        .confirm_point(read, &table, names, digest, (waiting.clone(), 0));
    waiting.told.wait_until(|| waiting.outcome.borrow().is_some()).await;
    waiting.outcome.take()
}

fn read_at(cluster: &mut Cluster, c: i32, level: Consistency) -> Option<Confirmation> {
    cluster.on(0, move |node| read(node, table(), KEY, c, level))
}

/// A cluster in which all nodes have the row 1.
fn cluster(seed: u64) -> Cluster {
    cluster_in(seed, Shape::default())
}

fn cluster_in(seed: u64, shape: Shape) -> Cluster {
    let mut cluster = Cluster::new(seed, shape);
    let written = cluster.on(0, |node| async move {
        node.insert(KEY, 1, b"one", 10, Consistency::All).await
    });
    written.expect("all nodes take it");
    cluster
}

/// Writes to one node alone, past the coordinator.
fn write_at(cluster: &mut Cluster, node: usize, mutation: Vec<u8>) {
    cluster.on(node, move |node: Local| async move {
        let store = node.shard.store(table().id).expect("the table is open");
        let mutation = Mutation::new(&mutation).expect("a whole mutation");
        node.shard
            .write(&store, token_of(KEY), &mutation)
            .expect("there is room")
            .is_not_awaited();
    });
}

#[test]
fn a_row_that_the_replicas_have_alike_is_confirmed_at_every_level() {
    let mut cluster = cluster(1);
    for level in [Consistency::One, Consistency::Quorum, Consistency::All] {
        for (c, what) in [(1, "a row that is there"), (7, "a row that is not")] {
            let outcome = read_at(&mut cluster, c, level);
            assert_eq!(outcome, Some(Confirmation::Agreed), "{what}, at {level}");
        }
    }
}

#[test]
fn the_digest_of_a_row_is_the_one_of_a_read_in_the_general_way() {
    let mut cluster = cluster(2);
    for (timestamp, mutation) in [
        (20, insert(&table(), KEY, 2, b"two", 20)),
        (30, delete(&table(), KEY, 1, 30)),
        (40, insert(&table(), KEY, 1, b"again", 40)),
    ] {
        for node in 0..3 {
            write_at(&mut cluster, node, mutation.clone());
        }
        // The point read's digests are compared with those of nodes that compute them block by block.
        let stretch = Stretch { rows: 1, bytes: 1 };
        let before = cluster.on(0, move |node: Local| async move {
            let view = node.coordinator.context.view();
            let (extent, level) = (partition(KEY), Consistency::All);
            let read = ReplicatedRead::new(&node.coordinator.reads, &view, &table(), level, extent, 1, stretch);
            let mut read = read.expect("all live");
            while read.next_block().await.expect("all answer").is_some() {}
            node.coordinator.context.metrics().digest_mismatches
        });
        assert_eq!(before, 0);
        for c in [1, 2] {
            let outcome = read_at(&mut cluster, c, Consistency::All);
            assert_eq!(
                outcome,
                Some(Confirmation::Agreed),
                "row {c} after the write at {timestamp}"
            );
        }
    }
}

#[test]
fn a_replica_that_has_another_value_or_a_deletion_leaves_the_read_open() {
    for (what, other) in [
        ("another value", insert(&table(), KEY, 1, b"two", 20)),
        ("an older write of its own", insert(&table(), KEY, 1, b"one", 11)),
        ("a deletion", delete(&table(), KEY, 1, 20)),
    ] {
        let mut cluster = cluster(3);
        for node in [1, 2] {
            write_at(&mut cluster, node, other.clone());
        }
        let outcome = read_at(&mut cluster, 1, Consistency::Quorum);
        assert_eq!(outcome, Some(Confirmation::Open), "{what}");
    }
}

#[test]
fn another_replica_stands_in_for_one_that_fails() {
    let mut cluster = cluster(4);
    // The peers still take it for up.
    cluster.kill(1);
    for _ in 0..4 {
        let outcome = read_at(&mut cluster, 1, Consistency::Quorum);
        assert_eq!(outcome, Some(Confirmation::Agreed));
    }
    let outcome = read_at(&mut cluster, 1, Consistency::All);
    assert_ne!(outcome, Some(Confirmation::Agreed), "nobody stands in at ALL");
}

#[test]
fn a_replica_that_is_cut_off_is_asked_besides_and_at_last_reported() {
    // No node finds out that the connections are dead.
    let limits = Limits {
        ping_interval: 60 * SECOND,
        ..Limits::default()
    };
    let mut cluster = cluster_in(
        5,
        Shape {
            limits,
            ..Shape::default()
        },
    );
    cluster.split(&[1]);
    let before = cluster.local(0).coordinator.context.metrics().speculations;
    let mut slowest = Duration::ZERO;
    for c in 0..6 {
        let took = cluster.on(0, move |node| async move {
            let began = runtime::now();
            let outcome = read(node, table(), &[c], 1, Consistency::Quorum).await;
            (outcome, began.elapsed())
        });
        if let (Some(outcome), took) = took {
            assert_eq!(outcome, Confirmation::Agreed, "key {c}");
            slowest = slowest.max(took);
        }
    }
    let more = cluster.local(0).coordinator.context.metrics().speculations - before;
    assert!(
        more > 0 && slowest < SECOND,
        "{more} more were asked, the slowest took {slowest:?}"
    );
    cluster.split(&[1, 2]);
    let outcome = read_at(&mut cluster, 1, Consistency::Quorum);
    let Some(Confirmation::Failed(CoordinatorError::ReadTimeout {
        tally, data_present, ..
    })) = outcome
    else {
        panic!("nobody answers, and the read ends with {outcome:?}");
    };
    assert_eq!((tally.received, tally.block_for, data_present), (1, 2, true));
}

#[test]
fn a_shard_that_is_not_the_best_replica_does_not_answer_alone() {
    let shape = Shape {
        replication: Replication::Simple { factor: 1 },
        ..Shape::default()
    };
    let mut cluster = Cluster::new(6, shape);
    for key in 0..20_u8 {
        let is_here = cluster.replicas(&[key])
            == cluster.on(0, |node: Local| async move {
                let view = node.coordinator.context.view();
                vec![topology::Replica {
                    node: view.me,
                    shard: 0,
                }]
            });
        let outcome = cluster.on(0, move |node| async move {
            read(node, table(), &[key], 1, Consistency::One).await
        });
        assert_eq!(outcome.is_some(), is_here, "key {key}");
    }
}
