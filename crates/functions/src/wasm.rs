//! Functions in WebAssembly, as ScyllaDB has them (its documentation: "Wasm support for user-defined functions").
//!
//! The source is the text of a module. It exports a function of the name of the CQL function, its memory as `memory`,
//! and a global `_scylla_abi`: the place in that memory of the interface's version, 1 or 2. A function whose arguments
//! and result are all passed as numbers needs no exported memory: both versions pass numbers alike.
//!
//! ```text
//! boolean, tinyint, smallint, int   i32     float   f32
//! bigint                            i64     double  f64
//! every other type, and every type of a function that is called on null:
//!     i64     size << 32 | place in the memory of the serialised value; a size of -1 is null
//! ```
//!
//! In version 1 an argument is put into memory that the module's memory grows by. In version 2 its place comes from the
//! module's `_scylla_malloc`, and the module has a `_scylla_free` too. Every call has an instance of its own, so
//! nothing of a module's memory is freed otherwise, and nothing lasts from one call to the next.
//!
//! Instructions take fuel, of which a call has [`FUEL_PER_MS`] for each millisecond. The interpreter does not use the
//! thread's stack for the module's calls. A module imports nothing; the functions of WASI, which compilers let it
//! import, all fail.

use schema::UserFunction;
use types::CqlType;
use wasmi::{
    Config, EnforcedLimits, Engine, ExternType, Instance, Linker, Memory, Module, Store, StoreLimits,
    StoreLimitsBuilder, TrapCode, Val, ValType,
};

use crate::{Error, Limits};

/// Units of fuel for each millisecond of the time limit: about one for an instruction.
const FUEL_PER_MS: u64 = 150_000;
/// How many elements the tables of a module may have in all.
const TABLE_ELEMENTS_MAX: usize = 10_000;
/// How deep functions of a module may call each other.
const DEPTH_MAX: usize = 1_000;
/// The interpreter's stack, in bytes.
const STACK_BYTES_MAX: usize = 256 << 10;
const PAGE_BYTES: usize = 64 << 10;
/// The module that compilers for WASI let programs import from.
const WASI: &str = "wasi_snapshot_preview1";
/// WASI's number of the error "not supported".
const WASI_UNSUPPORTED: i32 = 52;

const ABI: &str = "_scylla_abi";
const ALLOCATE: &str = "_scylla_malloc";
const FREE: &str = "_scylla_free";

/// How a value is passed.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Passing {
    Boolean,
    TinyInt,
    SmallInt,
    Int,
    BigInt,
    Float,
    Double,
    /// By its place in the memory.
    Placed,
}

impl Passing {
    fn of(cql_type: &CqlType, called_on_null: bool) -> Self {
        match cql_type.unfrozen() {
            _ if called_on_null => Self::Placed,
            CqlType::Boolean => Self::Boolean,
            CqlType::TinyInt => Self::TinyInt,
            CqlType::SmallInt => Self::SmallInt,
            CqlType::Int => Self::Int,
            CqlType::BigInt => Self::BigInt,
            CqlType::Float => Self::Float,
            CqlType::Double => Self::Double,
            _ => Self::Placed,
        }
    }

    const fn val_type(&self) -> ValType {
        match self {
            Self::Boolean | Self::TinyInt | Self::SmallInt | Self::Int => ValType::I32,
            Self::BigInt | Self::Placed => ValType::I64,
            Self::Float => ValType::F32,
            Self::Double => ValType::F64,
        }
    }
}

/// A compiled function.
#[derive(Debug)]
pub(crate) struct Program {
    name: String,
    arguments: Vec<Passing>,
    returns: (CqlType, Passing),
    limits: Limits,
    module: Module,
    linker: Linker<StoreLimits>,
}

/// A module that was started for one call.
struct Call {
    store: Store<StoreLimits>,
    instance: Instance,
    /// None: the module exports none, and passes numbers alone.
    memory: Option<Memory>,
    abi: u32,
    limits: Limits,
}

