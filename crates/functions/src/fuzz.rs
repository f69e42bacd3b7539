//! What the fuzzer needs of functions: sources to begin with, and what compiles and runs them.

use schema::{Language, UserFunction};
use types::CqlType;

use crate::{Limits, Program};

/// So little that an input takes no longer than a decoder's.
const LIMITS: Limits = Limits {
    time_ms: 1,
    memory_bytes: 128 << 10,
};

const LUA: &[&str] = &[
    "return a",
    "local t = {} for w in b:gmatch('[^,]+') do t[#t + 1] = w end table.sort(t) return table.concat(t, ',')",
    "return b:gsub('(%w+)=(%w-)$', '%2=%1'):upper()",
    "local n = 0 while true do n = n + 1 if n > 100 then break end end return tostring(n)",
    "return pcall(function(...) error({...}) end, a) and 1 or string.format('%5.1f %s', 1.5, b)",
    "return setmetatable({}, {__index = function(t, k) return k end, __close = 1, __call = pcall})[a]",
    "local s = b:rep(10, ';') return s:find('%f[%a]()%b;;') and s:byte(1, -1)",
    "return c * c + 1 // 3 - a",
];

const WASM: &[&str] = &[
    "(module (func $f (param i64 i64 i64) (result i64) (local.get 1)) (memory 2) (export \"memory\" (memory 0)) \
     (export \"f\" (func $f)) (global i32 (i32.const 1024)) (export \"_scylla_abi\" (global 0)) (data (i32.const 1024) \"\\01\"))",
    "(module (memory 1) (export \"memory\" (memory 0)) (global $n (mut i32) (i32.const 64)) (global $abi i32 (i32.const 8)) \
     (export \"_scylla_abi\" (global $abi)) (data (i32.const 8) \"\\02\") \
     (func (export \"_scylla_malloc\") (param i32) (result i32) (global.get $n)) (func (export \"_scylla_free\") (param i32)) \
     (func (export \"f\") (param i64 i64 i64) (result i64) (loop (br_if 0 (i32.eqz (memory.grow (i32.const 1))))) (local.get 0)))",
];

fn function(language: Language, body: String) -> UserFunction {
    let argument = |name: &str, cql_type| (name.to_owned(), cql_type);
    UserFunction {
        keyspace: "k".to_owned(),
        name: "f".to_owned(),
        arguments: vec![
            argument("a", CqlType::Int),
            argument("b", CqlType::Text),
            argument("c", CqlType::VarInt),
        ],
        returns: CqlType::Text,
        called_on_null: true,
        language,
        body,
    }
}

/// Sources; the first byte says in which language.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let of = |language: u8, sources: &[&str]| -> Vec<Vec<u8>> {
        let with = |source: &&str| [&[language][..], source.as_bytes()].concat();
        sources.iter().map(with).collect()
    };
    [of(0, LUA), of(1, WASM)].concat()
}

/// Compiles a source and calls it.
pub fn read(bytes: &[u8]) {
    let Some((language, source)) = bytes.split_first() else {
        return;
    };
    let language = Language::ALL[usize::from(language % 2)];
    let function = function(language, String::from_utf8_lossy(source).into_owned());
    let Ok(program) = Program::compile(&function, LIMITS) else {
        return;
    };
    for b in [Some(&b"x=1,y=2"[..]), None] {
        if let Ok(Some(result)) = program.run(&[Some(&[0, 0, 0, 7]), b, Some(&[0x7f; 20])]) {
            assert!(
                function.returns.validate(&result).is_ok(),
                "a function gave what is no text"
            );
        }
    }
}
