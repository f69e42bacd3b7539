//! What a loss of power takes from hints, and what it must not bring back.

use super::*;

/// What is handed over when a machine has lost its power and is there again, though one file operation may fail.
fn sent_after_a_power_loss(machine: &mut Machine) -> Vec<u32> {
    machine.simulation.crash(machine.node, CrashKind::PowerLoss);
    let replica: Rc<Replica> = Rc::default();
    let seen = replica.clone();
    machine.run(move || async move {
        let hints = Hints::start(options()).unwrap_or_else(|_| start(options()));
        let _ = replay(&hints, &seen).await;
        replay(&hints, &seen).await.expect("the replica lives");
    });
    replica.got.take()
}

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
    assert_eq!(
        sent_after_a_power_loss(&mut machine)[..60],
        (0..60).collect::<Vec<u32>>()
    );
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
    assert_eq!(sent_after_a_power_loss(&mut machine), (0..10).collect::<Vec<u32>>());
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
            // Nothing waits, so nothing of the table is left that a file would have to record.
            hints.truncate(TABLE).await.expect("the disk works");
        });
        let sent = sent_after_a_power_loss(&mut machine);
        assert_eq!(sent, [0; 0], "the table was truncated, and its tombstones may be gone");
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
        // What has not failed yet may fail here.
        let again = sent_after_a_power_loss(&mut machine);
        let expected = (0..10).collect::<Vec<u32>>();
        if is_left {
            assert!(again.ends_with(&expected), "operation {operations}")
        } else {
            assert!(replica.got.borrow().ends_with(&expected), "operation {operations}");
            assert!(again.is_empty(), "operation {operations}: they are back");
        }
    }
}

#[test]
fn a_target_lacks_what_was_in_a_file_that_somebody_removed() {
    Machine::new(32).run(|| async {
        let hints = start(options());
        note(&hints, 0..10);
        hints.sync(None).await.expect("the disk works");
        let dir = options().dir;
        for entry in runtime::fs::read_dir(&dir).expect("the disk works") {
            runtime::fs::remove_file(dir.join(entry.name)).expect("the disk works");
        }
        assert_eq!(replay(&hints, &Rc::default()).await, Ok(()));
        assert!(hints.take_missed().contains_key(&TARGET), "its tombstones stay");
    });
}
