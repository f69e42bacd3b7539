//! An aggregate, of all rows or of groups of them, as bytes, for nodes that compute parts of it: format [`FORMAT`].
//!
//! What is encoded is what a part needs: the table's id, the aggregates and what they are over, and which rows count.
//! What the coordinator makes of the joined parts stays with it. Bound values travel beside the plan.
//!
//! ```text
//! plan        u8 format, then fields, each u8 number, vint length and so many bytes; numbers do not fall
//!             1 table: 16 bytes              once
//!             2 aggregate                    once or more: u8 0 count of rows, 1 count, 2 min, 3 max, 4 sum, 5 avg,
//!                                            6 user-defined; of 2 to 5 the type, of 6 text keyspace, text signature;
//!                                            u8 0, or u8 1 and the expression that it is over
//!             3 choice                       of the clustering columns, in their order
//!             4 lower bound, 5 upper bound   of the next clustering columns, each at most once
//!             6 filter
//!             7 column of GROUP BY: vint      in their order; with it a plan need not have an aggregate
//!             8 column of which each group keeps the value of its first row: vint
//! choice      u8 0 operand; 1 alternatives; 2 vint columns, vint count, count × columns operands;
//!             3 alternatives, vint columns
//! bound       u8 inclusive, vint columns of a tuple or 0, vint count, operands
//! filter      vint column, then u8 0 comparison, operand; 1 alternatives; 2 contains operand; 3 contains key operand;
//!             4 entry: operand key, operand value; 5 none of alternatives; 6 not null; 7 like operand;
//!             8 does not contain operand; 9 does not contain key operand
//! comparison  u8 0 =, 1 !=, 2 <, 3 <=, 4 >, 5 >=
//! alternatives  text receiver, then u8 0 and operand (a list), or u8 1, vint count, operands
//! operand     u8 0 bytes; 1 null; 2 marker: vint index, type; 3 operation, vint count, operands
//! operation   u8 0 list; 1 set: comparator; 2 map: comparator; 3 tuple; 4 user-defined type: type;
//!             5 vector: u8 elements have a fixed length;
//!             6 function: text name, vint count, types of arguments, type of result, vint position in the statement;
//!             7 user-defined function: text keyspace, text signature
//! expression  u8 0 column: vint; 1 operand; 2 operation, vint count, expressions;
//!             3 time of a cell: vint column, u8 is ttl, u8 0 or u8 1 and expression;
//!             4 element: text name, expression, u8 is map, comparator, operand;
//!             5 slice: text name, expression, u8 is map, comparator, (u8 0 or u8 1 and operand) twice,
//!             u8 is multi-cell;
//!             6 field: expression, vint index; 7 aggregate: vint position;
//!             8 cells of a column: vint column; 9 times of cells: expression, u8 is ttl, u8 0 one, 1 all, 2 latest;
//!             10 null when a part is: expression of the part, expression
//! comparator  u8 0 to 11, in the order of [`types::Comparator`]; 12 list: comparator; 13 map: two;
//!             14 tuple: vint count, each; 15 vector: comparator, u8 0 or u8 1 and vint length
//! type        text: the Java class
//! bytes, text vint length, and so many bytes; text is UTF-8
//! ```
//!
//! A plan that is decoded is made as any other is: it is checked against its table. A function is looked up by its name
//! and types, a user-defined one in the schema. Both nodes have the same version of it, or the request is refused. A
//! field, tag or function that this release does not know is an error, and so is nesting beyond [`DEPTH_MAX`].

use std::fmt;
use std::sync::Arc;

use schema::{Schema, Table, TableId};
use stdx::bytes::{Reader, Truncated};
use stdx::{LongVec, vint};
use types::{Comparator, CqlType};
use uuid::Uuid;

use crate::function::{Aggregate, Function, Operation, Resolved, Scalar, UserAggregation, is_number};
use crate::operand::Computed;
use crate::restrict::{
    Choice, ClusteringBound, ClusteringRestriction, Comparison, Filter, FilterTest, IndexedTest, PartitionRestriction,
    Restrictions,
};
use crate::selection::{AggregateCall, ElementTimes, Expression, Item, Selection};
use crate::{InOperand, Operand, PlanError, Select, SelectPlan};

