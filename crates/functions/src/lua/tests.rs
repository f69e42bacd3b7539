//! What functions give: conversions both ways, and the library.

use schema::{Language, UserFunction};
use types::{CqlType, UdtType};

use crate::{Error, Limits, Program};

pub(super) fn udt() -> CqlType {
    let fields = vec![("x".to_owned(), CqlType::Int), ("y".to_owned(), CqlType::Text)];
    CqlType::Udt(
        UdtType {
            keyspace: "k".to_owned(),
            name: "point".to_owned(),
            fields,
        }
        .into(),
    )
}

fn parse(name: &str) -> CqlType {
    CqlType::parse(name, &|_, name| {
        (name == "point").then(|| match udt() {
            CqlType::Udt(udt) => udt,
            _ => unreachable!("it is one"),
        })
    })
    .unwrap_or_else(|e| panic!("{name}: {e}"))
}

pub(super) fn function(arguments: &[(&str, &str)], returns: &str, body: &str) -> UserFunction {
    UserFunction {
        keyspace: "k".to_owned(),
        name: "f".to_owned(),
        arguments: arguments
            .iter()
            .map(|(name, t)| ((*name).to_owned(), parse(t)))
            .collect(),
        returns: parse(returns),
        called_on_null: true,
        language: Language::Lua,
        body: body.to_owned(),
    }
}

pub(super) fn run(body: &str) -> Result<Option<String>, Error> {
    run_with(&[], "text", body, &[])
}

fn run_with(
    arguments: &[(&str, &str)],
    returns: &str,
    body: &str,
    values: &[Option<&[u8]>],
) -> Result<Option<String>, Error> {
    let function = function(arguments, returns, body);
    let program = Program::compile(&function, Limits::DEFAULT)?;
    let result = program.run(values)?;
    Ok(result.map(|bytes| function.returns.format_unquoted(&bytes)))
}

#[track_caller]
fn check(body: &str, expected: &str) {
    assert_eq!(run(body), Ok(Some(expected.to_owned())), "{body}");
}

#[track_caller]
fn check_type(returns: &str, body: &str, expected: &str) {
    assert_eq!(
        run_with(&[], returns, body, &[]),
        Ok(Some(expected.to_owned())),
        "{returns}: {body}"
    );
}

#[track_caller]
fn refuse(returns: &str, body: &str, expected: &str) {
    match run_with(&[], returns, body, &[]) {
        Err(Error::Failed(text)) => assert!(text.contains(expected), "{returns}: {body}: {text}"),
        other => panic!("{returns}: {body} gave {other:?}"),
    }
}

