//! Values and times as `sstabledump` writes them.

use std::fmt::Write as _;

use types::{CqlType, Value};

/// A JSON string.
pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::String(text.to_owned()).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, b| {
        let _ = write!(out, "{b:02x}");
        out
    })
}

/// A value as JSON; bytes that are no value of the type as a blob.
pub(super) fn value(cql_type: &CqlType, bytes: &[u8]) -> String {
    if bytes.is_empty() {
        return "\"\"".to_owned();
    }
    match cql_type.deserialize(bytes) {
        Ok(v) => of_value(cql_type.unfrozen(), &v, bytes),
        Err(_) => quoted(&format!("0x{}", hex(bytes))),
    }
}

fn number(finite: bool, text: String) -> String {
    if finite { text } else { quoted(&text) }
}

fn of_value(cql_type: &CqlType, v: &Value, bytes: &[u8]) -> String {
    let list = |t: &CqlType, items: &[Value]| {
        let items: Vec<String> = items
            .iter()
            .map(|i| of_value(t.unfrozen(), i, &i.serialize()))
            .collect();
        format!("[{}]", items.join(", "))
    };
    let option = |t: &CqlType, item: &Option<Value>| match item {
        Some(i) => of_value(t.unfrozen(), i, &i.serialize()),
        None => "null".to_owned(),
    };
    match (v, cql_type) {
        (Value::Empty, _) => "\"\"".to_owned(),
        (Value::Ascii(s) | Value::Text(s), _) => quoted(s),
        (Value::BigInt(n) | Value::Counter(n), _) => n.to_string(),
        (Value::Int(n), _) => n.to_string(),
        (Value::SmallInt(n), _) => n.to_string(),
        (Value::TinyInt(n), _) => n.to_string(),
        (Value::VarInt(n), _) => n.to_string(),
        (Value::Boolean(b), _) => b.to_string(),
        (Value::Double(d), _) => number(d.is_finite(), format!("{d:?}")),
        (Value::Float(f), _) => number(f.is_finite(), format!("{f:?}")),
        (Value::Decimal(_), t) => t.format_unquoted(bytes),
        (Value::Blob(b), _) => quoted(&format!("0x{}", hex(b))),
        (Value::Timestamp(ms), _) => quoted(&timestamp(*ms)),
        (Value::List(items), CqlType::List(t))
        | (Value::Set(items), CqlType::Set(t))
        | (Value::Vector(items), CqlType::Vector(t, _)) => list(t, items),
        (Value::Map(pairs), CqlType::Map(k, t)) => {
            let pairs: Vec<String> = pairs
                .iter()
                .map(|(a, b)| {
                    let name = of_value(k.unfrozen(), a, &a.serialize());
                    let name = if name.starts_with('"') { name } else { quoted(&name) };
                    format!("{name}: {}", of_value(t.unfrozen(), b, &b.serialize()))
                })
                .collect();
            format!("{{{}}}", pairs.join(", "))
        }
        (Value::Tuple(items), CqlType::Tuple(types)) => {
            let items: Vec<String> = items.iter().zip(types.iter()).map(|(i, t)| option(t, i)).collect();
            format!("[{}]", items.join(", "))
        }
        (Value::Udt(items), CqlType::Udt(udt)) => {
            let items: Vec<String> = items
                .iter()
                .zip(&udt.fields)
                .map(|(i, (name, t))| format!("{}: {}", quoted(name), option(t, i)))
                .collect();
            format!("{{{}}}", items.join(", "))
        }
        (_, t) => quoted(&t.format_unquoted(bytes)),
    }
}

/// A value as a JSON string, as keys and paths are written.
pub(super) fn text(cql_type: &CqlType, bytes: &[u8]) -> String {
    match cql_type.unfrozen() {
        CqlType::Text | CqlType::Ascii => quoted(&String::from_utf8_lossy(bytes)),
        CqlType::Blob => quoted(&hex(bytes)),
        CqlType::Timestamp if bytes.len() == 8 => quoted(value(cql_type, bytes).trim_matches('"')),
        t => quoted(&t.format_unquoted(bytes)),
    }
}

/// A partition key: the text of its components.
pub(super) fn key(types: &[CqlType], bytes: &[u8]) -> String {
    if let [single] = types {
        return format!("[ {} ]", text(single, bytes));
    }
    let mut rest = bytes;
    let mut out = Vec::new();
    for t in types {
        let Some((len, tail)) = rest.split_first_chunk::<2>() else {
            break;
        };
        let len = usize::from(u16::from_be_bytes(*len)).min(tail.len());
        out.push(text(t, &tail[..len]));
        rest = tail.get(len + 1..).unwrap_or(&[]);
    }
    format!("[ {} ]", out.join(", "))
}

fn date_time(seconds: i64, separator: char) -> String {
    let (year, month, day) = types::civil::date_of(seconds.div_euclid(86_400));
    let s = seconds.rem_euclid(86_400);
    format!(
        "{year:04}-{month:02}-{day:02}{separator}{:02}:{:02}:{:02}",
        s / 3600,
        s / 60 % 60,
        s % 60
    )
}

fn timestamp(ms: i64) -> String {
    format!("{}.{:03}Z", date_time(ms.div_euclid(1000), ' '), ms.rem_euclid(1000))
}

/// A second, ISO 8601.
pub(super) fn seconds(t: u32) -> String {
    format!("{}Z", date_time(i64::from(t), 'T'))
}

/// A write timestamp, ISO 8601, with as many digits in groups of three as it needs.
pub(super) fn micros(us: i64) -> String {
    let (whole, fraction) = (us.div_euclid(1_000_000), us.rem_euclid(1_000_000));
    let fraction = match fraction {
        0 => String::new(),
        f if f % 1000 == 0 => format!(".{:03}", f / 1000),
        f => format!(".{f:06}"),
    };
    format!("{}{fraction}Z", date_time(whole, 'T'))
}
