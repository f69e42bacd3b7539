//! The mark that a transaction leaves on the rows that it takes part in, until it is decided: the column `:lock`.
//!
//! ```text
//! version 1 (1 byte), flags (1 byte), transaction (16 bytes), [intent]
//!   flags: bit 0 the item exists; bits 1-2 what is to become of it: 0 it stays, 1 it is replaced, 2 it is deleted
//!   intent, if it is replaced: the item, dynamodb::value::storage
//! ```

use dynamodb::Item;
use dynamodb::value::storage;
use uuid::Uuid;

/// The first byte.
const VERSION: u8 = 1;
const HAS_ITEM: u8 = 1;
const INTENT_SHIFT: u8 = 1;

/// A transaction's mark on a row.
#[derive(Clone, PartialEq, Debug)]
pub struct Lock {
    /// The transaction.
    pub transaction: Uuid,
    /// Whether the row was an item before.
    pub has_item: bool,
    /// What the transaction does to the item, if it is committed.
    pub intent: Intent,
}

/// What a transaction does to an item.
#[derive(Clone, PartialEq, Debug)]
pub enum Intent {
    /// Nothing: it checks it.
    Keep,
    /// The item becomes this one.
    Put(Item),
    /// It is deleted.
    Delete,
}

impl Lock {
    /// As the column has it.
    pub fn encode(&self) -> Vec<u8> {
        let intent = match self.intent {
            Intent::Keep => 0,
            Intent::Put(_) => 1,
            Intent::Delete => 2,
        };
        let mut out = vec![VERSION, (u8::from(self.has_item) * HAS_ITEM) | (intent << INTENT_SHIFT)];
        out.extend_from_slice(self.transaction.as_bytes());
        if let Intent::Put(item) = &self.intent {
            storage::append_item(&mut out, item);
        }
        out
    }

    /// From the column; None: it is no lock.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, rest) = bytes.split_first_chunk::<18>()?;
        let [version, flags, transaction @ ..] = *head;
        let intent = match flags >> INTENT_SHIFT {
            0 => Intent::Keep,
            1 => Intent::Put(storage::read_item(rest).ok()?),
            2 => Intent::Delete,
            _ => return None,
        };
        (version == VERSION).then_some(Self {
            transaction: Uuid::from_bytes(transaction),
            has_item: flags & HAS_ITEM != 0,
            intent,
        })
    }
}

/// Whether the row of a lock is an item; bytes that are no lock hide nothing.
pub fn has_item(lock: &[u8]) -> bool {
    lock.get(1).is_none_or(|flags| flags & HAS_ITEM != 0)
}
