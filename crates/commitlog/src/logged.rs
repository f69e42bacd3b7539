//! What a writer keeps of what it has appended, to find out whether the log has it.

use std::rc::Rc;

use crate::{Commitlog, LogError, ReplayPosition};

/// A moment of the log: whether anything that was appended after it is lost can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogMark(u64);

/// Where the log has something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogPlace {
    /// The position after it.
    pub position: ReplayPosition,
    /// A mark from before it.
    pub mark: LogMark,
}

/// Something is appended, and the kernel may not have it yet. It may be acknowledged after [`Commitlog::commit`].
#[must_use = "what is appended may be acknowledged only when it is committed"]
#[derive(PartialEq, Eq, Debug)]
pub struct Logged(LogPlace);

impl Logged {
    pub(crate) fn new(position: ReplayPosition, mark: LogMark) -> Self {
        Self(LogPlace { position, mark })
    }

    /// Where it is.
    #[inline]
    #[must_use]
    pub fn place(&self) -> LogPlace {
        self.0
    }

    /// Adds it to what was appended before: one commit covers all of it.
    #[inline]
    pub fn add_to(self, all: &mut Option<Self>) {
        match all {
            Some(all) => all.0.position = self.0.position,
            None => *all = Some(self),
        }
    }

    /// It is committed with all that is appended after a mark: see [`Commitlog::commit_since`]. The mark is from
    /// before.
    #[inline]
    pub fn is_covered_by(self, mark: LogMark) {
        debug_assert!(mark.0 <= self.0.mark.0, "the mark is from after what it is to cover");
    }

    /// Nothing is acknowledged for it: a loss is no fault.
    #[inline]
    pub fn is_not_awaited(self) {}
}

impl From<Logged> for LogPlace {
    fn from(logged: Logged) -> Self {
        logged.0
    }
}

impl LogMark {
    /// Whether something that was appended to the log after this mark may be lost.
    #[inline]
    #[must_use]
    pub fn has_losses(self, log: &Commitlog) -> bool {
        self != log.mark()
    }
}

impl LogPlace {
    /// Whether it may be lost.
    #[inline]
    #[must_use]
    pub fn is_lost(self, log: &Commitlog) -> bool {
        self.mark.has_losses(log)
    }

    /// Whether it is durable.
    #[inline]
    #[must_use]
    pub fn is_durable(self, log: &Commitlog) -> bool {
        !self.is_lost(log) && log.is_synced(self.position)
    }
}

impl Commitlog {
    /// A mark before whatever is appended next.
    #[inline]
    #[must_use]
    pub fn mark(&self) -> LogMark {
        LogMark(self.losses.get())
    }

    /// Whether any record was lost since the log was opened.
    #[must_use]
    pub fn has_ever_lost(&self) -> bool {
        self.losses.get() > 0
    }

    /// Hands what was appended to the kernel, this with it. It may be acknowledged then, in batch mode after
    /// [`Commitlog::synced`].
    ///
    /// # Errors
    /// When the log cannot be written, and when something may be lost that was appended with this.
    #[inline]
    pub fn commit(&self, logged: &Logged) -> Result<ReplayPosition, LogError> {
        self.commit_since(logged.0.mark)?;
        Ok(logged.0.position)
    }

    /// Hands everything appended to the kernel, and returns the position after it.
    ///
    /// # Errors
    /// When the log cannot be written, and when something may be lost that was appended after the mark.
    #[inline]
    pub fn commit_since(&self, mark: LogMark) -> Result<ReplayPosition, LogError> {
        let written = self.write()?;
        if mark.has_losses(self) {
            Err(LogError::Lost)
        } else {
            Ok(written)
        }
    }

    /// Waits until everything appended so far is durable. What several waiting tasks have appended is written with one
    /// write and one sync.
    ///
    /// # Errors
    /// When the log cannot be written or synced, and when something may be lost that was appended after the mark.
    pub async fn durable_since(self: &Rc<Self>, mark: LogMark) -> Result<(), LogError> {
        let position = self.appended.get();
        loop {
            if self.is_broken.get() {
                return Err(self.broken_error());
            }
            if mark.has_losses(self) {
                return Err(LogError::Lost);
            }
            let is_written = position <= self.written.get() || self.chunk.borrow().is_empty();
            if is_written && self.synced.get() >= position.min(self.written.get()) {
                return Ok(());
            }
            if self.sync_running.get() {
                self.sync_done.notified().await;
            } else {
                self.write()?;
                self.sync().await?;
            }
        }
    }
}
