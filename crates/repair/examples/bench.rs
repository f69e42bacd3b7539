//! Measures repairs: two nodes of one shard each, in one process, over loopback and with real files.
//!
//! ```text
//! cargo run --release -p repair --example bench -- [MEGABYTES] [ROUNDS] [DIRECTORY] [ROW_BYTES]
//! ```
//!
//! It repairs equal replicas first, ROUNDS times, then replicas of which one row in a hundred is newer on one of both.
//! It prints how long each took, and the bytes that went over the connection.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use repair::{Mode, Participant, Request};
use replica::{Shard, TokenRange};
use rpc::{Config, Peer, Rpc};
use runtime::{Backend, Options, ShardId, fs};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use tasks::Origin;
use test_node::{Hosted, Process};
use types::CqlType;
use types::token::token_of;
use uuid::Uuid;

const OTHER: ShardId = ShardId(1);
/// Bytes of rows between two flushes.
const SSTABLE_BYTES: usize = 64 << 20;

#[derive(Clone)]
struct Plan {
    megabytes: usize,
    rounds: usize,
    dir: PathBuf,
    row_bytes: usize,
}

impl Plan {
    fn rows(&self) -> u64 {
        ((self.megabytes << 20) / self.row_bytes) as u64
    }
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    let parent = words.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let plan = Plan {
        megabytes: number(0, 1_000),
        rounds: number(1, 3),
        dir: parent.join("ceto-bench-repair"),
        row_bytes: number(3, 1_000),
    };
    let options = Options {
        shards: 2,
        pin_cpus: None,
        backend: Backend::Auto,
        spin: Duration::ZERO,
    };
    runtime::run(options, move |shard| {
        let plan = plan.clone();
        Box::pin(async move {
            if shard == OTHER {
                serve(&plan).await;
            } else {
                measure(&plan).await;
            }
        })
    })
}

fn table() -> Table {
    let columns = vec![
        Column::new("k", CqlType::BigInt, ColumnKind::PartitionKey),
        Column::new("v", CqlType::Blob, ColumnKind::Regular),
    ];
    let id = TableId(Uuid::from_u128(7));
    Table::new("ks", "bench", id, columns, TableOptions::default())
}

fn host(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn new_shard(dir: &Path, host_id: Uuid) -> Rc<Shard> {
    let options = test_node::Options {
        host_id,
        dir: dir.to_owned(),
        sync: SyncMode::Periodic(Duration::from_secs(10)),
        segment_bytes: 32 << 20,
        log_bytes_max: 1 << 30,
        dirty_bytes_max: 1 << 30,
        cache_bytes_max: 16 << 20,
        generations: Some(Arc::new(sstable::Generations::uuids())),
        ..test_node::Options::default()
    };
    let hosted = Hosted::on_ring(Arc::new(table()), 1);
    let shard = Process::start(options, vec![hosted]).open(ShardId(0));
    let store = shard.store(table().id).expect("it was opened");
    shard.set_compacts_by_itself(&store, false);
    runtime::set_local(shard.clone());
    shard
}

/// Writes rows, a file for each few megabytes.
async fn fill(shard: &Rc<Shard>, plan: &Plan, keys: impl Iterator<Item = u64>, timestamp: i64) {
    let (table, store) = (table(), shard.store(table().id).expect("it is open"));
    let id = usize::from(table.column("v").expect("a column").id.0);
    let mut since_flush = 0;
    for k in keys {
        let mut state = (k + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ timestamp.cast_unsigned();
        let mut value = Vec::with_capacity(plan.row_bytes + 8);
        while value.len() < plan.row_bytes {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            value.extend_from_slice(&state.to_le_bytes());
        }
        let (key, mut bytes) = (k.to_be_bytes(), Vec::new());
        let (ttl, expiry) = (0, 0);
        MutationBuilder::begin(&mut bytes, table.id, &key).row(&[], |out| {
            let shared = Shared { timestamp, ttl, expiry };
            let marker = Liveness { timestamp, ttl, expiry };
            let mut row = RowBuilder::begin(out, &table.layout, shared, Some(marker), Tombstone::NONE, false, id + 1);
            row.value(id, &value);
        });
        let mutation = Mutation::new(&bytes).expect("a whole one");
        shard
            .write(&store, token_of(&key), &mutation)
            .expect("there is room")
            .is_not_awaited();
        since_flush += plan.row_bytes;
        if since_flush >= SSTABLE_BYTES {
            shard.log.write().expect("the disk works");
            shard.flush_all().await.expect("the disk works");
            since_flush = 0;
        }
    }
    shard.log.write().expect("the disk works");
    shard.flush_all().await.expect("the disk works");
}

/// The participant.
async fn serve(plan: &Plan) {
    let shard = new_shard(&plan.dir.join("other"), host(1));
    fill(&shard, plan, 0..plan.rows(), 10).await;
    let mut config = Config::new("bench", host(1));
    config.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let _rpc = Rpc::start(config, repair::handler()).expect("a free port exists");
    std::future::pending::<()>().await;
}

/// The node that repairs.
async fn measure(plan: &Plan) {
    let shard = new_shard(&plan.dir.join("one"), host(2));
    fill(&shard, plan, 0..plan.rows(), 10).await;
    let rpc = Rpc::client(Config::new("bench", host(2))).expect("there are no certificates");
    let address = loop {
        let address = runtime::submit_to(OTHER, || runtime::local::<Rpc>().and_then(|rpc| rpc.address())).await;
        match address {
            Some(address) => break address,
            None => runtime::sleep(Duration::from_millis(50)).await,
        }
    };
    for _ in 0..plan.rounds {
        repair_once(&shard, &rpc, address, "equal").await;
    }
    fill(&shard, plan, (0..plan.rows()).step_by(100), 20).await;
    repair_once(&shard, &rpc, address, "one row in a hundred newer").await;
    repair_once(&shard, &rpc, address, "the same again").await;
    fs::remove_dir_all(&plan.dir).expect("the disk works");
    std::process::exit(0);
}

async fn repair_once(shard: &Rc<Shard>, rpc: &Rc<Rpc>, address: SocketAddr, what: &str) {
    let store = shard.store(table().id).expect("it is open");
    let request = Request {
        table: table().id,
        range: TokenRange::ALL,
        others: vec![Participant {
            peer: Peer::new(host(1), address),
            shard: OTHER.0,
        }],
        now: u32::try_from(runtime::wall_clock_us() / 1_000_000).expect("before 2106"),
        mode: Mode::Repair,
        rest: 0,
        marks: None,
    };
    let task = repair::kinds::repair_range(shard, &store, request.range, &Origin::Node);
    let begun = runtime::now();
    let repaired = repair::repair(rpc, shard, &request, &task)
        .await
        .expect("nothing fails");
    let took = begun.elapsed();
    task.done();
    println!(
        "{what}: {} rows in {took:?}; {} differed; sent {} bytes, received {}",
        repaired.rows,
        repaired.differed.iter().map(|one| one.rows).sum::<u64>(),
        repaired.sent_bytes,
        repaired.received_bytes
    );
}
