//! Groups of rows beside the data: what `GROUP BY` over many partitions finds, part by part.
//!
//! A group does not reach beyond its partition, so each span of tokens has its groups for itself. A group that a step
//! has cut in two is joined by the shard that asked for the steps. This is worth it if the page has all groups: each
//! span is read to its end at once, and what does not fit in the page would be read again for the next one.
//! [`Engine::expects_few_groups`] estimates that from the partitions of this shard. The estimate may be wrong, so
//! groups take [`GROUP_BYTES_MAX`] at most: beyond it they are dropped, and one scan makes the page, as if nothing had
//! been asked for.

use plan::selection::{AggregateState, get_value, put_value};
use plan::{RowSink, SelectPlan};
use schema::TableId;
use stdx::bytes::{Reader, put_sized};
use stdx::vint;
use types::Comparator;

use super::Engine;
use coordinator::near::Malformed;

use super::page::Consumer;

/// Memory that the groups of one page may take before they are given to it.
pub(super) const GROUP_BYTES_MAX: usize = 64 << 20;
/// A table with more partitions is read by one scan, even if page and LIMIT take more groups.
const GROUPS_EXPECTED_MAX: u64 = 100_000;

/// What was aggregated of a part of the rows.
#[derive(Clone, Debug)]
pub(super) enum Found {
    /// All of them are one group.
    All(AggregateState),
    /// Those with rows, in their order.
    Groups(Vec<GroupPart>),
}

/// Rows of one group that follow each other.
#[derive(Clone, Debug)]
pub(super) struct GroupPart {
    /// The values of the columns of GROUP BY; of the last one what the group function makes of it, when there is one.
    pub(super) key: Vec<Option<Vec<u8>>>,
    /// Partition key and clustering key of the last row.
    pub(super) last_row: (Vec<u8>, Vec<u8>),
    pub(super) state: AggregateState,
}

/// For each column of GROUP BY how its values compare; None: by their bytes.
pub(super) type GroupOrder = [Option<Comparator>];

/// Whether rows of one partition with these values are of one group.
pub(super) fn is_one_group<'v>(
    order: &GroupOrder,
    values: impl Iterator<Item = (Option<&'v [u8]>, Option<&'v [u8]>)>,
) -> bool {
    order.iter().zip(values).all(|(order, (a, b))| match (order, a, b) {
        (Some(order), Some(a), Some(b)) => order.compare(a, b).is_eq(),
        (_, a, b) => a == b,
    })
}

impl GroupPart {
    /// About how many bytes of memory it takes.
    pub(super) fn held_bytes(&self) -> usize {
        let of_key: usize = self.key.iter().flatten().map(Vec::len).sum();
        let of_names = self.last_row.0.len() + self.last_row.1.len();
        size_of::<Self>() + size_of_val(&self.key[..]) + of_key + of_names + self.state.held_bytes()
    }

    fn continues(&self, before: &Self, order: &GroupOrder) -> bool {
        let pairs = before.key.iter().zip(&self.key);
        self.last_row.0 == before.last_row.0 && is_one_group(order, pairs.map(|(a, b)| (a.as_deref(), b.as_deref())))
    }

    fn encode(&self, columns: &[usize], out: &mut Vec<u8>) {
        vint::put_unsigned(out, self.key.len() as u64);
        self.key.iter().for_each(|value| put_value(out, value.as_deref()));
        put_sized(out, &self.last_row.0);
        put_sized(out, &self.last_row.1);
        self.state.encode(out);
        self.state.encode_first(columns, out);
    }

    fn decode(select: &SelectPlan, columns: &[usize], reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut key = Vec::new();
        for _ in 0..reader.get_vint()? {
            key.push(get_value(reader)?.map(<[u8]>::to_vec));
        }
        let last_row = (reader.get_sized()?.to_vec(), reader.get_sized()?.to_vec());
        let state = select.selection.decode_one_of_groups(&select.table, columns, reader)?;
        Ok(Self { key, last_row, state })
    }
}

