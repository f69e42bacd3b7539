//! Client routes: where clients reach the nodes through proxies, by the paths of ScyllaDB's API of version 2.
//!
//! The body of a change is a JSON array of objects, one for each route. One that is wrong refuses the whole request,
//! with its place in the array.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use uuid::Uuid;

use super::Handler::{Later, Now};
use super::{Answer, Call, Route};
use crate::operator::{ClientRoute, ClientRouteKey, Local, NotChanged};

pub(super) const ROUTES: &[Route] = &[
    Route::get(
        "/v2/client-routes",
        "Client routes: for each private connection and node, address and ports at which clients reach it, as this node knows them",
        Now(|call| Ok(call.operator.client_routes().iter().map(described).collect())),
    ),
    Route::post(
        "/v2/client-routes",
        "Create or replace client routes; the body is a JSON array of them, with connection_id, host_id, address and at least one of port, tls_port, alternator_port and alternator_https_port",
        Later(|call| Box::pin(put(call))),
    ),
    Route::delete(
        "/v2/client-routes",
        "Remove client routes; the body is a JSON array of objects with connection_id and host_id",
        Later(|call| Box::pin(remove(call))),
    ),
];

/// The fields of a port.
const PORTS: [&str; 4] = ["port", "tls_port", "alternator_port", "alternator_https_port"];

fn described(route: &ClientRoute) -> Value {
    let mut fields = Map::new();
    fields.insert("connection_id".to_owned(), route.key.connection_id.clone().into());
    fields.insert("host_id".to_owned(), route.key.host_id.to_string().into());
    fields.insert("address".to_owned(), route.address.clone().into());
    for (name, port) in PORTS.into_iter().zip(route.ports()) {
        if let Some(port) = port {
            fields.insert(name.to_owned(), port.into());
        }
    }
    Value::Object(fields)
}

async fn put(call: &Call) -> Answer {
    let wanted = entries(&call.request.body, route_of)?;
    distinct(wanted.iter().map(|route| &route.key))?;
    changed(wanted.is_empty(), call.operator.put_client_routes(wanted)).await
}

async fn remove(call: &Call) -> Answer {
    let wanted = entries(&call.request.body, |entry| {
        check_fields(entry, &["connection_id", "host_id"])?;
        key_of(entry)
    })?;
    distinct(wanted.iter())?;
    changed(wanted.is_empty(), call.operator.remove_client_routes(wanted)).await
}

async fn changed(is_nothing: bool, change: Local<'_, Result<(), NotChanged>>) -> Answer {
    if is_nothing {
        return Ok(Value::Null);
    }
    match change.await {
        Ok(()) => Ok(Value::Null),
        Err(NotChanged::Refused(why)) => Err((400, why)),
        Err(NotChanged::Failed(why)) => Err((500, why)),
    }
}

/// The entries of a body.
fn entries<T>(body: &[u8], read: impl Fn(&Map<String, Value>) -> Result<T, String>) -> Result<Vec<T>, (u16, String)> {
    let refused = |why: String| (400, why);
    let expected = "expected a JSON array of client routes";
    let body: Value = serde_json::from_slice(body).map_err(|e| refused(format!("{expected}: {e}")))?;
    let Value::Array(entries) = body else {
        return Err(refused(expected.to_owned()));
    };
    let read = |(number, entry): (usize, Value)| {
        let read = match &entry {
            Value::Object(fields) => read(fields),
            _ => Err("expected an object".to_owned()),
        };
        read.map_err(|why| refused(format!("client route {}: {why}", number + 1)))
    };
    entries.into_iter().enumerate().map(read).collect()
}

/// Reads a body as what is put and as what is removed, for the fuzzer: neither may panic.
pub(crate) fn read(body: &[u8]) {
    if let Ok(routes) = entries(body, route_of) {
        assert!(routes.iter().all(|route| route.ports().iter().any(Option::is_some)));
        drop(distinct(routes.iter().map(|route| &route.key)));
    }
    drop(entries(body, key_of));
}

/// Two entries for one route contradict each other.
fn distinct<'a>(keys: impl Iterator<Item = &'a ClientRouteKey>) -> Result<(), (u16, String)> {
    let mut seen = BTreeSet::new();
    for (number, key) in keys.enumerate() {
        if !seen.insert(key) {
            let ClientRouteKey { connection_id, host_id } = key;
            return Err((
                400,
                format!(
                    "client route {}: connection '{connection_id}' and node {host_id} are given twice",
                    number + 1
                ),
            ));
        }
    }
    Ok(())
}

fn check_fields(entry: &Map<String, Value>, known: &[&str]) -> Result<(), String> {
    match entry.keys().find(|name| !known.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => Err(format!("unknown field '{name}'; the fields are {}", known.join(", "))),
    }
}

fn text<'e>(entry: &'e Map<String, Value>, name: &str) -> Result<&'e str, String> {
    match entry.get(name) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text),
        Some(Value::String(_)) => Err(format!("{name} is empty")),
        Some(other) => Err(format!("{name}: expected a text, got {other}")),
        None => Err(format!("{name} is missing")),
    }
}

