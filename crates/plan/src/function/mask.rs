//! Masking functions: they hide a value or a part of it.
//!
//! `mask_inner` and `mask_outer` count UTF-16 units, as Java does. A character outside the basic plane is two of them;
//! when one of its halves is masked, the other becomes `?`.

use ring::digest;
use types::{CqlType, timeuuid};

use super::native::{cannot_infer, wrong_count};
use super::operation::Arguments;
use super::{Argument, Resolved, Scalar};
use crate::error::PlanError;

/// What hides a value.
#[derive(Clone, Debug)]
pub(crate) enum Mask {
    /// `mask_null(value)`: null.
    Null,
    /// `mask_default(value)`: the default of the value's type, of a null too.
    Default(CqlType),
    /// `mask_replace(value, other)`: the other value.
    Replace,
    /// `mask_inner(text, begin, end [, padding])`: hides all but the first and last characters.
    Inner(CqlType),
    /// `mask_outer(text, begin, end [, padding])`: hides the first and last characters.
    Outer(CqlType),
    /// `mask_hash(value [, algorithm])`: the hash of the value's bytes, by default of SHA-256.
    Hash,
}

const TEXTS: &str = "[text|varchar|ascii]";

/// The longest default: its type says how long it is, and a client chooses that.
const DEFAULT_BYTES_MAX: usize = 1 << 20;

/// The character that replaces those of a text when the call names no padding.
const PADDING: u16 = b'*' as u16;

impl Mask {
    /// The function of that name for its arguments; `None` when no masking function has the name.
    pub(crate) fn resolve(
        name: &str,
        arguments: &[&dyn Argument],
        receiver: Option<&CqlType>,
    ) -> Result<Option<Resolved>, PlanError> {
        let found = match name {
            "mask_null" | "mask_default" => {
                let [argument] = arguments else {
                    return Err(wrong_count(name, "any"));
                };
                let cql_type = known(name, "any", *argument)?;
                let mask = match name {
                    "mask_null" => Self::Null,
                    _ if default_bytes(&cql_type) > DEFAULT_BYTES_MAX => {
                        return Err(PlanError::Invalid(format!(
                            "mask_default: a value of type {cql_type} takes more than {DEFAULT_BYTES_MAX} bytes"
                        )));
                    }
                    _ => Self::Default(cql_type.clone()),
                };
                (vec![cql_type.clone()], cql_type, mask)
            }
            "mask_replace" => {
                let [argument, _] = arguments else {
                    return Err(wrong_count(name, "any, any"));
                };
                let cql_type = match (argument.known_type(), receiver) {
                    (None, Some(receiver)) => receiver.clone(),
                    _ => known(name, "any, any", *argument)?,
                };
                (vec![cql_type.clone(); 2], cql_type, Self::Replace)
            }
            "mask_inner" | "mask_outer" => {
                if !matches!(arguments.len(), 3 | 4) {
                    return Err(wrong_count(name, &format!("{TEXTS}, int, int, [text]")));
                }
                let text = one_of(name, arguments[0], &[CqlType::Text, CqlType::Ascii], TEXTS)?;
                for length in &arguments[1..3] {
                    one_of(name, *length, &[CqlType::Int], "int")?;
                }
                let mut takes = vec![text.clone(), CqlType::Int, CqlType::Int];
                if let Some(padding) = arguments.get(3) {
                    one_of(name, *padding, &[CqlType::Text, CqlType::Ascii], "text")?;
                    takes.push(CqlType::Text);
                }
                let mask = match name {
                    "mask_inner" => Self::Inner(text.clone()),
                    _ => Self::Outer(text.clone()),
                };
                (takes, text, mask)
            }
            "mask_hash" => {
                const SIGNATURE: &str = "any, [text]";
                if !matches!(arguments.len(), 1 | 2) {
                    return Err(wrong_count(name, SIGNATURE));
                }
                let mut takes = vec![known(name, SIGNATURE, arguments[0])?];
                if let Some(algorithm) = arguments.get(1) {
                    one_of(name, *algorithm, &[CqlType::Text, CqlType::Ascii], "text")?;
                    takes.push(CqlType::Text);
                }
                (takes, CqlType::Blob, Self::Hash)
            }
            _ => return Ok(None),
        };
        let (takes, returns, mask) = found;
        Ok(Some(Resolved::scalar(name, takes, returns, Scalar::Mask(mask))))
    }

