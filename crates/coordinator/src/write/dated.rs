//! When a request ends, and when a write was dated: two values that go with it from the front door to its replicas.

use std::time::Duration;

use runtime::Instant;
use topology::Consistency;

use super::Writes;
use super::lasting::Lasting;

/// When the client of a request gives up, as far as the request says so (`USING TIMEOUT`).
///
/// It is a moment and not a duration: what waits in several places waits no longer for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// Each step takes as long as the node's options give steps of its kind.
    pub const USUAL: Self = Self(None);

    /// At that moment, whatever the node's options say.
    #[must_use]
    pub const fn at(moment: Instant) -> Self {
        Self(Some(moment))
    }

    /// So long from now; [`Deadline::USUAL`] without.
    #[must_use]
    pub fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.map(|timeout| runtime::now() + timeout))
    }

    /// The request's own.
    #[must_use]
    pub const fn own(self) -> Option<Instant> {
        self.0
    }

    /// This one if it is the request's own, else the other one.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(self.0.or(other.0))
    }

    /// The request's own, else when a step that begins now has taken its usual time.
    #[must_use]
    pub fn or_after(self, usual: Duration) -> Instant {
        self.0.unwrap_or_else(|| runtime::now() + usual)
    }
}

/// A write with its date: its timestamp and the seconds of its deletions are to be of [`Dated::now_us`].
///
/// While the value lives, the coordinator knows of the write, so that no report of tombstones passes its date while it
/// waits: for a list that it reads, for room, or for its replicas. What is on its way afterwards is known by its
/// flight. Nothing but [`Writes::date`] makes one, so no path dates a write later than it was made.
pub struct Dated {
    guard: Lasting,
    /// How many replicas must have the write.
    pub level: Consistency,
    /// When its client gives up.
    pub deadline: Deadline,
}

impl Dated {
    /// When it was dated; microseconds since the epoch.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        self.guard.began_us()
    }
}

impl Writes {
    /// Dates a write now, before its timestamp and its deletions are made.
    #[must_use]
    pub fn date(&self, level: Consistency, deadline: Deadline) -> Dated {
        Dated {
            guard: Lasting::since(&self.flights, runtime::now()),
            level,
            deadline,
        }
    }
}
