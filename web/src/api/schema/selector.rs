//! Of how clients search: `/selector/…`.

use serde_json::Value;

use super::build::{
    Field, about, decimal, integer, list, number, object, or_null, share, shared, text, word,
};
use super::envelope::{of_node, of_scope, shown};
use super::series::values;

/// `GET /api/v1/selector/pairs`.
pub(crate) fn pairs() -> Value {
    let fields = || {
        [
            ("pairs", list(shared("SelectorPair"), "A row for each client and server.")),
            ("clients_dropped", integer("Clients that report and are not listed: there is no room.")),
        ]
    };
    of_scope(fields().into_iter().chain(shown()), fields())
}

fn time(meaning: &str) -> Value {
    or_null(integer(&format!("{meaning}, in nanoseconds. Null: not measured yet.")))
}

fn a_second(meaning: &str) -> Value {
    or_null(number(&format!("{meaning}, a second. Null: the client is silent.")))
}

fn rates(names: &[&'static str], meaning: &str) -> Value {
    let fields = names.iter().map(|name| (*name, or_null(number("A second. Null: the client is silent."))));
    about(object(fields), meaning)
}

/// A client and a server.
pub(super) fn pair() -> Value {
    let who: [Field; 7] = [
        ("client", decimal("The client's number.")),
        ("client_name", text("Its name.")),
        ("transport", word(&["tcp", "shm", "verbs", "sim"], "How it is connected.")),
        ("node", integer("The server.")),
        ("age_ms", integer("Milliseconds since its last report, in its server's figures.")),
        (
            "policy",
            word(
                &["adaptive", "paper", "fixed", "client", "server"],
                "By which rule it decides who searches.",
            ),
        ),
        ("settings_revision", decimal("The revision of the settings that it has.")),
    ];
    object(who.into_iter().chain(figures()))
}

fn figures() -> [Field; 17] {
    const REASONS: [&str; 8] = [
        "estimate",
        "exploration",
        "fixed_share",
        "not_enough_samples",
        "idle_reset",
        "not_registered",
        "not_permitted",
        "not_trusted",
    ];
    const RETRIES: [&str; 7] = ["torn", "stale", "fence", "slow", "watermark", "trust", "other"];
    [
        ("searches_per_second", a_second("Searches")),
        ("one_sided_share", or_null(share("The one-sided part of them. Null: there were none."))),
        ("ratio_10s", or_null(share("The same over ten seconds."))),
        ("l_s_ns", time("What a search by the server takes")),
        ("l_r_ns", time("What a read of the server's memory takes")),
        ("rtt_ns", time("What a message there and back takes")),
        ("m", or_null(number("Reads of a one-sided search. Null: not measured yet."))),
        ("one_sided_ns", time("What a one-sided search takes")),
        ("queue_estimate_ns", time("The server's queue as the client sees it, l_s - RTT")),
        ("decision", decision()),
        ("reasons", rates(&REASONS, "Decisions a second, by reason.")),
        ("cache_hits_per_second", a_second("Tree nodes found in the client's cache")),
        ("cache_hit_share", or_null(share("The part that was found. Null: none was looked for."))),
        ("reads_per_search", or_null(number("Reads of a one-sided search. Null: there was none."))),
        ("retries", rates(&RETRIES, "What was tried again, a second, by cause.")),
        ("fallbacks_per_second", a_second("One-sided searches that the server had to answer")),
        ("in_hand", integer("Searches under way.")),
    ]
}

fn decision() -> Value {
    object([
        (
            "path",
            or_null(word(&["server", "one_sided"], "Where most searches go. Null: the client is silent.")),
        ),
        ("server_side_ns", time("The server's side of the inequality, l_s - RTT")),
        ("one_sided_side_ns", time("The one-sided side, m (l_r - RTT)")),
        ("sentence", text("Where it searches, and why.")),
    ])
}

/// `GET /api/v1/selector/pairs/{client}/{node}/series`.
pub(crate) fn series() -> Value {
    const SERIES: [(&str, &str); 10] = [
        ("l_s_ns", "A search by the server, in nanoseconds."),
        ("l_r_ns", "A read of its memory, in nanoseconds."),
        ("rtt_ns", "A message there and back, in nanoseconds."),
        ("m", "Reads of a one-sided search."),
        ("one_sided_share", "The one-sided part of all searches."),
        ("searches_per_second", "Searches a second."),
        ("queue_estimate_ns", "The server's queue, in nanoseconds."),
        ("one_sided_ns", "A one-sided search, in nanoseconds."),
        ("cache_hit_share", "The part that was found in the client's cache."),
        ("fallbacks_per_second", "One-sided searches that the server had to answer, a second."),
    ];
    of_node([
        ("client", decimal("The client's number.")),
        ("node", integer("The server.")),
        ("step_ms", integer("Milliseconds of a step.")),
        ("times_unix_ms", list(integer("A time."), "When each step was, in milliseconds since 1970.")),
        ("series", object(SERIES.map(|(name, meaning)| (name, values(meaning))))),
        ("marks", list(shared("Mark"), "Changes of settings in that time.")),
    ])
}
