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

/// What STARTUP agreed on.
pub(crate) struct Agreed {
    pub(crate) framing: Framing,
    pub(crate) result_metadata_id: bool,
    pub(crate) lwt_mark: bool,
    pub(crate) tablets_routing: TabletsRouting,
    /// Whether the client knows the error of a partition's limit.
    pub(crate) rate_limit_error: bool,
}

/// What a connection wants to know of where tablets stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TabletsRouting {
    /// Nothing.
    Untold,
    /// The tablet of a statement that came to a shard which is none of its replicas.
    V1,
    /// The tablet of an EXECUTE whose client has another version of it.
    V2,
}

impl Server {
    /// Answers OPTIONS.
    pub(crate) fn supported(&self, out: &mut Vec<u8>, version: ProtocolVersion, stream: i16) {
        let o = &self.options;
        let shard = self.engine.shard.id().0.to_string();
        let shards = o.shards.to_string();
        let host_id = o.host_id.to_string();
        let port = o.shard_aware_address.map(|a| a.port().to_string());
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

/// Checks a STARTUP. `offers_v2`: this node offers `TABLETS_ROUTING_V2_EXPERIMENTAL`; where it does not, the key means nothing, as any that is not known.
pub(crate) fn agree(options: &StringMap<'_>, version: ProtocolVersion, offers_v2: bool) -> Result<Agreed, String> {
    if options.get("CQL_VERSION").is_none() {
        return Err("Missing value CQL_VERSION in STARTUP message".to_owned());
    }
    let compression = match options.get("COMPRESSION") {
        None | Some("") => None,
        Some(name) => {
            Some(Compression::from_name(name).ok_or_else(|| format!("Unknown compression algorithm: {name}"))?)
        }
    };
    let framing = Framing::after_startup(version, compression).map_err(|e| e.to_string())?;
    Ok(Agreed {
        framing,
        result_metadata_id: options.get(USE_METADATA_ID).is_some(),
        lwt_mark: options.get(LWT_MARK).is_some(),
        tablets_routing: match (options.get(TABLETS_ROUTING_V2), options.get(TABLETS_ROUTING)) {
            (Some(_), _) if offers_v2 => TabletsRouting::V2,
            (_, Some(_)) => TabletsRouting::V1,
            _ => TabletsRouting::Untold,
        },
        rate_limit_error: options.get(RATE_LIMIT_ERROR).is_some(),
    })
}
