//! OPTIONS and STARTUP: what this node offers, and what a connection agrees on.

use cql_protocol::{
    Compression, ErrorCode, Framing, LWT_METADATA_MARK, ProtocolVersion, StringMap, TABLETS_ROUTING,
    TABLETS_ROUTING_V2, write_supported,
};

use crate::Server;

/// Extension key: EXECUTE carries result metadata ids on version 4 too.
const USE_METADATA_ID: &str = "SCYLLA_USE_METADATA_ID";

/// Extension key: prepared conditional statements carry a mark.
const LWT_MARK: &str = "SCYLLA_LWT_ADD_METADATA_MARK";

/// Extension key: the limit of a partition has an error of its own, whose code is the value.
const RATE_LIMIT_ERROR: &str = "SCYLLA_RATE_LIMIT_ERROR";

/// Extension keys: answers carry where tablets are.
const TABLETS_ROUTING_PREFIX: &str = "TABLETS_ROUTING_";

/// What STARTUP agreed on.
pub(crate) struct StartupOptions {
    pub(crate) framing: Framing,
    pub(crate) result_metadata_id: bool,
    pub(crate) lwt_mark: bool,
    pub(crate) tablets_routing: TabletsRouting,
    /// Whether the client knows the error of a partition's limit.
    pub(crate) rate_limit_error: bool,
    /// Whether the client's driver asks for the next page after an empty one.
    pub(crate) takes_empty_pages: bool,
}

/// Which locations of tablets a connection requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TabletsRouting {
    /// Nothing.
    Untold,
    /// The tablet of a statement that reached a shard without a replica of it.
    V1,
    /// The tablet of an EXECUTE whose client has another version of it.
    V2,
}

impl Server {
    /// Answers OPTIONS.
    pub(crate) fn supported(&self, out: &mut Vec<u8>, version: ProtocolVersion, stream: i16) {
        let o = &self.options;
        let shard = self.engine.coordinator.context.shard_id().0.to_string();
        let shards = self.front.options.shards.to_string();
        let host_id = o.host_id.to_string();
        let port = o.endpoints.shard_aware_address.map(|a| a.port().to_string());
        let lwt_mark = format!("LWT_OPTIMIZATION_META_BIT_MASK={LWT_METADATA_MARK}");
        let rate_limit_code = format!("ERROR_CODE={}", ErrorCode::RateLimit as i32);
        let mut options: Vec<(&str, Vec<&str>)> = vec![
            ("CQL_VERSION", vec![&o.cql_version]),
            ("COMPRESSION", vec!["lz4", "snappy"]),
            ("PROTOCOL_VERSIONS", vec!["3/v3", "4/v4", "5/v5"]),
            ("CLIENT_OPTIONS", vec![""]),
            ("SCYLLA_HOST_ID", vec![&host_id]),
            ("SCYLLA_SHARD", vec![&shard]),
            ("SCYLLA_NR_SHARDS", vec![&shards]),
            ("SCYLLA_SHARDING_ALGORITHM", vec!["biased-token-round-robin"]),
            ("SCYLLA_SHARDING_IGNORE_MSB", vec!["0"]),
            ("SCYLLA_PARTITIONER", vec![&o.partitioner]),
            (LWT_MARK, vec![&lwt_mark]),
            (USE_METADATA_ID, vec![""]),
            (TABLETS_ROUTING, vec![""]),
            (RATE_LIMIT_ERROR, vec![&rate_limit_code]),
        ];
        if o.tablets_routing_v2 {
            options.push((TABLETS_ROUTING_V2, vec![""]));
        }
        if let Some(port) = &port {
            options.push(("SCYLLA_SHARD_AWARE_PORT", vec![port]));
        }
        let borrowed: Vec<(&str, &[&str])> = options.iter().map(|(k, v)| (*k, &v[..])).collect();
        write_supported(out, version, stream, &borrowed);
    }
}

