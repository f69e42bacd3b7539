//! The REST API: the paths and answers that tools for ScyllaDB use, for what exists here.
//!
//! [`ROUTES`] is all of it, and `GET /` lists it. A handler gets the node's operator and the request; what it refuses
//! is answered as `{"message": …, "code": …}`. A parameter that a route does not name is refused.

mod access_keys;
mod client_routes;
mod cluster;
mod configuration;
mod control;
mod handoff;
mod health;
mod loggers;
mod metrics;
mod operations;
mod repairs;
mod route;
mod storage;
mod tablets;
mod tasks;

use std::rc::Rc;

use serde_json::Value;

use crate::http::{JSON, Request, Response};
use crate::operator::{Keyspace, Local, Member, Operator, Selection};

pub(crate) use client_routes::read as read_client_routes;
use route::Route;

/// An answer, or status and reason.
type Answer = Result<Value, (u16, String)>;

/// A request on its way to its handler.
pub(crate) struct Call {
    operator: Rc<dyn Operator>,
    request: Request,
    route: &'static Route,
    /// The words in the path for each `{…}` of the pattern.
    parts: Vec<String>,
}

/// The function that answers.
pub(crate) enum Handler {
    Now(fn(&Call) -> Answer),
    Later(for<'a> fn(&'a Call) -> Local<'a, Answer>),
}

pub(crate) const ROUTES: [&[Route]; 15] = [
    route::ROUTES_OF_INDEX,
    cluster::ROUTES,
    operations::ROUTES,
    control::ROUTES,
    storage::ROUTES,
    tablets::ROUTES,
    repairs::ROUTES,
    metrics::ROUTES,
    handoff::ROUTES,
    health::ROUTES,
    loggers::ROUTES,
    configuration::ROUTES,
    client_routes::ROUTES,
    access_keys::ROUTES,
    tasks::ROUTES,
];

impl Call {
    fn part(&self) -> &str {
        self.parts.first().map_or("", String::as_str)
    }

    /// The value of a query parameter, which the route names; None when it is not given or empty.
    fn parameter(&self, name: &str) -> Option<&str> {
        debug_assert!(
            self.route.parameters.iter().any(|(known, _)| *known == name),
            "{} {} does not name its parameter {name}",
            self.route.method,
            self.route.path
        );
        self.request.parameter(name)
    }

    fn keyspace_named(&self, name: &str) -> Result<Keyspace, (u16, String)> {
        let found = self
            .operator
            .keyspaces()
            .into_iter()
            .find(|keyspace| keyspace.name == name);
        found.ok_or_else(|| (400, format!("Can't find a keyspace {name}")))
    }

    /// The member that the path names by address or host id; this node where it names none.
    fn member(&self) -> Result<Member, (u16, String)> {
        let node = self.operator.node();
        let name = match self.parts.first() {
            Some(name) => Some(name.as_str()),
            None => self.parameter("host").or_else(|| self.parameter("endpoint")),
        };
        let member = match name {
            Some(name) => node.member(name),
            None => node.me(),
        };
        member.cloned().ok_or_else(|| {
            (
                400,
                format!("no member of the cluster is at '{}'", name.unwrap_or_default()),
            )
        })
    }

    /// Keyspaces of the path or parameter `kn`, and tables of the parameter `cf`, both separated by commas. What does
    /// not exist is refused.
    fn selection(&self) -> Result<Selection, (u16, String)> {
        let list = |text: &str| {
            text.split(',')
                .map(str::trim)
                .filter(|n| !n.is_empty())
                .map(str::to_owned)
                .collect()
        };
        let keyspaces: Vec<String> = list(
            self.parts
                .first()
                .map(String::as_str)
                .or_else(|| self.parameter("kn"))
                .unwrap_or(""),
        );
        let tables: Vec<String> = list(self.parameter("cf").unwrap_or(""));
        for name in &keyspaces {
            let keyspace = self.keyspace_named(name)?;
            if let Some(table) = tables.iter().find(|table| !keyspace.tables.contains(table)) {
                return Err((400, format!("Can't find a table {table} in keyspace {name}")));
            }
        }
        if keyspaces.is_empty() && !tables.is_empty() {
            return Err((400, "a table needs its keyspace".to_owned()));
        }
        Ok(Selection { keyspaces, tables })
    }
}

