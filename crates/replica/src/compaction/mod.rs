//! Compaction of a tablet's sstables: when, and what follows.
//!
//! The strategy decides, purely; a job on a background thread merges; then in one step the tablet's version has the
//! outputs instead of the inputs. One job runs for a tablet at a time. Each compaction is a task, by which an operator
//! sees it, aborts it, and limits the bytes per second of its class while it runs.

pub(crate) mod cut_ahead;
pub(crate) mod idle;
pub(crate) mod index_build;
pub(crate) mod room;

use std::fmt;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;

use compaction::strategy::{Choice, Reason, SstableInfo, Strategy, major, sets};
use compaction::{Job, Outcome};
use runtime::Permit;
use schema::Table;
use sstable::{Generations, Reader};
use stdx::size;
use tasks::{Aborted, JobControl, Kind, Origin, Task, Worker};

use crate::compaction::cut_ahead::halves;
use crate::compaction::room::Reserved;
use crate::flush::remove_unused;
use crate::kinds;
use crate::read::note_damage;
use crate::shard::Shard;
use crate::tablets::tablet::{TableStore, Tablet, TokenRange};

/// The second by which expired data and old tombstones are purged. While the wall clock is not trusted it is 0, so that
/// nothing is purged: what a compaction drops by a wrong clock does not come back with the right one.
pub(crate) fn purge_now_seconds() -> u32 {
    if !runtime::is_clock_trusted() {
        return 0;
    }
    u32::try_from(runtime::wall_clock_us() / 1_000_000).unwrap_or(0)
}

/// Why a compaction did nothing.
pub(crate) enum Failure {
    Aborted,
    /// There is no room on the disk for its outputs.
    NoRoom {
        needed: u64,
        available: u64,
    },
    Failed(String),
}

impl From<String> for Failure {
    fn from(reason: String) -> Self {
        Self::Failed(reason)
    }
}

impl From<Aborted> for Failure {
    fn from(_: Aborted) -> Self {
        Self::Aborted
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Aborted => Aborted.fmt(f),
            Self::NoRoom { needed, available } => write!(
                f,
                "it may need {} of disk space, and {} are available less what other compactions were promised",
                size::text(*needed),
                size::text(*available)
            ),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

/// A compaction that has ended well.
#[derive(Clone, Debug)]
pub struct Compacted {
    /// The table.
    pub table: Arc<Table>,
    /// Bytes of all files of the sstables that were merged.
    pub bytes_in: u64,
    /// Bytes of all files of the sstables that replace them.
    pub bytes_out: u64,
}

/// Called after each compaction that has ended well.
pub type OnCompaction = Box<dyn Fn(Compacted)>;

/// A compaction that was chosen, and the kind and origin of its task.
struct PlannedCompaction<'a> {
    choice: &'a Choice,
    kind: &'static Kind,
    origin: &'a Origin,
}

impl Shard {
    /// Starts a compaction if the tablet's sstables need one.
    pub(crate) fn compact_soon(self: &Rc<Self>, store: &Rc<TableStore>, tablet: &Rc<Tablet>) {
        self.index_soon(store);
        if tablet.is_compacting() || tablet.is_leaving() || store.dropped.get() {
            return;
        }
        let (shard, store, tablet) = (self.clone(), store.clone(), tablet.clone());
        let work = async move {
            // The task that has the turn looks again after its compaction.
            let Some(turn) = tablet.compaction_turn.try_acquire(1) else {
                return;
            };
            loop {
                match shard.compact_once(&store, &tablet, &turn).await {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(failure) => return shard.tell_failure(&store, &failure),
                }
            }
        };
        drop(runtime::spawn_in(runtime::Group::BACKGROUND, work));
    }

    /// Cuts an sstable or merges some, if there is anything to do. Whether to look again.
    async fn compact_once(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        turn: &Permit,
    ) -> Result<bool, Failure> {
        match self.cut_next(store, tablet).await {
            Ok(true) => return Ok(true),
            Ok(false) => {}
            Err(Failure::Aborted) => return Err(Failure::Aborted),
            // Compactions continue: they may free disk space.
            Err(failure) => self.tell_failure(store, &failure),
        }
        let Some(choice) = self.choose(store, tablet) else {
            return Ok(false);
        };
        let wanted = PlannedCompaction {
            choice: &choice,
            kind: &kinds::COMPACTION,
            origin: &Origin::Node,
        };
        let is_done = self.compact(store, tablet, wanted, turn).await?;
        if is_done && choice.reason == Reason::Copies {
            store.forget_copies(tablet);
        }
        // What could not be dropped this time cannot be the next moment either.
        Ok(is_done && choice.reason != Reason::Tombstones)
    }

