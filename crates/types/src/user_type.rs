//! What ALTER, DROP and CREATE TYPE ask of types: which user-defined types are in one, and the same type with another
//! definition of one of them.
//!
//! A type holds the definitions of the user-defined types in it by value. An altered definition therefore comes into a
//! column's type by [`CqlType::with_user_type`].

use std::sync::Arc;

use crate::cql_type::{CqlType, UdtType};

impl UdtType {
    /// The place of a field.
    #[must_use]
    pub fn position(&self, field: &str) -> Option<usize> {
        self.fields.iter().position(|(name, _)| name == field)
    }

    /// True for the same keyspace and name, whatever the fields are.
    #[must_use]
    pub fn is_named_as(&self, other: &Self) -> bool {
        self.keyspace == other.keyspace && self.name == other.name
    }
}

impl CqlType {
    /// The types directly inside this one.
    #[must_use]
    pub fn inner(&self) -> Vec<&Self> {
        match self {
            Self::List(inner) | Self::Set(inner) | Self::Vector(inner, _) | Self::Frozen(inner) => vec![inner],
            Self::Map(key, value) => vec![key, value],
            Self::Tuple(elements) => elements.iter().collect(),
            Self::Udt(udt) => udt.fields.iter().map(|(_, field)| field).collect(),
            _ => Vec::new(),
        }
    }

    /// The user-defined types in this one at any depth, each before those inside it.
    #[must_use]
    pub fn user_types(&self) -> Vec<&Arc<UdtType>> {
        let mut found = Vec::new();
        self.push_user_types(&mut found);
        found
    }

