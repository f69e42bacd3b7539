//! Which write wins, what may be forgotten, how rows are packed and cut: the suites of `tests/suites`.
//!
//! Each begins with `table`, whose columns the cases after it use; `notation/mod.rs` describes the notation of rows and
//! partitions. Rows are merged in every order, and cuts and stretches are put together again, so a case also fails if
//! the order of arrival or the position of a cut changes the result.

mod notation;

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use mutation::compact::{LiveColumn, LiveRow, Purge, compact_block, compact_row};
use mutation::merge::{hides_itself, merge_blocks, merge_rows, missing_part, settle_row};
use mutation::stretch::{self, Fill, Position, Stretches};
use mutation::{
    Bound, ClusteringSlice, Mutation, MutationItem, PartitionBlock, RangeTombstoneList, RowView, Tombstone,
};
use notation::{
    block, block_text, bound, bound_text, lengthen, prefix, prefix_text, range, range_text, row, row_text, shorten,
};
use schema::{CellLayout, Table};
use testkit::{Case, path};

fn view(bytes: &[u8]) -> RowView<'_> {
    RowView::new(bytes).expect("a row")
}

fn merged(table: &Table, a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    merge_rows(&table.layout, view(a), view(b), &mut out);
    RowView::validate(&out, &table.layout).expect("a merged row is well formed");
    out
}

/// The numbers below `n` in every order.
fn orders(n: usize) -> Vec<Vec<usize>> {
    let mut all = vec![Vec::new()];
    for next in 0..n {
        let longer = |order: &Vec<usize>| (0..=order.len()).map(|at| insert(order, at, next)).collect::<Vec<_>>();
        all = all.iter().flat_map(longer).collect();
    }
    all
}

fn insert(order: &[usize], at: usize, next: usize) -> Vec<usize> {
    let mut order = order.to_vec();
    order.insert(at, next);
    order
}

/// The answer, if it is the same in each order; else two answers that differ.
fn in_every_order(n: usize, answer: impl Fn(&[usize]) -> String) -> String {
    assert!(n <= 6, "{n} inputs have too many orders");
    let mut answers: Vec<(String, Vec<usize>)> = orders(n).into_iter().map(|order| (answer(&order), order)).collect();
    let (first, order) = answers.remove(0);
    match answers.iter().find(|(other, _)| *other != first) {
        Some((other, another)) => format!("in order {order:?}\n{first}\nin order {another:?}\n{other}"),
        None => first,
    }
}

/// What a table is to packed rows.
fn layout_text(table: &Table) -> String {
    let columns = table.statics().chain(table.regulars());
    let lines: Vec<String> = columns
        .map(|c| {
            let layout = match table.layout.cell(usize::from(c.id.0)) {
                CellLayout::Fixed(n) => format!("{n} bytes"),
                CellLayout::Variable => "any length".to_owned(),
                CellLayout::Complex => "elements".to_owned(),
                CellLayout::Unknown => "unknown".to_owned(),
            };
            format!("{} is column {}: {layout}", c.name, c.id.0)
        })
        .collect();
    lines.join("\n")
}

fn pack(table: &Table, case: &Case) -> String {
    let lines: Vec<String> = case
        .input()
        .lines()
        .map(|facts| {
            let bytes = row(table, facts);
            let text = row_text(table, view(&bytes));
            let same = if text == facts {
                String::new()
            } else {
                format!("\nread as {text}")
            };
            format!("{} bytes: {}{same}", bytes.len(), testkit::hex(&bytes))
        })
        .collect();
    lines.join("\n")
}

fn unpack(table: &Table, case: &Case) -> String {
    let bytes = testkit::from_hex(&case.input().replace([' ', '\n'], ""));
    match RowView::validate(&bytes, &table.layout) {
        Ok(()) => row_text(table, view(&bytes)),
        Err(e) => format!("error: {e}"),
    }
}

fn merge(table: &Table, case: &Case) -> String {
    let rows: Vec<Vec<u8>> = case.input().lines().map(|facts| row(table, facts)).collect();
    in_every_order(rows.len(), |order| {
        let mut order = order.iter();
        let mut all = rows[*order.next().expect("a row")].clone();
        if order.len() == 0 {
            all = merged(table, &all, &all.clone());
        }
        for i in order {
            all = merged(table, &all, &rows[*i]);
        }
        row_text(table, view(&all))
    })
}

