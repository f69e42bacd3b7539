//! A decision on its way to the replicas, and how acceptors are asked.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mutation::Addressed;
use paxos::Proposal;
use runtime::{Instant, ShardId};
use schema::{Table, TableId};
use smallvec::SmallVec;
use topology::Replica;

use crate::cas::CasRequest;
use crate::fan::{Came, Fan};
use crate::fence::Stamp;
use crate::paxos_message::{PaxosAnswer, PaxosRequest, Phase};
use crate::tombstones::UnderWay;
use crate::{ClusterView, Coordinator, TargetError, Verb, paxos_replica, spawn};

/// Acceptors keep smaller mutations than this though everybody has learned them: to keep one is cheaper than to be told.
const PRUNE_BYTES_MIN: usize = 512;

/// Has a replica do its part of a phase.
pub(crate) fn ask(
    coordinator: &Rc<Coordinator>,
    view: &ClusterView,
    (table, key): (TableId, &[u8]),
    fan: &mut Fan<PaxosAnswer>,
    replica: Replica,
    phase: Phase,
    timeout: Duration,
) {
    let stamp = Stamp::of(view, table);
    if replica.node != view.me {
        let mut body = phase.encode(table, key);
        stamp.sign(&mut body);
        fan.call((coordinator, view), replica, Verb::Paxos, body, timeout);
        return;
    }
    let key = key.to_vec();
    let request = PaxosRequest { table, key, phase };
    if ShardId(u32::from(replica.shard)) == coordinator.shard.id() {
        fan.here(replica, paxos_replica::handle(&coordinator.shard, request, stamp));
    } else {
        fan.beside(replica, move |there| {
            paxos_replica::handle(&there.shard, request, stamp)
        });
    }
}

/// What an acceptor answered.
pub(crate) fn answer(came: Came<PaxosAnswer>, table: &Table) -> Result<PaxosAnswer, TargetError> {
    match came {
        Came::Here(answer) => Ok(answer),
        Came::There(body) => PaxosAnswer::decode(&body, table)
            .map_err(|e| TargetError::Failed(format!("a malformed answer of an acceptor: {e}"))),
    }
}

/// What a replica that was told of a decision made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Learned,
    Failed,
    /// It knows a newer view of the cluster.
    Stale,
}

/// What was chosen, on its way to all replicas.
pub(crate) struct Learning {
    coordinator: Rc<Coordinator>,
    view: Arc<ClusterView>,
    table: Arc<Table>,
    key: Vec<u8>,
    proposal: Proposal,
    fan: Fan<PaxosAnswer>,
    deadline: Instant,
    timeout: Duration,
    learned: SmallVec<[Replica; 6]>,
    /// Those that did not get it in time; hints are stored for them.
    missed: SmallVec<[Replica; 2]>,
}

impl Learning {
    pub(crate) fn new(
        coordinator: &Rc<Coordinator>,
        view: &Arc<ClusterView>,
        request: &CasRequest,
        proposal: Proposal,
        (deadline, timeout): (Instant, Duration),
    ) -> Self {
        Self {
            coordinator: Rc::clone(coordinator),
            view: Arc::clone(view),
            table: Arc::clone(&request.table),
            key: request.key.clone(),
            proposal,
            fan: Fan::new(),
            deadline,
            timeout,
            learned: SmallVec::new(),
            missed: SmallVec::new(),
        }
    }

    fn ask(&mut self, replica: Replica, phase: Phase) {
        let partition = (self.table.id, &self.key[..]);
        ask(
            &self.coordinator,
            &self.view,
            partition,
            &mut self.fan,
            replica,
            phase,
            self.timeout,
        );
    }

    /// Tells a replica. One that has accepted the proposal is told only at which ballot it was chosen.
    pub(crate) fn tell(&mut self, replica: Replica, has_accepted: bool) {
        let phase = match has_accepted {
            true => Phase::Commit(self.proposal.ballot),
            false => Phase::Learn(self.proposal.clone()),
        };
        self.ask(replica, phase);
    }

    /// Notes that a replica did not get it.
    pub(crate) fn missed(&mut self, replica: Replica) {
        self.missed.push(replica);
        if replica.node == self.view.me {
            return;
        }
        if let Some(value) = self.proposal.value() {
            let Some(mutation) = Addressed::new(value.to_vec()) else {
                return;
            };
            // A proposal of long ago may have been finished: its timestamp is that of its first ballot.
            let made_us = runtime::wall_clock_us().min(replica::min_timestamp(value));
            self.coordinator
                .missed(&self.view, replica, &[mutation], made_us, false);
        }
    }

    /// The next replica that has it, or failed; None when nobody else answers in time.
    pub(crate) async fn next(&mut self) -> Option<(Replica, Told)> {
        loop {
            let (replica, came) = self.fan.next(self.deadline).await?;
            match came.and_then(|came| answer(came, &self.table)) {
                // It was not among those whose acceptance counted.
                Ok(PaxosAnswer::Lacking) => self.ask(replica, Phase::Learn(self.proposal.clone())),
                Ok(_) => {
                    self.learned.push(replica);
                    return Some((replica, Told::Learned));
                }
                Err(error) => {
                    self.missed(replica);
                    let is_stale = matches!(error, TargetError::Stale(_));
                    return Some((replica, if is_stale { Told::Stale } else { Told::Failed }));
                }
            }
        }
    }

    /// Those that are not known to have it.
    pub(crate) fn without(&self) -> impl Iterator<Item = Replica> + '_ {
        self.fan.silent().chain(self.missed.iter().copied())
    }

    /// Goes on without the statement.
    pub(crate) fn go_on(mut self) {
        let prunes = self.missed.is_empty()
            && self
                .proposal
                .value()
                .is_some_and(|value| value.len() >= PRUNE_BYTES_MIN);
        if self.fan.outstanding() == 0 && !prunes {
            return;
        }
        let under_way = UnderWay::new(&self.coordinator);
        spawn(async move {
            let _under_way = under_way;
            while self.next().await.is_some() {}
            for replica in self.fan.silent().collect::<SmallVec<[Replica; 6]>>() {
                self.missed(replica);
            }
            if prunes && self.missed.is_empty() {
                // Everybody has it: nobody will have to be taught.
                self.prune().await;
            }
        });
    }

    /// It saves memory there, no more: what is lost is not missed.
    async fn prune(&mut self) {
        let phase = Phase::Prune(self.proposal.ballot);
        self.fan = Fan::new();
        for replica in std::mem::take(&mut self.learned) {
            if replica.node == self.view.me {
                self.ask(replica, phase.clone());
            } else if let (Some(rpc), Some(peer)) = (&self.coordinator.rpc, self.view.peer(replica.node)) {
                let mut body = phase.encode(self.table.id, &self.key);
                Stamp::of(&self.view, self.table.id).sign(&mut body);
                let _ = rpc.send(&peer, u32::from(replica.shard), Verb::Paxos as u16, body, self.timeout);
            }
        }
        while self.fan.next(self.deadline).await.is_some() {}
    }
}
