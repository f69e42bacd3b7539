//! Compaction of a tablet's sstables: when, and what follows.
//!
//! The strategy decides, purely; a job on a background thread merges; then in one step the tablet's version has the
//! outputs instead of the inputs. One job runs for a tablet at a time. All jobs of the node share one control, by which an
//! operator sets their bytes per second while they run.

use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use compaction::strategy::{Choice, Reason, SstableInfo, Strategy, major};
use compaction::{Control, Job, Outcome};
use schema::Table;
use sstable::Reader;

use crate::flush::remove_unused;
use crate::read::note_damage;
use crate::shard::Shard;
use crate::tablet::{TableStore, Tablet, TokenRange};

/// The second by which data expires for good and tombstones are old enough to be forgotten. While the wall clock is not trusted it is 0, so nothing
/// does: what a compaction drops by a wrong clock does not come back with the right one.
fn purge_now_seconds() -> u32 {
    if !runtime::is_clock_trusted() {
        return 0;
    }
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

impl Shard {
    /// Looks whether the tablet's sstables want a compaction, and starts it.
    pub(crate) fn compact_soon(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) {
        if tablet.compacting.get() || store.dropped.get() {
            return;
        }
        let (shard, store, tablet) = (self.clone(), store.clone(), tablet.clone());
        let work = async move {
            while let Some(choice) = shard.choose(&store, &tablet) {
                match shard.compact(&store, &tablet, &choice).await {
                    // What could not be dropped this time cannot be the next moment either.
                    Ok(true) if choice.reason == Reason::Tombstones => return,
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(e) => {
                        let table = store.table();
                        log::error!("compaction of {}.{} failed: {e}", table.keyspace, table.name);
                        return;
                    }
                }
            }
        };
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, work));
    }

    fn choose(&self, store: &TableStore, tablet: &Tablet) -> Option<Choice> {
        if store.dropped.get() {
            return None;
        }
        let strategy = Strategy::of_options(&store.table.borrow().options.compaction).ok()?;
        strategy.choose(&self.infos(store, tablet))
    }

    fn infos(&self, store: &TableStore, tablet: &Tablet) -> Vec<SstableInfo> {
        let before = self
            .purge_limit(&store.table.borrow(), tablet.range, purge_now_seconds())
            .certain();
        let version = tablet.version();
        version
            .sstables
            .iter()
            .enumerate()
            // A damaged input would fail each compaction that it is in.
            .filter(|(_, reader)| !reader.is_suspect())
            .map(|(i, reader)| {
                let overlap = version
                    .sstables
                    .iter()
                    .enumerate()
                    .filter(|(j, other)| *j != i && overlaps(reader, other))
                    .map(|(_, other)| other.meta().statistics.min_timestamp)
                    // Nobody knows how old what is missing is.
                    .chain(version.missing.iter().map(|_| i64::MIN))
                    .min();
                SstableInfo::of(i as u64, reader.meta(), before, u64::MAX, overlap)
            })
            .collect()
    }

    /// Executes a choice. False: another job has the tablet, or the table changed under the job, whose output is gone.
    async fn compact(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        choice: &Choice,
    ) -> Result<bool, String> {
        if tablet.compacting.replace(true) {
            return Ok(false);
        }
        let slot = self.compaction_slot.acquire(1).await;
        let result = self.run_job(store, tablet, choice).await;
        drop(slot);
        tablet.compacting.set(false);
        result
    }

    async fn run_job(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        choice: &Choice,
    ) -> Result<bool, String> {
        let version = tablet.version();
        let chosen = |i: usize| choice.inputs.contains(&(i as u64));
        let pick = |wanted: bool| -> Vec<Arc<Reader>> {
            let all = version.sstables.iter().enumerate();
            all.filter(|(i, _)| chosen(*i) == wanted)
                .map(|(_, r)| r.clone())
                .collect()
        };
        let (inputs, others) = (pick(true), pick(false));
        let table = store.table();
        let now = purge_now_seconds();
        // What is missing may come back when an operator mends it: then it needs the tombstones that hide some of it. So may what stands in a log that takes no
        // writes: it does not say what was flushed since, and may lack the deletions that were.
        let may_return = self.old_log.get() || !version.missing.is_empty() || self.log.trouble().is_some();
        let memtables_min_timestamp = if may_return {
            i64::MIN
        } else {
            let frozen = version.frozen.iter().map(|f| f.memtable.min_timestamp());
            frozen
                .chain([
                    version.active.borrow().min_timestamp(),
                    self.options.noted_batches.min_timestamp(),
                ])
                .min()
                .unwrap_or(i64::MAX)
        };
        let epoch = tablet.epoch.get();
        let job = job(
            &table,
            inputs.clone(),
            &store.dir,
            &self.options.generation,
            (tablet.range.after, tablet.range.to),
            self.options.host_id,
            &self.options.compaction,
        );
        let limit = self.purge_limit(&table, tablet.range, now);
        let job = Job {
            now,
            gc_before: limit.before,
            held: limit.held,
            overlapping: others,
            memtables_min_timestamp,
            ..job
        };
        let done = match runtime::spawn_job("compaction", move || run_and_open(job, &table)).await {
            Ok(done) => done,
            // The others are compacted without it.
            Err(_) if inputs.iter().any(|input| input.is_suspect()) => {
                self.alarm.raise();
                return Ok(true);
            }
            Err(e) => return Err(e),
        };
        // Outputs that are not needed go without a list, which a full disk has no room for: together with the inputs they say nothing new, and left
        // behind they would bring rows back at the start after a truncation.
        if tablet.epoch.get() != epoch || store.dropped.get() {
            self.delete_one_by_one(&done).await?;
            return Ok(false);
        }
        // The inputs must not come back once the outputs, which lack the tombstones that are old enough, stand for them.
        let obsolete = match self.mark_obsolete(&inputs).await {
            Ok(obsolete) => obsolete,
            Err(e) => {
                self.delete_one_by_one(&done).await?;
                return Err(e);
            }
        };
        if tablet.epoch.get() != epoch || store.dropped.get() {
            self.delete_obsolete(&inputs, obsolete).await;
            self.delete_one_by_one(&done).await?;
            return Ok(false);
        }
        tablet.update(|v| {
            v.sstables.retain(|r| !inputs.iter().any(|i| Arc::ptr_eq(i, r)));
            v.sstables.extend(done.iter().cloned());
        });
        self.delete_obsolete(&inputs, obsolete).await;
        Ok(true)
    }

    /// Merges every tablet's sstables into one.
    pub async fn compact_all(self: &Rc<Self>) -> Result<(), String> {
        for store in self.stores() {
            self.compact_table(&store).await?;
        }
        Ok(())
    }

    /// Merges the sstables of each of a table's tablets into one.
    pub async fn compact_table(self: &Rc<Self>, store: &Rc<TableStore>) -> Result<(), String> {
        for tablet in &store.tablets {
            while tablet.compacting.get() {
                runtime::sleep(std::time::Duration::from_millis(5)).await;
            }
            loop {
                let suspects = suspects(tablet);
                if let Some(choice) = major(&self.infos(store, tablet)) {
                    self.compact(store, tablet, &choice).await?;
                }
                if suspects == self::suspects(tablet) {
                    break;
                }
            }
        }
        Ok(())
    }
}

