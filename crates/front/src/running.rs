//! What a shard does for its clients at a moment. Nothing is kept for it but the requests that wait or run anyway; one
//! that memory answers at once is never among them.

use std::time::Duration;

use runtime::Instant;

use crate::Front;

/// A request that a shard works on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunningRequest {
    /// Distinguishes it from the node's other requests: its shard, its client and the client's number for it. A front
    /// door gives the number alone.
    pub name: String,
    /// How long it waited for its turn.
    pub queued: Duration,
    /// How long it has been worked on since.
    pub running: Duration,
    /// What it asks: its kind, its text and its consistency level.
    pub text: String,
}

/// A request that a task works on; what it asks is the front door's.
#[derive(Debug)]
pub struct RunningTask<A> {
    /// What it asks.
    pub asked: A,
    /// How long it waited for its turn.
    pub queued: Duration,
    /// When it had its turn.
    pub began: Instant,
}

impl<A> RunningTask<A> {
    /// A request that came at the first moment and had its turn at the second.
    pub fn new(asked: A, (came, began): (Instant, Instant)) -> Self {
        Self {
            asked,
            queued: began.saturating_duration_since(came),
            began,
        }
    }
}

impl Front {
    /// What this shard works on now, in no order.
    #[must_use]
    pub fn running_requests(&self) -> Vec<RunningRequest> {
        let mut requests = Vec::new();
        let shard = runtime::shard().0;
        for connection in self.open_connections() {
            let peer = connection.session().peer;
            connection.running(&mut |request| {
                let name = format!("shard {shard}, client {peer}, {}", request.name);
                requests.push(RunningRequest { name, ..request });
            });
        }
        requests
    }
}
