//! Terms: the values that a statement gives, as constants, markers, literals of collections and calls.
//!
//! A term is compiled once against its receiver, the column or argument that takes it, and evaluated in each execution.
//! Constants are serialised at compile time, and so is every literal and every pure call whose parts are constants. A
//! bound value is checked against its type when it is read, and lent on as it came; only sets and maps that a client
//! did not sort are copied.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use cql::ast::{BindMarker, FunctionCall, InValues, Literal, LiteralKind, Term, TypeName};
use plan::function::{self, Argument, Assignment, Operation, Resolved};
use plan::{InOperand, Operand};
use schema::Schema;
use types::CqlType;

use crate::error::CompileError;
use crate::function_call::{self, arithmetic};
use crate::literal;
use crate::text::{function_name, term_text};
use crate::type_name;

/// The meaning of a marker: sent to drivers at PREPARE, checked at EXECUTE.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarkerSpec {
    /// The name of the column or argument it is compared with or assigned to, or of the marker itself when it has one.
    pub name: String,
    /// The type of value that it takes.
    pub cql_type: CqlType,
    /// Keyspace and table of the statement in a BATCH that has it; `[batch]` for those of the BATCH itself. None: the
    /// statement's.
    pub of: Option<(Arc<str>, Arc<str>)>,
}

/// Collects the meaning of markers while a statement is compiled.
#[derive(Clone, Debug)]
pub struct Markers {
    specs: Vec<Option<MarkerSpec>>,
    /// A variable that has values of two types, and these.
    conflict: Option<(String, CqlType, CqlType)>,
    sites: u64,
    /// What [`MarkerSpec::of`] of the next markers is.
    of: Option<(Arc<str>, Arc<str>)>,
}

impl Markers {
    /// For a statement with that many markers.
    pub fn new(count: usize) -> Self {
        Self {
            specs: vec![None; count],
            conflict: None,
            sites: 0,
            of: None,
        }
    }

    /// Sets the meaning of a marker. The name of a `:name` marker wins over the receiver's; if the statement has it
    /// again, it must have values of the same type.
    pub fn set(&mut self, marker: &BindMarker, receiver: &str, cql_type: &CqlType) {
        if self.specs.len() <= marker.index {
            self.specs.resize(marker.index + 1, None);
        }
        let name = marker.name.as_deref().unwrap_or(receiver);
        if let Some(former) = &self.specs[marker.index]
            && former.cql_type != *cql_type
        {
            let types = (former.cql_type.clone(), cql_type.clone());
            self.conflict.get_or_insert((name.to_owned(), types.0, types.1));
        }
        self.specs[marker.index] = Some(MarkerSpec {
            name: name.to_owned(),
            cql_type: cql_type.clone(),
            of: self.of.clone(),
        });
    }

    /// Says which table the next markers are of, in a BATCH.
    pub(crate) fn begin_table(&mut self, keyspace: &str, table: &str) {
        self.of = Some((keyspace.into(), table.into()));
    }

    /// How many the statement has.
    pub(crate) const fn count(&self) -> usize {
        self.specs.len()
    }

    /// A number for a call, which no other call of the statement has.
    pub(crate) fn next_site(&mut self) -> u64 {
        self.sites += 1;
        self.sites
    }

    /// One specification for each variable, in the order of the text.
    ///
    /// # Errors
    /// When one has values of two types; when one was never given a meaning, which is a fault of the code that compiled
    /// the statement.
    pub fn finish(self) -> Result<Vec<MarkerSpec>, CompileError> {
        if let Some((name, one, other)) = self.conflict {
            return Err(CompileError::invalid(format!(
                "Bind variable :{name} is used for a value of type {one} and for one of type {other}; give the two different names"
            )));
        }
        let known = |(index, spec): (usize, Option<MarkerSpec>)| {
            spec.ok_or_else(|| CompileError::Internal(format!("bind marker {index} was given no type")))
        };
        self.specs.into_iter().enumerate().map(known).collect()
    }
}

