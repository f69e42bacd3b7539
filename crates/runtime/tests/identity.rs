//! A machine's boot id and its random bytes, simulated.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use runtime::sim::{CrashKind, Simulation};

/// The boot id and the random bytes that each of three starts of a machine saw, with a kill and then a power loss
/// between.
fn three_starts(seed: u64) -> Vec<(u128, [u8; 21])> {
    let mut sim = Simulation::new(seed);
    let node = sim.add_node(1);
    /// Boot id and random bytes of one start.
    type Seen = (u128, [u8; 21]);
    let seen: Rc<RefCell<Vec<Seen>>> = Rc::default();
    let main = seen.clone();
    sim.start(node, move |_| {
        let seen = main.clone();
        Box::pin(async move {
            let mut bytes = [0; 21];
            runtime::random_bytes(&mut bytes);
            seen.borrow_mut().push((runtime::boot_id(), bytes));
            runtime::sleep(Duration::from_hours(1)).await;
        })
    });
    for kind in [CrashKind::Kill, CrashKind::PowerLoss] {
        sim.run_for(Duration::from_millis(1));
        sim.crash(node, kind);
        sim.restart(node);
    }
    sim.run_for(Duration::from_millis(1));
    seen.take()
}

#[test]
fn a_boot_id_survives_a_killed_process_but_not_a_power_loss() {
    let starts = three_starts(1);
    assert_eq!(starts[0].0, starts[1].0, "the machine stayed up");
    assert_ne!(starts[1].0, starts[2].0, "the machine booted again");
}

#[test]
fn random_bytes_follow_from_the_seed_and_differ_each_time() {
    let starts = three_starts(1);
    assert_ne!(starts[0].1, starts[1].1);
    assert_eq!(starts, three_starts(1), "the same seed gives the same bytes");
    assert_ne!(starts[0].1, three_starts(2)[0].1, "another seed gives others");
}

#[test]
fn this_machine_has_a_boot_id_and_random_bytes() {
    assert_eq!(runtime::boot_id(), runtime::boot_id());
    let mut bytes = [0; 600];
    runtime::random_bytes(&mut bytes);
    assert!(bytes[550..].iter().any(|&b| b != 0), "all of a long buffer is filled");
}
