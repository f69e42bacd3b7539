//! Values from JSON: `from_json` and INSERT JSON.
//!
//! Numbers keep their text, so that a varint or decimal of any size arrives whole. Where a JSON value is expected to be
//! a list or object, a string that holds one is taken too: keys of objects can be nothing else.

use std::fmt;

use stdx::preempt;
use types::{CqlType, LiteralKind, TupleBuilder, sorted};

use crate::error::PlanError;

/// How deep lists and objects may nest.
const DEPTH_MAX: usize = 64;

/// A JSON value.
#[derive(Clone, PartialEq, Debug)]
enum Json {
    Null,
    Boolean(bool),
    /// Its text.
    Number(String),
    String(String),
    List(Vec<Json>),
    Object(Vec<(String, Json)>),
}

impl Json {
    /// The kind, by the names that Cassandra's messages have.
    fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Boolean(_) => "Boolean",
            Self::Number(text) if text.contains(['.', 'e', 'E']) => "Double",
            Self::Number(text) if text.parse::<i32>().is_ok() => "Integer",
            Self::Number(text) if text.parse::<i64>().is_ok() => "Long",
            Self::Number(_) => "BigInteger",
            Self::String(_) => "String",
            Self::List(_) => "ArrayList",
            Self::Object(_) => "LinkedHashMap",
        }
    }
}

/// As Java prints it.
impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => write!(f, "{value}"),
            Self::Number(text) if self.kind() == "Double" => match text.parse::<f64>() {
                Ok(number) => f.write_str(&CqlType::Double.format(&number.to_be_bytes())),
                Err(_) => f.write_str(text),
            },
            Self::Number(text) | Self::String(text) => f.write_str(text),
            Self::List(elements) => {
                let elements: Vec<_> = elements.iter().map(ToString::to_string).collect();
                write!(f, "[{}]", elements.join(", "))
            }
            Self::Object(members) => {
                let members: Vec<_> = members.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "{{{}}}", members.join(", "))
            }
        }
    }
}

/// The serialised value that a JSON text is for a type; `None` is null.
pub(crate) fn read(function: &str, cql_type: &CqlType, text: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
    let text = String::from_utf8_lossy(text);
    let fail = |problem: String| {
        PlanError::Function(format!(
            "execution of 'system.{function}[text]' failed: Could not decode JSON string '{text}': {problem}"
        ))
    };
    match parse(&text).map_err(fail)? {
        Json::Null => Ok(None),
        json => convert(cql_type, &json)
            .map(Some)
            .map_err(|problem| match (cql_type.unfrozen(), &json) {
                // Cassandra does not say that it was a function which met the text of a duration.
                (CqlType::Duration, Json::String(_)) => PlanError::Invalid(problem),
                _ => PlanError::Function(problem),
            }),
    }
}

/// The values of columns in a JSON object: `None` for a column that it does not name, `Some(None)` for null. Columns
/// are given by name and type; keys are in lower case unless they are in double quotes of their own.
///
/// # Errors
/// When the text is not an object, names another column, or has a value that a column does not take.
pub fn decode_json_row(text: &[u8], columns: &[(&str, &CqlType)]) -> Result<Vec<Option<Option<Vec<u8>>>>, PlanError> {
    let text = String::from_utf8_lossy(text);
    let members = match parse(&text) {
        Ok(Json::Object(members)) => members,
        Ok(Json::Null) => return Err(PlanError::invalid("Got null for INSERT JSON values")),
        Ok(other) => {
            return Err(PlanError::Invalid(format!(
                "Could not decode JSON string as a map: it is a {}. (String was: {text})",
                other.kind()
            )));
        }
        Err(problem) => {
            return Err(PlanError::Invalid(format!(
                "Could not decode JSON string as a map: {problem}. (String was: {text})"
            )));
        }
    };
    let mut values = vec![None; columns.len()];
    for (key, json) in members {
        let name = name_of_key(&key);
        let Some(position) = columns.iter().position(|(column, _)| *column == name) else {
            return Err(PlanError::Invalid(format!(
                "JSON values map contains unrecognized column: {name}"
            )));
        };
        let (column, cql_type) = columns[position];
        values[position] =
            Some(match json {
                Json::Null => None,
                json => Some(convert(cql_type, &json).map_err(|problem| {
                    PlanError::Invalid(format!("Error decoding JSON value for {column}: {problem}"))
                })?),
            });
    }
    Ok(values)
}

