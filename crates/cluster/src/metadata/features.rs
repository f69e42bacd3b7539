//! The ladder: what a release can do that an earlier one cannot, by names.
//!
//! Each member reports its features when it joins and when it comes back. Once all members have one, the leader makes
//! the group enable it, permanently: a node without it is refused from then on. Until then no node does what only some
//! members understand. So a cluster of two releases behaves as the older one does.
//!
//! A rung is a constant with a paragraph on what came with it, next to what needs it, and a line in [`FEATURES`].
//! Everything that 0.1.0 has is the base, which every release has, except its one rung: it shows how a field of a
//! record waits for the members, and the tests of upgrades climb it.

use crate::error::ChangeError;
use crate::metadata::command::Command;
use crate::service::Cluster;
use runtime::Instant;
pub use schema::record::PER_PARTITION_RATE_LIMIT;

/// All features of this release.
pub const FEATURES: &[&str] = &[PER_PARTITION_RATE_LIMIT];

impl Cluster {
    /// Whether all members have a feature, now and from now on.
    #[must_use]
    pub fn has_feature(&self, feature: &str) -> bool {
        self.metadata().topology.enabled_features().contains(feature)
    }

    /// Waits until the features that a command needs are enabled, if every member has them: the leader enables them
    /// soon.
    ///
    /// # Errors
    /// `NeedsFeature`, which names a member that must be upgraded first.
    pub(crate) async fn wait_for_features(&self, command: &Command, deadline: Instant) -> Result<(), ChangeError> {
        let needs = command.needs();
        loop {
            let changed = self.machine.changed.notified();
            let metadata = self.metadata();
            let Some(need) = metadata.missing_feature(&needs) else {
                return Ok(());
            };
            let (place, feature) = (&need.place, need.feature);
            let mut members = metadata.topology.members();
            if let Some(node) = members.find(|node| !node.features.contains(feature)) {
                return Err(ChangeError::NeedsFeature(format!(
                    "{place} needs feature '{feature}', which node {} at {} (release {}) lacks. Upgrade that node first. Nothing was changed",
                    node.host_id,
                    node.internode.ip(),
                    node.release
                )));
            }
            if !self.wait_until(deadline, changed).await {
                return Err(ChangeError::NeedsFeature(format!(
                    "{place} needs feature '{feature}', which all nodes have and the cluster has not enabled yet. Try again. Nothing was changed"
                )));
            }
        }
    }
}
