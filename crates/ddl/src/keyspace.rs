//! Keyspaces are created, altered and dropped.

use std::collections::BTreeMap;

use schema::{Keyspace, Schema};
use system_tables::KeyspaceKind;
use topology::Copies;

use crate::error::DdlError;
use crate::{
    AlterKeyspace, ChangeKind, Context, CreateKeyspace, DropKeyspace, KeyspaceTablets, Outcome, SchemaChange,
    check_modifiable, outcome, rack_lists, unbuilt,
};

/// Copies of each partition when a keyspace does not say.
const REPLICATION_FACTOR_DEFAULT: &str = "1";
/// The most copies in a datacenter.
const FACTOR_MAX: u32 = 1_000;
/// The longest name of a keyspace, in bytes: it is a directory.
const NAME_BYTES_MAX: usize = 48;

const LOCATOR: &str = "org.apache.cassandra.locator.";
const REPLICATION_FACTOR: &str = "replication_factor";

pub(crate) fn create(schema: &Schema, create: &CreateKeyspace, ctx: &Context<'_>) -> Result<Option<Outcome>, DdlError> {
    let name = &create.name;
    check_name(name)?;
    if schema.keyspaces.contains_key(name) {
        if create.if_not_exists {
            return Ok(None);
        }
        return Err(DdlError::AlreadyExists {
            keyspace: name.clone(),
            table: String::new(),
        });
    }
    let mut replication = create.replication.clone();
    complete_replication(&mut replication, ctx);
    let (replication, mut warnings) = prepare_replication(name, replication, &BTreeMap::new(), ctx)?;
    warnings.extend(durability_warning(create.durable_writes));
    let mut keyspace = Keyspace {
        name: name.clone(),
        replication,
        durable_writes: create.durable_writes.unwrap_or(true),
        tablets: create.tablets.map(tablets),
        types: BTreeMap::new(),
        functions: BTreeMap::new(),
        aggregates: BTreeMap::new(),
        tables: BTreeMap::new(),
    };
    list_racks(&mut keyspace, &BTreeMap::new(), ctx)?;
    let change = SchemaChange::Keyspace {
        change: ChangeKind::Created,
        keyspace: name.clone(),
    };
    Ok(Some(Outcome {
        warnings,
        ..outcome(schema, name, Some(keyspace), change)
    }))
}

fn check_name(name: &str) -> Result<(), DdlError> {
    if system_tables::kind(name) == Some(KeyspaceKind::Local) {
        return Err(DdlError::Invalid(format!(
            "System keyspace '{name}' is not user-modifiable"
        )));
    }
    let is_free = crate::table::has_free_names(name);
    if !(crate::table::is_word(name) || is_free && crate::table::is_free_name(name)) {
        return Err(DdlError::Invalid(format!(
            "Keyspace name must not be empty and must contain alphanumeric or underscore characters only (got \"{name}\")"
        )));
    }
    let bytes_max = if is_free {
        crate::table::FREE_NAME_BYTES_MAX
    } else {
        NAME_BYTES_MAX
    };
    if name.len() > bytes_max {
        return Err(DdlError::Invalid(format!(
            "Keyspace name must not be more than {bytes_max} characters long (got {} characters for \"{name}\")",
            name.len()
        )));
    }
    Ok(())
}

/// What CREATE KEYSPACE leaves unsaid: without a class it means NetworkTopologyStrategy, and without a class and
/// factors a copy on each rack of each datacenter (racks that have nodes which hold data). As in ScyllaDB.
fn complete_replication(replication: &mut BTreeMap<String, String>, ctx: &Context<'_>) {
    if replication.contains_key("class") {
        return;
    }
    if replication.is_empty() {
        let factors = ctx.racks.iter().filter(|(_, racks)| !racks.is_empty());
        replication.extend(factors.map(|(datacenter, racks)| (datacenter.clone(), racks.len().to_string())));
    }
    replication.insert("class".to_owned(), "NetworkTopologyStrategy".to_owned());
}

fn list_racks(keyspace: &mut Keyspace, before: &BTreeMap<String, String>, ctx: &Context<'_>) -> Result<(), DdlError> {
    let is_of_users = system_tables::kind(&keyspace.name).is_none();
    if ctx.lists_racks && is_of_users && keyspace.has_tablets() {
        rack_lists::expand(&keyspace.name, &mut keyspace.replication, before, ctx.racks)
    } else {
        Ok(())
    }
}

fn durability_warning(durable_writes: Option<bool>) -> Option<String> {
    (durable_writes == Some(false)).then(|| unbuilt::warning("durable_writes", "false"))
}

