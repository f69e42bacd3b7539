//! Repeats one step of a request, for counting its instructions:
//! `valgrind --tool=callgrind target/.../examples/cost STEP TIMES`. Seen in November 2026 for an item of ten attributes
//! (thousands of instructions): read_json 20, write_json 4, read_stored 12, write_stored 2, transcode 6; for a
//! condition of two operators: parse 7, bind 3.

use std::collections::BTreeMap;
use std::hint::black_box;

use dynamodb::expression::{ExpressionKind, Placeholders, parse_condition, parse_update};
use dynamodb::value::{json, storage};

const ITEM: &[u8] = br#"{"pk":{"S":"user#12345"},"sk":{"S":"order#2026-11-30"},"name":{"S":"Ada Lovelace"},
    "age":{"N":"36"},"price":{"N":"1234.56"},"active":{"BOOL":true},"tags":{"SS":["a","b","c"]},
    "blob":{"B":"AAECAwQFBgcICQ=="},"count":{"N":"100"},"note":{"NULL":true}}"#;
const CONDITION: &str = "#a = :v AND attribute_exists(pk)";
const UPDATE: &str = "SET #a = :v, b = if_not_exists(c, :w) REMOVE d ADD e :x";

fn main() {
    let mut arguments = std::env::args().skip(1);
    let step = arguments.next().unwrap_or_default();
    let times: u32 = arguments.next().and_then(|times| times.parse().ok()).unwrap_or(1);
    let item = json::read_item(ITEM).expect("it is an item");
    let mut stored = Vec::new();
    storage::append_item(&mut stored, &item);
    let condition = parse_condition(ExpressionKind::Condition, CONDITION).expect("it is a condition");
    let names = BTreeMap::from([("#a".to_owned(), "age".to_owned())]);
    let values = json::read_item(br#"{":v":{"N":"36"}}"#).expect("they are values");
    let mut out = Vec::with_capacity(4096);
    for _ in 0..times {
        out.clear();
        match step.as_str() {
            "read_json" => drop(black_box(json::read_item(black_box(ITEM)))),
            "write_json" => json::write_item(&mut out, black_box(&item)),
            "read_stored" => drop(black_box(storage::read_item(black_box(&stored)))),
            "write_stored" => storage::append_item(&mut out, black_box(&item)),
            "transcode" => storage::write_item_json(&mut out, black_box(&stored)).expect("it is stored"),
            "parse" => drop(black_box(parse_condition(
                ExpressionKind::Condition,
                black_box(CONDITION),
            ))),
            "parse_update" => drop(black_box(parse_update(black_box(UPDATE)))),
            "bind" => {
                let mut placeholders = Placeholders::new(Some(&names), Some(&values)).expect("they are placeholders");
                let bindings = placeholders
                    .bind(ExpressionKind::Condition, &condition)
                    .expect("it binds");
                placeholders.finish().expect("all are used");
                black_box(condition.tree.holds(black_box(&item), &bindings));
            }
            other => panic!("no step: {other}"),
        }
        black_box(&out);
    }
}
