//! Random schedules: leaders and acceptors whose messages are lost, doubled and overtaken, and acceptors that crash.
//!
//! Each partition has rows that are lists. A statement reads one row and appends its number to it; a read reads one
//! row. Whatever happened, at the end there is one list for each row such that each statement and read saw a beginning
//! of it, what an acknowledged statement appended comes after what it saw, and a statement or read that began after the
//! end of another saw what that one did. The same check must find bugs that are planted in acceptor and leader.
//!
//! In half of the schedules the table is truncated: at any step a second generation begins, and at some later step each
//! acceptor forgets its rows and what was proposed. From then on it refuses requests of the first generation; those of
//! the second wait for it until then. What was appended in the first generation is in no list in the end.
//!
//! Some requests come very late: after every client has ended, and after the rows were read. Reads that follow find the
//! same lists.

use paxos::{Ballot, Leader, Promise, Proposal, Refused, Round, State, Step};
use std::collections::BTreeMap;
use stdx::random::SplitMix64;

struct Chance(SplitMix64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.below(bound as u64)).expect("it is below the bound")
    }

    fn happens(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// A promise is answered before it is durable.
    PromiseInMemory,
    /// A proposal is accepted whatever was promised.
    AcceptsAll,
    /// Replicas of the quorum that have not learned the last proposal are left alone.
    NobodyIsTaught,
    /// A statement whose proposal was overtaken is executed again.
    ExecutedAgain,
    /// Proposals of others are not finished.
    Unfinished,
    /// A truncation forgets the rows, and not what was proposed.
    ProposalsSurvive,
    /// An acceptor takes requests from before a truncation.
    NoFence,
}

const ROWS: usize = 2;
type Row = (i64, Vec<u32>);

#[derive(Clone, Default)]
struct Acceptor {
    state: State,
    durable: State,
    rows: [Row; ROWS],
    /// How often it was truncated.
    generation: u8,
}

fn encode(row: usize, list: &[u32], timestamp: i64) -> Vec<u8> {
    let mut out = vec![u8::try_from(row).expect("few rows")];
    out.extend_from_slice(&timestamp.to_le_bytes());
    list.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    out
}

impl Acceptor {
    fn apply(&mut self, value: &[u8]) {
        let timestamp = i64::from_le_bytes(value[1..9].try_into().expect("eight bytes"));
        let numbers = value[9..].chunks(4);
        let list: Vec<u32> = numbers
            .map(|n| u32::from_le_bytes(n.try_into().expect("four bytes")))
            .collect();
        let row = &mut self.rows[usize::from(value[0])];
        if timestamp > row.0 {
            *row = (timestamp, list);
        }
    }
}

#[derive(Clone)]
enum Request {
    Prepare(Ballot, usize),
    Accept(Proposal),
    Learn(Proposal),
    Prune(Ballot),
}

#[derive(Clone)]
enum Answer {
    Promised(Promise, Row),
    Accepted,
    Refused(Refused),
    Learned(Ballot),
    /// The request is from before a truncation.
    Stale,
}

#[derive(Clone)]
enum Message {
    Request {
        to: usize,
        from: usize,
        phase: u64,
        request: Request,
        generation: u8,
    },
    Answer {
        to: usize,
        from: usize,
        phase: u64,
        answer: Answer,
    },
}

#[derive(Clone)]
enum Phase {
    Idle,
    Preparing(Round<usize>, Vec<Row>),
    Teaching(Round<usize>, Vec<Row>, usize),
    Accepting {
        proposal: Proposal,
        is_own: bool,
        acks: Vec<usize>,
    },
    Learning {
        proposal: Proposal,
        is_own: bool,
        acks: Vec<usize>,
    },
    Done,
}

struct Client {
    leader: Leader,
    phase: Phase,
    number: u64,
    clock: i64,
    row: usize,
    appends: bool,
    saw: Vec<u32>,
    began: u64,
    ended: Option<u64>,
    /// Acknowledged; known not to have happened; or unknown.
    outcome: Option<bool>,
    id: u32,
    /// The generation of the table in which it asks.
    generation: u8,
}

struct World {
    chance: Chance,
    bug: Bug,
    acceptors: Vec<Acceptor>,
    clients: Vec<Client>,
    network: Vec<Message>,
    /// Requests that arrive when every client has ended.
    late: Vec<Message>,
    now: u64,
    /// The step at which the table is truncated.
    truncated_at: Option<u64>,
    generation: u8,
}

