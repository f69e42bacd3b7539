//! What a peer may say: every message is checked here before the library sees it.
//!
//! The library trusts its peers. It panics on numbers that no correct member sends, takes a message of term 0 for one
//! of its own, and forwards what it does not handle. A panic ends the process, so nothing that can cause one gets
//! through. `docs/dev/consensus.md` lists, type by type, what the library assumes and which rule here keeps it.
//!
//! The rules are of three kinds: *form* (a field that this type does not use is empty), *range* (a term or an index
//! within what a group can reach) and *fit* (the message agrees with what this member knows: its log, its leader, its
//! configuration). A message that breaks a rule is dropped and the member that sent it is named in the log. The
//! receiver keeps running.
//!
//! What stays possible for a peer that holds a member's identity is to send false messages within these rules: to vote
//! twice, or to append entries that no majority has. Raft does not protect from that. The identity of peers is the
//! transport's promise.

use crate::apply::{Applied, PROPOSAL_HEADER_BYTES, decode_proposal};
use crate::config::{COMMAND_BYTES_MAX, StateMachine};
use crate::group::{CHANGES_MAX, Refused, decode_changes};
use crate::log::EntryLog;
use crate::members::VOTERS_MAX;
use crate::status::{Divergence, LostEntries};
use raft::eraftpb::{Entry, EntryType, Message, MessageType};
use raft::{Raft, StateRole};
use stdx::bytes::Reader;
use stdx::planted::{self, Bug};

/// How far one message may lift this member's term. An election takes a second at least, so this is half a year of
/// nothing but elections while this member was away. A peer that wants to use up the terms needs 2^37 messages, each of
/// which is synced before the next is taken.
pub(crate) const TERM_LIFT_MAX: u64 = 1 << 24;
/// No term is above this, not even the first that a new member hears of. The codec takes twice as much, so a candidate
/// of the last term is still read.
pub(crate) const TERM_MAX: u64 = 1 << 61;
/// No index is above this: at ten thousand changes a second a log takes nine hundred years to reach it.
pub(crate) const INDEX_MAX: u64 = 1 << 48;
/// How many recoveries from a lost majority a member may have missed.
pub(crate) const EPOCH_LIFT_MAX: u64 = 1 << 16;
/// The first epoch that a new member hears of is not above this.
pub(crate) const EPOCH_MAX: u64 = 1 << 32;
/// Bytes of data and context of one entry: a command, its header, and a change of [`CHANGES_MAX`] members.
pub(crate) const ENTRY_BYTES_MAX: usize = COMMAND_BYTES_MAX + PROPOSAL_HEADER_BYTES + CHANGES_MAX * 9;
/// Bytes of the context of a message: the name of a read, or the word of a candidate that was asked to lead.
const CONTEXT_BYTES_MAX: usize = 32;
/// Bytes of the name of a read: member, incarnation, number.
const READ_NAME_BYTES: usize = 24;
/// Reads that wait for a majority to confirm this leader.
const READS_PENDING_MAX: usize = 4096;

fn impossible(what: &'static str) -> Result<(), Refused> {
    Err(Refused::Impossible { what })
}

fn unless(is_possible: bool, what: &'static str) -> Result<(), Refused> {
    if is_possible { Ok(()) } else { impossible(what) }
}

/// Refuses what a correct member does not send in this member's situation.
pub(crate) fn check(message: &Message, raft: &Raft<EntryLog>, machine: &dyn StateMachine) -> Result<(), Refused> {
    if planted::is_planted(Bug::UncheckedPeer) {
        return Ok(());
    }
    check_form(message)?;
    check_term(message, raft)?;
    check_range(message)?;
    match message.msg_type {
        MessageType::MsgPropose => check_proposal(message, raft, machine),
        MessageType::MsgReadIndex => check_read(message, raft),
        MessageType::MsgReadIndexResp => check_read_answer(message, raft),
        MessageType::MsgAppend => {
            check_leader(message, raft)?;
            check_append(message, raft, machine)
        }
        MessageType::MsgHeartbeat => {
            check_leader(message, raft)?;
            check_heartbeat(message, raft)
        }
        MessageType::MsgSnapshot => {
            check_leader(message, raft)?;
            check_snapshot(message, raft, machine)
        }
        MessageType::MsgAppendResponse => check_acknowledgement(message, raft),
        MessageType::MsgHeartbeatResponse => Ok(()),
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => check_candidate(message),
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => check_commit_of_voter(message),
        MessageType::MsgTimeoutNow => check_hand_over(message, raft),
        _ => impossible("a type that does not travel"),
    }
}

/// Whether the library takes this message for granted only when all of the log is durable: a vote that is counted may
/// make this member the leader, and the library asserts that a new leader has nothing unsynced.
pub(crate) fn needs_durable_log(message: &Message) -> bool {
    matches!(
        message.msg_type,
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse | MessageType::MsgTimeoutNow
    )
}