/// What receives a term: for the text of errors and the marker's specification.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Receiver {
    /// The column's name, or another description of the receiver, such as `value(l)` or `[limit]`.
    pub name: String,
    /// The type of value that it takes.
    pub cql_type: CqlType,
}

impl Receiver {
    /// A receiver of that name and type.
    pub fn new(name: impl Into<String>, cql_type: CqlType) -> Self {
        Self {
            name: name.into(),
            cql_type,
        }
    }

    fn part(&self, what: &str, cql_type: &CqlType) -> Self {
        Self::new(format!("{what}({})", self.name), cql_type.clone())
    }
}

/// Compiles a term for its receiver. `keyspace` is where unqualified types and functions are looked for.
///
/// # Errors
/// When the receiver does not take the term.
pub fn compile_term(
    term: &Term,
    receiver: &Receiver,
    markers: &mut Markers,
    schema: &Schema,
    keyspace: &str,
) -> Result<Operand, CompileError> {
    let scope = Scope::new(schema, keyspace);
    TermCompiler { scope: &scope, markers }.compile(term, receiver)
}

/// As [`compile_term`], where `token(…)` is that of a table whose partition key has these types.
pub fn compile_term_of_table(
    term: &Term,
    receiver: &Receiver,
    markers: &mut Markers,
    schema: &Schema,
    table: &schema::Table,
) -> Result<Operand, CompileError> {
    let scope = Scope::of_table(schema, table);
    TermCompiler { scope: &scope, markers }.compile(term, receiver)
}

/// Compiles the alternatives of IN for what they are compared with.
///
/// # Errors
/// When the receiver does not take one of them.
pub fn compile_in(
    values: &InValues,
    receiver: &Receiver,
    markers: &mut Markers,
    schema: &Schema,
    keyspace: &str,
) -> Result<InOperand, CompileError> {
    match values {
        InValues::BindMarker(marker) => {
            let list = CqlType::List(std::sync::Arc::new(receiver.cql_type.frozen()));
            // `in(k)` of one column, and `in(a,b)` of columns compared as one, whose name has its parentheses already.
            let name = if receiver.name.starts_with('(') {
                format!("in{}", receiver.name)
            } else {
                format!("in({})", receiver.name)
            };
            let receiver_of_list = Receiver::new(name, list);
            let operand = marker_operand(marker, &receiver_of_list.name, &receiver_of_list.cql_type, markers);
            Ok(InOperand::List {
                receiver: receiver.name.clone(),
                operand,
            })
        }
        InValues::Terms(terms) => {
            let compile = |term| compile_term(term, receiver, markers, schema, keyspace);
            let operands = stdx::preempt::try_collect(terms.iter().map(compile))?.into();
            Ok(InOperand::Terms {
                receiver: receiver.name.clone(),
                operands,
            })
        }
    }
}

/// The operand of a marker whose value is for the receiver of that name and type.
pub(crate) fn marker_operand(marker: &BindMarker, name: &str, cql_type: &CqlType, markers: &mut Markers) -> Operand {
    markers.set(marker, name, cql_type);
    Operand::Marker {
        index: marker.index,
        cql_type: cql_type.clone(),
    }
}

/// Where names are looked up, and what was already found out about terms.
pub(crate) struct Scope<'a> {
    pub(crate) schema: &'a Schema,
    pub(crate) keyspace: &'a str,
    /// The table whose `token` is meant, when one is.
    pub(crate) table: Option<&'a schema::Table>,
    /// Whether a call may be assigned to a type. Calls test their arguments against every signature, so without this
    /// memory the work would be exponential in their depth.
    assignments: RefCell<HashMap<(*const Term, CqlType), Assignment>>,
}

impl<'a> Scope<'a> {
    pub(crate) fn new(schema: &'a Schema, keyspace: &'a str) -> Self {
        Self {
            schema,
            keyspace,
            table: None,
            assignments: RefCell::default(),
        }
    }