    /// The masked value; `None` is null.
    pub(crate) fn apply(&self, name: &str, arguments: Arguments<'_, '_>) -> Result<Option<Vec<u8>>, PlanError> {
        let argument = |index: usize| arguments.get(index).and_then(|argument| argument.as_deref());
        let length = |index: usize| {
            let length = argument(index).and_then(|bytes| bytes.try_into().ok());
            usize::try_from(length.map_or(0, i32::from_be_bytes)).unwrap_or(0)
        };
        Ok(match self {
            Self::Null => None,
            Self::Default(cql_type) => Some(default_of(cql_type)),
            Self::Replace => argument(1).map(<[u8]>::to_vec),
            Self::Inner(cql_type) | Self::Outer(cql_type) => {
                let padding = argument(3).map_or(Ok(PADDING), |padding| single(name, padding))?;
                let Some(text) = argument(0) else { return Ok(None) };
                let units: Vec<u16> = String::from_utf8_lossy(text).encode_utf16().collect();
                let (begin, end) = (length(1), length(2));
                let is_inner = matches!(self, Self::Inner(_));
                let is_at_an_end = |at: usize| at < begin || units.len() - at <= end;
                let masked = units.iter().enumerate().map(|(at, unit)| match is_at_an_end(at) {
                    is_at_an_end if is_at_an_end == is_inner => *unit,
                    _ => padding,
                });
                Some(from_units(masked, *cql_type == CqlType::Ascii).into_bytes())
            }
            Self::Hash => {
                let algorithm = argument(1).map_or("SHA-256".into(), String::from_utf8_lossy);
                // An algorithm that is not known is an error whatever is hashed, and for null too.
                let hash = Hash::named(&algorithm);
                let hash = hash.ok_or_else(|| PlanError::Invalid(format!("Hash algorithm not found: {algorithm}")))?;
                argument(0).map(|value| hash.of(value))
            }
        })
    }
}

/// The type of an argument that has one by itself.
fn known(name: &str, signature: &str, argument: &dyn Argument) -> Result<CqlType, PlanError> {
    let found = argument.known_type();
    found.ok_or_else(|| cannot_infer(name, signature, argument))
}

/// The type of an argument that must be one of these; the first of them if it has no type by itself.
fn one_of(name: &str, argument: &dyn Argument, wanted: &[CqlType], words: &str) -> Result<CqlType, PlanError> {
    match argument.known_type() {
        None => Ok(wanted[0].clone()),
        Some(found) if wanted.contains(&found) => Ok(found),
        Some(other) => Err(PlanError::Invalid(format!(
            "Function system.{name} requires an argument of type {words}, but found argument {} of type {other}",
            argument.text()
        ))),
    }
}

/// The only UTF-16 unit of a padding.
fn single(name: &str, padding: &[u8]) -> Result<u16, PlanError> {
    let padding = String::from_utf8_lossy(padding);
    let units: Vec<u16> = padding.encode_utf16().collect();
    match units[..] {
        [only] => Ok(only),
        _ => Err(PlanError::Invalid(format!(
            "The padding argument for function system.{name} should be single-character, but '{padding}' has {} \
             characters.",
            units.len()
        ))),
    }
}

/// The text of UTF-16 units, with `?` for what is no character and, in ASCII, for what is not ASCII.
fn from_units(units: impl Iterator<Item = u16>, is_ascii: bool) -> String {
    let characters = char::decode_utf16(units).map(|unit| unit.unwrap_or('?'));
    characters
        .map(|c| if is_ascii && !c.is_ascii() { '?' } else { c })
        .collect()
}

