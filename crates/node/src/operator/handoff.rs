//! Hinted handoff as operators see it: they ask shard 0, which has all shards change together.

use std::collections::BTreeSet;
use std::time::Duration;

use admin::handoff::{Change, Handoff, MissedWrites, Pending, Rejected, State};
use admin::operator::Local;
use hints::{Order, SyncPoint};
use topology::HostId;
use types::CqlType;
use uuid::Uuid;

use super::NodeOperator;

impl Handoff for NodeOperator {
    fn handoff(&self) -> State {
        let Some(hints) = self.engine.coordinator.hints.kept() else {
            return State::default();
        };
        let allowed = hints.allowed();
        let view = self.engine.coordinator.context.view();
        let datacenters = view.topology.datacenters().into_iter();
        State {
            is_enabled: allowed.is_enabled,
            datacenters: datacenters
                .map(|name| (name.to_owned(), allowed.lists_have(name)))
                .collect(),
            is_paused: hints.is_paused(),
            window: hints.window(),
        }
    }

    fn change_handoff(&self, change: Change) -> Local<'_, ()> {
        log::info!("hinted handoff, until the node restarts: {change:?}");
        Box::pin(coordinator::Handoff::order(order(change)))
    }

    fn pending_hints(&self) -> Local<'_, Vec<Pending>> {
        Box::pin(async {
            let pending = coordinator::Handoff::pending().await.into_iter();
            let told = pending.map(|hints| Pending {
                target: hints.target.0,
                files: hints.segments,
                bytes: hints.bytes,
                oldest: hints.begun_us.map(|(oldest, _)| date(oldest)),
                newest: hints.begun_us.map(|(_, newest)| date(newest)),
            });
            told.collect()
        })
    }

    fn hand_over_now(&self) -> Local<'_, ()> {
        Box::pin(coordinator::Handoff::hand_over_now())
    }

    fn truncate_hints(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>> {
        Box::pin(coordinator::Handoff::forget(target.map(HostId)))
    }

    fn rejected_hints(&self) -> Local<'_, Vec<Rejected>> {
        Box::pin(async {
            let rejected = coordinator::Handoff::rejected().await.into_iter();
            let told = rejected.map(|(target, rejected)| Rejected {
                target: target.0,
                hints: rejected.count,
                bytes: rejected.bytes,
            });
            told.collect()
        })
    }

    fn clear_rejected_hints(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>> {
        Box::pin(coordinator::Handoff::clear_rejected(target.map(HostId)))
    }

    fn missed_writes(&self) -> Vec<MissedWrites> {
        let held = self.engine.coordinator.tombstones.held().into_iter();
        let told = held.map(|held| MissedWrites {
            reporter: held.reporter.0,
            target: held.target.map(|target| target.0),
            first: held.first,
            last: held.last,
        });
        told.collect()
    }

    fn release_tombstones(&self, target: Option<Uuid>) -> Local<'_, Result<(), String>> {
        log::info!("an operator declared missed writes repaired: {target:?} (none: all nodes)");
        Box::pin(self.engine.coordinator.tombstones.release(target.map(HostId)))
    }

    fn create_sync_point(&self, targets: Option<Vec<Uuid>>) -> Local<'_, String> {
        let targets: Option<BTreeSet<HostId>> = targets.map(|hosts| hosts.into_iter().map(HostId).collect());
        Box::pin(async move { self.engine.coordinator.hints.sync_point(targets).await.encode() })
    }

    fn await_sync_point(&self, id: String, patience: Duration) -> Local<'_, Result<bool, String>> {
        let point = SyncPoint::decode(&id, HostId(self.shared.host_id));
        Box::pin(async move {
            let point = point.map_err(|e| e.to_string())?;
            Ok(coordinator::Handoff::wait_until_reached(point, patience).await)
        })
    }
}

/// What shards are to do.
fn order(change: Change) -> Order {
    match change {
        Change::Enable(is_enabled) => Order::Allow(hints::Change::Enable(is_enabled)),
        Change::Only(names) => Order::Allow(hints::Change::Only(names.into_iter().collect())),
        Change::Datacenter(name, gets) => Order::Allow(hints::Change::Datacenter(name, gets)),
        Change::Pause(is_paused) => Order::Pause(is_paused),
        Change::Window(window) => Order::Window(window),
    }
}

/// Microseconds since 1970 as ISO 8601.
fn date(us: i64) -> String {
    CqlType::Timestamp.format(&(us / 1000).to_be_bytes())
}
