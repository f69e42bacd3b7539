//! Tablets that are cut otherwise on one shard: a split, a merge, a step of a table from the token ring to tablets or
//! back.
//!
//! Where no token goes to another shard, nothing has to become a file first: in the step in which the shard takes the
//! new map over, the tablets that arrive have the memtables and the sstables of those that leave, and no request waits.
//! What they have in memory they flush afterwards. A tablet on the token ring is the shard's whole part of it, and its
//! pieces are those that the node has a copy of: there may be gaps between them, in which nothing is.
//!
//! Invariants
//! - An sstable is of one tablet. Where one has tokens of several that arrive, the tablets leave as those do that go to
//!   another shard (`reconcile.rs`).
//! - A memtable may be of several tablets after that. Each flushes the tokens of its own range ([`Frozen::range`]), and
//!   its memory is free when all have.
//! - A tablet reports to the log only those tokens whose writes it has in sstables: memtables of two tablets that it
//!   succeeds were frozen at one position of the log, and the note of one must not cover the writes of the other.
//! - A tablet that is succeeded flushes nothing, compacts nothing, and takes no write. Readers that hold it read it as
//!   it was.
//!
//! The log of the shard has all of it, by token: after a crash the start gives it to whatever tablets there are.

use std::rc::Rc;

use commitlog::LogError;
use memtable::Memtable;
use runtime::StopPoint;

use crate::flush::{discard_of, partitions_in};
use crate::shard::Shard;
use crate::tablets::reconcile::is_wanted;
use crate::tablets::tablet::{Frozen, TableStore, Tablet, TokenRange, Version};

/// Whether any token is of another shard afterwards than before; the ranges of each shard, before and afterwards, are
/// in token order and disjoint.
#[must_use]
pub fn changes_shards(before: &[Vec<TokenRange>], after: &[Vec<TokenRange>]) -> bool {
    let by_token = |ranges: &[Vec<TokenRange>]| {
        let of_shards = ranges.iter().enumerate();
        let mut all: Vec<(usize, TokenRange)> = of_shards
            .flat_map(|(shard, ranges)| ranges.iter().map(move |range| (shard, *range)))
            .collect();
        all.sort_by_key(|(_, range)| range.to);
        all
    };
    let (before, after) = (by_token(before), by_token(after));
    after.iter().any(|(shard, range)| {
        let first = before.partition_point(|(_, former)| former.to <= range.after);
        let here = before[first..].iter().take_while(|(_, former)| former.after < range.to);
        here.into_iter().any(|(former, _)| former != shard)
    })
}

/// The tokens of a range that none of others has, which are in token order and disjoint.
fn gaps(range: TokenRange, others: &[TokenRange]) -> Vec<TokenRange> {
    let (mut gaps, mut after) = (Vec::new(), range.after);
    let behind = TokenRange {
        after: range.to,
        to: range.to,
    };
    let here = others.iter().filter(|other| other.intersects(range));
    for other in here.chain(std::iter::once(&behind)) {
        if other.after > after {
            gaps.push(TokenRange { after, to: other.after });
        }
        after = after.max(other.to);
    }
    gaps
}

impl TokenRange {
    /// The tokens that are in both.
    fn common(self, other: Self) -> Self {
        Self {
            after: self.after.max(other.after),
            to: self.to.min(other.to),
        }
    }
}

