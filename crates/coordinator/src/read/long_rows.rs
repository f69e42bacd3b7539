//! Rows that are so long that a replica withholds one until there is room for it here.

use std::rc::Rc;

use replica::RowRoom;
use runtime::Instant;
use topology::Replica;

use super::ReplicatedRead;
use crate::CoordinatorError;
use crate::fan::Fan;
use crate::message::{Answer, Extent, ReadCommand};

impl ReplicatedRead {
    /// The same where somebody is to be asked before a long row comes here; without this, nobody is.
    #[must_use]
    pub fn with_room(self, room: Option<Rc<dyn RowRoom>>) -> Self {
        Self { room, ..self }
    }

    /// Waits for room for a row that a replica has withheld.
    pub(super) async fn make_room(&self, bytes: usize) -> Result<(), CoordinatorError> {
        match &self.room {
            Some(room) => room.for_row(bytes).await.map_err(CoordinatorError::Overloaded),
            None => Err(CoordinatorError::Internal(
                "a replica withholds what was asked for".to_owned(),
            )),
        }
    }

    /// The command for data that a replica has withheld, once there is room.
    pub(super) fn command_in_full<'e>(&self, extent: &'e Extent) -> ReadCommand<&'e Extent> {
        ReadCommand {
            withholds: false,
            ..self.command(extent, false)
        }
    }

    /// Asks a replica again that withholds a row of so many bytes: for the data once there is room, and until when it may answer then; for a digest, and None, where
    /// another has sent the data.
    pub(super) async fn ask_for_long_row(
        &self,
        fan: &mut Fan<Answer>,
        replica: Replica,
        extent: &Extent,
        (bytes, has_data): (usize, bool),
    ) -> Result<Option<Instant>, CoordinatorError> {
        if has_data {
            self.send(fan, replica, self.command(extent, true));
            return Ok(None);
        }
        self.make_room(bytes).await?;
        self.send(fan, replica, self.command_in_full(extent));
        Ok(Some(runtime::now() + self.timeout))
    }
}
