//! Traces on the disk: `system_traces.sessions` has a row for each request that was traced, `system_traces.events` one
//! for each step, both for a day. A slow request that is logged has a row in `system_traces.node_slow_log`, where
//! `node_slow_log_time_idx` finds it by its minute, and a session; it has events only when it was traced.
//!
//! The coordinator writes the session and its own steps, each replica its own. So the steps of a replica may come after
//! the session's duration is there, as in Cassandra: drivers show what they find then.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use coordinator::trace::{Event, Trace, TraceId};
use plan::{Execution, OwnedBound, Plan};
use types::timeuuid;

use super::Engine;
use crate::{Level, Request};

/// How long traces are kept, in seconds.
const TTL: i32 = 86_400;

const SESSION: &str = "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, duration, request, started_at, \
                       parameters) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?";
const EVENT: &str = "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, source_elapsed, thread) \
                     VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?";

const SLOW: &str = "INSERT INTO system_traces.node_slow_log (start_time, node_ip, shard, command, date, duration, parameters, session_id, source_ip, \
                    table_names, username) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
const SLOW_BY_TIME: &str = "INSERT INTO system_traces.node_slow_log_time_idx (minute, started_at, session_id, node_ip, shard, start_time) \
                            VALUES (?, ?, ?, ?, ?, ?)";
/// The user of every request, as long as clients do not have to log in.
const USER: &str = "anonymous";
const MINUTE_MS: i64 = 60_000;

/// A request that was slow.
#[derive(Clone, Debug)]
pub struct SlowRow {
    /// Its trace, when it was traced: that writes its session.
    pub trace: Option<TraceId>,
    /// What it says of itself as a session.
    pub session: Session,
    /// Its text.
    pub text: String,
    /// The tables that it is about, with their keyspaces.
    pub tables: Vec<String>,
}