    fn tell_failure(&self, store: &TableStore, failure: &Failure) {
        let table = store.table();
        match failure {
            Failure::Aborted => log::info!(
                "compaction of {}.{} was aborted; the next flush, or a look within ten minutes, may begin another",
                table.keyspace,
                table.name
            ),
            // Each flush looks again, and so does `compact_periodically`.
            Failure::NoRoom { .. } => {
                if !self.compactions_wait.replace(true) {
                    log::warn!(
                        "compaction of {}.{} waits for room: {failure}",
                        table.keyspace,
                        table.name
                    );
                }
            }
            Failure::Failed(e) => log::error!("compaction of {}.{} failed: {e}", table.keyspace, table.name),
        }
    }

    /// The compaction that is due of a tablet, if one is.
    pub(crate) fn choose(&self, store: &TableStore, tablet: &Tablet) -> Option<Choice> {
        if store.dropped.get() || tablet.is_leaving() || !store.compacts_by_itself.get() {
            return None;
        }
        let strategy = Strategy::of_options(&store.table.borrow().options.compaction).ok()?;
        let mut infos = self.infos(store, tablet);
        // A repair marks what it has read, when it is still there.
        infos.retain(|info| !tablet.is_held(info.id));
        if let Some(copies) = store.choose_copies(tablet, &infos) {
            return Some(copies);
        }
        match store.cuts_ahead() {
            None => strategy.choose(&infos),
            Some(cuts) => halves(tablet, &infos, &cuts)
                .iter()
                .find_map(|half| strategy.choose(half)),
        }
    }

    /// Bytes of this shard's sstables of a table that wait to be compacted, or are being compacted.
    pub fn compaction_backlog_bytes(&self, store: &TableStore) -> u64 {
        let Ok(strategy) = Strategy::of_options(&store.table.borrow().options.compaction) else {
            return 0;
        };
        let tablets = store.tablets();
        // No strategy merges a single sstable for its size.
        let several = tablets
            .iter()
            .filter(|tablet| tablet.with_version(|v| v.sstables.len() > 1));
        several
            .map(|tablet| strategy.backlog_bytes(self.infos(store, tablet)))
            .sum()
    }

