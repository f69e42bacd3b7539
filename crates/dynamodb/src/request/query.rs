//! Query and Scan.

use super::constraints::{Constraints, DETECTED};
use super::expressions::{self, Clause, Parameters, Reader, Style, Substitutions};
use super::item::{attributes_to_get, check_operator};
use super::json::{Attributes, Flag, Integer, LegacyParameter, List, Map, Text, structure};
use super::key_range::{self, KeyRange};
use super::names;
use super::options::{self, ReturnConsumedCapacity, Select};
use crate::arn::TableReference;
use crate::error::Error;
use crate::expression::{Condition, ExpressionKind, Projection};
use crate::legacy;
use crate::table::{KeySchema, ProjectionType, SecondaryIndex, TableDefinition, emptiness, empty_key, has_type};
use crate::value::Item;

/// TotalSegments, at most.
const SEGMENTS_MAX: i64 = 1_000_000;

structure! {
    /// The body of Query.
    pub(crate) struct QueryInput {
        table_name: Text = "TableName",
        index_name: Text = "IndexName",
        select: Text = "Select",
        attributes_to_get: List<Text> = "AttributesToGet",
        limit: Integer = "Limit",
        consistent_read: Flag = "ConsistentRead",
        key_conditions: LegacyParameter = "KeyConditions",
        filter: LegacyParameter = "QueryFilter",
        conditional_operator: Text = "ConditionalOperator",
        forward: Flag = "ScanIndexForward",
        start: Attributes = "ExclusiveStartKey",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        projection: Text = "ProjectionExpression",
        filter_expression: Text = "FilterExpression",
        key_condition: Text = "KeyConditionExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
    }
}

structure! {
    /// The body of Scan.
    pub(crate) struct ScanInput {
        table_name: Text = "TableName",
        index_name: Text = "IndexName",
        attributes_to_get: List<Text> = "AttributesToGet",
        limit: Integer = "Limit",
        select: Text = "Select",
        filter: LegacyParameter = "ScanFilter",
        conditional_operator: Text = "ConditionalOperator",
        start: Attributes = "ExclusiveStartKey",
        consumed_capacity: Text = "ReturnConsumedCapacity",
        total_segments: Integer = "TotalSegments",
        segment: Integer = "Segment",
        projection: Text = "ProjectionExpression",
        filter_expression: Text = "FilterExpression",
        names: Map<Text> = "ExpressionAttributeNames",
        values: Attributes = "ExpressionAttributeValues",
        consistent_read: Flag = "ConsistentRead",
    }
}

/// What Query and Scan have in common.
#[derive(Clone, PartialEq, Debug)]
pub struct ReadItems {
    /// The table.
    pub table: TableReference,
    /// The secondary index; None for the table itself.
    pub index: Option<String>,
    /// What the answer has of the items that are found; None is all, of an index all that it has.
    pub select: Option<Select>,
    /// Which items of those that are read are returned.
    pub filter: Option<Clause<Condition>>,
    /// What is returned of them; None for all of it.
    pub projection: Option<Clause<Projection>>,
    /// Placeholders of all expressions.
    pub substitutions: Substitutions,
    /// Items that are read, at most, before the filter.
    pub limit: Option<u32>,
    /// The key after which to continue.
    pub start: Option<Item>,
    /// Whether all earlier writes must be seen.
    pub consistent_read: bool,
    /// What the answer reports of capacity.
    pub consumed_capacity: ReturnConsumedCapacity,
}

/// Reads the items of one partition key in the order of their sort keys.
#[derive(Clone, PartialEq, Debug)]
pub struct Query {
    /// What is read.
    pub read: ReadItems,
    /// Which items are read.
    pub key_condition: Clause<Condition>,
    /// Whether the order is ascending.
    pub forward: bool,
    /// Whether the filter is QueryFilter, whose texts differ.
    has_legacy_filter: bool,
}

