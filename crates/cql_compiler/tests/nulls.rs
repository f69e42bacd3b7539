//! What a comparison with null means, by the rule that statements are compiled with.

use cql_compiler::{Dialect, compile};
use plan::restrict::{NullRule, Partitions};
use plan::{BindContext, Bound, BoundValues, SelectPlan};
use schema::Schema;

use crate::common::{schema_of, select};

const UNKNOWN: Dialect = Dialect {
    variables: cql::Variables::ByName,
    nulls: NullRule::Unknown,
};

fn schema() -> Schema {
    schema_of(&[
        "CREATE TABLE ks.t (a int, b int, c int, d int, v int, t text, l list<int>, m map<int, int>, PRIMARY KEY ((a, b), c, d))",
    ])
}

fn context<'v>(values: &'v [Bound<'v>]) -> BindContext<'v> {
    BindContext {
        values: BoundValues::Lent(values),
        now_us: 0,
        now_in_seconds: None,
        random: 0,
    }
}

/// What is left of a WHERE: `all` of it, or so many `partitions`, slices of `rows` and `filters`.
fn left(schema: &Schema, relations: &str, values: &[Bound<'_>]) -> String {
    let text = format!("SELECT v FROM ks.t WHERE {relations} ALLOW FILTERING");
    let plan = select(schema, &text, UNKNOWN);
    let ctx = context(values);
    let Some(less) = plan.without_nulls(&ctx).expect(relations) else {
        return "all".to_owned();
    };
    let parts = |plan: &SelectPlan| {
        let restrictions = &plan.restrictions;
        let partitions = match restrictions.partition.partitions(&plan.table, &ctx).expect(relations) {
            Partitions::Keys(keys) => keys.len().to_string(),
            Partitions::Tokens(..) => "all".to_owned(),
            Partitions::None => "no".to_owned(),
        };
        let rows = restrictions
            .clustering
            .slices(&plan.table, &ctx)
            .expect(relations)
            .len();
        format!(
            "{partitions} partitions, {rows} rows, {} filters",
            restrictions.filters.len()
        )
    };
    assert!(less.without_nulls(&ctx).expect(relations).is_none(), "{relations}");
    parts(&less)
}

const NOTHING: &str = "0 partitions, 1 rows, 0 filters";

#[test]
fn a_relation_with_null_is_true_of_no_row() {
    let schema = schema();
    for relations in [
        "a = null AND b = 1",
        "a = 1 AND b = null AND c = 1",
        "a = 1 AND b IN (null)",
        "token(a, b) > null",
        "a = 1 AND b = 1 AND c = null",
        "a = 1 AND b = 1 AND c > null",
        "a = 1 AND b = 1 AND c > 1 AND c <= null",
        "a = 1 AND b = 1 AND (c, d) = (1, null)",
        "a = 1 AND b = 1 AND (c, d) IN ((1, null), (null, 2))",
        "a = 1 AND b = 1 AND (c, d) >= (1, null)",
        "v = null",
        "v != null",
        "v < null",
        "t LIKE null",
        "l CONTAINS null",
        "m CONTAINS KEY null",
        "m[null] = 1",
        "m[1] = null",
        "v NOT IN (1, null)",
        "v = (int) null",
    ] {
        let found = left(&schema, relations, &[]);
        assert!(
            found == NOTHING || found.ends_with("0 rows, 0 filters") || found.starts_with("0 partitions"),
            "{relations}: {found}"
        );
    }
}

#[test]
fn an_alternative_that_is_null_goes_and_the_others_stay() {
    let schema = schema();
    for (relations, expected) in [
        ("a = 1 AND b IN (1, null, 2)", "2 partitions, 1 rows, 0 filters"),
        (
            "a IN (1, null) AND b IN (1, 2, null) AND c = 1",
            "2 partitions, 1 rows, 0 filters",
        ),
        (
            "a = 1 AND b = 1 AND c IN (1, null, 3)",
            "1 partitions, 2 rows, 0 filters",
        ),
        (
            "a = 1 AND b = 1 AND (c, d) IN ((1, 2), (1, null))",
            "1 partitions, 1 rows, 0 filters",
        ),
        ("v IN (1, null)", "all partitions, 1 rows, 1 filters"),
        ("v IN (1, 2) AND v NOT IN (3)", "all"),
        ("a = 1 AND b = 1 AND c > 1", "all"),
    ] {
        assert_eq!(left(&schema, relations, &[]), expected, "{relations}");
    }
}

#[test]
fn bound_values_count_as_constants_do() {
    let schema = schema();
    let one = Bound::Value(&[0, 0, 0, 1]);
    let list = |elements: &[Option<i32>]| {
        let mut bytes = i32::try_from(elements.len()).unwrap().to_be_bytes().to_vec();
        for element in elements {
            match element {
                Some(value) => bytes.extend([&4_i32.to_be_bytes()[..], &value.to_be_bytes()].concat()),
                None => bytes.extend((-1_i32).to_be_bytes()),
            }
        }
        bytes
    };
    let (mixed, whole) = (list(&[Some(1), None, Some(2)]), list(&[Some(1), Some(2)]));
    let (mixed, whole) = (Bound::Value(&mixed), Bound::Value(&whole));
    for (relations, values, expected) in [
        ("a = ? AND b = ?", &[one, one][..], "all"),
        ("a = ? AND b = ?", &[one, Bound::Null], NOTHING),
        ("a = 1 AND b IN ?", &[mixed], "2 partitions, 1 rows, 0 filters"),
        ("a = 1 AND b IN ?", &[whole], "all"),
        ("a = 1 AND b IN ?", &[Bound::Null], NOTHING),
        ("v NOT IN ?", &[mixed], NOTHING),
        ("v NOT IN ?", &[whole], "all"),
        ("v = ?", &[Bound::Null], NOTHING),
        ("v = ?", &[one], "all"),
    ] {
        assert_eq!(left(&schema, relations, values), expected, "{relations}");
    }
}

#[test]
fn a_point_read_with_a_null_is_noticed_before_memory_is_asked() {
    let schema = schema();
    let text = "SELECT v FROM ks.t WHERE a = ? AND b = ? AND c = ? AND d = ?";
    let one = Bound::Value(&[0, 0, 0, 1]);
    let found = [Dialect::default(), UNKNOWN].map(|dialect| {
        let plan = select(&schema, text, dialect);
        let nulls = [[one, Bound::Null, one, one], [one; 4]].map(|values| plan.may_have_nulls(&values));
        (plan.is_point(), nulls)
    });
    assert_eq!(found, [(true, [false, false]), (true, [true, false])]);
}

#[test]
fn a_constant_null_is_refused_where_it_is_a_mistake() {
    let schema = schema();
    for (relation, column) in [
        ("v = null", "v"),
        ("v > null", "v"),
        ("l CONTAINS null", "l"),
        ("m CONTAINS KEY null", "m"),
    ] {
        let text = format!("SELECT v FROM ks.t WHERE {relation} ALLOW FILTERING");
        let error = compile(&text, &schema, None).expect_err(&text);
        assert_eq!(error.to_string(), format!("Unsupported null value for column {column}"));
    }
}