pub(crate) fn alter(schema: &Schema, alter: &AlterKeyspace, ctx: &Context<'_>) -> Result<Option<Outcome>, DdlError> {
    let name = &alter.name;
    if system_tables::kind(name) == Some(KeyspaceKind::Local) {
        check_modifiable(name, "ALTER", String::new)?;
    }
    let Some(old) = schema.keyspaces.get(name) else {
        return absent(name, alter.if_exists);
    };
    let mut keyspace = Keyspace::clone(old);
    if let Some(durable_writes) = alter.durable_writes {
        keyspace.durable_writes = durable_writes;
    }
    if let Some(new) = alter.tablets {
        // Other options of tablets mean that there are some; so a keyspace on the token ring goes to tablets only where
        // it is said.
        if new.enabled.is_none() && !keyspace.has_tablets() {
            return Err(DdlError::Invalid(format!(
                "Keyspace '{name}' is on the token ring: add 'enabled': true to move its tables to tablets"
            )));
        }
        keyspace.tablets.get_or_insert_default().extend(tablets(new));
    }
    let replication = alter.replication.as_ref().unwrap_or(&keyspace.replication).clone();
    let (replication, mut warnings) = prepare_replication(name, replication, &old.replication, ctx)?;
    keyspace.replication = replication;
    list_racks(&mut keyspace, &old.replication, ctx)?;
    warnings.extend(durability_warning(alter.durable_writes));
    if keyspace == **old {
        return Ok(None);
    }
    let change = SchemaChange::Keyspace {
        change: ChangeKind::Updated,
        keyspace: name.clone(),
    };
    Ok(Some(Outcome {
        warnings,
        ..outcome(schema, name, Some(keyspace), change)
    }))
}

pub(crate) fn drop(schema: &Schema, dropped: &DropKeyspace) -> Result<Option<Outcome>, DdlError> {
    let name = &dropped.name;
    check_modifiable(name, "DROP", || format!("keyspace {name}"))?;
    let Some(old) = schema.keyspaces.get(name) else {
        return absent(name, dropped.if_exists);
    };
    let change = SchemaChange::Keyspace {
        change: ChangeKind::Dropped,
        keyspace: name.clone(),
    };
    let dropped_tables = old.tables.values().map(|t| t.id).collect();
    Ok(Some(Outcome {
        dropped_tables,
        ..outcome(schema, name, None, change)
    }))
}

fn absent(name: &str, if_exists: bool) -> Result<Option<Outcome>, DdlError> {
    if if_exists {
        Ok(None)
    } else {
        Err(DdlError::Invalid(format!("Keyspace '{name}' doesn't exist")))
    }
}

/// As the schema has them: `{'enabled': …, 'initial': …}`, as ScyllaDB.
fn tablets(given: KeyspaceTablets) -> BTreeMap<String, String> {
    let enabled = given.enabled.map(|enabled| ("enabled".to_owned(), enabled.to_string()));
    let initial = given.initial.map(|initial| ("initial".to_owned(), initial.to_string()));
    enabled.into_iter().chain(initial).collect()
}

