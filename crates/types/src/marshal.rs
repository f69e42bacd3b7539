//! Java class names of types, as sstables' serialisation headers and old schema tables hold them.
//!
//! ```text
//! class  = [package] name [ ( parameters ) ]
//! list   = ListType(class)   set = SetType(class)   map = MapType(class,class)   tuple = TupleType(class,...)
//! vector = VectorType(class , dimension)            frozen = FrozenType(class)
//! descending order = ReversedType(class)
//! udt    = UserType(keyspace,hex of name,hex of field:class,...)
//! partition key of several columns = CompositeType(class,...)
//! ```
//! The package is `org.apache.cassandra.db.marshal.` and may be missing. Written names carry it. `FrozenType` is
//! written where a multi-cell type would otherwise be read: around the outermost frozen type, not again inside it, and
//! never around or inside a tuple. Readers accept it anywhere.

use std::fmt::Write as _;
use std::sync::Arc;

use crate::cql_type::{CqlType, DIMENSION_MAX, UdtType};
use crate::type_cursor::{NESTING_MAX, TypeCursor, TypeNameError, TypeNameProblem};

const PACKAGE: &str = "org.apache.cassandra.db.marshal.";

impl CqlType {
    /// The Java class of the type.
    #[must_use]
    pub fn marshal_name(&self) -> String {
        let mut out = String::new();
        self.canonical().write_marshal_name(&mut out, false);
        out
    }

    /// The Java class of the type without `FrozenType`, as result metadata has it: values have the same bytes with and
    /// without it, and drivers know a vector of collections by the name that Cassandra gives to `vector<set<int>, 2>`.
    #[must_use]
    pub fn marshal_name_unfrozen(&self) -> String {
        let mut out = String::new();
        self.canonical().unfrozen().write_marshal_name(&mut out, true);
        out
    }

    /// The Java class of the type in descending clustering order.
    #[must_use]
    pub fn marshal_name_reversed(&self) -> String {
        format!("{PACKAGE}ReversedType({})", self.marshal_name())
    }

    /// The type whose Java class this is, in canonical form, and whether its order is reversed.
    ///
    /// # Errors
    /// When the text is not the class of a type of CQL.
    pub fn from_marshal_name(text: &str) -> Result<(Self, bool), TypeNameError> {
        let mut parser = TypeCursor::new(text);
        let mut is_reversed = false;
        let parsed = parser.parse_class(0, &mut is_reversed)?;
        parser.expect_end("the end of the class")?;
        Ok((parsed.canonical(), is_reversed))
    }

