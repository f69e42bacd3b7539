//! Amazon resource names: `arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE`, of tables and of what belongs to a table.
//!
//! Requests name a table by its name or by its ARN ([`TableReference`]). Answers that repeat a reference give it as the
//! request had it.

use std::fmt;

/// The characters of a table's name in a request, at most.
pub const TABLE_NAME_MAX: usize = 255;
/// The characters of a table's name, at least.
pub const TABLE_NAME_MIN: usize = 3;

/// The characters of a backup's id, at most.
pub const BACKUP_ID_MAX: usize = 64;

/// Whether text consists of the characters of a table's name, and of at least one.
pub fn is_name(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    !text.is_empty() && text.bytes().all(allowed)
}

/// A resource name cut at its colons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Arn<'a> {
    /// The partition of the cloud: `aws`, `aws-cn`.
    pub partition: &'a str,
    /// The service: `dynamodb`.
    pub service: &'a str,
    /// The region: `us-east-1`.
    pub region: &'a str,
    /// The account's number.
    pub account: &'a str,
    /// What the name is of: `table/NAME`, `table/NAME/index/INDEX`, `table/NAME/backup/ID`, `table/NAME/stream/LABEL`.
    pub resource: &'a str,
}

impl<'a> Arn<'a> {
    /// Cuts a resource name; None if it has another form.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.splitn(6, ':');
        let mut next = || parts.next();
        let (scheme, partition, service) = (next()?, next()?, next()?);
        let (region, account, resource) = (next()?, next()?, next()?);
        (scheme == "arn" && !resource.is_empty()).then_some(Self {
            partition,
            service,
            region,
            account,
            resource,
        })
    }

    /// The table's name in the resource, and what follows it (`index/NAME`, or empty).
    pub fn table(&self) -> Option<(&'a str, &'a str)> {
        let rest = self.resource.strip_prefix("table/")?;
        let (name, rest) = rest.split_once('/').unwrap_or((rest, ""));
        is_name(name).then_some((name, rest))
    }
}

/// The ARN of a table.
pub fn of_table(region: &str, account: &str, table: &str) -> String {
    format!("arn:aws:dynamodb:{region}:{account}:table/{table}")
}

/// The ARN of a backup.
pub fn of_backup(region: &str, account: &str, table: &str, id: &str) -> String {
    [&of_table(region, account, table), "/backup/", id].concat()
}

/// The table and the id in the ARN of a backup; None for other text.
pub fn backup(arn: &str) -> Option<(&str, &str)> {
    let parsed = Arn::parse(arn).filter(|arn| arn.service == "dynamodb")?;
    let (table, rest) = parsed.table()?;
    let id = rest.strip_prefix("backup/")?;
    let is_id = |byte: u8| byte.is_ascii_hexdigit() || byte == b'-';
    (!id.is_empty() && id.len() <= BACKUP_ID_MAX && id.bytes().all(is_id)).then_some((table, id))
}

/// A table as a request names it: by its name or by its ARN.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TableReference {
    given: String,
    /// Where the name begins in `given`: after the prefix of an ARN, or at 0.
    name_at: usize,
}

impl TableReference {
    /// Reads a reference. None for text that begins as an ARN and is not that of a table. A name is not checked here:
    /// operations have texts of their own for it.
    pub fn new(given: String) -> Option<Self> {
        let name_at = if !given.starts_with("arn:") {
            0
        } else {
            match Arn::parse(&given)?.table()? {
                (name, "") => given.len() - name.len(),
                _ => return None,
            }
        };
        Some(Self { given, name_at })
    }

    /// The reference as the request has it, which answers repeat.
    pub fn given(&self) -> &str {
        &self.given
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.given[self.name_at..]
    }

    /// The ARN, if the request names the table by it.
    pub fn arn(&self) -> Option<Arn<'_>> {
        match self.name_at {
            0 => None,
            _ => Arn::parse(&self.given),
        }
    }
}

impl fmt::Display for TableReference {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.given)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_is_named_by_its_table_and_its_id() {
        let arn = of_backup("eu-west-2", "000000000000", "or-ders", "01489602797149-73d8d5bc");
        assert_eq!(backup(&arn), Some(("or-ders", "01489602797149-73d8d5bc")));
        for wrong in [
            "arn:aws:dynamodb:eu-west-2:000000000000:table/orders",
            "arn:aws:dynamodb:eu-west-2:000000000000:table/orders/backup/",
            "arn:aws:dynamodb:eu-west-2:000000000000:table/orders/backup/../x",
            "arn:aws:s3:eu-west-2:000000000000:table/orders/backup/01489602797149",
            "01489602797149-73d8d5bc",
        ] {
            assert_eq!(backup(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_table_is_named_by_its_name_or_its_arn() {
        let reference = |text: &str| TableReference::new(text.to_owned());
        let by_name = reference("orders").unwrap();
        assert_eq!(
            (by_name.name(), by_name.given(), by_name.arn()),
            ("orders", "orders", None)
        );
        let arn = of_table("eu-west-2", "000000000000", "orders");
        let by_arn = reference(&arn).unwrap();
        assert_eq!((by_arn.name(), by_arn.given()), ("orders", arn.as_str()));
        assert_eq!(by_arn.arn().unwrap().region, "eu-west-2");
        for wrong in [
            "arn:",
            "arn:aws:dynamodb:eu-west-2:0:table",
            "arn:aws:dynamodb:eu-west-2:0:table/",
            "arn:aws:dynamodb:eu-west-2:0:table/orders/index/i",
            "arn:aws:dynamodb:eu-west-2:0:stream/orders",
        ] {
            assert_eq!(reference(wrong), None, "{wrong}");
        }
    }
}
