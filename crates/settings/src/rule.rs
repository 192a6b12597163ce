//! What must hold between several settings: two may contradict one another though each is within its own
//! bounds.

use cell_terms::setting::{Settings, Value};

/// Two settings that contradict one another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {why}")]
pub struct Conflict {
    /// The settings.
    pub settings: [&'static str; 2],
    /// Their values.
    what: String,
    why: &'static str,
    /// What to do about it.
    pub next: &'static str,
}

type Rule = fn(&Settings) -> Option<Conflict>;

const RULES: [Rule; 8] = [
    slot_fits_region,
    batch_fits_segment,
    addresses_differ,
    retries_grow,
    calls_end_within_lease,
    etcd_is_somewhere,
    lease_outlasts_election,
    coordinator_is_shown_a_token,
];

/// The word for etcd where a coordinator is named.
const ETCD: &str = "etcd";
/// How a coordinator over a network is named.
const OVER_TLS: &str = "tls://";
/// A shorter lease runs out while etcd elects.
const ETCD_LEASE_MS_MIN: u64 = 2_000;

/// Checks all rules; one whose settings are not all declared does not count.
///
/// # Errors
/// The first conflict.
pub fn check_rules(settings: &Settings) -> Result<(), Conflict> {
    RULES.iter().find_map(|rule| rule(settings)).map_or(Ok(()), Err)
}

fn slot_fits_region(settings: &Settings) -> Option<Conflict> {
    let names = ["slot_bytes", "node_region_bytes"];
    let [slot, region] = integers(settings, names)?;
    let why = "a region holds at least one slot";
    let next = "give a larger node_region_bytes or a smaller slot_bytes";
    (slot > region).then(|| conflict(settings, names, why, next))
}

fn batch_fits_segment(settings: &Settings) -> Option<Conflict> {
    let names = ["log_batch_bytes", "log_segment_bytes"];
    let [batch, segment] = integers(settings, names)?;
    let why = "a batch fits into half a segment";
    let next = "give a larger log_segment_bytes or a smaller log_batch_bytes";
    (batch > segment / 2).then(|| conflict(settings, names, why, next))
}

/// Port 0 is any free one.
fn addresses_differ(settings: &Settings) -> Option<Conflict> {
    let names = ["listen_address", "http_address"];
    let [fabric, http] = names.map(|name| settings.get(name));
    let is_same = fabric?.0 == http?.0 && !settings.text(names[0]).ends_with(":0");
    let why = "clients and HTTP cannot share an address";
    is_same.then(|| conflict(settings, names, why, "give another http_address"))
}

fn retries_grow(settings: &Settings) -> Option<Conflict> {
    let names = ["client_retry_shortest", "client_retry_longest"];
    let [shortest, longest] = integers(settings, names)?;
    let why = "waits between retries grow from the shortest to the longest";
    let next = "give a longer client_retry_longest or a shorter client_retry_shortest";
    (shortest > longest).then(|| conflict(settings, names, why, next))
}

fn calls_end_within_lease(settings: &Settings) -> Option<Conflict> {
    let names = ["coordinator_deadline_ms", "lease_ms"];
    let [deadline, lease] = integers(settings, names)?;
    let why = "a renewal that hangs has to end within the lease";
    let next = "give a longer lease_ms or a shorter coordinator_deadline_ms";
    (deadline > lease).then(|| conflict(settings, names, why, next))
}

fn etcd_is_somewhere(settings: &Settings) -> Option<Conflict> {
    let names = ["coordinator_address", "etcd_endpoints"];
    let [address, endpoints] = names.map(|name| settings.get(name));
    let is_missing = is_text(address?.0, ETCD) && is_text(endpoints?.0, "");
    let why = "nobody says where etcd is";
    is_missing.then(|| conflict(settings, names, why, "name its members with etcd_endpoints"))
}

fn lease_outlasts_election(settings: &Settings) -> Option<Conflict> {
    let names = ["coordinator_address", "lease_ms"];
    let [address, lease] = names.map(|name| settings.get(name));
    let (Value::Integer(lease), address) = (lease?.0, address?.0) else { return None };
    let why = "etcd takes up to 1.5 s to elect a leader as it comes, and leases run out meanwhile";
    let next = "give a longer lease_ms: 5 s, or three times what this etcd takes to elect, and 2 s at least";
    (is_text(address, ETCD) && *lease < ETCD_LEASE_MS_MIN).then(|| conflict(settings, names, why, next))
}

fn coordinator_is_shown_a_token(settings: &Settings) -> Option<Conflict> {
    let names = ["coordinator_address", "coordinator_token_file"];
    let [address, token] = names.map(|name| settings.get(name));
    let is_over_tls = matches!(address?.0, Value::Text(given) if given.starts_with(OVER_TLS));
    let why = "over a network the coordinator lets nobody in without a token";
    let next = "give a coordinator_token_file: the file of a token of role admin";
    (is_over_tls && is_text(token?.0, "")).then(|| conflict(settings, names, why, next))
}

fn is_text(value: &Value, text: &str) -> bool {
    matches!(value, Value::Text(given) if given == text)
}

fn integers(settings: &Settings, names: [&str; 2]) -> Option<[u64; 2]> {
    match names.map(|name| settings.get(name)) {
        [Some((Value::Integer(first), _)), Some((Value::Integer(second), _))] => Some([*first, *second]),
        _ => None,
    }
}

fn conflict(
    settings: &Settings,
    names: [&'static str; 2],
    why: &'static str,
    next: &'static str,
) -> Conflict {
    let [first, second] = names.map(|name| format!("`{name}` is {}", settings.shown(name)));
    Conflict { settings: names, what: format!("{first} and {second}"), why, next }
}

#[cfg(test)]
mod tests {
    use cell_terms::setting::{Applies, Bounds, Setting, Source};

    use super::*;

    const fn bytes(name: &'static str) -> Setting {
        let bounds = Bounds::Bytes { min: 1, max: 1 << 40, power_of_two: false };
        Setting { name, meaning: "", default: "64 MiB", bounds, applies: Applies::Live }
    }

    const fn text(name: &'static str) -> Setting {
        let bounds = Bounds::Text { max: 64 };
        Setting { name, meaning: "", default: "", bounds, applies: Applies::Live }
    }

    const DECLARED: &[Setting] = &[
        bytes("slot_bytes"),
        bytes("node_region_bytes"),
        bytes("log_segment_bytes"),
        Setting { default: "1 MiB", ..bytes("log_batch_bytes") },
        Setting { default: "127.0.0.1:1", ..text("listen_address") },
        Setting { default: "127.0.0.1:2", ..text("http_address") },
        Setting { default: "1", ..bytes("client_retry_shortest") },
        bytes("client_retry_longest"),
        Setting { default: "1", ..bytes("coordinator_deadline_ms") },
        bytes("lease_ms"),
        text("coordinator_address"),
        text("coordinator_token_file"),
    ];

    fn with(values: &[(&str, &str)]) -> Result<(), Conflict> {
        let mut settings = Settings::new(&[DECLARED]);
        values.iter().for_each(|(name, text)| settings.set(name, text, Source::Flag).unwrap());
        check_rules(&settings)
    }

    #[test]
    fn rules_hold_for_defaults_and_for_settings_that_are_not_declared() {
        assert_eq!(with(&[]), Ok(()));
        assert_eq!(check_rules(&Settings::new(&[])), Ok(()));
        assert_eq!(with(&[("listen_address", "127.0.0.1:0"), ("http_address", "127.0.0.1:0")]), Ok(()));
        assert_eq!(with(&[("coordinator_deadline_ms", "64 MiB")]), Ok(()));
        let over_tls = ("coordinator_address", "tls://cell-1.example:7200");
        assert_eq!(with(&[over_tls, ("coordinator_token_file", "token")]), Ok(()));
    }

    #[test]
    fn rules_each_refuse_with_values_reason_and_what_to_do() {
        for (values, settings, words) in [
            (
                &[("slot_bytes", "128 MiB")][..],
                ["slot_bytes", "node_region_bytes"],
                "`slot_bytes` is 128 MiB and `node_region_bytes` is 64 MiB: a region holds at least one slot",
            ),
            (
                &[("log_batch_bytes", "64 MiB")],
                ["log_batch_bytes", "log_segment_bytes"],
                "`log_batch_bytes` is 64 MiB and `log_segment_bytes` is 64 MiB: a batch fits into half",
            ),
            (
                &[("http_address", "127.0.0.1:1")],
                ["listen_address", "http_address"],
                "`listen_address` is 127.0.0.1:1 and `http_address` is 127.0.0.1:1: clients and HTTP",
            ),
            (
                &[("client_retry_shortest", "65 MiB")],
                ["client_retry_shortest", "client_retry_longest"],
                "`client_retry_shortest` is 65 MiB and `client_retry_longest` is 64 MiB: waits",
            ),
            (
                &[("coordinator_deadline_ms", "65 MiB")],
                ["coordinator_deadline_ms", "lease_ms"],
                "`coordinator_deadline_ms` is 65 MiB and `lease_ms` is 64 MiB: a renewal that hangs",
            ),
            (
                &[("coordinator_address", "tls://cell-1.example:7200")],
                ["coordinator_address", "coordinator_token_file"],
                "`coordinator_address` is tls://cell-1.example:7200 and `coordinator_token_file` is ",
            ),
        ] {
            let conflict = with(values).unwrap_err();
            assert_eq!(conflict.settings, settings);
            assert!(conflict.to_string().starts_with(words), "{conflict}");
            assert!(conflict.next.contains("give a"), "{conflict:?}");
        }
    }
}
