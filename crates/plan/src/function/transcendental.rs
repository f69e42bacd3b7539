//! `exp`, `log` and `log10` of decimals, as Cassandra gives them: rounded, half up, to 32 significant digits or as many
//! as the argument has.
//!
//! Numbers are fixed-point integers: `value * 10^digits`. `digits` covers the digits of the result, those that cancel
//! in subtractions, and [`GUARD_DIGITS`] for what each operation cuts off.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use stdx::preempt;
use types::Decimal;

use super::arithmetic::precision;
use super::number::Problem;

/// The fewest significant digits of a result.
const DIGITS_MIN: i64 = 32;

/// The most significant digits of a result: more take longer than a request may.
const DIGITS_MAX: i64 = 1_000;

/// Digits after those of the result.
const GUARD_DIGITS: i64 = 25;

/// Arguments of `exp` with more digits before the point are refused: the result has no exponent of 32 bits.
const WHOLE_DIGITS_MAX: i64 = 10;

/// e to that power.
pub(super) fn exp(x: &Decimal) -> Result<Decimal, Problem> {
    if x.unscaled.is_zero() {
        return Ok(Decimal {
            unscaled: BigInt::from(1),
            scale: 0,
        });
    }
    let digits = significant_digits(x);
    let whole_digits = precision(x) - i64::from(x.scale);
    if whole_digits > WHOLE_DIGITS_MAX {
        return Err("Overflow".to_owned());
    }
    let fixed = Fixed::new(digits + WHOLE_DIGITS_MAX + GUARD_DIGITS);
    let x = fixed.number(&x.unscaled, i64::from(x.scale));
    // e^x is 10^n * e^(x - n ln 10).
    let ln_10 = fixed.ln_10();
    let n = floor(&x, &ln_10);
    let power = n.to_i64().ok_or("Overflow")?;
    rounded(fixed.exp(&(x - n * ln_10)), fixed.digits - power, digits)
}

/// The natural logarithm.
pub(super) fn log(x: &Decimal) -> Result<Decimal, Problem> {
    let digits = significant_digits(x);
    if !x.unscaled.is_positive() {
        return Err("Natural log of number zero or less".to_owned());
    }
    if is_one(x) {
        return Ok(Decimal {
            unscaled: BigInt::zero(),
            scale: 0,
        });
    }
    let near_one = NearOne::of(x);
    if near_one.zeros > digits + GUARD_DIGITS {
        return rounded(near_one.difference, i64::from(x.scale), digits);
    }
    let fixed = Fixed::new(digits + near_one.zeros + GUARD_DIGITS);
    rounded(fixed.ln(x), fixed.digits, digits)
}

/// The logarithm to base 10.
pub(super) fn log10(x: &Decimal) -> Result<Decimal, Problem> {
    let digits = significant_digits(x);
    if !x.unscaled.is_positive() {
        return Err("Log10 of number zero or less".to_owned());
    }
    if is_one(x) {
        // Cassandra divides zero by ln 10, which has this many digits after the point.
        return Ok(Decimal {
            unscaled: BigInt::zero(),
            scale: i32::try_from(-(digits + 1)).map_err(|_| "Overflow")?,
        });
    }
    let near_one = NearOne::of(x);
    if near_one.zeros > digits + GUARD_DIGITS {
        let fixed = Fixed::new(digits + GUARD_DIGITS);
        let quotient = near_one.difference * &fixed.one * &fixed.one / fixed.ln_10();
        return rounded(quotient, fixed.digits + i64::from(x.scale), digits);
    }
    let fixed = Fixed::new(digits + near_one.zeros + GUARD_DIGITS);
    let quotient = fixed.ln(x) * &fixed.one / fixed.ln_10();
    rounded(quotient, fixed.digits, digits)
}

fn significant_digits(x: &Decimal) -> i64 {
    precision(x).clamp(DIGITS_MIN, DIGITS_MAX)
}

/// How near a positive number is to one, where its logarithm loses the digits that they share.
struct NearOne {
    /// The number less one, of the number's scale; zero where they share nothing.
    difference: BigInt,
    /// How many zeros its difference from one has after the point. Where they are more than the digits of a result, the
    /// difference is the logarithm: what the series has beside it, half its square, is smaller than the last digit.
    zeros: i64,
}

impl NearOne {
    fn of(x: &Decimal) -> Self {
        let scale = i64::from(x.scale);
        // From 0.1 to 10 it has as many digits as after the point, or one more.
        if scale > 0 && (0..=1).contains(&(precision(x) - scale)) {
            let difference = &x.unscaled - ten_to(scale);
            let zeros = (scale - precision_of(&difference)).max(0);
            return Self { difference, zeros };
        }
        Self {
            difference: BigInt::zero(),
            zeros: 0,
        }
    }
}

