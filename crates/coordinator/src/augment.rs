//! What follows from the writes of clients: the one place where mutations are added to those of a request.
//!
//! Indexes, views and change logs that coordinators keep register an [`Augment`] for their base table. Every write of a client to such a table passes here once:
//! a write or batch before it is sent, a conditional statement when it was chosen and before any replica learns it. A request to which something is added is a logged
//! batch from then on, so it happens wholly. Hints, repairs and batches that are finished later bring what was added here before, and do not pass again.
//!
//! Additions to counters do not pass: what they come to is known only to who leads them.

use std::collections::BTreeMap;
use std::rc::Rc;

use mutation::Located;
use schema::TableId;

use crate::write::Mutations;
use crate::{ClusterView, Coordinator, CoordinatorError};

/// Says what follows from writes of a table.
pub trait Augment {
    /// The mutations that follow from one of a client's, packed, with its timestamps. Asked again, it says the same: a conditional statement whose coordinator died is
    /// finished by another, and both write what follows from it.
    ///
    /// # Errors
    /// When the write is not to be done.
    fn augment(&self, view: &ClusterView, base: Located<'_>) -> Result<Mutations, CoordinatorError>;
}

/// By base table.
pub(crate) type Augments = BTreeMap<TableId, Rc<dyn Augment>>;

impl Coordinator {
    /// Has what follows from writes of a table added to them on this shard, or nothing any more.
    pub fn augment(&self, table: TableId, augment: Option<Rc<dyn Augment>>) {
        let mut augments = self.augments.borrow_mut();
        match augment {
            Some(augment) => augments.insert(table, augment),
            None => augments.remove(&table),
        };
        self.has_augments.set(!augments.is_empty());
    }

    /// Whether something may follow from writes of a table.
    #[inline]
    pub(crate) fn is_augmented(&self, table: TableId) -> bool {
        self.has_augments.get() && self.augments.borrow().contains_key(&table)
    }

    /// What follows from mutations.
    pub(crate) fn following<'m>(
        &self,
        mutations: impl Iterator<Item = Located<'m>>,
    ) -> Result<Mutations, CoordinatorError> {
        let mut following = Mutations::new();
        if self.has_augments.get() {
            let view = self.view();
            for base in mutations {
                let augment = self.augments.borrow().get(&base.mutation.table).cloned();
                if let Some(augment) = augment {
                    following.extend(augment.augment(&view, base)?);
                }
            }
        }
        Ok(following)
    }
}
