//! Bytes for each posting of indexes with few and with many terms, and postings to count instructions of.
//!
//! `figures [ROWS] [ROUNDS] [TERMS]`: builds a file for each number of terms, or for one, and reads all postings. There
//! is no clock here: the cost of a posting is the difference between two numbers of rounds, under callgrind.

use std::ops::Bound;

use postings::fuzz::{MemoryPages, MemoryRuns, finish, ready};
use postings::{Builder, File, SAMPLE};

/// Random numbers that are the same in each run.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

fn build(rows: u64, terms: u64) -> (MemoryPages, File) {
    let mut builder = Builder::new(1, 64 << 20, MemoryRuns::default());
    for ordinal in 0..rows {
        if ordinal.is_multiple_of(SAMPLE) {
            let row = ordinal * 100;
            builder.sample(row, row).expect("memory is written");
        }
        let term = mix(ordinal + 1) % terms;
        let term = u32::try_from(term).expect("an int").to_be_bytes();
        builder.add(&term, ordinal).expect("memory is written");
    }
    let (pages, _) = finish(builder, rows);
    let file = pages.open().expect("a footer");
    (pages, file)
}

/// The sum of all ordinals, so that none is left out.
async fn sum(file: &File, pages: &MemoryPages) -> Result<u64, String> {
    let mut sum = 0_u64;
    let mut terms = file.terms(pages, Bound::Unbounded, Bound::Unbounded).await?;
    while terms.next(pages).await? {
        let mut cursor = file.cursor(terms.list());
        while let Some(ordinal) = cursor.next(pages).await? {
            sum = sum.wrapping_add(ordinal);
        }
    }
    Ok(sum)
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|argument| argument.parse::<u64>());
    let mut argument = |default: u64| arguments.next().map_or(default, |argument| argument.expect("a number"));
    let (rows, rounds, only) = (argument(1_000_000), argument(1), argument(0));
    for terms in [3, 1_000, 1_000_000] {
        if only != 0 && only != terms {
            continue;
        }
        let (pages, file) = build(rows, terms);
        let bytes: usize = pages.0.iter().map(|page| page.len() + 4).sum();
        let samples = rows.div_ceil(SAMPLE);
        println!(
            "{} terms, {rows} rows: {bytes} bytes with {samples} samples, {:.3} bytes for each posting",
            file.terms_count(),
            bytes as f64 / rows as f64
        );
        for _ in 0..rounds {
            let sum = ready(sum(&file, &pages)).expect("the file is whole");
            assert_eq!(sum, rows * (rows - 1) / 2, "each row has one term");
        }
    }
}
