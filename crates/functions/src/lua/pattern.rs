//! Lua's patterns, matched by code that counts its steps.
//!
//! A pattern with several repetitions may try as many ways as the text's length to the power of their number. The
//! matcher of Lua's own library does so in C, where no hook runs. This one does the same as the manual says (section
//! 6.4.1), and takes steps of the budget.

use std::rc::Rc;

use mlua::{Function, Lua, LuaString, MultiValue, Table, Value};

use super::{failure, library};
use crate::budget::Budget;

/// How many captures a pattern may have.
const CAPTURES_MAX: usize = 32;
/// How deep the matcher may call itself.
const DEPTH_MAX: usize = 200;
/// How many steps are taken of the budget at once.
const STEPS: u32 = 256;

/// A captured part of the text.
#[derive(Clone, Copy, Debug)]
enum Capture {
    /// Its end was not met yet.
    Open(usize),
    /// `()`: only its place.
    Place(usize),
    Closed(usize, usize),
}

struct Matcher<'a> {
    text: &'a [u8],
    pattern: &'a [u8],
    captures: Vec<Capture>,
    depth: usize,
    steps: u32,
    budget: &'a Budget,
}

type Matched<T> = mlua::Result<T>;

impl<'a> Matcher<'a> {
    fn new(text: &'a [u8], pattern: &'a [u8], budget: &'a Budget) -> Self {
        Self {
            text,
            pattern,
            captures: Vec::new(),
            depth: 0,
            steps: 0,
            budget,
        }
    }

    fn step(&mut self) -> Matched<()> {
        self.steps += 1;
        if self.steps == STEPS {
            self.steps = 0;
            library::take(self.budget, u64::from(STEPS))?;
        }
        Ok(())
    }

    /// Matches the pattern at a place of the text and returns the place after the match.
    fn match_at(&mut self, place: usize) -> Matched<Option<usize>> {
        self.captures.clear();
        self.depth = 0;
        self.rest(place, 0)
    }

    /// Matches the rest of the pattern, from `pattern` on, at the place `text`.
    fn rest(&mut self, text: usize, pattern: usize) -> Matched<Option<usize>> {
        if self.depth == DEPTH_MAX {
            return Err(failure("pattern too complex"));
        }
        self.depth += 1;
        let end = self.rest_here(text, pattern);
        self.depth -= 1;
        end
    }

    fn rest_here(&mut self, mut s: usize, mut p: usize) -> Matched<Option<usize>> {
        loop {
            self.step()?;
            let Some(&symbol) = self.pattern.get(p) else {
                return Ok(Some(s));
            };
            match (symbol, self.pattern.get(p + 1)) {
                (b'(', Some(b')')) => return self.with_capture(Capture::Place(s), s, p + 2),
                (b'(', _) => return self.with_capture(Capture::Open(s), s, p + 1),
                (b')', _) => return self.close_capture(s, p + 1),
                (b'$', None) => return Ok((s == self.text.len()).then_some(s)),
                (b'%', Some(b'b')) => match self.balanced(s, p + 2)? {
                    Some(end) => (s, p) = (end, p + 4),
                    None => return Ok(None),
                },
                (b'%', Some(b'f')) => {
                    p += 2;
                    if self.pattern.get(p) != Some(&b'[') {
                        return Err(failure("missing '[' after '%f' in pattern"));
                    }
                    let end = self.class_end(p)?;
                    let before = s.checked_sub(1).map_or(0, |before| self.text[before]);
                    let here = self.text.get(s).copied().unwrap_or(0);
                    if self.is_in_set(before, p, end - 1) || !self.is_in_set(here, p, end - 1) {
                        return Ok(None);
                    }
                    p = end;
                }
                (b'%', Some(digit @ b'0'..=b'9')) => match self.again(s, *digit)? {
                    Some(end) => (s, p) = (end, p + 2),
                    None => return Ok(None),
                },
                _ => {
                    let end = self.class_end(p)?;
                    match self.pattern.get(end) {
                        Some(b'?') => {
                            if self.is_single(s, p, end)
                                && let Some(found) = self.rest(s + 1, end + 1)?
                            {
                                return Ok(Some(found));
                            }
                            p = end + 1;
                        }
                        Some(b'+') if !self.is_single(s, p, end) => return Ok(None),
                        Some(b'+') => return self.longest(s + 1, p, end),
                        Some(b'*') => return self.longest(s, p, end),
                        Some(b'-') => return self.shortest(s, p, end),
                        _ if self.is_single(s, p, end) => (s, p) = (s + 1, end),
                        _ => return Ok(None),
                    }
                }
            }
        }
    }

