//! Merge sstables of about one size.
//!
//! Sorted by size, each goes to the first bucket whose average size is near enough to its own (all small ones are near
//! to each other), else it begins one. Of the buckets with enough members, the one with the smallest average is merged,
//! its smallest members first: so a row is rewritten once for each time its sstable grows by `min_threshold`.
//! If there is none, the largest sstable that is full of droppable tombstones is rewritten alone.

use std::collections::BTreeMap;
use std::str::FromStr;

use super::{Choice, Reason, SstableInfo};

/// The options, under their CQL names.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Options {
    /// A bucket takes sstables above this share of its average size.
    pub bucket_low: f64,
    /// And below this.
    pub bucket_high: f64,
    /// Sstables below this are all of one size.
    pub min_sstable_size: u64,
    /// A bucket with so many is merged.
    pub min_threshold: usize,
    /// So many at once, at most.
    pub max_threshold: usize,
    /// An sstable with this share of droppable tombstones is rewritten alone.
    pub tombstone_threshold: f64,
    /// Unless it is younger than so many seconds.
    pub tombstone_compaction_interval: u64,
    /// Even if what it overlaps with is older than its tombstones.
    pub unchecked_tombstone_compaction: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            bucket_low: 0.5,
            bucket_high: 1.5,
            min_sstable_size: 50 << 20,
            min_threshold: 4,
            max_threshold: 32,
            tombstone_threshold: 0.2,
            tombstone_compaction_interval: 86_400,
            unchecked_tombstone_compaction: false,
        }
    }
}

fn parse<T: FromStr>(options: &BTreeMap<String, String>, name: &str, default: T) -> Result<T, String> {
    match options.get(name) {
        Some(text) => text.parse().map_err(|_| format!("'{text}' is not a value of {name}")),
        None => Ok(default),
    }
}

impl Options {
    /// Of a table's `compaction` option.
    ///
    /// # Errors
    /// A sentence for the user.
    pub fn of_options(options: &BTreeMap<String, String>) -> Result<Self, String> {
        let default = Self::default();
        let parsed = Self {
            bucket_low: parse(options, "bucket_low", default.bucket_low)?,
            bucket_high: parse(options, "bucket_high", default.bucket_high)?,
            min_sstable_size: parse(options, "min_sstable_size", default.min_sstable_size)?,
            min_threshold: parse(options, "min_threshold", default.min_threshold)?,
            max_threshold: parse(options, "max_threshold", default.max_threshold)?,
            tombstone_threshold: parse(options, "tombstone_threshold", default.tombstone_threshold)?,
            tombstone_compaction_interval: parse(
                options,
                "tombstone_compaction_interval",
                default.tombstone_compaction_interval,
            )?,
            unchecked_tombstone_compaction: parse(
                options,
                "unchecked_tombstone_compaction",
                default.unchecked_tombstone_compaction,
            )?,
        };
        // A NaN has no order, and is refused.
        if parsed.bucket_low.partial_cmp(&parsed.bucket_high) != Some(std::cmp::Ordering::Less) {
            let (low, high) = (parsed.bucket_low, parsed.bucket_high);
            return Err(format!("bucket_low {low} is not less than bucket_high {high}"));
        }
        if parsed.min_threshold < 2 {
            return Err("min_threshold is less than 2".to_owned());
        }
        if parsed.max_threshold < parsed.min_threshold {
            return Err("max_threshold is less than min_threshold".to_owned());
        }
        Ok(parsed)
    }
}

struct Bucket<'a> {
    average: f64,
    members: Vec<&'a SstableInfo>,
}

#[expect(clippy::cast_precision_loss, reason = "sizes are compared by a factor")]
fn buckets<'a>(sstables: &'a [SstableInfo], options: &Options) -> Vec<Bucket<'a>> {
    let mut sorted: Vec<&SstableInfo> = sstables.iter().collect();
    sorted.sort_by_key(|s| (s.bytes, s.id));
    let small = options.min_sstable_size as f64;
    let mut buckets: Vec<Bucket<'a>> = Vec::new();
    for s in sorted {
        let size = s.bytes as f64;
        let near = buckets.iter_mut().find(|b| {
            (size > b.average * options.bucket_low && size < b.average * options.bucket_high)
                || (size < small && b.average < small)
        });
        match near {
            Some(b) => {
                b.average = (b.average * b.members.len() as f64 + size) / (b.members.len() + 1) as f64;
                b.members.push(s);
            }
            None => buckets.push(Bucket {
                average: size,
                members: vec![s],
            }),
        }
    }
    buckets
}

fn is_worth_rewriting(s: &SstableInfo, options: &Options) -> bool {
    let may_drop = options.unchecked_tombstone_compaction
        || s.overlap_min_timestamp.is_none_or(|overlap| s.min_timestamp < overlap);
    s.droppable_ratio > options.tombstone_threshold
        && s.age_seconds >= options.tombstone_compaction_interval
        && may_drop
}

/// What to merge next, of sstables that no job has.
#[must_use]
pub fn choose(sstables: &[SstableInfo], options: &Options) -> Option<Choice> {
    let best = buckets(sstables, options)
        .into_iter()
        .filter(|b| b.members.len() >= options.min_threshold)
        .min_by(|a, b| a.average.total_cmp(&b.average));
    if let Some(bucket) = best {
        let inputs = bucket
            .members
            .iter()
            .take(options.max_threshold)
            .map(|s| s.id)
            .collect();
        return Some(Choice {
            inputs,
            reason: Reason::SizeTier,
        });
    }
    sstables
        .iter()
        .filter(|s| is_worth_rewriting(s, options))
        .max_by_key(|s| (s.bytes, s.id))
        .map(|s| Choice {
            inputs: vec![s.id],
            reason: Reason::Tombstones,
        })
}
