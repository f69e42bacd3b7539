//! What is derived from writes: observers are told what each write changes, and mutations that follow from a request's are written with it.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use crate::support::{Cluster, Local, SECOND, Shape, addressed, clustering, insert, rows, table};
use coordinator::{Atomicity, Augment, ClusterView, CoordinatorError, Mutations, WriteKind};
use mutation::{Addressed, Bound, Located, Mutation, MutationBuilder, MutationItem, PartitionBlock, Tombstone};
use replica::{Change, Observer};
#[cfg(debug_assertions)]
use runtime::StopPoint;
#[cfg(debug_assertions)]
use runtime::sim::{CrashKind, Stop};
use schema::Table;
use topology::{Consistency, Replication};
use types::token::token_of;

const KEY: &[u8] = b"key";
/// Of a partition that is not to be written.
const REFUSED: &[u8] = b"refused";
const ALL: Consistency = Consistency::All;
const QUORUM: Consistency = Consistency::Quorum;
const SERIAL: Consistency = Consistency::Serial;

/// The values of rows before and after a write.
type Seen = (Vec<(i32, Vec<u8>)>, Vec<(i32, Vec<u8>)>);

#[derive(Default)]
struct Diary(RefCell<Vec<Seen>>);

impl Observer for Diary {
    fn changed(&self, table: &Arc<Table>, change: Change) {
        let read = |block: &PartitionBlock| rows(table, std::slice::from_ref(block)).into_iter().collect();
        let before = change.before.as_ref().map_or_else(Vec::new, read);
        self.0.borrow_mut().push((before, read(&change.after)));
    }
}

fn cluster(seed: u64) -> Cluster {
    Cluster::new(seed, Shape::default())
}

/// What `node` is told while `work` runs there.
fn told<Fut: Future<Output = ()> + 'static>(
    cluster: &mut Cluster,
    node: usize,
    work: impl FnOnce(Local) -> Fut + 'static,
) -> Vec<Seen> {
    cluster.on(node, |local| async move {
        let diary = Rc::new(Diary::default());
        let store = local.shard.store(table().id).expect("the table is open");
        store.observe(Some(diary.clone()));
        work(local).await;
        store.observe(None);
        diary.0.take()
    })
}

fn row(c: i32, v: &[u8]) -> Vec<(i32, Vec<u8>)> {
    vec![(c, v.to_vec())]
}

async fn write(node: &Local, mutations: Vec<Vec<u8>>) {
    let mutations: Vec<Addressed> = mutations.into_iter().map(addressed).collect();
    let written = node
        .coordinator
        .write(mutations, ALL, WriteKind::UnloggedBatch, Atomicity::Share)
        .await;
    written.expect("all replicas live");
}

#[test]
fn an_observer_is_told_what_rows_were_before_a_write_and_are_behind_it() {
    let mut cluster = cluster(1);
    let seen = told(&mut cluster, 0, |node| async move {
        write(&node, vec![insert(&table(), KEY, 1, b"a", 10)]).await;
        write(&node, vec![insert(&table(), KEY, 2, b"x", 10)]).await;
        write(&node, vec![insert(&table(), KEY, 1, b"b", 20)]).await;
        // Too late: it changes nothing.
        write(&node, vec![insert(&table(), KEY, 1, b"c", 15)]).await;
    });
    let wanted: Vec<Seen> = vec![
        (vec![], row(1, b"a")),
        (vec![], row(2, b"x")),
        (row(1, b"a"), row(1, b"b")),
        (row(1, b"b"), row(1, b"b")),
    ];
    assert_eq!(
        seen, wanted,
        "each write tells of the rows that it touches, and of no others"
    );
}

#[test]
fn what_is_in_files_is_told_too_and_so_is_the_end_of_rows() {
    let mut cluster = cluster(2);
    let seen = told(&mut cluster, 0, |node| async move {
        for (c, v) in [(1, b"a"), (2, b"b"), (3, b"c")] {
            write(&node, vec![insert(&table(), KEY, c, v, 10)]).await;
        }
        node.shard.flush_all().await.expect("the disk works");
        let range = |out: &mut Vec<u8>| {
            let mut builder = MutationBuilder::begin(out, table().id, KEY);
            builder.range_tombstone(&mutation::RangeTombstone {
                start: Bound::before(&clustering(1)),
                end: Bound::after(&clustering(2)),
                tombstone: Tombstone {
                    timestamp: 20,
                    deletion_time: 1,
                },
            });
        };
        let mut bytes = Vec::new();
        range(&mut bytes);
        // Two mutations of one partition in one request are one change.
        write(&node, vec![bytes, insert(&table(), KEY, 3, b"d", 20)]).await;
    });
    let all = vec![(1, b"a".to_vec()), (2, b"b".to_vec()), (3, b"c".to_vec())];
    assert_eq!(seen.last().map(|(before, _)| before), Some(&all));
    let change = seen.last().map(|(_, after)| after);
    assert_eq!(change.and_then(|rows| rows.last()), Some(&(3, b"d".to_vec())));
    assert_eq!(seen.len(), 4, "one request is told once");
}

