//! Classes of secondary indexes and their options.
//!
//! Every index has the same form; its class says which statements it answers. So an option about the form has no
//! effect, and its user is warned. An option without which other rows would be found is refused.

use std::collections::{BTreeMap, BTreeSet};

use schema::{Column, ColumnKind, Index, IndexKind, IndexPart, Table};
use types::CqlType;

use crate::IndexClass;
use crate::error::DdlError;

/// Names of Cassandra's storage-attached index, in lower case; the full one is written as it is.
const SAI_ALIASES: [&str; 2] = ["sai", "storageattachedindex"];
const SAI: &str = "org.apache.cassandra.index.sai.StorageAttachedIndex";
/// The options of SAI that change how a text is compared.
const SAI_ANALYSIS: [&str; 3] = ["case_sensitive", "normalize", "ascii"];
/// The options of SAI for vectors.
const SAI_VECTOR: [&str; 4] = [
    "construction_beam_width",
    "maximum_node_connections",
    "optimize_for",
    "similarity_function",
];
const ANALYZER_PACKAGE: &str = "org.apache.cassandra.index.sasi.analyzer.";
/// Options of SASI about texts, for NonTokenizingAnalyzer.
const SASI_CASE: [&str; 3] = ["case_sensitive", "normalize_lowercase", "normalize_uppercase"];

/// An index that is to be made.
pub(crate) struct NewIndex<'a> {
    pub(crate) table: &'a Table,
    pub(crate) name: &'a str,
    pub(crate) targets: &'a [(&'a Column, IndexPart)],
    pub(crate) class: &'a IndexClass,
}

impl NewIndex<'_> {
    /// What is indexed, as the statement says it.
    pub(crate) fn target(&self) -> String {
        let targets = self.targets.iter().map(|(column, part)| part.of_column(&column.name));
        targets.collect::<Vec<_>>().join(", ")
    }

    /// Whether it is the same as one that there is, but for the name.
    pub(crate) fn equals(&self, index: &Index) -> bool {
        let has_target = match self.targets {
            [(column, part)] => column.name == index.column && *part == index.part,
            _ => false,
        };
        has_target
            && match self.class {
                IndexClass::Legacy => index.kind == IndexKind::Legacy,
                IndexClass::Local(_) => index.kind == IndexKind::Local,
                IndexClass::Custom { name, options } => {
                    index.class_name() == Some(name.as_str()) && index.options == *options
                }
            }
    }
}

/// The kind that a class is; None: there is no such class.
fn kind_of(class: &str) -> Option<IndexKind> {
    if class == SAI || SAI_ALIASES.iter().any(|alias| class.eq_ignore_ascii_case(alias)) {
        Some(IndexKind::Sai)
    } else if Some(class) == IndexKind::Sasi.class_name() {
        Some(IndexKind::Sasi)
    } else {
        None
    }
}

/// Checks the class of an index and its options. Returns the kind, and what the client is warned of.
///
/// # Errors
/// When there is no such class, or an option of it is wrong or does not fit the column.
pub(crate) fn check(new: &NewIndex<'_>) -> Result<(IndexKind, Vec<String>), DdlError> {
    let (class, options) = match new.class {
        IndexClass::Legacy => return Ok((IndexKind::Legacy, Vec::new())),
        IndexClass::Local(_) => return Ok((IndexKind::Local, Vec::new())),
        IndexClass::Custom { name, options } => (name, options),
    };
    match kind_of(class) {
        Some(IndexKind::Sai) => {
            check_sai(new, options)?;
            Ok((IndexKind::Sai, Vec::new()))
        }
        Some(kind) => Ok((kind, check_sasi(new, options)?)),
        None => Err(DdlError::Config(format!(
            "Unable to find custom indexer class '{class}'"
        ))),
    }
}

