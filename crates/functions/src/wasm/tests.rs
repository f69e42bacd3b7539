//! Modules that work, modules that do not fit, and hostile ones.

use schema::{Language, UserFunction};
use types::CqlType;

use crate::{BODY_BYTES_MAX, Error, Limits, Program};

const TIME: Error = Error::Time(Limits::DEFAULT.time_ms);

/// A module of version 1 with this function in it.
fn module(body: &str) -> String {
    format!(
        "(module {body} (memory 2) (export \"memory\" (memory 0)) (export \"f\" (func $f)) \
         (global i32 (i32.const 1024)) (export \"_scylla_abi\" (global 0)) (data (i32.const 1024) \"\\01\"))"
    )
}

fn function(arguments: &[CqlType], returns: &CqlType, called_on_null: bool, body: &str) -> UserFunction {
    UserFunction {
        keyspace: "k".to_owned(),
        name: "f".to_owned(),
        arguments: arguments.iter().map(|t| ("a".to_owned(), t.clone())).collect(),
        returns: returns.clone(),
        called_on_null,
        language: Language::Wasm,
        body: body.to_owned(),
    }
}

fn run(body: &str, argument: i64) -> Result<Option<Vec<u8>>, Error> {
    let function = function(&[CqlType::BigInt], &CqlType::BigInt, false, &module(body));
    Program::compile(&function, Limits::DEFAULT)?.run(&[Some(&argument.to_be_bytes())])
}

#[track_caller]
fn refused(source: &str, words: &str) {
    let function = function(&[CqlType::BigInt], &CqlType::BigInt, false, source);
    match Program::compile(&function, Limits::DEFAULT) {
        Err(Error::Source(text)) => assert!(text.contains(words), "{source}: {text}"),
        other => panic!("{source} gave {other:?}"),
    }
}

const FIBONACCI: &str = "(func $f (param $n i64) (result i64) \
    (if (i64.lt_s (local.get $n) (i64.const 2)) (then (return (local.get $n)))) \
    (i64.add (call $f (i64.sub (local.get $n) (i64.const 1))) (call $f (i64.sub (local.get $n) (i64.const 2)))))";
/// Gives its argument back.
const SAME: &str = "(func $f (param i64) (result i64) (local.get 0))";

#[test]
fn numbers_are_passed_as_they_are() {
    assert_eq!(run(FIBONACCI, 10), Ok(Some(55_i64.to_be_bytes().to_vec())));
    let same = |wasm: &str, cql_type: &CqlType, bytes: &[u8]| {
        let source = module(&format!("(func $f (param {wasm}) (result {wasm}) (local.get 0))"));
        let program = Program::compile(
            &function(std::slice::from_ref(cql_type), cql_type, false, &source),
            Limits::DEFAULT,
        );
        program.and_then(|program| program.run(&[Some(bytes)]))
    };
    for (wasm, cql_type, bytes) in [
        ("i32", CqlType::Boolean, vec![1]),
        ("i32", CqlType::TinyInt, vec![0x80]),
        ("i32", CqlType::SmallInt, vec![0x80, 1]),
        ("i32", CqlType::Int, vec![0x80, 0, 0, 1]),
        ("f32", CqlType::Float, 1.5_f32.to_be_bytes().to_vec()),
        ("f64", CqlType::Double, 1.5_f64.to_be_bytes().to_vec()),
        ("i64", CqlType::Text, "hälló".as_bytes().to_vec()),
        ("i64", CqlType::Text, Vec::new()),
        ("i64", CqlType::Blob, vec![7; 100_000]),
    ] {
        assert_eq!(same(wasm, &cql_type, &bytes), Ok(Some(bytes.clone())), "{cql_type}");
    }
}

#[test]
fn every_value_has_a_place_where_null_may_be() {
    let program = Program::compile(
        &function(&[CqlType::Int], &CqlType::Int, true, &module(SAME)),
        Limits::DEFAULT,
    )
    .expect("it is a module");
    assert_eq!(program.run(&[None]), Ok(None));
    assert_eq!(program.run(&[Some(&[0, 0, 0, 7])]), Ok(Some(vec![0, 0, 0, 7])));
}

