//! Names of tables in requests: each operation has rules and texts of its own for a name that is not valid. A name may
//! be an ARN in every request.

use super::constraints::Constraints;
use super::json::Text;
use crate::arn::{TABLE_NAME_MAX, TABLE_NAME_MIN, TableReference, is_name};
use crate::error::Error;

const REQUIRED: &str = "The parameter 'TableName' is required but was not present in the request";
const LENGTH: &str = "TableName must be at least 3 characters long and at most 255 characters long";
/// The text for an empty name of the operations on items.
pub(super) const EMPTY: &str =
    "Value at 'TableName' failed to satisfy constraint: Member must have length greater than or equal to 1";

/// Reads a reference; the constraint on names if an ARN is not that of a table.
pub(super) fn reference(name: Text, at: &str, errors: &mut Constraints) -> TableReference {
    let Text(given) = name;
    match TableReference::new(given.clone()) {
        Some(reference) => reference,
        None => {
            errors.pattern(&given, at);
            TableReference::default()
        }
    }
}

/// The name of a table that is created.
pub(super) fn for_creation(name: Option<Text>) -> Result<TableReference, Error> {
    let Some(name) = name else {
        return Err(Error::validation(REQUIRED));
    };
    let mut errors = Constraints::default();
    let table = reference(name, "tableName", &mut errors);
    if errors.is_empty() {
        errors.pattern(table.name(), "tableName");
        errors.length(table.name(), "tableName", TABLE_NAME_MIN, TABLE_NAME_MAX);
    }
    errors.finish()?;
    Ok(table)
}

/// The name of a table that is described, changed or deleted.
pub(super) fn for_administration(name: Option<Text>) -> Result<TableReference, Error> {
    let Some(name) = name else {
        return Err(Error::validation(REQUIRED));
    };
    let mut errors = Constraints::default();
    let table = reference(name, "tableName", &mut errors);
    if errors.is_empty() && !(TABLE_NAME_MIN..=TABLE_NAME_MAX).contains(&table.name().len()) {
        return Err(Error::validation(LENGTH));
    }
    if errors.is_empty() {
        errors.pattern(table.name(), "tableName");
    }
    errors.finish()?;
    Ok(table)
}

/// Checks the name of a table of an operation on items, except an empty one: its first violated constraint.
pub(super) fn check_first(name: Option<&Text>, at: &str, errors: &mut Constraints) {
    let Some(Text(name)) = name else {
        return errors.null(at);
    };
    if name.starts_with("arn:") && TableReference::new(name.clone()).is_some() {
        return;
    }
    if name.chars().count() < TABLE_NAME_MIN || name.chars().count() > TABLE_NAME_MAX {
        errors.length(name, at, TABLE_NAME_MIN, TABLE_NAME_MAX);
    } else {
        errors.pattern(name, at);
    }
}

/// Checks the name of a table of UpdateItem: all violated constraints.
pub(super) fn check_all(name: Option<&Text>, at: &str, errors: &mut Constraints) {
    let Some(Text(name)) = name else {
        return errors.null(at);
    };
    if name.starts_with("arn:") && TableReference::new(name.clone()).is_some() {
        return;
    }
    errors.pattern(name, at);
    errors.length(name, at, TABLE_NAME_MIN, TABLE_NAME_MAX);
}

/// Checks the name of a table within a transaction: its length, then its characters.
pub(super) fn check_member(name: Option<&Text>, at: &str, errors: &mut Constraints) {
    let Some(Text(given)) = name else {
        return errors.null(at);
    };
    if given.starts_with("arn:") && TableReference::new(given.clone()).is_some() {
        return;
    }
    errors.length(given, at, TABLE_NAME_MIN, TABLE_NAME_MAX);
    errors.pattern(given, at);
}

/// Whether a key of RequestItems names a table.
pub(super) fn is_table(name: &str) -> bool {
    if name.starts_with("arn:") {
        TableReference::new(name.to_owned()).is_some()
    } else {
        is_name(name) && (TABLE_NAME_MIN..=TABLE_NAME_MAX).contains(&name.len())
    }
}

/// The reference of a name that is checked.
pub(super) fn checked(name: Option<Text>) -> TableReference {
    let Text(given) = name.unwrap_or_default();
    TableReference::new(given).unwrap_or_default()
}
