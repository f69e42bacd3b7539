//! INSERT, UPDATE, DELETE, BATCH, TRUNCATE and USE.

use std::fmt::{self, Display, Formatter};

use super::select::where_clause;
use super::{Name, clause, list, maybe, names, separated, when};
use crate::ast::{
    Assignment, Attributes, Batch, BatchKind, Conditions, Delete, Insert, InsertValues, Modification, Operation,
    Target, Term, Truncate, Update, Use,
};

impl Display for Insert {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "INSERT INTO {} ", self.table)?;
        match &self.values {
            InsertValues::Columns { columns, values } => {
                f.write_str("(")?;
                names(f, columns)?;
                f.write_str(") VALUES (")?;
                list(f, values)?;
                f.write_str(")")?;
            }
            InsertValues::Json { value, default_unset } => {
                write!(f, "JSON {value}{}", when(*default_unset, " DEFAULT UNSET"))?;
            }
        }
        write!(f, "{}{}", when(self.if_not_exists, " IF NOT EXISTS"), self.attributes)
    }
}

impl Display for Attributes {
    /// ` USING …` with the space before it, or nothing. Bind markers keep the order they have in the statement.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut given: Vec<(&str, &Term)> = [
            ("TIMESTAMP", &self.timestamp),
            ("TTL", &self.ttl),
            ("TIMEOUT", &self.timeout),
        ]
        .into_iter()
        .filter_map(|(word, value)| value.as_ref().map(|value| (word, value)))
        .collect();
        given.sort_by_key(|(_, value)| match value {
            Term::BindMarker(marker) => Some(marker.index),
            _ => None,
        });
        if given.is_empty() {
            return Ok(());
        }
        f.write_str(" USING ")?;
        separated(f, " AND ", &given, |f, (word, value)| write!(f, "{word} {value}"))
    }
}

impl Display for Update {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "UPDATE {}{} SET ", self.table, self.attributes)?;
        list(f, &self.assignments)?;
        where_clause(f, &self.relations)?;
        self.conditions.fmt(f)
    }
}

impl Display for Assignment {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let target = &self.target;
        match &self.operation {
            Operation::Set(value) => write!(f, "{target} = {value}"),
            Operation::Add(value) => write!(f, "{target} = {target} + {value}"),
            Operation::Subtract(value) => write!(f, "{target} = {target} - {value}"),
            Operation::Prepend(value) => write!(f, "{target} = {value} + {target}"),
        }
    }
}

impl Display for Target {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Target::Column(column) => Name(column).fmt(f),
            Target::Element { column, key } => write!(f, "{}[{key}]", Name(column)),
            Target::Field { column, field } => write!(f, "{}.{}", Name(column), Name(field)),
        }
    }
}

impl Display for Conditions {
    /// ` IF …` with the space before it, or nothing.
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Conditions::None => Ok(()),
            Conditions::Exists => f.write_str(" IF EXISTS"),
            Conditions::All(conditions) => {
                f.write_str(" IF ")?;
                separated(f, " AND ", conditions, |f, condition| condition.fmt(f))
            }
        }
    }
}

impl Display for Delete {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("DELETE ")?;
        list(f, &self.targets)?;
        write!(
            f,
            "{}FROM {}{}",
            when(!self.targets.is_empty(), " "),
            self.table,
            self.attributes
        )?;
        where_clause(f, &self.relations)?;
        self.conditions.fmt(f)?;
        f.write_str(when(
            self.bypasses_large_data_guardrails,
            " BYPASS LARGE_DATA_GUARDRAILS",
        ))
    }
}

impl Display for Batch {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            BatchKind::Logged => "",
            BatchKind::Unlogged => "UNLOGGED ",
            BatchKind::Counter => "COUNTER ",
        };
        write!(f, "BEGIN {kind}BATCH{}", self.attributes)?;
        for statement in &self.statements {
            write!(f, " {statement};")?;
        }
        f.write_str(" APPLY BATCH")
    }
}

impl Display for Modification {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Modification::Insert(insert) => insert.fmt(f),
            Modification::Update(update) => update.fmt(f),
            Modification::Delete(delete) => delete.fmt(f),
        }
    }
}

impl Display for Truncate {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "TRUNCATE {}", self.table)?;
        clause(f, "USING TIMEOUT", maybe(&self.timeout))
    }
}

impl Display for Use {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "USE {}", Name(&self.keyspace))
    }
}
