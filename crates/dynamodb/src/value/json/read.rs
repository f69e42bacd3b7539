//! The visitors of [`ItemSeed`] and [`ValueSeed`].
//!
//! Texts of SerializationExceptions are those that the service answers to wrong types of JSON; clients see them only
//! if they build requests by hand.

use std::fmt;
use std::marker::PhantomData;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use stdx::preempt;

use super::{ItemSeed, Problems, Skip, ValueSeed};
use crate::Error;
use crate::error::clip;
use crate::value::number::NumberError;
use crate::value::{AttributeValue, Item, NESTING_MAX, Number, Set, ValueType};

const EMPTY: &str = "Supplied AttributeValue is empty, must contain exactly one of the supported datatypes";
const SEVERAL: &str =
    "Supplied AttributeValue has more than one datatypes set, must contain exactly one of the supported datatypes";
const TOO_DEEP: &str =
    "Nesting Levels have exceeded supported limits: Attributes in the item have nested levels beyond supported limit";
const INVALID: &str = "One or more parameter values were invalid: ";
const STRUCTURE: &str = "Start of structure or map found where not expected.";
const VALUE_CLASS: &str = "class com.amazonaws.dynamodb.v20120810.AttributeValue";

impl<'de> DeserializeSeed<'de> for ItemSeed<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        let map = Attributes {
            problems: self.0,
            depth: 0,
        };
        map.deserialize(deserializer)
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = AttributeValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AttributeValue, D::Error> {
        let value = Value {
            problems: self.0,
            depth: 0,
        };
        deserializer.deserialize_any(value)
    }
}

/// What a visitor reports of JSON of another type than it takes.
trait Typed<'p>: Sized {
    fn problems(&self) -> &'p Problems;
    /// Where texts or numbers are found and something else is expected.
    const SCALAR: &'static str;
    /// Where an array is found.
    const ARRAY: &'static str;
}

/// The methods by which a visitor refuses JSON of other types.
macro_rules! refuse {
    (bool) => {
        fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
            let name = if value { "TRUE_VALUE" } else { "FALSE_VALUE" };
            Err(self
                .problems()
                .fail(Error::serialization(Self::SCALAR.replace('%', name))))
        }
    };
    (number) => {
        fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<Self::Value, E> {
            Err(self
                .problems()
                .fail(Error::serialization(Self::SCALAR.replace('%', "NUMBER_VALUE"))))
        }
        fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<Self::Value, E> {
            self.visit_i64(0)
        }
        fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<Self::Value, E> {
            self.visit_i64(0)
        }
    };
    (str) => {
        fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<Self::Value, E> {
            Err(self
                .problems()
                .fail(Error::serialization(Self::SCALAR.replace('%', "STRING_VALUE"))))
        }
    };
    (array) => {
        fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(self.problems().fail(Error::serialization(Self::ARRAY)))
        }
    };
    (map) => {
        fn visit_map<A: MapAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
            Err(self.problems().fail(Error::serialization(STRUCTURE)))
        }
    };
}

/// A map of attributes: an item at depth 0, the value of M below.
struct Attributes<'p> {
    problems: &'p Problems,
    depth: usize,
}

impl<'p> Typed<'p> for Attributes<'p> {
    fn problems(&self) -> &'p Problems {
        self.problems
    }
    const SCALAR: &'static str = "Unexpected field type";
    const ARRAY: &'static str = "Unrecognized collection type java.util.Map<java.lang.String, \
                                 com.amazonaws.dynamodb.v20120810.AttributeValue>";
}

impl<'de> DeserializeSeed<'de> for Attributes<'_> {
    type Value = Item;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Attributes<'_> {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of attributes")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Item, A::Error> {
        let mut item = Item::new();
        while let Some(name) = map.next_key::<String>()? {
            preempt::point();
            let value = Value {
                problems: self.problems,
                depth: self.depth,
            };
            let value = map.next_value_seed(value)?;
            if self.depth == 0 {
                self.problems.note_attribute(&name);
            }
            if name.is_empty() {
                self.problems.note(Error::validation("Empty attribute name"), true);
            }
            item.insert(name, value);
        }
        Ok(item)
    }

    refuse!(bool);
    refuse!(number);
    refuse!(str);
    refuse!(array);
}

/// One value: a map with one type.
struct Value<'p> {
    problems: &'p Problems,
    depth: usize,
}

impl<'p> Typed<'p> for Value<'p> {
    fn problems(&self) -> &'p Problems {
        self.problems
    }
    const SCALAR: &'static str = "Unexpected value type in payload";
    const ARRAY: &'static str = "Unrecognized collection type class com.amazonaws.dynamodb.v20120810.AttributeValue";
}

