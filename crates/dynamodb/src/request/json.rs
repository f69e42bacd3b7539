//! The shapes of which the bodies of requests consist: strings, booleans, integers, lists, maps and structures, read in
//! one pass over the body, with the texts of the service for a JSON value of another type.
//!
//! `null` is read as if the member were absent, a member that the API does not have is skipped, and of a member that is
//! there twice the last one counts, as the service reads them. Each element of a list or map is a preemption point.

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use stdx::preempt;

use crate::error::Error;
use crate::legacy::{LegacyMap, LegacySeed};
use crate::value::json::{ItemSeed, Problem, Problems, ValueSeed};
use crate::value::{AttributeValue, Item};

/// The text for a JSON object where the shape has none.
const OBJECT_NOT_EXPECTED: &str = "Start of structure or map found where not expected";
/// The text for a scalar where the shape is a list, a map or a structure.
const UNEXPECTED_FIELD: &str = "Unexpected field type";

/// What reading a body has found beside the body.
#[derive(Default)]
pub(crate) struct Context {
    problems: Problems,
    failure: RefCell<Option<Error>>,
}

impl Context {
    /// Ends reading with a SerializationException.
    fn fail<E: de::Error>(&self, text: impl Into<String>) -> E {
        self.failure
            .borrow_mut()
            .get_or_insert_with(|| Error::serialization(text));
        E::custom("a value of another type")
    }

    /// The error that a client gets for one of serde.
    fn error(&self, error: &serde_json::Error) -> Error {
        let failure = self.failure.take();
        failure.unwrap_or_else(|| self.problems.serialization_error(error))
    }
}

/// Reads a body.
///
/// # Errors
/// A SerializationException for a body that is not JSON or has values of other types than the shape.
pub(crate) fn read<T: Shape>(body: &[u8]) -> Result<T, Error> {
    // UTF-8 is checked once for a short body, and string by string for a long one, between preemption points.
    let short = (body.len() <= preempt::STEP_BYTES).then(|| std::str::from_utf8(body));
    match short {
        Some(Ok(text)) => read_from(serde_json::Deserializer::from_str(text)),
        _ => read_from(serde_json::Deserializer::from_slice(body)),
    }
}

fn read_from<'de, T: Shape, R: serde_json::de::Read<'de>>(
    mut deserializer: serde_json::Deserializer<R>,
) -> Result<T, Error> {
    let context = Context::default();
    let shape = T::read(&mut deserializer, &context).map_err(|error| context.error(&error))?;
    deserializer.end().map_err(|error| context.error(&error))?;
    shape.ok_or_else(|| Error::serialization(UNEXPECTED_FIELD))
}

/// A type of JSON value, with what it makes of each kind of it. What a shape does not make anything of is refused.
pub(crate) trait Shape: Sized {
    /// The class of the service's language, for texts.
    const CLASS: &'static str;

    /// Reads a value; None for null.
    fn read<'de, D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Option<Self>, D::Error> {
        deserializer.deserialize_any(Reader(context, PhantomData))
    }

    /// The value of a JSON boolean.
    fn boolean(_: bool) -> Option<Self> {
        None
    }

    /// The value of a JSON number without a fraction.
    fn integer(_: i64) -> Option<Self> {
        None
    }

    /// The value of a JSON number with a fraction or of a large one.
    fn float(_: f64) -> Option<Self> {
        None
    }

    /// The value of a JSON string.
    fn text(_: &str) -> Option<Self> {
        None
    }

    /// The text for a scalar of a kind that the shape refuses.
    fn refusal(kind: &str) -> String {
        format!("{kind} cannot be converted to {}", Self::CLASS)
    }

    /// The value of a JSON array.
    fn list<'de, A: SeqAccess<'de>>(_: A, context: &Context) -> Result<Self, A::Error> {
        Err(context.fail(format!("Unrecognized collection type class java.lang.{}", Self::CLASS)))
    }

    /// The value of a JSON object.
    fn object<'de, A: MapAccess<'de>>(_: A, context: &Context) -> Result<Self, A::Error> {
        Err(context.fail(OBJECT_NOT_EXPECTED))
    }
}

struct Reader<'c, T>(&'c Context, PhantomData<T>);

impl<T: Shape> Reader<'_, T> {
    fn or_refuse<E: de::Error>(&self, value: Option<T>, kind: &str) -> Result<Option<T>, E> {
        match value {
            Some(value) => Ok(Some(value)),
            None => Err(self.0.fail(T::refusal(kind))),
        }
    }
}

