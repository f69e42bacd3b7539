//! The node's switches, and what operators look up in it: they ask shard 0, which asks all shards.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use admin::control::{Client, Control, NodeOption, PastCompaction, Sampling, Top, TopPartitions};
use admin::operator::{Local, Selection};
use mutation::ClusteringSlice;
use query::Engine;
use replica::{Sampler, Samplers};
use schema::Table;
use sstable::{Component, ReadLimits};
use types::token::token_of;
use types::{CqlType, LiteralKind, Token};
use uuid::Uuid;

use super::{NodeOperator, selected};
use crate::cluster::set_serving;
use crate::compaction_history;
use crate::follow::on_all_shards;

impl NodeOperator {
    pub(super) fn refuses_clients(&self) -> bool {
        self.shared.refuses_clients.load(Ordering::Acquire)
    }

    async fn drain_and_stay(&self) -> Result<(), String> {
        if !self.shared.drain_is_wanted() {
            log::info!("an operator drains the node");
            self.shared.want_drain();
        }
        let (changed, shared) = (&self.shared.changed, &self.shared);
        changed.until(|| shared.is_drained() || shared.failed()).await;
        if shared.is_drained() {
            Ok(())
        } else {
            Err("the drain failed, and the node ends; its log says why".to_owned())
        }
    }

    async fn switch_native_transport(&self, is_enabled: bool) -> Result<(), String> {
        if self.shared.drain_is_wanted() {
            return Err("the node has drained: it serves clients again when it is started again".to_owned());
        }
        let cluster = self.cluster()?;
        if !cluster.is_in_service() && is_enabled {
            return Err(
                "the node is out of service, because of its clock or a disk: its log has the reason".to_owned(),
            );
        }
        self.shared.refuses_clients.store(!is_enabled, Ordering::Release);
        let does = if is_enabled {
            "listens for CQL clients again"
        } else {
            "listens for no CQL clients"
        };
        log::info!("an operator changed the CQL listener: the node {does}");
        // The other nodes notify their clients afterwards: drivers, that of Python for one, ignore that a node is down
        // while they are connected to it.
        on_all_shards(async move |_| set_serving(is_enabled).await).await;
        cluster.set_closed(!is_enabled).await;
        Ok(())
    }

    /// A stored table, and the serialised key that a text means in it.
    fn table_and_key(&self, keyspace: &str, table: &str, key: &str) -> Result<(Arc<Table>, Vec<u8>), String> {
        let schema = self.engine.schema();
        let found = schema.table(keyspace, table).cloned();
        let table = found.ok_or_else(|| format!("Can't find a table {table} in keyspace {keyspace}"))?;
        let key = serialised_key(&table, key)?;
        Ok((table, key))
    }
}