/// How many sstables of a tablet are suspect.
fn suspects(tablet: &Tablet) -> usize {
    tablet.with_version(|v| v.sstables.iter().filter(|reader| reader.is_suspect()).count())
}

fn overlaps(a: &Reader, b: &Reader) -> bool {
    let ((a_first, a_last), (b_first, b_last)) = (a.tokens(), b.tokens());
    a_first <= b_last && b_first <= a_last
}

fn job(
    table: &Arc<Table>,
    inputs: Vec<Arc<Reader>>,
    dir: &Path,
    generation: &Arc<AtomicU64>,
    range: (types::Token, types::Token),
    host_id: uuid::Uuid,
    control: &Arc<Control>,
) -> Job {
    let generation = generation.clone();
    Job {
        table: table.clone(),
        inputs,
        dir: dir.to_owned(),
        next_generation: Box::new(move || generation.fetch_add(1, Ordering::Relaxed) + 1),
        range,
        now: 0,
        gc_before: 0,
        held: Vec::new(),
        overlapping: Vec::new(),
        memtables_min_timestamp: i64::MIN,
        output_bytes_max: u64::MAX,
        host_id: Some(host_id),
        control: control.clone(),
    }
}

fn run_and_open(job: Job, table: &Table) -> Result<Vec<Arc<Reader>>, String> {
    let inputs = job.inputs.clone();
    let Outcome { outputs, .. } = compaction::run(job).map_err(|e| {
        if let compaction::Error::Sstable(e) = &e {
            note_damage(&inputs, e);
        }
        e.to_string()
    })?;
    let opened: Result<Vec<Arc<Reader>>, String> = outputs
        .iter()
        .map(|meta| Reader::open_descriptor(&meta.descriptor, table).map_err(|e| e.to_string()))
        .collect();
    if opened.is_err() {
        // The inputs stay.
        let descriptors: Vec<sstable::Descriptor> = outputs.iter().map(|meta| meta.descriptor.clone()).collect();
        remove_unused(&descriptors);
    }
    opened
}

