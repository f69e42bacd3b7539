//! Handing a node's hints over, in their order.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use mutation::Mutation;
use runtime::fs::{self, File, OpenOptions};
use stdx::planted::{self, Bug};
use topology::HostId;

use crate::format::{self, RECORDS_AT, Record, SegmentId};
use crate::truncation::remove;
use crate::{Hint, Hints, HintsError, Segment};

/// What is handed over at once, in bytes and in mutations.
const BATCH_BYTES: usize = 128 << 10;
const BATCH_MUTATIONS: usize = 256;

/// How long a target may refuse a hint before that counts as permanent: its schema may be older than this node's for a
/// while.
const REJECTION_PATIENCE: Duration = Duration::from_mins(1);

/// Why hints were not taken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotTaken {
    /// The target could not be reached or has no room: the next replay tries again.
    Later(String),
    /// The target failed. Of several hints one may be to blame.
    Failed(String),
    /// The target will never take one of them.
    Rejected(String),
}

impl NotTaken {
    fn reason(self) -> String {
        match self {
            Self::Later(reason) | Self::Failed(reason) | Self::Rejected(reason) => reason,
        }
    }
}

/// What comes of handing hints over.
pub type Delivery = Pin<Box<dyn Future<Output = Result<(), NotTaken>>>>;
/// Brings hints to where they belong, and ends when they are there.
pub type Deliver<'d> = &'d dyn Fn(Rc<[Hint]>) -> Delivery;
/// What a hint's table says of it now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The grace period, seconds.
    pub grace_seconds: u32,
    /// The second of the last deletion that the mutation carries, if it carries any.
    pub last_deletion: Option<u32>,
}

impl From<u32> for Terms {
    /// A grace period for a mutation that deletes nothing.
    fn from(grace_seconds: u32) -> Self {
        Self {
            grace_seconds,
            last_deletion: None,
        }
    }
}

/// The terms of a mutation; None when it is not to be handed over: its table is gone or has another layout.
pub type TermsOf<'d> = &'d dyn Fn(&Mutation<'_>) -> Option<Terms>;

/// Why a replay ended before all was handed over. What was not waits for the next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Interrupted {
    /// Another replay of the same node runs.
    Running,
    /// An operator has paused handing over.
    Paused,
    /// The hints were not taken.
    NotTaken(String),
    /// A file could not be read or removed.
    File(HintsError),
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Running => f.write_str("its hints are being handed over already"),
            Self::Paused => f.write_str("handing hints over is paused"),
            Self::NotTaken(reason) => f.write_str(reason),
            Self::File(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Interrupted {}

/// Ends a replay however its future ends.
struct Replaying<'h>(&'h Hints, HostId);

impl Drop for Replaying<'_> {
    fn drop(&mut self) {
        if let Some(target) = self.0.targets.borrow_mut().get_mut(&self.1) {
            target.is_replaying = false;
            target.is_sending = false;
        }
        self.0.progressed.notify_all();
    }
}

/// How the reading of a segment ended.
enum End {
    /// With its last whole record.
    Whole,
    /// At damage.
    Damaged { offset: usize, expected: &'static str },
}

impl Hints {
    /// Hands over everything that waits for a node, also what is noted during the replay.
    ///
    /// # Errors
    /// If a batch was not taken or a file fails; the next replay resumes after what was taken.
    pub async fn replay(
        self: &Rc<Self>,
        target: HostId,
        terms_of: TermsOf<'_>,
        deliver: Deliver<'_>,
    ) -> Result<(), Interrupted> {
        {
            let mut targets = self.targets.borrow_mut();
            let Some(entry) = targets.get_mut(&target) else {
                return Ok(());
            };
            if std::mem::replace(&mut entry.is_replaying, true) {
                return Err(Interrupted::Running);
            }
        }
        let _replaying = Replaying(self, target);
        loop {
            self.write().map_err(Interrupted::File)?;
            let first = {
                let mut targets = self.targets.borrow_mut();
                let Some(entry) = targets.get_mut(&target) else {
                    return Ok(());
                };
                let first = entry.segments.front().copied();
                if entry.segments.len() == 1 {
                    entry.open = None;
                }
                first
            };
            let Some(segment) = first else { return Ok(()) };
            if self.is_paused() {
                return Err(Interrupted::Paused);
            }
            self.replay_segment(&segment, terms_of, deliver).await?;
            if let Some(entry) = self.targets.borrow_mut().get_mut(&target) {
                entry.segments.pop_front();
                entry.note_oldest();
            }
            self.count(|m| m.waiting_bytes = m.waiting_bytes.saturating_sub(segment.bytes));
            self.progressed.notify_all();
        }
    }