impl Found {
    /// How many groups; one is none of several.
    pub(super) fn groups(&self) -> usize {
        match self {
            Self::All(_) => 0,
            Self::Groups(groups) => groups.len(),
        }
    }

    /// About how many bytes of memory the groups take.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::All(_) => 0,
            Self::Groups(groups) => groups.iter().map(GroupPart::held_bytes).sum(),
        }
    }

    /// The groups; none where all rows are one.
    pub(super) fn into_groups(self) -> Vec<GroupPart> {
        match self {
            Self::All(_) => Vec::new(),
            Self::Groups(groups) => groups,
        }
    }

    /// Takes over what was found in the rows after its own.
    pub(super) fn merge(&mut self, behind: Self, order: &GroupOrder) -> Result<(), plan::PlanError> {
        match (self, behind) {
            (Self::All(state), Self::All(behind)) => state.merge(behind),
            (Self::Groups(groups), Self::Groups(behind)) => {
                let mut behind = behind.into_iter().peekable();
                if let Some(last) = groups.last_mut()
                    && let Some(rest) = behind.next_if(|next| next.continues(last, order))
                {
                    last.state.merge(rest.state)?;
                    last.last_row = rest.last_row;
                }
                groups.extend(behind);
                Ok(())
            }
            (Self::All(_), Self::Groups(_)) | (Self::Groups(_), Self::All(_)) => Err(plan::PlanError::Internal(
                "a group and several groups were joined".to_owned(),
            )),
        }
    }

    /// As bytes, which follow from the plan.
    pub(super) fn encode(&self, columns: &[usize], out: &mut Vec<u8>) {
        match self {
            Self::All(state) => state.encode(out),
            Self::Groups(groups) => {
                vint::put_unsigned(out, groups.len() as u64);
                groups.iter().for_each(|group| group.encode(columns, out));
            }
        }
    }

    /// From the bytes of [`Found::encode`].
    pub(super) fn decode(select: &SelectPlan, columns: &[usize], reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        if select.group_by.is_empty() {
            return Ok(Self::All(select.selection.decode_group(reader)?));
        }
        let count = reader.get_vint()?;
        let groups = (0..count).map(|_| GroupPart::decode(select, columns, reader));
        groups.collect::<Result<_, _>>().map(Self::Groups)
    }
}

impl Engine {
    /// Whether the groups of a whole table may all fit in the page, estimated from the number of partitions and of
    /// tokens that this shard has.
    pub(super) fn expects_few_groups(&self, table: TableId, consumer: &Consumer<impl RowSink>) -> bool {
        let wanted = consumer.groups_wanted().min(GROUPS_EXPECTED_MAX);
        let (partitions, tokens) = self.coordinator.own.density(table);
        tokens > 0 && (u128::from(partitions) << 64) / tokens <= u128::from(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::CqlType;

    #[test]
    fn values_that_are_written_in_two_ways_are_of_one_group() {
        let order = [None, Some(CqlType::Decimal.comparator())];
        let (one, other) = ([0, 0, 0, 0, 1], [0, 0, 0, 1, 10]);
        let with = |a: Option<&'static [u8]>, b: Option<&'static [u8]>| {
            let pairs = [(Some(&[1][..]), Some(&[1][..])), (a, b)];
            is_one_group(&order, pairs.into_iter())
        };
        assert!(with(None, None) && !with(None, Some(&[])));
        let pairs = [(Some(&[1][..]), Some(&[1][..])), (Some(&one[..]), Some(&other[..]))];
        assert!(is_one_group(&order, pairs.into_iter()), "1 and 1.0");
        let pairs = [(Some(&one[..]), Some(&other[..])), (None, None)];
        assert!(
            !is_one_group(&order, pairs.into_iter()),
            "columns of a partition key are one if their bytes are"
        );
    }
}