/// Whether an election of this member would find its log: between the receipt of a snapshot and its restoration the
/// entries to look at are gone.
pub(crate) fn can_campaign(raft: &Raft<EntryLog>) -> bool {
    let log = &raft.raft_log;
    log.persisted == log.last_index() && log.applied + 1 >= log.first_index()
}

fn check_form(message: &Message) -> Result<(), Refused> {
    let has_entries = match message.msg_type {
        MessageType::MsgPropose | MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => {
            message.entries.len() == 1
        }
        MessageType::MsgAppend => true,
        _ => message.entries.is_empty(),
    };
    unless(has_entries, "another number of entries than its type has")?;
    let has_snapshot = !message.get_snapshot().is_empty();
    unless(
        has_snapshot == (message.msg_type == MessageType::MsgSnapshot),
        "a snapshot where its type has none, or none where it has one",
    )?;
    unless(
        message.request_snapshot == 0,
        "a request for a snapshot, which no release sends",
    )?;
    unless(
        message.context.len() <= CONTEXT_BYTES_MAX,
        "a context that is longer than any that is sent",
    )?;
    let is_small = |entry: &Entry| entry.data.len() + entry.context.len() <= ENTRY_BYTES_MAX;
    unless(
        message.get_entries().iter().all(is_small),
        "an entry that is larger than a command may be",
    )
}

/// A message of term 0 is one of the library's own, and it takes only forwarded proposals and reads without a term.
fn check_term(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    match message.msg_type {
        MessageType::MsgPropose | MessageType::MsgReadIndex => unless(message.term == 0, "a term where none is sent"),
        _ => {
            unless(message.term != 0, "no term")?;
            unless(message.term <= TERM_MAX, "a term that no group reaches")?;
            // A new member has no term to compare with.
            unless(
                raft.term == 0 || message.term <= raft.term.saturating_add(TERM_LIFT_MAX),
                "a term that is too far above this member's",
            )
        }
    }
}

fn check_range(message: &Message) -> Result<(), Refused> {
    let indexes = [
        message.index,
        message.commit,
        message.reject_hint,
        message.get_snapshot().get_metadata().index,
    ];
    unless(
        indexes.iter().all(|index| *index <= INDEX_MAX),
        "an index that no log reaches",
    )?;
    unless(
        message.commit_term <= message.term,
        "a commit of a later term than its own",
    )
}

/// A term has one leader.
fn check_leader(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    let is_of_this_term = message.term == raft.term;
    unless(
        !is_of_this_term || raft.leader_id == 0 || raft.leader_id == message.from,
        "the word of a leader, in a term that another one leads",
    )
}

/// The term of an entry of this member's log, unless it is compacted or not there.
pub(crate) fn term_at(raft: &Raft<EntryLog>, index: u64) -> Option<u64> {
    raft.raft_log.term(index).ok().filter(|term| *term != 0)
}

/// The term of a committed entry of this member if the sender has another term for it. A leader has all that is
/// committed: if its log differs there, it or its voters lost what they had promised. The library would panic, or
/// append after a history that the entries do not follow.
fn contradicts_committed(raft: &Raft<EntryLog>, index: u64, term: u64) -> Option<u64> {
    let is_committed = index <= raft.raft_log.committed;
    term_at(raft, index).filter(|known| is_committed && *known != term)
}

fn check_append(message: &Message, raft: &Raft<EntryLog>, machine: &dyn StateMachine) -> Result<(), Refused> {
    // An index beyond the log has term 0 for the library, and would match.
    unless(
        (message.index == 0) == (message.log_term == 0),
        "an entry without a term before those it brings",
    )?;
    let mut last = message.log_term;
    for entry in message.get_entries() {
        unless(
            entry.term >= last && entry.term <= message.term,
            "entries whose terms go back or are above its own",
        )?;
        last = entry.term;
    }
    unless(
        last <= message.term,
        "an entry of a later term than its own before those it brings",
    )?;
    if message.term >= raft.term {
        let entries = message.get_entries().iter().map(|entry| (entry.index, entry.term));
        for (index, term) in std::iter::once((message.index, message.log_term)).chain(entries) {
            if let Some(own) = contradicts_committed(raft, index, term) {
                // Only the leader's word counts: its first message of a term makes it known.
                unless(
                    raft.leader_id == message.from && raft.term == message.term,
                    "other entries than those that are committed here",
                )?;
                return Err(Refused::Diverged(Divergence {
                    leader: message.from,
                    index,
                    term: own,
                    leader_term: term,
                }));
            }
        }
    }
    message
        .get_entries()
        .iter()
        .try_for_each(|entry| check_entry(entry, machine))
}

