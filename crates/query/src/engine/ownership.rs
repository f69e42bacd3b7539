//! Whether a statement reached a shard that has its partition: the metric of token-aware drivers, and what is reported
//! to them about tablets.

use plan::{Execution, Plan};
use schema::TableId;
use topology::{HostId, Replica};
use types::Token;

use super::Engine;

/// A tablet as drivers want to know it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TabletPlace {
    /// The token before its first.
    pub after: Token,
    /// Its last token.
    pub last: Token,
    /// Its replicas: node and shard.
    pub replicas: Vec<(HostId, u16)>,
}

/// Which shard received a statement on one partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CameTo {
    /// A shard that has the partition.
    Owner,
    /// Another shard of a node that has it: a driver that does not know of shards can do no better.
    OwningNode,
    /// A shard of a node that does not have it.
    Elsewhere,
}

impl Engine {
    /// Whether this shard, or else this node, has a partition; None for tables that each node has for itself.
    pub fn came_to(&self, table: TableId, token: Token) -> Option<CameTo> {
        self.coordinator.context.with_view(|view| {
            let replicas = view.route(table)?.map.tablet_of(token).replicas;
            Some(if replicas.iter().any(|r| self.is_here(view.me, *r)) {
                CameTo::Owner
            } else if replicas.iter().any(|r| r.node == view.me) {
                CameTo::OwningNode
            } else {
                CameTo::Elsewhere
            })
        })
    }

    /// The tablet of a partition, when its table has tablets of its own and this shard is none of the tablet's
    /// replicas.
    pub fn tablet_elsewhere(&self, table: TableId, token: Token) -> Option<TabletPlace> {
        self.coordinator.context.with_view(|view| {
            let map = &view.route(table).filter(|route| route.has_own_tablets)?.map;
            let tablet = map.tablet_of(token);
            if tablet.replicas.iter().any(|r| self.is_here(view.me, *r)) {
                return None;
            }
            let (after, last) = map.token_range(tablet.id)?;
            let place = |r: &Replica| Some((view.topology.numbered(r.node)?.host_id, r.shard));
            let replicas = tablet.replicas.iter().filter_map(place).collect();
            Some(TabletPlace { after, last, replicas })
        })
    }

    fn is_here(&self, me: topology::NodeNumber, replica: Replica) -> bool {
        replica.node == me && u32::from(replica.shard) == self.coordinator.context.shard_id().0
    }
}

/// The table and the token of the one partition that a statement names; None for statements that name none or several.
pub fn partition_of(plan: &Plan, run: &Execution) -> Option<(TableId, Token)> {
    run.with(|ctx| match plan {
        Plan::Select(select) => Some((select.table.id, select.point_key(ctx).ok()??.0.token())),
        Plan::Write(write) => {
            let token = write.single_key(ctx, &mut Vec::new())?.ok()?;
            Some((write.table.id, token))
        }
        _ => None,
    })
}