/// The format of an encoded plan.
pub const FORMAT: u8 = 1;
/// How deep expressions, operands, comparators and types may be nested. CQL allows fewer levels.
pub const DEPTH_MAX: usize = 128;

const TABLE: u8 = 1;
const AGGREGATE: u8 = 2;
const CHOICE: u8 = 3;
const LOWER: u8 = 4;
const UPPER: u8 = 5;
const FILTER: u8 = 6;
const GROUP: u8 = 7;
const FIRST: u8 = 8;

/// Why bytes are no plan that can be executed here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DecodeError {
    /// They are in a format that this release does not know.
    UnknownFormat(u8),
    /// They are damaged, or from another release.
    Malformed(&'static str),
    /// No table here has the id.
    UnknownTable(TableId),
    /// The plan does not fit its table.
    Unfit(PlanError),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFormat(found) => write!(
                f,
                "the encoded plan has format {found}: expected {FORMAT}, the only one known here"
            ),
            Self::Malformed(what) => write!(f, "expected an encoded plan of format {FORMAT}, found {what}"),
            Self::UnknownTable(id) => write!(f, "no table has the id {}", id.0),
            Self::Unfit(error) => write!(f, "the plan does not fit its table: {error}"),
        }
    }
}

impl std::error::Error for DecodeError {}

impl From<Truncated> for DecodeError {
    fn from(_: Truncated) -> Self {
        Self::Malformed("fewer bytes")
    }
}

impl From<PlanError> for DecodeError {
    fn from(error: PlanError) -> Self {
        Self::Unfit(error)
    }
}

type Decoded<T> = Result<T, DecodeError>;

impl SelectPlan {
    /// The plan as bytes, for shards that compute parts of it; None when it has no parts.
    pub fn encode_part(&self) -> Option<Vec<u8>> {
        let has_groups = self.has_groups_apart() && self.group_function.is_none();
        if !self.is_mergeable() && !has_groups {
            return None;
        }
        let mut out = vec![FORMAT];
        let mut scratch = Vec::new();
        let mut field = |number: u8, write: &dyn Fn(&mut Vec<u8>)| {
            scratch.clear();
            write(&mut scratch);
            out.push(number);
            put_bytes(&mut out, &scratch);
        };
        field(TABLE, &|out| out.extend_from_slice(self.table.id.0.as_bytes()));
        for call in self.selection.aggregates() {
            field(AGGREGATE, &|out| put_aggregate(out, call));
        }
        let clustering = &self.restrictions.clustering;
        for choice in &clustering.prefix {
            field(CHOICE, &|out| put_choice(out, choice));
        }
        for (number, bound) in [(LOWER, &clustering.lower), (UPPER, &clustering.upper)] {
            if let Some(bound) = bound {
                field(number, &|out| put_bound(out, bound));
            }
        }
        for filter in &self.restrictions.filters {
            field(FILTER, &|out| put_filter(out, filter));
        }
        if has_groups {
            for column in &self.group_by {
                field(GROUP, &|out| put_vint(out, *column));
            }
            for column in self.selection.columns_of_first() {
                field(FIRST, &|out| put_vint(out, column));
            }
        }
        Some(out)
    }

