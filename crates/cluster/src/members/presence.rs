//! How a node announces that it starts or stops: no request is sent to it too early, and no node waits for it too long.
//!
//! **Starting.** A node that answers pings can take the requests of other nodes. It greets each member. The member
//! answers when it takes the node for up, on all its shards, and names the other nodes that it takes for up. The node
//! has *met its peers* when each member has answered and is up for the node too, or is down as reported by a member
//! that serves. So an operator that sees the node serve may stop the next one. A member of which no node knows anything
//! is waited for, [`MEET_INTERVALS`] intervals of the failure detector at most. A node that hears that the others
//! refuse what it routes, because it was away while the cluster changed, lets no clients in before it has caught up: it
//! would fail them. Once clients are let in, the node announces that too: until then the others do not report it to
//! their clients. It does the same when its operator closes it to clients (`nodetool disablebinary`) and opens it
//! again. A node that starts has forgotten what other nodes announced, and learns it from the answers to its greetings.
//!
//! **Stopping.** A node that leaves sends a goodbye, and stops answering pings. The others answer when no shard of
//! theirs begins requests to it any more. It serves until then.

use crate::messages::wire::{self, Greeting, GreetingAnswer};
use crate::service::Cluster;
use runtime::Instant;
use std::rc::Rc;
use std::time::Duration;
use topology::HostId;

/// For how many intervals of the failure detector a node that starts waits for peers of which it knows nothing.
const MEET_INTERVALS: u32 = 4;
/// Between two greetings of a node that is not ready to answer.
const GREETING_PAUSE: Duration = Duration::from_millis(50);
/// How long a node that is greeted looks whether it takes the other for up, before it says no.
const SEES_WAIT: Duration = Duration::from_secs(1);
/// Timeout of the notice to a node that another serves clients; the notice is repeated.
const OPEN_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a node looks whether it has caught up with what the others refuse.
const CATCH_UP_POLL: Duration = Duration::from_millis(50);

impl Cluster {
    /// Waits until this node and its peers take each other for up, as far as they are there; see the module. False if
    /// it stops waiting without knowing that of some.
    pub async fn meet_peers(self: &Rc<Self>) -> bool {
        let deadline = runtime::now() + self.config.failure_detector.interval * MEET_INTERVALS;
        for host in self.others() {
            drop(runtime::spawn(self.clone().greet(host, deadline)));
        }
        let has_met = loop {
            let heard = self.peers.heard.notified();
            if self.unmet().is_empty() {
                break true;
            }
            if !self.wait_until(deadline, heard).await {
                break false;
            }
        };
        if !has_met {
            let unmet: Vec<String> = self.unmet().iter().map(HostId::to_string).collect();
            log::info!("cannot determine whether these nodes are up: {}", unmet.join(", "));
        }
        self.listener.liveness_taken().await;
        has_met
    }

    /// Waits until this node has the version of the cluster without which the others refuse what it routes, and no
    /// longer than that. Whether it has.
    pub async fn catch_up(&self, longest: Duration) -> bool {
        let deadline = runtime::now() + longest;
        while self.peers.refused_before().is_some() {
            if self.is_stopping.get() || runtime::now() >= deadline {
                return false;
            }
            self.rest(CATCH_UP_POLL).await;
        }
        true
    }

    fn others(&self) -> Vec<HostId> {
        let metadata = self.metadata();
        let hosts = metadata.topology.members().map(|node| node.host_id);
        hosts.filter(|host| *host != self.config.host_id).collect()
    }

    /// The members that may be alive and have not met this node yet.
    fn unmet(&self) -> Vec<HostId> {
        let greeted = self.greeted.borrow();
        let is_met = |host: &HostId| self.peers.is_live(*host) && greeted.contains_key(host);
        let is_known_down = |host: &HostId| {
            !self.peers.has_spoken(*host)
                && greeted
                    .values()
                    .any(|answer| answer.is_open && !answer.live.contains(host))
        };
        let mut others = self.others();
        others.retain(|host| !is_met(host) && !is_known_down(host));
        others
    }

