//! What nodes say to each other about metadata and membership.
//!
//! One-way messages:
//!
//! - 100: Raft id of the sender, a message of the metadata group.
//! - 101: a message of the failure detector or none, and what the sender has: log index, schema version, address; its
//!   health.
//!
//! Calls:
//!
//! - 102: asks a node for its identity, and for the nodes that it knows with their addresses.
//! - 103: a node asks to join.
//! - 105: the sender stops; no body, and none in the answer.
//! - 106: the sender has started, and serves clients or not yet.
//! - 107: which run of the sender was noted last; no body.
//! - 108: a node without its metadata asks for it, and for another Raft id; no body. The answer is that to a request to
//!   join.
//! - 109: how many bytes the sstables of the node have; no body.
//! - 110: how many bytes the sstables of each tablet of the node have, the load of each, the node's disk, and what is
//!   still to be cut. The body names tables that are about to be split.
//! - 111: the balance report of the last plan, asked of the leader; no body.

use crate::config::{Disk, Splits, TabletBytes, TabletReport};
use crate::metadata::Run;
use crate::metadata::bytes::{Decoder, Encoder, Form, Malformed};
use crate::metadata::history::History;
use crate::metadata::lineage::Lineage;
use record::Known;
use schema::TableId;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;
use topology::record::NodeRecord;
use topology::{DiskLevel, HostId, JoinRequest, Message, Replaced, TABLETS_MAX};
use types::Token;
use uuid::Uuid;

pub(crate) const RAFT: u16 = 100;
pub(crate) const STATE: u16 = 101;
pub(crate) const WHO: u16 = 102;
pub(crate) const JOIN: u16 = 103;
pub(crate) const GOODBYE: u16 = 105;
pub(crate) const GREETING: u16 = 106;
pub(crate) const RUN: u16 = 107;
pub(crate) const REJOIN: u16 = 108;
pub(crate) const LOAD: u16 = 109;
pub(crate) const TABLET_BYTES: u16 = 110;
pub(crate) const BALANCE: u16 = 111;
pub(crate) const EXCLUDE: u16 = 112;
pub(crate) const RING_COPIED: u16 = 113;
pub(crate) const RING_COPY_FAILURE: u16 = 114;

const fn form(kind: u8, name: &'static str) -> Form {
    Form {
        kind,
        oldest: 1,
        format: 1,
        name,
    }
}

const STATE_FORM: Form = form(b's', "a node's state");
const WHO_FORM: Form = form(b'w', "a node's name");
const JOIN_FORM: Form = form(b'j', "a request to join");
const JOIN_ANSWER_FORM: Form = form(b'J', "the answer to a request to join");
const GREETING_FORM: Form = form(b'g', "a greeting");
const GREETING_ANSWER_FORM: Form = form(b'G', "the answer to a greeting");
const LOAD_FORM: Form = form(b'l', "a node's load");
const RING_COPIED_FORM: Form = form(b'c', "copied ranges of the token ring");
const RING_COPY_FAILURE_FORM: Form = form(b'F', "why ranges of the token ring could not be copied");
const TABLET_BYTES_FORM: Form = form(b'b', "the bytes of a node's tablets");
const SPLITS_FORM: Form = form(b'p', "tables that are about to be split");
const HOSTS_FORM: Form = form(b'x', "members that are to be excluded");
const RUN_FORM: Form = form(b'r', "a node's last run");

/// A node's word about itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct State {
    pub(crate) message: Option<Message>,
    pub(crate) log_index: u64,
    pub(crate) schema_version: Uuid,
    pub(crate) internode: SocketAddr,
    /// The receiver is not a member any more, by what the sender knows.
    pub(crate) has_left: bool,
    /// How the sender is.
    pub(crate) health: Health,
    /// Of the metadata; None as long as the sender has applied no command, or the receiver is no member.
    pub(crate) lineage: Option<Lineage>,
}

