//! What a front door makes of a client's message, besides the statement and its values: made once, and lent downwards.

use std::sync::Arc;
use std::time::Duration;

use coordinator::Deadline;
use memory::{Reservation, ResultMemory};
use topology::Consistency;

use super::point::MissedRow;

/// See the module.
#[derive(Clone, Debug)]
pub struct Request {
    /// How many replicas must answer.
    pub level: Consistency,
    /// Where a conditional statement is decided: SERIAL or LOCAL_SERIAL.
    pub serial_level: Consistency,
    /// The read is at SERIAL or LOCAL_SERIAL: it comes before or after every conditional statement.
    pub is_serial: bool,
    /// When the client gives up, where its batch says so (`USING TIMEOUT`).
    pub deadline: Deadline,
    /// How long the request has waited for replicas before it is executed.
    pub waited: Duration,
    /// The client's write timestamp, microseconds.
    pub timestamp: Option<i64>,
    /// The keyspace of the connection or of the request.
    pub keyspace: Option<String>,
    /// Rows in a page; None for everything.
    pub page_rows: Option<u32>,
    /// What the page before returned.
    pub paging_state: Option<Vec<u8>>,
    /// The text of the statement, where it has one: a paging state is taken for its statement alone.
    pub statement: Option<Arc<str>>,
    /// Whether the client asks for the next page after one without rows. If not, a page without rows is the last one.
    pub takes_empty_pages: bool,
    /// The row of a point read, if the memory of this shard was just asked for it in vain.
    pub missed: Option<Box<MissedRow>>,
    /// The memory of the result, which grows with it; None: only the limits of results bound it.
    pub reservation: Option<Arc<Reservation>>,
    /// Where a conditional statement reserves memory for what it reads; None: it is not limited.
    pub result_memory: Option<Arc<ResultMemory>>,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            level: Consistency::One,
            serial_level: Consistency::Serial,
            is_serial: false,
            deadline: Deadline::USUAL,
            waited: Duration::ZERO,
            timestamp: None,
            keyspace: None,
            page_rows: None,
            paging_state: None,
            statement: None,
            takes_empty_pages: false,
            missed: None,
            reservation: None,
            result_memory: None,
        }
    }
}