impl World {
    fn new(seed: u64, bug: Bug) -> Self {
        let mut chance = Chance(SplitMix64::new(seed));
        let acceptors = if chance.happens(70) { 3 } else { 5 };
        let clients = 2 + chance.below(5);
        let client = |id: usize, chance: &mut Chance| Client {
            leader: Leader::default(),
            phase: Phase::Idle,
            number: 0,
            clock: i64::try_from(chance.below(20)).expect("small"),
            row: chance.below(ROWS),
            appends: chance.happens(70),
            saw: Vec::new(),
            began: 0,
            ended: None,
            outcome: None,
            id: u32::try_from(id).expect("few clients"),
            generation: 0,
        };
        let clients = (0..clients).map(|id| client(id, &mut chance)).collect();
        let truncated_at = chance.happens(50).then(|| 20 + chance.0.draw() % 400);
        Self {
            truncated_at,
            generation: 0,
            late: Vec::new(),
            chance,
            bug,
            acceptors: vec![Acceptor::default(); acceptors],
            clients,
            network: Vec::new(),
            now: 0,
        }
    }

    fn majority(&self) -> usize {
        self.acceptors.len() / 2 + 1
    }

    fn send(&mut self, from: usize, to: impl Iterator<Item = usize>, request: &Request) {
        let client = &mut self.clients[from];
        client.number += 1;
        let (phase, generation) = (client.number, client.generation);
        for to in to {
            let message = Message::Request {
                to,
                from,
                phase,
                request: request.clone(),
                generation,
            };
            // A copy of what is on its way now, or all there is.
            if self.chance.happens(4) {
                self.late.push(message.clone());
                if self.chance.happens(50) {
                    continue;
                }
            }
            self.network.push(message);
        }
    }

    fn everybody(&self) -> std::ops::Range<usize> {
        0..self.acceptors.len()
    }

    fn prepare(&mut self, at: usize, above: i64) {
        let client = &mut self.clients[at];
        client.clock = client.clock.max(above) + 1 + i64::try_from(self.chance.below(3)).expect("small");
        let ballot = Ballot {
            timestamp_us: client.clock,
            node: u16::try_from(at).expect("few clients"),
            shard: 0,
            unique: 0,
        };
        client.phase = Phase::Preparing(Round::new(ballot), Vec::new());
        let row = client.row;
        self.send(at, self.everybody(), &Request::Prepare(ballot, row));
    }

    fn end(&mut self, at: usize, outcome: Option<bool>) {
        let client = &mut self.clients[at];
        client.phase = Phase::Done;
        client.outcome = outcome;
        client.ended = Some(self.now);
    }

    fn accept(&mut self, at: usize, proposal: Proposal, is_own: bool) {
        self.clients[at].phase = Phase::Accepting {
            proposal: proposal.clone(),
            is_own,
            acks: Vec::new(),
        };
        self.send(at, self.everybody(), &Request::Accept(proposal));
    }

    /// A quorum has promised, and has been taught what was asked for so far.
    fn go_on(&mut self, at: usize, round: Round<usize>, rows: Vec<Row>) {
        let mut step = self.clients[at].leader.next(&round, i64::MIN);
        if let (Bug::NobodyIsTaught, Step::Teach(proposal, missing)) = (self.bug, &step) {
            let mut round = round.clone();
            missing.iter().for_each(|r| round.learned(*r, proposal.ballot));
            step = self.clients[at].leader.next(&round, i64::MIN);
        }
        if let (Bug::Unfinished, Step::Finish(_)) = (self.bug, &step) {
            step = Step::Decide;
        }
        match step {
            Step::Finish(proposal) => self.accept(at, proposal, false),
            Step::Propose(proposal) => self.accept(at, proposal, true),
            Step::Teach(proposal, missing) => {
                self.clients[at].phase = Phase::Teaching(round, rows, missing.len());
                self.send(at, missing.into_iter(), &Request::Learn(proposal));
            }
            Step::Chosen => self.end(at, Some(true)),
            Step::Unknown => self.end(at, None),
            Step::Decide => {
                let (_, list) = rows.into_iter().max().expect("a quorum has sent its rows");
                let client = &mut self.clients[at];
                client.saw.clone_from(&list);
                if !client.appends {
                    return self.end(at, Some(true));
                }
                let (row, mut list) = (client.row, list);
                list.push(client.id);
                let ballot = round.ballot();
                let proposal = client.leader.propose(ballot, &encode(row, &list, ballot.timestamp_us));
                self.accept(at, proposal, true);
            }
        }
    }

