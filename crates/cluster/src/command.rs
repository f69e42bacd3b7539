//! What changes the metadata, and its bytes in the log.

use crate::bytes::{Decoder, Encoder, Form, Malformed};
use crate::metadata::keyspace_json;
use schema::{Keyspace, Schema, TableId};
use std::collections::BTreeMap;
use std::sync::Arc;
use topology::{HostId, TabletChange, TabletMap, TopologyCommand};
use uuid::Uuid;

const COMMAND: Form = Form {
    kind: b'c',
    format: 1,
    name: "a metadata command",
};

/// One change of the metadata.
#[derive(Clone, PartialEq, Debug)]
pub enum Command {
    /// Keyspaces change.
    Schema(SchemaChange),
    /// Nodes change.
    Topology(TopologyCommand),
    /// The tablets of a table change.
    Tablets {
        /// The table.
        table: TableId,
        /// How.
        change: TabletsChange,
    },
    /// Replicas take no more requests of coordinators that have not seen the command of this index: whoever changes where data is and does not hear
    /// from all nodes that they have ended what they began before.
    Fence {
        /// Of a command that is applied.
        index: u64,
    },
    /// The data of a table is forgotten everywhere. Its version among the metadata separates the requests of before from those of afterwards.
    Truncate {
        /// The table.
        table: TableId,
    },
    /// A node was started. Only proposed where the feature `metadata_history` is enabled, as the next two.
    Run {
        /// The node.
        host_id: HostId,
        /// Of its Raft id.
        generation: u32,
        /// The random name of its start that was noted last; 0 for none.
        former: u64,
        /// That of the present one.
        name: u64,
    },
    /// A node that has lost its metadata, and not its data, gets another Raft id.
    Rejoin {
        /// The node.
        host_id: HostId,
        /// Of its next Raft id.
        generation: u32,
    },
    /// A node that is down is removed, if no other node becomes the owner of data that it does not have.
    RemoveNode {
        /// The node.
        host_id: HostId,
    },
    /// A table has no tablets any more. Those of a table that is dropped vanish with it.
    RemoveTablets {
        /// The table.
        table: TableId,
    },
}

/// From one version of the schema to the next.
#[derive(Clone, PartialEq, Debug)]
pub struct SchemaChange {
    /// The version that it was computed from.
    pub base: Uuid,
    /// The version that it makes.
    pub next: Uuid,
    /// The keyspaces that change, by name; None is one that is dropped.
    pub keyspaces: BTreeMap<String, Option<Arc<Keyspace>>>,
    /// Maps of tables that come with it, so that nobody ever sees the table without.
    pub tablets: BTreeMap<TableId, Arc<TabletMap>>,
}

/// How the tablets of a table change.
#[derive(Clone, PartialEq, Debug)]
pub enum TabletsChange {
    /// This is the map.
    Whole(Arc<TabletMap>),
    /// Some tablets of the map that is there.
    Part(TabletChange),
}

impl SchemaChange {
    /// What makes `next` of `base`.
    #[must_use]
    pub fn between(base: &Schema, next: &Schema) -> Self {
        let is_new = |(name, keyspace): &(&String, &Arc<Keyspace>)| match base.keyspaces.get(*name) {
            Some(before) => !Arc::ptr_eq(before, keyspace) && before != *keyspace,
            None => true,
        };
        let changed = next.keyspaces.iter().filter(is_new);
        let dropped = base.keyspaces.keys().filter(|name| !next.keyspaces.contains_key(*name));
        Self {
            base: base.version,
            next: next.version,
            keyspaces: changed
                .map(|(name, keyspace)| (name.clone(), Some(keyspace.clone())))
                .chain(dropped.map(|name| (name.clone(), None)))
                .collect(),
            tablets: BTreeMap::new(),
        }
    }
}

