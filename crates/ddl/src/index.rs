//! Secondary indexes are created and dropped. The checks are in the order in which Cassandra makes them.

use schema::{Column, ColumnKind, CompactStorage, IndexPart, Keyspace, Schema, Table, quote_identifier};
use system_tables::KeyspaceKind;
use types::CqlType;

use crate::error::DdlError;
use crate::index_class::{self, NewIndex};
use crate::table::is_word;
use crate::{
    ChangeKind, CreateIndex, DropIndex, IndexClass, IndexTarget, Outcome, check_modifiable, existing_keyspace,
    first_duplicate, outcome_of_table,
};

/// The longest name of an index, in bytes, as that of a table.
const NAME_BYTES_MAX: usize = 222;
/// Indexes of one table: each costs memory in every memtable and a file beside every sstable.
const INDEXES_MAX: usize = 256;

pub(crate) fn create(schema: &Schema, create: &CreateIndex) -> Result<Option<Outcome>, DdlError> {
    let (of, name) = (&create.table.keyspace, &create.table.name);
    check_modifiable(of, "ALTER", || format!("table {of}.{name}"))?;
    let keyspace = existing_keyspace(schema, of)?;
    let table = keyspace.tables.get(name);
    let table = table.ok_or_else(|| DdlError::Invalid(format!("Table '{name}' doesn't exist")))?;
    if let Some(name) = create.name.as_ref().filter(|name| keyspace.index(name).is_some()) {
        return if create.if_not_exists {
            Ok(None)
        } else {
            Err(DdlError::Invalid(format!("Index '{name}' already exists")))
        };
    }
    let targets = targets(table, create)?;
    let name = create
        .name
        .clone()
        .unwrap_or_else(|| free_name(keyspace, table, &targets));
    let new = NewIndex {
        table,
        name: &name,
        targets: &targets,
        class: &create.class,
    };
    if let Some(equal) = table.indexes.iter().find(|index| new.equals(index)) {
        return if create.if_not_exists {
            Ok(None)
        } else {
            Err(DdlError::Invalid(format!(
                "Index {name} is a duplicate of existing index {}",
                equal.name
            )))
        };
    }
    check_name(&name)?;
    if table.indexes.len() >= INDEXES_MAX {
        return Err(DdlError::Invalid(format!(
            "A table has at most {INDEXES_MAX} secondary indexes"
        )));
    }
    let (kind, warnings) = index_class::check(&new)?;
    let [(column, part)] = targets.as_slice() else {
        return Err(DdlError::Invalid(format!(
            "An index has one column (got {})",
            new.target()
        )));
    };
    let mut next = Table::clone(table);
    let (options, spelled) = match &create.class {
        IndexClass::Custom { name, options } => (options.clone(), Some(name.clone())),
        IndexClass::Legacy | IndexClass::Local(_) => Default::default(),
    };
    next.add_index(&name, (&column.name, *part), kind, options).class = spelled;
    Ok(Some(Outcome {
        warnings,
        ..outcome_of_table(schema, keyspace, next, ChangeKind::Updated)
    }))
}

/// The columns that are indexed, and what of them.
fn targets<'t>(table: &'t Table, create: &CreateIndex) -> Result<Vec<(&'t Column, IndexPart)>, DdlError> {
    if table.is_counter() {
        return Err(DdlError::invalid(
            "Secondary indexes on counter tables aren't supported",
        ));
    }
    let column = |target: &IndexTarget| {
        let found = table.column(&target.column).filter(|column| !table.is_hidden(column));
        found.ok_or_else(|| DdlError::undefined_column(&target.column, table))
    };
    let columns = create.targets.iter().map(column).collect::<Result<Vec<_>, _>>()?;
    let is_custom = matches!(create.class, IndexClass::Custom { .. });
    if columns.is_empty() && matches!(create.class, IndexClass::Local(_)) {
        return Err(DdlError::invalid(
            "A local index needs a column after the partition key",
        ));
    }
    if columns.is_empty() && !is_custom {
        return Err(DdlError::invalid(
            "Only CUSTOM indexes can be created without specifying a target column",
        ));
    }
    if columns.len() > 1 && !is_custom {
        return Err(DdlError::invalid("Only CUSTOM indexes support multiple columns"));
    }
    if let Some(name) = first_duplicate(columns.iter().map(|column| column.name.as_str())) {
        return Err(DdlError::Invalid(format!(
            "Duplicate column '{name}' in index target list"
        )));
    }
    if let IndexClass::Local(key) = &create.class {
        check_local(table, key)?;
    }
    let targets = columns.into_iter().zip(&create.targets);
    let targets = targets.map(|(column, target)| {
        if is_custom && !is_word(&column.name) {
            return Err(DdlError::Invalid(format!(
                "Column '{}' contains non-alphanumeric-underscore characters",
                column.name
            )));
        }
        Ok((column, part(table, column, target.part)?))
    });
    targets.collect()
}