    /// The next generation begins, or an acceptor takes it over.
    fn truncate(&mut self) {
        if self.truncated_at.is_some_and(|at| self.now >= at) {
            self.generation = 1;
        }
        let at = self.chance.below(self.acceptors.len());
        if self.acceptors[at].generation < self.generation && self.chance.happens(5) {
            self.truncate_at(at);
        }
    }

    fn truncate_at(&mut self, at: usize) {
        let ballot = Ballot {
            timestamp_us: i64::try_from(self.chance.below(40)).expect("small"),
            ..Ballot::NONE
        };
        let acceptor = &mut self.acceptors[at];
        if self.bug != Bug::ProposalsSurvive {
            acceptor.state.forget(ballot);
        }
        acceptor.durable = acceptor.state.clone();
        acceptor.rows = Default::default();
        acceptor.generation = self.generation;
    }

    fn request(&mut self, to: usize, request: Request, generation: u8) -> Option<Answer> {
        let acceptor = &mut self.acceptors[to];
        if generation < acceptor.generation && self.bug != Bug::NoFence {
            return Some(Answer::Stale);
        }
        let answer = match request {
            Request::Prepare(ballot, row) => match acceptor.state.prepare(ballot) {
                Ok(promise) => {
                    if self.bug == Bug::PromiseInMemory {
                        return Some(Answer::Promised(promise, acceptor.rows[row].clone()));
                    }
                    Answer::Promised(promise, acceptor.rows[row].clone())
                }
                Err(refused) => Answer::Refused(refused),
            },
            Request::Accept(proposal) => {
                if self.bug == Bug::AcceptsAll {
                    acceptor.state.promised = acceptor.state.promised.min(proposal.ballot);
                }
                match acceptor.state.accept(proposal) {
                    Ok(()) => Answer::Accepted,
                    Err(refused) => Answer::Refused(refused),
                }
            }
            Request::Learn(proposal) => {
                acceptor.apply(proposal.value().expect("who learns is given the value"));
                let ballot = proposal.ballot;
                acceptor.state.learn(proposal);
                Answer::Learned(ballot)
            }
            Request::Prune(ballot) => {
                acceptor.state.prune(ballot);
                return None;
            }
        };
        acceptor.durable = acceptor.state.clone();
        Some(answer)
    }

    fn answer(&mut self, at: usize, from: usize, answer: Answer) {
        let majority = self.majority();
        let mut phase = std::mem::replace(&mut self.clients[at].phase, Phase::Idle);
        match (&mut phase, answer) {
            (Phase::Preparing(round, rows), Answer::Promised(promise, row)) => {
                let before = round.replicas().count();
                round.promised(from, promise);
                if round.replicas().count() > before {
                    rows.push(row);
                }
                if round.replicas().count() == majority {
                    let Phase::Preparing(round, rows) = phase else {
                        unreachable!("it was looked at")
                    };
                    return self.go_on(at, round, rows);
                }
            }
            (Phase::Teaching(round, rows, missing), Answer::Learned(ballot)) => {
                round.learned(from, ballot);
                *missing -= 1;
                if *missing == 0 {
                    let (round, rows) = (round.clone(), std::mem::take(rows));
                    return self.go_on(at, round, rows);
                }
            }
            (Phase::Accepting { proposal, is_own, acks }, Answer::Accepted) => {
                if !acks.contains(&from) {
                    acks.push(from);
                }
                if acks.len() == majority {
                    let (proposal, is_own) = (proposal.clone(), *is_own);
                    // A statement may be answered as soon as it is chosen.
                    if is_own && self.chance.happens(50) {
                        self.end(at, Some(true));
                    } else {
                        self.clients[at].phase = Phase::Learning {
                            proposal: proposal.clone(),
                            is_own,
                            acks: Vec::new(),
                        };
                    }
                    self.send(at, self.everybody(), &Request::Learn(proposal));
                    return;
                }
            }
            (Phase::Learning { proposal, is_own, acks }, Answer::Learned(_)) => {
                if !acks.contains(&from) {
                    acks.push(from);
                }
                if acks.len() == self.acceptors.len() {
                    let (ballot, is_own) = (proposal.ballot, *is_own);
                    if is_own {
                        self.end(at, Some(true));
                    } else {
                        self.prepare(at, ballot.timestamp_us);
                    }
                    let generation = self.clients[at].generation;
                    for to in self.everybody() {
                        let request = Request::Prune(ballot);
                        self.network.push(Message::Request {
                            to,
                            from: at,
                            phase: 0,
                            request,
                            generation,
                        });
                    }
                    return;
                }
            }
            (Phase::Preparing(..) | Phase::Accepting { .. }, Answer::Refused(refused)) => {
                if self.bug == Bug::ExecutedAgain {
                    self.clients[at].leader = Leader::default();
                }
                return self.prepare(at, refused.promised.timestamp_us);
            }
            (
                Phase::Preparing(..) | Phase::Teaching(..) | Phase::Accepting { .. } | Phase::Learning { .. },
                Answer::Stale,
            ) if self.clients[at].generation < self.generation => {
                // What may have been accepted, another client may have seen.
                if self.clients[at].leader.may_happen() {
                    return self.end(at, None);
                }
                let client = &mut self.clients[at];
                client.generation = self.generation;
                let clock = client.clock;
                return self.prepare(at, clock);
            }
            _ => {}
        }
        self.clients[at].phase = phase;
    }

