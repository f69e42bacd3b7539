//! Sync points: the place that the hints for some nodes had reached, and waiting until all before it are handed over or
//! dropped.
//!
//! Model. Hints of a shard are stored in segments whose numbers grow, over restarts too. A place on a shard is a
//! segment number: what was noted before it is in segments below it. So [`Hints::mark`] writes what is buffered and
//! ends the segments under way; what is noted afterwards goes to segments from there on. A place is reached when no
//! segment below it is left for the nodes in question, for any reason: handed over, expired, truncated, or set aside as
//! damaged.
//!
//! A [`SyncPoint`] is the places of all shards of a node. It is a value without a memory on any node, so it outlives
//! restarts. A segment of a shard that the node no longer has counts against the place of that number modulo the shards
//! there were.
//!
//! ```text
//! text: hexadecimal digits of: u8 format version 1, [16] host id of the node, u16 shards, u64 segment number for each,
//!       u32 targets, [16] host id of each, ascending, u32 crc of all that; little endian
//! ```

use std::collections::BTreeSet;
use std::fmt::{self, Write};
use std::time::Duration;

use topology::HostId;
use uuid::Uuid;

use crate::Hints;

const FORMAT_VERSION: u8 = 1;
const CRC_BYTES: usize = 4;

/// What the hints of a node for some others had reached on each shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SyncPoint {
    /// The node whose hints they are.
    pub node: HostId,
    /// For each shard, the first segment number after the place.
    pub below: Vec<u64>,
    /// The nodes that hints waited for when it was made, of those it was asked for.
    pub targets: BTreeSet<HostId>,
}

/// A text that is no sync point of this node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyncPointError {
    /// It is not what [`SyncPoint::encode`] wrote.
    Damaged(&'static str),
    /// A release wrote it that this one does not understand.
    UnknownVersion(u8),
    /// Another node made it.
    OfAnother(HostId),
}

impl fmt::Display for SyncPointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Damaged(expected) => write!(f, "the id of the sync point is damaged: expected {expected}"),
            Self::UnknownVersion(version) => write!(
                f,
                "the id of the sync point has format {version}: expected {FORMAT_VERSION}, the only one known here"
            ),
            Self::OfAnother(host) => write!(f, "node {} made this sync point and has to be asked", host.0),
        }
    }
}

impl std::error::Error for SyncPointError {}

impl SyncPoint {
    /// It as text.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut bytes = vec![FORMAT_VERSION];
        bytes.extend_from_slice(self.node.0.as_bytes());
        let shards = u16::try_from(self.below.len()).expect("a node has at most a few hundred shards");
        bytes.extend_from_slice(&shards.to_le_bytes());
        for number in &self.below {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        let targets = u32::try_from(self.targets.len()).expect("a cluster has fewer than 2^32 nodes");
        bytes.extend_from_slice(&targets.to_le_bytes());
        for target in &self.targets {
            bytes.extend_from_slice(target.0.as_bytes());
        }
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// What a text says, of sync points that `node` made.
    ///
    /// # Errors
    /// [`SyncPointError`].
    pub fn decode(text: &str, node: HostId) -> Result<Self, SyncPointError> {
        const WHOLE: SyncPointError = SyncPointError::Damaged("the whole id, as it was answered");
        let bytes = from_digits(text).ok_or(SyncPointError::Damaged("hexadecimal digits"))?;
        let (body, crc) = bytes.split_last_chunk::<CRC_BYTES>().ok_or(WHOLE)?;
        if u32::from_le_bytes(*crc) != crc32fast::hash(body) {
            return Err(SyncPointError::Damaged("the checksum of what precedes it"));
        }
        let (version, mut rest) = body.split_first().ok_or(WHOLE)?;
        if *version != FORMAT_VERSION {
            return Err(SyncPointError::UnknownVersion(*version));
        }
        let made_by = HostId(Uuid::from_bytes(take(&mut rest).ok_or(WHOLE)?));
        let shards = u16::from_le_bytes(take(&mut rest).ok_or(WHOLE)?);
        let below = (0..shards).map(|_| take(&mut rest).map(u64::from_le_bytes));
        let below = below.collect::<Option<Vec<u64>>>().ok_or(WHOLE)?;
        let count = u32::from_le_bytes(take(&mut rest).ok_or(WHOLE)?);
        let targets = (0..count).map(|_| Some(HostId(Uuid::from_bytes(take(&mut rest)?))));
        let targets = targets.collect::<Option<BTreeSet<HostId>>>().ok_or(WHOLE)?;
        if below.is_empty() || !rest.is_empty() {
            return Err(WHOLE);
        }
        if made_by != node {
            return Err(SyncPointError::OfAnother(made_by));
        }
        Ok(Self { node, below, targets })
    }
}

fn from_digits(text: &str) -> Option<Vec<u8>> {
    let value = |digit: u8| {
        char::from(digit)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
    };
    let pairs = text.as_bytes().chunks(2);
    pairs
        .map(|pair| match pair {
            [high, low] => Some(value(*high)? << 4 | value(*low)?),
            _ => None,
        })
        .collect()
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

/// A shard's part of a sync point.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mark {
    /// What was noted before is in segments below this one.
    pub below: u64,
    /// The nodes that hints wait for here.
    pub waiting: Vec<HostId>,
}

impl Hints {
    /// The present place of the hints for some nodes; None: for all.
    #[must_use]
    pub fn mark(&self, targets: Option<&BTreeSet<HostId>>) -> Mark {
        if let Err(e) = self.write() {
            log::warn!("{e}; hints are lost");
        }
        let mut waiting = Vec::new();
        for (id, target) in self.targets.borrow_mut().iter_mut() {
            if target.has_hints() && targets.is_none_or(|targets| targets.contains(id)) {
                // What follows goes to a segment after the place.
                target.open = None;
                waiting.push(*id);
            }
        }
        Mark {
            below: self.next_segment.get(),
            waiting,
        }
    }

