//! The `WITH name = value AND …` of a statement, read by name and type.

use std::collections::{BTreeMap, BTreeSet};

use cql::ast::{LiteralKind, MapValue, Property, PropertyValue};

use crate::error::CompileError;

/// The first name that was there before. Statements are long and names many where someone means harm.
pub(super) fn first_duplicate<'a>(names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let mut seen = BTreeSet::new();
    names.into_iter().find(|name| !seen.insert(*name))
}

/// The properties of one statement, each of them once.
pub(super) struct Properties<'a>(&'a [Property]);

impl<'a> Properties<'a> {
    /// Refuses names that are given twice or are not among `known`.
    pub(super) fn new(properties: &'a [Property], known: &[&str]) -> Result<Self, CompileError> {
        if let Some(name) = first_duplicate(properties.iter().map(|p| p.name.as_str())) {
            return Err(CompileError::Syntax(format!(
                "Multiple definitions for property '{name}'"
            )));
        }
        match properties.iter().find(|p| !known.contains(&p.name.as_str())) {
            Some(p) => Err(CompileError::Syntax(format!("Unknown property '{}'", p.name))),
            None => Ok(Self(properties)),
        }
    }

    pub(super) fn value(&self, name: &str) -> Option<&'a PropertyValue> {
        self.0.iter().find(|p| p.name == name).map(|p| &p.value)
    }

    pub(super) fn is_map(&self, name: &str) -> bool {
        matches!(self.value(name), Some(PropertyValue::Map(_)))
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, CompileError> {
        match self.value(name) {
            None => Ok(None),
            Some(PropertyValue::Literal(l)) => Ok(Some(&l.text)),
            Some(PropertyValue::Keyword(k)) => Ok(Some(k)),
            Some(PropertyValue::Map(_)) => Err(CompileError::Syntax(format!(
                "Invalid value for property '{name}'. It should be a string"
            ))),
        }
    }

    pub(super) fn map(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, CompileError> {
        self.map_of(name, |key, value| match value {
            MapValue::Literal(literal) => Ok(literal.text.clone()),
            MapValue::List(_) => Err(CompileError::Syntax(format!(
                "Invalid value for '{key}' of property '{name}': a list is not allowed"
            ))),
        })
    }

    /// A map in which lists are allowed; each of those becomes its text, as `['rack1', 'rack2']`.
    pub(super) fn map_with_lists(&self, name: &str) -> Result<Option<BTreeMap<String, String>>, CompileError> {
        self.map_of(name, |key, value| match value {
            MapValue::Literal(literal) => Ok(literal.text.clone()),
            MapValue::List(items) if items.iter().all(|i| i.kind == LiteralKind::String) => Ok(value.to_string()),
            MapValue::List(_) => Err(CompileError::Config(format!(
                "Invalid value {value} for '{key}' of property '{name}': a list of strings is expected"
            ))),
        })
    }

    fn map_of(
        &self,
        name: &str,
        text: impl Fn(&str, &MapValue) -> Result<String, CompileError>,
    ) -> Result<Option<BTreeMap<String, String>>, CompileError> {
        match self.value(name) {
            None => Ok(None),
            Some(PropertyValue::Map(pairs)) => {
                if let Some(key) = first_duplicate(pairs.iter().map(|(key, _)| key.text.as_str())) {
                    return Err(CompileError::Syntax(format!("Multiple definition for property {key}")));
                }
                let pairs = pairs.iter().map(|(k, v)| Ok((k.text.clone(), text(&k.text, v)?)));
                pairs.collect::<Result<_, _>>().map(Some)
            }
            Some(PropertyValue::Literal(_) | PropertyValue::Keyword(_)) => Err(CompileError::Syntax(format!(
                "Invalid value for property '{name}'. It should be a map."
            ))),
        }
    }

    pub(super) fn boolean(&self, name: &str) -> Result<Option<bool>, CompileError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "1" | "true" | "yes" => Ok(Some(true)),
            "0" | "false" | "no" => Ok(Some(false)),
            _ => Err(CompileError::Syntax(format!(
                "Invalid boolean value {text} for '{name}'. Positive values can be '1', 'true' or 'yes'. Negative values \
                 can be '0', 'false' or 'no'."
            ))),
        }
    }

    pub(super) fn double(&self, name: &str) -> Result<Option<f64>, CompileError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse::<f64>() {
            Ok(v) if v.is_finite() => Ok(Some(v)),
            _ => Err(CompileError::Syntax(format!(
                "Invalid double value {text} for '{name}'"
            ))),
        }
    }

    pub(super) fn int(&self, name: &str) -> Result<Option<i32>, CompileError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse::<i32>() {
            Ok(v) => Ok(Some(v)),
            Err(_) => Err(CompileError::Syntax(format!(
                "Invalid integer value {text} for '{name}'"
            ))),
        }
    }
}