/// Moves a damaged sstable aside and says so; any other error is returned.
fn set_aside(descriptor: &sstable::Descriptor, error: sstable::Error) -> Result<(), String> {
    if !error.is_damage() {
        return Err(error.to_string());
    }
    let quarantined = sstable::quarantine(descriptor, &error).map_err(|e| format!("{error}; moving it aside: {e}"))?;
    log::error!(
        "{error}. The sstable was moved to {}; reads of tokens {} to {} are refused here until the loss is accepted",
        quarantined.dir.display(),
        quarantined.first.0,
        quarantined.last.0
    );
    Ok(())
}

/// Makes a table's sstables ready to be opened: what a node does at start. Damaged ones are moved aside. Those that have tokens of several
/// tablets, which are not those that the node wrote the files with, are rewritten, one file a tablet, and removed. `tablets` are all
/// of the table's, here or not. How many were rewritten. Blocks.
///
/// # Errors
/// When the disk refuses, or a file is not damaged and cannot be opened all the same.
pub fn prepare_sstables(
    table: &Arc<Table>,
    dir: &Path,
    tablets: &[TokenRange],
    generation: &Arc<AtomicU64>,
    host_id: uuid::Uuid,
) -> Result<usize, String> {
    if !runtime::fs::exists(dir) {
        return Ok(0);
    }
    let mut rewritten = 0;
    for descriptor in sstable::list(dir).map_err(|e| e.to_string())? {
        let reader = match Reader::open_descriptor(&descriptor, table) {
            Ok(reader) => reader,
            Err(e) => {
                set_aside(&descriptor, e)?;
                continue;
            }
        };
        let touched = || tablets.iter().filter(|range| range.overlaps(reader.tokens()));
        if touched().nth(1).is_none() {
            continue;
        }
        let split = || -> Result<(), compaction::Error> {
            for range in touched() {
                let control = Arc::new(Control::new());
                let range = (range.after, range.to);
                let job = job(table, vec![reader.clone()], dir, generation, range, host_id, &control);
                compaction::run(job)?;
            }
            Ok(())
        };
        // What was changed on the way from the disk is whole the next time.
        let is_whole = || sstable::tool::verify(&descriptor.path(sstable::Component::Data)).is_ok();
        let done = match split() {
            Err(compaction::Error::Sstable(e)) if is_of(&e, &descriptor) && is_whole() => split(),
            done => done,
        };
        match done {
            Ok(()) => {
                sstable::delete(&descriptor).map_err(|e| e.to_string())?;
                rewritten += 1;
            }
            // The parts that were written before have nothing that it has not.
            Err(compaction::Error::Sstable(e)) if is_of(&e, &descriptor) => set_aside(&descriptor, e)?,
            Err(e) => return Err(e.to_string()),
        }
    }
    Ok(rewritten)
}

/// Whether an error is about a file of this sstable.
fn is_of(error: &sstable::Error, descriptor: &sstable::Descriptor) -> bool {
    sstable::Descriptor::of_path(error.path()).is_ok_and(|other| other == *descriptor)
}
