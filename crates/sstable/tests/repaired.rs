//! Marks of repairs in finished sstables: durable, atomic, and of nothing else in the file.

use std::path::Path;

use crate::common::{TempDir, forget_checksums, wide_table, write_sample};
use runtime::fs;
use runtime::sim::{CrashKind, NodeId, Simulation};
use sstable::{Component, Descriptor, Generation, RepairRecord};
use types::Token;

const MARK: i64 = 1_704_067_200_123;

/// The mark that a reader of the format finds, when the whole sstable is sound.
fn mark_in(descriptor: &Descriptor) -> i64 {
    let data = descriptor.path(Component::Data);
    sstable::tool::verify(&data).expect("a sound file");
    let reader = sstable::Reader::open_descriptor(descriptor, &wide_table()).expect("a sound file");
    assert_eq!(reader.repaired_at(), 0, "a mark counts only where its record says so");
    reader.meta().statistics.repaired_at
}

fn bytes_of(descriptor: &Descriptor) -> Vec<(Component, Vec<u8>)> {
    let all = Component::ALL.into_iter();
    all.filter_map(|component| Some((component, fs::read(descriptor.path(component)).ok()?)))
        .collect()
}

#[test]
fn a_mark_changes_eight_bytes_of_the_statistics_and_their_checksum() {
    for has_checksums in [true, false] {
        let dir = TempDir::new("mark");
        let descriptor = write_sample(&dir.0).expect("room on the disk");
        if !has_checksums {
            forget_checksums(&dir);
        }
        let before = bytes_of(&descriptor);
        assert_eq!(mark_in(&descriptor), 0);
        sstable::mark_repaired(&descriptor, MARK).expect("the disk works");
        assert_eq!(mark_in(&descriptor), MARK);
        let said = sstable::tool::metadata(&descriptor.path(Component::Data)).expect("a sound file");
        let line = said.lines().find(|line| line.starts_with("Repaired at"));
        assert!(line.is_some_and(|line| line.ends_with(&MARK.to_string())), "{said}");
        for ((component, before), (same, after)) in before.iter().zip(bytes_of(&descriptor)) {
            assert_eq!((*component, before.len()), (same, after.len()));
            let changed = before.iter().zip(&after).filter(|(a, b)| a != b).count();
            match component {
                Component::Statistics => assert!((1..=8).contains(&changed), "{changed}"),
                Component::Checksums => assert!((1..=8).contains(&changed), "{changed}"),
                _ => assert_eq!(changed, 0, "{component:?}"),
            }
        }
        sstable::mark_repaired(&descriptor, 0).expect("the disk works");
        assert_eq!(
            bytes_of(&descriptor),
            before,
            "a mark that is taken back leaves no trace"
        );
    }
}

#[test]
fn what_is_adopted_has_no_mark_and_its_original_keeps_it() {
    let dir = TempDir::new("mark-adopt");
    let descriptor = write_sample(&dir.0).expect("room on the disk");
    sstable::mark_repaired(&descriptor, MARK).expect("the disk works");
    let into = dir.0.join("into");
    fs::create_dir_all(&into).expect("the disk works");
    let adopted = sstable::adopt(std::slice::from_ref(&descriptor), &into, || Generation::Number(5));
    let adopted = adopted.expect("the disk works");
    assert_eq!(mark_in(&adopted[0]), 0);
    assert_eq!(mark_in(&descriptor), MARK);
    let names = fs::read_dir(&into).expect("a directory");
    assert!(names.iter().all(|entry| !entry.name.ends_with(".mark")), "{names:?}");
}

/// Runs `step` on a node that a crash strikes after so many file operations; whether it ended before.
fn struck(simulation: &mut Simulation, node: NodeId, (operations, kind): (u64, CrashKind), step: fn()) -> bool {
    let ended = std::rc::Rc::new(std::cell::Cell::new(false));
    let seen = ended.clone();
    simulation.start(node, move |_| {
        let seen = seen.clone();
        Box::pin(async move {
            step();
            seen.set(true);
        })
    });
    simulation.crash_after_file_ops(node, operations, kind);
    simulation.run_until_ended(node, std::time::Duration::from_hours(1));
    simulation.crash(node, kind);
    simulation.clear_file_faults(node);
    ended.get()
}

