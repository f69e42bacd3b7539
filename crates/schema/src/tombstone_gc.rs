//! `tombstone_gc` of a table: when compactions may forget a deletion.
//!
//! The names and their meaning are ScyllaDB's (cql/ddl, "Additional table options"); what a watermark is:
//! docs/dev/tombstones.md.

use std::fmt;

use crate::table::TableOptions;

/// For how long missed writes are brought late where `gc_grace_seconds` is 0 and does not decide: the default of that
/// option, ten days.
const LATE_WRITE_SECONDS_DEFAULT: u32 = 864_000;

/// How long the state of conditional statements is kept at least, in seconds, whatever `paxos_grace_seconds` says.
pub const PAXOS_GRACE_SECONDS_MIN: u32 = 3 * 60 * 60;

/// By what a deletion may be forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TombstoneGcMode {
    /// `gc_grace_seconds` after it was made.
    Timeout,
    /// Once all replicas are known to have it.
    Repair,
    /// At once.
    Immediate,
    /// Never.
    Disabled,
}

impl TombstoneGcMode {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Timeout, Self::Repair, Self::Immediate, Self::Disabled];

    /// The name of the mode in CQL.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Repair => "repair",
            Self::Immediate => "immediate",
            Self::Disabled => "disabled",
        }
    }

    /// The mode of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

/// The option as a statement gives it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TombstoneGc {
    /// `mode`.
    pub mode: TombstoneGcMode,
    /// `propagation_delay_in_seconds`: for how long a deletion is kept in any case, where repair decides. Replicas are
    /// compared with the deletions that are younger.
    pub propagation_delay_seconds: u32,
}

impl TombstoneGc {
    /// Unless the option says otherwise; ScyllaDB's default.
    pub const PROPAGATION_DELAY_DEFAULT: u32 = 3_600;

    /// A mode with the default delay.
    #[must_use]
    pub fn of(mode: TombstoneGcMode) -> Self {
        Self {
            mode,
            propagation_delay_seconds: Self::PROPAGATION_DELAY_DEFAULT,
        }
    }
}

/// As a literal of CQL.
impl fmt::Display for TombstoneGc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{{'mode': '{}', 'propagation_delay_in_seconds': '{}'}}",
            self.mode.name(),
            self.propagation_delay_seconds
        )
    }
}

impl TableOptions {
    /// How tombstones are forgotten. A table without the option keeps them for its grace period.
    #[must_use]
    pub fn tombstone_gc_mode(&self) -> TombstoneGcMode {
        self.tombstone_gc.map_or(TombstoneGcMode::Timeout, |gc| gc.mode)
    }

    /// Deletions made before this second do not count when replicas are compared at the second `now`: some replica may
    /// have forgotten them.
    #[must_use]
    pub fn compared_from(&self, now: u32) -> u32 {
        match self.tombstone_gc {
            None => now.saturating_sub(self.grace()),
            Some(gc) => match gc.mode {
                TombstoneGcMode::Timeout => now.saturating_sub(self.grace()),
                TombstoneGcMode::Repair => now.saturating_sub(gc.propagation_delay_seconds),
                TombstoneGcMode::Immediate => u32::MAX,
                TombstoneGcMode::Disabled => 0,
            },
        }
    }

    /// `gc_grace_seconds`.
    #[must_use]
    pub fn grace(&self) -> u32 {
        u32::try_from(self.gc_grace_seconds).unwrap_or(0)
    }

    /// `paxos_grace_seconds`, or without it `gc_grace_seconds`.
    #[must_use]
    pub fn paxos_grace(&self) -> u32 {
        self.paxos_grace_seconds.unwrap_or_else(|| self.grace())
    }

    /// For how many seconds a write that a replica missed may still be brought to it, and the replica is known to lack
    /// it. 0 for a table that forgets deletions at once: a late write could be one that was deleted.
    #[must_use]
    pub fn late_write_seconds(&self) -> u32 {
        match self.tombstone_gc_mode() {
            TombstoneGcMode::Timeout => self.grace(),
            TombstoneGcMode::Immediate => 0,
            TombstoneGcMode::Repair | TombstoneGcMode::Disabled => match self.grace() {
                0 => LATE_WRITE_SECONDS_DEFAULT,
                grace => grace,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_are_compared_with_the_deletions_that_none_may_have_forgotten() {
        let mut options = TableOptions {
            gc_grace_seconds: 100,
            ..TableOptions::default()
        };
        assert_eq!(
            options.compared_from(1_000),
            900,
            "the grace period, without the option"
        );
        for (mode, from) in [
            (TombstoneGcMode::Timeout, 900),
            (TombstoneGcMode::Repair, 995),
            (TombstoneGcMode::Immediate, u32::MAX),
            (TombstoneGcMode::Disabled, 0),
        ] {
            options.tombstone_gc = Some(TombstoneGc {
                mode,
                propagation_delay_seconds: 5,
            });
            assert_eq!(options.compared_from(1_000), from, "{mode:?}");
            assert_eq!(TombstoneGcMode::of_name(mode.name()), Some(mode));
        }
    }
}