fn check_sai(new: &NewIndex<'_>, options: &BTreeMap<String, String>) -> Result<(), DdlError> {
    let is_known = |name: &str| SAI_ANALYSIS.contains(&name) || SAI_VECTOR.contains(&name);
    let unknown: Vec<&str> = options
        .keys()
        .map(String::as_str)
        .filter(|name| !is_known(name))
        .collect();
    if !unknown.is_empty() {
        return Err(DdlError::Config(format!(
            "Properties specified [{}] are not understood by StorageAttachedIndex",
            unknown.join(", ")
        )));
    }
    let (column, part) = match new.targets {
        [target] => *target,
        [] => return Err(DdlError::invalid("Failed to retrieve target column for: ")),
        _ => {
            return Err(DdlError::Invalid(format!(
                "A storage-attached index cannot be created over multiple columns: {}",
                new.target()
            )));
        }
    };
    let is_same = |other: &Index| other.kind == IndexKind::Sai && other.column == column.name && other.part == part;
    if new.table.indexes.iter().any(is_same) {
        return Err(DdlError::Invalid(format!(
            "Cannot create more than one storage-attached index on the same column: {}",
            column.name
        )));
    }
    check_analysis(column, part, options)?;
    let is_vector = matches!(column.cql_type, CqlType::Vector(..));
    if !is_vector && options.keys().any(|name| SAI_VECTOR.contains(&name.as_str())) {
        return Err(DdlError::Invalid(format!(
            "CQL type {} cannot have vector options",
            column.cql_type
        )));
    }
    if let CqlType::Vector(element, _) = &column.cql_type {
        return Err(DdlError::Invalid(if **element == CqlType::Float {
            format!(
                "Cannot create a vector index on column {}: they are not supported yet",
                column.name
            )
        } else {
            "SAI ANN indexes are only allowed on vector columns with float elements".to_owned()
        }));
    }
    let is_unsupported = |cql_type: &&CqlType| matches!(cql_type, CqlType::Blob | CqlType::Empty);
    match indexed_types(&column.cql_type, part).into_iter().find(is_unsupported) {
        Some(cql_type) => Err(DdlError::Invalid(format!("Unsupported type: {cql_type}"))),
        None => Ok(()),
    }
}

/// The types of what is indexed: one, or those of key and value.
fn indexed_types(cql_type: &CqlType, part: IndexPart) -> Vec<&CqlType> {
    match (cql_type, part) {
        (CqlType::Map(key, _), IndexPart::Keys) => vec![&**key],
        (CqlType::Map(_, value), IndexPart::Values) => vec![&**value],
        (CqlType::Map(key, value), IndexPart::Entries) => vec![&**key, &**value],
        (CqlType::List(element) | CqlType::Set(element), IndexPart::Values) => vec![&**element],
        (whole, _) => vec![whole],
    }
}

/// Checks the options of SAI that change how a text is compared.
fn check_analysis(column: &Column, part: IndexPart, options: &BTreeMap<String, String>) -> Result<(), DdlError> {
    if !SAI_ANALYSIS.iter().any(|name| options.contains_key(*name)) {
        return Ok(());
    }
    if matches!(column.kind, ColumnKind::PartitionKey | ColumnKind::Clustering) {
        let pairs: Vec<String> = options
            .iter()
            .map(|(name, value)| format!("'{name}': '{value}'"))
            .collect();
        return Err(DdlError::Invalid(format!(
            "Analysis options are not supported on primary key columns, but found {{{}}}",
            pairs.join(", ")
        )));
    }
    let name = match indexed_types(&column.cql_type, part).as_slice() {
        [CqlType::Text | CqlType::Ascii] => None,
        [one] => Some(one.to_string()),
        several => {
            let names: Vec<String> = several.iter().map(|cql_type| cql_type.marshal_name()).collect();
            Some(format!(
                "'org.apache.cassandra.db.marshal.CompositeType({})'",
                names.join(",")
            ))
        }
    };
    if let Some(name) = name {
        return Err(DdlError::Invalid(format!("CQL type {name} cannot be analyzed.")));
    }
    for name in SAI_ANALYSIS {
        match options.get(name).map(|value| value.to_ascii_lowercase()).as_deref() {
            None | Some("true" | "false") => {}
            Some("") => return Err(DdlError::Invalid(format!("Empty value for boolean option '{name}'"))),
            Some(_) => {
                return Err(DdlError::Invalid(format!(
                    "Illegal value for boolean option '{name}': {}",
                    options[name]
                )));
            }
        }
    }
    Ok(())
}

