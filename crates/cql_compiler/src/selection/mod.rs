//! Selectors to expressions.

mod infer;
mod names;

use cql::ast::{AliasedSelector, Select, Selection as AstSelection, Selector, Term};
use plan::function::{Aggregate, Assignment, Operation};
use plan::selection::{AggregateCall, ElementTimes, Expression, GroupFunction, Item, Selection};
use plan::{Operand, ResultColumn};
use schema::{Column, ColumnKind, Schema, Table};
use types::CqlType;

use crate::error::CompileError;
use crate::term::{Markers, Receiver, Scope, TermCompiler};

use infer::{Inference, arguments_of, in_parentheses};
use names::is_count_of_constant;

/// Compiles what a SELECT selects, as [`compile_selection`]. The names of plain columns and aliases are moved out of
/// the statement.
pub(crate) fn take_selection(
    select: &mut Select,
    table: &Table,
    markers: &mut Markers,
    schema: &Schema,
    keyspace: &str,
) -> Result<Selection, CompileError> {
    let is_plain = !select.json && select.table.is_some();
    if let AstSelection::Selectors(selectors) = &mut select.selection
        && is_plain
        && selectors.iter().all(|s| matches!(s.selector, Selector::Column(_)))
    {
        return plain_columns(selectors, table);
    }
    compile_selection(select, table, markers, schema, keyspace)
}

/// Columns and nothing else: their names are taken.
fn plain_columns(selectors: &mut [AliasedSelector], table: &Table) -> Result<Selection, CompileError> {
    let mut positions = Vec::with_capacity(selectors.len());
    for aliased in &*selectors {
        if let Selector::Column(name) = &aliased.selector {
            let position = table.position(name);
            positions.push(position.ok_or_else(|| CompileError::undefined_column(name, table))?);
        }
    }
    let columns = selectors.iter_mut().zip(&positions).map(|(aliased, &at)| {
        let name = match (&mut aliased.alias, &mut aliased.selector) {
            (Some(name), _) | (None, Selector::Column(name)) => std::mem::take(name),
            (None, _) => String::new(),
        };
        let cql_type = table.columns[at].cql_type.clone();
        ResultColumn { name, cql_type }
    });
    let columns = columns.collect();
    Ok(Selection::of_columns(table, positions, columns)?)
}

/// Compiles what a SELECT selects. Without FROM, `keyspace` is where types are looked for, and no column of the table
/// is known.
///
/// # Errors
/// When a name is not known, a function does not take its arguments, or the type of an expression cannot be determined.
pub fn compile_selection(
    select: &Select,
    table: &Table,
    markers: &mut Markers,
    schema: &Schema,
    keyspace: &str,
) -> Result<Selection, CompileError> {
    let selectors = match &select.selection {
        AstSelection::All => return all_columns(select.json, table),
        AstSelection::Selectors(selectors) => selectors,
    };
    let scope = match &select.table {
        Some(_) => Scope::of_table(schema, table),
        None => Scope::new(schema, keyspace),
    };
    let inference = Inference::new(&scope, table);
    let mut compiler = Compiler {
        inference: &inference,
        markers,
        aggregates: Vec::new(),
        is_in_aggregate: false,
    };
    let mut items = Vec::with_capacity(selectors.len());
    for aliased in selectors {
        if let Selector::Column(name) = &aliased.selector {
            let at = inference.column(name)?;
            items.push(Item {
                column: ResultColumn {
                    name: aliased.alias.as_ref().unwrap_or(name).clone(),
                    cql_type: table.columns[at].cql_type.clone(),
                },
                expression: Expression::Column(at),
            });
            continue;
        }
        let cql_type = inference.type_of(&aliased.selector)?;
        let expression = compiler.expression(&aliased.selector, &cql_type)?;
        let name = match (&aliased.alias, &aliased.selector) {
            (Some(alias), _) => alias.clone(),
            // A cast to the type that the selector has is not there at all.
            (None, Selector::Cast { selector, .. }) if is_of_type(&inference, selector, &cql_type) => {
                inference.name(selector)
            }
            (None, selector) => inference.name(selector),
        };
        items.push(Item {
            column: ResultColumn { name, cql_type },
            expression,
        });
    }
    Ok(Selection::new(table, items, compiler.aggregates, select.json)?)
}

