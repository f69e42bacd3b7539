//! What hostile code tries.

use super::tests::{function, run};
use crate::{Error, Limits, Program};

const TIME: Error = Error::Time(Limits::DEFAULT.time_ms);
const MEMORY: Error = Error::Memory(Limits::DEFAULT.memory_bytes);

#[track_caller]
fn ends(body: &str, expected: &Error) {
    assert_eq!(run(body), Err(expected.clone()), "{body}");
}

#[track_caller]
fn fails(body: &str) {
    assert!(
        matches!(run(body), Err(Error::Failed(_) | Error::Memory(_))),
        "{body}: {:?}",
        run(body)
    );
}

#[test]
fn an_endless_loop_ends() {
    ends("while true do end", &TIME);
    ends("local function f() return f() end return f()", &TIME);
    ends("for i = 1, math.huge do end", &TIME);
    ends("::a:: goto a", &TIME);
    ends("while true do local s = ('x'):rep(1000):upper() end", &TIME);
    ends(
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return pcall(function() while true do pcall(function() return t[1] end) end end)",
        &TIME,
    );
}

#[test]
fn an_error_that_ends_a_call_cannot_be_caught() {
    ends("while true do pcall(function() while true do end end) end", &TIME);
    ends(
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        &TIME,
    );
    ends("local function f() pcall(f) while true do end end f()", &TIME);
    ends(
        "local t = setmetatable({}, {__close = function() while true do end end}) \
          while true do pcall(function() local x <close> = t while true do end end) end",
        &TIME,
    );
    ends(
        "local t = setmetatable({}, {__close = function() while true do end end}) \
          local x <close>, y = t while true do end",
        &TIME,
    );
    ends(
        "local t = setmetatable({}, {__close = function() while true do end end}) \
          for _ in next, {1}, nil, t do while true do end end",
        &TIME,
    );
    ends("return pcall(pcall, pcall, function() while true do end end)", &TIME);
}

#[test]
fn a_pattern_that_tries_everything_ends() {
    ends("return (('a'):rep(100)):find(('a*'):rep(30) .. 'b')", &TIME);
    ends("return (('a'):rep(100000)):match('.-.-.-.-b')", &TIME);
    ends("for x in (('a'):rep(100000)):gmatch('.-.-.-b') do end", &TIME);
    ends("return (('a'):rep(100000)):gsub('.-.-.-b', '')", &TIME);
    ends(
        "while true do (('a'):rep(100000)):find(('a'):rep(50000) .. 'b', 1, true) end",
        &TIME,
    );
    fails("return ('a'):rep(300):match(('a?'):rep(300))");
    fails("return ('x'):match(('('):rep(100))");
}

#[test]
fn loops_in_c_are_not_entered() {
    fails("table.move({}, 1, 1 << 60, 2)");
    fails("table.move({}, 1, 1e15, 2)");
    fails("table.move({}, 1, '1000000000000000', 2)");
    // A table whose border Lua finds at 2^61: its places are powers of two, and none is in the table's array.
    let powers: String = (0..62).map(|power| format!("[1 << {power}] = 1, ")).collect();
    fails(&format!("local t = {{{powers}}} table.insert(t, 1, 1)"));
    fails(&format!("local t = {{{powers}}} table.remove(t, 1)"));
    fails("table.insert(setmetatable({}, {__len = function() return 1 << 60 end}), 1, 1)");
    fails("table.remove(setmetatable({}, {__len = function() return 1 << 60 end}), 1)");
    fails("table.concat(setmetatable({}, {__index = type}), '', 1, 1 << 60)");
    fails("table.sort(setmetatable({}, {__len = function() return 1 << 30 end, __index = type}))");
    fails("table.unpack({}, 1, 1 << 30)");
    fails("table.unpack({}, -(1 << 62), 1 << 62)");
    assert_eq!(run("return (''):rep(1 << 60)"), Ok(Some(String::new())));
    fails("return ('x'):rep(1 << 60)");
    fails("return ('x'):rep(1 << 62, 'yy')");
    fails("return ('x'):rep(1000, ('y'):rep(1000000))");
}

