//! Files against maps of sets, on cases that a fixed seed makes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use postings::fuzz::{MemoryPages, MemoryRuns, finish, ready};
use postings::{Builder, File, SAMPLE, Spill, TERM_MAX, check_page};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

type Model = BTreeMap<Vec<u8>, BTreeSet<u64>>;

fn check<S: Strategy>(strategy: S, cases: u32, test: impl Fn(S::Value) -> Result<(), TestCaseError>) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    if let Err(failure) = runner.run(&strategy, test) {
        panic!("{failure}");
    }
}

fn sample_of(number: u64, step: u64) -> (u64, u64) {
    let row = number * step + number % 7;
    (row / 1_000 * 1_000, row)
}

/// Builds the file of a model, with each row's terms in descending order and one of them twice.
fn build(model: &Model, rows: u64, memory_max: usize, step: u64) -> (MemoryPages, File) {
    let mut by_row: BTreeMap<u64, Vec<&[u8]>> = BTreeMap::new();
    for (term, ordinals) in model {
        for ordinal in ordinals {
            by_row.entry(*ordinal).or_default().push(term);
        }
    }
    let mut builder = Builder::new(9, memory_max, MemoryRuns::default());
    for number in 0..rows.div_ceil(SAMPLE) {
        let (partition, row) = sample_of(number, step);
        builder.sample(partition, row).expect("written");
    }
    for (ordinal, terms) in by_row {
        for term in terms.iter().rev().chain(terms.first()) {
            builder.add(term, ordinal).expect("written");
        }
    }
    let (pages, totals) = finish(builder, rows);
    let file = pages.open().expect("a footer");
    let postings = model.values().map(BTreeSet::len).sum::<usize>() as u64;
    assert_eq!(totals.pages, pages.0.len() as u64);
    assert_eq!((totals.terms, totals.postings), (model.len() as u64, postings));
    assert_eq!((file.terms_count(), file.postings()), (model.len() as u64, postings));
    assert_eq!((file.rows(), file.index_id()), (rows, 9));
    (pages, file)
}

fn read_range(file: &File, pages: &MemoryPages, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Vec<(Vec<u8>, u64)> {
    ready(async {
        let mut found = Vec::new();
        let mut terms = file.terms(pages, from, to.map(<[u8]>::to_vec)).await.expect("a range");
        while terms.next(pages).await.expect("a term") {
            assert_eq!(terms.count(), terms.list().count());
            found.push((terms.term().to_vec(), terms.count()));
        }
        assert!(!terms.next(pages).await.expect("the end"), "the end is the end");
        found
    })
}

/// All terms and all ordinals, from the start and by seeks.
fn check_lists(file: &File, pages: &MemoryPages, model: &Model, seeks: &[u64]) {
    ready(async {
        let mut terms = file
            .terms(pages, Bound::Unbounded, Bound::Unbounded)
            .await
            .expect("all");
        for (term, ordinals) in model {
            assert!(terms.next(pages).await.expect("a term"));
            assert_eq!((terms.term(), terms.count()), (term.as_slice(), ordinals.len() as u64));
            let mut cursor = file.cursor(terms.list());
            for ordinal in ordinals {
                assert_eq!(cursor.next(pages).await.as_ref(), Ok(&Some(*ordinal)));
            }
            assert_eq!(cursor.next(pages).await, Ok(None));
            assert_eq!(cursor.next(pages).await, Ok(None), "the end is the end");
            assert_eq!(cursor.seek(pages, 0).await, Ok(None), "a seek goes forwards");
            let mut cursor = file.cursor(terms.list());
            let mut at = 0;
            for seek in seeks {
                let expected = ordinals.range(at.max(*seek)..).next().copied();
                assert_eq!(cursor.seek(pages, *seek).await, Ok(expected), "{seek} after {at}");
                let next = expected.and_then(|found| ordinals.range(found + 1..).next().copied());
                if seek % 3 == 0 {
                    assert_eq!(cursor.next(pages).await, Ok(next));
                    at = next.map_or(u64::MAX, |next| next + 1);
                } else {
                    at = expected.map_or(u64::MAX, |found| found + 1);
                }
            }
        }
        assert!(!terms.next(pages).await.expect("the end"));
    });
}

fn check_ranges(file: &File, pages: &MemoryPages, model: &Model, bounds: &[(Vec<u8>, Vec<u8>)]) {
    for (from, to) in bounds {
        let froms = [
            Bound::Included(from.as_slice()),
            Bound::Excluded(from),
            Bound::Unbounded,
        ];
        let tos = [Bound::Included(to.as_slice()), Bound::Excluded(to), Bound::Unbounded];
        for (from, to) in froms.into_iter().flat_map(|from| tos.map(|to| (from, to))) {
            let is_in = |term: &&Vec<u8>| {
                (match from {
                    Bound::Included(from) => term.as_slice() >= from,
                    Bound::Excluded(from) => term.as_slice() > from,
                    Bound::Unbounded => true,
                }) && match to {
                    Bound::Included(to) => term.as_slice() <= to,
                    Bound::Excluded(to) => term.as_slice() < to,
                    Bound::Unbounded => true,
                }
            };
            let expected: Vec<_> = model
                .keys()
                .filter(is_in)
                .map(|term| (term.clone(), model[term].len() as u64))
                .collect();
            assert_eq!(read_range(file, pages, from, to), expected, "{from:?} to {to:?}");
            let count = ready(file.count(pages, from, to)).expect("a count");
            assert_eq!(
                count,
                expected.iter().map(|(_, count)| count).sum::<u64>(),
                "{from:?} to {to:?}"
            );
        }
    }
}

fn check_samples(file: &File, pages: &MemoryPages, step: u64) {
    for number in 0..file.rows().div_ceil(SAMPLE) {
        assert_eq!(
            ready(file.sample(pages, number)),
            Ok(sample_of(number, step)),
            "sample {number}"
        );
    }
}

fn any_term() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        3 => prop::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0), Just(0xff)], 0..5),
        2 => (0..2_000_u32).prop_map(|number| number.to_be_bytes().to_vec()),
        1 => (any::<u8>(), TERM_MAX - 3..=TERM_MAX).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