impl<'de> DeserializeSeed<'de> for Value<'_> {
    type Value = AttributeValue;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<AttributeValue, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Value<'_> {
    /// The value of a type, `None` for null, which counts as if it were not there.
    fn content<'de, A: MapAccess<'de>>(
        &self,
        kind: ValueType,
        map: &mut A,
    ) -> Result<Option<AttributeValue>, A::Error> {
        let problems = self.problems;
        let null = |value: Option<AttributeValue>| value.unwrap_or(AttributeValue::Null);
        Ok(match kind {
            ValueType::L | ValueType::M if self.depth >= NESTING_MAX => {
                problems.note(Error::validation(TOO_DEEP), true);
                map.next_value_seed(Skip)?;
                Some(AttributeValue::Null)
            }
            ValueType::S => map
                .next_value_seed(Text::<String>::new(problems))?
                .map(AttributeValue::S),
            ValueType::N => {
                let number = map.next_value_seed(Text::<Numeral>::new(problems))?;
                number.map(|number| AttributeValue::N(number.0))
            }
            ValueType::B => {
                let bytes = map.next_value_seed(Text::<Blob>::new(problems))?;
                bytes.map(|bytes| AttributeValue::B(bytes.0))
            }
            ValueType::Bool => map.next_value_seed(Flag(problems))?.map(AttributeValue::Bool),
            ValueType::Null => map.next_value_seed(Flag(problems))?.map(|is_null| {
                if !is_null {
                    let text = "Null attribute value types must have the value of true";
                    problems.note(Error::validation([INVALID, text].concat()), true);
                }
                AttributeValue::Null
            }),
            ValueType::L => {
                let list = List {
                    problems,
                    depth: self.depth + 1,
                };
                map.next_value_seed(Optional(list))?.map(AttributeValue::L)
            }
            ValueType::M => {
                let attributes = Attributes {
                    problems,
                    depth: self.depth + 1,
                };
                map.next_value_seed(Optional(attributes))?.map(AttributeValue::M)
            }
            ValueType::Ss => {
                let elements = map.next_value_seed(Optional(Elements::<String>::new(problems)))?;
                elements.map(|elements| null(set_of_strings(elements, problems)))
            }
            ValueType::Ns => {
                let elements = map.next_value_seed(Optional(Elements::<Numeral>::new(problems)))?;
                elements.map(|elements| null(set_of_numbers(elements, problems)))
            }
            ValueType::Bs => {
                let elements = map.next_value_seed(Optional(Elements::<Blob>::new(problems)))?;
                elements.map(|elements| null(set_of_binaries(elements, problems)))
            }
        })
    }
}

impl<'de> Visitor<'de> for Value<'_> {
    type Value = AttributeValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an attribute value")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<AttributeValue, A::Error> {
        preempt::point();
        let mut found = None;
        let mut found_type = None;
        while let Some(kind) = map.next_key_seed(TypeName)? {
            preempt::point();
            let Some(kind) = kind else {
                map.next_value_seed(Skip)?;
                continue;
            };
            let Some(value) = self.content(kind, &mut map)? else {
                continue;
            };
            if found_type.is_some_and(|before| before != kind) {
                self.problems.note(Error::validation(SEVERAL), false);
            }
            found_type = Some(kind);
            found = Some(value);
        }
        Ok(found.unwrap_or_else(|| {
            self.problems.note(Error::validation(EMPTY), false);
            AttributeValue::Null
        }))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<AttributeValue, E> {
        self.problems.note(Error::validation(EMPTY), false);
        Ok(AttributeValue::Null)
    }

    refuse!(bool);
    refuse!(number);
    refuse!(str);
    refuse!(array);
}

impl<'de> DeserializeSeed<'de> for Skip {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skip {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_bool<E: serde::de::Error>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E: serde::de::Error>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E: serde::de::Error>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E: serde::de::Error>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: serde::de::Error>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        while elements.next_element_seed(self)?.is_some() {
            preempt::point();
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            preempt::point();
            map.next_value_seed(self)?;
        }
        Ok(())
    }
}

/// The name of a type; `None` for a member that the API does not have, which is ignored.
struct TypeName;

impl<'de> DeserializeSeed<'de> for TypeName {
    type Value = Option<ValueType>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl<'de> Visitor<'de> for TypeName {
    type Value = Option<ValueType>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a type")
    }

    fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Self::Value, E> {
        Ok(ValueType::from_name(name))
    }
}

/// Null as `None`, anything else by the visitor inside.
struct Optional<V>(V);

impl<'de, V: DeserializeSeed<'de>> DeserializeSeed<'de> for Optional<V> {
    type Value = Option<V::Value>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de, V: DeserializeSeed<'de>> Visitor<'de> for Optional<V> {
    type Value = Option<V::Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or null")
    }

    fn visit_none<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        self.0.deserialize(deserializer).map(Some)
    }
}