    pub(crate) fn of_table(schema: &'a Schema, table: &'a schema::Table) -> Self {
        Self {
            table: Some(table),
            ..Self::new(schema, &table.keyspace)
        }
    }

    /// The type that a name means here.
    pub(crate) fn resolve_type(&self, name: &TypeName) -> Result<CqlType, CompileError> {
        type_name::resolve(name, self.schema, self.keyspace)
    }

    fn remembered(&self, term: &Term, receiver: &CqlType, find: impl FnOnce() -> Assignment) -> Assignment {
        let key = (std::ptr::from_ref(term), receiver.clone());
        if let Some(&known) = self.assignments.borrow().get(&key) {
            return known;
        }
        let found = find();
        self.assignments.borrow_mut().insert(key, found);
        found
    }

    /// Whether a term may be given to a receiver of that type.
    pub(crate) fn test(&self, term: &Term, receiver: &CqlType) -> Assignment {
        stdx::preempt::point();
        let inner = receiver.unfrozen();
        match term {
            Term::Literal(literal) => literal::test_constant(literal, inner),
            Term::BindMarker(_) => Assignment::Weak,
            Term::List(elements) => match inner {
                CqlType::List(element) => self.test_all(elements, element),
                CqlType::Vector(element, dimension) if *dimension as usize == elements.len() => {
                    self.test_all(elements, element)
                }
                _ => Assignment::Not,
            },
            Term::Set(elements) => match inner {
                CqlType::Set(element) => self.test_all(elements, element),
                CqlType::Map(..) if elements.is_empty() => Assignment::Weak,
                _ => Assignment::Not,
            },
            Term::Map(pairs) => match inner {
                CqlType::Map(key, value) => pairs
                    .iter()
                    .map(|(k, v)| self.test(k, key).and(self.test(v, value)))
                    .fold(Assignment::Exact, Assignment::and),
                _ => Assignment::Not,
            },
            Term::UserType(fields) => match inner {
                CqlType::Udt(udt) => Assignment::weak_if(fields.iter().all(|(name, value)| {
                    udt.fields
                        .iter()
                        .any(|(field, field_type)| field == name && self.test(value, field_type) != Assignment::Not)
                })),
                _ => Assignment::Not,
            },
            Term::Tuple(elements) => match inner {
                CqlType::Tuple(types) => Assignment::weak_if(
                    elements.len() <= types.len()
                        && elements
                            .iter()
                            .zip(types.iter())
                            .all(|(e, t)| self.test(e, t) != Assignment::Not),
                ),
                _ if elements.len() == 1 => self.test(&elements[0], receiver),
                _ => Assignment::Not,
            },
            Term::TypeCast { type_name, .. } => match self.resolve_type(type_name) {
                Ok(cast) => function::test_type(&cast, receiver),
                Err(_) => Assignment::Not,
            },
            Term::FunctionCall(_) | Term::Arithmetic { .. } | Term::Negation(_) => {
                self.remembered(term, receiver, || self.test_call(term, receiver))
            }
        }
    }

    fn test_all(&self, elements: &[Term], element: &CqlType) -> Assignment {
        if elements.is_empty() {
            return Assignment::Weak;
        }
        elements
            .iter()
            .map(|e| self.test(e, element))
            .fold(Assignment::Exact, Assignment::and)
    }

    /// A call that cannot be resolved is let through: compiling it gives the better error.
    fn test_call(&self, term: &Term, receiver: &CqlType) -> Assignment {
        match self.resolve_call(term, receiver) {
            Ok(found) if found.is_generic => Assignment::Weak,
            Ok(found) if found.returns.unfrozen() == receiver.unfrozen() => Assignment::Exact,
            Ok(found) => Assignment::weak_if(function::is_value_compatible(receiver, &found.returns)),
            Err(_) => Assignment::Weak,
        }
    }

