//! What holds for all texts and all trees: printing and parsing are inverse, and no text panics or recurses without
//! bound.

use cql::ast::{
    AliasedSelector, ArithmeticOperator, ComparisonOperator, FunctionCall, InValues, Literal, LiteralKind, NativeType,
    Predicate, QualifiedName, Relation, Select, Selection, Selector, Statement, Subject, Term, TypeName,
};
use proptest::prelude::*;
use proptest::sample::select;

// --- Trees the parser can return -------------------------------------------------------------------------------------

fn name() -> impl Strategy<Value = String> {
    const WORDS: &[&str] = &[
        "a",
        "key",
        "json",
        "distinct",
        "as",
        "token",
        "cast",
        "count",
        "exists",
        "expr",
        "int",
        "list",
        "select",
        "from",
        "null",
        "nan",
        "p1y",
        "set",
        "primary",
        "Upper",
        "with space",
        "quo\"te",
        "é",
        "from",
        "values",
        "writetime",
        "static",
    ];
    prop_oneof![
        select(WORDS).prop_map(str::to_owned),
        "[a-z][a-z0-9_]{0,5}",
        "[ -~]{1,4}"
    ]
}

fn qualified_name() -> impl Strategy<Value = QualifiedName> {
    (prop::option::of(name()), name()).prop_map(|(keyspace, name)| QualifiedName { keyspace, name })
}

fn literal() -> impl Strategy<Value = Literal> {
    const FIXED: &[(LiteralKind, &str)] = &[
        (LiteralKind::Integer, "0"),
        (LiteralKind::Integer, "1"),
        (LiteralKind::Integer, "-12345678901234567890"),
        (LiteralKind::Float, "1."),
        (LiteralKind::Float, "-1.5e-7"),
        (LiteralKind::Float, "-Infinity"),
        (LiteralKind::Float, "NaN"),
        (LiteralKind::Boolean, "TRUE"),
        (LiteralKind::Null, "null"),
        (LiteralKind::Blob, "0xCAFE"),
        (LiteralKind::Uuid, "123e4567-e89b-12d3-a456-426614174000"),
        (LiteralKind::Duration, "-1h30m"),
        (LiteralKind::Duration, "P1Y2M"),
    ];
    prop_oneof![
        select(FIXED).prop_map(|(kind, text)| Literal {
            kind,
            text: text.to_owned()
        }),
        "\\PC{0,6}".prop_map(|text| Literal {
            kind: LiteralKind::String,
            text
        }),
    ]
}

fn is_number(literal: &Literal) -> bool {
    matches!(
        literal.kind,
        LiteralKind::Integer | LiteralKind::Float | LiteralKind::Duration
    )
}

fn type_name() -> impl Strategy<Value = TypeName> {
    let leaf = prop_oneof![
        select(vec![
            NativeType::Int,
            NativeType::Text,
            NativeType::TimeUuid,
            NativeType::Counter
        ])
        .prop_map(TypeName::Native),
        qualified_name().prop_map(TypeName::UserType),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|element| TypeName::List(Box::new(element))),
            inner.clone().prop_map(|element| TypeName::Set(Box::new(element))),
            inner.clone().prop_map(|element| TypeName::Frozen(Box::new(element))),
            (inner.clone(), inner.clone()).prop_map(|(key, value)| TypeName::Map(Box::new(key), Box::new(value))),
            (inner.clone(), -1..=i32::MAX)
                .prop_map(|(element, dimension)| TypeName::Vector(Box::new(element), dimension)),
            prop::collection::vec(inner, 1..3).prop_map(TypeName::Tuple),
        ]
    })
}

fn operator() -> impl Strategy<Value = ArithmeticOperator> {
    use ArithmeticOperator as O;
    select(vec![O::Add, O::Subtract, O::Multiply, O::Divide, O::Modulo])
}

fn is_sum(operator: ArithmeticOperator) -> bool {
    matches!(operator, ArithmeticOperator::Add | ArithmeticOperator::Subtract)
}

