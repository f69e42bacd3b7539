//! Pages of DESCRIBE.
//!
//! Each page makes the description again, so all pages must be of the same schema. Paging state: u8 1, 16 bytes version
//! of the schema, u32 how many rows the client has, big endian.

use uuid::Uuid;

use crate::QueryError;

/// The layout of the paging state.
const LAYOUT: u8 = 1;
const STATE_BYTES: usize = 1 + 16 + 4;

/// Rows of a description: serialised values.
pub(super) type Rows = Vec<Vec<Option<Vec<u8>>>>;

/// The rows of the page that begins after the rows that `state` has, and the paging state of the next page if there is
/// one.
///
/// # Errors
/// When the paging state is none of a description, or the schema is another one than for the page before.
pub(super) fn page(
    mut rows: Rows,
    schema_version: Uuid,
    page_rows: Option<u32>,
    state: Option<&[u8]>,
) -> Result<(Rows, Option<Vec<u8>>), QueryError> {
    let from = match state {
        Some(state) => decode_position(state, schema_version, rows.len())?,
        None => 0,
    };
    let mut page = rows.split_off(from);
    let most = page_rows.map_or(usize::MAX, |most| most as usize);
    if most == 0 || page.len() <= most {
        return Ok((page, None));
    }
    page.truncate(most);
    let next = u32::try_from(from + most).map_err(|_| QueryError::invalid("The description has too many rows"))?;
    let mut state = Vec::with_capacity(STATE_BYTES);
    state.push(LAYOUT);
    state.extend_from_slice(schema_version.as_bytes());
    state.extend_from_slice(&next.to_be_bytes());
    Ok((page, Some(state)))
}

/// How many rows the client has.
fn decode_position(state: &[u8], schema_version: Uuid, rows: usize) -> Result<usize, QueryError> {
    let invalid = || QueryError::Protocol("Invalid value for the paging state".to_owned());
    let rest = state.strip_prefix(&[LAYOUT]).ok_or_else(invalid)?;
    let (version, rest) = rest.split_first_chunk::<16>().ok_or_else(invalid)?;
    let from = rest.try_into().map(u32::from_be_bytes).map_err(|_| invalid())?;
    if Uuid::from_bytes(*version) != schema_version {
        return Err(QueryError::invalid(
            "The schema has changed since the previous page of the DESCRIBE statement result. Please retry the DESCRIBE \
             statement.",
        ));
    }
    Some(from as usize).filter(|from| *from <= rows).ok_or_else(invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_description_follow_one_another_while_the_schema_stays() {
        let version = Uuid::from_u128(7);
        let rows: Rows = (0..5_u8).map(|n| vec![Some(vec![n])]).collect();
        for size in 1..7_u32 {
            let (mut told, mut state) = (Vec::new(), None);
            loop {
                let (part, next) = page(rows.clone(), version, Some(size), state.as_deref()).expect("it is valid");
                assert!(part.len() <= size as usize && !part.is_empty());
                told.extend(part);
                state = next;
                if state.is_none() {
                    break;
                }
            }
            assert_eq!(told, rows, "pages of {size}");
        }
        for all in [None, Some(0), Some(5)] {
            assert_eq!(page(rows.clone(), version, all, None), Ok((rows.clone(), None)));
        }
    }

    #[test]
    fn a_state_of_another_schema_or_of_nothing_is_refused() {
        let version = Uuid::from_u128(7);
        let rows: Rows = (0..5_u8).map(|n| vec![Some(vec![n])]).collect();
        let (_, state) = page(rows.clone(), version, Some(2), None).expect("it is valid");
        let state = state.expect("there is more");
        let other = page(rows.clone(), Uuid::from_u128(8), Some(2), Some(&state));
        assert!(
            matches!(&other, Err(QueryError::Invalid(m)) if m.contains("schema has changed")),
            "{other:?}"
        );
        for cut in 0..state.len() {
            let refused = page(rows.clone(), version, Some(2), Some(&state[..cut]));
            assert!(matches!(refused, Err(QueryError::Protocol(_))), "{cut} bytes");
        }
        let mut far = state.clone();
        far[17] = 0xff;
        assert!(page(rows, version, Some(2), Some(&far)).is_err(), "behind the last row");
    }
}
