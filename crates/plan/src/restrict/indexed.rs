//! What an index knows of the rows that a read wants: which of its terms they have.

use std::borrow::Cow;
use std::ops::Bound as RangeBound;

use mutation::terms::{IndexLookup, IndexTerms, TermRange};
use schema::{Index, IndexId, IndexPart, Table};
use stdx::preempt;
use types::like::literal_prefix;

use super::filter::{Test, patterns, value};
use super::{Comparison, Filter, Restrictions};
use crate::{BindContext, PlanError};

/// A condition on the rows that an index can answer. It repeats what keys or filters of the read say.
#[derive(Clone, Debug)]
pub struct IndexedTest {
    index: IndexId,
    terms: IndexTerms,
    filter: Filter,
}

/// How many terms IN may name for an index to be asked for them.
const TERMS_MAX: usize = 1000;

impl IndexedTest {
    /// What an index knows of a condition; None: nothing.
    #[must_use]
    pub fn new(table: &Table, index: &Index, filter: &Filter) -> Option<Self> {
        let column = table.columns.get(filter.column)?;
        let has_other_analyzer = index.analyzer() != filter.analyzer;
        if column.name != index.column || !is_answered(index, &filter.test) || has_other_analyzer {
            return None;
        }
        Some(Self {
            index: index.id,
            terms: IndexTerms::of(table, index)?,
            filter: filter.clone(),
        })
    }

    /// What the indexes of a table know of filters: of each, one at most.
    #[must_use]
    pub fn of_filters(table: &Table, filters: &[Filter]) -> Vec<Self> {
        let of_filter = |filter| table.indexes.iter().find_map(|index| Self::new(table, index, filter));
        filters.iter().filter_map(of_filter).collect()
    }

    pub(super) const fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Of a condition on the same column.
    pub(super) fn with_filter(&self, filter: Filter) -> Self {
        Self { filter, ..self.clone() }
    }

    /// The index that is asked.
    #[must_use]
    pub const fn index(&self) -> IndexId {
        self.index
    }

    /// The terms of one execution; None: the index is of no help for these values.
    ///
    /// # Errors
    /// When a value is null, unset or none of its type.
    pub fn lookup(&self, ctx: &BindContext<'_>) -> Result<Option<IndexLookup>, PlanError> {
        let terms = &self.terms;
        let exactly = |value: &[u8]| terms.range(None, RangeBound::Included(value), RangeBound::Included(value));
        let mut pattern = None;
        let ranges = match &self.filter.test {
            Test::Compare(comparison, operand, _) => {
                let value = value(operand, ctx)?;
                let unbounded = RangeBound::Unbounded;
                vec![match comparison {
                    Comparison::Equal => exactly(&value),
                    Comparison::Less => terms.range(None, unbounded, RangeBound::Excluded(&value)),
                    Comparison::LessOrEqual => terms.range(None, unbounded, RangeBound::Included(&value)),
                    Comparison::Greater => terms.range(None, RangeBound::Excluded(&value), unbounded),
                    Comparison::GreaterOrEqual => terms.range(None, RangeBound::Included(&value), unbounded),
                    Comparison::NotEqual => return Ok(None),
                }]
            }
            Test::In { alternatives, .. } => {
                let alternatives = alternatives.eval(ctx)?;
                if alternatives.len() > TERMS_MAX {
                    return Ok(None);
                }
                let mut ranges: Vec<TermRange> = alternatives.iter().map(|value| exactly(value)).collect();
                preempt::sort_by(&mut ranges, |a, b| a.first().cmp(&b.first()));
                ranges.dedup();
                ranges
            }
            Test::Like(operand) => {
                let mut like = value(operand, ctx)?;
                if self.filter.analyzer.delimiter.is_some() {
                    // The filter compares the other parts.
                    let patterns = patterns(&self.filter.analyzer, &like)?;
                    like = patterns.into_iter().next().map_or_else(|| like, Cow::Owned);
                }
                let (prefix, is_whole) = literal_prefix(&like);
                if is_whole {
                    vec![exactly(&prefix)]
                } else {
                    let range = terms.prefix_range(&prefix);
                    pattern = Some(self.filter.analyzer.apply(&like).into_owned());
                    vec![range]
                }
            }
            Test::Contains { element: operand, .. } | Test::ContainsKey { key: operand, .. } => {
                vec![exactly(&value(operand, ctx)?)]
            }
            Test::Element {
                key, value: operand, ..
            } => {
                let (key, value) = (value(key, ctx)?, value(operand, ctx)?);
                let bound = RangeBound::Included(&value[..]);
                vec![terms.range(Some(&key), bound, bound)]
            }
            Test::NotNull => return Ok(None),
        };
        Ok(Some(IndexLookup {
            id: self.index,
            ranges,
            pattern,
        }))
    }
}

impl Restrictions {
    /// What indexes are asked for in one execution; nothing: they are of no help. Those come first that list least by
    /// their form.
    ///
    /// # Errors
    /// As [`IndexedTest::lookup`].
    pub fn lookups(&self, ctx: &BindContext<'_>) -> Result<Vec<IndexLookup>, PlanError> {
        let mut lookups: Vec<IndexLookup> = Vec::with_capacity(self.indexed.len());
        for test in &self.indexed {
            let Some(lookup) = test.lookup(ctx)? else { continue };
            let other = lookups.iter_mut().find(|other| other.id == lookup.id);
            match other {
                // Both bounds of a range.
                Some(IndexLookup { ranges, pattern, .. }) if test.terms.has_one_term() && pattern.is_none() => {
                    if let ([one], [two]) = (&ranges[..], &lookup.ranges[..]) {
                        *ranges = vec![one.intersected(two)];
                        *pattern = lookup.pattern;
                    }
                }
                _ => lookups.push(lookup),
            }
        }
        // Where one of them alone names the rows, the first one does.
        lookups.sort_by_key(IndexLookup::width);
        Ok(lookups)
    }

    /// Whether every index that is asked lists whole partitions, not rows.
    #[must_use]
    pub fn indexes_list_partitions(&self) -> bool {
        self.indexed.iter().all(|test| test.terms.lists_partitions())
    }
}

/// Whether an index can answer a test.
fn is_answered(index: &Index, test: &Test) -> bool {
    match (index.part, test) {
        (IndexPart::Value, Test::Compare(comparison, ..)) => *comparison != Comparison::NotEqual,
        (IndexPart::Full, Test::Compare(comparison, ..)) => *comparison == Comparison::Equal,
        (IndexPart::Value | IndexPart::Full, Test::In { is_negated, .. })
        | (IndexPart::Values, Test::Contains { is_negated, .. })
        | (IndexPart::Keys, Test::ContainsKey { is_negated, .. }) => !*is_negated,
        (IndexPart::Value, Test::Like(_)) | (IndexPart::Entries, Test::Element { .. }) => true,
        _ => false,
    }
}
