//! Values of `varint` and `decimal`: numbers of any size, which Lua does not have.
//!
//! Their bytes are not the interpreter's, so they are counted apart, against the same limit. Arithmetic takes steps by
//! the digits that it looks at, and no result has more than [`NUMBER_BYTES_MAX`].

use std::cmp::Ordering;
use std::rc::Rc;

use mlua::{AnyUserData, Lua, MetaMethod, UserData, UserDataMethods, Value};
use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};
use types::{CqlType, LiteralKind};

use super::failure;
use super::library::{CALL_STEPS, take};
use crate::budget::Budget;

/// The largest result of arithmetic, in bytes.
const NUMBER_BYTES_MAX: usize = 8 << 10;
/// How many digits two numbers may differ in scale where they are added or compared.
const SCALE_DIFFERENCE_MAX: u32 = 10_000;

/// `unscaled * 10^-scale`
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Digits {
    pub(super) unscaled: BigInt,
    pub(super) scale: i32,
}

/// A number, as Lua refers to it.
#[derive(Debug)]
pub(super) struct Number {
    digits: Digits,
    bytes: usize,
    budget: Rc<Budget>,
}

impl Drop for Number {
    fn drop(&mut self) {
        self.budget.release(self.bytes);
    }
}

fn bytes_of(number: &BigInt) -> usize {
    usize::try_from(number.bits() / 8)
        .unwrap_or(usize::MAX)
        .saturating_add(32)
}

/// The number, as a Lua value.
pub(super) fn value(lua: &Lua, budget: &Rc<Budget>, digits: Digits) -> mlua::Result<Value> {
    let bytes = bytes_of(&digits.unscaled);
    if !budget.hold(bytes) {
        // Numbers that are no longer referenced are still counted until they are collected.
        lua.gc_collect()?;
        if !budget.hold(bytes) {
            return Err(mlua::Error::external(budget.out_of_memory()));
        }
    }
    let number = Number {
        digits,
        bytes,
        budget: budget.clone(),
    };
    lua.create_userdata(number).map(Value::UserData)
}

/// The number that a value is, or is the text of.
pub(super) fn of_value(budget: &Budget, value: &Value) -> mlua::Result<Option<Digits>> {
    Ok(match value {
        Value::Integer(number) => Some(whole(BigInt::from(*number))),
        Value::Number(number) if number.is_finite() => of_text(budget, &format!("{number}"))?,
        Value::String(text) => match text.to_str() {
            Ok(text) => of_text(budget, text.trim())?,
            Err(_) => None,
        },
        Value::UserData(data) => of_userdata(data),
        _ => None,
    })
}

const fn whole(unscaled: BigInt) -> Digits {
    Digits { unscaled, scale: 0 }
}

fn of_userdata(data: &AnyUserData) -> Option<Digits> {
    data.borrow::<Number>().ok().map(|number| number.digits.clone())
}

/// Reads digits, which takes time that grows with the square of their count.
fn of_text(budget: &Budget, text: &str) -> mlua::Result<Option<Digits>> {
    let len = text.len() as u64;
    take(budget, len.saturating_mul(len) / 256)?;
    let Ok(bytes) = CqlType::Decimal.parse_literal(LiteralKind::Float, text) else {
        return Ok(None);
    };
    Ok(of_decimal(&bytes))
}

/// The digits of a serialised decimal.
pub(super) fn of_decimal(bytes: &[u8]) -> Option<Digits> {
    let (scale, unscaled) = bytes.split_first_chunk()?;
    Some(Digits {
        unscaled: BigInt::from_signed_bytes_be(unscaled),
        scale: i32::from_be_bytes(*scale),
    })
}

impl Digits {
    /// The number as an integer; None when it has digits after the point.
    pub(super) fn to_integer(&self) -> Option<BigInt> {
        if self.unscaled.is_zero() {
            return Some(BigInt::zero());
        }
        let places = self.scale.unsigned_abs();
        if places > SCALE_DIFFERENCE_MAX {
            return None;
        }
        let factor = BigInt::from(10).pow(places);
        if self.scale <= 0 {
            Some(&self.unscaled * factor)
        } else if (&self.unscaled % &factor).is_zero() {
            Some(&self.unscaled / factor)
        } else {
            None
        }
    }