    /// The plan of [`SelectPlan::encode_part`]: it aggregates the same of the same rows of every partition, and returns
    /// no columns.
    ///
    /// # Errors
    /// When the bytes are no such plan, or it does not fit the table that `table` finds, or calls a function that is
    /// not in the schema.
    pub fn decode_part(
        bytes: &[u8],
        schema: &Schema,
        table: impl FnOnce(TableId) -> Option<Arc<Table>>,
    ) -> Decoded<Self> {
        let mut reader = Reader::new(bytes);
        match reader.get_u8()? {
            FORMAT => {}
            found => return Err(DecodeError::UnknownFormat(found)),
        }
        let (number, mut field) = next_field(&mut reader, schema)?;
        if number != TABLE {
            return Err(DecodeError::Malformed("no table"));
        }
        let id = TableId(Uuid::from_bytes(field.reader.get_array()?));
        field.end()?;
        let table = table(id).ok_or(DecodeError::UnknownTable(id))?;
        let (mut aggregates, mut prefix, mut filters) = (Vec::new(), Vec::new(), Vec::new());
        let (mut lower, mut upper) = (None, None);
        let (mut group_by, mut of_first) = (Vec::new(), Vec::new());
        let mut last = TABLE;
        while !reader.is_empty() {
            let (number, mut field) = next_field(&mut reader, schema)?;
            let is_repeated = matches!(number, AGGREGATE | CHOICE | FILTER | GROUP | FIRST);
            if number < last || (number == last && !is_repeated) {
                return Err(DecodeError::Malformed("a field in the wrong place"));
            }
            last = number;
            match number {
                AGGREGATE => aggregates.push(field.aggregate(&table)?),
                CHOICE => prefix.push(field.choice(&table)?),
                LOWER => lower = Some(field.bound(&table)?),
                UPPER => upper = Some(field.bound(&table)?),
                FILTER => filters.push(field.filter(&table)?),
                GROUP => group_by.push(field.number()?),
                FIRST => of_first.push(field.number()?),
                _ => return Err(DecodeError::Malformed("an unknown field")),
            }
            field.end()?;
        }
        if group_by.is_empty() && (aggregates.is_empty() || !of_first.is_empty()) {
            return Err(DecodeError::Malformed("no aggregate"));
        }
        let restrictions = Restrictions {
            partition: PartitionRestriction::All,
            clustering: ClusteringRestriction::new(&table, prefix, lower, upper)?,
            indexed: IndexedTest::of_filters(&table, &filters),
            filters,
        };
        let items = of_first.into_iter().map(|position| Item::of_column(&table, position));
        let items = items.collect::<Result<_, PlanError>>()?;
        let selection = Selection::new(&table, items, aggregates, false)?;
        let plan = Self::new(Select {
            group_by,
            ..Select::new(table, selection, restrictions)
        })?;
        if plan.is_mergeable() || plan.has_groups_apart() {
            Ok(plan)
        } else {
            Err(DecodeError::Malformed("an aggregate without parts"))
        }
    }
}

fn put_vint(out: &mut Vec<u8>, number: usize) {
    vint::put_unsigned(out, number as u64);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_vint(out, bytes.len());
    out.extend_from_slice(bytes);
}

fn put_type(out: &mut Vec<u8>, cql_type: &CqlType) {
    put_bytes(out, cql_type.marshal_name().as_bytes());
}

fn put_optional<T>(out: &mut Vec<u8>, value: Option<&T>, put: impl FnOnce(&mut Vec<u8>, &T)) {
    out.push(u8::from(value.is_some()));
    if let Some(value) = value {
        put(out, value);
    }
}

fn put_all<T>(out: &mut Vec<u8>, values: &[T], put: impl Fn(&mut Vec<u8>, &T)) {
    put_vint(out, values.len());
    values.iter().for_each(|value| put(out, value));
}

fn put_aggregate(out: &mut Vec<u8>, call: &AggregateCall) {
    let (tag, cql_type) = match &call.aggregate {
        Aggregate::CountRows => (0, None),
        Aggregate::Count => (1, None),
        Aggregate::Min(t) => (2, Some(t)),
        Aggregate::Max(t) => (3, Some(t)),
        Aggregate::Sum(t) => (4, Some(t)),
        Aggregate::Avg(t) => (5, Some(t)),
        Aggregate::User(_) => (6, None),
    };
    out.push(tag);
    if let Aggregate::User(of) = &call.aggregate {
        put_bytes(out, of.aggregate.keyspace.as_bytes());
        put_bytes(out, of.aggregate.signature().as_bytes());
    }
    if let Some(cql_type) = cql_type {
        put_type(out, cql_type);
    }
    put_optional(out, call.argument.as_ref(), put_expression);
}