/// Reads the items of a table or index.
#[derive(Clone, PartialEq, Debug)]
pub struct Scan {
    /// What is read.
    pub read: ReadItems,
    /// Which part of the items is read, and of how many parts.
    pub segment: Option<(u32, u32)>,
}

impl Query {
    /// What the Query reads of its table or index.
    ///
    /// # Errors
    /// A ValidationException if there is no such index, if the key condition does not fit its key, if the key to
    /// continue after is not in the range, or if the filter names a key attribute.
    pub fn key_range(&self, table: &TableDefinition) -> Result<KeyRange, Error> {
        let index = self.read.index(table)?;
        let schema = index.map_or(&table.key_schema, SecondaryIndex::key_schema);
        if let Some(start) = &self.read.start {
            check_start_names(table, index, start, schema)?;
            check_start_not_empty(table, start)?;
        }
        let range = key_range::resolve(&self.key_condition, &self.read.substitutions, table, schema)?;
        if let Some(start) = &self.read.start {
            key_range::check_start(&range, start, schema, index.is_none())?;
        }
        self.check_filter(table, schema)?;
        self.read.check_select(index)?;
        Ok(range)
    }

    /// Fails if the filter has an attribute of the key, which belongs into the key condition.
    fn check_filter(&self, table: &TableDefinition, schema: &KeySchema) -> Result<(), Error> {
        let Some(filter) = &self.read.filter else {
            return Ok(());
        };
        let bindings = filter.bind(&self.read.substitutions)?;
        let parameter = if self.has_legacy_filter {
            "QueryFilter"
        } else {
            "Filter Expression"
        };
        let mut error = None;
        filter.expression.tree.visit_paths(&mut |path| {
            let name = bindings.name(path.attribute);
            if error.is_none() && schema.has(name) {
                error = Some(format!(
                    "{parameter} can only contain non-primary key attributes: Primary key attribute: {name}"
                ));
            }
        });
        filter.expression.tree.visit_paths(&mut |path| {
            let name = bindings.name(path.attribute);
            if error.is_none() && table.key_schema.has(name) && !path.is_top_level() {
                error = Some(format!(
                    "Key attributes must be scalars; list random access '[]' and map lookup '.' are not allowed: Key: \
                     {name}"
                ));
            }
        });
        match error {
            Some(text) => Err(Error::validation(text)),
            None => Ok(()),
        }
    }
}

impl Scan {
    /// Checks what needs the table.
    ///
    /// # Errors
    /// A ValidationException if there is no such index or the key to continue after does not fit its key.
    pub fn check(&self, table: &TableDefinition) -> Result<(), Error> {
        let index = self.read.index(table)?;
        self.read.check_select(index)?;
        if let Some(start) = &self.read.start {
            let schema = index.map_or(&table.key_schema, SecondaryIndex::key_schema);
            check_start_types(table, self.read.index.as_deref(), start)?;
            check_start_names(table, index, start, schema)?;
        }
        Ok(())
    }
}

impl ReadItems {
    /// The index that is read.
    fn index<'t>(&self, table: &'t TableDefinition) -> Result<Option<SecondaryIndex<'t>>, Error> {
        let Some(name) = &self.index else {
            return Ok(None);
        };
        let index = table.index(name);
        if self.consistent_read && !matches!(index, Some(SecondaryIndex::Local(_))) {
            return Err(Error::validation(
                "Consistent reads are not supported on global secondary indexes",
            ));
        }
        if index.is_none() && table.vector_indexes.iter().any(|index| index.name == *name) {
            return Err(Error::validation("Query operation not supported on this index type."));
        }
        match index {
            None => Err(Error::validation(format!(
                "The table does not have the specified index: {name}"
            ))),
            index => Ok(index),
        }
    }

    /// Checks that a global index has all attributes if all are requested.
    fn check_select(&self, index: Option<SecondaryIndex>) -> Result<(), Error> {
        let (Some(index), Some(Select::AllAttributes), Some(name)) = (index, self.select, &self.index) else {
            return Ok(());
        };
        if index.is_global() && index.projection().projection_type != ProjectionType::All {
            Err(Error::validation(format!(
                "One or more parameter values were invalid: Select type ALL_ATTRIBUTES is not supported for global \
             secondary index {name} because its projection type is not ALL"
            )))
        } else {
            Ok(())
        }
    }
}

