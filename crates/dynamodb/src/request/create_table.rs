//! CreateTable.

use super::constraints::{Constraints, Words};
use super::indexes::{self, invalid};
use super::json::{Flag, List, Long, Text, structure};
use super::names;
use super::shapes::{self, elements, text};
use crate::arn::TableReference;
use crate::error::Error;
use crate::table::{
    AttributeDefinition, BillingMode, GlobalIndex, KeySchema, LocalIndex, OnDemandThroughput, ProvisionedThroughput,
    SseDefinition, SseType, StreamDefinition, StreamViewType, TableClass, TableDefinition, Tag, Throughput,
    VectorIndex,
};

/// Capacity units that a table can be given, at most.
const UNITS_MAX: i64 = 1_000_000_000_000;

structure! {
    /// The body of CreateTable.
    pub(crate) struct CreateTableInput {
        table_name: Text = "TableName",
        key_schema: List<shapes::KeySchemaElement> = "KeySchema",
        attributes: List<shapes::AttributeDefinition> = "AttributeDefinitions",
        global_indexes: List<shapes::GlobalSecondaryIndex> = "GlobalSecondaryIndexes",
        local_indexes: List<shapes::LocalSecondaryIndex> = "LocalSecondaryIndexes",
        vector_indexes: List<shapes::VectorIndex> = "VectorIndexes",
        billing_mode: Text = "BillingMode",
        throughput: shapes::ProvisionedThroughput = "ProvisionedThroughput",
        stream: shapes::StreamSpecification = "StreamSpecification",
        sse: shapes::SSESpecification = "SSESpecification",
        tags: List<shapes::Tag> = "Tags",
        table_class: Text = "TableClass",
        deletion_protection: Flag = "DeletionProtectionEnabled",
        on_demand: shapes::OnDemandThroughput = "OnDemandThroughput",
        warm: shapes::WarmThroughput = "WarmThroughput",
        resource_policy: Text = "ResourcePolicy",
        source_arn: Text = "GlobalTableSourceArn",
    }
}

/// Creates a table.
#[derive(Clone, PartialEq, Debug)]
pub struct CreateTable {
    /// The table.
    pub table: TableReference,
    /// Its key.
    pub key_schema: KeySchema,
    /// The types of the attributes of keys.
    pub attributes: Vec<AttributeDefinition>,
    /// Global secondary indexes.
    pub global_indexes: Vec<GlobalIndex>,
    /// Local secondary indexes.
    pub local_indexes: Vec<LocalIndex>,
    /// Vector indexes.
    pub vector_indexes: Vec<VectorIndex>,
    /// How it is billed.
    pub billing_mode: BillingMode,
    /// The throughput, zeros if it is billed by request.
    pub throughput: ProvisionedThroughput,
    /// Limits if it is billed by request.
    pub on_demand: Option<OnDemandThroughput>,
    /// The throughput that it must bear at once.
    pub warm: Option<Throughput>,
    /// Its stream's records.
    pub stream: Option<StreamViewType>,
    /// Encryption at rest.
    pub sse: Option<SseDefinition>,
    /// Labels, sorted by key.
    pub tags: Vec<Tag>,
    /// The storage class, if named.
    pub table_class: Option<TableClass>,
    /// Whether DeleteTable is refused.
    pub deletion_protection: bool,
    /// A resource policy, which a server without policies refuses.
    pub resource_policy: Option<String>,
}

impl CreateTable {
    /// The definition of the table that is created at a time, in milliseconds since 1970, with an id.
    pub fn into_definition(self, id: String, now_ms: i64) -> TableDefinition {
        let name = self.table.name().to_owned();
        TableDefinition {
            billing_mode: self.billing_mode,
            throughput: self.throughput,
            on_demand: self.on_demand,
            warm: self.warm,
            deletion_protection: self.deletion_protection,
            table_class: self.table_class,
            sse: self.sse,
            tags: self.tags,
            stream: self.stream.map(|view_type| StreamDefinition {
                view_type,
                enabled_ms: now_ms,
            }),
            global_indexes: self.global_indexes,
            local_indexes: self.local_indexes,
            vector_indexes: self.vector_indexes,
            ..TableDefinition::new(name, id, now_ms, self.attributes, self.key_schema)
        }
    }
}

/// Refuses lists that are too long to be looked at.
fn check_lists(input: &CreateTableInput) -> Result<(), Error> {
    indexes::check_list(input.attributes.as_ref(), "AttributeDefinitions")?;
    indexes::check_list(input.global_indexes.as_ref(), "GlobalSecondaryIndexes")?;
    indexes::check_list(input.local_indexes.as_ref(), "LocalSecondaryIndexes")?;
    indexes::check_list(input.vector_indexes.as_ref(), "VectorIndexes")
}

