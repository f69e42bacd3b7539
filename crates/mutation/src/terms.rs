//! Under which terms an index lists a row, and how a query names them. See docs/dev/indexes.md.
//!
//! A term is the bytes of an indexed value, in the order of its type. Memtables, sstables and queries all take them
//! from here, so what is written and what is looked up are the same bytes.

use std::ops::{Bound as RangeBound, RangeBounds};

use schema::{ColumnKind, Index, IndexId, IndexPart, RowLayout, Table, components, key_component};
use types::CqlType;
use types::analyzer::Analyzer;
use types::like::is_like;
use types::term::{TERM_MAX, put_term};

use crate::{Cell, Column, Complex, RowView, Tombstone};

/// From which part of a row an index takes its terms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TermPlace {
    /// A component of the partition key: the index lists partitions.
    PartitionKey(usize),
    /// A component of the clustering key.
    Clustering(usize),
    /// A static column: the index lists partitions.
    Static,
    /// A regular column.
    Regular,
}

/// What an index takes of rows.
#[derive(Clone, Debug)]
pub struct IndexTerms {
    /// The index.
    pub id: IndexId,
    /// Where in a row the values are.
    pub place: TermPlace,
    part: IndexPart,
    analyzer: Analyzer,
    cql_type: CqlType,
    /// The id of the column, and of dropped ones whose newer cells it has.
    ids: Vec<usize>,
    has_composite_key: bool,
}

impl IndexTerms {
    /// Of an index of a table; None when the table lacks the column.
    #[must_use]
    pub fn of(table: &Table, index: &Index) -> Option<Self> {
        let column = table.column(&index.column)?;
        let position = usize::from(column.position);
        let place = match column.kind {
            ColumnKind::PartitionKey => TermPlace::PartitionKey(position),
            ColumnKind::Clustering => TermPlace::Clustering(position),
            ColumnKind::Static => TermPlace::Static,
            ColumnKind::Regular => TermPlace::Regular,
        };
        let id = usize::from(column.id.0);
        let inherited =
            (0..table.layout.len()).filter(|other| table.layout.successor(*other).is_some_and(|s| s.id == id));
        let ids = inherited.chain([id]).collect();
        Some(Self {
            id: index.id,
            place,
            part: index.part,
            analyzer: index.analyzer(),
            cql_type: column.cql_type.clone(),
            ids,
            has_composite_key: table.partition_key().nth(1).is_some(),
        })
    }

    /// Of all indexes of a table.
    #[must_use]
    pub fn of_table(table: &Table) -> Vec<Self> {
        let of_index = |index: &Index| Self::of(table, index);
        table.indexes.iter().filter_map(of_index).collect()
    }

    /// Whether it lists whole partitions, not rows.
    #[must_use]
    pub fn lists_partitions(&self) -> bool {
        matches!(self.place, TermPlace::PartitionKey(_) | TermPlace::Static)
    }

    /// Whether a row has at most one term.
    #[must_use]
    pub const fn has_one_term(&self) -> bool {
        matches!(self.part, IndexPart::Value | IndexPart::Full) && self.analyzer.delimiter.is_none()
    }

    /// Gives the terms of a partition key; none where the index is on something else.
    pub fn of_key(&self, key: &[u8], give: &mut impl FnMut(&[u8])) {
        if let TermPlace::PartitionKey(at) = self.place
            && let Some(value) = key_component(self.has_composite_key, key, at)
        {
            self.give_value(value, give);
        }
    }

    /// Gives the terms of a clustering key; none where the index is on something else.
    pub fn of_clustering(&self, clustering: &[u8], give: &mut impl FnMut(&[u8])) {
        if let TermPlace::Clustering(at) = self.place
            && let Some(Some(value)) = components(clustering).nth(at)
        {
            self.give_value(value, give);
        }
    }

    /// Gives the terms of the values in a row that are no tombstones, whether they have expired or not. The caller
    /// gives static rows to indexes of static columns, and others to those of regular ones.
    pub fn of_row(&self, layout: &RowLayout, row: RowView<'_>, give: &mut impl FnMut(&[u8])) {
        self.of_cells(layout, row, |cell| !cell.dead, give);
    }

    /// Gives the terms of the values in a row that live at a second, under a deletion of the row.
    pub fn of_live_row(
        &self,
        layout: &RowLayout,
        row: RowView<'_>,
        (deletion, now): (Tombstone, u32),
        give: &mut impl FnMut(&[u8]),
    ) {
        let is_live = |cell: &Cell<'_>| cell.is_live(now) && !deletion.covers(cell.timestamp);
        self.of_cells(layout, row, is_live, give);
    }

