//! Copies of the same tokens from several other nodes.
//!
//! A range whose owner is lost is copied from as many of the other replicas as a write at QUORUM may have missed, and
//! each copy has nearly the same rows. Sstables of two copies are too few for the strategy, so they would take twice
//! the room for as long as the table has few writes. Instead they are merged on their own as soon as no older data of
//! the tablet is on its way any more. What the node forgets of this when it restarts, later compactions merge as usual.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use compaction::strategy::{Choice, Reason, SstableInfo};
use sstable::{Generation, Reader};

use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet};

/// The sstables of a tablet that came as copies of several nodes and have not been merged.
#[derive(Default)]
pub(crate) struct Copies(RefCell<Vec<Generation>>);

/// While one of these lives, what a table adopts counts as such copies.
#[must_use = "copies are noted as long as this lives"]
pub struct CopyingFromSeveral {
    shard: Rc<Shard>,
    store: Rc<TableStore>,
}

impl Drop for CopyingFromSeveral {
    fn drop(&mut self) {
        let calls = &self.store.copying_from_several;
        calls.set(calls.get() - 1);
        for tablet in self.store.tablets().iter() {
            if !tablet.copies.0.borrow().is_empty() {
                self.shard.compact_soon(&self.store, tablet);
            }
        }
    }
}

impl Shard {
    /// Begins to copy ranges of a table each of which comes from several nodes.
    pub fn copy_from_several(self: &Rc<Self>, store: &Rc<TableStore>) -> CopyingFromSeveral {
        let calls = &store.copying_from_several;
        calls.set(calls.get() + 1);
        CopyingFromSeveral {
            shard: self.clone(),
            store: store.clone(),
        }
    }
}

impl TableStore {
    /// Notes sstables that a tablet has adopted.
    pub(crate) fn note_adopted(&self, tablet: &Tablet, reader: &Reader) {
        if self.copying_from_several.get() > 0 {
            let mut copies = tablet.copies.0.borrow_mut();
            copies.push(reader.descriptor().generation.clone());
        }
    }

    /// The merge of copies that are complete.
    pub(crate) fn choose_copies(&self, tablet: &Tablet, infos: &[SstableInfo]) -> Option<Choice> {
        let is_on_its_way = self.copying_from_several.get() > 0 || self.awaits_data(tablet.range);
        if tablet.copies.0.borrow().is_empty() || is_on_its_way || self.cuts_ahead().is_some() {
            return None;
        }
        let inputs: Vec<u64> = tablet.with_version(|version| {
            let copies = tablet.copies.0.borrow();
            let is_copy = |reader: &Arc<Reader>| copies.contains(&reader.descriptor().generation);
            let numbered = version.sstables.iter().enumerate();
            let copied = numbered.filter(|(_, reader)| is_copy(reader)).map(|(i, _)| i as u64);
            copied
                .filter(|id| infos.iter().any(|info| info.id == *id && !info.is_repaired))
                .collect()
        });
        if inputs.len() < 2 {
            tablet.copies.0.borrow_mut().clear();
            return None;
        }
        Some(Choice {
            inputs,
            reason: Reason::Copies,
        })
    }

    /// Forgets copies that were merged.
    pub(crate) fn forget_copies(&self, tablet: &Tablet) {
        tablet.copies.0.borrow_mut().clear();
    }
}
