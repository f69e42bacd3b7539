//! A handler whose verbs show what a connection does, and names for nodes.

use rpc::{Config, Handler, RemoteError, Reply, Request};
use std::cell::Cell;
use std::time::Duration;
use uuid::Uuid;

/// Answers with the body; may be repeated, and no other.
pub const ECHO: u16 = 1;
/// Answers with the body after the milliseconds that its first byte says.
pub const ECHO_LATER: u16 = 2;
/// Never answers.
pub const HANG: u16 = 3;
/// Answers with an error.
pub const FAIL: u16 = 4;
/// Answers with the shard that was called and the one that calls.
pub const WHO: u16 = 5;
/// Answers with as many KiB as the first byte says.
pub const LARGE: u16 = 6;
/// Has no answer; is counted.
pub const COUNT: u16 = 7;
/// Answers with the milliseconds that are left for it.
pub const LEFT: u16 = 8;
/// Answers with as many MiB as the first byte says, see [`long_answer`]; may be repeated.
pub const LONG: u16 = 9;

/// Answers with the id of the trace, if there is one, and the body.
pub const TRACE: u16 = 10;

/// See the verbs.
#[derive(Default)]
pub struct Service {
    /// Requests that ran.
    pub ran: Cell<u64>,
    /// Messages of [`COUNT`].
    pub counted: Cell<u64>,
}

impl Handler for Service {
    fn is_repeatable(&self, verb: u16) -> bool {
        verb == ECHO || verb == LONG
    }

    fn handle(&self, request: Request<'_>) -> Reply {
        self.ran.set(self.ran.get() + 1);
        let first = request.body.first().copied().unwrap_or(0);
        match request.verb {
            ECHO => Reply::Now(request.body.to_vec()),
            ECHO_LATER => {
                let body = request.body.to_vec();
                Reply::Later(Box::pin(async move {
                    runtime::sleep(Duration::from_millis(u64::from(first))).await;
                    Ok(body)
                }))
            }
            HANG => Reply::Later(Box::pin(std::future::pending())),
            FAIL => Reply::Err(RemoteError::failed("the disk is full")),
            WHO => Reply::Now(format!("{} from {}", runtime::shard().0, request.peer.shard).into_bytes()),
            LARGE => Reply::Now(vec![first; usize::from(first) << 10]),
            LONG => Reply::Now(long_answer(first)),
            TRACE => Reply::Now([request.trace.as_ref().map_or(&[][..], |id| id), request.body].concat()),
            LEFT => {
                let left = u64::try_from((request.deadline - runtime::now()).as_millis()).unwrap_or(u64::MAX);
                Reply::Now(left.to_be_bytes().to_vec())
            }
            COUNT => {
                self.counted.set(self.counted.get() + 1);
                Reply::None
            }
            verb => Reply::Err(RemoteError::unknown_verb(verb)),
        }
    }
}

/// So many MiB and a byte, in which no two words are equal.
pub fn long_answer(mib: u8) -> Vec<u8> {
    let words = (0..u32::from(mib) << 18).flat_map(u32::to_le_bytes);
    words.chain([mib]).collect()
}

/// The identity of the node with this number.
pub fn host(number: u32) -> Uuid {
    Uuid::from_u128(u128::from(number) + 1)
}

/// A node of the cluster "sea".
pub fn config(number: u32) -> Config {
    Config::new("sea", host(number))
}