/// Answers a request.
pub(crate) async fn answer(operator: Rc<dyn Operator>, request: Request) -> Response {
    let found = find(&request.method, &request.path);
    let found = found.and_then(|found| found.0.check_parameters(&request.query).map(|()| found));
    let (route, parts) = match found {
        Ok(found) => found,
        Err((status, reason)) => return Response::refusal(status, &reason),
    };
    let call = Call {
        operator,
        request,
        route,
        parts,
    };
    let answer = match &route.handler {
        Handler::Now(handler) => handler(&call),
        Handler::Later(handler) => handler(&call).await,
    };
    match answer {
        Ok(value) => Response {
            status: 200,
            content_type: JSON,
            body: if value.is_null() {
                Vec::new()
            } else {
                value.to_string().into_bytes()
            },
        },
        Err((status, reason)) => Response::refusal(status, &reason),
    }
}

/// The route of a path, and the words in the path for the pattern's `{…}`.
pub(crate) fn find(method: &str, path: &str) -> Result<(&'static Route, Vec<String>), (u16, String)> {
    let method = if method == "HEAD" { "GET" } else { method };
    let path = path.trim_end_matches('/');
    let mut allowed = Vec::new();
    for route in ROUTES.into_iter().flatten() {
        if let Some(parts) = matched(route.path, path) {
            if route.method == method {
                return Ok((route, parts));
            }
            allowed.push(route.method);
        }
    }
    if allowed.is_empty() {
        return Err((404, "Not found".to_owned()));
    }
    Err((
        405,
        format!("{method} is not allowed here, but {}", allowed.join(" and ")),
    ))
}

fn matched(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut given = path.split('/');
    let mut parts = Vec::new();
    for wanted in pattern.trim_end_matches('/').split('/') {
        let word = given.next()?;
        if wanted.starts_with('{') && !word.is_empty() {
            parts.push(word.to_owned());
        } else if wanted != word {
            return None;
        }
    }
    given.next().is_none().then_some(parts)
}

/// What went wrong in the node.
fn failed(reason: String) -> (u16, String) {
    (500, reason)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_path_is_answered_by_the_pattern_that_it_fits() {
        let cases = [
            ("/a/b", "/a/b", Some(vec![])),
            ("/a/{x}", "/a/b", Some(vec!["b"])),
            ("/a/{x}/c/{y}", "/a/b/c/d", Some(vec!["b", "d"])),
            ("/a/{x}", "/a", None),
            ("/a/{x}", "/a/", None),
            ("/a", "/a/b", None),
            ("/column_family/", "/column_family", Some(vec![])),
        ];
        for (pattern, path, expected) in cases {
            let expected = expected.map(|parts| parts.into_iter().map(str::to_owned).collect::<Vec<_>>());
            assert_eq!(matched(pattern, path), expected, "{path} against {pattern}");
        }
    }

    #[test]
    fn unknown_paths_and_methods_are_told_apart() {
        assert_eq!(find("GET", "/nowhere").err(), Some((404, "Not found".to_owned())));
        let refused = find("PUT", "/storage_service/snapshots").err();
        assert_eq!(
            refused,
            Some((405, "PUT is not allowed here, but GET and POST and DELETE".to_owned()))
        );
        assert!(find("GET", "/column_family/").is_ok() && find("HEAD", "/column_family").is_ok());
    }

    #[test]
    fn a_parameter_that_a_path_does_not_take_is_refused() {
        let checked = |method, path, name: &str| {
            let (route, _) = find(method, path).expect("the path is there");
            route.check_parameters(&[(name.to_owned(), "1".to_owned())])
        };
        assert_eq!(checked("POST", "/storage_service/flush", "kn"), Ok(()));
        let refused = |reason: &str| Err((400, reason.to_owned()));
        assert_eq!(
            checked("POST", "/storage_service/flush", "keyspace"),
            refused("unknown parameter 'keyspace': this path takes kn, cf")
        );
        assert_eq!(
            checked("GET", "/storage_service/load", "kn"),
            refused("unknown parameter 'kn': this path takes none")
        );
    }

    #[test]
    fn no_path_is_there_twice() {
        let mut seen = BTreeSet::new();
        for Route { method, path, .. } in ROUTES.into_iter().flatten() {
            assert!(seen.insert((method, path)), "{method} {path} has two handlers");
        }
    }
}