impl Program {
    pub(crate) fn compile(function: &UserFunction, limits: Limits) -> Result<Self, Error> {
        let binary = wat::parse_str(&function.body).map_err(|e| Error::source(format!("the source is no WAT: {e}")))?;
        let mut config = Config::default();
        config
            .consume_fuel(true)
            .enforced_limits(EnforcedLimits::strict())
            .ignore_custom_sections(true)
            .set_max_recursion_depth(DEPTH_MAX)
            .set_max_stack_height(STACK_BYTES_MAX)
            .set_max_cached_stacks(1);
        let engine = Engine::new(&config);
        let invalid = |e: wasmi::Error| Error::source(format!("the module is not valid: {e}"));
        let module = Module::new(&engine, &binary).map_err(invalid)?;
        let program = Self {
            name: function.name.clone(),
            arguments: function
                .arguments
                .iter()
                .map(|(_, t)| Passing::of(t, function.called_on_null))
                .collect(),
            returns: (
                function.returns.clone(),
                Passing::of(&function.returns, function.called_on_null),
            ),
            limits,
            linker: linker(&engine, &module)?,
            module,
        };
        program.check_exports()?;
        let call = program.begin().map_err(|e| Error::Source(e.to_string()))?;
        if call.abi == 2 {
            for (name, results) in [(ALLOCATE, &[ValType::I32][..]), (FREE, &[])] {
                program.check_function(name, &[ValType::I32], results)?;
            }
        }
        Ok(program)
    }

    fn check_exports(&self) -> Result<(), Error> {
        let is_placed = self.returns.1 == Passing::Placed || self.arguments.contains(&Passing::Placed);
        if is_placed && !matches!(self.module.get_export("memory"), Some(ExternType::Memory(_))) {
            return Err(Error::source("the module exports no memory named 'memory'"));
        }
        if !matches!(self.module.get_export(ABI), Some(ExternType::Global(_))) {
            return Err(Error::source(format!("the module exports no global named '{ABI}'")));
        }
        let arguments: Vec<ValType> = self.arguments.iter().map(Passing::val_type).collect();
        self.check_function(&self.name, &arguments, &[self.returns.1.val_type()])
    }

    fn check_function(&self, name: &str, arguments: &[ValType], results: &[ValType]) -> Result<(), Error> {
        let Some(ExternType::Func(found)) = self.module.get_export(name) else {
            return Err(Error::source(format!("the module exports no function named '{name}'")));
        };
        if found.params() == arguments && found.results() == results {
            Ok(())
        } else {
            Err(Error::source(format!(
                "expected the exported function '{name}' to be {arguments:?} -> {results:?}, found {:?} -> {:?}",
                found.params(),
                found.results()
            )))
        }
    }

    /// An instance, with all that one call may use.
    fn begin(&self) -> Result<Call, Error> {
        let limits = StoreLimitsBuilder::new()
            .memory_size(self.limits.memory_bytes.saturating_mul(2))
            .memories(1)
            .instances(1)
            .tables(4)
            .table_elements(TABLE_ELEMENTS_MAX)
            .build();
        let mut store = Store::new(self.module.engine(), limits);
        store.limiter(|limits| limits);
        let fuel = self.limits.time_ms.saturating_mul(FUEL_PER_MS);
        store.set_fuel(fuel).map_err(|e| self.error_of(&e))?;
        let instance = self.linker.instantiate_and_start(&mut store, &self.module);
        let instance = instance.map_err(|e| self.error_of(&e))?;
        let memory = instance.get_memory(&store, "memory");
        let mut call = Call {
            store,
            instance,
            memory,
            abi: 1,
            limits: self.limits,
        };
        if memory.is_some() {
            call.abi = call.read_abi()?;
        }
        Ok(call)
    }