/// A function in GROUP BY.
pub struct CompiledGroupFunction {
    /// The clustering column that it is of.
    pub column: String,
    /// The function.
    pub function: GroupFunction,
    /// The refusal of one that does not grow with the column.
    pub not_monotonic: Option<CompileError>,
}

/// Compiles a function in GROUP BY.
///
/// # Errors
/// When it is no call of a function of one clustering column.
pub fn compile_group_function(
    selector: &Selector,
    table: &Table,
    markers: &mut Markers,
    schema: &Schema,
    keyspace: &str,
) -> Result<CompiledGroupFunction, CompileError> {
    if matches!(selector, Selector::CountRows) {
        return refuse(of_aggregate("count_rows"));
    }
    if !matches!(
        selector,
        Selector::FunctionCall { .. } | Selector::Arithmetic { .. } | Selector::Negation(_)
    ) {
        return refuse("GROUP BY takes columns, and functions of a clustering column".to_owned());
    }
    let scope = Scope::of_table(schema, table);
    debug_assert_eq!(scope.keyspace, keyspace, "a table is read in its keyspace");
    let inference = Inference::new(&scope, table);
    let mut columns = Vec::new();
    for argument in arguments_of(selector) {
        columns_of(argument, &mut columns);
    }
    for column in &columns {
        let kind = table.columns[inference.column(column)?].kind;
        if kind != ColumnKind::Clustering {
            return refuse(format!(
                "Group by functions are only supported on clustering columns, got {column}"
            ));
        }
    }
    let found = inference.resolve(selector)?;
    if found.is_aggregate() {
        return refuse(of_aggregate(&found.name));
    }
    let mut names = columns.clone();
    names.dedup();
    let column = match names.as_slice() {
        [only] => (*only).to_owned(),
        [] => return refuse("GROUP BY functions must have one clustering column name as parameter".to_owned()),
        several => {
            return refuse(format!(
                "GROUP BY functions accept only one clustering column as parameter, got: {}",
                several.join(",")
            ));
        }
    };
    let not_monotonic = check_monotonic(&inference, selector).err();
    let mut compiler = Compiler {
        inference: &inference,
        markers,
        aggregates: Vec::new(),
        is_in_aggregate: false,
    };
    let expression = compiler.call(selector)?;
    Ok(CompiledGroupFunction {
        column,
        function: GroupFunction::new(expression)?,
        not_monotonic,
    })
}

fn of_aggregate(name: &str) -> String {
    format!("Aggregate functions are not supported within the GROUP BY clause, got: system.{name}")
}

/// The columns that a selector names, in its order.
fn columns_of<'s>(selector: &'s Selector, columns: &mut Vec<&'s str>) {
    match selector {
        Selector::Column(name) => columns.push(name),
        Selector::Cast { selector, .. } | Selector::TypeHint { selector, .. } => columns_of(selector, columns),
        _ => arguments_of(selector)
            .into_iter()
            .for_each(|argument| columns_of(argument, columns)),
    }
}

/// Refuses a call, or one in it, that does not grow with its first argument while the others stay.
fn check_monotonic(inference: &Inference<'_>, selector: &Selector) -> Result<(), CompileError> {
    let mut columns = Vec::new();
    columns_of(selector, &mut columns);
    let arguments = arguments_of(selector);
    if columns.is_empty() || arguments.is_empty() {
        return Ok(());
    }
    let found = inference.resolve(selector)?;
    let mut others = Vec::new();
    arguments[1..]
        .iter()
        .for_each(|argument| columns_of(argument, &mut others));
    if !found.is_monotonic() || !others.is_empty() {
        return refuse(format!(
            "Only monotonic functions are supported in the GROUP BY clause. Got: {} ",
            found.describe()
        ));
    }
    check_monotonic(inference, arguments[0])
}

