//! Selectors as Cassandra writes them: the names of result columns, and the words of errors.

use cql::ast::{Selector, Term};

use crate::function_call::arithmetic;
use crate::text::{function_name, hint_text, term_text, type_text};

/// The name of a selector's result column, which is also its text in messages. `user_name` gives the full name of the
/// user-defined function that a call means, if it means one.
pub(super) fn name_of(selector: &Selector, keyspace: &str, user_name: &dyn Fn(&Selector) -> Option<String>) -> String {
    let name = |selector: &Selector| name_of(selector, keyspace, user_name);
    let joined = |selectors: &[Selector]| selectors.iter().map(name).collect::<Vec<_>>().join(", ");
    match selector {
        Selector::Column(column) => column.clone(),
        Selector::Term(term) => term_text(term),
        Selector::CountRows => "count".to_owned(),
        Selector::FunctionCall {
            name: function,
            arguments,
        } => {
            if is_count_of_constant(selector) {
                return "count".to_owned();
            }
            let lower = function.name.to_lowercase();
            let is_of_cells = matches!(lower.as_str(), "writetime" | "maxwritetime" | "ttl");
            let function = match (&function.keyspace, is_of_cells) {
                (None, true) => lower,
                (None, false) => user_name(selector).unwrap_or_else(|| format!("system.{lower}")),
                (Some(_), _) => function_name(function),
            };
            format!("{function}({})", joined(arguments))
        }
        Selector::Cast { selector, type_name } => format!("cast({} as {})", name(selector), type_text(type_name)),
        Selector::Element { collection, key } => format!("{}[{}]", name(collection), term_text(key)),
        Selector::Slice { collection, from, to } => {
            let bound = |term: &Option<Box<Term>>| term.as_deref().map_or_else(String::new, term_text);
            format!("{}[{}..{}]", name(collection), bound(from), bound(to))
        }
        Selector::Field { value, field } => format!("{}.{field}", name(value)),
        Selector::List(elements) => format!("[{}]", joined(elements)),
        Selector::Set(elements) => format!("{{{}}}", joined(elements)),
        Selector::Tuple(elements) => format!("({})", joined(elements)),
        Selector::Map(pairs) => {
            let pairs: Vec<_> = pairs.iter().map(|(k, v)| format!("{}: {}", name(k), name(v))).collect();
            format!("{{{}}}", pairs.join(", "))
        }
        Selector::UserType(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(field, v)| format!("{field}: {}", name(v)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        Selector::TypeHint { type_name, selector } => {
            format!("({}){}", hint_text(type_name, keyspace), name(selector))
        }
        Selector::Arithmetic { operator, left, right } => {
            format!("{} {} {}", name(left), arithmetic(*operator).sign(), name(right))
        }
        Selector::Negation(selector) => format!("-{}", name(selector)),
    }
}

/// Whether it is `count` of a constant, which counts rows.
pub(super) fn is_count_of_constant(selector: &Selector) -> bool {
    let Selector::FunctionCall { name, arguments } = selector else {
        return false;
    };
    let is_constant = |argument: &Selector| matches!(argument, Selector::Term(Term::Literal(literal)) if literal.kind != cql::ast::LiteralKind::Null);
    name.name == "count" && matches!(arguments.as_slice(), [only] if is_constant(only))
}