const START_INVALID: &str = "The provided starting key is invalid";

/// Checks the attributes of a start key, and their types.
fn check_start_names(
    table: &TableDefinition,
    index: Option<SecondaryIndex>,
    start: &Item,
    schema: &KeySchema,
) -> Result<(), Error> {
    let elements = || {
        let of_index = schema.0.iter().filter(|element| !table.key_schema.has(&element.name));
        table.key_schema.0.iter().chain(of_index.filter(|_| index.is_some()))
    };
    let fits = elements().all(|element| {
        let scalar_type = table.type_of(&element.name);
        start
            .get(&element.name)
            .is_some_and(|value| has_type(value, scalar_type))
    });
    if fits && start.len() == elements().count() {
        Ok(())
    } else {
        Err(Error::validation(START_INVALID))
    }
}

/// Checks that the primary key of a start key is not empty.
fn check_start_not_empty(table: &TableDefinition, start: &Item) -> Result<(), Error> {
    for element in &table.key_schema.0 {
        if let Some(empty) = start.get(&element.name).and_then(emptiness) {
            return Err(empty_key(empty, &element.name));
        }
    }
    Ok(())
}

/// The types of a start key of Scan, which the service reports with the name of an index if the table has one.
fn check_start_types(table: &TableDefinition, index: Option<&str>, start: &Item) -> Result<(), Error> {
    let first = (table.global_indexes.first().map(|index| index.name.as_str()))
        .or_else(|| table.local_indexes.first().map(|index| index.name.as_str()));
    let Some(index) = index.or(first) else {
        return Ok(());
    };
    for definition in &table.attributes {
        if let Some(value) = start.get(&definition.name)
            && !has_type(value, definition.scalar_type)
        {
            return Err(Error::validation(format!(
                "One or more parameter values were invalid: Type mismatch for Index Key {} Expected: {} Actual: {} \
                 IndexName: {index}",
                definition.name,
                definition.scalar_type.word(),
                value.value_type().name()
            )));
        }
    }
    Ok(())
}

/// Reports a number that is out of its range, in the words of the operations on items.
fn check_range(value: Option<i64>, name: &str, least: i64, most: i64, errors: &mut Constraints) {
    let Some(value) = value else {
        return;
    };
    let bound = match (value < least, value > most) {
        (true, _) => format!("greater than or equal to {least}"),
        (_, true) => format!("less than or equal to {most}"),
        _ => return,
    };
    errors.add(format_args!(
        "Value at '{name}' failed to satisfy constraint: Member must have value {bound}"
    ));
}

/// Reports conditions without an operator.
fn check_operators(parameter: Option<&LegacyParameter>, member: &str, errors: &mut Constraints) {
    let Some(parameter) = parameter else {
        return;
    };
    for (name, entry) in &parameter.map {
        if entry.comparison_operator.is_none() {
            errors.null(format_args!("{member}.{name}.member.comparisonOperator"));
        }
        stdx::preempt::point();
    }
}

/// What Select requires of the other parameters.
fn check_select(select: Option<Select>, attributes_to_get: bool, projection: bool, index: bool) -> Result<(), Error> {
    let projected = match (attributes_to_get, projection) {
        (true, _) => Some("AttributesToGet"),
        (_, true) => Some("ProjectionExpression"),
        _ => None,
    };
    let text = match (select, projected) {
        (Some(Select::SpecificAttributes), None) => "Must specify the AttributesToGet or ProjectionExpression when \
                                                     choosing to get SPECIFIC_ATTRIBUTES"
            .to_owned(),
        (Some(Select::Count), Some(member)) => {
            format!("Cannot specify the {member} when choosing to get only the Count")
        }
        (Some(select), Some(member)) if select != Select::SpecificAttributes => {
            format!("Cannot specify the {member} when choosing to get {}", select.word())
        }
        (Some(Select::AllProjectedAttributes), None) if !index => {
            "ALL_PROJECTED_ATTRIBUTES can be used only when Querying using an IndexName".to_owned()
        }
        _ => return Ok(()),
    };
    Err(Error::validation(text).prefixed(DETECTED))
}