    fn longest(&mut self, s: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        let mut last = s;
        while self.is_single(last, p, end) {
            self.step()?;
            last += 1;
        }
        loop {
            if let Some(found) = self.rest(last, end + 1)? {
                return Ok(Some(found));
            }
            if last == s {
                return Ok(None);
            }
            last -= 1;
        }
    }

    fn shortest(&mut self, mut s: usize, p: usize, end: usize) -> Matched<Option<usize>> {
        loop {
            if let Some(found) = self.rest(s, end + 1)? {
                return Ok(Some(found));
            }
            if !self.is_single(s, p, end) {
                return Ok(None);
            }
            s += 1;
        }
    }

    fn with_capture(&mut self, capture: Capture, s: usize, p: usize) -> Matched<Option<usize>> {
        if self.captures.len() == CAPTURES_MAX {
            return Err(failure("too many captures"));
        }
        let count = self.captures.len();
        self.captures.push(capture);
        let found = self.rest(s, p)?;
        if found.is_none() {
            self.captures.truncate(count);
        }
        Ok(found)
    }

    fn close_capture(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let open = self
            .captures
            .iter()
            .rposition(|capture| matches!(capture, Capture::Open(_)));
        let Some(place) = open else {
            return Err(failure("invalid pattern capture"));
        };
        let Capture::Open(from) = self.captures[place] else {
            return Ok(None);
        };
        self.captures[place] = Capture::Closed(from, s);
        let found = self.rest(s, p)?;
        if found.is_none() {
            self.captures[place] = Capture::Open(from);
        }
        Ok(found)
    }