fn settle(table: &Table, case: &Case) -> String {
    let bytes = row(table, case.input());
    if !hides_itself(&table.layout, view(&bytes)) {
        return "hides nothing of itself".to_owned();
    }
    let mut out = Vec::new();
    settle_row(&table.layout, view(&bytes), &mut out);
    assert!(
        !hides_itself(&table.layout, view(&out)),
        "a settled row still hides something"
    );
    row_text(table, view(&out))
}

/// What the first row lacks of the merge of all.
fn missing(table: &Table, case: &Case) -> String {
    let rows: Vec<Vec<u8>> = case.input().lines().map(|facts| row(table, facts)).collect();
    let mut all = rows[0].clone();
    for other in &rows {
        all = merged(table, &all, other);
    }
    let mut part = Vec::new();
    if !missing_part(&table.layout, view(&all), view(&rows[0]), &mut part) {
        return "nothing".to_owned();
    }
    let repaired = merged(table, &rows[0], &part);
    assert_eq!(
        row_text(table, view(&repaired)),
        row_text(table, view(&all)),
        "the part does not make the row whole"
    );
    row_text(table, view(&part))
}

/// A deletion from the argument `deleted=timestamp:second`.
fn deletion(case: &Case) -> Tombstone {
    case.argument("deleted").map_or(Tombstone::NONE, |text| {
        let (timestamp, second) = text.split_once(':').expect("a timestamp and a second");
        Tombstone {
            timestamp: timestamp.parse().expect("a timestamp"),
            deletion_time: second.parse().expect("a second"),
        }
    })
}

/// What a reader sees of each row.
fn live(table: &Table, case: &Case) -> String {
    let see = |facts: &str| {
        let bytes = row(table, facts);
        let live = LiveRow::new(view(&bytes), &table.layout, deletion(case), case.number("now", 0));
        if !live.is_live() {
            return "no row".to_owned();
        }
        let mut seen = Vec::new();
        for (id, column) in live.columns() {
            match column {
                LiveColumn::Simple(cell) => {
                    seen.extend(notation::column_facts(table, id, mutation::Column::Simple(cell)));
                }
                LiveColumn::Complex(elements) => {
                    let found = table.regulars().find(|c| usize::from(c.id.0) == id).expect("a column");
                    seen.extend(
                        elements.map(|(p, cell)| notation::element_fact(&found.name, &found.cql_type, p, &cell)),
                    );
                }
            }
        }
        if seen.is_empty() {
            return "a row without values".to_owned();
        }
        seen.join("; ")
    };
    case.input().lines().map(see).collect::<Vec<_>>().join("\n")
}