    /// Hands a segment over and removes its file, durably. If a power loss brought the file back, its hints would be
    /// sent again, maybe after a truncation, or after tombstones are gone that were kept only while hints waited.
    async fn replay_segment(
        &self,
        segment: &Segment,
        terms_of: TermsOf<'_>,
        deliver: Deliver<'_>,
    ) -> Result<(), Interrupted> {
        let (id, dir) = (&segment.id, self.options.dir.clone());
        let path = self.path(id);
        let (to_open, failed) = (path.clone(), |e: std::io::Error| {
            Interrupted::File(HintsError::new(&self.path(id), &e))
        });
        let opened = runtime::offload(move || {
            let options = OpenOptions {
                read: true,
                write: true,
                ..OpenOptions::default()
            };
            let file = File::open(&to_open, options)?;
            let mut bytes = vec![0; usize::try_from(file.len()?).map_err(|_| std::io::ErrorKind::FileTooLarge)?];
            file.read_exact_at_blocking(&mut bytes, 0)?;
            Ok::<_, std::io::Error>((file, bytes))
        });
        let (file, bytes) = match opened.await {
            // It was handed over and its removal was not synced, or it was removed by other means.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                let begun_us = segment.begun_us.unwrap_or(0);
                self.miss_file(id.target, begun_us);
                return runtime::offload(move || fs::sync_dir(dir)).await.map_err(failed);
            }
            opened => opened.map_err(failed)?,
        };
        let end = self.replay_records(id, &file, &bytes, terms_of, deliver).await?;
        match end {
            End::Whole => {
                let id = *id;
                let removed = runtime::offload(move || remove(&dir, &[id])).await;
                removed.map_err(Interrupted::File)
            }
            End::Damaged { offset, expected } => {
                log::error!(
                    "hints {} is damaged at offset {offset}: expected {expected}. It is set aside, and what it holds after that \
                     place is not handed over: repair node {}",
                    path.display(),
                    id.target.0
                );
                self.count(|m| m.dropped += 1);
                let begun_us = format::read_header(&bytes, id).unwrap_or(0);
                self.miss_file(id.target, begun_us);
                let aside = set_aside_name(&path);
                let renamed = runtime::offload(move || fs::rename(&path, &aside).and_then(|()| fs::sync_dir(dir)));
                renamed.await.map_err(failed)
            }
        }
    }