/// `*`: the table's columns in their order.
fn all_columns(is_json: bool, table: &Table) -> Result<Selection, CompileError> {
    let named = |column: &Column| ResultColumn {
        name: column.name.clone(),
        cql_type: column.cql_type.clone(),
    };
    if !is_json {
        let positions: Vec<usize> = table.visible().map(|(position, _)| position).collect();
        let columns = positions.iter().map(|&position| named(&table.columns[position]));
        let columns = columns.collect();
        return Ok(Selection::of_columns(table, positions, columns)?);
    }
    let item = |(position, column): (usize, &Column)| Item {
        column: named(column),
        expression: Expression::Column(position),
    };
    let items = table.visible().map(item).collect();
    Ok(Selection::new(table, items, Vec::new(), is_json)?)
}

fn is_of_type(inference: &Inference<'_>, selector: &Selector, cql_type: &CqlType) -> bool {
    inference
        .infer(selector)
        .is_ok_and(|known| known.exact.is_some_and(|t| t.unfrozen() == cql_type.unfrozen()))
}

struct Compiler<'a, 'm> {
    inference: &'a Inference<'a>,
    markers: &'m mut Markers,
    aggregates: Vec<AggregateCall>,
    /// Whether what is compiled now is an aggregate's argument.
    is_in_aggregate: bool,
}

fn refuse<T>(text: String) -> Result<T, CompileError> {
    Err(CompileError::Invalid(text))
}

impl Compiler<'_, '_> {
    /// The expression of a selector that is taken as that type.
    fn expression(&mut self, selector: &Selector, expected: &CqlType) -> Result<Expression, CompileError> {
        match selector {
            Selector::Column(name) => Ok(Expression::Column(self.column(name)?)),
            Selector::Term(term) => Ok(Expression::Term(
                self.term(term, &Receiver::new("[selection]", expected.clone()))?,
            )),
            Selector::CountRows => self.aggregate(Aggregate::CountRows, None),
            _ if is_count_of_constant(selector) => self.aggregate(Aggregate::CountRows, None),
            Selector::FunctionCall { name, arguments }
                if name.keyspace.is_none() && matches!(name.name.as_str(), "writetime" | "maxwritetime" | "ttl") =>
            {
                self.of_cell(&name.name, arguments)
            }
            Selector::FunctionCall { .. } | Selector::Arithmetic { .. } | Selector::Negation(_) => self.call(selector),
            Selector::Cast {
                selector: inner,
                type_name,
            } => {
                let to = self.inference.scope.resolve_type(type_name)?;
                match self.inference.resolve_cast(inner, &to)? {
                    None => self.expression(inner, &to),
                    Some(found) => {
                        let argument = self.expression(inner, &found.arguments[0])?;
                        let operation = found.into_operation(self.markers.next_site())?;
                        Ok(Expression::Apply {
                            operation,
                            arguments: vec![argument],
                        })
                    }
                }
            }
            Selector::TypeHint { selector: inner, .. } => {
                let hint = self.inference.type_of(selector)?;
                if self.inference.test(inner, &hint) == Assignment::Not {
                    return self.cannot_assign(selector, &hint);
                }
                self.expression(inner, &hint)
            }
            Selector::Element { collection, key } => {
                let cql_type = self.inference.type_of(collection)?;
                let (is_map, key_type, what) = key_of(&cql_type)?;
                let name = self.inference.name(collection);
                let receiver = Receiver::new(format!("{what}({name})"), key_type.clone());
                let key = self.term(key, &receiver)?;
                let collection = Box::new(self.expression(collection, &cql_type)?);
                Ok(Expression::Element {
                    name,
                    collection,
                    is_map,
                    comparator: key_type.comparator(),
                    key,
                })
            }
            Selector::Slice { collection, from, to } => {
                let cql_type = self.inference.type_of(collection)?;
                let (is_map, key_type, what) = key_of(&cql_type)?;
                let name = self.inference.name(collection);
                let receiver = Receiver::new(format!("{what}({name})"), key_type.clone());
                let from = from.as_ref().map(|term| self.term(term, &receiver)).transpose()?;
                let to = to.as_ref().map(|term| self.term(term, &receiver)).transpose()?;
                let collection = Box::new(self.expression(collection, &cql_type)?);
                let is_multi_cell = cql_type.is_multi_cell();
                Ok(Expression::Slice {
                    name,
                    collection,
                    is_map,
                    comparator: key_type.comparator(),
                    from,
                    to,
                    is_multi_cell,
                })
            }
            Selector::Field { value, field } => {
                let cql_type = self.inference.type_of(value)?;
                let CqlType::Udt(udt) = cql_type.unfrozen() else {
                    return Err(CompileError::Internal(
                        "a field was found in a type without fields".to_owned(),
                    ));
                };
                let index = udt.fields.iter().position(|(name, _)| name == field);
                let index = index.ok_or_else(|| CompileError::Internal("a field was found and lost".to_owned()))?;
                Ok(Expression::Field {
                    value: Box::new(self.expression(value, &cql_type)?),
                    index,
                })
            }
            Selector::List(_) | Selector::Set(_) | Selector::Map(_) | Selector::UserType(_) | Selector::Tuple(_) => {
                self.literal(selector, expected)
            }
        }
    }