/// The name that a key means.
fn name_of_key(key: &str) -> String {
    match key.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) {
        Some(quoted) => quoted.to_owned(),
        None => key.to_lowercase(),
    }
}

fn convert(cql_type: &CqlType, json: &Json) -> Result<Vec<u8>, String> {
    preempt::point();
    let is_nested = matches!(
        cql_type.unfrozen(),
        CqlType::List(_)
            | CqlType::Set(_)
            | CqlType::Map(..)
            | CqlType::Tuple(_)
            | CqlType::Udt(_)
            | CqlType::Vector(..)
    );
    let reparsed;
    let json = match json {
        Json::String(text) if is_nested => {
            reparsed = parse(text).map_err(|problem| format!("Error decoding JSON string: {problem}"))?;
            &reparsed
        }
        json => json,
    };
    let expected = |what: &str| Err(format!("Expected {what}, but got a {}: {json}", json.kind()));
    match (cql_type.unfrozen(), json) {
        (CqlType::List(element), Json::List(items)) => {
            let items = elements(element, items, "list")?;
            let mut out = Vec::new();
            super::collection::push_list(items.iter().map(Vec::as_slice), &mut out);
            Ok(out)
        }
        (CqlType::List(_), _) => expected("a list"),
        (CqlType::Set(element), Json::List(items)) => {
            let items = elements(element, items, "set")?;
            Ok(sorted::set(
                items.into_iter().map(Into::into).collect(),
                &element.comparator(),
            ))
        }
        (CqlType::Set(_), _) => expected("a list (representing a set)"),
        (CqlType::Vector(element, dimension), Json::List(items)) => {
            if items.len() != *dimension as usize {
                return Err(format!(
                    "List had incorrect size: expected {dimension} but given {}; {json}",
                    items.len()
                ));
            }
            let mut out = Vec::new();
            for item in elements(element, items, "list")? {
                if element.fixed_len().is_none() {
                    stdx::vint::put_unsigned(&mut out, item.len() as u64);
                }
                out.extend_from_slice(&item);
            }
            Ok(out)
        }
        (CqlType::Vector(..), _) => expected("a list"),
        (CqlType::Map(key, value), Json::Object(members)) => {
            let pairs = members.iter().map(|(k, v)| match v {
                Json::Null => Err("Invalid null value in map".to_owned()),
                v => Ok((
                    convert(key, &Json::String(k.clone()))?.into(),
                    convert(value, v)?.into(),
                )),
            });
            Ok(sorted::map(pairs.collect::<Result<_, _>>()?, &key.comparator()))
        }
        (CqlType::Map(..), _) => expected("a map"),
        (CqlType::Tuple(types), Json::List(items)) => {
            if items.len() > types.len() {
                return Err(format!("Tuple contains extra items (expected {}): {json}", types.len()));
            }
            if items.len() < types.len() {
                return Err(format!("Tuple is missing items (expected {}): {json}", types.len()));
            }
            fields(types.iter().zip(items.iter().map(Some)))
        }
        (CqlType::Tuple(_), _) => expected("a list representation of a tuple"),
        (CqlType::Udt(udt), Json::Object(members)) => {
            let known = |name: &str| udt.fields.iter().any(|(field, _)| field == name);
            if let Some((unknown, _)) = members.iter().find(|(key, _)| !known(&name_of_key(key))) {
                return Err(format!(
                    "Unknown field '{unknown}' in value of user defined type {}",
                    udt.name
                ));
            }
            fields(udt.fields.iter().map(|(field, cql_type)| {
                let given = members.iter().rev().find(|(key, _)| name_of_key(key) == *field);
                (cql_type, given.map(|(_, value)| value))
            }))
        }
        (CqlType::Udt(_), _) => expected("a map"),
        (native, json) => convert_native(native, json),
    }
}

fn elements(element: &CqlType, items: &[Json], whole: &str) -> Result<Vec<Vec<u8>>, String> {
    let convert = |item: &Json| match item {
        Json::Null => Err(format!("Invalid null element in {whole}")),
        item => convert(element, item),
    };
    items.iter().map(convert).collect()
}

fn fields<'a>(parts: impl Iterator<Item = (&'a CqlType, Option<&'a Json>)>) -> Result<Vec<u8>, String> {
    let mut out = Vec::new();
    let mut builder = TupleBuilder::new(&mut out);
    for (cql_type, json) in parts {
        let value = match json {
            None | Some(Json::Null) => None,
            Some(json) => Some(convert(cql_type, json)?),
        };
        builder.push(value.as_deref());
    }
    Ok(out)
}