impl Tablet {
    /// Whether tablets of these ranges can have what this one has, file by file, and it has nothing in the gaps between
    /// them. Its turns are kept, so that nothing of it is written or replaced until they are released.
    fn can_be_succeeded(&self, by: &[TokenRange], gaps: &[TokenRange]) -> bool {
        let is_still = self.leave.borrow().is_some() && self.kept_in_memory.borrow().is_some();
        let has_no_quarantine = self.quarantine_turn.available() > 0;
        let is_of_one = |reader: &std::sync::Arc<sstable::Reader>| {
            let (first, last) = reader.tokens();
            by.iter().any(|range| range.contains(first) && range.contains(last))
        };
        let is_of_nobody = |memtable: &Memtable| {
            let mut gaps = gaps.iter();
            gaps.any(|gap| partitions_in(memtable, *gap).next().is_some())
        };
        let is_succeeded_whole = |version: &Version| {
            let mut frozen = version.frozen.iter();
            version.sstables.iter().all(is_of_one)
                && !is_of_nobody(&version.active.borrow())
                && !frozen.any(|frozen| is_of_nobody(&frozen.memtable))
        };
        let is_gone = by.iter().all(|range| !range.intersects(self.range));
        is_still && has_no_quarantine && !is_gone && self.with_version(is_succeeded_whole)
    }

    /// What a tablet of this range gets of what this one had in memory.
    fn frozen_for(&self, range: TokenRange) -> Vec<Frozen> {
        let version = self.version();
        let parts = version.frozen.iter().map(|frozen| Frozen {
            range: frozen.range.common(range),
            ..frozen.clone()
        });
        let parts = parts.filter(|part| part.range.after < part.range.to);
        parts
            .filter(|part| partitions_in(&part.memtable, part.range).next().is_some())
            .collect()
    }
}

impl Shard {
    /// Waits until no flush of the tablets of a table runs that are about to leave.
    pub async fn flushes_end(&self, store: &TableStore, wanted: &[TokenRange]) {
        let tablets = store.tablets();
        for tablet in tablets.iter().filter(|tablet| !is_wanted(wanted, tablet.range)) {
            drop(tablet.flush_turn.acquire(1).await);
        }
    }

    /// Keeps the tablets of a table in memory as they are that are about to leave, beside what is written to them: the
    /// last step before [`Shard::reconcile`], which must follow.
    pub async fn keep_in_memory(&self, store: &TableStore, wanted: &[TokenRange]) {
        let tablets = store.tablets();
        for tablet in tablets.iter().filter(|tablet| !is_wanted(wanted, tablet.range)) {
            if tablet.kept_in_memory.borrow().is_none() {
                let turn = tablet.flush_turn.acquire(1).await;
                *tablet.kept_in_memory.borrow_mut() = Some(turn);
            }
        }
    }

    /// The tablets of the ranges that arrive, with all that those had that leave; None where it must go another way.
    /// Both in token order.
    pub(crate) fn succeed(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        leaving: &[Rc<Tablet>],
        arriving: &[TokenRange],
    ) -> Option<Vec<Rc<Tablet>>> {
        let gaps: Vec<Vec<TokenRange>> = leaving.iter().map(|tablet| gaps(tablet.range, arriving)).collect();
        let can_be = leaving.iter().zip(&gaps);
        if !can_be
            .clone()
            .all(|(tablet, gaps)| tablet.can_be_succeeded(arriving, gaps))
        {
            return None;
        }
        // What the log has of tokens that no tablet here has any more is in no memtable.
        if self.discard_gaps(store, gaps.iter().flatten().copied()).is_err() {
            return None;
        }
        leaving.iter().for_each(|tablet| self.freeze(store, tablet));
        let heirs: Vec<Rc<Tablet>> = arriving.iter().map(|range| self.heir(store, *range, leaving)).collect();
        for tablet in leaving {
            tablet.with_version(|version| version.frozen.iter().map(Frozen::let_go).for_each(drop));
            tablet.is_succeeded.set(true);
            tablet.has_left.set(true);
            tablet.kept_in_memory.take();
            tablet.leave.take();
        }
        Some(heirs)
    }

    /// Notes that what the log has of these tokens must not come back. [`Shard::flush_inherited`] syncs it.
    fn discard_gaps(&self, store: &TableStore, gaps: impl Iterator<Item = TokenRange>) -> Result<(), LogError> {
        let (table, position, mark) = (store.table(), self.log.end(), self.log.mark());
        let mut has_some = false;
        for gap in gaps {
            has_some = true;
            let logged = self.log.append_discard(&discard_of(&table, gap, position))?;
            logged.is_covered_by(mark);
        }
        if has_some {
            self.log.commit_since(mark).map(drop)
        } else {
            Ok(())
        }
    }