impl<'de, T: Shape> Visitor<'de> for Reader<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(T::CLASS)
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Option<T>, E> {
        let kind = if value { "TRUE_VALUE" } else { "FALSE_VALUE" };
        self.or_refuse(T::boolean(value), kind)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Option<T>, E> {
        self.or_refuse(T::integer(value), "NUMBER_VALUE")
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Option<T>, E> {
        self.visit_i64(i64::try_from(value).unwrap_or(i64::MAX))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Option<T>, E> {
        self.or_refuse(T::float(value), "DECIMAL_VALUE")
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Option<T>, E> {
        self.or_refuse(T::text(value), "STRING_VALUE")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<Option<T>, A::Error> {
        T::list(elements, self.0).map(Some)
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Option<T>, A::Error> {
        T::object(entries, self.0).map(Some)
    }
}

/// Reads a value of a shape; None for null.
pub(crate) struct Seed<'c, T>(pub &'c Context, pub PhantomData<T>);

impl<'de, T: Shape> DeserializeSeed<'de> for Seed<'_, T> {
    type Value = Option<T>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer, self.0)
    }
}

/// A string.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Text(pub String);

impl Shape for Text {
    const CLASS: &'static str = "String";
    fn text(value: &str) -> Option<Self> {
        Some(Self(value.to_owned()))
    }
}

/// A boolean. The service reads the words in strings too, in any case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flag(pub bool);

impl Shape for Flag {
    const CLASS: &'static str = "Boolean";
    fn boolean(value: bool) -> Option<Self> {
        Some(Self(value))
    }
    fn text(value: &str) -> Option<Self> {
        let is = |word: &str| value.eq_ignore_ascii_case(word);
        match (is("true"), is("false")) {
            (true, _) => Some(Self(true)),
            (_, true) => Some(Self(false)),
            _ => None,
        }
    }
    fn refusal(kind: &str) -> String {
        match kind {
            "STRING_VALUE" => "Unexpected token received from parser".to_owned(),
            kind => format!("{kind} cannot be converted to Boolean"),
        }
    }
}

/// An integer of 64 bits; a fraction is cut off, and a number beyond the range becomes the nearest one, as the service
/// reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Long(pub i64);

impl Shape for Long {
    const CLASS: &'static str = "Long";
    fn integer(value: i64) -> Option<Self> {
        Some(Self(value))
    }
    fn float(value: f64) -> Option<Self> {
        Some(Self(value as i64))
    }
}

/// An integer of 32 bits, read as one of 64 is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Integer(pub i32);

impl Shape for Integer {
    const CLASS: &'static str = "Integer";
    fn integer(value: i64) -> Option<Self> {
        let bound = if value < 0 { i32::MIN } else { i32::MAX };
        Some(Self(i32::try_from(value).unwrap_or(bound)))
    }
    fn float(value: f64) -> Option<Self> {
        Some(Self(value as i32))
    }
}

/// A time: seconds since 1970, with a fraction.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(crate) struct Seconds(pub f64);

impl Shape for Seconds {
    const CLASS: &'static str = "Date";
    fn integer(value: i64) -> Option<Self> {
        Some(Self(value as f64))
    }
    fn float(value: f64) -> Option<Self> {
        Some(Self(value))
    }
}

/// A list. A `null` is left out.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct List<T>(pub Vec<T>);

impl<T: Shape> Shape for List<T> {
    const CLASS: &'static str = "List";
    fn refusal(_: &str) -> String {
        UNEXPECTED_FIELD.to_owned()
    }
    fn list<'de, A: SeqAccess<'de>>(mut elements: A, context: &Context) -> Result<Self, A::Error> {
        let mut list = Vec::new();
        while let Some(element) = elements.next_element_seed(Seed(context, PhantomData))? {
            if let Some(element) = element {
                preempt::push(&mut list, element);
            }
            preempt::point();
        }
        Ok(Self(list))
    }
}

/// A map, in the order of the body; entries with `null` are left out, and of a repeated key the last entry counts.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Map<T>(pub Vec<(String, T)>);

impl<T> Map<T> {
    /// Leaves the last entry of each key.
    fn without_repetitions(mut entries: Vec<(String, T)>) -> Self {
        let mut order: Vec<usize> = preempt::collect(0..entries.len());
        preempt::sort_by(&mut order, |one, other| entries[*one].0.cmp(&entries[*other].0));
        let mut keep = preempt::collect((0..entries.len()).map(|_| true));
        let mut repeated = false;
        for pair in order.windows(2) {
            if entries[pair[0]].0 == entries[pair[1]].0 {
                keep[pair[0]] = false;
                repeated = true;
            }
            preempt::point();
        }
        if repeated {
            let mut kept = keep.into_iter();
            entries.retain(|_| {
                preempt::point();
                kept.next().unwrap_or(true)
            });
        }
        Self(entries)
    }
}

impl<T: Shape> Shape for Map<T> {
    const CLASS: &'static str = "Map";
    fn refusal(_: &str) -> String {
        UNEXPECTED_FIELD.to_owned()
    }
    fn list<'de, A: SeqAccess<'de>>(_: A, context: &Context) -> Result<Self, A::Error> {
        Err(context.fail(format!(
            "Unrecognized collection type java.util.Map<java.lang.String, {}>",
            class_path(T::CLASS)
        )))
    }
    fn object<'de, A: MapAccess<'de>>(mut entries: A, context: &Context) -> Result<Self, A::Error> {
        let mut map = Vec::new();
        while let Some(key) = entries.next_key::<String>()? {
            if let Some(value) = entries.next_value_seed(Seed(context, PhantomData))? {
                preempt::push(&mut map, (key, value));
            }
            preempt::point();
        }
        Ok(Self::without_repetitions(map))
    }
}

/// A class with its package.
fn class_path(class: &str) -> String {
    match class {
        "String" | "Boolean" | "Long" | "Integer" => format!("java.lang.{class}"),
        "List" | "Map" => format!("java.util.{class}"),
        _ => format!("com.amazonaws.dynamodb.v20120810.{class}"),
    }
}

/// A map of attributes, with the first invalid value in it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Attributes {
    pub item: Item,
    pub problem: Option<Problem>,
}