fn put_choice(out: &mut Vec<u8>, choice: &Choice) {
    match choice {
        Choice::One(operand) => {
            out.push(0);
            put_operand(out, operand);
        }
        Choice::Many(alternatives) => {
            out.push(1);
            put_alternatives(out, alternatives);
        }
        Choice::Tuples { columns, alternatives } => {
            out.push(2);
            put_vint(out, *columns);
            put_all(out, alternatives, |out, tuple| {
                tuple.iter().for_each(|operand| put_operand(out, operand));
            });
        }
        Choice::TupleValues(alternatives, columns) => {
            out.push(3);
            put_alternatives(out, alternatives);
            put_vint(out, *columns);
        }
    }
}

fn put_bound(out: &mut Vec<u8>, bound: &ClusteringBound) {
    out.push(u8::from(bound.inclusive));
    put_vint(out, bound.tuple.unwrap_or(0));
    put_all(out, &bound.values, put_operand);
}

fn put_filter(out: &mut Vec<u8>, filter: &Filter) {
    put_vint(out, filter.column());
    match filter.test() {
        FilterTest::Compare(comparison, operand) => {
            out.push(0);
            let number = Comparison::ALL.iter().position(|c| *c == comparison);
            out.push(u8::try_from(number.unwrap_or(0)).unwrap_or(0));
            put_operand(out, &operand);
        }
        FilterTest::In(alternatives) => {
            out.push(1);
            put_alternatives(out, &alternatives);
        }
        FilterTest::Contains(operand) => {
            out.push(2);
            put_operand(out, &operand);
        }
        FilterTest::ContainsKey(operand) => {
            out.push(3);
            put_operand(out, &operand);
        }
        FilterTest::Entry { key, value } => {
            out.push(4);
            put_operand(out, &key);
            put_operand(out, &value);
        }
        FilterTest::NotIn(alternatives) => {
            out.push(5);
            put_alternatives(out, &alternatives);
        }
        FilterTest::NotNull => out.push(6),
        FilterTest::Like(pattern) => {
            out.push(7);
            put_operand(out, &pattern);
        }
        FilterTest::NotContains(operand) => {
            out.push(8);
            put_operand(out, &operand);
        }
        FilterTest::NotContainsKey(operand) => {
            out.push(9);
            put_operand(out, &operand);
        }
    }
}

fn put_alternatives(out: &mut Vec<u8>, alternatives: &InOperand) {
    match alternatives {
        InOperand::List { receiver, operand } => {
            put_bytes(out, receiver.as_bytes());
            out.push(0);
            put_operand(out, operand);
        }
        InOperand::Terms { receiver, operands } => {
            put_bytes(out, receiver.as_bytes());
            out.push(1);
            put_all(out, operands, put_operand);
        }
    }
}

fn put_operand(out: &mut Vec<u8>, operand: &Operand) {
    match operand {
        Operand::Constant(bytes) => {
            out.push(0);
            put_bytes(out, bytes);
        }
        Operand::Null => out.push(1),
        Operand::Marker { index, cql_type } => {
            out.push(2);
            put_vint(out, *index);
            put_type(out, cql_type);
        }
        Operand::Computed(computed) => {
            out.push(3);
            put_operation(out, &computed.operation);
            put_all(out, &computed.arguments, put_operand);
        }
    }
}

fn put_operation(out: &mut Vec<u8>, operation: &Operation) {
    match operation {
        Operation::List => out.push(0),
        Operation::Set(comparator) => {
            out.push(1);
            put_comparator(out, comparator);
        }
        Operation::Map(comparator) => {
            out.push(2);
            put_comparator(out, comparator);
        }
        Operation::Tuple => out.push(3),
        Operation::UserType(udt) => {
            out.push(4);
            put_type(out, &CqlType::Udt(udt.clone()));
        }
        Operation::Vector { is_fixed } => out.extend([5, u8::from(*is_fixed)]),
        Operation::Call(function) if let Scalar::User(user) = &function.scalar => {
            out.push(7);
            put_bytes(out, user.keyspace.as_bytes());
            put_bytes(out, user.signature().as_bytes());
        }
        Operation::Call(function) => {
            out.push(6);
            put_bytes(out, function.name.as_bytes());
            put_all(out, &function.arguments, put_type);
            put_type(out, &function.returns);
            vint::put_unsigned(out, function.scalar.site());
        }
    }
}

