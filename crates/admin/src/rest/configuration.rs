//! The options of the node, by the paths of ScyllaDB's API of version 2.

use serde_json::{Value, json};

use super::Handler::Now;
use super::{Answer, Call, Route};
use crate::control::NodeOption;

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/v2/config",
        "Options: each with its name, type and value, and whether that is a default, of the options file (config), of the command line (cli), of a client (cql) or of nodetool (internal)",
        Now(|call| Ok(call.operator.options().iter().map(described).collect())),
    ),
    Route::get("/v2/config/{name}", "Value of an option", Now(value)),
];

fn described(option: &NodeOption) -> Value {
    json!({
        "name": option.name,
        "source": option.source,
        "type": option.kind,
        "value": value_of(option),
    })
}

fn value(call: &Call) -> Answer {
    let name = call.part();
    let options = call.operator.options();
    let option = options.iter().find(|option| option.name == name);
    option
        .map(value_of)
        .ok_or_else(|| (404, format!("there is no option '{name}'")))
}

/// The value, which is JSON.
fn value_of(option: &NodeOption) -> Value {
    let value = option.value.as_deref();
    value.map_or(Value::Null, |text| {
        serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
    })
}
