//! Functions and operations: which one a call means, and what it makes of its arguments.
//!
//! A call is resolved once, at compile time: every signature of the name is tested against the arguments and the
//! receiver, an exact match wins, a single weak match is taken, several are ambiguous. The result is an [`Operation`]
//! that knows the types it works on and turns serialised values into a serialised value.

mod aggregate;
mod arithmetic;
mod cast;
mod collection;
pub(crate) mod json;
mod json_read;
mod mask;
mod measure;
mod native;
mod number;
mod operation;
mod partial;
mod scalar;
mod time;
mod transcendental;
mod user;

use schema::Table;
use types::CqlType;

use crate::error::PlanError;

pub(crate) use aggregate::Accumulator;
pub use aggregate::Aggregate;
pub use arithmetic::ArithmeticOperator;
pub use cast::resolve as resolve_cast;
pub use json_read::decode_json_row;
pub use operation::{Function, Operation};
pub(crate) use scalar::Scalar;
pub use user::UserAggregation;

/// Whether a value may be given to a receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Assignment {
    /// It is of the receiver's type.
    Exact,
    /// It can be taken as one of the receiver's type.
    Weak,
    /// It cannot.
    Not,
}

impl Assignment {
    /// Weak when it can be taken, else not.
    pub const fn weak_if(is_assignable: bool) -> Self {
        if is_assignable { Self::Weak } else { Self::Not }
    }

    /// The weaker of the two.
    pub const fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Not, _) | (_, Self::Not) => Self::Not,
            (Self::Exact, Self::Exact) => Self::Exact,
            _ => Self::Weak,
        }
    }
}

/// Whether a value of one type may be given to a receiver of another.
pub fn test_type(from: &CqlType, receiver: &CqlType) -> Assignment {
    if from.unfrozen() == receiver.unfrozen() {
        return Assignment::Exact;
    }
    Assignment::weak_if(is_value_compatible(receiver, from))
}

/// Whether every serialised value of `from` is one of `receiver`.
pub fn is_value_compatible(receiver: &CqlType, from: &CqlType) -> bool {
    use CqlType as T;
    let (receiver, from) = (receiver.unfrozen(), from.unfrozen());
    if receiver == from {
        return true;
    }
    match (receiver, from) {
        (T::Blob, _)
        | (T::Text, T::Ascii)
        | (T::Uuid, T::TimeUuid)
        | (T::VarInt, T::TinyInt | T::SmallInt | T::Int | T::BigInt | T::Timestamp)
        | (T::BigInt | T::Time, T::BigInt | T::Timestamp)
        | (T::Timestamp, T::BigInt)
        | (T::Date, T::Int) => !matches!(
            (receiver, from),
            (T::VarInt, T::TinyInt | T::SmallInt) | (T::Time, T::Timestamp)
        ),
        (T::List(a), T::List(b)) | (T::Set(a), T::Set(b)) => is_value_compatible(a, b),
        (T::Map(ak, av), T::Map(bk, bv)) => ak.unfrozen() == bk.unfrozen() && is_value_compatible(av, bv),
        (T::Tuple(a), T::Tuple(b)) => {
            a.len() >= b.len() && a.iter().zip(b.iter()).all(|(a, b)| is_value_compatible(a, b))
        }
        _ => false,
    }
}

/// The expression that is given for an argument of a function.
pub trait Argument {
    /// Whether it may be given to an argument of that type.
    fn test(&self, receiver: &CqlType) -> Assignment;
    /// Its text in a message.
    fn text(&self) -> String;
    /// Whether a bind marker is in it.
    fn has_marker(&self) -> bool;
    /// Its type, if it has one by itself.
    fn known_type(&self) -> Option<CqlType>;
    /// How many elements a list of terms has.
    fn elements(&self) -> Option<usize> {
        None
    }
}

/// The keyspace of the functions that are not user-defined.
pub const NATIVE: &str = "system";

/// One signature of a function.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The keyspace: [`NATIVE`], or where the user-defined function is.
    pub keyspace: String,
    /// The name without keyspace, as it is written in messages.
    pub name: String,
    /// The types that it takes.
    pub arguments: Vec<CqlType>,
    /// The type that it gives.
    pub returns: CqlType,
    /// Whether the signature was made for the types of the arguments.
    pub is_generic: bool,
    pub(crate) what: What,
}

/// What a function does.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Scalar(Scalar),
    Aggregate(Aggregate),
}

impl Resolved {
    pub(crate) fn scalar(name: &str, arguments: Vec<CqlType>, returns: CqlType, scalar: Scalar) -> Self {
        Self {
            keyspace: NATIVE.to_owned(),
            name: name.to_owned(),
            arguments,
            returns,
            is_generic: false,
            what: What::Scalar(scalar),
        }
    }

