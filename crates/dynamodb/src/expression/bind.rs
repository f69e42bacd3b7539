//! What one request gives for the placeholders of its expressions.

use std::collections::BTreeMap;

use stdx::preempt;

use super::{Expression, ExpressionKind, Symbols, ValueId};
use crate::Error;
use crate::error::clip;
use crate::path::NameId;
use crate::value::json::Problem;
use crate::value::{AttributeValue, Item};

/// Bytes that the name of an attribute may have.
const NAME_BYTES_MAX: usize = 65535;

/// What an undefined placeholder is bound to; checks refuse it.
static NULL: AttributeValue = AttributeValue::Null;

/// `ExpressionAttributeNames` and `ExpressionAttributeValues` of a request, and which of them its expressions use.
pub struct Placeholders<'r> {
    names: Option<&'r BTreeMap<String, String>>,
    values: Option<&'r Item>,
    used_names: Vec<&'r str>,
    used_values: Vec<&'r str>,
}

/// The names and values of one expression, by the numbers of its tree.
#[derive(Clone, Debug)]
pub struct Bindings<'r> {
    names: Vec<&'r str>,
    values: Vec<&'r AttributeValue>,
}

impl<'r> Bindings<'r> {
    /// The name of an attribute.
    pub fn name(&self, id: NameId) -> &'r str {
        self.names.get(usize::from(id.0)).copied().unwrap_or_default()
    }

    /// A value.
    pub fn value(&self, id: ValueId) -> &'r AttributeValue {
        self.values.get(usize::from(id.0)).copied().unwrap_or(&NULL)
    }
}

/// What a tree is checked against: the bindings, and symbols that the request does not define.
pub struct Scope<'r> {
    pub(super) symbols: &'r Symbols,
    pub(super) bindings: Bindings<'r>,
    missing_names: Vec<NameId>,
    missing_values: Vec<ValueId>,
}

impl Scope<'_> {
    /// Whether every symbol is defined.
    pub(super) fn is_complete(&self) -> bool {
        self.missing_names.is_empty() && self.missing_values.is_empty()
    }

    /// Fails if the request does not define the name.
    pub(super) fn require_name(&self, id: NameId) -> Result<(), Error> {
        if !self.missing_names.contains(&id) {
            return Ok(());
        }
        let name = self.symbols.names.get(usize::from(id.0)).map_or("", String::as_str);
        let text = "An expression attribute name used in the document path is not defined; attribute name: ";
        Err(Error::validation([text, name].concat()))
    }

    /// Fails if the request does not define the value.
    pub(super) fn require_value(&self, id: ValueId) -> Result<(), Error> {
        if !self.missing_values.contains(&id) {
            return Ok(());
        }
        let value = self.symbols.values.get(usize::from(id.0)).map_or("", String::as_str);
        let text = "An expression attribute value used in expression is not defined; attribute value: ";
        Err(Error::validation([text, value].concat()))
    }
}

/// The trees of expressions, with the checks that need names and values.
pub trait Tree {
    /// Checks that symbols are defined, types of values, and paths against each other.
    ///
    /// # Errors
    /// A ValidationException without the name of the parameter.
    fn check(&self, scope: &Scope<'_>) -> Result<(), Error>;
}

impl<'r> Placeholders<'r> {
    /// The maps of a request, as they are in it.
    ///
    /// # Errors
    /// A ValidationException if a map is empty, or has a key that is no placeholder.
    pub fn new(names: Option<&'r BTreeMap<String, String>>, values: Option<&'r Item>) -> Result<Self, Error> {
        if let Some(names) = names {
            check_names(names)?;
        }
        if let Some(values) = values {
            check_values(values)?;
        }
        Ok(Self {
            names,
            values,
            used_names: Vec::new(),
            used_values: Vec::new(),
        })
    }

    /// Resolves the symbols of an expression. The expression and the result live as long as the request.
    ///
    /// # Errors
    /// A ValidationException if a placeholder is not defined, a value has a type that its operator does not take, or
    /// paths overlap.
    pub fn bind<T: Tree>(
        &mut self,
        kind: ExpressionKind,
        expression: &'r Expression<T>,
    ) -> Result<Bindings<'r>, Error> {
        let scope = self.resolve(&expression.symbols);
        match expression.tree.check(&scope) {
            Ok(()) => Ok(scope.bindings),
            Err(e) => Err(e.prefixed(&format!("Invalid {}: ", kind.parameter()))),
        }
    }

