//! `+ - * / %` and negation.
//!
//! The result of two numbers has the wider of their types: integers grow from tinyint to varint, with a floating point
//! number the result is one, wide enough for both; with a decimal, or a varint and a floating point number, it is a
//! decimal. Texts are joined by `+`; a duration is added to and taken from a timestamp or date.

use num_bigint::BigInt;
use num_traits::{Signed, Zero};
use types::{CqlType, Decimal, Duration};

use super::number::{DIGITS_MAX, Number, Problem, check_digits, strip_zeros, ten_to};
use super::{Resolved, Scalar, time};
use crate::error::PlanError;

const NUMERIC: [CqlType; 9] = [
    CqlType::TinyInt,
    CqlType::SmallInt,
    CqlType::Int,
    CqlType::BigInt,
    CqlType::Counter,
    CqlType::Float,
    CqlType::Double,
    CqlType::VarInt,
    CqlType::Decimal,
];

/// An operator between two values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ArithmeticOperator {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`
    Divide,
    /// `%`
    Modulo,
}

impl ArithmeticOperator {
    /// Every operator.
    pub const ALL: [Self; 5] = [Self::Add, Self::Subtract, Self::Multiply, Self::Divide, Self::Modulo];

    /// How it is written.
    pub const fn sign(self) -> char {
        match self {
            Self::Add => '+',
            Self::Subtract => '-',
            Self::Multiply => '*',
            Self::Divide => '/',
            Self::Modulo => '%',
        }
    }
}

/// The types that functions of numbers take.
pub(crate) const fn numeric_types() -> &'static [CqlType] {
    &NUMERIC
}

/// Every signature of an operator.
pub(crate) fn candidates(operator: ArithmeticOperator) -> Vec<Resolved> {
    let mut found = Vec::new();
    let mut add = |left: &CqlType, right: &CqlType, returns: CqlType| {
        let arithmetic = Arithmetic {
            operator,
            left: left.clone(),
            right: right.clone(),
            returns: returns.clone(),
        };
        let scalar = Scalar::Arithmetic(arithmetic);
        found.push(Resolved::scalar(
            operator_name(operator),
            vec![left.clone(), right.clone()],
            returns,
            scalar,
        ));
    };
    for left in &NUMERIC {
        for right in &NUMERIC {
            add(left, right, numeric_result(left, right));
        }
    }
    if operator == ArithmeticOperator::Add {
        add(&CqlType::Text, &CqlType::Text, CqlType::Text);
        add(&CqlType::Ascii, &CqlType::Ascii, CqlType::Ascii);
        add(&CqlType::Ascii, &CqlType::Text, CqlType::Text);
        add(&CqlType::Text, &CqlType::Ascii, CqlType::Text);
    }
    if matches!(operator, ArithmeticOperator::Add | ArithmeticOperator::Subtract) {
        add(&CqlType::Timestamp, &CqlType::Duration, CqlType::Timestamp);
        add(&CqlType::Date, &CqlType::Duration, CqlType::Date);
    }
    found
}

/// Cassandra's own names of the operations, which its messages about markers show.
pub(crate) const fn operator_name(operator: ArithmeticOperator) -> &'static str {
    match operator {
        ArithmeticOperator::Add => "_add",
        ArithmeticOperator::Subtract => "_substract",
        ArithmeticOperator::Multiply => "_multiply",
        ArithmeticOperator::Divide => "_divide",
        ArithmeticOperator::Modulo => "_modulo",
    }
}

/// The signatures of negation.
pub(crate) fn negations() -> Vec<Resolved> {
    let of = |t: &CqlType| Resolved::scalar(super::NEGATION, vec![t.clone()], t.clone(), Scalar::Negate(t.clone()));
    NUMERIC.iter().map(of).collect()
}

