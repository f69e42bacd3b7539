//! Aggregates over a part of the rows: joined in the order of the rows, and as bytes for another node.
//!
//! ```text
//! count    i64 rows
//! extreme  u8 0, or u8 1, vint length and value
//! total    u8 0, or u8 1 and i64 rows; then
//!          of integers vint length and digits;
//!          of floating numbers f64 sum, f64 lost, f64 simple, and u8 0, or u8 1 and a decimal;
//!          of decimals i32 scale, vint length and digits
//! user     u8 has rows; u8 0 null, or u8 1, vint length and state
//! ```
//!
//! Numbers are little endian, digits a big endian two's complement. Which of them it is both sides know from the
//! statement.

use num_bigint::BigInt;
use stdx::bytes::{Reader, Truncated, put_sized};
use types::Decimal;

use super::aggregate::{Accumulator, Aggregate, Total};
use super::arithmetic::{self, ArithmeticOperator};
use crate::error::PlanError;

impl Aggregate {
    /// Whether parts of the rows can be aggregated apart with the same result. Cassandra's mean of decimals is rounded
    /// at each row.
    pub(crate) fn is_mergeable(&self) -> bool {
        if let Self::User(of) = self {
            return of.is_mergeable();
        }
        !matches!(
            self.start(),
            Accumulator::Total {
                total: Total::DecimalMean(_),
                ..
            }
        )
    }
}

impl Accumulator {
    /// About how many bytes of memory it takes.
    pub(crate) fn held_bytes(&self) -> usize {
        let of_value = match self {
            Self::Extreme { best, .. } => best.as_ref().map_or(0, Vec::len),
            Self::User(state) => state.state.as_ref().map_or(0, Vec::len),
            // Sums are a few digits longer than what is summed.
            Self::Count { .. } | Self::Total { .. } => 0,
        };
        size_of::<Self>() + of_value
    }

    /// Takes over what was found in the rows after its own.
    pub(crate) fn merge(&mut self, behind: Self) -> Result<(), PlanError> {
        match (self, behind) {
            (Self::Count { rows, .. }, Self::Count { rows: more, .. }) => *rows += more,
            (Self::User(state), Self::User(behind)) => state.merge(behind)?,
            (this @ Self::Extreme { .. }, Self::Extreme { best, .. }) => this.add(best.as_deref())?,
            (
                Self::Total { total, rows, .. },
                Self::Total {
                    total: more,
                    rows: more_rows,
                    ..
                },
            ) => {
                if let (Some(rows), Some(more)) = (rows, more_rows) {
                    *rows += more;
                }
                total.merge(more).map_err(PlanError::Function)?;
            }
            _ => {
                return Err(PlanError::Internal(
                    "two aggregates of different kinds were joined".to_owned(),
                ));
            }
        }
        Ok(())
    }

    /// As bytes.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Count { rows, .. } => out.extend_from_slice(&rows.to_le_bytes()),
            Self::Extreme { best, .. } => {
                out.push(u8::from(best.is_some()));
                if let Some(best) = best {
                    put_sized(out, best);
                }
            }
            Self::User(user) => {
                out.extend([u8::from(user.has_rows), u8::from(user.state.is_some())]);
                if let Some(state) = &user.state {
                    put_sized(out, state);
                }
            }
            Self::Total { total, rows, .. } => {
                out.push(u8::from(rows.is_some()));
                if let Some(rows) = rows {
                    out.extend_from_slice(&rows.to_le_bytes());
                }
                match total {
                    Total::Integer(sum) => put_sized(out, &sum.to_signed_bytes_be()),
                    Total::Floating(total) => {
                        for part in [total.sum, total.lost, total.simple] {
                            out.extend_from_slice(&part.to_le_bytes());
                        }
                        out.push(u8::from(total.exact.is_some()));
                        if let Some(exact) = &total.exact {
                            put_decimal(out, exact);
                        }
                    }
                    Total::Decimal(sum) | Total::DecimalMean(sum) => put_decimal(out, sum),
                }
            }
        }
    }

    /// Reads into an accumulator that has just started what [`Accumulator::encode`] wrote of one of its kind.
    pub(crate) fn decode(&mut self, reader: &mut Reader<'_>) -> Result<(), Truncated> {
        match self {
            Self::Count { rows, .. } => *rows = i64::from_le_bytes(reader.get_array()?),
            Self::Extreme { best, .. } => {
                *best = match reader.get_u8()? {
                    0 => None,
                    _ => Some(reader.get_sized()?.to_vec()),
                };
            }
            Self::User(user) => {
                user.has_rows = reader.get_u8()? != 0;
                user.state = match reader.get_u8()? {
                    0 => None,
                    _ => Some(reader.get_sized()?.to_vec()),
                };
            }
            Self::Total { total, rows, .. } => {
                *rows = match reader.get_u8()? {
                    0 => None,
                    _ => Some(i64::from_le_bytes(reader.get_array()?)),
                };
                match total {
                    Total::Integer(sum) => *sum = BigInt::from_signed_bytes_be(reader.get_sized()?),
                    Total::Floating(total) => {
                        for part in [&mut total.sum, &mut total.lost, &mut total.simple] {
                            *part = f64::from_le_bytes(reader.get_array()?);
                        }
                        total.exact = match reader.get_u8()? {
                            0 => None,
                            _ => Some(decimal(reader)?),
                        };
                    }
                    Total::Decimal(sum) | Total::DecimalMean(sum) => *sum = decimal(reader)?,
                }
            }
        }
        Ok(())
    }
}