fn check_select_word(select: Option<&Text>) -> Result<Option<Select>, Error> {
    let mut errors = Constraints::default();
    let value = errors.word::<Select>(select, "select");
    errors.finish()?;
    Ok(value)
}

/// Fails with the invalid value of a legacy condition.
fn check_conditions(parameter: Option<&LegacyParameter>) -> Result<(), Error> {
    match parameter.and_then(|parameter| parameter.problem.clone()) {
        Some(problem) => Err(problem.error),
        None => Ok(()),
    }
}

/// Fails with the invalid value of a start key.
fn check_start_values(start: Option<&Attributes>) -> Result<(), Error> {
    match start.and_then(|start| start.problem.clone()) {
        Some(problem) if problem.error.message.starts_with("Supplied AttributeValue") => {
            Err(problem.error.prefixed(&format!("{START_INVALID}: ")))
        }
        Some(problem) => Err(problem.error),
        None => Ok(()),
    }
}

/// The filter of a request: an expression, or the legacy parameter.
fn filter(
    parameter: &str,
    text: Option<&Text>,
    legacy: Option<LegacyParameter>,
    operator: legacy::ConditionalOperator,
) -> Result<Option<Clause<Condition>>, Error> {
    if let Some(clause) = expressions::condition(ExpressionKind::Filter, text)? {
        return Ok(Some(clause));
    }
    let Some(filter) = legacy else {
        return Ok(None);
    };
    let legacy = legacy::filter(parameter, &filter.map, operator)?;
    Ok(legacy.map(|legacy| Clause::legacy(ExpressionKind::Filter, legacy)))
}

fn limit(limit: Option<Integer>) -> Option<u32> {
    limit.and_then(|Integer(limit)| u32::try_from(limit).ok())
}

/// The constraints on members of Query.
fn check_query_members(input: &QueryInput) -> Result<(), Error> {
    let limit = input.limit.map(|Integer(limit)| i64::from(limit));
    if input.table_name.is_none() {
        let mut errors = Constraints::default();
        errors.word::<Select>(input.select.as_ref(), "select");
        errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
        errors.null("tableName");
        check_operators(input.key_conditions.as_ref(), "keyConditions", &mut errors);
        check_operators(input.filter.as_ref(), "queryFilter", &mut errors);
        if let Some(limit) = limit {
            errors.at_least(limit, "limit", 1);
        }
        return errors.finish();
    }
    let mut errors = Constraints::default();
    check_range(limit, "Limit", 1, i64::MAX, &mut errors);
    if input.table_name.as_ref().is_some_and(|Text(name)| name.is_empty()) {
        errors.add(names::EMPTY);
    }
    errors.finish()?;
    let mut errors = Constraints::default();
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    check_operators(input.key_conditions.as_ref(), "keyConditions", &mut errors);
    check_operators(input.filter.as_ref(), "queryFilter", &mut errors);
    errors.finish()
}

/// The key condition of a request: an expression, or KeyConditions.
fn key_condition(input: &mut QueryInput) -> Result<Option<Clause<Condition>>, Error> {
    let expression = expressions::condition(ExpressionKind::KeyCondition, input.key_condition.as_ref())?;
    match (expression, input.key_conditions.take()) {
        (None, Some(conditions)) if !conditions.map.is_empty() => {
            let legacy = legacy::key_conditions(&conditions.map)?;
            Ok(Some(Clause::legacy(ExpressionKind::KeyCondition, legacy)))
        }
        (expression, _) => Ok(expression),
    }
}