/// The health that a node reports of itself at the moment of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Health {
    /// Its system's wall clock, in microseconds since 1970.
    pub(crate) clock_us: i64,
    /// It trusts that clock.
    pub(crate) is_clock_trusted: bool,
    /// Its commitlog takes writes.
    pub(crate) takes_writes: bool,
    /// The fence of its metadata: requests that were routed by older versions are refused.
    pub(crate) fence: u64,
    /// How full its disks are.
    pub(crate) disk: DiskLevel,
}

const DISK_LEVELS: [DiskLevel; 3] = [DiskLevel::Normal, DiskLevel::Warning, DiskLevel::Critical];

impl Health {
    fn encode(self, out: &mut Encoder) {
        out.number(self.clock_us.cast_unsigned());
        out.byte(u8::from(self.is_clock_trusted));
        out.byte(u8::from(self.takes_writes));
        out.number(self.fence);
        out.byte(self.disk as u8);
    }

    fn decode(d: &mut Decoder<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            clock_us: d.number()?.cast_signed(),
            is_clock_trusted: d.bool()?,
            takes_writes: d.bool()?,
            fence: d.number()?,
            disk: {
                let level = d.byte()?;
                let known = DISK_LEVELS.get(usize::from(level));
                *known.ok_or_else(|| d.malformed(format!("there is no disk level {level}")))?
            },
        })
    }
}

impl State {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(STATE_FORM);
        let (kind, seq, target) = match self.message {
            None => (0, 0, None),
            Some(Message::Ping { seq }) => (1, seq, None),
            Some(Message::Ack { seq }) => (2, seq, None),
            Some(Message::PingRequest { seq, target }) => (3, seq, Some(target)),
            Some(Message::PingRequestAck { seq, target }) => (4, seq, Some(target)),
        };
        out.byte(kind);
        out.number(seq);
        out.uuid(target.map_or(Uuid::nil(), |host| host.0));
        out.number(self.log_index);
        out.uuid(self.schema_version);
        out.address(self.internode);
        out.byte(u8::from(self.has_left));
        self.health.encode(&mut out);
        out.option(self.lineage.as_ref(), put_lineage);
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, STATE_FORM)?;
        let (kind, seq, target) = (d.byte()?, d.number()?, HostId(d.uuid()?));
        let message = match kind {
            0 => None,
            1 => Some(Message::Ping { seq }),
            2 => Some(Message::Ack { seq }),
            3 => Some(Message::PingRequest { seq, target }),
            4 => Some(Message::PingRequestAck { seq, target }),
            other => return Err(d.malformed(format!("there is no message {other}"))),
        };
        let state = Self {
            message,
            log_index: d.number()?,
            schema_version: d.uuid()?,
            internode: d.address()?,
            has_left: d.bool()?,
            health: Health::decode(&mut d)?,
            lineage: d.option(get_lineage)?,
        };
        d.end()?;
        Ok(state)
    }
}

fn put_lineage(out: &mut Encoder, lineage: &Lineage) {
    put_history(out, lineage.last);
    out.option(lineage.at_yours, put_history);
    put_run(out, lineage.your_run);
}

fn get_lineage(d: &mut Decoder<'_>) -> Result<Lineage, Malformed> {
    Ok(Lineage {
        last: get_history(d)?,
        at_yours: d.option(get_history)?,
        your_run: get_run(d)?,
    })
}

fn put_history(out: &mut Encoder, (index, history): (u64, History)) {
    out.number(index);
    out.uuid(Uuid::from_u128(history.0));
}

fn get_history(d: &mut Decoder<'_>) -> Result<(u64, History), Malformed> {
    Ok((d.number()?, History(d.uuid()?.as_u128())))
}

fn put_run(out: &mut Encoder, run: Run) {
    out.number(u64::from(run.generation));
    out.number(run.name);
}

fn get_run(d: &mut Decoder<'_>) -> Result<Run, Malformed> {
    let generation = u32::try_from(d.number()?).map_err(|e| d.malformed(e))?;
    let name = d.number()?;
    Ok(Run { generation, name })
}

