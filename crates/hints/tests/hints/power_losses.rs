//! What a loss of power takes from hints, and what it must not bring back.

use super::*;

#[test]
fn hints_that_were_synced_survive_a_power_loss() {
    let mut machine = Machine::new(22);
    machine.run(move || async move {
        let hints = start(options());
        note(&hints, 0..60);
        hints.sync(None).await.expect("the disk works");
        note(&hints, 60..61);
        hints.write().expect("the disk works");
    });
    machine.simulation.crash(machine.node, CrashKind::PowerLoss);
    let replica: Rc<Replica> = Rc::default();
    let seen = replica.clone();
    machine.run(move || async move {
        replay(&start(options()), &seen).await.expect("the replica lives");
    });
    assert_eq!(replica.got.borrow()[..60], (0..60).collect::<Vec<u32>>());
}

#[test]
fn hints_whose_sync_failed_are_synced_by_the_next() {
    let mut machine = Machine::new(29);
    machine
        .simulation
        .fail_sync_after(machine.node, 0, FailedSync::KeptDirty);
    machine.run(move || async move {
        let hints = start(options());
        note(&hints, 0..10);
        hints.sync(None).await.expect_err("the sync fails once");
        hints.sync(None).await.expect("the disk works again");
    });
    machine.simulation.crash(machine.node, CrashKind::PowerLoss);
    let replica: Rc<Replica> = Rc::default();
    let seen = replica.clone();
    machine.run(move || async move {
        replay(&start(options()), &seen).await.expect("the replica lives");
    });
    assert_eq!(*replica.got.borrow(), (0..10).collect::<Vec<u32>>());
}

#[test]
fn a_power_loss_does_not_bring_back_hints_that_were_handed_over() {
    for seed in 30..40 {
        let mut machine = Machine::new(seed);
        machine.run(move || async move {
            let hints = start(options());
            note(&hints, 0..10);
            hints.sync(None).await.expect("the disk works");
            replay(&hints, &Rc::default()).await.expect("the replica lives");
            // Nothing waits, so nothing of the table is left that a file would have to tell of.
            hints.truncate(TABLE).await.expect("the disk works");
        });
        machine.simulation.crash(machine.node, CrashKind::PowerLoss);
        let replica: Rc<Replica> = Rc::default();
        let seen = replica.clone();
        machine.run(move || async move {
            replay(&start(options()), &seen).await.expect("the replica lives");
        });
        let is_back = !replica.got.borrow().is_empty();
        assert!(!is_back, "the table was truncated, and its tombstones may be gone");
    }
}

#[test]
fn hints_are_handed_over_and_gone_for_good_whichever_file_operation_fails_meanwhile() {
    for operations in 0..12 {
        let mut machine = Machine::new(31);
        machine.run(move || async move {
            let hints = start(options());
            note(&hints, 0..10);
            hints.sync(None).await.expect("the disk works");
        });
        let replica: Rc<Replica> = Rc::default();
        let seen = replica.clone();
        let node = machine.node;
        machine
            .simulation
            .fail_file_op_after(node, operations, std::io::ErrorKind::Other);
        let is_left = machine.run(move || async move {
            let Ok(hints) = Hints::start(options()) else {
                return true;
            };
            // One of the two may fail.
            let _ = replay(&hints, &seen).await;
            let _ = replay(&hints, &seen).await;
            hints.metrics().waiting_bytes > 0
        });
        machine.simulation.crash(machine.node, CrashKind::PowerLoss);
        let again: Rc<Replica> = Rc::default();
        let seen = again.clone();
        machine.run(move || async move {
            // What has not failed yet may fail here.
            let hints = Hints::start(options()).unwrap_or_else(|_| start(options()));
            let _ = replay(&hints, &seen).await;
            replay(&hints, &seen).await.expect("the replica lives");
        });
        let expected = (0..10).collect::<Vec<u32>>();
        match is_left {
            true => assert!(again.got.borrow().ends_with(&expected), "operation {operations}"),
            false => {
                assert!(replica.got.borrow().ends_with(&expected), "operation {operations}");
                assert!(again.got.borrow().is_empty(), "operation {operations}: they are back");
            }
        }
    }
}