pub(super) fn query(mut input: QueryInput) -> Result<Query, Error> {
    check_query_members(&input)?;
    let style = Style::Plain;
    let substitutions = Parameters::default()
        .legacy("AttributesToGet", input.attributes_to_get.as_ref())
        .legacy("QueryFilter", input.filter.as_ref())
        .legacy("ConditionalOperator", input.conditional_operator.as_ref())
        .legacy("KeyConditions", input.key_conditions.as_ref())
        .expression("ProjectionExpression", input.projection.as_ref())
        .expression("FilterExpression", input.filter_expression.as_ref())
        .expression("KeyConditionExpression", input.key_condition.as_ref())
        .substitutions(
            input.names.take(),
            input.values.take(),
            &["FilterExpression", "KeyConditionExpression"],
        )
        .map_err(|refusal| refusal.of(style))?;
    let select = check_select_word(input.select.as_ref())?;
    let operator = check_operator(input.conditional_operator.as_ref(), input.filter.as_ref(), style)?;
    check_conditions(input.filter.as_ref())?;
    check_conditions(input.key_conditions.as_ref())?;
    let has_attributes_to_get = input.attributes_to_get.is_some();
    let legacy_projection = attributes_to_get(input.attributes_to_get.take(), style)?;
    check_start_values(input.start.as_ref())?;
    let has_legacy_filter = input.filter.is_some();
    let filter = filter(
        "queryFilter",
        input.filter_expression.as_ref(),
        input.filter.take(),
        operator,
    )?;
    let projection = expressions::projection(input.projection.as_ref())?;
    let index = input.index_name.take().map(|Text(name)| name);
    check_select(select, has_attributes_to_get, projection.is_some(), index.is_some())?;
    let Some(key_condition) = key_condition(&mut input)? else {
        return Err(Error::validation(
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
        ));
    };
    Reader::new(&substitutions).check(|placeholders| {
        expressions::bind(placeholders, Some(&key_condition))?;
        expressions::bind(placeholders, filter.as_ref())?;
        expressions::bind(placeholders, projection.as_ref())
    })?;
    key_range::check(&key_condition, &substitutions)?;
    Ok(Query {
        read: ReadItems {
            table: names::checked(input.table_name),
            index,
            select,
            filter,
            projection: projection.or(legacy_projection),
            substitutions,
            limit: limit(input.limit),
            start: input.start.map(|start| start.item),
            consistent_read: input.consistent_read.unwrap_or_default().0,
            consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
        },
        key_condition,
        forward: input.forward.is_none_or(|Flag(forward)| forward),
        has_legacy_filter,
    })
}

/// The constraints on members of Scan.
fn check_scan_members(input: &ScanInput) -> Result<(), Error> {
    let integer = |member: Option<Integer>| member.map(|Integer(value)| i64::from(value));
    let (limit, segment, total) = (
        integer(input.limit),
        integer(input.segment),
        integer(input.total_segments),
    );
    let is_without_operator =
        |filter: &LegacyParameter| filter.map.values().any(|entry| entry.comparison_operator.is_none());
    if input.table_name.is_none() || input.filter.as_ref().is_some_and(is_without_operator) {
        let mut errors = Constraints::default();
        errors.word::<Select>(input.select.as_ref(), "select");
        if let Some(total) = total {
            errors.at_least(total, "totalSegments", 1);
            errors.at_most(total, "totalSegments", SEGMENTS_MAX);
        }
        errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
        match input.table_name.as_ref() {
            None => errors.null("tableName"),
            Some(Text(name)) if name.is_empty() => errors.length(name, "tableName", 1, usize::MAX),
            Some(_) => {}
        }
        if let Some(Text(word)) = &input.conditional_operator
            && !["OR", "AND"].contains(&word.as_str())
        {
            errors.value(
                word,
                "conditionalOperator",
                "Member must satisfy enum value set: [OR, AND]",
            );
        }
        check_operators(input.filter.as_ref(), "scanFilter", &mut errors);
        if let Some(segment) = segment {
            errors.at_least(segment, "segment", 0);
            errors.at_most(segment, "segment", SEGMENTS_MAX - 1);
        }
        if let Some(limit) = limit {
            errors.at_least(limit, "limit", 1);
        }
        return errors.finish();
    }
    let mut errors = Constraints::default();
    check_range(limit, "Limit", 1, i64::MAX, &mut errors);
    check_range(segment, "Segment", 0, SEGMENTS_MAX - 1, &mut errors);
    check_range(total, "TotalSegments", 1, SEGMENTS_MAX, &mut errors);
    if input.table_name.as_ref().is_some_and(|Text(name)| name.is_empty()) {
        errors.add(names::EMPTY);
    }
    errors.finish()?;
    let mut errors = Constraints::default();
    names::check_first(input.table_name.as_ref(), "tableName", &mut errors);
    errors.word::<ReturnConsumedCapacity>(input.consumed_capacity.as_ref(), "returnConsumedCapacity");
    errors.finish()
}

