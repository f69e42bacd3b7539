//! User-defined functions and aggregates.
//!
//! Functions of one name are distinguished by the types of their arguments, and so are aggregates. A collection or
//! user-defined type that is an argument or a result is written without `frozen`, as in Cassandra, and is one value all
//! the same.

use std::fmt;

use types::{CqlType, quote_identifier};

/// What the source of a function is written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Language {
    /// Lua 5.4.
    Lua,
    /// WebAssembly, as text.
    Wasm,
}

impl Language {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Lua, Self::Wasm];

    /// The word after `LANGUAGE`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lua => "lua",
            Self::Wasm => "wasm",
        }
    }

    /// The language of that name.
    #[must_use]
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|language| language.name() == name)
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A function of one row's values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserFunction {
    /// Its keyspace.
    pub keyspace: String,
    /// Its name, without quotes.
    pub name: String,
    /// Names, without quotes, and types of its arguments.
    pub arguments: Vec<(String, CqlType)>,
    /// The type of its result.
    pub returns: CqlType,
    /// Whether it is called when an argument is null. If not, the result is null then.
    pub called_on_null: bool,
    /// What its source is written in.
    pub language: Language,
    /// The source.
    pub body: String,
}

/// A function of the values of many rows: `state = state_function(state, arguments)` for each row, then
/// `final_function(state)`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UserAggregate {
    /// Its keyspace, which is that of its functions.
    pub keyspace: String,
    /// Its name, without quotes.
    pub name: String,
    /// The types of its arguments.
    pub arguments: Vec<CqlType>,
    /// The name of the function that takes a row.
    pub state_function: String,
    /// The type of the state.
    pub state_type: CqlType,
    /// The name of the function that joins two states, if there is one.
    pub reduce_function: Option<String>,
    /// The name of the function that makes the result of the last state. Without one the state is the result.
    pub final_function: Option<String>,
    /// The type of the result.
    pub returns: CqlType,
    /// The state before the first row, serialised; None is null.
    pub initial_state: Option<Vec<u8>>,
}

impl UserFunction {
    /// What identifies it among all functions of its keyspace: `name(type, type)`.
    #[must_use]
    pub fn signature(&self) -> String {
        signature(&self.name, self.arguments.iter().map(|(_, cql_type)| cql_type))
    }

    /// The signature with the types as the declaration has them: what DESCRIBE shows.
    #[must_use]
    pub fn declared_signature(&self) -> String {
        declared_signature(&self.name, self.arguments.iter().map(|(_, cql_type)| cql_type))
    }

    /// Whether it takes values of these types.
    #[must_use]
    pub fn takes(&self, types: &[&CqlType]) -> bool {
        is_same(self.arguments.iter().map(|(_, cql_type)| cql_type), types)
    }

    /// Whether an argument or the result is of the type of that name in its keyspace, or has it inside.
    #[must_use]
    pub fn uses_type(&self, name: &str) -> bool {
        let arguments = self.arguments.iter().map(|(_, cql_type)| cql_type);
        arguments
            .chain([&self.returns])
            .any(|t| t.has_user_type(&self.keyspace, name))
    }

    /// A copy of the function in which `new` replaces the user-defined type of its name.
    #[must_use]
    pub fn with_user_type(&self, new: &std::sync::Arc<types::UdtType>) -> Self {
        let mut altered = self.clone();
        for (_, cql_type) in &mut altered.arguments {
            *cql_type = cql_type.with_user_type(new);
        }
        altered.returns = altered.returns.with_user_type(new);
        altered
    }
}

impl UserAggregate {
    /// What identifies it among all aggregates of its keyspace: `name(type, type)`.
    #[must_use]
    pub fn signature(&self) -> String {
        signature(&self.name, self.arguments.iter())
    }

    /// The signature with the types as the declaration has them: what DESCRIBE shows.
    #[must_use]
    pub fn declared_signature(&self) -> String {
        declared_signature(&self.name, self.arguments.iter())
    }

    /// The types that its state function takes.
    #[must_use]
    pub fn state_arguments(&self) -> Vec<&CqlType> {
        std::iter::once(&self.state_type).chain(&self.arguments).collect()
    }

    /// Whether an argument, the state or the result is of the type of that name in its keyspace, or has it inside.
    #[must_use]
    pub fn uses_type(&self, name: &str) -> bool {
        let own = [&self.state_type, &self.returns];
        let mut all = self.arguments.iter().chain(own);
        all.any(|t| t.has_user_type(&self.keyspace, name))
    }

