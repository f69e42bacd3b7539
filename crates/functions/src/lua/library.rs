//! What Lua code finds: the functions of the language, without those that reach out of a call, run unseen or give
//! chance.
//!
//! - There is no `io`, `os`, `package`, `debug` and `coroutine`, no `load`, `print`, `collectgarbage`, `rawset`, no
//!   randomness, no `_G`.
//! - A hook does not run while C code does, so a loop in C has no end that we see. Patterns are matched by
//!   [`pattern`](super::pattern), which counts. Functions of tables take tables without a metatable, and few enough
//!   elements.
//! - Finalizers run without hooks: no metatable has `__gc`.
//! - `pcall` does not catch what ends a call.
//! - Code reaches the tables of the library through proxies that cannot be written to; nothing lasts from one call to
//!   the next.

use std::rc::Rc;

use mlua::{Function, IntoLua, Lua, LuaString, MultiValue, Table, Value};

use super::{failure, pattern, root_of, text_of};
use crate::budget::Budget;

/// How many elements one call of a function of tables may move, and `string.rep` repeat.
const MOVED_MAX: i64 = 1 << 20;
/// Steps of a call of a function that is not Lua's own: values are handed over to Rust and back.
pub(super) const CALL_STEPS: u64 = 60;
/// How many elements are sorted.
const SORTED_MAX: usize = 1 << 16;

const BASE: &[&str] = &[
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "rawequal",
    "rawget",
    "rawlen",
    "select",
    "tonumber",
    "type",
    "_VERSION",
];
const STRING: &[&str] = &["char", "len", "packsize", "sub"];
/// Those that look at each byte.
const STRING_BY_BYTES: &[&str] = &["byte", "lower", "pack", "reverse", "unpack", "upper"];
const UTF8_BY_BYTES: &[&str] = &["codepoint", "len", "offset"];
const WITHOUT_CHANCE: &[&str] = &["random", "randomseed"];

/// `pcall` and `xpcall` that let an error through when the call has used up what it may. Lua calls the handler of its
/// own `xpcall` where the error was raised; if that is the hook, hooks do not run in the handler. So here it is called
/// when the error has ended the function.
const PROTECTED: &str = "
local pcall, check_budget = ...
local function check(ok, ...)
    if ok then return ok, ... end
    return ok, check_budget(...)
end
local function handle(handler, ok, ...)
    if ok then return ok, ... end
    return ok, handler(check_budget(...))
end
return function(f, ...) return check(pcall(f, ...)) end,
    function(f, handler, ...) return handle(handler, pcall(f, ...)) end
";

/// The metatable of a call's globals, and `pcall`.
pub(super) fn install(lua: &Lua, budget: &Rc<Budget>) -> mlua::Result<(Table, Function)> {
    let from = lua.globals();
    let library = lua.create_table()?;
    for name in BASE {
        library.raw_set(*name, from.raw_get::<Value>(*name)?)?;
    }
    library.raw_set(
        "setmetatable",
        guarded(lua, budget, &from, "setmetatable", without_finalizer)?,
    )?;
    let watch = budget.clone();
    let check_budget = lua.create_function(move |lua, error: Value| {
        take(&watch, CALL_STEPS)?;
        // Errors of functions that are not Lua's own are objects of the interpreter's; code finds a text, as it would
        // in Lua.
        match error {
            Value::Error(error) => Ok(Value::String(lua.create_string(text_of(root_of(&error)))?)),
            error => Ok(error),
        }
    })?;
    let protected = lua.load(PROTECTED).set_name("=pcall");
    let (pcall, xpcall): (Function, Function) = protected.call((from.raw_get::<Value>("pcall")?, check_budget))?;
    library.raw_set("tostring", shown(lua, budget, &from, "tostring")?)?;
    library.raw_set("pcall", pcall.clone())?;
    library.raw_set("xpcall", xpcall)?;

    let string = strings(lua, budget, &from.raw_get("string")?)?;
    // Methods of strings are found here; the table itself is not.
    if let Some(metatable) = lua.type_metatable::<LuaString>() {
        metatable.raw_set("__index", string.clone())?;
        metatable.raw_set("__metatable", false)?;
    }
    library.raw_set("string", proxy(lua, string)?)?;
    library.raw_set("table", proxy(lua, tables(lua, budget, &from.raw_get("table")?)?)?)?;
    let math: Table = from.raw_get("math")?;
    for name in WITHOUT_CHANCE {
        math.raw_set(*name, Value::Nil)?;
    }
    library.raw_set("math", proxy(lua, math)?)?;
    let utf8: Table = from.raw_get("utf8")?;
    for name in UTF8_BY_BYTES {
        utf8.raw_set(
            *name,
            guarded(lua, budget, &utf8, name, |arguments| Ok(steps_of_texts(arguments)))?,
        )?;
    }
    library.raw_set("utf8", proxy(lua, utf8)?)?;

    let globals = lua.create_table()?;
    globals.raw_set("__index", library)?;
    globals.raw_set("__metatable", false)?;
    // What is not in the library is not reachable from anywhere.
    from.clear()?;
    Ok((globals, pcall))
}