    pub(crate) fn generic(self) -> Self {
        Self {
            is_generic: true,
            ..self
        }
    }

    /// Whether it is a function of a group of rows.
    pub fn is_aggregate(&self) -> bool {
        self.aggregate().is_some()
    }

    /// What it finds out, when it is a function of a group of rows.
    pub fn aggregate(&self) -> Option<&Aggregate> {
        match &self.what {
            What::Aggregate(aggregate) => Some(aggregate),
            What::Scalar(_) => None,
        }
    }

    /// The name with its keyspace.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.keyspace, self.name)
    }

    /// What it does, called at that place of the statement.
    ///
    /// # Errors
    /// When it is an aggregate.
    pub fn into_operation(self, site: u64) -> Result<Operation, PlanError> {
        match self.what {
            What::Scalar(scalar) => Ok(Operation::Call(Function {
                name: self.name,
                arguments: self.arguments,
                returns: self.returns,
                scalar: scalar.at_site(site),
            })),
            What::Aggregate(_) => Err(PlanError::Internal(
                "an aggregate is no operation on one row".to_owned(),
            )),
        }
    }

    /// Whether what it gives never falls while its first argument grows and the others stay.
    pub const fn is_monotonic(&self) -> bool {
        matches!(self.what, What::Scalar(Scalar::Floor(_) | Scalar::Convert { .. }))
    }

    /// The signature as Cassandra lists it; names that are no identifiers are quoted.
    pub fn describe(&self) -> String {
        let arguments: Vec<String> = self.arguments.iter().map(ToString::to_string).collect();
        let name = types::quote_identifier(&self.name);
        format!(
            "{}.{name} : ({}) -> {}",
            self.keyspace,
            arguments.join(", "),
            self.returns
        )
    }
}

fn describe_all(candidates: &[&Resolved]) -> String {
    candidates.iter().map(|c| c.describe()).collect::<Vec<_>>().join(", ")
}

fn matches_arguments(candidate: &Resolved, arguments: &[&dyn Argument]) -> Assignment {
    if candidate.arguments.len() != arguments.len() {
        return Assignment::Not;
    }
    let mut worst = Assignment::Exact;
    for (argument, cql_type) in arguments.iter().zip(&candidate.arguments) {
        worst = worst.and(argument.test(cql_type));
        if worst == Assignment::Not {
            break;
        }
    }
    worst
}

/// The function that a call means; `None` when no function has the name. `token_of` is the table whose partition key
/// `token` takes, `user` are the user-defined functions that the name may mean too, before all others.
///
/// # Errors
/// When no signature of the name fits the arguments and the receiver, or several do.
pub fn resolve(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    token_of: Option<&Table>,
    user: Vec<Resolved>,
) -> Result<Option<Resolved>, PlanError> {
    let lower = name.to_lowercase();
    let native = match native::candidates(&lower, arguments, receiver, token_of) {
        // A user-defined function of that name may be meant.
        Err(_) if !user.is_empty() => None,
        native => native?,
    };
    let mut candidates = user;
    candidates.extend(native.unwrap_or_default());
    if candidates.is_empty() {
        Ok(None)
    } else {
        choose(&lower, candidates, arguments, receiver, None).map(Some)
    }
}

/// The one of several user-defined functions that a call means. `name` is how errors name them.
///
/// # Errors
/// When no signature fits the arguments and the receiver, or several do.
pub fn resolve_user(
    name: &str,
    candidates: Vec<Resolved>,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
) -> Result<Resolved, PlanError> {
    choose(name, candidates, arguments, receiver, None)
}

/// The signature among the candidates that the arguments and the receiver fit.
pub(crate) fn choose(
    name: &str,
    candidates: Vec<Resolved>,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    operator: Option<ArithmeticOperator>,
) -> Result<Resolved, PlanError> {
    if let [_] = candidates[..] {
        let only = candidates.into_iter().next().expect("there is one");
        return check_only(only, arguments);
    }
    let mut compatible = Vec::new();
    for candidate in &candidates {
        if receiver.is_some_and(|receiver| test_type(&candidate.returns, receiver) == Assignment::Not) {
            continue;
        }
        match matches_arguments(candidate, arguments) {
            Assignment::Exact => return Ok(candidate.clone()),
            Assignment::Weak => compatible.push(candidate),
            Assignment::Not => {}
        }
    }
    match (compatible.as_slice(), operator) {
        ([only], _) => Ok((*only).clone()),
        ([], Some(operator)) => Err(PlanError::Invalid(format!(
            "the '{}' operation is not supported between {} and {}",
            operator.sign(),
            arguments[0].text(),
            arguments[1].text()
        ))),
        ([], None) => Err(PlanError::Invalid(format!(
            "Invalid call to function {name}, none of its type signatures match (known type signatures: {})",
            describe_all(&candidates.iter().collect::<Vec<_>>())
        ))),
        (several, Some(operator)) => {
            let has_marker = arguments.iter().any(|argument| argument.has_marker());
            let of_receiver = several.iter().find(|candidate| {
                receiver.is_some_and(|receiver| candidate.arguments.iter().all(|argument| argument == receiver))
            });
            match of_receiver.filter(|_| !has_marker) {
                Some(found) => Ok((**found).clone()),
                None => Err(PlanError::Invalid(format!(
                    "Ambiguous '{}' operation with args {} and {}: use type hint to disambiguate, example '(int) ?'",
                    operator.sign(),
                    arguments[0].text(),
                    arguments[1].text()
                ))),
            }
        }
        (_, None) if name == NEGATION => Err(PlanError::invalid("Ambiguous negation: use type casts to disambiguate")),
        (several, None) => Err(PlanError::Invalid(format!(
            "Ambiguous call to function {name} (can be matched by following signatures: {}): use type casts to \
             disambiguate",
            describe_all(several)
        ))),
    }
}

