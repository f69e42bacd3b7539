//! Long rows: a replica answers with the length of one, and sends it when the coordinator has reserved memory.

use std::sync::Arc;

use memory::RowMemory;
use runtime::Instant;
use topology::Replica;

use super::ReplicatedRead;
use crate::CoordinatorError;
use crate::message::{Answer, Extent, ReadCommand};
use crate::read::fan::Fan;

impl ReplicatedRead {
    /// Reserves memory here before a replica sends a long row; without it, replicas send all rows at once.
    #[must_use]
    pub fn with_row_memory(self, row_memory: Option<Arc<dyn RowMemory>>) -> Self {
        Self { row_memory, ..self }
    }

    /// Waits until memory is reserved for a row that a replica withholds.
    pub(super) async fn reserve_row(&self, bytes: usize) -> Result<(), CoordinatorError> {
        match &self.row_memory {
            Some(memory) => memory.reserve_row(bytes).await.map_err(CoordinatorError::Overloaded),
            None => Err(CoordinatorError::Internal(
                "a replica withholds what was asked for".to_owned(),
            )),
        }
    }

    /// The command for data that a replica has withheld.
    pub(super) fn command_in_full<'e>(&self, extent: &'e Extent) -> ReadCommand<&'e Extent> {
        ReadCommand {
            withholds: false,
            ..self.command(extent, false)
        }
    }

    /// Repeats a request whose replica withholds a row of `bytes` bytes. If another replica has sent the data, asks for
    /// a digest and returns None; else reserves memory, asks for the data, and returns the deadline of the answer.
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
        self.reserve_row(bytes).await?;
        self.send(fan, replica, self.command_in_full(extent));
        Ok(Some(self.round_end()))
    }
}