/// Terms have no grouping parentheses: a sum is no operand of a product, and chains lean to the left.
fn term() -> impl Strategy<Value = Term> {
    literal().prop_map(Term::Literal).prop_recursive(4, 24, 3, |inner| {
        let several = prop::collection::vec(inner.clone(), 1..3);
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|terms| Term::List(terms.into())),
            prop::collection::vec(inner.clone(), 0..3).prop_map(|terms| Term::Set(terms.into())),
            several.clone().prop_map(|terms| Term::Tuple(terms.into())),
            prop::collection::vec((inner.clone(), inner.clone()), 1..3).prop_map(|pairs| Term::Map(pairs.into())),
            prop::collection::vec((name(), inner.clone()), 1..3).prop_map(Term::UserType),
            (qualified_name(), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(name, arguments)| Term::FunctionCall(Box::new(FunctionCall { name, arguments }))),
            (type_name(), inner.clone()).prop_filter_map("an operand", |(type_name, term)| {
                (!matches!(term, Term::Arithmetic { .. })).then(|| Term::TypeCast {
                    type_name: Box::new(type_name),
                    term: Box::new(term),
                })
            }),
            inner
                .clone()
                .prop_filter_map("an operand that is no number", |term| match &term {
                    Term::Arithmetic { .. } => None,
                    Term::Literal(literal) if is_number(literal) && !literal.text.starts_with('-') => None,
                    _ => Some(Term::Negation(Box::new(term))),
                }),
            (operator(), inner.clone(), inner).prop_filter_map("a chain to the left", |(operator, left, right)| {
                let fits = match &left {
                    Term::Arithmetic { operator: inner, .. } => is_sum(operator) || !is_sum(*inner),
                    _ => true,
                };
                let operand = match &right {
                    Term::Arithmetic { operator: inner, .. } => is_sum(operator) && !is_sum(*inner),
                    _ => true,
                };
                (fits && operand).then(|| Term::Arithmetic {
                    operator,
                    left: Box::new(left),
                    right: Box::new(right),
                })
            }),
        ]
    })
}

fn boxed_term() -> impl Strategy<Value = Box<Term>> {
    term().prop_map(Box::new)
}

fn selector() -> impl Strategy<Value = Selector> {
    let leaf = prop_oneof![
        name().prop_map(Selector::Column),
        literal().prop_map(|literal| Selector::Term(Term::Literal(literal))),
        Just(Selector::CountRows),
    ];
    leaf.prop_recursive(5, 24, 3, |inner| {
        let boxed = inner.clone().prop_map(Box::new);
        let grouped = inner.clone().prop_map(grouped).prop_map(Box::new);
        prop_oneof![
            (qualified_name(), prop::collection::vec(inner.clone(), 0..3)).prop_map(|(name, arguments)| {
                Selector::FunctionCall {
                    name: Box::new(name),
                    arguments,
                }
            }),
            (
                boxed.clone(),
                type_name()
                    .prop_filter("a cast goes to native types", |of| matches!(of, TypeName::Native(_)))
                    .prop_map(Box::new)
            )
                .prop_map(|(selector, type_name)| Selector::Cast { selector, type_name }),
            (inner.clone(), type_name().prop_map(Box::new)).prop_map(|(selector, type_name)| Selector::TypeHint {
                type_name,
                selector: Box::new(hinted(selector))
            }),
            (grouped.clone(), boxed_term()).prop_map(|(collection, key)| Selector::Element { collection, key }),
            (
                grouped.clone(),
                prop::option::of(boxed_term()),
                prop::option::of(boxed_term())
            )
                .prop_filter_map("a bound", |(collection, from, to)| {
                    (from.is_some() || to.is_some()).then_some(Selector::Slice { collection, from, to })
                }),
            (grouped.clone(), name()).prop_map(|(value, field)| Selector::Field { value, field }),
            inner
                .clone()
                .prop_map(|selector| Selector::Negation(Box::new(negated(selector)))),
            (operator(), grouped.clone(), grouped).prop_map(|(operator, left, right)| Selector::Arithmetic {
                operator,
                left,
                right
            }),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Selector::List),
            prop::collection::vec(inner.clone(), 0..3).prop_map(Selector::Set),
            prop::collection::vec(inner.clone(), 1..4).prop_map(Selector::Tuple),
            prop::collection::vec((inner.clone(), inner.clone()), 1..3).prop_filter_map("no field", |entries| {
                (!matches!(entries[0].0, Selector::Column(_))).then_some(Selector::Map(entries))
            }),
            prop::collection::vec((name(), inner), 1..3).prop_map(Selector::UserType),
        ]
    })
}

