//! Reports about new members that arrive before this node's shards have taken over the version that adds them.
//!
//! The failure detector knows a member as soon as the metadata has it. Requests know it by the version of the cluster
//! that shards take over afterwards, which may have to wait, say for a flush. A report that arrives in between is kept
//! here, and passed to the shards when they have the version. Lives on shard 0.

use std::cell::RefCell;
use std::collections::BTreeMap;

use topology::{DiskLevel, HostId};

/// The last word of each kind about a node; `None` where nothing was heard.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Word {
    /// It answers.
    pub(crate) is_live: Option<bool>,
    /// Its log takes writes.
    pub(crate) takes_writes: Option<bool>,
    pub(crate) disk: Option<DiskLevel>,
}

/// Words about nodes that the shards do not know yet.
#[derive(Default)]
pub(crate) struct EarlyWords {
    words: RefCell<BTreeMap<HostId, Word>>,
}

impl EarlyWords {
    /// Notes a word about a node in place of an earlier one of its kind.
    pub(crate) fn note(&self, host: HostId, change: impl FnOnce(&mut Word)) {
        change(self.words.borrow_mut().entry(host).or_default());
    }

    /// All words, which are forgotten. To be called when a version has been taken over: it has every node that was
    /// heard of, except those that have left.
    pub(crate) fn take(&self) -> BTreeMap<HostId, Word> {
        self.words.take()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.words.borrow().is_empty()
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn the_last_word_of_each_kind_is_told_once() {
        let (words, host, other) = (
            EarlyWords::default(),
            HostId(Uuid::from_u128(1)),
            HostId(Uuid::from_u128(2)),
        );
        assert!(words.is_empty());
        words.note(host, |word| word.is_live = Some(true));
        words.note(host, |word| word.disk = Some(DiskLevel::Critical));
        words.note(other, |word| word.takes_writes = Some(false));
        words.note(host, |word| word.is_live = Some(false));
        let told = words.take();
        let wanted = Word {
            is_live: Some(false),
            takes_writes: None,
            disk: Some(DiskLevel::Critical),
        };
        assert_eq!(told[&host], wanted);
        assert_eq!(told[&other].takes_writes, Some(false));
        assert_eq!(told.len(), 2);
        assert!(words.is_empty() && words.take().is_empty());
    }
}