fn numeric_result(left: &CqlType, right: &CqlType) -> CqlType {
    let width = |t: &CqlType| match t {
        CqlType::TinyInt => 1,
        CqlType::SmallInt => 2,
        CqlType::Int | CqlType::Float => 4,
        CqlType::BigInt | CqlType::Counter | CqlType::Double => 8,
        _ => 16,
    };
    let is_floating = |t: &CqlType| matches!(t, CqlType::Float | CqlType::Double | CqlType::Decimal);
    match (is_floating(left) || is_floating(right), width(left).max(width(right))) {
        (true, ..=4) => CqlType::Float,
        (true, 8) => CqlType::Double,
        (true, _) => CqlType::Decimal,
        (false, 1) => CqlType::TinyInt,
        (false, 2) => CqlType::SmallInt,
        (false, 4) => CqlType::Int,
        (false, 8) => CqlType::BigInt,
        (false, _) => CqlType::VarInt,
    }
}

/// An operation between values of two types.
#[derive(Clone, Debug)]
pub(crate) struct Arithmetic {
    operator: ArithmeticOperator,
    left: CqlType,
    right: CqlType,
    returns: CqlType,
}

impl Arithmetic {
    /// The result; `None` when an operand is an empty value.
    pub(crate) fn apply(&self, left: &[u8], right: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
        self.compute(left, right).map_err(|problem| {
            let sign = self.operator.sign();
            PlanError::Function(format!(
                "the operation '{} {sign} {}' failed: {problem}",
                self.left, self.right
            ))
        })
    }

    fn compute(&self, left: &[u8], right: &[u8]) -> Result<Option<Vec<u8>>, Problem> {
        match &self.returns {
            CqlType::Text | CqlType::Ascii => Ok(Some([left, right].concat())),
            CqlType::Timestamp | CqlType::Date => {
                if left.is_empty() || right.is_empty() {
                    return Ok(None);
                }
                let duration = Duration::deserialize(right).map_err(|error| error.to_string())?;
                let is_taken = self.operator == ArithmeticOperator::Subtract;
                match self.returns {
                    CqlType::Date => time::add_to_date(left, duration, is_taken).map(Some),
                    _ => time::add_to_timestamp(left, duration, is_taken).map(Some),
                }
            }
            returns => {
                let operands = (Number::read(&self.left, left)?, Number::read(&self.right, right)?);
                let (Some(left), Some(right)) = operands else {
                    return Ok(None);
                };
                let result = match returns {
                    CqlType::Float => Number::Float(in_floats(self.operator, &left, &right)?),
                    CqlType::Double => Number::Double(in_doubles(self.operator, left.to_f64(), right.to_f64())),
                    CqlType::VarInt => {
                        Number::VarInt(in_varints(self.operator, &left.to_varint()?, &right.to_varint()?)?)
                    }
                    CqlType::Decimal => {
                        Number::Decimal(in_decimals(self.operator, &as_decimal(left)?, &as_decimal(right)?)?)
                    }
                    _ => Number::Integer(in_integers(self.operator, left.to_i64(), right.to_i64())?),
                };
                result.write(returns).map(Some)
            }
        }
    }
}

/// An operand of an operation on decimals. Cassandra takes an integer as a double, which gives it a digit after the
/// point (5 is 5.0); an integer that no double holds is taken exactly.
fn as_decimal(number: Number) -> Result<Decimal, Problem> {
    const EXACT_MAX: u64 = 1 << 53;
    match number {
        Number::Integer(n) if n.unsigned_abs() <= EXACT_MAX => Number::Double(number.to_f64()).to_decimal(),
        other => other.to_decimal(),
    }
}

fn in_integers(operator: ArithmeticOperator, left: i64, right: i64) -> Result<i64, Problem> {
    let by_zero = || "/ by zero".to_owned();
    Ok(match operator {
        ArithmeticOperator::Add => left.wrapping_add(right),
        ArithmeticOperator::Subtract => left.wrapping_sub(right),
        ArithmeticOperator::Multiply => left.wrapping_mul(right),
        ArithmeticOperator::Divide if right == 0 => return Err(by_zero()),
        ArithmeticOperator::Divide => left.wrapping_div(right),
        ArithmeticOperator::Modulo if right == 0 => return Err(by_zero()),
        ArithmeticOperator::Modulo => left.wrapping_rem(right),
    })
}

