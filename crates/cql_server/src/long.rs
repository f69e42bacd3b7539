//! Long requests: parsing and binding them may take longer than a slice, so a preemptible task does it.

use std::rc::Rc;

use cql_protocol::{Frame, Request};
use runtime::Permit;

use crate::connection::Connection;
use crate::dispatch::{Batch, Taken, request_bytes};

/// A shorter request takes less than a slice.
const LONG_REQUEST_BYTES: usize = 8 << 10;
/// So few values take less than a slice.
const FEW_VALUES: usize = 128;
/// What a suspended task is charged for its stack.
const STACK_BYTES: usize = 32 << 10;

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
    pub(crate) fn take_long(self: &Rc<Self>, frame: &Frame<'_>) -> Taken {
        if self.is_drivers.get() {
            return Taken::FirstOfUser;
        }
        // The request and its values.
        let bytes = request_bytes(frame) + frame.body.len() + STACK_BYTES;
        let Some(room) = self.room_for(bytes) else {
            return Taken::NeedsRoom(bytes);
        };
        let connection = self.clone();
        let permit = self.in_flight.try_acquire(1);
        let (header, body) = (frame.header, frame.body.to_vec());
        drop(runtime::spawn(runtime::preemptible(async move {
            let _permit = permit;
            let mut batch = Batch::of(Vec::new());
            (batch.is_long, batch.long) = (true, Some(room));
            let frame = Frame { header, body: &body };
            connection.frame(&frame, &mut batch);
            connection.finish_batch(&mut batch);
        })));
        Taken::Done
    }

    /// Memory for a request that waits or runs: what a long one has already, what it waited for, or what is free.
    pub(crate) fn room_in(&self, batch: &mut Batch, bytes: usize) -> Option<Permit> {
        batch.long.take().or_else(|| self.room_for(bytes))
    }
}