    fn resolve_call(&self, term: &Term, receiver: &CqlType) -> Result<Resolved, CompileError> {
        let wrap = |term| TermArgument { scope: self, term };
        match term {
            Term::FunctionCall(call) => {
                let arguments: Vec<_> = call.arguments.iter().map(wrap).collect();
                let arguments: Vec<&dyn Argument> = arguments.iter().map(|a| a as &dyn Argument).collect();
                function_call::resolve(&call.name, &arguments, Some(receiver), self)?.ok_or_else(|| {
                    CompileError::invalid(format!("Unknown function {} called", function_name(&call.name)))
                })
            }
            Term::Arithmetic { operator, left, right } => {
                let (left, right) = (wrap(left), wrap(right));
                Ok(function::resolve_arithmetic(
                    arithmetic(*operator),
                    [&left, &right],
                    Some(receiver),
                )?)
            }
            Term::Negation(term) => Ok(function::resolve_negation(&wrap(term), Some(receiver))?),
            _ => Err(CompileError::Internal("only calls are resolved".to_owned())),
        }
    }
}

/// A term in the place of a function's argument.
struct TermArgument<'a> {
    scope: &'a Scope<'a>,
    term: &'a Term,
}

impl Argument for TermArgument<'_> {
    fn test(&self, receiver: &CqlType) -> Assignment {
        self.scope.test(self.term, receiver)
    }

    fn text(&self) -> String {
        term_text(self.term)
    }

    fn has_marker(&self) -> bool {
        has_marker(self.term)
    }

    fn known_type(&self) -> Option<CqlType> {
        known_type(self.scope, self.term)
    }

    fn elements(&self) -> Option<usize> {
        match self.term {
            Term::List(elements) => Some(elements.len()),
            _ => None,
        }
    }
}

/// The type of a term that has one of its own.
pub(crate) fn known_type(scope: &Scope<'_>, term: &Term) -> Option<CqlType> {
    match term {
        Term::TypeCast { type_name, .. } => scope.resolve_type(type_name).ok(),
        Term::Literal(literal) => literal::preferred_type(literal),
        Term::List(elements) => {
            let element = known_type(scope, elements.first()?)?;
            Some(CqlType::List(std::sync::Arc::new(element.frozen())))
        }
        Term::Set(elements) => {
            let element = known_type(scope, elements.first()?)?;
            Some(CqlType::Set(std::sync::Arc::new(element.frozen())))
        }
        Term::Map(pairs) => {
            let (key, value) = pairs.first()?;
            let (key, value) = (known_type(scope, key)?, known_type(scope, value)?);
            Some(CqlType::Map(
                std::sync::Arc::new(key.frozen()),
                std::sync::Arc::new(value.frozen()),
            ))
        }
        Term::Tuple(elements) if elements.len() == 1 => known_type(scope, &elements[0]),
        Term::Tuple(elements) => {
            let elements: Option<Vec<_>> = elements.iter().map(|e| Some(known_type(scope, e)?.frozen())).collect();
            Some(CqlType::Tuple(elements?.into()))
        }
        Term::FunctionCall(call) => {
            let FunctionCall { name, arguments } = &**call;
            let arguments: Vec<_> = arguments.iter().map(|term| TermArgument { scope, term }).collect();
            let arguments: Vec<&dyn Argument> = arguments.iter().map(|a| a as &dyn Argument).collect();
            Some(function_call::resolve(name, &arguments, None, scope).ok()??.returns)
        }
        Term::BindMarker(_) | Term::UserType(_) | Term::Arithmetic { .. } | Term::Negation(_) => None,
    }
}