fn put_expression(out: &mut Vec<u8>, expression: &Expression) {
    match expression {
        Expression::Column(column) => {
            out.push(0);
            put_vint(out, *column);
        }
        Expression::Term(operand) => {
            out.push(1);
            put_operand(out, operand);
        }
        Expression::Apply { operation, arguments } => {
            out.push(2);
            put_operation(out, operation);
            put_all(out, arguments, put_expression);
        }
        Expression::OfCell { column, is_ttl, part } => {
            out.push(3);
            put_vint(out, *column);
            out.push(u8::from(*is_ttl));
            put_optional(out, part.as_deref(), put_expression);
        }
        Expression::Element {
            name,
            collection,
            is_map,
            comparator,
            key,
        } => {
            out.push(4);
            put_bytes(out, name.as_bytes());
            put_expression(out, collection);
            out.push(u8::from(*is_map));
            put_comparator(out, comparator);
            put_operand(out, key);
        }
        Expression::Slice {
            name,
            collection,
            is_map,
            comparator,
            from,
            to,
            is_multi_cell,
        } => {
            out.push(5);
            put_bytes(out, name.as_bytes());
            put_expression(out, collection);
            out.push(u8::from(*is_map));
            put_comparator(out, comparator);
            put_optional(out, from.as_ref(), put_operand);
            put_optional(out, to.as_ref(), put_operand);
            out.push(u8::from(*is_multi_cell));
        }
        Expression::Field { value, index } => {
            out.push(6);
            put_expression(out, value);
            put_vint(out, *index);
        }
        Expression::Aggregate(place) => {
            out.push(7);
            put_vint(out, *place);
        }
        Expression::Cells(column) => {
            out.push(8);
            put_vint(out, *column);
        }
        Expression::OfCells {
            cells,
            is_ttl,
            selected,
        } => {
            out.push(9);
            put_expression(out, cells);
            out.push(u8::from(*is_ttl));
            out.push(match selected {
                ElementTimes::One => 0,
                ElementTimes::All => 1,
                ElementTimes::Latest => 2,
            });
        }
        Expression::WhenThere { part, value } => {
            out.push(10);
            put_expression(out, part);
            put_expression(out, value);
        }
    }
}

/// The comparators that are made of no others, by number.
const PLAIN_COMPARATORS: [Comparator; 12] = [
    Comparator::Bytes,
    Comparator::Boolean,
    Comparator::TinyInt,
    Comparator::SmallInt,
    Comparator::Int,
    Comparator::BigInt,
    Comparator::Float,
    Comparator::Double,
    Comparator::VarInt,
    Comparator::Decimal,
    Comparator::TimeUuid,
    Comparator::Uuid,
];

fn put_comparator(out: &mut Vec<u8>, comparator: &Comparator) {
    match comparator {
        Comparator::List(element) => {
            out.push(12);
            put_comparator(out, element);
        }
        Comparator::Map(both) => {
            out.push(13);
            both.iter().for_each(|each| put_comparator(out, each));
        }
        Comparator::Tuple(elements) => {
            out.push(14);
            put_all(out, elements, put_comparator);
        }
        Comparator::Vector(element, length) => {
            out.push(15);
            put_comparator(out, element);
            put_optional(out, length.as_ref(), |out, length| put_vint(out, *length));
        }
        plain => {
            let number = PLAIN_COMPARATORS.iter().position(|known| known == plain);
            let number = number.expect("the comparators that are made of others are named above");
            out.push(u8::try_from(number).expect("there are twelve"));
        }
    }
}

/// Reads one field.
struct Field<'a> {
    reader: Reader<'a>,
    depth: usize,
    /// Where user-defined functions are.
    schema: &'a Schema,
}