/// A name with one signature says what is wrong with the arguments.
fn check_only(only: Resolved, arguments: &[&dyn Argument]) -> Result<Resolved, PlanError> {
    if only.arguments.len() != arguments.len() {
        return Err(PlanError::Invalid(format!(
            "Invalid number of arguments in call to function {}: {} required but {} provided",
            only.full_name(),
            only.arguments.len(),
            arguments.len()
        )));
    }
    for (index, (argument, cql_type)) in arguments.iter().zip(&only.arguments).enumerate() {
        if argument.test(cql_type) == Assignment::Not {
            return Err(PlanError::Invalid(format!(
                "Type error: {} cannot be passed as argument {index} of function {} of type {cql_type}",
                argument.text(),
                only.full_name()
            )));
        }
    }
    Ok(only)
}

/// A value of a known type, as an argument.
pub(crate) struct Typed<'t>(pub(crate) &'t CqlType);

impl Argument for Typed<'_> {
    fn test(&self, receiver: &CqlType) -> Assignment {
        test_type(self.0, receiver)
    }

    fn text(&self) -> String {
        self.0.to_string()
    }

    fn has_marker(&self) -> bool {
        false
    }

    fn known_type(&self) -> Option<CqlType> {
        Some(self.0.clone())
    }
}

impl Function {
    /// The function of that name and signature, called at that place of a statement on a table; None when there is
    /// none.
    pub(crate) fn find(name: &str, arguments: &[CqlType], returns: &CqlType, site: u64, table: &Table) -> Option<Self> {
        let typed: Vec<_> = arguments.iter().map(Typed).collect();
        let typed: Vec<&dyn Argument> = typed.iter().map(|argument| argument as &dyn Argument).collect();
        let of_operator = ArithmeticOperator::ALL
            .into_iter()
            .find(|o| arithmetic::operator_name(*o) == name);
        let candidates = match of_operator {
            Some(operator) => arithmetic::candidates(operator),
            None if name == NEGATION => arithmetic::negations(),
            None => native::candidates(name, &typed, Some(returns), Some(table)).ok()??,
        };
        let is_meant = |candidate: &Resolved| {
            let types = candidate.arguments.iter().map(CqlType::canonical);
            types.eq(arguments.iter().map(CqlType::canonical)) && candidate.returns.canonical() == returns.canonical()
        };
        let found = candidates.into_iter().find(is_meant)?;
        match found.into_operation(site) {
            Ok(Operation::Call(function)) => Some(function),
            _ => None,
        }
    }
}

/// Whether numbers are of that type: what can be added.
pub fn is_number(cql_type: &CqlType) -> bool {
    arithmetic::numeric_types().contains(cql_type)
}

/// The name under which Cassandra's messages know negation.
pub(crate) const NEGATION: &str = "_negate";

/// The arithmetic that an operator means between two arguments.
///
/// # Errors
/// When the operator does not take these arguments, or it is not clear which of its signatures is meant.
pub fn resolve_arithmetic(
    operator: ArithmeticOperator,
    arguments: [&dyn Argument; 2],
    receiver: Option<&CqlType>,
) -> Result<Resolved, PlanError> {
    choose(
        "",
        arithmetic::candidates(operator),
        &arguments,
        receiver,
        Some(operator),
    )
}

/// The negation of an argument.
///
/// # Errors
/// When the argument is no number, or it is not clear of which type.
pub fn resolve_negation(argument: &dyn Argument, receiver: Option<&CqlType>) -> Result<Resolved, PlanError> {
    choose(NEGATION, arithmetic::negations(), &[argument], receiver, None).map_err(|error| match error {
        PlanError::Invalid(text) => {
            PlanError::Invalid(text.replace("call to function _negate", "call to function system._negate"))
        }
        other => other,
    })
}
