//! What is done with serialised values to make one.

use std::borrow::Cow;
use std::sync::Arc;

use stdx::{preempt, vint};
use types::{Comparator, CqlType, TupleBuilder, UdtType, sorted};

use super::Scalar;
use super::mask::Mask;
use crate::bind::BindContext;
use crate::error::{FunctionFailure, PlanError};

/// Arguments of an operation; `None` is null.
pub type Arguments<'a, 'v> = &'a [Option<Cow<'v, [u8]>>];

/// What makes one value of several.
#[derive(Clone, Debug)]
pub enum Operation {
    /// A list of the arguments.
    List,
    /// A set of the arguments.
    Set(Comparator),
    /// A map; keys and values alternate.
    Map(Comparator),
    /// A tuple.
    Tuple,
    /// A user-defined type; one argument for each field.
    UserType(Arc<UdtType>),
    /// A vector.
    Vector {
        /// Whether its elements have a fixed length.
        is_fixed: bool,
    },
    /// A function.
    Call(Function),
}

impl Operation {
    /// Whether it calls a function that a user has defined.
    pub(crate) const fn is_of_user(&self) -> bool {
        matches!(
            self,
            Self::Call(Function {
                scalar: Scalar::User(_),
                ..
            })
        )
    }
}

/// One signature of a function of one row's values.
#[derive(Clone, Debug)]
pub struct Function {
    /// Without keyspace.
    pub(crate) name: String,
    pub(crate) arguments: Vec<CqlType>,
    pub(crate) returns: CqlType,
    pub(crate) scalar: Scalar,
}

impl Function {
    /// The failure of this function, with the signature that is reported to clients.
    #[cold]
    fn failed(&self, error: PlanError) -> PlanError {
        match error {
            PlanError::Function(message) => PlanError::UserFunction(Box::new(FunctionFailure {
                keyspace: super::NATIVE.to_owned(),
                function: self.name.clone(),
                argument_types: self.arguments.iter().map(ToString::to_string).collect(),
                message,
            })),
            other => other,
        }
    }
}

impl Operation {
    /// Whether it is the literal of a value rather than a call.
    pub(crate) const fn is_literal(&self) -> bool {
        !matches!(self, Self::Call(_))
    }

    /// Whether the same arguments always give the same.
    pub(crate) fn is_pure(&self) -> bool {
        match self {
            Self::Call(function) => function.scalar.is_pure(),
            _ => true,
        }
    }

    /// The mask that it is, and what it is called.
    pub(crate) fn as_mask(&self) -> Option<(&Mask, &str)> {
        match self {
            Self::Call(Function {
                name,
                scalar: Scalar::Mask(mask),
                ..
            }) => Some((mask, name)),
            _ => None,
        }
    }

    /// Whether an unset argument makes the whole unset.
    pub(crate) const fn passes_unset(&self) -> bool {
        matches!(self, Self::List | Self::Set(_) | Self::Map(_))
    }

    /// The error for an unset argument.
    pub(crate) fn unset_error(&self, index: usize) -> PlanError {
        PlanError::Invalid(match self {
            Self::UserType(udt) => {
                let field = udt.fields.get(index).map_or("", |(name, _)| name.as_str());
                format!(
                    "Invalid unset value for field '{field}' of user defined type {}",
                    udt.name
                )
            }
            Self::Vector { .. } => return no_null_inside("vectors"),
            Self::Call(Function { name, .. }) => format!("Invalid unset value for argument in call to function {name}"),
            _ => format!("Invalid unset value for tuple field number {index}"),
        })
    }

    /// The value; `None` is null.
    pub(crate) fn apply(
        &self,
        arguments: Arguments<'_, '_>,
        ctx: &BindContext<'_>,
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let mut out = Vec::new();
        match self {
            Self::List => {
                let elements = preempt::try_collect(elements(arguments, "collections"))?;
                out = sorted::list(&elements);
            }
            Self::Set(comparator) => {
                let elements = elements(arguments, "collections").map(|e| e.map(Cow::Borrowed));
                out = sorted::set(preempt::try_collect(elements)?, comparator);
            }
            Self::Map(comparator) => {
                let elements = preempt::try_collect(elements(arguments, "collections"))?;
                let pairs = elements.as_chunks::<2>().0.iter();
                let pairs = pairs.map(|[k, v]| (Cow::Borrowed(*k), Cow::Borrowed(*v)));
                out = sorted::map(preempt::collect(pairs), comparator);
            }
            Self::Tuple | Self::UserType(_) => {
                let mut builder = TupleBuilder::new(&mut out);
                arguments.iter().for_each(|element| builder.push(element.as_deref()));
            }
            Self::Vector { is_fixed } => {
                for element in elements(arguments, "vectors") {
                    preempt::point();
                    let element = element?;
                    if !is_fixed {
                        vint::put_unsigned(&mut out, element.len() as u64);
                    }
                    out.extend_from_slice(element);
                }
            }
            Self::Call(function) => {
                let made = function.scalar.apply(&function.name, arguments, ctx);
                return made.map_err(|error| function.failed(error));
            }
        }
        Ok(Some(out))
    }
}

fn elements<'a>(
    arguments: Arguments<'a, '_>,
    whole: &'static str,
) -> impl Iterator<Item = Result<&'a [u8], PlanError>> {
    arguments
        .iter()
        .map(move |argument| argument.as_deref().ok_or_else(|| no_null_inside(whole)))
}

fn no_null_inside(whole: &str) -> PlanError {
    PlanError::invalid(format!("null is not supported inside {whole}"))
}
