//! What one client was answered about its own keys, and so what must be found after any crash.
//!
//! Each key has one writer, which has at most one write of it outstanding. So a key holds what was
//! acknowledged last, or what a later write of unknown outcome left; and once a later write of the same
//! client is acknowledged, the earlier unknown ones are settled for good.

use std::collections::BTreeMap;

use crate::operation::WrittenValue;

/// What a key may hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Account {
    acknowledged: Option<WrittenValue>,
    /// Later writes whose outcome nobody knows, in order; `None` is a delete.
    unknown: Vec<Option<WrittenValue>>,
}

/// A client's keys.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    accounts: BTreeMap<Vec<u8>, Account>,
    acknowledged: u64,
    unknown: u64,
}

/// A key that holds what it must not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discrepancy {
    /// The key.
    pub key: Vec<u8>,
    /// What it holds.
    pub found: Option<WrittenValue>,
    /// What was acknowledged last.
    pub acknowledged: Option<WrittenValue>,
    /// What else it might hold.
    pub unknown: Vec<Option<WrittenValue>>,
}

impl Ledger {
    /// A write (`None`: a delete) was acknowledged.
    pub fn acknowledge(&mut self, key: &[u8], value: Option<WrittenValue>) {
        let account = self.accounts.entry(key.to_vec()).or_default();
        *account = Account { acknowledged: value, unknown: Vec::new() };
        self.acknowledged += 1;
    }

    /// A write ended and its outcome is not known.
    pub fn doubt(&mut self, key: &[u8], value: Option<WrittenValue>) {
        self.accounts.entry(key.to_vec()).or_default().unknown.push(value);
        self.unknown += 1;
    }

    /// Every key that was written, or may have been.
    pub fn keys(&self) -> impl Iterator<Item = &[u8]> {
        self.accounts.keys().map(Vec::as_slice)
    }

    /// How many writes were acknowledged, and how many ended in doubt.
    pub fn counts(&self) -> (u64, u64) {
        (self.acknowledged, self.unknown)
    }

    /// Holds what was found against what must be there.
    ///
    /// # Errors
    /// The discrepancy.
    pub fn check(&self, key: &[u8], found: Option<WrittenValue>) -> Result<(), Discrepancy> {
        let account = self.accounts.get(key).cloned().unwrap_or_default();
        if found == account.acknowledged || account.unknown.contains(&found) {
            return Ok(());
        }
        let Account { acknowledged, unknown } = account;
        Err(Discrepancy { key: key.to_vec(), found, acknowledged, unknown })
    }

    /// How many keys surely are there, and how many at most.
    pub fn entries(&self) -> (usize, usize) {
        let surely = |account: &&Account| {
            account.acknowledged.is_some() && account.unknown.iter().all(|value| value.is_some())
        };
        let maybe = |account: &&Account| {
            account.acknowledged.is_some() || account.unknown.iter().any(|value| value.is_some())
        };
        (self.accounts.values().filter(surely).count(), self.accounts.values().filter(maybe).count())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_acknowledged_value_is_demanded() {
        let mut ledger = Ledger::default();
        ledger.acknowledge(b"k", Some(1));
        ledger.acknowledge(b"k", Some(2));
        assert_eq!(ledger.check(b"k", Some(2)), Ok(()));
        assert!(ledger.check(b"k", Some(1)).is_err());
        assert!(ledger.check(b"k", None).is_err());
        assert!(ledger.check(b"other", Some(1)).is_err());
        assert_eq!(ledger.check(b"other", None), Ok(()));
    }

    #[test]
    fn check_doubt_allows_both_until_a_later_acknowledgement() {
        let mut ledger = Ledger::default();
        ledger.acknowledge(b"k", Some(1));
        ledger.doubt(b"k", Some(2));
        ledger.doubt(b"k", None);
        for found in [Some(1), Some(2), None] {
            assert_eq!(ledger.check(b"k", found), Ok(()));
        }
        assert_eq!(ledger.entries(), (0, 1));
        ledger.acknowledge(b"k", Some(3));
        assert!(ledger.check(b"k", Some(2)).is_err());
        assert!(ledger.check(b"k", None).is_err());
        assert_eq!(ledger.entries(), (1, 1));
    }
}
