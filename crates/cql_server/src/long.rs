//! Long requests: parsing and binding them may take longer than a slice, so a preemptible task does it.

use std::rc::Rc;

use cql_protocol::{Frame, Request};
use front::{LONG_REQUEST_BYTES, long_request_bytes};
use runtime::Permit;

use crate::connection::Connection;
use crate::dispatch::{Batch, FrameOutcome};

/// So few values take less than a slice.
const FEW_VALUES: usize = 128;

impl Connection {
    /// Whether a request may take longer than a slice. One large value and nothing else does not.
    #[inline]
    pub(crate) fn is_long(&self, frame: &Frame<'_>, request: &Request<'_>) -> bool {
        frame.body.len() >= LONG_REQUEST_BYTES && self.has_many_parts(request)
    }

    #[cold]
    fn has_many_parts(&self, request: &Request<'_>) -> bool {
        match request {
            Request::Execute { id, params, .. } => {
                let prepared = self.server.engine.prepared(id);
                params.values.len() > FEW_VALUES || prepared.is_ok_and(|prepared| prepared.takes_elements)
            }
            Request::Query { .. } | Request::Prepare { .. } | Request::Batch(_) => true,
            _ => false,
        }
    }

    /// Makes a preemptible task handle a copy of a long request.
    #[cold]
    pub(crate) fn take_long(self: &Rc<Self>, frame: &Frame<'_>) -> FrameOutcome {
        if self.session.is_drivers() {
            return FrameOutcome::FirstOfUser;
        }
        let bytes = long_request_bytes(frame.body.len());
        let Some(memory) = self.session.try_reserve(bytes) else {
            return FrameOutcome::NeedsMemory(bytes);
        };
        let connection = self.clone();
        let (header, body) = (frame.header, frame.body.to_vec());
        self.session.spawn(Some(memory), |(in_flight, memory)| async move {
            let _in_flight = in_flight;
            let mut batch = Batch::of(Vec::new());
            (batch.is_long, batch.long) = (true, memory);
            let frame = Frame { header, body: &body };
            connection.frame(&frame, &mut batch);
            connection.finish_batch(&mut batch);
        });
        FrameOutcome::Done
    }

    /// Memory for a request that waits or runs: what a long one has already, what it waited for, or what is free.
    pub(crate) fn reserve_in(&self, batch: &mut Batch, bytes: usize) -> Option<Permit> {
        batch.long.take().or_else(|| self.session.try_reserve(bytes))
    }
}
