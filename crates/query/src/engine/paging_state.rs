//! Where a read goes on after a page, and how the client is given it.
//!
//! ```text
//! paging state: u8 1, u64 limit left, u64 per partition limit left, u8 position kind:
//!   0 start; 1 behind a whole partition; 2 behind a row of it (then vint length and clustering key first)
//!   1 and 2: vint length and partition key
//! ```

use stdx::vint;

use crate::QueryError;

/// Where a read goes on.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Position {
    /// At the beginning.
    #[default]
    Start,
    /// Behind a partition.
    BehindPartition {
        /// Its key.
        key: Vec<u8>,
    },
    /// Behind a row.
    BehindRow {
        /// Its partition's key.
        key: Vec<u8>,
        /// Its clustering key.
        clustering: Vec<u8>,
    },
}

/// What the server tells itself by way of the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PagingState {
    /// Where to go on.
    pub position: Position,
    /// How much of the statement's LIMIT is left.
    pub(super) limit_left: u64,
    /// The same of the PER PARTITION LIMIT of the partition.
    pub(super) per_partition_left: u64,
}

impl PagingState {
    /// As bytes for the client.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![1];
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
        let invalid = || QueryError::Protocol("Invalid value for the paging state".to_owned());
        let mut rest = bytes;
        let mut take = |n: usize| -> Result<&[u8], QueryError> {
            let (piece, tail) = rest.split_at_checked(n).ok_or_else(invalid)?;
            rest = tail;
            Ok(piece)
        };
        if take(1)? != [1] {
            return Err(invalid());
        }
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
        for position in [
            Position::Start,
            Position::BehindPartition { key: vec![1; 300] },
            Position::BehindRow {
                key: Vec::new(),
                clustering: vec![4, 5],
            },
        ] {
            let state = PagingState {
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