/// The segment of a Scan, whose two parameters need each other.
fn segment(input: &ScanInput) -> Result<Option<(u32, u32)>, Error> {
    let number = |member: Option<Integer>| member.and_then(|Integer(value)| u32::try_from(value).ok());
    match (number(input.segment), number(input.total_segments)) {
        (None, None) => Ok(None),
        (Some(segment), Some(total)) if segment < total => Ok(Some((segment, total))),
        (Some(_), Some(_)) => Err(Error::validation(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments",
        )),
        (Some(_), None) => Err(Error::validation(
            "The TotalSegments parameter is required but was not present in the request when Segment parameter is \
             present",
        )),
        (None, Some(_)) => Err(Error::validation(
            "The Segment parameter is required but was not present in the request when parameter TotalSegments is \
             present",
        )),
    }
}

pub(super) fn scan(mut input: ScanInput) -> Result<Scan, Error> {
    check_scan_members(&input)?;
    let style = Style::Plain;
    let substitutions = Parameters::default()
        .legacy("AttributesToGet", input.attributes_to_get.as_ref())
        .legacy("ScanFilter", input.filter.as_ref())
        .legacy("ConditionalOperator", input.conditional_operator.as_ref())
        .expression("ProjectionExpression", input.projection.as_ref())
        .expression("FilterExpression", input.filter_expression.as_ref())
        .substitutions(input.names.take(), input.values.take(), &["FilterExpression"])
        .map_err(|refusal| refusal.of(style))?;
    let operator = check_operator(input.conditional_operator.as_ref(), input.filter.as_ref(), style)?;
    check_conditions(input.filter.as_ref())?;
    let has_attributes_to_get = input.attributes_to_get.is_some();
    let legacy_projection = attributes_to_get(input.attributes_to_get.take(), style)?;
    check_start_values(input.start.as_ref())?;
    let filter = filter(
        "scanFilter",
        input.filter_expression.as_ref(),
        input.filter.take(),
        operator,
    )?;
    let projection = expressions::projection(input.projection.as_ref())?;
    let select = check_select_word(input.select.as_ref())?;
    let index = input.index_name.take().map(|Text(name)| name);
    check_select(select, has_attributes_to_get, projection.is_some(), index.is_some())?;
    let segment = segment(&input)?;
    Reader::new(&substitutions).check(|placeholders| {
        expressions::bind(placeholders, filter.as_ref())?;
        expressions::bind(placeholders, projection.as_ref())
    })?;
    Ok(Scan {
        read: ReadItems {
            table: names::checked(input.table_name),
            index,
            select,
            filter,
            projection: projection.or(legacy_projection),
            substitutions,
            limit: limit(input.limit),
            start: input.start.map(|start| start.item),
            consistent_read: input.consistent_read.unwrap_or_default().0,
            consumed_capacity: options::value(input.consumed_capacity.as_ref(), ReturnConsumedCapacity::None),
        },
        segment,
    })
}
