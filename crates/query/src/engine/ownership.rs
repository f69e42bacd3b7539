//! Whether a statement came to a shard that has its partition: what token-aware drivers are measured by.

use types::Token;

use super::{Engine, Execution, Plan};

impl Engine {
    /// Whether this shard is a replica of the one partition that a statement names; None for statements that name none or several, and
    /// for tables that each node has for itself.
    pub fn is_replica(&self, plan: &Plan, run: &Execution) -> Option<bool> {
        let token = run.with(|ctx| -> Option<Token> {
            match plan {
                Plan::Select(select) => Some(select.point_key(ctx).ok()??.0),
                Plan::Write(write) => write.single_key(ctx, &mut Vec::new())?.ok(),
                _ => None,
            }
        })?;
        let table = match plan {
            Plan::Select(select) => select.table.id,
            Plan::Write(write) => write.table.id,
            _ => return None,
        };
        let view = self.coordinator.view();
        let tablet = view.route(table)?.map.tablet_of(token);
        let here =
            |replica: &topology::Replica| replica.node == view.me && u32::from(replica.shard) == self.shard.id().0;
        Some(tablet.replicas.iter().any(here))
    }
}