    pub(crate) fn run(&self, arguments: &[Option<&[u8]>]) -> Result<Option<Vec<u8>>, Error> {
        let mut call = self.begin()?;
        let mut values = Vec::with_capacity(arguments.len());
        for (passing, bytes) in self.arguments.iter().zip(arguments) {
            values.push(call.argument(passing, *bytes, self)?);
        }
        let function = call.instance.get_func(&call.store, &self.name);
        let function = function.ok_or_else(|| Error::failed("the module does not export the function"))?;
        let mut results = [Val::I64(0)];
        function
            .call(&mut call.store, &values, &mut results)
            .map_err(|e| self.error_of(&e))?;
        let [result] = results;
        let result = call.result(&self.returns.1, &result)?;
        if let Some(bytes) = &result
            && let Err(error) = self.returns.0.validate(bytes)
        {
            return Err(Error::failed(format!(
                "expected a value of type {}: {error}",
                self.returns.0
            )));
        }
        Ok(result)
    }

    fn error_of(&self, error: &wasmi::Error) -> Error {
        match error.as_trap_code() {
            Some(TrapCode::OutOfFuel) => Error::Time(self.limits.time_ms),
            Some(TrapCode::GrowthOperationLimited) => Error::Memory(self.limits.memory_bytes),
            _ => Error::failed(error.to_string()),
        }
    }
}

/// The functions that the module imports: those of WASI, which fail.
fn linker(engine: &Engine, module: &Module) -> Result<Linker<StoreLimits>, Error> {
    let mut linker = Linker::new(engine);
    // A module may name an import twice.
    linker.allow_shadowing(true);
    for import in module.imports() {
        let (of, name) = (import.module(), import.name());
        let ExternType::Func(of_type) = import.ty() else {
            return Err(Error::source(format!(
                "the module imports '{of}.{name}', which is no function"
            )));
        };
        if of != WASI {
            return Err(Error::source(format!(
                "the module imports '{of}.{name}', and there is no such function"
            )));
        }
        let called = name.to_owned();
        let defined = linker.func_new(of, name, of_type.clone(), move |_, _, results| match results {
            [only @ Val::I32(_)] => {
                *only = Val::I32(WASI_UNSUPPORTED);
                Ok(())
            }
            _ => Err(wasmi::Error::new(format!(
                "the module called {called}, which it may not"
            ))),
        });
        defined.map_err(|e| Error::source(e.to_string()))?;
    }
    Ok(linker)
}

impl Call {
    fn read_abi(&self) -> Result<u32, Error> {
        let global = self
            .instance
            .get_global(&self.store, ABI)
            .map(|global| global.get(&self.store));
        let Some(Val::I32(place)) = global else {
            return Err(Error::failed(format!("the global '{ABI}' is no i32")));
        };
        let bytes = self.bytes(place.cast_unsigned(), 4)?;
        let version = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        match version {
            1 | 2 => Ok(version),
            _ => Err(Error::failed(format!(
                "expected version 1 or 2 at '{ABI}', found {version}"
            ))),
        }
    }

    fn memory(&self) -> Result<Memory, Error> {
        let memory = self.memory;
        memory.ok_or_else(|| Error::failed("the module exports no memory named 'memory'"))
    }

    /// The bytes at a place of the memory.
    fn bytes(&self, place: u32, len: u32) -> Result<&[u8], Error> {
        let from = place as usize;
        let found = self
            .memory()?
            .data(&self.store)
            .get(from..from.saturating_add(len as usize));
        found.ok_or_else(|| Error::failed(format!("{len} bytes at {place} are not in the module's memory")))
    }