    fn step(&mut self) {
        self.now += 1;
        self.truncate();
        if self.chance.happens(2) {
            let at = self.chance.below(self.acceptors.len());
            self.acceptors[at].state = self.acceptors[at].durable.clone();
        }
        let at = self.chance.below(self.clients.len());
        let clock = self.clients[at].clock;
        match &self.clients[at].phase {
            Phase::Idle if self.chance.happens(10) => {
                self.clients[at].began = self.now;
                self.clients[at].generation = self.generation;
                self.prepare(at, clock);
            }
            Phase::Done | Phase::Idle => {}
            // Nothing comes any more, or so it seems.
            Phase::Learning { is_own: true, .. } if self.chance.happens(4) => self.end(at, Some(true)),
            _ if self.chance.happens(2) => {
                if self.chance.happens(30) {
                    let outcome = if self.clients[at].leader.may_happen() {
                        None
                    } else {
                        Some(false)
                    };
                    self.end(at, outcome);
                } else {
                    self.prepare(at, clock);
                }
            }
            _ => {}
        }
        if self.network.is_empty() {
            return;
        }
        let next = self.chance.below(self.network.len());
        let message = if self.chance.happens(5) {
            self.network[next].clone()
        } else {
            self.network.swap_remove(next)
        };
        if self.chance.happens(10) {
            return;
        }
        match message {
            // It waits for the truncation.
            Message::Request { to, generation, .. } if generation > self.acceptors[to].generation => {
                self.network.push(message);
            }
            Message::Request {
                to,
                from,
                phase,
                request,
                generation,
            } => {
                if let Some(answer) = self.request(to, request, generation) {
                    let (to, from) = (from, to);
                    self.network.push(Message::Answer {
                        to,
                        from,
                        phase,
                        answer,
                    });
                }
            }
            Message::Answer {
                to,
                from,
                phase,
                answer,
            } => {
                if phase == self.clients[to].number {
                    self.answer(to, from, answer);
                }
            }
        }
    }

    fn run(mut self) -> Result<Self, String> {
        for _ in 0..4000 {
            self.step();
            if self.clients.iter().all(|c| matches!(c.phase, Phase::Done)) && self.network.is_empty() {
                break;
            }
        }
        for at in 0..self.clients.len() {
            if !matches!(self.clients[at].phase, Phase::Done) {
                let never_began = matches!(self.clients[at].phase, Phase::Idle);
                let outcome = if never_began { Some(false) } else { None };
                self.end(at, outcome);
            }
        }
        let mut late = std::mem::take(&mut self.network);
        late.append(&mut self.late);
        for at in self.everybody() {
            if self.acceptors[at].generation < self.generation {
                self.truncate_at(at);
            }
        }
        // A leader that is not disturbed reads every row, before and after the late requests.
        let first_clock = self.clients.iter().map(|c| c.clock).max().unwrap_or(0) + 1000;
        let lists = self.read_rows(first_clock);
        self.check(&lists)?;
        for message in late {
            if let Message::Request {
                to,
                request,
                generation,
                ..
            } = message
            {
                self.request(to, request, generation);
            }
        }
        let later = self.read_rows(first_clock + 1000);
        if later != lists {
            return Err(format!("late requests made {later:?} of {lists:?}"));
        }
        Ok(self)
    }

    fn read_rows(&mut self, clock: i64) -> BTreeMap<usize, Vec<u32>> {
        let rows = 0..ROWS;
        rows.map(|row| (row, self.read_alone(row, clock + 100 * row as i64)))
            .collect()
    }