/// Returns what has no effect.
fn check_sasi(new: &NewIndex<'_>, options: &BTreeMap<String, String>) -> Result<Vec<String>, DdlError> {
    let refused = |why: String| Err(DdlError::Config(why));
    let [(column, _)] = new.targets else {
        return refused(format!("failed to retrieve target column for: {}", new.target()));
    };
    if column.cql_type.is_multi_cell() {
        return refused("complex columns are not yet supported by SASI".to_owned());
    }
    if column.kind == ColumnKind::PartitionKey {
        return refused("partition key columns are not yet supported by SASI".to_owned());
    }
    let is_true = |name: &str| options.get(name).map(|value| value.eq_ignore_ascii_case("true"));
    let is_text = matches!(column.cql_type, CqlType::Text | CqlType::Ascii);
    let class = options.get("analyzer_class");
    let analyzer = class.map(|class| analyzer(class, column)).transpose()?;
    let is_analyzed = is_true("analyzed").unwrap_or(class.is_some());
    let has_case = match analyzer {
        Some(Analyzer::NonTokenizing) => {
            check_case(options)?;
            true
        }
        Some(Analyzer::Delimiter) => {
            let delimiter = options.get("delimiter");
            if let Some(given) = delimiter.filter(|given| given.chars().count() != 1) {
                return refused(format!("option delimiter: expected one character, got '{given}'"));
            }
            false
        }
        Some(Analyzer::NoOp) => false,
        // What Cassandra takes where no class is given.
        None if is_analyzed && is_text => return Err(tokens_refused("StandardAnalyzer")),
        None => false,
    };
    let mode = options.get("mode").map(|mode| mode.to_ascii_uppercase());
    match mode.as_deref() {
        None | Some("PREFIX" | "CONTAINS") => {}
        Some("SPARSE") if is_true("is_literal").unwrap_or(is_text) => {
            return refused("SPARSE mode is only supported on non-literal columns.".to_owned());
        }
        Some("SPARSE") if is_analyzed => return refused("SPARSE mode doesn't support analyzers.".to_owned()),
        Some("SPARSE") => {}
        Some(_) => return refused(format!("Incorrect index mode: {}", options["mode"])),
    }
    let memory = options.get("max_compaction_flush_memory_in_mb");
    if memory.is_some_and(|memory| memory.parse::<i64>().is_err()) {
        let mut all: BTreeSet<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.insert(format!(
            "class_name={}",
            IndexKind::Sasi.class_name().unwrap_or_default()
        ));
        all.insert(format!("target={}", new.target()));
        let all = Vec::from_iter(all).join(", ");
        return refused(format!("Failed to validate custom indexer options: {{{all}}}"));
    }
    let why_without_effect = |name: &str| match name {
        "mode" if mode.as_deref() == Some("SPARSE") => {
            Some("an index has one form for many rows of a value and for few")
        }
        "mode" | "analyzer_class" | "analyzed" => None,
        "delimiter" if matches!(analyzer, Some(Analyzer::Delimiter)) && is_analyzed => None,
        "max_compaction_flush_memory_in_mb" => Some("index files are written with their sstables"),
        "is_literal" => Some("the column's type says whether LIKE may be asked"),
        name if SASI_CASE.contains(&name) && has_case && is_analyzed => None,
        name if SASI_CASE.contains(&name) => {
            Some("it is an option of NonTokenizingAnalyzer, and texts are not analyzed")
        }
        _ => Some("SASI has no such option"),
    };
    let warning = |(name, value): (&String, &String)| {
        let why = why_without_effect(name)?;
        Some(format!("{name} = '{value}' has no effect on index {}: {why}", new.name))
    };
    Ok(options.iter().filter_map(warning).collect())
}

/// What SASI makes of a text before it is compared.
enum Analyzer {
    /// A text in one case.
    NonTokenizing,
    /// The parts of a text between one character.
    Delimiter,
    /// The text as it is.
    NoOp,
}

fn analyzer(class: &str, column: &Column) -> Result<Analyzer, DdlError> {
    let is_text = matches!(column.cql_type, CqlType::Text | CqlType::Ascii);
    let name = class.strip_prefix(ANALYZER_PACKAGE);
    match name {
        Some("NoOpAnalyzer") => Ok(Analyzer::NoOp),
        Some(name @ ("NonTokenizingAnalyzer" | "StandardAnalyzer" | "DelimiterAnalyzer")) if !is_text => Err(
            DdlError::Config(format!("{name} does not support type {}", column.cql_type)),
        ),
        Some("NonTokenizingAnalyzer") => Ok(Analyzer::NonTokenizing),
        Some("DelimiterAnalyzer") => Ok(Analyzer::Delimiter),
        Some(name @ "StandardAnalyzer") => Err(tokens_refused(name)),
        _ => Err(DdlError::Config(format!(
            "Invalid analyzer class option specified [{class}]"
        ))),
    }
}

/// An index of whole texts would not find what one of their words finds: StandardAnalyzer cuts by language.
fn tokens_refused(analyzer: &str) -> DdlError {
    DdlError::Config(format!(
        "{analyzer} is not supported: texts are indexed whole, not by their words"
    ))
}

fn check_case(options: &BTreeMap<String, String>) -> Result<(), DdlError> {
    let has = |name: &str| options.contains_key(name);
    if has("case_sensitive") && (has("normalize_lowercase") || has("normalize_uppercase")) {
        return Err(DdlError::Config(
            "case_sensitive option cannot be specified together with either normalize_lowercase or normalize_uppercase"
                .to_owned(),
        ));
    }
    let is_true = |name: &str| {
        options
            .get(name)
            .is_some_and(|value| value.eq_ignore_ascii_case("true"))
    };
    if is_true("normalize_lowercase") && is_true("normalize_uppercase") {
        return Err(DdlError::Config(
            "normalize_lowercase and normalize_uppercase cannot both be true".to_owned(),
        ));
    }
    Ok(())
}
