//! The types of selectors, told from inside out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cql::ast::{Literal, Selector, Term};
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

/// Tells types of selectors on one table, and remembers them.
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
        name_of(selector, &self.table.keyspace)
    }

    /// Whether a call is about several cells: a collection that has one for each element, or a slice of it.
    fn is_of_cells(&self, arguments: &[Selector]) -> bool {
        let name = match arguments {
            [Selector::Column(name)] => name,
            [Selector::Slice { collection, .. }] => match &**collection {
                Selector::Column(name) => name,
                _ => return false,
            },
            _ => return false,
        };
        let column = self.column(name).map(|at| &self.table.columns[at].cql_type);
        column.is_ok_and(|t| t.is_multi_cell() && t.is_collection())
    }

    /// The position of a column.
    pub(super) fn column(&self, name: &str) -> Result<usize, CompileError> {
        self.table
            .columns
            .iter()
            .position(|column| column.name == name)
            .ok_or_else(|| {
                CompileError::Invalid(format!(
                    "Undefined column name {} in table {}.{}",
                    types::quote_identifier(name),
                    self.table.keyspace,
                    self.table.name
                ))
            })
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
                Inferred::exact(match name.name != "maxwritetime" && self.is_of_cells(arguments) {
                    true => CqlType::List(Arc::new(one)),
                    false => one,
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
                            "{text} of type {} has no field {field}",
                            udt.name
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

    /// The type of a selector that must tell its own.
    pub(super) fn type_of(&self, selector: &Selector) -> Result<CqlType, CompileError> {
        self.infer(selector)?.exact.ok_or_else(|| {
            CompileError::Invalid(format!(
                "Cannot infer type for term {} in selection clause (try using a cast to force a type)",
                self.name(selector)
            ))
        })
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
        match (selector, inner) {
            (Selector::Term(term), _) => self.scope.test(term, receiver),
            (Selector::List(elements), CqlType::List(element)) => all(elements, element),
            (Selector::List(elements), CqlType::Vector(element, dimension))
                if elements.len() == usize::from(*dimension) =>
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
