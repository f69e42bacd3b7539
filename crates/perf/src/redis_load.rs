//! `ceto perf redis`: the loop of [`crate::cql_load`], speaking RESP to a Redis server, to compare with.
//!
//! GET and SET of values of 170 bytes, which is what five columns of 34 are. Answers come in the order of the requests.

use std::cell::Cell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use runtime::net::TcpStream;
use stdx::random::SplitMix64;

use crate::cql_load::Workload;
use crate::load::{self, Answer, Client, Keys, LoadError, LoadOptions, Outcome, Plan, Protocol};
use crate::report::Report;

/// Options of `ceto perf redis`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The server, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT")]
    pub connect: String,
    /// GET or SET.
    #[arg(long, value_enum, default_value = "read")]
    pub workload: Workload,
    /// Keys to use.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub partitions: u64,
    /// Bytes of each value.
    #[arg(long, default_value_t = 170, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub value_bytes: u32,
    /// Reads: take the keys as they are, do not set them first.
    #[arg(long)]
    pub no_populate: bool,
    /// How much load, and what to measure.
    #[command(flatten)]
    pub load: LoadOptions,
}

/// Runs the load, and returns what was measured.
///
/// # Errors
/// When the server cannot be reached or breaks off.
pub fn run(options: Options) -> Result<Report, LoadError> {
    let load = options.load.clone();
    load::run_on_shard(&load, move || run_on(options.clone()))
}

async fn run_on(options: Options) -> Result<Report, LoadError> {
    let plan = options.load.plan()?;
    let address = load::resolve(&options.connect, None)?;
    let mut streams = Vec::new();
    for _ in 0..options.load.connections {
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| LoadError::Io(format!("connecting to {address}"), error))?;
        stream
            .set_nodelay(true)
            .map_err(|error| LoadError::Io("no delay".to_string(), error))?;
        streams.push(stream);
    }
    let set = RequestBytes::set(options.value_bytes as usize);
    if options.workload == Workload::Read && !options.no_populate {
        let next = Rc::new(Cell::new(0));
        let keys = vec![
            Keys::Sequence {
                next,
                end: options.partitions
            };
            streams.len()
        ];
        let once = Plan {
            rate: None,
            warm_up: Duration::ZERO,
            duration: None,
            operations: None,
            interval: None,
            server_pids: Vec::new(),
            ..plan.clone()
        };
        let (report, kept) = load::drive_and_keep("populate".to_string(), clients(streams, keys, &set), once).await?;
        if let Some(first) = report.first_error {
            return Err(LoadError::Refused(format!("setting the keys: {first}")));
        }
        streams = kept;
    }
    let keys = (0..streams.len() as u64)
        .map(|position| {
            let state = options.load.seed.wrapping_mul(0x1_0000_0001).wrapping_add(position);
            Keys::Uniform {
                random: SplitMix64::new(state),
                below: options.partitions,
            }
        })
        .collect();
    let (name, request) = match options.workload {
        Workload::Read => ("GET", RequestBytes::get()),
        Workload::Write => ("SET", set),
    };
    let workload = format!("Redis {name} of {} bytes", options.value_bytes);
    load::drive(workload, clients(streams, keys, &request), plan).await
}

fn clients(streams: Vec<TcpStream>, keys: Vec<Keys>, request: &RequestBytes) -> Vec<Client<Resp>> {
    let pairs = streams.into_iter().zip(keys);
    pairs
        .map(|(stream, keys)| Client {
            stream,
            protocol: Resp::new(request.clone()),
            keys,
        })
        .collect()
}

/// A key is `key:` and 12 digits, as `redis-benchmark` has it.
const KEY_DIGITS: usize = 12;

/// The bytes of a request, and the place of its key's digits.
#[derive(Clone, Debug)]
struct RequestBytes {
    bytes: Vec<u8>,
    digits_at: usize,
}

impl RequestBytes {
    fn get() -> RequestBytes {
        RequestBytes::new(b"*2\r\n$3\r\nGET\r\n", b"")
    }

    fn set(value_bytes: usize) -> RequestBytes {
        let mut value = format!("${value_bytes}\r\n").into_bytes();
        value.resize(value.len() + value_bytes, b'x');
        value.extend_from_slice(b"\r\n");
        RequestBytes::new(b"*3\r\n$3\r\nSET\r\n", &value)
    }

