//! The log in memory, as the library reads it. Everything in it is durable: the driver puts entries here after the
//! store has them.
//!
//! Metadata changes are few and compaction bounds their log, so all entries between the compacted index and the last
//! one are kept here. A snapshot is not: it is made from the state machine when a member needs one (`wanted`), and
//! forgotten soon after it was sent.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Storage, StorageError};
use std::cell::Cell;

pub(crate) struct EntryLog {
    hard_state: HardState,
    /// At start; later the library knows better.
    conf: ConfState,
    /// The last entry that was compacted away.
    truncated_index: u64,
    truncated_term: u64,
    entries: Vec<Entry>,
    offered: Option<Snapshot>,
    /// The library asked for a snapshot that is not there.
    wanted: Cell<bool>,
}

impl EntryLog {
    pub(crate) fn new(hard_state: HardState, conf: ConfState, truncated: (u64, u64), entries: Vec<Entry>) -> Self {
        Self {
            hard_state,
            conf,
            truncated_index: truncated.0,
            truncated_term: truncated.1,
            entries,
            offered: None,
            wanted: Cell::new(false),
        }
    }

    fn last(&self) -> u64 {
        self.truncated_index + self.entries.len() as u64
    }

    fn position(&self, index: u64) -> usize {
        usize::try_from(index - self.truncated_index - 1).expect("the log fits in memory")
    }

    /// Takes entries over, replacing those from the first one's index on.
    pub(crate) fn append(&mut self, entries: &[Entry]) {
        let Some(first) = entries.first() else {
            return;
        };
        assert!(
            first.index > self.truncated_index && first.index <= self.last() + 1,
            "entry {} follows a log of {} to {}",
            first.index,
            self.truncated_index + 1,
            self.last()
        );
        let keep = self.position(first.index);
        self.entries.truncate(keep);
        self.entries.extend_from_slice(entries);
    }

    /// Drops all entries: everything up to `index` is in a snapshot.
    pub(crate) fn reset_to(&mut self, index: u64, term: u64) {
        self.truncated_index = index;
        self.truncated_term = term;
        self.entries.clear();
        self.offered = None;
    }

    /// Forgets entries up to an index that are in a durable snapshot.
    pub(crate) fn compact(&mut self, index: u64) {
        if index <= self.truncated_index || index > self.last() {
            return;
        }
        let count = self.position(index) + 1;
        self.truncated_term = self.entries[count - 1].term;
        self.truncated_index = index;
        self.entries.drain(..count);
    }

    pub(crate) fn truncated(&self) -> (u64, u64) {
        (self.truncated_index, self.truncated_term)
    }

    /// Entries after an index.
    pub(crate) fn after(&self, index: u64) -> &[Entry] {
        if index >= self.last() {
            return &[];
        }
        &self.entries[self.position(index.max(self.truncated_index) + 1)..]
    }

    /// Whether a snapshot was asked for since the last call.
    pub(crate) fn take_wanted(&self) -> bool {
        self.wanted.replace(false)
    }

    pub(crate) fn offer(&mut self, snapshot: Option<Snapshot>) {
        self.offered = snapshot;
    }
}

impl Storage for EntryLog {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.hard_state.clone(), self.conf.clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _context: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.truncated_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 || low > high {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let found = &self.entries[self.position(low)..self.position(high)];
        let limit = max_size.into().unwrap_or(u64::MAX);
        let mut bytes = 0;
        let fitting = found
            .iter()
            .take_while(|entry| {
                bytes += (entry.data.len() + entry.context.len() + 32) as u64;
                bytes <= limit
            })
            .count();
        Ok(found[..fitting.max(1).min(found.len())].to_vec())
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        if index == self.truncated_index {
            return Ok(self.truncated_term);
        }
        if index < self.truncated_index {
            return Err(Error::Store(StorageError::Compacted));
        }
        match self.entries.get(self.position(index)) {
            Some(entry) => Ok(entry.term),
            None => Err(Error::Store(StorageError::Unavailable)),
        }
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.truncated_index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        match &self.offered {
            // One that is older than the log would send its receiver back here.
            Some(snapshot) if snapshot.get_metadata().index >= request_index.max(self.truncated_index) => {
                Ok(snapshot.clone())
            }
            _ => {
                self.wanted.set(true);
                Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable))
            }
        }
    }
}
