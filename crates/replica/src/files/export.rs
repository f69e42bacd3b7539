//! A copy of what a shard has of token ranges, as sealed sstables in a directory of their own: what another node is to
//! get.
//!
//! Memtables that overlap a range are flushed, so that the copy has every write that was applied before the call. An
//! sstable inside one range is linked, at no cost; one that has other tokens too is cut, on a background thread, as a
//! task of class `reshard`: what all the ranges have of it goes to one file. Nothing is purged.
//!
//! Invariants
//! - The copy has what each tablet has at one moment (`links.rs`). It does not wait for a compaction that runs.
//! - Nothing is missing: where an sstable of the tablets is quarantined, or suspect, there is no copy.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use sstable::{Component, Descriptor, Reader, RepairRecord};
use tasks::Task;

use crate::Shard;
use crate::compaction::rewrite_as_one;
use crate::files::baseline::{Baseline, Lost};
use crate::files::links::link_as_of_one_moment;
use crate::kinds;
use crate::read::note_damage;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};

/// An sstable of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exported {
    /// Where it is and how its files are called.
    pub descriptor: Descriptor,
    /// Its components.
    pub components: Vec<Component>,
    /// Whether what it is made of counted as repaired.
    pub is_repaired: bool,
}

impl Exported {
    fn of(reader: &Reader, dir: &Path, is_repaired: bool) -> Self {
        Self {
            descriptor: Descriptor {
                dir: dir.to_owned(),
                ..reader.descriptor().clone()
            },
            components: reader.components().to_vec(),
            is_repaired,
        }
    }
}

/// What a copy contains.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExportRequest<'a> {
    /// The token ranges, in order, none over another. There is one at least.
    pub ranges: &'a [TokenRange],
    /// How many bytes of data the copy should have at most: the first of the ranges, one at least, that together have
    /// no more by estimate,
    pub bytes: u64,
    /// and are in no more sstables than so many.
    pub sstables: usize,
    /// Whether the record of the last repair that has marked the range goes with the marks of the copy. There is one
    /// range then.
    pub with_record: bool,
}

/// A copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Exports {
    /// How many of the ranges it has, from the first.
    pub ranges: usize,
    /// Its sstables.
    pub sstables: Vec<Exported>,
    /// The record of the last repair, if it was requested and there is one.
    pub record: Option<RepairRecord>,
}

/// Why there is no copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExportError {
    /// Not every token of the ranges is of a tablet here.
    NotHere,
    /// Sstables with data of the ranges are quarantined: their names.
    Missing(Vec<String>),
    /// Damage was found in a file. It is examined, and then quarantined or trusted again.
    Damaged(String),
    /// The table was dropped or truncated, or a tablet left, during the export.
    Lost(Lost),
    /// The task was aborted.
    Aborted,
    /// The disk refused.
    Failed(String),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHere => f.write_str("not every token that was asked for is of a tablet of this shard"),
            Self::Missing(names) => write!(
                f,
                "the copy would lack what quarantined sstables had: {}. See nodetool listquarantined",
                names.join(", ")
            ),
            Self::Damaged(reason) | Self::Failed(reason) => f.write_str(reason),
            Self::Lost(lost) => lost.fmt(f),
            Self::Aborted => f.write_str("aborted"),
        }
    }
}

impl std::error::Error for ExportError {}

impl From<String> for ExportError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl From<Lost> for ExportError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// What tablets have of the ranges, each at one moment; with each sstable whether it counts as repaired.
#[derive(Default)]
struct Sources {
    /// Wholly inside one range.
    whole: Vec<(Arc<Reader>, bool)>,
    /// With other tokens too.
    to_cut: Vec<(Arc<Reader>, bool)>,
    /// What is known of the one range in common with other replicas.
    record: Option<RepairRecord>,
}

