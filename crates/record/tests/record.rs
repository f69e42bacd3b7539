//! What is refused of a record, and how that is said: over a small record of its own.

use record::{Field, Known, Message, Of, Problem, Record, decode, encode, needs, text};

/// A shelf with books.
#[derive(Clone, PartialEq, prost::Message)]
struct Shelf {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(message, repeated, tag = "2")]
    books: Vec<Book>,
    #[prost(uint32, optional, tag = "4")]
    height: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Book {
    #[prost(string, tag = "1")]
    title: String,
    #[prost(sint32, tag = "2")]
    shift: i32,
    #[prost(bool, tag = "3")]
    is_lent: bool,
    #[prost(double, tag = "4")]
    price: f64,
    #[prost(bytes = "vec", tag = "5")]
    cover: Vec<u8>,
    #[prost(message, repeated, tag = "6")]
    parts: Vec<Book>,
    #[prost(uint64, tag = "7")]
    pages: u64,
}

static SHELF: Message = Message::new(
    "shelf",
    &[
        Field::new(1, "name", Of::Text),
        Field::list(2, "books", Of::Record(&BOOK)),
        Field::new(4, "height", Of::U32).since("heights"),
    ],
)
.titled(&[1])
.reserving(&[(3, "a lamp")]);
static BOOK: Message = Message::new(
    "book",
    &[
        Field::new(1, "title", Of::Text),
        Field::new(2, "shift", Of::S32),
        Field::new(3, "is_lent", Of::Bool),
        Field::new(4, "price", Of::Double),
        Field::new(5, "cover", Of::Bytes),
        Field::list(6, "parts", Of::Record(&BOOK)),
        Field::new(7, "pages", Of::U64),
    ],
)
.titled(&[1]);

impl Record for Shelf {
    const MESSAGE: &'static Message = &SHELF;
}