fn descriptor() -> Descriptor {
    sstable::list(Path::new("/t")).expect("a directory").remove(0)
}

#[test]
fn a_crash_at_any_step_of_a_mark_leaves_a_sound_file_with_the_old_mark_or_the_new_one() {
    let (mut old, mut new) = (0, 0);
    for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
        for operations in 0.. {
            let mut simulation = Simulation::new(operations);
            let node = simulation.add_node(1);
            simulation.on_node(node, || {
                fs::create_dir_all("/t").expect("the disk works");
                fs::sync_dir("/").expect("the disk works");
                write_sample(Path::new("/t")).expect("room on the disk");
            });
            let mark = || sstable::mark_repaired(&descriptor(), MARK).expect("the node crashes first");
            let ended = struck(&mut simulation, node, (operations, kind), mark);
            let found = simulation.on_node(node, || {
                sstable::remove_unsealed(Path::new("/t")).expect("the disk works");
                let names = fs::read_dir("/t").expect("a directory");
                assert!(names.iter().all(|entry| !entry.name.ends_with(".mark")), "{names:?}");
                let found = mark_in(&descriptor());
                mark_repaired_again();
                found
            });
            match found {
                0 => old += 1,
                MARK => new += 1,
                other => panic!("after {operations} operations: mark {other}"),
            }
            if ended {
                assert_eq!(found, MARK, "a mark that was made is durable");
                break;
            }
        }
    }
    assert!(old > 5 && new > 5, "{old} crashes left the old mark, {new} the new one");
}

/// What a crash has left can be marked again.
fn mark_repaired_again() {
    sstable::mark_repaired(&descriptor(), MARK + 1).expect("the disk works");
    assert_eq!(mark_in(&descriptor()), MARK + 1);
}

#[test]
fn a_record_replaces_those_inside_it_and_goes_with_any_of_its_tokens() {
    let dir = TempDir::new("records");
    let record = |after: i64, to: i64, session: u128| RepairRecord {
        after: Token(after),
        to: Token(to),
        session,
        replicas: 9,
        since: 1,
        at: 2,
        hosts: sstable::FileHosts::default(),
    };
    let found = || {
        let mut all = sstable::records(&dir.0).expect("a directory");
        all.sort_by_key(|record| record.session);
        all
    };
    assert_eq!(sstable::records(&dir.0.join("none")).expect("none"), []);
    for one in [
        record(i64::MIN, 0, 1),
        record(0, 10, 2),
        record(10, 20, 3),
        record(0, 5, 4),
    ] {
        sstable::write_record(&dir.0, &one).expect("the disk works");
    }
    let names: Vec<u128> = found().iter().map(|record| record.session).collect();
    assert_eq!(names, [1, 2, 3, 4], "a narrower one stands beside the wider one");
    sstable::write_record(&dir.0, &record(0, 20, 5)).expect("the disk works");
    assert_eq!(found(), [record(i64::MIN, 0, 1), record(0, 20, 5)]);
    sstable::remove_records(&dir.0, Token(21), Token(i64::MAX)).expect("the disk works");
    assert_eq!(found().len(), 2);
    sstable::remove_records(&dir.0, Token(i64::MIN), Token(i64::MIN)).expect("the disk works");
    assert_eq!(found(), [record(0, 20, 5)], "the lowest range has the lowest token");
    fs::write(dir.0.join("repaired-30-40.txt"), b"ceto repaired 1\n").expect("the disk works");
    assert_eq!(found(), [record(0, 20, 5)], "one that cannot be read is none");
    sstable::remove_records(&dir.0, Token(20), Token(35)).expect("the disk works");
    assert_eq!(fs::read_dir(&dir.0).expect("a directory").len(), 0);
}
