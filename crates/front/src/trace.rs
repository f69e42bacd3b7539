//! Which requests are traced: those whose client asks for it, and some by chance.

use crate::session::Session;

/// A request that is traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestTrace {
    /// The id of its trace.
    pub id: [u8; 16],
    /// Whether the operator asked for the trace and not the client, which then receives no id of it.
    pub is_sampled: bool,
}

impl Session {
    /// Decides whether a request is traced.
    #[inline]
    #[must_use]
    pub fn trace(&self, is_requested: bool) -> Option<RequestTrace> {
        let is_sampled = !is_requested && self.front.node.trace_probability.draw();
        (is_requested || is_sampled).then(|| RequestTrace::begin(is_sampled))
    }
}

impl RequestTrace {
    #[cold]
    fn begin(is_sampled: bool) -> Self {
        let (a, b) = (runtime::random_u64(), runtime::random_u64());
        let bytes = ((u128::from(a) << 64) | u128::from(b)).to_be_bytes();
        Self {
            id: *uuid::Builder::from_random_bytes(bytes).as_uuid().as_bytes(),
            is_sampled,
        }
    }
}