/// The number of the next field, and what is in it.
fn next_field<'a>(reader: &mut Reader<'a>, schema: &'a Schema) -> Decoded<(u8, Field<'a>)> {
    let number = reader.get_u8()?;
    let length = usize::try_from(reader.get_vint()?).map_err(|_| DecodeError::Malformed("a length beyond the end"))?;
    let field = Field {
        reader: Reader::new(reader.get_slice(length)?),
        depth: 0,
        schema,
    };
    Ok((number, field))
}

impl<'a> Field<'a> {
    fn end(&self) -> Decoded<()> {
        if self.reader.is_empty() {
            Ok(())
        } else {
            Err(DecodeError::Malformed("bytes after a field"))
        }
    }

    fn number(&mut self) -> Decoded<usize> {
        usize::try_from(self.reader.get_vint()?).map_err(|_| DecodeError::Malformed("a number out of range"))
    }

    /// A number of columns or of their elements.
    fn small(&mut self) -> Decoded<usize> {
        let number = self.number()?;
        if number <= usize::from(u16::MAX) {
            Ok(number)
        } else {
            Err(DecodeError::Malformed("a number out of range"))
        }
    }

    fn flag(&mut self) -> Decoded<bool> {
        match self.reader.get_u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(DecodeError::Malformed("a flag that is neither 0 nor 1")),
        }
    }

    fn bytes(&mut self) -> Decoded<&'a [u8]> {
        let length = self.number()?;
        Ok(self.reader.get_slice(length)?)
    }

    fn text(&mut self) -> Decoded<String> {
        let text = std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError::Malformed("text that is not UTF-8"))?;
        Ok(text.to_owned())
    }

    fn cql_type(&mut self) -> Decoded<CqlType> {
        match CqlType::from_marshal_name(&self.text()?) {
            Ok((cql_type, false)) => Ok(cql_type),
            Ok((_, true)) | Err(_) => Err(DecodeError::Malformed("an unknown type")),
        }
    }

    /// As many values as the count before them says. Each takes a byte at least, so the bytes bound the memory.
    fn all<T>(&mut self, mut value: impl FnMut(&mut Self) -> Decoded<T>) -> Decoded<Vec<T>> {
        let count = self.number()?;
        let mut values = Vec::new();
        for _ in 0..count {
            values.push(value(self)?);
        }
        Ok(values)
    }

    fn optional<T>(&mut self, value: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<Option<T>> {
        if self.flag()? { value(self).map(Some) } else { Ok(None) }
    }

    fn nested<T>(&mut self, value: impl FnOnce(&mut Self) -> Decoded<T>) -> Decoded<T> {
        if self.depth == DEPTH_MAX {
            return Err(DecodeError::Malformed("a plan that is nested too deep"));
        }
        self.depth += 1;
        let value = value(self);
        self.depth -= 1;
        value
    }

    fn aggregate(&mut self, table: &Table) -> Decoded<AggregateCall> {
        let tag = self.reader.get_u8()?;
        let aggregate = match tag {
            0 => Aggregate::CountRows,
            1 => Aggregate::Count,
            2 => Aggregate::Min(self.cql_type()?),
            3 => Aggregate::Max(self.cql_type()?),
            4 | 5 => {
                let cql_type = self.cql_type()?;
                if !is_number(&cql_type) {
                    return Err(DecodeError::Malformed("a sum of what are no numbers"));
                }
                match tag {
                    4 => Aggregate::Sum(cql_type),
                    _ => Aggregate::Avg(cql_type),
                }
            }
            6 => {
                let (keyspace, signature) = (self.text()?, self.text()?);
                let keyspace = self.schema.keyspaces.get(&keyspace);
                let found =
                    keyspace.and_then(|keyspace| UserAggregation::new(keyspace, keyspace.aggregates.get(&signature)?));
                Aggregate::User(Arc::new(found.ok_or(DecodeError::Malformed("an unknown aggregate"))?))
            }
            _ => return Err(DecodeError::Malformed("an unknown aggregate")),
        };
        let argument = self.optional(|field| field.expression(table))?;
        Ok(AggregateCall { aggregate, argument })
    }

    fn choice(&mut self, table: &Table) -> Decoded<Choice> {
        Ok(match self.reader.get_u8()? {
            0 => Choice::One(self.operand(table)?),
            1 => Choice::Many(self.alternatives(table)?),
            2 => {
                let columns = self.small()?;
                if columns == 0 {
                    return Err(DecodeError::Malformed("a tuple of no columns"));
                }
                let alternatives = self
                    .all(|field| (0..columns).map(|_| field.operand(table)).collect())?
                    .into();
                Choice::Tuples { columns, alternatives }
            }
            3 => {
                let alternatives = self.alternatives(table)?;
                Choice::TupleValues(alternatives, self.small()?)
            }
            _ => return Err(DecodeError::Malformed("an unknown choice")),
        })
    }

    fn bound(&mut self, table: &Table) -> Decoded<ClusteringBound> {
        Ok(ClusteringBound {
            inclusive: self.flag()?,
            tuple: Some(self.small()?).filter(|columns| *columns > 0),
            values: self.all(|field| field.operand(table))?,
        })
    }

    fn filter(&mut self, table: &Table) -> Decoded<Filter> {
        let column = self.number()?;
        let test = match self.reader.get_u8()? {
            0 => {
                let comparison = Comparison::ALL.get(usize::from(self.reader.get_u8()?));
                let comparison = comparison.ok_or(DecodeError::Malformed("an unknown comparison"))?;
                FilterTest::Compare(*comparison, self.operand(table)?)
            }
            1 => FilterTest::In(self.alternatives(table)?),
            2 => FilterTest::Contains(self.operand(table)?),
            3 => FilterTest::ContainsKey(self.operand(table)?),
            4 => FilterTest::Entry {
                key: self.operand(table)?,
                value: self.operand(table)?,
            },
            5 => FilterTest::NotIn(self.alternatives(table)?),
            6 => FilterTest::NotNull,
            7 => FilterTest::Like(self.operand(table)?),
            8 => FilterTest::NotContains(self.operand(table)?),
            9 => FilterTest::NotContainsKey(self.operand(table)?),
            _ => return Err(DecodeError::Malformed("an unknown filter")),
        };
        Ok(Filter::new(table, column, test)?)
    }

    fn alternatives(&mut self, table: &Table) -> Decoded<InOperand> {
        let receiver = self.text()?;
        Ok(if self.flag()? {
            InOperand::Terms {
                receiver,
                operands: self.all(|field| field.operand(table))?.into(),
            }
        } else {
            InOperand::List {
                receiver,
                operand: self.operand(table)?,
            }
        })
    }

    fn operand(&mut self, table: &Table) -> Decoded<Operand> {
        Ok(match self.reader.get_u8()? {
            0 => Operand::Constant(self.bytes()?.into()),
            1 => Operand::Null,
            2 => Operand::Marker {
                index: self.number()?,
                cql_type: self.cql_type()?,
            },
            3 => self.nested(|field| {
                let operation = field.operation(table)?;
                let arguments = LongVec::from(field.all(|field| field.operand(table))?);
                check_arguments(&operation, arguments.len())?;
                Ok(Operand::Computed(Box::new(Computed { operation, arguments })))
            })?,
            _ => return Err(DecodeError::Malformed("an unknown operand")),
        })
    }

    fn operation(&mut self, table: &Table) -> Decoded<Operation> {
        Ok(match self.reader.get_u8()? {
            0 => Operation::List,
            1 => Operation::Set(self.comparator()?),
            2 => Operation::Map(self.comparator()?),
            3 => Operation::Tuple,
            4 => match self.cql_type()?.unfrozen() {
                CqlType::Udt(udt) => Operation::UserType(udt.clone()),
                _ => return Err(DecodeError::Malformed("a type without fields")),
            },
            5 => Operation::Vector { is_fixed: self.flag()? },
            6 => {
                let name = self.text()?;
                let arguments = self.all(Self::cql_type)?;
                let returns = self.cql_type()?;
                let site = self.reader.get_vint()?;
                let function = Function::find(&name, &arguments, &returns, site, table);
                Operation::Call(function.ok_or(DecodeError::Malformed("an unknown function"))?)
            }
            7 => {
                let (keyspace, signature) = (self.text()?, self.text()?);
                let keyspace = self.schema.keyspaces.get(&keyspace);
                let found = keyspace.and_then(|keyspace| keyspace.functions.get(&signature));
                let found = found.ok_or(DecodeError::Malformed("an unknown function"))?;
                Resolved::user_function(found).into_operation(0)?
            }
            _ => return Err(DecodeError::Malformed("an unknown operation")),
        })
    }

    fn expression(&mut self, table: &Table) -> Decoded<Expression> {
        self.nested(|field| field.expression_here(table))
    }

    fn expression_here(&mut self, table: &Table) -> Decoded<Expression> {
        Ok(match self.reader.get_u8()? {
            0 => Expression::Column(self.number()?),
            1 => Expression::Term(self.operand(table)?),
            2 => {
                let operation = self.operation(table)?;
                let arguments = self.all(|field| field.expression(table))?;
                check_arguments(&operation, arguments.len())?;
                Expression::Apply { operation, arguments }
            }
            3 => Expression::OfCell {
                column: self.number()?,
                is_ttl: self.flag()?,
                part: self.optional(|field| field.expression(table))?.map(Box::new),
            },
            4 => Expression::Element {
                name: self.text()?,
                collection: Box::new(self.expression(table)?),
                is_map: self.flag()?,
                comparator: self.comparator()?,
                key: self.operand(table)?,
            },
            5 => Expression::Slice {
                name: self.text()?,
                collection: Box::new(self.expression(table)?),
                is_map: self.flag()?,
                comparator: self.comparator()?,
                from: self.optional(|field| field.operand(table))?,
                to: self.optional(|field| field.operand(table))?,
                is_multi_cell: self.flag()?,
            },
            6 => Expression::Field {
                value: Box::new(self.expression(table)?),
                index: self.small()?,
            },
            7 => Expression::Aggregate(self.number()?),
            8 => Expression::Cells(self.number()?),
            9 => Expression::OfCells {
                cells: Box::new(self.expression(table)?),
                is_ttl: self.flag()?,
                selected: match self.reader.get_u8()? {
                    0 => ElementTimes::One,
                    1 => ElementTimes::All,
                    2 => ElementTimes::Latest,
                    _ => return Err(DecodeError::Malformed("times of an unknown kind")),
                },
            },
            10 => Expression::WhenThere {
                part: Box::new(self.expression(table)?),
                value: Box::new(self.expression(table)?),
            },
            _ => return Err(DecodeError::Malformed("an unknown expression")),
        })
    }

    fn comparator(&mut self) -> Decoded<Comparator> {
        self.nested(|field| {
            let tag = field.reader.get_u8()?;
            if let Some(plain) = PLAIN_COMPARATORS.get(usize::from(tag)) {
                return Ok(plain.clone());
            }
            Ok(match tag {
                12 => Comparator::List(Box::new(field.comparator()?)),
                13 => Comparator::Map(Box::new([field.comparator()?, field.comparator()?])),
                14 => Comparator::Tuple(field.all(Self::comparator)?.into()),
                15 => {
                    let element = Box::new(field.comparator()?);
                    let length = field.optional(Self::small)?;
                    if length == Some(0) {
                        return Err(DecodeError::Malformed("elements of no length"));
                    }
                    Comparator::Vector(element, length)
                }
                _ => return Err(DecodeError::Malformed("an unknown comparator")),
            })
        })
    }
}

/// Refuses an operation on another number of values than it takes.
fn check_arguments(operation: &Operation, count: usize) -> Decoded<()> {
    let fits = match operation {
        Operation::Call(function) => function.arguments.len() == count,
        Operation::Map(_) => count.is_multiple_of(2),
        Operation::UserType(udt) => udt.fields.len() == count,
        Operation::List | Operation::Set(_) | Operation::Tuple | Operation::Vector { .. } => true,
    };
    if fits {
        Ok(())
    } else {
        Err(DecodeError::Malformed("an operation on another number of values"))
    }
}
