//! ALTER TABLE … ALTER c TYPE t.
//!
//! A stored value is not rewritten, so every value of the old type must be one of the new type with the same bytes.
//! More is asked of key columns: a partition is found by the bytes of its key, and the rows of a partition stay in the
//! order that they have. Packed rows hold a value of fixed length without its length, so a column outside the key keeps
//! its width.

use schema::{Column, ColumnKind, Table};
use types::CqlType;

use crate::error::DdlError;
use crate::{index, row_ttl};

/// Gives a column another type.
///
/// # Errors
/// When values of the old type are none of the new one, or would be in another order or place.
pub(crate) fn retype(table: &mut Table, name: &str, new: CqlType) -> Result<(), DdlError> {
    let Some(column) = table.column(name).filter(|c| !table.is_hidden(c)) else {
        return Err(DdlError::Invalid(format!(
            "Column {name} was not found in table '{}'",
            table.quoted_name()
        )));
    };
    check(column, &new)?;
    if column.cql_type != new {
        row_ttl::check_unused(table, name, "change the type of")?;
        // The terms of an index are in the order of the old type.
        if let Some(indexes) = index::names_of_column(table, name) {
            return Err(DdlError::Invalid(format!(
                "Cannot change the type of column {name} because it has dependent secondary indexes ({indexes})"
            )));
        }
    }
    table.set_type(name, new);
    Ok(())
}

fn check(column: &Column, new: &CqlType) -> Result<(), DdlError> {
    let old = &column.cql_type;
    let refused = |why: &str| {
        Err(DdlError::Invalid(format!(
            "Cannot change {} from type {old} to type {new}: {why}",
            column.name
        )))
    };
    if old == new {
        return Ok(());
    }
    if old.is_multi_cell() || new.is_multi_cell() {
        return refused("the type of a collection or user type that is not frozen cannot change");
    }
    if !has_values_of(new, old) {
        return refused("types are incompatible");
    }
    match column.kind {
        ColumnKind::PartitionKey => {
            if is_written_alike(new, old) {
                Ok(())
            } else {
                refused("a partition is found by the bytes of its key, which would be others")
            }
        }
        ColumnKind::Clustering => {
            if is_ordered_alike(new, old) {
                Ok(())
            } else {
                refused("types are not order-compatible")
            }
        }
        ColumnKind::Static | ColumnKind::Regular => {
            if new.fixed_len() == old.fixed_len() {
                Ok(())
            } else {
                refused("values of the old type are stored without their length, and the new type needs it")
            }
        }
    }
}

/// Whether the bytes of every value of type `old` are a value of type `new` that means the same.
fn has_values_of(new: &CqlType, old: &CqlType) -> bool {
    use CqlType as T;
    match (old, new) {
        (T::Counter | T::Empty, _) | (_, T::Counter | T::Empty) => false,
        (_, T::Blob)
        | (T::Ascii, T::Text)
        | (T::TimeUuid, T::Uuid)
        | (T::Int | T::BigInt | T::Timestamp, T::VarInt)
        | (T::BigInt, T::Timestamp)
        | (T::Timestamp, T::BigInt) => true,
        (old, new) => match (old.unfrozen(), new.unfrozen()) {
            // A tuple that has fewer values than its type lacks the last ones, which are null.
            (T::Tuple(old), T::Tuple(new)) => new.starts_with(old),
            (old, new) => old == new,
        },
    }
}

/// Whether a client that gives the same value again gives the same bytes. A number has fewer bytes as a varint, a tuple
/// more with another null.
fn is_written_alike(new: &CqlType, old: &CqlType) -> bool {
    !matches!(new.unfrozen(), CqlType::VarInt | CqlType::Tuple(_)) || old == new
}

/// Whether values of type `old` are in the same order as values of type `new`, and of the same length.
fn is_ordered_alike(new: &CqlType, old: &CqlType) -> bool {
    use CqlType as T;
    matches!(
        (old, new),
        (T::Ascii, T::Text | T::Blob) | (T::Text, T::Blob) | (T::BigInt, T::Timestamp) | (T::Timestamp, T::BigInt)
    )
}

