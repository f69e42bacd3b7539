//! Places in the order of a table: by token, then by partition key, then by clustering position.

use std::cmp::Ordering;

use mutation::{Bound, BoundKind, PartitionBlock};
use schema::ClusteringOrder;
use stdx::bytes::{Reader, put_sized};
use types::Token;

use crate::message::Malformed;

/// A position between two units of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// After all partitions of a token.
    Token(Token),
    /// Inside a partition, or at its end.
    Inside {
        /// The partition's token.
        token: Token,
        /// Its key.
        key: Vec<u8>,
        /// Where in the partition. At the top: after the whole partition.
        bound: Bound,
    },
}

const TOKEN: u8 = 0;
const BEFORE: u8 = 1;
const AFTER: u8 = 2;

impl Position {
    /// Where a block ends.
    pub(crate) fn behind(block: &PartitionBlock) -> Self {
        Self::Inside {
            token: block.token,
            key: block.key().to_vec(),
            bound: block.covered.clone().unwrap_or_else(Bound::top),
        }
    }

    /// Its token.
    pub(crate) fn token(&self) -> Token {
        match self {
            Self::Token(token) | Self::Inside { token, .. } => *token,
        }
    }

    /// Which of two positions comes first.
    pub(crate) fn compare(&self, other: &Self, order: &ClusteringOrder) -> Ordering {
        self.token().cmp(&other.token()).then_with(|| match (self, other) {
            (Self::Token(_), Self::Token(_)) => Ordering::Equal,
            (Self::Token(_), Self::Inside { .. }) => Ordering::Greater,
            (Self::Inside { .. }, Self::Token(_)) => Ordering::Less,
            (
                Self::Inside { key, bound, .. },
                Self::Inside {
                    key: other_key,
                    bound: other_bound,
                    ..
                },
            ) => key.cmp(other_key).then_with(|| bound.compare(order, other_bound)),
        })
    }

    /// Bytes of its key and its bound, which may be long.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Token(_) => 0,
            Self::Inside { key, bound, .. } => key.len() + bound.prefix.len(),
        }
    }

    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::Token(token) => {
                out.push(TOKEN);
                out.extend_from_slice(&token.0.to_be_bytes());
            }
            Self::Inside { token, key, bound } => {
                out.push(match bound.kind {
                    BoundKind::Before => BEFORE,
                    BoundKind::After => AFTER,
                });
                out.extend_from_slice(&token.0.to_be_bytes());
                put_sized(out, key);
                put_sized(out, &bound.prefix);
            }
        }
    }

    pub(crate) fn get(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let kind = reader.get_u8()?;
        let token = Token(reader.get_i64()?);
        let kind = match kind {
            TOKEN => return Ok(Self::Token(token)),
            BEFORE => BoundKind::Before,
            AFTER => BoundKind::After,
            _ => return Err(Malformed("the position is of no known kind")),
        };
        Ok(Self::Inside {
            token,
            key: reader.get_sized()?.to_vec(),
            bound: Bound {
                prefix: reader.get_sized()?.into(),
                kind,
            },
        })
    }
}
