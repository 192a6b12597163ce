//! Where a client searches now, and why, in one sentence: the same for the console and the command line.

use cell_node::{ClientCounts, ReportPolicy};

/// Both paths are in use where the server's share is between these.
const BOTH: std::ops::Range<f64> = 0.02..0.98;

/// What the sentence is made from.
pub(crate) struct Facts<'a> {
    pub(crate) policy: ReportPolicy,
    /// Of the last interval.
    pub(crate) counts: &'a ClientCounts,
    /// Mean latencies of a search by either path; 0: not known.
    pub(crate) server_ns: u64,
    pub(crate) one_sided_ns: u64,
    /// The two sides of the paper's inequality, the server's first.
    pub(crate) sides_ns: Option<(u64, u64)>,
    /// The server's share by the rule in force.
    pub(crate) share: Option<f64>,
}

/// The path that most searches take, `server` or `one_sided`, and the sentence.
pub(crate) fn of(facts: &Facts<'_>) -> (&'static str, String) {
    let counts = facts.counts;
    if let Some(why) = obstacle(counts) {
        return ("server", format!("server-side now: {why}"));
    }
    let mostly = |server: bool| if server { "server" } else { "one_sided" };
    match facts.policy {
        ReportPolicy::Server => ("server", "server-side always, as the client is configured".to_owned()),
        ReportPolicy::Client if counts.server > counts.one_sided => {
            ("server", "server-side now: one-sided reads gave no answer".to_owned())
        }
        ReportPolicy::Client => ("one_sided", "one-sided always, as the client is configured".to_owned()),
        ReportPolicy::Fixed => {
            let share = facts.share.unwrap_or(0.5);
            (mostly(share >= 0.5), format!("a fixed share: {:.0} % server-side", share * 100.0))
        }
        ReportPolicy::Paper => match facts.sides_ns {
            Some((server_ns, one_sided_ns)) => {
                let server = server_ns < one_sided_ns;
                (mostly(server), by_cost(server, server_ns, one_sided_ns))
            }
            None => unknown(counts),
        },
        ReportPolicy::Adaptive => match facts.share {
            Some(share) if BOTH.contains(&share) => {
                let one_sided = (1.0 - share) * 100.0;
                (
                    mostly(share >= 0.5),
                    format!("both paths, {one_sided:.0} % one-sided: they cost nearly the same"),
                )
            }
            Some(share) => {
                let server = share >= 0.5;
                (mostly(server), by_cost(server, facts.server_ns, facts.one_sided_ns))
            }
            None => unknown(counts),
        },
    }
}

/// What kept most searches of the interval from being a choice.
fn obstacle(counts: &ClientCounts) -> Option<&'static str> {
    let obstacles = [
        (counts.not_permitted, "it permits no one-sided reads, or this transport has none"),
        (counts.not_registered, "the client does not know its memory yet"),
        (counts.not_trusted, "no lease vouches for what would be read"),
    ];
    let all: u64 = obstacles.iter().map(|(count, _)| count).sum();
    let (most, why) = obstacles.into_iter().max_by_key(|(count, _)| *count)?;
    (most > 0 && 2 * all > counts.searches().max(all)).then_some(why)
}

fn unknown(counts: &ClientCounts) -> (&'static str, String) {
    let path = if counts.server >= counts.one_sided { "server" } else { "one_sided" };
    let why = if counts.idle_reset > counts.not_enough_samples {
        "measured anew after an idle time"
    } else {
        "too little is measured yet"
    };
    (path, format!("{} now: {why}", words(path == "server")))
}

fn words(server: bool) -> &'static str {
    if server { "server-side" } else { "one-sided" }
}

/// The cheaper path by so much; where a wait in a queue turns the scale, the latencies alone do not show it.
fn by_cost(server: bool, server_ns: u64, one_sided_ns: u64) -> String {
    let (own_ns, other_ns) = if server { (server_ns, one_sided_ns) } else { (one_sided_ns, server_ns) };
    if own_ns > 0 && own_ns < other_ns {
        format!("{} now, {} cheaper", words(server), time(other_ns - own_ns))
    } else {
        format!("{} now: the other path's queue costs more", words(server))
    }
}

/// `18 us`, `340 ns`, `2.5 ms`.
fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..10_000 => format!("{:.1} us", ns as f64 / 1e3),
        10_000..1_000_000 => format!("{:.0} us", ns as f64 / 1e3),
        _ => format!("{:.1} ms", ns as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts<'a>(policy: ReportPolicy, counts: &'a ClientCounts, share: Option<f64>) -> Facts<'a> {
        Facts {
            policy,
            counts,
            server_ns: 30_000,
            one_sided_ns: 12_000,
            sides_ns: Some((7_000, 25_400)),
            share,
        }
    }

    #[test]
    fn sentence_of_each_policy_says_where_and_why() {
        let counts = ClientCounts { server: 10, estimate: 10, ..ClientCounts::default() };
        for (policy, share, path, sentence) in [
            (ReportPolicy::Paper, None, "server", "server-side now, 18 us cheaper"),
            (ReportPolicy::Adaptive, Some(0.001), "one_sided", "one-sided now, 18 us cheaper"),
            (
                ReportPolicy::Adaptive,
                Some(0.999),
                "server",
                "server-side now: the other path's queue costs more",
            ),
            (
                ReportPolicy::Adaptive,
                Some(0.3),
                "one_sided",
                "both paths, 70 % one-sided: they cost nearly the same",
            ),
            (ReportPolicy::Adaptive, None, "server", "server-side now: too little is measured yet"),
            (ReportPolicy::Fixed, Some(0.25), "one_sided", "a fixed share: 25 % server-side"),
            (ReportPolicy::Server, None, "server", "server-side always, as the client is configured"),
        ] {
            assert_eq!(of(&facts(policy, &counts, share)), (path, sentence.to_owned()));
        }
        let own = ClientCounts { one_sided: 10, ..ClientCounts::default() };
        assert_eq!(of(&facts(ReportPolicy::Client, &own, None)).0, "one_sided");
    }

    #[test]
    fn sentence_of_searches_without_a_choice_names_the_obstacle() {
        let counts = ClientCounts { server: 10, not_trusted: 6, estimate: 4, ..ClientCounts::default() };
        let (path, sentence) = of(&facts(ReportPolicy::Adaptive, &counts, Some(0.001)));
        assert_eq!(
            (path, &*sentence),
            ("server", "server-side now: no lease vouches for what would be read")
        );
        let few = ClientCounts { not_trusted: 1, ..counts };
        assert_eq!(of(&facts(ReportPolicy::Adaptive, &few, Some(0.001))).0, "one_sided");
    }

    #[test]
    fn time_has_the_unit_that_fits() {
        assert_eq!([340, 3_400, 18_400, 2_500_000].map(time), ["340 ns", "3.4 us", "18 us", "2.5 ms"]);
    }
}