    async fn replay_records(
        &self,
        id: &SegmentId,
        file: &File,
        bytes: &[u8],
        terms_of: TermsOf<'_>,
        deliver: Deliver<'_>,
    ) -> Result<End, Interrupted> {
        if format::read_header(bytes, id).is_none() {
            return Ok(if format::has_record_behind(bytes, 0) {
                End::Damaged {
                    offset: 0,
                    expected: "the header of this file",
                }
            } else {
                End::Whole
            });
        }
        let mut at = format::read_progress(bytes).max(RECORDS_AT);
        let mut batch: Vec<Record<'_>> = Vec::new();
        let mut batch_bytes = 0;
        let mut placement = None;
        loop {
            let mut record = format::read_record(bytes, at);
            if let Some(record) = &mut record {
                at = record.end;
                if let Some(of_next) = format::placement(record) {
                    placement = Some(of_next);
                    continue;
                }
                record.placement = placement.take();
                if self.is_wanted(id, record, terms_of) {
                    batch_bytes += record.mutation.len();
                    batch.push(*record);
                }
            }
            let is_full = batch_bytes >= BATCH_BYTES || batch.len() >= BATCH_MUTATIONS;
            if !batch.is_empty() && (is_full || record.is_none()) {
                self.hand_over(id, std::mem::take(&mut batch), terms_of, deliver)
                    .await?;
                let (written, _) = file
                    .write_at(format::progress(at as u64).to_vec(), format::PROGRESS_AT)
                    .await;
                written.map_err(|e| Interrupted::File(HintsError::new(&self.path(id), &e)))?;
                self.keep_to_rate(batch_bytes).await;
                batch_bytes = 0;
            }
            if record.is_none() {
                break;
            }
        }
        Ok(if at < bytes.len() && format::has_record_behind(bytes, at) {
            End::Damaged {
                offset: at,
                expected: "a whole hint with its checksum",
            }
        } else {
            End::Whole
        })
    }

    async fn hand_over(
        &self,
        id: &SegmentId,
        mut batch: Vec<Record<'_>>,
        terms_of: TermsOf<'_>,
        deliver: Deliver<'_>,
    ) -> Result<(), Interrupted> {
        batch.retain(|record| self.is_still_wanted(id, record, terms_of));
        match self.send(id, &batch, deliver).await? {
            Ok(()) => Ok(()),
            Err(NotTaken::Failed(_) | NotTaken::Rejected(_)) if batch.len() > 1 => {
                // Sent alone, each shows whether it is the cause.
                for record in batch {
                    // A truncation waits for the batch that was on its way, and not for these.
                    if self.is_still_wanted(id, &record, terms_of) {
                        self.hand_over_alone(id, &record, terms_of, deliver).await?;
                    }
                }
                Ok(())
            }
            Err(reason) => match &batch[..] {
                [record] => self.judge(id, record, reason, terms_of).await,
                _ => Err(Interrupted::NotTaken(reason.reason())),
            },
        }
    }

    async fn hand_over_alone(
        &self,
        id: &SegmentId,
        record: &Record<'_>,
        terms_of: TermsOf<'_>,
        deliver: Deliver<'_>,
    ) -> Result<(), Interrupted> {
        match self.send(id, std::slice::from_ref(record), deliver).await? {
            Ok(()) => Ok(()),
            Err(reason) => self.judge(id, record, reason, terms_of).await,
        }
    }

    /// Decides about a hint that was not taken: one that is permanently refused is set aside, so that those after it
    /// are handed over.
    async fn judge(
        &self,
        id: &SegmentId,
        record: &Record<'_>,
        reason: NotTaken,
        terms_of: TermsOf<'_>,
    ) -> Result<(), Interrupted> {
        let age_us = runtime::wall_clock_us().saturating_sub(record.noted_us);
        let is_patient = u128::from(age_us.max(0).cast_unsigned()) < REJECTION_PATIENCE.as_micros();
        match reason {
            NotTaken::Rejected(reason) if !is_patient && !planted::is_planted(Bug::RejectedHintWaits) => {
                let terms = Mutation::new(record.mutation).and_then(|m| terms_of(&m));
                self.miss_hint(id.target, record, terms);
                let rejected = self.reject(id.target, record, &reason).await;
                rejected.map_err(Interrupted::File)
            }
            reason => Err(Interrupted::NotTaken(reason.reason())),
        }
    }

    async fn send(
        &self,
        id: &SegmentId,
        batch: &[Record<'_>],
        deliver: Deliver<'_>,
    ) -> Result<Result<(), NotTaken>, Interrupted> {
        if self.is_paused() {
            return Err(Interrupted::Paused);
        }
        let hint = |record: &Record<'_>| Hint {
            mutation: record.mutation.to_vec(),
            placement: record.placement,
            made_us: record.noted_us,
            gc_grace_seconds: record.gc_grace_seconds,
        };
        let hints: Rc<[Hint]> = batch.iter().map(hint).collect();
        self.set_sending(id.target, true);
        let delivered = deliver(hints).await;
        self.set_sending(id.target, false);
        if delivered.is_ok() {
            self.count(|m| m.replayed += batch.len() as u64);
        }
        Ok(delivered)
    }

