//! Which sstables to merge next.

pub mod size_tiered;

use std::collections::BTreeMap;

pub use size_tiered::Options as SizeTieredOptions;

/// What a strategy knows of an sstable.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SstableInfo {
    /// Names it in a [`Choice`].
    pub id: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Least write timestamp, microseconds.
    pub min_timestamp: i64,
    /// Greatest write timestamp, microseconds.
    pub max_timestamp: i64,
    /// Share of its cells that are tombstones, or expired, before the grace period's end: 0 to 1.
    pub droppable_ratio: f64,
    /// Seconds since it was written.
    pub age_seconds: u64,
    /// Least write timestamp of the sstables and memtables whose partitions overlap with it; None when none does.
    pub overlap_min_timestamp: Option<i64>,
}

impl SstableInfo {
    /// What the statistics of an sstable say, at a time when what was deleted before `gc_before` may be dropped.
    #[must_use]
    pub fn of(
        id: u64,
        meta: &sstable::Meta,
        gc_before: u32,
        age_seconds: u64,
        overlap_min_timestamp: Option<i64>,
    ) -> Self {
        let s = &meta.statistics;
        #[expect(clippy::cast_precision_loss, reason = "a ratio to compare with a threshold")]
        let droppable_ratio = if s.cells == 0 {
            0.0
        } else {
            (s.tombstones.count_before(gc_before) as f64 / s.cells as f64).min(1.0)
        };
        Self {
            id,
            bytes: meta.disk_len,
            min_timestamp: s.min_timestamp,
            max_timestamp: s.max_timestamp,
            droppable_ratio,
            age_seconds,
            overlap_min_timestamp,
        }
    }
}

/// Why sstables are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There are enough of about one size.
    SizeTier,
    /// Much of it can be dropped.
    Tombstones,
    /// Somebody asked for all to become one.
    Major,
}

/// Sstables to merge into one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Their ids.
    pub inputs: Vec<u64>,
    /// Why.
    pub reason: Reason,
}

/// How a table's sstables are kept few.
#[derive(Clone, PartialEq, Debug)]
pub enum Strategy {
    /// Merge those of about one size.
    SizeTiered(SizeTieredOptions),
    /// Merge nothing by itself.
    Disabled,
}

const CLASS_PREFIX: &str = "org.apache.cassandra.db.compaction.";

impl Strategy {
    /// What the `compaction` option of a table asks for. The classes that group by level, time window or run are known by name, and
    /// merge by size.
    ///
    /// # Errors
    /// A sentence for the user, when it asks for what is not known.
    pub fn of_options(options: &BTreeMap<String, String>) -> Result<Self, String> {
        let class = options
            .get("class")
            .map_or("SizeTieredCompactionStrategy", String::as_str);
        let is_enabled = options.get("enabled").is_none_or(|e| !e.eq_ignore_ascii_case("false"));
        match class.strip_prefix(CLASS_PREFIX).unwrap_or(class) {
            "NullCompactionStrategy" => Ok(Self::Disabled),
            "SizeTieredCompactionStrategy"
            | "LeveledCompactionStrategy"
            | "TimeWindowCompactionStrategy"
            | "IncrementalCompactionStrategy"
            | "UnifiedCompactionStrategy" => {
                let options = SizeTieredOptions::of_options(options)?;
                Ok(if is_enabled {
                    Self::SizeTiered(options)
                } else {
                    Self::Disabled
                })
            }
            other => Err(format!("there is no compaction strategy '{other}'")),
        }
    }

    /// What to merge next, of sstables that no job has; None when all is well.
    #[must_use]
    pub fn choose(&self, sstables: &[SstableInfo]) -> Option<Choice> {
        match self {
            Self::SizeTiered(options) => size_tiered::choose(sstables, options),
            Self::Disabled => None,
        }
    }
}

/// Everything into one. Also of a single sstable, which may have tombstones to drop; None of none.
#[must_use]
pub fn major(sstables: &[SstableInfo]) -> Option<Choice> {
    (!sstables.is_empty()).then(|| Choice {
        inputs: sstables.iter().map(|s| s.id).collect(),
        reason: Reason::Major,
    })
}