fn in_floats(operator: ArithmeticOperator, left: &Number, right: &Number) -> Result<f32, Problem> {
    let narrow = |n: &Number| match n {
        Number::Float(x) => *x,
        #[expect(clippy::cast_precision_loss, reason = "the nearest float is the result")]
        other => other.to_i64() as f32,
    };
    let (left, right) = (narrow(left), narrow(right));
    Ok(match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo => left % right,
    })
}

fn in_doubles(operator: ArithmeticOperator, left: f64, right: f64) -> f64 {
    match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo => left % right,
    }
}

fn in_varints(operator: ArithmeticOperator, left: &BigInt, right: &BigInt) -> Result<BigInt, Problem> {
    let by_zero = || "BigInteger divide by zero".to_owned();
    Ok(match operator {
        ArithmeticOperator::Add => left + right,
        ArithmeticOperator::Subtract => left - right,
        ArithmeticOperator::Multiply => left * right,
        ArithmeticOperator::Divide if right.is_zero() => return Err(by_zero()),
        ArithmeticOperator::Divide => left / right,
        ArithmeticOperator::Modulo if right.is_zero() => return Err(by_zero()),
        ArithmeticOperator::Modulo => left % right,
    })
}

/// The operation on decimals: of a statement, or of an aggregate, whose sums grow.
pub(crate) fn in_decimals(operator: ArithmeticOperator, left: &Decimal, right: &Decimal) -> Result<Decimal, Problem> {
    check_digits(&left.unscaled)?;
    check_digits(&right.unscaled)?;
    match operator {
        ArithmeticOperator::Multiply => {
            let scale = left.scale.checked_add(right.scale).ok_or("Overflow")?;
            Ok(Decimal {
                unscaled: &left.unscaled * &right.unscaled,
                scale,
            })
        }
        ArithmeticOperator::Divide => divide(left, right),
        ArithmeticOperator::Modulo if right.unscaled.is_zero() => Err("Division by zero".to_owned()),
        ArithmeticOperator::Modulo => modulo(left, right),
        ArithmeticOperator::Add | ArithmeticOperator::Subtract => {
            let scale = left.scale.max(right.scale);
            let (left, right) = (rescaled(left, scale)?, rescaled(right, scale)?);
            let unscaled = match operator {
                ArithmeticOperator::Add => left + right,
                _ => left - right,
            };
            Ok(Decimal { unscaled, scale })
        }
    }
}

/// What is left of a division without a fraction. Its scale is Java's: of the dividend less the product of quotient and
/// divisor, where the quotient is written with as few zeros after its digits as the dividend's scale allows.
fn modulo(left: &Decimal, right: &Decimal) -> Result<Decimal, Problem> {
    let scale = left.scale.max(right.scale);
    let (dividend, divisor) = (rescaled(left, scale)?, rescaled(right, scale)?);
    let mut quotient = &dividend / &divisor;
    if quotient.is_zero() {
        return Ok(left.clone());
    }
    let remainder = dividend - &quotient * divisor;
    let stripped = strip_zeros(&mut quotient, i64::from(scale) - i64::from(left.scale));
    let unit = ten_to(stripped).ok_or_else(too_long)?;
    Ok(Decimal {
        unscaled: remainder / unit,
        scale: scale - i32::try_from(stripped).map_err(|_| "Overflow")?,
    })
}

fn too_long() -> Problem {
    format!("more than {DIGITS_MAX} digits are needed")
}