pub(crate) fn has_marker(term: &Term) -> bool {
    match term {
        Term::BindMarker(_) => true,
        Term::Literal(_) => false,
        Term::List(terms) | Term::Set(terms) | Term::Tuple(terms) => terms.iter().any(has_marker),
        Term::Map(pairs) => pairs.iter().any(|(key, value)| has_marker(key) || has_marker(value)),
        Term::UserType(fields) => fields.iter().any(|(_, value)| has_marker(value)),
        Term::FunctionCall(call) => call.arguments.iter().any(has_marker),
        Term::TypeCast { term, .. } | Term::Negation(term) => has_marker(term),
        Term::Arithmetic { left, right, .. } => has_marker(left) || has_marker(right),
    }
}

/// Compiles terms of one statement.
pub(crate) struct TermCompiler<'a, 'm> {
    pub(crate) scope: &'a Scope<'a>,
    pub(crate) markers: &'m mut Markers,
}

fn refuse<T>(text: String) -> Result<T, CompileError> {
    Err(CompileError::Invalid(text))
}

impl TermCompiler<'_, '_> {
    pub(crate) fn compile(&mut self, term: &Term, receiver: &Receiver) -> Result<Operand, CompileError> {
        stdx::preempt::point();
        match term {
            Term::Literal(literal) => constant(literal, &receiver.name, &receiver.cql_type),
            Term::BindMarker(marker) => {
                let Receiver { name, cql_type } = receiver;
                Ok(marker_operand(marker, name, cql_type, self.markers))
            }
            Term::List(elements) => self.list(elements, receiver),
            Term::Set(elements) => self.set(elements, receiver),
            Term::Map(pairs) => self.map(pairs, receiver),
            Term::UserType(fields) => self.user_type(fields, receiver),
            Term::Tuple(elements) => self.tuple(elements, receiver),
            Term::TypeCast { type_name, term: inner } => self.type_cast(type_name, inner, term, receiver),
            Term::FunctionCall(call) => self.call(&call.arguments, term, receiver),
            Term::Arithmetic { left, right, .. } => self.call([&**left, &**right], term, receiver),
            Term::Negation(inner) => self.call([&**inner], term, receiver),
        }
    }

    fn list(&mut self, elements: &[Term], receiver: &Receiver) -> Result<Operand, CompileError> {
        let (what, element) = match receiver.cql_type.unfrozen() {
            CqlType::List(element) => ("list", element),
            CqlType::Vector(element, dimension) if *dimension as usize != elements.len() => {
                return refuse(format!(
                    "Invalid vector literal for {} of type {}; expected {dimension} elements, but given {}",
                    receiver.name,
                    receiver.cql_type,
                    elements.len()
                ));
            }
            CqlType::Vector(element, _) => ("vector", element),
            _ => return refuse(not_a_list(&receiver.cql_type)),
        };
        let operands = self.elements(what, elements, element, receiver)?;
        let operation = match what {
            "list" => Operation::List,
            _ => Operation::Vector {
                is_fixed: element.fixed_len().is_some(),
            },
        };
        Ok(Operand::computed(operation, operands)?)
    }

    fn elements(
        &mut self,
        what: &str,
        elements: &[Term],
        element: &CqlType,
        receiver: &Receiver,
    ) -> Result<Vec<Operand>, CompileError> {
        let element = receiver.part("value", element);
        let compile = |term: &Term| {
            check_list_receiver(term, &element.cql_type)?;
            if self.scope.test(term, &element.cql_type) == Assignment::Not {
                let (term, name, of) = (term_text(term), &receiver.name, &element.cql_type);
                return refuse(format!(
                    "Invalid {what} literal for {name}: value {term} is not of type {of}"
                ));
            }
            self.compile(term, &element)
        };
        stdx::preempt::try_collect(elements.iter().map(compile))
    }

    fn set(&mut self, elements: &[Term], receiver: &Receiver) -> Result<Operand, CompileError> {
        match receiver.cql_type.unfrozen() {
            CqlType::Set(element) => {
                let operands = self.elements("set", elements, element, receiver)?;
                Ok(Operand::computed(Operation::Set(element.comparator()), operands)?)
            }
            CqlType::Map(key, _) if elements.is_empty() => {
                Ok(Operand::computed(Operation::Map(key.comparator()), Vec::new())?)
            }
            _ => refuse(format!(
                "Invalid set literal for {} of type {}",
                receiver.name, receiver.cql_type
            )),
        }
    }

