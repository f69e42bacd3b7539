//! The names of the functions and their signatures.
//!
//! Each has the name that Cassandra 5.0 gave it (`to_date`) and, when it is older, its former one (`todate`).

use std::sync::Arc;

use schema::Table;
use types::CqlType;

use super::aggregate::Aggregate;
use super::collection::CollectionFunction;
use super::mask::Mask;
use super::measure::Measure;
use super::scalar::{Math, Similarity, Site};
use super::time::Moment;
use super::{Argument, Resolved, Scalar, arithmetic, cast};
use crate::error::PlanError;

/// The types that have conversions to and from blobs.
const NATIVE: [(&str, CqlType); 20] = [
    ("ascii", CqlType::Ascii),
    ("bigint", CqlType::BigInt),
    ("boolean", CqlType::Boolean),
    ("counter", CqlType::Counter),
    ("date", CqlType::Date),
    ("decimal", CqlType::Decimal),
    ("double", CqlType::Double),
    ("duration", CqlType::Duration),
    ("float", CqlType::Float),
    ("inet", CqlType::Inet),
    ("int", CqlType::Int),
    ("smallint", CqlType::SmallInt),
    ("text", CqlType::Text),
    ("time", CqlType::Time),
    ("timestamp", CqlType::Timestamp),
    ("timeuuid", CqlType::TimeUuid),
    ("tinyint", CqlType::TinyInt),
    ("uuid", CqlType::Uuid),
    ("varchar", CqlType::Text),
    ("varint", CqlType::VarInt),
];

fn native_type(name: &str) -> Option<CqlType> {
    NATIVE
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, cql_type)| cql_type.clone())
}

/// The signatures of a function; `None` when no function has that name.
pub(crate) fn candidates(
    name: &str,
    arguments: &[&dyn Argument],
    receiver: Option<&CqlType>,
    token_of: Option<&Table>,
) -> Result<Option<Vec<Resolved>>, PlanError> {
    let one = |takes: &[CqlType], returns: CqlType, scalar: Scalar| {
        Ok(Some(vec![Resolved::scalar(name, takes.to_vec(), returns, scalar)]))
    };
    let conversions = |from: &[Moment], to: Moment| {
        let of = |from: &Moment| {
            let scalar = Scalar::Convert { from: *from, to };
            Resolved::scalar(name, vec![from.cql_type()], to.cql_type(), scalar)
        };
        Ok(Some(from.iter().map(of).collect()))
    };
    match name {
        "now" | "currenttimeuuid" | "current_timeuuid" => one(&[], CqlType::TimeUuid, Scalar::Now(Site::default())),
        "uuid" => one(&[], CqlType::Uuid, Scalar::RandomUuid(Site::default())),
        "currenttimestamp" | "current_timestamp" => one(&[], CqlType::Timestamp, Scalar::CurrentTimestamp),
        "currentdate" | "current_date" => one(&[], CqlType::Date, Scalar::CurrentDate),
        "currenttime" | "current_time" => one(&[], CqlType::Time, Scalar::CurrentTime),
        "mintimeuuid" | "min_timeuuid" => one(&[CqlType::Timestamp], CqlType::TimeUuid, Scalar::MinTimeUuid),
        "maxtimeuuid" | "max_timeuuid" => one(&[CqlType::Timestamp], CqlType::TimeUuid, Scalar::MaxTimeUuid),
        "todate" | "to_date" => conversions(&[Moment::Timestamp, Moment::TimeUuid], Moment::Date),
        "totimestamp" | "to_timestamp" => conversions(&[Moment::Date, Moment::TimeUuid], Moment::Timestamp),
        "tounixtimestamp" | "to_unix_timestamp" => {
            conversions(&[Moment::Date, Moment::Timestamp, Moment::TimeUuid], Moment::UnixMillis)
        }
        "dateof" => conversions(&[Moment::TimeUuid], Moment::Timestamp),
        "unixtimestampof" => conversions(&[Moment::TimeUuid], Moment::UnixMillis),
        "token" => {
            let Some(table) = token_of else { return Ok(None) };
            let takes: Vec<_> = table.partition_key().map(|column| column.cql_type.clone()).collect();
            one(&takes, CqlType::BigInt, Scalar::Token)
        }
        "floor" => Ok(Some(floors(name))),
        "abs" => Ok(Some(math(name, Math::Abs))),
        "exp" => Ok(Some(math(name, Math::Exp))),
        "log" => Ok(Some(math(name, Math::Log))),
        "log10" => Ok(Some(math(name, Math::Log10))),
        "round" => Ok(Some(math(name, Math::Round))),
        "similarity_cosine" => similarity(name, Similarity::Cosine, arguments).map(Some),
        "similarity_euclidean" => similarity(name, Similarity::Euclidean, arguments).map(Some),
        "similarity_dot_product" => similarity(name, Similarity::DotProduct, arguments).map(Some),
        "tojson" | "to_json" => {
            let cql_type = any_argument(name, arguments)?;
            let function = Resolved::scalar(name, vec![cql_type.clone()], CqlType::Text, Scalar::ToJson(cql_type));
            Ok(Some(vec![function.generic()]))
        }
        "fromjson" | "from_json" => match receiver {
            // Its result has the requested type.
            Some(wanted) => {
                check_from_json(name, arguments)?;
                let scalar = Scalar::FromJson(wanted.clone());
                Ok(Some(vec![
                    Resolved::scalar(name, vec![CqlType::Text], wanted.clone(), scalar).generic(),
                ]))
            }
            None => Err(PlanError::Invalid(format!(
                "{name}() cannot be used in the selection clause of a SELECT statement"
            ))),
        },
        _ => {
            if let Some(found) = Aggregate::candidates(name, arguments)? {
                return Ok(Some(found));
            }
            if let Some(function) = CollectionFunction::resolve(name, arguments)? {
                return Ok(Some(vec![function]));
            }
            if let Some(function) = Mask::resolve(name, arguments, receiver)? {
                return Ok(Some(vec![function]));
            }
            if let Some(function) = Measure::resolve(name, arguments)? {
                return Ok(Some(vec![function]));
            }
            Ok(blob_conversion(name)
                .map(|found| vec![found])
                .or_else(|| cast::candidates_of_name(name)))
        }
    }
}