/// What the machine would have to apply, it must be able to read.
fn check_entry(entry: &Entry, machine: &dyn StateMachine) -> Result<(), Refused> {
    if entry.entry_type != EntryType::EntryNormal {
        return Ok(());
    }
    match decode_proposal(&entry.data) {
        Some((_, _, command)) => machine
            .check_command(command)
            .map_err(|why| Refused::Unreadable { what: "command", why }),
        None => Ok(()),
    }
}

fn check_heartbeat(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    let last = raft.raft_log.last_index();
    if message.term >= raft.term && message.commit > last {
        return Err(Refused::LostEntries(LostEntries {
            promised: message.commit,
            last,
            leader: message.from,
        }));
    }
    Ok(())
}

fn check_snapshot(message: &Message, raft: &Raft<EntryLog>, machine: &dyn StateMachine) -> Result<(), Refused> {
    let snapshot = message.get_snapshot();
    let metadata = snapshot.get_metadata();
    unless(metadata.term <= message.term, "a snapshot of a later term than its own")?;
    let conf = metadata.get_conf_state();
    unless(
        conf.voters.len() <= VOTERS_MAX && conf.voters_outgoing.len() <= VOTERS_MAX,
        "a snapshot with more voters than a group has",
    )?;
    if message.term < raft.term || metadata.index < raft.raft_log.committed {
        // It is not taken, so it need not be read.
        return Ok(());
    }
    unless(
        contradicts_committed(raft, metadata.index, metadata.term).is_none(),
        "a snapshot of another log than the one that is committed here",
    )?;
    let (_, state) = Applied::decode(&snapshot.data).map_err(Refused::Malformed)?;
    machine
        .check_snapshot(metadata.index, state)
        .map_err(|why| Refused::Unreadable { what: "snapshot", why })
}

fn check_acknowledgement(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    let is_heard = raft.state == StateRole::Leader && message.term == raft.term;
    let last = raft.raft_log.last_index();
    unless(
        !is_heard || message.reject || message.index <= last,
        "an acknowledgement of an entry that is not there",
    )
}

fn check_candidate(message: &Message) -> Result<(), Refused> {
    unless(
        (message.index == 0) == (message.log_term == 0),
        "a last entry without a term",
    )?;
    unless(
        message.log_term < message.term,
        "a last entry of the term for which it is a candidate",
    )?;
    unless(message.commit <= message.index, "a commit beyond its log")?;
    check_commit_of_voter(message)
}

/// A member that lags takes the commit index of a candidate, or of a member that refuses it a vote.
fn check_commit_of_voter(message: &Message) -> Result<(), Refused> {
    unless(
        (message.commit == 0) == (message.commit_term == 0),
        "a commit without a term",
    )
}

/// Only the leader of this term hands the leadership over, and it knows that this member has its whole log.
fn check_hand_over(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    if message.term < raft.term {
        return Ok(());
    }
    unless(
        message.term == raft.term && message.from == raft.leader_id,
        "the office of a leader, from a member that does not lead",
    )
}

/// The name of a read begins with the member that asks: an answer under another name would reach no caller.
fn read_name_of(message: &Message) -> Option<u64> {
    let name = message.get_entries().first()?;
    let mut reader = Reader::new(&name.data);
    (name.data.len() == READ_NAME_BYTES).then(|| reader.get_u64().ok())?
}

fn check_read(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    unless(
        read_name_of(message) == Some(message.from),
        "a read that is not its own",
    )?;
    unless(
        raft.state != StateRole::Leader || raft.pending_read_count() < READS_PENDING_MAX,
        "a read where too many wait",
    )
}

fn check_read_answer(message: &Message, raft: &Raft<EntryLog>) -> Result<(), Refused> {
    unless(
        read_name_of(message) == Some(raft.id),
        "the answer to a read of another member",
    )?;
    unless(
        message.term != raft.term || raft.leader_id == 0 || raft.leader_id == message.from,
        "the answer to a read, in a term that another one leads",
    )
}

fn check_proposal(message: &Message, raft: &Raft<EntryLog>, machine: &dyn StateMachine) -> Result<(), Refused> {
    let entry = &message.get_entries()[0];
    unless(!entry.data.is_empty(), "an empty proposal")?;
    if entry.entry_type != EntryType::EntryNormal {
        let changes = decode_changes(&entry.context);
        unless(
            changes.is_some_and(|changes| !changes.is_empty()),
            "a change of members that cannot be read",
        )?;
        let is_voter = raft.prs().conf().voters().contains(message.from);
        return unless(is_voter, "a change of members from one that has no vote");
    }
    let Some((id, _, command)) = decode_proposal(&entry.data) else {
        return impossible("a proposal without a proposer");
    };
    unless(id.proposer == message.from, "a proposal in the name of another member")?;
    unless(
        command.len() <= COMMAND_BYTES_MAX && entry.context.is_empty(),
        "a command that is larger than commands may be",
    )?;
    machine
        .check_command(command)
        .map_err(|why| Refused::Unreadable { what: "command", why })
}
