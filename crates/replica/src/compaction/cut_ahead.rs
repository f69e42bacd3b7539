//! Sstables that are cut before their tablet is split.
//!
//! A split rewrites each sstable that has tokens of both halves. A node that did all of that when it takes the new map
//! over would take no other change of the metadata for as long: hours, for a large table. So the leader says what it is
//! about to split, each node cuts its sstables one after the other, as compactions with their bandwidth, and the table
//! is split when little is left.
//!
//! Invariants
//! - While a table is cut ahead, a compaction merges only sstables of one half: it would undo the cut otherwise.
//! - An sstable and its parts have the same content. A crash between the two leaves both, which reads the same.
//! - Nothing of it is durable: a node that restarts does not know of the split until the leader announces it again, and
//!   what was cut stays cut.

use std::rc::Rc;
use std::sync::Arc;

use compaction::strategy::SstableInfo;
use sstable::Reader;

use crate::compaction::{Failure, rewrite};
use crate::kinds;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};

impl TableStore {
    /// Bytes of the sstables here that are still to be cut.
    pub fn uncut_bytes(&self) -> u64 {
        let Some(cuts) = self.cuts_ahead() else { return 0 };
        let of_tablet = |tablet: &Rc<Tablet>| -> u64 {
            tablet.with_version(|version| {
                let uncut = version.sstables.iter().filter(|reader| is_uncut(reader, &cuts));
                uncut.map(|reader| reader.meta().disk_len).sum()
            })
        };
        self.tablets().iter().map(of_tablet).sum()
    }
}

impl Shard {
    /// Cuts a table's sstables by these ranges, beside compactions; None lets compactions merge them as they like. Each
    /// of the ranges is a part of one tablet.
    pub fn cut_ahead(self: &Rc<Self>, store: &Rc<TableStore>, cuts: Option<Arc<[TokenRange]>>) {
        if store.cuts_ahead() != cuts {
            store.set_cuts_ahead(cuts.clone());
        } else if cuts.is_none() {
            return;
        }
        for tablet in store.tablets().iter() {
            self.compact_soon(store, tablet);
        }
    }

    /// Cuts one sstable of a tablet that is to be cut, in the tablet's turn. Whether there was one.
    pub(crate) async fn cut_next(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
    ) -> Result<bool, Failure> {
        let Some(cuts) = store.cuts_ahead() else {
            return Ok(false);
        };
        if store.dropped.get() || tablet.is_leaving() {
            return Ok(false);
        }
        let uncut =
            tablet.with_version(|version| version.sstables.iter().find(|reader| is_uncut(reader, &cuts)).cloned());
        let Some(whole) = uncut else {
            return Ok(false);
        };
        let spec = kinds::of_tablet(&kinds::CUT_AHEAD, store, tablet, whole.meta().data_len);
        let task = self.options.tasks.start(spec, &tasks::Origin::Node);
        tablet.compaction.set(Some(task.id()));
        let result = self.cut_one(store, tablet, &whole, (&cuts, &task)).await;
        tablet.compaction.set(None);
        task.end(&result);
        result
    }

    async fn cut_one(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        whole: &Arc<Reader>,
        (cuts, task): (&[TokenRange], &tasks::Task),
    ) -> Result<bool, Failure> {
        let _reserved = self.reserve_bytes(store, whole.meta().disk_len)?;
        let epoch = tablet.epoch.get();
        let (table, dir, source) = (store.table(), store.dir.clone(), whole.clone());
        let (generations, host_id) = (self.options.generations.clone(), self.options.host_id);
        let ranges: Vec<TokenRange> = parts_of(whole, cuts).collect();
        let work = move |control| rewrite(&table, &source, &dir, &ranges, (&generations, host_id), &control);
        let parts = match task.run_job(work).await? {
            Ok(parts) => parts,
            Err(compaction::Error::Aborted) => return Err(Failure::Aborted),
            Err(e) => {
                if let compaction::Error::Sstable(e) = &e {
                    crate::read::note_damage(std::slice::from_ref(whole), e);
                }
                if whole.is_suspect() {
                    self.alarm.raise();
                }
                return Err(Failure::Failed(e.to_string()));
            }
        };
        let replaced = self.replace_sstables(store, tablet, epoch, (std::slice::from_ref(whole), &parts));
        Ok(replaced.await?)
    }
}

/// The sstables of each half of a tablet that is cut ahead: a compaction merges those of one.
pub(crate) fn halves(tablet: &Tablet, infos: &[SstableInfo], cuts: &[TokenRange]) -> Vec<Vec<SstableInfo>> {
    let version = tablet.version();
    let tokens = |info: &SstableInfo| {
        let at = usize::try_from(info.id).ok()?;
        version.sstables.get(at).map(|reader| reader.tokens())
    };
    let here = cuts.iter().filter(|cut| tablet.range.overlaps((cut.to, cut.to)));
    let half = |cut: &TokenRange| {
        let is_of =
            |info: &&SstableInfo| tokens(info).is_some_and(|(first, last)| cut.contains(first) && cut.contains(last));
        infos.iter().filter(is_of).cloned().collect()
    };
    here.map(half).collect()
}

fn is_uncut(reader: &Reader, cuts: &[TokenRange]) -> bool {
    !reader.is_suspect() && parts_of(reader, cuts).nth(1).is_some()
}

fn parts_of(reader: &Reader, cuts: &[TokenRange]) -> impl Iterator<Item = TokenRange> {
    let tokens = reader.tokens();
    let first = cuts.partition_point(|range| range.to < tokens.0);
    cuts[first..]
        .iter()
        .copied()
        .take_while(move |range| range.overlaps(tokens))
}
