//! The tables of the bench, its statements, and the values that they bind.

use super::{Scan, Values, Workload};

/// Bytes of each blob.
const BLOB_BYTES: usize = 34;
/// Blobs or counters of a row.
const COLUMNS: usize = 5;
/// Elements of the map.
const ELEMENTS: usize = 16;
/// Fields of the user-defined type.
const FIELDS: usize = 8;
/// Rows of a partition of the table that is scanned.
pub(super) const ROWS: usize = 100;

/// What is measured of what table.
pub(super) struct Statements {
    /// The keyspace's types and table.
    pub(super) made_by: Vec<String>,
    /// The table's name.
    pub(super) table: &'static str,
    /// The statement that is measured; each `{n}` is replaced by a new number each time.
    pub(super) measured: String,
    /// What it binds before the key.
    pub(super) bound: Option<Vec<u8>>,
    /// The statement that writes one row.
    pub(super) fill: String,
    /// What that binds before the key, for each row of a partition.
    pub(super) filled: Vec<Option<Vec<u8>>>,
}

impl Statements {
    pub(super) fn of(workload: Workload, values: Values) -> Self {
        match workload {
            Workload::Scan(scan) => Self::of_scan(scan),
            _ => Self::of_rows(workload, values),
        }
    }

    /// With secondary indexes on the first columns of the table.
    pub(super) fn with_indexes(mut self, indexes: u32) -> Self {
        let create = |i: u32| format!("CREATE INDEX ON ks.{} (\"C{i}\")", self.table);
        self.made_by.extend((0..indexes).map(create).collect::<Vec<_>>());
        self
    }

    fn of_rows(workload: Workload, values: Values) -> Self {
        let names: Vec<String> = match values {
            Values::Blobs | Values::Counters => (0..COLUMNS).map(|i| format!("\"C{i}\"")).collect(),
            Values::Map | Values::Udt => vec!["v".to_owned()],
        };
        let value_type = match values {
            Values::Blobs => "blob",
            Values::Counters => "counter",
            Values::Map => "map<text, text>",
            Values::Udt => "fields",
        };
        let blob = |i: usize| format!("0x{}", format!("{:02x}", 0x8f - 16 * i).repeat(BLOB_BYTES));
        let assignments: Vec<String> = names
            .iter()
            .enumerate()
            .map(|(i, name)| match values {
                Values::Blobs => format!("{name} = {}", blob(i)),
                Values::Counters => format!("{name} = {name} + {}", i + 1),
                Values::Map | Values::Udt => format!("{name} = ?"),
            })
            .collect();
        let columns: String = names.iter().map(|name| format!(", {name} {value_type}")).collect();
        let (names, assignments) = (names.join(", "), assignments.join(", "));
        let write = format!("UPDATE ks.cf SET {assignments} WHERE \"KEY\" = ?");
        let bound = match values {
            Values::Blobs | Values::Counters => None,
            Values::Map => Some(map()),
            Values::Udt => Some(fields()),
        };
        let measured = match workload {
            Workload::Read => format!("SELECT {names} FROM ks.cf WHERE \"KEY\" = ?"),
            Workload::Delete => format!("DELETE {names} FROM ks.cf WHERE \"KEY\" = ?"),
            Workload::Conditional if values == Values::Blobs => format!("{write} IF \"C0\" = {}", blob(0)),
            Workload::Conditional => format!("{write} IF EXISTS"),
            Workload::Prepare => format!("SELECT {names} FROM ks.cf WHERE \"KEY\" = ? LIMIT {{n}}"),
            Workload::Write | Workload::Scan(_) => write.clone(),
        };
        let field = |i: usize| format!("f{i} text");
        let mut made_by = vec![format!(
            "CREATE TABLE ks.cf (\"KEY\" blob PRIMARY KEY{columns}) \
             WITH compaction = {{'class': 'SizeTieredCompactionStrategy', 'enabled': 'false'}}"
        )];
        if values == Values::Udt {
            let fields: Vec<String> = (0..FIELDS).map(field).collect();
            made_by.insert(0, format!("CREATE TYPE ks.fields ({})", fields.join(", ")));
        }
        Self {
            made_by,
            table: "cf",
            measured,
            bound: bound
                .clone()
                .filter(|_| matches!(workload, Workload::Write | Workload::Conditional)),
            fill: write,
            filled: vec![bound],
        }
    }

    fn of_scan(scan: Scan) -> Self {
        let measured = match scan {
            Scan::Count => "SELECT count(*) FROM ks.rows",
            Scan::Group => "SELECT \"KEY\", sum(v) FROM ks.rows GROUP BY \"KEY\"",
            Scan::Filter => "SELECT c FROM ks.rows WHERE v = -1 ALLOW FILTERING",
        };
        Self {
            made_by: vec![
                "CREATE TABLE ks.rows (\"KEY\" blob, c int, v int, w blob, PRIMARY KEY (\"KEY\", c))".to_owned(),
            ],
            table: "rows",
            measured: measured.to_owned(),
            bound: None,
            fill: format!(
                "UPDATE ks.rows SET v = 7, w = 0x{} WHERE c = ? AND \"KEY\" = ?",
                "8f".repeat(BLOB_BYTES)
            ),
            filled: (0..ROWS)
                .map(|c| i32::try_from(c).map(|c| c.to_be_bytes().to_vec()).ok())
                .collect(),
        }
    }
}

/// A map as the protocol has it.
fn map() -> Vec<u8> {
    let mut bytes = length(ELEMENTS).to_vec();
    for i in 0..ELEMENTS {
        put(&mut bytes, &format!("element-{i:02}"));
        put(&mut bytes, &format!("the value of no {i:02}"));
    }
    bytes
}

/// A value of the user-defined type as the protocol has it.
fn fields() -> Vec<u8> {
    let mut bytes = Vec::new();
    for i in 0..FIELDS {
        put(&mut bytes, &format!("the value of no {i:02}"));
    }
    bytes
}

fn put(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&length(text.len()));
    bytes.extend_from_slice(text.as_bytes());
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or(u32::MAX).to_be_bytes()
}