fn key_of(entry: &Map<String, Value>) -> Result<ClientRouteKey, String> {
    let host_id = text(entry, "host_id")?;
    Ok(ClientRouteKey {
        connection_id: text(entry, "connection_id")?.to_owned(),
        host_id: Uuid::try_parse(host_id).map_err(|_| format!("host_id: expected a UUID, got '{host_id}'"))?,
    })
}

fn route_of(entry: &Map<String, Value>) -> Result<ClientRoute, String> {
    let known = [&["connection_id", "host_id", "address"][..], &PORTS].concat();
    check_fields(entry, &known)?;
    let port = |name: &str| match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => {
            let port = value.as_u64().and_then(|port| u16::try_from(port).ok());
            let port = port.filter(|port| *port != 0);
            port.map(Some)
                .ok_or_else(|| format!("{name}: expected a number from 1 to 65535, got {value}"))
        }
    };
    let route = ClientRoute {
        key: key_of(entry)?,
        address: text(entry, "address")?.to_owned(),
        port: port("port")?,
        tls_port: port("tls_port")?,
        alternator_port: port("alternator_port")?,
        alternator_https_port: port("alternator_https_port")?,
    };
    if route.ports().iter().all(Option::is_none) {
        Err(format!("at least one port is needed: {}", PORTS.join(", ")))
    } else {
        Ok(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: &str = "8ad27d74-8f8b-4bb4-9af7-7650a6cddf01";

    fn read(body: &str) -> Result<Vec<Value>, (u16, String)> {
        let routes = entries(body.as_bytes(), route_of)?;
        distinct(routes.iter().map(|route| &route.key))?;
        Ok(routes.iter().map(described).collect())
    }

    #[test]
    fn routes_are_read_and_shown_alike() {
        let all = format!(
            r#"[{{"address":"proxy","alternator_https_port":4,"alternator_port":3,"connection_id":"c","host_id":"{NODE}","port":1,"tls_port":65535}}]"#
        );
        let shown = read(&all).map(|routes| Value::from(routes).to_string());
        assert_eq!(shown, Ok(all));
        let one = format!(r#"[{{"connection_id":"c","host_id":"{NODE}","address":"proxy","tls_port":null,"port":1}}]"#);
        let routes = read(&one).expect("a port that is null is not given");
        assert_eq!(routes[0].as_object().map(Map::len), Some(4), "{routes:?}");
        assert_eq!(read("[]"), Ok(Vec::new()));
    }

    #[test]
    fn what_is_wrong_with_a_body_is_named() {
        let route = |fields: &str| format!(r#"[{{"connection_id":"c","host_id":"{NODE}","address":"p"{fields}}}]"#);
        let cases = [
            ("{}".to_owned(), "expected a JSON array of client routes"),
            (
                String::new(),
                "expected a JSON array of client routes: EOF while parsing a value at line 1 column 0",
            ),
            ("[1]".to_owned(), "client route 1: expected an object"),
            (
                route(""),
                "client route 1: at least one port is needed: port, tls_port, alternator_port, alternator_https_port",
            ),
            (
                route(r#","port":0"#),
                "client route 1: port: expected a number from 1 to 65535, got 0",
            ),
            (
                route(r#","tls_port":65536"#),
                "client route 1: tls_port: expected a number from 1 to 65535, got 65536",
            ),
            (
                route(r#","port":"9042""#),
                r#"client route 1: port: expected a number from 1 to 65535, got "9042""#,
            ),
            (
                route(r#","port":1,"rack":"r""#),
                "client route 1: unknown field 'rack'; the fields are connection_id, host_id, address, port, tls_port, alternator_port, \
                 alternator_https_port",
            ),
            (
                r#"[{"connection_id":"c","host_id":"7","address":"p","port":1}]"#.to_owned(),
                "client route 1: host_id: expected a UUID, got '7'",
            ),
            (
                format!(r#"[{{"connection_id":"","host_id":"{NODE}","address":"p","port":1}}]"#),
                "client route 1: connection_id is empty",
            ),
            (
                format!(r#"[{{"connection_id":"c","host_id":"{NODE}","address":"","port":1}}]"#),
                "client route 1: address is empty",
            ),
            (
                format!(r#"[{{"connection_id":7,"host_id":"{NODE}","address":"p","port":1}}]"#),
                "client route 1: connection_id: expected a text, got 7",
            ),
            (
                format!(r#"[{{"host_id":"{NODE}","address":"p","port":1}}]"#),
                "client route 1: connection_id is missing",
            ),
            (
                format!(
                    r#"[{{"connection_id":"c","host_id":"{NODE}","address":"p","port":1}},{{"connection_id":"c","host_id":"{NODE}","address":"q","port":1}}]"#
                ),
                "client route 2: connection 'c' and node 8ad27d74-8f8b-4bb4-9af7-7650a6cddf01 are given twice",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(read(&body), Err((400, expected.to_owned())), "{body}");
        }
    }
}
