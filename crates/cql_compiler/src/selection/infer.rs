//! The types of selectors, inferred from inside out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cql::ast::{Literal, LiteralKind, Selector, Term};
use plan::function::{self, Argument, Assignment, Resolved};
use schema::Table;
use types::CqlType;

use super::names::{is_count_of_constant, name_of};
use crate::error::CompileError;
use crate::function_call::{self, arithmetic};
use crate::literal;
use crate::term::{Scope, has_marker, known_type};
use crate::text::function_name;

/// What is known of a selector's type before its receiver is.
#[derive(Clone, Debug, Default)]
pub(super) struct Inferred {
    /// Its type.
    pub(super) exact: Option<CqlType>,
    /// A type that it can be taken as, when it has no type of its own: a constant's.
    pub(super) possible: Option<CqlType>,
}

impl Inferred {
    fn exact(cql_type: CqlType) -> Self {
        Self {
            possible: Some(cql_type.clone()),
            exact: Some(cql_type),
        }
    }

    /// Both put through the same constructor.
    fn map(self, wrap: impl Fn(CqlType) -> CqlType) -> Self {
        Self {
            exact: self.exact.map(&wrap),
            possible: self.possible.map(&wrap),
        }
    }

    fn or(self, other: Self) -> Self {
        Self {
            exact: self.exact.or(other.exact),
            possible: self.possible.or(other.possible),
        }
    }
}

/// Infers types of selectors on one table, and keeps them.
pub(super) struct Inference<'a> {
    pub(super) scope: &'a Scope<'a>,
    pub(super) table: &'a Table,
    known: RefCell<HashMap<*const Selector, Result<Inferred, CompileError>>>,
}

impl<'a> Inference<'a> {
    pub(super) fn new(scope: &'a Scope<'a>, table: &'a Table) -> Self {
        Self {
            scope,
            table,
            known: RefCell::default(),
        }
    }

    pub(super) fn name(&self, selector: &Selector) -> String {
        name_of(selector, self.scope.keyspace, &|call| self.user_name(call))
    }

    /// The full name of the user-defined function that a call without a keyspace means.
    fn user_name(&self, call: &Selector) -> Option<String> {
        match call {
            Selector::FunctionCall { name, .. } if function_call::may_be_user_function(name, self.scope) => {
                let found = self.resolve(call).ok()?;
                (found.keyspace != function::NATIVE).then(|| found.full_name())
            }
            _ => None,
        }
    }

    /// Whether a call is about several cells: a column that has one for each element or field, or a slice of it.
    fn is_of_cells(&self, arguments: &[Selector]) -> bool {
        let [argument] = arguments else { return false };
        let mut part = argument;
        while let Selector::Slice { collection, .. } = part {
            part = collection;
        }
        let Selector::Column(name) = part else { return false };
        let column = self.column(name).map(|at| &self.table.columns[at].cql_type);
        column.is_ok_and(CqlType::is_multi_cell)
    }

