//! Sends clients the locations of tablets: the extensions `TABLETS_ROUTING_V1` and `TABLETS_ROUTING_V2_EXPERIMENTAL`.
//!
//! With the first, a client whose request reached a shard without a replica receives the location of the tablet; such a
//! request is never answered at once. With the second, each EXECUTE has four bits of the version that its client knows,
//! and the answer has the location of the tablet if they are not those of the version here. The bits are compared
//! before a statement is answered at once: a client that knows the right bits loses nothing, and any other has its
//! answer made in the general way, with the payload. Connections without the second pay for a look at one field.

use cql_protocol::{TabletRoute, TabletVersionBlock};
use plan::{BindContext, Plan};
use query::Prepared;
use schema::TableId;
use types::Token;
use types::token::KeyHash;

use crate::Server;
use crate::connection::Connection;
use crate::respond::Reply;
use crate::startup::TabletsRouting;

/// A custom payload with its key.
pub(crate) type Payload = (&'static str, Vec<u8>);

impl Connection {
    /// Whether the client of an EXECUTE has another version of the statement's tablet, where the statement could be
    /// answered at once.
    #[inline]
    pub(crate) fn has_other_version(&self, reply: &Reply, prepared: &Prepared, ctx: &BindContext<'_>) -> bool {
        let Some(block) = reply.tablet_version_block else {
            return false;
        };
        let Some((table, token)) = self.server.partition_at_once(prepared, ctx) else {
            return false;
        };
        let coordinator = &self.server.engine.coordinator;
        let version = coordinator.context.with_view(|view| view.tablet_version(table, token));
        version.is_some_and(|version| !block.is_of(version))
    }

    /// The location of a statement's tablet, if the client needs it: the request reached the wrong shard, or the client
    /// has another version of the tablet.
    pub(crate) fn route(&self, reply: &Reply, partition: impl FnOnce() -> Option<(TableId, Token)>) -> Option<Payload> {
        let route = match (self.tablets_routing, reply.tablet_version_block) {
            (TabletsRouting::V1, _) => {
                let (table, token) = partition()?;
                let routes = self.server.routes.borrow();
                routes.as_ref()?(table, token)?
            }
            (TabletsRouting::V2, Some(block)) => {
                let (table, token) = partition()?;
                self.server.other_version(block, table, token)?
            }
            // A QUERY has no version.
            (TabletsRouting::V2, None) | (TabletsRouting::Untold, _) => return None,
        };
        Some((route.key(), route.encode()))
    }
}

impl Server {
    /// The table and the token of a statement that may be answered at once.
    pub(crate) fn partition_at_once(&self, prepared: &Prepared, ctx: &BindContext<'_>) -> Option<(TableId, Token)> {
        let (key, clustering) = &mut *self.key_scratch.borrow_mut();
        match prepared.plan()? {
            Plan::Select(select) if select.is_point() => {
                let is_named = select.point_names(ctx, key, clustering).ok()?;
                is_named.then(|| (select.table.id, KeyHash::of(key).token()))
            }
            Plan::Write(write) => {
                key.clear();
                let token = write.single_key(ctx, key)?.ok()?;
                Some((write.table.id, token))
            }
            _ => None,
        }
    }

    /// The tablet of a partition, unless its version has these bits or it is none of a table with tablets.
    fn other_version(&self, block: TabletVersionBlock, table: TableId, token: Token) -> Option<TabletRoute> {
        let tablet = self
            .engine
            .coordinator
            .context
            .with_view(|view| view.versioned_tablet(table, token))?;
        if block.is_of(tablet.version) {
            return None;
        }
        let replicas = tablet.replicas.iter();
        Some(TabletRoute {
            after_token: tablet.after.0,
            last_token: tablet.last.0,
            replicas: replicas
                .map(|(host, shard)| (*host.0.as_bytes(), u32::from(*shard)))
                .collect(),
            version: Some(tablet.version),
        })
    }
}
