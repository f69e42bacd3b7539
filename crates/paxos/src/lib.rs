//! Agreement on the conditional statements of one partition: Paxos, without clock, chance, disk or network.
//!
//! Every replica of a partition is an *acceptor* ([`State`]). The coordinator that executes a conditional statement or
//! a serial read is its *leader* for a while. A leader takes a [`Ballot`] and asks the acceptors to *prepare*; those
//! that have promised no later ballot promise this one, and report what they know ([`Promise`]). The promises of a
//! quorum, a [`Round`], decide which step comes first:
//!
//! 1. a proposal that was accepted somewhere and that is not known to be chosen is *finished*: accepted again at this
//!    ballot, learned, and the leader begins again ([`Step::Finish`]);
//! 2. the last chosen proposal is brought to those of the quorum that have not learned it ([`Step::Teach`]);
//! 3. then the leader may read, decide, and have its own [`Proposal`] *accepted* ([`Step::Decide`]). What a quorum has
//!    accepted is *chosen*: permanently, whichever nodes fail. *Learn* applies it on the replicas.
//!
//! Invariants
//! - What an acceptor has accepted is durable before it says so. What it has promised is kept across a crash too: it is
//!   durable, or an acceptor that starts again promises at least as late a ballot.
//! - No acceptor promises two ballots of one timestamp. As two quorums share an acceptor, the timestamps of chosen
//!   proposals grow strictly in the order of their choice, and serve as write timestamps: the newer one's cells win.
//! - When a leader proposes, a quorum has learned every proposal chosen before. So a read of a quorum sees all of them,
//!   and an acceptor's state needs to hold only one proposal: it is replaced only when a quorum has it as data.
//! - A proposal that is finished by another leader keeps its `origin`, the ballot at which it was decided, and its
//!   bytes. It names the origins of those chosen before it, so a leader whose proposal was overtaken finds out what
//!   became of it ([`Leader::next`]), and does not execute its statement twice.

mod ballot;
mod codec;
#[doc(hidden)]
pub mod fuzz;
mod leader;
mod proposal;
mod round;
mod state;

pub use ballot::Ballot;
pub use codec::{BALLOT_BYTES, Malformed};
pub use leader::{Leader, Step};
pub use proposal::Proposal;
pub use round::Round;
use round::{Fate, Standing};
pub use state::{PAST_MAX, PAST_US, Promise, Refused, State};