/// The digits of a decimal at a larger scale.
fn rescaled(decimal: &Decimal, scale: i32) -> Result<BigInt, Problem> {
    if decimal.unscaled.is_zero() {
        return Ok(BigInt::zero());
    }
    let power = i64::from(scale) - i64::from(decimal.scale);
    Ok(&decimal.unscaled * ten_to(power).ok_or_else(too_long)?)
}

/// A quotient with 32 significant digits or 32 digits after the point, whichever is more, half a digit rounded up.
fn divide(left: &Decimal, right: &Decimal) -> Result<Decimal, Problem> {
    const SCALE_MIN: i64 = 32;
    const SCALE_MAX: i64 = 1_000;
    if right.unscaled.is_zero() {
        return Err("BigInteger divide by zero".to_owned());
    }
    let (left_scale, right_scale) = (i64::from(left.scale), i64::from(right.scale));
    let first_digit = (precision(left) - left_scale) - (precision(right) - right_scale);
    let scale = (SCALE_MIN - first_digit)
        .max(left_scale)
        .max(right_scale)
        .clamp(SCALE_MIN, SCALE_MAX);
    // left / right at that scale is left * 10^(scale - left_scale + right_scale) / right.
    let power = scale - left_scale + right_scale;
    let (dividend, divisor) = match power {
        0.. => (
            &left.unscaled * ten_to(power).ok_or_else(too_long)?,
            right.unscaled.clone(),
        ),
        _ => (
            left.unscaled.clone(),
            &right.unscaled * ten_to(-power).ok_or_else(too_long)?,
        ),
    };
    let mut quotient = &dividend / &divisor;
    let remainder = &dividend - &quotient * &divisor;
    if remainder.abs() * 2 >= divisor.abs() {
        let is_negative = dividend.is_negative() != divisor.is_negative();
        quotient += if is_negative { -1 } else { 1 };
    }
    let scale = i32::try_from(scale).map_err(|_| "Overflow")?;
    Ok(without_trailing_zeros(Decimal {
        unscaled: quotient,
        scale,
    }))
}

/// How many digits the number has.
pub(crate) fn precision(decimal: &Decimal) -> i64 {
    let digits = decimal.unscaled.magnitude().to_string().len();
    i64::try_from(digits).unwrap_or(i64::MAX)
}

fn without_trailing_zeros(mut decimal: Decimal) -> Decimal {
    if decimal.unscaled.is_zero() {
        return Decimal {
            unscaled: BigInt::zero(),
            scale: 0,
        };
    }
    let stripped = strip_zeros(&mut decimal.unscaled, i64::MAX);
    decimal.scale = decimal
        .scale
        .saturating_sub(i32::try_from(stripped).unwrap_or(i32::MAX));
    decimal
}

/// The number with the other sign.
pub(crate) fn negate(cql_type: &CqlType, bytes: &[u8]) -> Result<Option<Vec<u8>>, PlanError> {
    let Some(number) = Number::read(cql_type, bytes).map_err(PlanError::Function)? else {
        return Ok(None);
    };
    let negative = match number {
        Number::Integer(n) => Number::Integer(n.wrapping_neg()),
        Number::Float(x) => Number::Float(-x),
        Number::Double(x) => Number::Double(-x),
        Number::VarInt(n) => Number::VarInt(-n),
        Number::Decimal(d) => Number::Decimal(Decimal {
            unscaled: -d.unscaled,
            scale: d.scale,
        }),
    };
    negative.write(cql_type).map(Some).map_err(PlanError::Function)
}

#[cfg(test)]
mod tests {
    use types::Value;

    use super::*;

    fn apply(
        operator: ArithmeticOperator,
        cql_type: &CqlType,
        left: &[u8],
        right: &[u8],
    ) -> Result<Option<Vec<u8>>, PlanError> {
        let arithmetic = Arithmetic {
            operator,
            left: cql_type.clone(),
            right: cql_type.clone(),
            returns: cql_type.clone(),
        };
        arithmetic.apply(left, right)
    }