pub(crate) fn encode_run(run: Run) -> Vec<u8> {
    let mut out = Encoder::begin(RUN_FORM);
    put_run(&mut out, run);
    out.seal()
}

pub(crate) fn decode_run(bytes: &[u8]) -> Result<Run, Malformed> {
    let mut d = Decoder::open(bytes, RUN_FORM)?;
    let run = get_run(&mut d)?;
    d.end()?;
    Ok(run)
}

/// A node's identity and its peers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Who {
    /// Differs from run to run, so that a node knows its own answer.
    pub(crate) incarnation: u64,
    /// None: it is in no cluster yet.
    pub(crate) cluster_id: Option<Uuid>,
    /// The nodes that it knows, and where it reaches them.
    pub(crate) peers: Vec<(HostId, SocketAddr)>,
}

/// Peers that one answer names.
const PEERS_MAX: usize = 4096;

impl Who {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(WHO_FORM);
        out.number(self.incarnation);
        out.option(self.cluster_id, Encoder::uuid);
        let peers = &self.peers[..self.peers.len().min(PEERS_MAX)];
        out.count(peers.len());
        for (host, address) in peers {
            out.uuid(host.0);
            out.address(*address);
        }
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, WHO_FORM)?;
        let (incarnation, cluster_id) = (d.number()?, d.option(Decoder::uuid)?);
        let mut peers = Vec::new();
        for _ in 0..d.count()? {
            peers.push((HostId(d.uuid()?), d.address()?));
        }
        d.end()?;
        Ok(Self {
            incarnation,
            cluster_id,
            peers,
        })
    }
}

pub(crate) fn encode_join(request: &JoinRequest) -> Vec<u8> {
    let mut out = Encoder::begin(JOIN_FORM);
    out.blob(request.cluster_name.as_bytes());
    out.option(request.cluster_id, Encoder::uuid);
    out.blob(&record::encode(&NodeRecord::of(&request.node)));
    out.number(u64::try_from(request.wall_clock.as_micros()).unwrap_or(u64::MAX));
    out.byte(u8::from(request.auto_bootstrap));
    out.byte(u8::from(request.joins_ring));
    out.option(request.replaces, encode_named);
    out.count(request.ignored.len());
    request.ignored.iter().for_each(|node| encode_named(&mut out, *node));
    out.seal()
}

fn encode_named(out: &mut Encoder, node: Replaced) {
    match node {
        Replaced::Host(host_id) => {
            out.byte(0);
            out.uuid(host_id.0);
        }
        Replaced::Address(address) => {
            out.byte(1);
            out.address(SocketAddr::new(address, 0));
        }
    }
}

fn decode_named(d: &mut Decoder<'_>) -> Result<Replaced, Malformed> {
    Ok(if d.bool()? {
        Replaced::Address(d.address()?.ip())
    } else {
        Replaced::Host(HostId(d.uuid()?))
    })
}

pub(crate) fn decode_join(bytes: &[u8]) -> Result<JoinRequest, Malformed> {
    let mut d = Decoder::open(bytes, JOIN_FORM)?;
    let cluster_name = d.text()?;
    let cluster_id = d.option(Decoder::uuid)?;
    // It says what features it has; so all that this build knows is read.
    let node: NodeRecord = record::decode(d.blob()?, &Known::everything()).map_err(|e| d.malformed(e))?;
    let node = node.node().map_err(|e| d.malformed(e))?;
    let wall_clock = Duration::from_micros(d.number()?);
    let auto_bootstrap = d.bool()?;
    let joins_ring = d.bool()?;
    let replaces = d.option(decode_named)?;
    let mut ignored = Vec::new();
    for _ in 0..d.count()? {
        ignored.push(decode_named(&mut d)?);
    }
    d.end()?;
    Ok(JoinRequest {
        cluster_name,
        cluster_id,
        node,
        wall_clock,
        auto_bootstrap,
        joins_ring,
        replaces,
        ignored,
    })
}

