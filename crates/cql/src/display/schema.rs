//! CREATE, ALTER and DROP of everything in the schema.

use std::fmt::{self, Display, Formatter};

use super::select::where_clause;
use super::term::FunctionName;
use super::{Name, bracketed, conjunction, entries_of, list, maybe, names, separated, when};
use crate::ast::{
    AlterKeyspace, AlterMaterializedView, AlterTable, AlterType, ClusteringOrder, ColumnDefinition, ColumnMask,
    CreateAggregate, CreateFunction, CreateIndex, CreateKeyspace, CreateMaterializedView, CreateTable, CreateTableLike,
    CreateTrigger, CreateType, DropAggregate, DropFunction, DropIndex, DropKeyspace, DropMaterializedView, DropTable,
    DropTrigger, DropType, FieldDefinition, IndexTarget, MapValue, PrimaryKey, Property, PropertyValue, Signature,
    TableChange, TableOptions, TypeChange,
};
use crate::quote::quote_string;

const IF_EXISTS: &str = "IF EXISTS ";
const IF_NOT_EXISTS: &str = "IF NOT EXISTS ";

// --- Properties ------------------------------------------------------------------------------------------------------

impl Display for Property {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", Name(&self.name), self.value)
    }
}

impl Display for PropertyValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            PropertyValue::Literal(literal) => literal.fmt(f),
            PropertyValue::Keyword(word) => f.write_str(word),
            PropertyValue::Map(entries) => entries_of(f, entries),
        }
    }
}

impl Display for MapValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            MapValue::Literal(literal) => literal.fmt(f),
            MapValue::List(items) => bracketed(f, "[]", |f| separated(f, ", ", items, |f, item| item.fmt(f))),
        }
    }
}

/// ` WITH a = 1 AND …`, or nothing.
fn with(f: &mut Formatter<'_>, properties: &[Property]) -> fmt::Result {
    conjunction(f, "WITH", properties)
}

// --- Keyspaces -------------------------------------------------------------------------------------------------------

impl Display for CreateKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE KEYSPACE {}{}",
            when(self.if_not_exists, IF_NOT_EXISTS),
            Name(&self.name)
        )?;
        with(f, &self.properties)
    }
}

impl Display for AlterKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ALTER KEYSPACE {}{}",
            when(self.if_exists, IF_EXISTS),
            Name(&self.name)
        )?;
        with(f, &self.properties)
    }
}

impl Display for DropKeyspace {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP KEYSPACE {}{}",
            when(self.if_exists, IF_EXISTS),
            Name(&self.name)
        )
    }
}

// --- Tables ----------------------------------------------------------------------------------------------------------

impl Display for CreateTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE TABLE {}{} (",
            when(self.if_not_exists, IF_NOT_EXISTS),
            self.table
        )?;
        list(f, &self.columns)?;
        for (index, key) in self.primary_keys.iter().enumerate() {
            write!(
                f,
                "{}PRIMARY KEY {key}",
                when(index > 0 || !self.columns.is_empty(), ", ")
            )?;
        }
        write!(f, "){}", self.options)
    }
}

impl Display for CreateTableLike {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE TABLE {}{} LIKE {}",
            when(self.if_not_exists, IF_NOT_EXISTS),
            self.table,
            self.source
        )?;
        if !self.has_indexes {
            return with(f, &self.properties);
        }
        f.write_str(" WITH INDEXES")?;
        conjunction(f, "AND", &self.properties)
    }
}

impl Display for ColumnDefinition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}{}{}",
            Name(&self.name),
            self.type_name,
            when(self.is_static, " STATIC"),
            when(self.is_row_ttl, " TTL")
        )?;
        match &self.mask {
            Some(mask) => write!(f, " {mask}"),
            None => Ok(()),
        }
    }
}

impl Display for ColumnMask {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            ColumnMask::Default => f.write_str("MASKED WITH DEFAULT"),
            ColumnMask::Function(function) => write!(f, "MASKED WITH {function}"),
        }
    }
}

impl Display for PrimaryKey {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("(")?;
        match &self.partition[..] {
            [only] => Name(only).fmt(f)?,
            several => {
                f.write_str("(")?;
                names(f, several)?;
                f.write_str(")")?;
            }
        }
        for column in &self.clustering {
            write!(f, ", {}", Name(column))?;
        }
        f.write_str(")")
    }
}