/// The elements of L.
struct List<'p> {
    problems: &'p Problems,
    depth: usize,
}

impl<'p> Typed<'p> for List<'p> {
    fn problems(&self) -> &'p Problems {
        self.problems
    }
    const SCALAR: &'static str = "Unexpected field type";
    const ARRAY: &'static str = VALUE_CLASS;
}

impl<'de> DeserializeSeed<'de> for List<'_> {
    type Value = Vec<AttributeValue>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for List<'_> {
    type Value = Vec<AttributeValue>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of attribute values")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        let value = || Value {
            problems: self.problems,
            depth: self.depth,
        };
        while let Some(element) = elements.next_element_seed(value())? {
            preempt::push(&mut list, element);
        }
        Ok(list)
    }

    refuse!(bool);
    refuse!(number);
    refuse!(str);
    refuse!(map);
}

/// The elements of a set.
struct Elements<'p, T> {
    problems: &'p Problems,
    of: PhantomData<T>,
}

impl<'p, T> Elements<'p, T> {
    fn new(problems: &'p Problems) -> Self {
        let of = PhantomData;
        Self { problems, of }
    }
}

impl<'p, T> Typed<'p> for Elements<'p, T> {
    fn problems(&self) -> &'p Problems {
        self.problems
    }
    const SCALAR: &'static str = "Unexpected field type";
    const ARRAY: &'static str = "";
}

impl<'de, T: FromText> DeserializeSeed<'de> for Elements<'_, T> {
    type Value = Vec<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FromText> Visitor<'de> for Elements<'_, T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the elements of a set")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Self::Value, A::Error> {
        let mut all = Vec::new();
        while let Some(element) = elements.next_element_seed(Text::<T>::new(self.problems))? {
            preempt::point();
            let Some(element) = element else {
                let text = "An string set may not have a null string as a member";
                self.problems.note(Error::validation([INVALID, text].concat()), true);
                continue;
            };
            preempt::push(&mut all, element);
        }
        Ok(all)
    }

    refuse!(bool);
    refuse!(number);
    refuse!(str);
    refuse!(map);
}

/// A boolean, or one as a text, which the service takes too: any text but `true` is false.
struct Flag<'p>(&'p Problems);

impl<'p> Typed<'p> for Flag<'p> {
    fn problems(&self) -> &'p Problems {
        self.0
    }
    const SCALAR: &'static str = "% cannot be converted to Boolean";
    const ARRAY: &'static str = "Unrecognized collection type class java.lang.Boolean";
}

impl<'de> DeserializeSeed<'de> for Flag<'_> {
    type Value = Option<bool>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Flag<'_> {
    type Value = Option<bool>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a boolean")
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Some(value))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Some(text.eq_ignore_ascii_case("true")))
    }

    refuse!(number);
    refuse!(array);
    refuse!(map);
}

/// What a text in JSON is read as.
trait FromText: Sized {
    /// The value; NULL's stand-in with a note if it is invalid, an error if it ends reading.
    fn from_text(text: &str, problems: &Problems) -> Result<Self, Error>;

    /// As [`FromText::from_text`], of an owned text.
    fn from_string(text: String, problems: &Problems) -> Result<Self, Error> {
        Self::from_text(&text, problems)
    }
}

struct Numeral(Number);
struct Blob(Vec<u8>);

impl FromText for String {
    fn from_text(text: &str, _: &Problems) -> Result<Self, Error> {
        if text.len() <= preempt::STEP_BYTES {
            return Ok(text.to_owned());
        }
        let mut copy = Self::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(rest.floor_char_boundary(preempt::STEP_BYTES));
            copy.push_str(piece);
            preempt::long_step();
            rest = after;
        }
        Ok(copy)
    }

    fn from_string(text: String, _: &Problems) -> Result<Self, Error> {
        Ok(text)
    }
}

impl FromText for Numeral {
    fn from_text(text: &str, problems: &Problems) -> Result<Self, Error> {
        let number = Number::parse(text).unwrap_or_else(|e: NumberError| {
            problems.note(Error::validation(e.message(text)), true);
            Number::ZERO
        });
        Ok(Self(number))
    }
}

impl FromText for Blob {
    fn from_text(text: &str, _: &Problems) -> Result<Self, Error> {
        decode_base64(text).map(Self)
    }
}

/// A text of JSON as a string, number or binary.
struct Text<'p, T> {
    problems: &'p Problems,
    of: PhantomData<T>,
}

impl<'p, T> Text<'p, T> {
    fn new(problems: &'p Problems) -> Self {
        let of = PhantomData;
        Self { problems, of }
    }
}