impl Control for NodeOperator {
    fn drain(&self) -> Local<'_, Result<(), String>> {
        Box::pin(self.drain_and_stay())
    }

    fn set_native_transport(&self, is_enabled: bool) -> Local<'_, Result<(), String>> {
        Box::pin(self.switch_native_transport(is_enabled))
    }

    fn options(&self) -> Vec<NodeOption> {
        let all = self.shared.options.described(&self.shared.tasks).into_iter();
        let option = all.map(|option| NodeOption {
            name: option.name,
            kind: option.kind,
            source: option.source.name(),
            value: option.value,
        });
        option.collect()
    }

    fn trace_probability(&self) -> f64 {
        self.shared.front.trace_probability.get()
    }

    fn set_trace_probability(&self, probability: f64) -> bool {
        self.shared.front.trace_probability.set(probability)
    }

    fn seeds(&self) -> Vec<String> {
        let config = &self.shared.config;
        let own = self
            .shared
            .internode_address()
            .map_or(config.listen_address, |own| own.ip());
        let others = config.seeds.iter().filter(|seed| seed.address.ip() != own);
        others.map(|seed| seed.address.ip().to_string()).collect()
    }

    fn loads(&self) -> Local<'_, BTreeMap<Uuid, u64>> {
        Box::pin(async {
            let mut loads = BTreeMap::new();
            if let Some(cluster) = &self.member {
                let others = cluster.loads().await.into_iter();
                loads.extend(others.map(|(host, bytes)| (host.0, bytes)));
            }
            loads.insert(self.shared.host_id, super::load().await);
            loads
        })
    }

    fn token_of(&self, keyspace: &str, table: &str, key: &str) -> Result<i64, String> {
        let (_, key) = self.table_and_key(keyspace, table, key)?;
        Ok(token_of(&key).0)
    }

    fn sstables_of(&self, keyspace: String, table: String, key: String) -> Local<'_, Result<Vec<String>, String>> {
        Box::pin(async move {
            let (table, key) = self.table_and_key(&keyspace, &table, &key)?;
            let token = token_of(&key);
            let of_shard = async move |engine: Rc<Engine>| sstables_here(&engine, &table, token, &key).await;
            let mut paths = Vec::new();
            for found in on_all_shards(of_shard).await {
                paths.extend(found?);
            }
            Ok(paths)
        })
    }

    fn set_auto_compaction(&self, what: Selection, is_enabled: bool) -> Local<'_, ()> {
        let does = if is_enabled { "is on again" } else { "is off" };
        log::info!(
            "an operator changed automatic compaction of {}: it {does}",
            what.named()
        );
        Box::pin(async move {
            let switch = async move |engine: Rc<Engine>| {
                for store in selected(&engine, &what) {
                    engine
                        .coordinator
                        .context
                        .shard
                        .set_compacts_by_itself(&store, is_enabled);
                }
            };
            on_all_shards(switch).await;
        })
    }

    fn compaction_history(&self) -> Local<'_, Result<Vec<PastCompaction>, String>> {
        Box::pin(compaction_history::read(&self.engine))
    }

    fn clients(&self) -> Vec<Client> {
        let clients = self.shared.front.clients.list().into_iter();
        let told = clients.map(|client| Client {
            address: SocketAddr::new(client.address, client.port),
            shard: client.shard,
            user: client.username,
            stage: client.connection_stage,
            protocol_version: client.protocol_version,
            driver_name: client.driver_name,
            driver_version: client.driver_version,
            options: client.client_options,
            requests: client.request_count.unsigned_abs(),
            tls: client.tls,
        });
        told.collect()
    }

    fn top_partitions(
        &self,
        keyspace: String,
        table: String,
        sampling: Sampling,
    ) -> Local<'_, Result<TopPartitions, String>> {
        Box::pin(async move {
            let found = self.engine.schema().table(&keyspace, &table).cloned();
            let table = found.ok_or_else(|| format!("Can't find a table {table} in keyspace {keyspace}"))?;
            let id = table.id;
            let begin = async move |engine: Rc<Engine>| {
                let store = engine.coordinator.context.shard.store(id);
                store.is_some_and(|store| store.metrics.begin_sampling(sampling.capacity))
            };
            let begun = on_all_shards(begin).await;
            if begun.contains(&false) {
                let end = async move |engine: Rc<Engine>| {
                    if begun[runtime::shard().0 as usize] {
                        end_sampling(&engine, id);
                    }
                };
                on_all_shards(end).await;
                return Err(format!(
                    "the partitions of {}.{} are being counted already, or the table is computed",
                    table.keyspace, table.name
                ));
            }
            runtime::sleep(sampling.duration).await;
            let ended = on_all_shards(async move |engine: Rc<Engine>| end_sampling(&engine, id)).await;
            let (mut reads, mut writes) = (Vec::new(), Vec::new());
            for samplers in ended.into_iter().flatten() {
                reads.push(samplers.reads);
                writes.push(samplers.writes);
            }
            Ok(TopPartitions {
                reads: top(&table, reads),
                writes: top(&table, writes),
            })
        })
    }
}

fn end_sampling(engine: &Engine, table: schema::TableId) -> Option<Samplers> {
    engine.coordinator.context.shard.store(table)?.metrics.end_sampling()
}

/// What all shards have counted. A partition is of one of them.
fn top(table: &Table, samplers: Vec<Sampler>) -> Top {
    let distinct = samplers.iter().map(Sampler::distinct).sum();
    let counted = samplers.into_iter().flat_map(Sampler::into_top);
    let mut partitions: Vec<(String, u64, u64)> = counted
        .map(|(key, sampled)| (key_text(table, &key), sampled.count, sampled.error))
        .collect();
    partitions.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Top { distinct, partitions }
}

/// This shard's data files that have a partition.
async fn sstables_here(engine: &Engine, table: &Table, token: Token, key: &[u8]) -> Result<Vec<String>, String> {
    let Some(store) = engine.coordinator.context.shard.store(table.id) else {
        return Ok(Vec::new());
    };
    let Some(tablet) = store.tablet(token) else {
        return Ok(Vec::new());
    };
    let limits = ReadLimits { rows: 1, bytes: 1 };
    let slices = [ClusteringSlice::all()];
    let mut paths = Vec::new();
    for reader in &tablet.version().sstables {
        let cache = &engine.coordinator.context.shard.cache;
        let found = reader.read_partition(cache, token, key, &slices, false, limits).await;
        if found.map_err(|e| e.to_string())?.is_some() {
            paths.push(reader.descriptor().path(Component::Data).display().to_string());
        }
    }
    Ok(paths)
}

