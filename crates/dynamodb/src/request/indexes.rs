//! Keys, projections and secondary indexes of CreateTable and UpdateTable: constraints on single members, conversion,
//! and the rules that need the whole request.

use std::collections::BTreeSet;

use super::constraints::{Constraints, Words};
use super::json::{List, Long, Text};
use super::shapes::{self, elements, text};
use crate::error::Error;
use crate::table::{
    AttributeDefinition, BillingMode, DistanceFunction, GlobalIndex, KeyElement, KeySchema, KeyType, LocalIndex,
    OnDemandThroughput, Projection, ProjectionType, ProvisionedThroughput, ScalarType, SearchSchemaType, Throughput,
    VectorIndex,
};

/// Global secondary indexes of a table ("Quotas" of the developer guide).
pub const GLOBAL_INDEXES_MAX: usize = 20;
/// Local secondary indexes of a table.
pub const LOCAL_INDEXES_MAX: usize = 5;
/// Vector indexes of a table.
pub const VECTOR_INDEXES_MAX: usize = 5;
/// Elements of a vector.
const DIMENSIONS_MAX: i64 = 4096;
/// Attributes of one type in the key of a global secondary index.
const KEY_PARTS_MAX: usize = 4;
/// Attributes that a projection can list.
const NON_KEY_ATTRIBUTES_MAX: usize = 20;
/// Elements of a list of definitions or indexes, or of changes of indexes: what is above is refused before any element
/// is looked at. The limits of the API are far below.
const LIST_MAX: usize = 300;

/// The text before errors that name a parameter.
pub(super) const INVALID: &str = "One or more parameter values were invalid: ";

/// A ValidationException that begins with [`INVALID`].
pub(super) fn invalid(text: impl AsRef<str>) -> Error {
    Error::validation([INVALID, text.as_ref()].concat())
}

/// Refuses a list that is too long to be looked at.
pub(super) fn check_list<T>(list: Option<&List<T>>, name: &str) -> Result<(), Error> {
    if list.is_some_and(|List(list)| list.len() > LIST_MAX) {
        return Err(invalid(format!("{name} has more than {LIST_MAX} elements")));
    }
    Ok(())
}

/// Checks the elements of a key schema.
pub(super) fn check_key_schema(
    schema: Option<&List<shapes::KeySchemaElement>>,
    at: &str,
    most: usize,
    errors: &mut Constraints,
) {
    let Some(List(schema)) = schema else {
        return errors.null(at);
    };
    if schema.is_empty() {
        errors.value("[]", at, "Member must have length greater than or equal to 1");
    } else if schema.len() > most {
        let most = format!("Member must have length less than or equal to {most}");
        errors.value(listed(schema), "keySchema", most);
    }
}

/// A key schema as the service repeats it.
fn listed(schema: &[shapes::KeySchemaElement]) -> String {
    let part = |member: &Option<Text>| member.as_ref().map(|Text(text)| text.clone()).unwrap_or_default();
    let element = |element: &shapes::KeySchemaElement| {
        format!(
            "KeySchemaElement(attributeName={}, keyType={})",
            part(&element.name),
            part(&element.key_type)
        )
    };
    // A body with a long list is answered with its beginning.
    let shown: Vec<String> = schema.iter().take(100).map(element).collect();
    format!("[{}]", shown.join(", "))
}

/// Checks the members of each element of a key schema.
pub(super) fn check_key_elements(schema: Option<&List<shapes::KeySchemaElement>>, at: &str, errors: &mut Constraints) {
    let schema = schema.map_or(&[][..], |List(schema)| schema);
    // A schema that is longer is refused.
    for (number, element) in schema.iter().take(2 * KEY_PARTS_MAX).enumerate() {
        let at = format!("{at}.{}.member", number + 1);
        errors.required(element.name.as_ref(), format_args!("{at}.attributeName"));
        let at = format!("{at}.keyType");
        errors.required(element.key_type.as_ref(), &at);
        errors.word::<KeyType>(element.key_type.as_ref(), &at);
    }
}

