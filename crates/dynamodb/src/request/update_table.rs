//! UpdateTable: what is asked, and the definition that follows from it.

use std::collections::BTreeSet;

use super::constraints::{Constraints, Words};
use super::create_table::{check_units, sse};
use super::indexes::{self, invalid};
use super::json::{Flag, List, Text, structure};
use super::names;
use super::shapes::{self, elements, text};
use crate::arn::TableReference;
use crate::error::{Error, ErrorKind};
use crate::table::{
    AttributeDefinition, BillingMode, GlobalIndex, OnDemandThroughput, ProvisionedThroughput, SseDefinition,
    StreamDefinition, StreamViewType, TableClass, TableDefinition, Throughput, VectorIndex,
};

/// Changes of indexes in one request.
const INDEX_UPDATES_MAX: usize = 5;
const ONE_INDEX: &str =
    "Subscriber limit exceeded: Only 1 online index can be created or deleted simultaneously per table";
/// Milliseconds of a day, for the number of decreases of a throughput.
const DAY_MS: i64 = 86_400_000;

structure! {
    /// The body of UpdateTable.
    pub(crate) struct UpdateTableInput {
        table_name: Text = "TableName",
        attributes: List<shapes::AttributeDefinition> = "AttributeDefinitions",
        billing_mode: Text = "BillingMode",
        throughput: shapes::ProvisionedThroughput = "ProvisionedThroughput",
        global_updates: List<shapes::GlobalSecondaryIndexUpdate> = "GlobalSecondaryIndexUpdates",
        vector_updates: List<shapes::VectorIndexUpdate> = "VectorIndexUpdates",
        stream: shapes::StreamSpecification = "StreamSpecification",
        sse: shapes::SSESpecification = "SSESpecification",
        replica_updates: List<shapes::Opaque> = "ReplicaUpdates",
        table_class: Text = "TableClass",
        deletion_protection: Flag = "DeletionProtectionEnabled",
        on_demand: shapes::OnDemandThroughput = "OnDemandThroughput",
        warm: shapes::WarmThroughput = "WarmThroughput",
    }
}

/// Changes a table.
#[derive(Clone, PartialEq, Debug)]
pub struct UpdateTable {
    /// The table.
    pub table: TableReference,
    /// The types of the attributes of new keys.
    pub attributes: Vec<AttributeDefinition>,
    /// How it is to be billed.
    pub billing_mode: Option<BillingMode>,
    /// The new throughput.
    pub throughput: Option<Throughput>,
    /// The new limits; −1 removes one.
    pub on_demand: Option<OnDemandThroughput>,
    /// The throughput that it must bear at once.
    pub warm: Option<Throughput>,
    /// Changes of indexes, in order.
    pub index_updates: Vec<IndexUpdate>,
    /// The records of the stream that is enabled, or None within Some to disable it.
    pub stream: Option<Option<StreamViewType>>,
    /// Encryption at rest, None within Some for the default.
    pub sse: Option<Option<SseDefinition>>,
    /// The storage class.
    pub table_class: Option<TableClass>,
    /// Whether DeleteTable is refused.
    pub deletion_protection: Option<bool>,
    /// Whether replicas in other regions are changed, which a server without global tables refuses.
    pub has_replica_updates: bool,
}

/// One change of an index.
#[derive(Clone, PartialEq, Debug)]
pub enum IndexUpdate {
    /// A global secondary index is added.
    CreateGlobal(Box<GlobalIndex>),
    /// The throughput or limits of one change.
    UpdateGlobal {
        /// Its name.
        name: String,
        /// The throughput.
        throughput: Option<Throughput>,
        /// The limits.
        on_demand: Option<OnDemandThroughput>,
        /// The throughput that it must bear at once.
        warm: Option<Throughput>,
    },
    /// One is deleted.
    DeleteGlobal(String),
    /// A vector index is added.
    CreateVector(Box<VectorIndex>),
    /// One is deleted.
    DeleteVector(String),
}

fn check_delete(action: &shapes::DeleteIndexAction, at: &str, errors: &mut Constraints) {
    indexes::check_name(action.name.as_ref(), at, errors);
}