    fn argument(&mut self, passing: &Passing, bytes: Option<&[u8]>, program: &Program) -> Result<Val, Error> {
        if *passing == Passing::Placed {
            let (place, size) = match bytes {
                Some(bytes) => (self.place(bytes, program)?, bytes.len()),
                None => (0, u32::MAX as usize),
            };
            let size = u32::try_from(size).map_err(|_| Error::Memory(self.limits.memory_bytes))?;
            return Ok(Val::I64((u64::from(size) << 32 | u64::from(place)).cast_signed()));
        }
        // The empty value of a number is its zero.
        let bytes = bytes.unwrap_or_default();
        let wrong = || Error::failed("an argument is no value of its type");
        fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            match bytes {
                [] => Some([0; N]),
                bytes => bytes.try_into().ok(),
            }
        }
        Ok(match passing {
            Passing::Boolean => Val::I32(i32::from(array::<1>(bytes).ok_or_else(wrong)? != [0])),
            Passing::TinyInt => Val::I32(i8::from_be_bytes(array(bytes).ok_or_else(wrong)?).into()),
            Passing::SmallInt => Val::I32(i16::from_be_bytes(array(bytes).ok_or_else(wrong)?).into()),
            Passing::Int => Val::I32(i32::from_be_bytes(array(bytes).ok_or_else(wrong)?)),
            Passing::BigInt | Passing::Placed => Val::I64(i64::from_be_bytes(array(bytes).ok_or_else(wrong)?)),
            Passing::Float => Val::F32(f32::from_be_bytes(array(bytes).ok_or_else(wrong)?).into()),
            Passing::Double => Val::F64(f64::from_be_bytes(array(bytes).ok_or_else(wrong)?).into()),
        })
    }

    /// Puts a value into the module's memory; its place.
    fn place(&mut self, bytes: &[u8], program: &Program) -> Result<u32, Error> {
        let too_large = Error::Memory(self.limits.memory_bytes);
        let memory = self.memory()?;
        let place = match self.abi {
            1 if bytes.is_empty() => 0,
            1 => {
                let pages = bytes.len().div_ceil(PAGE_BYTES) as u64;
                let before = memory.grow(&mut self.store, pages).map_err(|_| too_large.clone())?;
                u32::try_from(before.saturating_mul(PAGE_BYTES as u64)).map_err(|_| too_large)?
            }
            _ => {
                let size = i32::try_from(bytes.len()).map_err(|_| too_large)?;
                let allocate = self.instance.get_func(&self.store, ALLOCATE);
                let allocate = allocate.ok_or_else(|| Error::failed(format!("the module has no {ALLOCATE}")))?;
                let mut results = [Val::I32(0)];
                allocate
                    .call(&mut self.store, &[Val::I32(size)], &mut results)
                    .map_err(|e| program.error_of(&e))?;
                match results {
                    [Val::I32(place)] => place.cast_unsigned(),
                    _ => return Err(Error::failed(format!("{ALLOCATE} gave no place"))),
                }
            }
        };
        let from = place as usize;
        let memory = memory.data_mut(&mut self.store);
        let Some(to) = memory.get_mut(from..from.saturating_add(bytes.len())) else {
            return Err(Error::failed(format!("{ALLOCATE} gave a place outside of the memory")));
        };
        to.copy_from_slice(bytes);
        Ok(place)
    }

    fn result(&self, passing: &Passing, value: &Val) -> Result<Option<Vec<u8>>, Error> {
        Ok(match (passing, value) {
            (Passing::Placed, Val::I64(value)) => {
                let value = value.cast_unsigned();
                let size = (value >> 32) as u32;
                if size == u32::MAX {
                    return Ok(None);
                }
                #[expect(clippy::cast_possible_truncation, reason = "the lower half is the place")]
                let place = value as u32;
                Some(self.bytes(place, size)?.to_vec())
            }
            (Passing::Boolean, Val::I32(value)) => Some(vec![u8::from(*value != 0)]),
            (Passing::TinyInt, Val::I32(value)) => Some(value.to_be_bytes()[3..].to_vec()),
            (Passing::SmallInt, Val::I32(value)) => Some(value.to_be_bytes()[2..].to_vec()),
            (Passing::Int, Val::I32(value)) => Some(value.to_be_bytes().to_vec()),
            (Passing::BigInt, Val::I64(value)) => Some(value.to_be_bytes().to_vec()),
            (Passing::Float, Val::F32(value)) => Some(value.to_bits().to_be_bytes().to_vec()),
            (Passing::Double, Val::F64(value)) => Some(value.to_bits().to_be_bytes().to_vec()),
            _ => return Err(Error::failed("the function gave a value of another type")),
        })
    }
}

#[cfg(test)]
mod tests;
