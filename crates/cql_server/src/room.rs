//! The room of a shard for requests that wait for disk or other shards.

use runtime::{Permit, Semaphore};

/// Bytes that the requests of all connections of a shard may come to while they wait. Requests that find no room stand in line.
pub(crate) struct RequestRoom {
    free: Semaphore,
    bytes_max: usize,
}

impl RequestRoom {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            free: Semaphore::new(bytes_max),
            bytes_max,
        }
    }

    /// Room, if there is enough and nobody stands in line.
    pub(crate) fn try_acquire(&self, bytes: usize) -> Option<Permit> {
        self.free.try_acquire(bytes.min(self.bytes_max))
    }

    /// Waits in line for room. A request that is larger than the whole room takes all of it: else it would wait for ever, and all requests behind it.
    pub(crate) async fn acquire(&self, bytes: usize) -> Permit {
        self.free.acquire(bytes.min(self.bytes_max)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_request_that_is_larger_than_the_room_takes_all_of_it_and_those_behind_it_follow() {
        let room = RequestRoom::new(100);
        let mut context = Context::from_waker(Waker::noop());
        let small = pin!(room.acquire(1)).poll(&mut context);
        let Poll::Ready(small) = small else {
            panic!("the room is empty");
        };
        let (mut large, mut next) = (pin!(room.acquire(1000)), pin!(room.acquire(1)));
        assert!(
            large.as_mut().poll(&mut context).is_pending(),
            "somebody has a part of the room"
        );
        assert!(next.as_mut().poll(&mut context).is_pending(), "it stands in line");
        drop(small);
        let Poll::Ready(large) = large.as_mut().poll(&mut context) else {
            panic!("the whole room is not enough");
        };
        assert!(next.as_mut().poll(&mut context).is_pending(), "nothing is left");
        drop(large);
        assert!(next.as_mut().poll(&mut context).is_ready());
    }
}