/// Checks the members of changes of indexes.
fn check_members(input: &UpdateTableInput) -> Result<(), Error> {
    let mut errors = Constraints::default();
    indexes::check_throughput(input.throughput.as_ref(), "provisionedThroughput", &mut errors);
    indexes::check_each(
        input.global_updates.as_ref(),
        "globalSecondaryIndexUpdates",
        &mut errors,
        |change, at, errors| {
            if let Some(update) = &change.update {
                let at = format!("{at}.update");
                indexes::check_name(update.name.as_ref(), &at, errors);
                let at = format!("{at}.provisionedThroughput");
                indexes::check_throughput(update.throughput.as_ref(), &at, errors);
            }
            if let Some(create) = &change.create {
                indexes::check_global(create, &format!("{at}.create"), errors);
            }
            if let Some(delete) = &change.delete {
                check_delete(delete, &format!("{at}.delete"), errors);
            }
        },
    );
    indexes::check_each(
        input.vector_updates.as_ref(),
        "vectorIndexUpdates",
        &mut errors,
        |change, at, errors| {
            if let Some(create) = &change.create {
                indexes::check_vector(create, &format!("{at}.create"), errors);
            }
            if let Some(delete) = &change.delete {
                check_delete(delete, &format!("{at}.delete"), errors);
            }
        },
    );
    let definitions = input.attributes.as_ref().map_or(&[][..], |List(list)| list);
    indexes::check_definitions(definitions, &mut errors);
    errors.finish()?;
    let mut errors = Constraints::default();
    errors.word::<BillingMode>(input.billing_mode.as_ref(), "billingMode");
    errors.word::<TableClass>(input.table_class.as_ref(), "tableClass");
    if let Some(stream) = &input.stream {
        errors.word::<StreamViewType>(stream.view_type.as_ref(), "streamSpecification.streamViewType");
    }
    errors.finish()
}

/// Checks that the request changes something, and each index once.
fn check_changes(input: &UpdateTableInput) -> Result<(), Error> {
    let is_there = |is_there: bool| usize::from(is_there);
    let global = input.global_updates.as_ref().map_or(&[][..], |List(list)| list);
    let vector = input.vector_updates.as_ref().map_or(&[][..], |List(list)| list);
    let changes = is_there(input.throughput.is_some())
        + is_there(input.billing_mode.is_some())
        + is_there(input.stream.is_some())
        + is_there(input.sse.is_some())
        + is_there(input.deletion_protection.is_some())
        + is_there(input.table_class.is_some())
        + is_there(input.on_demand.is_some())
        + is_there(input.warm.is_some())
        + is_there(input.replica_updates.is_some())
        + global.len()
        + vector.len();
    if changes == 0 {
        return Err(Error::validation(
            "At least one of ProvisionedThroughput, BillingMode, UpdateStreamEnabled, GlobalSecondaryIndexUpdates or \
             SSESpecification or ReplicaUpdates is required",
        ));
    }
    let name = |change: &shapes::GlobalSecondaryIndexUpdate| {
        let name = (change.update.as_ref().map(|update| &update.name))
            .or(change.create.as_ref().map(|create| &create.name))
            .or(change.delete.as_ref().map(|delete| &delete.name))?;
        Some(text(name.clone()))
    };
    let mut names = Vec::with_capacity(global.len());
    for change in global {
        names.push(name(change).ok_or_else(|| {
            invalid(
                "One of GlobalSecondaryIndexUpdate.Update, GlobalSecondaryIndexUpdate.Create, \
                 GlobalSecondaryIndexUpdate.Delete must not be null",
            )
        })?);
    }
    let mut seen = BTreeSet::new();
    for name in &names {
        if !seen.insert(name) {
            return Err(invalid(format!(
                "Only one global secondary index update per index is allowed simultaneously. Index: {name}"
            )));
        }
    }
    Ok(())
}

