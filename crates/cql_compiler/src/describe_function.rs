//! DESCRIBE of functions and aggregates.

use schema::{Keyspace, UserAggregate, UserFunction, describe_aggregate, describe_function, quote_identifier};

use crate::describe::Element;

/// The order of lists: by names without their case, then by the types of arguments. Of two names that differ in case
/// alone the one without quotes is first.
fn sorted(mut elements: Vec<(String, Element)>) -> Vec<Element> {
    elements.sort_by_cached_key(|(name, element)| {
        let arguments = element.name.rfind('(').map_or("", |at| &element.name[at..]).to_owned();
        (name.clone(), arguments, element.name.starts_with('"'))
    });
    elements.into_iter().map(|(_, element)| element).collect()
}

fn of_function(function: &UserFunction) -> (String, Element) {
    let element = Element {
        keyspace: quote_identifier(&function.keyspace),
        kind: "function",
        name: function.declared_signature(),
        statement: describe_function(function),
    };
    (function.name.to_lowercase(), element)
}

fn of_aggregate(aggregate: &UserAggregate) -> (String, Element) {
    let element = Element {
        keyspace: quote_identifier(&aggregate.keyspace),
        kind: "aggregate",
        name: aggregate.declared_signature(),
        statement: describe_aggregate(aggregate),
    };
    (aggregate.name.to_lowercase(), element)
}

/// The functions of a keyspace, all or those of one name.
pub(crate) fn functions(keyspace: &Keyspace, name: Option<&str>) -> Vec<Element> {
    let is_wanted = |function: &&std::sync::Arc<UserFunction>| name.is_none_or(|name| function.name == name);
    let functions = keyspace.functions.values().filter(is_wanted);
    sorted(functions.map(|function| of_function(function)).collect())
}

/// The aggregates of a keyspace, all or those of one name.
pub(crate) fn aggregates(keyspace: &Keyspace, name: Option<&str>) -> Vec<Element> {
    let is_wanted = |aggregate: &&std::sync::Arc<UserAggregate>| name.is_none_or(|name| aggregate.name == name);
    let aggregates = keyspace.aggregates.values().filter(is_wanted);
    sorted(aggregates.map(|aggregate| of_aggregate(aggregate)).collect())
}