/// Checks the constraints on single members.
fn check_members(input: &CreateTableInput) -> Result<(), Error> {
    let mut errors = Constraints::default();
    errors.word::<BillingMode>(input.billing_mode.as_ref(), "billingMode");
    indexes::check_throughput(input.throughput.as_ref(), "provisionedThroughput", &mut errors);
    indexes::check_key_schema(input.key_schema.as_ref(), "keySchema", 2, &mut errors);
    indexes::check_key_elements(input.key_schema.as_ref(), "keySchema", &mut errors);
    match &input.attributes {
        None => errors.null("attributeDefinitions"),
        Some(List(definitions)) => indexes::check_definitions(definitions, &mut errors),
    }
    indexes::check_each(
        input.global_indexes.as_ref(),
        "globalSecondaryIndexes",
        &mut errors,
        indexes::check_global,
    );
    indexes::check_each(
        input.local_indexes.as_ref(),
        "localSecondaryIndexes",
        &mut errors,
        indexes::check_local,
    );
    indexes::check_each(
        input.vector_indexes.as_ref(),
        "vectorIndexes",
        &mut errors,
        indexes::check_vector,
    );
    errors.finish()
}

/// Checks the throughput against the billing mode.
fn check_billing(input: &CreateTableInput, billing: BillingMode) -> Result<(), Error> {
    if billing == BillingMode::PayPerRequest && input.throughput.is_some() {
        return Err(invalid(
            "Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST",
        ));
    }
    check_units(input.throughput.as_ref())?;
    if input.billing_mode.is_some() && billing == BillingMode::Provisioned && input.throughput.is_none() {
        return Err(invalid(
            "ReadCapacityUnits and WriteCapacityUnits must both be specified when BillingMode is PROVISIONED",
        ));
    }
    Ok(())
}

/// Checks capacity units against their bound.
pub(super) fn check_units(throughput: Option<&shapes::ProvisionedThroughput>) -> Result<(), Error> {
    let Some(throughput) = throughput else {
        return Ok(());
    };
    for (units, name) in [
        (throughput.read, "ReadCapacityUnits"),
        (throughput.write, "WriteCapacityUnits"),
    ] {
        if let Some(Long(units)) = units
            && units > UNITS_MAX
        {
            return Err(Error::validation(format!(
                "Given value {units} for {name} is out of bounds"
            )));
        }
    }
    Ok(())
}

/// Checks that the attributes of the table's key are defined.
fn check_key_defined(schema: &KeySchema, definitions: &[AttributeDefinition]) -> Result<(), Error> {
    let is_defined = |name: &str| definitions.iter().any(|definition| definition.name == name);
    let undefined = || Error::validation("Invalid KeySchema: Some index key attribute have no definition");
    match schema.0.as_slice() {
        [only] if !is_defined(&only.name) && !definitions.is_empty() => indexes::check_defined(schema, definitions),
        [one, two] if one.name == two.name => Err(undefined()),
        elements if elements.iter().all(|element| is_defined(&element.name)) => Ok(()),
        _ => Err(undefined()),
    }
}

/// Checks that each definition is used by a key.
fn check_all_used(request: &CreateTable) -> Result<(), Error> {
    let local = request.local_indexes.iter().flat_map(|index| &index.key_schema.0);
    let global = request.global_indexes.iter().flat_map(|index| &index.key_schema.0);
    let elements = request.key_schema.0.iter().chain(local).chain(global);
    let searched = request.vector_indexes.iter().flat_map(|index| &index.search_schema);
    let used: Vec<&str> = (elements.map(|element| element.name.as_str()))
        .chain(searched.map(|(name, _)| name.as_str()))
        .collect();
    let used = indexes::hash_order(used.into_iter(), false);
    if used.len() == request.attributes.len() {
        return Ok(());
    }
    if request.local_indexes.is_empty() && request.global_indexes.is_empty() {
        return Err(invalid(
            "Number of attributes in KeySchema does not exactly match number of attributes defined in \
             AttributeDefinitions",
        ));
    }
    let defined = request.attributes.iter().map(|definition| definition.name.as_str());
    Err(invalid(format!(
        "Some AttributeDefinitions are not used. AttributeDefinitions: [{}], keys used: [{}]",
        indexes::hash_order(defined, true).join(", "),
        used.join(", ")
    )))
}

fn check_empty_lists(input: &CreateTableInput) -> Result<(), Error> {
    let local = input.local_indexes.as_ref().is_some_and(|list| list.0.is_empty());
    let global = input.global_indexes.as_ref().is_some_and(|list| list.0.is_empty());
    let vector = input.vector_indexes.as_ref().is_some_and(|list| list.0.is_empty());
    for (is_empty, name) in [
        (local, "LocalSecondaryIndexes"),
        (global, "GlobalSecondaryIndexes"),
        (vector, "VectorIndexes"),
    ] {
        if is_empty {
            return Err(invalid(format!("List of {name} is empty")));
        }
    }
    Ok(())
}

/// The records of a stream, if one is enabled.
fn stream(specification: Option<shapes::StreamSpecification>) -> Result<Option<StreamViewType>, Error> {
    let Some(specification) = specification else {
        return Ok(None);
    };
    let enabled = specification.enabled.is_some_and(|Flag(enabled)| enabled);
    let view_type = specification.view_type.as_ref();
    let view_type = view_type.and_then(|Text(word)| StreamViewType::from_word(word));
    match (enabled, view_type) {
        (false, None) => Ok(None),
        (false, Some(_)) => Err(invalid(
            "Table is being created with a stream disabled, UpdateViewType should not be specified",
        )),
        (true, view_type) => Ok(Some(view_type.unwrap_or(StreamViewType::NewAndOldImages))),
    }
}