    /// The position of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, CompileError> {
        if self.scope.table.is_none() {
            let name = types::quote_identifier(name);
            return Err(CompileError::Syntax(format!(
                "a SELECT without FROM has no column {name}"
            )));
        }
        self.table
            .position(name)
            .ok_or_else(|| CompileError::undefined_column(name, self.table))
    }

    /// What is known of a selector's type; an error when something in it is unknown.
    pub(super) fn infer(&self, selector: &Selector) -> Result<Inferred, CompileError> {
        let key = std::ptr::from_ref(selector);
        if let Some(known) = self.known.borrow().get(&key) {
            return known.clone();
        }
        let found = self.infer_new(selector);
        self.known.borrow_mut().insert(key, found.clone());
        found
    }

    fn infer_new(&self, selector: &Selector) -> Result<Inferred, CompileError> {
        let first = |selectors: &[Selector]| {
            selectors.iter().try_fold(Inferred::default(), |found, selector| {
                Ok::<_, CompileError>(found.or(self.infer(selector)?))
            })
        };
        let of_frozen = |wrap: fn(Arc<CqlType>) -> CqlType| move |t: CqlType| wrap(Arc::new(t.frozen()));
        Ok(match selector {
            Selector::Column(name) => Inferred::exact(self.table.columns[self.column(name)?].cql_type.clone()),
            Selector::Term(Term::Literal(literal)) => Self::of_literal(literal),
            Selector::Term(term) => Inferred {
                exact: None,
                possible: known_type(self.scope, term),
            },
            Selector::CountRows => Inferred::exact(CqlType::BigInt),
            Selector::FunctionCall { name, arguments }
                if name.keyspace.is_none() && matches!(name.name.as_str(), "writetime" | "maxwritetime" | "ttl") =>
            {
                let one = match name.name.as_str() {
                    "ttl" => CqlType::Int,
                    _ => CqlType::BigInt,
                };
                Inferred::exact(if name.name != "maxwritetime" && self.is_of_cells(arguments) {
                    CqlType::List(Arc::new(one))
                } else {
                    one
                })
            }
            _ if is_count_of_constant(selector) => Inferred::exact(CqlType::BigInt),
            Selector::FunctionCall { .. } | Selector::Arithmetic { .. } | Selector::Negation(_) => {
                Inferred::exact(self.resolve(selector)?.returns)
            }
            Selector::Cast { selector, type_name } => {
                self.type_of(selector)?;
                Inferred::exact(self.scope.resolve_type(type_name)?)
            }
            Selector::TypeHint { type_name, .. } => Inferred::exact(self.scope.resolve_type(type_name)?.frozen()),
            Selector::Element { collection, .. } => {
                let (text, cql_type) = (self.name(collection), self.type_of(collection)?);
                match cql_type.unfrozen() {
                    CqlType::Map(_, value) => Inferred::exact(CqlType::clone(value)),
                    CqlType::Set(element) => Inferred::exact(CqlType::clone(element)),
                    CqlType::List(_) => {
                        return Err(CompileError::Invalid(format!(
                            "Element selection is only allowed on sets and maps, but {text} is a list"
                        )));
                    }
                    _ => {
                        return Err(CompileError::Invalid(format!(
                            "Invalid element selection: {text} is of type {cql_type} is not a collection"
                        )));
                    }
                }
            }
            Selector::Slice { collection, .. } => {
                let (text, cql_type) = (self.name(collection), self.type_of(collection)?);
                match cql_type.unfrozen() {
                    CqlType::Map(..) | CqlType::Set(_) => Inferred::exact(cql_type),
                    CqlType::List(_) => {
                        return Err(CompileError::Invalid(format!(
                            "Slice selection is only allowed on sets and maps, but {text} is a list"
                        )));
                    }
                    _ => {
                        return Err(CompileError::Invalid(format!(
                            "Invalid slice selection: {text} of type {cql_type} is not a collection"
                        )));
                    }
                }
            }
            Selector::Field { value, field } => {
                let (text, cql_type) = (self.name(value), self.type_of(value)?);
                let CqlType::Udt(udt) = cql_type.unfrozen() else {
                    return Err(CompileError::Invalid(format!(
                        "Invalid field selection: {text} of type {cql_type} is not a user type"
                    )));
                };
                match udt.fields.iter().find(|(name, _)| name == field) {
                    Some((_, field_type)) => Inferred::exact(field_type.clone()),
                    None => {
                        return Err(CompileError::Invalid(format!(
                            "{text} of type {cql_type} has no field {field}"
                        )));
                    }
                }
            }
            Selector::List(elements) => first(elements)?.map(of_frozen(CqlType::List)),
            Selector::Set(elements) => first(elements)?.map(of_frozen(CqlType::Set)),
            Selector::Map(pairs) => {
                let mut key = Inferred::default();
                let mut value = Inferred::default();
                for (k, v) in pairs {
                    key = key.or(self.infer(k)?);
                    value = value.or(self.infer(v)?);
                }
                let both = |key: Option<CqlType>, value: Option<CqlType>| {
                    Some(CqlType::Map(Arc::new(key?.frozen()), Arc::new(value?.frozen())))
                };
                Inferred {
                    exact: both(key.exact, value.exact),
                    possible: both(key.possible, value.possible),
                }
            }
            // A tuple only where one is expected.
            Selector::Tuple(elements) if elements.len() == 1 => self.infer(&elements[0])?,
            Selector::Tuple(elements) => {
                let known = elements.iter().map(|e| self.infer(e)).collect::<Result<Vec<_>, _>>()?;
                let all = |pick: fn(&Inferred) -> &Option<CqlType>| {
                    let types: Option<Vec<_>> = known.iter().map(|e| pick(e).as_ref().map(CqlType::frozen)).collect();
                    types.map(|types| CqlType::Tuple(types.into()))
                };
                Inferred {
                    exact: all(|e| &e.exact),
                    possible: all(|e| &e.possible),
                }
            }
            Selector::UserType(_) => Inferred::default(),
        })
    }

    fn of_literal(literal: &Literal) -> Inferred {
        Inferred {
            exact: None,
            possible: literal::preferred_type(literal),
        }
    }

    /// The type of a selector that must have one by itself, or be made of literals that have a type by default.
    pub(super) fn type_of(&self, selector: &Selector) -> Result<CqlType, CompileError> {
        let known = self.infer(selector)?.exact.or_else(|| self.default_type(selector));
        known.ok_or_else(|| {
            CompileError::Invalid(format!(
                "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
                self.name(selector)
            ))
        })
    }

    /// The type that literals have when nothing else says one.
    fn default_type(&self, selector: &Selector) -> Option<CqlType> {
        let common = |selectors: &mut dyn Iterator<Item = &Selector>| {
            let mut found: Option<CqlType> = None;
            for selector in selectors.filter(|selector| !is_null(selector)) {
                let known = self.type_of(selector).ok()?;
                found = Some(match found {
                    Some(found) => common_type(&found, &known)?,
                    None => known,
                });
            }
            Some(Arc::new(found?.frozen()))
        };
        match selector {
            Selector::Term(Term::Literal(literal)) => literal::selected_type(literal),
            Selector::List(elements) => common(&mut elements.iter()).map(CqlType::List),
            Selector::Set(elements) => common(&mut elements.iter()).map(CqlType::Set),
            Selector::Map(pairs) => {
                let key = common(&mut pairs.iter().map(|(key, _)| key))?;
                Some(CqlType::Map(key, common(&mut pairs.iter().map(|(_, value)| value))?))
            }
            Selector::Tuple(elements) if elements.len() == 1 => self.type_of(&elements[0]).ok(),
            Selector::Tuple(elements) => {
                let types = elements
                    .iter()
                    .map(|element| Some(self.type_of(element).ok()?.frozen()));
                Some(CqlType::Tuple(types.collect::<Option<Vec<_>>>()?.into()))
            }
            _ => None,
        }
    }

    /// The function that a selector calls.
    pub(super) fn resolve(&self, selector: &Selector) -> Result<Resolved, CompileError> {
        let operands = arguments_of(selector);
        for operand in &operands {
            self.infer(operand)?;
        }
        let wrapped: Vec<_> = operands
            .iter()
            .map(|selector| SelectorArgument {
                inference: self,
                selector,
            })
            .collect();
        let arguments: Vec<&dyn Argument> = wrapped.iter().map(|argument| argument as &dyn Argument).collect();
        match selector {
            Selector::FunctionCall { name, .. } => function_call::resolve(name, &arguments, None, self.scope)?
                .ok_or_else(|| CompileError::Invalid(format!("Unknown function '{}'", function_name(name)))),
            Selector::Arithmetic { operator, .. } => {
                let operator = arithmetic(*operator);
                Ok(function::resolve_arithmetic(
                    operator,
                    [arguments[0], arguments[1]],
                    None,
                )?)
            }
            Selector::Negation(_) => Ok(function::resolve_negation(arguments[0], None)?),
            _ => Err(CompileError::Internal("only calls are resolved".to_owned())),
        }
    }

    /// The function of a cast; `None` when the selector has that type already.
    pub(super) fn resolve_cast(&self, selector: &Selector, to: &CqlType) -> Result<Option<Resolved>, CompileError> {
        self.infer(selector)?;
        let argument = SelectorArgument {
            inference: self,
            selector,
        };
        Ok(function::resolve_cast(&argument, to)?)
    }

    /// Whether a selector may be given to a receiver of that type.
    pub(super) fn test(&self, selector: &Selector, receiver: &CqlType) -> Assignment {
        let inner = receiver.unfrozen();
        let all = |selectors: &[Selector], element: &CqlType| match selectors {
            [] => Assignment::Weak,
            _ => selectors
                .iter()
                .map(|s| self.test(s, element))
                .fold(Assignment::Exact, Assignment::and),
        };
        if let (Some(inside), false) = (in_parentheses(selector), matches!(inner, CqlType::Tuple(_))) {
            return self.test(inside, receiver);
        }
        match (selector, inner) {
            (Selector::Term(term), _) => self.scope.test(term, receiver),
            (Selector::List(elements), CqlType::List(element)) => all(elements, element),
            (Selector::List(elements), CqlType::Vector(element, dimension))
                if elements.len() == *dimension as usize =>
            {
                all(elements, element)
            }
            (Selector::Set(elements), CqlType::Set(element)) => all(elements, element),
            (Selector::Set(elements), CqlType::Map(..)) if elements.is_empty() => Assignment::Weak,
            (Selector::Map(pairs), CqlType::Map(key, value)) => pairs
                .iter()
                .map(|(k, v)| self.test(k, key).and(self.test(v, value)))
                .fold(Assignment::Exact, Assignment::and),
            (Selector::UserType(fields), CqlType::Map(key, value)) => fields
                .iter()
                .map(|(column, v)| {
                    let key = match self.column(column) {
                        Ok(position) => function::test_type(&self.table.columns[position].cql_type, key),
                        Err(_) => Assignment::Not,
                    };
                    key.and(self.test(v, value))
                })
                .fold(Assignment::Exact, Assignment::and),
            (Selector::UserType(fields), CqlType::Udt(udt)) => {
                Assignment::weak_if(fields.iter().all(|(name, value)| {
                    let field = udt.fields.iter().find(|(field, _)| field == name);
                    field.is_some_and(|(_, field_type)| self.test(value, field_type) != Assignment::Not)
                }))
            }
            (Selector::Tuple(elements), CqlType::Tuple(types)) => Assignment::weak_if(
                elements.len() <= types.len()
                    && elements
                        .iter()
                        .zip(types.iter())
                        .all(|(e, t)| self.test(e, t) != Assignment::Not),
            ),
            (
                Selector::List(_) | Selector::Set(_) | Selector::Map(_) | Selector::UserType(_) | Selector::Tuple(_),
                _,
            ) => Assignment::Not,
            _ => match self.infer(selector) {
                Ok(Inferred {
                    exact: Some(cql_type), ..
                }) => function::test_type(&cql_type, receiver),
                // What is wrong with it is said when it is compiled.
                _ => Assignment::Weak,
            },
        }
    }
}