/// The columns by which an index is local must be the partition key, in its order.
fn check_local(table: &Table, given: &[String]) -> Result<(), DdlError> {
    if table.partition_key().map(|c| &c.name).eq(given) {
        return Ok(());
    }
    let list = |names: &mut dyn Iterator<Item = &String>| {
        let names: Vec<String> = names.map(|name| quote_identifier(name)).collect();
        names.join(", ")
    };
    Err(DdlError::Invalid(format!(
        "A local index begins with the whole partition key ({}) (got ({}))",
        list(&mut table.partition_key().map(|c| &c.name)),
        list(&mut given.iter())
    )))
}

/// What of the column is indexed, if it can be.
fn part(table: &Table, column: &Column, given: Option<IndexPart>) -> Result<IndexPart, DdlError> {
    check_column(table, column)?;
    let refused = |why: String| Err(DdlError::Invalid(why));
    let (name, cql_type) = (&column.name, &column.cql_type);
    let (is_collection, is_frozen) = (cql_type.is_collection(), !cql_type.is_multi_cell());
    let word = match given {
        None | Some(IndexPart::Value | IndexPart::Values) => "values",
        Some(IndexPart::Keys) => "keys",
        Some(IndexPart::Entries) => "entries",
        Some(IndexPart::Full) => "full",
    };
    let is_full = given == Some(IndexPart::Full);
    if is_collection && is_frozen && !is_full {
        return refused(format!(
            "Cannot create {word}() index on frozen column {name}. Frozen collections are immutable and must be fully \
             indexed by using the '{}' modifier",
            IndexPart::Full.of_column(name)
        ));
    }
    if !(is_collection && is_frozen) && is_full {
        return refused("full() indexes can only be created on frozen collections".to_owned());
    }
    if !is_collection && given.is_some() {
        return refused(format!(
            "Cannot create {word}() index on {name}. Non-collection columns only support simple indexes"
        ));
    }
    if matches!(given, Some(IndexPart::Keys | IndexPart::Entries)) && !matches!(cql_type, CqlType::Map(..)) {
        return refused(format!(
            "Cannot create index on {word} of column {name} with non-map type"
        ));
    }
    if matches!(cql_type, CqlType::Udt(_)) {
        return refused(format!("Cannot create index on non-frozen UDT column {name}"));
    }
    Ok(match given {
        Some(part) => part,
        None if is_collection => IndexPart::Values,
        None => IndexPart::Value,
    })
}

/// Refuses columns of which nothing can be indexed.
fn check_column(table: &Table, column: &Column) -> Result<(), DdlError> {
    if column.cql_type.has_duration() {
        let what = match column.cql_type.unfrozen() {
            CqlType::List(_) | CqlType::Set(_) | CqlType::Map(..) => "collections containing durations",
            CqlType::Tuple(_) => "tuples containing durations",
            CqlType::Udt(_) => "UDTs containing durations",
            _ => "duration columns",
        };
        return Err(DdlError::Invalid(format!(
            "Secondary indexes are not supported on {what}"
        )));
    }
    let is_key = matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering);
    match table.compact {
        Some(_) if is_key => {
            return Err(DdlError::invalid(
                "Secondary indexes are not supported on PRIMARY KEY columns in COMPACT STORAGE tables",
            ));
        }
        Some(CompactStorage::Dense) => {
            return Err(DdlError::invalid(
                "Secondary indexes are not supported on compact value column of COMPACT STORAGE tables",
            ));
        }
        Some(CompactStorage::Static) | None => {}
    }
    if column.kind == ColumnKind::PartitionKey && table.partition_key().count() == 1 {
        return Err(DdlError::Invalid(format!(
            "Cannot create secondary index on the only partition key column {}",
            column.name
        )));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), DdlError> {
    if !is_word(name) {
        return Err(DdlError::Config(format!("Illegal index name {name}")));
    }
    match name.len() {
        0..=NAME_BYTES_MAX => Ok(()),
        length => Err(DdlError::Config(format!(
            "Illegal index name {name}: it has {length} characters, and {NAME_BYTES_MAX} are allowed"
        ))),
    }
}

