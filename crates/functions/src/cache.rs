//! The compiled functions of a shard.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use schema::UserFunction;
use stdx::preempt;

use crate::{Error, Program, limits};

/// How many functions a shard keeps compiled. A compiled one may hold as many bytes as a call may use.
const PROGRAMS_MAX: usize = 64;

/// A compiled function, and the definition that it was made of: while it is here, no other definition has its address.
struct Entry {
    function: Arc<UserFunction>,
    program: Rc<Program>,
}

thread_local! {
    // A cache and nothing else: what a call gives does not depend on it, so simulated shards may share it. The one used
    // last is the last.
    static PROGRAMS: RefCell<Vec<Entry>> = const { RefCell::new(Vec::new()) };
}

fn program_of(function: &Arc<UserFunction>) -> Result<Rc<Program>, Error> {
    let known = PROGRAMS.with_borrow_mut(|programs| {
        let place = programs
            .iter()
            .rposition(|entry| Arc::ptr_eq(&entry.function, function))?;
        let entry = programs.remove(place);
        let program = entry.program.clone();
        programs.push(entry);
        Some(program)
    });
    if let Some(program) = known {
        return Ok(program);
    }
    let program = Rc::new(Program::compile(function, limits())?);
    PROGRAMS.with_borrow_mut(|programs| {
        if programs.len() == PROGRAMS_MAX {
            programs.remove(0);
        }
        programs.push(Entry {
            function: function.clone(),
            program: program.clone(),
        });
    });
    Ok(program)
}

/// Calls a function with serialised values; None is null. The first call on a shard compiles it.
///
/// # Errors
/// When it fails, uses more than it may, or gives what is no value of its type.
pub fn call(function: &Arc<UserFunction>, arguments: &[Option<Cow<'_, [u8]>>]) -> Result<Option<Vec<u8>>, Error> {
    if !function.called_on_null && arguments.iter().any(Option::is_none) {
        return Ok(None);
    }
    let arguments: Vec<Option<&[u8]>> = arguments.iter().map(Option::as_deref).collect();
    // All calls of this thread share the program.
    preempt::offer(None, || program_of(function)?.run(&arguments))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::Language;
    use types::CqlType;

    #[test]
    fn more_functions_than_are_kept_compiled_can_be_called() {
        let function = |n: usize| {
            Arc::new(UserFunction {
                keyspace: "k".to_owned(),
                name: "f".to_owned(),
                arguments: Vec::new(),
                returns: CqlType::Int,
                called_on_null: true,
                language: Language::Lua,
                body: format!("return {n}"),
            })
        };
        let functions: Vec<_> = (0..PROGRAMS_MAX + 3).map(function).collect();
        for _ in 0..2 {
            for (n, function) in functions.iter().enumerate() {
                let expected = i32::try_from(n).expect("it is small").to_be_bytes().to_vec();
                assert_eq!(call(function, &[]), Ok(Some(expected)));
            }
        }
        assert_eq!(PROGRAMS.with_borrow(Vec::len), PROGRAMS_MAX);
    }
}
