//! Tables: what a definition holds, how it is stored, and how it is described.
//!
//! [`TableDefinition`] is what CreateTable and UpdateTable decide on. Secondary indexes, vector indexes and streams are
//! part of it as requests ask for them, so that a server that does not have them yet can refuse them by name.

mod describe;
mod key;
pub(crate) mod storage;

use serde::{Deserialize, Serialize};

pub use describe::{IndexStatistics, TableDescription, TableStatus, stream_label};
pub(crate) use describe::{seconds, write_key_schema, write_on_demand};
pub(crate) use key::{EMPTY_KEY, SCHEMA_MISMATCH, TypeError, emptiness, empty_key, has_type, key_of_new_item};
pub use key::{Key, check_index_keys, key_of_item, key_of_request};
pub use storage::StorageError;

use crate::request::constraints::words;

words! {
    /// The type of an attribute that is part of a key.
    ScalarType "[B, N, S]" {
        /// A string.
        S = "S",
        /// A number.
        N = "N",
        /// Bytes.
        B = "B",
    }
}

words! {
    /// What an attribute is in a key.
    KeyType "[HASH, RANGE]" {
        /// (Part of) the partition key.
        Hash = "HASH",
        /// (Part of) the sort key.
        Range = "RANGE",
    }
}

words! {
    /// How a table is billed; here it decides which members a description has.
    BillingMode "[PROVISIONED, PAY_PER_REQUEST]" {
        /// With a throughput that is set beforehand.
        Provisioned = "PROVISIONED",
        /// By request.
        PayPerRequest = "PAY_PER_REQUEST",
    }
}

words! {
    /// The storage class of a table; it has no effect.
    TableClass "[STANDARD, STANDARD_INFREQUENT_ACCESS]" {
        /// The default.
        Standard = "STANDARD",
        /// For data that is read rarely.
        InfrequentAccess = "STANDARD_INFREQUENT_ACCESS",
    }
}

words! {
    /// Which attributes an index has beside its keys and those of the table.
    ProjectionType "[ALL, INCLUDE, KEYS_ONLY]" {
        /// All of them.
        All = "ALL",
        /// None.
        KeysOnly = "KEYS_ONLY",
        /// Those that are listed.
        Include = "INCLUDE",
    }
}

words! {
    /// What a record of a stream holds of an item.
    StreamViewType "[NEW_IMAGE, OLD_IMAGE, NEW_AND_OLD_IMAGES, KEYS_ONLY]" {
        /// The item after the change.
        NewImage = "NEW_IMAGE",
        /// The item before the change.
        OldImage = "OLD_IMAGE",
        /// Both.
        NewAndOldImages = "NEW_AND_OLD_IMAGES",
        /// Its key.
        KeysOnly = "KEYS_ONLY",
    }
}

words! {
    /// How data is encrypted at rest, as requests ask for it.
    SseType "[AES256, KMS]" {
        /// With a key of the service.
        Aes256 = "AES256",
        /// With a key of the key management service.
        Kms = "KMS",
    }
}

words! {
    /// The distance of two vectors.
    DistanceFunction "[COSINE, DOT_PRODUCT, EUCLIDEAN]" {
        /// One minus the cosine of their angle.
        Cosine = "COSINE",
        /// Their dot product.
        DotProduct = "DOT_PRODUCT",
        /// The length of their difference.
        Euclidean = "EUCLIDEAN",
    }
}

words! {
    /// What an attribute is in a vector index.
    SearchSchemaType "[HASH, INLINE_FILTER]" {
        /// The partition key of the index.
        Hash = "HASH",
        /// A filter.
        InlineFilter = "INLINE_FILTER",
    }
}

/// An attribute of a key, with its type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttributeDefinition {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// Its type.
    #[serde(rename = "t")]
    pub scalar_type: ScalarType,
}

/// One attribute of a key schema.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyElement {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// Its part in the key.
    #[serde(rename = "t")]
    pub key_type: KeyType,
}

/// The attributes of a key: one for the partition key and at most one for the sort key, of a global secondary index
/// at most four for each.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeySchema(pub Vec<KeyElement>);

impl KeySchema {
    fn first(&self, key_type: KeyType) -> Option<&str> {
        self.all(key_type).next()
    }

    /// The names of one type, in order.
    pub fn all(&self, key_type: KeyType) -> impl Iterator<Item = &str> {
        let of_type = move |element: &&KeyElement| element.key_type == key_type;
        self.0.iter().filter(of_type).map(|element| element.name.as_str())
    }

    /// The (first) attribute of the partition key; empty text if there is none, which no checked schema has.
    pub fn partition(&self) -> &str {
        self.first(KeyType::Hash).unwrap_or_default()
    }

    /// The (first) attribute of the sort key.
    pub fn sort(&self) -> Option<&str> {
        self.first(KeyType::Range)
    }