/// Whether drivers of ScyllaDB alone send this option. They read on after an empty page, which Cassandra never sends:
/// other drivers take it for the end of the result.
fn is_of_scylla(option: &str) -> bool {
    let has_prefix = |prefix: &str| {
        option
            .get(..prefix.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    has_prefix("SCYLLA_") || has_prefix(TABLETS_ROUTING_PREFIX)
}

/// Checks a STARTUP. `offers_v2`: this node offers `TABLETS_ROUTING_V2_EXPERIMENTAL`; where it does not, the key means
/// nothing, as any that is not known.
pub(crate) fn agree(
    options: &StringMap<'_>,
    version: ProtocolVersion,
    offers_v2: bool,
) -> Result<StartupOptions, String> {
    // Names are compared without case; of several the last counts.
    let get = |name: &str| {
        let named = options.iter().filter(|(given, _)| given.eq_ignore_ascii_case(name));
        named.last().map(|(_, value)| value)
    };
    match get("CQL_VERSION") {
        None => return Err("Missing value CQL_VERSION in STARTUP message".to_owned()),
        Some(version) => check_cql_version(version)?,
    }
    let compression = match get("COMPRESSION") {
        None | Some("") => None,
        Some(name) => {
            Some(Compression::from_name(name).ok_or_else(|| format!("Unknown compression algorithm: {name}"))?)
        }
    };
    let framing = Framing::after_startup(version, compression).map_err(|e| e.to_string())?;
    Ok(StartupOptions {
        framing,
        result_metadata_id: get(USE_METADATA_ID).is_some(),
        lwt_mark: get(LWT_MARK).is_some(),
        tablets_routing: match (get(TABLETS_ROUTING_V2), get(TABLETS_ROUTING)) {
            (Some(_), _) if offers_v2 => TabletsRouting::V2,
            (_, Some(_)) => TabletsRouting::V1,
            _ => TabletsRouting::Untold,
        },
        rate_limit_error: get(RATE_LIMIT_ERROR).is_some(),
        takes_empty_pages: options.iter().any(|(name, _)| is_of_scylla(name)),
    })
}

/// Refuses what is no version, and versions of CQL that the binary protocol does not have: those before 3.
fn check_cql_version(version: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<u32>().ok().filter(|_| !text.starts_with('+'));
    let mut parts = version.splitn(3, '.');
    let major = parts.next().and_then(number);
    let minor = parts.next().and_then(|text| number(text.split(['-', '+']).next()?));
    match major.zip(minor) {
        None => Err(format!("Invalid version value: {version}")),
        Some((0..3, _)) => Err(format!(
            "CQL version {version} is not supported by the binary protocol (supported version are >= 3.0.0)"
        )),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use cql_protocol::{Extensions, Frame, FrameHeader, Opcode, Request, decode_request};

    use super::*;

    /// What comes of a STARTUP with these options: the framing, or why it is refused.
    fn startup(options: &[(&str, &str)]) -> Result<Framing, String> {
        let string = |text: &str| {
            let length = u16::try_from(text.len()).expect("it is short");
            [&length.to_be_bytes(), text.as_bytes()].concat()
        };
        let count = u16::try_from(options.len()).expect("they are few");
        let mut body = count.to_be_bytes().to_vec();
        for (name, value) in options {
            body.extend(string(name));
            body.extend(string(value));
        }
        let header = FrameHeader {
            version: ProtocolVersion::V4,
            flags: 0,
            stream: 0,
            opcode: Opcode::Startup,
            body_bytes: body.len(),
        };
        let frame = Frame { header, body: &body };
        match decode_request(&frame, Extensions::default()) {
            Ok((_, Request::Startup(options))) => {
                agree(&options, ProtocolVersion::V4, false).map(|agreed| agreed.framing)
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn names_of_options_have_no_case_and_the_last_of_two_counts() {
        let lz4 = Ok(Framing::CompressedBodies(Compression::Lz4));
        assert_eq!(startup(&[("cql_version", "3.0.0"), ("Compression", "LZ4")]), lz4);
        assert_eq!(
            startup(&[
                ("COMPRESSION", "snappy"),
                ("compression", "lz4"),
                ("CQL_VERSION", "3.0.0")
            ]),
            lz4
        );
        let refused = startup(&[("cql_Version", "3.0.0"), ("CQL_VERSION", "2.0.0")]);
        assert!(refused.is_err_and(|why| why.starts_with("CQL version 2.0.0 is not supported")));
    }

    #[test]
    fn a_version_of_cql_is_three_or_later() {
        for version in [
            "3.0.0",
            "3.0",
            "3.4.7",
            "3.0.0-beta1",
            "4.0.0",
            "10.0.0",
            "3.4-x",
            "3.4+x",
        ] {
            assert_eq!(startup(&[("CQL_VERSION", version)]), Ok(Framing::Plain), "{version}");
        }
        for version in ["1.0.0", "2.0.0", "2.9.9"] {
            let why = format!(
                "CQL version {version} is not supported by the binary protocol (supported version are >= 3.0.0)"
            );
            assert_eq!(startup(&[("CQL_VERSION", version)]), Err(why));
        }
        for version in ["", "3", "abc", "3.", ".4", "3.x", "-3.0", "+3.0"] {
            assert_eq!(
                startup(&[("CQL_VERSION", version)]),
                Err(format!("Invalid version value: {version}"))
            );
        }
        assert_eq!(
            startup(&[]),
            Err("Missing value CQL_VERSION in STARTUP message".to_owned())
        );
    }
}