    /// `%bxy`: from an x to the y that balances it.
    fn balanced(&mut self, s: usize, p: usize) -> Matched<Option<usize>> {
        let (Some(&open), Some(&close)) = (self.pattern.get(p), self.pattern.get(p + 1)) else {
            return Err(failure("malformed pattern (missing arguments to '%b')"));
        };
        if self.text.get(s) != Some(&open) {
            return Ok(None);
        }
        let mut depth = 1_usize;
        for place in s + 1..self.text.len() {
            self.step()?;
            let byte = self.text[place];
            if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Ok(Some(place + 1));
                }
            } else if byte == open {
                depth += 1;
            }
        }
        Ok(None)
    }

    /// `%1`: what a capture has captured, once more.
    fn again(&mut self, s: usize, digit: u8) -> Matched<Option<usize>> {
        let index = usize::from(digit).wrapping_sub(usize::from(b'1'));
        let Some(Capture::Closed(from, to)) = self.captures.get(index).copied() else {
            return Err(failure(format!("invalid capture index %{}", digit - b'0')));
        };
        let captured = &self.text[from..to];
        library::take(self.budget, captured.len() as u64 / 16)?;
        Ok(self.text[s..].starts_with(captured).then_some(s + captured.len()))
    }

    /// The place after the class of one character that begins at `p`.
    fn class_end(&self, p: usize) -> Matched<usize> {
        let mut end = p + 1;
        match self.pattern[p] {
            b'%' => match self.pattern.get(end) {
                Some(_) => Ok(end + 1),
                None => Err(failure("malformed pattern (ends with '%')")),
            },
            b'[' => {
                if self.pattern.get(end) == Some(&b'^') {
                    end += 1;
                }
                // The first character is in the set, even if it is a bracket.
                loop {
                    let Some(&symbol) = self.pattern.get(end) else {
                        return Err(failure("malformed pattern (missing ']')"));
                    };
                    end += if symbol == b'%' { 2 } else { 1 };
                    if self.pattern.get(end) == Some(&b']') {
                        return Ok(end + 1);
                    }
                }
            }
            _ => Ok(end),
        }
    }

    fn is_single(&self, s: usize, p: usize, end: usize) -> bool {
        let Some(&byte) = self.text.get(s) else {
            return false;
        };
        match self.pattern[p] {
            b'.' => true,
            b'%' => is_in_class(byte, self.pattern[p + 1]),
            b'[' => self.is_in_set(byte, p, end - 1),
            symbol => symbol == byte,
        }
    }

    /// Whether a byte is in the set between the brackets at `p` and `end`.
    fn is_in_set(&self, byte: u8, p: usize, end: usize) -> bool {
        let mut p = p + 1;
        let is_wanted = self.pattern[p] != b'^';
        p += usize::from(!is_wanted);
        while p < end {
            let symbol = self.pattern[p];
            if symbol == b'%' {
                if is_in_class(byte, self.pattern[p + 1]) {
                    return is_wanted;
                }
                p += 2;
            } else if self.pattern[p + 1] == b'-' && p + 2 < end {
                if (symbol..=self.pattern[p + 2]).contains(&byte) {
                    return is_wanted;
                }
                p += 3;
            } else {
                if symbol == byte {
                    return is_wanted;
                }
                p += 1;
            }
        }
        !is_wanted
    }

    /// What a match gives: its captures, or the whole of it if there are none.
    fn captured(&self, lua: &Lua, from: usize, to: usize) -> Matched<MultiValue> {
        if self.captures.is_empty() {
            return library::values(lua, [lua.create_string(&self.text[from..to])?]);
        }
        (0..self.captures.len()).map(|index| self.capture(lua, index)).collect()
    }

    fn capture(&self, lua: &Lua, index: usize) -> Matched<Value> {
        match self.captures[index] {
            Capture::Open(_) => Err(failure("unfinished capture")),
            Capture::Place(place) => Ok(Value::Integer(place_of(place))),
            Capture::Closed(from, to) => Ok(Value::String(lua.create_string(&self.text[from..to])?)),
        }
    }
}

/// A place as Lua counts them.
fn place_of(place: usize) -> i64 {
    i64::try_from(place).unwrap_or(i64::MAX - 1) + 1
}

fn is_in_class(byte: u8, class: u8) -> bool {
    let is_in = match class.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        _ => return class == byte,
    };
    is_in != class.is_ascii_uppercase()
}

/// Where a search begins, for a place as Lua counts them; None after the end.
fn start_of(init: Option<i64>, len: usize) -> Option<usize> {
    let init = init.unwrap_or(1);
    let start = match init {
        1.. => usize::try_from(init - 1).unwrap_or(usize::MAX),
        0 => 0,
        _ => len.saturating_sub(usize::try_from(init.unsigned_abs()).unwrap_or(usize::MAX)),
    };
    (start <= len).then_some(start)
}

/// The first match at or after a place, as its two ends.
fn search(matcher: &mut Matcher<'_>, is_anchored: bool, start: usize) -> Matched<Option<(usize, usize)>> {
    for from in start..=matcher.text.len() {
        if let Some(to) = matcher.match_at(from)? {
            return Ok(Some((from, to)));
        }
        if is_anchored {
            break;
        }
    }
    Ok(None)
}

/// The pattern without its anchor, and whether it had one.
fn anchored(pattern: &[u8]) -> (&[u8], bool) {
    match pattern {
        [b'^', rest @ ..] => (rest, true),
        _ => (pattern, false),
    }
}