/// The answer to a node that asks to join.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum JoinAnswer {
    /// It is in: the metadata, with the node in it.
    Welcome(Vec<u8>),
    /// No, for this reason.
    Refused(String),
    /// Not now, for this reason.
    Later(String),
}

impl JoinAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(JOIN_ANSWER_FORM);
        let (kind, bytes) = match self {
            Self::Welcome(metadata) => (0, metadata.as_slice()),
            Self::Refused(reason) => (1, reason.as_bytes()),
            Self::Later(reason) => (2, reason.as_bytes()),
        };
        out.byte(kind);
        out.blob(bytes);
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, JOIN_ANSWER_FORM)?;
        let answer = match d.byte()? {
            0 => Self::Welcome(d.blob()?.to_vec()),
            1 => Self::Refused(d.text()?),
            2 => Self::Later(d.text()?),
            other => return Err(d.malformed(format!("there is no answer {other}"))),
        };
        d.end()?;
        Ok(answer)
    }
}

pub(crate) fn encode_load(bytes: u64) -> Vec<u8> {
    encode_number(LOAD_FORM, bytes)
}

pub(crate) fn decode_load(bytes: &[u8]) -> Result<u64, Malformed> {
    decode_number(LOAD_FORM, bytes)
}

/// A request for the copied ranges of the token ring (the version of the stage), and its answer (how many).
pub(crate) fn encode_ring_copied(number: u64) -> Vec<u8> {
    encode_number(RING_COPIED_FORM, number)
}

pub(crate) fn decode_ring_copied(bytes: &[u8]) -> Result<u64, Malformed> {
    decode_number(RING_COPIED_FORM, bytes)
}

/// The answer to a request for the last failure of copies of the token ring: empty when there was none since the last
/// success.
pub(crate) fn encode_ring_copy_failure(why: &str) -> Vec<u8> {
    let mut out = Encoder::begin(RING_COPY_FAILURE_FORM);
    out.blob(why.as_bytes());
    out.seal()
}

pub(crate) fn decode_ring_copy_failure(bytes: &[u8]) -> Result<String, Malformed> {
    let mut d = Decoder::open(bytes, RING_COPY_FAILURE_FORM)?;
    let why = d.text()?;
    d.end()?;
    Ok(why)
}

fn encode_number(form: Form, number: u64) -> Vec<u8> {
    let mut out = Encoder::begin(form);
    out.number(number);
    out.seal()
}

fn decode_number(form: Form, bytes: &[u8]) -> Result<u64, Malformed> {
    let mut d = Decoder::open(bytes, form)?;
    let number = d.number()?;
    d.end()?;
    Ok(number)
}

/// What a node reports of its tablets.
pub(crate) fn encode_tablet_report(report: &TabletReport) -> Vec<u8> {
    let mut out = Encoder::begin(TABLET_BYTES_FORM);
    out.count(report.tablets.len());
    for tablet in &report.tablets {
        out.uuid(tablet.table.0);
        out.number(tablet.last.0.cast_unsigned());
        out.number(tablet.bytes);
        out.option(tablet.load, |out, load| out.number(u64::from(load.to_bits())));
    }
    out.option(report.disk, |out, disk| {
        out.number(disk.capacity);
        out.number(disk.used);
    });
    out.count(report.uncut.len());
    for (table, bytes) in &report.uncut {
        out.uuid(table.0);
        out.number(*bytes);
    }
    out.seal()
}

pub(crate) fn decode_tablet_report(bytes: &[u8]) -> Result<TabletReport, Malformed> {
    let mut d = Decoder::open(bytes, TABLET_BYTES_FORM)?;
    let mut report = TabletReport::default();
    for _ in 0..d.count()? {
        report.tablets.push(TabletBytes {
            table: TableId(d.uuid()?),
            last: Token(d.number()?.cast_signed()),
            bytes: d.number()?,
            load: d.option(load)?,
        });
    }
    report.disk = d.option(|d| {
        Ok(Disk {
            capacity: d.number()?,
            used: d.number()?,
        })
    })?;
    for _ in 0..d.count()? {
        report.uncut.push((TableId(d.uuid()?), d.number()?));
    }
    d.end()?;
    Ok(report)
}

