//! Options that many requests have, and the words of their values.

use super::constraints::{Constraints, Words, words};
use super::json::Text;
use crate::update::ReturnValues;

words! {
    /// How much of the consumed capacity an answer reports.
    ReturnConsumedCapacity "[INDEXES, TOTAL, NONE]" {
        /// The units of tables and of each index.
        Indexes = "INDEXES",
        /// The units of tables.
        Total = "TOTAL",
        /// Nothing.
        None = "NONE",
    }
}

words! {
    /// Whether an answer reports the size of item collections.
    ReturnItemCollectionMetrics "[SIZE, NONE]" {
        /// An estimate, if the table has a local secondary index.
        Size = "SIZE",
        /// Nothing.
        None = "NONE",
    }
}

words! {
    /// What the answer to a failed condition has.
    ReturnValuesOnConditionCheckFailure "[ALL_OLD, NONE]" {
        /// The item.
        AllOld = "ALL_OLD",
        /// Nothing.
        None = "NONE",
    }
}

words! {
    /// What a Query or Scan returns of items.
    Select "[SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]" {
        /// All attributes, from the table if an index does not have them.
        AllAttributes = "ALL_ATTRIBUTES",
        /// All attributes that the index has.
        AllProjectedAttributes = "ALL_PROJECTED_ATTRIBUTES",
        /// Only how many there are.
        Count = "COUNT",
        /// Those that the projection lists.
        SpecificAttributes = "SPECIFIC_ATTRIBUTES",
    }
}

impl Words for ReturnValues {
    const LISTED: &'static str = "[ALL_NEW, UPDATED_OLD, ALL_OLD, NONE, UPDATED_NEW]";
    fn from_word(word: &str) -> Option<Self> {
        Some(match word {
            "NONE" => Self::None,
            "ALL_OLD" => Self::AllOld,
            "UPDATED_OLD" => Self::UpdatedOld,
            "ALL_NEW" => Self::AllNew,
            "UPDATED_NEW" => Self::UpdatedNew,
            _ => return None,
        })
    }
}

/// What the service says of another word than those of [`ReturnValues`], with its own spelling of one.
pub(super) const RETURN_VALUES: &str = "Failed to satisfy constraint: Member must satisfy enum value set: [ALL_OLD, UPDATED_OLD, ALL_NEW, UPDATE_NEW, NONE]";

/// What the service says of [`ReturnValues`] that PutItem and DeleteItem do not have.
pub(super) const NOT_HONOURED: &str = "ReturnValues can only be ALL_OLD or NONE";

/// The words of the options of a write, as they are in the body.
pub(super) struct WriteWords<'a> {
    pub(super) return_values: Option<&'a Text>,
    pub(super) consumed_capacity: Option<&'a Text>,
    pub(super) collection_metrics: Option<&'a Text>,
    pub(super) on_failure: Option<&'a Text>,
}

/// What the answer to a write has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteOptions {
    /// The attributes.
    pub return_values: ReturnValues,
    /// The capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
    /// The size of item collections.
    pub collection_metrics: ReturnItemCollectionMetrics,
    /// The item if the condition fails.
    pub on_failure: ReturnValuesOnConditionCheckFailure,
}

impl WriteWords<'_> {
    /// Checks the words in the order of PutItem and DeleteItem.
    pub(super) fn check(&self, errors: &mut Constraints) {
        errors.word::<ReturnConsumedCapacity>(self.consumed_capacity, "returnConsumedCapacity");
        if !is_word::<ReturnValues>(self.return_values) {
            errors.add(RETURN_VALUES);
        }
        errors.word::<ReturnItemCollectionMetrics>(self.collection_metrics, "returnItemCollectionMetrics");
        errors.word::<ReturnValuesOnConditionCheckFailure>(self.on_failure, "returnValuesOnConditionCheckFailure");
    }

    /// The values of words that are checked.
    pub(super) fn options(&self) -> WriteOptions {
        WriteOptions {
            return_values: value(self.return_values, ReturnValues::None),
            consumed_capacity: value(self.consumed_capacity, ReturnConsumedCapacity::None),
            collection_metrics: value(self.collection_metrics, ReturnItemCollectionMetrics::None),
            on_failure: value(self.on_failure, ReturnValuesOnConditionCheckFailure::None),
        }
    }
}

/// Whether a member is absent or a word of its type.
pub(super) fn is_word<W: Words>(word: Option<&Text>) -> bool {
    word.is_none_or(|Text(word)| W::from_word(word).is_some())
}

/// The value of a word that is checked.
pub(super) fn value<W: Words>(word: Option<&Text>, default: W) -> W {
    word.and_then(|Text(word)| W::from_word(word)).unwrap_or(default)
}