/// Puts `find`, `match`, `gmatch` and `gsub` into the table.
pub(super) fn install(lua: &Lua, budget: &Rc<Budget>, string: &Table) -> mlua::Result<()> {
    let watch = budget.clone();
    let find = move |lua: &Lua, (text, pattern, init, plain): (LuaString, LuaString, Option<i64>, Value)| {
        library::take(&watch, library::CALL_STEPS)?;
        let is_plain = !matches!(plain, Value::Nil | Value::Boolean(false));
        find(lua, &watch, (&text.as_bytes(), &pattern.as_bytes()), init, is_plain)
    };
    string.raw_set("find", lua.create_function(find)?)?;
    let watch = budget.clone();
    let first = move |lua: &Lua, (text, pattern, init): (LuaString, LuaString, Option<i64>)| {
        library::take(&watch, library::CALL_STEPS)?;
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let (pattern, is_anchored) = anchored(&pattern);
        let Some(start) = start_of(init, text.len()) else {
            return library::values(lua, [Value::Nil]);
        };
        let mut matcher = Matcher::new(&text, pattern, &watch);
        match search(&mut matcher, is_anchored, start)? {
            Some((from, to)) => matcher.captured(lua, from, to),
            None => library::values(lua, [Value::Nil]),
        }
    };
    string.raw_set("match", lua.create_function(first)?)?;
    let watch = budget.clone();
    let all = move |lua: &Lua, arguments: (LuaString, LuaString, Option<i64>)| each(lua, &watch, arguments);
    string.raw_set("gmatch", lua.create_function(all)?)?;
    let watch = budget.clone();
    let replace = move |lua: &Lua, (text, pattern, with, count): (LuaString, LuaString, Value, Option<i64>)| {
        library::take(&watch, library::CALL_STEPS)?;
        replace(lua, &watch, (&text.as_bytes(), &pattern.as_bytes()), &with, count)
    };
    string.raw_set("gsub", lua.create_function(replace)?)
}

fn find(
    lua: &Lua,
    budget: &Budget,
    (text, pattern): (&[u8], &[u8]),
    init: Option<i64>,
    is_plain: bool,
) -> mlua::Result<MultiValue> {
    let Some(start) = start_of(init, text.len()) else {
        return library::values(lua, [Value::Nil]);
    };
    if is_plain || !pattern.iter().any(|symbol| b"^$*+?.([%-".contains(symbol)) {
        let behind = &text[start..];
        let cost = (behind.len() as u64).saturating_mul(pattern.len() as u64 / 16 + 1) / 4;
        library::take(budget, cost)?;
        let found = match pattern.len() {
            0 => Some(0),
            len => behind.windows(len).position(|window| window == pattern),
        };
        return match found {
            Some(place) => {
                let from = start + place;
                library::values(lua, [place_of(from), place_of(from + pattern.len()) - 1])
            }
            None => library::values(lua, [Value::Nil]),
        };
    }
    let (pattern, is_anchored) = anchored(pattern);
    let mut matcher = Matcher::new(text, pattern, budget);
    let Some((from, to)) = search(&mut matcher, is_anchored, start)? else {
        return library::values(lua, [Value::Nil]);
    };
    let mut found = library::values(lua, [place_of(from), place_of(to) - 1])?;
    for index in 0..matcher.captures.len() {
        found.push_back(matcher.capture(lua, index)?);
    }
    Ok(found)
}

fn each(
    lua: &Lua,
    budget: &Rc<Budget>,
    (text, pattern, init): (LuaString, LuaString, Option<i64>),
) -> mlua::Result<Function> {
    let mut next = start_of(init, text.as_bytes().len()).unwrap_or(usize::MAX);
    let mut last_end = None;
    let budget = budget.clone();
    lua.create_function_mut(move |lua, ()| {
        library::take(&budget, library::CALL_STEPS)?;
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let mut matcher = Matcher::new(&text, &pattern, &budget);
        while next <= text.len() {
            let from = next;
            match matcher.match_at(from)? {
                Some(to) if last_end != Some(to) => {
                    (next, last_end) = (to, Some(to));
                    return matcher.captured(lua, from, to);
                }
                _ => next += 1,
            }
        }
        library::values(lua, [Value::Nil])
    })
}

