//! The durable form of commands and of the metadata: records with numbered fields. See crate `record` and
//! docs/dev/schema.md.
//!
//! A command's record has one field for each kind, of which exactly one is there. A new kind is a new field with a
//! feature.

use crate::members::forgetting::{FORGOTTEN, ForgottenRecord};
use crate::metadata::command::{Command, SchemaChange, TableMoves, TabletsChange};
use crate::metadata::history::History;
use crate::metadata::{Metadata, Rejected, Run};
use crate::operators::client_routes::{ClientRouteRecord, ClientRoutes, ClientRoutesRecord, ROUTE, ROUTES};
use crate::tablets::convert::Conversion;
use record::{Field, Message, Of, Record, RecordError};
use schema::TableId;
use schema::record::{ChangeRecord, SchemaRecord, uuid};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::record::{TopologyCommandRecord, TopologyRecord};
use topology::{HostId, MoveStep, NodeNumber, TabletChange, TabletMap};

mod ring;

use ring::{ALTERED, AlteredRecord, REACHED, RING, RING_STEP, ReachedRecord, RingRecord, RingStepRecord};

/// A table and bytes about it.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TabletsRecord {
    /// The table: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    table: Vec<u8>,
    /// A tablet map, or a change of one, in its own form.
    #[prost(bytes = "vec", tag = "2")]
    tablets: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct SchemaChangeRecord {
    #[prost(message, optional, tag = "1")]
    change: Option<ChangeRecord>,
    #[prost(message, repeated, tag = "2")]
    tablets: Vec<TabletsRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TableRecord {
    #[prost(bytes = "vec", tag = "1")]
    table: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct FenceRecord {
    #[prost(uint64, tag = "1")]
    index: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RunRecord {
    #[prost(bytes = "vec", tag = "1")]
    host_id: Vec<u8>,
    #[prost(uint32, tag = "2")]
    generation: u32,
    #[prost(uint64, tag = "3")]
    former: u64,
    #[prost(uint64, tag = "4")]
    name: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RejoinRecord {
    #[prost(bytes = "vec", tag = "1")]
    host_id: Vec<u8>,
    #[prost(uint32, tag = "2")]
    generation: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodesRecord {
    #[prost(bytes = "vec", repeated, tag = "1")]
    host_ids: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct NodeRecord {
    #[prost(bytes = "vec", tag = "1")]
    host_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MovesRecord {
    /// The steps of each table, in their own form.
    #[prost(message, repeated, tag = "1")]
    tables: Vec<TabletsRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct BalanceRecord {
    #[prost(bool, tag = "1")]
    is_balanced: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ResizeRecord {
    #[prost(bytes = "vec", tag = "1")]
    table: Vec<u8>,
    #[prost(uint64, tag = "2")]
    from_version: u64,
    #[prost(uint32, tag = "3")]
    tablet_count: u32,
}

/// A step of a table's conversion: one of the last four.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct ConvertRecord {
    #[prost(bytes = "vec", tag = "1")]
    table: Vec<u8>,
    /// The number of tablets of equal size.
    #[prost(uint32, optional, tag = "2")]
    begin: Option<u32>,
    /// The version of the map, here and below.
    #[prost(uint64, optional, tag = "3")]
    align: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    cut: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    end: Option<u64>,
}

/// One of these.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct CommandRecord {
    #[prost(message, optional, tag = "1")]
    schema: Option<SchemaChangeRecord>,
    #[prost(message, optional, tag = "2")]
    topology: Option<TopologyCommandRecord>,
    #[prost(message, optional, tag = "3")]
    tablets: Option<TabletsRecord>,
    #[prost(message, optional, tag = "4")]
    tablets_change: Option<TabletsRecord>,
    #[prost(message, optional, tag = "5")]
    remove_tablets: Option<TableRecord>,
    #[prost(message, optional, tag = "6")]
    fence: Option<FenceRecord>,
    #[prost(message, optional, tag = "7")]
    truncate: Option<TableRecord>,
    #[prost(message, optional, tag = "8")]
    run: Option<RunRecord>,
    #[prost(message, optional, tag = "9")]
    rejoin: Option<RejoinRecord>,
    #[prost(message, optional, tag = "10")]
    remove_node: Option<NodeRecord>,
    #[prost(message, optional, tag = "11")]
    moves: Option<MovesRecord>,
    #[prost(message, optional, tag = "12")]
    balance: Option<BalanceRecord>,
    #[prost(message, optional, tag = "13")]
    ring: Option<RingStepRecord>,
    #[prost(message, optional, tag = "14")]
    resize: Option<ResizeRecord>,
    #[prost(message, optional, tag = "15")]
    exclude: Option<NodesRecord>,
    #[prost(message, optional, tag = "16")]
    convert: Option<ConvertRecord>,
    #[prost(message, optional, tag = "17")]
    reached: Option<ReachedRecord>,
    /// Whether keyspaces must fit the racks afterwards.
    #[prost(bool, optional, tag = "18")]
    is_rack_valid: Option<bool>,
    #[prost(message, optional, tag = "19")]
    forget: Option<ForgottenRecord>,
    #[prost(message, optional, tag = "20")]
    client_routes: Option<ClientRoutesRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct RejectedRecord {
    #[prost(uint64, tag = "1")]
    index: u64,
    /// What has changed since the base of the command, if it was a conflict.
    #[prost(string, optional, tag = "2")]
    conflict: Option<String>,
    /// Why it cannot be applied, if it was none.
    #[prost(string, optional, tag = "3")]
    invalid: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct TruncationRecord {
    #[prost(bytes = "vec", tag = "1")]
    table: Vec<u8>,
    #[prost(uint64, tag = "2")]
    index: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct LastRunRecord {
    #[prost(uint32, tag = "1")]
    node: u32,
    #[prost(uint32, tag = "2")]
    generation: u32,
    #[prost(uint64, tag = "3")]
    name: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct HistoryRecord {
    /// The hash: 16 bytes.
    #[prost(bytes = "vec", tag = "1")]
    hash: Vec<u8>,
    /// By the numbers of the nodes.
    #[prost(message, repeated, tag = "2")]
    runs: Vec<LastRunRecord>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct MetadataRecord {
    #[prost(uint64, tag = "1")]
    index: u64,
    #[prost(uint64, tag = "2")]
    fence: u64,
    #[prost(message, optional, tag = "3")]
    schema: Option<SchemaRecord>,
    #[prost(message, optional, tag = "4")]
    topology: Option<TopologyRecord>,
    /// By table.
    #[prost(message, repeated, tag = "5")]
    tablets: Vec<TabletsRecord>,
    /// By index.
    #[prost(message, repeated, tag = "6")]
    rejected: Vec<RejectedRecord>,
    /// By table.
    #[prost(message, repeated, tag = "7")]
    truncations: Vec<TruncationRecord>,
    #[prost(message, optional, tag = "8")]
    history: Option<HistoryRecord>,
    #[prost(bool, optional, tag = "9")]
    is_unbalanced: Option<bool>,
    #[prost(message, optional, tag = "10")]
    ring: Option<RingRecord>,
    /// By keyspace.
    #[prost(message, repeated, tag = "11")]
    altered: Vec<AlteredRecord>,
    #[prost(message, repeated, tag = "12")]
    forgotten: Vec<ForgottenRecord>,
    /// By connection and node.
    #[prost(message, repeated, tag = "13")]
    client_routes: Vec<ClientRouteRecord>,
}

static TABLETS: Message = Message::new(
    "tablets",
    &[Field::new(1, "table", Of::Bytes), Field::new(2, "tablets", Of::Bytes)],
);
static SCHEMA_CHANGE: Message = Message::new(
    "schema command",
    &[
        Field::new(1, "change", Of::Record(&schema::record::CHANGE)),
        Field::list(2, "tablets", Of::Record(&TABLETS)),
    ],
);
static TABLE: Message = Message::new("table command", &[Field::new(1, "table", Of::Bytes)]);
static FENCE: Message = Message::new("fence", &[Field::new(1, "index", Of::U64)]);
static RUN: Message = Message::new(
    "run",
    &[
        Field::new(1, "host_id", Of::Bytes),
        Field::new(2, "generation", Of::U32),
        Field::new(3, "former", Of::U64),
        Field::new(4, "name", Of::U64),
    ],
);
static REJOIN: Message = Message::new(
    "rejoin",
    &[
        Field::new(1, "host_id", Of::Bytes),
        Field::new(2, "generation", Of::U32),
    ],
);
static MOVES: Message = Message::new("moves", &[Field::list(1, "tables", Of::Record(&TABLETS))]);
static BALANCE: Message = Message::new("balance", &[Field::new(1, "is_balanced", Of::Bool)]);
static RESIZE: Message = Message::new(
    "resize",
    &[
        Field::new(1, "table", Of::Bytes),
        Field::new(2, "from_version", Of::U64),
        Field::new(3, "tablet_count", Of::U32),
    ],
);
static CONVERT: Message = Message::new(
    "convert",
    &[
        Field::new(1, "table", Of::Bytes),
        Field::new(2, "begin", Of::U32),
        Field::new(3, "align", Of::U64),
        Field::new(4, "cut", Of::U64),
        Field::new(5, "end", Of::U64),
    ],
);
static NODE: Message = Message::new("remove_node", &[Field::new(1, "host_id", Of::Bytes)]);
static NODES: Message = Message::new("exclude", &[Field::list(1, "host_ids", Of::Bytes)]);
static COMMAND: Message = Message::new(
    "command",
    &[
        Field::new(1, "schema", Of::Record(&SCHEMA_CHANGE)),
        Field::new(2, "topology", Of::Record(&topology::record::COMMAND)),
        Field::new(3, "tablets", Of::Record(&TABLETS)),
        Field::new(4, "tablets_change", Of::Record(&TABLETS)),
        Field::new(5, "remove_tablets", Of::Record(&TABLE)),
        Field::new(6, "fence", Of::Record(&FENCE)),
        Field::new(7, "truncate", Of::Record(&TABLE)),
        Field::new(8, "run", Of::Record(&RUN)),
        Field::new(9, "rejoin", Of::Record(&REJOIN)),
        Field::new(10, "remove_node", Of::Record(&NODE)),
        Field::new(11, "moves", Of::Record(&MOVES)),
        Field::new(12, "balance", Of::Record(&BALANCE)),
        Field::new(13, "ring", Of::Record(&RING_STEP)),
        Field::new(14, "resize", Of::Record(&RESIZE)),
        Field::new(15, "exclude", Of::Record(&NODES)),
        Field::new(16, "convert", Of::Record(&CONVERT)),
        Field::new(17, "reached", Of::Record(&REACHED)),
        Field::new(18, "is_rack_valid", Of::Bool),
        Field::new(19, "forget", Of::Record(&FORGOTTEN)),
        Field::new(20, "client_routes", Of::Record(&ROUTES)),
    ],
);
static REJECTED: Message = Message::new(
    "rejected",
    &[
        Field::new(1, "index", Of::U64),
        Field::new(2, "conflict", Of::Text),
        Field::new(3, "invalid", Of::Text),
    ],
);
static TRUNCATION: Message = Message::new(
    "truncation",
    &[Field::new(1, "table", Of::Bytes), Field::new(2, "index", Of::U64)],
);
static LAST_RUN: Message = Message::new(
    "last run",
    &[
        Field::new(1, "node", Of::U32),
        Field::new(2, "generation", Of::U32),
        Field::new(3, "name", Of::U64),
    ],
);
static HISTORY: Message = Message::new(
    "history",
    &[
        Field::new(1, "hash", Of::Bytes),
        Field::list(2, "runs", Of::Record(&LAST_RUN)),
    ],
);
static METADATA: Message = Message::new(
    "metadata",
    &[
        Field::new(1, "index", Of::U64),
        Field::new(2, "fence", Of::U64),
        Field::new(3, "schema", Of::Record(&schema::record::SCHEMA)),
        Field::new(4, "topology", Of::Record(&topology::record::TOPOLOGY)),
        Field::list(5, "tablets", Of::Record(&TABLETS)),
        Field::list(6, "rejected", Of::Record(&REJECTED)),
        Field::list(7, "truncations", Of::Record(&TRUNCATION)),
        Field::new(8, "history", Of::Record(&HISTORY)),
        Field::new(9, "is_unbalanced", Of::Bool),
        Field::new(10, "ring", Of::Record(&RING)),
        Field::list(11, "altered", Of::Record(&ALTERED)),
        Field::list(12, "forgotten", Of::Record(&FORGOTTEN)),
        Field::list(13, "client_routes", Of::Record(&ROUTE)),
    ],
);

impl Record for CommandRecord {
    const MESSAGE: &'static Message = &COMMAND;
}

impl Record for MetadataRecord {
    const MESSAGE: &'static Message = &METADATA;
}

impl CommandRecord {
    pub(crate) fn of(command: &Command) -> Self {
        let mut record = Self::default();
        match command {
            Command::RackValid(command) => {
                record = Self::of(command);
                record.is_rack_valid = Some(true);
            }
            Command::Schema(change) => {
                record.schema = Some(SchemaChangeRecord {
                    change: Some(ChangeRecord::of(&change.change)),
                    tablets: change
                        .tablets
                        .iter()
                        .map(|(table, map)| map_record(*table, map))
                        .collect(),
                });
            }
            Command::Topology(command) => record.topology = Some(TopologyCommandRecord::of(command)),
            Command::Tablets { table, change } => match change {
                TabletsChange::Whole(map) => record.tablets = Some(map_record(*table, map)),
                TabletsChange::Part(change) => {
                    record.tablets_change = Some(TabletsRecord {
                        table: table_bytes(*table),
                        tablets: change.encode(),
                    });
                }
            },
            Command::RemoveTablets { table } => record.remove_tablets = Some(table_record(*table)),
            Command::Fence { index } => record.fence = Some(FenceRecord { index: *index }),
            Command::Truncate { table } => record.truncate = Some(table_record(*table)),
            Command::Run {
                host_id,
                generation,
                former,
                name,
            } => {
                record.run = Some(RunRecord {
                    host_id: host_bytes(*host_id),
                    generation: *generation,
                    former: *former,
                    name: *name,
                });
            }
            Command::Rejoin { host_id, generation } => {
                record.rejoin = Some(RejoinRecord {
                    host_id: host_bytes(*host_id),
                    generation: *generation,
                });
            }
            Command::RemoveNode { host_id } => {
                record.remove_node = Some(NodeRecord {
                    host_id: host_bytes(*host_id),
                });
            }
            Command::Exclude { hosts } => {
                record.exclude = Some(NodesRecord {
                    host_ids: hosts.iter().map(|host| host_bytes(*host)).collect(),
                });
            }
            Command::Forget { host_id, before } => {
                record.forget = Some(ForgottenRecord {
                    host_id: host_bytes(*host_id),
                    before: *before,
                    index: None,
                });
            }
            Command::ClientRoutes(change) => record.client_routes = Some(ClientRoutesRecord::of(change)),
            Command::Ring { version, step } => record.ring = Some(RingStepRecord::of(*version, *step)),
            Command::Balance { is_balanced } => {
                record.balance = Some(BalanceRecord {
                    is_balanced: *is_balanced,
                });
            }
            Command::Resize {
                table,
                from_version,
                tablet_count,
            } => {
                record.resize = Some(ResizeRecord {
                    table: table_bytes(*table),
                    from_version: *from_version,
                    tablet_count: *tablet_count,
                });
            }
            Command::Convert { table, step } => record.convert = Some(ConvertRecord::of(*table, *step)),
            Command::Reached { keyspace, version } => record.reached = Some(ReachedRecord::of(keyspace, *version)),
            Command::Moves(tables) => {
                let table = |moves: &TableMoves| TabletsRecord {
                    table: table_bytes(moves.table),
                    tablets: MoveStep::encode(&moves.steps),
                };
                record.moves = Some(MovesRecord {
                    tables: tables.iter().map(table).collect(),
                });
            }
        }
        record
    }

    pub(crate) fn command(self) -> Result<Command, RecordError> {
        let is_rack_valid = self.is_rack_valid == Some(true);
        let mut kinds = self.kinds()?;
        match (kinds.pop(), kinds.is_empty()) {
            (Some(command), true) if is_rack_valid => Ok(Command::RackValid(Box::new(command))),
            (Some(command), true) => Ok(command),
            (None, _) => Err(RecordError::damaged("command", "it has no kind")),
            (Some(_), false) => Err(RecordError::damaged("command", "it has two kinds")),
        }
    }

    /// The commands that are there.
    fn kinds(self) -> Result<Vec<Command>, RecordError> {
        let mut kinds = Vec::new();
        if let Some(record) = self.schema {
            kinds.push(Command::Schema(schema_change(record)?));
        }
        if let Some(record) = self.topology {
            kinds.push(Command::Topology(record.command()?));
        }
        if let Some(record) = self.tablets {
            let (table, map) = tablet_map(&record, "tablets")?;
            let change = TabletsChange::Whole(map);
            kinds.push(Command::Tablets { table, change });
        }
        if let Some(record) = self.tablets_change {
            let change = TabletChange::decode(&record.tablets);
            let change = change.map_err(|e| RecordError::damaged("tablets_change, tablets", e.to_string()))?;
            kinds.push(Command::Tablets {
                table: table(&record.table, "tablets_change, table")?,
                change: TabletsChange::Part(change),
            });
        }
        if let Some(record) = self.remove_tablets {
            let table = table(&record.table, "remove_tablets, table")?;
            kinds.push(Command::RemoveTablets { table });
        }
        if let Some(record) = self.fence {
            kinds.push(Command::Fence { index: record.index });
        }
        if let Some(record) = self.truncate {
            let table = table(&record.table, "truncate, table")?;
            kinds.push(Command::Truncate { table });
        }
        if let Some(record) = self.run {
            kinds.push(Command::Run {
                host_id: host(&record.host_id, "run, host_id")?,
                generation: record.generation,
                former: record.former,
                name: record.name,
            });
        }
        if let Some(record) = self.rejoin {
            kinds.push(Command::Rejoin {
                host_id: host(&record.host_id, "rejoin, host_id")?,
                generation: record.generation,
            });
        }
        if let Some(record) = self.remove_node {
            let host_id = host(&record.host_id, "remove_node, host_id")?;
            kinds.push(Command::RemoveNode { host_id });
        }
        if let Some(record) = self.exclude {
            let hosts = record.host_ids.iter().map(|bytes| host(bytes, "exclude, host_ids"));
            let hosts = hosts.collect::<Result<_, _>>()?;
            kinds.push(Command::Exclude { hosts });
        }
        if let Some(record) = self.forget {
            let (host_id, before) = (host(&record.host_id, "forget, host_id")?, record.before);
            kinds.push(Command::Forget { host_id, before });
        }
        if let Some(record) = self.client_routes {
            kinds.push(Command::ClientRoutes(record.change()?));
        }
        if let Some(record) = self.ring {
            kinds.push(record.command()?);
        }
        if let Some(record) = self.balance {
            kinds.push(Command::Balance {
                is_balanced: record.is_balanced,
            });
        }
        if let Some(record) = self.resize {
            kinds.push(Command::Resize {
                table: table(&record.table, "resize, table")?,
                from_version: record.from_version,
                tablet_count: record.tablet_count,
            });
        }
        if let Some(record) = self.reached {
            kinds.push(record.command());
        }
        if let Some(record) = self.convert {
            kinds.push(record.command()?);
        }
        if let Some(record) = self.moves {
            let moves = record.tables.iter().map(|record| {
                let steps = MoveStep::decode(&record.tablets);
                Ok(TableMoves {
                    table: table(&record.table, "moves, tables, table")?,
                    steps: steps.map_err(|e| RecordError::damaged("moves, tables, tablets", e.to_string()))?,
                })
            });
            kinds.push(Command::Moves(moves.collect::<Result<_, RecordError>>()?));
        }
        Ok(kinds)
    }
}

impl ConvertRecord {
    fn of(table: TableId, step: Conversion) -> Self {
        let mut record = Self {
            table: table_bytes(table),
            ..Self::default()
        };
        match step {
            Conversion::Begin { tablet_count } => record.begin = Some(tablet_count),
            Conversion::Align { from_version } => record.align = Some(from_version),
            Conversion::Cut { from_version } => record.cut = Some(from_version),
            Conversion::End { from_version } => record.end = Some(from_version),
        }
        record
    }

    fn command(self) -> Result<Command, RecordError> {
        let table = table(&self.table, "convert, table")?;
        let step = match (self.begin, self.align, self.cut, self.end) {
            (Some(tablet_count), None, None, None) => Conversion::Begin { tablet_count },
            (None, Some(from_version), None, None) => Conversion::Align { from_version },
            (None, None, Some(from_version), None) => Conversion::Cut { from_version },
            (None, None, None, Some(from_version)) => Conversion::End { from_version },
            _ => return Err(RecordError::damaged("convert", "it does not have exactly one step")),
        };
        Ok(Command::Convert { table, step })
    }
}

impl MetadataRecord {
    pub(crate) fn of(metadata: &Metadata) -> Self {
        let rejected = metadata.rejected.iter().map(|(index, rejected)| {
            let (conflict, invalid) = match rejected {
                Rejected::Conflict { what } => (Some(what.clone()), None),
                Rejected::Invalid { why } => (None, Some(why.clone())),
            };
            RejectedRecord {
                index: *index,
                conflict,
                invalid,
            }
        });
        let truncations = metadata.truncations.iter().map(|(table, index)| TruncationRecord {
            table: table_bytes(*table),
            index: *index,
        });
        let runs = metadata.runs.iter().map(|(node, run)| LastRunRecord {
            node: u32::from(node.0),
            generation: run.generation,
            name: run.name,
        });
        let forgotten = metadata.forgotten.iter().map(|(host_id, forgotten)| ForgottenRecord {
            host_id: host_bytes(*host_id),
            before: forgotten.before,
            index: Some(forgotten.index),
        });
        Self {
            index: metadata.index,
            fence: metadata.fence,
            schema: Some(SchemaRecord::of(&metadata.schema)),
            topology: Some(TopologyRecord::of(&metadata.topology)),
            tablets: metadata
                .tablets
                .iter()
                .map(|(table, map)| map_record(*table, map))
                .collect(),
            rejected: rejected.collect(),
            truncations: truncations.collect(),
            history: metadata.history.map(|history| HistoryRecord {
                hash: history.0.to_be_bytes().to_vec(),
                runs: runs.collect(),
            }),
            is_unbalanced: (!metadata.is_balanced).then_some(true),
            ring: metadata.ring.as_ref().map(RingRecord::of),
            altered: (metadata.altered.iter())
                .map(|(keyspace, altered)| AlteredRecord::of(keyspace, altered))
                .collect(),
            forgotten: forgotten.collect(),
            client_routes: metadata.client_routes.iter().map(ClientRouteRecord::of).collect(),
        }
    }

    pub(crate) fn metadata(self) -> Result<Metadata, RecordError> {
        let missing = |what: &str| RecordError::damaged(format!("metadata, {what}"), "it is missing");
        let (history, runs) = match self.history {
            Some(record) => {
                let hash = uuid(&record.hash, "metadata, history, hash")?.as_u128();
                (Some(History(hash)), runs(&record.runs)?)
            }
            None => (None, BTreeMap::new()),
        };
        let mut truncations = BTreeMap::new();
        for record in &self.truncations {
            let table = table(&record.table, "metadata, truncations, table")?;
            truncations.insert(table, record.index);
        }
        let mut forgotten = BTreeMap::new();
        for record in &self.forgotten {
            forgotten.insert(
                host(&record.host_id, "metadata, forgotten, host_id")?,
                record.forgotten()?,
            );
        }
        let client_routes = self.client_routes.into_iter().map(ClientRouteRecord::known);
        let client_routes: ClientRoutes = client_routes.collect::<Result<_, _>>()?;
        let metadata = Metadata {
            index: self.index,
            fence: self.fence,
            schema: Arc::new(self.schema.ok_or_else(|| missing("schema"))?.schema()?),
            topology: Arc::new(self.topology.ok_or_else(|| missing("topology"))?.topology()?),
            tablets: tablet_maps(&self.tablets, "metadata, tablets")?,
            truncations,
            rejected: Arc::new(rejected(self.rejected)?),
            history,
            is_balanced: self.is_unbalanced != Some(true),
            ring: self.ring.map(RingRecord::state).transpose()?,
            altered: self.altered.into_iter().map(AlteredRecord::altered).collect(),
            runs: Arc::new(runs),
            forgotten,
            client_routes: Arc::new(client_routes),
        };
        Ok(metadata)
    }
}

fn rejected(records: Vec<RejectedRecord>) -> Result<BTreeMap<u64, Rejected>, RecordError> {
    let mut rejected = BTreeMap::new();
    for record in records {
        let why = match (record.conflict, record.invalid) {
            (Some(what), None) => Rejected::Conflict { what },
            (None, Some(why)) => Rejected::Invalid { why },
            _ => {
                let place = format!("metadata, rejected, {}", record.index);
                return Err(RecordError::damaged(place, "expected one reason"));
            }
        };
        rejected.insert(record.index, why);
    }
    Ok(rejected)
}

fn runs(records: &[LastRunRecord]) -> Result<BTreeMap<NodeNumber, Run>, RecordError> {
    let mut runs = BTreeMap::new();
    for record in records {
        let number = u16::try_from(record.node).map_err(|_| {
            let why = format!("there is no node number {}", record.node);
            RecordError::damaged("metadata, history, runs, node", why)
        })?;
        let run = Run {
            generation: record.generation,
            name: record.name,
        };
        runs.insert(NodeNumber(number), run);
    }
    Ok(runs)
}

fn schema_change(record: SchemaChangeRecord) -> Result<SchemaChange, RecordError> {
    let missing = || RecordError::damaged("schema command, change", "it is missing");
    Ok(SchemaChange {
        change: record.change.ok_or_else(missing)?.change()?,
        tablets: tablet_maps(&record.tablets, "schema command, tablets")?,
    })
}

fn tablet_maps(records: &[TabletsRecord], place: &str) -> Result<BTreeMap<TableId, Arc<TabletMap>>, RecordError> {
    records.iter().map(|record| tablet_map(record, place)).collect()
}

fn tablet_map(record: &TabletsRecord, place: &str) -> Result<(TableId, Arc<TabletMap>), RecordError> {
    let table = table(&record.table, place)?;
    let map = TabletMap::decode(&record.tablets);
    let map = map.map_err(|e| RecordError::damaged(format!("{place}, table {}", table.0), e.to_string()))?;
    Ok((table, Arc::new(map)))
}

fn map_record(table: TableId, map: &TabletMap) -> TabletsRecord {
    TabletsRecord {
        table: table_bytes(table),
        tablets: map.encode(),
    }
}

fn table_record(table: TableId) -> TableRecord {
    TableRecord {
        table: table_bytes(table),
    }
}

fn table_bytes(table: TableId) -> Vec<u8> {
    table.0.as_bytes().to_vec()
}

fn host_bytes(host: HostId) -> Vec<u8> {
    host.0.as_bytes().to_vec()
}

fn table(bytes: &[u8], place: &str) -> Result<TableId, RecordError> {
    uuid(bytes, place).map(TableId)
}

fn host(bytes: &[u8], place: &str) -> Result<HostId, RecordError> {
    uuid(bytes, place).map(HostId)
}