    fn push_user_types<'t>(&'t self, found: &mut Vec<&'t Arc<UdtType>>) {
        if let Self::Udt(udt) = self {
            found.push(udt);
        }
        for inner in self.inner() {
            inner.push_user_types(found);
        }
    }

    /// Whether a duration is in the type at any depth: such values have no order.
    #[must_use]
    pub fn has_duration(&self) -> bool {
        *self == Self::Duration || self.inner().into_iter().any(Self::has_duration)
    }

    /// True when the user-defined type of that keyspace and name is in this one, or is it.
    #[must_use]
    pub fn has_user_type(&self, keyspace: &str, name: &str) -> bool {
        let mut found = self.user_types().into_iter();
        found.any(|udt| udt.keyspace == keyspace && udt.name == name)
    }

    /// Replaces each user-defined type of `new`'s name with `new`.
    #[must_use]
    pub fn with_user_type(&self, new: &Arc<UdtType>) -> Self {
        self.map_user_types(&|udt| {
            if udt.is_named_as(new) {
                Self::Udt(Arc::clone(new))
            } else {
                Self::Udt(Arc::clone(udt))
            }
        })
    }

    /// Replaces each user-defined type with that of the same name and fields in another keyspace.
    #[must_use]
    pub fn in_keyspace(&self, keyspace: &str) -> Self {
        self.map_user_types(&|udt| {
            Self::Udt(Arc::new(UdtType {
                keyspace: keyspace.to_owned(),
                name: udt.name.clone(),
                fields: udt.fields.clone(),
            }))
        })
    }

    /// Replaces each user-defined type with a tuple, which has the same bytes.
    #[must_use]
    pub fn without_user_types(&self) -> Self {
        self.map_user_types(&|udt| Self::Tuple(udt.fields.iter().map(|(_, field)| field.frozen()).collect()))
            .canonical()
    }

    /// Puts every user-defined type, its fields first, through `map`.
    fn map_user_types(&self, map: &impl Fn(&Arc<UdtType>) -> Self) -> Self {
        let inside = |inner: &Arc<Self>| Arc::new(inner.map_user_types(map));
        match self {
            Self::List(element) => Self::List(inside(element)),
            Self::Set(element) => Self::Set(inside(element)),
            Self::Map(key, value) => Self::Map(inside(key), inside(value)),
            Self::Vector(element, dimension) => Self::Vector(inside(element), *dimension),
            Self::Frozen(inner) => Self::Frozen(inside(inner)),
            Self::Tuple(elements) => Self::Tuple(elements.iter().map(|element| element.map_user_types(map)).collect()),
            Self::Udt(udt) => {
                let mapped = udt
                    .fields
                    .iter()
                    .map(|(name, field)| (name.clone(), field.map_user_types(map)));
                let fields: Vec<_> = mapped.collect();
                map(&if fields == udt.fields {
                    Arc::clone(udt)
                } else {
                    Arc::new(UdtType {
                        keyspace: udt.keyspace.clone(),
                        name: udt.name.clone(),
                        fields,
                    })
                })
            }
            other => other.clone(),
        }
    }

    /// How many types there are in this one, itself included.
    #[must_use]
    pub fn parts(&self) -> usize {
        self.inner().into_iter().map(Self::parts).fold(1, usize::saturating_add)
    }

    /// How deep types are nested in this one; a type without others inside has depth 1.
    #[must_use]
    pub fn depth(&self) -> usize {
        let inner = self.inner().into_iter().map(Self::depth).max();
        inner.unwrap_or(0) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn udt(name: &str, fields: &[(&str, CqlType)]) -> Arc<UdtType> {
        Arc::new(UdtType {
            keyspace: "ks".to_owned(),
            name: name.to_owned(),
            fields: fields.iter().map(|(name, t)| ((*name).to_owned(), t.clone())).collect(),
        })
    }

    fn parse(text: &str, known: &[&Arc<UdtType>]) -> CqlType {
        let find = |_: Option<&str>, name: &str| known.iter().find(|udt| udt.name == name).map(|udt| Arc::clone(udt));
        CqlType::parse(text, &find).expect("the test's types are known")
    }

    #[test]
    fn an_altered_type_is_new_wherever_it_stands() {
        let point = udt("point", &[("x", CqlType::Int)]);
        let line = udt("line", &[("a", CqlType::Frozen(Arc::new(CqlType::Udt(point.clone()))))]);
        let wider = udt("point", &[("x", CqlType::Int), ("y", CqlType::Int)]);
        let new_line = udt("line", &[("a", CqlType::Frozen(Arc::new(CqlType::Udt(wider.clone()))))]);
        for text in [
            "point",
            "frozen<point>",
            "line",
            "list<frozen<point>>",
            "set<frozen<line>>",
            "map<frozen<point>, frozen<line>>",
            "tuple<int, frozen<map<int, frozen<line>>>>",
            "vector<frozen<point>, 3>",
            "list<int>",
        ] {
            let old = parse(text, &[&point, &line]);
            assert_eq!(old.with_user_type(&wider), parse(text, &[&wider, &new_line]), "{text}");
            assert_eq!(
                old.has_user_type("ks", "point"),
                text.contains("point") || text.contains("line"),
                "{text}"
            );
            assert!(!old.has_user_type("other", "point"), "{text}");
        }
    }

    #[test]
    fn a_type_without_user_types_has_their_bytes_as_tuples() {
        let point = udt(
            "point",
            &[("x", CqlType::Int), ("tags", CqlType::Set(Arc::new(CqlType::Text)))],
        );
        for (text, expected) in [
            ("frozen<point>", "frozen<tuple<int, frozen<set<text>>>>"),
            ("list<frozen<point>>", "list<frozen<tuple<int, frozen<set<text>>>>>"),
            ("map<int, text>", "map<int, text>"),
        ] {
            let without = parse(text, &[&point]).without_user_types();
            assert_eq!(without.to_string(), expected);
            assert!(without.user_types().is_empty());
        }
    }

    #[test]
    fn depth_and_parts_count_constructors() {
        let point = udt("point", &[("x", CqlType::Int)]);
        for (text, depth, parts) in [
            ("int", 1, 1),
            ("list<int>", 2, 2),
            ("point", 2, 2),
            ("frozen<point>", 3, 3),
            ("map<int, frozen<point>>", 4, 5),
        ] {
            let parsed = parse(text, &[&point]);
            assert_eq!((parsed.depth(), parsed.parts()), (depth, parts), "{text}");
        }
    }
}
