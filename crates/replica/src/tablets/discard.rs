//! Removing what a shard has of token ranges that it is about to get from other nodes.
//!
//! A shard keeps its part of the token ring as one tablet. What it has of ranges that other nodes own is not read, and
//! nothing removes it. If the node then becomes an owner of such a range, that data could bring deleted rows back: the
//! tombstones may be gone everywhere. So the shard removes what it has of the range before it copies it from the
//! owners.

use std::rc::Rc;
use std::sync::Arc;

use commitlog::{Discard, ReplayPosition};
use sstable::Reader;
use stdx::planted::{self, Bug};
use tasks::Task;
use types::Token;

use crate::Shard;
use crate::compaction::rewrite;
use crate::kinds;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};

impl Shard {
    /// Removes everything that this shard has of token ranges of a table and that was written before the call, in
    /// memory, in sstables and in the log. Durable when it returns. What is written during the call may stay or be
    /// removed. `task` is what the work is a part of.
    ///
    /// # Errors
    /// A sentence, when the disk or the log refuses or the task is aborted. A part may be gone then; it does no harm to
    /// call it again.
    pub async fn discard_ranges(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        ranges: &[TokenRange],
        task: &Task,
    ) -> Result<(), String> {
        self.discard_ranges_while(store, ranges, task, &|| true).await.map(drop)
    }

    /// Discards ranges as [`Self::discard_ranges`] does, as long as `holds` returns true. `holds` is called for each
    /// tablet, once the tablet's compaction turn is taken. If it returns false, this returns false and the rest stays.
    /// Other tasks that discard or compact wait for that turn, so what holds then holds until the tablet is done.
    ///
    /// # Errors
    /// As those of [`Self::discard_ranges`].
    pub async fn discard_ranges_while(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        ranges: &[TokenRange],
        task: &Task,
        holds: &dyn Fn() -> bool,
    ) -> Result<bool, String> {
        if planted::is_planted(Bug::KeptFormerRange) {
            return Ok(true);
        }
        let tablets = store.tablets();
        for range in ranges {
            self.forget_records(store, *range).await?;
        }
        let concerned = |tablet: &&Rc<Tablet>| ranges.iter().any(|range| tablet.range.intersects(*range));
        for tablet in tablets.iter().filter(concerned) {
            let position = self.log.end();
            self.flush_for(store, tablet, &task.as_origin()).await?;
            let turn = tablet.compaction_turn.acquire(1).await;
            if !holds() {
                return Ok(false);
            }
            if tablet.has_left() {
                return Err("the boundaries of the tablets have changed".to_owned());
            }
            // One number for all of them: what is truncated after this is gone, whichever of them is rewritten then.
            let (epoch, all) = (tablet.epoch.get(), tablet.version().sstables.clone());
            for reader in &all {
                if ranges.iter().any(|range| range.overlaps(reader.tokens())) {
                    self.take_out(store, tablet, (reader, epoch), ranges, task).await?;
                }
            }
            self.forget_ranges_in_log(store, ranges, position).await?;
            drop(turn);
            self.compact_soon(store, tablet);
        }
        Ok(true)
    }

    /// Replaces an sstable, which the tablet had at an epoch, by its part outside the ranges, if it has partitions in
    /// them.
    async fn take_out(
        &self,
        store: &TableStore,
        tablet: &Tablet,
        (reader, epoch): (&Arc<Reader>, u64),
        ranges: &[TokenRange],
        task: &Task,
    ) -> Result<(), String> {
        let (table, dir, whole) = (store.table(), store.dir.clone(), reader.clone());
        let (generations, host_id) = (self.options.generations.clone(), self.options.host_id);
        let (ranges, keep) = (ranges.to_vec(), outside(ranges, tablet.range));
        let len = reader.meta().data_len;
        let cut = self.options.tasks.start(
            kinds::of_range(&kinds::CUT_SSTABLE, store, tablet.range, len),
            &task.as_origin(),
        );
        let work = move |control| -> Result<Option<Vec<Arc<Reader>>>, String> {
            if !has_partition(&whole, &ranges).map_err(|e| e.to_string())? {
                return Ok(None);
            }
            let parts = rewrite(&table, &whole, &dir, &keep, (&generations, host_id), &control);
            parts.map(Some).map_err(|e| e.to_string())
        };
        let done = match cut.run_job(work).await {
            Ok(done) => done,
            Err(aborted) => Err(aborted.to_string()),
        };
        cut.end(&done);
        let Some(parts) = done? else { return Ok(()) };
        // What was truncated concurrently is gone already.
        let replaced = self.replace_sstables(store, tablet, epoch, (std::slice::from_ref(reader), &parts));
        replaced.await.map(drop)
    }

    /// Makes it durable that nothing is replayed of what the logs of earlier runs have in ranges of which nothing is
    /// here. For tablets that are about to be opened empty.
    ///
    /// # Errors
    /// When the log refuses.
    pub async fn forget_in_logs(&self, store: &TableStore, ranges: &[TokenRange]) -> Result<(), String> {
        self.forget_ranges_in_log(store, ranges, self.log.end()).await
    }

    /// Makes it durable that the log's writes in the ranges up to a position are not replayed.
    async fn forget_ranges_in_log(
        &self,
        store: &TableStore,
        ranges: &[TokenRange],
        position: ReplayPosition,
    ) -> Result<(), String> {
        let (table, mark) = (store.table().id, self.log.mark());
        for range in ranges {
            let discard = Discard {
                table,
                after: range.after,
                up_to_token: range.to,
                position,
            };
            let logged = self.log.append_discard(&discard).map_err(|e| e.to_string())?;
            logged.is_covered_by(mark);
        }
        self.log.commit_since(mark).map_err(|e| e.to_string())?;
        self.log.sync().await.map_err(|e| e.to_string())
    }
}

/// Whether an sstable has a partition in none of the ranges, by its index. Blocks.
///
/// # Errors
/// When its index cannot be read.
pub fn has_others(reader: &Arc<Reader>, ranges: &[TokenRange]) -> Result<bool, sstable::Error> {
    has_partition(reader, &outside(ranges, TokenRange::ALL))
}

/// Whether an sstable has a partition in any of the ranges. Blocks.
fn has_partition(reader: &Arc<Reader>, ranges: &[TokenRange]) -> Result<bool, sstable::Error> {
    let overlapping = ranges.iter().filter(|range| range.overlaps(reader.tokens()));
    for range in overlapping {
        if reader.has_tokens_blocking(range.after, range.to)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What of `whole` is in none of the ranges.
fn outside(ranges: &[TokenRange], whole: TokenRange) -> Vec<TokenRange> {
    let mut sorted: Vec<TokenRange> = ranges.iter().filter(|range| range.intersects(whole)).copied().collect();
    sorted.sort_unstable_by_key(|range| range.after);
    let mut outside = Vec::new();
    let mut after: Token = whole.after;
    for range in sorted {
        if after < range.after {
            outside.push(TokenRange { after, to: range.after });
        }
        after = after.max(range.to);
    }
    if after < whole.to {
        outside.push(TokenRange { after, to: whole.to });
    }
    outside
}