#[test]
fn version_2_allocates_by_itself_and_each_call_begins_anew() {
    let source = "(module (memory 2) (export \"memory\" (memory 0)) (export \"f\" (func $f)) \
        (global $next (mut i32) (i32.const 2000)) (global $abi i32 (i32.const 1024)) (export \"_scylla_abi\" (global $abi)) \
        (data (i32.const 1024) \"\\02\") \
        (func $m (export \"_scylla_malloc\") (param i32) (result i32) (global.get $next) \
            (global.set $next (i32.add (global.get $next) (local.get 0)))) \
        (func (export \"_scylla_free\") (param i32)) \
        (func $f (param i64 i64) (result i64) (local.get 1)))";
    let function = function(&[CqlType::Text, CqlType::Text], &CqlType::Text, false, source);
    let program = Program::compile(&function, Limits::DEFAULT).expect("it is a module");
    for _ in 0..1000 {
        assert_eq!(program.run(&[Some(&[b'a'; 100]), Some(b"b")]), Ok(Some(b"b".to_vec())));
    }
    let without = source.replace("_scylla_free", "free");
    let function = self::function(&[CqlType::Text, CqlType::Text], &CqlType::Text, false, &without);
    assert!(matches!(
        Program::compile(&function, Limits::DEFAULT),
        Err(Error::Source(_))
    ));
    let outside = source.replace("(i32.const 2000)", "(i32.const -8)");
    let function = self::function(&[CqlType::Text, CqlType::Text], &CqlType::Text, false, &outside);
    let program = Program::compile(&function, Limits::DEFAULT).expect("it is a module");
    assert!(matches!(
        program.run(&[Some(b"abcdefghijk"), Some(b"b")]),
        Err(Error::Failed(_))
    ));
}

#[test]
fn a_function_of_numbers_needs_no_exported_memory() {
    for memory in ["(memory 2) (data (i32.const 1024) \"\\01\")", ""] {
        let source = format!(
            "(module {FIBONACCI} {memory} (export \"f\" (func $f)) \
             (global i32 (i32.const 1024)) (export \"_scylla_abi\" (global 0)))"
        );
        let of_numbers = function(&[CqlType::BigInt], &CqlType::BigInt, false, &source);
        let program = Program::compile(&of_numbers, Limits::DEFAULT).expect("it needs no memory");
        let ten = 10_i64.to_be_bytes();
        assert_eq!(program.run(&[Some(&ten)]), Ok(Some(55_i64.to_be_bytes().to_vec())));
        // What is no number, and numbers that may be null, are passed in the memory.
        for of_places in [
            function(&[CqlType::BigInt], &CqlType::Text, false, &source),
            function(&[CqlType::Text], &CqlType::BigInt, false, &source),
            function(&[CqlType::BigInt], &CqlType::BigInt, true, &source),
        ] {
            let refused = Program::compile(&of_places, Limits::DEFAULT);
            let words = "the module exports no memory named 'memory'";
            assert!(
                matches!(&refused, Err(Error::Source(text)) if text == words),
                "{refused:?}"
            );
        }
    }
}

#[test]
fn modules_that_do_not_fit_are_refused() {
    refused("return 1", "no WAT");
    refused("(module)", "no global named '_scylla_abi'");
    refused(&module(SAME).replace("_scylla_abi", "abi"), "'_scylla_abi'");
    refused(&module(SAME).replace("\"f\"", "\"g\""), "no function named 'f'");
    refused(
        &module("(func $f (param i32) (result i64) (i64.const 1))"),
        "expected the exported function",
    );
    refused(&module(SAME).replace("\\01", "\\03"), "expected version 1 or 2");
    refused(&module(SAME).replace("1024) \"\\01", "4000000000) \"\\01"), "");
    refused(
        &format!("(module (import \"env\" \"system\" (func)){}", &module(SAME)[7..]),
        "imports 'env.system'",
    );
    refused(
        &format!("(module (import \"env\" \"m\" (memory 1)){}", &module(SAME)[7..]),
        "",
    );
    refused("(module (memory 60000) (export \"memory\" (memory 0)))", "");
    refused(&module("(func $f (param i64) (result i64) (i32.const 1))"), "not valid");
    refused(&"(".repeat(BODY_BYTES_MAX), "no WAT");
    refused(&" ".repeat(BODY_BYTES_MAX + 1), "at most");
}