/// A name and a value that describe a request.
pub type Parameter = (Cow<'static, str>, String);

/// What a coordinator says of a request as a whole.
#[derive(Clone, Debug)]
pub struct Session {
    /// The client that sent it.
    pub client: SocketAddr,
    /// What kind of request it is, in Cassandra's words.
    pub request: &'static str,
    /// How long it took.
    pub duration: Duration,
    /// Names and values that describe it, such as its text.
    pub parameters: Vec<Parameter>,
}

impl Engine {
    /// Writes the events of a trace, and then the session's row if this node coordinated the request. A failure is
    /// logged.
    pub async fn keep_trace(self: &Rc<Self>, trace: &Trace, session: Option<Session>) {
        let kept = async {
            self.keep_events(trace).await?;
            match &session {
                Some(session) => self.keep_session(trace.id, trace.began_us(), session).await,
                None => Ok(()),
            }
        };
        if let Err(error) = kept.await {
            log::warn!("cannot write the trace of a request: {error}");
        }
    }

    async fn keep_events(self: &Rc<Self>, trace: &Trace) -> Result<(), String> {
        let (address, port) = self.coordinator.context.own_address();
        let thread = format!("shard {}", runtime::shard().0);
        // A random number distinguishes the events of two shards, the clock sequence those of one shard.
        let node = *runtime::random_u64()
            .to_be_bytes()
            .first_chunk()
            .expect("a number has eight bytes");
        let mut numbers = 0_u16..;
        for Event {
            elapsed,
            at_us,
            activity,
        } in trace.take()
        {
            let number = numbers.next().expect("a trace has few events");
            let event = timeuuid::from_parts(at_us * 10, number, node);
            let values = vec![
                value(trace.id.to_vec()),
                value(event.as_bytes().to_vec()),
                text(&activity),
                value(bytes_of(address)),
                int(i32::from(port)),
                int(microseconds(elapsed)),
                text(&thread),
                int(TTL),
            ];
            self.keep_row(EVENT, values).await?;
        }
        Ok(())
    }

    /// Keeps a slow request that has just been answered. A failure is logged.
    pub async fn keep_slow(self: &Rc<Self>, slow: SlowRow) {
        if let Err(error) = self.keep_slow_rows(&slow).await {
            log::warn!("cannot write a slow request to system_traces.node_slow_log: {error}");
        }
    }

    async fn keep_slow_rows(self: &Rc<Self>, slow: &SlowRow) -> Result<(), String> {
        let session = &slow.session;
        let took_us = i64::try_from(session.duration.as_micros()).unwrap_or(i64::MAX);
        let began_us = runtime::wall_clock_us().saturating_sub(took_us);
        let random = runtime::random_u64().to_be_bytes();
        let node = *random.first_chunk().expect("a number has eight bytes");
        let start_time = timeuuid::from_parts(began_us.saturating_mul(10), 0, node);
        let id = match slow.trace {
            Some(id) => id,
            None => {
                let id = timeuuid::from_parts(began_us.saturating_mul(10), 1, node).into_bytes();
                self.keep_session(id, began_us, session).await?;
                id
            }
        };
        let (address, _) = self.coordinator.context.own_address();
        let shard = i32::try_from(runtime::shard().0).unwrap_or(i32::MAX);
        let began_ms = began_us.div_euclid(1000);
        let values = vec![
            value(start_time.as_bytes().to_vec()),
            value(bytes_of(address)),
            int(shard),
            text(&slow.text),
            timestamp(began_ms),
            int(microseconds(session.duration)),
            value(map_of(&session.parameters)),
            value(id.to_vec()),
            value(bytes_of(session.client.ip())),
            value(set_of(&slow.tables)),
            text(USER),
        ];
        self.keep_row(SLOW, values).await?;
        let values = vec![
            timestamp(began_ms - began_ms.rem_euclid(MINUTE_MS)),
            timestamp(began_ms),
            value(id.to_vec()),
            value(bytes_of(address)),
            int(shard),
            value(start_time.as_bytes().to_vec()),
        ];
        self.keep_row(SLOW_BY_TIME, values).await
    }

    async fn keep_session(self: &Rc<Self>, id: TraceId, began_us: i64, session: &Session) -> Result<(), String> {
        let (address, port) = self.coordinator.context.own_address();
        let values = vec![
            value(id.to_vec()),
            value(bytes_of(session.client.ip())),
            text("QUERY"),
            value(bytes_of(address)),
            int(i32::from(port)),
            int(microseconds(session.duration)),
            text(session.request),
            timestamp(began_us / 1000),
            value(map_of(&session.parameters)),
            int(TTL),
        ];
        self.keep_row(SESSION, values).await
    }

    async fn keep_row(self: &Rc<Self>, statement: &str, values: Vec<OwnedBound>) -> Result<(), String> {
        let prepared = self.prepare(statement, None).map_err(|e| e.message())?;
        let Some(Plan::Write(write)) = prepared.plan() else {
            return Err("the statement is no write".to_owned());
        };
        let run = Execution {
            values,
            now_us: runtime::wall_clock_us(),
            now_in_seconds: None,
            random: runtime::random_u64(),
        };
        let request = Request {
            level: Level::One,
            ..Request::default()
        };
        self.write(write, &run, &request).await.map_err(|e| e.message())
    }
}

const fn value(bytes: Vec<u8>) -> OwnedBound {
    OwnedBound::Value(bytes)
}

fn text(text: &str) -> OwnedBound {
    value(text.as_bytes().to_vec())
}

fn int(number: i32) -> OwnedBound {
    value(number.to_be_bytes().to_vec())
}

fn timestamp(milliseconds: i64) -> OwnedBound {
    value(milliseconds.to_be_bytes().to_vec())
}

fn microseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_micros()).unwrap_or(i32::MAX)
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A serialised map of texts.
fn map_of(pairs: &[Parameter]) -> Vec<u8> {
    let mut pairs: Vec<_> = pairs.to_vec();
    pairs.sort();
    let mut out = Vec::new();
    let mut builder = types::CollectionBuilder::new(&mut out);
    for (name, text) in &pairs {
        builder.push_pair(name.as_bytes(), text.as_bytes());
    }
    builder.finish();
    out
}

/// A serialised set of texts.
fn set_of(texts: &[String]) -> Vec<u8> {
    let texts: BTreeSet<&String> = texts.iter().collect();
    let mut out = Vec::new();
    let mut builder = types::CollectionBuilder::new(&mut out);
    for text in texts {
        builder.push(text.as_bytes());
    }
    builder.finish();
    out
}
