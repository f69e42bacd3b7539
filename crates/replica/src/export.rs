//! A copy of what a shard has of a token range, as sealed sstables in a directory of their own: what another node is to get.
//!
//! Memtables that overlap the range are flushed, so that the copy has every write that was applied before the call. An sstable inside the range is linked, at no
//! cost; one that has other tokens too is cut, on a background thread, as a task of class `reshard`. Nothing is purged.
//!
//! Invariants
//! - The copy has what one version of each tablet has. Compactions do not run between taking the version and linking its files.
//! - Nothing is missing: where an sstable of the tablets is quarantined, or suspect, there is no copy.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;

use runtime::fs;
use sstable::{Component, Descriptor, Reader, RepairRecord};
use tasks::Task;

use crate::Shard;
use crate::baseline::{Baseline, Lost};
use crate::compact::rewrite;
use crate::kinds;
use crate::read::note_damage;
use crate::tablet::{TableStore, Tablet, TokenRange};

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

/// Why there is no copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExportError {
    /// Not every token of the range is of a tablet here.
    NotHere,
    /// Sstables with data of the range are quarantined: their names.
    Missing(Vec<String>),
    /// Damage was found in a file. It is examined, and then quarantined or trusted again.
    Damaged(String),
    /// The table was dropped or truncated, or a tablet left, meanwhile.
    Lost(Lost),
    /// The task was aborted.
    Aborted,
    /// The disk refused.
    Failed(String),
}

impl fmt::Display for ExportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHere => f.write_str("not every token of the range is of a tablet of this shard"),
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

impl From<Lost> for ExportError {
    fn from(lost: Lost) -> Self {
        Self::Lost(lost)
    }
}

/// What one version of the tablets has of a range, each with whether it counts as repaired.
struct Sources {
    /// Wholly inside the range.
    whole: Vec<(Arc<Reader>, bool)>,
    /// With other tokens too.
    to_cut: Vec<(Arc<Reader>, bool)>,
    /// What is known of the range in common with other replicas.
    record: Option<RepairRecord>,
}

impl Shard {
    /// Puts a copy of what this shard has of a token range of a table into an empty directory on the table's file system: sealed sstables, which the caller
    /// removes; and, `with_record`, the record of the last repair that has marked the range, which goes with the marks of the copy. `task` is what the work is a part of; `baseline` was taken before.
    ///
    /// # Errors
    /// See [`ExportError`]. What the directory has then is of no use.
    pub async fn export(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        (range, with_record): (TokenRange, bool),
        dir: &Path,
        (task, baseline): (&Task, &Baseline),
    ) -> Result<(Vec<Exported>, Option<RepairRecord>), ExportError> {
        let tablets: Vec<Rc<Tablet>> = store
            .tablets()
            .iter()
            .filter(|t| t.range.intersects(range))
            .cloned()
            .collect();
        if !store.covers(range.after, range.to) {
            return Err(ExportError::NotHere);
        }
        for tablet in &tablets {
            let flushed = self.flush_for(store, tablet, &task.as_origin()).await;
            flushed.map_err(ExportError::Failed)?;
        }
        let mut turns = Vec::with_capacity(tablets.len());
        for tablet in &tablets {
            turns.push(tablet.compaction_turn.acquire(1).await);
        }
        baseline.check(&tablets)?;
        let linked = self.link_whole((store, &tablets), (range, with_record), dir).await;
        drop(turns);
        for tablet in &tablets {
            self.compact_soon(store, tablet);
        }
        let Sources { whole, to_cut, record } = linked?;
        let of_whole = |(reader, is_repaired): &(Arc<Reader>, bool)| Exported::of(reader, dir, *is_repaired);
        let mut exported: Vec<Exported> = whole.iter().map(of_whole).collect();
        for reader in &to_cut {
            baseline.check(&tablets)?;
            exported.extend(self.cut_into(store, reader, range, dir, task).await?);
        }
        baseline.check(&tablets)?;
        Ok((exported, record))
    }

    /// Links the sstables inside the range, in the tablets' turns of compaction.
    async fn link_whole(
        &self,
        (store, tablets): (&TableStore, &[Rc<Tablet>]),
        (range, with_record): (TokenRange, bool),
        dir: &Path,
    ) -> Result<Sources, ExportError> {
        let (mut whole, mut to_cut) = (Vec::new(), Vec::new());
        let mut missing = BTreeSet::new();
        for tablet in tablets {
            let version = tablet.version();
            let of_range = version.missing.iter().filter(|q| range.overlaps((q.first, q.last)));
            missing.extend(of_range.map(sstable::Quarantined::name));
            for reader in version.sstables.iter().filter(|reader| range.overlaps(reader.tokens())) {
                if reader.is_suspect() {
                    let data = reader.descriptor().path(Component::Data);
                    let reason = format!("{}: damage was found in it, and it is being examined", data.display());
                    return Err(ExportError::Damaged(reason));
                }
                let (first, last) = reader.tokens();
                let source = (reader.clone(), reader.repaired_at() != 0);
                match range.contains(first) && range.contains(last) {
                    true => whole.push(source),
                    false => to_cut.push(source),
                }
            }
        }
        if !missing.is_empty() {
            return Err(ExportError::Missing(missing.into_iter().collect()));
        }
        let readers: Vec<Arc<Reader>> = whole.iter().map(|(reader, _)| reader.clone()).collect();
        let to = dir.to_owned();
        let linked = runtime::offload(move || link_all(&readers, &to)).await;
        linked.map_err(ExportError::Failed)?;
        // Behind the links, in the turn in which a session would mark: a record that is there still says that nothing was lost before.
        let record = match tablets {
            [_] if with_record => self.repair_record(store, range).await.map_err(ExportError::Failed)?,
            _ => None,
        };
        Ok(Sources { whole, to_cut, record })
    }

    /// The part of an sstable that a range has. The sstable may be deleted meanwhile: it is open.
    async fn cut_into(
        &self,
        store: &TableStore,
        (whole, is_repaired): &(Arc<Reader>, bool),
        range: TokenRange,
        dir: &Path,
        task: &Task,
    ) -> Result<Vec<Exported>, ExportError> {
        let (table, reader, to) = (store.table(), whole.clone(), dir.to_owned());
        let (generations, host_id) = (self.options.generations.clone(), self.options.host_id);
        let cut = self.options.tasks.start(
            kinds::of_range(&kinds::CUT_SSTABLE, store, range, reader.meta().data_len),
            &task.as_origin(),
        );
        let is_repaired = *is_repaired;
        let work = move |control| {
            rewrite(&table, &reader, &to, &[range], (&generations, host_id), &control).map(|parts| {
                let parts = parts.iter();
                parts.map(|part| Exported::of(part, &to, is_repaired)).collect()
            })
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

/// Links the files of sstables into another directory, which is made. Blocks.
pub(crate) fn link_all(readers: &[Arc<Reader>], to: &Path) -> Result<(), String> {
    let at = |path: &Path, e: std::io::Error| format!("{}: {e}", path.display());
    fs::create_dir_all(to).map_err(|e| at(to, e))?;
    for reader in readers {
        for component in reader.components() {
            let from = reader.descriptor().path(*component);
            let Some(name) = from.file_name() else { continue };
            let link: PathBuf = to.join(name);
            fs::hard_link(&from, &link).map_err(|e| at(&link, e))?;
        }
    }
    Ok(())
}