#[test]
fn functions_of_wasi_are_there_and_fail() {
    let with = |body: &str| {
        let import = "(import \"wasi_snapshot_preview1\" \"fd_write\" (func $write (param i32 i32 i32 i32) (result i32))) \
            (import \"wasi_snapshot_preview1\" \"proc_exit\" (func $exit (param i32)))";
        run(&format!("{import} (func $f (param i64) (result i64) {body})"), 0)
    };
    let write = "(i64.extend_i32_s (call $write (i32.const 1) (i32.const 0) (i32.const 1) (i32.const 8)))";
    assert_eq!(with(write), Ok(Some(52_i64.to_be_bytes().to_vec())));
    match with("(call $exit (i32.const 0)) (i64.const 0)") {
        Err(Error::Failed(text)) => assert!(text.contains("proc_exit"), "{text}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_modules_end() {
    let with = |body: &str| run(&format!("(func $f (param i64) (result i64) {body})"), 0);
    assert_eq!(with("(loop (br 0)) (i64.const 1)"), Err(TIME));
    assert_eq!(run(FIBONACCI, 90), Err(TIME));
    for body in [
        "(call $f (local.get 0))",
        "(unreachable)",
        "(i64.div_s (i64.const 1) (local.get 0))",
        "(i64.load (i32.const -1))",
        "(i64.store (i32.const 131070) (i64.const 1)) (i64.const 1)",
    ] {
        assert!(
            matches!(with(body), Err(Error::Failed(_) | Error::Time(_))),
            "{body}: {:?}",
            with(body)
        );
    }
    // Memory that is not available is refused to the module, which continues.
    assert_eq!(
        with("(i64.extend_i32_s (memory.grow (i32.const 60000)))"),
        Ok(Some((-1_i64).to_be_bytes().to_vec()))
    );
    assert_eq!(
        with("(loop (drop (memory.grow (i32.const 1))) (br 0)) (i64.const 1)"),
        Err(TIME)
    );
    let many = "(loop (memory.fill (i32.const 0) (i32.const 1) (i32.const 131072)) (br 0)) (i64.const 1)";
    assert_eq!(with(many), Err(TIME));
    // A module that runs away as it starts.
    refused(
        "(module (memory 2) (export \"memory\" (memory 0)) (func $s (loop (br 0))) (start $s) \
         (global i32 (i32.const 0)) (export \"_scylla_abi\" (global 0)) \
         (func (export \"f\") (param i64) (result i64) (i64.const 1)))",
        "took longer",
    );
    let tables = module(SAME).replace("(memory 2)", "(table 10000000 funcref) (memory 2)");
    refused(&tables, "");
}

#[test]
fn results_outside_of_the_memory_and_of_no_type_are_refused() {
    let with = |value: &str, returns: CqlType| {
        let source = module(&format!("(func $f (param i64) (result i64) (i64.const {value}))"));
        let program = Program::compile(&function(&[CqlType::Text], &returns, false, &source), Limits::DEFAULT);
        program.and_then(|program| program.run(&[Some(b"a")]))
    };
    for value in [
        "0x7fffffff00000000",
        "0x00000001ffffffff",
        "0x800000000000000",
        "0xfffffffe00000000",
    ] {
        assert!(matches!(with(value, CqlType::Blob), Err(Error::Failed(_))), "{value}");
    }
    assert!(matches!(
        with("0x0000000300000000", CqlType::Uuid),
        Err(Error::Failed(_))
    ));
    assert_eq!(with("0xffffffff00000000", CqlType::Blob), Ok(None));
}