/// Runs of rows, rows that are apart, and rows far apart.
fn any_ordinals() -> impl Strategy<Value = BTreeSet<u64>> {
    let step = prop_oneof![4 => 1..3_u64, 3 => 1..40_u64, 1 => 1..100_000_u64];
    let sparse = prop::collection::vec(step, 1..300);
    let many = (1..40_000_u64, 1..5_u64, 0..1_000_u64)
        .prop_map(|(count, step, start)| (start..start + count).step_by(step as usize).collect());
    prop_oneof![
        12 => sparse.prop_map(|steps| {
            let mut ordinal = 0;
            steps.into_iter().map(|step| { ordinal += step; ordinal }).collect::<BTreeSet<u64>>()
        }),
        1 => many,
    ]
}

#[test]
fn a_file_is_its_model() {
    let model = prop::collection::btree_map(any_term(), any_ordinals(), 0..30);
    let bounds = prop::collection::vec((any_term(), any_term()), 4);
    let seeks = prop::collection::vec(prop_oneof![0..300_u64, 0..50_000_u64], 0..30);
    let memory = prop_oneof![Just(usize::MAX), Just(0), 1_000..100_000_usize];
    check(
        (model, bounds, seeks, memory, 0..5_000_u64),
        150,
        |(model, mut bounds, mut seeks, memory, step)| {
            seeks.sort_unstable();
            let last = model.values().filter_map(BTreeSet::last).max();
            let rows = last.map_or(0, |last| last + 1);
            // A run for each posting takes long.
            let memory = if rows > 3_000 { memory.max(20_000) } else { memory };
            let (pages, file) = build(&model, rows, memory, step);
            check_lists(&file, &pages, &model, &seeks);
            bounds.extend(model.keys().next().cloned().zip(model.keys().last().cloned()));
            check_ranges(&file, &pages, &model, &bounds);
            check_samples(&file, &pages, step);
            Ok(())
        },
    );
}

#[test]
fn many_terms_make_a_tree() {
    for (terms, padding, memory) in [
        (60_000_u64, 0, usize::MAX),
        (60_000, 0, 500_000),
        (2_000, 1_000, 300_000),
    ] {
        let term = |number: u64| [&number.to_be_bytes()[..], &vec![b'x'; padding]].concat();
        let model: Model = (0..terms)
            .map(|number| {
                (
                    term(number * 3),
                    (0..1 + number % 4).map(|row| number + row * 5_000).collect(),
                )
            })
            .collect();
        let (pages, file) = build(&model, terms + 20_000, memory, 900);
        check_lists(&file, &pages, &model, &[3, 60_000]);
        let edges = [0, 1, 2, 3, 4, 299, 300, 301, 3 * terms - 3, 3 * terms - 2, u64::MAX];
        let bounds: Vec<_> = edges.windows(2).map(|pair| (term(pair[0]), term(pair[1]))).collect();
        check_ranges(&file, &pages, &model, &bounds);
        check_samples(&file, &pages, 900);
    }
}

