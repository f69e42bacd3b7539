//! The day when most voters are gone for ever: one survivor goes on alone, and the others start again as new members.
//!
//! Nothing proves that what the survivor has is all that was ever committed: the lost voters may have agreed on more. So an operator decides, in
//! words, offline, for one node. The survivor's log is taken for committed as it is, its configuration becomes one voter, and the group's
//! epoch grows: whoever is left of the old epoch, should it return, is refused and told so, and cannot elect a leader among themselves
//! that anybody of the new epoch would hear.

use crate::group::sorted;
use crate::recovered::Recovery;
use crate::store::{Store, StoreError};
use raft::eraftpb::{ConfState, EntryType};
use std::fmt;
use std::path::Path;

/// What an operator must say, word for word.
pub const RECOVERY_CONFIRMATION: &str = "the lost voters will never be started again";

/// Why a member was not made the only one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RecoveryError {
    /// The confirmation is not [`RECOVERY_CONFIRMATION`].
    NotConfirmed,
    /// There is no metadata log in the directory.
    NoLog,
    /// The member has never heard from its group: it has nothing to go on with.
    NeverJoined,
    /// The member is all the voters there are: nothing is lost.
    NothingLost,
    /// Its file cannot be used.
    Store(StoreError),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfirmed => write!(
                f,
                "giving up a majority may lose metadata changes for ever and is not done without the confirmation \
                 \"{RECOVERY_CONFIRMATION}\""
            ),
            Self::NoLog => f.write_str("there is no metadata log in the directory"),
            Self::NeverJoined => {
                f.write_str("this node has never received the group's metadata; choose another survivor")
            }
            Self::NothingLost => f.write_str("this node is the only voter already; start it"),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecoveryError {}

/// Rewrites the log of the one member that goes on. Offline: the node must not run. Blocks.
///
/// All other members must be started with empty directories, under new ids, and added again.
///
/// # Errors
/// [`RecoveryError`]; nothing was changed then.
pub fn recover_from_lost_majority(
    dir: &Path,
    group: u64,
    id: u64,
    confirmation: &str,
) -> Result<Recovery, RecoveryError> {
    if confirmation != RECOVERY_CONFIRMATION {
        return Err(RecoveryError::NotConfirmed);
    }
    let (store, mut state) = Store::open(dir, group, id)
        .map_err(RecoveryError::Store)?
        .ok_or(RecoveryError::NoLog)?;
    drop(store);
    let (Some(epoch), true) = (state.epoch, state.snapshot_index > 0) else {
        return Err(RecoveryError::NeverJoined);
    };
    let changes_members = state
        .entries
        .iter()
        .any(|entry| entry.entry_type != EntryType::EntryNormal);
    let conf = sorted(state.conf.clone());
    if conf.voters == [id] && conf.voters_outgoing.is_empty() && !changes_members {
        return Err(RecoveryError::NothingLost);
    }
    let mut lost: Vec<u64> = [&conf.voters, &conf.learners, &conf.voters_outgoing, &conf.learners_next]
        .into_iter()
        .flatten()
        .copied()
        .filter(|member| *member != id)
        .collect();
    lost.sort_unstable();
    lost.dedup();
    let recovery = Recovery {
        epoch: epoch + 1,
        at_us: runtime::wall_clock_us(),
        lost,
    };
    state.epoch = Some(recovery.epoch);
    state.recovery = Some(recovery.clone());
    state.conf = ConfState {
        voters: vec![id],
        ..ConfState::default()
    };
    for entry in &mut state.entries {
        // Nobody joins or leaves by what the old majority wished.
        if entry.entry_type != EntryType::EntryNormal {
            entry.entry_type = EntryType::EntryNormal;
            entry.context.clear();
            entry.data.clear();
        }
    }
    let last = state.truncated.0 + state.entries.len() as u64;
    state.hard_state.commit = last;
    state.hard_state.term += 1;
    state.hard_state.vote = 0;
    Store::create(dir, group, id, &state).map_err(RecoveryError::Store)?;
    Ok(recovery)
}