/// Converts the changes of indexes.
fn index_updates(input: &mut UpdateTableInput, definitions: &[AttributeDefinition]) -> Result<Vec<IndexUpdate>, Error> {
    let units = |throughput: &shapes::ProvisionedThroughput| indexes::throughput(Some(throughput)).units;
    let mut updates = Vec::new();
    for change in elements(input.global_updates.take()) {
        if let Some(update) = change.update {
            updates.push(IndexUpdate::UpdateGlobal {
                name: text(update.name),
                throughput: update.throughput.as_ref().map(units),
                on_demand: indexes::on_demand(update.on_demand.as_ref()),
                warm: indexes::warm(update.warm.as_ref()),
            });
        }
        if let Some(create) = change.create {
            let index = indexes::global_index(create, definitions)?;
            updates.push(IndexUpdate::CreateGlobal(Box::new(index)));
        }
        if let Some(delete) = change.delete {
            updates.push(IndexUpdate::DeleteGlobal(text(delete.name)));
        }
    }
    for change in elements(input.vector_updates.take()) {
        if let Some(create) = change.create {
            let index = indexes::vector_index(create, definitions)?;
            updates.push(IndexUpdate::CreateVector(Box::new(index)));
        }
        if let Some(delete) = change.delete {
            updates.push(IndexUpdate::DeleteVector(text(delete.name)));
        }
    }
    Ok(updates)
}

pub(super) fn update_table(mut input: UpdateTableInput) -> Result<UpdateTable, Error> {
    let table = names::for_administration(input.table_name.take())?;
    indexes::check_list(input.attributes.as_ref(), "AttributeDefinitions")?;
    indexes::check_list(input.global_updates.as_ref(), "GlobalSecondaryIndexUpdates")?;
    indexes::check_list(input.vector_updates.as_ref(), "VectorIndexUpdates")?;
    check_members(&input)?;
    let billing_mode = input.billing_mode.as_ref();
    let billing_mode = billing_mode.and_then(|Text(word)| BillingMode::from_word(word));
    if billing_mode == Some(BillingMode::PayPerRequest) && input.throughput.is_some() {
        return Err(both_billings());
    }
    check_units(input.throughput.as_ref())?;
    check_changes(&input)?;
    let global = input.global_updates.as_ref().map_or(0, |List(list)| list.len());
    if global > INDEX_UPDATES_MAX {
        return Err(Error::new(ErrorKind::LimitExceeded, ONE_INDEX));
    }
    let attributes = indexes::definitions(input.attributes.take());
    let index_updates = index_updates(&mut input, &attributes)?;
    let stream = input.stream.map(|stream| {
        stream.enabled.filter(|Flag(enabled)| *enabled)?;
        let view_type = stream.view_type.as_ref();
        let view_type = view_type.and_then(|Text(word)| StreamViewType::from_word(word));
        Some(view_type.unwrap_or(StreamViewType::NewAndOldImages))
    });
    Ok(UpdateTable {
        table,
        attributes,
        billing_mode,
        throughput: (input.throughput.as_ref()).map(|throughput| indexes::throughput(Some(throughput)).units),
        on_demand: indexes::on_demand(input.on_demand.as_ref()),
        warm: indexes::warm(input.warm.as_ref()),
        index_updates,
        stream,
        sse: input.sse.map(|specification| sse(Some(specification))),
        table_class: input
            .table_class
            .as_ref()
            .and_then(|Text(word)| TableClass::from_word(word)),
        deletion_protection: input.deletion_protection.map(|Flag(on)| on),
        has_replica_updates: input.replica_updates.is_some(),
    })
}

fn both_billings() -> Error {
    invalid("Neither ReadCapacityUnits nor WriteCapacityUnits can be specified when BillingMode is PAY_PER_REQUEST")
}

impl UpdateTable {
    /// The definition of the table after the change, which happens at `now_ms` (milliseconds since 1970).
    ///
    /// # Errors
    /// A ValidationException, ResourceNotFoundException or LimitExceededException if the table cannot be changed so.
    pub fn apply(&self, table: &TableDefinition, now_ms: i64) -> Result<TableDefinition, Error> {
        let mut after = table.clone();
        self.apply_billing(table, &mut after, now_ms)?;
        self.apply_limits(&mut after)?;
        for definition in &self.attributes {
            match after.attributes.iter().find(|known| known.name == definition.name) {
                None => after.attributes.push(definition.clone()),
                Some(known) if known.scalar_type == definition.scalar_type => {}
                Some(_) => {
                    return Err(invalid(format!(
                        "Attributes cannot be redefined. Please check that your attribute has the same type as \
                         previously defined: {}",
                        definition.name
                    )));
                }
            }
        }
        for update in &self.index_updates {
            apply_index(update, &mut after)?;
        }
        drop_unused(&mut after);
        self.apply_stream(&mut after, now_ms)?;
        if let Some(sse) = &self.sse {
            after.sse.clone_from(sse);
        }
        after.table_class = self.table_class.or(after.table_class);
        after.deletion_protection = self.deletion_protection.unwrap_or(after.deletion_protection);
        after.warm = self.warm.or(after.warm);
        Ok(after)
    }