    fn infos(&self, store: &TableStore, tablet: &Tablet) -> Vec<SstableInfo> {
        let before = self.purge_limit(store, tablet.range, purge_now_seconds()).certain();
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
                    // It is not known how old the missing data is.
                    .chain(version.missing.iter().map(|_| i64::MIN))
                    .min();
                let is_repaired = reader.repaired_at() != 0;
                SstableInfo::of(
                    i as u64,
                    reader.meta(),
                    before,
                    reader.open_seconds(),
                    overlap,
                    is_repaired,
                )
            })
            .collect()
    }

    /// Executes a choice, in the tablet's turn. False: the table changed under the job, whose output is gone.
    async fn compact(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        wanted: PlannedCompaction<'_>,
        _turn: &Permit,
    ) -> Result<bool, Failure> {
        let bytes = tablet.with_version(|v| {
            let inputs = wanted.choice.inputs.iter();
            let inputs = inputs.filter_map(|i| v.sstables.get(usize::try_from(*i).ok()?));
            inputs.map(|reader| reader.meta().data_len).sum()
        });
        let spec = kinds::of_tablet(wanted.kind, store, tablet, bytes);
        let task = self.options.tasks.start(spec, wanted.origin);
        tablet.compaction.set(Some(task.id()));
        let result = match task.worker().await {
            Ok(worker) => match self.reserve(store, tablet, wanted.choice) {
                Ok(_reserved) => self.run_job(store, tablet, wanted.choice, (&task, worker)).await,
                Err(no_room) => Err(no_room),
            },
            Err(aborted) => Err(aborted.into()),
        };
        tablet.compaction.set(None);
        task.end(&result);
        result
    }

    /// Reserves disk space for the outputs of a compaction, which are at most as large as its inputs. None if the free
    /// space of the disk is not known.
    fn reserve(&self, store: &TableStore, tablet: &Tablet, choice: &Choice) -> Result<Option<Reserved>, Failure> {
        let needed = tablet.with_version(|v| {
            let inputs = choice.inputs.iter();
            let inputs = inputs.filter_map(|i| v.sstables.get(usize::try_from(*i).ok()?));
            inputs.map(|reader| reader.meta().disk_len).sum()
        });
        self.reserve_bytes(store, needed)
    }

    /// Reserves disk space for what is about to be written. None if the free space of the disk is not known.
    pub(crate) fn reserve_bytes(&self, store: &TableStore, needed: u64) -> Result<Option<Reserved>, Failure> {
        let Ok(space) = runtime::fs::disk_space(&store.dir) else {
            return Ok(None);
        };
        let available = space.available;
        let reserved = self.options.compaction_room.reserve(needed, available);
        let reserved = reserved.ok_or(Failure::NoRoom { needed, available })?;
        self.compactions_wait.set(false);
        Ok(Some(reserved))
    }

    async fn run_job(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        choice: &Choice,
        (task, worker): (&Task, Worker),
    ) -> Result<bool, Failure> {
        let began = runtime::now();
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
        // Missing data may come back when an operator mends it, and then needs the tombstones that hide some of it. So
        // may data in a log that takes no writes: such a log does not record what was flushed since, and may lack
        // deletions that were flushed. The tombstones are also needed for data that another node is still to send.
        let may_return = self.old_log.get()
            || !version.missing.is_empty()
            || self.log.trouble().is_some()
            || store.awaits_data(tablet.range);
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
            &self.options.generations,
            &[tablet.range],
            self.options.host_id,
            task.control(),
        );
        let limit = self.purge_limit(store, tablet.range, now);
        let job = Job {
            now,
            gc_before: limit.before,
            held: limit.held,
            overlapping: others,
            memtables_min_timestamp,
            ..job
        };
        let done = match worker.run(move |_| run_and_open(job, &table)).await {
            Ok(done) => done,
            Err(Failure::Aborted) => return Err(Failure::Aborted),
            // The others are compacted without it.
            Err(_) if inputs.iter().any(|input| input.is_suspect()) => {
                self.alarm.raise();
                return Ok(true);
            }
            Err(e) => return Err(e),
        };
        if !self.replace_sstables(store, tablet, epoch, (&inputs, &done)).await? {
            return Ok(false);
        }
        let table = store.table();
        self.options.activity.compacted(&table, &inputs, &done, began);
        self.tell_of_compaction(&table, &inputs, &done);
        Ok(true)
    }

    fn tell_of_compaction(&self, table: &Arc<Table>, inputs: &[Arc<Reader>], outputs: &[Arc<Reader>]) {
        let bytes = |readers: &[Arc<Reader>]| readers.iter().map(|reader| reader.meta().disk_len).sum();
        if let Some(told) = &*self.on_compaction.borrow() {
            told(Compacted {
                table: table.clone(),
                bytes_in: bytes(inputs),
                bytes_out: bytes(outputs),
            });
        }
    }

    /// Sets what is called after each compaction that has ended well.
    pub fn on_compaction(&self, told: OnCompaction) {
        *self.on_compaction.borrow_mut() = Some(told);
    }

    /// Lets compactions of a table begin by themselves, or not. Running compactions continue.
    pub fn set_compacts_by_itself(self: &Rc<Self>, store: &Rc<TableStore>, does: bool) {
        if store.compacts_by_itself.replace(does) != does && does {
            for tablet in store.tablets().iter() {
                self.compact_soon(store, tablet);
            }
        }
    }

    /// Merges every tablet's sstables into one of each set.
    pub async fn compact_all(self: &Rc<Self>) -> Result<(), String> {
        for store in self.stores() {
            self.compact_table(&store).await?;
        }
        Ok(())
    }

    /// Merges the sstables of each of a table's tablets into one, and the repaired ones into another.
    pub async fn compact_table(self: &Rc<Self>, store: &Rc<TableStore>) -> Result<(), String> {
        self.compact_table_for(store, &Origin::Node).await
    }

    /// Merges as [`Self::compact_table`] does, with tasks of this origin.
    pub async fn compact_table_for(self: &Rc<Self>, store: &Rc<TableStore>, origin: &Origin) -> Result<(), String> {
        for tablet in store.tablets().iter() {
            let turn = tablet.compaction_turn.acquire(1).await;
            let compacted = self.compact_wholly(store, tablet, origin, &turn).await;
            drop(turn);
            // What was flushed during the compaction.
            self.compact_soon(store, tablet);
            compacted.map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    async fn compact_wholly(
        self: &Rc<Self>,
        store: &Rc<TableStore>,
        tablet: &Rc<Tablet>,
        origin: &Origin,
        turn: &Permit,
    ) -> Result<(), Failure> {
        loop {
            // The tablet's next owner compacts it.
            if tablet.is_leaving() {
                return Ok(());
            }
            let suspects = suspects(tablet);
            // One over both halves would undo what is cut for a split.
            let cuts = store.cuts_ahead();
            let parts = || -> Vec<Vec<SstableInfo>> {
                let halves = match &cuts {
                    None => vec![self.infos(store, tablet)],
                    Some(cuts) => halves(tablet, &self.infos(store, tablet), cuts),
                };
                halves.iter().flat_map(|half| sets(half)).collect()
            };
            for at in 0..parts().len() {
                if let Some(choice) = parts().get(at).and_then(|part| major(part)) {
                    let wanted = PlannedCompaction {
                        choice: &choice,
                        kind: &kinds::MAJOR_COMPACTION,
                        origin,
                    };
                    match self.compact(store, tablet, wanted, turn).await {
                        // The compaction was aborted because the tablet leaves: the request has not failed.
                        Err(Failure::Aborted) if tablet.is_leaving() => return Ok(()),
                        done => done?,
                    };
                }
            }
            if suspects == self::suspects(tablet) {
                return Ok(());
            }
        }
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
    generations: &Arc<Generations>,
    ranges: &[TokenRange],
    host_id: uuid::Uuid,
    control: JobControl,
) -> Job {
    let generations = generations.clone();
    Job {
        table: table.clone(),
        inputs,
        dir: dir.to_owned(),
        next_generation: Box::new(move || generations.next()),
        ranges: ranges.iter().map(|range| (range.after, range.to)).collect(),
        now: 0,
        gc_before: 0,
        held: Vec::new(),
        overlapping: Vec::new(),
        memtables_min_timestamp: i64::MIN,
        output_bytes_max: u64::MAX,
        host_id: Some(host_id),
        control,
    }
}

fn run_and_open(job: Job, table: &Table) -> Result<Vec<Arc<Reader>>, Failure> {
    let inputs = job.inputs.clone();
    let Outcome { outputs, .. } = compaction::run(job).map_err(|e| match e {
        compaction::Error::Aborted => Failure::Aborted,
        compaction::Error::Sstable(e) => {
            note_damage(&inputs, &e);
            Failure::Failed(e.to_string())
        }
        compaction::Error::Options(_) => Failure::Failed(e.to_string()),
    })?;
    let opened: Result<Vec<Arc<Reader>>, String> = outputs
        .iter()
        .map(|meta| open_output(meta, table).map_err(|e| e.to_string()))
        .collect();
    if opened.is_err() {
        // The inputs stay.
        let descriptors: Vec<sstable::Descriptor> = outputs.iter().map(|meta| meta.descriptor.clone()).collect();
        remove_unused(&descriptors);
    }
    opened.map_err(Failure::Failed)
}

/// Opens what a job wrote, of the set of its inputs.
fn open_output(meta: &sstable::Meta, table: &Table) -> Result<Arc<Reader>, sstable::Error> {
    let reader = Reader::open_descriptor(&meta.descriptor, table)?;
    reader.set_repaired_at(meta.statistics.repaired_at);
    Ok(reader)
}

/// Writes the parts of an sstable that ranges of tokens have, a file for each, and purges nothing. They are open; the
/// sstable stays. Blocks.
///
/// # Errors
/// When it cannot be read, or the parts not be written; there are none then.
pub(crate) fn rewrite(
    table: &Arc<Table>,
    whole: &Arc<Reader>,
    dir: &Path,
    ranges: &[TokenRange],
    (generations, host_id): (&Arc<Generations>, uuid::Uuid),
    control: &JobControl,
) -> Result<Vec<Arc<Reader>>, compaction::Error> {
    let mut parts: Vec<Arc<Reader>> = Vec::new();
    for range in ranges {
        match rewrite_as_one(
            table,
            whole,
            dir,
            std::slice::from_ref(range),
            (generations, host_id),
            control,
        ) {
            Ok(part) => parts.extend(part),
            Err(e) => {
                let written: Vec<_> = parts.iter().map(|part| part.descriptor().clone()).collect();
                remove_unused(&written);
                return Err(e);
            }
        }
    }
    Ok(parts)
}

/// As [`rewrite`], but what all the ranges have goes to one file; none where they have nothing. They are in token
/// order, none over another.
///
/// # Errors
/// As [`rewrite`].
pub(crate) fn rewrite_as_one(
    table: &Arc<Table>,
    whole: &Arc<Reader>,
    dir: &Path,
    ranges: &[TokenRange],
    (generations, host_id): (&Arc<Generations>, uuid::Uuid),
    control: &JobControl,
) -> Result<Option<Arc<Reader>>, compaction::Error> {
    let inputs = vec![whole.clone()];
    let job = job(table, inputs, dir, generations, ranges, host_id, control.clone());
    let outcome = compaction::run(job)?;
    let opened = outcome.outputs.first().map(|meta| open_output(meta, table));
    opened.transpose().map_err(|e| {
        let written: Vec<_> = outcome.outputs.iter().map(|meta| meta.descriptor.clone()).collect();
        remove_unused(&written);
        compaction::Error::Sstable(e)
    })
}