/// Takes steps of a call.
pub(super) fn take(budget: &Budget, steps: u64) -> mlua::Result<()> {
    budget.take(steps).map_err(mlua::Error::external)
}

/// A table that shows `of` and cannot be changed.
fn proxy(lua: &Lua, of: Table) -> mlua::Result<Table> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", of)?;
    let refuse = lua.create_function(|_, _: MultiValue| -> mlua::Result<()> {
        Err(failure("attempt to change a table of the library"))
    })?;
    metatable.raw_set("__newindex", refuse)?;
    metatable.raw_set("__metatable", false)?;
    let proxy = lua.create_table()?;
    proxy.set_metatable(Some(metatable))?;
    Ok(proxy)
}

/// A function of C that is called only with what `check` lets through; `check` gives how many steps it takes.
fn guarded(
    lua: &Lua,
    budget: &Rc<Budget>,
    from: &Table,
    name: &str,
    check: fn(&MultiValue) -> mlua::Result<u64>,
) -> mlua::Result<Function> {
    let original: Function = from.raw_get(name)?;
    let budget = budget.clone();
    lua.create_function(move |_, arguments: MultiValue| {
        take(&budget, check(&arguments)?.saturating_add(CALL_STEPS))?;
        original.call::<MultiValue>(arguments)
    })
}

fn without_finalizer(arguments: &MultiValue) -> mlua::Result<u64> {
    match arguments.get(1) {
        Some(Value::Table(metatable)) if !metatable.raw_get::<Value>("__gc")?.is_nil() => {
            Err(failure("a metatable has no __gc here"))
        }
        _ => Ok(1),
    }
}

/// How many steps it takes to look at each byte of the texts.
fn steps_of_texts(arguments: &MultiValue) -> u64 {
    let bytes = arguments.iter().map(|value| match value {
        Value::String(text) => text.as_bytes().len() as u64,
        _ => 0,
    });
    bytes.sum::<u64>() / 16
}

/// A function that makes texts of its arguments, without the addresses that Lua shows tables and functions as: they
/// would show a client where the server's memory is, and differ from node to node.
fn shown(lua: &Lua, budget: &Rc<Budget>, from: &Table, name: &str) -> mlua::Result<Function> {
    let original: Function = from.raw_get(name)?;
    let budget = budget.clone();
    lua.create_function(move |lua, mut arguments: MultiValue| {
        take(&budget, steps_of_texts(&arguments) + CALL_STEPS)?;
        if let (true, Some(Value::String(format))) = (arguments.len() > 1, arguments.front())
            && has_address(&format.as_bytes())
        {
            return Err(failure("there is no %p here"));
        }
        for value in arguments.iter_mut() {
            let is_shown = match value {
                Value::Table(table) => match table.metatable() {
                    Some(metatable) => metatable.raw_get::<Value>("__tostring")?.is_nil(),
                    None => true,
                },
                Value::Function(_) | Value::Thread(_) | Value::LightUserData(_) => true,
                _ => false,
            };
            if is_shown {
                *value = Value::String(lua.create_string(value.type_name())?);
            }
        }
        original.call::<MultiValue>(arguments)
    })
}

/// Whether a format has the conversion `%p`.
fn has_address(format: &[u8]) -> bool {
    let mut symbols = format.iter();
    while symbols.any(|symbol| *symbol == b'%') {
        // Flags, a width and a precision may precede the conversion.
        if symbols.find(|symbol| !b"-+ #.0123456789".contains(symbol)) == Some(&b'p') {
            return true;
        }
    }
    false
}

// --- string -------------------------------------------------------------------------------------------------------

fn strings(lua: &Lua, budget: &Rc<Budget>, from: &Table) -> mlua::Result<Table> {
    let string = lua.create_table()?;
    for name in STRING {
        string.raw_set(*name, from.raw_get::<Value>(*name)?)?;
    }
    for name in STRING_BY_BYTES {
        string.raw_set(
            *name,
            guarded(lua, budget, from, name, |arguments| Ok(steps_of_texts(arguments)))?,
        )?;
    }
    string.raw_set("format", shown(lua, budget, from, "format")?)?;
    let watch = budget.clone();
    let repeat = move |lua: &Lua, (text, count, separator): (LuaString, i64, Option<LuaString>)| {
        take(&watch, CALL_STEPS)?;
        repeated(lua, &watch, &text, count, separator.as_ref())
    };
    string.raw_set("rep", lua.create_function(repeat)?)?;
    pattern::install(lua, budget, &string)?;
    Ok(string)
}

