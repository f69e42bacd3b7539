//! Spreading a scan: which shard of which node reads which tokens, so that all work at once and only their results
//! travel.
//!
//! The tokens are cut where their replicas change, and once more where a piece would be large beside the others. Each
//! piece is given to the replica that has the fewest tokens so far, of those in this datacenter if one lives there; the
//! others follow it in order, should it fail. The replica that gets a piece coordinates the read of it at the request's
//! level, so what it finds counts as much as what this node would have found.

use std::collections::BTreeMap;

use schema::TableId;
use topology::{Consistency, Replica, ReplicaList};
use types::Token;

use super::NearWork;
use crate::{ClusterView, CoordinatorError};

/// The most pieces for each shard that takes part.
const PIECES_OF_SHARD: u64 = 2;
/// The most pieces that tokens with the same replicas are cut into.
const CUTS_MAX: u64 = 256;

/// Tokens that one shard reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// Exclusive start; the lowest token is before all.
    pub after: Token,
    /// Inclusive end.
    pub to: Token,
    /// The live replicas that may read it, the one that should do it first in front.
    pub readers: ReplicaList,
}

/// A scan that is spread over the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spread {
    /// In token order, without gaps.
    pub shares: Vec<Share>,
    /// How many replicas of each piece must answer.
    pub block_for: u16,
}

impl NearWork {
    /// Cuts `(after, to]` of a table into shares for those that read it at a level. None: the table is each node's own.
    ///
    /// # Errors
    /// When too few replicas of some tokens live.
    pub fn spread(
        &self,
        view: &ClusterView,
        table: TableId,
        (after, to): (Token, Token),
        level: Consistency,
    ) -> Result<Option<Spread>, CoordinatorError> {
        let Some(route) = view.route(table) else {
            return Ok(None);
        };
        let here = view.locality.local_datacenter();
        let liveness = self.context.liveness.borrow();
        let mut pieces = Vec::new();
        let mut shards: Vec<Replica> = Vec::new();
        for (start, end) in view.pieces(table, after, to) {
            let tablet = route.map.tablet_of(end);
            let requirement = route.requirement(level, &tablet, &view.locality);
            let mut live: ReplicaList = tablet.read_replicas().into();
            live.retain(|replica| liveness.is_live(replica.node));
            let counts = requirement.count(live.iter().copied(), &view.locality);
            requirement
                .is_sufficient(&counts)
                .inspect_err(|_| self.context.count(|m| m.unavailable += 1))?;
            let is_near = |replica: &Replica| view.locality.datacenter(replica.node) == here;
            if live.iter().any(is_near) {
                live.retain(|replica| is_near(replica));
            }
            shards.extend(
                live.iter()
                    .filter(|replica| !shards.contains(replica))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            pieces.push((start, end, live));
        }
        let total = width(after, to);
        let share_max = total / (PIECES_OF_SHARD * shards.len().max(1) as u64).clamp(1, CUTS_MAX) + 1;
        let mut given: BTreeMap<Replica, u128> = BTreeMap::new();
        let mut shares = Vec::new();
        for (start, end, live) in pieces {
            let cuts = width(start, end).div_ceil(share_max).max(1);
            let step = width(start, end) / cuts;
            let mut from = start;
            for cut in 1..=cuts {
                let end = if cut == cuts {
                    end
                } else {
                    Token(from.0.wrapping_add_unsigned(step))
                };
                let mut readers = live.clone();
                readers.sort_by_key(|replica| given.get(replica).copied().unwrap_or(0));
                if let Some(first) = readers.first() {
                    *given.entry(*first).or_default() += u128::from(width(from, end));
                }
                shares.push(Share {
                    after: from,
                    to: end,
                    readers,
                });
                from = end;
            }
        }
        Ok(Some(Spread {
            shares,
            block_for: route.block_for(level, &view.locality),
        }))
    }

    /// The error of a spread read that no replica answered in time.
    pub(crate) fn spread_timeout(
        &self,
        view: &ClusterView,
        level: Consistency,
        block_for: u16,
        silent: &[Replica],
    ) -> CoordinatorError {
        self.context.count(|m| m.timeouts += 1);
        CoordinatorError::ReadTimeout {
            tally: crate::Tally {
                consistency: level,
                received: 0,
                block_for,
            },
            data_present: false,
            missing: view.names(silent.iter().copied()),
        }
    }

    /// The error of a spread read that a replica could not do its part of.
    pub(crate) fn spread_failure(
        &self,
        view: &ClusterView,
        level: Consistency,
        block_for: u16,
        replica: Replica,
        reason: &str,
    ) -> CoordinatorError {
        let name = view.names(std::iter::once(replica));
        CoordinatorError::ReadFailure {
            tally: crate::Tally {
                consistency: level,
                received: 0,
                block_for,
            },
            data_present: false,
            failures: vec![(view.address(replica.node), 0)],
            reason: format!("{name}: {reason}"),
        }
    }
}

/// How many tokens `(after, to]` has, at most.
fn width(after: Token, to: Token) -> u64 {
    u64::try_from(i128::from(to.0) - i128::from(after.0)).unwrap_or(0)
}
