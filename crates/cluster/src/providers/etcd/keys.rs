//! Where what the cluster agrees on lies in etcd. All keys begin with the cluster's prefix and a slash.
//!
//! | key below the prefix | value | role |
//! |---|---|---|
//! | `rows/KEY` | the row's value | a row |
//! | `rows/` | [`LAYOUT`] | the head: every transaction that changes rows writes it, last |
//! | `lease/ID` | length and count | a lease that lives; ID is 16 hex digits |
//! | `hang/ID/KEY` | nothing | row KEY hangs on the lease, if both were written last by one transaction |
//! | `lease-next` | a number | the lowest id that the next lease may have |
//! | `compacted` | a revision | whoever writes it has etcd forget what is older |
//!
//! The head shows in one small read whether any row has changed, and in a watch where a revision ends.

use cell_terms::Incarnation;

use crate::error::ClusterError;

/// The version of this layout: the head's value. Another one is refused.
pub(super) const LAYOUT: &str = "1";

/// Refuses a head that another version of Cell has written.
pub(super) fn check_layout(found: &str) -> Result<(), ClusterError> {
    if found == LAYOUT {
        return Ok(());
    }
    let known = LAYOUT.parse().unwrap_or_default();
    Err(ClusterError::Format { found: found.parse().unwrap_or_default(), known })
}

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// With its slash.
    prefix: String,
    rows: String,
    leases: String,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Keys {
        let prefix = format!("{prefix}/");
        Keys { rows: format!("{prefix}rows/"), leases: format!("{prefix}lease/"), prefix }
    }

    /// Below which all lies.
    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Below which the rows lie; the head's key.
    pub(super) fn head(&self) -> &str {
        &self.rows
    }

    pub(super) fn row(&self, key: &str) -> String {
        format!("{}{key}", self.rows)
    }

    /// The row that lies at a key of etcd; empty: the head.
    pub(super) fn row_of<'a>(&self, key: &'a str) -> Option<&'a str> {
        key.strip_prefix(&*self.rows)
    }

    /// Below which the leases lie.
    pub(super) fn leases(&self) -> &str {
        &self.leases
    }

    pub(super) fn lease(&self, lease: Incarnation) -> String {
        format!("{}{:016x}", self.leases, lease.0)
    }

    pub(super) fn lease_of(&self, key: &str) -> Option<Incarnation> {
        let id = key.strip_prefix(&*self.leases)?;
        u64::from_str_radix(id, 16).ok().map(Incarnation)
    }

    /// Below which lies what hangs on a lease.
    pub(super) fn hanging_on(&self, lease: Incarnation) -> String {
        format!("{}hang/{:016x}/", self.prefix, lease.0)
    }

    pub(super) fn hanging(&self, lease: Incarnation, row: &str) -> String {
        self.hanging_on(lease) + row
    }

    pub(super) fn lease_next(&self) -> String {
        format!("{}lease-next", self.prefix)
    }

    pub(super) fn compacted(&self) -> String {
        format!("{}compacted", self.prefix)
    }
}

/// The first key after all that begin with these bytes.
pub(super) fn range_end(prefix: &[u8]) -> Vec<u8> {
    let kept = prefix.iter().rposition(|byte| *byte < u8::MAX).map_or(0, |at| at + 1);
    match kept {
        0 => vec![0], // etcd: to the end of all keys
        kept => {
            let mut end = prefix[..kept].to_vec();
            end[kept - 1] += 1;
            end
        }
    }
}

/// The first key after this one.
pub(super) fn successor(key: &str) -> Vec<u8> {
    [key.as_bytes(), &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_end_is_after_all_with_the_prefix_and_before_what_follows() {
        assert_eq!(range_end(b"cell/"), b"cell0");
        assert_eq!(range_end(&[1, 255, 255]), [2]);
        assert_eq!(range_end(&[255]), [0]);
        assert!(
            successor("a").as_slice() > "a".as_bytes() && successor("a").as_slice() < "a\u{1}".as_bytes()
        );
    }

    #[test]
    fn keys_of_rows_and_leases_are_found_again_and_no_others() {
        let keys = Keys::new("cell");
        assert_eq!(keys.row_of(&keys.row("pair/1")), Some("pair/1"));
        assert_eq!(keys.row_of(keys.head()), Some(""));
        assert_eq!(keys.row_of(&keys.lease(Incarnation(1))), None);
        assert_eq!(keys.lease_of(&keys.lease(Incarnation(u64::MAX))), Some(Incarnation(u64::MAX)));
        assert_eq!(keys.lease_of(&keys.lease_next()), None);
        assert_eq!(Keys::new("cell2").row_of(&keys.row("a")), None);
    }
}
