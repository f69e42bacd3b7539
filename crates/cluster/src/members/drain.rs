//! Drained or fenced: what lets a change of the cluster continue although older requests do not end.
//!
//! A node reports that it has a version of the metadata when the requests that it began in older versions have ended.
//! If some do not end in time, it makes the group raise the fence to that version: every replica refuses them then.
//! Only when all members that answer have the fence, the node reports that it has the version. A member that does not
//! answer gets the fence before it serves again, or is fenced off itself: members report their fence in each detector
//! message, and a member below that fence serves nothing until it has caught up.

use crate::metadata::command::Command;
use crate::service::Cluster;
use std::rc::Rc;
use std::time::Duration;

/// Between two attempts to have the fence raised.
const RETRY: Duration = Duration::from_millis(200);

impl Cluster {
    /// Raises the fence where requests do not end. Spawn this; it ends when the node stops.
    pub(crate) async fn run_drain(self: Rc<Self>) {
        while !self.is_stopping.get() {
            let changed = self.machine.changed.notified();
            let Some(undrained) = self.machine.undrained() else {
                changed.await;
                continue;
            };
            if self.metadata().fence < undrained.last {
                let fence = Command::Fence { index: undrained.last };
                if let Err(error) = self.propose(fence).await {
                    log::debug!(
                        "requests from before version {} are not fenced off yet: {error}",
                        undrained.last
                    );
                }
            } else if self.peers.all_live_refuse(undrained.last) {
                self.machine.set_drained(undrained);
                continue;
            }
            self.rest(RETRY).await;
        }
    }
}
