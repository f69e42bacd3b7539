//! Recovery when most voters are gone permanently: one survivor continues alone, the others start again as new members.
//!
//! Nothing proves that what the survivor has is all that was ever committed: the lost voters may have agreed on more.
//! So an operator decides, in words, offline, for one node. The survivor's log is taken for committed as it is, its
//! configuration becomes one voter, and the group's epoch grows: a member of the old epoch that returns is refused and
//! notified, and members of the old epoch cannot elect a leader that a member of the new epoch would listen to. The new
//! epoch has a nonce, so that two survivors that are recovered by mistake do not take each other's messages: each
//! survivor that follows names the epoch that it follows, with its nonce.

use crate::epoch::Epoch;
use crate::group::{conf_after, decode_changes};
use crate::recovered::{Recovered, Recovery};
use crate::store::{Store, StoreError};
use raft::eraftpb::{ConfState, EntryType};
use std::collections::BTreeSet;
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
    /// The member has never heard from its group: it has nothing to continue with.
    NeverJoined,
    /// The member is all the voters there are: nothing is lost.
    NothingLost,
    /// The epoch that it is to follow does not come after its own.
    NotLater {
        /// Its own.
        own: Epoch,
        /// The one to follow.
        followed: Epoch,
    },
    /// Its file cannot be used.
    Store(StoreError),
}

impl fmt::Display for RecoveryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotConfirmed => write!(
                f,
                "giving up a majority may lose metadata changes permanently and is not done without the confirmation \
                 \"{RECOVERY_CONFIRMATION}\""
            ),
            Self::NoLog => f.write_str("there is no metadata log in the directory"),
            Self::NeverJoined => {
                f.write_str("this node has never received the group's metadata; choose another survivor")
            }
            Self::NothingLost => f.write_str("this node is the only voter already; start it"),
            Self::NotLater { own, followed } => write!(
                f,
                "epoch {followed} does not come after epoch {own}, which this node is in; name the epoch that recover-metadata printed on the node that was \
                 recovered"
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for RecoveryError {}

/// What a member's log says of its group, for the decision whether to give up the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prospect {
    /// The epoch that would end.
    pub epoch: Epoch,
    /// The last entry that this member has.
    pub last: u64,
    /// The last entry that it knows to be committed; it may be more by now.
    pub committed: u64,
    /// All that may have a vote, this member too if it may.
    pub voters: Vec<u64>,
    /// All others that may be members: what is given up.
    pub lost: Vec<u64>,
}

/// What a recovery of this member would give up. Changes nothing. Blocks.
///
/// # Errors
/// Why it could not be recovered.
pub fn prospect(dir: &Path, group: u64, id: u64) -> Result<Prospect, RecoveryError> {
    let state = Store::read(dir, group, id)
        .map_err(RecoveryError::Store)?
        .ok_or(RecoveryError::NoLog)?;
    prospect_of(&state, id)
}

fn prospect_of(state: &Recovered, id: u64) -> Result<Prospect, RecoveryError> {
    let (Some(epoch), true) = (state.epoch, state.snapshot_index > 0) else {
        return Err(RecoveryError::NeverJoined);
    };
    let (mut voters, mut members) = (BTreeSet::new(), BTreeSet::new());
    for conf in possible_confs(state) {
        voters.extend(conf.voters.iter().chain(&conf.voters_outgoing));
        members.extend(conf.learners.iter().chain(&conf.learners_next));
    }
    if voters == BTreeSet::from([id]) {
        return Err(RecoveryError::NothingLost);
    }
    members.extend(&voters);
    members.remove(&id);
    Ok(Prospect {
        epoch,
        last: state.truncated.0 + state.entries.len() as u64,
        committed: state.hard_state.commit,
        voters: voters.into_iter().collect(),
        lost: members.into_iter().collect(),
    })
}

