//! Requests as text, and other helpers of the tests.
#![allow(dead_code, unused_imports, reason = "each test binary uses its own part")]

use cql_protocol::{
    BatchKind, BatchStatement, Compression, Extensions, FRAME_HEADER_BYTES, Frame, FrameHeader, Framing, ProtocolError,
    ProtocolVersion, QueryParams, Request, Value, Values, decode_request,
};
pub use testkit::{from_hex, hex as to_hex};

pub fn framing_named(name: &str) -> Framing {
    match name {
        "plain" => Framing::Plain,
        "lz4" => Framing::CompressedBodies(Compression::Lz4),
        "snappy" => Framing::CompressedBodies(Compression::Snappy),
        "segments" => Framing::Segments { lz4: false },
        "segments-lz4" => Framing::Segments { lz4: true },
        other => panic!("no framing is called {other}"),
    }
}

pub fn version_named(name: &str) -> ProtocolVersion {
    let number = name
        .strip_prefix('v')
        .and_then(|digits| digits.parse().ok())
        .expect("a version like v4");
    ProtocolVersion::from_number(number).expect("a version we speak")
}

type Payload = Vec<(String, Option<Vec<u8>>)>;

/// The payload and the description of the request in a plain frame.
pub fn decode_one(bytes: &[u8]) -> Result<(Payload, String), ProtocolError> {
    let header = FrameHeader::parse(bytes, usize::MAX)
        .map_err(|error| error.error)?
        .expect("a whole header");
    let frame = Frame {
        header,
        body: &bytes[FRAME_HEADER_BYTES..],
    };
    let (payload, request) = decode_request(&frame, Extensions::default())?;
    let payload = payload.map_or_else(Vec::new, |map| {
        map.iter()
            .map(|(name, value)| (name.to_string(), value.map(<[u8]>::to_vec)))
            .collect()
    });
    Ok((payload, describe(&request)))
}

/// A request in the words of `data/driver.py`.
pub fn describe(request: &Request<'_>) -> String {
    match request {
        Request::Startup(options) => {
            let pairs: Vec<String> = options.iter().map(|(name, value)| format!("{name}={value}")).collect();
            assert_eq!(pairs.len(), options.len());
            format!("STARTUP {}", pairs.join(" "))
        }
        Request::Options => "OPTIONS".to_string(),
        Request::Register(events) => {
            let names = cql_protocol::EventType::ALL
                .into_iter()
                .filter(|event| events.contains(*event));
            format!(
                "REGISTER {}",
                names.map(|event| event.name()).collect::<Vec<_>>().join(" ")
            )
        }
        Request::AuthResponse(token) => format!("AUTH_RESPONSE 0x{}", to_hex(token)),
        Request::Prepare { text, keyspace } => {
            format!(
                "PREPARE '{text}'{}",
                keyspace.map_or_else(String::new, |keyspace| format!(" keyspace={keyspace}"))
            )
        }
        Request::Query { text, params } => format!("QUERY '{text}' {}", describe_params(params)),
        Request::Execute {
            id,
            result_metadata_id,
            params,
            tablet_version_block,
        } => {
            assert!(tablet_version_block.is_none(), "no connection agreed on it");
            let metadata = result_metadata_id.map_or_else(String::new, |id| format!(" metadata=0x{}", to_hex(id)));
            format!("EXECUTE 0x{}{metadata} {}", to_hex(id), describe_params(params))
        }
        Request::Batch(batch) => {
            let kind = match batch.kind {
                BatchKind::Logged => "LOGGED",
                BatchKind::Unlogged => "UNLOGGED",
                BatchKind::Counter => "COUNTER",
            };
            let entries: Vec<String> = batch
                .entries()
                .map(|entry| {
                    let statement = match entry.statement {
                        BatchStatement::Text(text) => format!("'{text}'"),
                        BatchStatement::Prepared(id) => format!("0x{}", to_hex(id)),
                    };
                    format!("{statement} {}", describe_values(entry.values))
                })
                .collect();
            assert_eq!(entries.len(), batch.len());
            let mut out = format!("BATCH {kind} {{{}}} {}", entries.join(", "), batch.consistency);
            append(&mut out, "serial_consistency", batch.serial_consistency);
            append(&mut out, "timestamp", batch.timestamp);
            append(&mut out, "keyspace", batch.keyspace);
            append(&mut out, "now_in_seconds", batch.now_in_seconds);
            out
        }
    }
}

fn describe_params(params: &QueryParams<'_>) -> String {
    let mut out = format!("{} {}", params.consistency, describe_values(params.values));
    append(&mut out, "page_size", params.page_size);
    append(
        &mut out,
        "paging_state",
        params.paging_state.map(|state| format!("0x{}", to_hex(state))),
    );
    append(&mut out, "serial_consistency", params.serial_consistency);
    append(&mut out, "timestamp", params.timestamp);
    append(&mut out, "keyspace", params.keyspace);
    append(&mut out, "now_in_seconds", params.now_in_seconds);
    out
}

fn append<T: std::fmt::Display>(out: &mut String, name: &str, value: Option<T>) {
    if let Some(value) = value {
        out.push_str(&format!(" {name}={value}"));
    }
}

fn describe_values(values: Values<'_>) -> String {
    let describe_value = |value: Value<'_>| match value {
        Value::Bytes(bytes) => format!("0x{}", to_hex(bytes)),
        Value::Null => "null".to_string(),
        Value::Unset => "unset".to_string(),
    };
    let described: Vec<String> = if values.is_named() {
        values
            .iter_named()
            .map(|(name, value)| format!("{name}: {}", describe_value(value)))
            .collect()
    } else {
        values.iter().map(describe_value).collect()
    };
    assert_eq!(described.len(), values.len(), "the count of values is wrong");
    assert_eq!(values.iter().count(), values.len(), "the count of values is wrong");
    format!("[{}]", described.join(", "))
}