#[test]
fn whatever_others_write_is_told_and_so_are_decisions_of_conditional_statements() {
    let mut cluster = cluster(3);
    let seen = cluster.on(1, |node| async move {
        let diary = Rc::new(Diary::default());
        let store = node.shard.store(table().id).expect("the table is open");
        store.observe(Some(diary.clone()));
        diary
    });
    cluster.on(0, |node| async move {
        write(&node, vec![insert(&table(), KEY, 1, b"theirs", 10)]).await;
        let swapped = node.swap(b"register", (0, 7), (SERIAL, ALL), SECOND).await;
        assert_eq!(swapped.expect("all replicas live"), Ok(()));
    });
    // Led here as well.
    cluster.on(1, |node| async move {
        let swapped = node.swap(b"register", (7, 9), (SERIAL, ALL), SECOND).await;
        assert_eq!(swapped.expect("all replicas live"), Ok(()));
    });
    let value = |number: u64| row(0, &number.to_be_bytes());
    let wanted: Vec<Seen> = vec![(vec![], row(1, b"theirs")), (vec![], value(7)), (value(7), value(9))];
    assert_eq!(seen.0.take(), wanted);
}

#[test]
fn a_statement_of_the_only_copy_is_told_too() {
    let mut cluster = Cluster::new(
        4,
        Shape {
            datacenters: vec!["north"],
            replication: Replication::Simple { factor: 1 },
            ..Shape::default()
        },
    );
    let seen = told(&mut cluster, 0, |node| async move {
        for swap in [(0, 7), (7, 9)] {
            let swapped = node.swap(KEY, swap, (SERIAL, Consistency::One), SECOND).await;
            assert_eq!(swapped.expect("the replica lives"), Ok(()));
        }
    });
    let value = |number: u64| row(0, &number.to_be_bytes());
    assert_eq!(seen, vec![(vec![], value(7)), (value(7), value(9))]);
}

#[test]
fn writes_at_once_to_the_same_rows_are_told_one_after_the_other() {
    for seed in 0..10 {
        let mut cluster = cluster(seed);
        let seen = told(&mut cluster, 0, |node| async move {
            // In a file, and so long that each of the two rows is waited for.
            let long: Vec<u8> = (0..100_000u32)
                .map(|n| n.wrapping_mul(2_654_435_761).to_be_bytes()[0])
                .collect();
            write(&node, [1, 2].map(|c| insert(&table(), KEY, c, &long, 1)).to_vec()).await;
            node.shard.flush_all().await.expect("the disk works");
            let writes: Vec<_> = (0..20u8)
                .map(|n| {
                    let node = node.clone();
                    let at = 2 + i64::from(n % 5) * 100 + i64::from(n);
                    runtime::spawn(async move {
                        write(&node, [1, 2].map(|c| insert(&table(), KEY, c, &[n], at)).to_vec()).await;
                    })
                })
                .collect();
            for write in writes {
                write.await;
            }
        });
        assert_eq!(seen.len(), 21);
        for pair in seen.windows(2) {
            assert_eq!(
                pair[0].1, pair[1].0,
                "seed {seed}: what one write left is what the next one finds"
            );
        }
    }
}

/// Copies each row to the partition whose key has one more byte.
struct Copies;

impl Augment for Copies {
    fn augment(&self, _: &ClusterView, base: Located<'_>) -> Result<Mutations, CoordinatorError> {
        if base.mutation.key == REFUSED {
            return Err(CoordinatorError::Rejected("no partition may have this key".to_owned()));
        }
        let key = copy_of(base.mutation.key);
        let mut bytes = Vec::new();
        let mut builder = MutationBuilder::begin(&mut bytes, base.mutation.table, &key);
        for item in base.mutation.items() {
            if let MutationItem::Row { clustering, row } = item {
                builder.row(clustering, |out| out.extend_from_slice(row));
            }
        }
        Ok(std::iter::once(addressed(bytes)).collect())
    }
}

