//! By what a node balances: its settings, as numbers.

use cell_placement::BalanceRules;
use cell_terms::setting::Settings;

use crate::first_segments::first_segments_bytes;
use crate::limits::PAIRS_MAX;
use crate::memory_plan::log_buffer_bytes;

/// See the module's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BalanceOptions {
    /// Whether anything but drains moves pairs.
    pub on: bool,
    /// The rules' constants.
    pub rules: BalanceRules,
    /// How many pairs this node may hold.
    pub pairs_max: u32,
    /// What a pair takes besides its regions: its log's buffers.
    pub log_bytes: u64,
    /// What the first segments of a pair's logs take on the disk.
    pub first_segments_bytes: u64,
}

impl BalanceOptions {
    /// With these rules.
    #[must_use]
    pub fn new(on: bool, rules: BalanceRules) -> BalanceOptions {
        BalanceOptions { on, rules, pairs_max: PAIRS_MAX, log_bytes: 0, first_segments_bytes: 0 }
    }

    /// Reads the settings.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> BalanceOptions {
        let small = |name| u32::try_from(settings.integer(name)).unwrap_or(u32::MAX);
        let rules = BalanceRules {
            tolerance_percent: small("balance_tolerance"),
            window_ms: settings.integer("balance_window_ms"),
            pair_rest_ms: settings.integer("balance_pair_rest_ms"),
            node_rest_ms: settings.integer("balance_node_rest_ms"),
            retry_ms: settings.integer("balance_retry_ms"),
            stall_ms: settings.integer("balance_stall_ms"),
            bytes_floor: settings.integer("balance_bytes_floor"),
            load_floor_ns: settings.integer("balance_load_floor_us") * 1_000,
            ..BalanceRules::default()
        };
        let log_bytes = log_buffer_bytes(settings);
        let first_segments_bytes = first_segments_bytes(settings);
        let on = settings.text("balance") == "on";
        BalanceOptions { log_bytes, first_segments_bytes, ..BalanceOptions::new(on, rules) }
    }
}

impl Default for BalanceOptions {
    fn default() -> BalanceOptions {
        BalanceOptions::new(true, BalanceRules::default())
    }
}
