//! A metadata group of three in the simulator, whose members are given their own messages, changed.
//!
//! The members run on one machine, each with its directory; a message takes a moment. The messages that they send are
//! recorded, so the changed messages are of the group's present term and log, and most pass the decoder and many the
//! checks. A message is delivered to its addressee as from its sender: the transport guarantees that the sender is the
//! one that it names, so the changed message plays a hostile member. Such a member may take part in wrong elections and
//! confuse a log, which is not a find. A panic is, and a group that takes no command afterwards. A member that believes
//! a false claim which it may not doubt (that it has lost entries, that the group continued without it) is started
//! again, so that the others keep receiving forged messages in a group that works.

use crate::mutator::Mutator;
use consensus::{Consensus, Options, Start, StateMachine, Transport};
use runtime::sim::Simulation;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

/// Changed messages of one round; then a new group is formed.
pub const INPUTS_PER_ROUND: u64 = 5_000;
/// Messages that are given to the members before time advances.
const BURST: u64 = 10;
/// Messages that are remembered of those that were overheard.
const OVERHEARD_MAX: usize = 256;
const GROUP: u64 = 0xce70;
const MEMBERS: u64 = 3;
/// How long the group is left alone at the end, and how long a proposal may take then.
const REST: Duration = Duration::from_secs(10);

/// What a round has shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Played {
    /// Changed messages.
    pub inputs: u64,
    /// Commands that were applied while members lied.
    pub applied: u64,
    /// Members that could have a command applied afterwards.
    pub working: u64,
    /// Members that were started again, because they believed that they had lost entries, or that the group continued
    /// without them.
    pub restarts: u64,
}

#[derive(Default)]
struct Air {
    members: RefCell<Vec<Consensus>>,
    overheard: RefCell<VecDeque<Vec<u8>>>,
    applied: RefCell<u64>,
}

struct Link {
    own: u64,
    air: Rc<Air>,
}

impl Transport for Link {
    fn send(&self, to: u64, message: Vec<u8>) {
        {
            let mut overheard = self.air.overheard.borrow_mut();
            if overheard.len() == OVERHEARD_MAX {
                overheard.pop_front();
            }
            overheard.push_back(message.clone());
        }
        let (air, own) = (self.air.clone(), self.own);
        drop(runtime::spawn(async move {
            runtime::sleep(Duration::from_millis(1)).await;
            air.give(own, to, message);
        }));
    }
}

impl Air {
    fn give(&self, from: u64, to: u64, message: Vec<u8>) {
        let index = to.checked_sub(1).and_then(|index| usize::try_from(index).ok());
        let member = index.and_then(|index| self.members.borrow().get(index).cloned());
        if let Some(member) = member {
            member.receive(from, message);
        }
    }
}

/// Takes any command of one byte and more.
struct Machine(Rc<Air>);

impl StateMachine for Machine {
    fn apply<'a>(&'a self, _index: u64, command: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        assert!(!command.is_empty(), "a command that was checked is empty");
        *self.0.applied.borrow_mut() += 1;
        Box::pin(std::future::ready(()))
    }

    fn check_command(&self, command: &[u8]) -> Result<(), String> {
        match command {
            [] => Err("it is empty".to_owned()),
            _ => Ok(()),
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        vec![7; 20]
    }

    fn restore<'a>(&'a self, _index: u64, _snapshot: &'a [u8]) -> Pin<Box<dyn Future<Output = ()> + 'a>> {
        Box::pin(runtime::sleep(Duration::from_millis(30)))
    }
}

async fn start(id: u64, air: &Rc<Air>) -> Consensus {
    let mut options = Options::new(PathBuf::from(format!("/member{id}")), GROUP, id);
    // So that files are compacted and snapshots are sent.
    options.log_bytes_max = 4 << 10;
    options.entries_kept = 4;
    options.snapshot_ticks = 20;
    let link = Rc::new(Link {
        own: id,
        air: air.clone(),
    });
    let voters = Start::Voters((1..=MEMBERS).collect());
    let machine = Rc::new(Machine(air.clone()));
    let started = Consensus::start(options, voters, link, machine).await;
    started.unwrap_or_else(|error| panic!("a member does not start: {error}"))
}