/// Checks attribute definitions.
pub(super) fn check_definitions(definitions: &[shapes::AttributeDefinition], errors: &mut Constraints) {
    for (number, definition) in definitions.iter().enumerate() {
        let at = format!("attributeDefinitions.{}.member", number + 1);
        errors.required(definition.name.as_ref(), format_args!("{at}.attributeName"));
        let at = format!("{at}.attributeType");
        errors.required(definition.attribute_type.as_ref(), &at);
        errors.word::<ScalarType>(definition.attribute_type.as_ref(), &at);
    }
}

/// Checks a throughput of which both members are required.
pub(super) fn check_throughput(throughput: Option<&shapes::ProvisionedThroughput>, at: &str, errors: &mut Constraints) {
    let Some(throughput) = throughput else {
        return;
    };
    for (units, name) in [
        (throughput.write, "writeCapacityUnits"),
        (throughput.read, "readCapacityUnits"),
    ] {
        match units {
            None => errors.null(format_args!("{at}.{name}")),
            Some(Long(units)) => errors.at_least(units, format_args!("{at}.{name}"), 1),
        }
    }
}

fn check_projection(projection: Option<&shapes::Projection>, at: &str, errors: &mut Constraints) {
    let at = format!("{at}.projection");
    let Some(projection) = projection else {
        return errors.null(at);
    };
    errors.word::<ProjectionType>(projection.projection_type.as_ref(), format_args!("{at}.projectionType"));
    let at = format!("{at}.nonKeyAttributes");
    errors.not_empty(projection.non_key_attributes.as_ref(), &at);
    let names = projection
        .non_key_attributes
        .as_ref()
        .map_or(&[][..], |List(names)| names);
    if names.len() > NON_KEY_ATTRIBUTES_MAX {
        let most = format!("Member must have length less than or equal to {NON_KEY_ATTRIBUTES_MAX}");
        return errors.value("[...]", at, most);
    }
    for Text(name) in names {
        errors.length(name, &at, 1, crate::arn::TABLE_NAME_MAX);
    }
}

/// Checks the name of an index.
pub(super) fn check_name(name: Option<&Text>, at: &str, errors: &mut Constraints) {
    let at = format!("{at}.indexName");
    let Some(Text(name)) = name else {
        return errors.null(at);
    };
    if !name.is_empty() {
        errors.pattern(name, &at);
    }
    errors.length(name, &at, crate::arn::TABLE_NAME_MIN, crate::arn::TABLE_NAME_MAX);
}

/// Checks the members of a global secondary index.
pub(super) fn check_global(index: &shapes::GlobalSecondaryIndex, at: &str, errors: &mut Constraints) {
    check_key_schema(
        index.key_schema.as_ref(),
        &format!("{at}.keySchema"),
        2 * KEY_PARTS_MAX,
        errors,
    );
    check_projection(index.projection.as_ref(), at, errors);
    check_name(index.name.as_ref(), at, errors);
    check_throughput(
        index.throughput.as_ref(),
        &format!("{at}.provisionedThroughput"),
        errors,
    );
    check_key_elements(index.key_schema.as_ref(), &format!("{at}.keySchema"), errors);
}

/// Checks the members of a local secondary index.
pub(super) fn check_local(index: &shapes::LocalSecondaryIndex, at: &str, errors: &mut Constraints) {
    check_name(index.name.as_ref(), at, errors);
    check_key_schema(index.key_schema.as_ref(), &format!("{at}.keySchema"), 2, errors);
    check_projection(index.projection.as_ref(), at, errors);
    check_key_elements(index.key_schema.as_ref(), &format!("{at}.keySchema"), errors);
}

