//! How large the partitions, rows and collections are already that a write is about, where its table refuses writes to what is too large
//! (`large_data_guardrails_enabled`).
//!
//! A coordinator asks one replica of each partition by MEASURE before it writes anything, so what is refused has been done nowhere. It asks its own shard
//! where that has the partition, else its own node, else the first live replica. Who has no answer within [`PATIENCE`] goes on: a guardrail does not stop a
//! cluster.
//!
//! ```text
//! MEASURE  [u8; 16] table, then for each partition: i64 token, vint length and key, vint count of rows, vint length and clustering key of each
//! answer   for each partition in turn: vint bytes, vint rows, then for each row in turn: vint bytes, vint count of collections, vint column id and vint
//!          elements of each
//! ```
//!
//! What a replica answers is said in `replica/src/large.rs`.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use replica::{Measured, MeasuredRow, Shard, Touched};
use runtime::ShardId;
use schema::TableId;
use stdx::bytes::Reader;
use stdx::vint;
use topology::{Replica, WriteTargets};
use types::Token;
use uuid::Uuid;

use crate::message::{Malformed, put_sized, sized};
use crate::{Coordinator, Verb};

/// How long a replica's answer is waited for.
const PATIENCE: Duration = Duration::from_millis(200);

fn encode_measured(measured: &Measured, out: &mut Vec<u8>) {
    let mut put = |number| vint::put_unsigned(out, number);
    put(measured.bytes);
    put(measured.rows);
    for row in &measured.of_rows {
        put(row.bytes);
        put(row.elements.len() as u64);
        for (id, elements) in &row.elements {
            put(u64::from(*id));
            put(*elements);
        }
    }
}

fn decode_measured(reader: &mut Reader<'_>, rows: usize) -> Result<Measured, Malformed> {
    let mut number = || reader.get_vint().map_err(|_| Malformed("the measures of a partition"));
    let (bytes, count) = (number()?, number()?);
    let mut of_rows = Vec::with_capacity(rows);
    for _ in 0..rows {
        let mut row = MeasuredRow {
            bytes: number()?,
            elements: BTreeMap::new(),
        };
        for _ in 0..number()? {
            let id = u16::try_from(number()?).map_err(|_| Malformed("the id of a column"))?;
            row.elements.insert(id, number()?);
        }
        of_rows.push(row);
    }
    Ok(Measured {
        bytes,
        rows: count,
        of_rows,
    })
}

fn encode(table: TableId, touched: &[&Touched]) -> Vec<u8> {
    let mut out = table.0.as_bytes().to_vec();
    for partition in touched {
        out.extend_from_slice(&partition.token.0.to_le_bytes());
        put_sized(&mut out, &partition.key);
        vint::put_unsigned(&mut out, partition.rows.len() as u64);
        partition.rows.iter().for_each(|row| put_sized(&mut out, row));
    }
    out
}

pub(crate) fn decode(body: &[u8]) -> Result<(TableId, Vec<Touched>), Malformed> {
    const WHAT: &str = "a table id and partitions to measure";
    let mut reader = Reader::new(body);
    let table = TableId(Uuid::from_bytes(reader.get_array().map_err(|_| Malformed(WHAT))?));
    let mut touched = Vec::new();
    while !reader.rest().is_empty() {
        let token = Token(i64::from_le_bytes(reader.get_array().map_err(|_| Malformed(WHAT))?));
        let key = sized(&mut reader, WHAT)?.to_vec();
        let mut rows = Vec::new();
        for _ in 0..reader.get_vint().map_err(|_| Malformed(WHAT))? {
            rows.push(sized(&mut reader, WHAT)?.to_vec());
        }
        touched.push(Touched { token, key, rows });
    }
    Ok((table, touched))
}

fn decode_answer(body: &[u8], asked: &[&Touched]) -> Result<Vec<Measured>, Malformed> {
    let mut reader = Reader::new(body);
    let of_partitions = asked
        .iter()
        .map(|touched| decode_measured(&mut reader, touched.rows.len()));
    of_partitions.collect()
}

