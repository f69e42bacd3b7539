//! All targets.

use crate::{Read, Target};

/// A target that reads from memory alone.
const fn target_of(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, read: fn(&[u8])) -> Target {
    Target {
        name,
        seeds,
        read: Read::Bytes(read),
        inputs_per_round: 10_000,
        memory_base: 256 << 10,
    }
}

/// The decoders.
pub const TARGETS: &[Target] = &[
    target_of("admin", admin::fuzz::seeds, admin::fuzz::read),
    target_of("cluster", cluster::fuzz::seeds, cluster::fuzz::read),
    Target {
        name: "commitlog",
        seeds: commitlog::fuzz::seeds,
        read: Read::Files(commitlog::fuzz::read),
        inputs_per_round: 2_000,
        memory_base: 256 << 10,
    },
    target_of("config", config::fuzz::seeds, config::fuzz::read),
    target_of("consensus", consensus::fuzz::seeds, consensus::fuzz::read),
    target_of("coordinator", coordinator::fuzz::seeds, coordinator::fuzz::read),
    target_of("cql", cql::fuzz::seeds, cql::fuzz::read),
    target_of("cql_compiler", cql_compiler::fuzz::seeds, cql_compiler::fuzz::read),
    Target {
        // Bodies are decompressed to 1 MiB at most.
        memory_base: 3 << 20,
        ..target_of("cql_protocol", cql_protocol::fuzz::seeds, cql_protocol::fuzz::read)
    },
    target_of("dynamodb", dynamodb::fuzz::seeds, dynamodb::fuzz::read),
    Target {
        // Bodies are decompressed to 256 KiB at most, with the tables of deflate.
        memory_base: 2 << 20,
        ..target_of(
            "dynamodb_server",
            dynamodb_server::fuzz::seeds,
            dynamodb_server::fuzz::read,
        )
    },
    Target {
        // An interpreter and what it may allocate; sources grow as they are compiled.
        inputs_per_round: 2_000,
        memory_base: 8 << 20,
        ..target_of("functions", functions::fuzz::seeds, functions::fuzz::read)
    },
    target_of("front", front::fuzz::seeds, front::fuzz::read),
    target_of("hints", hints::fuzz::seeds, hints::fuzz::read),
    target_of("http", http::fuzz::seeds, http::fuzz::read),
    target_of("json", cql_compiler::fuzz::json_seeds, cql_compiler::fuzz::read_json),
    target_of("mutation", mutation::fuzz::seeds, mutation::fuzz::read),
    target_of("node", node::fuzz::seeds, node::fuzz::read),
    target_of("paxos", paxos::fuzz::seeds, paxos::fuzz::read),
    target_of("plan", cql_compiler::fuzz::plan_seeds, cql_compiler::fuzz::read_plan),
    target_of("postings", postings::fuzz::seeds, postings::fuzz::read),
    target_of("query", query::fuzz::seeds, query::fuzz::read),
    Target {
        // Blocks are decompressed to 1 MiB at most, with zstd's tables.
        memory_base: 8 << 20,
        ..target_of("rpc", rpc::fuzz::seeds, rpc::fuzz::read)
    },
    target_of("schema", schema::fuzz::seeds, schema::fuzz::read),
    target_of("sstable", sstable::fuzz::seeds, sstable::fuzz::read),
    Target {
        name: "sstable_files",
        seeds: sstable::fuzz::file_seeds,
        read: Read::Files(sstable::fuzz::read_files),
        inputs_per_round: 500,
        memory_base: 4 << 20,
    },
    target_of("repair", repair::fuzz::seeds, repair::fuzz::read),
    target_of("streaming", streaming::fuzz::seeds, streaming::fuzz::read),
    Target {
        // A chunk of a map finds the highest shard of each node by the node's number: up to 65,536 of six bytes.
        memory_base: 1 << 20,
        ..target_of("topology", topology::fuzz::seeds, topology::fuzz::read)
    },
    target_of("types", types::fuzz::seeds, types::fuzz::read),
];

/// The target of this name.
#[must_use]
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
