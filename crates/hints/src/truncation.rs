//! Permanently forgetting hints: those of a table that is truncated, and those for a node when an operator says so.

use std::collections::BTreeMap;
use std::path::Path;

use runtime::fs;
use schema::TableId;
use topology::HostId;

use crate::format::{self, SegmentId, Truncation};
use crate::{Hints, HintsError, Options};

impl Hints {
    /// Permanently forgets the hints of a table, and waits until none of them is on its way.
    ///
    /// # Errors
    /// When that cannot be made durable.
    pub async fn truncate(&self, table: TableId) -> Result<(), HintsError> {
        if let Err(e) = self.write() {
            log::warn!("{e}; hints are lost");
        }
        let below = self.next_segment.get();
        let mut sending = Vec::new();
        {
            let mut targets = self.targets.borrow_mut();
            let mut truncations = self.truncations.borrow_mut();
            for (id, target) in targets.iter_mut() {
                target.open = None;
                for segment in &target.segments {
                    truncations.insert((segment.id.shard, table), below);
                }
                if target.is_sending {
                    sending.push((*id, target.sent));
                }
            }
            truncations.retain(|(shard, _), below| {
                let mut segments = targets.values().flat_map(|target| &target.segments);
                segments.any(|segment| segment.id.shard == *shard && segment.id.number < *below)
            });
        }
        self.save_truncations().await?;
        for (id, sent) in sending {
            while self
                .targets
                .borrow()
                .get(&id)
                .is_some_and(|t| t.is_sending && t.sent == sent)
            {
                self.progressed.notified().await;
            }
        }
        Ok(())
    }

    async fn save_truncations(&self) -> Result<(), HintsError> {
        let (dir, shard) = (self.options.dir.clone(), self.options.shard);
        let truncations = self.truncations.borrow().clone();
        runtime::offload(move || save_truncations(&dir, shard, &truncations)).await
    }

    /// Permanently forgets the hints for a node, or for all nodes, and waits until none of them is on its way.
    ///
    /// # Errors
    /// When files cannot be removed: what is left of them is handed over.
    pub async fn forget(&self, target: Option<HostId>) -> Result<(), HintsError> {
        let below = self.next_segment.get();
        for (id, entry) in self.targets.borrow_mut().iter_mut() {
            if target.is_none_or(|target| target == *id) {
                entry.open = None;
                entry.forgotten_below = below;
                if let Some(since_us) = entry.oldest_us.filter(|_| entry.has_hints()) {
                    self.miss_file(*id, since_us);
                }
                let bytes = std::mem::take(&mut entry.buffer).len() as u64;
                let count = std::mem::take(&mut entry.buffered);
                self.count(|m| {
                    m.dropped += count;
                    m.waiting_bytes = m.waiting_bytes.saturating_sub(bytes);
                });
            }
        }
        loop {
            let (files, is_one_on_its_way) = self.take_forgotten();
            if !files.is_empty() {
                let dir = self.options.dir.clone();
                runtime::offload(move || remove(&dir, &files)).await?;
            } else if is_one_on_its_way {
                self.progressed.notified().await;
            } else {
                self.progressed.notify_all();
                return Ok(());
            }
        }
    }

    /// Takes forgotten segments out of the lines. One that is being handed over stays: its replay skips the rest of it
    /// and removes it.
    fn take_forgotten(&self) -> (Vec<SegmentId>, bool) {
        let mut taken = Vec::new();
        let mut is_one_on_its_way = false;
        for target in self.targets.borrow_mut().values_mut() {
            let mut is_busy = target.is_replaying;
            let below = target.forgotten_below;
            target.segments.retain(|segment| {
                let is_first = std::mem::take(&mut is_busy);
                if segment.id.number >= below {
                    return true;
                }
                is_one_on_its_way |= is_first;
                if !is_first {
                    taken.push(*segment);
                }
                is_first
            });
            target.note_oldest();
        }
        let bytes: u64 = taken.iter().map(|segment| segment.bytes).sum();
        self.count(|m| m.waiting_bytes = m.waiting_bytes.saturating_sub(bytes));
        (taken.iter().map(|segment| segment.id).collect(), is_one_on_its_way)
    }
}

/// Removes files, durably. Blocks.
pub(crate) fn remove(dir: &Path, files: &[SegmentId]) -> Result<(), HintsError> {
    for id in files {
        let path = dir.join(id.file_name());
        fs::remove_file(&path).map_err(|e| HintsError::new(&path, &e))?;
    }
    fs::sync_dir(dir).map_err(|e| HintsError::new(dir, &e))
}

pub(crate) type Truncations = BTreeMap<(u32, TableId), u64>;

/// Replaces the file of truncations, durably. Blocks.
pub(crate) fn save_truncations(dir: &Path, shard: u32, truncations: &Truncations) -> Result<(), HintsError> {
    let path = dir.join(format::truncations_name(shard));
    if truncations.is_empty() && !fs::exists(&path) {
        return Ok(());
    }
    let entries = truncations.iter().map(|((shard, table), below)| Truncation {
        shard: *shard,
        table: *table,
        below: *below,
    });
    let bytes = format::put_truncations(entries);
    fs::replace_durably(&path, &bytes).map_err(|e| HintsError::new(&path, &e))
}

/// The truncations of this shard's files and of those it takes over, the highest number among them, and whether the
/// file of another shard holds any of them. A file that is damaged is an error: without it deleted rows would come
/// back.
pub(crate) fn load_truncations(options: &Options) -> Result<(Truncations, u64, bool), HintsError> {
    let dir = &options.dir;
    let entries = fs::read_dir(dir).map_err(|e| HintsError::new(dir, &e))?;
    let mut truncations = Truncations::new();
    let (mut highest, mut is_from_others) = (1, false);
    for entry in entries {
        let shard = entry
            .name
            .strip_prefix("truncations-")
            .and_then(|s| s.parse::<u32>().ok());
        let Some(shard) = shard else { continue };
        let path = dir.join(&entry.name);
        let bytes = fs::read(&path).map_err(|e| HintsError::new(&path, &e))?;
        let read = format::read_truncations(&bytes).ok_or_else(|| HintsError {
            file: path,
            message: "damaged: expected truncated tables and their checksum. Remove it and all hints (*.hints)"
                .to_owned(),
        })?;
        for truncation in read {
            highest = highest.max(truncation.below);
            if truncation.shard % options.shards == options.shard {
                is_from_others |= shard != options.shard;
                let below = truncations.entry((truncation.shard, truncation.table)).or_default();
                *below = truncation.below.max(*below);
            }
        }
    }
    Ok((truncations, highest, is_from_others))
}