impl Sources {
    /// Adds what a tablet has now, and links what is inside one range.
    async fn link(&mut self, tablet: &Tablet, ranges: &[TokenRange], dir: &Path) -> Result<(), ExportError> {
        let is_touched = |tokens| ranges.iter().any(|range| range.overlaps(tokens));
        let wanted = |sstables: &[Arc<Reader>]| {
            let missing = tablet.version().missing.clone();
            let missing = missing.iter().filter(|q| is_touched((q.first, q.last)));
            let missing: BTreeSet<String> = missing.map(sstable::Quarantined::name).collect();
            if !missing.is_empty() {
                return Err(ExportError::Missing(missing.into_iter().collect()));
            }
            let touched = sstables.iter().filter(|reader| is_touched(reader.tokens()));
            if let Some(reader) = touched.clone().find(|reader| reader.is_suspect()) {
                let data = reader.descriptor().path(Component::Data);
                let reason = format!("{}: damage was found in it, and it is being examined", data.display());
                return Err(ExportError::Damaged(reason));
            }
            let is_inside = |reader: &&Arc<Reader>| {
                let (first, last) = reader.tokens();
                ranges.iter().any(|range| range.contains(first) && range.contains(last))
            };
            let (whole, to_cut): (Vec<&Arc<Reader>>, Vec<_>) = touched.partition(is_inside);
            Ok((
                whole.into_iter().cloned().collect(),
                to_cut.into_iter().cloned().collect::<Vec<_>>(),
            ))
        };
        let now = tablet.version().sstables.clone();
        let (whole, to_cut) = link_as_of_one_moment(tablet, now, dir, wanted).await?;
        let with_mark = |reader: Arc<Reader>| {
            let is_repaired = reader.repaired_at() != 0;
            (reader, is_repaired)
        };
        self.whole.extend(whole.into_iter().map(with_mark));
        self.to_cut.extend(to_cut.into_iter().map(with_mark));
        Ok(())
    }
}

impl Shard {
    /// Puts a copy of what this shard has of token ranges of a table into an empty directory on the table's file
    /// system: sealed sstables, which the caller removes. `task` is what the work is a part of; `baseline` was taken
    /// before.
    ///
    /// # Errors
    /// See [`ExportError`]. What the directory has then is of no use.
    pub async fn export(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        wanted: ExportRequest<'_>,
        dir: &Path,
        (task, baseline): (&Task, &Baseline),
    ) -> Result<Exports, ExportError> {
        let ranges = wanted.ranges;
        let tablets: Vec<Rc<Tablet>> = store
            .tablets()
            .iter()
            .filter(|t| ranges.iter().any(|range| t.range.intersects(*range)))
            .cloned()
            .collect();
        if !ranges.iter().all(|range| store.covers(range.after, range.to)) {
            return Err(ExportError::NotHere);
        }
        for tablet in &tablets {
            let flushed = self.flush_for(store, tablet, &task.as_origin()).await;
            flushed.map_err(ExportError::Failed)?;
        }
        baseline.check(&tablets)?;
        let versions: Vec<_> = tablets.iter().map(|tablet| tablet.version().sstables.clone()).collect();
        let sstables: Vec<&Arc<Reader>> = versions.iter().flatten().collect();
        let of_range = |range: TokenRange| -> Vec<(usize, u64)> {
            let touched = sstables.iter().enumerate();
            let touched = touched.filter(|(_, reader)| range.overlaps(reader.tokens()));
            touched.map(|(at, reader)| (at, bytes_at_most(reader, range))).collect()
        };
        let ranges = &ranges[..first_part(ranges, (wanted.sstables, wanted.bytes), of_range)];
        let mut sources = Sources::default();
        for tablet in &tablets {
            // In this turn nothing else marks sstables or moves one aside.
            let _as_they_are = tablet.quarantine_turn.acquire(1).await;
            sources.link(tablet, ranges, dir).await?;
            if let ([_], [range], true) = (&*tablets, ranges, wanted.with_record) {
                // A record that is there still says that nothing was lost before.
                sources.record = self.repair_record(store, *range).await.map_err(ExportError::Failed)?;
            }
        }
        let Sources { whole, to_cut, record } = sources;
        let of_whole = |(reader, is_repaired): &(Arc<Reader>, bool)| Exported::of(reader, dir, *is_repaired);
        let mut exported: Vec<Exported> = whole.iter().map(of_whole).collect();
        for reader in &to_cut {
            baseline.check(&tablets)?;
            exported.extend(self.cut_into(store, reader, ranges, dir, task).await?);
        }
        baseline.check(&tablets)?;
        Ok(Exports {
            ranges: ranges.len(),
            sstables: exported,
            record,
        })
    }