    fn of_cells(
        &self,
        layout: &RowLayout,
        row: RowView<'_>,
        is_listed: impl Fn(&Cell<'_>) -> bool,
        give: &mut impl FnMut(&[u8]),
    ) {
        let Some(last) = self.ids.iter().max() else { return };
        for (id, column) in row.columns(layout) {
            if id > *last {
                return;
            }
            if !self.ids.contains(&id) {
                continue;
            }
            match column {
                Column::Simple(cell) => {
                    if is_listed(&cell) {
                        self.give_value(cell.value, give);
                    }
                }
                Column::Complex(complex) => self.give_elements(complex, &is_listed, give),
            }
        }
    }

    fn give_value(&self, value: &[u8], give: &mut impl FnMut(&[u8])) {
        let mut term = Vec::with_capacity(value.len().min(TERM_MAX) + 8);
        if self.analyzer.delimiter.is_some() {
            for part in self.analyzer.parts(value) {
                term.clear();
                self.put(&self.cql_type, part, &mut term);
                give(&term);
            }
            return;
        }
        self.put(&self.cql_type, value, &mut term);
        give(&term);
    }

    /// Appends the term of a value, analyzed if it is a text.
    fn put(&self, cql_type: &CqlType, value: &[u8], term: &mut Vec<u8>) {
        if !self.analyzer.is_plain() && matches!(cql_type, CqlType::Text | CqlType::Ascii) {
            put_term(cql_type, &self.analyzer.apply(value), term);
        } else {
            put_term(cql_type, value, term);
        }
    }

    fn give_elements(
        &self,
        complex: Complex<'_>,
        is_listed: &impl Fn(&Cell<'_>) -> bool,
        give: &mut impl FnMut(&[u8]),
    ) {
        let mut term = Vec::new();
        for (path, cell) in complex.elements().filter(|(_, cell)| is_listed(cell)) {
            term.clear();
            match (&self.cql_type, self.part) {
                (CqlType::Map(_, of_value), IndexPart::Values) => self.put(of_value, cell.value, &mut term),
                (CqlType::Map(of_key, of_value), IndexPart::Entries) => {
                    put_entry((of_key, path), &mut term);
                    put_term(of_value, cell.value, &mut term);
                    term.truncate(TERM_MAX);
                }
                (CqlType::List(of_element), _) => self.put(of_element, cell.value, &mut term),
                (CqlType::Map(of_key, _) | CqlType::Set(of_key), _) => self.put(of_key, path, &mut term),
                _ => return,
            }
            give(&term);
        }
    }

    /// The type of the values that a query compares with the terms: that of the elements for an index of elements. For
    /// entries it is the type of the values of the map.
    #[must_use]
    pub fn compared_type(&self) -> &CqlType {
        match (&self.cql_type, self.part) {
            (CqlType::Map(_, of_value), IndexPart::Values | IndexPart::Entries) => of_value,
            (CqlType::Map(of, _), IndexPart::Keys) => of,
            (CqlType::List(of) | CqlType::Set(of), IndexPart::Values) => of,
            (whole, _) => whole,
        }
    }

    /// The terms of the values between two bounds; `entry` is the key of a map's entry, for an index of entries.
    #[must_use]
    pub fn range(&self, entry: Option<&[u8]>, from: RangeBound<&[u8]>, to: RangeBound<&[u8]>) -> TermRange {
        let mut prefix = Vec::new();
        if let (CqlType::Map(of_key, _), Some(key)) = (&self.cql_type, entry) {
            put_entry((of_key, key), &mut prefix);
        }
        let bound = |value: RangeBound<&[u8]>| {
            let term = |value: &[u8]| {
                let mut term = prefix.clone();
                self.put(self.compared_type(), value, &mut term);
                term.truncate(TERM_MAX);
                term
            };
            match value {
                RangeBound::Included(value) => RangeBound::Included(term(value)),
                // Terms that were cut may be of values on both sides.
                RangeBound::Excluded(value) => {
                    let term = term(value);
                    if term.len() < TERM_MAX {
                        RangeBound::Excluded(term)
                    } else {
                        RangeBound::Included(term)
                    }
                }
                RangeBound::Unbounded => RangeBound::Unbounded,
            }
        };
        let (mut from, mut to) = (bound(from), bound(to));
        prefix.truncate(TERM_MAX);
        if !prefix.is_empty() && from == RangeBound::Unbounded {
            from = RangeBound::Included(prefix.clone());
        }
        if !prefix.is_empty() && to == RangeBound::Unbounded {
            to = after_prefix(prefix);
        }
        TermRange { from, to }
    }

    /// The terms of texts that begin so.
    #[must_use]
    pub fn prefix_range(&self, text: &[u8]) -> TermRange {
        let mut term = Vec::new();
        self.put(self.compared_type(), text, &mut term);
        TermRange {
            to: after_prefix(term.clone()),
            from: RangeBound::Included(term),
        }
    }
}

/// The bound after all terms that begin so.
fn after_prefix(mut prefix: Vec<u8>) -> RangeBound<Vec<u8>> {
    while let Some(last) = prefix.pop() {
        if last < u8::MAX {
            prefix.push(last + 1);
            return RangeBound::Excluded(prefix);
        }
    }
    RangeBound::Unbounded
}

/// Appends the key of an entry such that no key's bytes are the beginning of another's: a zero byte becomes 0 and 255,
/// and two zero bytes end it.
fn put_entry((of_key, key): (&CqlType, &[u8]), out: &mut Vec<u8>) {
    let mut term = Vec::new();
    put_term(of_key, key, &mut term);
    for byte in term {
        out.push(byte);
        if byte == 0 {
            out.push(u8::MAX);
        }
    }
    out.extend_from_slice(&[0, 0]);
}

/// What a query asks an index for: rows that have one of these terms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IndexLookup {
    /// The index.
    pub id: IndexId,
    /// Ranges of its terms, ascending.
    pub ranges: Vec<TermRange>,
    /// What the terms, which are texts, must be like besides: a pattern of LIKE.
    pub pattern: Option<Vec<u8>>,
}

impl IndexLookup {
    /// How much it may list, by its form: less than one of a greater width, other things being equal.
    #[must_use]
    pub fn width(&self) -> usize {
        let ends = |range: &TermRange| {
            let is_open = |bound: &RangeBound<Vec<u8>>| *bound == RangeBound::Unbounded;
            usize::from(is_open(&range.from)) + usize::from(is_open(&range.to))
        };
        let is_term = |range: &TermRange| range.from == range.to && !matches!(range.from, RangeBound::Unbounded);
        if self.ranges.iter().all(is_term) {
            return self.ranges.len();
        }
        let open = self.ranges.iter().map(ends).max().unwrap_or(0);
        usize::MAX / 4 * (1 + open)
    }