fn measure_here(shard: &Shard, table: TableId, touched: &[Touched]) -> Vec<Measured> {
    let store = shard.store(table);
    let measured = |touched: &Touched| match &store {
        Some(store) => store.measure(touched),
        None => Measured::of(touched),
    };
    touched.iter().map(measured).collect()
}

impl Coordinator {
    /// How large these partitions of a table are, and their rows, as far as one replica of each knows. None where no replica answers.
    pub async fn measure(&self, table: TableId, touched: &[Touched]) -> Vec<Option<Measured>> {
        let view = self.view();
        let mut found: Vec<Option<Measured>> = vec![None; touched.len()];
        let Some(route) = view.route(table) else {
            return found;
        };
        let this = self.this_replica(&view);
        let mut by_replica: BTreeMap<Replica, Vec<usize>> = BTreeMap::new();
        for (at, partition) in touched.iter().enumerate() {
            let tablet = route.map.tablet_of(partition.token);
            let targets = WriteTargets::new(&tablet);
            let live = targets.all().filter(|r| self.is_live(r.node));
            let nearest = live.min_by_key(|r| (*r != this, r.node != this.node));
            if let Some(replica) = nearest {
                by_replica.entry(replica).or_default().push(at);
            }
        }
        for (replica, places) in by_replica {
            let asked: Vec<&Touched> = places.iter().map(|at| &touched[*at]).collect();
            let measured = if replica == this {
                Some(measure_here(&self.shard, table, &owned(&asked)))
            } else if replica.node == this.node {
                let asked = owned(&asked);
                let ask = move || measure_here(&Self::local().shard, table, &asked);
                Some(runtime::submit_to(ShardId(u32::from(replica.shard)), ask).await)
            } else {
                let body = encode(table, &asked);
                let answer = self.call(&view, replica, Verb::Measure, body, PATIENCE).await;
                answer.ok().and_then(|body| decode_answer(&body, &asked).ok())
            };
            for (at, measured) in places.into_iter().zip(measured.into_iter().flatten()) {
                found[at] = Some(measured);
            }
        }
        found
    }

    /// Answers another coordinator.
    pub(crate) fn measure_for(self: &Rc<Self>, body: &[u8]) -> Result<Vec<u8>, Malformed> {
        let (table, touched) = decode(body)?;
        let mut out = Vec::new();
        let measured = measure_here(&self.shard, table, &touched);
        measured.iter().for_each(|measured| encode_measured(measured, &mut out));
        Ok(out)
    }
}

fn owned(touched: &[&Touched]) -> Vec<Touched> {
    touched.iter().map(|touched| (*touched).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_and_answered_is_what_arrives() {
        let table = TableId(Uuid::from_u128(7));
        let touched = [
            Touched {
                token: Token(-9),
                key: b"key".to_vec(),
                rows: vec![Vec::new(), b"row".to_vec()],
            },
            Touched {
                token: Token(9),
                key: Vec::new(),
                rows: Vec::new(),
            },
        ];
        let asked: Vec<&Touched> = touched.iter().collect();
        let body = encode(table, &asked);
        assert_eq!(decode(&body), Ok((table, touched.to_vec())));
        for end in 1..body.len() - 10 {
            let read = decode(&body[..end]);
            assert!(
                read.is_err() || read.is_ok_and(|(_, read)| read.len() < 2),
                "cut at {end}"
            );
        }
        let row = MeasuredRow {
            bytes: 70_000,
            elements: BTreeMap::from([(3, 20_001)]),
        };
        let answer = [
            Measured {
                bytes: 1 << 40,
                rows: 7,
                of_rows: vec![MeasuredRow::default(), row],
            },
            Measured::default(),
        ];
        let mut body = Vec::new();
        answer.iter().for_each(|measured| encode_measured(measured, &mut body));
        assert_eq!(decode_answer(&body, &asked), Ok(answer.to_vec()));
        for end in 0..body.len() {
            assert!(decode_answer(&body[..end], &asked).is_err(), "cut at {end}");
        }
    }
}
