//! Which shard of this node has which tokens of a table.

use replica::{TokenRange, shard_range};
use runtime::{ShardId, Submitted};
use schema::TableId;
use types::Token;

use super::Own;
use crate::service::ReplicaError;

/// Where the tokens of a part of a read are.
pub enum TokenOwners {
    /// On this shard, all of them.
    Here,
    /// On these shards, in order: each with the first and the last of its tokens.
    Elsewhere(Vec<(u32, Token, Token)>),
}

impl Own {
    /// The shard of this node that has a token of a table, or would if the node had it.
    #[inline]
    #[must_use]
    pub fn owner(&self, table: TableId, token: Token) -> u32 {
        let by_tablet = self.context.with_view(|view| view.shard_here(table, token));
        by_tablet.unwrap_or_else(|| types::token::shard_of(token, runtime::shard_count(), 0))
    }

    /// Where tokens are that the requester assigned to this shard by version `asked_by` of the cluster: tablets move.
    /// Waits for tablets that are on their way here, as long as a read may take.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn place_of(
        &self,
        table: TableId,
        (first, last): (Token, Token),
        asked_by: u64,
    ) -> Result<TokenOwners, ReplicaError> {
        let Some(store) = self.context.shard.store(table) else {
            return Ok(TokenOwners::Here);
        };
        let after = Token(first.0.saturating_sub(1));
        let deadline = runtime::now() + self.context.timeouts().read;
        loop {
            let changed = store.admission_changed.notified();
            if store.covers(after, last) {
                return Ok(TokenOwners::Here);
            }
            if store.version() >= asked_by && !store.is_any_arriving(after, last) {
                let here = self.context.shard.id().0;
                let pieces = self.pieces_here(table, first, last);
                if pieces.iter().any(|(shard, ..)| *shard != here) {
                    return Ok(TokenOwners::Elsewhere(pieces));
                }
            }
            if runtime::timeout_at(deadline, changed).await.is_err() {
                return Err(ReplicaError::Overloaded(
                    "A tablet of the table moves to another shard and is not there yet. Nothing was read.".to_owned(),
                ));
            }
        }
    }

    /// The shards that have the tokens from `first` to `last`, in order, each with its first and last.
    #[must_use]
    pub fn pieces_here(&self, table: TableId, first: Token, last: Token) -> Vec<(u32, Token, Token)> {
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
    fn shards_in_order(&self, table: TableId) -> Vec<(u32, TokenRange)> {
        let count = runtime::shard_count();
        let Some(tablets) = self.context.with_view(|view| view.own_tablets(table)) else {
            return (0..count).map(|shard| (shard, shard_range(shard, count))).collect();
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

    /// About how many partitions of a table this shard has, and of how many tokens.
    #[must_use]
    pub fn density(&self, table: TableId) -> (u64, u128) {
        let Some(store) = self.context.shard.store(table) else {
            return (0, 0);
        };
        let (mut partitions, mut tokens) = (0_u64, 0_u128);
        for tablet in store.tablets().iter() {
            tokens += u128::from(tablet.range.to.0.abs_diff(tablet.range.after.0)) + 1;
            partitions += tablet.with_version(|version| {
                let frozen = version.frozen.iter();
                let frozen = frozen.map(|frozen| frozen.share(frozen.memtable.partition_count() as u64));
                let in_memory = frozen.sum::<u64>() + version.active.borrow().partition_count() as u64;
                let in_files = version.sstables.iter().map(|reader| reader.meta().partitions);
                in_memory + in_files.sum::<u64>()
            });
        }
        (partitions, tokens)
    }
}

/// Calls a function on a shard of this node, which may be the one that runs this.
pub fn on_shard<T: Send + 'static>(shard: ShardId, work: impl FnOnce() -> T + Send + 'static) -> Submitted<T> {
    runtime::submit_to(shard, work)
}

/// Does what changes the metadata of the node or the cluster, on the shard that keeps it.
pub fn on_metadata_shard<T, F>(work: impl FnOnce() -> F + Send + 'static) -> Submitted<T>
where
    T: Send + 'static,
    F: Future<Output = T> + 'static,
{
    runtime::submit_async_to(ShardId(0), work)
}