fn replace(
    lua: &Lua,
    budget: &Budget,
    (text, pattern): (&[u8], &[u8]),
    with: &Value,
    count: Option<i64>,
) -> mlua::Result<(LuaString, i64)> {
    let (pattern, is_anchored) = anchored(pattern);
    let count_max = count.unwrap_or(i64::MAX);
    let mut matcher = Matcher::new(text, pattern, budget);
    let mut out = Vec::new();
    let (mut place, mut count, mut last_end) = (0, 0, None);
    while count < count_max {
        match matcher.match_at(place)? {
            Some(end) if last_end != Some(end) => {
                count += 1;
                let before = out.len();
                put_replacement(lua, &matcher, (place, end), with, &mut out)?;
                // What puts it there calls Lua's own functions to make texts of values.
                library::take(budget, library::CALL_STEPS / 2)?;
                budget.take_bytes(out.len() - before).map_err(mlua::Error::external)?;
                if out.len() > budget.limits().memory_bytes {
                    return Err(mlua::Error::external(budget.out_of_memory()));
                }
                (place, last_end) = (end, Some(end));
            }
            _ if place < text.len() => {
                out.push(text[place]);
                place += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(text.get(place..).unwrap_or_default());
    Ok((lua.create_string(out)?, count))
}

fn put_replacement(
    lua: &Lua,
    matcher: &Matcher<'_>,
    (from, to): (usize, usize),
    with: &Value,
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let whole = &matcher.text[from..to];
    let first = || {
        if matcher.captures.is_empty() {
            Ok(Value::String(lua.create_string(whole)?))
        } else {
            matcher.capture(lua, 0)
        }
    };
    let value = match with {
        Value::Table(table) => table.get(first()?)?,
        Value::Function(function) => function.call(matcher.captured(lua, from, to)?)?,
        Value::String(_) | Value::Integer(_) | Value::Number(_) => {
            let template = lua
                .coerce_string(with.clone())?
                .ok_or_else(|| failure("a text was expected"))?;
            return put_template(lua, matcher, whole, &template.as_bytes(), out);
        }
        other => {
            return Err(failure(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            )));
        }
    };
    match value {
        Value::Nil | Value::Boolean(false) => out.extend_from_slice(whole),
        value @ (Value::String(_) | Value::Integer(_) | Value::Number(_)) => put_text(lua, value, out)?,
        other => {
            let what = other.type_name();
            return Err(failure(format!("invalid replacement value (a {what})")));
        }
    }
    Ok(())
}

fn put_text(lua: &Lua, value: Value, out: &mut Vec<u8>) -> mlua::Result<()> {
    if let Some(text) = lua.coerce_string(value)? {
        out.extend_from_slice(&text.as_bytes());
    }
    Ok(())
}

/// Puts a template in which `%1` is the first capture and `%0` the whole match.
fn put_template(
    lua: &Lua,
    matcher: &Matcher<'_>,
    whole: &[u8],
    template: &[u8],
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let mut symbols = template.iter();
    while let Some(&symbol) = symbols.next() {
        if symbol != b'%' {
            out.push(symbol);
            continue;
        }
        match symbols.next() {
            Some(b'%') => out.push(b'%'),
            Some(b'0') => out.extend_from_slice(whole),
            Some(b'1') if matcher.captures.is_empty() => out.extend_from_slice(whole),
            Some(digit @ b'1'..=b'9') => {
                let index = usize::from(digit - b'1');
                if index >= matcher.captures.len() {
                    return Err(failure(format!(
                        "invalid capture index %{} in replacement string",
                        index + 1
                    )));
                }
                put_text(lua, matcher.capture(lua, index)?, out)?;
            }
            _ => return Err(failure("invalid use of '%' in replacement string")),
        }
        if out.len() > matcher.budget.limits().memory_bytes {
            return Err(mlua::Error::external(matcher.budget.out_of_memory()));
        }
    }
    Ok(())
}
