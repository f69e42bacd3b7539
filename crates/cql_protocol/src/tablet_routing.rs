//! The hint by which a driver learns where a tablet's replicas are: the custom payload of the extensions
//! `TABLETS_ROUTING_V1` and `TABLETS_ROUTING_V2_EXPERIMENTAL`.
//!
//! A connection that named the first in STARTUP gets the hint when it sends a statement of one partition to a shard
//! that is no replica: the hint comes with the answer. The driver forgets what it knew of overlapping ranges, and sends
//! the next statements to a replica.
//!
//! ```text
//! tablets-routing-v1: tuple<bigint, bigint, list<tuple<uuid, int>>>
//!                     the token before the range, its last token, replicas as host id and shard
//! tablets-routing-v2: the same tuple with a bigint at its end, the version of the tablet
//! ```
//!
//! With the second, each EXECUTE ends with what the driver knows of the version ([`TabletVersionBlock`]), and gets the
//! hint if that is wrong. The second supersedes the first on a connection that names both. ScyllaDB, documentation:
//! `docs/dev/protocol-extensions.md`, `docs/dev/tablets-routing-v2.md`.

use types::{CollectionBuilder, TupleBuilder};

/// The extension's key in SUPPORTED and STARTUP.
pub const TABLETS_ROUTING: &str = "TABLETS_ROUTING_V1";

/// The key of the extension's second version in SUPPORTED and STARTUP.
pub const TABLETS_ROUTING_V2: &str = "TABLETS_ROUTING_V2_EXPERIMENTAL";

/// The hint's key in the custom payload of a response.
pub const TABLETS_ROUTING_PAYLOAD: &str = "tablets-routing-v1";

/// The hint's key in the custom payload, in the second version of the extension.
pub const TABLETS_ROUTING_V2_PAYLOAD: &str = "tablets-routing-v2";

/// Four bits of the version that a driver has of a tablet: the high half of the byte says which, from the least
/// significant on, the low half their value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TabletVersionBlock(pub u8);

impl TabletVersionBlock {
    /// Whether a version has these four bits there.
    #[inline]
    #[must_use]
    pub fn is_of(self, version: u64) -> bool {
        let (block, value) = (self.0 >> 4, self.0 & 15);
        version >> (4 * u32::from(block)) & 15 == u64::from(value)
    }
}

/// Where a tablet's replicas are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletRoute {
    /// The token before the tablet's first; the smallest `bigint` for the first tablet of a table.
    pub after_token: i64,
    /// The tablet's last token.
    pub last_token: i64,
    /// Its replicas: host id, and the shard there.
    pub replicas: Vec<([u8; 16], u32)>,
    /// Its version, in the second version of the extension.
    pub version: Option<u64>,
}

impl TabletRoute {
    /// The key of the payload.
    #[must_use]
    pub fn key(&self) -> &'static str {
        match self.version {
            None => TABLETS_ROUTING_PAYLOAD,
            Some(_) => TABLETS_ROUTING_V2_PAYLOAD,
        }
    }

    /// The bytes of the payload.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut replicas = Vec::new();
        let mut list = CollectionBuilder::new(&mut replicas);
        for (host_id, shard) in &self.replicas {
            let mut replica = Vec::with_capacity(28);
            let mut tuple = TupleBuilder::new(&mut replica);
            tuple.push(Some(host_id));
            tuple.push(Some(&shard.to_be_bytes()));
            list.push(&replica);
        }
        list.finish();
        let mut out = Vec::with_capacity(40 + replicas.len());
        let mut tuple = TupleBuilder::new(&mut out);
        tuple.push(Some(&self.after_token.to_be_bytes()));
        tuple.push(Some(&self.last_token.to_be_bytes()));
        tuple.push(Some(&replicas));
        if let Some(version) = self.version {
            tuple.push(Some(&version.to_be_bytes()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_the_tuple_that_drivers_read() {
        let route = TabletRoute {
            after_token: i64::MIN,
            last_token: -2,
            replicas: vec![([0x11; 16], 3), ([0xfe; 16], 0)],
            version: None,
        };
        let expected = [
            &[0, 0, 0, 8, 0x80, 0, 0, 0, 0, 0, 0, 0][..],
            &[0, 0, 0, 8, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe],
            &[0, 0, 0, 68, 0, 0, 0, 2],
            &[0, 0, 0, 28, 0, 0, 0, 16],
            &[0x11; 16],
            &[0, 0, 0, 4, 0, 0, 0, 3],
            &[0, 0, 0, 28, 0, 0, 0, 16],
            &[0xfe; 16],
            &[0, 0, 0, 4, 0, 0, 0, 0],
        ];
        assert_eq!(route.encode(), expected.concat());
        assert_eq!(route.key(), "tablets-routing-v1");
        let versioned = TabletRoute {
            version: Some(0xfedc_ba98_7654_3210),
            ..route
        };
        let version = [0, 0, 0, 8, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10];
        assert_eq!(versioned.encode(), [&expected.concat()[..], &version].concat());
        assert_eq!(versioned.key(), "tablets-routing-v2");
    }

    #[test]
    fn a_block_is_four_bits_of_a_version_counted_from_the_least_significant() {
        let version = 0xfedc_ba98_7654_3210;
        for block in 0..16_u8 {
            for value in 0..16 {
                let given = TabletVersionBlock(block << 4 | value);
                assert_eq!(given.is_of(version), value == block, "{:#04x}", given.0);
            }
        }
        assert!(TabletVersionBlock(0xa3).is_of(0x0000_0300_0000_0000));
    }

    #[test]
    fn a_route_without_replicas_has_an_empty_list() {
        let route = TabletRoute {
            after_token: 0,
            last_token: i64::MAX,
            replicas: Vec::new(),
            version: None,
        };
        assert_eq!(route.encode()[24..], [0, 0, 0, 4, 0, 0, 0, 0]);
    }
}