fn load(d: &mut Decoder<'_>) -> Result<f32, Malformed> {
    let bits = u32::try_from(d.number()?).map_err(|e| d.malformed(e))?;
    let load = f32::from_bits(bits);
    if load.is_finite() && load >= 0.0 {
        Ok(load)
    } else {
        Err(d.malformed(format!("{load} requests per second")))
    }
}

/// Tables that are about to be split.
pub(crate) fn encode_splits(splits: &Splits) -> Vec<u8> {
    let mut out = Encoder::begin(SPLITS_FORM);
    out.count(splits.len());
    for (table, tablet_count) in splits {
        out.uuid(table.0);
        out.number(u64::from(*tablet_count));
    }
    out.seal()
}

pub(crate) fn decode_splits(bytes: &[u8]) -> Result<Splits, Malformed> {
    let mut d = Decoder::open(bytes, SPLITS_FORM)?;
    let mut splits = Splits::new();
    for _ in 0..d.count()? {
        let table = TableId(d.uuid()?);
        let tablet_count = u32::try_from(d.number()?).map_err(|e| d.malformed(e))?;
        if tablet_count > TABLETS_MAX {
            return Err(d.malformed(format!("a table cannot have {tablet_count} tablets")));
        }
        splits.push((table, tablet_count));
    }
    d.end()?;
    Ok(splits)
}

pub(crate) fn encode_hosts(hosts: &[HostId]) -> Vec<u8> {
    let mut out = Encoder::begin(HOSTS_FORM);
    out.count(hosts.len());
    for host in hosts {
        out.uuid(host.0);
    }
    out.seal()
}

pub(crate) fn decode_hosts(bytes: &[u8]) -> Result<Vec<HostId>, Malformed> {
    let mut d = Decoder::open(bytes, HOSTS_FORM)?;
    let mut hosts = Vec::new();
    for _ in 0..d.count()? {
        hosts.push(HostId(d.uuid()?));
    }
    d.end()?;
    Ok(hosts)
}

/// What a node says of itself to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Greeting {
    /// It has started, and serves no clients yet.
    Starting = 0,
    /// It serves clients.
    Open = 1,
    /// Its operator has closed it to clients.
    Closed = 2,
}

impl Greeting {
    pub(crate) fn encode(self) -> Vec<u8> {
        let mut out = Encoder::begin(GREETING_FORM);
        out.byte(self as u8);
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, GREETING_FORM)?;
        let greeting = match d.byte()? {
            0 => Self::Starting,
            1 => Self::Open,
            2 => Self::Closed,
            other => return Err(d.malformed(format!("expected 0, 1 or 2, found {other}"))),
        };
        d.end()?;
        Ok(greeting)
    }
}

/// What a node says that was greeted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct GreetingAnswer {
    /// It takes the other for up.
    pub(crate) sees: bool,
    /// It serves clients, so it knows its peers.
    pub(crate) is_open: bool,
    /// The nodes that it takes for up.
    pub(crate) live: BTreeSet<HostId>,
}

