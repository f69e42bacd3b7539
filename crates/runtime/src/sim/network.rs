//! The network between simulated nodes: connections as TCP gives them, over links that delay, lose and are cut.
//!
//! A connection is two pipes. A segment put into a pipe arrives after the link's latency, in order. A segment lost on a
//! bad link, or sent over a cut one, is sent again later, as TCP does; after a minute without success the connection is
//! reset. A pipe holds at most [`WINDOW`] bytes that the reader has not read; the writer waits for room. When a process
//! is killed its ends are reset; when its machine loses power the peers get no notice, and find out by their own
//! timeouts.
//!
//! Bytes of a connection come once and in order, whatever the link does. Messages may not: a request may be sent again,
//! or take effect after one that was sent later. So a link has a chance for that too, for which readers of whole
//! messages ask ([`Fate`]).
//!
//! Every end is a number; what is kept in a stream is only the number, so that a detached stream can go to another
//! shard.

use super::NodeId;
use super::world::{World, world, world_and_node};
use crate::clock::Instant;
use crate::net::Fate;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

/// Bytes sent and not read that a pipe holds.
const WINDOW: usize = 256 * 1024;

/// Latency of a good link.
const LATENCY: (Duration, Duration) = (Duration::from_micros(30), Duration::from_micros(500));

/// Latency within one machine.
const LOOPBACK_LATENCY: (Duration, Duration) = (Duration::from_micros(5), Duration::from_micros(50));

/// After a loss, how long until the next attempt.
const RETRANSMIT: Duration = Duration::from_millis(200);

/// After so long without an answer a connection is lost.
const GIVE_UP: Duration = Duration::from_mins(1);

/// How late a message comes that is overtaken or repeated.
const LATE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(800));

const FIRST_EPHEMERAL_PORT: u16 = 32_768;

#[derive(Default)]
pub(crate) struct Network {
    listeners: BTreeMap<u64, ListenerState>,
    connections: BTreeMap<u64, Connection>,
    links: BTreeMap<(NodeId, NodeId), Link>,
    next_number: u64,
    next_port: BTreeMap<NodeId, u16>,
    /// Messages that took effect twice, or after later ones.
    pub(crate) disturbed: u64,
}

/// One direction between two machines.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    pub(crate) extra_delay: Duration,
    /// Of a million segments, how many are lost.
    pub(crate) lost_per_million: u64,
    /// Of a million messages, how many take effect twice.
    pub(crate) repeated_per_million: u64,
    /// Of a million messages, how many take effect after later ones.
    pub(crate) overtaken_per_million: u64,
}

impl Default for Link {
    fn default() -> Self {
        Self {
            is_up: true,
            extra_delay: Duration::ZERO,
            lost_per_million: 0,
            repeated_per_million: 0,
            overtaken_per_million: 0,
        }
    }
}

struct ListenerState {
    node: NodeId,
    address: SocketAddr,
    reuse_port: bool,
    is_open: bool,
    backlog: usize,
    accepted: VecDeque<End>,
    waiting: Vec<Waker>,
}

struct Connection {
    /// By side: the machine and the address.
    nodes: [NodeId; 2],
    addresses: [SocketAddr; 2],
    /// By the side that reads.
    pipes: [Pipe; 2],
    /// By side: the end was dropped.
    closed: [bool; 2],
    /// By side: the machine of the end lost power; what arrives there is not even refused.
    silent: [bool; 2],
}

#[derive(Default)]
struct Pipe {
    arrived: VecDeque<u8>,
    /// Bytes on their way.
    travelling: usize,
    /// Segments on their way, each with the time it is due and the time its sender gives up. Only the first can arrive.
    on_the_way: VecDeque<(Segment, Instant, Instant)>,
    /// The writer has said that nothing follows.
    ending: bool,
    /// The end has arrived at the reader's side.
    ended: bool,
    reset: Option<io::ErrorKind>,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Pipe {
    fn wake_both(&mut self) {
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    fn break_off(&mut self, kind: io::ErrorKind) {
        self.reset.get_or_insert(kind);
        self.wake_both();
    }
}

/// One side of a connection, by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct End {
    connection: u64,
    side: usize,
}

/// What travels.
enum Segment {
    Bytes(Vec<u8>),
    End,
    Reset(io::ErrorKind),
}

/// The address of a node's machine.
pub(crate) fn address_of(node: NodeId) -> IpAddr {
    let [_, _, high, low] = (node.0 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(10, 0, high, low))
}

/// The addresses at which a node's machine may listen: [`address_of`], and one more to which it may move.
pub(crate) fn addresses_of(node: NodeId) -> [IpAddr; 2] {
    let [_, _, high, low] = (node.0 + 1).to_be_bytes();
    [address_of(node), IpAddr::V4(Ipv4Addr::new(10, 1, high, low))]
}

impl Network {
    /// What a side of a connection reads. The connection is kept while an end of it is open.
    fn pipe(&mut self, connection: u64, side: usize) -> &mut Pipe {
        let connection = self.connections.get_mut(&connection);
        &mut connection.expect("a connection is kept while an end is open").pipes[side]
    }