/// Puts an expression in parentheses, which the tree keeps as they are written.
fn grouped(selector: Selector) -> Selector {
    match selector {
        Selector::Arithmetic { .. } | Selector::Negation(_) | Selector::TypeHint { .. } => {
            Selector::Tuple(vec![selector])
        }
        other => other,
    }
}

/// The selector as it is parsed after a minus: in the parentheses that it is printed in.
fn negated(selector: Selector) -> Selector {
    let printed = Selector::Negation(Box::new(selector.clone())).to_string();
    if printed == format!("- ({selector})") {
        Selector::Tuple(vec![selector])
    } else {
        selector
    }
}

/// The selector as it is parsed after a type hint, which may be a name: in parentheses if it would otherwise continue
/// what is in front of it.
fn hinted(selector: Selector) -> Selector {
    let name = QualifiedName {
        keyspace: None,
        name: "t".to_owned(),
    };
    let hint = Selector::TypeHint {
        type_name: Box::new(TypeName::UserType(name)),
        selector: Box::new(selector.clone()),
    };
    if hint.to_string() == format!("(t)({selector})") {
        Selector::Tuple(vec![selector])
    } else {
        selector
    }
}

fn relation() -> impl Strategy<Value = Relation> {
    use ComparisonOperator as C;
    let subject = prop_oneof![
        name().prop_map(Subject::Column),
        (name(), boxed_term()).prop_map(|(column, key)| Subject::Element { column, key }),
        prop::collection::vec(name(), 1..3).prop_map(Subject::Token),
    ];
    let comparisons = vec![
        C::Equal,
        C::NotEqual,
        C::Less,
        C::LessOrEqual,
        C::Greater,
        C::GreaterOrEqual,
        C::Contains,
    ];
    let predicate = prop_oneof![
        (select(comparisons), term()).prop_map(|(operator, value)| Predicate::Compare(operator, value)),
        (any::<bool>(), prop::collection::vec(term(), 0..3)).prop_map(|(negated, values)| Predicate::In {
            negated,
            values: InValues::Terms(values.into())
        }),
        (boxed_term(), boxed_term()).prop_map(|(low, high)| Predicate::Between(low, high)),
        Just(Predicate::IsNotNull),
    ];
    (subject, predicate).prop_map(|(subject, predicate)| Relation { subject, predicate })
}

fn select_statement() -> impl Strategy<Value = Select> {
    let aliased =
        (selector(), prop::option::of(name())).prop_map(|(selector, alias)| AliasedSelector { selector, alias });
    let selection = prop_oneof![
        Just(Selection::All),
        prop::collection::vec(aliased, 1..4).prop_map(Selection::Selectors),
    ];
    let relations = prop::collection::vec(relation(), 0..3);
    (
        any::<(bool, bool)>(),
        selection,
        qualified_name(),
        relations,
        prop::collection::vec(selector(), 0..2),
    )
        .prop_map(|((json, distinct), selection, table, relations, group_by)| Select {
            json,
            distinct,
            selection,
            table: Some(table),
            fragments: json != distinct,
            relations,
            group_by,
            order_by: Vec::new(),
            per_partition_limit: None,
            limit: None,
            allow_filtering: json,
            bypass_cache: distinct,
            timeout: None,
        })
        .prop_filter(
            "behind a modifier these would continue a column of its name",
            |select| {
                let first = select.selection.to_string();
                !(select.json || select.distinct) || !first.starts_with(['[', '-'])
            },
        )
        .prop_filter("a field as a map's key would be the type of a variable", |select| {
            let text = select.selection.to_string();
            let mut before_colons: Vec<&str> = text.split("): ").collect();
            before_colons.pop();
            let is_name = |name: &str| !name.contains(['(', ' ', ',']);
            let ends_in_field = |text: &&str| {
                text.rsplit_once('(')
                    .is_some_and(|(_, name)| name.contains('.') && is_name(name))
            };
            !before_colons.iter().any(ends_in_field)
        })
}

// --- Texts -----------------------------------------------------------------------------------------------------------

