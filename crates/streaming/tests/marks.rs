//! The marks that repairs have left move with a tablet: the node that gets it has the source's record, and never
//! without all the data that the record covers.

use crate::support::{Cluster, HIGH, LOW, MOMENT, WHOLE};
use replica::TokenRange;
use runtime::sim::CrashKind;
use sstable::{FileHosts, RepairRecord};

const KEYS: u32 = 40;
const RECORD: RepairRecord = RepairRecord {
    after: WHOLE.after,
    to: WHOLE.to,
    session: 77,
    replicas: 5,
    since: 1_000,
    at: 2_000,
    hosts: FileHosts::NONE,
};

/// A source with rows that a repair has marked, and rows that came later, in a file and in memory.
fn with_marks(seed: u64, ranges: &[TokenRange]) -> Cluster {
    let mut cluster = Cluster::new(seed, ranges);
    let range = ranges[0];
    cluster.on(0, move |local| async move {
        for k in 0..KEYS / 2 {
            local.write(k, 10).await;
        }
        let store = local.store();
        let set = local.shard.begin_repair_set(&store, range, true).await;
        let marked = set.expect("it is one tablet").mark(RepairRecord {
            after: range.after,
            to: range.to,
            ..RECORD
        });
        assert_eq!(marked.await, Ok(1));
        for k in KEYS / 2..KEYS {
            local.write(k, 10).await;
            if k == 30 {
                local.flush().await;
            }
        }
    });
    cluster
}

/// The record of a range on a node, the other hosts left out; and the marks of its sstables, in order.
fn marks(cluster: &mut Cluster, node: usize, range: TokenRange) -> (Option<RepairRecord>, Vec<i64>) {
    cluster.on(node, move |local| async move {
        let store = local.store();
        let record = local.shard.repair_record(&store, range).await.expect("the disk works");
        let mut marks = Vec::new();
        for tablet in store.tablets().iter() {
            let version = tablet.version();
            marks.extend(version.sstables.iter().map(|reader| reader.repaired_at()));
        }
        marks.sort_unstable();
        let hosts = FileHosts::NONE;
        (record.map(|record| RepairRecord { hosts, ..record }), marks)
    })
}

#[test]
fn a_tablet_that_moves_keeps_its_marks_also_behind_a_restart() {
    let mut cluster = with_marks(1, &[WHOLE, WHOLE]);
    cluster.pull_with_marks(1, WHOLE, &[0]).expect("nothing fails");
    let (record, of_files) = marks(&mut cluster, 1, WHOLE);
    assert_eq!((record, &of_files[..]), (Some(RECORD), &[0, 0, 2_000][..]));
    cluster.restart(1, CrashKind::PowerLoss);
    assert_eq!(marks(&mut cluster, 1, WHOLE), (record, of_files));
    assert_eq!(cluster.rows(1, 0..KEYS).len(), KEYS as usize);
    // And once more, from there.
    let mut cluster = with_marks(2, &[WHOLE, WHOLE, WHOLE]);
    cluster.pull_with_marks(1, WHOLE, &[0]).expect("nothing fails");
    cluster.pull_with_marks(2, WHOLE, &[1]).expect("nothing fails");
    cluster.restart(2, CrashKind::PowerLoss);
    assert_eq!(marks(&mut cluster, 2, WHOLE), (Some(RECORD), vec![0, 0, 2_000]));
}

#[test]
fn marks_stay_behind_where_they_are_not_asked_for_or_say_nothing() {
    let unmarked = (None, vec![0, 0, 0]);
    let mut cluster = with_marks(3, &[WHOLE, WHOLE, WHOLE]);
    cluster.pull(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(marks(&mut cluster, 1, WHOLE), unmarked);
    // Of two sources, each may lack what the other's marks rely on.
    cluster.pull_with_marks(2, WHOLE, &[0, 1]).expect("nothing fails");
    assert_eq!(marks(&mut cluster, 2, WHOLE).0, None);
    // The source has lost something.
    let mut cluster = with_marks(4, &[WHOLE, WHOLE]);
    cluster.on(0, |local| async move {
        let dir = local.store().dir.clone();
        let removed = runtime::offload(move || sstable::remove_records(&dir, RECORD.after, RECORD.to)).await;
        removed.expect("the disk works");
    });
    cluster.pull_with_marks(1, WHOLE, &[0]).expect("nothing fails");
    assert_eq!(marks(&mut cluster, 1, WHOLE), unmarked);
    // A range that is not a tablet of the target.
    let mut cluster = with_marks(5, &[WHOLE, WHOLE]);
    cluster.pull_with_marks(1, LOW, &[0]).expect("nothing fails");
    assert_eq!(marks(&mut cluster, 1, LOW).0, None);
}

/// The half of a tablet that was split ahead of the map: its files are cut, and keep the marks of the whole.
#[test]
fn what_is_cut_out_of_a_marked_sstable_is_marked() {
    let mut cluster = with_marks(6, &[WHOLE, HIGH]);
    cluster.pull_with_marks(1, HIGH, &[0]).expect("nothing fails");
    let (record, of_files) = marks(&mut cluster, 1, HIGH);
    let expected = RepairRecord {
        after: HIGH.after,
        to: HIGH.to,
        ..RECORD
    };
    assert_eq!((record, of_files), (Some(expected), vec![0, 0, 2_000]));
}

/// A record covers all that the source had. Whenever the target loses power, it has no record or all of that.
#[test]
fn a_crash_of_the_target_leaves_no_record_without_what_it_stands_for() {
    let (mut with, mut without) = (0, 0);
    for step in 0..60 {
        let mut cluster = with_marks(100 + step, &[WHOLE, WHOLE]);
        let pulling = cluster.begin_pull_with_marks(1, WHOLE, &[0]);
        let delay = MOMENT * u32::try_from(step).expect("small");
        cluster.simulation.run_until(delay, || pulling.borrow().is_some());
        cluster.restart(1, CrashKind::PowerLoss);
        let (record, of_files) = marks(&mut cluster, 1, WHOLE);
        match record {
            Some(record) => {
                assert_eq!(record, RECORD);
                assert_eq!(cluster.rows(1, 0..KEYS).len(), KEYS as usize, "step {step}");
                with += 1;
            }
            None => {
                assert!(of_files.iter().all(|mark| *mark == 0), "step {step}: {of_files:?}");
                without += 1;
            }
        }
        // It is copied again.
        cluster.pull_with_marks(1, WHOLE, &[0]).expect("nothing fails");
        assert_eq!(marks(&mut cluster, 1, WHOLE).0, Some(RECORD), "step {step}");
    }
    assert!(with > 0 && without > 5, "{with} with, {without} without a record");
}