impl Display for TableOptions {
    /// ` WITH …` with the space before it, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut lead = " WITH ";
        if self.compact_storage {
            write!(f, "{lead}COMPACT STORAGE")?;
            lead = " AND ";
        }
        if !self.clustering_order.is_empty() {
            write!(f, "{lead}CLUSTERING ORDER BY (")?;
            list(f, &self.clustering_order)?;
            f.write_str(")")?;
            lead = " AND ";
        }
        for property in &self.properties {
            write!(f, "{lead}{property}")?;
            lead = " AND ";
        }
        Ok(())
    }
}

impl Display for ClusteringOrder {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} {}",
            Name(&self.column),
            if self.descending { "DESC" } else { "ASC" }
        )
    }
}

impl Display for AlterTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ALTER TABLE {}{}{}",
            when(self.if_exists, IF_EXISTS),
            self.table,
            self.change
        )
    }
}

impl Display for TableChange {
    /// The change with a space before it.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            TableChange::Add { if_not_exists, columns } => {
                write!(f, " ADD {}", when(*if_not_exists, IF_NOT_EXISTS))?;
                match &columns[..] {
                    [only] => only.fmt(f),
                    several => bracketed(f, "()", |f| list(f, several)),
                }
            }
            TableChange::Drop {
                if_exists,
                columns,
                timestamp,
            } => {
                write!(f, " DROP {}(", when(*if_exists, IF_EXISTS))?;
                names(f, columns)?;
                f.write_str(")")?;
                super::clause(f, "USING TIMESTAMP", maybe(timestamp))
            }
            TableChange::Rename { if_exists, columns } => {
                write!(f, " RENAME {}", when(*if_exists, IF_EXISTS))?;
                renames(f, columns)
            }
            TableChange::AlterType {
                if_exists,
                column,
                type_name,
            } => {
                write!(
                    f,
                    " ALTER {}{} TYPE {type_name}",
                    when(*if_exists, IF_EXISTS),
                    Name(column)
                )
            }
            TableChange::AlterMask {
                if_exists,
                column,
                mask,
            } => {
                write!(f, " ALTER {}{}", when(*if_exists, IF_EXISTS), Name(column))?;
                match mask {
                    Some(mask) => write!(f, " {mask}"),
                    None => f.write_str(" DROP MASKED"),
                }
            }
            TableChange::Properties(properties) => with(f, properties),
            TableChange::DropCompactStorage => f.write_str(" DROP COMPACT STORAGE"),
            TableChange::RowTtl(Some(column)) => write!(f, " TTL {}", Name(column)),
            TableChange::RowTtl(None) => f.write_str(" TTL NULL"),
        }
    }
}

fn renames(f: &mut Formatter<'_>, pairs: &[(String, String)]) -> fmt::Result {
    separated(f, " AND ", pairs, |f, (old, new)| {
        write!(f, "{} TO {}", Name(old), Name(new))
    })
}

impl Display for DropTable {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TABLE {}{}", when(self.if_exists, IF_EXISTS), self.table)
    }
}

// --- User-defined types ----------------------------------------------------------------------------------------------

impl Display for CreateType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE TYPE {}{} (",
            when(self.if_not_exists, IF_NOT_EXISTS),
            self.name
        )?;
        list(f, &self.fields)?;
        f.write_str(")")
    }
}

impl Display for FieldDefinition {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", Name(&self.name), self.type_name)
    }
}

impl Display for AlterType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "ALTER TYPE {}{} ", when(self.if_exists, IF_EXISTS), self.name)?;
        match &self.change {
            TypeChange::Add { if_not_exists, field } => {
                write!(f, "ADD {}{field}", when(*if_not_exists, IF_NOT_EXISTS))
            }
            TypeChange::Rename { if_exists, fields } => {
                write!(f, "RENAME {}", when(*if_exists, IF_EXISTS))?;
                renames(f, fields)
            }
            TypeChange::Alter(field) => write!(f, "ALTER {} TYPE {}", Name(&field.name), field.type_name),
        }
    }
}

impl Display for DropType {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP TYPE {}{}", when(self.if_exists, IF_EXISTS), self.name)
    }
}

// --- Secondary indexes and materialized views ------------------------------------------------------------------------