    fn new(command: &[u8], value: &[u8]) -> RequestBytes {
        let mut bytes = command.to_vec();
        bytes.extend_from_slice(b"$16\r\nkey:");
        let digits_at = bytes.len();
        bytes.extend_from_slice(&[b'0'; KEY_DIGITS]);
        bytes.extend_from_slice(b"\r\n");
        bytes.extend_from_slice(value);
        RequestBytes { bytes, digits_at }
    }
}

/// How a connection of a run speaks.
struct Resp {
    request: RequestBytes,
    /// The slots of the requests that are not answered, oldest first.
    unanswered: VecDeque<u16>,
}

impl Resp {
    fn new(request: RequestBytes) -> Resp {
        Resp {
            request,
            unanswered: VecDeque::new(),
        }
    }
}

impl Protocol for Resp {
    fn append_request(&mut self, out: &mut Vec<u8>, slot: u16, key: u64) {
        let digits_at = out.len() + self.request.digits_at;
        out.extend_from_slice(&self.request.bytes);
        let mut rest = key;
        for digit in out[digits_at..digits_at + KEY_DIGITS].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.unanswered.push_back(slot);
    }

    fn next_answer(&mut self, input: &[u8]) -> Result<Option<Answer>, LoadError> {
        let Some(line_end) = input.windows(2).position(|pair| pair == b"\r\n") else {
            return Ok(None);
        };
        let line = &input[..line_end];
        let strange = || {
            LoadError::Protocol(format!(
                "expected a RESP answer, got '{}'",
                String::from_utf8_lossy(line)
            ))
        };
        let (kind, text) = line.split_first().ok_or_else(strange)?;
        let mut bytes = line_end + 2;
        let outcome = match kind {
            b'+' => Outcome::Done,
            b'$' if text == b"-1" => Outcome::Empty,
            b'$' => {
                let length = std::str::from_utf8(text)
                    .ok()
                    .and_then(|digits| digits.parse::<usize>().ok());
                bytes = length
                    .and_then(|length| bytes.checked_add(length)?.checked_add(2))
                    .ok_or_else(strange)?;
                Outcome::Done
            }
            b'-' => {
                let text = String::from_utf8_lossy(text).into_owned();
                let name = text.split(' ').next().unwrap_or_default().to_string();
                Outcome::Failed { name, text }
            }
            _ => return Err(strange()),
        };
        if bytes > input.len() {
            return Ok(None);
        }
        let slot = self.unanswered.pop_front();
        let slot = slot.ok_or_else(|| LoadError::Protocol("an answer to no request".to_string()))?;
        Ok(Some(Answer { bytes, slot, outcome }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_resp() {
        let mut out = Vec::new();
        Resp::new(RequestBytes::get()).append_request(&mut out, 0, 42);
        Resp::new(RequestBytes::set(3)).append_request(&mut out, 0, 123_456_789_012);
        let expected = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n\
                        *3\r\n$3\r\nSET\r\n$16\r\nkey:123456789012\r\n$3\r\nxxx\r\n";
        assert_eq!(String::from_utf8(out).as_deref(), Ok(expected));
    }

    #[test]
    fn answers_come_in_the_order_of_the_requests() {
        let mut resp = Resp::new(RequestBytes::get());
        let mut ignored = Vec::new();
        for slot in [5, 3, 9, 1] {
            resp.append_request(&mut ignored, slot, 0);
        }
        let failed = Outcome::Failed {
            name: "ERR".to_string(),
            text: "ERR no".to_string(),
        };
        let mut input: &[u8] = b"+OK\r\n$4\r\na\r\nb\r\n$-1\r\n-ERR no\r\n+OK\r\n";
        for (slot, bytes, outcome) in [
            (5, 5, Outcome::Done),
            (3, 10, Outcome::Done),
            (9, 5, Outcome::Empty),
            (1, 9, failed),
        ] {
            for cut in 0..bytes {
                assert_eq!(resp.next_answer(&input[..cut]).ok(), Some(None), "cut at {cut}");
            }
            let answer = resp.next_answer(input).expect("an answer").expect("a whole one");
            assert_eq!(answer, Answer { bytes, slot, outcome });
            input = &input[bytes..];
        }
        assert!(resp.next_answer(input).is_err(), "an answer to no request was taken");
        assert!(resp.next_answer(b"HTTP/1.1 400\r\n").is_err());
        assert!(resp.next_answer(b"$99999999999999999999\r\n").is_err());
    }
}