    fn read_alone(&mut self, row: usize, clock: i64) -> Vec<u32> {
        let at = self.clients.len();
        self.clients.push(Client {
            leader: Leader::default(),
            phase: Phase::Idle,
            number: 0,
            clock,
            row,
            appends: false,
            saw: Vec::new(),
            began: self.now,
            ended: None,
            outcome: None,
            id: u32::MAX,
            generation: self.generation,
        });
        self.prepare(at, clock);
        loop {
            // Nothing that an undisturbed read asks is late.
            self.network.append(&mut self.late);
            if self.network.is_empty() {
                break;
            }
            let message = self.network.remove(0);
            match message {
                Message::Request {
                    to,
                    from,
                    phase,
                    request,
                    generation,
                } => {
                    if let Some(answer) = self.request(to, request, generation)
                        && phase == self.clients[from].number
                    {
                        self.answer(from, to, answer);
                    }
                }
                Message::Answer { .. } => {}
            }
        }
        let reader = self.clients.pop().expect("it was pushed");
        assert!(matches!(reader.phase, Phase::Done), "an undisturbed read does not end");
        reader.saw
    }

    fn check(&self, lists: &BTreeMap<usize, Vec<u32>>) -> Result<(), String> {
        let of_row = |row: usize| &lists[&row];
        for client in &self.clients {
            let list = of_row(client.row);
            let count = list.iter().filter(|n| **n == client.id).count();
            if count > 1 {
                return Err(format!("statement {} was executed {count} times: {list:?}", client.id));
            }
            let is_there = count == 1;
            // What was decided before the truncation is gone; it is compared with its like below.
            if client.generation < self.generation {
                if is_there {
                    return Err(format!("{} is back behind the truncation: {list:?}", client.id));
                }
                continue;
            }
            match client.outcome {
                Some(false) if is_there && client.appends => {
                    return Err(format!("statement {} did not happen, and is in {list:?}", client.id));
                }
                Some(true) => {
                    if !list.starts_with(&client.saw) {
                        return Err(format!("{:?} was seen, and is no beginning of {list:?}", client.saw));
                    }
                    if client.appends && list.get(client.saw.len()) != Some(&client.id) {
                        return Err(format!(
                            "acknowledged {} is not behind what it saw: {list:?}",
                            client.id
                        ));
                    }
                }
                _ => {}
            }
        }
        let done = || self.clients.iter().filter(|c| c.outcome == Some(true));
        for earlier in done() {
            let is_alike = |other: &&Client| other.row == earlier.row && other.generation == earlier.generation;
            for other in done().filter(is_alike) {
                let shorter = other.saw.len().min(earlier.saw.len());
                if other.saw[..shorter] != earlier.saw[..shorter] {
                    return Err(format!("{:?} and {:?} were seen of one list", earlier.saw, other.saw));
                }
            }
            for later in done().filter(is_alike).filter(|l| Some(l.began) > earlier.ended) {
                let seen = earlier.saw.len() + usize::from(earlier.appends);
                if later.saw.len() < seen {
                    return Err(format!(
                        "{} began after the end of {} and saw less",
                        later.id, earlier.id
                    ));
                }
            }
        }
        Ok(())
    }
}

const SEEDS: u64 = 4000;

#[test]
fn statements_are_executed_once_in_one_order_whatever_is_lost_doubled_overtaken_or_crashes() {
    let mut acknowledged = 0;
    let mut unknown = 0;
    for seed in 0..SEEDS {
        match World::new(seed, Bug::None).run() {
            Ok(world) => {
                acknowledged += world.clients.iter().filter(|c| c.outcome == Some(true)).count();
                unknown += world.clients.iter().filter(|c| c.outcome.is_none()).count();
            }
            Err(wrong) => panic!("seed {seed}: {wrong}"),
        }
    }
    assert!(
        acknowledged > 5000 && unknown > 300,
        "too little happened: {acknowledged} acknowledged, {unknown} unknown"
    );
}

#[test]
fn a_planted_bug_is_found() {
    for bug in [
        Bug::PromiseInMemory,
        Bug::AcceptsAll,
        Bug::NobodyIsTaught,
        Bug::ExecutedAgain,
        Bug::Unfinished,
        Bug::ProposalsSurvive,
        Bug::NoFence,
    ] {
        let found = (0..SEEDS).find_map(|seed| World::new(seed, bug).run().err().map(|wrong| (seed, wrong)));
        assert!(found.is_some(), "{bug:?} is not found");
    }
}