    /// A copy of the aggregate in which `new` replaces the user-defined type of its name. The initial state stays as it
    /// is: its missing fields are null.
    #[must_use]
    pub fn with_user_type(&self, new: &std::sync::Arc<types::UdtType>) -> Self {
        let mut altered = self.clone();
        let own = [&mut altered.state_type, &mut altered.returns];
        for cql_type in altered.arguments.iter_mut().chain(own) {
            *cql_type = cql_type.with_user_type(new);
        }
        altered
    }

    /// Whether it calls that function.
    #[must_use]
    pub fn calls(&self, function: &UserFunction) -> bool {
        let state = &self.state_type;
        let is = |name: &str, types: &[&CqlType]| function.name == name && function.takes(types);
        is(&self.state_function, &self.state_arguments())
            || self.final_function.as_ref().is_some_and(|name| is(name, &[state]))
            || self
                .reduce_function
                .as_ref()
                .is_some_and(|name| is(name, &[state, state]))
    }
}

/// `name(type, type)`; the name is quoted if it must be.
#[must_use]
pub fn signature<'t>(name: &str, types: impl Iterator<Item = &'t CqlType>) -> String {
    named(name, types.map(|t| t.unfrozen().to_string()))
}

fn named(name: &str, types: impl Iterator<Item = String>) -> String {
    format!("{}({})", quote_identifier(name), types.collect::<Vec<_>>().join(", "))
}

/// A type as the declaration of a function writes it: without `frozen`, which a declaration may not say. Values of
/// functions are always frozen.
pub fn declared_type(cql_type: &CqlType) -> String {
    let text = cql_type.unfrozen().to_string();
    let inner = text.strip_prefix("frozen<").and_then(|text| text.strip_suffix('>'));
    inner.map_or_else(|| text.clone(), str::to_owned)
}

fn declared_signature<'t>(name: &str, types: impl Iterator<Item = &'t CqlType>) -> String {
    named(name, types.map(declared_type))
}

fn is_same<'t>(own: impl ExactSizeIterator<Item = &'t CqlType>, types: &[&CqlType]) -> bool {
    own.len() == types.len() && own.zip(types).all(|(a, b)| a.unfrozen() == b.unfrozen())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_signature_tells_namesakes_apart_and_frozen_makes_no_difference() {
        let list = CqlType::List(Arc::new(CqlType::Int));
        assert_eq!(signature("f", [].iter()), "f()");
        assert_eq!(
            signature("F f", [CqlType::Int, list.frozen()].iter()),
            "\"F f\"(int, list<int>)"
        );
        let function = UserFunction {
            keyspace: "k".to_owned(),
            name: "f".to_owned(),
            arguments: vec![("a".to_owned(), list.clone())],
            returns: CqlType::Int,
            called_on_null: false,
            language: Language::Lua,
            body: String::new(),
        };
        assert!(function.takes(&[&list.frozen()]));
        assert!(!function.takes(&[&CqlType::Int]) && !function.takes(&[]) && !function.takes(&[&list, &list]));
        assert_eq!(Language::of_name("wasm"), Some(Language::Wasm));
        assert_eq!(Language::of_name("java"), None);
    }

    /// As in Cassandra: what DESCRIBE shows is accepted as a statement, and no statement may say that an argument is
    /// frozen.
    #[test]
    fn a_declaration_has_tuples_as_they_are_written() {
        let tuple = CqlType::Tuple(vec![CqlType::Int, CqlType::Text].into());
        let list = CqlType::List(Arc::new(tuple.clone()));
        let function = UserFunction {
            keyspace: "k".to_owned(),
            name: "f".to_owned(),
            arguments: vec![("t".to_owned(), tuple.clone()), ("l".to_owned(), list)],
            returns: tuple,
            called_on_null: false,
            language: Language::Lua,
            body: "return t --$".to_owned(),
        };
        assert_eq!(
            function.declared_signature(),
            "f(tuple<int, text>, list<frozen<tuple<int, text>>>)"
        );
        let described = crate::describe_function(&function);
        for part in [
            "f(t tuple<int, text>, l list<frozen<tuple<int, text>>>)",
            "RETURNS tuple<int, text>\n",
            "AS 'return t --$';",
        ] {
            assert!(described.contains(part), "{part}: {described}");
        }
    }
}
