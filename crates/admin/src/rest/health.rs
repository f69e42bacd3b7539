//! How nodes are by their own judgement: their clocks, whether they take writes, and how full their disks are. These
//! paths are ceto's own.

use serde_json::{Value, json};

use super::Handler::Now;
use super::{Answer, Call, Route};

pub(super) const ROUTES: &[Route] = &[
    Route::get("/ceto/clock", "The node's wall clock as it judges it", Now(clock)),
    Route::post(
        "/ceto/clock/confirm",
        "Say that the wall clock is right as it is now",
        Now(confirm),
    ),
    Route::get(
        "/ceto/refuse_writes",
        "Addresses of members whose commitlogs take no writes",
        Now(refuse_writes),
    ),
    Route::get(
        "/ceto/disks",
        "How full the disks of each member are: normal, warning or critical",
        Now(disks),
    ),
];

fn clock(call: &Call) -> Answer {
    let clock = call.operator.node().clock;
    Ok(json!({
        "state": clock.state.name(),
        "reason": clock.reason,
        "offset_seconds": clock.ahead_seconds,
    }))
}

fn confirm(call: &Call) -> Answer {
    let confirmed = call.operator.confirm_clock();
    confirmed.map(|()| Value::Null).map_err(|reason| (409, reason))
}

/// The addresses of the members whose commitlog takes no writes.
fn refuse_writes(call: &Call) -> Answer {
    let members = call.operator.node().members;
    let refusing = members.iter().filter(|member| !member.takes_writes);
    Ok(refusing.map(|member| json!(member.address.to_string())).collect())
}

/// How full the disks of each member are, by address.
fn disks(call: &Call) -> Answer {
    let members = call.operator.node().members;
    let disks = members
        .iter()
        .map(|member| json!({"key": member.address.to_string(), "value": member.disk.name()}));
    Ok(disks.collect())
}
