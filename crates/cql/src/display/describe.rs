//! DESCRIBE.

use std::fmt::{self, Display, Formatter};

use super::{Name, when};
use crate::ast::{Describe, DescribeSubject};
use crate::keyword::{COLUMN_FAMILIES, Keyword, keyword};
use crate::quote::quoted;

impl Display for Describe {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "DESCRIBE {}{}",
            self.subject,
            when(self.with_internals, " WITH INTERNALS")
        )
    }
}

impl Display for DescribeSubject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            DescribeSubject::Cluster => f.write_str("CLUSTER"),
            DescribeSubject::Schema { full } => write!(f, "{}SCHEMA", when(*full, "FULL ")),
            DescribeSubject::Keyspaces => f.write_str("KEYSPACES"),
            DescribeSubject::Keyspace { only, name } => {
                write!(f, "{}KEYSPACE", when(*only, "ONLY "))?;
                match name {
                    Some(name) => write!(f, " {}", Name(name)),
                    None => Ok(()),
                }
            }
            DescribeSubject::Tables => f.write_str("TABLES"),
            DescribeSubject::Table(name) => write!(f, "TABLE {name}"),
            DescribeSubject::Index(name) => write!(f, "INDEX {name}"),
            DescribeSubject::MaterializedView(name) => write!(f, "MATERIALIZED VIEW {name}"),
            DescribeSubject::Types => f.write_str("TYPES"),
            DescribeSubject::Type(name) => write!(f, "TYPE {name}"),
            DescribeSubject::Functions => f.write_str("FUNCTIONS"),
            DescribeSubject::Function(name) => write!(f, "FUNCTION {name}"),
            DescribeSubject::Aggregates => f.write_str("AGGREGATES"),
            DescribeSubject::Aggregate(name) => write!(f, "AGGREGATE {name}"),
            // In quotes, because most words of DESCRIBE are names too.
            DescribeSubject::Any(name) => {
                if let Some(keyspace) = &name.keyspace {
                    write!(f, "{}.", Any(keyspace))?;
                }
                Any(&name.name).fmt(f)
            }
        }
    }
}

/// A name that is quoted when it is any keyword, or is one after DESCRIBE.
struct Any<'a>(&'a str);

impl Display for Any<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match keyword(self.0.as_bytes()) {
            Keyword::None if self.0 != COLUMN_FAMILIES => Name(self.0).fmt(f),
            _ => f.write_str(&quoted(self.0)),
        }
    }
}
