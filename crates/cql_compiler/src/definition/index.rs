//! CREATE and DROP INDEX.

use std::collections::BTreeMap;

use cql::ast::{CreateIndex, DropIndex, IndexTarget};
use ddl::{Definition, IndexClass};
use schema::IndexPart;

use super::properties::Properties;
use super::{DdlContext, full_name};
use crate::error::CompileError;

/// The name of an index without a class, where one is asked for.
const LEGACY: &str = "legacy_local_table";
/// What an index keeps under these names is not to be given as an option.
const OWN_OPTIONS: [&str; 2] = ["class_name", "target"];

pub(super) fn create(s: &CreateIndex, ctx: &DdlContext<'_>) -> Result<Definition, CompileError> {
    let table = full_name(&s.table, ctx)?;
    let options = Properties::new(&s.properties, &["options"])?.map("options")?;
    let (partition_key, targets) = match s.targets.split_first() {
        Some((IndexTarget::PartitionKey(columns), rest)) => (Some(columns), rest),
        _ => (None, &*s.targets),
    };
    Ok(Definition::CreateIndex(ddl::CreateIndex {
        table,
        name: s.name.clone(),
        if_not_exists: s.if_not_exists,
        targets: targets.iter().map(target).collect::<Result<_, _>>()?,
        class: class(s, partition_key, options)?,
    }))
}

fn target(target: &IndexTarget) -> Result<ddl::IndexTarget, CompileError> {
    let (column, part) = match target {
        IndexTarget::Column(column) => (column, None),
        IndexTarget::Values(column) => (column, Some(IndexPart::Values)),
        IndexTarget::Keys(column) => (column, Some(IndexPart::Keys)),
        IndexTarget::Entries(column) => (column, Some(IndexPart::Entries)),
        IndexTarget::Full(column) => (column, Some(IndexPart::Full)),
        IndexTarget::PartitionKey(_) => {
            return Err(CompileError::invalid(
                "The partition key of a local index comes before its column",
            ));
        }
    };
    Ok(ddl::IndexTarget {
        column: column.clone(),
        part,
    })
}

fn class(
    s: &CreateIndex,
    partition_key: Option<&Vec<String>>,
    options: Option<BTreeMap<String, String>>,
) -> Result<IndexClass, CompileError> {
    let given = s.using.as_deref().unwrap_or(LEGACY);
    if s.custom || !given.eq_ignore_ascii_case(LEGACY) {
        if let Some(own) = OWN_OPTIONS
            .iter()
            .find(|own| options.iter().any(|map| map.contains_key(**own)))
        {
            return Err(CompileError::Invalid(format!(
                "Cannot specify {own} as a CUSTOM option"
            )));
        }
        if partition_key.is_some() {
            return Err(CompileError::Invalid(format!(
                "A local index has no class (got '{given}')"
            )));
        }
        return Ok(IndexClass::Custom {
            name: given.to_owned(),
            options: options.unwrap_or_default(),
        });
    }
    if options.is_some() {
        return Err(CompileError::invalid("Cannot specify options for a non-CUSTOM index"));
    }
    Ok(partition_key.map_or(IndexClass::Legacy, |key| IndexClass::Local(key.clone())))
}

pub(super) fn drop(s: &DropIndex, ctx: &DdlContext<'_>) -> Result<Definition, CompileError> {
    Ok(Definition::DropIndex(ddl::DropIndex {
        name: full_name(&s.name, ctx)?,
        if_exists: s.if_exists,
    }))
}
