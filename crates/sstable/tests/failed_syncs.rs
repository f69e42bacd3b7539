//! What a loss of power makes of files of which a step had failed before.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use crate::common::write_sample;
use runtime::fs;
use runtime::sim::{CrashKind, NodeId, Simulation};
use sstable::{Component, Error, FileHosts, RepairRecord};
use types::Token;

const SEEDS: u64 = 10;

/// A machine with an empty directory `/t`.
fn machine(seed: u64) -> (Simulation, NodeId) {
    let mut simulation = Simulation::new(seed);
    let node = simulation.add_node(1);
    simulation.on_node(node, || {
        fs::create_dir_all("/t").expect("the disk works");
        fs::sync_dir("/").expect("the disk works");
    });
    (simulation, node)
}

/// Runs a step in which one file operation fails, after `operations` that succeed, then cuts the power. Returns how
/// many sealed sstables there are after the next start, all of them whole; and the result of the step.
fn behind_a_power_loss(
    (simulation, node): (&mut Simulation, NodeId),
    operations: u64,
    step: fn() -> Result<(), Error>,
) -> (usize, Result<(), Error>) {
    let said = Rc::new(RefCell::new(None));
    let slot = said.clone();
    simulation.start(node, move |_| {
        let slot = slot.clone();
        Box::pin(async move {
            slot.replace(Some(step()));
        })
    });
    simulation.fail_file_op_after(node, operations, ErrorKind::Other);
    simulation.run_until_ended(node, Duration::from_hours(1));
    simulation.clear_file_faults(node);
    let said = said.take().expect("the step has ended");
    simulation.crash(node, CrashKind::PowerLoss);
    let sealed = simulation.on_node(node, || {
        sstable::remove_unsealed(Path::new("/t")).expect("the disk works");
        let sealed = sstable::list(Path::new("/t")).expect("a directory");
        for descriptor in &sealed {
            sstable::tool::verify(&descriptor.path(Component::Data)).expect("a sealed sstable is whole");
        }
        sealed.len()
    });
    (sealed, said)
}

/// Fails each file operation of a step in turn, on machines that `ready` has prepared, until the step succeeds: then
/// there are `done` sealed sstables after the power loss. `check` receives how many there are after a failed step, and
/// where it failed.
fn fail_each_operation(ready: fn(), step: fn() -> Result<(), Error>, done: usize, check: impl Fn(usize, &str)) {
    for seed in 0..SEEDS {
        for operations in 0.. {
            let (mut simulation, node) = machine(seed);
            simulation.on_node(node, ready);
            let (sealed, said) = behind_a_power_loss((&mut simulation, node), operations, step);
            if said.is_ok() {
                assert_eq!(sealed, done, "what was done is durable");
                assert!(operations > 2, "no operation failed");
                break;
            }
            check(sealed, &format!("seed {seed}, operation {operations}"));
        }
    }
}

#[test]
fn an_sstable_that_could_not_be_finished_is_whole_or_gone() {
    let write = || write_sample(Path::new("/t")).map(drop);
    fail_each_operation(|| {}, write, 1, |sealed, at| assert!(sealed <= 1, "{at}"));
}

#[test]
fn an_sstable_that_could_not_be_marked_as_deleted_stays() {
    let write_two = || {
        for generation in 1..=2 {
            fs::create_dir_all("/w").expect("the disk works");
            let written = write_sample(Path::new("/w")).expect("the disk works");
            let written = [written];
            sstable::adopt(&written, Path::new("/t"), || sstable::Generation::Number(generation))
                .expect("the disk works");
            sstable::delete(&written[0]).expect("the disk works");
        }
    };
    let mark = || sstable::mark_obsolete(&sstable::list(Path::new("/t"))?).map(drop);
    fail_each_operation(write_two, mark, 0, |sealed, at| {
        assert_eq!(sealed, 2, "{at}: the node goes on with both");
    });
}

#[test]
fn records_that_a_second_attempt_removes_are_gone() {
    for seed in 0..SEEDS {
        for operations in 0..6 {
            let (mut simulation, node) = machine(seed);
            simulation.on_node(node, || {
                let record = RepairRecord {
                    after: Token(0),
                    to: Token(10),
                    session: 1,
                    replicas: 3,
                    since: 1,
                    at: 2,
                    hosts: FileHosts::default(),
                };
                sstable::write_record(Path::new("/t"), &record).expect("the disk works");
            });
            let (_, said) = behind_a_power_loss((&mut simulation, node), operations, || {
                let remove = || sstable::remove_records(Path::new("/t"), Token(1), Token(2));
                remove().or_else(|_| remove())
            });
            said.expect("one step fails, and the second attempt has none");
            let left = simulation.on_node(node, || sstable::records(Path::new("/t")).expect("a directory"));
            assert_eq!(left, [], "seed {seed}, operation {operations}");
        }
    }
}