#[test]
fn long_lists_have_levels_of_skip_nodes() {
    // At and around a full node of the first level and of the second.
    for blocks in [1_u64, 2, 127, 128, 129, 255, 256, 257, 128 * 128, 128 * 128 + 1] {
        for rest in [0, 1, 127] {
            let count = blocks * 128 - rest;
            let ordinals: BTreeSet<u64> = (0..count).map(|number| number + number / 128 * 7).collect();
            let rows = count * 2;
            let model = BTreeMap::from([(b"x".to_vec(), ordinals)]);
            let (pages, file) = build(&model, rows, 100_000, 5_000);
            let seeks: Vec<u64> = (0..40).map(|number| rows * number / 36).collect();
            check_lists(&file, &pages, &model, &seeks);
            let leap = [0, 134, 135, 136, 128 * 135 - 1, 128 * 135, 2_000_000, u64::MAX];
            check_lists(&file, &pages, &model, &leap);
        }
    }
}

#[test]
fn a_small_file_is_one_page_and_every_flipped_bit_is_found() {
    let mut builder = Builder::new(1, usize::MAX, MemoryRuns::default());
    for ordinal in 0..100_u64 {
        builder.add(&[b'a' + (ordinal % 5) as u8], ordinal).expect("written");
        if ordinal % SAMPLE == 0 {
            builder.sample(0, ordinal * 50).expect("written");
        }
    }
    let mut pages = Vec::new();
    let totals = builder
        .finish(100, &mut |page: &[u8]| -> Result<(), String> {
            pages.push(page.to_vec());
            Ok(())
        })
        .expect("written");
    assert_eq!((totals.pages, totals.terms, totals.postings), (1, 5, 100));
    let page = &mut pages[0];
    assert!(page.len() < 300, "{} bytes", page.len());
    assert!(check_page(page).is_some());
    for bit in 0..page.len() * 8 {
        page[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(check_page(page), None, "bit {bit}");
        page[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn changed_pages_are_refused_or_read() {
    let seeds = postings::fuzz::seeds();
    let change = (any::<prop::sample::Index>(), any::<u8>());
    let cases = (
        prop::sample::select(seeds),
        prop::collection::vec(change, 1..5),
        any::<bool>(),
    );
    check(cases, 2_000, |(mut bytes, changes, is_at_end)| {
        for (index, byte) in changes {
            let len = if is_at_end { bytes.len().min(80) } else { bytes.len() };
            let at = bytes.len() - 1 - index.index(len);
            bytes[at] = byte;
        }
        postings::fuzz::read(&bytes);
        Ok(())
    });
}

/// Runs of which one bit is not what was written.
#[derive(Debug, Default)]
struct DamagedRuns {
    runs: MemoryRuns,
    written: usize,
    flipped: usize,
}

impl Spill for DamagedRuns {
    type Error = String;

    fn write(&mut self, run: usize, bytes: &[u8]) -> Result<(), String> {
        let mut bytes = bytes.to_vec();
        if let Some(byte) = self.flipped.checked_sub(self.written).and_then(|at| bytes.get_mut(at)) {
            *byte ^= 0x10;
        }
        self.written += bytes.len();
        self.runs.write(run, &bytes)
    }

    fn read(&mut self, run: usize, offset: u64, max: usize, out: &mut Vec<u8>) -> Result<(), String> {
        self.runs.read(run, offset, max, out)
    }

    fn damaged(&self, run: usize, offset: u64) -> String {
        self.runs.damaged(run, offset)
    }
}

#[test]
fn a_damaged_run_is_an_error() {
    for flipped in (0..3_000).step_by(7) {
        let runs = DamagedRuns {
            flipped,
            ..DamagedRuns::default()
        };
        let mut builder = Builder::new(1, 20_000, runs);
        for ordinal in 0..1_000_u64 {
            builder.add(&(ordinal % 300).to_be_bytes(), ordinal).expect("written");
            if ordinal % SAMPLE == 0 {
                builder.sample(0, ordinal * 50).expect("written");
            }
        }
        let finished = builder.finish(1_000, &mut |_: &[u8]| Ok(()));
        assert!(finished.is_err_and(|error| error.starts_with("run ")), "byte {flipped}");
    }
}