/// Whether an empty string means a value of no bytes, as in Cassandra.
fn is_empty_of_no_bytes(cql_type: &CqlType) -> bool {
    use CqlType as T;
    matches!(
        cql_type,
        T::Int | T::BigInt | T::Counter | T::Float | T::Double | T::Decimal | T::Uuid | T::TimeUuid
    )
}

fn convert_native(cql_type: &CqlType, json: &Json) -> Result<Vec<u8>, String> {
    use CqlType as T;
    let read = |kind: LiteralKind, text: &str| cql_type.parse_literal(kind, text).map_err(|error| error.to_string());
    let is_whole = |text: &str| !text.contains(['.', 'e', 'E']);
    let invalid = |what: &str| Err(format!("Value '{json}' is not a valid {what}"));
    let what = match (cql_type, json) {
        (native, Json::String(text)) if text.is_empty() && is_empty_of_no_bytes(native) => return Ok(Vec::new()),
        (T::Boolean, Json::String(text)) if text.is_empty() => return Ok(vec![0]),
        (T::Text | T::Ascii, Json::String(text)) => return read(LiteralKind::String, text),
        (T::Date | T::Time | T::Timestamp | T::Inet, Json::String(text)) => return read(LiteralKind::String, text),
        (T::Timestamp, Json::Number(text)) if is_whole(text) => return read(LiteralKind::Integer, text),
        (T::TimeUuid, Json::String(text)) => {
            return read(LiteralKind::Uuid, text).map_err(|problem| {
                if problem.starts_with("Unable to make UUID") {
                    format!("Unknown timeuuid representation: {text}")
                } else {
                    problem
                }
            });
        }
        (T::Uuid, Json::String(text)) => return read(LiteralKind::Uuid, text),
        (T::Duration, Json::String(text)) => return read(LiteralKind::Duration, text),
        (T::Boolean, Json::Boolean(value)) => return Ok(vec![u8::from(*value)]),
        (T::Boolean, Json::String(text)) => return read(LiteralKind::Boolean, text),
        (T::Blob, Json::String(text)) if text.starts_with("0x") => {
            return read(LiteralKind::Hex, text)
                .map_err(|problem| format!("Value '{text}' is not a valid blob representation: {problem}"));
        }
        (T::Blob, Json::String(text)) => {
            return invalid(&format!(
                "blob representation: String representation of blob is missing 0x prefix: {text}"
            ));
        }
        (T::Blob, _) => return invalid(&format!("blob representation: it is a {}", json.kind())),
        (T::Int | T::BigInt | T::Counter, Json::Number(text)) if json.kind() == "Integer" => {
            return read(LiteralKind::Integer, text);
        }
        (T::BigInt | T::Counter, Json::Number(text)) if json.kind() == "Long" => {
            return read(LiteralKind::Integer, text);
        }
        (T::Int, Json::String(text)) if !is_whole(text) => return Err(format!("Unable to make int from '{text}'")),
        (T::BigInt | T::Counter, Json::String(text)) if !is_whole(text) => {
            return Err(format!("Unable to make long from '{text}'"));
        }
        (T::Int | T::BigInt | T::Counter, Json::String(text)) => return read(LiteralKind::Integer, text),
        (T::TinyInt | T::SmallInt, Json::Number(text) | Json::String(text)) => {
            if !is_whole(text) {
                let name = if *cql_type == T::TinyInt { "byte" } else { "short" };
                return Err(format!("Unable to make {name} from '{text}'"));
            }
            return read(LiteralKind::Integer, text);
        }
        (T::VarInt, Json::Number(text) | Json::String(text)) if is_whole(text) => {
            return read(LiteralKind::Integer, text).or_else(|_| invalid("representation of a varint value"));
        }
        (T::VarInt, _) => return invalid("representation of a varint value"),
        (T::Decimal, Json::Number(text) | Json::String(text)) => {
            return read(LiteralKind::Float, text).or_else(|_| invalid("representation of a decimal value"));
        }
        (T::Decimal, _) => return invalid("representation of a decimal value"),
        (T::Float | T::Double, Json::Number(text) | Json::String(text)) => {
            return read(LiteralKind::Float, text.trim());
        }
        (T::Text, _) => "a UTF-8 string",
        (T::Ascii, _) => "an ascii string",
        (T::Date, _) => "a string representation of a date value",
        (T::Time, _) => "a string representation of a time value",
        (T::Timestamp, _) => "a long or a datestring representation of a timestamp value",
        (T::Inet, _) => "a string representation of an inet value",
        (T::Uuid, _) => "a string representation of a uuid",
        (T::TimeUuid, _) => "a string representation of a timeuuid",
        (T::Duration, _) => "a string representation of a duration",
        (T::Boolean, _) => "a boolean value",
        (T::TinyInt, _) => "a byte value",
        (T::SmallInt, _) => "a short value",
        (T::Int, _) => "an int value",
        (T::BigInt | T::Counter, _) => "a bigint value",
        (T::Float, _) => "a float value",
        _ => "a double value",
    };
    Err(format!("Expected {what}, but got a {}: {json}", json.kind()))
}