#[test]
fn finalizers_are_refused() {
    fails("setmetatable({}, {__gc = function() while true do end end})");
    // Set later it is not called.
    let body = "local m = {} local t = setmetatable({}, m) m.__gc = function() while true do end end t = nil \
                for i = 1, 5000 do local x = {i} end return 'done'";
    assert_eq!(run(body), Ok(Some("done".to_owned())));
}

#[test]
fn memory_has_an_end() {
    ends("local s = 'x' while true do s = s .. s end", &MEMORY);
    ends("local t = {} for i = 1, 1e6 do t[i] = i end", &MEMORY);
    ends("local t = {} for i = 1, 1e6 do t[i] = {} end", &MEMORY);
    ends("return (('x'):rep(1000):gsub('x', ('y'):rep(100000)))", &MEMORY);
    ends(
        "local s = ('x'):rep(400000) while true do local t = s:upper() end",
        &MEMORY,
    );
    fails("local function f() return 1 + f() end return f()");
    ends("local function f(...) return f(1, ...) end return f()", &TIME);
    fails("return string.format(('%99d'):rep(200000))");
}

#[test]
fn recursion_through_functions_of_the_library_ends_before_the_stack_does() {
    for body in [
        "local function f(s) return (s:gsub('.', f)) end return f('x')",
        "local function f() return tostring(setmetatable({}, {__tostring = f})) end return f()",
        "local function f() table.sort({1, 2, 3}, f) end return f()",
        "local function f() return string.format('%s', setmetatable({}, {__tostring = f})) end return f()",
        "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k .. 'x'] end return t.a",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.a",
        "local t = setmetatable({}, {}) getmetatable(t).__concat = function(a, b) return a .. b end return t .. t",
        "local function f() local ok, e = pcall(f) error(e, 0) end return f()",
        "local function f() local ok, e = xpcall(f, f) error(e, 0) end return f()",
    ] {
        // Less than any shard has.
        let thread = std::thread::Builder::new().stack_size(1 << 20).spawn(move || run(body));
        let result = thread.expect("a thread starts").join().expect(body);
        assert!(result.is_err(), "{body}: {result:?}");
    }
}

#[test]
fn a_program_works_after_it_ran_out_of_memory() {
    let function = function(
        &[("n", "int")],
        "int",
        "if n == 1 then return 7 end local t = {} for i = 1, 1e6 do t[i] = {} end",
    );
    let program = Program::compile(&function, Limits::DEFAULT).expect("it compiles");
    for _ in 0..5 {
        assert_eq!(program.run(&[Some(&[0, 0, 0, 2])]), Err(MEMORY));
        assert_eq!(program.run(&[Some(&[0, 0, 0, 1])]), Ok(Some(vec![0, 0, 0, 7])));
    }
}

#[test]
fn large_numbers_are_counted() {
    let grow = |body: &str| {
        let function = function(&[("a", "varint")], "varint", body);
        let program = Program::compile(
            &function,
            Limits {
                time_ms: 1000,
                ..Limits::DEFAULT
            },
        )
        .expect("it compiles");
        program.run(&[Some(&[2])])
    };
    match grow("while true do a = a * a end") {
        Err(Error::Failed(text)) => assert!(text.contains("a number has at most"), "{text}"),
        other => panic!("{other:?}"),
    }
    let hoard = "for i = 1, 12 do a = a * a end local t = {} for i = 1, 100000 do t[i] = a + i end return a";
    assert_eq!(grow(hoard), Err(MEMORY));
    // Numbers that are no longer referenced do not count.
    assert!(grow("for i = 1, 12 do a = a * a end for i = 1, 10000 do local b = a + i end return a").is_ok());
    let scales = function(&[("a", "decimal")], "varint", "return a + 1");
    let program = Program::compile(&scales, Limits::DEFAULT).expect("it compiles");
    for scale in [i32::MIN, i32::MAX] {
        let mut bytes = scale.to_be_bytes().to_vec();
        bytes.push(7);
        assert!(matches!(program.run(&[Some(&bytes)]), Err(Error::Failed(_))), "{scale}");
    }
}

