//! Secondary indexes of a table, as DDL declared them. See docs/dev/indexes.md.

use std::collections::BTreeMap;

use types::analyzer::{Analyzer, Case};
use types::quote_identifier;

use crate::table::Table;

/// An index's number in its table. Never given again, so a file of a dropped index is never taken for one of another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IndexId(pub u32);

/// What of its column an index covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexPart {
    /// The value of a column that is no collection.
    Value,
    /// The keys of a map.
    Keys,
    /// The elements of a list or set, or the values of a map.
    Values,
    /// The pairs of key and value of a map.
    Entries,
    /// The whole of a frozen collection.
    Full,
}

/// As which kind of index it was declared. All of them are local indexes of one form; the kind says which statements
/// they answer, and how they are shown.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IndexKind {
    /// `CREATE INDEX`, or `USING 'legacy_local_table'`.
    Legacy,
    /// `USING 'sai'`.
    Sai,
    /// `USING 'org.apache.cassandra.index.sasi.SASIIndex'`.
    Sasi,
    /// ScyllaDB's `ON t ((pk), c)`.
    Local,
}

/// An index of a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Index {
    /// Its number in its table.
    pub id: IndexId,
    /// Its name, which no other index of the keyspace has.
    pub name: String,
    /// The name of the column.
    pub column: String,
    /// What of the column is covered.
    pub part: IndexPart,
    /// As what it was declared.
    pub kind: IndexKind,
    /// USING, as the statement spelled it; None: the kind's own name.
    pub class: Option<String>,
    /// WITH OPTIONS, as the statement gave them: without the target and the class.
    pub options: BTreeMap<String, String>,
}

impl IndexKind {
    /// The class of Cassandra that such an index is declared with; None: it is declared without one.
    #[must_use]
    pub const fn class_name(self) -> Option<&'static str> {
        match self {
            Self::Sai => Some("sai"),
            Self::Sasi => Some("org.apache.cassandra.index.sasi.SASIIndex"),
            Self::Legacy | Self::Local => None,
        }
    }
}

impl IndexPart {
    /// What is indexed of a column, as CREATE INDEX writes it: `"Mix"`, `values(c)`, `full(c)`.
    #[must_use]
    pub fn of_column(self, column: &str) -> String {
        let name = quote_identifier(column);
        match self {
            Self::Value => name,
            Self::Keys => format!("keys({name})"),
            Self::Values => format!("values({name})"),
            Self::Entries => format!("entries({name})"),
            Self::Full => format!("full({name})"),
        }
    }
}

/// What SASI's `DelimiterAnalyzer` cuts texts at without the option `delimiter`.
const DELIMITER: char = ',';

impl Index {
    /// What it makes of a text before it compares it.
    #[must_use]
    pub fn analyzer(&self) -> Analyzer {
        let option = |name: &str| self.options.get(name).map(|value| value.eq_ignore_ascii_case("true"));
        let is_true = |name: &str| option(name) == Some(true);
        let is_caseless = option("case_sensitive") == Some(false);
        let of_case = |is_lower: bool, is_upper: bool| match (is_lower, is_upper) {
            (true, _) => Case::Lower,
            (false, true) => Case::Upper,
            (false, false) => Case::Kept,
        };
        match self.kind {
            IndexKind::Sai => Analyzer {
                case: of_case(is_caseless, false),
                normalizes: is_true("normalize"),
                folds_to_ascii: is_true("ascii"),
                delimiter: None,
            },
            IndexKind::Sasi => {
                let class = self.options.get("analyzer_class");
                let is_class =
                    |name: &str| option("analyzed") != Some(false) && class.is_some_and(|class| class.ends_with(name));
                if is_class(".DelimiterAnalyzer") {
                    let delimiter = self.options.get("delimiter").and_then(|text| text.chars().next());
                    return Analyzer {
                        delimiter: delimiter.or(Some(DELIMITER)),
                        ..Analyzer::PLAIN
                    };
                }
                if !is_class(".NonTokenizingAnalyzer") {
                    return Analyzer::PLAIN;
                }
                Analyzer {
                    case: of_case(
                        is_caseless || is_true("normalize_lowercase"),
                        is_true("normalize_uppercase"),
                    ),
                    ..Analyzer::PLAIN
                }
            }
            IndexKind::Legacy | IndexKind::Local => Analyzer::PLAIN,
        }
    }

    /// The class that DESCRIBE and `system_schema.indexes` show; None: there is none.
    #[must_use]
    pub fn class_name(&self) -> Option<&str> {
        let usual = self.kind.class_name()?;
        Some(self.class.as_deref().unwrap_or(usual))
    }

    /// What is indexed, as CREATE INDEX writes it between the parentheses. That of a local index begins with the
    /// partition key of its table: `(pk), c`.
    #[must_use]
    pub fn target(&self, table: &Table) -> String {
        let target = self.part.of_column(&self.column);
        if self.kind != IndexKind::Local {
            return target;
        }
        let key: Vec<String> = table.partition_key().map(|c| quote_identifier(&c.name)).collect();
        format!("({}), {target}", key.join(", "))
    }
}