    fn decimal(unscaled: BigInt, scale: i32) -> Decimal {
        Decimal { unscaled, scale }
    }

    fn bytes(unscaled: BigInt, scale: i32) -> Vec<u8> {
        Value::Decimal(decimal(unscaled, scale)).serialize()
    }

    #[test]
    fn numbers_of_too_many_digits_are_no_operands() {
        let digits = |count: u32| -> BigInt { BigInt::from(10).pow(count) - 1 };
        let varint = |count| digits(count).to_signed_bytes_be();
        for operator in ArithmeticOperator::ALL {
            let seven = BigInt::from(7).to_signed_bytes_be();
            let within = apply(operator, &CqlType::VarInt, &varint(10_000), &seven);
            assert!(within.is_ok(), "{operator:?}");
            for (left, right) in [(varint(10_010), seven.clone()), (seven.clone(), varint(10_010))] {
                let refused = apply(operator, &CqlType::VarInt, &left, &right);
                assert!(refused.is_err(), "{operator:?}");
            }
            let (long, short) = (bytes(digits(10_010), 5_000), bytes(BigInt::from(7), 0));
            for (left, right) in [(&long, &short), (&short, &long)] {
                let refused = apply(operator, &CqlType::Decimal, left, right);
                assert!(refused.is_err(), "{operator:?}");
            }
        }
        assert!(negate(&CqlType::VarInt, &varint(10_000)).is_ok());
        assert!(negate(&CqlType::VarInt, &varint(10_010)).is_err());
        // A sum that grew.
        let (sum, one) = (decimal(digits(10_010), 0), decimal(BigInt::from(1), 0));
        assert!(in_decimals(ArithmeticOperator::Add, &sum, &one).is_err());
    }

    #[test]
    fn a_remainder_of_zero_does_not_count_down_from_its_scale() {
        let zero = decimal(BigInt::zero(), i32::MIN);
        let divisor = decimal(BigInt::from(7), i32::MAX);
        assert_eq!(in_decimals(ArithmeticOperator::Modulo, &zero, &divisor), Ok(zero));
    }

    #[test]
    fn zeros_at_the_end_of_a_quotient_are_stripped() {
        let number = |text: &str| text.parse::<BigInt>().expect("digits");
        for (left, right, quotient, remainder) in [
            (("100", 0), ("1", 0), ("1", -2), ("0", 0)),
            (("120", 0), ("1", 1), ("12", -2), ("0", 0)),
            (
                ("10000", 0),
                ("3", 0),
                ("333333333333333333333333333333333333", 32),
                ("1", 0),
            ),
            (("1000007", 3), ("5", 4), ("2000014", 0), ("0", 4)),
        ] {
            let of = |(digits, scale): (&str, i32)| decimal(number(digits), scale);
            let divided = in_decimals(ArithmeticOperator::Divide, &of(left), &of(right));
            let rest = in_decimals(ArithmeticOperator::Modulo, &of(left), &of(right));
            assert_eq!(divided, Ok(of(quotient)), "{left:?} / {right:?}");
            assert_eq!(rest, Ok(of(remainder)), "{left:?} % {right:?}");
        }
        let long = decimal(BigInt::from(10).pow(9_999), 0);
        let divided = in_decimals(ArithmeticOperator::Divide, &long, &decimal(BigInt::from(1), 0));
        assert_eq!(divided, Ok(decimal(BigInt::from(1), -9_999)));
    }

    #[test]
    fn a_decimal_of_many_digits_after_the_point_is_cut_without_their_power() {
        let short = Number::Decimal(decimal(BigInt::from(12_345), 3));
        assert_eq!(short.to_i64(), 12);
        let tiny = Number::Decimal(decimal(BigInt::from(10).pow(9_999), i32::MAX));
        assert_eq!(tiny.to_i64(), 0);
        assert_eq!(tiny.to_varint(), Ok(BigInt::zero()));
    }
}