    pub(crate) fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        self.links.entry((from, to)).or_default()
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn free_port(&mut self, node: NodeId) -> u16 {
        let port = self.next_port.entry(node).or_insert(FIRST_EPHEMERAL_PORT);
        let taken = *port;
        *port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
        taken
    }

    /// Whether an open listener has the address and does not share it.
    fn is_taken(&self, node: NodeId, address: SocketAddr, reuse_port: bool) -> bool {
        let ip = address.ip();
        let overlaps = |other: &ListenerState| {
            other.node == node
                && other.is_open
                && other.address.port() == address.port()
                && (other.address.ip() == ip || other.address.ip().is_unspecified() || ip.is_unspecified())
                && !(other.reuse_port && reuse_port)
        };
        self.listeners.values().any(overlaps)
    }

    fn listeners_at(&self, node: NodeId, target: SocketAddr) -> Vec<u64> {
        let matches = |listener: &ListenerState| {
            listener.node == node
                && listener.is_open
                && listener.address.port() == target.port()
                && (listener.address.ip().is_unspecified() || listener.address.ip() == target.ip())
        };
        self.listeners
            .iter()
            .filter(|(_, listener)| matches(listener))
            .map(|(&number, _)| number)
            .collect()
    }

    /// The process of the node is gone, and with `silent` its kernel too. The ends that must learn of it.
    fn forget_process(&mut self, node: NodeId, silent: bool) -> Vec<End> {
        self.listeners.retain(|_, listener| listener.node != node);
        let mut told = Vec::new();
        for (&number, connection) in &mut self.connections {
            for side in [0, 1] {
                if connection.nodes[side] == node && !connection.closed[side] {
                    connection.closed[side] = true;
                    connection.silent[side] = silent;
                    told.push(End {
                        connection: number,
                        side: 1 - side,
                    });
                }
            }
        }
        self.connections
            .retain(|_, connection| connection.closed != [true, true]);
        told
    }
}

/// The process of a node is gone: closes its sockets. Its peers see a reset now or, if the machine is down, a timeout
/// later.
pub(crate) fn forget_process(world: &Rc<World>, node: NodeId, machine_is_up: bool) {
    let peers = world.network.borrow_mut().forget_process(node, !machine_is_up);
    for peer in peers {
        if machine_is_up {
            let gone = End {
                connection: peer.connection,
                side: 1 - peer.side,
            };
            send(world, gone, Segment::Reset(io::ErrorKind::ConnectionReset));
        } else {
            let patience = world.latency(Duration::from_secs(5), GIVE_UP);
            world.after(patience, move |world| {
                arrive(world, peer, Segment::Reset(io::ErrorKind::TimedOut))
            });
        }
    }
}

/// Puts a segment on its way from this end to the other.
fn send(world: &Rc<World>, from: End, segment: Segment) {
    let due = {
        let mut network = world.network.borrow_mut();
        let Some(connection) = network.connections.get(&from.connection) else {
            return;
        };
        let (source, target) = (connection.nodes[from.side], connection.nodes[1 - from.side]);
        let due = world.now() + latency(world, &mut network, source, target);
        network
            .pipe(from.connection, 1 - from.side)
            .on_the_way
            .push_back((segment, due, due + GIVE_UP));
        due
    };
    let to = End {
        connection: from.connection,
        side: 1 - from.side,
    };
    world.at(due, move |world| deliver(world, to));
}

fn latency(world: &World, network: &mut Network, source: NodeId, target: NodeId) -> Duration {
    let (least, most) = if source == target { LOOPBACK_LATENCY } else { LATENCY };
    world.latency(least, most) + network.link(source, target).extra_delay
}

/// Whether something sent now gets through.
fn gets_through(world: &World, source: NodeId, target: NodeId) -> bool {
    if source == target {
        return true;
    }
    let link = *world.network.borrow_mut().link(source, target);
    link.is_up && (link.lost_per_million == 0 || world.below(1_000_000) >= link.lost_per_million)
}

/// Delivers what is due, in order. A lost segment is sent again later, and what follows it waits.
fn deliver(world: &Rc<World>, to: End) {
    loop {
        let (nodes, give_up) = {
            let network = world.network.borrow();
            let Some(connection) = network.connections.get(&to.connection) else {
                return;
            };
            let Some(&(_, due, give_up)) = connection.pipes[to.side].on_the_way.front() else {
                return;
            };
            if due > world.now() {
                return;
            }
            ([connection.nodes[1 - to.side], connection.nodes[to.side]], give_up)
        };
        let arrives = gets_through(world, nodes[0], nodes[1]);
        let mut network = world.network.borrow_mut();
        let pipe = network.pipe(to.connection, to.side);
        if arrives {
            let (segment, ..) = pipe.on_the_way.pop_front().expect("it was found just now");
            drop(network);
            arrive(world, to, segment);
        } else if world.now() >= give_up {
            drop(network);
            arrive(world, to, Segment::Reset(io::ErrorKind::TimedOut));
            return;
        } else {
            let again = world.now() + RETRANSMIT;
            pipe.on_the_way[0].1 = again;
            drop(network);
            world.note("lost", &[to.connection, to.side as u64]);
            world.at(again, move |world| deliver(world, to));
            return;
        }
    }
}

fn arrive(world: &Rc<World>, to: End, segment: Segment) {
    let mut network = world.network.borrow_mut();
    let Some(connection) = network.connections.get_mut(&to.connection) else {
        return;
    };
    let (reader_is_gone, reader_is_silent) = (connection.closed[to.side], connection.silent[to.side]);
    let pipe = &mut connection.pipes[to.side];
    match segment {
        Segment::Bytes(bytes) => {
            world.note("bytes", &[to.connection, to.side as u64, bytes.len() as u64]);
            pipe.travelling -= bytes.len();
            if reader_is_silent {
                return;
            }
            if reader_is_gone {
                pipe.break_off(io::ErrorKind::ConnectionReset);
            } else {
                pipe.arrived.extend(bytes);
            }
        }
        Segment::End => pipe.ended = true,
        Segment::Reset(kind) => {
            world.note("reset", &[to.connection, to.side as u64]);
            for pipe in &mut connection.pipes {
                pipe.break_off(kind);
            }
            return;
        }
    }
    if let Some(reader) = pipe.reader.take() {
        reader.wake();
    }
}

/// An end of a connection that a stream or its halves hold; closes when dropped.
pub(crate) struct SimulatedEnd {
    end: End,
    incarnation: u64,
    node: NodeId,
}

impl SimulatedEnd {
    fn new(end: End) -> Arc<Self> {
        let (_, node) = world_and_node();
        Arc::new(Self {
            end,
            incarnation: node.incarnation.get(),
            node: node.id,
        })
    }

