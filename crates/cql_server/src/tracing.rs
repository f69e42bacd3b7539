//! Requests whose client asked for a trace (`TRACING ON` in cqlsh): what their coordinator did, in `system_traces.sessions` and `system_traces.events`, for a day.
//!
//! A traced request takes the general way, in a task. Its rows are written when it has been answered; clients ask again until the session has its duration.

use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use plan::{Execution, OwnedBound, Plan};
use query::trace::Trace;
use query::{Engine, Level, Params, QueryError};
use types::timeuuid;

/// How long traces are kept, in seconds.
const TTL: i32 = 86_400;

const SESSION: &str = "INSERT INTO system_traces.sessions (session_id, client, command, coordinator, coordinator_port, duration, request, started_at, \
                       parameters) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) USING TTL ?";
const EVENT: &str = "INSERT INTO system_traces.events (session_id, event_id, activity, source, source_port, source_elapsed, thread) \
                     VALUES (?, ?, ?, ?, ?, ?, ?) USING TTL ?";

/// A request that is being traced.
pub(crate) struct Traced {
    pub(crate) id: [u8; 16],
    pub(crate) trace: Rc<Trace>,
    /// When it came, microseconds.
    pub(crate) began_us: i64,
    pub(crate) client: SocketAddr,
    /// What kind of request it is, as Cassandra calls it.
    pub(crate) kind: &'static str,
    /// Names and values that describe it.
    pub(crate) parameters: Vec<(&'static str, String)>,
}

/// Does a request's work, with its trace where there is one, which is written when the work has ended.
pub(crate) async fn traced<T>(
    traced: Option<Traced>,
    engine: &Rc<Engine>,
    work: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, QueryError> {
    let Some(traced) = traced else { return work.await };
    let result = traced.trace.during(work).await;
    traced.trace.note(match &result {
        Ok(_) => "Request complete".to_owned(),
        Err(e) => format!("Request failed: {}", e.message()),
    });
    drop(runtime::spawn(traced.keep(Rc::clone(engine))));
    result
}

impl Traced {
    /// Writes its rows. To be spawned.
    async fn keep(self, engine: Rc<Engine>) {
        if let Err(e) = self.write(&engine).await {
            log::warn!("a trace is not kept: {e}");
        }
    }

    async fn write(&self, engine: &Rc<Engine>) -> Result<(), String> {
        let duration = i32::try_from(self.trace.elapsed().as_micros()).unwrap_or(i32::MAX);
        let (address, port) = engine.coordinator.own_address();
        let id = || value(self.id.to_vec());
        let text = |text: &str| value(text.as_bytes().to_vec());
        let int = |number: i32| value(number.to_be_bytes().to_vec());
        let thread = format!("shard {}", runtime::shard().0);
        let events = self.trace.take();
        for (number, (elapsed, activity)) in (0_u16..).zip(events) {
            let elapsed = i64::try_from(elapsed.as_micros()).unwrap_or(0);
            // The clock sequence tells two events of one microsecond apart.
            let ticks = (self.began_us + elapsed) * 10;
            let event = timeuuid::from_parts(ticks, number, node_of(&self.id));
            let values = vec![
                id(),
                value(event.as_bytes().to_vec()),
                text(&activity),
                value(bytes_of(address)),
                int(i32::from(port)),
                int(i32::try_from(elapsed).unwrap_or(i32::MAX)),
                text(&thread),
                int(TTL),
            ];
            insert(engine, EVENT, values).await?;
        }
        let values = vec![
            id(),
            value(bytes_of(self.client.ip())),
            text("QUERY"),
            value(bytes_of(address)),
            int(i32::from(port)),
            int(duration),
            text(self.kind),
            value((self.began_us / 1000).to_be_bytes().to_vec()),
            value(map_of(&self.parameters)),
            int(TTL),
        ];
        insert(engine, SESSION, values).await
    }
}

const fn value(bytes: Vec<u8>) -> OwnedBound {
    OwnedBound::Value(bytes)
}

fn bytes_of(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

fn node_of(id: &[u8; 16]) -> [u8; 6] {
    *id.first_chunk().expect("an id has sixteen bytes")
}

/// A serialised map of texts.
fn map_of(pairs: &[(&'static str, String)]) -> Vec<u8> {
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

async fn insert(engine: &Rc<Engine>, text: &str, values: Vec<OwnedBound>) -> Result<(), String> {
    let prepared = engine.prepare(text, None).map_err(|e| e.message())?;
    let Some(Plan::Write(write)) = prepared.plan() else {
        return Err("the statement of a trace is no write".to_owned());
    };
    let run = Execution {
        values,
        now_us: runtime::wall_clock_us(),
        random: runtime::random_u64(),
    };
    let params = Params {
        consistency: Level::One,
        ..Params::default()
    };
    engine.write(write, &run, &params).await.map_err(|e| e.message())
}
