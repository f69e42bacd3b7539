//! Which types a column, a field or an argument may have, and how large a type may be.

use types::CqlType;

use crate::error::DdlError;

/// How deep types are nested at most, and how many types there are in one. Each CREATE TYPE may nest what others nested
/// before; files, records and the protocol hold whole definitions, and their readers have limits.
const DEPTH_MAX: usize = 40;
const PARTS_MAX: usize = 4096;

/// Refuses types that no value has: the compiler makes none of them, another front end might.
pub(crate) fn check(t: &CqlType) -> Result<(), DdlError> {
    check_size(t)?;
    if t.canonical() == *t && has_values(t) {
        Ok(())
    } else {
        Err(DdlError::Invalid(format!("No value has the type {t}")))
    }
}

fn has_values(t: &CqlType) -> bool {
    let is_ordered = |t: &CqlType| *t.unfrozen() != CqlType::Duration;
    let is_whole = match t {
        CqlType::Set(element) => is_ordered(element) && !element.is_multi_cell(),
        CqlType::Map(key, value) => is_ordered(key) && !key.is_multi_cell() && !value.is_multi_cell(),
        CqlType::List(element) => !element.is_multi_cell(),
        _ => true,
    };
    let is_counter = |inner: &&CqlType| **inner == CqlType::Counter;
    // A user-defined type was checked when it was made.
    is_whole && (matches!(t, CqlType::Udt(_)) || t.inner().iter().all(|inner| !is_counter(inner) && has_values(inner)))
}

/// Refuses types that are nested too deep or have too many types in them.
pub(crate) fn check_size(t: &CqlType) -> Result<(), DdlError> {
    if t.depth() > DEPTH_MAX {
        return Err(DdlError::Invalid(format!(
            "Type {t} is nested more than {DEPTH_MAX} deep"
        )));
    }
    if t.parts() > PARTS_MAX {
        return Err(DdlError::Invalid(format!(
            "Type {t} has more than {PARTS_MAX} types in it"
        )));
    }
    Ok(())
}

/// True for a non-frozen user-defined type with a field that is a non-frozen collection or user-defined type.
pub(crate) fn has_nested_collection(t: &CqlType) -> bool {
    match t {
        CqlType::Udt(udt) => udt.fields.iter().any(|(_, field)| field.is_multi_cell()),
        _ => false,
    }
}