    fn cannot_assign<T>(&self, selector: &Selector, expected: &CqlType) -> Result<T, CompileError> {
        let text = self.inference.name(selector);
        refuse(format!("Cannot assign value {text} to {text} of type {expected}"))
    }

    fn column(&self, name: &str) -> Result<usize, CompileError> {
        self.inference.column(name)
    }

    fn term(&mut self, term: &Term, receiver: &Receiver) -> Result<Operand, CompileError> {
        TermCompiler {
            scope: self.inference.scope,
            markers: self.markers,
        }
        .compile(term, receiver)
    }

    fn aggregate(&mut self, aggregate: Aggregate, argument: Option<Expression>) -> Result<Expression, CompileError> {
        if self.is_in_aggregate {
            return refuse("aggregate functions cannot be used as arguments of aggregate functions".to_owned());
        }
        self.aggregates.push(AggregateCall { aggregate, argument });
        Ok(Expression::Aggregate(self.aggregates.len() - 1))
    }

    /// `writetime`, `maxwritetime` and `ttl` of a column that has a cell for each element or field, or of a part of it.
    /// A part of an element was written with the whole of it.
    fn of_cells(&mut self, function: &str, argument: &Selector, column: usize) -> Result<Expression, CompileError> {
        let base = cells_of(argument);
        let cells = match base {
            Selector::Column(_) => Expression::Cells(column),
            Selector::Field { field, .. } => self.cell_of_field(function, column, field)?,
            part => {
                let mut part = self.expression(part, &self.inference.type_of(part)?)?;
                take_cells(&mut part, column);
                part
            }
        };
        let times = Expression::OfCells {
            is_ttl: function == "ttl",
            selected: match &cells {
                Expression::Element { .. } => ElementTimes::One,
                _ if function == "maxwritetime" => ElementTimes::Latest,
                _ => ElementTimes::All,
            },
            cells: Box::new(cells),
        };
        Ok(if std::ptr::eq(base, argument) {
            times
        } else {
            Expression::WhenThere {
                part: Box::new(self.part_of_cell(argument)?),
                value: Box::new(times),
            }
        })
    }

    /// A part of a frozen value, which is asked when it was written.
    fn part_of_cell(&mut self, part: &Selector) -> Result<Expression, CompileError> {
        let mut part = self.expression(part, &self.inference.type_of(part)?)?;
        // An empty slice has no times.
        if let Expression::Slice { is_multi_cell, .. } = &mut part {
            *is_multi_cell = true;
        }
        Ok(part)
    }

