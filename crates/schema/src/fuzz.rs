//! What the fuzzer needs of records: real ones to begin with, and the decoders.

use std::collections::BTreeMap;
use std::sync::Arc;

use record::Known;
use types::{CqlType, UdtType};
use uuid::Uuid;

use crate::function::{Language, UserAggregate, UserFunction};
use crate::object::{Change, KeyspaceObject, Object};
use crate::record::{ChangeRecord, SchemaRecord, open_objects, seal_objects};
use crate::table::{Column, ColumnKind, RateLimits, Schema, Table, TableId, TableOptions};

fn objects() -> Vec<Object> {
    let keyspace = KeyspaceObject {
        name: "ks".to_owned(),
        replication: BTreeMap::from([("class".to_owned(), "SimpleStrategy".to_owned())]),
        durable_writes: true,
        tablets: Some(BTreeMap::from([("enabled".to_owned(), "true".to_owned())])),
    };
    let columns = vec![
        Column::new("k", CqlType::Int, ColumnKind::PartitionKey),
        Column::new(
            "m",
            CqlType::Map(
                Arc::new(CqlType::Text),
                Arc::new(CqlType::Vector(Arc::new(CqlType::Float), 3)),
            ),
            ColumnKind::Regular,
        ),
        Column::new("gone", CqlType::Blob, ColumnKind::Static),
    ];
    let options = TableOptions {
        rate_limits: RateLimits {
            reads: Some(7),
            writes: None,
        },
        ..TableOptions::default()
    };
    let mut table = Table::new("ks", "t", TableId(Uuid::from_u128(7)), columns, options);
    table.drop_column("gone", -1);
    let place = Arc::new(UdtType {
        keyspace: "ks".to_owned(),
        name: "place".to_owned(),
        fields: vec![
            ("x".to_owned(), CqlType::Int),
            ("tags".to_owned(), CqlType::Set(Arc::new(CqlType::Text))),
        ],
    });
    let function = UserFunction {
        keyspace: "ks".to_owned(),
        name: "f".to_owned(),
        arguments: vec![("a".to_owned(), CqlType::Int)],
        returns: CqlType::Udt(place.clone()),
        called_on_null: true,
        language: Language::Wasm,
        body: "(module)".to_owned(),
    };
    let aggregate = UserAggregate {
        keyspace: "ks".to_owned(),
        name: "a".to_owned(),
        arguments: vec![CqlType::Text],
        state_function: "take".to_owned(),
        state_type: CqlType::Int,
        reduce_function: Some("join".to_owned()),
        final_function: None,
        returns: CqlType::Int,
        initial_state: Some(vec![0, 0, 0, 7]),
    };
    vec![
        Object::Keyspace(keyspace),
        Object::Type(place),
        Object::Function(Arc::new(function)),
        Object::Aggregate(Arc::new(aggregate)),
        Object::Table(Arc::new(table)),
    ]
}

/// One record of each kind; the sealed objects without their checksum.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let objects = objects();
    let schema = Schema::of_objects(Uuid::from_u128(1), objects.clone()).expect("the table is in the keyspace");
    let change = Change {
        base: Uuid::from_u128(1),
        next: Uuid::from_u128(2),
        dropped: objects.iter().map(Object::name).collect(),
        put: objects.clone(),
    };
    let sealed = seal_objects(&objects);
    vec![
        record::encode(&SchemaRecord::of(&schema)),
        record::encode(&ChangeRecord::of(&change)),
        sealed[..sealed.len() - 4].to_vec(),
    ]
}

/// Reads the bytes as each kind of record, and as objects with the checksum that they should have.
pub fn read(bytes: &[u8]) {
    let old = Known::features(["another_feature"]);
    for known in [Known::everything(), old] {
        if let Ok(record) = record::decode::<SchemaRecord>(bytes, &known) {
            assert_eq!(record::encode(&record), bytes, "one schema has two encodings");
            drop(record.schema());
        }
        if let Ok(record) = record::decode::<ChangeRecord>(bytes, &known) {
            assert_eq!(record::encode(&record), bytes, "one change has two encodings");
            drop(record.change());
        }
        let mut sealed = bytes.to_vec();
        sealed.extend_from_slice(&crc32fast::hash(bytes).to_be_bytes());
        // A refusal is put into words, too.
        if let Err(error) = open_objects(&sealed, &known) {
            drop(error.to_string());
        }
    }
}