    fn is_alive(&self, world: &World) -> bool {
        world.node(self.node).runs(self.incarnation)
    }

    pub(crate) async fn receive(&self, mut buffer: Vec<u8>) -> (io::Result<usize>, Vec<u8>) {
        let result = poll_fn(|context| {
            let world = world();
            let mut network = world.network.borrow_mut();
            let pipe = network.pipe(self.end.connection, self.end.side);
            if !pipe.arrived.is_empty() {
                // As with real sockets, a read may find less than was sent.
                let most = pipe.arrived.len().min(buffer.capacity() - buffer.len());
                let count = if world.once_in(8) {
                    1 + world.below(most as u64) as usize
                } else {
                    most
                }
                .min(most);
                buffer.extend(pipe.arrived.drain(..count));
                if let Some(writer) = pipe.writer.take() {
                    writer.wake();
                }
                return Poll::Ready(Ok(count));
            }
            if pipe.ended {
                return Poll::Ready(Ok(0));
            }
            if let Some(kind) = pipe.reset {
                return Poll::Ready(Err(kind.into()));
            }
            pipe.reader = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
        (result, buffer)
    }

    /// Draws what becomes of a message that has been read here.
    pub(crate) fn fate(&self) -> Fate {
        let world = world();
        let mut network = world.network.borrow_mut();
        let nodes = network.connections[&self.end.connection].nodes;
        let link = *network.link(nodes[1 - self.end.side], nodes[self.end.side]);
        let strikes = |per_million: u64| per_million > 0 && world.below(1_000_000) < per_million;
        let late = || world.latency(LATE.0, LATE.1);
        let fate = Fate {
            late: strikes(link.overtaken_per_million).then(late),
            again: strikes(link.repeated_per_million).then(late),
        };
        network.disturbed += u64::from(fate.late.is_some()) + u64::from(fate.again.is_some());
        fate
    }

    pub(crate) async fn send_all(&self, buffer: Vec<u8>, bytes: Range<usize>) -> (io::Result<()>, Vec<u8>) {
        let mut sent = bytes.start;
        let result = poll_fn(|context| {
            let world = world();
            while sent < bytes.end {
                let room = {
                    let mut network = world.network.borrow_mut();
                    let pipe = network.pipe(self.end.connection, 1 - self.end.side);
                    if let Some(kind) = pipe.reset {
                        return Poll::Ready(Err(io::Error::from(kind)));
                    }
                    if pipe.ending {
                        return Poll::Ready(Err(io::Error::from(io::ErrorKind::BrokenPipe)));
                    }
                    let room = WINDOW - (pipe.arrived.len() + pipe.travelling).min(WINDOW);
                    if room == 0 {
                        pipe.writer = Some(context.waker().clone());
                        return Poll::Pending;
                    }
                    let room = room.min(bytes.end - sent);
                    pipe.travelling += room;
                    room
                };
                send(&world, self.end, Segment::Bytes(buffer[sent..sent + room].to_vec()));
                sent += room;
            }
            Poll::Ready(Ok(()))
        })
        .await;
        (result, buffer)
    }

    pub(crate) fn shut_down(&self, how: Shutdown) -> io::Result<()> {
        let world = world();
        if how != Shutdown::Read {
            let first = {
                let mut network = world.network.borrow_mut();
                let pipe = network.pipe(self.end.connection, 1 - self.end.side);
                // A write that waits for room ends.
                if let Some(writer) = pipe.writer.take() {
                    writer.wake();
                }
                !std::mem::replace(&mut pipe.ending, true)
            };
            if first {
                send(&world, self.end, Segment::End);
            }
        }
        if how != Shutdown::Write {
            let mut network = world.network.borrow_mut();
            let pipe = network.pipe(self.end.connection, self.end.side);
            pipe.ended = true;
            pipe.wake_both();
        }
        Ok(())
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        world().network.borrow().connections[&self.end.connection].addresses[self.end.side]
    }

    pub(crate) fn peer_address(&self) -> SocketAddr {
        world().network.borrow().connections[&self.end.connection].addresses[1 - self.end.side]
    }
}

impl Drop for SimulatedEnd {
    fn drop(&mut self) {
        let Some(world) = super::world::try_world() else { return };
        if !self.is_alive(&world) {
            return;
        }
        close_end(&world, self.end);
    }
}

fn close_end(world: &Rc<World>, end: End) {
    let first = {
        let mut network = world.network.borrow_mut();
        let Some(connection) = network.connections.get_mut(&end.connection) else {
            return;
        };
        connection.closed[end.side] = true;
        // A writer that waits for room fails at once: its bytes will never be read.
        let own = &mut connection.pipes[end.side];
        if !own.arrived.is_empty() {
            own.break_off(io::ErrorKind::ConnectionReset);
        }
        if connection.closed == [true, true] {
            network.connections.remove(&end.connection);
            return;
        }
        !std::mem::replace(&mut connection.pipes[1 - end.side].ending, true)
    };
    if first {
        send(world, end, Segment::End);
    }
}

/// A listening socket of a simulated node.
pub(crate) struct SimulatedListener {
    number: u64,
    node: NodeId,
    incarnation: u64,
    address: SocketAddr,
}

impl SimulatedListener {
    /// A listener that refuses connections until it begins to listen.
    pub(crate) fn reserve(address: SocketAddr, reuse_port: bool, backlog: u32) -> io::Result<Self> {
        let (world, node) = world_and_node();
        let ip = address.ip();
        if !ip.is_unspecified() && !ip.is_loopback() && !addresses_of(node.id).contains(&ip) {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let mut network = world.network.borrow_mut();
        let mut address = address;
        if address.port() == 0 {
            address.set_port(network.free_port(node.id));
        }
        if network.is_taken(node.id, address, reuse_port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let number = network.number();
        let listener = ListenerState {
            node: node.id,
            address,
            reuse_port,
            is_open: false,
            backlog: backlog.max(1) as usize,
            accepted: VecDeque::new(),
            waiting: Vec::new(),
        };
        network.listeners.insert(number, listener);
        Ok(Self {
            number,
            node: node.id,
            incarnation: node.incarnation.get(),
            address,
        })
    }

    pub(crate) fn begin_to_listen(&self) -> io::Result<()> {
        let world = world();
        let mut network = world.network.borrow_mut();
        let kept = "a listener is kept while it is open";
        let reuse_port = network.listeners.get(&self.number).expect(kept).reuse_port;
        if network.is_taken(self.node, self.address, reuse_port) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        network.listeners.get_mut(&self.number).expect(kept).is_open = true;
        Ok(())
    }

    pub(crate) fn local_address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) async fn accept(&self) -> io::Result<Arc<SimulatedEnd>> {
        poll_fn(|context| {
            let world = world();
            let mut network = world.network.borrow_mut();
            let listener = network
                .listeners
                .get_mut(&self.number)
                .expect("a listener is kept while it is open");
            match listener.accepted.pop_front() {
                Some(end) => Poll::Ready(Ok(SimulatedEnd::new(end))),
                None => {
                    listener.waiting.push(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        let Some(world) = super::world::try_world() else { return };
        if !world.node(self.node).runs(self.incarnation) {
            return;
        }
        let listener = world.network.borrow_mut().listeners.remove(&self.number);
        for end in listener.into_iter().flat_map(|listener| listener.accepted) {
            close_end(&world, end);
        }
    }
}

/// Result of a connection attempt.
type Attempt = Rc<RefCell<(Option<io::Result<End>>, Option<Waker>)>>;

pub(crate) async fn connect(target: SocketAddr) -> io::Result<Arc<SimulatedEnd>> {
    let (world, node) = world_and_node();
    let source = node.id;
    let machines = world.nodes.borrow().len();
    let target_node = if target.ip().is_loopback() || target.ip().is_unspecified() {
        Some(source)
    } else {
        (0..)
            .take(machines)
            .map(NodeId)
            .find(|&id| addresses_of(id).contains(&target.ip()))
    };
    let Some(target_node) = target_node else {
        return Err(io::ErrorKind::NetworkUnreachable.into());
    };
    let own_ip = if target_node == source {
        target.ip()
    } else {
        address_of(source)
    };
    let own = SocketAddr::new(own_ip, world.network.borrow_mut().free_port(source));
    let attempt: Attempt = Rc::default();
    let give_up = world.now() + GIVE_UP;
    let call = Call {
        source,
        target_node,
        own,
        target,
        give_up,
        attempt: Rc::clone(&attempt),
    };
    let delay = latency(&world, &mut world.network.borrow_mut(), source, target_node);
    world.after(delay, move |world| call.arrive(world));
    drop((world, node));
    let end = poll_fn(|context| {
        let mut attempt = attempt.borrow_mut();
        match attempt.0.take() {
            Some(result) => Poll::Ready(result),
            None => {
                attempt.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await?;
    Ok(SimulatedEnd::new(end))
}

/// A connection attempt on its way.
struct Call {
    source: NodeId,
    target_node: NodeId,
    own: SocketAddr,
    target: SocketAddr,
    give_up: Instant,
    attempt: Attempt,
}

impl Call {
    fn arrive(self, world: &Rc<World>) {
        let both_ways =
            gets_through(world, self.source, self.target_node) && gets_through(world, self.target_node, self.source);
        if !both_ways {
            if world.now() >= self.give_up {
                self.answer(world, Err(io::ErrorKind::TimedOut.into()));
            } else {
                world.after(RETRANSMIT, move |world| self.arrive(world));
            }
            return;
        }
        let result = self.establish(world);
        let delay = latency(world, &mut world.network.borrow_mut(), self.target_node, self.source);
        world.after(delay, move |world| self.answer(world, result));
    }

    fn establish(&self, world: &World) -> io::Result<End> {
        let mut network = world.network.borrow_mut();
        let candidates = network.listeners_at(self.target_node, self.target);
        if candidates.is_empty() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let chosen = candidates[world.below(candidates.len() as u64) as usize];
        let number = network.number();
        world.note(
            "connect",
            &[number, u64::from(self.source.0), u64::from(self.target_node.0)],
        );
        let listener = network.listeners.get_mut(&chosen).expect("it was found just now");
        if listener.accepted.len() >= listener.backlog {
            return Err(io::ErrorKind::TimedOut.into());
        }
        listener.accepted.push_back(End {
            connection: number,
            side: 1,
        });
        for waker in listener.waiting.drain(..) {
            waker.wake();
        }
        let connection = Connection {
            nodes: [self.source, self.target_node],
            addresses: [self.own, self.target],
            pipes: Default::default(),
            closed: [false, false],
            silent: [false, false],
        };
        network.connections.insert(number, connection);
        Ok(End {
            connection: number,
            side: 0,
        })
    }

    fn answer(self, world: &Rc<World>, result: io::Result<End>) {
        if Rc::strong_count(&self.attempt) == 1 {
            // The caller that connects has given up.
            if let Ok(end) = result {
                close_end(world, end);
            }
            return;
        }
        let waiter = {
            let mut attempt = self.attempt.borrow_mut();
            attempt.0 = Some(result);
            attempt.1.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }
}