    fn set_sending(&self, target: HostId, is_sending: bool) {
        if let Some(entry) = self.targets.borrow_mut().get_mut(&target) {
            entry.is_sending = is_sending;
            entry.sent += u64::from(!is_sending);
        }
        if !is_sending {
            self.progressed.notify_all();
        }
    }

    /// Whether the hint is to be delivered. Counts it where it is lost: where its table is there and it is too old.
    fn is_wanted(&self, id: &SegmentId, record: &Record<'_>, terms_of: TermsOf<'_>) -> bool {
        let Some(mutation) = Mutation::new(record.mutation) else {
            self.count(|m| m.expired += 1);
            return false;
        };
        let Some(terms) = terms_of(&mutation) else {
            return false;
        };
        let age_us = runtime::wall_clock_us().saturating_sub(record.noted_us);
        let grace_us = i64::from(terms.grace_seconds.min(record.gc_grace_seconds)) * 1_000_000;
        if self.is_forgotten(id, &mutation) {
            return false;
        }
        let is_in_time = age_us < grace_us && !self.was_given_up(record);
        if !is_in_time {
            self.expire(id, record, terms);
        }
        is_in_time
    }

    /// Notes that the target will not get the hint's write.
    fn expire(&self, id: &SegmentId, record: &Record<'_>, terms: Terms) {
        self.miss_hint(id.target, record, Some(terms));
        self.count(|m| m.expired += 1);
    }

    /// Whether neither the table was dropped or truncated nor the hint was forgotten since the record was read.
    fn is_still_wanted(&self, id: &SegmentId, record: &Record<'_>, terms_of: TermsOf<'_>) -> bool {
        let mutation = Mutation::new(record.mutation).filter(|m| !self.is_forgotten(id, m));
        let Some(terms) = mutation.and_then(|m| terms_of(&m)) else {
            return false;
        };
        let is_in_time = !self.was_given_up(record);
        if !is_in_time {
            self.expire(id, record, terms);
        }
        is_in_time
    }

    /// Notes that a node will not get a hint: the span reaches from its birth to the last of its deletions, whose
    /// second may be later.
    pub(crate) fn miss_hint(&self, target: HostId, record: &Record<'_>, terms: Option<Terms>) {
        let last = terms.and_then(|terms| terms.last_deletion).unwrap_or(0);
        let last_us = i64::from(last) * 1_000_000;
        self.miss(target, record.noted_us, last_us.max(record.noted_us));
    }

    /// Whether the cluster has given this node's hints of that time up.
    fn was_given_up(&self, record: &Record<'_>) -> bool {
        record.noted_us < self.forgotten_before_us.get() && !planted::is_planted(Bug::ForgottenHintReplayed)
    }

    fn is_forgotten(&self, id: &SegmentId, mutation: &Mutation<'_>) -> bool {
        let targets = self.targets.borrow();
        if targets
            .get(&id.target)
            .is_some_and(|target| id.number < target.forgotten_below)
        {
            return true;
        }
        let truncations = self.truncations.borrow();
        let below = truncations.get(&(id.shard, mutation.table));
        below.is_some_and(|below| id.number < *below)
    }

    /// Waits as long as so many bytes may take.
    async fn keep_to_rate(&self, bytes: usize) {
        let rate = self.options.bytes_per_second.max(1);
        let micros = (bytes as u64).saturating_mul(1_000_000) / rate;
        runtime::sleep(Duration::from_micros(micros)).await;
    }
}

fn set_aside_name(path: &std::path::Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".damaged");
    PathBuf::from(name)
}