impl Shape for Attributes {
    const CLASS: &'static str = "Map";
    fn read<'de, D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Option<Self>, D::Error> {
        let item = deserializer.deserialize_option(Optional(ItemSeed(&context.problems)))?;
        let problem = context.problems.take();
        Ok(item.map(|item| Self { item, problem }))
    }
}

/// A value, with what is wrong with it.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Value {
    pub value: AttributeValue,
    pub problem: Option<Problem>,
}

impl Shape for Value {
    const CLASS: &'static str = "AttributeValue";
    fn read<'de, D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Option<Self>, D::Error> {
        let value = deserializer.deserialize_option(Optional(ValueSeed(&context.problems)))?;
        let problem = context.problems.take();
        Ok(value.map(|value| Self { value, problem }))
    }
}

/// Reads what a seed reads, or null.
struct Optional<S>(S);

impl<'de, S: DeserializeSeed<'de>> Visitor<'de> for Optional<S> {
    type Value = Option<S::Value>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// Finds the name of a member in a list of names: a key is compared in place and never copied.
pub(crate) struct MemberOf(pub &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for MemberOf {
    type Value = Option<&'static str>;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for MemberOf {
    type Value = Option<&'static str>;
    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the name of a member")
    }
    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().copied().find(|member| *member == name))
    }
}

/// Skips the value of a member that the API does not have.
pub(crate) fn skip<'de, A: MapAccess<'de>>(entries: &mut A) -> Result<(), A::Error> {
    entries.next_value::<IgnoredAny>()?;
    preempt::point();
    Ok(())
}

/// The refusal of an array where a structure is expected.
pub(crate) fn refuse_list<E: de::Error>(context: &Context, class: &str) -> E {
    context.fail(format!("Unrecognized collection type class {}", class_path(class)))
}

/// The refusal of a scalar where a structure is expected.
pub(crate) fn refuse_scalar() -> String {
    UNEXPECTED_FIELD.to_owned()
}

/// Declares a structure whose members are all optional, and how it is read from JSON. The literal after a member is its
/// name in the API.
macro_rules! structure {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty = $key:literal,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, PartialEq, Debug, Default)]
        $visibility struct $name {
            $($(#[$field_meta])* pub(crate) $field: Option<$type>,)*
        }

        impl $crate::request::json::Shape for $name {
            const CLASS: &'static str = stringify!($name);

            fn refusal(_: &str) -> String {
                $crate::request::json::refuse_scalar()
            }

            fn list<'de, A: serde::de::SeqAccess<'de>>(
                _: A,
                context: &$crate::request::json::Context,
            ) -> Result<Self, A::Error> {
                Err($crate::request::json::refuse_list(context, Self::CLASS))
            }

            fn object<'de, A: serde::de::MapAccess<'de>>(
                mut entries: A,
                context: &$crate::request::json::Context,
            ) -> Result<Self, A::Error> {
                use $crate::request::json::{MemberOf, Seed, skip};
                let mut structure = Self::default();
                while let Some(member) = entries.next_key_seed(MemberOf(&[$($key,)*]))? {
                    match member {
                        $(Some($key) => {
                            let seed = Seed::<$type>(context, std::marker::PhantomData);
                            structure.$field = entries.next_value_seed(seed)?;
                        })*
                        _ => skip(&mut entries)?,
                    }
                }
                Ok(structure)
            }
        }
    };
}
pub(crate) use structure;

/// A legacy map (Expected, AttributeUpdates, KeyConditions, QueryFilter, ScanFilter), with the first invalid value.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct LegacyParameter {
    pub map: LegacyMap,
    pub problem: Option<Problem>,
}

impl Shape for LegacyParameter {
    const CLASS: &'static str = "Map";
    fn read<'de, D: Deserializer<'de>>(deserializer: D, context: &Context) -> Result<Option<Self>, D::Error> {
        let map = deserializer.deserialize_option(Optional(LegacySeed(&context.problems)))?;
        let problem = context.problems.take();
        Ok(map.map(|map| Self { map, problem }))
    }
}