/// Calls `f` with what the arguments `now`, `gc_before`, `max` and `held=FROM-TO,…` say.
fn with_purge(case: &Case, f: impl FnOnce(&Purge<'_>) -> String) -> String {
    let held: Vec<RangeInclusive<u32>> = case.argument("held").map_or_else(Vec::new, |spans| {
        let second = |text: &str| text.parse::<u32>().expect("seconds");
        let span = |text: &str| text.split_once('-').map(|(from, to)| second(from)..=second(to));
        spans.split(',').map(|text| span(text).expect("FROM-TO")).collect()
    });
    f(&Purge {
        now: case.number("now", 0),
        gc_before: case.number("gc_before", 0),
        max_purgeable_timestamp: case.number("max", i64::MAX),
        held: &held,
        keeps_expired: false,
    })
}

fn compact(table: &Table, case: &Case) -> String {
    with_purge(case, |purge| {
        let compact_one = |facts: &str| {
            let (bytes, mut out) = (row(table, facts), Vec::new());
            let is_left = compact_row(&table.layout, view(&bytes), deletion(case), purge, &mut out);
            assert_eq!(is_left, !out.is_empty(), "what is appended is what is left");
            if is_left {
                row_text(table, view(&out))
            } else {
                "nothing".to_owned()
            }
        };
        case.input().lines().map(compact_one).collect::<Vec<_>>().join("\n")
    })
}

fn compact_partition(table: &Table, case: &Case) -> String {
    with_purge(case, |purge| {
        let whole = block(table, case.input());
        let left = compact_block(&table.layout, &table.clustering_order, &whole, purge);
        block_text(table, &left)
    })
}

/// Merges the partitions that are separated by lines `and`.
fn merge_partitions(table: &Table, case: &Case) -> String {
    let blocks: Vec<PartitionBlock> = case.input().split("\nand\n").map(|lines| block(table, lines)).collect();
    in_every_order(blocks.len(), |order| {
        let blocks: Vec<&PartitionBlock> = order.iter().map(|i| &blocks[*i]).collect();
        let merged = merge_blocks(&table.layout, &table.clustering_order, &blocks);
        block_text(table, &merged.expect("there is a partition"))
    })
}

/// Range tombstones added in every order; lines `row KEY` and `within A .. B` ask what covers them.
fn ranges(table: &Table, case: &Case) -> String {
    let order = &table.clustering_order;
    let added: Vec<_> = case
        .input()
        .lines()
        .filter_map(|line| line.strip_prefix("delete "))
        .collect();
    in_every_order(added.len(), |sequence| {
        let mut list = RangeTombstoneList::default();
        for i in sequence {
            list.add(order, range(table, added[*i]));
        }
        let mut out: Vec<String> = list.as_slice().iter().map(|r| range_text(table, r)).collect();
        for line in case.input().lines() {
            if let Some(key) = line.strip_prefix("row ") {
                let covering = list.covering(order, &prefix(table, key));
                out.push(if covering.is_none() {
                    format!("row {key} is not deleted")
                } else {
                    format!("row {key} is deleted @{}", covering.timestamp)
                });
            }
            if let Some(slice) = line.strip_prefix("within ") {
                let parts: Vec<String> = list
                    .within(order, &slice_of(table, slice))
                    .map(|r| range_text(table, &r))
                    .collect();
                out.push(format!("within {slice}: {}", parts.join(", ")));
            }
        }
        out.join("\n")
    })
}

fn slice_of(table: &Table, text: &str) -> ClusteringSlice {
    let (start, end) = text.split_once(" .. ").expect("two bounds");
    ClusteringSlice {
        start: bound(table, start),
        end: bound(table, end),
    }
}

/// A bound or a whole clustering key.
enum BoundOrRow {
    Bound(Bound),
    Row(Vec<u8>),
}

/// Sorts bounds and rows; those that compare as equal are on one line.
fn order(table: &Table, case: &Case) -> String {
    let order = &table.clustering_order;
    let read = |line: &str| match line.strip_prefix("row ") {
        Some(key) => BoundOrRow::Row(prefix(table, key)),
        None => BoundOrRow::Bound(bound(table, line)),
    };
    let compare = |a: &BoundOrRow, b: &BoundOrRow| match (a, b) {
        (BoundOrRow::Bound(a), BoundOrRow::Bound(b)) => a.compare(order, b),
        (BoundOrRow::Bound(a), BoundOrRow::Row(b)) => a.compare_key(order, b),
        (BoundOrRow::Row(a), BoundOrRow::Bound(b)) => b.compare_key(order, a).reverse(),
        (BoundOrRow::Row(a), BoundOrRow::Row(b)) => order.compare(a, b),
    };
    let mut positions: Vec<BoundOrRow> = case.input().lines().map(read).collect();
    for a in &positions {
        for b in &positions {
            assert_eq!(compare(a, b), compare(b, a).reverse(), "one order of two positions");
        }
    }
    positions.sort_by(compare);
    let text = |position: &BoundOrRow| match position {
        BoundOrRow::Bound(b) => bound_text(table, b),
        BoundOrRow::Row(key) => format!("row {}", prefix_text(table, key)),
    };
    let mut out = String::new();
    for (i, position) in positions.iter().enumerate() {
        if i > 0 {
            let is_same = compare(&positions[i - 1], position) == Ordering::Equal;
            out.push_str(if is_same { " = " } else { "\n" });
        }
        out.push_str(&text(position));
    }
    out
}

/// Which rows are inside a slice.
fn slice(table: &Table, case: &Case) -> String {
    let slice = slice_of(table, case.arguments());
    let order = &table.clustering_order;
    if slice.is_empty(order) {
        return "empty".to_owned();
    }
    let inside = |key: &&str| slice.contains(order, &prefix(table, key));
    case.input().lines().filter(inside).collect::<Vec<_>>().join("\n")
}

/// What is in a partition when these mutations have come.
fn apply<'m>(table: &Table, mutations: impl Iterator<Item = &'m Vec<u8>>) -> String {
    let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let (mut static_row, mut partition): (Option<Vec<u8>>, Tombstone) = (None, Tombstone::NONE);
    let mut ranges = RangeTombstoneList::default();
    for bytes in mutations {
        for item in Mutation::new(bytes).expect("a mutation").items() {
            match item {
                MutationItem::Partition(t) => partition = partition.merge(t),
                MutationItem::StaticRow(new) => {
                    static_row = Some(static_row.map_or_else(|| new.to_vec(), |have| merged(table, &have, new)));
                }
                MutationItem::Row { clustering, row: new } => {
                    let have = rows.remove(clustering);
                    let all = have.map_or_else(|| new.to_vec(), |have| merged(table, &have, new));
                    rows.insert(clustering.to_vec(), all);
                }
                MutationItem::Range(range) => ranges.add(&table.clustering_order, range),
            }
        }
    }
    let mut block = PartitionBlock::new(types::token::token_of(b"k"), b"k");
    block.tombstone = partition;
    block.range_tombstones = ranges.into_vec();
    static_row.iter().for_each(|row| block.set_static_row(row));
    rows.iter().for_each(|(key, row)| block.push_row(key, row));
    block_text(table, &block)
}

