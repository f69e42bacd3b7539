//! CREATE, ALTER and DROP KEYSPACE.

use cql::ast::{AlterKeyspace, CreateKeyspace, DropKeyspace};
use ddl::{Definition, KeyspaceTablets};

use super::properties::Properties;
use crate::error::CompileError;

const PROPERTIES: [&str; 5] = ["consistency", "durable_writes", "replication", "storage", "tablets"];

pub(super) fn create(s: &CreateKeyspace) -> Result<Definition, CompileError> {
    let properties = Properties::new(&s.properties, &PROPERTIES)?;
    check_fixed(&properties)?;
    Ok(Definition::CreateKeyspace(ddl::CreateKeyspace {
        name: s.name.clone(),
        if_not_exists: s.if_not_exists,
        replication: properties.map_with_lists("replication")?.unwrap_or_default(),
        durable_writes: properties.boolean("durable_writes")?,
        tablets: tablets(&properties)?,
    }))
}

pub(super) fn alter(s: &AlterKeyspace) -> Result<Definition, CompileError> {
    let properties = Properties::new(&s.properties, &PROPERTIES)?;
    check_fixed(&properties)?;
    Ok(Definition::AlterKeyspace(ddl::AlterKeyspace {
        name: s.name.clone(),
        if_exists: s.if_exists,
        durable_writes: properties.boolean("durable_writes")?,
        tablets: tablets(&properties)?,
        replication: properties.map_with_lists("replication")?,
    }))
}

pub(super) fn drop(s: &DropKeyspace) -> Definition {
    Definition::DropKeyspace(ddl::DropKeyspace {
        name: s.name.clone(),
        if_exists: s.if_exists,
    })
}

/// Options that have one value here.
fn check_fixed(properties: &Properties<'_>) -> Result<(), CompileError> {
    if let Some(consistency) = properties.text("consistency")?
        && !consistency.eq_ignore_ascii_case("eventual")
    {
        return Err(CompileError::Config(format!(
            "Invalid value {consistency} for option 'consistency': only 'eventual' is supported"
        )));
    }
    if let Some(storage) = properties.map("storage")? {
        let is_local = |(name, value): (&String, &String)| name == "type" && value.eq_ignore_ascii_case("local");
        if !storage.iter().all(is_local) {
            return Err(CompileError::Config(
                "Invalid value for option 'storage': only {'type': 'LOCAL'} is supported, sstables are in the data directories"
                    .to_owned(),
            ));
        }
    }
    Ok(())
}

/// `tablets = {'enabled': …, 'initial': …}`, as ScyllaDB has it.
fn tablets(properties: &Properties<'_>) -> Result<Option<KeyspaceTablets>, CompileError> {
    let Some(given) = properties.map("tablets")? else {
        return Ok(None);
    };
    let mut tablets = KeyspaceTablets::default();
    for (key, value) in &given {
        match key.as_str() {
            "enabled" => {
                let value = value.to_ascii_lowercase();
                tablets.enabled = Some(value.parse().map_err(|_| {
                    CompileError::Config(format!(
                        "Invalid value {value} for tablets sub-option 'enabled': only 'true' and 'false' are allowed"
                    ))
                })?);
            }
            "initial" => {
                tablets.initial = Some(value.parse().map_err(|_| {
                    CompileError::Config(format!(
                        "Invalid value {value} for tablets sub-option 'initial': a number of tablets is expected"
                    ))
                })?);
            }
            _ => return Err(CompileError::Config(format!("Unknown tablets sub-option '{key}'"))),
        }
    }
    Ok(Some(tablets))
}