impl Total {
    fn merge(&mut self, behind: Self) -> Result<(), String> {
        match (self, behind) {
            (Self::Integer(sum), Self::Integer(more)) => *sum += more,
            (Self::Floating(total), Self::Floating(more)) => total.merge(&more)?,
            (Self::Decimal(sum), Self::Decimal(more)) => {
                *sum = arithmetic::in_decimals(ArithmeticOperator::Add, sum, &more)?;
            }
            _ => return Err("two sums of different kinds were joined".to_owned()),
        }
        Ok(())
    }
}

fn put_decimal(out: &mut Vec<u8>, decimal: &Decimal) {
    out.extend_from_slice(&decimal.scale.to_le_bytes());
    put_sized(out, &decimal.unscaled.to_signed_bytes_be());
}

fn decimal(reader: &mut Reader<'_>) -> Result<Decimal, Truncated> {
    let scale = i32::from_le_bytes(reader.get_array()?);
    let unscaled = BigInt::from_signed_bytes_be(reader.get_sized()?);
    Ok(Decimal { unscaled, scale })
}

#[cfg(test)]
mod tests {
    use types::CqlType;

    use super::*;

    fn decimal(unscaled: i64, scale: i32) -> Vec<u8> {
        let mut out = scale.to_be_bytes().to_vec();
        out.extend_from_slice(&BigInt::from(unscaled).to_signed_bytes_be());
        out
    }

    /// Results of aggregates over these values in one piece, and in two pieces split at each position and encoded.
    #[track_caller]
    fn check(aggregate: &Aggregate, values: &[Option<Vec<u8>>]) {
        let over = |values: &[Option<Vec<u8>>]| {
            let mut part = aggregate.start();
            for value in values {
                part.add(value.as_deref()).expect("the values are of the type");
            }
            part
        };
        let whole = over(values).finish().expect("the result fits");
        for cut in 0..=values.len() {
            let (front, behind) = values.split_at(cut);
            let mut joined = over(front);
            let mut bytes = Vec::new();
            over(behind).encode(&mut bytes);
            let mut read = aggregate.start();
            read.decode(&mut Reader::new(&bytes)).expect("it was written just now");
            joined.merge(read).expect("they are of one kind");
            let joined = joined.finish().expect("the result fits");
            assert_eq!(joined, whole, "{aggregate:?} cut before value {cut} of {values:?}");
            for short in 0..bytes.len() {
                let mut read = aggregate.start();
                let cut_off = read.decode(&mut Reader::new(&bytes[..short]));
                assert!(cut_off.is_err(), "{aggregate:?}: {short} bytes are not all of them");
            }
        }
    }

    #[test]
    fn an_aggregate_over_parts_is_that_over_the_whole() {
        let ints = |values: &[i32]| -> Vec<Option<Vec<u8>>> {
            let mut out: Vec<_> = values.iter().map(|v| Some(v.to_be_bytes().to_vec())).collect();
            out.insert(out.len() / 2, None);
            out
        };
        let decimals: Vec<_> = [(1, 0), (100, 2), (-35, 1), (7, 5)]
            .map(|(u, s)| Some(decimal(u, s)))
            .to_vec();
        let doubles = |values: &[f64]| -> Vec<_> { values.iter().map(|v| Some(v.to_be_bytes().to_vec())).collect() };
        for values in [ints(&[]), ints(&[5]), ints(&[i32::MAX, 1, -7, i32::MAX])] {
            for aggregate in [
                Aggregate::CountRows,
                Aggregate::Count,
                Aggregate::Min(CqlType::Int),
                Aggregate::Max(CqlType::Int),
                Aggregate::Sum(CqlType::Int),
                Aggregate::Avg(CqlType::Int),
            ] {
                check(&aggregate, &values);
            }
        }
        // Of equal values that are written in different ways the first one counts.
        for aggregate in [Aggregate::Min, Aggregate::Max, Aggregate::Sum] {
            check(&aggregate(CqlType::Decimal), &decimals);
        }
        for values in [
            &[1.5_f64, -0.25, 1e300, 3.0, f64::INFINITY][..],
            &[f64::MAX, f64::MAX, 2.5],
            &[1.5, f64::MAX, 0.5, f64::MAX, f64::INFINITY, 7.0],
        ] {
            for aggregate in [Aggregate::Min, Aggregate::Max, Aggregate::Sum, Aggregate::Avg] {
                check(&aggregate(CqlType::Double), &doubles(values));
            }
        }
        // The sum of each half is infinite, and none of the numbers.
        check(
            &Aggregate::Avg(CqlType::Double),
            &doubles(&[f64::MAX, f64::MAX, f64::MIN, f64::MIN]),
        );
        assert!(!Aggregate::Avg(CqlType::Decimal).is_mergeable());
        assert!(Aggregate::Sum(CqlType::Decimal).is_mergeable());
    }
}