/// The cuts of a mutation, which together do what it does.
fn cut(table: &Table, case: &Case) -> String {
    let whole = notation::mutation(table, b"key", case.input());
    let mutation = Mutation::new(&whole).expect("a mutation");
    let cuts = mutation::cut::cut(&mutation, &table.layout, case.number("max", 1_000));
    let whole_text = apply(table, [&whole].into_iter());
    assert_eq!(apply(table, cuts.iter()), whole_text, "the cuts in their order");
    assert_eq!(
        apply(table, cuts.iter().rev()),
        whole_text,
        "the cuts in the other order"
    );
    let texts: Vec<String> = cuts
        .iter()
        .map(|bytes| {
            let mutation = Mutation::new(bytes).expect("a cut is a mutation");
            mutation.validate(&table.layout).expect("a cut is well formed");
            assert_eq!(mutation.key, b"key");
            let text = notation::mutation_text(table, &mutation);
            format!("{} bytes\n{}", bytes.len(), shorten(&text))
        })
        .collect();
    texts.join("\n")
}

fn position_text(table: &Table, position: &Position<'_>) -> String {
    let column = table.regulars().find(|c| usize::from(c.id.0) == position.id);
    let column = column.expect("a position is at a column");
    let side = if position.after { "behind" } else { "before" };
    if position.path.is_empty() {
        return format!("{side} {}", column.name);
    }
    let cell = mutation::Cell {
        timestamp: 0,
        ttl: 0,
        deletion_time: 0,
        dead: true,
        value: &[],
    };
    let fact = notation::element_fact(&column.name, &column.cql_type, position.path, &cell);
    let target = fact
        .trim_start_matches("delete ")
        .split(" @")
        .next()
        .unwrap_or_default()
        .to_owned();
    format!("{side} {target}")
}

