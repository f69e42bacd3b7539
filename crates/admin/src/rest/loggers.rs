//! The levels of log messages. A *logger* is a module of the node, or `root` for all modules without a level of their
//! own.

use log::LevelFilter;
use serde_json::{Value, json};

use super::Handler::Now;
use super::{Answer, Call, Route};

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/system/logger",
        "Names of the loggers with a level of their own, and root",
        Now(|_| Ok(json!(logging::names()))),
    ),
    Route::delete("/system/logger", "Reset all levels to those of the options", Now(reset)),
    Route::get("/system/logger/{name}", "Level of a logger", Now(level)),
    Route::post("/system/logger/{name}", "Set the level of a logger", Now(set_level))
        .takes(&[("level", "off, error, warn, info, debug or trace")]),
    Route::delete(
        "/system/logger/{name}",
        "Remove the level of a logger",
        Now(remove_level),
    ),
];

fn level(call: &Call) -> Answer {
    let level = logging::level(call.part()).map_err(unknown)?;
    Ok(json!(level.as_str().to_ascii_lowercase()))
}

fn set_level(call: &Call) -> Answer {
    let given = call.parameter("level").unwrap_or("");
    let level: LevelFilter = given.parse().map_err(|_| {
        (
            400,
            format!("parameter level: expected off, error, warn, info, debug or trace, got '{given}'"),
        )
    })?;
    change(call, Some(level))
}

fn remove_level(call: &Call) -> Answer {
    change(call, None)
}

/// Logs the change at WARN, so that the log itself explains why lines begin or end.
fn change(call: &Call, level: Option<LevelFilter>) -> Answer {
    let name = call.part();
    logging::set_level(name, level).map_err(unknown)?;
    match level {
        Some(level) => log::warn!("an operator set the log level of {name} to {level} until the next start or SIGHUP"),
        None => log::warn!("an operator removed the log level of {name}"),
    }
    Ok(Value::Null)
}

fn reset(_call: &Call) -> Answer {
    logging::reset();
    log::warn!("an operator reset all log levels to those of the options");
    Ok(Value::Null)
}

fn unknown(error: logging::UnknownModule) -> (u16, String) {
    (400, error.to_string())
}
