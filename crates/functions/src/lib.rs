//! User-defined functions: their sources are compiled, and run with serialised values.
//!
//! A [`Program`] is one function, compiled. It belongs to one thread; [`call`] keeps those of a shard. A call sees its
//! arguments and nothing else: no file, no clock, no randomness, and no state of an earlier call. It ends when it has
//! used up its time or its memory ([`Limits`]), whatever it does: code is made by clients and is taken to be hostile.
//!
//! ```text
//! arguments --lua/to_lua.rs--> Lua values --> the function --> Lua value --lua/from_lua.rs--> result
//! arguments --wasm.rs--> numbers, or addresses in the module's memory --> …
//! ```
//!
//! docs/dev/functions.md says what hostile code may try, and what stops it.

mod budget;
mod cache;
mod error;
#[doc(hidden)]
pub mod fuzz;
mod lua;
mod wasm;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use schema::{Language, UserFunction};
use types::CqlType;

pub use cache::call;
pub use error::Error;

/// The longest source, in bytes.
pub const BODY_BYTES_MAX: usize = 1 << 20;

/// What one call may use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Milliseconds.
    pub time_ms: u64,
    /// Bytes. A WebAssembly module, whose stack is in its memory, may have twice as many.
    pub memory_bytes: usize,
}

impl Limits {
    /// As ScyllaDB has them unless it is configured otherwise.
    pub const DEFAULT: Self = Self {
        time_ms: 10,
        memory_bytes: 1 << 20,
    };
}

static TIME_MS: AtomicU64 = AtomicU64::new(Limits::DEFAULT.time_ms);
static MEMORY_BYTES: AtomicUsize = AtomicUsize::new(Limits::DEFAULT.memory_bytes);

/// Sets the limits of this process, for functions that are compiled from now on.
pub fn set_limits(limits: Limits) {
    TIME_MS.store(limits.time_ms, Ordering::Relaxed);
    MEMORY_BYTES.store(limits.memory_bytes, Ordering::Relaxed);
}

/// The limits of this process.
pub fn limits() -> Limits {
    Limits {
        time_ms: TIME_MS.load(Ordering::Relaxed),
        memory_bytes: MEMORY_BYTES.load(Ordering::Relaxed),
    }
}

/// A compiled function.
#[derive(Debug)]
pub struct Program {
    arguments: Vec<CqlType>,
    returns: CqlType,
    called_on_null: bool,
    code: Code,
}

#[derive(Debug)]
enum Code {
    Lua(Box<lua::Program>),
    Wasm(Box<wasm::Program>),
}

impl Program {
    /// Compiles a function.
    ///
    /// # Errors
    /// [`Error::Source`] when its source is none, or too large.
    pub fn compile(function: &UserFunction, limits: Limits) -> Result<Self, Error> {
        if function.body.len() > BODY_BYTES_MAX {
            return Err(Error::Source(format!(
                "the source of a function has at most {BODY_BYTES_MAX} bytes, found {}",
                function.body.len()
            )));
        }
        let code = match function.language {
            Language::Lua => Code::Lua(Box::new(lua::Program::compile(function, limits)?)),
            Language::Wasm => Code::Wasm(Box::new(wasm::Program::compile(function, limits)?)),
        };
        Ok(Self {
            arguments: function.arguments.iter().map(|(_, t)| t.clone()).collect(),
            returns: function.returns.clone(),
            called_on_null: function.called_on_null,
            code,
        })
    }

    /// Calls it with serialised values; None is null.
    ///
    /// # Errors
    /// When it fails, uses more than it may, or gives what is no value of its type.
    pub fn run(&self, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, Error> {
        if !self.called_on_null && arguments.iter().any(Option::is_none) {
            return Ok(None);
        }
        if arguments.len() != self.arguments.len() {
            return Err(Error::Failed(format!(
                "expected {} arguments, found {}",
                self.arguments.len(),
                arguments.len()
            )));
        }
        match &self.code {
            Code::Lua(program) => program.run(&self.arguments, arguments, &self.returns),
            Code::Wasm(program) => program.run(arguments),
        }
    }
}

/// Refuses a function whose source is none.
///
/// # Errors
/// As [`Program::compile`].
pub fn check(function: &UserFunction) -> Result<(), Error> {
    Program::compile(function, limits()).map(drop)
}
