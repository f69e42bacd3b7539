use super::*;
use crate::error::ErrorKind;
use crate::request::{Operation, Request, SortRange, Substitutions};
use crate::table::TableDefinition;
use crate::value::json::{read_item, read_value};

fn table() -> TableDefinition {
    let body = r#"{"TableName":"orders","KeySchema":[{"AttributeName":"k","KeyType":"HASH"},
        {"AttributeName":"s","KeyType":"RANGE"}],"AttributeDefinitions":[{"AttributeName":"k","AttributeType":"S"},
        {"AttributeName":"s","AttributeType":"N"}],"BillingMode":"PAY_PER_REQUEST"}"#;
    match Request::parse(Operation::CreateTable, body.as_bytes()) {
        Ok(Request::CreateTable(create)) => create.into_definition("id".to_owned(), 0),
        other => panic!("{other:?}"),
    }
}

fn value(json: &str) -> AttributeValue {
    read_value(json.as_bytes()).expect("a value")
}

fn command(text: &str, parameters: &[&str]) -> Command {
    let parameters: Vec<AttributeValue> = parameters.iter().map(|json| value(json)).collect();
    parse(text, &parameters).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn refused(text: &str) -> String {
    let error = parse_single(text, &[]).expect_err(text);
    assert_eq!(error.kind, ErrorKind::Validation);
    error.message
}

/// Whether an item is selected.
fn selects(text: &str, item: &str) -> bool {
    let Command::Select(select) = command(text, &[]) else {
        panic!("{text} is no SELECT");
    };
    let Some(condition) = &select.condition else {
        return true;
    };
    let none = Substitutions::default();
    let bindings = condition.bind(&none).expect("it is bound");
    let item = read_item(item.as_bytes()).expect("an item");
    condition.expression.tree.holds(&item, &bindings)
}

#[test]
fn a_select_reads_the_partition_that_its_condition_names() {
    let access = |text: &str| match command(text, &[]) {
        Command::Select(select) => select.access(&table()),
        other => panic!("{other:?}"),
    };
    let ranges = |text: &str| match access(text) {
        Ok(Access::Ranges(ranges)) => ranges,
        other => panic!("{text}: {other:?}"),
    };
    let one = ranges("SELECT * FROM \"orders\" WHERE k = 'a' AND s BETWEEN 1 AND 2 AND x > 5");
    assert_eq!(one[0].partition, [value(r#"{"S":"a"}"#)]);
    assert_eq!(
        one[0].sort,
        SortRange::Between(value(r#"{"N":"1"}"#), value(r#"{"N":"2"}"#))
    );
    assert_eq!(ranges("select a from orders where k in ['a','b'] and s >= 3").len(), 2);
    for scanned in [
        "SELECT * FROM orders",
        "SELECT * FROM orders WHERE s = 1",
        "SELECT * FROM orders WHERE k = 'a' OR k = 'b'",
        "SELECT * FROM orders WHERE k > 'a'",
    ] {
        assert_eq!(access(scanned), Ok(Access::Scan), "{scanned}");
    }
    let message = |text| access(text).expect_err(text).message;
    assert_eq!(
        message("SELECT * FROM orders WHERE k = 1"),
        "Key attribute's data type should match its data type in table's schema: Key k"
    );
    assert_eq!(
        message("SELECT * FROM orders.by_x WHERE k = 'a'"),
        "The table does not have the specified index"
    );
    assert_eq!(
        message("SELECT * FROM orders ORDER BY s"),
        "Must have WHERE clause in the statement when using ORDER BY clause."
    );
}

#[test]
fn conditions_hold_as_those_of_expressions_do() {
    let item =
        r#"{"k":{"S":"a"},"s":{"N":"5"},"m":{"M":{"x y":{"L":[{"N":"1"}]}}},"nil":{"NULL":true},"t":{"SS":["p"]}}"#;
    for (condition, holds) in [
        ("s = 5", true),
        ("5.0 = s", true),
        ("s <> 5", false),
        ("s != 6 AND NOT s < 5", true),
        ("m.\"x y\"[0] = 1", true),
        ("m['x y'][0] = 1", true),
        ("m['x y'][1] = 1", false),
        ("gone IS MISSING", true),
        ("k IS NOT MISSING", true),
        ("nil IS NULL", true),
        ("k IS NULL", false),
        ("begins_with(k, 'a') AND contains(t, 'p')", true),
        ("size(k) = 1", true),
        ("attribute_type(s, 'N')", true),
        ("s IN [1, 5]", true),
        ("s IN (1, 2) OR (k = 'a' AND s = -5)", false),
        ("t = <<'p'>>", true),
        ("k = 'it''s'", false),
    ] {
        let text = format!("SELECT * FROM orders WHERE {condition}");
        assert_eq!(selects(&text, item), holds, "{condition}");
    }
}

#[test]
fn an_insert_has_its_item_and_parameters_in_order() {
    let text = "INSERT INTO orders VALUE {'k': ?, 's': -1.5e1, 'l': [true, null, {'a': <<1, 2>>}], 'b': ?}";
    let Command::Insert(insert) = command(text, &[r#"{"S":"a"}"#, r#"{"B":"YQ=="}"#]) else {
        panic!("no INSERT");
    };
    let expected = r#"{"k":{"S":"a"},"s":{"N":"-15"},"l":{"L":[{"BOOL":true},{"NULL":true},
        {"M":{"a":{"NS":["1","2"]}}}]},"b":{"B":"YQ=="}}"#;
    assert_eq!(insert.item, read_item(expected.as_bytes()).expect("an item"));
    assert_eq!(insert.key(&table()).expect("a key").sort, Some(value(r#"{"N":"-15"}"#)));
    let message = "Number of parameters in request and statement don't match.";
    assert_eq!(parse(text, &[]).expect_err("too few").message, message);
    let many = [value(r#"{"S":"a"}"#), value(r#"{"S":"a"}"#)];
    assert_eq!(
        parse("SELECT * FROM orders WHERE k = ?", &many)
            .expect_err("too many")
            .message,
        message
    );
}

#[test]
fn an_update_names_one_item_and_its_changes() {
    let text = "UPDATE \"orders\" SET a = a + 1, b = list_append(b, [2]) SET c = set_add(c, <<'x'>>) REMOVE d.e[0] \
                WHERE k = 'a' AND s = 1 AND attribute_exists(f) RETURNING MODIFIED NEW *";
    let Command::Update(update) = command(text, &[]) else {
        panic!("no UPDATE");
    };
    assert_eq!(update.changes.expression.tree.actions.len(), 4);
    assert_eq!(update.returning, crate::update::ReturnValues::UpdatedNew);
    assert_eq!(update.key(&table()).expect("a key").partition, value(r#"{"S":"a"}"#));
    let message = |text: &str| match command(text, &[]) {
        Command::Update(update) => update.key(&table()).expect_err(text).message,
        Command::Delete(delete) => delete.key(&table()).expect_err(text).message,
        other => panic!("{other:?}"),
    };
    let incomplete = "Where clause does not contain a mandatory equality on all key attributes";
    assert_eq!(message("UPDATE orders SET a = 1 WHERE k = 'a'"), incomplete);
    assert_eq!(message("UPDATE orders SET a = 1"), incomplete);
    assert_eq!(message("DELETE FROM orders WHERE k = 'a' AND s IN [1, 2]"), incomplete);
    assert_eq!(
        message("UPDATE orders SET s = 1 WHERE k = 'a' AND s = 2"),
        "One or more parameter values were invalid: Cannot update attribute s. This attribute is part of the key"
    );
}

/// Texts that dynoxide 3.2.0 answers too.
#[test]
fn a_text_that_is_no_statement_is_refused() {
    let well_formed = "Statement wasn't well formed, can't be processed: ";
    for (text, expected) in [
        ("SELEC * FROM orders", "Expected data manipulation"),
        ("SELECT * FROM", "Unexpected term"),
        ("SELECT * FROM orders WHERE", "Unexpected term"),
        ("SELECT a b FROM orders", "Expected 'FROM' but got 'b'"),
        ("SELECT * FROM orders LIMIT 5", "Unexpected token after expression"),
        ("SELECT * FROM orders WHERE k = 'a", "Unterminated string literal"),
        (
            "UPDATE orders WHERE k = 'a'",
            "UPDATE requires at least one SET or REMOVE clause",
        ),
    ] {
        assert_eq!(refused(text), format!("{well_formed}{expected}"), "{text}");
    }
    assert_eq!(
        refused("DELETE FROM orders WHERE k = 'zz' RETURNING ALL NEW *"),
        "Invalid returning clause: RETURNING ALL NEW *. Only RETURNING ALL OLD * is allowed in DELETE statements."
    );
    assert_eq!(
        refused("EXISTS (SELECT * FROM orders WHERE k = 'a')"),
        "EXISTS can only be used in ExecuteTransaction write requests."
    );
    assert!(refused("SELECT * FROM orders WHERE foo(k) = 'a'").starts_with("Unrecognized function: foo"));
}

/// What a SELECT returns of an item, as JSON.
fn returned(text: &str, item: &str) -> String {
    let Command::Select(select) = command(text, &[]) else {
        panic!("{text} is no SELECT");
    };
    let item = read_item(item.as_bytes()).expect("an item");
    let mut out = Vec::new();
    crate::value::json::write_item(&mut out, &select.returned(item).expect("it has no placeholders"));
    String::from_utf8(out).expect("JSON is text")
}

#[test]
fn a_path_is_returned_under_its_last_name() {
    let item = r#"{"k":{"S":"a"},"m":{"M":{"a":{"M":{"b":{"N":"1"}}},"l":{"L":[{"N":"5"},{"N":"6"}]}}},"b":{"N":"2"}}"#;
    for (projection, expected) in [
        ("k, b", r#"{"b":{"N":"2"},"k":{"S":"a"}}"#),
        ("m.a", r#"{"a":{"M":{"b":{"N":"1"}}}}"#),
        ("m.a.b", r#"{"b":{"N":"1"}}"#),
        ("m.l[1]", r#"{"l[1]":{"N":"6"}}"#),
        ("m.l[7], m.none.b, none", "{}"),
        ("b, m.a.b", r#"{"b":{"N":"1"}}"#),
    ] {
        assert_eq!(
            returned(&format!("SELECT {projection} FROM t"), item),
            expected,
            "{projection}"
        );
    }
}

#[test]
fn comments_are_blanks() {
    let text = "-- the first line\nSELECT /* all */ * FROM orders -- of a\nWHERE k = 'a--b' /**/ -- end";
    assert!(
        selects(text, r#"{"k":{"S":"a--b"},"s":{"N":"1"}}"#),
        "quotes have no comments"
    );
    assert!(selects(
        "SELECT * FROM orders WHERE s = 3 AND k = 'a'",
        r#"{"k":{"S":"a"},"s":{"N":"3"}}"#
    ));
    assert_eq!(
        refused("SELECT * FROM orders /* all"),
        "Statement wasn't well formed, can't be processed: Unterminated comment"
    );
    assert_eq!(
        refused("-- nothing else"),
        "Statement wasn't well formed, can't be processed: Empty statement"
    );
}

#[test]
fn several_partitions_are_ordered_by_their_keys() {
    let select = |text: &str| match command(text, &[]) {
        Command::Select(select) => select,
        other => panic!("{other:?}"),
    };
    let partitions = |text: &str| match select(text).access(&table()) {
        Ok(Access::Ranges(ranges)) => {
            let keys = ranges.iter().map(|range| match &range.partition[..] {
                [AttributeValue::S(key)] => key.clone(),
                other => panic!("{other:?}"),
            });
            keys.collect::<String>()
        }
        other => panic!("{text}: {other:?}"),
    };
    let some = "SELECT * FROM orders WHERE k IN ['b','c','a']";
    assert_eq!(partitions(some), "bca");
    assert_eq!(partitions(&format!("{some} ORDER BY k")), "abc");
    assert_eq!(partitions(&format!("{some} ORDER BY k DESC, s")), "cba");
    assert!(!select(&format!("{some} ORDER BY k DESC, s")).is_reversed(&table()));
    assert!(select(&format!("{some} ORDER BY k, s DESC")).is_reversed(&table()));
    let refused = select(&format!("{some} ORDER BY s"))
        .access(&table())
        .expect_err("their items would be merged");
    assert!(
        refused.message.starts_with("ORDER BY of the sort key is not supported"),
        "{refused}"
    );
    assert_eq!(partitions("SELECT * FROM orders WHERE k IN ['a'] ORDER BY s"), "a");
}