/// How long the value that replaces every value of a type is, about: what of it depends on dimensions.
fn default_bytes(cql_type: &CqlType) -> usize {
    use CqlType as T;
    match cql_type {
        T::Tuple(types) => types.iter().map(default_bytes).fold(0, usize::saturating_add),
        T::Udt(udt) => {
            let fields = udt.fields.iter().map(|(_, field_type)| default_bytes(field_type));
            fields.fold(0, usize::saturating_add)
        }
        T::Vector(element, dimension) => default_bytes(element).saturating_mul(*dimension as usize),
        T::Frozen(inner) => default_bytes(inner),
        _ => cql_type.fixed_len().unwrap_or(size_of::<u64>()),
    }
}

/// The serialised value that replaces every value of a type.
fn default_of(cql_type: &CqlType) -> Vec<u8> {
    use CqlType as T;
    match cql_type.unfrozen() {
        T::Ascii | T::Text => b"****".to_vec(),
        T::Blob | T::Empty => Vec::new(),
        T::Boolean | T::TinyInt | T::VarInt => vec![0],
        T::SmallInt => vec![0; 2],
        // An inet is the address 0.0.0.0; a collection of no elements is their count.
        T::Int | T::Float | T::Inet | T::List(_) | T::Set(_) | T::Map(..) => vec![0; 4],
        T::BigInt | T::Counter | T::Double | T::Time | T::Timestamp => vec![0; 8],
        T::Date => (1_u32 << 31).to_be_bytes().to_vec(),
        // The scale and one byte of digits.
        T::Decimal => vec![0; 5],
        T::Duration => vec![0; 3],
        T::TimeUuid => timeuuid::min_for_millis(0).as_bytes().to_vec(),
        T::Uuid => vec![0; 16],
        T::Tuple(types) => tuple_of(types.iter()),
        T::Udt(udt) => tuple_of(udt.fields.iter().map(|(_, field_type)| field_type)),
        T::Vector(element, dimension) => {
            let default = default_of(element);
            let mut one = Vec::new();
            if element.fixed_len().is_none() {
                stdx::vint::put_unsigned(&mut one, default.len() as u64);
            }
            one.extend(default);
            one.repeat(*dimension as usize)
        }
        T::Frozen(inner) => default_of(inner),
    }
}

fn tuple_of<'t>(types: impl Iterator<Item = &'t CqlType>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut builder = types::TupleBuilder::new(&mut out);
    types.for_each(|cql_type| builder.push(Some(&default_of(cql_type))));
    out
}

/// How a value is hashed.
enum Hash {
    Md5,
    Digest(&'static digest::Algorithm),
}

impl Hash {
    /// By the names that Java has for it.
    fn named(algorithm: &str) -> Option<Self> {
        Some(Self::Digest(match algorithm.to_ascii_uppercase().as_str() {
            "MD5" => return Some(Self::Md5),
            "SHA" | "SHA1" | "SHA-1" => &digest::SHA1_FOR_LEGACY_USE_ONLY,
            "SHA256" | "SHA-256" => &digest::SHA256,
            "SHA384" | "SHA-384" => &digest::SHA384,
            "SHA512" | "SHA-512" => &digest::SHA512,
            "SHA512/256" | "SHA-512/256" => &digest::SHA512_256,
            _ => return None,
        }))
    }

