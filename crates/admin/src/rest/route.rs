//! What the API takes: a route names its method, its path, its parameters and what it does. The index at `/` lists all
//! routes.

use serde_json::{Value, json};

use super::{Answer, Call, Handler, ROUTES};

/// A method and a path, and the function that answers.
pub(crate) struct Route {
    pub(crate) method: &'static str,
    /// The path; a part in braces matches any word.
    pub(crate) path: &'static str,
    /// What it does, in a few words.
    about: &'static str,
    /// The parameters that a query may have. Others are refused.
    pub(super) parameters: &'static [Parameter],
    pub(super) handler: Handler,
}

/// A parameter of a query, and what it means.
type Parameter = (&'static str, &'static str);

pub(super) const ROUTES_OF_INDEX: &[Route] = &[Route::get(
    "/",
    "This list: methods, paths, parameters, and what they do",
    Handler::Now(index),
)];

impl Route {
    pub(super) const fn get(path: &'static str, about: &'static str, handler: Handler) -> Self {
        Self::new("GET", path, about, handler)
    }

    pub(super) const fn post(path: &'static str, about: &'static str, handler: Handler) -> Self {
        Self::new("POST", path, about, handler)
    }

    pub(super) const fn delete(path: &'static str, about: &'static str, handler: Handler) -> Self {
        Self::new("DELETE", path, about, handler)
    }

    const fn new(method: &'static str, path: &'static str, about: &'static str, handler: Handler) -> Self {
        Self {
            method,
            path,
            about,
            parameters: &[],
            handler,
        }
    }

    /// Adds the parameters that a query may have.
    pub(super) const fn takes(mut self, parameters: &'static [Parameter]) -> Self {
        self.parameters = parameters;
        self
    }

    /// Refuses a query with a parameter that the route does not take: the client expects an effect that would not come.
    pub(super) fn check_parameters(&self, query: &[(String, String)]) -> Result<(), (u16, String)> {
        let known = |name: &str| self.parameters.iter().any(|(known, _)| *known == name);
        let Some((name, _)) = query.iter().find(|(name, _)| !known(name)) else {
            return Ok(());
        };
        let names: Vec<&str> = self.parameters.iter().map(|(name, _)| *name).collect();
        let takes = match names.as_slice() {
            [] => "this path takes none".to_owned(),
            names => format!("this path takes {}", names.join(", ")),
        };
        Err((400, format!("unknown parameter '{name}': {takes}")))
    }
}

fn index(_: &Call) -> Answer {
    let described = |route: &Route| {
        let parameters = route.parameters.iter();
        let parameters: Vec<Value> = parameters
            .map(|(name, about)| json!({"name": name, "about": about}))
            .collect();
        json!({"method": route.method, "path": route.path, "parameters": parameters, "about": route.about})
    };
    Ok(ROUTES.into_iter().flatten().map(described).collect())
}
