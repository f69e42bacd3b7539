//! The hint that tells a driver where a tablet stands: the custom payload of the extension `TABLETS_ROUTING_V1`.
//!
//! A connection that named the extension in STARTUP gets it with the answer to a statement of one partition that it sent
//! to a shard which is no replica. The driver forgets what it knew of overlapping ranges, and sends the next ones right.
//!
//! ```text
//! tablets-routing-v1: tuple<bigint, bigint, list<tuple<uuid, int>>>
//!                     the token before the range, its last token, replicas as host id and shard
//! ```

use types::{CollectionBuilder, TupleBuilder};

/// The extension's key in SUPPORTED and STARTUP.
pub const TABLETS_ROUTING: &str = "TABLETS_ROUTING_V1";

/// The hint's key in the custom payload of a response.
pub const TABLETS_ROUTING_PAYLOAD: &str = "tablets-routing-v1";

/// Where a tablet stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletRoute {
    /// The token before the tablet's first; the smallest `bigint` for the first tablet of a table.
    pub after_token: i64,
    /// The tablet's last token.
    pub last_token: i64,
    /// Its replicas: host id, and the shard there.
    pub replicas: Vec<([u8; 16], u32)>,
}

impl TabletRoute {
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
        let mut out = Vec::with_capacity(28 + replicas.len());
        let mut tuple = TupleBuilder::new(&mut out);
        tuple.push(Some(&self.after_token.to_be_bytes()));
        tuple.push(Some(&self.last_token.to_be_bytes()));
        tuple.push(Some(&replicas));
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
    }

    #[test]
    fn a_route_without_replicas_has_an_empty_list() {
        let route = TabletRoute {
            after_token: 0,
            last_token: i64::MAX,
            replicas: Vec::new(),
        };
        assert_eq!(route.encode()[24..], [0, 0, 0, 4, 0, 0, 0, 0]);
    }
}