impl GreetingAnswer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Encoder::begin(GREETING_ANSWER_FORM);
        out.byte(u8::from(self.sees));
        out.byte(u8::from(self.is_open));
        out.count(self.live.len());
        for host in &self.live {
            out.uuid(host.0);
        }
        out.seal()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, GREETING_ANSWER_FORM)?;
        let (sees, is_open) = (d.bool()?, d.bool()?);
        let mut live = BTreeSet::new();
        for _ in 0..d.count()? {
            live.insert(HostId(d.uuid()?));
        }
        d.end()?;
        Ok(Self { sees, is_open, live })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> TabletReport {
        let table = TableId(Uuid::from_u128(7));
        let tablet = |last, load| TabletBytes {
            table,
            last: Token(last),
            bytes: 300,
            load,
        };
        TabletReport {
            tablets: vec![tablet(-9, Some(0.5)), tablet(i64::MAX, None)],
            disk: Some(Disk {
                capacity: u64::MAX,
                used: 1,
            }),
            uncut: vec![(table, 5)],
        }
    }

    #[test]
    fn a_report_of_tablets_is_read_and_a_load_is_a_number_of_requests() {
        assert_eq!(decode_tablet_report(&encode_tablet_report(&report())), Ok(report()));
        for load in [f32::NAN, -1.0, f32::INFINITY] {
            let mut wrong = report();
            wrong.tablets[0].load = Some(load);
            let error = decode_tablet_report(&encode_tablet_report(&wrong)).expect_err("no such load");
            assert!(error.to_string().contains("requests per second"), "{error}");
        }
    }

    #[test]
    fn splits_are_read_and_a_table_has_so_many_tablets_at_most() {
        let splits = vec![(TableId(Uuid::from_u128(7)), 8), (TableId(Uuid::nil()), TABLETS_MAX)];
        assert_eq!(decode_splits(&encode_splits(&splits)), Ok(splits));
        assert_eq!(decode_splits(&encode_splits(&Splits::new())), Ok(Splits::new()));
        // A reader that believes the count allocates space for the end of each tablet.
        let too_many = vec![(TableId(Uuid::from_u128(1)), 1 << 31)];
        let refused = decode_splits(&encode_splits(&too_many)).expect_err("nobody has so many");
        assert!(
            refused.to_string().contains("cannot have 2147483648 tablets"),
            "{refused}"
        );
    }

    #[test]
    fn a_request_to_join_is_read_as_it_was_written() {
        let (verb, body) = crate::fuzz::join(&crate::fuzz::sample_request(SocketAddr::from(([10, 0, 0, 1], 7000))));
        assert_eq!(verb, JOIN);
        let mut request = decode_join(&body).expect("the sample");
        assert!(!request.joins_ring && request.replaces.is_some() && request.ignored.len() == 1);
        for joins_ring in [true, false] {
            for (replaces, ignored) in [(true, 1), (true, 0), (false, 2), (false, 0)] {
                let host = |n| Replaced::Host(HostId(Uuid::from_u128(n)));
                request.joins_ring = joins_ring;
                request.replaces = replaces.then(|| Replaced::Address(request.node.native.ip()));
                request.ignored = (0..ignored).map(host).collect();
                assert_eq!(decode_join(&encode_join(&request)), Ok(request.clone()));
            }
        }
    }

    #[test]
    fn a_state_with_and_without_lineage_is_read_and_nothing_shorter_or_longer() {
        let health = Health {
            clock_us: i64::MIN,
            is_clock_trusted: false,
            takes_writes: true,
            fence: 12,
            disk: DiskLevel::Critical,
        };
        let lineage = Lineage {
            last: (7, History(1)),
            at_yours: Some((5, History(2))),
            your_run: Run { generation: 1, name: 3 },
        };
        for lineage in [None, Some(lineage)] {
            let state = State {
                message: Some(Message::Ack { seq: 7 }),
                log_index: 1,
                schema_version: Uuid::nil(),
                internode: SocketAddr::from(([10, 0, 0, 1], 7000)),
                has_left: false,
                health,
                lineage,
            };
            let bytes = state.encode();
            assert_eq!(State::decode(&bytes), Ok(state));
            // With a checksum that fits, so that only the length is wrong.
            let sealed = |body: &[u8]| [body, &crc32fast::hash(body).to_be_bytes()].concat();
            let body = &bytes[..bytes.len() - 4];
            for wrong in [&body[..body.len() - 1], &[body, &[0]].concat()] {
                assert!(State::decode(&sealed(wrong)).is_err(), "{} bytes", wrong.len());
            }
        }
    }
}