    fn apply_billing(&self, before: &TableDefinition, after: &mut TableDefinition, now_ms: i64) -> Result<(), Error> {
        let billing = self.billing_mode.unwrap_or(before.billing_mode);
        match (billing, self.throughput) {
            (BillingMode::PayPerRequest, Some(_)) => return Err(both_billings()),
            (BillingMode::Provisioned, None) if self.billing_mode.is_some() => {
                return Err(invalid(
                    "ProvisionedThroughput must be specified when BillingMode is PROVISIONED",
                ));
            }
            (BillingMode::Provisioned, _) if self.billing_mode.is_some() && !before.vector_indexes.is_empty() => {
                return Err(invalid("Tables with vector indexes must be in PAY_PER_REQUEST mode"));
            }
            _ => {}
        }
        after.billing_mode = billing;
        if billing == BillingMode::PayPerRequest && before.billing_mode != billing {
            after.pay_per_request_ms = Some(now_ms);
            after.throughput.units = Throughput::default();
            for index in &mut after.global_indexes {
                index.throughput.units = Throughput::default();
            }
        }
        let Some(units) = self.throughput else {
            return Ok(());
        };
        if units == before.throughput.units && billing == before.billing_mode {
            return Err(Error::validation(unchanged(before.throughput.units, units)));
        }
        change_throughput(&mut after.throughput, units, now_ms);
        Ok(())
    }

    fn apply_limits(&self, after: &mut TableDefinition) -> Result<(), Error> {
        let Some(limits) = self.on_demand else {
            return Ok(());
        };
        let members = [
            ("MaxReadRequestUnits", limits.read_units_max),
            ("MaxWriteRequestUnits", limits.write_units_max),
        ];
        for (member, units) in members {
            if units.is_some() && after.billing_mode == BillingMode::Provisioned {
                return Err(invalid(format!(
                    "{member} for OnDemandThroughput cannot be specified when the table BillingMode is PROVISIONED"
                )));
            }
        }
        for (member, units) in members {
            if units.is_some_and(|units| units == 0 || units < -1) {
                return Err(invalid(format!(
                    "Requested {member} for OnDemandThroughput for table is outside of valid range"
                )));
            }
        }
        after.on_demand = merge_limits(after.on_demand, limits);
        Ok(())
    }

    fn apply_stream(&self, after: &mut TableDefinition, now_ms: i64) -> Result<(), Error> {
        match (self.stream, &after.stream) {
            (None, _) => Ok(()),
            (Some(Some(_)), Some(_)) => Err(invalid("Table already has an enabled stream")),
            (Some(None), None) => Err(invalid("Table has no stream to disable")),
            (Some(view_type), _) => {
                after.stream = view_type.map(|view_type| StreamDefinition {
                    view_type,
                    enabled_ms: now_ms,
                });
                Ok(())
            }
        }
    }
}

fn unchanged(current: Throughput, requested: Throughput) -> String {
    format!(
        "The provisioned throughput for the table will not change. The requested value equals the current value. \
         Current ReadCapacityUnits provisioned for the table: {}. Requested ReadCapacityUnits: {}. Current \
         WriteCapacityUnits provisioned for the table: {}. Requested WriteCapacityUnits: {}. Refer to the Amazon \
         DynamoDB Developer Guide for current limits and how to request higher limits.",
        current.read_units, requested.read_units, current.write_units, requested.write_units
    )
}

/// Changes a throughput and notes when.
fn change_throughput(throughput: &mut ProvisionedThroughput, units: Throughput, now_ms: i64) {
    let before = throughput.units;
    if units.read_units > before.read_units || units.write_units > before.write_units {
        throughput.increased_ms = Some(now_ms);
    }
    if units.read_units < before.read_units || units.write_units < before.write_units {
        let day = |ms: i64| ms.div_euclid(DAY_MS);
        let is_same_day = throughput.decreased_ms.is_some_and(|ms| day(ms) == day(now_ms));
        throughput.decreases = if is_same_day { throughput.decreases + 1 } else { 1 };
        throughput.decreased_ms = Some(now_ms);
    }
    throughput.units = units;
}