#[test]
fn a_result_of_shared_tables_does_not_grow_beyond_the_limit() {
    let body = "local t = {} for i = 1, 1000 do t[i] = 1 end local u = {} for i = 1, 1000 do u[i] = t end \
                local v = {} for i = 1, 1000 do v[i] = u end return v";
    let function = function(&[], "list<frozen<list<frozen<list<int>>>>>", body);
    let program = Program::compile(
        &function,
        Limits {
            time_ms: 1000,
            ..Limits::DEFAULT
        },
    )
    .expect("it compiles");
    assert_eq!(program.run(&[]), Err(MEMORY));
    let cycle = self::function(&[], "list<frozen<list<int>>>", "local t = {} t[1] = t return t");
    let program = Program::compile(&cycle, Limits::DEFAULT).expect("it compiles");
    assert!(matches!(program.run(&[]), Err(Error::Failed(_))));
}

#[test]
fn messages_are_text_and_short_whatever_the_code_raises() {
    for body in [
        "error('\\xff\\xfe')",
        "error(('x'):rep(100000))",
        "error({})",
        "error()",
        "error(nil)",
        "error(setmetatable({}, {__tostring = function() error('again') end}))",
        "error(setmetatable({}, {__tostring = function() return 1 end}))",
        "return nil + 1",
    ] {
        match run(body) {
            Err(Error::Failed(text)) => assert!(text.len() <= 1100, "{body}: {} bytes", text.len()),
            other => panic!("{body} gave {other:?}"),
        }
    }
    match run("error('\\xffa')") {
        Err(Error::Failed(text)) => assert!(text.contains("\u{fffd}a"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn code_sees_no_address() {
    for body in [
        "return tostring({})",
        "return tostring(type)",
        "return tostring(string)",
        "return tostring(setmetatable({}, {__name = 'mine'}))",
        "return string.format('%s', {})",
        "return ('%10s'):format(type)",
        "local ok, e = pcall(error, {}) return tostring(e)",
        "local ok, e = pcall(string.find, 'a', '(') return e",
        "local ok, e = pcall(string.format, '%-20p', {}) return e",
        "local ok, e = pcall(string.format, '%d%%%p', 1, {}) return e",
    ] {
        let shown = run(body).unwrap_or_else(|e| panic!("{body}: {e}")).expect(body);
        assert!(!shown.contains("0x") && !shown.contains("traceback"), "{body}: {shown}");
    }
    for body in [
        "error({})",
        "error(type)",
        "return type",
        "return {}",
        "local t = nil + {}",
    ] {
        let shown = run(body).expect_err(body).to_string();
        assert!(!shown.contains("0x"), "{body}: {shown}");
    }
}

#[test]
fn bytecode_and_deep_sources_are_refused() {
    for body in [
        "\u{1b}Lua".to_owned(),
        format!("return {}1{}", "(".repeat(100_000), ")".repeat(100_000)),
        format!("return {}", "{".repeat(100_000)),
        "do ".repeat(100_000),
        format!("return {}1", "not ".repeat(100_000)),
        format!("return {}1", "1 .. ".repeat(100_000)),
    ] {
        let compiled = Program::compile(&function(&[], "int", &body), Limits::DEFAULT);
        assert!(
            matches!(compiled, Err(Error::Source(_))),
            "{:?}",
            &body[..20.min(body.len())]
        );
    }
    let large = " ".repeat(crate::BODY_BYTES_MAX + 1);
    assert!(matches!(
        Program::compile(&function(&[], "int", &large), Limits::DEFAULT),
        Err(Error::Source(_))
    ));
}