    async fn greet(self: Rc<Self>, host: HostId, deadline: Instant) {
        while runtime::now() < deadline && !self.is_stopping.get() {
            let left = deadline - runtime::now();
            let answer = self.say(host, Greeting::Starting, left).await;
            if let Some(answer) = answer.filter(|answer| answer.sees) {
                self.peers.on_greeting_answer(host, answer.is_open);
                self.greeted.borrow_mut().insert(host, answer);
                self.peers.heard.notify_all();
                return;
            }
            self.rest(GREETING_PAUSE).await;
        }
    }

    async fn say(&self, host: HostId, greeting: Greeting, timeout: Duration) -> Option<GreetingAnswer> {
        let peer = self.peers.peer(host)?;
        let answer = self
            .rpc
            .call(&peer, 0, wire::GREETING, greeting.encode(), timeout)
            .await;
        GreetingAnswer::decode(&answer.ok()?).ok()
    }

    /// Takes the greeting of a node.
    pub(crate) async fn greeted_by(&self, from: HostId, greeting: Greeting) -> GreetingAnswer {
        self.peers.on_greeting(from, greeting);
        if greeting == Greeting::Starting {
            // What its previous run has heard is lost.
            self.told_serving.borrow_mut().remove(&from);
        }
        let deadline = runtime::now() + SEES_WAIT;
        loop {
            let heard = self.peers.heard.notified();
            if greeting != Greeting::Starting || self.peers.is_live(from) || !self.wait_until(deadline, heard).await {
                break;
            }
        }
        self.listener.liveness_taken().await;
        GreetingAnswer {
            sees: self.peers.is_live(from),
            is_open: self.is_open.get() && !self.is_closed.get(),
            live: self.live(),
        }
    }

    /// This node lets clients in from now on, unless its operator has closed it. The other members are notified.
    pub fn open(self: &Rc<Self>) {
        self.is_open.set(true);
        let cluster = self.clone();
        drop(runtime::spawn(async move { cluster.say_serving().await }));
    }

    /// An operator closes this node to clients, or opens it again. Returns when the members that answer are notified,
    /// so far as they answer in a second; the others are notified when they answer again.
    pub async fn set_closed(self: &Rc<Self>, is_closed: bool) {
        self.is_closed.set(is_closed);
        self.say_serving().await;
    }

    /// Notifies the members that answer whether this node serves clients, except those that know it already.
    pub(crate) async fn say_serving(self: &Rc<Self>) {
        let serves = !self.is_closed.get();
        // Until the group has this node's address, the others would announce the former one.
        let metadata = self.metadata();
        let own = metadata.topology.node(self.config.host_id);
        let is_registered = own.is_some_and(|node| node.native == self.config.native);
        if !self.is_open.get() || !is_registered {
            return;
        }
        let greeting = if serves { Greeting::Open } else { Greeting::Closed };
        let mut others = self.live();
        others.remove(&self.config.host_id);
        others.retain(|host| self.told_serving.borrow().get(host) != Some(&serves));
        let calls: Vec<_> = others
            .into_iter()
            .map(|host| {
                let cluster = self.clone();
                let call = async move { cluster.say(host, greeting, OPEN_TIMEOUT).await };
                (host, runtime::spawn(call))
            })
            .collect();
        for (host, call) in calls {
            if call.await.is_some() {
                self.told_serving.borrow_mut().insert(host, serves);
            }
        }
    }

    /// Notifies the others that this node is about to stop: when this returns, they begin no requests to it any more,
    /// as far as they answered in a second. Requests that clients make to this node are served as before, with the
    /// others' help.
    pub async fn leave(&self) {
        self.is_departing.set(true);
        self.hand_over().await;
        if !self.peers.is_leaving.replace(true) {
            self.peers.say_goodbye().await;
        }
    }
}