    fn resolve(&mut self, symbols: &'r Symbols) -> Scope<'r> {
        let mut scope = Scope {
            symbols,
            bindings: Bindings {
                names: Vec::with_capacity(symbols.names.len()),
                values: Vec::with_capacity(symbols.values.len()),
            },
            missing_names: Vec::new(),
            missing_values: Vec::new(),
        };
        for (id, name) in (0..).map(NameId).zip(&symbols.names) {
            if symbols.names_are_literal || !name.starts_with('#') {
                scope.bindings.names.push(name);
                continue;
            }
            let entry = self.names.and_then(|names| names.get_key_value(name.as_str()));
            match entry {
                Some((key, _)) => self.used_names.push(key),
                None => scope.missing_names.push(id),
            }
            scope.bindings.names.push(entry.map_or("", |(_, name)| name));
        }
        for (id, value) in (0..).map(ValueId).zip(&symbols.values) {
            let entry = self.values.and_then(|values| values.get_key_value(value.as_str()));
            match entry {
                Some((key, _)) => self.used_values.push(key),
                None => scope.missing_values.push(id),
            }
            scope.bindings.values.push(entry.map_or(&NULL, |(_, value)| value));
        }
        scope
    }

    /// Refuses names and values that no expression used.
    ///
    /// # Errors
    /// A ValidationException that lists them.
    pub fn finish(self) -> Result<(), Error> {
        let names = self.names.into_iter().flat_map(BTreeMap::keys);
        refuse_unused("ExpressionAttributeNames", names, self.used_names)?;
        let values = self.values.into_iter().flat_map(BTreeMap::keys);
        refuse_unused("ExpressionAttributeValues", values, self.used_values)
    }
}

impl Problem {
    /// The error for a value of `ExpressionAttributeValues`.
    pub fn in_expression_values(self) -> Error {
        let mut error = self
            .error
            .prefixed("ExpressionAttributeValues contains invalid value: ");
        if let Some(attribute) = self.attribute {
            error.message.push_str(" for key ");
            error.message.push_str(clip(&attribute));
        }
        error
    }
}

fn check_names(names: &BTreeMap<String, String>) -> Result<(), Error> {
    if names.is_empty() {
        return Err(Error::validation("ExpressionAttributeNames must not be empty"));
    }
    for (key, name) in names {
        preempt::point();
        check_key("ExpressionAttributeNames", key, '#')?;
        if name.is_empty() {
            let text = "ExpressionAttributeNames contains invalid value: Empty attribute name for key ";
            return Err(Error::validation([text, clip(key)].concat()));
        }
        check_name_len(name)?;
    }
    Ok(())
}

/// Names are at most 64 KB.
fn check_name_len(name: &str) -> Result<(), Error> {
    if name.len() > NAME_BYTES_MAX {
        let text = "Member must have length less than or equal to 65535";
        return Err(Error::validation(
            ["One or more parameter values were invalid: ", text].concat(),
        ));
    }
    Ok(())
}

fn check_values(values: &Item) -> Result<(), Error> {
    if values.is_empty() {
        return Err(Error::validation("ExpressionAttributeValues must not be empty"));
    }
    for key in values.keys() {
        preempt::point();
        check_key("ExpressionAttributeValues", key, ':')?;
    }
    Ok(())
}

/// A key is its sign and letters, digits or underscores.
fn check_key(parameter: &str, key: &str, sign: char) -> Result<(), Error> {
    let rest = key.strip_prefix(sign).unwrap_or_default();
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if rest.is_empty() || !rest.bytes().all(is_word) {
        let text = format!("{parameter} contains invalid key: Syntax error; key: \"{}\"", clip(key));
        return Err(Error::validation(text));
    }
    Ok(())
}

fn refuse_unused<'r>(
    parameter: &str,
    keys: impl Iterator<Item = &'r String>,
    mut used: Vec<&str>,
) -> Result<(), Error> {
    preempt::sort_by(&mut used, |a, b| a.cmp(b));
    let is_unused = |key: &&String| {
        preempt::point();
        used.binary_search(&key.as_str()).is_err()
    };
    let unused = preempt::collect(keys.filter(is_unused).map(String::as_str));
    if unused.is_empty() {
        return Ok(());
    }
    let list = unused.join(", ");
    let list = clip(&list);
    let text = format!("Value provided in {parameter} unused in expressions: keys: {{{list}}}");
    Err(Error::validation(text))
}
