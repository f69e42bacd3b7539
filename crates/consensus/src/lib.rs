//! The metadata Raft group: one replicated log of commands that all nodes apply in the same order.
//!
//! Schema, topology and tablet maps change by commands of this group, so two nodes never disagree about them for longer
//! than a message takes. The protocol is the library `raft` (docs/decisions/0006-consensus-library.md); ours are its
//! storage, its bytes on the wire, and what makes it usable: proposals that are applied once, reads that have seen
//! everything, members, snapshots, recovery.
//!
//! - [`Consensus`] is the running member: one task on shard 0, which is the only one that touches file and group, and
//!   one that applies.
//! - `group` is the protocol as a value, without clock, file or socket.
//! - `check` refuses what a correct peer does not send.
//! - `store` is the member's file, with its format.
//! - `apply` decides which committed proposals are applied.
//! - [`choose_voters`] chooses the voters.
//! - [`recover_from_lost_majority`] is for the case that most voters are gone permanently; [`prospect`] reports
//!   beforehand what it would give up, and [`follow_recovered`] brings other survivors along.
//!
//! Invariants:
//! - No vote, acknowledgement or snapshot receipt is sent before what it promises is durable.
//! - The machine sees each command once, in the order of the log, on every member.
//! - An epoch that was given up never speaks to the epoch that continues.
//! - Same seed and same inputs give the same run; see `group` for how the library's own randomness is kept out.
//!
//! Cluster view: every node of the cluster is a member, at most [`VOTERS_MAX`] of them vote. Raft ids are the caller's;
//! an id is never used again for another node, nor for the same node after it lost its directory.

mod answer;
mod apply;
mod applying;
mod check;
mod codec;
mod config;
mod driver;
mod epoch;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod group;
mod handle;
mod log;
mod members;
mod message;
mod opening;
mod recovered;
mod recovery;
mod status;
mod store;

pub use codec::Malformed;
pub use config::{Options, Part, Start, StateMachine, Transport};
pub use epoch::{Epoch, InvalidEpoch};
pub use error::{MembershipError, ProposeError, ReadError, StartError};
pub use handle::Consensus;
pub use members::{Change, Member, VOTERS_MAX, changes_towards, choose_voters};
pub use recovered::Recovery;
pub use recovery::{
    Outlook, Prospect, RECOVERY_CONFIRMATION, RecoveryError, follow_recovered, look, prospect,
    recover_from_lost_majority,
};
pub use status::{Divergence, LostEntries, Status};
pub use store::StoreError;
