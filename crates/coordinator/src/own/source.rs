//! What each memtable and each sstable of this shard has of a partition, before anything is merged.

use std::rc::Rc;
use std::sync::Arc;

use mutation::ClusteringSlice;
use replica::{PartitionRead, ShardReader, Version};
use schema::Table;
use types::Token;
use types::token::KeyHash;

use super::{Own, OwnRead};
use crate::Stretch;
use crate::service::ReplicaError;

/// A memtable or an sstable of the tablet that has a partition.
pub struct OwnSource {
    /// As operators know it.
    pub name: String,
    version: Rc<Version>,
}

impl Own {
    /// The sources that may have partitions of a token, by name; none when this shard does not have the token.
    ///
    /// # Errors
    /// When this shard does not have the table.
    pub fn sources(&self, table: &Table, token: Token) -> Result<Vec<OwnSource>, ReplicaError> {
        let Some(tablet) = self.store(table)?.tablet(token) else {
            return Ok(Vec::new());
        };
        let sources = tablet.version().by_source().into_iter();
        let mut sources: Vec<OwnSource> = sources.map(|(name, version)| OwnSource { name, version }).collect();
        sources.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(sources)
    }
}

impl OwnSource {
    /// Reads a slice of a partition of the source alone, and leaves caches as they are.
    #[must_use]
    pub fn read(&self, own: &Own, table: &Arc<Table>, key: &[u8], slice: ClusteringSlice, stretch: Stretch) -> OwnRead {
        let read = PartitionRead {
            hash: KeyHash::of(key),
            key: key.to_vec(),
            slices: vec![slice],
            reversed: false,
            limits: stretch.into(),
        };
        let reader = ShardReader::of_version(&own.context.shard, table.clone(), self.version.clone(), read);
        OwnRead { reader }
    }
}