    /// The times of one field of a multi-cell user-defined type.
    fn cell_of_field(&self, function: &str, column: usize, field: &str) -> Result<Expression, CompileError> {
        let declared = &self.inference.table.columns[column];
        let place = match &declared.cql_type {
            CqlType::Udt(udt) => udt.position(field).and_then(|place| u16::try_from(place).ok()),
            _ => None,
        };
        let Some(place) = place else {
            let name = &declared.name;
            return refuse(format!("Cannot use selection function {function} on {name}.{field}"));
        };
        Ok(Expression::Element {
            name: declared.name.clone(),
            collection: Box::new(Expression::Cells(column)),
            is_map: true,
            comparator: CqlType::SmallInt.comparator(),
            key: Operand::Constant(place.to_be_bytes().into()),
        })
    }

    /// `writetime`, `maxwritetime` and `ttl` of a column.
    fn of_cell(&mut self, function: &str, arguments: &[Selector]) -> Result<Expression, CompileError> {
        let [argument] = arguments else {
            return refuse(format!(
                "Function {function} takes one column, not {} arguments",
                arguments.len()
            ));
        };
        // An element or field of a frozen value was written with the whole of it.
        let mut inner = argument;
        while let Selector::Element { collection, .. }
        | Selector::Slice { collection, .. }
        | Selector::Field { value: collection, .. } = inner
        {
            self.inference.infer(inner)?;
            inner = collection;
        }
        let Selector::Column(name) = inner else {
            return refuse(format!(
                "Cannot use selection function {function} on {}",
                self.inference.name(argument)
            ));
        };
        let column = self.column(name)?;
        let declared = &self.inference.table.columns[column];
        if matches!(declared.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
            return refuse(format!(
                "Cannot use selection function {function} on PRIMARY KEY part {name}"
            ));
        }
        if declared.cql_type.is_multi_cell() {
            return self.of_cells(function, argument, column);
        }
        let part = match argument {
            Selector::Column(_) => None,
            part => Some(Box::new(self.part_of_cell(part)?)),
        };
        Ok(Expression::OfCell {
            column,
            is_ttl: function == "ttl",
            part,
        })
    }

    fn call(&mut self, selector: &Selector) -> Result<Expression, CompileError> {
        let found = self.inference.resolve(selector)?;
        let is_aggregate = found.is_aggregate();
        if is_aggregate && self.is_in_aggregate {
            return refuse("aggregate functions cannot be used as arguments of aggregate functions".to_owned());
        }
        self.is_in_aggregate |= is_aggregate;
        let mut arguments = Vec::with_capacity(found.arguments.len());
        for (argument, cql_type) in arguments_of(selector).into_iter().zip(&found.arguments) {
            arguments.push(self.expression(argument, cql_type)?);
        }
        if is_aggregate {
            self.is_in_aggregate = false;
        }
        match found.aggregate().cloned() {
            Some(aggregate @ Aggregate::User(_)) => {
                let operation = Operation::Tuple;
                self.aggregate(aggregate, Some(Expression::Apply { operation, arguments }))
            }
            Some(aggregate) => self.aggregate(aggregate, arguments.pop()),
            None => {
                let operation = found.into_operation(self.markers.next_site())?;
                Ok(Expression::applied(operation, arguments)?)
            }
        }
    }