    /// Whether an attribute is part of the key.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|element| element.name == name)
    }
}

/// Which attributes an index has.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Projection {
    /// By rule,
    #[serde(rename = "t")]
    pub projection_type: ProjectionType,
    /// or by name.
    #[serde(rename = "a", default, skip_serializing_if = "Vec::is_empty")]
    pub non_key_attributes: Vec<String>,
}

/// Capacity units in a second; zeros if a table is billed by request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Throughput {
    /// Of reads.
    #[serde(rename = "r")]
    pub read_units: i64,
    /// Of writes.
    #[serde(rename = "w")]
    pub write_units: i64,
}

/// The provisioned throughput with its last changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProvisionedThroughput {
    /// The units.
    #[serde(flatten)]
    pub units: Throughput,
    /// When one of them was raised, in milliseconds since 1970.
    #[serde(rename = "inc", default, skip_serializing_if = "Option::is_none")]
    pub increased_ms: Option<i64>,
    /// When one of them was lowered.
    #[serde(rename = "dec", default, skip_serializing_if = "Option::is_none")]
    pub decreased_ms: Option<i64>,
    /// How often one was lowered on the day of `decreased_ms`.
    #[serde(rename = "decs", default)]
    pub decreases: u32,
}

/// The largest throughput of a table that is billed by request; −1 is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OnDemandThroughput {
    /// Of reads.
    #[serde(rename = "r", default, skip_serializing_if = "Option::is_none")]
    pub read_units_max: Option<i64>,
    /// Of writes.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub write_units_max: Option<i64>,
}

/// A secondary index with a partition key of its own.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalIndex {
    /// Its name, unique among all indexes of the table.
    #[serde(rename = "n")]
    pub name: String,
    /// Its key.
    #[serde(rename = "k")]
    pub key_schema: KeySchema,
    /// Its attributes.
    #[serde(rename = "p")]
    pub projection: Projection,
    /// Its throughput.
    #[serde(rename = "u", default)]
    pub throughput: ProvisionedThroughput,
    /// Its limits if billed by request.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemandThroughput>,
    /// Its warm throughput, if the request sets one.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Throughput>,
}

/// A secondary index with the partition key of the table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LocalIndex {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// Its key.
    #[serde(rename = "k")]
    pub key_schema: KeySchema,
    /// Its attributes.
    #[serde(rename = "p")]
    pub projection: Projection,
}

/// An index for nearest neighbours.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VectorIndex {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// The attribute that holds the vector.
    #[serde(rename = "a")]
    pub vector_attribute: String,
    /// The elements of a vector, 1 to 4,096.
    #[serde(rename = "d")]
    pub dimensions: u32,
    /// How near two vectors are.
    #[serde(rename = "f")]
    pub distance: DistanceFunction,
    /// Attributes by which searches select.
    #[serde(rename = "s", default, skip_serializing_if = "Vec::is_empty")]
    pub search_schema: Vec<(String, SearchSchemaType)>,
    /// Its attributes.
    #[serde(rename = "p")]
    pub projection: Projection,
}

/// A stream of changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamDefinition {
    /// What its records hold.
    #[serde(rename = "v")]
    pub view_type: StreamViewType,
    /// When it was enabled, in milliseconds since 1970: its label.
    #[serde(rename = "t")]
    pub enabled_ms: i64,
}

/// Encryption at rest, as the request asks for it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SseDefinition {
    /// With which keys.
    #[serde(rename = "t")]
    pub sse_type: SseType,
    /// The key, if the request names one.
    #[serde(rename = "k", default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
}

/// A label of a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tag {
    /// Its name, 1 to 128 characters.
    #[serde(rename = "k")]
    pub key: String,
    /// Its value, up to 256 characters.
    #[serde(rename = "v")]
    pub value: String,
}

/// The backup that a table was made of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestoreSource {
    /// The ARN of the backup.
    #[serde(rename = "b")]
    pub backup_arn: String,
    /// The ARN of the table of the backup.
    #[serde(rename = "t")]
    pub table_arn: String,
    /// When the restore began, in milliseconds since 1970.
    #[serde(rename = "d")]
    pub began_ms: i64,
    /// Whether items are still being written: the table cannot be used yet.
    #[serde(rename = "p", default, skip_serializing_if = "std::ops::Not::not")]
    pub in_progress: bool,
}