/// The stretches of a row, which joined and merged give the row again.
fn stretches(table: &Table, case: &Case) -> String {
    let bytes = row(table, case.input());
    let layout = &table.layout;
    let fill = if case.has("even") { Fill::Even } else { Fill::Full };
    let cuts = stretch::cuts(view(&bytes), layout, case.number("max", 100), fill, true);
    let mut parts = Stretches::new(view(&bytes), layout);
    let (mut out, mut taken): (Vec<String>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    let ends = cuts.iter().map(|cut| Some(*cut)).chain([None]);
    for (n, end) in ends.enumerate() {
        let mut part = Vec::new();
        let is_something = parts.take(end, n == 0, &mut part);
        RowView::validate(&part, layout).expect("a stretch is a row");
        let text = if is_something {
            row_text(table, view(&part))
        } else {
            "nothing".to_owned()
        };
        out.push(format!("{} bytes: {}", part.len(), shorten(&text)));
        out.extend(end.map(|cut| format!("cut {}", position_text(table, &cut))));
        taken.push(part);
    }
    let whole = row_text(table, view(&bytes));
    let mut joined = Vec::new();
    stretch::join(taken.iter().map(|part| view(part)), layout, &|_| true, &mut joined);
    assert_eq!(row_text(table, view(&joined)), whole, "the stretches joined");
    let together = taken
        .iter()
        .skip(1)
        .fold(taken[0].clone(), |all, part| merged(table, &all, part));
    assert_eq!(row_text(table, view(&together)), whole, "the stretches merged");
    out.join("\n")
}

/// A row with some of its columns.
fn select(table: &Table, case: &Case) -> String {
    let id = |name: &str| table.column(name).expect("a column of the table").id.0;
    let ids: Vec<u16> = case.arguments().split(',').map(|name| id(name.trim())).collect();
    let (bytes, mut out) = (row(table, case.input()), Vec::new());
    stretch::select(view(&bytes), &table.layout, &ids, &mut out);
    RowView::validate(&out, &table.layout).expect("a row");
    row_text(table, view(&out))
}

fn measure(table: &Table, case: &Case) -> String {
    let measure_one = |facts: &str| {
        let bytes = row(table, facts);
        let row = view(&bytes);
        let last = stretch::last_position(row, &table.layout);
        let last = last.map_or_else(|| "no last one".to_owned(), |p| position_text(table, &p));
        format!(
            "{} cells, {last}, oldest @{}",
            stretch::cell_count(row, &table.layout),
            row.min_timestamp(&table.layout)
        )
    };
    case.input().lines().map(measure_one).collect::<Vec<_>>().join("\n")
}

fn pack_mutation(table: &Table, case: &Case) -> String {
    let bytes = notation::mutation(table, b"key", case.input());
    let mutation = Mutation::new(&bytes).expect("a mutation");
    mutation.validate(&table.layout).expect("it is well formed");
    assert_eq!((mutation.table, mutation.key), (table.id, &b"key"[..]));
    let text = notation::mutation_text(table, &mutation);
    let same = if text == case.input() {
        String::new()
    } else {
        format!("\nread as {text}")
    };
    // After table id and key, which are the same in all cases.
    format!("{} bytes: … {}{same}", bytes.len(), testkit::hex(&bytes[20..]))
}

fn adds_data(table: &Table, case: &Case) -> String {
    let bytes = notation::mutation(table, b"key", case.input());
    let mutation = Mutation::new(&bytes).expect("a mutation");
    let answer = if mutation.adds_data(&table.layout) {
        "it brings data"
    } else {
        "it only deletes"
    };
    answer.to_owned()
}

fn unpack_mutation(table: &Table, case: &Case) -> String {
    let bytes = testkit::from_hex(&case.input().replace([' ', '\n'], ""));
    let mut whole = table.id.0.as_bytes().to_vec();
    whole.extend_from_slice(&bytes);
    match Mutation::new(&whole) {
        None => "error: table or key is cut short".to_owned(),
        Some(mutation) => match mutation.validate(&table.layout) {
            Ok(()) => notation::mutation_text(table, &mutation),
            Err(e) => format!("error: {e}"),
        },
    }
}

fn answer(table: &mut Table, case: &Case) -> String {
    // What is long is written short.
    let case = &Case {
        text: lengthen(&case.text),
        ..case.clone()
    };
    match case.command() {
        "table" => {
            *table = notation::table(case.input());
            layout_text(table)
        }
        "drop" => {
            table.drop_column(case.arguments(), 1);
            layout_text(table)
        }
        "pack" => pack(table, case),
        "unpack" => unpack(table, case),
        "merge" => merge(table, case),
        "settle" => settle(table, case),
        "missing" => missing(table, case),
        "live" => live(table, case),
        "compact" => compact(table, case),
        "compact-partition" => compact_partition(table, case),
        "merge-partitions" => merge_partitions(table, case),
        "ranges" => ranges(table, case),
        "order" => order(table, case),
        "slice" => slice(table, case),
        "cut" => cut(table, case),
        "stretches" => stretches(table, case),
        "select" => select(table, case),
        "measure" => measure(table, case),
        "pack-mutation" => pack_mutation(table, case),
        "adds-data" => adds_data(table, case),
        "unpack-mutation" => unpack_mutation(table, case),
        other => panic!("line {}: no command is called {other}", case.line),
    }
}

fn check(path: &str) {
    let mut table = notation::table("a int");
    testkit::run(path, |case| answer(&mut table, case));
}

#[test]
fn which_write_wins() {
    check(path!("tests/suites/merge.txt"));
}

#[test]
fn what_time_and_deletions_hide_and_when_they_are_forgotten() {
    check(path!("tests/suites/compact.txt"));
}

#[test]
fn partitions_and_range_tombstones() {
    check(path!("tests/suites/partitions.txt"));
}

#[test]
fn bounds_and_slices() {
    check(path!("tests/suites/bounds.txt"));
}

#[test]
fn the_bytes_of_rows_and_mutations() {
    check(path!("tests/suites/packed.txt"));
}

#[test]
fn long_rows_and_mutations_are_cut() {
    check(path!("tests/suites/cut.txt"));
}
