//! How large the partitions, rows and collections are already that a write is about, where its table refuses writes to
//! what is too large (`large_data_guardrails_enabled`).
//!
//! A coordinator asks one replica of each partition by MEASURE before it writes anything, so what is refused has been
//! done nowhere. It asks its own shard if that has the partition, else its own node, else the first live replica; all
//! replicas of a batch at once. If a replica does not answer within [`PATIENCE`], the write continues: a guardrail does
//! not stop a cluster.
//!
//! ```text
//! MEASURE  [u8; 16] table, then for each partition: i64 token, vint length and key, vint count of rows, vint length
//!          and clustering key of each
//! answer   for each partition in turn: vint bytes, vint rows, vint count of large rows, and for each: vint length and
//!          clustering key, vint bytes, vint count of collections, vint column id and vint elements of each
//! ```
//!
//! What a replica answers is said in `replica/src/metrics/large.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use replica::{Measured, MeasuredRow, Shard, Touched};
use schema::TableId;
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use topology::{Replica, WriteTargets};
use types::Token;
use uuid::Uuid;

use super::Limits;
use crate::Verb;
use crate::message::{Malformed, sized};
use crate::read::fan::{Fan, Response};

/// How long a replica's answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

fn encode<'t>(table: TableId, touched: impl Iterator<Item = &'t Touched>) -> Vec<u8> {
    let mut out = table.0.as_bytes().to_vec();
    for partition in touched {
        out.extend_from_slice(&partition.token.0.to_le_bytes());
        put_sized(&mut out, &partition.key);
        vint::put_unsigned(&mut out, partition.rows.len() as u64);
        partition.rows.iter().for_each(|row| put_sized(&mut out, row));
    }
    out
}

fn decode(body: &[u8]) -> Result<(TableId, Vec<Touched>), Malformed> {
    const WHAT: &str = "a table id and partitions to measure";
    let cut = |_| Malformed(WHAT);
    let mut reader = Reader::new(body);
    let table = TableId(Uuid::from_bytes(reader.get_array().map_err(cut)?));
    let mut touched = Vec::new();
    while !reader.rest().is_empty() {
        let token = Token(i64::from_le_bytes(reader.get_array().map_err(cut)?));
        let key = sized(&mut reader, WHAT)?.to_vec();
        let mut rows = BTreeSet::new();
        for _ in 0..reader.get_vint().map_err(cut)? {
            rows.insert(sized(&mut reader, WHAT)?.to_vec());
        }
        touched.push(Touched { token, key, rows });
    }
    Ok((table, touched))
}

fn encode_answer(of_partitions: &[Measured]) -> Vec<u8> {
    let mut out = Vec::new();
    for measured in of_partitions {
        vint::put_unsigned(&mut out, measured.bytes);
        vint::put_unsigned(&mut out, measured.rows);
        vint::put_unsigned(&mut out, measured.of_rows.len() as u64);
        for (clustering, row) in &measured.of_rows {
            put_sized(&mut out, clustering);
            vint::put_unsigned(&mut out, row.bytes);
            vint::put_unsigned(&mut out, row.elements.len() as u64);
            for (id, elements) in &row.elements {
                vint::put_unsigned(&mut out, u64::from(*id));
                vint::put_unsigned(&mut out, *elements);
            }
        }
    }
    out
}

fn decode_answer(body: &[u8]) -> Result<Vec<Measured>, Malformed> {
    const WHAT: &str = "the measures of partitions";
    fn number(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
        reader.get_vint().map_err(|_| Malformed(WHAT))
    }
    let mut reader = Reader::new(body);
    let mut of_partitions = Vec::new();
    while !reader.rest().is_empty() {
        let mut measured = Measured {
            bytes: number(&mut reader)?,
            rows: number(&mut reader)?,
            of_rows: BTreeMap::new(),
        };
        for _ in 0..number(&mut reader)? {
            let clustering = sized(&mut reader, WHAT)?.to_vec();
            let mut row = MeasuredRow {
                bytes: number(&mut reader)?,
                elements: BTreeMap::new(),
            };
            for _ in 0..number(&mut reader)? {
                let id = u16::try_from(number(&mut reader)?).map_err(|_| Malformed("the id of a column"))?;
                row.elements.insert(id, number(&mut reader)?);
            }
            measured.of_rows.insert(clustering, row);
        }
        of_partitions.push(measured);
    }
    Ok(of_partitions)
}

/// For the fuzzer: one message of either kind.
pub(crate) fn seeds() -> [Vec<u8>; 2] {
    let touched = Touched {
        token: Token(-9),
        key: b"key".to_vec(),
        rows: BTreeSet::from([Vec::new(), b"row".to_vec()]),
    };
    let row = MeasuredRow {
        bytes: 70_000,
        elements: BTreeMap::from([(3, 20_001)]),
    };
    let measured = Measured {
        bytes: 1 << 40,
        rows: 7,
        of_rows: BTreeMap::from([(b"row".to_vec(), row)]),
    };
    [
        encode(TableId(Uuid::from_u128(7)), std::iter::once(&touched)),
        encode_answer(&[measured]),
    ]
}

