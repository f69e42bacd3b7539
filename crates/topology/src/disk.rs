//! How full the file systems of a node are, and what the node does about it.
//!
//! *Utilisation* is the used part of what programs can use: used ÷ (used + available), as `df` prints it. The fullest
//! file system of a node counts.
//!
//! | utilisation | level |
//! |---|---|
//! | at or above `critical` | `Critical` |
//! | at or above `warn` | `Warning` |
//! | below | `Normal` |
//!
//! A level begins at its threshold and ends [`RECOVERY`] below it, so that a node whose files come and go does not
//! flap.

use std::time::Duration;

/// How far below a threshold the utilisation must fall before the level ends: two percent.
pub const RECOVERY: Utilization = Utilization(20_000);
/// A file system that is closer to a threshold is near it: ten percent.
const NEAR: Utilization = Utilization(100_000);
/// A file system with less room can be filled between two rare looks, however large it is.
const NEAR_BYTES: u64 = 10 << 30;
/// Between two looks at a file system that is near a threshold.
const LOOK_NEAR: Duration = Duration::from_millis(250);
/// Between two looks at one that is far from all.
const LOOK_FAR: Duration = Duration::from_secs(5);

/// A part of a file system, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Utilization(pub u32);

impl Utilization {
    /// All of it.
    pub const WHOLE: Self = Self(1_000_000);

    /// Of a file system with so many bytes used and available.
    #[must_use]
    pub fn of(used: u64, available: u64) -> Self {
        let (used, whole) = (u128::from(used), u128::from(used) + u128::from(available));
        // A file system without bytes takes none.
        let millionths = (used * 1_000_000).checked_div(whole).unwrap_or(1_000_000);
        Self(u32::try_from(millionths).expect("used is a part of the whole"))
    }

    fn less(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl std::fmt::Display for Utilization {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{} %", self.0 / 10_000, self.0 / 1_000 % 10)
    }
}

/// How full a node is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum DiskLevel {
    /// It has room.
    #[default]
    Normal,
    /// It takes everything, and clients are warned.
    Warning,
    /// It takes no data of users: no write that adds data, no tablet, no compaction without room.
    Critical,
}

impl DiskLevel {
    /// Whether the node takes writes that add data.
    #[must_use]
    pub fn takes_growth(self) -> bool {
        self != Self::Critical
    }

    /// The name that operators see.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// Where the levels begin; None: never.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct DiskLimits {
    /// Where clients are warned.
    pub warn: Option<Utilization>,
    /// Where growth is refused.
    pub critical: Option<Utilization>,
}

impl DiskLimits {
    /// The level after this one, at a utilisation.
    #[must_use]
    pub fn judge(&self, before: DiskLevel, now: Utilization) -> DiskLevel {
        let holds = |threshold: Option<Utilization>, level: DiskLevel| {
            threshold.is_some_and(|threshold| now >= threshold || before >= level && now > threshold.less(RECOVERY))
        };
        if holds(self.critical, DiskLevel::Critical) {
            DiskLevel::Critical
        } else if holds(self.warn, DiskLevel::Warning) {
            DiskLevel::Warning
        } else {
            DiskLevel::Normal
        }
    }

    /// How long to wait before the next look at a file system.
    #[must_use]
    pub fn look_after(&self, now: Utilization, available: u64) -> Duration {
        let thresholds = [self.warn, self.critical];
        let is_near = |threshold: &Utilization| now >= threshold.less(NEAR);
        if thresholds.iter().flatten().any(is_near) || available < NEAR_BYTES {
            LOOK_NEAR
        } else {
            LOOK_FAR
        }
    }
}
