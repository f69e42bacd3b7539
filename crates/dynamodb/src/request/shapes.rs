//! The structures of the API of which requests on tables consist, as they are read: every member is optional.

use serde::de::{IgnoredAny, MapAccess};

use super::json::{Context, Flag, List, Long, Shape, Text, skip, structure};

structure! {
    /// An attribute of a key with its type.
    pub(crate) struct AttributeDefinition {
        name: Text = "AttributeName",
        attribute_type: Text = "AttributeType",
    }
}

structure! {
    /// An attribute of a key.
    pub(crate) struct KeySchemaElement {
        name: Text = "AttributeName",
        key_type: Text = "KeyType",
    }
}

structure! {
    /// Which attributes an index has.
    pub(crate) struct Projection {
        projection_type: Text = "ProjectionType",
        non_key_attributes: List<Text> = "NonKeyAttributes",
    }
}

structure! {
    /// Capacity units in a second.
    pub(crate) struct ProvisionedThroughput {
        read: Long = "ReadCapacityUnits",
        write: Long = "WriteCapacityUnits",
    }
}

structure! {
    /// The largest throughput of a table that is billed by request.
    pub(crate) struct OnDemandThroughput {
        read: Long = "MaxReadRequestUnits",
        write: Long = "MaxWriteRequestUnits",
    }
}

structure! {
    /// The throughput that a table must bear at once.
    pub(crate) struct WarmThroughput {
        read: Long = "ReadUnitsPerSecond",
        write: Long = "WriteUnitsPerSecond",
    }
}

structure! {
    /// A global secondary index of CreateTable, and one that UpdateTable adds.
    pub(crate) struct GlobalSecondaryIndex {
        name: Text = "IndexName",
        key_schema: List<KeySchemaElement> = "KeySchema",
        projection: Projection = "Projection",
        throughput: ProvisionedThroughput = "ProvisionedThroughput",
        on_demand: OnDemandThroughput = "OnDemandThroughput",
        warm: WarmThroughput = "WarmThroughput",
    }
}

structure! {
    /// A local secondary index.
    pub(crate) struct LocalSecondaryIndex {
        name: Text = "IndexName",
        key_schema: List<KeySchemaElement> = "KeySchema",
        projection: Projection = "Projection",
    }
}

structure! {
    /// The attribute of a vector index.
    pub(crate) struct VectorAttributeDefinition {
        name: Text = "AttributeName",
    }
}

structure! {
    /// An attribute by which a vector index selects.
    pub(crate) struct SearchSchemaElement {
        name: Text = "AttributeName",
        element_type: Text = "SearchSchemaElementType",
    }
}

structure! {
    /// A vector index.
    pub(crate) struct VectorIndex {
        name: Text = "IndexName",
        attribute: VectorAttributeDefinition = "VectorAttribute",
        search_schema: List<SearchSchemaElement> = "SearchSchema",
        projection: Projection = "Projection",
        dimensions: Long = "Dimensions",
        distance: Text = "DistanceFunction",
    }
}

structure! {
    /// Whether a table has a stream.
    pub(crate) struct StreamSpecification {
        enabled: Flag = "StreamEnabled",
        view_type: Text = "StreamViewType",
    }
}

structure! {
    /// How a table is encrypted.
    pub(crate) struct SSESpecification {
        enabled: Flag = "Enabled",
        sse_type: Text = "SSEType",
        key: Text = "KMSMasterKeyId",
    }
}

structure! {
    /// A label.
    pub(crate) struct Tag {
        key: Text = "Key",
        value: Text = "Value",
    }
}

structure! {
    /// An index that UpdateTable deletes.
    pub(crate) struct DeleteIndexAction {
        name: Text = "IndexName",
    }
}

structure! {
    /// A change of a global secondary index: one of its members.
    pub(crate) struct GlobalSecondaryIndexUpdate {
        update: GlobalSecondaryIndex = "Update",
        create: GlobalSecondaryIndex = "Create",
        delete: DeleteIndexAction = "Delete",
    }
}

structure! {
    /// A change of a vector index: one of its members.
    pub(crate) struct VectorIndexUpdate {
        create: VectorIndex = "Create",
        delete: DeleteIndexAction = "Delete",
    }
}

/// The text of a member, empty if it is absent.
pub(crate) fn text(member: Option<Text>) -> String {
    member.map(|Text(text)| text).unwrap_or_default()
}

/// The elements of a member, none if it is absent.
pub(crate) fn elements<T>(member: Option<List<T>>) -> Vec<T> {
    member.map(|List(list)| list).unwrap_or_default()
}

/// A structure whose members are not read.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Opaque;

impl Shape for Opaque {
    const CLASS: &'static str = "Object";
    fn object<'de, A: MapAccess<'de>>(mut entries: A, _: &Context) -> Result<Self, A::Error> {
        while entries.next_key::<IgnoredAny>()?.is_some() {
            skip(&mut entries)?;
        }
        Ok(Self)
    }
}