/// What comes of a record in the words of `record::text`.
fn read(text: &str) -> String {
    let bytes = text::parse(text).expect("the case is a record");
    match decode::<Shelf>(&bytes, &Known::everything()) {
        Ok(shelf) => {
            assert_eq!(encode(&shelf), bytes, "one shelf has two encodings");
            format!("{} books", shelf.books.len())
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_record_is_read_or_refused_with_the_place() {
    let behind = "which this release does not know; a later release wrote it";
    let other = "the encoding is not the one that this release writes";
    let cases = [
        ("", "0 books".to_owned()),
        (
            "1 \"left\"\n2 {\n1 \"a\"\n2 -7s\n3 1\n4 0.5d\n5 0x00ff\n6 {\n7 9\n}\n}\n4 3",
            "1 books".to_owned(),
        ),
        ("1 \"left\"\n9 1", format!("shelf left has field 9, {behind}")),
        ("9 1", format!("shelf has field 9, {behind}")),
        (
            "1 \"left\"\n2 {\n1 \"a\"\n8 1\n}",
            format!("shelf left, book a has field 8, {behind}"),
        ),
        (
            "1 \"left\"\n3 1",
            "shelf left has field 3 (a lamp), which this release does not support; a later release wrote it".to_owned(),
        ),
        (
            "1 5",
            "shelf, name is damaged: expected wire type LengthDelimited, found Varint".to_owned(),
        ),
        ("1 0xff", "shelf \u{fffd}, name is damaged: expected UTF-8".to_owned()),
        (
            "1 \"a\"\n1 \"b\"",
            "shelf a, name is damaged: it occurs twice".to_owned(),
        ),
        (
            "4 1\n1 \"a\"",
            "shelf a, name is damaged: it comes after a later field".to_owned(),
        ),
        (
            "4 4294967296",
            "shelf, height is damaged: expected at most 4294967295, found 4294967296".to_owned(),
        ),
        (
            "2 {\n3 2\n}",
            "shelf, book, is_lent is damaged: expected at most 1, found 2".to_owned(),
        ),
        // A default that is written out.
        ("2 {\n3 0\n}", format!("shelf, book, is_lent is damaged: {other}")),
        ("1 \"\"", format!("shelf, name is damaged: {other}")),
        (
            "1 \"a\"\n2 {\n7 0\n}",
            format!("shelf a, book, pages is damaged: {other}"),
        ),
        (
            "2 0x0a05",
            "shelf, book, title is damaged: 5 bytes expected, 0 follow".to_owned(),
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(read(text), expected, "{text}");
    }
}

#[test]
fn a_field_of_a_feature_that_the_node_does_not_know_is_refused_as_any_unknown_field() {
    let shelf = Shelf {
        name: "left".to_owned(),
        height: Some(3),
        ..Shelf::default()
    };
    let bytes = encode(&shelf);
    for known in [Known::everything(), Known::features(["heights", "widths"])] {
        assert_eq!(decode::<Shelf>(&bytes, &known), Ok(shelf.clone()));
    }
    let error = decode::<Shelf>(&bytes, &Known::features(["widths"])).expect_err("the node does not know the field");
    assert_eq!(
        (error.place.as_str(), &error.problem),
        (
            "shelf left",
            &Problem::Unknown {
                number: 4,
                reserved_for: None
            }
        )
    );
    let without = Shelf { height: None, ..shelf };
    assert_eq!(
        decode::<Shelf>(&encode(&without), &Known::features(["widths"])),
        Ok(without)
    );
}

#[test]
fn a_record_says_which_features_it_needs() {
    let shelf = |height| Shelf {
        name: "left".to_owned(),
        height,
        ..Shelf::default()
    };
    assert_eq!(needs(&shelf(None)), []);
    let needed = needs(&shelf(Some(1)));
    let needed: Vec<(&str, &str)> = needed.iter().map(|need| (need.feature, need.place.as_str())).collect();
    assert_eq!(needed, [("heights", "shelf left, height")]);
}

#[test]
fn records_deeper_than_the_limit_are_refused_and_others_are_read() {
    let nested = |depth: usize| {
        let inner = depth - 2;
        let text = format!("2 {{\n{}7 1\n{}}}", "6 {\n".repeat(inner), "}\n".repeat(inner));
        text::parse(&text).expect("it is a record")
    };
    let read = |depth| decode::<Shelf>(&nested(depth), &Known::everything());
    assert!(read(record::DEPTH_MAX).is_ok());
    for depth in [record::DEPTH_MAX + 1, 5_000] {
        let error = read(depth).expect_err("it is too deep").to_string();
        assert!(error.contains("more than 90 deep"), "{error}");
    }
}

#[test]
fn every_byte_that_is_cut_off_or_changed_is_noticed_or_gives_another_record() {
    let bytes = text::parse("1 \"left\"\n2 {\n1 \"a\"\n2 -7s\n3 1\n4 0.5d\n5 0x00ff\n6 {\n7 9\n}\n}\n4 3");
    let bytes = bytes.expect("it is a record");
    let whole = decode::<Shelf>(&bytes, &Known::everything()).expect("it is whole");
    for at in 0..bytes.len() {
        let mut others = vec![bytes[..at].to_vec()];
        others.extend((0..8).map(|bit| {
            let mut other = bytes.clone();
            other[at] ^= 1 << bit;
            other
        }));
        for other in others {
            if let Ok(shelf) = decode::<Shelf>(&other, &Known::everything()) {
                assert_ne!(shelf, whole, "a change at byte {at} gives the same record");
                assert_eq!(encode(&shelf), other, "a change at byte {at} gives a second encoding");
            }
        }
    }
}

/// A release whose struct lacks a field that its table has.
#[test]
fn a_field_that_the_table_has_and_the_struct_lacks_is_noticed() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Forgetful {
        #[prost(string, tag = "1")]
        name: String,
    }
    impl Record for Forgetful {
        const MESSAGE: &'static Message = &SHELF;
    }
    let bytes = text::parse("1 \"left\"\n4 3").expect("it is a record");
    let error = decode::<Forgetful>(&bytes, &Known::everything()).expect_err("the height is dropped");
    assert_eq!(
        error.to_string(),
        "shelf left, height is damaged: the encoding is not the one that this release writes"
    );
}

#[test]
fn the_text_of_a_record_is_the_record() {
    let text = "1 \"left\"\n2 {\n  1 \"a\"\n  2 -7s\n  3 1\n  4 0.5d\n  5 0x00ff\n  6 {\n    7 9\n  }\n}\n4 3\n";
    let bytes = text::parse(text).expect("it is a record");
    let printed = text::print(&bytes, &SHELF);
    assert_eq!(text::parse(&printed), Ok(bytes));
    let without_names: String = printed
        .lines()
        .map(|line| line.split(" #").next().unwrap_or(line).to_owned() + "\n")
        .collect();
    assert_eq!(without_names, text);
}