    /// The part of an sstable that ranges have, if there is one. The sstable may be deleted concurrently: it is open.
    async fn cut_into(
        &self,
        store: &TableStore,
        (whole, is_repaired): &(Arc<Reader>, bool),
        ranges: &[TokenRange],
        dir: &Path,
        task: &Task,
    ) -> Result<Option<Exported>, ExportError> {
        let (table, reader, to) = (store.table(), whole.clone(), dir.to_owned());
        let (generations, host_id) = (self.options.generations.clone(), self.options.host_id);
        let cut = self.options.tasks.start(
            kinds::of_range(&kinds::CUT_SSTABLE, store, hull(ranges), reader.meta().data_len),
            &task.as_origin(),
        );
        let (ranges, is_repaired) = (ranges.to_vec(), *is_repaired);
        let work = move |control| {
            let part = rewrite_as_one(&table, &reader, &to, &ranges, (&generations, host_id), &control)?;
            Ok(part.map(|part| Exported::of(&part, &to, is_repaired)))
        };
        let done = match cut.run_job(work).await {
            Ok(Ok(exported)) => Ok(exported),
            Err(_) | Ok(Err(compaction::Error::Aborted)) => Err(ExportError::Aborted),
            Ok(Err(compaction::Error::Sstable(e))) if e.is_damage() => {
                if note_damage(std::slice::from_ref(whole), &e) {
                    self.alarm.raise();
                }
                Err(ExportError::Damaged(e.to_string()))
            }
            Ok(Err(e)) => Err(ExportError::Failed(e.to_string())),
        };
        cut.end(&done);
        done
    }
}

/// How many of the ranges, from the first and one at least, are in no more than so many sstables and have no more than
/// so many bytes together. `of_range` says of which sstables a range has something, and how many bytes at the most.
fn first_part(
    ranges: &[TokenRange],
    (sstables, bytes): (usize, u64),
    of_range: impl Fn(TokenRange) -> Vec<(usize, u64)>,
) -> usize {
    let (mut touched, mut sum) = (BTreeSet::new(), 0_u64);
    let fits = |range: &&TokenRange| {
        for (sstable, bytes) in of_range(**range) {
            touched.insert(sstable);
            sum = sum.saturating_add(bytes);
        }
        touched.len() <= sstables && sum <= bytes
    };
    ranges.iter().take_while(fits).count().max(1).min(ranges.len())
}

/// How many bytes of data an sstable has in a range, at the most.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "an estimate"
)]
fn bytes_at_most(reader: &Reader, range: TokenRange) -> u64 {
    (reader.meta().data_len as f64 * reader.share_at_most(range.after, range.to)).ceil() as u64
}

/// From the first token of the first of these ranges to the last of the last.
#[must_use]
pub fn hull(ranges: &[TokenRange]) -> TokenRange {
    match ranges {
        [first, .., last] => TokenRange {
            after: first.after,
            to: last.to,
        },
        [one] => *one,
        [] => TokenRange::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Token;

    #[test]
    fn a_copy_has_as_many_ranges_as_the_bytes_and_the_sstables_allow_and_one_at_least() {
        let range = |at: i64| TokenRange {
            after: Token(at),
            to: Token(at + 1),
        };
        let ranges: Vec<TokenRange> = (0..4).map(range).collect();
        // Two sstables with 100 bytes of each range but the last; the third range is in another sstable, too.
        let of_range = |range: TokenRange| match range.after.0 {
            0 | 1 => vec![(0, 100), (1, 100)],
            2 => vec![(0, 100), (1, 100), (2, 5)],
            _ => Vec::new(),
        };
        let first = |sstables, bytes| first_part(&ranges, (sstables, bytes), of_range);
        assert_eq!(first(9, 0), 1, "one, however large");
        assert_eq!((first(9, 399), first(9, 400), first(9, 604)), (1, 2, 2));
        assert_eq!(first(9, 605), 4, "the last has nothing");
        assert_eq!((first(2, u64::MAX), first(3, u64::MAX)), (2, 4));
        assert_eq!(first(0, u64::MAX), 1);
    }
}
