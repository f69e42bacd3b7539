//! The file of a member that starts: the one that is there, or a new one.

use crate::config::{Options, Start, StateMachine};
use crate::epoch::Epoch;
use crate::error::StartError;
use crate::members::VOTERS_MAX;
use crate::recovered::Recovered;
use crate::store::{Items, Store};
use raft::eraftpb::HardState;
use std::collections::BTreeSet;

/// The store of this member, opened or made, with one more start counted.
pub(crate) async fn open(
    options: &Options,
    start: &Start,
    machine: &dyn StateMachine,
) -> Result<(Store, Recovered), StartError> {
    let invalid = |what: &str| Err(StartError::Invalid(what.to_owned()));
    if options.id == 0 {
        return invalid("a member's id is not 0");
    }
    let run = runtime::random_u64();
    let found = Store::open(&options.dir, options.group, options.id).map_err(StartError::Store)?;
    if let Some((mut store, mut state)) = found {
        state.incarnation += 1;
        let mut items = Items::default();
        items.incarnation(state.incarnation);
        items.run(run);
        state.add_run(run);
        store.append(items).await.map_err(StartError::Store)?;
        return Ok((store, state));
    }
    let mut state = Recovered {
        incarnation: 1,
        runs: vec![run],
        ..Recovered::default()
    };
    if let Start::Voters(voters) = start {
        let unique: BTreeSet<u64> = voters.iter().copied().collect();
        if unique.len() != voters.len() || unique.contains(&0) || !unique.contains(&options.id) {
            return invalid("the first voters are different nodes, this one among them");
        }
        if voters.len() > VOTERS_MAX {
            return invalid("a group has at most 5 voters");
        }
        // A snapshot at index 1 holds the bootstrap: a member that joins later gets the first voters with a snapshot.
        state.epoch = Some(Epoch::default());
        (state.snapshot_index, state.snapshot_term, state.truncated) = (1, 1, (1, 1));
        state.conf.voters = unique.into_iter().collect();
        state.data = crate::apply::Applied::default().encode(&machine.snapshot());
        state.hard_state = HardState {
            term: 1,
            commit: 1,
            ..HardState::default()
        };
    }
    let store = Store::create(&options.dir, options.group, options.id, &state).map_err(StartError::Store)?;
    Ok((store, state))
}
