//! The *version* of a tablet. Drivers that have agreed on `TABLETS_ROUTING_V2_EXPERIMENTAL` receive it with the tablet,
//! and know by it whether what they know of the tablet is still right.
//!
//! The version is a hash of the tablet's replicas: their node numbers and shards, in any order. Metadata that are equal
//! have equal node numbers and maps, so all nodes compute the same. It changes with each change of the replicas, and is
//! again what it was when they are again what they were. A split or a merge does not change it: what a driver knows of
//! the former ranges still leads to the replicas. It is computed for each request that asks, in some ten instructions
//! for a replica; nothing is stored.
//!
//! Compatibility: all releases must compute the same version. Otherwise drivers receive the tablet again with each
//! request while a cluster has two releases.

use crate::view::ClusterView;
use schema::TableId;
use topology::{HostId, Replica};
use types::Token;

/// Where a tablet is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VersionedTablet {
    /// The token before its first.
    pub after: Token,
    /// Its last token.
    pub last: Token,
    /// The nodes that have it, and the shard there, by host id.
    pub replicas: Vec<(HostId, u16)>,
    /// Its version.
    pub version: u64,
}

impl ClusterView {
    /// The version of the tablet that has a token; None for tables without tablets of their own.
    #[inline]
    #[must_use]
    pub fn tablet_version(&self, table: TableId, token: Token) -> Option<u64> {
        let route = self.route(table).filter(|route| route.has_own_tablets)?;
        Some(version_of(route.map.tablet_of(token).replicas))
    }

    /// The tablet that has a token; None for tables without tablets of their own.
    #[must_use]
    pub fn versioned_tablet(&self, table: TableId, token: Token) -> Option<VersionedTablet> {
        let map = &self.route(table).filter(|route| route.has_own_tablets)?.map;
        let tablet = map.tablet_of(token);
        let (after, last) = map.token_range(tablet.id)?;
        let place = |r: &Replica| Some((self.topology.numbered(r.node)?.host_id, r.shard));
        let mut replicas: Vec<(HostId, u16)> = tablet.replicas.iter().filter_map(place).collect();
        replicas.sort_unstable();
        Some(VersionedTablet {
            after,
            last,
            replicas,
            version: version_of(tablet.replicas),
        })
    }
}

#[inline]
fn version_of(replicas: &[Replica]) -> u64 {
    hash_of(
        replicas
            .iter()
            .map(|replica| u64::from(replica.node.0) << 16 | u64::from(replica.shard)),
    )
}

/// A hash of the nodes that have these replicas, in any order. Hints keep it; a release that computes another one hands
/// them over to more nodes than it must.
pub(crate) fn placement_of(replicas: &[Replica]) -> u64 {
    hash_of(replicas.iter().map(|replica| u64::from(replica.node.0)))
}

/// Each number is mixed to 64 bits; their sum does not depend on the order, and is mixed once more so that each block
/// of four bits depends on all numbers.
#[inline]
fn hash_of(numbers: impl Iterator<Item = u64>) -> u64 {
    mixed(numbers.map(mixed).fold(0, u64::wrapping_add))
}

/// The output function of SplitMix64 (Steele, Lea, Flood 2014), by which all bits of a number change about half of the
/// bits of another.
#[inline]
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use topology::NodeNumber;

    fn replica(node: u16, shard: u16) -> Replica {
        Replica {
            node: NodeNumber(node),
            shard,
        }
    }

    #[test]
    fn versions_are_these_in_every_release() {
        assert_eq!(version_of(&[]), 0xe220_a839_7b1d_cdaf);
        let three = [replica(0, 1), replica(1, 0), replica(300, 7)];
        assert_eq!(format!("{:016x}", version_of(&three)), "e20f5c51d008f27c");
    }

    #[test]
    fn a_version_tells_replicas_apart_and_not_their_order() {
        let (a, b, c) = (replica(1, 0), replica(0, 1), replica(2, 1));
        assert_eq!(version_of(&[a, b, c]), version_of(&[c, a, b]));
        let mut seen = BTreeMap::new();
        for first in 0..40 {
            for second in first + 1..40 {
                let replicas = [replica(first / 4, first % 4), replica(second / 4, second % 4)];
                if let Some(other) = seen.insert(version_of(&replicas), replicas) {
                    panic!("{replicas:?} and {other:?} have one version");
                }
            }
        }
        // A driver compares one block at a time, so each block must show about 15 of 16 changes.
        let from = version_of(&[a, b, c]);
        for block in 0..16 {
            let is_seen = |shard: &u16| (version_of(&[a, b, replica(2, *shard)]) ^ from) >> (4 * block) & 15 != 0;
            let seen = (2..1002).filter(is_seen).count();
            assert!((900..975).contains(&seen), "block {block} tells {seen} of 1000 changes");
        }
    }
}
