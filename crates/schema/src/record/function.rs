//! User-defined functions and aggregates.

use record::{Field, Message, Of, RecordError};
use types::CqlType;

use super::cql_type::{self, TYPE, TypeRecord};
use super::there;
use crate::function::{Language, UserAggregate, UserFunction};

/// A user-defined function.
#[derive(Clone, PartialEq, prost::Message)]
pub struct FunctionRecord {
    /// Its keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The names of its arguments.
    #[prost(string, repeated, tag = "3")]
    pub argument_names: Vec<String>,
    /// Their types.
    #[prost(message, repeated, tag = "4")]
    pub argument_types: Vec<TypeRecord>,
    /// The type of its result.
    #[prost(message, optional, tag = "5")]
    pub returns: Option<TypeRecord>,
    /// Whether it is called when an argument is null.
    #[prost(bool, tag = "6")]
    pub called_on_null: bool,
    /// What its source is written in, as CQL names it.
    #[prost(string, tag = "7")]
    pub language: String,
    /// The source.
    #[prost(string, tag = "8")]
    pub body: String,
}

pub(super) static FUNCTION: Message = Message::new(
    "function",
    &[
        Field::new(1, "keyspace", Of::Text),
        Field::new(2, "name", Of::Text),
        Field::list(3, "argument_names", Of::Text),
        Field::list(4, "argument_types", Of::Record(&TYPE)),
        Field::new(5, "returns", Of::Record(&TYPE)),
        Field::new(6, "called_on_null", Of::Bool),
        Field::new(7, "language", Of::Text),
        Field::new(8, "body", Of::Text),
    ],
)
.titled(&[1, 2]);

/// A user-defined aggregate.
#[derive(Clone, PartialEq, prost::Message)]
pub struct AggregateRecord {
    /// Its keyspace.
    #[prost(string, tag = "1")]
    pub keyspace: String,
    /// Its name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// The types of its arguments.
    #[prost(message, repeated, tag = "3")]
    pub argument_types: Vec<TypeRecord>,
    /// The function that takes a row.
    #[prost(string, tag = "4")]
    pub state_function: String,
    /// The type of the state.
    #[prost(message, optional, tag = "5")]
    pub state_type: Option<TypeRecord>,
    /// The function that joins two states; empty without.
    #[prost(string, tag = "6")]
    pub reduce_function: String,
    /// The function that makes the result; empty without.
    #[prost(string, tag = "7")]
    pub final_function: String,
    /// The type of the result.
    #[prost(message, optional, tag = "8")]
    pub returns: Option<TypeRecord>,
    /// The state before the first row.
    #[prost(bytes = "vec", optional, tag = "9")]
    pub initial_state: Option<Vec<u8>>,
}

pub(super) static AGGREGATE: Message = Message::new(
    "aggregate",
    &[
        Field::new(1, "keyspace", Of::Text),
        Field::new(2, "name", Of::Text),
        Field::list(3, "argument_types", Of::Record(&TYPE)),
        Field::new(4, "state_function", Of::Text),
        Field::new(5, "state_type", Of::Record(&TYPE)),
        Field::new(6, "reduce_function", Of::Text),
        Field::new(7, "final_function", Of::Text),
        Field::new(8, "returns", Of::Record(&TYPE)),
        Field::new(9, "initial_state", Of::Bytes),
    ],
)
.titled(&[1, 2]);

pub(super) fn function_to_record(function: &UserFunction) -> FunctionRecord {
    FunctionRecord {
        keyspace: function.keyspace.clone(),
        name: function.name.clone(),
        argument_names: function.arguments.iter().map(|(name, _)| name.clone()).collect(),
        argument_types: function.arguments.iter().map(|(_, t)| cql_type::to_record(t)).collect(),
        returns: Some(cql_type::to_record(&function.returns)),
        called_on_null: function.called_on_null,
        language: function.language.name().to_owned(),
        body: function.body.clone(),
    }
}

pub(super) fn function_from_record(record: FunctionRecord) -> Result<UserFunction, RecordError> {
    let place = "function";
    check_names(&record.keyspace, &record.name, place)?;
    let types = types_of(&record.argument_types, "function, argument_types")?;
    if types.len() != record.argument_names.len() {
        let why = format!(
            "{} names and {} types of arguments",
            record.argument_names.len(),
            types.len()
        );
        return Err(RecordError::damaged(place, why));
    }
    let language = Language::of_name(&record.language).ok_or_else(|| {
        let why = format!("expected lua or wasm, found {}", record.language);
        RecordError::damaged("function, language", why)
    })?;
    Ok(UserFunction {
        keyspace: record.keyspace,
        name: record.name,
        arguments: record.argument_names.into_iter().zip(types).collect(),
        returns: type_of(record.returns, "function, returns")?,
        called_on_null: record.called_on_null,
        language,
        body: record.body,
    })
}

pub(super) fn aggregate_to_record(aggregate: &UserAggregate) -> AggregateRecord {
    AggregateRecord {
        keyspace: aggregate.keyspace.clone(),
        name: aggregate.name.clone(),
        argument_types: aggregate.arguments.iter().map(cql_type::to_record).collect(),
        state_function: aggregate.state_function.clone(),
        state_type: Some(cql_type::to_record(&aggregate.state_type)),
        reduce_function: aggregate.reduce_function.clone().unwrap_or_default(),
        final_function: aggregate.final_function.clone().unwrap_or_default(),
        returns: Some(cql_type::to_record(&aggregate.returns)),
        initial_state: aggregate.initial_state.clone(),
    }
}

pub(super) fn aggregate_from_record(record: AggregateRecord) -> Result<UserAggregate, RecordError> {
    check_names(&record.keyspace, &record.name, "aggregate")?;
    if record.state_function.is_empty() {
        return Err(RecordError::damaged("aggregate, state_function", "it is missing"));
    }
    let state_type = type_of(record.state_type, "aggregate, state_type")?;
    if let Some(state) = &record.initial_state
        && let Err(error) = state_type.validate(state)
    {
        return Err(RecordError::damaged("aggregate, initial_state", error.to_string()));
    }
    let named = |name: String| Some(name).filter(|name| !name.is_empty());
    Ok(UserAggregate {
        keyspace: record.keyspace,
        name: record.name,
        arguments: types_of(&record.argument_types, "aggregate, argument_types")?,
        state_function: record.state_function,
        state_type,
        reduce_function: named(record.reduce_function),
        final_function: named(record.final_function),
        returns: type_of(record.returns, "aggregate, returns")?,
        initial_state: record.initial_state,
    })
}

fn check_names(keyspace: &str, name: &str, place: &str) -> Result<(), RecordError> {
    if keyspace.is_empty() || name.is_empty() {
        Err(RecordError::damaged(place, "its keyspace or name is missing"))
    } else {
        Ok(())
    }
}

fn type_of(record: Option<TypeRecord>, place: &str) -> Result<CqlType, RecordError> {
    cql_type::from_record(&there(record, place)?, place)
}

fn types_of(records: &[TypeRecord], place: &str) -> Result<Vec<CqlType>, RecordError> {
    records
        .iter()
        .map(|record| cql_type::from_record(record, place))
        .collect()
}
