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
    /// Whether it is of the repaired set: no compaction merges sstables of both.
    pub is_repaired: bool,
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
        is_repaired: bool,
    ) -> Self {
        let s = &meta.statistics;
        let droppable = s.tombstones.count_before(gc_before);
        // Deleted rows and partitions have no cells: a file of nothing else is full of tombstones.
        #[expect(clippy::cast_precision_loss, reason = "a ratio to compare with a threshold")]
        let droppable_ratio = match s.cells {
            0 if droppable > 0 => 1.0,
            cells => (droppable as f64 / cells.max(1) as f64).min(1.0),
        };
        Self {
            id,
            bytes: meta.disk_len,
            min_timestamp: s.min_timestamp,
            max_timestamp: s.max_timestamp,
            droppable_ratio,
            age_seconds,
            overlap_min_timestamp,
            is_repaired,
        }
    }
}

/// The unrepaired ones and the repaired ones: a compaction merges those of one set.
#[must_use]
pub fn sets(sstables: &[SstableInfo]) -> [Vec<SstableInfo>; 2] {
    let (repaired, unrepaired) = sstables.iter().partition(|sstable| sstable.is_repaired);
    [unrepaired, repaired]
}

/// Why sstables are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// There are enough of about one size.
    SizeTier,
    /// Much of it can be dropped.
    Tombstones,
    /// They are copies of the same tokens from several nodes.
    Copies,
    /// A major compaction was requested: all become one.
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
    /// What the `compaction` option of a table asks for. The classes that group by level, time window or run are known
    /// by name, and merge by size.
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

    /// What to merge next, of sstables that no job has; None when all is well. All of one set: the unrepaired ones,
    /// which are read by repairs, come first.
    #[must_use]
    pub fn choose(&self, sstables: &[SstableInfo]) -> Option<Choice> {
        sets(sstables).iter().find_map(|set| self.choose_of_set(set))
    }

    fn choose_of_set(&self, sstables: &[SstableInfo]) -> Option<Choice> {
        match self {
            Self::SizeTiered(options) => size_tiered::choose(sstables, options),
            Self::Disabled => None,
        }
    }

    /// Bytes on disk of the sstables that [`choose`](Self::choose) would merge, one choice after another, before it
    /// calls the table tidy. What a job merges now is a part of it until the job has ended. Outputs, which may be
    /// merged again, and sstables that are chosen only because much of them can be dropped are not.
    #[must_use]
    pub fn backlog_bytes(&self, mut sstables: Vec<SstableInfo>) -> u64 {
        let mut bytes = 0;
        while let Some(choice) = self
            .choose(&sstables)
            .filter(|choice| choice.reason == Reason::SizeTier)
        {
            let is_chosen = |sstable: &SstableInfo| choice.inputs.contains(&sstable.id);
            bytes += sstables
                .iter()
                .filter(|sstable| is_chosen(sstable))
                .map(|sstable| sstable.bytes)
                .sum::<u64>();
            sstables.retain(|sstable| !is_chosen(sstable));
        }
        bytes
    }
}

/// Everything of one set into one. Also of a single sstable, which may have tombstones to drop; None of none.
#[must_use]
pub fn major(sstables: &[SstableInfo]) -> Option<Choice> {
    let is_one_set = sstables.windows(2).all(|two| two[0].is_repaired == two[1].is_repaired);
    assert!(is_one_set, "a compaction merges sstables of one set");
    (!sstables.is_empty()).then(|| Choice {
        inputs: sstables.iter().map(|s| s.id).collect(),
        reason: Reason::Major,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sstables(sizes: &[u64]) -> Vec<SstableInfo> {
        let infos = sizes.iter().enumerate().map(|(i, bytes)| SstableInfo {
            id: i as u64,
            bytes: *bytes,
            min_timestamp: 0,
            max_timestamp: 0,
            droppable_ratio: 0.0,
            age_seconds: 0,
            overlap_min_timestamp: None,
            is_repaired: false,
        });
        infos.collect()
    }

    #[test]
    fn the_backlog_is_all_that_would_be_merged_one_choice_after_another() {
        const GIB: u64 = 1 << 30;
        let strategy = Strategy::SizeTiered(SizeTieredOptions::default());
        for (sizes, expected) in [
            (&[][..], 0),
            (&[1, 1, 1][..], 0),
            (&[1, 1, 1, 1][..], 4),
            (&[1, 1, 1, 1, GIB, GIB, GIB][..], 4),
            (&[1, 1, 1, 1, GIB, GIB, GIB, GIB][..], 4 + 4 * GIB),
            // Beyond max_threshold there is a second choice of the same tier.
            (&[1; 36][..], 36),
            (&[1; 35][..], 32),
        ] {
            assert_eq!(strategy.backlog_bytes(sstables(sizes)), expected, "of {sizes:?}");
        }
        assert_eq!(Strategy::Disabled.backlog_bytes(sstables(&[1; 36])), 0);
    }

    #[test]
    fn sstables_with_much_to_drop_are_no_backlog() {
        let mut one = sstables(&[1]);
        one[0].droppable_ratio = 1.0;
        one[0].age_seconds = u64::MAX;
        let strategy = Strategy::SizeTiered(SizeTieredOptions::default());
        assert_eq!(
            strategy.choose(&one).map(|choice| choice.reason),
            Some(Reason::Tombstones)
        );
        assert_eq!(strategy.backlog_bytes(one), 0);
    }
}
