//! The writing of logged batches: noted first (`batchlog.rs`), then written, and written again until they end.

use std::rc::Rc;
use std::time::Duration;

use mutation::Addressed;
use runtime::StopPoint;
use stdx::planted::{self, Bug};

use super::{Atomicity, Manner, Mutations, Writes};
use crate::batchlog::{PERIOD, needs_note_in};
use crate::write::dated::Dated;
use crate::{CoordinatorError, Tally, WriteKind};

/// How long an open batch is written at its own level. After that, hints are kept for the replicas that do not take it.
const LEVEL_TIME_MAX: Duration = Duration::from_mins(1);

impl Writes {
    /// Writes the mutations of a logged batch. They count all or not at all, even if nodes end half way: as one record
    /// of one log, where they all go to one partition or to one replica alone, else as a batch that is noted first.
    ///
    /// # Errors
    /// As [`Writes::write_logged`].
    pub async fn write_batch(self: &Rc<Self>, mutations: Mutations, dated: &Dated) -> Result<(), CoordinatorError> {
        let view = self.context.view();
        let manner = Manner::of(dated, WriteKind::Batch, Atomicity::Batch);
        if needs_note_in(&view, &mutations) {
            self.write_noted(mutations.into_vec(), manner).await
        } else {
            self.write_from(view, mutations, manner).await
        }
    }

    /// Writes a logged batch and waits until the level is met for each partition. It happens wholly, if at all, also
    /// when this node ends before that.
    ///
    /// # Errors
    /// When too few replicas live; when the batch could not be noted: nothing is written then, but by a node that has
    /// noted it and was not heard; and as [`Writes::write`]: then it will be finished.
    pub async fn write_logged(
        self: &Rc<Self>,
        mutations: Vec<Addressed>,
        dated: &Dated,
    ) -> Result<(), CoordinatorError> {
        let manner = Manner::of(dated, WriteKind::Batch, Atomicity::Batch);
        self.write_noted(mutations, manner).await
    }

    /// As [`Writes::write_logged`].
    pub(crate) async fn write_noted(
        self: &Rc<Self>,
        mutations: Vec<Addressed>,
        manner: Manner,
    ) -> Result<(), CoordinatorError> {
        let level = manner.level;
        // Whichever node has the note finishes it.
        let manner = Manner {
            atomicity: Atomicity::Share,
            ..manner
        };
        if planted::is_planted(Bug::BatchWithoutNote) {
            return self
                .write_from(self.context.view(), Mutations::from(mutations), manner)
                .await;
        }
        let view = self.context.view();
        // What is refused for this must not be finished later.
        self.require(&mutations, level, WriteKind::Batch)?;
        let mutations = Rc::new(mutations);
        let noted = self.batches.note(&view, &mutations, (level, manner.deadline)).await?;
        if planted::is_planted(Bug::EarlyBatchEnd) {
            noted.end();
        }
        runtime::stop_point(StopPoint::BatchNoted);
        let manner = Manner {
            began: runtime::now(),
            ..manner
        };
        let written = self.write_from(view, Mutations::from(&mutations[..]), manner).await;
        runtime::stop_point(StopPoint::BatchWritten);
        if written.is_ok() {
            noted.end();
        }
        drop(noted);
        // If replicas died after the batch was noted, nothing of it was sent. But the note remains, and a holder that
        // is not notified of the batch's end writes it.
        written.map_err(|e| match e {
            CoordinatorError::Unavailable(unavailable) => CoordinatorError::WriteTimeout {
                tally: Tally {
                    consistency: level,
                    received: 0,
                    block_for: unavailable.required,
                },
                kind: WriteKind::Batch,
                missing: "replicas that went down meanwhile; the batch is noted and will be finished".to_owned(),
            },
            CoordinatorError::DiskFull { tally, full, .. } => CoordinatorError::WriteTimeout {
                tally,
                kind: WriteKind::Batch,
                missing: format!("{full}, whose disks became full meanwhile; the batch is noted and will be finished"),
            },
            other => other,
        })
    }

    /// Tries once to finish the open batches of this node that no task is writing.
    ///
    /// # Errors
    /// When one of them cannot be written now; it stays open.
    pub async fn finish_batches(self: &Rc<Self>) -> Result<(), String> {
        let mut result = Ok(());
        for id in self.batches.own() {
            result = result.and(self.finish_batch(id).await);
        }
        result
    }

    /// Finishes open batches whose coordinator does not; never returns. Run this on each shard once the node is in its
    /// cluster.
    pub async fn run_batchlog(self: Rc<Self>) {
        loop {
            for id in self.batches.due() {
                if self.batches.is_left_to_us(id).await
                    && let Err(e) = self.finish_batch(id).await
                {
                    log::debug!("a logged batch could not be finished yet: {e}");
                }
            }
            if let Err(e) = self.batches.note_old_again().await {
                log::debug!("open logged batches could not be noted again: {e}");
            }
            runtime::sleep(PERIOD).await;
        }
    }

    /// Writes an open batch again and ends it here.
    async fn finish_batch(self: &Rc<Self>, id: u128) -> Result<(), String> {
        let Some(mut batch) = self.batches.take_up(id) else {
            return Ok(());
        };
        let mutations = std::mem::take(&mut batch.mutations);
        if !mutations.is_empty() {
            if batch.since.elapsed() < LEVEL_TIME_MAX || planted::is_planted(Bug::BatchPinsLog) {
                let manner = Manner {
                    made_us: Some(batch.noted_us),
                    ..Manner::new(batch.level, WriteKind::Batch, Atomicity::Share)
                };
                let written = self.write_from(self.context.view(), mutations, manner).await;
                written.map_err(|e| e.to_string())?;
            } else {
                self.write_or_hint(mutations, batch.noted_us).await?;
            }
            self.context.count(|m| m.batches_finished += 1);
        }
        batch.end();
        Ok(())
    }
}