/// Encryption at rest; None for the default.
pub(super) fn sse(specification: Option<shapes::SSESpecification>) -> Option<SseDefinition> {
    let specification = specification?;
    specification.enabled.filter(|Flag(enabled)| *enabled)?;
    let sse_type = specification.sse_type.as_ref();
    let sse_type = sse_type.and_then(|Text(word)| SseType::from_word(word));
    Some(SseDefinition {
        sse_type: sse_type.unwrap_or(SseType::Kms),
        key: specification.key.map(|Text(key)| key),
    })
}

/// Checks the words that the service checks after the keys and indexes, and the limits of a table that is billed by
/// request.
fn check_late(input: &CreateTableInput, billing: BillingMode) -> Result<(), Error> {
    let mut errors = Constraints::default();
    errors.word::<TableClass>(input.table_class.as_ref(), "tableClass");
    if let Some(stream) = &input.stream {
        errors.word::<StreamViewType>(stream.view_type.as_ref(), "streamSpecification.streamViewType");
    }
    if let Some(sse) = &input.sse {
        errors.word::<SseType>(sse.sse_type.as_ref(), "sSESpecification.sSEType");
    }
    errors.finish()?;
    let Some(on_demand) = indexes::on_demand(input.on_demand.as_ref()) else {
        return Ok(());
    };
    let members = [
        ("MaxReadRequestUnits", on_demand.read_units_max),
        ("MaxWriteRequestUnits", on_demand.write_units_max),
    ];
    for (member, units) in members {
        if units.is_some() && billing == BillingMode::Provisioned {
            return Err(invalid(format!(
                "{member} for OnDemandThroughput cannot be specified when table BillingMode is PROVISIONED."
            )));
        }
    }
    for (member, units) in members {
        if units.is_some_and(|units| units < 1) {
            return Err(invalid(format!(
                "Requested {member} for OnDemandThroughput for table is outside of valid range"
            )));
        }
    }
    Ok(())
}

/// Makes the request of its body.
pub(super) fn create_table(input: CreateTableInput) -> Result<CreateTable, Error> {
    let table = names::for_creation(input.table_name.clone())?;
    check_lists(&input)?;
    check_members(&input)?;
    let billing = input.billing_mode.as_ref();
    let billing = billing.and_then(|Text(word)| BillingMode::from_word(word));
    let billing = billing.unwrap_or(BillingMode::Provisioned);
    check_billing(&input, billing)?;
    let key_schema = indexes::key_schema(input.key_schema.clone());
    let attributes = indexes::definitions(input.attributes.clone());
    check_key_defined(&key_schema, &attributes)?;
    indexes::check_structure(&key_schema)?;
    check_empty_lists(&input)?;
    let local_indexes = match input.local_indexes.clone() {
        None => Vec::new(),
        Some(List(list)) => indexes::local_indexes(list, &key_schema, &attributes)?,
    };
    let global_indexes = match input.global_indexes.clone() {
        None => Vec::new(),
        Some(List(list)) => indexes::global_indexes(list, &attributes, billing)?,
    };
    let vector_indexes = match input.vector_indexes.clone() {
        None => Vec::new(),
        Some(List(list)) => indexes::vector_indexes(list, &attributes, billing)?,
    };
    let mut request = CreateTable {
        table,
        key_schema,
        attributes,
        global_indexes,
        local_indexes,
        vector_indexes,
        billing_mode: billing,
        throughput: indexes::throughput(input.throughput.as_ref()),
        on_demand: indexes::on_demand(input.on_demand.as_ref()),
        warm: indexes::warm(input.warm.as_ref()),
        stream: None,
        sse: sse(input.sse.clone()),
        tags: Vec::new(),
        table_class: input
            .table_class
            .as_ref()
            .and_then(|Text(word)| TableClass::from_word(word)),
        deletion_protection: input.deletion_protection.is_some_and(|Flag(on)| on),
        resource_policy: input.resource_policy.clone().map(|Text(policy)| policy),
    };
    check_names(&request)?;
    check_all_used(&request)?;
    request.stream = stream(input.stream.clone())?;
    check_late(&input, billing)?;
    request.tags = super::admin::tags(elements(input.tags))?;
    if let Some(source) = input.source_arn {
        return Err(invalid(format!(
            "GlobalTableSourceArn is not supported: {}",
            text(Some(source))
        )));
    }
    Ok(request)
}

/// All indexes of a table share one space of names.
fn check_names(request: &CreateTable) -> Result<(), Error> {
    let local = request.local_indexes.iter().map(|index| index.name.as_str());
    let global = request.global_indexes.iter().map(|index| index.name.as_str());
    let vector = request.vector_indexes.iter().map(|index| index.name.as_str());
    indexes::check_duplicates(local.chain(global).chain(vector))
}