/// For the fuzzer: what is read as either message is the same when it is written and read again.
pub(crate) fn read_and_write(bytes: &[u8]) {
    if let Ok((table, touched)) = decode(bytes) {
        let again = decode(&encode(table, touched.iter()));
        assert_eq!(
            again,
            Ok((table, touched)),
            "partitions to measure change when they are written"
        );
    }
    if let Ok(measured) = decode_answer(bytes) {
        let again = decode_answer(&encode_answer(&measured));
        assert_eq!(again, Ok(measured), "measures change when they are written");
    }
}

fn measure_here<'t>(shard: &Shard, table: TableId, touched: impl Iterator<Item = &'t Touched>) -> Vec<Measured> {
    let store = shard.store(table);
    let of_store = |touched| store.as_ref().map(|store| store.measure(touched));
    touched.map(|touched| of_store(touched).unwrap_or_default()).collect()
}

impl Limits {
    /// How large these partitions of a table are, and their rows, as far as one replica of each knows; nothing is large
    /// where none answers.
    pub async fn measure(&self, table: TableId, touched: &[Touched]) -> Vec<Measured> {
        let view = self.context.view();
        let mut found = vec![Measured::default(); touched.len()];
        let Some(route) = view.route(table) else {
            return found;
        };
        let this = self.context.this_replica(&view);
        let mut by_replica: BTreeMap<Replica, Vec<usize>> = BTreeMap::new();
        for (at, partition) in touched.iter().enumerate() {
            let tablet = route.map.tablet_of(partition.token);
            let targets = WriteTargets::new(&tablet);
            let live = targets.all().filter(|r| self.context.is_live(r.node));
            let nearest = live.min_by_key(|r| (*r != this, r.node != this.node));
            if let Some(replica) = nearest {
                by_replica.entry(replica).or_default().push(at);
            }
        }
        let mut note = |places: &[usize], measured: Vec<Measured>| {
            for (at, measured) in places.iter().zip(measured) {
                found[*at] = measured;
            }
        };
        let mut fan: Fan<Vec<Measured>> = Fan::new();
        for (&replica, places) in &by_replica {
            let asked = places.iter().map(|at| &touched[*at]);
            if replica == this {
                note(places, measure_here(&self.context.shard, table, asked));
            } else if replica.node == this.node {
                let asked: Vec<Touched> = asked.cloned().collect();
                fan.beside(replica, move |coordinator| async move {
                    Ok(measure_here(&coordinator.context.shard, table, asked.iter()))
                });
            } else {
                fan.call(
                    (&self.context, &view),
                    replica,
                    Verb::Measure,
                    encode(table, asked),
                    runtime::now() + PATIENCE,
                );
            }
        }
        let until = runtime::now() + PATIENCE;
        while let Some((replica, answer)) = fan.next(until).await {
            let measured = match answer {
                Ok(Response::Local(measured)) => measured,
                Ok(Response::Remote(body)) => decode_answer(&body).unwrap_or_default(),
                Err(_) => continue,
            };
            note(&by_replica[&replica], measured);
        }
        found
    }

    /// Answers another coordinator.
    pub(crate) fn measure_for(&self, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let (table, touched) = decode(body)?;
        Ok(encode_answer(&measure_here(&self.context.shard, table, touched.iter())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_answered_is_what_arrives() {
        let table = TableId(Uuid::from_u128(7));
        let touched = |token, key: &[u8], rows: &[&[u8]]| Touched {
            token: Token(token),
            key: key.to_vec(),
            rows: rows.iter().map(|row| row.to_vec()).collect(),
        };
        let asked = vec![touched(-9, b"key", &[b"", b"row"]), touched(9, b"", &[])];
        let body = encode(table, asked.iter());
        assert_eq!(decode(&body), Ok((table, asked)));
        let row = MeasuredRow {
            bytes: 70_000,
            elements: BTreeMap::from([(3, 20_001)]),
        };
        let answer = vec![
            Measured {
                bytes: 1 << 40,
                rows: 7,
                of_rows: BTreeMap::from([(b"row".to_vec(), row)]),
            },
            Measured::default(),
        ];
        let answered = encode_answer(&answer);
        assert_eq!(decode_answer(&answered), Ok(answer.clone()));
        // Where a message is cut between two partitions, those before are whole.
        for end in 0..body.len() {
            assert!(
                decode(&body[..end]).is_err() || [16, 34].contains(&end),
                "a request of {end} bytes"
            );
        }
        for end in 0..answered.len() {
            let read = decode_answer(&answered[..end]);
            assert!(
                read.is_err() || read.is_ok_and(|read| answer.starts_with(&read)),
                "an answer of {end} bytes"
            );
        }
    }
}