impl Display for CreateIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "CREATE {}INDEX {}",
            when(self.custom, "CUSTOM "),
            when(self.if_not_exists, IF_NOT_EXISTS)
        )?;
        if let Some(name) = &self.name {
            write!(f, "{} ", Name(name))?;
        }
        write!(f, "ON {} (", self.table)?;
        list(f, &self.targets)?;
        f.write_str(")")?;
        if let Some(class) = &self.using {
            write!(f, " USING {}", quote_string(class))?;
        }
        with(f, &self.properties)
    }
}

impl Display for IndexTarget {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            IndexTarget::Column(column) => Name(column).fmt(f),
            IndexTarget::Values(column) => write!(f, "values({})", Name(column)),
            IndexTarget::Keys(column) => write!(f, "keys({})", Name(column)),
            IndexTarget::Entries(column) => write!(f, "entries({})", Name(column)),
            IndexTarget::Full(column) => write!(f, "full({})", Name(column)),
            IndexTarget::PartitionKey(columns) => bracketed(f, "()", |f| names(f, columns)),
        }
    }
}

impl Display for DropIndex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP INDEX {}{}", when(self.if_exists, IF_EXISTS), self.name)
    }
}

impl Display for CreateMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let condition = when(self.if_not_exists, IF_NOT_EXISTS);
        write!(
            f,
            "CREATE MATERIALIZED VIEW {condition}{} AS SELECT {}",
            self.name, self.selection
        )?;
        write!(f, " FROM {}", self.base_table)?;
        where_clause(f, &self.relations)?;
        write!(f, " PRIMARY KEY {}{}", self.primary_key, self.options)
    }
}

impl Display for AlterMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ALTER MATERIALIZED VIEW {}{}",
            when(self.if_exists, IF_EXISTS),
            self.name
        )?;
        with(f, &self.properties)
    }
}

impl Display for DropMaterializedView {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP MATERIALIZED VIEW {}{}",
            when(self.if_exists, IF_EXISTS),
            self.name
        )
    }
}

// --- Functions, aggregates, triggers ---------------------------------------------------------------------------------

impl Display for CreateFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (replace, condition) = (
            when(self.or_replace, "OR REPLACE "),
            when(self.if_not_exists, IF_NOT_EXISTS),
        );
        write!(f, "CREATE {replace}FUNCTION {condition}{} (", FunctionName(&self.name))?;
        list(f, &self.arguments)?;
        let on_null = if self.called_on_null { "CALLED" } else { "RETURNS NULL" };
        write!(
            f,
            ") {on_null} ON NULL INPUT RETURNS {} LANGUAGE {}",
            self.return_type,
            Name(&self.language)
        )?;
        write!(f, " AS {}", quote_string(&self.body))
    }
}

impl Display for DropFunction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "DROP FUNCTION {}{}", when(self.if_exists, IF_EXISTS), self.signature)
    }
}

impl Display for Signature {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        FunctionName(&self.name).fmt(f)?;
        match &self.argument_types {
            Some(types) => {
                f.write_str(" (")?;
                list(f, types)?;
                f.write_str(")")
            }
            None => Ok(()),
        }
    }
}

impl Display for CreateAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (replace, condition) = (
            when(self.or_replace, "OR REPLACE "),
            when(self.if_not_exists, IF_NOT_EXISTS),
        );
        write!(f, "CREATE {replace}AGGREGATE {condition}{} (", FunctionName(&self.name))?;
        list(f, &self.argument_types)?;
        write!(f, ") SFUNC {} STYPE {}", Name(&self.state_function), self.state_type)?;
        if let Some(function) = &self.reduce_function {
            write!(f, " REDUCEFUNC {}", Name(function))?;
        }
        if let Some(function) = &self.final_function {
            write!(f, " FINALFUNC {}", Name(function))?;
        }
        super::clause(f, "INITCOND", maybe(&self.initial_state))
    }
}

impl Display for DropAggregate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP AGGREGATE {}{}",
            when(self.if_exists, IF_EXISTS),
            self.signature
        )
    }
}

impl Display for CreateTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let condition = when(self.if_not_exists, IF_NOT_EXISTS);
        write!(
            f,
            "CREATE TRIGGER {condition}{} ON {} USING {}",
            Name(&self.name),
            self.table,
            quote_string(&self.class)
        )
    }
}

impl Display for DropTrigger {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DROP TRIGGER {}{} ON {}",
            when(self.if_exists, IF_EXISTS),
            Name(&self.name),
            self.table
        )
    }
}