impl Command {
    /// The command as bytes.
    ///
    /// # Errors
    /// When a keyspace has no JSON form.
    pub fn encode(&self) -> Result<Vec<u8>, Malformed> {
        let mut out = Encoder::begin(COMMAND);
        match self {
            Self::Schema(change) => {
                out.byte(1);
                out.uuid(change.base);
                out.uuid(change.next);
                out.count(change.keyspaces.len());
                for (name, keyspace) in &change.keyspaces {
                    out.blob(name.as_bytes());
                    let json = keyspace.as_deref().map(keyspace_json).transpose()?;
                    out.option(json, |out, json| out.blob(&json));
                }
                out.count(change.tablets.len());
                for (table, map) in &change.tablets {
                    out.uuid(table.0);
                    out.blob(&map.encode());
                }
            }
            Self::Topology(command) => {
                out.byte(2);
                out.blob(&command.encode());
            }
            Self::Tablets { table, change } => {
                let (kind, bytes) = match change {
                    TabletsChange::Whole(map) => (3, map.encode()),
                    TabletsChange::Part(change) => (4, change.encode()),
                };
                out.byte(kind);
                out.uuid(table.0);
                out.blob(&bytes);
            }
            Self::RemoveTablets { table } => {
                out.byte(5);
                out.uuid(table.0);
            }
            Self::Fence { index } => {
                out.byte(6);
                out.number(*index);
            }
            Self::Truncate { table } => {
                out.byte(7);
                out.uuid(table.0);
            }
            Self::Run {
                host_id,
                generation,
                former,
                name,
            } => {
                out.byte(8);
                out.uuid(host_id.0);
                out.number(u64::from(*generation));
                out.number(*former);
                out.number(*name);
            }
            Self::Rejoin { host_id, generation } => {
                out.byte(9);
                out.uuid(host_id.0);
                out.number(u64::from(*generation));
            }
            Self::RemoveNode { host_id } => {
                out.byte(10);
                out.uuid(host_id.0);
            }
        }
        Ok(out.seal())
    }

    /// The command of these bytes.
    ///
    /// # Errors
    /// When they are damaged, of a later format, or no command.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut d = Decoder::open(bytes, COMMAND)?;
        let command = match d.byte()? {
            1 => Self::Schema(decode_schema_change(&mut d)?),
            2 => Self::Topology(TopologyCommand::decode(d.blob()?).map_err(|e| d.malformed(e))?),
            3 => Self::Tablets {
                table: TableId(d.uuid()?),
                change: TabletsChange::Whole(Arc::new(TabletMap::decode(d.blob()?).map_err(|e| d.malformed(e))?)),
            },
            4 => Self::Tablets {
                table: TableId(d.uuid()?),
                change: TabletsChange::Part(TabletChange::decode(d.blob()?).map_err(|e| d.malformed(e))?),
            },
            5 => Self::RemoveTablets {
                table: TableId(d.uuid()?),
            },
            6 => Self::Fence { index: d.number()? },
            7 => Self::Truncate {
                table: TableId(d.uuid()?),
            },
            8 => Self::Run {
                host_id: HostId(d.uuid()?),
                generation: generation(&mut d)?,
                former: d.number()?,
                name: d.number()?,
            },
            9 => Self::Rejoin {
                host_id: HostId(d.uuid()?),
                generation: generation(&mut d)?,
            },
            10 => Self::RemoveNode {
                host_id: HostId(d.uuid()?),
            },
            other => return Err(d.malformed(format!("there is no command {other}"))),
        };
        d.end()?;
        Ok(command)
    }
}

fn generation(d: &mut Decoder<'_>) -> Result<u32, Malformed> {
    u32::try_from(d.number()?).map_err(|e| d.malformed(e))
}

fn decode_schema_change(d: &mut Decoder<'_>) -> Result<SchemaChange, Malformed> {
    let (base, next) = (d.uuid()?, d.uuid()?);
    let mut keyspaces = BTreeMap::new();
    for _ in 0..d.count()? {
        let name = d.text()?;
        let keyspace = d.option(|d| {
            let json = d.blob()?;
            serde_json::from_slice::<Keyspace>(json).map_err(|e| d.malformed(e))
        })?;
        keyspaces.insert(name, keyspace.map(Arc::new));
    }
    let mut tablets = BTreeMap::new();
    for _ in 0..d.count()? {
        let table = TableId(d.uuid()?);
        let map = TabletMap::decode(d.blob()?).map_err(|e| d.malformed(e))?;
        tablets.insert(table, Arc::new(map));
    }
    Ok(SchemaChange {
        base,
        next,
        keyspaces,
        tablets,
    })
}