    fn heir(&self, store: &TableStore, range: TokenRange, leaving: &[Rc<Tablet>]) -> Rc<Tablet> {
        let first = leaving.partition_point(|tablet| tablet.range.to <= range.after);
        let of = leaving[first..]
            .iter()
            .take_while(|tablet| tablet.range.after < range.to);
        let versions: Vec<_> = of.clone().map(|tablet| tablet.version()).collect();
        let sstables: Vec<_> = versions.iter().flat_map(|version| version.sstables.clone()).collect();
        let missing: Vec<_> = versions.iter().flat_map(|version| version.missing.to_vec()).collect();
        let heir = self.new_tablet(&store.table(), range, &sstables);
        heir.set_missing(&missing, None);
        let frozen: Vec<Frozen> = of.flat_map(|tablet| tablet.frozen_for(range)).collect();
        for part in &frozen {
            part.sharers.set(part.sharers.get() + 1);
        }
        heir.update(|version| version.frozen = frozen);
        heir
    }

    /// Has tablets flush what they have of others.
    pub(crate) fn flush_inherited(self: &Rc<Self>, store: &Rc<TableStore>, heirs: Vec<Rc<Tablet>>) {
        let (shard, store) = (self.clone(), store.clone());
        let flush = async move {
            runtime::stop_point(StopPoint::TabletsCut);
            if shard.log.sync().await.is_err() {
                let table = store.table();
                log::warn!(
                    "{}.{} is cut otherwise before the log is synced",
                    table.keyspace,
                    table.name
                );
            }
            for heir in &heirs {
                shard.flush_until_done(&store, heir).await;
                shard.compact_soon(&store, heir);
            }
        };
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, flush));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_is_of_another_shard_afterwards_is_found() {
        let whole = [vec![TokenRange::of(i64::MIN, 0)], vec![TokenRange::of(0, i64::MAX)]];
        let pieces = [
            vec![TokenRange::of(-9, -5), TokenRange::of(-2, 0)],
            vec![TokenRange::of(3, 4)],
        ];
        assert!(!changes_shards(&whole, &pieces) && !changes_shards(&pieces, &whole));
        assert!(!changes_shards(&pieces, &[vec![TokenRange::of(-9, 0)], vec![]]));
        // Between them are tokens that the node did not have.
        assert!(!changes_shards(
            &pieces,
            &[vec![TokenRange::of(-9, -5)], vec![TokenRange::of(-5, -2)]]
        ));
        assert!(changes_shards(
            &pieces,
            &[vec![TokenRange::of(-9, -3)], vec![TokenRange::of(-3, 0)]]
        ));
        assert!(changes_shards(&pieces, &[vec![TokenRange::of(-9, 4)], vec![]]));
        assert!(!changes_shards(&[vec![], vec![]], &whole));
    }

    #[test]
    fn gaps_are_what_no_other_range_has() {
        let parts = [
            TokenRange::of(i64::MIN, -5),
            TokenRange::of(0, 7),
            TokenRange::of(9, 12),
        ];
        assert_eq!(
            gaps(TokenRange::of(i64::MIN, i64::MAX), &parts),
            [
                TokenRange::of(-5, 0),
                TokenRange::of(7, 9),
                TokenRange::of(12, i64::MAX)
            ]
        );
        assert_eq!(gaps(TokenRange::of(-7, 3), &parts), [TokenRange::of(-5, 0)]);
        assert_eq!(gaps(TokenRange::of(1, 7), &parts), []);
        assert_eq!(gaps(TokenRange::of(7, 8), &parts), [TokenRange::of(7, 8)]);
        assert_eq!(gaps(TokenRange::of(3, 4), &[]), [TokenRange::of(3, 4)]);
    }
}
