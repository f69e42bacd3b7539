//! `system.config`: the options of the node, which statements change. Columns are those of ScyllaDB.

use std::sync::Arc;

use config::Described;
use query::Engine;
use system_tables::{
    Content, Definition, Opening, Options, Partitions, Request, Rows, Value, VirtualTable, Writing, WrittenRow, ready,
};

use crate::live_options::LiveOptions;
use crate::reread;

static CONFIG: Definition = Definition {
    keyspace: "system",
    cql: "config (name text PRIMARY KEY, source text, type text, value text)",
    options: Options::NO_GRACE,
};

/// `system.config`. A partition is a spelling of an option.
pub(super) struct Configuration(pub(super) Arc<LiveOptions>);

impl VirtualTable for Configuration {
    fn definition(&self) -> &'static Definition {
        &CONFIG
    }

    fn open(&self, request: Request) -> Opening<'_> {
        let mut all = self.0.described(Engine::local().coordinator.context.shard.tasks());
        all.retain(|option| request.wanted.includes(option.name.as_bytes()));
        ready(OptionRows(all))
    }

    fn write(&self, rows: Vec<WrittenRow>) -> Writing<'_> {
        Box::pin(async move {
            let changes = rows.into_iter().map(change).collect::<Result<Vec<_>, _>>()?;
            reread::set(changes).await
        })
    }
}

/// The option and the value that a row gives it.
fn change(row: WrittenRow) -> Result<(String, Option<String>), String> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|_| "a text is not UTF-8".to_owned());
    let mut value = None;
    for (column, given) in row.columns {
        match column.as_str() {
            "value" => value = given.map(text).transpose()?,
            // INSERT JSON gives null to the columns that it does not name.
            _ if given.is_none() => {}
            _ => {
                return Err(format!(
                    "column {column} of system.config cannot be written, only value"
                ));
            }
        }
    }
    Ok((text(row.key)?, value))
}

struct OptionRows(Vec<Described>);

impl Content for OptionRows {
    fn partitions(&self, partitions: &mut Partitions) {
        for (number, option) in self.0.iter().enumerate() {
            partitions.add(number, &[Value::Text(option.name)]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let option = &self.0[partition];
        rows.push(&[
            ("name", Value::Text(option.name)),
            ("source", Value::Text(option.source.name())),
            ("type", Value::Text(option.kind)),
            ("value", Value::text(option.value.as_deref())),
        ]);
    }
}
