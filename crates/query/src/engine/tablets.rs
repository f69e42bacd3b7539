//! Which shard of this node has which tokens of a table, and the tables that a shard keeps.

use std::sync::Arc;

use coordinator::{ClusterView, paxos_state_of};
use replica::{TokenRange, shard_range};
use schema::{Table, TableId};
use types::Token;

use super::Engine;
use crate::system;

/// The tables that a node keeps for one of the schema, none for a virtual one: itself, and what acceptors know of conditional statements
/// on it, in the same tablets.
pub fn kept_tables(table: &Arc<Table>) -> Vec<Arc<Table>> {
    if system::is_virtual(table.id) {
        return Vec::new();
    }
    match system::kind(&table.keyspace) {
        Some(_) => vec![table.clone()],
        None => vec![table.clone(), paxos_state_of(table)],
    }
}

/// The tokens of a table that a shard of this node has, in order: those of its tablets, or its part of the token ring.
#[must_use]
pub fn ranges_of_shard(view: &ClusterView, table: TableId, shard: u32, shards: u32) -> Vec<TokenRange> {
    let Some(tablets) = view.own_tablets(table) else {
        return vec![shard_range(shard, shards)];
    };
    let here = tablets.into_iter().filter(|(_, _, on)| *on == Some(shard));
    here.map(|(after, to, _)| TokenRange { after, to }).collect()
}

/// What the files of a table are cut by: all its tablets, or the shards of this node.
#[must_use]
pub fn file_ranges(view: &ClusterView, table: TableId, shards: u32) -> Vec<TokenRange> {
    match view.own_tablets(table) {
        Some(tablets) => tablets
            .into_iter()
            .map(|(after, to, _)| TokenRange { after, to })
            .collect(),
        None => (0..shards).map(|shard| shard_range(shard, shards)).collect(),
    }
}

impl Engine {
    /// The shard of this node that has a token of a table, or would if the node had it.
    #[inline]
    pub fn owner(&self, table: TableId, token: Token) -> u32 {
        let by_tablet = self.coordinator.with_view(|view| view.shard_here(table, token));
        by_tablet.unwrap_or_else(|| types::token::shard_of(token, self.shards, 0))
    }

    /// All tokens in order, cut where another shard of this node has them.
    pub(super) fn shards_in_order(&self, table: TableId) -> Vec<(u32, TokenRange)> {
        let shards = 0..self.shards;
        let Some(tablets) = self.coordinator.with_view(|view| view.own_tablets(table)) else {
            return shards.map(|shard| (shard, shard_range(shard, self.shards))).collect();
        };
        let mut pieces: Vec<(u32, TokenRange)> = Vec::new();
        for (after, to, shard) in tablets {
            let Some(shard) = shard else { continue };
            match pieces.last_mut() {
                Some((last, range)) if *last == shard && range.to == after => range.to = to,
                _ => pieces.push((shard, TokenRange { after, to })),
            }
        }
        pieces
    }
}
