//! The system tables whose facts the node has: itself, its settings, the other nodes of its cluster, and what it
//! measures.

mod client_routes;
mod configuration;
mod estimates;
mod facts;
mod indexes;
mod info;
mod internode;
mod large;
mod logs;
mod measured;
mod own;
mod peers;
#[cfg(test)]
mod tests;
mod topology;
mod views;

use std::sync::Arc;

use front::Clients;
use system_tables::{Builder, Registry};

use crate::live_options::LiveOptions;

pub(crate) use info::{About, NodeInfo, PeerInfo};

/// The system tables of a node: its own, and those of the crates that it is made of.
pub(crate) fn registry(about: &Arc<About>, clients: &Arc<Clients>, options: &Arc<LiveOptions>) -> Registry {
    let mut tables = Builder::new();
    coordinator::register_system_tables(&mut tables);
    cql_server::register_system_tables(&mut tables, clients);
    crate::compaction_history::register(&mut tables);
    upkeep::repairs::history::register(&mut tables);
    facts::register(&mut tables);
    indexes::register(&mut tables);
    internode::register(&mut tables);
    large::register(&mut tables);
    logs::register(&mut tables);
    measured::register(&mut tables);
    self::topology::register(&mut tables);
    views::register(&mut tables, about);
    register(&mut tables, about);
    tables.virtual_table(Arc::new(configuration::Configuration(options.clone())));
    tables.build()
}

fn register(tables: &mut Builder, about: &Arc<About>) {
    tables.virtual_table(Arc::new(own::Local(about.clone())));
    tables.virtual_table(Arc::new(own::Settings(about.clone())));
    tables.virtual_table(Arc::new(peers::Peers(about.clone())));
    tables.virtual_table(Arc::new(peers::PeersV2(about.clone())));
    tables.virtual_table(Arc::new(peers::ClusterStatus(about.clone())));
    tables.virtual_table(Arc::new(client_routes::Table(about.clone())));
}