fn is_one(x: &Decimal) -> bool {
    u32::try_from(x.scale)
        .is_ok_and(|scale| i64::from(scale) < precision(x) && x.unscaled == BigInt::from(10).pow(scale))
}

/// The number with `scale` digits after the point, rounded half up to `digits` significant digits.
fn rounded(unscaled: BigInt, scale: i64, digits: i64) -> Result<Decimal, Problem> {
    let mut number = Decimal { unscaled, scale: 0 };
    let mut dropped = 0;
    loop {
        let more = precision(&number) - digits;
        if more <= 0 {
            break;
        }
        let unit = ten_to(more);
        let half = &unit / 2 * number.unscaled.signum();
        number.unscaled = (number.unscaled + half) / unit;
        dropped += more;
    }
    number.scale = i32::try_from(scale - dropped).map_err(|_| "Overflow")?;
    Ok(number)
}

fn ten_to(power: i64) -> BigInt {
    BigInt::from(10).pow(u32::try_from(power).unwrap_or(0))
}

/// The quotient, rounded down.
fn floor(dividend: &BigInt, divisor: &BigInt) -> BigInt {
    let quotient = dividend / divisor;
    if (dividend % divisor).is_negative() {
        quotient - 1
    } else {
        quotient
    }
}

/// Arithmetic with so many digits after the point.
struct Fixed {
    digits: i64,
    one: BigInt,
}

impl Fixed {
    fn new(digits: i64) -> Self {
        Self {
            digits,
            one: ten_to(digits),
        }
    }

    /// `unscaled * 10^-scale`. What has no digit before the last place is zero.
    fn number(&self, unscaled: &BigInt, scale: i64) -> BigInt {
        match self.digits - scale {
            more @ 0.. => unscaled * ten_to(more),
            less if -less > precision_of(unscaled) => BigInt::zero(),
            less => unscaled / ten_to(-less),
        }
    }

    /// `2 atanh(1 / n)`, which is `ln((n + 1) / (n - 1))`.
    fn twice_atanh_of_inverse(&self, n: u32) -> BigInt {
        let square = n * n;
        let mut power: BigInt = 2 * &self.one / n;
        let mut sum = BigInt::ZERO;
        let mut k = 1_u32;
        while !power.is_zero() {
            preempt::point();
            sum += &power / k;
            power /= square;
            k += 2;
        }
        sum
    }

    fn ln_10(&self) -> BigInt {
        // 10 is 2^3 * 5/4.
        3 * self.twice_atanh_of_inverse(3) + self.twice_atanh_of_inverse(9)
    }

    /// e to a small power, by its series.
    fn exp(&self, x: &BigInt) -> BigInt {
        let mut term = self.one.clone();
        let mut sum = BigInt::ZERO;
        let mut k = 1_u32;
        while !term.is_zero() {
            preempt::long_step();
            sum += &term;
            term = term * x / &self.one / k;
            k += 1;
        }
        sum
    }

    /// The natural logarithm of a positive number.
    fn ln(&self, x: &Decimal) -> BigInt {
        // x is m * 10^power, m from 0.3 to 3.
        let mut length = precision(x);
        let mut m = self.number(&x.unscaled, length);
        let third = 3 * &self.one / 10;
        if m < third {
            m *= 10;
            length -= 1;
        }
        let power = length - i64::from(x.scale);
        // Halley's method from the double nearby: each step has three times as many digits.
        let near = (&m / ten_to(self.digits - 20))
            .to_f64()
            .map_or(0.0, |m| (m / 1e20).ln());
        let start = BigInt::from((near * 1e15).round().to_i64().unwrap_or(0));
        let mut y = start * ten_to(self.digits - 15);
        let mut correct: i64 = 14;
        while correct < self.digits {
            let e = self.exp(&y);
            y += 2 * (&m - &e) * &self.one / (&m + &e);
            correct *= 3;
        }
        y + power * self.ln_10()
    }
}