    /// Whether it asks for single terms, of which there are few.
    #[must_use]
    pub fn is_of_few_terms(&self) -> bool {
        self.width() <= self.ranges.len()
    }

    /// Whether it asks for a term.
    #[must_use]
    pub fn takes(&self, term: &[u8]) -> bool {
        self.ranges.iter().any(|range| range.contains(term)) && self.is_like(term)
    }

    /// Whether a term that is in a range is like the pattern. Of one that was cut that is not known.
    #[must_use]
    pub fn is_like(&self, term: &[u8]) -> bool {
        let pattern = self.pattern.as_ref().filter(|_| term.len() < TERM_MAX);
        pattern.is_none_or(|pattern| is_like(term, pattern))
    }
}

/// Terms between two bounds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TermRange {
    /// Where they begin.
    pub from: RangeBound<Vec<u8>>,
    /// Where they end.
    pub to: RangeBound<Vec<u8>>,
}

impl TermRange {
    /// Whether no term can be in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match (&self.from, &self.to) {
            (RangeBound::Included(from), RangeBound::Included(to)) => from > to,
            (
                RangeBound::Included(from) | RangeBound::Excluded(from),
                RangeBound::Included(to) | RangeBound::Excluded(to),
            ) => from >= to,
            _ => false,
        }
    }

    /// The term that it begins with, or after; None: it begins before all terms.
    #[must_use]
    pub fn first(&self) -> Option<&[u8]> {
        match &self.from {
            RangeBound::Included(term) | RangeBound::Excluded(term) => Some(term),
            RangeBound::Unbounded => None,
        }
    }

    /// The terms that both have.
    #[must_use]
    pub fn intersected(&self, other: &Self) -> Self {
        use RangeBound::{Excluded, Included, Unbounded};
        // Of two bounds at one term the one that leaves it out is stricter.
        let key = |bound: &RangeBound<Vec<u8>>, strict: u8| match bound {
            Included(term) => Some((term.clone(), 1)),
            Excluded(term) => Some((term.clone(), strict)),
            Unbounded => None,
        };
        let from = if key(&self.from, 2) >= key(&other.from, 2) {
            &self.from
        } else {
            &other.from
        };
        let to = match (key(&self.to, 0), key(&other.to, 0)) {
            (None, _) => &other.to,
            (Some(_), None) => &self.to,
            (Some(one), Some(two)) => {
                if one <= two {
                    &self.to
                } else {
                    &other.to
                }
            }
        };
        Self {
            from: from.clone(),
            to: to.clone(),
        }
    }

    /// Whether a term is in it.
    #[must_use]
    pub fn contains(&self, term: &[u8]) -> bool {
        RangeBounds::<[u8]>::contains(&self.bounds(), term)
    }

    /// Its bounds as slices.
    #[must_use]
    pub fn bounds(&self) -> (RangeBound<&[u8]>, RangeBound<&[u8]>) {
        (
            self.from.as_ref().map(Vec::as_slice),
            self.to.as_ref().map(Vec::as_slice),
        )
    }
}