fn is_null(selector: &Selector) -> bool {
    matches!(selector, Selector::Term(Term::Literal(literal)) if literal.kind == LiteralKind::Null)
}

/// The type that takes what either does: the wider one of two types of numbers.
fn common_type(a: &CqlType, b: &CqlType) -> Option<CqlType> {
    /// Each takes the literals of those before it.
    const WIDER: [CqlType; 4] = [CqlType::Int, CqlType::BigInt, CqlType::VarInt, CqlType::Double];
    let width = |t: &CqlType| WIDER.iter().position(|wide| wide == t);
    match (a.unfrozen(), b.unfrozen()) {
        (CqlType::List(a), CqlType::List(b)) => Some(CqlType::List(common_type(a, b)?.frozen().into())),
        (CqlType::Set(a), CqlType::Set(b)) => Some(CqlType::Set(common_type(a, b)?.frozen().into())),
        (a, b) if a == b => Some(a.clone()),
        (a, b) => Some(WIDER[width(a)?.max(width(b)?)].clone()),
    }
}

/// The arguments of a call, or the operands of an operation.
pub(super) fn arguments_of(selector: &Selector) -> Vec<&Selector> {
    match selector {
        Selector::FunctionCall { arguments, .. } => arguments.iter().collect(),
        Selector::Arithmetic { left, right, .. } => vec![left, right],
        Selector::Negation(operand) => vec![operand],
        _ => Vec::new(),
    }
}

/// A selector in the place of a function's argument.
struct SelectorArgument<'a> {
    inference: &'a Inference<'a>,
    selector: &'a Selector,
}

impl Argument for SelectorArgument<'_> {
    fn test(&self, receiver: &CqlType) -> Assignment {
        self.inference.test(self.selector, receiver)
    }

    fn text(&self) -> String {
        self.inference.name(self.selector)
    }

    fn has_marker(&self) -> bool {
        matches!(self.selector, Selector::Term(term) if has_marker(term))
    }

    fn known_type(&self) -> Option<CqlType> {
        self.inference.infer(self.selector).ok()?.possible
    }

    fn elements(&self) -> Option<usize> {
        match self.selector {
            Selector::List(elements) => Some(elements.len()),
            Selector::Term(Term::List(elements)) => Some(elements.len()),
            _ => None,
        }
    }
}

/// The selector that is alone in parentheses. Where a tuple is expected, it is a tuple.
pub(super) fn in_parentheses(selector: &Selector) -> Option<&Selector> {
    match selector {
        Selector::Tuple(elements) if elements.len() == 1 => elements.first(),
        _ => None,
    }
}
