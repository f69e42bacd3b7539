//! Terms as Cassandra writes them: in the words of errors and the names of result columns.

use std::fmt::Write as _;

use cql::ast::{FunctionCall, Literal, LiteralKind, QualifiedName, Term, TypeName};

use crate::function_call::arithmetic;

/// The text of a term in a message.
pub(crate) fn term_text(term: &Term) -> String {
    let mut out = String::new();
    write_term(&mut out, term);
    out
}

fn write_term(out: &mut String, term: &Term) {
    match term {
        Term::Literal(literal) => out.push_str(&literal_text(literal)),
        Term::BindMarker(_) => out.push('?'),
        Term::List(terms) => write_joined(out, ["[", "]"], terms),
        Term::Set(terms) => write_joined(out, ["{", "}"], terms),
        Term::Tuple(terms) => write_joined(out, ["(", ")"], terms),
        Term::Map(pairs) => {
            out.push('{');
            for (index, (key, value)) in pairs.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { ", " });
                write_term(out, key);
                out.push_str(": ");
                write_term(out, value);
            }
            out.push('}');
        }
        Term::UserType(fields) => {
            out.push('{');
            for (index, (name, value)) in fields.iter().enumerate() {
                let separator = if index == 0 { "" } else { ", " };
                let _ = write!(out, "{separator}{name}: ");
                write_term(out, value);
            }
            out.push('}');
        }
        Term::FunctionCall(call) => {
            let FunctionCall { name, arguments } = &**call;
            out.push_str(&function_name(name));
            write_joined(out, ["(", ")"], arguments);
        }
        Term::TypeCast { type_name, term } => {
            let _ = write!(out, "({})", type_text(type_name));
            write_term(out, term);
        }
        Term::Arithmetic { operator, left, right } => {
            write_operand(out, left);
            let _ = write!(out, " {} ", arithmetic(*operator).sign());
            write_operand(out, right);
        }
        Term::Negation(term) => {
            out.push('-');
            write_operand(out, term);
        }
    }
}

fn write_operand(out: &mut String, term: &Term) {
    let is_operation = matches!(term, Term::Arithmetic { .. });
    out.push_str(if is_operation { "(" } else { "" });
    write_term(out, term);
    out.push_str(if is_operation { ")" } else { "" });
}

fn write_joined(out: &mut String, [open, close]: [&str; 2], terms: &[Term]) {
    out.push_str(open);
    for (index, term) in terms.iter().enumerate() {
        out.push_str(if index == 0 { "" } else { ", " });
        write_term(out, term);
    }
    out.push_str(close);
}

/// The text of a constant in a message; strings keep the quotes around them, not those that were doubled inside.
pub(crate) fn literal_text(literal: &Literal) -> String {
    match literal.kind {
        LiteralKind::String => format!("'{}'", literal.text),
        LiteralKind::Null => "NULL".to_owned(),
        _ => literal.text.clone(),
    }
}

/// A function's name with its keyspace when it was written with one.
pub(crate) fn function_name(name: &QualifiedName) -> String {
    match &name.keyspace {
        Some(keyspace) => format!("{keyspace}.{}", name.name),
        None => name.name.clone(),
    }
}

/// A type as it was written, in canonical spelling.
pub(crate) fn type_text(name: &TypeName) -> String {
    type_text_in(name, None)
}

/// A type hint of a selector, as Cassandra shows it: user-defined types with their keyspace, tuples not said to be
/// frozen.
pub(crate) fn hint_text(name: &TypeName, keyspace: &str) -> String {
    type_text_in(name, Some(keyspace))
}

fn type_text_in(name: &TypeName, keyspace: Option<&str>) -> String {
    let text = |name: &TypeName| type_text_in(name, keyspace);
    match name {
        TypeName::Native(native) => native.to_string(),
        TypeName::List(element) => format!("list<{}>", text(element)),
        TypeName::Set(element) => format!("set<{}>", text(element)),
        TypeName::Map(key, value) => format!("map<{}, {}>", text(key), text(value)),
        TypeName::Tuple(elements) => format!("tuple<{}>", elements.iter().map(text).collect::<Vec<_>>().join(", ")),
        TypeName::Vector(element, dimension) => format!("vector<{}, {dimension}>", text(element)),
        TypeName::Frozen(inner) if keyspace.is_some() && matches!(**inner, TypeName::Tuple(_)) => text(inner),
        TypeName::Frozen(inner) => format!("frozen<{}>", text(inner)),
        TypeName::UserType(name) => match keyspace {
            Some(keyspace) if name.keyspace.is_none() => format!("{keyspace}.{}", name.name),
            _ => function_name(name),
        },
        TypeName::Custom(class) => format!("'{class}'"),
    }
}