/// The configurations that may be in force: what is known to be committed, and what may be besides.
fn possible_confs(state: &Recovered) -> Vec<ConfState> {
    let mut confs = vec![state.conf.clone()];
    for entry in state.entries.iter().filter(|entry| entry.index > state.snapshot_index) {
        let changes = match entry.entry_type {
            EntryType::EntryNormal => None,
            _ => decode_changes(&entry.context),
        };
        let Some(changes) = changes else {
            continue;
        };
        let next = conf_after(confs.last().expect("there is one to begin with"), &changes);
        if entry.index <= state.hard_state.commit {
            confs.clear();
        }
        confs.push(next);
    }
    confs
}

/// Rewrites the log of the one member that continues. Offline: the node must not run. Blocks.
///
/// All other members must be started with empty directories, under new ids, and added again; those that live may
/// follow the recovered epoch instead ([`follow_recovered`]).
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
    let mut state = Store::read(dir, group, id)
        .map_err(RecoveryError::Store)?
        .ok_or(RecoveryError::NoLog)?;
    let prospect = prospect_of(&state, id)?;
    let recovery = Recovery {
        epoch: Epoch {
            number: prospect.epoch.number + 1,
            nonce: runtime::random_u64().max(1),
        },
        at_us: runtime::wall_clock_us(),
        lost: prospect.lost,
    };
    state.epoch = Some(recovery.epoch);
    state.recovery = Some(recovery.clone());
    state.conf = ConfState {
        voters: vec![id],
        ..ConfState::default()
    };
    for entry in &mut state.entries {
        // Membership changes that the old majority asked for do not take effect.
        if entry.entry_type != EntryType::EntryNormal {
            entry.entry_type = EntryType::EntryNormal;
            entry.context.clear();
            entry.data.clear();
        }
    }
    state.hard_state.commit = prospect.last;
    state.hard_state.term += 1;
    state.hard_state.vote = 0;
    Store::create(dir, group, id, &state).map_err(RecoveryError::Store)?;
    Ok(recovery)
}

/// Makes a member whose majority is lost an empty one of the epoch that another survivor has begun, under its old id:
/// what it had promised was promised to an epoch that is over. What it had of the log is forgotten; the survivor's is
/// what counts. Offline: the node must not run. Blocks.
///
/// # Errors
/// [`RecoveryError`]; nothing was changed then.
pub fn follow_recovered(dir: &Path, group: u64, id: u64, epoch: Epoch) -> Result<(), RecoveryError> {
    let state = Store::read(dir, group, id)
        .map_err(RecoveryError::Store)?
        .ok_or(RecoveryError::NoLog)?;
    let own = state.epoch.ok_or(RecoveryError::NeverJoined)?;
    if epoch.number <= own.number {
        return Err(RecoveryError::NotLater { own, followed: epoch });
    }
    let empty = Recovered {
        epoch: Some(epoch),
        incarnation: state.incarnation,
        runs: state.runs,
        ..Recovered::default()
    };
    Store::create(dir, group, id, &empty).map_err(RecoveryError::Store)?;
    Ok(())
}

/// What a caller may know of a member before it is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outlook {
    /// The random names of its last starts, the latest last.
    pub runs: Vec<u64>,
    /// All that may have a vote, this member too if it may.
    pub voters: Vec<u64>,
}

/// Looks into the file of a member that does not run; None when there is no file. Blocks.
///
/// # Errors
/// [`StoreError`].
pub fn look(dir: &Path, group: u64, id: u64) -> Result<Option<Outlook>, StoreError> {
    let state = Store::read(dir, group, id)?;
    Ok(state.map(|state| {
        let confs = possible_confs(&state);
        let voters = confs
            .iter()
            .flat_map(|conf| conf.voters.iter().chain(&conf.voters_outgoing));
        let voters: BTreeSet<u64> = voters.copied().collect();
        Outlook {
            voters: voters.into_iter().collect(),
            runs: state.runs,
        }
    }))
}