/// Checks the members of a vector index.
pub(super) fn check_vector(index: &shapes::VectorIndex, at: &str, errors: &mut Constraints) {
    check_name(index.name.as_ref(), at, errors);
    match &index.attribute {
        None => errors.null(format_args!("{at}.vectorAttribute")),
        Some(attribute) => {
            let at = format!("{at}.vectorAttribute.attributeName");
            match &attribute.name {
                None => errors.null(at),
                Some(Text(name)) => errors.length(name, at, 1, 255),
            }
        }
    }
    let schema = index.search_schema.as_ref().map_or(&[][..], |List(schema)| schema);
    if schema.len() > LIST_MAX {
        let most = format!("Member must have length less than or equal to {LIST_MAX}");
        return errors.value("[...]", format_args!("{at}.searchSchema"), most);
    }
    for (number, element) in schema.iter().enumerate() {
        let at = format!("{at}.searchSchema.{}.member", number + 1);
        errors.required(element.name.as_ref(), format_args!("{at}.attributeName"));
        let at = format!("{at}.searchSchemaElementType");
        errors.required(element.element_type.as_ref(), &at);
        errors.word::<SearchSchemaType>(element.element_type.as_ref(), at);
    }
    check_projection(index.projection.as_ref(), at, errors);
    let at_dimensions = format!("{at}.dimensions");
    match index.dimensions {
        None => errors.null(at_dimensions),
        Some(Long(dimensions)) => errors.at_least(dimensions, at_dimensions, 1),
    }
    let at = format!("{at}.distanceFunction");
    errors.required(index.distance.as_ref(), &at);
    errors.word::<DistanceFunction>(index.distance.as_ref(), at);
}

/// Checks all elements of a list that the service checks.
pub(super) fn check_each<T>(
    list: Option<&List<T>>,
    at: &str,
    errors: &mut Constraints,
    check: impl Fn(&T, &str, &mut Constraints),
) {
    let list = list.map_or(&[][..], |List(list)| list);
    for (number, element) in list.iter().enumerate() {
        check(element, &format!("{at}.{}.member", number + 1), errors);
    }
}

/// The value of a word whose constraint is checked.
fn word<W: Words>(member: Option<&Text>) -> Option<W> {
    member.and_then(|Text(word)| W::from_word(word))
}

/// Converts a key schema that is checked.
pub(super) fn key_schema(schema: Option<List<shapes::KeySchemaElement>>) -> KeySchema {
    let element = |element: shapes::KeySchemaElement| {
        let key_type = word(element.key_type.as_ref())?;
        let name = text(element.name);
        Some(KeyElement { name, key_type })
    };
    KeySchema(elements(schema).into_iter().filter_map(element).collect())
}

/// Converts definitions that are checked.
pub(super) fn definitions(definitions: Option<List<shapes::AttributeDefinition>>) -> Vec<AttributeDefinition> {
    let definition = |definition: shapes::AttributeDefinition| {
        let scalar_type = word(definition.attribute_type.as_ref())?;
        let name = text(definition.name);
        Some(AttributeDefinition { name, scalar_type })
    };
    elements(definitions).into_iter().filter_map(definition).collect()
}

/// Converts a projection.
///
/// # Errors
/// A ValidationException if the type and the list of attributes do not fit.
fn projection(projection: Option<shapes::Projection>) -> Result<Projection, Error> {
    let projection = projection.unwrap_or_default();
    let Some(projection_type) = word(projection.projection_type.as_ref()) else {
        return Err(invalid("Unknown ProjectionType: null"));
    };
    let listed = projection.non_key_attributes.is_some();
    match projection_type {
        ProjectionType::All | ProjectionType::KeysOnly if listed => Err(invalid(format!(
            "ProjectionType is {}, but NonKeyAttributes is specified",
            projection_type.word()
        ))),
        ProjectionType::Include if !listed => Err(invalid(
            "ProjectionType is INCLUDE, but NonKeyAttributes is not specified",
        )),
        _ => Ok(Projection {
            projection_type,
            non_key_attributes: (elements(projection.non_key_attributes).into_iter())
                .map(|Text(name)| name)
                .collect(),
        }),
    }
}

/// The units of a throughput, zeros without one.
pub(super) fn throughput(throughput: Option<&shapes::ProvisionedThroughput>) -> ProvisionedThroughput {
    let units = |units: Option<Long>| units.map_or(0, |Long(units)| units);
    let units = throughput.map_or(Throughput::default(), |throughput| Throughput {
        read_units: units(throughput.read),
        write_units: units(throughput.write),
    });
    ProvisionedThroughput {
        units,
        ..ProvisionedThroughput::default()
    }
}

