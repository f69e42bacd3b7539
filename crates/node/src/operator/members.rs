//! This node and the other members, for operators.

use std::time::Duration;

use ::cluster::{Metadata, Status};
use admin::operator::{Clock, ClockState, DiskLevel, Member, Node, Raft, State};
use query::Engine;

use crate::maintenance;
use crate::start::Shared;

fn state(state: topology::NodeState) -> State {
    match state {
        topology::NodeState::Joining => State::Joining,
        topology::NodeState::Normal => State::Normal,
        topology::NodeState::Leaving | topology::NodeState::Left => State::Leaving,
    }
}

pub(super) fn clock(verdict: &topology::ClockVerdict) -> Clock {
    use topology::{ClockDoubt, ClockState as Judged};
    let (state, reason) = match verdict.state {
        Judged::Trusted => (ClockState::Trusted, ""),
        Judged::Suspect(ClockDoubt::Unheard) => (ClockState::Suspect, "no other node was heard since the start"),
        Judged::Suspect(ClockDoubt::Stepped) => (ClockState::Suspect, "it has stepped"),
        Judged::Suspect(ClockDoubt::Outvoted) => (ClockState::Suspect, "the other nodes disagree"),
        Judged::OutOfService => (ClockState::OutOfService, "the other nodes disagree"),
    };
    #[expect(clippy::cast_precision_loss, reason = "an offset is shown in seconds")]
    let ahead_seconds = verdict.ahead_us as f64 / 1e6;
    Clock {
        state,
        reason,
        ahead_seconds,
    }
}

fn disk(level: topology::DiskLevel) -> DiskLevel {
    match level {
        topology::DiskLevel::Normal => DiskLevel::Normal,
        topology::DiskLevel::Warning => DiskLevel::Warning,
        topology::DiskLevel::Critical => DiskLevel::Critical,
    }
}

/// The members, as the node hears of them.
pub(super) fn of_status(metadata: &Metadata, status: &Status) -> Vec<Member> {
    let members = status.members.iter().map(|member| {
        let node = metadata.topology.node(member.host_id);
        Member {
            host_id: member.host_id.0,
            address: member.internode.ip(),
            native: node.map_or(member.internode.ip(), |node| node.native.ip()),
            datacenter: member.location.datacenter.clone(),
            rack: member.location.rack.clone(),
            state: state(member.state),
            is_live: member.is_live,
            is_zero_token: member.is_zero_token,
            is_excluded: member.is_excluded,
            takes_writes: member.takes_writes,
            disk: disk(member.disk),
            tokens: node.map_or_else(Vec::new, |node| node.tokens.iter().map(|token| token.0).collect()),
            shards: node.map_or(0, |node| node.shards),
            schema_version: member.schema_version,
            release: node.map_or_else(String::new, |node| node.release.clone()),
            differs_at: member.differs_at,
        }
    });
    members.collect()
}

/// What the node says of itself whether it is in its cluster or not, by how long ago it was started and the time of
/// that; the rest is empty.
pub(super) fn own(shared: &Shared, (elapsed, started_us): (Duration, i64)) -> Node {
    let info = shared.about.info();
    let snitch = shared.config.settings.get("endpoint_snitch").cloned().flatten();
    let snitch = snitch.unwrap_or_else(|| "SimpleSnitch".to_owned());
    Node {
        host_id: shared.host_id,
        cluster_name: String::new(),
        schema_version: uuid::Uuid::nil(),
        release: info.release_version.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        snitch: format!("org.apache.cassandra.locator.{snitch}"),
        mode: String::new(),
        uptime_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
        started_s: started_us / 1_000_000,
        serves_cql: false,
        clock: Clock {
            state: ClockState::Trusted,
            reason: "",
            ahead_seconds: 0.0,
        },
        memory: shared.config.memory,
        members: Vec::new(),
        raft: Raft {
            leader: None,
            term: 0,
            applied: 0,
            committed: 0,
            last: 0,
            voters: 0,
            withdrawn: None,
        },
    }
}

/// The node in maintenance mode: the members are those of its own copy of the metadata, and all others are down.
pub(super) fn node_apart(shared: &Shared, engine: &Engine, since: (Duration, i64)) -> Node {
    let view = engine.coordinator.context.view();
    let topology = &view.topology;
    let schema_version = engine.schema().version;
    let members = topology.members().map(|node| {
        let is_me = node.host_id.0 == shared.host_id;
        let number = topology.number(node.host_id);
        Member {
            host_id: node.host_id.0,
            address: node.internode.ip(),
            native: node.native.ip(),
            datacenter: node.location.datacenter.clone(),
            rack: node.location.rack.clone(),
            state: state(node.state),
            is_live: is_me,
            is_zero_token: topology.is_zero_token(node.host_id),
            is_excluded: topology.is_excluded(node.host_id),
            takes_writes: !is_me || shared.log_trouble().is_none(),
            disk: disk(number.map_or(topology::DiskLevel::Normal, |number| {
                engine.coordinator.context.disk_level(number)
            })),
            tokens: node.tokens.iter().map(|token| token.0).collect(),
            shards: node.shards,
            schema_version: is_me.then_some(schema_version),
            release: node.release.clone(),
            differs_at: None,
        }
    });
    let members = members.collect();
    let (is_drained, drains) = (shared.is_drained(), shared.drain_is_wanted());
    let mode = match (is_drained, drains) {
        (true, _) => "DRAINED",
        (false, true) => "DRAINING",
        (false, false) => "MAINTENANCE",
    };
    Node {
        cluster_name: topology.cluster_name().to_owned(),
        schema_version,
        mode: mode.to_owned(),
        clock: Clock {
            state: ClockState::Suspect,
            reason: maintenance::REASON,
            ahead_seconds: 0.0,
        },
        members,
        ..own(shared, since)
    }
}
