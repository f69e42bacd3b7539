//! Metadata of rows and of prepared statements.
//!
//! It is encoded once, when a statement is prepared, and copied into each response. Column specifications:
//!
//! ```text
//! global     keyspace [string]  table [string]  n x (name [string]  type)
//! otherwise  n x (keyspace [string]  table [string]  name [string]  type)
//! type       code [short], then: custom: class name [string]; list, set: type; map: type type;
//!            tuple: n [short], n x type; udt: keyspace [string]  name [string]  n [short]  n x (name [string]  type)
//! ```
//!
//! A type that a version has no code for is sent as custom, with the class name by which Cassandra's drivers know it.

use types::CqlType;

use crate::codes::{ProtocolVersion, rows_flags};
use crate::response::{put_short, put_string};

/// Bit of the variables' metadata flags that marks a conditional statement, announced in SUPPORTED as
/// `LWT_OPTIMIZATION_META_BIT_MASK=2147483648`.
pub const LWT_METADATA_MARK: u32 = 1 << 31;

/// One column of a result, or one bound variable.
#[derive(Clone, Copy, Debug)]
pub struct ColumnSpec<'a> {
    /// Its keyspace.
    pub keyspace: &'a str,
    /// Its table.
    pub table: &'a str,
    /// The column, alias or expression; the name of a variable.
    pub name: &'a str,
    /// Its type.
    pub column_type: &'a CqlType,
}

/// Column specifications as they are sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMetadata {
    flags: u32,
    column_count: i32,
    specifications: Box<[u8]>,
}

impl EncodedMetadata {
    /// Bytes that it takes in an answer, about.
    #[inline]
    pub fn size(&self) -> usize {
        self.specifications.len()
    }

    /// Encodes column specifications; they depend on the version only where a type does.
    pub fn new(version: ProtocolVersion, columns: &[ColumnSpec<'_>]) -> EncodedMetadata {
        let mut out = Vec::new();
        let mut flags = 0;
        if let Some((first, others)) = columns.split_first()
            && others
                .iter()
                .all(|other| (other.keyspace, other.table) == (first.keyspace, first.table))
        {
            flags |= rows_flags::GLOBAL_TABLE_SPEC;
            put_string(&mut out, first.keyspace);
            put_string(&mut out, first.table);
        }
        for column in columns {
            if flags & rows_flags::GLOBAL_TABLE_SPEC == 0 {
                put_string(&mut out, column.keyspace);
                put_string(&mut out, column.table);
            }
            put_string(&mut out, column.name);
            write_column_type(&mut out, version, column.column_type);
        }
        let column_count = i32::try_from(columns.len()).expect("a statement has fewer than 65,536 columns");
        EncodedMetadata {
            flags,
            column_count,
            specifications: out.into_boxed_slice(),
        }
    }

    /// Flags of its layout.
    pub fn flags(&self) -> u32 {
        self.flags
    }

    /// How many columns it describes.
    pub fn column_count(&self) -> i32 {
        self.column_count
    }

    /// The column specifications: the bytes after the flags, the column count and any optional fields that follow it.
    pub fn specifications(&self) -> &[u8] {
        &self.specifications
    }
}

/// What RESULT prepared says of a statement.
#[derive(Clone, Copy, Debug)]
pub struct PreparedResult<'a> {
    /// The id that EXECUTE will name.
    pub id: &'a [u8],
    /// The id of the result metadata: in version 5, and with `SCYLLA_USE_METADATA_ID`.
    pub result_metadata_id: Option<&'a [u8]>,
    /// Its bound variables.
    pub variables: &'a EncodedMetadata,
    /// For each partition key column in order, the variable it is bound to; empty unless all are (version 4 and later).
    pub partition_key_indexes: &'a [u16],
    /// [`LWT_METADATA_MARK`], for a conditional statement on a connection that asked for the mark.
    pub lwt_mark: Option<u32>,
    /// The columns of its result; `None` when it has none.
    pub result: Option<&'a EncodedMetadata>,
}

/// Writes a type as column specifications have it.
pub fn write_column_type(out: &mut Vec<u8>, version: ProtocolVersion, column_type: &CqlType) {
    let v4 = version >= ProtocolVersion::V4;
    let v5 = version >= ProtocolVersion::V5;
    match column_type {
        CqlType::Ascii => put_short(out, 0x01),
        CqlType::BigInt => put_short(out, 0x02),
        CqlType::Blob => put_short(out, 0x03),
        CqlType::Boolean => put_short(out, 0x04),
        CqlType::Counter => put_short(out, 0x05),
        CqlType::Decimal => put_short(out, 0x06),
        CqlType::Double => put_short(out, 0x07),
        CqlType::Float => put_short(out, 0x08),
        CqlType::Int => put_short(out, 0x09),
        CqlType::Timestamp => put_short(out, 0x0b),
        CqlType::Uuid => put_short(out, 0x0c),
        CqlType::Text => put_short(out, 0x0d),
        CqlType::VarInt => put_short(out, 0x0e),
        CqlType::TimeUuid => put_short(out, 0x0f),
        CqlType::Inet => put_short(out, 0x10),
        CqlType::Date if v4 => put_short(out, 0x11),
        CqlType::Time if v4 => put_short(out, 0x12),
        CqlType::SmallInt if v4 => put_short(out, 0x13),
        CqlType::TinyInt if v4 => put_short(out, 0x14),
        CqlType::Duration if v5 => put_short(out, 0x15),
        CqlType::List(element) => {
            put_short(out, 0x20);
            write_column_type(out, version, element);
        }
        CqlType::Map(key, value) => {
            put_short(out, 0x21);
            write_column_type(out, version, key);
            write_column_type(out, version, value);
        }
        CqlType::Set(element) => {
            put_short(out, 0x22);
            write_column_type(out, version, element);
        }
        CqlType::Udt(udt) => {
            put_short(out, 0x30);
            put_string(out, &udt.keyspace);
            put_string(out, &udt.name);
            put_short(out, udt.fields.len());
            for (name, field_type) in &udt.fields {
                put_string(out, name);
                write_column_type(out, version, field_type);
            }
        }
        CqlType::Tuple(elements) => {
            put_short(out, 0x31);
            put_short(out, elements.len());
            for element in elements.iter() {
                write_column_type(out, version, element);
            }
        }
        // Being frozen is a matter of storage; clients see the value.
        CqlType::Frozen(inner) => write_column_type(out, version, inner),
        CqlType::Date
        | CqlType::Time
        | CqlType::SmallInt
        | CqlType::TinyInt
        | CqlType::Duration
        | CqlType::Vector(..)
        | CqlType::Empty => {
            put_short(out, 0x00);
            put_string(out, &column_type.marshal_name_unfrozen());
        }
    }
}