/// The limits of a table or index; None if none is set.
pub(super) fn on_demand(on_demand: Option<&shapes::OnDemandThroughput>) -> Option<OnDemandThroughput> {
    let on_demand = on_demand?;
    let units = |units: Option<Long>| units.map(|Long(units)| units);
    let limits = OnDemandThroughput {
        read_units_max: units(on_demand.read),
        write_units_max: units(on_demand.write),
    };
    (limits != OnDemandThroughput::default()).then_some(limits)
}

/// The warm throughput of a request.
pub(super) fn warm(warm: Option<&shapes::WarmThroughput>) -> Option<Throughput> {
    let warm = warm?;
    let units = |units: Option<Long>| units.map_or(0, |Long(units)| units);
    Some(Throughput {
        read_units: units(warm.read),
        write_units: units(warm.write),
    })
}

/// The rules for the key of a table or of a local secondary index.
pub(super) fn check_structure(schema: &KeySchema) -> Result<(), Error> {
    match schema.0.as_slice() {
        [first, ..] if first.key_type != KeyType::Hash => Err(Error::validation(
            "Invalid KeySchema: The first KeySchemaElement is not a HASH key type",
        )),
        [first, second] if first.name == second.name => Err(Error::validation(
            "Both the Hash Key and the Range Key element in the KeySchema have the same name",
        )),
        [_, second] if second.key_type != KeyType::Range => Err(Error::validation(
            "Invalid KeySchema: The second KeySchemaElement is not a RANGE key type",
        )),
        _ => Ok(()),
    }
}

/// The rules for the key of a global secondary index: up to four attributes of each type, those of the partition key
/// first, each once.
fn check_global_structure(schema: &KeySchema) -> Result<(), Error> {
    if schema.0.len() <= 2 {
        // Two partition keys are allowed here.
        let both_hash = schema.0.iter().all(|element| element.key_type == KeyType::Hash);
        let distinct = schema.0.first().map(|one| &one.name) != schema.0.get(1).map(|two| &two.name);
        return if both_hash && distinct {
            Ok(())
        } else {
            check_structure(schema)
        };
    }
    if schema.0[0].key_type != KeyType::Hash {
        return check_structure(schema);
    }
    let hash = schema.all(KeyType::Hash).count();
    let range = schema.all(KeyType::Range).count();
    let sorted = schema.0[..hash].iter().all(|element| element.key_type == KeyType::Hash);
    if !sorted {
        return Err(Error::validation(
            "Invalid KeySchema: All HASH key elements must precede all RANGE key elements",
        ));
    }
    if hash > KEY_PARTS_MAX || range > KEY_PARTS_MAX {
        return Err(Error::validation(format!(
            "Invalid KeySchema: The number of HASH or RANGE key elements exceeds {KEY_PARTS_MAX}"
        )));
    }
    let names: BTreeSet<&str> = schema.0.iter().map(|element| element.name.as_str()).collect();
    if names.len() == schema.0.len() {
        Ok(())
    } else {
        Err(Error::validation(
            "Invalid KeySchema: Some key attributes have the same name",
        ))
    }
}

/// Names in the order in which the service lists them: that of a hash table of its language, with the buckets of
/// `String.hashCode`. The table has as many buckets as names, or 16, and doubles when three quarters are used.
pub(super) fn hash_order<'a>(names: impl Iterator<Item = &'a str>, sized: bool) -> Vec<&'a str> {
    let mut unique: Vec<&str> = Vec::new();
    for name in names {
        if !unique.contains(&name) {
            unique.push(name);
        }
        stdx::preempt::point();
    }
    let mut buckets = if sized {
        unique.len().max(1).next_power_of_two()
    } else {
        16
    };
    while unique.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    let bucket = |name: &&str| {
        let add = |hash: u32, unit: u16| hash.wrapping_mul(31).wrapping_add(u32::from(unit));
        let hash = name.encode_utf16().fold(0, add);
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    };
    unique.sort_by_key(bucket);
    unique
}