/// Writes out what a replication map leaves unsaid, and refuses one that cannot be had. Also returns warnings.
///
/// `previous` is the map of the keyspace that is altered, empty for a new one.
fn prepare_replication(
    keyspace: &str,
    mut options: BTreeMap<String, String>,
    previous: &BTreeMap<String, String>,
    ctx: &Context<'_>,
) -> Result<(BTreeMap<String, String>, Vec<String>), DdlError> {
    let nodes = ctx.nodes;
    let Some(class) = options.remove("class") else {
        return Err(DdlError::Config("Missing replication strategy class".to_owned()));
    };
    let class = if class.contains('.') {
        class
    } else {
        format!("{LOCATOR}{class}")
    };
    match class.strip_prefix(LOCATOR) {
        Some("SimpleStrategy") => {
            options
                .entry(REPLICATION_FACTOR.to_owned())
                .or_insert_with(|| REPLICATION_FACTOR_DEFAULT.to_owned());
        }
        Some("NetworkTopologyStrategy") => expand_datacenters(&mut options, previous, nodes)?,
        Some("EverywhereStrategy") => {}
        Some("LocalStrategy") => {
            return Err(DdlError::invalid(
                "Unable to use given strategy class: LocalStrategy is reserved for internal use.",
            ));
        }
        _ => {
            return Err(DdlError::Config(format!(
                "Unable to find replication strategy class '{class}'"
            )));
        }
    }
    let short = &class[LOCATOR.len()..];
    let is_everywhere = short == "EverywhereStrategy";
    let simple = short == "SimpleStrategy";
    let known = |name: &str| {
        if simple {
            name == REPLICATION_FACTOR
        } else if is_everywhere {
            false
        } else {
            nodes.contains_key(name) || previous.contains_key(name)
        }
    };
    if let Some(unknown) = options.keys().find(|name| !known(name)) {
        return Err(DdlError::Config(format!(
            "Unrecognized strategy option {{{unknown}}} passed to {short} for keyspace {keyspace}"
        )));
    }
    if options.is_empty() && !is_everywhere {
        return Err(DdlError::Config(
            "Configuration for at least one datacenter must be present".to_owned(),
        ));
    }
    let mut warnings = Vec::new();
    let mut copies = 0;
    for (name, value) in &mut options {
        let factor = if !simple && Copies::is_list(value) {
            let racks = Copies::parse(name, value).map_err(|e| DdlError::Config(e.to_string()))?;
            check_racks(name, &racks, previous.get(name), ctx)?;
            *value = racks.to_string();
            u32::from(racks.number())
        } else {
            let factor = parse_factor(value)?;
            *value = factor.to_string();
            factor
        };
        let (count, place) = if simple {
            (nodes.values().sum(), String::new())
        } else {
            let here = nodes.get(name).copied().unwrap_or(0);
            (here, format!(" for datacenter {name}"))
        };
        if factor > FACTOR_MAX {
            return Err(DdlError::Config(format!(
                "Replication factor must be at most {FACTOR_MAX}, found {factor}{place}"
            )));
        }
        copies += factor;
        if factor > count {
            warnings.push(format!(
                "Your replication factor {factor} for keyspace {keyspace} is higher than the number of nodes {count}{place}"
            ));
        }
    }
    if copies == 0 && !is_everywhere {
        return Err(DdlError::Config(format!(
            "Keyspace {keyspace} would have no copies of its data: a replication factor of at least 1 is expected"
        )));
    }
    options.insert("class".to_owned(), class);
    Ok((options, warnings))
}

/// Refuses racks without a node that holds data: with a rack misspelt nothing could be written. Those that the keyspace
/// has already stay.
fn check_racks(
    datacenter: &str,
    listed: &Copies,
    previous: Option<&String>,
    ctx: &Context<'_>,
) -> Result<(), DdlError> {
    let (Copies::Racks(listed), Some(there)) = (listed, ctx.racks.get(datacenter)) else {
        return Ok(());
    };
    let former = previous.and_then(|former| Copies::parse(datacenter, former).ok());
    let had = |rack: &String| matches!(&former, Some(Copies::Racks(racks)) if racks.contains(rack));
    match listed.iter().find(|rack| !there.contains(*rack) && !had(rack)) {
        None => Ok(()),
        Some(unknown) => Err(DdlError::Config(format!(
            "Unknown rack {unknown} in datacenter {datacenter}: the racks with nodes that hold data are {}",
            there.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// `replication_factor` applies to every datacenter that is not named; datacenters without copies are left out.
fn expand_datacenters(
    options: &mut BTreeMap<String, String>,
    previous: &BTreeMap<String, String>,
    nodes: &BTreeMap<String, u32>,
) -> Result<(), DdlError> {
    let mut factor = options.remove(REPLICATION_FACTOR);
    if let Some(list) = factor.as_ref().filter(|text| Copies::is_list(text)) {
        return Err(DdlError::Config(format!(
            "Invalid value {list} for {REPLICATION_FACTOR}: racks are listed for a datacenter"
        )));
    }
    if factor.is_none() && options.is_empty() {
        let before = previous
            .get(REPLICATION_FACTOR)
            .map_or(REPLICATION_FACTOR_DEFAULT, String::as_str);
        factor = Some(before.to_owned());
    } else if factor.is_some() {
        // Datacenters that have copies keep them as they are: an expansion is no reason to move data.
        for (name, value) in previous
            .iter()
            .filter(|(n, _)| !matches!(n.as_str(), "class" | REPLICATION_FACTOR))
        {
            options.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    if let Some(factor) = factor {
        for name in nodes.keys() {
            options.entry(name.clone()).or_insert_with(|| factor.clone());
        }
    }
    options.retain(|_, value| value != "0" && value != "[]");
    Ok(())
}

fn parse_factor(text: &str) -> Result<u32, DdlError> {
    match text.parse::<i32>() {
        Ok(factor) => u32::try_from(factor)
            .map_err(|_| DdlError::Config(format!("Replication factor must be non-negative, found {factor}"))),
        Err(_) if text.contains('/') => Err(DdlError::Config("Transient replication is not supported".to_owned())),
        Err(_) => Err(DdlError::Config(format!("For input string: \"{text}\""))),
    }
}
