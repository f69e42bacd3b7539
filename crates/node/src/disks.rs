//! What a node does when a disk fails: `disk_failure_policy`.
//!
//! A shard reports each failure ([`replica::DiskFailure`]). Whatever the policy, the shard has already moved a damaged
//! sstable aside, and reads of its tokens are refused. [`decide`] says what else is done. Shard 0 does it.

use std::rc::Rc;
use std::sync::{Arc, Mutex};

use cluster::Cluster;
use config::DiskFailurePolicy;
use replica::{DiskFailure, Shard};

use crate::start::Shared;

/// What is done about a failure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reaction {
    GoOn,
    /// The node leaves service until it is restarted.
    LeaveService,
    /// The node ends.
    End,
}

fn decide(policy: DiskFailurePolicy, failure: DiskFailure) -> Reaction {
    match (policy, failure) {
        (DiskFailurePolicy::BestEffort, _) | (DiskFailurePolicy::Stop, DiskFailure::Corruption) => Reaction::GoOn,
        (DiskFailurePolicy::Stop, DiskFailure::Io) | (DiskFailurePolicy::StopParanoid, _) => Reaction::LeaveService,
        (DiskFailurePolicy::Die, _) => Reaction::End,
    }
}

/// The node's policy, and why it should leave service.
#[derive(Debug)]
pub(crate) struct Disks {
    policy: Mutex<DiskFailurePolicy>,
    retired: Mutex<Option<String>>,
}

impl Disks {
    pub(crate) fn new(policy: DiskFailurePolicy) -> Self {
        Self {
            policy: Mutex::new(policy),
            retired: Mutex::default(),
        }
    }

    pub(crate) fn set_policy(&self, policy: DiskFailurePolicy) {
        *self.policy.lock().expect("no thread panics while holding the policy") = policy;
    }

    fn policy(&self) -> DiskFailurePolicy {
        *self.policy.lock().expect("no thread panics while holding the policy")
    }

    fn retired(&self) -> Option<String> {
        self.retired
            .lock()
            .expect("no thread panics while holding the reason")
            .clone()
    }
}

/// Follows the disk failures that a shard meets.
pub(crate) fn watch(shared: &Arc<Shared>, shard: &Rc<Shard>) {
    let shared = Arc::clone(shared);
    shard.on_disk_failure(Box::new(move |failure, reason| {
        let disks = &shared.disks;
        match decide(disks.policy(), failure) {
            Reaction::GoOn => {}
            Reaction::LeaveService => {
                let mut retired = disks.retired.lock().expect("no thread panics while holding the reason");
                retired.get_or_insert_with(|| reason.to_owned());
                drop(retired);
                shared.changed.notify_all();
            }
            Reaction::End => shared.fail_everywhere(format!("disk_failure_policy is die, and {reason}")),
        }
    }));
}

/// Whether a node may start whose sstables `are_whole`.
///
/// # Errors
/// When the policy forbids it.
pub(crate) fn check_start(shared: &Shared, are_whole: bool) -> Result<(), String> {
    let is_strict = matches!(
        shared.disks.policy(),
        DiskFailurePolicy::StopParanoid | DiskFailurePolicy::Die
    );
    if is_strict && !are_whole {
        return Err("sstables are damaged and were moved aside, as the log says, and disk_failure_policy forbids to start without them. Put them back from a \
                    backup, or start with disk_failure_policy best_effort and accept the loss (ceto nodetool acceptquarantined)"
            .to_owned());
    }
    Ok(())
}

/// Takes the node out of service when its disks demand it. Spawn this on shard 0; it never returns.
pub(crate) async fn retire_when_told(shared: Arc<Shared>, cluster: Rc<Cluster>) {
    shared.changed.until(|| shared.disks.retired().is_some()).await;
    let reason = shared.disks.retired().unwrap_or_default();
    log::error!(
        "this node leaves service, as disk_failure_policy demands: {reason}. Replace the disk, then restart the node"
    );
    cluster.retire();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_policy_reacts_to_what_it_is_for() {
        use DiskFailure::{Corruption, Io};
        use DiskFailurePolicy::{BestEffort, Die, Stop, StopParanoid};
        use Reaction::{End, GoOn, LeaveService};
        let cases = [
            (BestEffort, Corruption, GoOn),
            (BestEffort, Io, GoOn),
            (Stop, Corruption, GoOn),
            (Stop, Io, LeaveService),
            (StopParanoid, Corruption, LeaveService),
            (StopParanoid, Io, LeaveService),
            (Die, Corruption, End),
            (Die, Io, End),
        ];
        for (policy, failure, reaction) in cases {
            assert_eq!(decide(policy, failure), reaction, "{policy:?} at {failure:?}");
        }
    }
}