// --- Reading the text ------------------------------------------------------------------------------------------------

fn parse(text: &str) -> Result<Json, String> {
    let mut reader = Reader { text, at: 0 };
    let json = reader.value(0)?;
    let is_number = matches!(json, Json::Number(_));
    let end = reader.at;
    reader.skip_spaces();
    match reader.peek() {
        // What comes after the first value is not read, as in Cassandra; a number must end where it ends.
        Some(found) if is_number && reader.at == end => {
            Err(format!("unexpected '{found}' after the value, at byte {}", reader.at))
        }
        _ => Ok(json),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn skip_spaces(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    /// Skips spaces, then the text when it is next.
    fn accept(&mut self, expected: &str) -> bool {
        self.skip_spaces();
        let is_next = self.rest().starts_with(expected);
        self.at += if is_next { expected.len() } else { 0 };
        is_next
    }

    fn expect(&mut self, expected: &str) -> Result<(), String> {
        if self.accept(expected) {
            Ok(())
        } else {
            Err(format!("'{expected}' is missing at byte {}", self.at))
        }
    }

    fn value(&mut self, depth: usize) -> Result<Json, String> {
        preempt::point();
        if depth > DEPTH_MAX {
            return Err(format!("values nest deeper than {DEPTH_MAX}"));
        }
        if self.accept("null") {
            return Ok(Json::Null);
        }
        if self.accept("true") {
            return Ok(Json::Boolean(true));
        }
        if self.accept("false") {
            return Ok(Json::Boolean(false));
        }
        match self.peek() {
            Some('"') => self.string().map(Json::String),
            Some('-' | '0'..='9') => self.number(),
            Some('[') => {
                self.at += 1;
                let mut items = Vec::new();
                if self.accept("]") {
                    return Ok(Json::List(items));
                }
                loop {
                    items.push(self.value(depth + 1)?);
                    if !self.accept(",") {
                        break;
                    }
                }
                self.expect("]")?;
                Ok(Json::List(items))
            }
            Some('{') => {
                self.at += 1;
                let mut members = Vec::new();
                if self.accept("}") {
                    return Ok(Json::Object(members));
                }
                loop {
                    self.skip_spaces();
                    let key = self.string()?;
                    self.expect(":")?;
                    members.push((key, self.value(depth + 1)?));
                    if !self.accept(",") {
                        break;
                    }
                }
                self.expect("}")?;
                Ok(Json::Object(members))
            }
            Some(found) => Err(format!("unexpected '{found}' at byte {}", self.at)),
            None => Err("the text ends where a value is expected".to_owned()),
        }
    }

    fn number(&mut self) -> Result<Json, String> {
        let rest = self.rest();
        let end = rest
            .find(|c: char| !matches!(c, '0'..='9' | '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let number = rest[..end].to_owned();
        let digits = number.trim_start_matches('-').as_bytes();
        if digits.len() > 1 && digits[0] == b'0' && digits[1].is_ascii_digit() {
            return Err(format!("'{number}' begins with a zero, at byte {}", self.at));
        }
        let has_open_point = |at: usize| !number[at + 1..].starts_with(|c: char| c.is_ascii_digit());
        if number.find('.').is_some_and(has_open_point) {
            return Err(format!(
                "a digit must follow the point of '{number}', at byte {}",
                self.at
            ));
        }
        // The grammar's fine points are left to the type that reads the number; this much it must be.
        if number.len() < 400 && number.parse::<f64>().is_err() {
            return Err(format!("'{number}' is not a number, at byte {}", self.at));
        }
        self.at += end;
        Ok(Json::Number(number))
    }

    fn string(&mut self) -> Result<String, String> {
        let start = self.at;
        let unfinished = || format!("the string at byte {start} has no end");
        self.expect("\"")?;
        let mut out = String::new();
        loop {
            let next = self.peek().ok_or_else(unfinished)?;
            self.at += next.len_utf8();
            match next {
                '"' => return Ok(out),
                '\\' => {
                    let escape = self.peek().ok_or_else(unfinished)?;
                    self.at += escape.len_utf8();
                    out.push(match escape {
                        '"' | '\\' | '/' => escape,
                        'b' => '\u{8}',
                        'f' => '\u{c}',
                        'n' => '\n',
                        'r' => '\r',
                        't' => '\t',
                        'u' => self.escaped_code()?,
                        other => return Err(format!("'\\{other}' is no escape, at byte {}", self.at)),
                    });
                }
                control if control < ' ' => {
                    return Err(format!(
                        "the character U+{:04X} takes an escape in a string, at byte {}",
                        u32::from(control),
                        self.at - 1
                    ));
                }
                plain => out.push(plain),
            }
        }
    }

    /// `\uXXXX`, or two of them that are one character.
    fn escaped_code(&mut self) -> Result<char, String> {
        let first = self.hex4()?;
        if !(0xd800..0xdc00).contains(&first) {
            return Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        if !self.rest().starts_with("\\u") {
            return Ok(char::REPLACEMENT_CHARACTER);
        }
        self.at += 2;
        let second = self.hex4()?;
        let code = 0x1_0000 + ((first - 0xd800) << 10) + (second.wrapping_sub(0xdc00) & 0x3ff);
        Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex4(&mut self) -> Result<u32, String> {
        let digits = self.rest().get(..4).ok_or("the text ends inside an escape")?;
        let code = u32::from_str_radix(digits, 16).map_err(|_| format!("'{digits}' is no code of a character"))?;
        self.at += 4;
        Ok(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A type, a text, and the value that it has for the type, or the refusal.
    const VALUES: &[(&str, &str, &str)] = &[
        ("int", "5", "5"),
        ("int", " \"-5\" ", "-5"),
        ("int", "1.5", "! Expected an int value, but got a Double: 1.5"),
        ("int", "1e3", "! Expected an int value, but got a Double: 1000.0"),
        ("int", "5 x", "5"),
        ("int", "\"5\"x", "5"),
        (
            "int",
            "99999999999",
            "! Expected an int value, but got a Long: 99999999999",
        ),
        ("int", "\"99999999999\"", "! Unable to make int from '99999999999'"),
        ("int", "\"1.5\"", "! Unable to make int from '1.5'"),
        ("int", "\"\"", "no bytes"),
        (
            "bigint",
            "9223372036854775808",
            "! Expected a bigint value, but got a BigInteger: 9223372036854775808",
        ),
        ("smallint", "1.5", "! Unable to make short from '1.5'"),
        ("tinyint", "[]", "! Expected a byte value, but got a ArrayList: []"),
        ("boolean", "\"\"", "false"),
        ("uuid", "\"\"", "no bytes"),
        ("uuid", "\"x\"", "! Unable to make UUID from 'x'"),
        ("timeuuid", "\"x\"", "! Unknown timeuuid representation: x"),
        (
            "timeuuid",
            "5",
            "! Expected a string representation of a timeuuid, but got a Integer: 5",
        ),
        (
            "varint",
            "\"\"",
            "! Value '' is not a valid representation of a varint value",
        ),
        (
            "varint",
            "1.5",
            "! Value '1.5' is not a valid representation of a varint value",
        ),
        ("decimal", "\"\"", "no bytes"),
        (
            "decimal",
            "true",
            "! Value 'true' is not a valid representation of a decimal value",
        ),
        ("float", "[1]", "! Expected a float value, but got a ArrayList: [1]"),
        ("double", "true", "! Expected a double value, but got a Boolean: true"),
        ("ascii", "5", "! Expected an ascii string, but got a Integer: 5"),
        (
            "blob",
            "\"0x0\"",
            "! Value '0x0' is not a valid blob representation: cannot parse '0' as hex bytes",
        ),
        (
            "blob",
            "5",
            "! Value '5' is not a valid blob representation: it is a Integer",
        ),
        (
            "timestamp",
            "1.5",
            "! Expected a long or a datestring representation of a timestamp value, but got a Double: 1.5",
        ),
        (
            "int",
            "05",
            "! execution of 'system.fromjson[text]' failed: Could not decode JSON string '05': '05' begins with a zero, at byte 0",
        ),
        ("int", "-0", "0"),
        ("int", "[]", "! Expected an int value, but got a ArrayList: []"),
        (
            "varint",
            "123456789012345678901234567890",
            "123456789012345678901234567890",
        ),
        ("decimal", "1.50", "1.50"),
        ("double", "1e3", "1000.0"),
        ("double", "\" 1.5\\t\"", "1.5"),
        (
            "double",
            "1.",
            "! execution of 'system.fromjson[text]' failed: Could not decode JSON string '1.': a digit must follow the point of '1.', at byte 0",
        ),
        (
            "text",
            "\"a\tb\"",
            "! execution of 'system.fromjson[text]' failed: Could not decode JSON string '\"a\tb\"': the character U+0009 takes an escape in a string, at byte 2",
        ),
        ("text", "\"a\\\"\\u00e9\\ud83d\\ude00\\n\"", "'a\"é😀\n'"),
        ("text", "5", "! Expected a UTF-8 string, but got a Integer: 5"),
        ("boolean", "true", "true"),
        ("blob", "\"0xcafe\"", "0xcafe"),
        (
            "uuid",
            "\"123e4567-e89b-42d3-a456-426614174000\"",
            "123e4567-e89b-42d3-a456-426614174000",
        ),
        ("list<int>", "[1, 2]", "[1, 2]"),
        ("list<int>", "[1, null]", "! Invalid null element in list"),
        ("list<int>", "{}", "! Expected a list, but got a LinkedHashMap: {}"),
        ("set<int>", "[2, 1, 2]", "{1, 2}"),
        ("map<int, text>", "{\"2\": \"b\", \"1\": \"a\"}", "{1: 'a', 2: 'b'}"),
        ("map<text, int>", "{\"a\": null}", "! Invalid null value in map"),
        ("map<frozen<list<int>>, int>", "{\"[1]\": 2}", "{[1]: 2}"),
        ("tuple<int, text>", "[1, null]", "(1, null)"),
        (
            "tuple<int, text>",
            "[1, null, 3]",
            "! Tuple contains extra items (expected 2): [1, null, 3]",
        ),
        ("vector<float, 2>", "[1, 2.5]", "[1.0, 2.5]"),
        ("int", "5 5", "5"),
        (
            "int",
            "5x",
            "! execution of 'system.fromjson[text]' failed: Could not decode JSON string '5x': unexpected 'x' after the value, at byte 1",
        ),
        (
            "int",
            "",
            "! execution of 'system.fromjson[text]' failed: Could not decode JSON string '': the text ends where a value is expected",
        ),
        ("int", "null", "null"),
    ];

    #[test]
    fn values_are_read_for_their_type() {
        for &(type_name, text, expected) in VALUES {
            let cql_type = CqlType::parse_native(type_name).expect("the type is well written");
            let given = match read("fromjson", &cql_type, text.as_bytes()) {
                Ok(Some(bytes)) if bytes.is_empty() => "no bytes".to_owned(),
                Ok(Some(bytes)) => cql_type.format(&bytes),
                Ok(None) => "null".to_owned(),
                Err(error) => format!("! {}", error.message()),
            };
            assert_eq!(given, expected, "{type_name} from {text}");
        }
    }

    #[test]
    fn rows_have_their_columns_in_any_order_and_case() {
        let columns = [("k", &CqlType::Int), ("My Col", &CqlType::Text), ("v", &CqlType::Int)];
        let five = Some(Some(vec![0, 0, 0, 5]));
        let row = |text: &str| decode_json_row(text.as_bytes(), &columns).map_err(|error| error.to_string());
        assert_eq!(
            row("{\"\\\"My Col\\\"\": \"x\", \"K\": 5}"),
            Ok(vec![five.clone(), Some(Some(b"x".to_vec())), None])
        );
        assert_eq!(row("{\"v\": null, \"k\": 5}"), Ok(vec![five, None, Some(None)]));
        for (text, expected) in [
            ("{\"z\": 5}", "JSON values map contains unrecognized column: z"),
            (
                "{\"k\": \"a\"}",
                "Error decoding JSON value for k: Unable to make int from 'a'",
            ),
            ("null", "Got null for INSERT JSON values"),
            (
                "{",
                "Could not decode JSON string as a map: '\"' is missing at byte 1. (String was: {)",
            ),
        ] {
            assert_eq!(row(text), Err(expected.to_owned()), "{text}");
        }
        let deep = "[".repeat(100_000);
        assert!(row(&deep).is_err(), "a text that nests without end is refused");
    }
}
