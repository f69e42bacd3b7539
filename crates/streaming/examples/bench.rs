//! Measures streams: two nodes of one shard each, in one process, over loopback and with real files.
//!
//! ```text
//! cargo run --release -p streaming --example bench -- [MEGABYTES] [ROUNDS] [DIRECTORY] [cut]
//! ```
//!
//! It prints megabytes of files per second, from the call of `pull` to its end: flush, listing, transfer, checksums,
//! syncs and adoption. With `cut` the source has more than the range, so its sstables are rewritten first.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use commitlog::SyncMode;
use mutation::row::Shared;
use mutation::{Liveness, Mutation, MutationBuilder, RowBuilder, Tombstone};
use replica::{Shard, TokenRange};
use rpc::{Config, Peer, Rpc};
use runtime::{Backend, Options, ShardId, fs};
use schema::{Column, ColumnKind, Table, TableId, TableOptions};
use streaming::{Request, Source};
use tasks::Origin;
use test_node::{Hosted, Process};
use types::token::token_of;
use types::{CqlType, Token};
use uuid::Uuid;

const SOURCE: ShardId = ShardId(1);
const ROW_BYTES: usize = 1_000;
/// Bytes of rows between two flushes.
const SSTABLE_BYTES: usize = 64 << 20;

#[derive(Clone)]
struct Plan {
    megabytes: usize,
    rounds: usize,
    dir: PathBuf,
    range: TokenRange,
}

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let number = |at: usize, default| words.get(at).map_or(default, |word| word.parse().expect("a number"));
    let parent = words.get(2).map_or_else(std::env::temp_dir, PathBuf::from);
    let all = TokenRange::ALL;
    let part = TokenRange {
        to: Token(i64::MAX / 2),
        ..all
    };
    let plan = Plan {
        megabytes: number(0, 512),
        rounds: number(1, 3),
        dir: parent.join("ceto-bench-streaming"),
        range: if words.get(3).is_some_and(|word| word == "cut") {
            part
        } else {
            all
        },
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
            if shard == SOURCE {
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
    Table::new(
        "ks",
        "bench",
        TableId(Uuid::from_u128(7)),
        columns,
        TableOptions::default(),
    )
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

/// The node that has the data.
async fn serve(plan: &Plan) {
    let shard = new_shard(&plan.dir.join("source"), host(1));
    fill(&shard, plan.megabytes << 20).await;
    let mut config = Config::new("bench", host(1));
    config.listen = Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let _rpc = Rpc::start(config, streaming::handler()).expect("a free port exists");
    std::future::pending::<()>().await;
}

async fn fill(shard: &Rc<Shard>, bytes: usize) {
    let (table, store) = (table(), shard.store(table().id).expect("it is open"));
    let id = usize::from(table.column("v").expect("a column").id.0);
    let (mut state, mut since_flush) = (1u64, 0);
    for k in 0..(bytes / ROW_BYTES) as u64 {
        let mut value = Vec::with_capacity(ROW_BYTES);
        while value.len() < ROW_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            value.extend_from_slice(&state.to_le_bytes());
        }
        let (key, mut bytes) = (k.to_be_bytes(), Vec::new());
        let (timestamp, ttl, expiry) = (10, 0, 0);
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
        since_flush += ROW_BYTES;
        if since_flush >= SSTABLE_BYTES {
            shard.log.write().expect("the disk works");
            shard.flush_all().await.expect("the disk works");
            since_flush = 0;
        }
    }
    shard.log.write().expect("the disk works");
    shard.flush_all().await.expect("the disk works");
}

/// The node that copies.
async fn measure(plan: &Plan) {
    let shard = new_shard(&plan.dir.join("target"), host(2));
    let rpc = Rpc::client(Config::new("bench", host(2))).expect("there are no certificates");
    let address = loop {
        let address = runtime::submit_to(SOURCE, || runtime::local::<Rpc>().and_then(|rpc| rpc.address())).await;
        match address {
            Some(address) => break address,
            None => runtime::sleep(Duration::from_millis(50)).await,
        }
    };
    let store = shard.store(table().id).expect("it is open");
    for round in 0..plan.rounds {
        let request = Request {
            table: table().id,
            ranges: vec![plan.range],
            part_bytes: streaming::PART_BYTES,
            sources: vec![Source {
                peer: Peer::new(host(1), address),
                shard: SOURCE.0,
            }],
            truncated_at: 0,
            session: Uuid::from_u128(round as u128),
            with_marks: false,
        };
        let task = streaming::kinds::stream_tablet(&shard, &store, &[plan.range], &Origin::Node);
        let begun = runtime::now();
        let pulled = streaming::pull(&rpc, &shard, &request, &task)
            .await
            .expect("nothing fails");
        let took = begun.elapsed();
        task.done();
        let megabytes = u32::try_from(pulled.bytes() / 1_000_000).unwrap_or(u32::MAX);
        println!(
            "{megabytes} MB in {} sstables: {took:?}, {:.0} MB/s",
            pulled.sstables(),
            f64::from(megabytes) / took.as_secs_f64()
        );
        shard.truncate(&store).await.expect("the disk works");
    }
    fs::remove_dir_all(&plan.dir).expect("the disk works");
    std::process::exit(0);
}
