//! Where a read continues after a page, and how that is encoded for the client.
//!
//! ```text
//! paging state: u8 version 1, u64 statement, u64 limit left, u64 per partition limit left, u8 position kind:
//!   0 start; 1 after a whole partition; 2 after a row of it (then vint length and clustering key first)
//!   1 and 2: vint length and partition key
//! ```
//!
//! The position means something else, or nothing, in the result of another statement, which would answer with rows from
//! its middle. So a state has a hash of the statement, its table and its bound values, and is refused with any other.

use plan::{Bound, BoundValues};
use schema::TableId;
use stdx::vint;
use types::token::murmur3_x64_128;

use crate::QueryError;

/// The first byte of a state.
const FORMAT: u8 = 1;

/// Where a read continues.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Position {
    /// At the beginning.
    #[default]
    Start,
    /// After a partition.
    BehindPartition {
        /// Its key.
        key: Vec<u8>,
    },
    /// After a row.
    BehindRow {
        /// Its partition's key.
        key: Vec<u8>,
        /// Its clustering key.
        clustering: Vec<u8>,
    },
}

/// What the server needs for the next page. The client keeps it, and sends it back to ask for that page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagingState {
    /// [`statement_hash`] of the statement whose page it ends.
    pub(super) statement: u64,
    /// Where to continue.
    pub position: Position,
    /// How much of the statement's LIMIT is left.
    pub(super) limit_left: u64,
    /// How much of the PER PARTITION LIMIT is left for the partition.
    pub(super) per_partition_left: u64,
}

/// The hash that identifies a statement with its bound values. Blanks, line breaks and comments of the text do not
/// count.
pub(super) fn statement_hash(text: &str, table: TableId, values: BoundValues<'_>) -> u64 {
    let mut named = table.0.as_bytes().to_vec();
    let mut put = |kind: u8, bytes: &[u8]| {
        named.push(kind);
        vint::put_unsigned(&mut named, bytes.len() as u64);
        named.extend_from_slice(bytes);
    };
    for word in cql::words(text) {
        put(0, word.as_bytes());
    }
    for value in values.iter() {
        match value {
            Bound::Value(bytes) => put(1, bytes),
            Bound::Null => put(2, &[]),
            Bound::Unset => put(3, &[]),
        }
    }
    murmur3_x64_128(&named, 0).0
}

fn invalid() -> QueryError {
    QueryError::Protocol("Invalid value for the paging state".to_owned())
}

impl PagingState {
    /// The state of a read that begins after a position which the client has named itself: of a plan without the text
    /// of a statement, without markers and without limits.
    pub fn begin_after(position: Position, table: TableId) -> Self {
        Self {
            statement: statement_hash("", table, BoundValues::Owned(&[])),
            position,
            limit_left: u64::MAX,
            per_partition_left: u64::MAX,
        }
    }

    /// Refuses a state that another statement ended its page with.
    pub(super) fn check(&self, statement: impl FnOnce() -> u64) -> Result<(), QueryError> {
        if self.statement == statement() {
            Ok(())
        } else {
            Err(invalid())
        }
    }

    /// As bytes for the client.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        out.extend_from_slice(&self.statement.to_be_bytes());
        out.extend_from_slice(&self.limit_left.to_be_bytes());
        out.extend_from_slice(&self.per_partition_left.to_be_bytes());
        let mut put = |kind: u8, parts: &[&[u8]]| {
            out.push(kind);
            for p in parts {
                vint::put_unsigned(&mut out, p.len() as u64);
                out.extend_from_slice(p);
            }
        };
        match &self.position {
            Position::Start => put(0, &[]),
            Position::BehindPartition { key } => put(1, &[key]),
            Position::BehindRow { key, clustering } => put(2, &[clustering, key]),
        }
        out
    }

    /// From a client's bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, QueryError> {
        let mut rest = bytes;
        let mut take = |n: usize| -> Result<&[u8], QueryError> {
            let (piece, tail) = rest.split_at_checked(n).ok_or_else(invalid)?;
            rest = tail;
            Ok(piece)
        };
        if take(1)? != [FORMAT] {
            return Err(invalid());
        }
        let statement = u64::from_be_bytes(take(8)?.try_into().map_err(|_| invalid())?);
        let limit_left = u64::from_be_bytes(take(8)?.try_into().map_err(|_| invalid())?);
        let per_partition_left = u64::from_be_bytes(take(8)?.try_into().map_err(|_| invalid())?);
        let kind = take(1)?[0];
        let mut sized = || -> Result<Vec<u8>, QueryError> {
            let (len, used) = vint::get_unsigned(rest).ok_or_else(invalid)?;
            let end = usize::try_from(len)
                .ok()
                .and_then(|n| used.checked_add(n))
                .ok_or_else(invalid)?;
            let piece = rest.get(used..end).ok_or_else(invalid)?.to_vec();
            rest = &rest[end..];
            Ok(piece)
        };
        let position = match kind {
            0 => Position::Start,
            1 => Position::BehindPartition { key: sized()? },
            2 => {
                let clustering = sized()?;
                Position::BehindRow {
                    key: sized()?,
                    clustering,
                }
            }
            _ => return Err(invalid()),
        };
        if !rest.is_empty() {
            return Err(invalid());
        }
        Ok(Self {
            statement,
            position,
            limit_left,
            per_partition_left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paging_state_comes_back_and_a_damaged_one_is_refused() {
        let positions = [
            Position::Start,
            Position::BehindPartition { key: vec![1; 300] },
            Position::BehindRow {
                key: Vec::new(),
                clustering: vec![4, 5],
            },
        ];
        for statement in [0, 1 << 63] {
            for position in positions.clone() {
                let state = PagingState {
                    statement,
                    position,
                    limit_left: 7,
                    per_partition_left: u64::MAX,
                };
                let bytes = state.encode();
                assert_eq!(PagingState::decode(&bytes), Ok(state));
                for cut in 0..bytes.len() {
                    assert!(
                        PagingState::decode(&bytes[..cut]).is_err(),
                        "a state cut to {cut} bytes is refused"
                    );
                }
            }
        }
    }

    #[test]
    fn a_state_is_of_one_statement_one_table_and_its_values() {
        let table = |n| TableId(uuid::Uuid::from_u128(n));
        let hash =
            |text: &str, table: TableId, values: &[Bound<'_>]| statement_hash(text, table, BoundValues::Lent(values));
        let (text, values) = ("SELECT v FROM t WHERE k = ?", [Bound::Value(&[1])]);
        let state = PagingState {
            statement: hash(text, table(1), &values),
            position: Position::Start,
            limit_left: 1,
            per_partition_left: 1,
        };
        let taken = |text, table, values: &[_]| state.check(|| hash(text, table, values)).is_ok();
        assert!(taken(text, table(1), &values));
        assert!(taken("SELECT v\n  FROM t -- all\nWHERE k=?;", table(1), &values));
        assert!(!taken(text, table(2), &values), "USE of another keyspace");
        assert!(!taken("SELECT v FROM t WHERE k = 'a b'", table(1), &values));
        for others in [&[Bound::Value(&[2])][..], &[Bound::Null], &[Bound::Unset], &[]] {
            assert!(!taken(text, table(1), others), "{others:?}");
        }
        assert_ne!(
            hash("SELECT 'a' FROM t", table(1), &[]),
            hash("SELECT 'a ' FROM t", table(1), &[])
        );
    }
}