    fn map(&mut self, pairs: &[(Term, Term)], receiver: &Receiver) -> Result<Operand, CompileError> {
        let CqlType::Map(key, value) = receiver.cql_type.unfrozen() else {
            return refuse(format!(
                "Invalid map literal for {} of type {}",
                receiver.name, receiver.cql_type
            ));
        };
        let comparator = key.comparator();
        let (key, value) = (receiver.part("key", key), receiver.part("value", value));
        let mut operands = Vec::with_capacity(pairs.len() * 2);
        for (k, v) in pairs {
            for (what, term, part) in [("key", k, &key), ("value", v, &value)] {
                check_list_receiver(term, &part.cql_type)?;
                if self.scope.test(term, &part.cql_type) == Assignment::Not {
                    return refuse(format!(
                        "Invalid map literal for {}: {what} {} is not of type {}",
                        receiver.name,
                        term_text(term),
                        part.cql_type
                    ));
                }
            }
            operands.push(self.compile(k, &key)?);
            operands.push(self.compile(v, &value)?);
        }
        Ok(Operand::computed(Operation::Map(comparator), operands)?)
    }

    fn user_type(&mut self, fields: &[(String, Term)], receiver: &Receiver) -> Result<Operand, CompileError> {
        let CqlType::Udt(udt) = receiver.cql_type.unfrozen() else {
            return refuse(format!(
                "Invalid user type literal for {} of type {}",
                receiver.name, receiver.cql_type
            ));
        };
        if let Some((unknown, _)) = fields
            .iter()
            .find(|(name, _)| udt.fields.iter().all(|(f, _)| f != name))
        {
            return refuse(format!(
                "Unknown field '{unknown}' in value of user defined type {}",
                udt.name
            ));
        }
        let mut operands = Vec::with_capacity(udt.fields.len());
        for (name, field_type) in &udt.fields {
            // The last of several values for one field wins, as in a map.
            let Some((_, term)) = fields.iter().rev().find(|(field, _)| field == name) else {
                operands.push(Operand::Null);
                continue;
            };
            if self.scope.test(term, field_type) == Assignment::Not {
                let receiver = &receiver.name;
                return refuse(format!(
                    "Invalid user type literal for {receiver}: field {name} is not of type {field_type}"
                ));
            }
            let field = Receiver::new(format!("{}.{name}", receiver.name), field_type.clone());
            operands.push(self.compile(term, &field)?);
        }
        Ok(Operand::computed(Operation::UserType(udt.clone()), operands)?)
    }

    fn tuple(&mut self, elements: &[Term], receiver: &Receiver) -> Result<Operand, CompileError> {
        let CqlType::Tuple(types) = receiver.cql_type.unfrozen() else {
            return match elements {
                // Parentheses around a term.
                [only] => self.compile(only, receiver),
                _ => refuse(format!(
                    "Invalid tuple type literal for {} of type {}",
                    receiver.name, receiver.cql_type
                )),
            };
        };
        if elements.len() > types.len() {
            return refuse(format!(
                "Invalid tuple literal for {}: too many elements. Type {} expects {} but got {}",
                receiver.name,
                receiver.cql_type,
                types.len(),
                elements.len()
            ));
        }
        let mut operands = Vec::with_capacity(elements.len());
        for (index, (term, element)) in elements.iter().zip(types.iter()).enumerate() {
            check_list_receiver(term, element)?;
            if self.scope.test(term, element) == Assignment::Not {
                let receiver = &receiver.name;
                return refuse(format!(
                    "Invalid tuple literal for {receiver}: component {index} is not of type {element}"
                ));
            }
            let component = Receiver::new(format!("{}[{index}]", receiver.name), element.clone());
            operands.push(self.compile(term, &component)?);
        }
        Ok(Operand::computed(Operation::Tuple, operands)?)
    }

