//! What the owner of facts implements so that clients can read them as a table.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use schema::Schema;
use types::Token;
use types::token::token_of;

use crate::definition::Definition;
use crate::rows::{Rows, Value, composite};

/// A table whose rows are computed as they are read. Lives on the node; a read runs on the shard of the client's
/// connection.
pub trait VirtualTable: Send + Sync {
    /// What the table looks like.
    fn definition(&self) -> &Definition;

    /// Gathers the facts of one read: from this shard, and from others where they have a part of them. What comes is a
    /// snapshot, which nothing changes while rows are computed from it. Facts of partitions that the request does not
    /// want may be left out.
    fn open(&self, request: Request) -> Opening<'_>;

    /// Takes what a statement gives columns of rows, all of it or nothing. Only of tables that [`takes_writes`] names.
    ///
    /// # Errors
    /// In words for the client.
    fn write(&self, _: Vec<WrittenRow>) -> Writing<'_> {
        let definition = self.definition();
        let refusal = modification_unsupported(definition.keyspace, definition.name());
        Box::pin(std::future::ready(Err(refusal)))
    }
}

/// The virtual tables that statements may write to.
const WRITABLE: [(&str, &str); 1] = [("system", "config")];

/// Whether statements may write to a table of a keyspace that each node has for itself.
#[must_use]
pub fn takes_writes(keyspace: &str, table: &str) -> bool {
    WRITABLE.contains(&(keyspace, table))
}

/// The error of a client's write to a table that takes no writes, in Cassandra's words.
#[must_use]
pub fn modification_unsupported(keyspace: &str, table: &str) -> String {
    format!("Modification is not supported by table {keyspace}.{table}")
}

/// What a statement gives a row of a virtual table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WrittenRow {
    /// The serialised partition key.
    pub key: Vec<u8>,
    /// Columns by name with their serialised values; None for null.
    pub columns: Vec<(String, Option<Vec<u8>>)>,
}

/// What comes of a write, while it is done.
pub type Writing<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + 'a>>;

/// The facts of one read, while they are gathered.
pub type Opening<'a> = Pin<Box<dyn Future<Output = Box<dyn Content>> + 'a>>;

/// The opening of a table whose facts this shard has.
#[must_use]
pub fn ready<'a>(content: impl Content + 'static) -> Opening<'a> {
    let content: Box<dyn Content> = Box::new(content);
    Box::pin(std::future::ready(content))
}

/// One read of a virtual table.
#[derive(Clone, Debug)]
pub struct Request {
    /// The schema in which the statement is executed.
    pub schema: Arc<Schema>,
    /// The partitions that it reads.
    pub wanted: Wanted,
}

/// Which partitions a read wants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// Those with these serialised keys.
    Keys(Arc<[Vec<u8>]>),
    /// Those whose token is neither below the first nor above the second.
    Tokens(Token, Token),
}

impl Wanted {
    /// Every partition.
    pub const ALL: Self = Self::Tokens(Token(i64::MIN), Token(i64::MAX));

    /// Whether the read wants the partition with this serialised key.
    #[must_use]
    pub fn includes(&self, key: &[u8]) -> bool {
        match self {
            Self::Keys(keys) => keys.iter().any(|wanted| wanted == key),
            Self::Tokens(from, to) if *from == Token(i64::MIN) && *to == Token(i64::MAX) => true,
            Self::Tokens(from, to) => (*from..=*to).contains(&token_of(key)),
        }
    }
}

/// The facts of one read of a virtual table, as partitions and rows. A partition is known by its key and by a number
/// that the content gives it.
pub trait Content {
    /// Names all partitions, in any order.
    fn partitions(&self, partitions: &mut Partitions);

    /// The number of the partition with this serialised key. Implement it where naming all partitions costs more than
    /// finding one.
    fn find(&self, key: &[u8]) -> Option<usize> {
        let wanted = Wanted::Keys(Arc::from([key.to_vec()]));
        let mut partitions = Partitions::new(wanted);
        self.partitions(&mut partitions);
        partitions.named.pop().map(|partition| partition.number)
    }

    /// Adds the rows of a partition.
    fn rows(&self, partition: usize, rows: &mut Rows<'_>);
}

/// A partition that a content has named.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Partition {
    pub(crate) token: Token,
    pub(crate) key: Vec<u8>,
    pub(crate) number: usize,
}

/// Collects the partitions that a read wants.
#[derive(Debug)]
pub struct Partitions {
    wanted: Wanted,
    named: Vec<Partition>,
}

impl Partitions {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Self {
            wanted,
            named: Vec::new(),
        }
    }

    /// Names a partition by the values of its partition key columns.
    ///
    /// # Panics
    /// When a value is null, which no key column is.
    pub fn add(&mut self, number: usize, key: &[Value<'_>]) {
        let key = composite(key);
        match &self.wanted {
            Wanted::Keys(keys) if !keys.contains(&key) => return,
            Wanted::Keys(_) | Wanted::Tokens(..) => {}
        }
        let token = token_of(&key);
        if let Wanted::Tokens(from, to) = self.wanted
            && !(from..=to).contains(&token)
        {
            return;
        }
        self.named.push(Partition { token, key, number });
    }

    /// The partitions in token order.
    pub(crate) fn in_order(mut self) -> Vec<Partition> {
        self.named.sort_unstable();
        debug_assert!(
            self.named.windows(2).all(|pair| pair[0].key != pair[1].key),
            "a content names each partition once"
        );
        self.named
    }
}

/// The content of a table of which this node has no rows.
#[derive(Clone, Copy, Debug)]
pub struct NoRows;

impl Content for NoRows {
    fn partitions(&self, _: &mut Partitions) {}

    fn rows(&self, _: usize, _: &mut Rows<'_>) {}
}