    /// Whether nothing is left on this shard of what was noted before a sync point.
    #[must_use]
    pub fn is_reached(&self, point: &SyncPoint) -> bool {
        let targets = self.targets.borrow();
        let of_point = targets.iter().filter(|(id, _)| point.targets.contains(id));
        let mut segments = of_point.flat_map(|(_, target)| &target.segments);
        segments.all(|segment| {
            let shard = segment.id.shard as usize % point.below.len().max(1);
            point.below.get(shard).is_none_or(|below| segment.id.number >= *below)
        })
    }

    /// Waits until [`Hints::is_reached`]; false if it is not reached before the deadline.
    pub async fn wait_until_reached(&self, point: &SyncPoint, patience: Duration) -> bool {
        let deadline = runtime::now() + patience;
        while !self.is_reached(point) {
            let left = deadline.saturating_duration_since(runtime::now());
            if left.is_zero() || runtime::timeout(left, self.progressed.notified()).await.is_err() {
                return self.is_reached(point);
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(n: u128) -> HostId {
        HostId(Uuid::from_u128(n))
    }

    fn point() -> SyncPoint {
        SyncPoint {
            node: host(1),
            below: vec![7, 1 << 50],
            targets: [host(2), host(3)].into(),
        }
    }

    #[test]
    fn an_id_is_read_as_written_on_the_node_that_made_it_and_refused_elsewhere() {
        let text = point().encode();
        assert_eq!(SyncPoint::decode(&text, host(1)), Ok(point()));
        assert_eq!(SyncPoint::decode(&text.to_uppercase(), host(1)), Ok(point()));
        let refused = SyncPoint::decode(&text, host(9)).expect_err("another node made it");
        assert_eq!(
            refused.to_string(),
            format!("node {} made this sync point and has to be asked", host(1).0)
        );
    }

    #[test]
    fn an_id_that_was_cut_or_changed_anywhere_is_refused_with_the_reason() {
        let text = point().encode();
        for end in 0..text.len() {
            let cut = SyncPoint::decode(&text[..end], host(1));
            assert!(matches!(cut, Err(SyncPointError::Damaged(_))), "cut at {end}: {cut:?}");
        }
        for at in 0..text.len() {
            let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
            let changed = format!("{}{other}{}", &text[..at], &text[at + 1..]);
            let read = SyncPoint::decode(&changed, host(1));
            assert!(matches!(read, Err(SyncPointError::Damaged(_))), "digit {at}: {read:?}");
        }
        for other in ["", "xyz", "é", &format!("{text}00")] {
            let read = SyncPoint::decode(other, host(1));
            assert!(matches!(read, Err(SyncPointError::Damaged(_))), "{other:?}: {read:?}");
        }
    }

    #[test]
    fn an_id_of_a_later_format_is_refused_by_its_number() {
        let mut bytes = vec![2, 0, 0];
        let crc = crc32fast::hash(&bytes);
        bytes.extend_from_slice(&crc.to_le_bytes());
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            SyncPoint::decode(&text, host(1)),
            Err(SyncPointError::UnknownVersion(2))
        );
    }
}
