//! From a map to one with twice as many tablets, or half as many.
//!
//! A split gives both halves of a tablet its replicas, shards included; a merge joins pairs of tablets that have the
//! same replicas. So a resize changes where no token is: a request that was routed by the map before reaches the same
//! shards, and nodes take the two maps over in any order.
//!
//! A move refers to a tablet by its place in the map, so a map with a tablet in transition is not resized.

use std::fmt;

use crate::tablet_map::{Boundaries, Builder, MapError, Tablet, TabletId, TabletMap};

/// Why a map cannot be resized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResizeError {
    /// The map's tablets are not of equal size, or the count is neither twice nor half the map's, or too large.
    Count {
        /// The map's.
        now: u32,
        /// The one asked for.
        wanted: u32,
    },
    /// A tablet is in transition.
    Moving(TabletId),
    /// A tablet and the next one are to be merged, and have different replicas.
    Apart(TabletId),
    /// No map can be so.
    Map(MapError),
}

impl fmt::Display for ResizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count { now, wanted } => {
                write!(f, "a map of {now} tablets cannot become one of {wanted}")
            }
            Self::Moving(tablet) => write!(f, "tablet {} is in transition", tablet.0),
            Self::Apart(tablet) => write!(
                f,
                "tablets {} and {} have different replicas, so they cannot be merged",
                tablet.0,
                tablet.0.saturating_add(1)
            ),
            Self::Map(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ResizeError {}

impl From<MapError> for ResizeError {
    fn from(error: MapError) -> Self {
        Self::Map(error)
    }
}

impl TabletMap {
    /// The map with each tablet split in two, or with each pair merged, as of a command of the metadata's log at
    /// `index`. The tablets of a pair may list their replicas in different orders; the merged tablet has that of the
    /// first.
    ///
    /// # Errors
    /// When the count is neither twice nor half the map's, when a tablet is in transition, or when the tablets of a
    /// pair have different replicas.
    pub fn resized(&self, index: u64, tablet_count: u32) -> Result<Self, ResizeError> {
        let count = ResizeError::Count {
            now: self.tablet_count(),
            wanted: tablet_count,
        };
        let Boundaries::PowerOfTwo(log2) = *self.boundaries() else {
            return Err(count);
        };
        if let Some(moving) = self.moving().next() {
            return Err(ResizeError::Moving(moving.id));
        }
        let doubled = self.tablet_count().checked_mul(2);
        let is_split = doubled == Some(tablet_count);
        let log2 = match log2.checked_sub(1) {
            _ if is_split => log2 + 1,
            Some(halved) if 1 << halved == tablet_count => halved,
            _ => return Err(count),
        };
        let version = index.max(self.version().saturating_add(1));
        let mut builder = Builder::new(version, Boundaries::PowerOfTwo(log2))?;
        let mut tablets = self.tablets();
        while let Some(tablet) = tablets.next() {
            builder.push(tablet.replicas, None)?;
            if is_split {
                builder.push(tablet.replicas, None)?;
            } else if let Some(second) = tablets.next()
                && !have_same_replicas(&tablet, &second)
            {
                return Err(ResizeError::Apart(tablet.id));
            }
        }
        Ok(builder.finish()?)
    }
}

/// Whether two tablets have the same replicas, shards included, in whatever order.
pub(crate) fn have_same_replicas(one: &Tablet<'_>, other: &Tablet<'_>) -> bool {
    one.replicas.len() == other.replicas.len() && one.replicas.iter().all(|replica| other.replicas.contains(replica))
}