#[cfg(test)]
mod tests {
    use schema::{TableId, TableOptions};
    use uuid::Uuid;

    use super::*;

    fn type_of(name: &str) -> CqlType {
        CqlType::parse_native(name).expect("a native type")
    }

    fn answer(kind: ColumnKind, old: &str, new: &str) -> Result<CqlType, String> {
        let key = Column::new("k", CqlType::Int, ColumnKind::PartitionKey);
        let column = Column::new("c", type_of(old), kind);
        let columns = match kind {
            ColumnKind::PartitionKey => vec![column],
            ColumnKind::Clustering | ColumnKind::Static | ColumnKind::Regular => vec![key, column],
        };
        let id = TableId(Uuid::from_u128(1));
        let mut table = Table::new("ks", "t", id, columns, TableOptions::default());
        let before = table.layout.clone();
        retype(&mut table, "c", type_of(new)).map_err(|e| e.to_string())?;
        assert_eq!(table.layout, before, "stored rows keep their form");
        Ok(table.column("c").expect("it is still there").cql_type.clone())
    }

    #[test]
    fn a_tuple_gets_further_values_outside_the_key() {
        use ColumnKind::{Clustering, PartitionKey, Regular, Static};
        let tuple = |names: &[&str]| CqlType::Tuple(names.iter().map(|name| type_of(name)).collect());
        let (two, three, other) = (
            tuple(&["int", "int"]),
            tuple(&["int", "int", "text"]),
            tuple(&["int", "text", "text"]),
        );
        for kind in [PartitionKey, Clustering, Static, Regular] {
            let column = Column::new("c", two.clone(), kind);
            assert_eq!(
                check(&column, &three).is_ok(),
                matches!(kind, Static | Regular),
                "{kind:?}"
            );
            assert!(
                check(&column, &other).is_err(),
                "{kind:?}: the values that there are have other types"
            );
            let column = Column::new("c", three.clone(), kind);
            assert!(check(&column, &two).is_err(), "{kind:?}: a value would be lost");
        }
    }

    #[test]
    fn a_type_changes_to_one_that_has_all_its_values_in_the_same_order() {
        use ColumnKind::{Clustering, PartitionKey, Regular, Static};
        for (old, new, kinds) in [
            ("ascii", "text", vec![PartitionKey, Clustering, Static, Regular]),
            ("ascii", "blob", vec![PartitionKey, Clustering, Static, Regular]),
            ("text", "blob", vec![PartitionKey, Clustering, Static, Regular]),
            ("bigint", "timestamp", vec![PartitionKey, Clustering, Static, Regular]),
            ("timestamp", "bigint", vec![PartitionKey, Clustering, Static, Regular]),
            ("timeuuid", "uuid", vec![PartitionKey, Static, Regular]),
            ("varint", "blob", vec![PartitionKey, Static, Regular]),
            ("decimal", "blob", vec![PartitionKey, Static, Regular]),
            ("inet", "blob", vec![PartitionKey, Static, Regular]),
            ("int", "blob", vec![PartitionKey]),
            ("uuid", "blob", vec![PartitionKey]),
            ("int", "varint", vec![]),
            ("bigint", "varint", vec![]),
            ("timestamp", "varint", vec![]),
            ("text", "ascii", vec![]),
            ("blob", "text", vec![]),
            ("uuid", "timeuuid", vec![]),
            ("int", "bigint", vec![]),
            ("varint", "int", vec![]),
            ("int", "text", vec![]),
            ("date", "timestamp", vec![]),
        ] {
            for kind in [PartitionKey, Clustering, Static, Regular] {
                let answer = answer(kind, old, new);
                if kinds.contains(&kind) {
                    assert_eq!(answer, Ok(type_of(new)), "{kind:?} {old} to {new}")
                } else {
                    let refusal = answer.expect_err("it is refused");
                    let start = format!("Cannot change c from type {old} to type {new}: ");
                    assert!(refusal.contains(&start), "{kind:?}: {refusal}");
                }
            }
        }
    }
}
