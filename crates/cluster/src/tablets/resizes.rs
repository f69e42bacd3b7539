//! Tables that are split or merged because an operator asks. The leader does it by itself in `planning.rs`.

use runtime::Instant;
use schema::TableId;

use crate::error::ChangeError;
use crate::metadata::Metadata;
use crate::metadata::command::Command;
use crate::service::Cluster;

impl Metadata {
    /// What gives a table this many tablets.
    ///
    /// # Errors
    /// A sentence, when it cannot be: the count is neither twice nor half the present one, or tablets move, or pairs
    /// have different replicas.
    pub fn resize_of(&self, table: TableId, tablet_count: u32) -> Result<Command, String> {
        let map = self.tablets.get(&table);
        let map = map.ok_or_else(|| "the table has no tablets of its own".to_owned())?;
        map.resized(0, tablet_count).map_err(|e| e.to_string())?;
        Ok(Command::Resize {
            table,
            from_version: map.version(),
            tablet_count,
        })
    }
}

impl Cluster {
    /// Splits each tablet of a table in two, or merges each pair, and waits until all nodes that answer have done so.
    ///
    /// # Errors
    /// A sentence that says whether it may have happened.
    pub async fn resize(&self, table: TableId, tablet_count: u32, deadline: Instant) -> Result<(), String> {
        loop {
            let command = self.metadata().resize_of(table, tablet_count)?;
            match self.propose(command).await {
                Ok(after) => {
                    let live: Vec<_> = self.live().into_iter().collect();
                    let late = self.not_taken_by(&live, &after, deadline).await;
                    return if late.is_empty() {
                        Ok(())
                    } else {
                        Err(format!(
                            "the table has {tablet_count} tablets now, and these nodes did not follow in time: {}",
                            late.join(", ")
                        ))
                    };
                }
                Err(ChangeError::Conflict) => {
                    self.barrier().await.map_err(|e| e.to_string())?;
                }
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}