#[test]
fn a_value_of_each_type_comes_back_as_it_went_in() {
    let values = [
        ("text", "hälló"),
        ("ascii", "abc"),
        ("blob", "0x00ff"),
        ("tinyint", "-128"),
        ("smallint", "-32768"),
        ("int", "-2147483648"),
        ("bigint", "-9223372036854775808"),
        ("boolean", "true"),
        ("float", "1.5"),
        ("double", "1.0E300"),
        ("varint", "-123456789012345678901234567890"),
        ("decimal", "-12345678901234567890.0012"),
        ("date", "2026-11-26"),
        ("time", "12:34:56.789012345"),
        ("timestamp", "2026-11-26T05:01:02.003Z"),
        ("duration", "1mo2d3ns"),
        ("inet", "127.0.0.1"),
        ("inet", "2001:db8::1"),
        ("uuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
        ("timeuuid", "f81d4fae-7dec-11d0-a765-00a0c91e6bf6"),
    ];
    for (cql_type, text) in values {
        let of = parse(cql_type);
        let kinds = [
            types::LiteralKind::String,
            types::LiteralKind::Integer,
            types::LiteralKind::Float,
            types::LiteralKind::Boolean,
            types::LiteralKind::Hex,
            types::LiteralKind::Uuid,
            types::LiteralKind::Duration,
        ];
        let bytes = kinds.into_iter().find_map(|kind| of.parse_literal(kind, text).ok());
        let bytes = bytes.unwrap_or_else(|| panic!("{text} is no {cql_type}"));
        let program = Program::compile(&function(&[("a", cql_type)], cql_type, "return a"), Limits::DEFAULT);
        assert_eq!(
            program.and_then(|p| p.run(&[Some(&bytes)])),
            Ok(Some(bytes.clone())),
            "{cql_type} {text}"
        );
        let program = program_of(cql_type);
        assert_eq!(program.run(&[None]), Ok(None), "{cql_type} null");
    }
    let nested = [
        ("list<int>", "return {1, 2, 3}", "[1, 2, 3]"),
        ("set<text>", "return {b = true, a = true}", "{'a', 'b'}"),
        ("map<int, text>", "return {[2] = 'b', [1] = 'a'}", "{1: 'a', 2: 'b'}"),
        ("map<varint, int>", "return {[1] = 2}", "{1: 2}"),
        ("tuple<int, text, int>", "return {1, nil, 3}", "(1, null, 3)"),
        ("vector<float, 2>", "return {1, 2.5}", "[1.0, 2.5]"),
        ("point", "return {x = 1, y = 'a'}", "{x: 1, y: 'a'}"),
        ("point", "return {y = 'a'}", "{x: null, y: 'a'}"),
        (
            "list<frozen<map<text, frozen<set<int>>>>>",
            "return {{a = {[1] = true}}}",
            "[{'a': {1}}]",
        ),
    ];
    for (cql_type, made, expected) in nested {
        check_type(cql_type, made, expected);
        let bytes = Program::compile(&function(&[], cql_type, made), Limits::DEFAULT)
            .and_then(|p| p.run(&[]))
            .unwrap_or_else(|e| panic!("{made}: {e}"))
            .expect("it is not null");
        assert_eq!(
            program_of(cql_type).run(&[Some(&bytes)]),
            Ok(Some(bytes.clone())),
            "{cql_type}"
        );
    }
}

fn program_of(cql_type: &str) -> Program {
    Program::compile(&function(&[("a", cql_type)], cql_type, "return a"), Limits::DEFAULT).expect("it is a function")
}

#[test]
fn results_are_coerced_as_lua_coerces_and_what_cannot_be_is_refused() {
    for body in ["return 42", "return 42.0", "return '42'", "return ' 4.2e1 '"] {
        check_type("bigint", body, "42");
        check_type("varint", body, "42");
        check_type("double", body, "42.0");
    }
    check_type("tinyint", "return 257", "1");
    check_type("int", "return 4294967297", "1");
    check_type("text", "return 42", "42");
    check_type("float", "return 16777217", "1.6777216E7");
    check_type("date", "return 2147483648", "1970-01-01");
    check_type("date", "return {year = 2026, month = 2, day = 3}", "2026-02-03");
    check_type("date", "return '2026-02-03'", "2026-02-03");
    check_type("duration", "return '1d2h'", "1d2h");
    check_type("duration", "return {days = 1}", "1d");
    check_type("time", "return '01:02:03'", "01:02:03.000000000");
    refuse("int", "return 1.5", "expected a value of type int");
    refuse("int", "return 'x'", "found 'x'");
    refuse("int", "return {}", "found a table");
    refuse("boolean", "return 1", "found a integer");
    refuse("ascii", "return 'ä'", "expected a value of type ascii");
    refuse("text", "return '\\xff'", "expected a value of type text");
    refuse("uuid", "return 'no'", "expected a value of type uuid");
    refuse("list<int>", "return {1, nil, 3}", "other keys");
    refuse("list<int>", "return {a = 1}", "other keys");
    refuse("set<int>", "return {1}", "must be true");
    refuse("tuple<int, int>", "return {1, 2, 3}", "other keys");
    refuse("point", "return {z = 1}", "other keys");
    refuse("vector<float, 2>", "return {1}", "found 1 elements");
    refuse("list<int>", "return {type}", "found a function");
    refuse(
        "duration",
        "return {months = 1, days = -1}",
        "expected a value of type duration",
    );
}

#[test]
fn large_numbers_compute() {
    let two = [("a", "varint"), ("b", "decimal")];
    let a = CqlType::VarInt.parse_literal(types::LiteralKind::Integer, "100000000000000000000");
    let b = CqlType::Decimal.parse_literal(types::LiteralKind::Float, "0.25");
    let (a, b) = (a.expect("a number"), b.expect("a number"));
    let check = |body: &str, expected: &str| {
        let found = run_with(&two, "text", &format!("return tostring({body})"), &[Some(&a), Some(&b)]);
        assert_eq!(found, Ok(Some(expected.to_owned())), "{body}");
    };
    check("a + 1", "100000000000000000001");
    check("1 - a", "-99999999999999999999");
    check("a * b", "25000000000000000000.00");
    check("a + b", "100000000000000000000.25");
    check("-a", "-100000000000000000000");
    check("-a // 3", "-33333333333333333334");
    check("-a % 3", "2");
    check("b / 2", "0.125");
    check("a == a + 0 and a < a + b and a >= 7 and a ~= b", "true");
    check("'n' .. a", "n100000000000000000000");
    check("pcall(function() return a // 0 end)", "false");
    check("pcall(function() return a + {} end)", "false");
}

#[test]
fn patterns_are_those_of_lua() {
    let cases = [
        ("('key = value'):match('^(%w+)%s*=%s*(%w+)$')", "key"),
        ("select(2, ('key = value'):match('^(%w+)%s*=%s*(%w+)$'))", "value"),
        ("('hello world'):find('o w')", "5"),
        ("('a.b'):find('.', 1, true)", "2"),
        ("('a.b'):find('%.')", "2"),
        ("('abc'):find('b', -1)", "nil"),
        ("('abc'):find('', 10)", "nil"),
        ("('abc'):find('', 4)", "4"),
        ("('THE (quick) fox'):find('%((%a+)%)')", "5"),
        ("('THE (quick) fox'):match('%b()')", "(quick)"),
        ("('THE (quick) fox'):gsub('%f[%a]%a+', string.lower)", "the (quick) fox"),
        ("('hello'):gsub('l', {l = 'L'})", "heLLo"),
        ("('hello'):gsub('', '-')", "-h-e-l-l-o-"),
        ("('hello'):gsub('l', '%0%0', 1)", "helllo"),
        ("('abc'):gsub('(a)(b)', '%2%1')", "bac"),
        ("('abc'):gsub('%w', '%%%0')", "%a%b%c"),
        (
            "('x=1'):gsub('%w+', function(w) if w == 'x' then return 'y' end end)",
            "y=1",
        ),
        ("('[a]-]'):match('[]a-]+')", "a]-]"),
        ("('a-z'):match('[a%-]+')", "a-"),
        ("('abc123'):match('[^%d]+')", "abc"),
        ("('aaa'):match('a-')", ""),
        ("('aaab'):match('a-b')", "aaab"),
        ("('ab'):match('a?b?c?')", "ab"),
        ("('\"it\" \\'s\\''):match('([\"\\'])(.-)%1')", "\""),
        ("('hello'):match('()ll()')", "3"),
        ("('  trim  '):match('^%s*(.-)%s*$')", "trim"),
        ("('$^'):match('^%$%^$')", "$^"),
        ("('a$b'):match('a$b')", "a$b"),
        ("('é'):match('[\\128-\\255]+')", "é"),
        ("#('a,b,,c'):gsub(',', ';')", "6"),
    ];
    for (body, expected) in cases {
        check(&format!("return tostring(({body}))"), expected);
    }
    check(
        "local out = {} for k, v in ('a=1, b=2'):gmatch('(%w+)=(%w+)') do out[#out + 1] = v .. k end return table.concat(out, ' ')",
        "1a 2b",
    );
    check("local n = 0 for _ in ('abc'):gmatch('') do n = n + 1 end return n", "4");
    for (body, words) in [
        ("('a'):match('[a')", "missing ']'"),
        ("('a'):match('%')", "ends with '%'"),
        ("('a'):match('(a')", "unfinished capture"),
        ("('a'):match('a)')", "invalid pattern capture"),
        ("('a'):match('%1')", "invalid capture index"),
        ("('a'):match('%b')", "missing arguments to '%b'"),
        ("('a'):match('%fa')", "missing '[' after '%f'"),
        ("('a'):gsub('a', '%2')", "invalid capture index %2"),
        ("('a'):gsub('a', '%x')", "invalid use of '%'"),
        (
            "('a'):gsub('a', function() return {} end)",
            "invalid replacement value (a table)",
        ),
    ] {
        refuse("text", &format!("return ({body})"), words);
    }
}

/// The matcher against that of Lua's own library, on patterns that no budget ends.
#[test]
fn the_matcher_agrees_with_that_of_the_library() {
    use mlua::{Lua, LuaOptions, StdLib};
    let original = Lua::new_with(StdLib::STRING, LuaOptions::default()).expect("a Lua state");
    let body = "local t, p = ... \
        local ok, a, b, c, d = pcall(string.find, t, p) \
        local out = {tostring(ok)} \
        if ok then for _, v in ipairs({tostring(a), tostring(b), tostring(c), tostring(d)}) do out[#out + 1] = v end \
        local k, s, n = pcall(string.gsub, t, p, '<%0>') out[#out + 1] = tostring(s) out[#out + 1] = tostring(n) end \
        return out[1] .. '|' .. (out[2] or '') .. '|' .. (out[3] or '') .. '|' .. (out[4] or '') .. '|' .. (out[5] or '') \
        .. '|' .. (out[6] or '') .. '|' .. (out[7] or '')";
    let theirs = original.load(body).into_function().expect("it compiles");
    let program = Program::compile(
        &function(&[("t", "blob"), ("p", "blob")], "blob", &body.replace("...", "t, p")),
        Limits {
            time_ms: 1000,
            ..Limits::DEFAULT
        },
    )
    .expect("it compiles");
    let mut random = stdx::random::SplitMix64::new(5);
    let mut draw = |from: &[u8], max: u64| -> Vec<u8> {
        let len = random.draw() % (max + 1);
        (0..len)
            .map(|_| from[(random.draw() % from.len() as u64) as usize])
            .collect()
    };
    for _ in 0..20_000 {
        let (text, pattern) = (draw(b"ab1 ]-(", 8), draw(b"ab.%[]^$*+?-()wd1f ", 9));
        let expected: mlua::LuaString = theirs
            .call((
                original.create_string(&text).expect("memory"),
                original.create_string(&pattern).expect("memory"),
            ))
            .expect("it returns");
        let found = program.run(&[Some(&text), Some(&pattern)]).expect("it returns");
        let found = found.expect("it is not null");
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(
            words(&found),
            words(&expected.as_bytes()),
            "text {:?}, pattern {:?}",
            words(&text),
            words(&pattern)
        );
    }
}

#[test]
fn the_library_has_what_is_harmless() {
    check("return table.concat({1, 2, 3}, '-')", "1-2-3");
    check("local t = {3, 1, 2} table.sort(t) return table.concat(t)", "123");
    check(
        "local t = {3, 1, 2} table.sort(t, function(a, b) return a > b end) return table.concat(t)",
        "321",
    );
    check(
        "local t = {1, 3} table.insert(t, 2, 2) table.remove(t, 1) table.insert(t, 4) return table.concat(t)",
        "234",
    );
    check("return table.concat(table.move({1, 2, 3}, 2, 3, 1))", "233");
    check("return select('#', table.unpack({1, 2, 3}))", "3");
    check("return ('ab'):rep(3, ',')", "ab,ab,ab");
    check("return ('x'):rep(0) .. ('x'):rep(-1) .. (''):rep(5)", "");
    check("return string.format('%5.2f|%s|%d', 1.005, true, 3)", " 1.00|true|3");
    check("return utf8.char(228) .. utf8.len('ä')", "ä1");
    check("return math.floor(2.7) .. math.max(1, 5) .. math.type(1)", "25integer");
    check("local ok, e = pcall(error, {code = 7}) return e.code", "7");
    check(
        "local ok, e = xpcall(error, function(e) return e .. '!' end, 'a') return e",
        "a!",
    );
    check("return getmetatable(setmetatable({}, {__metatable = 'own'}))", "own");
    check(
        "local t = setmetatable({}, {__index = function(_, k) return k .. k end}) return t.a",
        "aa",
    );
    check("goto done ::done:: return tostring(1 << 4 | 1)", "17");
    for missing in [
        "io",
        "os",
        "package",
        "require",
        "debug",
        "coroutine",
        "load",
        "loadstring",
        "dofile",
        "loadfile",
        "print",
        "collectgarbage",
        "rawset",
        "_G",
        "warn",
        "string.dump",
        "math.random",
        "math.randomseed",
    ] {
        check(&format!("return tostring({missing})"), "nil");
    }
}

#[test]
fn nothing_lasts_from_one_call_to_the_next() {
    let function = function(&[], "int", "n = (n or 0) + 1 return n");
    let program = Program::compile(&function, Limits::DEFAULT).expect("it compiles");
    for _ in 0..3 {
        assert_eq!(program.run(&[]), Ok(Some(vec![0, 0, 0, 1])));
    }
    for body in [
        "string.len = nil",
        "string.mine = 1",
        "math.pi = 3",
        "getmetatable('').__index = {}",
        "getmetatable(_ENV).__index = {}",
        "table.insert(string, 1)",
        "table.move({1}, 1, 1, 1, string)",
    ] {
        match run(body) {
            Err(Error::Failed(_)) => {}
            other => panic!("{body} gave {other:?}"),
        }
    }
}

#[test]
fn a_function_that_takes_no_null_is_not_called_with_one() {
    let mut function = function(&[("a", "int")], "int", "error('called')");
    function.called_on_null = false;
    let program = Program::compile(&function, Limits::DEFAULT).expect("it compiles");
    assert_eq!(program.run(&[None]), Ok(None));
    assert_eq!(
        program.run(&[Some(&[0, 0, 0, 1])]),
        Err(Error::Failed("f:1: called".to_owned()))
    );
    assert!(matches!(program.run(&[]), Err(Error::Failed(_))));
}

#[test]
fn a_source_that_is_no_lua_is_refused_with_its_line() {
    match Program::compile(&function(&[], "int", "return 1\n + + 2"), Limits::DEFAULT) {
        Err(Error::Source(text)) => assert!(text.starts_with("f:2:"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// A float becomes the integer that it is: its shortest text may be that of another.
#[test]
fn floats_become_integers_exactly() {
    for (returns, body, expected) in [
        ("bigint", "return 2^62", "4611686018427387904"),
        ("bigint", "return 2^63", "-9223372036854775808"),
        ("int", "return 2^63", "0"),
        ("int", "return 2^31", "-2147483648"),
        ("varint", "return 2^63", "9223372036854775808"),
        ("varint", "return 2^70", "1180591620717411303424"),
        ("varint", "return -2^53", "-9007199254740992"),
    ] {
        let came = run_with(&[], returns, body, &[]).unwrap_or_else(|e| panic!("{body}: {e}"));
        assert_eq!(came.as_deref(), Some(expected), "{returns} {body}");
    }
    assert!(run_with(&[], "bigint", "return 0.5", &[]).is_err());
}