fn copy_of(key: &[u8]) -> Vec<u8> {
    [key, b"'"].concat()
}

fn copying(seed: u64) -> Cluster {
    let mut cluster = cluster(seed);
    for node in 0..3 {
        cluster.on(node, |local| async move {
            local.coordinator.augment(table().id, Some(Rc::new(Copies)));
        });
    }
    cluster
}

fn copied(cluster: &mut Cluster, key: &'static [u8]) -> Vec<(i32, Vec<u8>)> {
    cluster.on(2, move |node| async move {
        let rows = node.select(&copy_of(key), QUORUM).await;
        rows.expect("a quorum lives").into_iter().collect()
    })
}

#[test]
fn what_follows_from_a_write_is_written_with_it_by_whichever_way_it_comes() {
    let mut cluster = copying(1);
    cluster.on(0, |node| async move {
        node.insert(b"write", 1, b"a", 10, QUORUM)
            .await
            .expect("a quorum lives");
        let batch: Mutations = std::iter::once(addressed(insert(&table(), b"batch", 1, b"b", 10))).collect();
        node.coordinator
            .write_batch(batch, QUORUM)
            .await
            .expect("a quorum lives");
        let swapped = node.swap(b"swap", (0, 7), (SERIAL, QUORUM), SECOND).await;
        assert_eq!(swapped.expect("a quorum lives"), Ok(()));
        // In one call: nothing is written so, as more has to be.
        let bytes = insert(&table(), b"now", 1, b"c", 10);
        let mutation = Mutation::new(&bytes).expect("it was packed");
        let located = Located {
            token: token_of(b"now"),
            mutation,
        };
        assert_eq!(node.coordinator.write_here(located, Consistency::One), Ok(None));
    });
    assert_eq!(copied(&mut cluster, b"write"), row(1, b"a"));
    assert_eq!(copied(&mut cluster, b"batch"), row(1, b"b"));
    assert_eq!(copied(&mut cluster, b"swap"), row(0, &7u64.to_be_bytes()));
    let twice = cluster.on(2, |node| async move {
        node.select(&copy_of(&copy_of(b"write")), QUORUM).await
    });
    assert!(
        twice.expect("a quorum lives").is_empty(),
        "nothing follows from what follows"
    );
}

#[test]
fn a_write_from_which_nothing_may_follow_is_refused_whole() {
    let mut cluster = copying(2);
    let refused = cluster.on(0, |node| async move { node.insert(REFUSED, 1, b"a", 10, QUORUM).await });
    assert!(matches!(refused, Err(CoordinatorError::Rejected(_))), "{refused:?}");
    let refused = cluster.on(0, |node| async move {
        node.swap(REFUSED, (0, 7), (SERIAL, QUORUM), SECOND).await
    });
    assert!(matches!(refused, Err(CoordinatorError::Rejected(_))), "{refused:?}");
    // Nothing was decided that would have to be finished.
    let register = cluster.on(
        1,
        |node| async move { node.read_register(REFUSED, SERIAL, SECOND).await },
    );
    assert_eq!(register, Ok(0));
    let left = cluster.on(0, |node| async move { node.select(REFUSED, QUORUM).await });
    assert!(left.expect("a quorum lives").is_empty());
}

#[test]
#[cfg(debug_assertions)]
fn what_follows_from_a_statement_is_written_by_who_finishes_it() {
    let mut cluster = copying(3);
    let leader = cluster.id(0);
    let stop = Stop::Crash(CrashKind::PowerLoss);
    cluster.simulation.stop_at(leader, StopPoint::ProposalAccepted, 0, stop);
    drop(cluster.spawn(0, |node| async move {
        node.swap(KEY, (0, 7), (SERIAL, QUORUM), SECOND).await
    }));
    assert!(cluster.simulation.run_until_ended(leader, SECOND), "it is accepted");
    cluster.crash(0, CrashKind::PowerLoss);
    cluster.set_live(0, false);
    assert_eq!(copied(&mut cluster, KEY), vec![], "its leader died before that");
    let seen = cluster.on(
        1,
        |node| async move { node.read_register(KEY, SERIAL, 5 * SECOND).await },
    );
    assert_eq!(seen.expect("a quorum lives"), 7, "it was accepted by a quorum");
    assert_eq!(copied(&mut cluster, KEY), row(0, &7u64.to_be_bytes()));
}