    fn write_marshal_name(&self, out: &mut String, is_inside_frozen: bool) {
        if let Self::Frozen(inner) = self {
            if is_inside_frozen {
                return inner.write_marshal_name(out, true);
            }
            out.push_str(PACKAGE);
            out.push_str("FrozenType(");
            inner.write_marshal_name(out, true);
            return out.push(')');
        }
        out.push_str(PACKAGE);
        out.push_str(self.class_name());
        match self {
            Self::List(element) | Self::Set(element) => {
                out.push('(');
                element.write_marshal_name(out, is_inside_frozen);
                out.push(')');
            }
            Self::Map(key, value) => {
                out.push('(');
                key.write_marshal_name(out, is_inside_frozen);
                out.push(',');
                value.write_marshal_name(out, is_inside_frozen);
                out.push(')');
            }
            Self::Tuple(elements) => {
                out.push('(');
                for (index, element) in elements.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    element.write_marshal_name(out, true);
                }
                out.push(')');
            }
            Self::Udt(udt) => {
                out.push('(');
                out.push_str(&udt.keyspace);
                out.push(',');
                push_hex(out, &udt.name);
                for (name, field) in &udt.fields {
                    out.push(',');
                    push_hex(out, name);
                    out.push(':');
                    field.write_marshal_name(out, is_inside_frozen);
                }
                out.push(')');
            }
            Self::Vector(element, dimension) => {
                out.push('(');
                element.write_marshal_name(out, is_inside_frozen);
                let _ = write!(out, " , {dimension})");
            }
            _ => {}
        }
    }

    const fn class_name(&self) -> &'static str {
        match self {
            Self::Ascii => "AsciiType",
            Self::BigInt => "LongType",
            Self::Blob => "BytesType",
            Self::Boolean => "BooleanType",
            Self::Counter => "CounterColumnType",
            Self::Date => "SimpleDateType",
            Self::Decimal => "DecimalType",
            Self::Double => "DoubleType",
            Self::Duration => "DurationType",
            Self::Float => "FloatType",
            Self::Inet => "InetAddressType",
            Self::Int => "Int32Type",
            Self::SmallInt => "ShortType",
            Self::Text => "UTF8Type",
            Self::Time => "TimeType",
            Self::Timestamp => "TimestampType",
            Self::TimeUuid => "TimeUUIDType",
            Self::TinyInt => "ByteType",
            Self::Uuid => "UUIDType",
            Self::VarInt => "IntegerType",
            Self::List(_) => "ListType",
            Self::Set(_) => "SetType",
            Self::Map(..) => "MapType",
            Self::Tuple(_) => "TupleType",
            Self::Udt(_) => "UserType",
            Self::Vector(..) => "VectorType",
            Self::Frozen(_) => "FrozenType",
            Self::Empty => "EmptyType",
        }
    }

    fn from_class_name(class: &str) -> Option<Self> {
        Some(match class {
            "AsciiType" => Self::Ascii,
            "LongType" => Self::BigInt,
            "BytesType" => Self::Blob,
            "BooleanType" => Self::Boolean,
            "CounterColumnType" => Self::Counter,
            "SimpleDateType" => Self::Date,
            "DecimalType" => Self::Decimal,
            "DoubleType" => Self::Double,
            "DurationType" => Self::Duration,
            "FloatType" => Self::Float,
            "InetAddressType" => Self::Inet,
            "Int32Type" => Self::Int,
            "ShortType" => Self::SmallInt,
            "UTF8Type" => Self::Text,
            "TimeType" => Self::Time,
            // DateType is the name that Cassandra 1.x gave to timestamps.
            "TimestampType" | "DateType" => Self::Timestamp,
            // LegacyTimeUUIDType is what Cassandra 5 calls the order that time UUIDs have had since it began.
            "TimeUUIDType" | "LegacyTimeUUIDType" => Self::TimeUuid,
            "ByteType" => Self::TinyInt,
            "UUIDType" => Self::Uuid,
            "IntegerType" => Self::VarInt,
            "EmptyType" => Self::Empty,
            _ => return None,
        })
    }
}

/// The Java class of a partition key: that of its one column, or `CompositeType` of several.
#[must_use]
pub fn partition_key_marshal_name(columns: &[CqlType]) -> String {
    if let [column] = columns {
        return column.marshal_name();
    }
    let classes: Vec<String> = columns.iter().map(CqlType::marshal_name).collect();
    format!("{PACKAGE}CompositeType({})", classes.join(","))
}

/// The columns of a partition key whose Java class this is.
///
/// # Errors
/// When the text is neither the class of a type of CQL nor `CompositeType` of such classes.
pub fn partition_key_from_marshal_name(text: &str) -> Result<Vec<CqlType>, TypeNameError> {
    let inner = text.strip_prefix(PACKAGE).unwrap_or(text);
    if !inner.starts_with("CompositeType(") {
        return CqlType::from_marshal_name(text).map(|(column, _)| vec![column]);
    }
    let mut parser = TypeCursor {
        text,
        at: text.len() - inner.len() + "CompositeType".len(),
    };
    let mut columns = Vec::new();
    parser.expect("(", "'('")?;
    loop {
        columns.push(parser.parse_class(1, &mut false)?.canonical());
        if !parser.take(",") {
            break;
        }
    }
    parser.expect(")", "')'")?;
    parser.expect_end("the end of the class")?;
    Ok(columns)
}

fn push_hex(out: &mut String, text: &str) {
    for byte in text.bytes() {
        let _ = write!(out, "{byte:02x}");
    }
}