    pub(super) fn to_f64(&self) -> f64 {
        match self.scale {
            0 => self.unscaled.to_f64().unwrap_or(f64::NAN),
            _ => self.text().parse().unwrap_or(f64::NAN),
        }
    }

    /// As a serialised decimal.
    pub(super) fn decimal_bytes(&self) -> Vec<u8> {
        let mut bytes = self.scale.to_be_bytes().to_vec();
        bytes.extend_from_slice(&self.unscaled.to_signed_bytes_be());
        bytes
    }

    pub(super) fn text(&self) -> String {
        match self.scale {
            0 => self.unscaled.to_string(),
            _ => CqlType::Decimal.format(&self.decimal_bytes()),
        }
    }

    fn len(&self) -> u64 {
        bytes_of(&self.unscaled) as u64
    }
}

/// Both with the larger scale of the two.
fn aligned(a: &Digits, b: &Digits) -> mlua::Result<(BigInt, BigInt, i32)> {
    if a.scale.abs_diff(b.scale) > SCALE_DIFFERENCE_MAX {
        return Err(failure("two decimals differ too much in scale"));
    }
    let scale = a.scale.max(b.scale);
    let to_scale = |digits: &Digits| &digits.unscaled * BigInt::from(10).pow(scale.abs_diff(digits.scale));
    Ok((to_scale(a), to_scale(b), scale))
}

/// Refuses a number that is too large for what is to come.
fn check_size(unscaled: &BigInt) -> mlua::Result<()> {
    if bytes_of(unscaled) <= NUMBER_BYTES_MAX + 32 {
        Ok(())
    } else {
        Err(failure(format!("a number has at most {NUMBER_BYTES_MAX} bytes here")))
    }
}

type Operation = fn(&Digits, &Digits) -> mlua::Result<Digits>;

fn add(a: &Digits, b: &Digits) -> mlua::Result<Digits> {
    let (a, b, scale) = aligned(a, b)?;
    Ok(Digits { unscaled: a + b, scale })
}

fn subtract(a: &Digits, b: &Digits) -> mlua::Result<Digits> {
    let (a, b, scale) = aligned(a, b)?;
    Ok(Digits { unscaled: a - b, scale })
}

fn multiply(a: &Digits, b: &Digits) -> mlua::Result<Digits> {
    let scale = a.scale.checked_add(b.scale);
    Ok(Digits {
        unscaled: &a.unscaled * &b.unscaled,
        scale: scale.ok_or_else(|| failure("the scale of a decimal is out of range"))?,
    })
}

/// The quotient towards minus infinity, and what is left, as Lua's integers have them.
fn floored(a: &Digits, b: &Digits) -> mlua::Result<(BigInt, BigInt, i32)> {
    let (a, b, scale) = aligned(a, b)?;
    if b.is_zero() {
        return Err(failure("attempt to perform 'n//0'"));
    }
    let (quotient, rest) = (&a / &b, &a % &b);
    Ok(if !rest.is_zero() && rest.is_negative() != b.is_negative() {
        (quotient - 1, rest + b, scale)
    } else {
        (quotient, rest, scale)
    })
}

fn quotient(a: &Digits, b: &Digits) -> mlua::Result<Digits> {
    floored(a, b).map(|(quotient, _, _)| whole(quotient))
}

fn rest(a: &Digits, b: &Digits) -> mlua::Result<Digits> {
    floored(a, b).map(|(_, unscaled, scale)| Digits { unscaled, scale })
}

/// The two operands of an operator, of which one is a [`Number`].
fn operands(budget: &Budget, a: &Value, b: &Value) -> mlua::Result<(Digits, Digits)> {
    let operand = |value: &Value| {
        of_value(budget, value)?
            .ok_or_else(|| failure(format!("attempt to compute with a number and a {}", value.type_name())))
    };
    let (a, b) = (operand(a)?, operand(b)?);
    check_size(&a.unscaled)?;
    check_size(&b.unscaled)?;
    take(budget, a.len() * b.len() / 64 + CALL_STEPS)?;
    if a.scale != b.scale {
        // Powers of ten are made.
        take(budget, u64::from(a.scale.abs_diff(b.scale).min(SCALE_DIFFERENCE_MAX)))?;
    }
    Ok((a, b))
}

