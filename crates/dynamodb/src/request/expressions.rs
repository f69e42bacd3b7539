//! The expressions of a request, their placeholders, and the legacy parameters in place of them.

use std::collections::BTreeMap;

use super::constraints::DETECTED;
use super::json::{Attributes, Map, Text};
use crate::error::Error;
use crate::expression::{
    Bindings, Condition, Expression, ExpressionKind, Placeholders, Projection, Tree, Update, parse_condition,
    parse_projection, parse_update,
};
use crate::legacy::{self, Legacy};
use crate::value::Item;

/// ExpressionAttributeNames and ExpressionAttributeValues of a request.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Substitutions {
    /// Names of attributes by placeholder (`#n`).
    pub names: Option<BTreeMap<String, String>>,
    /// Values by placeholder (`:v`).
    pub values: Option<Item>,
}

impl Substitutions {
    fn placeholders(&self) -> Result<Placeholders<'_>, Error> {
        Placeholders::new(self.names.as_ref(), self.values.as_ref())
    }
}

/// An expression of a request, or a legacy parameter that was made into one.
#[derive(Clone, PartialEq, Debug)]
pub struct Clause<T> {
    /// The expression.
    pub expression: Expression<T>,
    kind: ExpressionKind,
    /// The values of a legacy parameter, which has its own.
    legacy_values: Option<Item>,
}

impl<T: Tree> Clause<T> {
    /// Resolves the placeholders of the expression, for evaluation.
    ///
    /// # Errors
    /// A ValidationException for a placeholder that is not defined or a value of a wrong type; none for a clause of a
    /// parsed request, whose expressions are checked.
    pub fn bind<'r>(&'r self, substitutions: &'r Substitutions) -> Result<Bindings<'r>, Error> {
        let mut placeholders = if self.expression.symbols.names_are_literal {
            Placeholders::new(None, self.legacy_values.as_ref())?
        } else {
            substitutions.placeholders()?
        };
        placeholders.bind(self.kind, &self.expression)
    }

    /// All names in the expression: those of the attributes that it reads or writes, and of elements of maps. Without
    /// any other attribute an item gives the same result.
    pub fn names<'r>(&'r self, substitutions: &'r Substitutions) -> impl Iterator<Item = &'r str> {
        let symbols = &self.expression.symbols;
        let placeholders = substitutions.names.as_ref().filter(|_| !symbols.names_are_literal);
        symbols.names.iter().map(move |name| {
            let given = placeholders.and_then(|placeholders| placeholders.get(name));
            given.unwrap_or(name).as_str()
        })
    }

    /// Checks that the clause can be bound, if it brings its own names and values.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.expression.symbols.names_are_literal {
            self.bind(&Substitutions::default()).map(drop)
        } else {
            Ok(())
        }
    }

    /// The clause of a legacy parameter.
    pub(crate) fn legacy(kind: ExpressionKind, legacy: Legacy<T>) -> Self {
        Self {
            expression: legacy.expression,
            kind,
            legacy_values: legacy.values,
        }
    }
}

/// An error, and whether the operations that write one item place "1 validation error detected: " before it.
pub(super) struct Refusal {
    error: Error,
    is_counted: bool,
}

impl Refusal {
    pub(super) fn counted(error: Error) -> Self {
        Self {
            error,
            is_counted: true,
        }
    }

    /// The error of an operation.
    pub(super) fn of(self, style: Style) -> Error {
        match (style, self.is_counted) {
            (Style::Counted, true) if !self.error.message.starts_with(DETECTED) => self.error.prefixed(DETECTED),
            _ => self.error,
        }
    }
}

/// How an operation reports errors of values and expressions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// With "1 validation error detected: ", as PutItem, UpdateItem and DeleteItem do since 2026.
    Counted,
    /// Without.
    Plain,
}

impl Style {
    /// An error with the prefix of the style.
    pub(super) fn error(self, error: Error) -> Error {
        Refusal::counted(error).of(self)
    }

    /// A ValidationException with the prefix of the style.
    pub(super) fn validation(self, text: impl Into<String>) -> Error {
        self.error(Error::validation(text))
    }
}

/// The names of the parameters that a request has.
#[derive(Default)]
pub(super) struct Parameters {
    legacy: Vec<&'static str>,
    expressions: Vec<&'static str>,
}

impl Parameters {
    /// Notes a legacy parameter if it is there.
    pub(super) fn legacy<T>(mut self, name: &'static str, parameter: Option<&T>) -> Self {
        if parameter.is_some() {
            self.legacy.push(name);
        }
        self
    }

    /// Notes an expression if it is there.
    pub(super) fn expression(mut self, name: &'static str, parameter: Option<&Text>) -> Self {
        if parameter.is_some() {
            self.expressions.push(name);
        }
        self
    }

