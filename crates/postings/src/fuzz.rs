//! What the fuzzer and the tests need: files and runs in memory, small files to begin with, and everything that reads
//! them.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::Bound;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use crate::{Builder, File, PAGE, PAYLOAD_MAX, Pages, SAMPLE, Spill, Totals, check_page};

/// Ordinals and terms that are read of one input: a few bytes can be a list of millions of rows.
const STEPS_MAX: usize = 20_000;

/// The payloads of the pages of a file.
#[derive(Clone, Debug, Default)]
pub struct MemoryPages(pub Vec<Rc<Vec<u8>>>);

impl MemoryPages {
    /// The file, opened by its last page; None if its footer is damaged.
    #[must_use]
    pub fn open(&self) -> Option<File> {
        File::open(self.0.last()?, self.0.len() as u64).ok()
    }
}

impl Pages for MemoryPages {
    type Error = String;

    async fn page(&self, number: u64) -> Result<Rc<Vec<u8>>, String> {
        let page = usize::try_from(number).ok().and_then(|number| self.0.get(number));
        Ok(Rc::clone(page.expect("readers ask for pages of the file alone")))
    }

    fn damaged(&self, page: u64, at: usize, expected: &str) -> String {
        format!("page {page}, offset {at}: expected {expected}")
    }
}

/// Runs of a builder.
#[derive(Debug, Default)]
pub struct MemoryRuns(BTreeMap<usize, Vec<u8>>);

impl Spill for MemoryRuns {
    type Error = String;

    fn write(&mut self, run: usize, bytes: &[u8]) -> Result<(), String> {
        self.0.entry(run).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, run: usize, offset: u64, max: usize, out: &mut Vec<u8>) -> Result<(), String> {
        let bytes = self.0.get(&run).map_or(&[][..], Vec::as_slice);
        let offset = usize::try_from(offset).map_or(bytes.len(), |offset| offset.min(bytes.len()));
        out.extend_from_slice(&bytes[offset..bytes.len().min(offset + max)]);
        Ok(())
    }

    fn damaged(&self, run: usize, offset: u64) -> String {
        format!("run {run}, offset {offset}: not what was written")
    }
}

/// The result of a future that waits for nothing, as those of [`MemoryPages`].
pub fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => panic!("pages in memory are there"),
    }
}

/// The file of a builder.
///
/// # Panics
/// If a page is not whole.
pub fn finish(builder: Builder<MemoryRuns>, rows: u64) -> (MemoryPages, Totals) {
    let mut pages = MemoryPages::default();
    let mut out = |raw: &[u8]| -> Result<(), String> {
        assert!(raw.len() <= PAGE);
        let payload = check_page(raw).expect("a page that was just written");
        pages.0.push(Rc::new(payload.to_vec()));
        Ok(())
    };
    let totals = builder.finish(rows, &mut out).expect("runs in memory are written");
    (pages, totals)
}

/// The payloads of files: of no row, of a few terms, of many, of a long list.
#[must_use]
pub fn seeds() -> Vec<Vec<u8>> {
    let file = |rows: u64, terms_of: &dyn Fn(u64) -> Vec<Vec<u8>>| {
        let mut builder = Builder::new(7, 1 << 20, MemoryRuns::default());
        for ordinal in 0..rows {
            for term in terms_of(ordinal) {
                builder.add(&term, ordinal).expect("runs in memory are written");
            }
            if ordinal.is_multiple_of(SAMPLE) {
                let position = ordinal * 100;
                builder
                    .sample(position / 4_000, position)
                    .expect("runs in memory are written");
            }
        }
        let (pages, _) = finish(builder, rows);
        pages
            .0
            .iter()
            .flat_map(|page| page.iter().copied())
            .collect::<Vec<u8>>()
    };
    let number = |number: u64| vec![number.to_be_bytes().to_vec()];
    vec![
        file(0, &|_| Vec::new()),
        file(300, &|ordinal| vec![vec![b'a' + (ordinal % 3) as u8]]),
        file(2_000, &|ordinal| number(ordinal * ordinal % 997 / 7)),
        file(2_000, &number),
        file(40_000, &|ordinal| vec![vec![u8::from(ordinal < 39_000)]]),
    ]
}

/// Reads pages, one after the other, as a file.
///
/// # Panics
/// If a list or the dictionary is not in order.
pub fn read(bytes: &[u8]) {
    let payloads = bytes.chunks(PAYLOAD_MAX).map(|payload| Rc::new(payload.to_vec()));
    let pages = MemoryPages(payloads.collect());
    if let Some(file) = pages.open() {
        // An error ends the reading of that part alone.
        let _ = ready(read_terms(&file, &pages));
        for number in [0, 1, file.rows().div_ceil(SAMPLE).saturating_sub(1)] {
            if number < file.rows().div_ceil(SAMPLE) {
                let _ = ready(file.sample(&pages, number));
            }
        }
    }
}

async fn read_terms(file: &File, pages: &MemoryPages) -> Result<(), String> {
    let mut steps = 0;
    let mut terms = file.terms(pages, Bound::Unbounded, Bound::Unbounded).await?;
    let mut last: Option<Vec<u8>> = None;
    while steps < STEPS_MAX && terms.next(pages).await? {
        steps += 1;
        let term = terms.term().to_vec();
        assert!(last.as_ref() < Some(&term), "terms ascend");
        let _ = file.count(pages, Bound::Excluded(&term), Bound::Unbounded).await;
        let list = terms.list();
        let mut cursor = file.cursor(list);
        let mut before = None;
        while let Ok(Some(ordinal)) = cursor.next(pages).await {
            steps += 1;
            assert!(before < Some(ordinal) && ordinal < file.rows(), "ordinals ascend");
            before = Some(ordinal);
            if steps > STEPS_MAX {
                break;
            }
        }
        let middle = before.unwrap_or(0) / 2;
        let mut seeking = file.cursor(list);
        for ordinal in [middle, middle + 1, file.rows() - 1, u64::MAX] {
            if let Ok(Some(found)) = seeking.seek(pages, ordinal).await {
                assert!(found >= ordinal, "a seek goes forwards");
            }
        }
        let from_term = file
            .terms(pages, Bound::Included(&term), Bound::Included(term.clone()))
            .await;
        if let Ok(mut from_term) = from_term {
            let _ = from_term.next(pages).await;
        }
        last = Some(term);
    }
    Ok(())
}