/// The name of an index that is given none: that of the table and of the column, and a number if it is taken.
pub(crate) fn free_name(keyspace: &Keyspace, table: &Table, targets: &[(&Column, IndexPart)]) -> String {
    let columns: Vec<&str> = targets.iter().map(|(column, _)| column.name.as_str()).collect();
    let mut first = format!("{}_{}_idx", table.name, columns.join("_"));
    first.retain(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_free =
        |name: &String| keyspace.index(name).is_none() && table.indexes.iter().all(|other| other.name != *name);
    let mut names = (0_u64..).map(|number| match number {
        0 => first.clone(),
        _ => format!("{first}_{number}"),
    });
    names
        .find(is_free)
        .expect("a keyspace has fewer indexes than there are numbers")
}

pub(crate) fn drop(schema: &Schema, dropped: &DropIndex) -> Result<Option<Outcome>, DdlError> {
    let (of, name) = (&dropped.name.keyspace, &dropped.name.name);
    if system_tables::kind(of) == Some(KeyspaceKind::Local) {
        return Err(DdlError::Invalid(format!(
            "System keyspace '{of}' is not user-modifiable"
        )));
    }
    let keyspace = schema.keyspaces.get(of);
    let found = keyspace.and_then(|keyspace| Some((&**keyspace, keyspace.index(name)?.0)));
    let Some((keyspace, table)) = found else {
        return if dropped.if_exists {
            Ok(None)
        } else {
            // The quote at the end is Cassandra's.
            Err(DdlError::Invalid(format!("Index '{of}.{name}' doesn't exist'")))
        };
    };
    let mut next = Table::clone(table);
    next.drop_index(name);
    Ok(Some(outcome_of_table(schema, keyspace, next, ChangeKind::Updated)))
}

/// The names of the indexes of a column, if it has any.
pub(crate) fn names_of_column(table: &Table, column: &str) -> Option<String> {
    let indexes = table.indexes.iter().filter(|index| index.column == column);
    let names: Vec<&str> = indexes.map(|index| index.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use schema::{IndexKind, TableId, TableOptions};
    use uuid::Uuid;

    use super::*;
    use crate::NameInKeyspace;

    #[test]
    fn a_table_has_a_limited_number_of_indexes() {
        let columns = [("k", ColumnKind::PartitionKey), ("v", ColumnKind::Regular)];
        let columns = columns.map(|(name, kind)| Column::new(name, CqlType::Int, kind));
        let id = TableId(Uuid::from_u128(1));
        let mut table = Table::new("ks", "t", id, columns.to_vec(), TableOptions::default());
        let with_indexes = |table: &Table| Schema {
            version: Uuid::nil(),
            keyspaces: BTreeMap::from([(
                "ks".to_owned(),
                Arc::new(Keyspace {
                    name: "ks".to_owned(),
                    replication: BTreeMap::new(),
                    durable_writes: true,
                    tablets: None,
                    types: BTreeMap::new(),
                    functions: BTreeMap::new(),
                    aggregates: BTreeMap::new(),
                    tables: BTreeMap::from([("t".to_owned(), Arc::new(table.clone()))]),
                }),
            )]),
        };
        let new = CreateIndex {
            table: NameInKeyspace {
                keyspace: "ks".to_owned(),
                name: "t".to_owned(),
            },
            name: None,
            if_not_exists: false,
            targets: vec![IndexTarget {
                column: "v".to_owned(),
                part: None,
            }],
            class: IndexClass::Legacy,
        };
        for number in 1..INDEXES_MAX {
            let options = BTreeMap::from([("number".to_owned(), number.to_string())]);
            let target = ("v", IndexPart::Value);
            table.add_index(&format!("i{number:04}"), target, IndexKind::Sasi, options);
        }
        assert!(create(&with_indexes(&table), &new).is_ok());
        table.add_index("last", ("v", IndexPart::Value), IndexKind::Sasi, BTreeMap::new());
        let refusal = create(&with_indexes(&table), &new).expect_err("it is one more");
        assert_eq!(refusal.to_string(), "A table has at most 256 secondary indexes");
    }
}