    /// The literal of a collection, tuple or user-defined type with selectors in it.
    fn literal(&mut self, selector: &Selector, expected: &CqlType) -> Result<Expression, CompileError> {
        let mut parts: Vec<(Option<&Selector>, &CqlType)> = Vec::new();
        let mut keys = Vec::new();
        if let (Some(inner), false) = (
            in_parentheses(selector),
            matches!(expected.unfrozen(), CqlType::Tuple(_)),
        ) {
            return self.expression(inner, expected);
        }
        let operation = match (selector, expected.unfrozen()) {
            (Selector::List(elements), CqlType::List(element)) => {
                parts.extend(elements.iter().map(|e| (Some(e), &**element)));
                Operation::List
            }
            (Selector::List(elements), CqlType::Vector(element, _)) => {
                parts.extend(elements.iter().map(|e| (Some(e), &**element)));
                Operation::Vector {
                    is_fixed: element.fixed_len().is_some(),
                }
            }
            (Selector::Set(elements), CqlType::Set(element)) => {
                parts.extend(elements.iter().map(|e| (Some(e), &**element)));
                Operation::Set(element.comparator())
            }
            (Selector::Set(_), CqlType::Map(key, _)) => Operation::Map(key.comparator()),
            (Selector::Map(pairs), CqlType::Map(key, value)) => {
                parts.extend(pairs.iter().flat_map(|(k, v)| [(Some(k), &**key), (Some(v), &**value)]));
                Operation::Map(key.comparator())
            }
            (Selector::UserType(fields), CqlType::Map(key, value)) => {
                // Written like fields, the keys are columns.
                keys.extend(fields.iter().map(|(name, _)| Selector::Column(name.clone())));
                let pairs = keys.iter().zip(fields);
                parts.extend(pairs.flat_map(|(k, (_, v))| [(Some(k), &**key), (Some(v), &**value)]));
                Operation::Map(key.comparator())
            }
            (Selector::UserType(fields), CqlType::Udt(udt)) => {
                parts.extend(udt.fields.iter().map(|(name, field_type)| {
                    let given = fields.iter().rev().find(|(field, _)| field == name);
                    (given.map(|(_, value)| value), field_type)
                }));
                Operation::UserType(udt.clone())
            }
            (Selector::Tuple(elements), CqlType::Tuple(types)) => {
                parts.extend(elements.iter().map(Some).zip(types.iter()));
                Operation::Tuple
            }
            _ => {
                return Err(CompileError::Internal(
                    "a literal was tested against another type".to_owned(),
                ));
            }
        };
        let arguments = parts
            .into_iter()
            .map(|(part, cql_type)| match part {
                // A term says itself what it cannot be.
                Some(part @ Selector::Term(_)) => self.expression(part, cql_type),
                Some(part) if self.inference.test(part, cql_type) == Assignment::Not => {
                    self.cannot_assign(selector, expected)
                }
                Some(part) => self.expression(part, cql_type),
                None => Ok(Expression::Term(Operand::Null)),
            })
            .collect::<Result<_, _>>()?;
        Ok(Expression::Apply { operation, arguments })
    }
}

/// The part of a multi-cell column that has cells of its own: an element or field, or all elements in a slice.
fn cells_of(part: &Selector) -> &Selector {
    let (Selector::Element { collection, .. }
    | Selector::Slice { collection, .. }
    | Selector::Field { value: collection, .. }) = part
    else {
        return part;
    };
    match cells_of(collection) {
        Selector::Column(_) | Selector::Slice { .. } => part,
        found => found,
    }
}

/// Makes an expression for elements of a multi-cell column give their times instead.
fn take_cells(expression: &mut Expression, column: usize) {
    match expression {
        Expression::Element { collection, is_map, .. } | Expression::Slice { collection, is_map, .. } => {
            *is_map = true;
            take_cells(collection, column);
        }
        other => *other = Expression::Cells(column),
    }
}

/// Whether a collection is a map, the type of its keys, and what a key is called.
fn key_of(collection: &CqlType) -> Result<(bool, &CqlType, &'static str), CompileError> {
    match collection.unfrozen() {
        CqlType::Map(key, _) => Ok((true, key, "key")),
        CqlType::Set(element) => Ok((false, element, "value")),
        _ => Err(CompileError::Internal(
            "a key was looked for in a type without keys".to_owned(),
        )),
    }
}