/// Checks that the key attributes of an index are defined.
pub(super) fn check_defined(schema: &KeySchema, definitions: &[AttributeDefinition]) -> Result<(), Error> {
    let keys = || schema.0.iter().map(|element| element.name.as_str());
    let defined = || definitions.iter().map(|definition| definition.name.as_str());
    if keys().all(|key| defined().any(|name| name == key)) {
        return Ok(());
    }
    let keys = hash_order(keys(), true);
    if definitions.len() < keys.len() {
        return Err(Error::validation(
            "Invalid KeySchema: Some index key attribute have no definition",
        ));
    }
    Err(invalid(format!(
        "Some index key attributes are not defined in AttributeDefinitions. Keys: [{}], AttributeDefinitions: [{}]",
        keys.join(", "),
        hash_order(defined(), true).join(", ")
    )))
}

/// Fails if a name is there twice.
pub(super) fn check_duplicates<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(invalid(format!("Duplicate index name: {name}")));
        }
    }
    Ok(())
}

/// Converts and checks the local secondary indexes of a new table.
pub(super) fn local_indexes(
    list: Vec<shapes::LocalSecondaryIndex>,
    table: &KeySchema,
    definitions: &[AttributeDefinition],
) -> Result<Vec<LocalIndex>, Error> {
    if table.sort().is_none() {
        return Err(invalid(
            "Table KeySchema does not have a range key, which is required when specifying a LocalSecondaryIndex",
        ));
    }
    let keyed: Vec<_> = (list.into_iter())
        .map(|index| (text(index.name), key_schema(index.key_schema), index.projection))
        .collect();
    for (_, schema, _) in &keyed {
        check_defined(schema, definitions)?;
    }
    let mut indexes = Vec::with_capacity(keyed.len());
    for (name, key_schema, raw) in keyed {
        check_structure(&key_schema)?;
        if key_schema.sort().is_none() {
            return Err(invalid(format!(
                "Index KeySchema does not have a range key for index: {name}"
            )));
        }
        if key_schema.partition() != table.partition() {
            return Err(invalid(format!(
                "Index KeySchema does not have the same leading hash key as table KeySchema for index: {name}. index \
                 hash key: {}, table hash key: {}",
                key_schema.partition(),
                table.partition()
            )));
        }
        let projection = projection(raw)?;
        indexes.push(LocalIndex {
            name,
            key_schema,
            projection,
        });
    }
    check_duplicates(indexes.iter().map(|index| index.name.as_str()))?;
    if indexes.len() > LOCAL_INDEXES_MAX {
        Err(invalid("Number of LocalSecondaryIndexes exceeds per-table limit of 5"))
    } else {
        Ok(indexes)
    }
}

/// Converts and checks one global secondary index.
pub(super) fn global_index(
    index: shapes::GlobalSecondaryIndex,
    definitions: &[AttributeDefinition],
) -> Result<GlobalIndex, Error> {
    let key_schema = key_schema(index.key_schema);
    check_defined(&key_schema, definitions)?;
    check_global_structure(&key_schema)?;
    Ok(GlobalIndex {
        name: text(index.name),
        key_schema,
        projection: projection(index.projection)?,
        throughput: throughput(index.throughput.as_ref()),
        on_demand: on_demand(index.on_demand.as_ref()),
        warm: warm(index.warm.as_ref()),
    })
}

/// Converts and checks the global secondary indexes of a new table.
pub(super) fn global_indexes(
    list: Vec<shapes::GlobalSecondaryIndex>,
    definitions: &[AttributeDefinition],
    billing: BillingMode,
) -> Result<Vec<GlobalIndex>, Error> {
    for index in &list {
        check_defined(&key_schema(index.key_schema.clone()), definitions)?;
    }
    let with_throughput = list.iter().find(|index| index.throughput.is_some());
    let with_throughput = with_throughput.map(|index| text(index.name.clone()));
    let mut indexes = Vec::with_capacity(list.len());
    for index in list {
        indexes.push(global_index(index, definitions)?);
    }
    check_duplicates(indexes.iter().map(|index| index.name.as_str()))?;
    if indexes.len() > GLOBAL_INDEXES_MAX {
        return Err(invalid("GlobalSecondaryIndex count exceeds the per-table limit of 20"));
    }
    match with_throughput {
        Some(name) if billing == BillingMode::PayPerRequest => Err(invalid(format!(
            "ProvisionedThroughput should not be specified for index: {name} when BillingMode is PAY_PER_REQUEST"
        ))),
        _ => Ok(indexes),
    }
}