/// The serialised partition key that a text means: values of several columns are separated by colons.
fn serialised_key(table: &Table, text: &str) -> Result<Vec<u8>, String> {
    let columns: Vec<_> = table.partition_key().collect();
    if let [column] = columns[..] {
        return value(&column.name, &column.cql_type, text);
    }
    let parts: Vec<&str> = text.split(':').collect();
    if parts.len() != columns.len() {
        return Err(format!(
            "key '{text}': expected {} values separated by colons, got {}",
            columns.len(),
            parts.len()
        ));
    }
    let mut key = Vec::new();
    for (column, part) in columns.into_iter().zip(parts) {
        let value = value(&column.name, &column.cql_type, part)?;
        let length = u16::try_from(value.len()).map_err(|_| format!("key '{part}': longer than 65535 bytes"))?;
        key.extend_from_slice(&length.to_be_bytes());
        key.extend_from_slice(&value);
        key.push(0);
    }
    Ok(key)
}

/// The serialised value that a text without quotes means for a column.
fn value(column: &str, cql_type: &CqlType, text: &str) -> Result<Vec<u8>, String> {
    use LiteralKind::{Boolean, Duration, Float, Hex, Integer, String, Uuid};
    let with_prefix = format!("0x{}", text.trim_start_matches("0x"));
    let kinds = [String, Integer, Float, Boolean, Uuid, Duration].map(|kind| (kind, text));
    let mut kinds = std::iter::once((Hex, &*with_prefix)).chain(kinds);
    let found = kinds.find_map(|(kind, text)| cql_type.parse_literal(kind, text).ok());
    found.ok_or_else(|| format!("key '{text}': expected a value of column {column}, which is {cql_type}"))
}

/// A serialised partition key as the text that means it.
pub(crate) fn key_text(table: &Table, key: &[u8]) -> String {
    let columns: Vec<_> = table.partition_key().collect();
    if let [column] = columns[..] {
        return text(&column.cql_type, key);
    }
    let (mut parts, mut rest) = (Vec::new(), key);
    for column in columns {
        let Some((length, behind)) = rest.split_first_chunk::<2>() else {
            break;
        };
        let length = usize::from(u16::from_be_bytes(*length)).min(behind.len());
        parts.push(text(&column.cql_type, &behind[..length]));
        rest = behind.get(length + 1..).unwrap_or_default();
    }
    parts.join(":")
}

fn text(cql_type: &CqlType, value: &[u8]) -> String {
    match cql_type {
        CqlType::Text | CqlType::Ascii => String::from_utf8_lossy(value).into_owned(),
        other => other.format(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::{Column, ColumnKind, TableId, TableOptions};

    fn table(types: &[CqlType]) -> Table {
        let columns = types.iter().enumerate().map(|(position, cql_type)| {
            let mut column = Column::new(&format!("k{position}"), cql_type.clone(), ColumnKind::PartitionKey);
            column.position = u16::try_from(position).expect("few columns");
            column
        });
        let id = TableId(Uuid::from_u128(1));
        Table::new("ks", "t", id, columns.collect(), TableOptions::default())
    }

    #[test]
    fn a_key_as_text_is_the_key_that_it_is_read_from() {
        let cases: [(&[CqlType], &str); 6] = [
            (&[CqlType::Text], "a b:c"),
            (&[CqlType::Int], "-5"),
            (&[CqlType::Boolean], "true"),
            (&[CqlType::Blob], "0xcafe"),
            (&[CqlType::Uuid], "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
            (&[CqlType::Text, CqlType::BigInt], "a:7"),
        ];
        for (types, text) in cases {
            let table = table(types);
            let key = serialised_key(&table, text).expect("a key");
            assert_eq!(key_text(&table, &key), text);
        }
        assert_eq!(
            serialised_key(&table(&[CqlType::Blob]), "cafe"),
            serialised_key(&table(&[CqlType::Blob]), "0xcafe")
        );
    }

    #[test]
    fn a_text_that_is_no_key_is_refused_with_what_was_expected() {
        let refused = |types: &[CqlType], text: &str| serialised_key(&table(types), text).expect_err("it is no key");
        assert_eq!(
            refused(&[CqlType::Int], "x"),
            "key 'x': expected a value of column k0, which is int"
        );
        assert_eq!(
            refused(&[CqlType::Int, CqlType::Int], "1"),
            "key '1': expected 2 values separated by colons, got 1"
        );
    }
}
