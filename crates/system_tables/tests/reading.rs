//! Blocks of a virtual table: what comes, in which order, and that nothing is lost between two blocks.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use mutation::{Bound, ClusteringSlice, PartitionBlock};
use schema::{Schema, components, push_component};
use system_tables::{
    BlockLimits, Content, Definition, Opening, Options, Partitions, Reader, Request, Rows, Value, VirtualTable, Wanted,
    ready,
};
use types::Token;
use types::token::token_of;
use uuid::Uuid;

static NUMBERS: Definition = Definition {
    keyspace: "system_views",
    cql: "numbers (a int, b text, n int, tags set<text>, names map<text, text>, square bigint, \
     PRIMARY KEY ((a, b), n))",
    options: Options::USUAL,
};

/// Partitions 0 to 4, each with the numbers below ten times its own. Whether they come in order says the field.
#[derive(Clone, Copy)]
struct Numbers {
    in_order: bool,
}

impl VirtualTable for Numbers {
    fn definition(&self) -> &'static Definition {
        &NUMBERS
    }

    fn open(&self, _: Request) -> Opening<'_> {
        ready(*self)
    }
}

impl Content for Numbers {
    fn partitions(&self, partitions: &mut Partitions) {
        for number in 0..5 {
            partitions.add(number, &[Value::count(number), Value::Text("b")]);
        }
    }

    fn rows(&self, partition: usize, rows: &mut Rows<'_>) {
        let mut numbers: Vec<i32> = (0..10 * i32::try_from(partition).expect("few")).collect();
        if !self.in_order {
            numbers.reverse();
        }
        for n in numbers {
            if self.in_order && rows.is_full() {
                return;
            }
            if !rows.wants(&[Value::Int(n)]) {
                continue;
            }
            let names = BTreeMap::from([("decimal".to_owned(), n.to_string())]);
            rows.push(&[
                ("a", Value::count(partition)),
                ("b", Value::Text("b")),
                ("n", Value::Int(n)),
                ("tags", Value::Texts(vec!["b", "a", "a"])),
                ("names", Value::TextMap(&names)),
                ("square", Value::BigInt(i64::from(n * n))),
            ]);
        }
    }
}

fn open(source: Numbers, wanted: Wanted) -> Reader {
    let schema = Arc::new(Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    });
    let table = Arc::new(NUMBERS.table());
    let opening = pin!(Reader::open(&source, table, Request { schema, wanted }, 7));
    match opening.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(reader) => reader,
        Poll::Pending => panic!("it has its facts"),
    }
}

fn limits(rows: usize) -> BlockLimits {
    BlockLimits { rows, bytes: 1 << 20 }
}

fn key(partition: i32) -> Vec<u8> {
    let mut key = vec![0, 4];
    key.extend_from_slice(&partition.to_be_bytes());
    key.extend_from_slice(&[0, 0, 1, b'b', 0]);
    key
}

fn clustering(n: i32) -> Vec<u8> {
    let mut out = Vec::new();
    push_component(&mut out, &n.to_be_bytes());
    out
}

fn numbers(block: &PartitionBlock) -> Vec<i32> {
    let first = |clustering| components(clustering).next().flatten().expect("one column");
    let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("an int"));
    block.rows().map(|(clustering, _)| number(first(clustering))).collect()
}

const BOTH: [Numbers; 2] = [Numbers { in_order: true }, Numbers { in_order: false }];

#[test]
fn a_partition_comes_whole_whatever_the_size_of_blocks() {
    for source in BOTH {
        for rows in 1..12 {
            let reader = open(source, Wanted::Keys(Arc::from([key(2)])));
            let mut blocks = reader.partition(key(2), vec![ClusteringSlice::all()], false, limits(rows));
            let (mut all, mut ended) = (Vec::new(), false);
            while let Some(block) = blocks.next_block() {
                assert!(!ended, "a block behind the one that ends the partition");
                assert!(block.key() == key(2) && block.token == token_of(&key(2)));
                if source.in_order {
                    assert!(block.len() <= rows, "a block of {} rows", block.len());
                }
                ended = block.covered.is_none();
                all.extend(numbers(&block));
            }
            assert!(ended, "no block ends the partition");
            assert_eq!(all, (0..20).collect::<Vec<_>>(), "in blocks of {rows}");
        }
    }
}