fn precision_of(unscaled: &BigInt) -> i64 {
    i64::try_from(unscaled.magnitude().to_string().len()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decimal(unscaled: &str, scale: i32) -> Decimal {
        Decimal {
            unscaled: unscaled.parse().expect("digits"),
            scale,
        }
    }

    #[track_caller]
    fn check(function: fn(&Decimal) -> Result<Decimal, Problem>, x: Decimal, expected: Decimal) {
        let found = function(&x).expect("it has a value");
        assert_eq!(
            (&found.unscaled, found.scale),
            (&expected.unscaled, expected.scale),
            "of {x:?}"
        );
    }

    /// Cassandra's values.
    #[test]
    fn decimals_have_cassandras_digits() {
        check(exp, decimal("15", 1), decimal("44816890703380648226020554601193", 31));
        check(exp, decimal("1", 30), decimal("10000000000000000000000000000010", 31));
        check(exp, decimal("-1", 2), decimal("99004983374916805357390597718004", 32));
        check(exp, decimal("0", 0), decimal("1", 0));
        check(exp, decimal("-25", 1), decimal("82084998623898795169528674467160", 33));
        check(
            exp,
            decimal("123456", 3),
            decimal("41329443527780934495768544122734", -22),
        );
        check(
            exp,
            decimal("1000", 0),
            decimal("19700711140170469938888793522433", -403),
        );
        check(log, decimal("15", 1), decimal("40546510810816438197801311546435", 32));
        check(log, decimal("1", -30), decimal("69077552789821370520539743640531", 30));
        check(log, decimal("1", 30), decimal("-69077552789821370520539743640531", 30));
        check(
            log,
            decimal("123456789012345678901", 1),
            decimal("43959837789202520557394939349564", 30),
        );
        check(log, decimal("10000", 4), decimal("0", 0));
        check(log10, decimal("15", 1), decimal("17609125905568124208128900853062", 32));
        check(
            log10,
            decimal("1", 30),
            decimal("-30000000000000000000000000000000", 30),
        );
        check(
            log10,
            decimal("1000", 0),
            decimal("30000000000000000000000000000000", 31),
        );
        check(log10, decimal("10000", 4), decimal("0", -33));
    }

    /// A value that a client wrote once keeps no shard for minutes: 60,000 digits took nine.
    #[test]
    fn numbers_of_many_digits_cost_no_more_than_their_results() {
        let nines = "9".repeat(60_000);
        for function in [log, log10] {
            let of_large = function(&decimal(&nines, 0)).expect("it is positive");
            assert_eq!(precision(&of_large), DIGITS_MAX);
            let of_near = function(&decimal(&nines, 60_000)).expect("it is positive");
            assert!(of_near.unscaled.is_negative(), "{of_near:?}");
        }
        let near = format!("1{}1", "0".repeat(59_999));
        let difference = rounded(BigInt::from(1), 60_000, DIGITS_MAX).expect("it fits");
        check(log, decimal(&near, 60_000), difference);
        let of_tens = log10(&decimal(&near, 60_000)).expect("it is positive");
        let digits = of_tens.unscaled.to_string();
        assert!(digits.starts_with("434294481903251827651"), "1 / ln 10 comes: {digits}");
        assert_eq!(i64::from(of_tens.scale), 60_000 + precision(&of_tens));
    }

    #[test]
    fn what_has_no_value_is_refused() {
        for (function, x) in [
            (exp as fn(&Decimal) -> _, decimal("1", -30)),
            (exp, decimal("-1", -30)),
            (log, decimal("0", 0)),
            (log, decimal("-1", 2)),
            (log10, decimal("-1", 2)),
        ] {
            function(&x).expect_err("it has no value");
        }
    }

    /// e^(ln x) is x, for numbers near 1, small, large, and of many digits.
    #[test]
    fn exp_undoes_log() {
        for x in [
            decimal("1000000000000000000000000000001", 30),
            decimal("999999999999999999999999999999", 30),
            decimal("7", 300),
            decimal("31", 1),
            decimal("29", 1),
            decimal("123456789", -400),
            decimal(&"8".repeat(500), 250),
        ] {
            let y = exp(&log(&x).expect("it is positive")).expect("it fits");
            let digits = 28_usize;
            let lead = |d: &Decimal| d.unscaled.to_string()[..digits.min(d.unscaled.to_string().len())].to_owned();
            let (x, y) = (
                rounded(x.unscaled.clone(), i64::from(x.scale), 28),
                rounded(y.unscaled, i64::from(y.scale), 28),
            );
            let (x, y) = (x.expect("it fits"), y.expect("it fits"));
            let more = i64::from(y.scale) - i64::from(x.scale);
            let same = x.unscaled * ten_to(more.max(0)) - &y.unscaled * ten_to((-more).max(0));
            assert!(same.abs() <= BigInt::from(20), "{} is off by {same}", lead(&y));
        }
    }
}