/// The sender and the addressee of a message, by its header: after format, group, and number and nonce of the epoch.
fn ends(message: &[u8]) -> Option<(u64, u64)> {
    let number = |at: usize| Some(u64::from_be_bytes(message.get(at..at + 8)?.try_into().ok()?));
    Some((number(25)?, number(33)?))
}

/// Restarts members that no longer take part, as an operator does if nothing was lost. Returns how many.
async fn restart_misled(air: &Rc<Air>) -> u64 {
    let mut restarts = 0;
    for id in 1..=MEMBERS {
        let index = usize::try_from(id - 1).expect("few");
        let member = air.members.borrow()[index].clone();
        let status = member.status();
        if status.lost_entries.is_some() || status.superseded_by.is_some() {
            member.stop().await;
            let again = start(id, air).await;
            air.members.borrow_mut()[index] = again;
            restarts += 1;
        }
    }
    restarts
}

async fn play_in(seed: u64, air: Rc<Air>) -> Played {
    for id in 1..=MEMBERS {
        let member = start(id, &air).await;
        air.members.borrow_mut().push(member);
    }
    runtime::sleep(Duration::from_secs(4)).await;
    let first = air.members.borrow()[0].clone();
    let proposed = first.propose(vec![1], REST).await;
    proposed.unwrap_or_else(|error| panic!("a group without forged messages takes no command: {error}"));
    let applied_before = *air.applied.borrow();
    let mut mutator = Mutator::new(seed);
    let mut played = Played::default();
    while played.inputs < INPUTS_PER_ROUND {
        if mutator.below(3) == 0 {
            let at = mutator.below(usize::try_from(MEMBERS).expect("few"));
            let member = air.members.borrow()[at].clone();
            let command = vec![1; 1 + mutator.below(300)];
            drop(runtime::spawn(async move {
                let _ = member.propose(command, Duration::from_secs(1)).await;
                let _ = member.read_barrier(Duration::from_secs(1)).await;
            }));
        }
        for _ in 0..BURST {
            played.inputs += 1;
            let messages: Vec<Vec<u8>> = air.overheard.borrow().iter().cloned().collect();
            let input = mutator.change(&messages);
            if let Some((from, to)) = ends(&input) {
                let to = if mutator.below(8) == 0 { from % MEMBERS + 1 } else { to };
                air.give(from, to, input);
            }
        }
        played.restarts += restart_misled(&air).await;
        let pause = [1, 1, 1, 20, 60][mutator.below(5)];
        runtime::sleep(Duration::from_millis(pause)).await;
    }
    played.applied = *air.applied.borrow() - applied_before;
    played.restarts += restart_misled(&air).await;
    runtime::sleep(REST).await;
    let members = air.members.borrow().clone();
    for member in members {
        let before = *air.applied.borrow();
        let proposed = member.propose(vec![2], REST).await;
        played.working += u64::from(proposed.is_ok() && *air.applied.borrow() > before);
    }
    played
}

/// Forms a group, gives it changed messages, and looks whether it works afterwards.
#[must_use]
pub fn play(seed: u64) -> Played {
    let mut simulation = Simulation::new(seed);
    let machine = simulation.add_node(1);
    let result: Rc<RefCell<Option<Played>>> = Rc::default();
    let slot = result.clone();
    simulation.start(machine, move |_| {
        let slot = slot.clone();
        Box::pin(async move {
            let played = play_in(seed, Rc::default()).await;
            *slot.borrow_mut() = Some(played);
        })
    });
    let seen = result.clone();
    simulation.run_until(Duration::from_secs(3600), move || seen.borrow().is_some());
    let played = result.borrow_mut().take();
    played.expect("a round ends within an hour of its time")
}