/// The texts of all cases in `testdata`.
fn texts() -> Vec<&'static str> {
    [
        include_str!("../testdata/select.txt"),
        include_str!("../testdata/modify.txt"),
        include_str!("../testdata/table.txt"),
        include_str!("../testdata/schema.txt"),
        include_str!("../testdata/auth.txt"),
        include_str!("../testdata/describe.txt"),
        include_str!("../testdata/lexical.txt"),
        include_str!("../testdata/errors.txt"),
    ]
    .into_iter()
    .flat_map(|file| file.split("\n\n"))
    .filter_map(|block| block.split("\n----").next())
    .collect()
}

/// A statement with pieces of others in it.
fn spliced_text() -> impl Strategy<Value = String> {
    let edit = (
        any::<prop::sample::Index>(),
        0..4_usize,
        select(texts()),
        any::<prop::sample::Index>(),
        0..4_usize,
    );
    (select(texts()), prop::collection::vec(edit, 0..3)).prop_map(|(text, edits)| {
        let mut words: Vec<&str> = pieces(text);
        for (at, removed, other, from, taken) in edits {
            let at = at.index(words.len() + 1);
            let end = (at + removed).min(words.len());
            let other = pieces(other);
            let from = from.index(other.len() + 1);
            let taken = &other[from..(from + taken).min(other.len())];
            words.splice(at..end, taken.iter().copied());
        }
        words.concat()
    })
}

/// The text cut between words, blanks and signs.
fn pieces(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut start = 0;
    let mut previous = None;
    for (index, character) in text.char_indices() {
        let class = match character {
            'a'..='z' | 'A'..='Z' | '0'..='9' | '_' => Some(0),
            ' ' => Some(1),
            _ => None,
        };
        if index > 0 && (class.is_none() || class != previous) {
            pieces.push(&text[start..index]);
            start = index;
        }
        previous = class;
    }
    pieces.push(&text[start..]);
    pieces
}