/// Converts and checks one vector index.
pub(super) fn vector_index(
    index: shapes::VectorIndex,
    definitions: &[AttributeDefinition],
) -> Result<VectorIndex, Error> {
    let dimensions = index.dimensions.map_or(0, |Long(dimensions)| dimensions);
    if !(1..=DIMENSIONS_MAX).contains(&dimensions) {
        return Err(invalid("Number of dimensions must be between 1 and 4096 inclusive."));
    }
    let projection = projection(index.projection)?;
    let element = |element: shapes::SearchSchemaElement| {
        let element_type = word(element.element_type.as_ref())?;
        Some((text(element.name), element_type))
    };
    let search_schema: Vec<(String, SearchSchemaType)> =
        elements(index.search_schema).into_iter().filter_map(element).collect();
    let is_defined = |name: &str| definitions.iter().any(|definition| definition.name == name);
    if !search_schema.iter().all(|(name, _)| is_defined(name)) {
        return Err(invalid(
            "One element in SearchSchema is not defined in attribute definitions",
        ));
    }
    let hashes = search_schema.iter().filter(|(_, kind)| *kind == SearchSchemaType::Hash);
    let hashes = hashes.count();
    if hashes > 1 {
        return Err(invalid(format!(
            "Value '{hashes}' at 'SearchSchema' failed to satisfy constraint: Member must have HASH count less than or \
             equal to 1"
        )));
    }
    let names: BTreeSet<&str> = search_schema.iter().map(|(name, _)| name.as_str()).collect();
    if names.len() < search_schema.len() {
        return Err(invalid("SearchSchema contains a duplicate AttributeName"));
    }
    Ok(VectorIndex {
        name: text(index.name),
        vector_attribute: text(index.attribute.and_then(|attribute| attribute.name)),
        dimensions: u32::try_from(dimensions).unwrap_or(u32::MAX),
        distance: word(index.distance.as_ref()).unwrap_or(DistanceFunction::Cosine),
        search_schema,
        projection,
    })
}

/// Converts and checks the vector indexes of a new table.
pub(super) fn vector_indexes(
    list: Vec<shapes::VectorIndex>,
    definitions: &[AttributeDefinition],
    billing: BillingMode,
) -> Result<Vec<VectorIndex>, Error> {
    if billing != BillingMode::PayPerRequest {
        return Err(invalid("Vector indexes are only supported for PAY_PER_REQUEST tables"));
    }
    let mut indexes = Vec::with_capacity(list.len());
    for index in list {
        indexes.push(vector_index(index, definitions)?);
    }
    check_duplicates(indexes.iter().map(|index| index.name.as_str()))?;
    if indexes.len() > VECTOR_INDEXES_MAX {
        return Err(invalid("VectorIndex count exceeds the per-table limit of 5"));
    }
    check_vector_attributes(&indexes, definitions)?;
    Ok(indexes)
}

/// Checks that indexes on one attribute have the same dimensions, and that the attribute is part of no key.
pub(super) fn check_vector_attributes(
    indexes: &[VectorIndex],
    definitions: &[AttributeDefinition],
) -> Result<(), Error> {
    for (number, index) in indexes.iter().enumerate() {
        let name = &index.vector_attribute;
        let differs =
            |earlier: &VectorIndex| earlier.vector_attribute == *name && earlier.dimensions != index.dimensions;
        if indexes[..number].iter().any(differs) {
            return Err(invalid(format!(
                "Conflicting attribute definition for '{name}'. All VectorIndexes on the same vector attribute must \
                 use the same dimensions."
            )));
        }
    }
    for index in indexes {
        let name = &index.vector_attribute;
        if definitions.iter().any(|definition| definition.name == *name) {
            return Err(invalid(format!(
                "Conflicting attribute definition for '{name}'. An attribute cannot be defined in \
                 AttributeDefinitions when used as a VectorAttribute."
            )));
        }
    }
    Ok(())
}