/// `from_json` takes one text, and has an error message of its own.
fn check_from_json(name: &str, arguments: &[&dyn Argument]) -> Result<(), PlanError> {
    let [argument] = arguments else {
        return Err(wrong_count(name, "text"));
    };
    match argument.known_type() {
        Some(other) if argument.test(&CqlType::Text) == super::Assignment::Not => Err(PlanError::Invalid(format!(
            "Function system.{name} requires an argument of type text, but found argument {} of type {other}",
            argument.text()
        ))),
        _ => Ok(()),
    }
}

/// `typeasblob`, `type_as_blob`, `blobastype` and `blob_as_type`.
fn blob_conversion(name: &str) -> Option<Resolved> {
    let to_blob = name.strip_suffix("_as_blob").or_else(|| name.strip_suffix("asblob"));
    if let Some(cql_type) = to_blob.and_then(native_type) {
        return Some(Resolved::scalar(name, vec![cql_type], CqlType::Blob, Scalar::AsBlob));
    }
    let from_blob = name.strip_prefix("blob_as_").or_else(|| name.strip_prefix("blobas"));
    let cql_type = from_blob.and_then(native_type)?;
    Some(Resolved::scalar(
        name,
        vec![CqlType::Blob],
        cql_type.clone(),
        Scalar::FromBlob(cql_type),
    ))
}

fn math(name: &str, function: Math) -> Vec<Resolved> {
    let of = |t: &CqlType| {
        let scalar = Scalar::Math {
            function,
            cql_type: t.clone(),
        };
        Resolved::scalar(name, vec![t.clone()], t.clone(), scalar)
    };
    arithmetic::numeric_types().iter().map(of).collect()
}

fn floors(name: &str) -> Vec<Resolved> {
    let mut found = Vec::new();
    for cql_type in [CqlType::Timestamp, CqlType::TimeUuid, CqlType::Date] {
        let returns = if cql_type == CqlType::TimeUuid {
            CqlType::Timestamp
        } else {
            cql_type.clone()
        };
        for start in [None, Some(returns.clone())] {
            let takes = [cql_type.clone(), CqlType::Duration].into_iter().chain(start).collect();
            found.push(Resolved::scalar(
                name,
                takes,
                returns.clone(),
                Scalar::Floor(cql_type.clone()),
            ));
        }
    }
    let takes = vec![CqlType::Time, CqlType::Duration];
    found.push(Resolved::scalar(
        name,
        takes,
        CqlType::Time,
        Scalar::Floor(CqlType::Time),
    ));
    found
}

/// The type of the only argument of a function that takes any.
pub(crate) fn any_argument(name: &str, arguments: &[&dyn Argument]) -> Result<CqlType, PlanError> {
    let [argument] = arguments else {
        return Err(wrong_count(name, "any"));
    };
    let known = argument.known_type();
    known.ok_or_else(|| cannot_infer(name, "any", *argument))
}

/// The refusal of a call with another number of arguments than the signature has.
pub(crate) fn wrong_count(name: &str, signature: &str) -> PlanError {
    PlanError::Invalid(format!(
        "Invalid number of arguments for function system.{name}({signature})"
    ))
}

/// The refusal of an argument without a type of its own to a function that takes several types.
pub(crate) fn cannot_infer(name: &str, signature: &str, argument: &dyn Argument) -> PlanError {
    PlanError::Invalid(format!(
        "Cannot infer type of argument {} in call to function system.{name}({signature}): use type casts to disambiguate",
        argument.text()
    ))
}

fn similarity(name: &str, similarity: Similarity, arguments: &[&dyn Argument]) -> Result<Vec<Resolved>, PlanError> {
    const SIGNATURE: &str = "vector<float, n>, vector<float, n>";
    if arguments.len() != 2 {
        return Err(wrong_count(name, SIGNATURE));
    }
    let dimension = |argument: &&dyn Argument| match argument.known_type() {
        Some(CqlType::Vector(element, dimension)) if *element == CqlType::Float => Ok(Some(dimension)),
        Some(CqlType::List(_)) | None => Ok(None),
        Some(other) => Err(PlanError::Invalid(format!(
            "Function system.{name} requires a float vector argument, but found argument {} of type {other}",
            argument.text()
        ))),
    };
    let dimensions = arguments.iter().map(dimension).collect::<Result<Vec<_>, _>>()?;
    let listed = || {
        let elements = arguments.iter().find_map(|argument| argument.elements());
        elements.and_then(|elements| u32::try_from(elements).ok())
    };
    let Some(dimension) = dimensions.into_iter().flatten().next().or_else(listed) else {
        return Err(cannot_infer(name, SIGNATURE, arguments[0]));
    };
    let vector = CqlType::Vector(Arc::new(CqlType::Float), dimension);
    if arguments
        .iter()
        .any(|argument| argument.test(&vector) == super::Assignment::Not)
    {
        return Err(PlanError::invalid("All arguments must have the same vector dimensions"));
    }
    let scalar = Scalar::Similarity(similarity);
    Ok(vec![
        Resolved::scalar(name, vec![vector.clone(), vector], CqlType::Float, scalar).generic(),
    ])
}