impl<'p, T> Typed<'p> for Text<'p, T> {
    fn problems(&self) -> &'p Problems {
        self.problems
    }
    const SCALAR: &'static str = "% cannot be converted to String";
    const ARRAY: &'static str = "Unrecognized collection type class java.lang.String";
}

impl<'de, T: FromText> DeserializeSeed<'de> for Text<'_, T> {
    type Value = Option<T>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FromText> Visitor<'de> for Text<'_, T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
        T::from_text(text, self.problems)
            .map(Some)
            .map_err(|e| self.problems.fail(e))
    }

    fn visit_string<E: serde::de::Error>(self, text: String) -> Result<Self::Value, E> {
        T::from_string(text, self.problems)
            .map(Some)
            .map_err(|e| self.problems.fail(e))
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    refuse!(bool);
    refuse!(number);
    refuse!(array);
    refuse!(map);
}

/// Decodes base64 of the standard alphabet with padding.
fn decode_base64(text: &str) -> Result<Vec<u8>, Error> {
    /// A multiple of four characters.
    const PIECE: usize = 32 << 10;
    /// Characters of the text that an error repeats.
    const SHOWN_MAX: usize = 256;
    let refuse = |reason: &str| {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        Error::serialization(format!("\"{shown}\" can not be converted to a Blob: {reason}"))
    };
    if !text.len().is_multiple_of(4) {
        let len = text.len();
        let reason = format!("Base64 encoded length is expected a multiple of 4 bytes but found: {len}");
        return Err(refuse(&reason));
    }
    let mut bytes = Vec::new();
    preempt::reserve(&mut bytes, text.len() / 4 * 3);
    let mut pieces = text.as_bytes().chunks(PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let is_last = pieces.peek().is_none();
        if !is_last && piece.ends_with(b"=") {
            return Err(refuse("Invalid Base64 character: '='"));
        }
        let decoded = STANDARD.decode_vec(piece, &mut bytes);
        decoded.map_err(|e| match e {
            base64::DecodeError::InvalidByte(_, byte) => {
                refuse(&format!("Invalid Base64 character: '{}'", char::from(byte)))
            }
            _ => refuse("Invalid last non-pad Base64 character dectected"),
        })?;
        if !is_last {
            preempt::long_step();
        }
    }
    Ok(bytes)
}

fn invalid_set(problems: &Problems, text: &str) -> Option<AttributeValue> {
    problems.note(Error::validation([INVALID, text].concat()), true);
    None
}

fn set_of_strings(elements: Vec<String>, problems: &Problems) -> Option<AttributeValue> {
    if elements.is_empty() {
        return invalid_set(problems, "An string set  may not be empty");
    }
    match Set::new(elements) {
        Ok(set) => Some(AttributeValue::Ss(set)),
        Err(elements) => {
            let list = listed(elements.iter().map(String::as_str));
            invalid_set(problems, &format!("Input collection [{list}] contains duplicates."))
        }
    }
}

fn set_of_numbers(elements: Vec<Numeral>, problems: &Problems) -> Option<AttributeValue> {
    if elements.is_empty() {
        return invalid_set(problems, "An number set  may not be empty");
    }
    let numbers = preempt::collect(elements.into_iter().map(|number| number.0));
    match Set::new(numbers) {
        Ok(set) => Some(AttributeValue::Ns(set)),
        Err(_) => {
            problems.note(Error::validation("Input collection contains duplicates"), true);
            None
        }
    }
}

fn set_of_binaries(elements: Vec<Blob>, problems: &Problems) -> Option<AttributeValue> {
    if elements.is_empty() {
        return invalid_set(problems, "Binary sets should not be empty");
    }
    let elements = preempt::collect(elements.into_iter().map(|bytes| bytes.0));
    match Set::new(elements) {
        Ok(set) => Some(AttributeValue::Bs(set)),
        Err(elements) => {
            let texts = preempt::collect(
                elements
                    .iter()
                    .take(LISTED_MAX)
                    .map(|bytes| STANDARD.encode(bytes.get(..LISTED_BYTES_MAX).unwrap_or(bytes))),
            );
            let list = listed(texts.iter().map(String::as_str));
            invalid_set(
                problems,
                &format!("Input collection [{list}]of type BS contains duplicates."),
            )
        }
    }
}

/// Elements of a set that an error lists.
const LISTED_MAX: usize = 1000;
/// Bytes of each of them.
const LISTED_BYTES_MAX: usize = 1500;

fn listed<'a>(elements: impl Iterator<Item = &'a str>) -> String {
    let list = preempt::collect(elements.take(LISTED_MAX).map(clip)).join(", ");
    clip(&list).to_owned()
}
