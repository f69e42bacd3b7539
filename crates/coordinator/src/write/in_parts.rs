//! Writes of many partitions, in parts that a replica can take at once.

use std::collections::HashMap;
use std::rc::Rc;

use commitlog::LogError;
use mutation::Addressed;
use schema::TableId;
use stdx::preempt;

use super::{Atomicity, Mutations, Writes};
use crate::{CoordinatorError, Dated, WriteKind};

/// The bytes of a mutation among those of a record.
fn record_bytes(mutation: &Addressed) -> usize {
    const LENGTH_BYTES_MAX: usize = 16;
    mutation.bytes().len() + LENGTH_BYTES_MAX
}

/// Partitions that are written together, unless they are a logged batch: the replicas and the state of each are steps
/// that keep the shard.
const PARTITIONS_AT_ONCE: usize = 1024;

/// The most that a part of a write has.
struct PartMax {
    bytes: usize,
    partitions: usize,
}

/// Mutations in parts, those of one partition in one part; and the bytes of the largest partition.
fn parts_of(mutations: Mutations, max: &PartMax) -> (Vec<Mutations>, usize) {
    let mut partitions: Vec<(usize, Mutations)> = Vec::with_capacity(mutations.len());
    let mut places: HashMap<(TableId, Vec<u8>), usize> = HashMap::with_capacity(mutations.len());
    for mutation in mutations {
        preempt::point();
        let of = mutation.mutation();
        let place = *places.entry((of.table, of.key.to_vec())).or_insert(partitions.len());
        if place == partitions.len() {
            partitions.push((0, Mutations::new()));
        }
        partitions[place].0 += record_bytes(&mutation);
        partitions[place].1.push(mutation);
    }
    let largest = partitions.iter().map(|(bytes, _)| *bytes).max().unwrap_or(0);
    let mut parts: Vec<Mutations> = Vec::new();
    let (mut bytes_left, mut partitions_left) = (0, 0);
    for (bytes, partition) in partitions {
        preempt::point();
        let fits = bytes <= bytes_left && partitions_left > 0;
        match parts.last_mut().filter(|_| fits) {
            Some(part) => {
                bytes_left -= bytes;
                partitions_left -= 1;
                part.extend(partition);
            }
            None => {
                bytes_left = max.bytes.saturating_sub(bytes);
                partitions_left = max.partitions - 1;
                parts.push(partition);
            }
        }
    }
    (parts, largest)
}

impl Writes {
    /// What one replica gets of a write counts all or not at all: so do the rows of one partition. It is one record of
    /// the log, which has a limit: beyond it, and beyond [`PARTITIONS_AT_ONCE`], partitions are written one after the
    /// other, as many together as fit.
    ///
    /// # Errors
    /// As those of [`Writes::write`]; when a partition is too large for the log, before anything is written.
    pub async fn write_in_parts(
        self: &Rc<Self>,
        mutations: Mutations,
        dated: &Dated,
        kind: WriteKind,
    ) -> Result<(), CoordinatorError> {
        let bytes_max = self.context.shard.log.mutation_bytes_max();
        let all: usize = mutations.iter().map(record_bytes).sum();
        if mutations.len() == 1 || (all <= bytes_max && mutations.len() <= PARTITIONS_AT_ONCE) {
            return self.write(mutations, dated, kind, Atomicity::Share).await;
        }
        let max = PartMax {
            bytes: bytes_max,
            partitions: PARTITIONS_AT_ONCE,
        };
        let (parts, largest) = preempt::allowed(|| parts_of(mutations, &max));
        if largest > bytes_max {
            // Nothing is written of what cannot be written whole.
            let error = LogError::TooLarge {
                bytes: largest,
                bytes_max,
            };
            return Err(CoordinatorError::Rejected(error.to_string()));
        }
        for part in parts {
            self.write(part, dated, kind, Atomicity::Share).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mutation::MutationBuilder;
    use mutation::Tombstone;

    #[test]
    fn a_part_has_whole_partitions_and_no_more_than_fits() {
        let table = TableId(uuid::Uuid::nil());
        let of = |key: &[u8]| {
            let mut bytes = Vec::new();
            MutationBuilder::begin(&mut bytes, table, key).partition_tombstone(Tombstone {
                timestamp: 1,
                deletion_time: 1,
            });
            Addressed::new(bytes).expect("it was packed just now")
        };
        let keys: [&[u8]; 6] = [b"a", b"b", b"a", b"c", b"d", b"b"];
        let mutations: Mutations = keys.map(of).into_iter().collect();
        let one = record_bytes(&mutations[0]);
        let keys_of = |parts: &[Mutations]| -> Vec<Vec<Vec<u8>>> {
            let keys = |part: &Mutations| part.iter().map(|m| m.mutation().key.to_vec()).collect();
            parts.iter().map(keys).collect()
        };
        let max = |bytes, partitions| PartMax { bytes, partitions };
        let (parts, largest) = parts_of(mutations.clone(), &max(3 * one, 100));
        assert_eq!(largest, 2 * one);
        let expected: [&[&[u8]]; 2] = [&[b"a", b"a"], &[b"b", b"b", b"c"]];
        let mut found = keys_of(&parts);
        assert_eq!(found.pop(), Some(vec![b"d".to_vec()]));
        assert_eq!(
            found,
            expected.map(|part| part.iter().map(|key| key.to_vec()).collect::<Vec<_>>())
        );
        let (together, _) = parts_of(mutations.clone(), &max(6 * one, 100));
        assert_eq!(keys_of(&together).len(), 1, "all fit in one");
        let (at_most_two, _) = parts_of(mutations, &max(6 * one, 2));
        let expected: [&[&[u8]]; 2] = [&[b"a", b"a", b"b", b"b"], &[b"c", b"d"]];
        assert_eq!(
            keys_of(&at_most_two),
            expected.map(|part| part.iter().map(|key| key.to_vec()).collect::<Vec<_>>())
        );
    }
}