    fn type_cast(
        &mut self,
        type_name: &TypeName,
        inner: &Term,
        whole: &Term,
        receiver: &Receiver,
    ) -> Result<Operand, CompileError> {
        let cast = self.scope.resolve_type(type_name)?;
        if self.scope.test(inner, &cast) == Assignment::Not {
            return refuse(format!("Cannot cast value {} to type {cast}", term_text(inner)));
        }
        if function::test_type(&cast, &receiver.cql_type) == Assignment::Not {
            return refuse(format!(
                "Cannot assign value {} to {} of type {}",
                term_text(whole),
                receiver.name,
                receiver.cql_type
            ));
        }
        self.compile(inner, &Receiver::new(receiver.name.clone(), cast))
    }

    fn call<'t>(
        &mut self,
        arguments: impl IntoIterator<Item = &'t Term>,
        term: &Term,
        receiver: &Receiver,
    ) -> Result<Operand, CompileError> {
        let found = self.scope.resolve_call(term, &receiver.cql_type)?;
        if found.is_aggregate() {
            return refuse("Aggregation function are not supported in the where clause".to_owned());
        }
        if function::test_type(&found.returns, &receiver.cql_type) == Assignment::Not {
            let what = match term {
                Term::Arithmetic { .. } => "operation",
                Term::Negation(_) => "negation",
                _ => "function",
            };
            return refuse(format!(
                "Type error: cannot assign result of {what} {} (type {}) to {} (type {})",
                found.full_name(),
                found.returns,
                receiver.name,
                receiver.cql_type
            ));
        }
        let mut operands = Vec::new();
        for (index, (argument, argument_type)) in arguments.into_iter().zip(&found.arguments).enumerate() {
            let argument_receiver = Receiver::new(format!("arg{index}({})", found.full_name()), argument_type.clone());
            operands.push(self.compile(argument, &argument_receiver)?);
        }
        let site = self.markers.next_site();
        Ok(Operand::computed(found.into_operation(site)?, operands)?)
    }
}

fn not_a_list(cql_type: &CqlType) -> String {
    format!("Unexpected receiver type '{cql_type}'; only list and vector are expected")
}

/// Refuses a list where a value of another type is expected.
fn check_list_receiver(term: &Term, cql_type: &CqlType) -> Result<(), CompileError> {
    match (term, cql_type.unfrozen()) {
        (Term::List(_), inner) if !matches!(inner, CqlType::List(_) | CqlType::Vector(..)) => {
            refuse(not_a_list(cql_type))
        }
        _ => Ok(()),
    }
}

/// `'now'` for a timestamp is the moment in which the statement is executed.
fn current_timestamp() -> Result<Operand, CompileError> {
    let found = function::resolve("current_timestamp", &[], Some(&CqlType::Timestamp), None, Vec::new())?;
    let found = found.ok_or_else(|| CompileError::Internal("current_timestamp is not known".to_owned()))?;
    Ok(Operand::computed(found.into_operation(0)?, Vec::new())?)
}

/// The operand of a constant for a receiver of that name and type.
pub(crate) fn constant(literal: &Literal, receiver: &str, cql_type: &CqlType) -> Result<Operand, CompileError> {
    let is_now = literal.kind == LiteralKind::String && literal.text.eq_ignore_ascii_case("now");
    if is_now && *cql_type.unfrozen() == CqlType::Timestamp {
        return current_timestamp();
    }
    if literal.kind == LiteralKind::Null {
        if cql_type.is_counter() {
            return refuse("Invalid null value for counter increment/decrement".to_owned());
        }
        return Ok(Operand::Null);
    }
    literal::constant(literal, receiver, cql_type).map(|bytes| Operand::Constant(bytes.into()))
}