    /// Checks that the request has one kind of parameters, and makes its substitutions. `with_values` are the
    /// expressions that can have values, which the text for values without them lists.
    pub(super) fn substitutions(
        self,
        names: Option<Map<Text>>,
        values: Option<Attributes>,
        with_values: &[&str],
    ) -> Result<Substitutions, Refusal> {
        let counted = |text: String| Err(Refusal::counted(Error::validation(text)));
        if !self.legacy.is_empty() && !self.expressions.is_empty() {
            return counted(format!(
                "Can not use both expression and non-expression parameters in the same request: Non-expression \
                 parameters: {{{}}} Expression parameters: {{{}}}",
                self.legacy.join(", "),
                self.expressions.join(", ")
            ));
        }
        if self.expressions.is_empty() && names.is_some() {
            return counted("ExpressionAttributeNames can only be specified when using expressions".to_owned());
        }
        if self.expressions.is_empty() && values.is_some() {
            let null: Vec<String> = with_values.iter().map(|name| format!("{name} is null")).collect();
            let separator = if null.is_empty() { "" } else { ": " };
            return counted(format!(
                "ExpressionAttributeValues can only be specified when using expressions{separator}{}",
                null.join(" and ")
            ));
        }
        let names = names.map(|Map(names)| {
            let name = |(key, Text(name)): (String, Text)| {
                stdx::preempt::point();
                (key, name)
            };
            names.into_iter().map(name).collect()
        });
        let problem = values.as_ref().and_then(|values| values.problem.clone());
        let substitutions = Substitutions {
            names,
            values: values.map(|values| values.item),
        };
        if let Err(error) = substitutions.placeholders() {
            return Err(Refusal {
                is_counted: !is_wrong_sign(&error),
                error,
            });
        }
        match problem {
            Some(problem) => Err(Refusal {
                is_counted: problem.is_counted,
                error: problem.in_expression_values(),
            }),
            None => Ok(substitutions),
        }
    }
}

/// Whether a key of the placeholders begins with another sign: that is never counted.
fn is_wrong_sign(error: &Error) -> bool {
    let Some((parameter, key)) = error.message.split_once(" contains invalid key: Syntax error; key: \"") else {
        return false;
    };
    let sign = if parameter == "ExpressionAttributeNames" {
        '#'
    } else {
        ':'
    };
    !key.starts_with(sign)
}

/// Expressions of a request that are being read: it notes which placeholders they use.
pub(super) struct Reader<'r> {
    substitutions: &'r Substitutions,
}

impl<'r> Reader<'r> {
    pub(super) fn new(substitutions: &'r Substitutions) -> Self {
        Self { substitutions }
    }

    /// Binds all expressions of a request at once, and refuses placeholders that none uses.
    pub(super) fn check(&self, bind: impl FnOnce(&mut Placeholders<'r>) -> Result<(), Error>) -> Result<(), Error> {
        let mut placeholders = self.substitutions.placeholders()?;
        bind(&mut placeholders)?;
        placeholders.finish()
    }
}

/// Binds an expression if the request has it and it is no legacy parameter.
pub(super) fn bind<'r, T: Tree>(
    placeholders: &mut Placeholders<'r>,
    clause: Option<&'r Clause<T>>,
) -> Result<(), Error> {
    match clause {
        Some(clause) if !clause.expression.symbols.names_are_literal => {
            placeholders.bind(clause.kind, &clause.expression).map(drop)
        }
        _ => Ok(()),
    }
}

/// Parses a condition.
pub(super) fn condition(kind: ExpressionKind, text: Option<&Text>) -> Result<Option<Clause<Condition>>, Error> {
    let Some(Text(text)) = text else {
        return Ok(None);
    };
    let expression = parse_condition(kind, text)?;
    Ok(Some(Clause {
        expression,
        kind,
        legacy_values: None,
    }))
}

/// Parses a projection.
pub(super) fn projection(text: Option<&Text>) -> Result<Option<Clause<Projection>>, Error> {
    let Some(Text(text)) = text else {
        return Ok(None);
    };
    let expression = parse_projection(text)?;
    Ok(Some(Clause {
        expression,
        kind: ExpressionKind::Projection,
        legacy_values: None,
    }))
}

/// Parses an update.
pub(super) fn update(text: Option<&Text>) -> Result<Option<Clause<Update>>, Error> {
    let Some(Text(text)) = text else {
        return Ok(None);
    };
    let expression = parse_update(text)?;
    Ok(Some(Clause {
        expression,
        kind: ExpressionKind::Update,
        legacy_values: None,
    }))
}

/// The projection of AttributesToGet.
pub(super) fn attributes_to_get(names: &[String]) -> Result<Clause<Projection>, Error> {
    let legacy = legacy::attributes_to_get(names)?;
    Ok(Clause::legacy(ExpressionKind::Projection, legacy))
}