    fn of(&self, value: &[u8]) -> Vec<u8> {
        match self {
            Self::Md5 => md5::compute(value).0.to_vec(),
            Self::Digest(algorithm) => digest::digest(algorithm, value).as_ref().to_vec(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    fn hash(algorithm: &str, value: &[u8]) -> Option<Vec<u8>> {
        Hash::named(algorithm).map(|hash| hash.of(value))
    }

    fn masked(mask: &Mask, arguments: &[Option<&[u8]>]) -> Result<Option<String>, String> {
        let arguments: Vec<_> = arguments.iter().map(|a| a.map(Cow::Borrowed)).collect();
        let value = mask.apply("mask", &arguments).map_err(|error| error.to_string())?;
        Ok(value.map(|bytes| String::from_utf8(bytes).expect("a masked text is a text")))
    }

    /// What Cassandra 5.0.8 makes of them.
    #[test]
    fn texts_are_masked_at_their_ends_or_between() {
        let (inner, outer) = (Mask::Inner(CqlType::Text), Mask::Outer(CqlType::Text));
        for (mask, text, begin, end, padding, expected) in [
            (&inner, "héllo", 1, 1, None, "h***o"),
            (&outer, "héllo", 1, 1, None, "*éll*"),
            (&inner, "héllo", 1, 1, Some("#"), "h###o"),
            (&inner, "héllo", -1, 1, None, "****o"),
            (&inner, "héllo", 3, 3, None, "héllo"),
            (&outer, "héllo", 3, 3, None, "*****"),
            (&inner, "héllo", i32::MAX, i32::MAX, None, "héllo"),
            (&outer, "héllo", i32::MAX, i32::MAX, None, "*****"),
            (&outer, "héllo", i32::MIN, 0, None, "héllo"),
            (&inner, "", 1, 1, None, ""),
            (&inner, "a😀b😀c", 1, 1, None, "a*****c"),
            (&inner, "a😀b😀c", 2, 1, None, "a?****c"),
            (&outer, "a😀b", 2, 0, None, "**?b"),
        ] {
            let (begin, end) = (i32::to_be_bytes(begin), i32::to_be_bytes(end));
            let mut arguments = vec![Some(text.as_bytes()), Some(&begin[..]), Some(&end[..])];
            arguments.extend(padding.map(|padding: &str| Some(padding.as_bytes())));
            assert_eq!(
                masked(mask, &arguments),
                Ok(Some(expected.to_owned())),
                "{mask:?} {text}"
            );
        }
        assert_eq!(masked(&inner, &[Some(b"abc"), None, None]), Ok(Some("***".to_owned())));
        assert_eq!(masked(&inner, &[None, None, None]), Ok(None));
        let ascii = Mask::Inner(CqlType::Ascii);
        let one = 1_i32.to_be_bytes();
        let arguments = [Some(&b"abc"[..]), Some(&one), Some(&one), Some("é".as_bytes())];
        assert_eq!(masked(&ascii, &arguments), Ok(Some("a?c".to_owned())));
        for (padding, count) in [("", 0), ("##", 2), ("😀", 2)] {
            let refusal = masked(&inner, &[Some(b"abc"), None, None, Some(padding.as_bytes())]);
            let expected = format!("'{padding}' has {count} characters");
            assert!(
                refusal.as_ref().is_err_and(|text| text.contains(&expected)),
                "{refusal:?}"
            );
        }
    }

    #[test]
    fn the_default_of_a_type_is_a_value_of_it() {
        let list = CqlType::List(CqlType::Int.into()).frozen();
        let tuple = CqlType::Tuple([CqlType::Int, CqlType::Text, list.clone()].into());
        let floats = CqlType::Vector(CqlType::Float.into(), 3);
        let texts = CqlType::Vector(CqlType::Text.into(), 2);
        for cql_type in CqlType::SCALARS.into_iter().chain([list, tuple, floats, texts]) {
            let default = default_of(&cql_type);
            assert_eq!(cql_type.validate(&default), Ok(()), "{cql_type}");
        }
        assert_eq!(default_of(&CqlType::Date), 0x8000_0000_u32.to_be_bytes());
    }

    #[test]
    fn a_hash_goes_by_each_of_its_names() {
        let hex = |algorithm| hash(algorithm, b"abc").map(|hash| CqlType::Blob.format(&hash).to_string());
        let sha1 = Some("0xa9993e364706816aba3e25717850c26c9cd0d89d".to_owned());
        assert_eq!(hex("SHA-1"), sha1);
        assert_eq!(hex("sha"), sha1);
        assert_eq!(hex("MD5"), Some("0x900150983cd24fb0d6963f7d28e17f72".to_owned()));
        assert!(hex("SHA-256").is_some_and(|hash| hash.starts_with("0xba7816bf8f01cfea")));
        for (algorithm, bytes) in [("SHA384", 48), ("sha-512", 64), ("SHA-512/256", 32)] {
            assert_eq!(
                hash(algorithm, b"abc").map(|hash| hash.len()),
                Some(bytes),
                "{algorithm}"
            );
        }
        assert_eq!(hash("", b"abc"), None);
        assert_eq!(hash("SHA3", b"abc"), None);
    }
}
