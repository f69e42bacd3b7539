//! Functions in Lua 5.4.
//!
//! A function's body is a chunk whose globals are the arguments; it returns the result. Every call has its own table of
//! globals, which falls back to the library ([`library`]); whatever a call leaves in it is garbage afterwards. The
//! interpreter's memory is limited by its allocator, its time by a [`hook`]. What hooks do not see, because it is a
//! loop in C, the library has replaced or guards.

mod from_lua;
mod hook;
mod library;
mod number;
mod pattern;
mod to_lua;

use std::rc::Rc;

use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, StdLib, Table, Value};
use schema::UserFunction;
use types::CqlType;

use crate::budget::Budget;
use crate::{Error, Limits};

/// What Lua says when an allocation fails.
const OUT_OF_MEMORY: &str = "not enough memory";
/// How many bytes of garbage a program may keep between two calls.
const KEPT_BYTES_MAX: usize = 256 << 10;

/// A compiled function.
#[derive(Debug)]
pub(crate) struct Program {
    names: Vec<String>,
    main: Function,
    /// Calls `main`: errors come as the values that code raised.
    pcall: Function,
    /// The metatable of every call's globals.
    globals: Table,
    budget: Rc<Budget>,
    /// What the interpreter uses without any call.
    idle_bytes: usize,
    lua: Lua,
}

impl Program {
    pub(crate) fn compile(function: &UserFunction, limits: Limits) -> Result<Self, Error> {
        let budget = Rc::new(Budget::new(limits));
        budget.begin();
        let made = Self::make(function, limits, &budget);
        made.map_err(|error| match error_of(&error, &budget) {
            Error::Failed(text) => Error::Source(text),
            other => Error::Source(other.to_string()),
        })
    }

    fn make(function: &UserFunction, limits: Limits, budget: &Rc<Budget>) -> mlua::Result<Self> {
        let wanted = StdLib::STRING | StdLib::TABLE | StdLib::MATH | StdLib::UTF8;
        let lua = Lua::new_with(wanted, LuaOptions::default())?;
        let (globals, pcall) = library::install(&lua, budget)?;
        lua.gc_collect()?;
        // The source becomes bytecode, which is there for as long as the program.
        let source_bytes = function.body.len().saturating_mul(16);
        lua.set_memory_limit(lua.used_memory() + limits.memory_bytes.saturating_add(source_bytes))?;
        let chunk = lua.load(function.body.as_bytes()).set_mode(ChunkMode::Text);
        let main = chunk.set_name(format!("={}", function.name)).into_function()?;
        lua.gc_collect()?;
        let idle_bytes = lua.used_memory();
        lua.set_memory_limit(idle_bytes + limits.memory_bytes)?;
        hook::install(&lua)?;
        Ok(Self {
            names: function.arguments.iter().map(|(name, _)| name.clone()).collect(),
            main,
            pcall,
            globals,
            budget: budget.clone(),
            idle_bytes,
            lua,
        })
    }

    pub(crate) fn run(
        &self,
        types: &[CqlType],
        arguments: &[Option<&[u8]>],
        returns: &CqlType,
    ) -> Result<Option<Vec<u8>>, Error> {
        self.budget.begin();
        let running = hook::Running::new(&self.budget);
        let result = self.call(types, arguments, returns);
        let result = result.map_err(|error| error_of(&error, &self.budget));
        drop(running);
        if self.lua.used_memory() > self.idle_bytes + KEPT_BYTES_MAX {
            // It fails only if a finalizer does, of which there are none.
            let _ = self.main.set_environment(self.globals.clone());
            let _ = self.lua.gc_collect();
        }
        result
    }

    fn call(&self, types: &[CqlType], arguments: &[Option<&[u8]>], returns: &CqlType) -> mlua::Result<Option<Vec<u8>>> {
        let globals = self.lua.create_table()?;
        for ((name, cql_type), bytes) in self.names.iter().zip(types).zip(arguments) {
            if let Some(bytes) = bytes {
                globals.raw_set(name.as_str(), to_lua::value(&self.lua, &self.budget, cql_type, bytes)?)?;
            }
        }
        globals.set_metatable(Some(self.globals.clone()))?;
        self.main.set_environment(globals)?;
        match self.pcall.call::<(bool, Value)>(self.main.clone())? {
            (true, Value::Nil) => Ok(None),
            (true, value) => from_lua::result(&self.budget, returns, &value).map(Some),
            (false, error) => Err(self.raised(&error)?),
        }
    }

    /// An error with the words of the value that code raised.
    fn raised(&self, value: &Value) -> mlua::Result<mlua::Error> {
        let text = match value {
            Value::String(text) if text.as_bytes() == OUT_OF_MEMORY.as_bytes() => {
                return Ok(mlua::Error::external(self.budget.out_of_memory()));
            }
            Value::String(text) => text.to_string_lossy(),
            Value::Integer(_) | Value::Number(_) => value.to_string()?,
            other => format!("the function raised a {}", other.type_name()),
        };
        Ok(failure(text))
    }
}

/// What the interpreter's error means.
fn error_of(error: &mlua::Error, budget: &Budget) -> Error {
    if let Some(spent) = budget.error() {
        return spent;
    }
    match root_of(error) {
        mlua::Error::MemoryError(_) => Error::Memory(budget.limits().memory_bytes),
        root => Error::failed(text_of(root)),
    }
}

/// An error's own words, without a list of the functions that were running.
fn text_of(root: &mlua::Error) -> String {
    let text = match root {
        mlua::Error::MemoryError(_) => OUT_OF_MEMORY.to_owned(),
        mlua::Error::RuntimeError(text) | mlua::Error::SyntaxError { message: text, .. } => text.clone(),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}

fn root_of(error: &mlua::Error) -> &mlua::Error {
    match error {
        mlua::Error::CallbackError { cause, .. } | mlua::Error::WithContext { cause, .. } => root_of(cause),
        mlua::Error::BadArgument { cause, .. } => root_of(cause),
        other => other,
    }
}

/// An error with these words.
fn failure(text: impl Into<String>) -> mlua::Error {
    mlua::Error::RuntimeError(text.into())
}

#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod tests;