/// Limits after a change: −1 removes one.
fn merge_limits(before: Option<OnDemandThroughput>, change: OnDemandThroughput) -> Option<OnDemandThroughput> {
    let before = before.unwrap_or_default();
    let merge = |before: Option<i64>, change: Option<i64>| change.or(before).filter(|units| *units != -1);
    let after = OnDemandThroughput {
        read_units_max: merge(before.read_units_max, change.read_units_max),
        write_units_max: merge(before.write_units_max, change.write_units_max),
    };
    (after != OnDemandThroughput::default()).then_some(after)
}

fn has_index(table: &TableDefinition, name: &str) -> bool {
    table.index(name).is_some() || table.vector_indexes.iter().any(|index| index.name == name)
}

fn apply_index(update: &IndexUpdate, table: &mut TableDefinition) -> Result<(), Error> {
    match update {
        IndexUpdate::CreateGlobal(index) => {
            if table.global_indexes.iter().any(|known| known.name == index.name) {
                return Err(invalid(format!("Index already exists: {}", index.name)));
            }
            if has_index(table, &index.name) {
                return Err(Error::validation("Attempting to create an index which already exists"));
            }
            if table.global_indexes.len() == indexes::GLOBAL_INDEXES_MAX {
                return Err(invalid("GlobalSecondaryIndex count exceeds the per-table limit of 20"));
            }
            table.global_indexes.push((**index).clone());
        }
        IndexUpdate::UpdateGlobal {
            name,
            throughput,
            on_demand,
            warm,
        } => {
            let known = table.global_indexes.iter_mut().find(|known| known.name == *name);
            let Some(known) = known else {
                return Err(Error::validation(
                    "This operation cannot be performed with given input values. Please contact DynamoDB service team \
                     for more info: Action Blocked: IndexUpdate",
                ));
            };
            known.throughput.units = throughput.unwrap_or(known.throughput.units);
            known.warm = warm.or(known.warm);
            if let Some(limits) = on_demand {
                known.on_demand = merge_limits(known.on_demand, *limits);
            }
        }
        IndexUpdate::DeleteGlobal(name) => {
            let before = table.global_indexes.len();
            table.global_indexes.retain(|known| known.name != *name);
            if table.global_indexes.len() == before {
                let text = format!("Requested resource not found: Table: {name} not found");
                return Err(Error::new(ErrorKind::ResourceNotFound, text));
            }
        }
        IndexUpdate::CreateVector(index) => return create_vector(index, table),
        IndexUpdate::DeleteVector(name) => {
            let before = table.vector_indexes.len();
            table.vector_indexes.retain(|known| known.name != *name);
            if table.vector_indexes.len() == before {
                let text = format!("Requested resource not found: Index {name} for table {}", table.name);
                return Err(Error::new(ErrorKind::ResourceNotFound, text));
            }
        }
    }
    Ok(())
}

fn create_vector(index: &VectorIndex, table: &mut TableDefinition) -> Result<(), Error> {
    if table.billing_mode != BillingMode::PayPerRequest {
        return Err(invalid("Vector indexes are only supported for PAY_PER_REQUEST tables"));
    }
    if has_index(table, &index.name) {
        return Err(Error::validation("Attempting to create an index which already exists"));
    }
    if table.vector_indexes.len() == indexes::VECTOR_INDEXES_MAX {
        return Err(invalid("VectorIndex count exceeds the per-table limit of 5"));
    }
    table.vector_indexes.push(index.clone());
    indexes::check_vector_attributes(&table.vector_indexes, &table.attributes)
}

/// Drops definitions of attributes that are part of no key any more.
fn drop_unused(table: &mut TableDefinition) {
    let TableDefinition {
        attributes,
        key_schema,
        global_indexes,
        local_indexes,
        vector_indexes,
        ..
    } = table;
    attributes.retain(|definition| {
        let name = &definition.name;
        key_schema.has(name)
            || global_indexes.iter().any(|index| index.key_schema.has(name))
            || local_indexes.iter().any(|index| index.key_schema.has(name))
            || (vector_indexes.iter()).any(|index| index.search_schema.iter().any(|(searched, _)| searched == name))
    });
}