/// All that is known of a table beside its data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TableDefinition {
    /// Its name.
    #[serde(rename = "n")]
    pub name: String,
    /// Its id, a UUID: it differs for each table of one name.
    #[serde(rename = "i")]
    pub id: String,
    /// When it was created, in milliseconds since 1970.
    #[serde(rename = "c")]
    pub created_ms: i64,
    /// The attributes of its keys and of those of its indexes.
    #[serde(rename = "a")]
    pub attributes: Vec<AttributeDefinition>,
    /// Its key.
    #[serde(rename = "k")]
    pub key_schema: KeySchema,
    /// How it is billed.
    #[serde(rename = "b")]
    pub billing_mode: BillingMode,
    /// When it was last changed to be billed by request; None if it was created so.
    #[serde(rename = "bt", default, skip_serializing_if = "Option::is_none")]
    pub pay_per_request_ms: Option<i64>,
    /// Its throughput.
    #[serde(rename = "u")]
    pub throughput: ProvisionedThroughput,
    /// Its limits if billed by request.
    #[serde(rename = "o", default, skip_serializing_if = "Option::is_none")]
    pub on_demand: Option<OnDemandThroughput>,
    /// Its warm throughput, if a request set one.
    #[serde(rename = "w", default, skip_serializing_if = "Option::is_none")]
    pub warm: Option<Throughput>,
    /// Whether DeleteTable is refused.
    #[serde(rename = "dp", default)]
    pub deletion_protection: bool,
    /// Its storage class, if a request named one.
    #[serde(rename = "tc", default, skip_serializing_if = "Option::is_none")]
    pub table_class: Option<TableClass>,
    /// Encryption that a request asked for.
    #[serde(rename = "sse", default, skip_serializing_if = "Option::is_none")]
    pub sse: Option<SseDefinition>,
    /// Its tags, sorted by key, each key once.
    #[serde(rename = "tg", default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<Tag>,
    /// The attribute with the time at which an item expires, in seconds since 1970; None if items do not expire.
    #[serde(rename = "ttl", default, skip_serializing_if = "Option::is_none")]
    pub ttl_attribute: Option<String>,
    /// Its stream.
    #[serde(rename = "st", default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamDefinition>,
    /// Its global secondary indexes.
    #[serde(rename = "gi", default, skip_serializing_if = "Vec::is_empty")]
    pub global_indexes: Vec<GlobalIndex>,
    /// Its local secondary indexes.
    #[serde(rename = "li", default, skip_serializing_if = "Vec::is_empty")]
    pub local_indexes: Vec<LocalIndex>,
    /// Its vector indexes.
    #[serde(rename = "vi", default, skip_serializing_if = "Vec::is_empty")]
    pub vector_indexes: Vec<VectorIndex>,
    /// The backup that it was made of, if it was.
    #[serde(rename = "rs", default, skip_serializing_if = "Option::is_none")]
    pub restore: Option<RestoreSource>,
}

/// An index by which a query or scan can read.
#[derive(Clone, Copy, Debug)]
pub enum SecondaryIndex<'a> {
    /// A global one.
    Global(&'a GlobalIndex),
    /// A local one.
    Local(&'a LocalIndex),
}

impl<'a> SecondaryIndex<'a> {
    /// Its key.
    pub fn key_schema(self) -> &'a KeySchema {
        match self {
            Self::Global(index) => &index.key_schema,
            Self::Local(index) => &index.key_schema,
        }
    }

    /// Its attributes.
    pub fn projection(self) -> &'a Projection {
        match self {
            Self::Global(index) => &index.projection,
            Self::Local(index) => &index.projection,
        }
    }

    /// Whether it has a partition key of its own.
    pub fn is_global(self) -> bool {
        matches!(self, Self::Global(_))
    }
}

impl TableDefinition {
    /// A table that has a key and nothing else, and is billed by request.
    pub fn new(
        name: String,
        id: String,
        created_ms: i64,
        attributes: Vec<AttributeDefinition>,
        key_schema: KeySchema,
    ) -> Self {
        Self {
            name,
            id,
            created_ms,
            attributes,
            key_schema,
            billing_mode: BillingMode::PayPerRequest,
            pay_per_request_ms: None,
            throughput: ProvisionedThroughput::default(),
            on_demand: None,
            warm: None,
            deletion_protection: false,
            table_class: None,
            sse: None,
            tags: Vec::new(),
            ttl_attribute: None,
            stream: None,
            global_indexes: Vec::new(),
            local_indexes: Vec::new(),
            vector_indexes: Vec::new(),
            restore: None,
        }
    }

    /// Whether its items are still being written from a backup.
    pub fn is_being_restored(&self) -> bool {
        self.restore.as_ref().is_some_and(|source| source.in_progress)
    }

    /// The type of an attribute of a key; strings for one that has no definition, which no checked table has.
    pub fn type_of(&self, attribute: &str) -> ScalarType {
        let definition = self.attributes.iter().find(|definition| definition.name == attribute);
        definition.map_or(ScalarType::S, |definition| definition.scalar_type)
    }

    /// The secondary index of a name.
    pub fn index(&self, name: &str) -> Option<SecondaryIndex<'_>> {
        let mut global = self.global_indexes.iter();
        let mut local = self.local_indexes.iter();
        let global = global.find(|index| index.name == name).map(SecondaryIndex::Global);
        global.or_else(|| local.find(|index| index.name == name).map(SecondaryIndex::Local))
    }
}
