//! Which shard of this node has which tokens of a table.

use replica::{TokenRange, shard_range};
use schema::TableId;
use types::Token;

use super::Engine;
use crate::QueryError;

/// Where the tokens of a part of a read are.
pub(super) enum TokenOwners {
    /// On this shard, all of them.
    Here,
    /// On these shards, in order: each with the first and the last of its tokens.
    Elsewhere(Vec<(u32, Token, Token)>),
}

impl Engine {
    /// The shard of this node that has a token of a table, or would if the node had it.
    #[inline]
    pub fn owner(&self, table: TableId, token: Token) -> u32 {
        let by_tablet = self.coordinator.with_view(|view| view.shard_here(table, token));
        by_tablet.unwrap_or_else(|| types::token::shard_of(token, self.shards, 0))
    }

    /// Where tokens are that the requester assigned to this shard by version `asked_by` of the cluster: tablets move.
    /// Waits for tablets that are on their way here, as long as a read may take.
    ///
    /// # Errors
    /// When that takes too long.
    pub(super) async fn place_of(
        &self,
        table: TableId,
        (first, last): (Token, Token),
        asked_by: u64,
    ) -> Result<TokenOwners, QueryError> {
        let Some(store) = self.shard.store(table) else {
            return Ok(TokenOwners::Here);
        };
        let after = Token(first.0.saturating_sub(1));
        let deadline = runtime::now() + self.coordinator.timeouts().read;
        loop {
            let changed = store.admission_changed.notified();
            if store.covers(after, last) {
                return Ok(TokenOwners::Here);
            }
            if store.version() >= asked_by && !store.is_any_arriving(after, last) {
                let here = self.shard.id().0;
                let pieces = self.pieces(table, first, last);
                if pieces.iter().any(|(shard, ..)| *shard != here) {
                    return Ok(TokenOwners::Elsewhere(pieces));
                }
            }
            if runtime::timeout_at(deadline, changed).await.is_err() {
                return Err(QueryError::Overloaded(
                    "A tablet of the table moves to another shard and is not there yet. Nothing was read.".to_owned(),
                ));
            }
        }
    }

    /// The shards that have the tokens from `first` to `last`, in order, each with its first and last.
    pub(super) fn pieces(&self, table: TableId, first: Token, last: Token) -> Vec<(u32, Token, Token)> {
        let mut pieces = Vec::new();
        for (shard, range) in self.shards_in_order(table) {
            let its_first = match range.after.0 {
                i64::MIN => range.after,
                n => Token(n + 1),
            };
            let (its_first, its_last) = (first.max(its_first), last.min(range.to));
            if its_first <= its_last {
                pieces.push((shard, its_first, its_last));
            }
        }
        pieces
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