/// Whatever a text means, its canonical form means the same, and so do the script and the split of it.
fn check_text(text: &str) {
    let Ok(parsed) = cql::parse(text) else {
        return;
    };
    let canonical = parsed.statement.to_string();
    assert_eq!(
        cql::parse(&canonical).as_ref(),
        Ok(&parsed),
        "{text}\nis printed as\n{canonical}\nwhich reads otherwise"
    );
    assert_eq!(
        cql::parse_many(text),
        Ok(vec![parsed]),
        "{text}\nas a script of one statement"
    );
    assert_eq!(
        cql::split_statements(text).len(),
        1,
        "{text}\nis one statement of a script"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_types_read_back(tree in type_name()) {
        let text = tree.to_string();
        prop_assert_eq!(cql::parse_type(&text), Ok(tree), "{}", text);
    }

    #[test]
    fn printed_selects_read_back(tree in select_statement()) {
        let text = tree.to_string();
        let parsed = cql::parse(&text).map(|parsed| parsed.statement);
        prop_assert_eq!(parsed, Ok(Statement::Select(tree)), "{}", text);
    }

    #[test]
    fn mixed_statements_print_and_read_back(text in spliced_text()) {
        check_text(&text);
    }

    #[test]
    fn arbitrary_text_never_panics(text in "\\PC{0,40}") {
        check_text(&text);
        let _ = cql::parse_many(&text);
        let _ = cql::split_statements(&text);
        let _ = cql::parse_type(&text);
    }

    #[test]
    fn quoted_names_and_strings_read_back(name in "\\PC{1,8}") {
        let text = format!("SELECT {} FROM t WHERE a = {}", cql::quote_identifier(&name), cql::quote_string(&name));
        let Ok(Statement::Select(select)) = cql::parse(&text).map(|parsed| parsed.statement) else {
            panic!("{text} is no SELECT");
        };
        let Selection::Selectors(selectors) = &select.selection else { panic!("{text} selects columns") };
        prop_assert_eq!(&selectors[0].selector, &Selector::Column(name.clone()));
        let literal = Term::Literal(Literal { kind: LiteralKind::String, text: name });
        prop_assert_eq!(&select.relations[0].predicate, &Predicate::Compare(ComparisonOperator::Equal, literal));
    }
}

// --- Bounds ----------------------------------------------------------------------------------------------------------

#[test]
fn every_way_to_nest_is_bounded() {
    let ways = [
        ("SELECT * FROM t WHERE a = ", "(", "1"),
        ("SELECT * FROM t WHERE a = ", "[", "1"),
        ("SELECT * FROM t WHERE a = ", "{", "1"),
        ("SELECT * FROM t WHERE a = ", "{1:", "1"),
        ("SELECT * FROM t WHERE a = ", "{a:", "1"),
        ("SELECT * FROM t WHERE a = ", "f(", "1"),
        ("SELECT * FROM t WHERE a = ", "(int)", "1"),
        ("SELECT * FROM t WHERE a = ", "- ", "f()"),
        ("SELECT * FROM t WHERE a = ", "1+", "1"),
        ("SELECT * FROM t WHERE a = ", "1*", "1"),
        ("SELECT * FROM t WHERE ", "(", "a = 1"),
        ("SELECT ", "(", "a"),
        ("SELECT ", "[", "a"),
        ("SELECT ", "{", "a"),
        ("SELECT ", "{1:", "a"),
        ("SELECT ", "{a:", "a"),
        ("SELECT ", "f(", "a"),
        ("SELECT ", "CAST(", "a"),
        ("SELECT ", "(int)", "a"),
        ("SELECT ", "- ", "a"),
        ("SELECT ", "a+", "a"),
        ("SELECT ", "a.", "a"),
        ("SELECT a", "[1]", " FROM t"),
        ("CREATE TABLE t (a ", "list<", "int"),
        ("CREATE TABLE t (a ", "map<int,", "int"),
        ("CREATE TABLE t (a ", "tuple<", "int"),
    ];
    for (before, step, core) in ways {
        let text = format!("{before}{}{core}", step.repeat(20_000));
        let error = cql::parse(&text).expect_err("nothing nests so deep");
        assert!(
            error.message.starts_with("nested deeper than"),
            "{before}{step}…: {error}"
        );
    }
}

/// Looking ahead and speculating must not read the text again and again: each of these would take minutes if they did.
#[test]
fn long_statements_are_read_once() {
    let repeated = [
        ("SELECT ", "(1), ", "a FROM t"),
        ("SELECT ", "(a), ", "a FROM t"),
        ("SELECT ", "(int)a, ", "a FROM t"),
        ("SELECT ", "f(a)[1].b, ", "a FROM t"),
        ("SELECT * FROM t WHERE a IN (", "(1, 'x'), ", "1)"),
        ("SELECT * FROM t WHERE a = 1", " AND (a, b) > (1, 2)", ""),
        ("BEGIN BATCH ", "INSERT INTO t (a) VALUES (?); ", "APPLY BATCH"),
        ("INSERT INTO t (a) VALUES ({", "'key': {a: 1}, ", "'': 1})"),
    ];
    for (before, step, after) in repeated {
        let text = format!("{before}{}{after}", step.repeat(100_000));
        assert!(cql::parse(&text).is_ok(), "{before}{step}…{after}");
        assert_eq!(cql::split_statements(&text).len(), 1, "{before}{step}…{after}");
    }
}

/// The first selector of a SELECT.
fn first_selector(text: &str) -> Selector {
    let parsed = cql::parse(text).map(|parsed| parsed.statement);
    let Ok(Statement::Select(select)) = parsed else {
        panic!("{text}: {parsed:?}");
    };
    match select.selection {
        Selection::Selectors(mut selectors) => selectors.remove(0).selector,
        other => panic!("{text}: {other:?}"),
    }
}

#[test]
fn a_name_in_parentheses_before_a_colon_is_the_key_of_a_map_and_elsewhere_a_type() {
    for key in ["(a)", "(a.f)", "(int)(a.f)"] {
        let selector = first_selector(&format!("SELECT {{{key}: b}} FROM t"));
        assert!(matches!(selector, Selector::Map(_)), "{key}: {selector:?}");
    }
    let selector = first_selector("SELECT {b: 1, c: (a) :d} FROM t");
    assert!(matches!(selector, Selector::UserType(_)), "{selector:?}");
    let selector = first_selector("SELECT (a) :b FROM t");
    assert!(matches!(selector, Selector::TypeHint { .. }), "{selector:?}");
}