#[test]
fn a_scan_comes_in_token_order_and_ends_every_partition() {
    let mut in_order: Vec<i32> = (1..5).collect();
    in_order.sort_by_key(|partition| token_of(&key(*partition)));
    for source in BOTH {
        for rows in [1, 5, 10, 100] {
            let reader = open(source, Wanted::ALL);
            let mut blocks = reader.scan((Token(i64::MIN), Vec::new()), limits(rows));
            let (mut ended, mut all) = (Vec::new(), 0);
            while let Some(block) = blocks.next_block() {
                all += block.len();
                if block.covered.is_none() {
                    ended.push(block.key().to_vec());
                }
            }
            let keys: Vec<_> = in_order.iter().map(|partition| key(*partition)).collect();
            assert_eq!((ended, all), (keys, 100), "in blocks of {rows}");
        }
    }
}

#[test]
fn a_scan_begins_where_it_is_told_and_leaves_partitions_when_it_is_told() {
    let mut in_order: Vec<i32> = (1..5).collect();
    in_order.sort_by_key(|partition| token_of(&key(*partition)));
    let second = key(in_order[1]);
    let reader = open(BOTH[0], Wanted::ALL);
    let mut blocks = reader.scan((token_of(&second), second), limits(1));
    let mut seen = Vec::new();
    while let Some(block) = blocks.next_block() {
        seen.push(block.key().to_vec());
        blocks.skip_partition();
    }
    let keys: Vec<_> = in_order[1..].iter().map(|partition| key(*partition)).collect();
    assert_eq!(seen, keys);
    let (from, to) = (token_of(&key(in_order[1])), token_of(&key(in_order[2])));
    let reader = open(BOTH[0], Wanted::Tokens(from, to));
    let mut blocks = reader.scan((Token(i64::MIN), Vec::new()), limits(1000));
    let seen: Vec<_> = std::iter::from_fn(|| blocks.next_block())
        .map(|block| block.key().to_vec())
        .collect();
    assert_eq!(
        seen,
        [key(in_order[1]), key(in_order[2])],
        "only these tokens are wanted"
    );
}

#[test]
fn only_the_rows_of_the_slices_come_in_clustering_order_also_for_reversed_reads() {
    let slice = |from, to| ClusteringSlice {
        start: Bound::before(&clustering(from)),
        end: Bound::after(&clustering(to)),
    };
    for source in BOTH {
        for (reversed, rows) in [(false, 2), (false, 100), (true, 2)] {
            let reader = open(source, Wanted::Keys(Arc::from([key(4)])));
            let mut blocks = reader.partition(key(4), vec![slice(3, 5), slice(30, 31)], reversed, limits(rows));
            let all: Vec<_> = std::iter::from_fn(|| blocks.next_block()).collect();
            assert_eq!(all.iter().flat_map(numbers).collect::<Vec<_>>(), [3, 4, 5, 30, 31]);
            assert!(
                !reversed || all.len() == 1,
                "a reversed read gets all rows in one block"
            );
        }
    }
}

#[test]
fn a_partition_that_is_not_there_has_no_block() {
    let reader = open(BOTH[0], Wanted::Keys(Arc::from([key(9)])));
    let mut blocks = reader.partition(key(9), vec![ClusteringSlice::all()], false, limits(1));
    assert!(blocks.next_block().is_none());
    let mut blocks = reader.scan((Token(i64::MIN), Vec::new()), limits(1));
    assert!(blocks.next_block().is_none(), "partitions come that nobody wants");
}

#[test]
fn collections_are_sets_and_maps_of_cells() {
    let schema = Arc::new(Schema {
        version: Uuid::nil(),
        keyspaces: BTreeMap::new(),
    });
    let rows = system_tables::rows_of(&BOTH[0], &schema);
    let row: Vec<_> = rows
        .iter()
        .find(|row| row[0].1 == "1" && row[2].1 == "7")
        .expect("it is there")
        .clone();
    let text: Vec<_> = row.iter().map(|(name, value)| format!("{name} {value}")).collect();
    assert_eq!(
        text,
        [
            "a 1",
            "b 'b'",
            "n 7",
            "names {'decimal': '7'}",
            "square 49",
            "tags {'a', 'b'}"
        ]
    );
}
