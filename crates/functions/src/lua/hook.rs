//! The hook that ends a call which has used up its steps.
//!
//! The hook that `mlua` offers does not do: before it raises an error it clears the stack of the function that it
//! interrupted. That closes the function's variables of `local x <close>`, while hooks are off, so code in `__close`
//! runs without an end. This hook raises its error at once, and Lua closes the variables after it has turned hooks on
//! again.

use std::cell::RefCell;
use std::ffi::c_int;
use std::rc::Rc;

use mlua::{Lua, ffi};

use crate::budget::Budget;

/// How many instructions run between two looks at the budget.
const INSTRUCTIONS: u8 = 100;

thread_local! {
    /// The budget of the call that runs on this thread.
    static RUNNING: RefCell<Option<Rc<Budget>>> = const { RefCell::new(None) };
}

/// While it lives, the code that runs on this thread takes from a budget.
#[must_use]
pub(super) struct Running {
    before: Option<Rc<Budget>>,
}

impl Running {
    pub(super) fn new(budget: &Rc<Budget>) -> Self {
        Self {
            before: RUNNING.replace(Some(budget.clone())),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.set(self.before.take());
    }
}

/// Has the code of an interpreter take from the budget of [`Running`]. Without one it ends at once.
pub(super) fn install(lua: &Lua) -> mlua::Result<()> {
    #[expect(
        unsafe_code,
        reason = "mlua's own hook closes variables while hooks are off, see the module"
    )]
    // SAFETY: the state is that of `lua`, and setting its hook leaves its stack as it is. No other hook is set by this
    // crate.
    unsafe {
        lua.exec_raw((), |state| {
            ffi::lua_sethook(state, Some(look), ffi::LUA_MASKCOUNT, c_int::from(INSTRUCTIONS));
        })
    }
}

#[expect(unsafe_code, reason = "Lua calls it")]
unsafe extern "C-unwind" fn look(state: *mut ffi::lua_State, _: *mut ffi::lua_Debug) {
    let steps = u64::from(INSTRUCTIONS);
    let is_over = RUNNING.with_borrow(|budget| budget.as_ref().is_none_or(|budget| budget.take(steps).is_err()));
    if is_over {
        // SAFETY: a hook is called with its state, has room for at least LUA_MINSTACK values, and may raise an error.
        // `lua_error` leaves this frame by a jump: no value here has a destructor that would be left out.
        unsafe {
            ffi::lua_pushboolean(state, 0);
            ffi::lua_error(state)
        }
    }
}