fn repeated(
    lua: &Lua,
    budget: &Budget,
    text: &LuaString,
    count: i64,
    separator: Option<&LuaString>,
) -> mlua::Result<LuaString> {
    let text = text.as_bytes();
    let separator = separator.map(LuaString::as_bytes);
    let separator = separator.as_deref().unwrap_or_default();
    let Ok(count) = usize::try_from(count) else {
        return lua.create_string("");
    };
    let bytes = (text.len() + separator.len()).saturating_mul(count);
    if bytes > budget.limits().memory_bytes {
        return Err(mlua::Error::external(budget.out_of_memory()));
    }
    if bytes == 0 {
        return lua.create_string("");
    }
    budget.take_bytes(bytes).map_err(mlua::Error::external)?;
    let mut out = Vec::with_capacity(bytes);
    for index in 0..count {
        if index > 0 {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(&text);
    }
    lua.create_string(out)
}

// --- table --------------------------------------------------------------------------------------------------------

fn tables(lua: &Lua, budget: &Rc<Budget>, from: &Table) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", from.raw_get::<Value>("pack")?)?;
    type Check = fn(&MultiValue) -> mlua::Result<u64>;
    let guards: [(&str, Check); 6] = [
        ("concat", |arguments| Ok(length(plain(arguments, 0)?) as u64)),
        ("unpack", |arguments| Ok(length(plain(arguments, 0)?) as u64)),
        ("insert", |arguments| match arguments.len() {
            // An insertion after the last element moves nothing.
            0..3 => plain(arguments, 0).map(|_| 1),
            _ => moved_behind(arguments),
        }),
        ("remove", |arguments| match arguments.len() {
            0..2 => plain(arguments, 0).map(|_| 1),
            _ => moved_behind(arguments),
        }),
        ("move", |arguments| {
            plain(arguments, 0)?;
            if arguments.len() > 4 {
                plain(arguments, 4)?;
            }
            let (first, last) = (integer(arguments, 1)?, integer(arguments, 2)?);
            moved(last.saturating_sub(first).saturating_add(1))
        }),
        ("sort", |arguments| {
            let len = length(plain(arguments, 0)?);
            if len <= SORTED_MAX {
                Ok(len as u64 * u64::from(len.checked_ilog2().unwrap_or(0) + 1))
            } else {
                Err(failure(format!(
                    "a table of more than {SORTED_MAX} elements is not sorted"
                )))
            }
        }),
    ];
    for (name, check) in guards {
        table.raw_set(name, guarded(lua, budget, from, name, check)?)?;
    }
    Ok(table)
}

/// The argument, which must be a table that behaves as one.
fn plain(arguments: &MultiValue, place: usize) -> mlua::Result<&Table> {
    match arguments.get(place) {
        Some(Value::Table(table)) if !table.has_metatable() => Ok(table),
        Some(Value::Table(_)) => Err(failure("functions of tables take tables without a metatable")),
        other => Err(failure(format!(
            "bad argument #{} (table expected, got {})",
            place + 1,
            other.map_or("no value", Value::type_name)
        ))),
    }
}

fn length(table: &Table) -> usize {
    table.raw_len()
}

fn integer(arguments: &MultiValue, place: usize) -> mlua::Result<i64> {
    match arguments.get(place) {
        Some(Value::Integer(number)) => Ok(*number),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "a float beyond all integers is the last of them"
        )]
        Some(Value::Number(number)) => Ok(*number as i64),
        other => Err(failure(format!(
            "bad argument #{} (number expected, got {})",
            place + 1,
            other.map_or("no value", Value::type_name)
        ))),
    }
}

/// The number of elements after the place that the second argument names.
fn moved_behind(arguments: &MultiValue) -> mlua::Result<u64> {
    let len = i64::try_from(length(plain(arguments, 0)?)).unwrap_or(i64::MAX);
    moved(len.saturating_sub(integer(arguments, 1)?))
}

fn moved(count: i64) -> mlua::Result<u64> {
    if count <= MOVED_MAX {
        Ok(u64::try_from(count).unwrap_or(0))
    } else {
        Err(failure(format!("more than {MOVED_MAX} elements are not moved at once")))
    }
}

/// A result of several values.
pub(super) fn values(lua: &Lua, values: impl IntoIterator<Item = impl IntoLua>) -> mlua::Result<MultiValue> {
    values.into_iter().map(|value| value.into_lua(lua)).collect()
}