/// Reading classes.
impl<'a> TypeCursor<'a> {
    /// `is_reversed` is set when the class is `ReversedType`, whose parameter is then returned.
    fn parse_class(&mut self, depth: usize, is_reversed: &mut bool) -> Result<CqlType, TypeNameError> {
        if depth > NESTING_MAX {
            return Err(self.error(TypeNameProblem::TooDeep));
        }
        self.skip_spaces();
        let start = self.at;
        let word = self.parse_word("a class name")?;
        let class = word.strip_prefix(PACKAGE).unwrap_or(word);
        if let Some(native) = CqlType::from_class_name(class) {
            return Ok(native);
        }
        let has_parameters = matches!(
            class,
            "ListType"
                | "SetType"
                | "MapType"
                | "TupleType"
                | "UserType"
                | "VectorType"
                | "FrozenType"
                | "ReversedType"
        );
        if !has_parameters {
            self.at = start;
            return Err(self.error(TypeNameProblem::Unknown(word.to_owned())));
        }
        self.expect("(", "'('")?;
        let parsed = match class {
            "ListType" => CqlType::List(self.parse_inner(depth)?),
            "SetType" => CqlType::Set(self.parse_inner(depth)?),
            "MapType" => {
                let key = self.parse_inner(depth)?;
                self.expect(",", "','")?;
                CqlType::Map(key, self.parse_inner(depth)?)
            }
            "TupleType" => self.parse_tuple(depth)?,
            "UserType" => self.parse_udt(depth)?,
            "VectorType" => {
                let element = self.parse_inner(depth)?;
                self.expect(",", "','")?;
                CqlType::Vector(element, self.parse_dimension()?)
            }
            "ReversedType" => {
                *is_reversed = true;
                self.parse_class(depth + 1, &mut false)?
            }
            _ => CqlType::Frozen(self.parse_inner(depth)?),
        };
        self.expect(")", "')'")?;
        Ok(parsed)
    }

    fn parse_inner(&mut self, depth: usize) -> Result<Arc<CqlType>, TypeNameError> {
        self.parse_class(depth + 1, &mut false).map(Arc::new)
    }

    fn parse_tuple(&mut self, depth: usize) -> Result<CqlType, TypeNameError> {
        let mut elements = Vec::new();
        if !self.peeks(")") {
            elements.push(self.parse_class(depth + 1, &mut false)?);
            while self.take(",") {
                elements.push(self.parse_class(depth + 1, &mut false)?);
            }
        }
        Ok(CqlType::Tuple(elements.into()))
    }

    fn parse_udt(&mut self, depth: usize) -> Result<CqlType, TypeNameError> {
        self.skip_spaces();
        let keyspace = self.parse_word("a keyspace")?.to_owned();
        self.expect(",", "','")?;
        let name = self.parse_hex()?;
        let mut fields = Vec::new();
        while self.take(",") {
            let field = self.parse_hex()?;
            self.expect(":", "':'")?;
            fields.push((field, self.parse_class(depth + 1, &mut false)?.canonical()));
        }
        Ok(CqlType::Udt(Arc::new(UdtType { keyspace, name, fields })))
    }

    fn parse_hex(&mut self) -> Result<String, TypeNameError> {
        self.skip_spaces();
        let start = self.at;
        let word = self.parse_word("a name in hexadecimal")?;
        let decoded = word
            .as_bytes()
            .chunks(2)
            .map(|pair| {
                std::str::from_utf8(pair)
                    .ok()
                    .filter(|pair| pair.len() == 2 && !pair.starts_with('+'))
            })
            .map(|pair| pair.and_then(|pair| u8::from_str_radix(pair, 16).ok()))
            .collect::<Option<Vec<u8>>>()
            .and_then(|bytes| String::from_utf8(bytes).ok());
        decoded.ok_or_else(|| {
            self.at = start;
            self.expected("a name in hexadecimal")
        })
    }

    fn parse_dimension(&mut self) -> Result<u32, TypeNameError> {
        self.skip_spaces();
        let start = self.at;
        let word = self.parse_word("a dimension")?;
        match word.parse() {
            Ok(dimension @ 1..=DIMENSION_MAX) => Ok(dimension),
            _ => {
                self.at = start;
                Err(self.error(TypeNameProblem::Dimension(word.to_owned())))
            }
        }
    }

    fn parse_word(&mut self, what: &'static str) -> Result<&'a str, TypeNameError> {
        let rest = self.rest();
        let is_word = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'+' | b'&' | b'$');
        let len = rest.bytes().take_while(is_word).count();
        if len == 0 {
            return Err(self.expected(what));
        }
        self.at += len;
        Ok(&rest[..len])
    }
}
