//! The rules' constants, with their units and bounds.

/// By what the balancer goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceRules {
    /// A node is above the mean, or below it, when it is off by so many percent of it.
    pub tolerance_percent: u32,
    /// Over how long a node's load is measured, in milliseconds. A member's figures count once it has served
    /// for so long, and while they are no older. A new balancer, and balance after a drain, wait as long.
    pub window_ms: u64,
    /// A pair that balance or an operator has moved is not moved by balance for so many milliseconds.
    pub pair_rest_ms: u64,
    /// A node that took a pair gives none for so many milliseconds, one that gave a pair takes none.
    pub node_rest_ms: u64,
    /// A pair is not sent again for so many milliseconds to a node that could not take it.
    pub retry_ms: u64,
    /// A pair that has kept a drain from going on for so many milliseconds is reported.
    pub stall_ms: u64,
    /// While the nodes have fewer bytes than this on average, bytes are not balanced.
    pub bytes_floor: u64,
    /// While the nodes' workers are busy for fewer nanoseconds a second on average, load is not balanced.
    pub load_floor_ns: u64,
    /// With fewer meganodes a node than this, they split early.
    pub early_meganodes: u32,
    /// A meganode that splits early does so when it has filled one of so many parts of its slot.
    pub early_part: u32,
}

impl Default for BalanceRules {
    fn default() -> BalanceRules {
        BalanceRules {
            tolerance_percent: 20,
            window_ms: 60_000,
            pair_rest_ms: 600_000,
            node_rest_ms: 60_000,
            retry_ms: 60_000,
            stall_ms: 30_000,
            bytes_floor: 16 << 20,
            load_floor_ns: 10_000_000,
            early_meganodes: 8,
            early_part: 8,
        }
    }
}

/// Why rules were refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RulesError {
    /// A constant is out of its bounds.
    #[error("`{name}` cannot be {value}: it takes a number from {min} to {max}")]
    OutOfBounds {
        /// The field's name.
        name: &'static str,
        /// What was given.
        value: u64,
        /// Smallest permitted.
        min: u64,
        /// Largest permitted.
        max: u64,
    },
}

const DAY_MS: u64 = 24 * 3600 * 1000;

impl BalanceRules {
    /// Checks the constants.
    ///
    /// # Errors
    /// The first one that is out of its bounds.
    pub fn check(&self) -> Result<(), RulesError> {
        let given = [
            ("tolerance_percent", u64::from(self.tolerance_percent), 2, 100),
            ("window_ms", self.window_ms, 1, DAY_MS),
            ("pair_rest_ms", self.pair_rest_ms, 0, DAY_MS),
            ("node_rest_ms", self.node_rest_ms, 0, DAY_MS),
            ("retry_ms", self.retry_ms, 1, DAY_MS),
            ("stall_ms", self.stall_ms, 0, DAY_MS),
            ("bytes_floor", self.bytes_floor, 0, 1 << 50),
            ("load_floor_ns", self.load_floor_ns, 0, 1_000_000_000),
            ("early_meganodes", u64::from(self.early_meganodes), 0, 1 << 20),
            ("early_part", u64::from(self.early_part), 1, 1 << 10),
        ];
        for (name, value, min, max) in given {
            if !(min..=max).contains(&value) {
                return Err(RulesError::OutOfBounds { name, value, min, max });
            }
        }
        Ok(())
    }

    /// The part of its slot at which a meganode splits: a whole slot, or one of [`BalanceRules::early_part`]
    /// while the cluster has few meganodes, so that there is something to spread.
    #[must_use]
    pub fn slot_part(&self, meganodes: u64, nodes: usize) -> u32 {
        let many = u64::from(self.early_meganodes).saturating_mul(nodes as u64);
        if nodes > 1 && meganodes < many { self.early_part } else { 1 }
    }

    /// The tolerance as a part of the mean.
    pub(crate) fn tolerance(&self) -> f64 {
        f64::from(self.tolerance_percent) / 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constant_out_of_bounds_is_named_with_its_bounds() {
        assert_eq!(BalanceRules::default().check(), Ok(()));
        let wrong = BalanceRules { tolerance_percent: 1, ..BalanceRules::default() };
        let words = wrong.check().unwrap_err().to_string();
        assert_eq!(words, "`tolerance_percent` cannot be 1: it takes a number from 2 to 100");
        let wrong = BalanceRules { window_ms: 0, ..BalanceRules::default() };
        assert!(wrong.check().unwrap_err().to_string().contains("window_ms"));
    }

    #[test]
    fn meganodes_split_early_while_there_are_fewer_than_eight_a_node() {
        let rules = BalanceRules::default();
        assert_eq!([1, 23, 24, 1_000].map(|meganodes| rules.slot_part(meganodes, 3)), [8, 8, 1, 1]);
        assert_eq!(rules.slot_part(1, 1), 1, "one node has nobody to spread over");
    }
}