fn compare(budget: &Budget, a: &Value, b: &Value) -> mlua::Result<Ordering> {
    let (a, b) = operands(budget, a, b)?;
    let (a, b, _) = aligned(&a, &b)?;
    Ok(a.cmp(&b))
}

fn text_of(budget: &Budget, value: &Value) -> mlua::Result<Vec<u8>> {
    Ok(match value {
        Value::UserData(data) => {
            let digits = of_userdata(data).ok_or_else(|| failure("attempt to concatenate a userdata value"))?;
            take(budget, digits.len() * digits.len() / 256 + CALL_STEPS)?;
            digits.text().into_bytes()
        }
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Integer(number) => number.to_string().into_bytes(),
        Value::Number(number) => format!("{number:?}").into_bytes(),
        other => {
            let what = other.type_name();
            return Err(failure(format!("attempt to concatenate a {what} value")));
        }
    })
}

impl UserData for Number {
    fn add_methods<M: UserDataMethods<Self>>(methods: &mut M) {
        let operators: [(MetaMethod, Operation); 5] = [
            (MetaMethod::Add, add),
            (MetaMethod::Sub, subtract),
            (MetaMethod::Mul, multiply),
            (MetaMethod::IDiv, quotient),
            (MetaMethod::Mod, rest),
        ];
        for (name, operation) in operators {
            methods.add_meta_function(name, move |lua, (a, b): (Value, Value)| {
                let budget = budget_of(&a, &b)?;
                let (a, b) = operands(&budget, &a, &b)?;
                let result = operation(&a, &b)?;
                check_size(&result.unscaled)?;
                value(lua, &budget, result)
            });
        }
        methods.add_meta_function(MetaMethod::Div, |_, (a, b): (Value, Value)| {
            let (a, b) = operands(&*budget_of(&a, &b)?, &a, &b)?;
            Ok(a.to_f64() / b.to_f64())
        });
        methods.add_meta_method(MetaMethod::Unm, |lua, number, ()| {
            let digits = Digits {
                unscaled: -&number.digits.unscaled,
                scale: number.digits.scale,
            };
            take(&number.budget, digits.len() / 64 + CALL_STEPS)?;
            value(lua, &number.budget, digits)
        });
        methods.add_meta_function(MetaMethod::Eq, |_, (a, b): (Value, Value)| {
            Ok(compare(&*budget_of(&a, &b)?, &a, &b)?.is_eq())
        });
        methods.add_meta_function(MetaMethod::Lt, |_, (a, b): (Value, Value)| {
            Ok(compare(&*budget_of(&a, &b)?, &a, &b)?.is_lt())
        });
        methods.add_meta_function(MetaMethod::Le, |_, (a, b): (Value, Value)| {
            Ok(compare(&*budget_of(&a, &b)?, &a, &b)?.is_le())
        });
        methods.add_meta_function(MetaMethod::ToString, |lua, number: Value| {
            lua.create_string(text_of(&*budget_of(&number, &Value::Nil)?, &number)?)
        });
        methods.add_meta_function(MetaMethod::Concat, |lua, (a, b): (Value, Value)| {
            let budget = budget_of(&a, &b)?;
            let mut text = text_of(&budget, &a)?;
            text.extend_from_slice(&text_of(&budget, &b)?);
            take(&budget, text.len() as u64 / 16)?;
            lua.create_string(text)
        });
    }
}

/// The budget of the operand that is a [`Number`].
fn budget_of(a: &Value, b: &Value) -> mlua::Result<Rc<Budget>> {
    let of = |value: &Value| match value {
        Value::UserData(data) => data.borrow::<Number>().ok().map(|number| number.budget.clone()),
        _ => None,
    };
    of(a).or_else(|| of(b)).ok_or_else(|| failure("a number was expected"))
}
