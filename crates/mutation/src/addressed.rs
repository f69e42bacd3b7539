//! A packed mutation on its way to its replicas: parsed and hashed once, wherever it came from.

use schema::TableId;
use types::Token;
use types::token::token_of;

use crate::Mutation;

/// A packed mutation that a request owns, with its table and its partition's token.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Addressed {
    table: TableId,
    token: Token,
    /// Where the partition key begins in `bytes`. It ends at `items`.
    key: u32,
    /// Where the changes begin in `bytes`.
    items: u32,
    bytes: Vec<u8>,
}

impl Addressed {
    /// Reads table and key, and hashes the key. None when the bytes are cut short.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Option<Self> {
        let token = token_of(Mutation::new(&bytes)?.key);
        Self::at(token, bytes)
    }

    /// Reads the table; `token` is that of the key. None when the bytes are cut short.
    #[must_use]
    #[inline]
    pub fn at(token: Token, bytes: Vec<u8>) -> Option<Self> {
        let mutation = Mutation::new(&bytes)?;
        let items = u32::try_from(mutation.items_at()).ok()?;
        Some(Self {
            table: mutation.table,
            token,
            key: items - u32::try_from(mutation.key.len()).ok()?,
            items,
            bytes,
        })
    }

    /// The table.
    #[inline]
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// The partition's token.
    #[inline]
    #[must_use]
    pub fn token(&self) -> Token {
        self.token
    }

    /// The packed bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The packed bytes, given away.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Lends out the mutation and its token.
    #[inline]
    #[must_use]
    pub fn located(&self) -> Located<'_> {
        let key = &self.bytes[self.key as usize..self.items as usize];
        Located {
            token: self.token,
            mutation: Mutation::from_parts(self.table, key, &self.bytes, self.items as usize),
        }
    }

    /// Lends out the mutation.
    #[inline]
    #[must_use]
    pub fn mutation(&self) -> Mutation<'_> {
        self.located().mutation
    }
}

/// A packed mutation, borrowed, with its partition's token.
#[derive(Clone, Copy, Debug)]
pub struct Located<'a> {
    /// The partition's token.
    pub token: Token,
    /// The mutation.
    pub mutation: Mutation<'a>,
}

impl<'a> Located<'a> {
    /// Reads table and key, and hashes the key. None when the bytes are cut short.
    #[inline]
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        let mutation = Mutation::new(bytes)?;
        Some(Self {
            token: token_of(mutation.key),
            mutation,
        })
    }

    /// An owned copy.
    #[must_use]
    pub fn to_owned(self) -> Addressed {
        Addressed::at(self.token, self.mutation.bytes().to_vec()).expect("it was parsed before")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MutationBuilder, Tombstone};
    use uuid::Uuid;

    #[test]
    fn an_addressed_mutation_lends_out_what_parsing_its_bytes_finds() {
        let table = TableId(Uuid::from_u128(7));
        for key in [&b""[..], b"k", &[3; 200]] {
            let mut bytes = Vec::new();
            let mut builder = MutationBuilder::begin(&mut bytes, table, key);
            builder.partition_tombstone(Tombstone {
                timestamp: 5,
                deletion_time: 6,
            });
            let addressed = Addressed::new(bytes.clone()).expect("a whole mutation");
            assert_eq!((addressed.table(), addressed.token()), (table, token_of(key)));
            assert_eq!(addressed.mutation().key, key);
            assert_eq!(addressed.mutation().bytes(), bytes);
            assert_eq!(addressed.mutation().items().count(), 1, "key of {} bytes", key.len());
            let again = Located::new(&bytes).expect("a whole mutation").to_owned();
            assert_eq!(again, addressed);
            assert_eq!(Addressed::new(bytes[..10].to_vec()), None, "cut short");
        }
    }
}
