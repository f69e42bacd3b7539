//! Changed input for everything that reads bytes of a client, a peer or a disk.
//!
//! A [`Target`] reads bytes and keeps its crate's promises: it does not panic, what it accepts reads the same when it
//! is written again, and its memory is bounded by the length of the input. Its inputs begin with real messages, which a
//! [`Mutator`] changes at random; the changes follow from a seed, so a find is played again by its seed. No coverage
//! guides the changes. They reach deep because targets compute checksums over the changed bytes, and because lengths
//! and numbers are replaced by those at which code breaks.
//!
//! - [`TARGETS`]: the decoders. docs/dev/fuzzing.md says which target reads what, and a test compares that table with
//!   the tree.
//! - [`raft`]: a running metadata group in the simulator, whose members receive their own messages, overheard and
//!   changed.

mod memory;
pub mod mutator;
pub mod raft;
mod registry;

use memory::Peak;
use mutator::Mutator;
pub use registry::{TARGETS, target};
use runtime::sim::Simulation;
use std::cell::RefCell;
use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// Reads one input, and panics when what was read breaks a promise.
#[derive(Clone, Copy)]
pub enum Read {
    /// From memory.
    Bytes(fn(&[u8])),
    /// From files that it makes of the input, on a simulated machine, whose disk is in memory.
    Files(fn(Vec<u8>) -> ReadingFiles),
}

/// Reads files.
pub type ReadingFiles = Pin<Box<dyn Future<Output = ()>>>;

/// Something that reads bytes from outside of the process.
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// Real messages to begin with.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// What reads them.
    pub read: Read,
    /// Inputs of one round: as many as take a second or two.
    pub inputs_per_round: u64,
    /// Bytes that reading may allocate at once, whatever the input: buffers and tables that have a size of their own.
    pub memory_base: u64,
}

/// Bytes that reading one byte of input may allocate: a decoded value is larger than its bytes, and what refuses them
/// quotes them.
pub const MEMORY_PER_BYTE: u64 = 512;
/// No input takes longer than this to read. Busy machines stay far below it.
pub const TIME_MAX: Duration = Duration::from_secs(5);

/// Inputs read by this process: if the number does not grow, an input does not end.
pub static INPUTS_READ: AtomicU64 = AtomicU64::new(0);

/// An input that breaks a promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Find {
    /// The input.
    pub input: Vec<u8>,
    /// Its number in the round.
    pub number: u64,
    /// What went wrong.
    pub what: String,
}

impl fmt::Display for Find {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "input {} of {} bytes: {}\n    ",
            self.number,
            self.input.len(),
            self.what
        )?;
        self.input.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Target {
    /// Reads the changed messages of one round, up to the first that breaks a promise.
    ///
    /// # Errors
    /// With that input.
    pub fn play(&'static self, seed: u64) -> Result<(), Find> {
        let read = match self.read {
            Read::Bytes(read) => {
                let read = |input: &[u8]| catch_unwind(AssertUnwindSafe(|| read(input)));
                return self.inputs(seed).try_for_each(|(number, input)| {
                    let watch = Watch::begin();
                    let ended = read(&input);
                    watch.judge(self, input, number, ended)
                });
            }
            Read::Files(read) => read,
        };
        let mut simulation = Simulation::new(seed);
        let machine = simulation.add_node(1);
        let result: Rc<RefCell<Option<Result<(), Find>>>> = Rc::default();
        let slot = result.clone();
        simulation.start(machine, move |_| {
            let slot = slot.clone();
            Box::pin(async move {
                let mut played = Ok(());
                for (number, input) in self.inputs(seed) {
                    let watch = Watch::begin();
                    let ended = Catching(read(input.clone())).await;
                    played = watch.judge(self, input, number, ended);
                    if played.is_err() {
                        break;
                    }
                }
                *slot.borrow_mut() = Some(played);
            })
        });
        let seen = result.clone();
        simulation.run_until(Duration::from_secs(3600), move || seen.borrow().is_some());
        let played = result.borrow_mut().take();
        played.expect("a round ends within an hour of the simulated time")
    }

    fn inputs(&self, seed: u64) -> impl Iterator<Item = (u64, Vec<u8>)> + use<> {
        let seeds = (self.seeds)();
        let mut mutator = Mutator::new(seed);
        (0..self.inputs_per_round).map(move |number| {
            INPUTS_READ.fetch_add(1, Ordering::Relaxed);
            (number, mutator.change(&seeds))
        })
    }
}

/// Watches the time and the memory that one input takes.
struct Watch(Instant, Peak);

impl Watch {
    fn begin() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "the time that the host takes, inside the simulator as well"
        )]
        let now = Instant::now();
        Self(now, Peak::begin())
    }

    fn judge(self, target: &Target, input: Vec<u8>, number: u64, ended: std::thread::Result<()>) -> Result<(), Find> {
        let (peak, taken) = (self.1.bytes(), self.0.elapsed());
        let memory_max = target.memory_base + MEMORY_PER_BYTE * input.len() as u64;
        let what = if let Err(panic) = ended {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
            format!("it panics: {}", words.unwrap_or("without words"))
        } else if peak > memory_max {
            format!("it allocates {peak} bytes, and may allocate {memory_max}")
        } else if taken > TIME_MAX {
            format!("it takes {taken:?}")
        } else {
            return Ok(());
        };
        Err(Find { input, number, what })
    }
}

/// A future whose panic is a value.
struct Catching(ReadingFiles);

impl Future for Catching {
    type Output = std::thread::Result<()>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = catch_unwind(AssertUnwindSafe(|| self.0.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    }
}
