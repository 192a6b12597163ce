//! What clients have reported of their searches over the last ten minutes, one sample a second and client. A
//! pure core: it is shown a snapshot's clients with the time, once a second.
//!
//! A report counts since the one before it, and clients report about once a second, each by its own clock. So
//! a look may find two new reports, or none: the rates are those of all that are new, and a look that finds
//! none shows the last ones again for a while.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cell_node::{ClientCounts, ClientSnapshot};

/// Samples that are kept of a client: ten minutes.
pub(crate) const SAMPLES_MAX: usize = 600;

/// Clients of which samples are kept.
const CLIENTS_MAX: usize = 256;

/// A client that reported within this time is shown as it was, though the look found nothing new.
const HELD_MS: u64 = 2_500;

/// The samples of so many seconds give the short-term ratio.
const RATIO_SAMPLES: usize = 10;

/// A second of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct SelectorSample {
    /// When it was taken, milliseconds since 1970.
    pub(crate) at_unix_ms: u64,
    /// The time that its counts are of; zero: nothing is known of this second.
    interval_ns: u64,
    /// It repeats the one before it.
    is_held: bool,
    server: u32,
    one_sided: u32,
    cache_hits: u32,
    cache_misses: u32,
    fallbacks: u32,
    server_ns: f32,
    read_ns: f32,
    rtt_ns: f32,
    one_sided_ns: f32,
    reads: f32,
}

/// What a client did of late.
#[derive(Clone, Debug)]
pub(crate) struct ClientHistory {
    /// As it was seen last.
    pub(crate) latest: ClientSnapshot,
    /// What it has counted in the last interval with reports, and how long that was.
    pub(crate) counts: ClientCounts,
    pub(crate) interval_ns: u64,
    /// It was in the last snapshot.
    is_live: bool,
    seen_unix_ms: u64,
    samples: VecDeque<SelectorSample>,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(crate) struct SelectorHistory {
    clients: BTreeMap<u64, ClientHistory>,
    /// Clients of the last look for which there was no room.
    unlisted: u64,
}

impl SelectorHistory {
    /// A look at the clients of a snapshot, whose figures have stood still for so long. Of several
    /// connections of one client the one counts that reported last.
    pub(crate) fn observe(&mut self, at_unix_ms: u64, still_ms: u64, clients: &[ClientSnapshot]) {
        self.clients.values_mut().for_each(|client| client.is_live = false);
        let mut unlisted = BTreeSet::new();
        for client in clients {
            if !self.clients.contains_key(&client.client) && !self.has_room() {
                unlisted.insert(client.client);
                continue;
            }
            let known = self.clients.entry(client.client).or_insert_with(|| ClientHistory::new(client));
            if !known.is_live {
                known.observe(at_unix_ms, still_ms, client);
            }
        }
        self.unlisted = unlisted.len() as u64;
        let kept_ms = SAMPLES_MAX as u64 * 1_000;
        self.clients.retain(|_, client| client.is_live || client.seen_unix_ms + kept_ms > at_unix_ms);
        self.clients.values_mut().filter(|client| !client.is_live).for_each(|client| {
            client.push(SelectorSample { at_unix_ms, ..SelectorSample::default() });
        });
    }

    /// Makes room for one more: the one that has been silent longest goes.
    fn has_room(&mut self) -> bool {
        if self.clients.len() < CLIENTS_MAX {
            return true;
        }
        let silent = self.clients.iter().filter(|(_, client)| !client.is_live);
        let Some((&oldest, _)) = silent.min_by_key(|(_, client)| client.seen_unix_ms) else { return false };
        self.clients.remove(&oldest);
        true
    }

    /// The clients that are there now.
    pub(crate) fn live(&self) -> impl Iterator<Item = &ClientHistory> {
        self.clients.values().filter(|client| client.is_live)
    }

    /// A client, also one that has gone.
    pub(crate) fn client(&self, client: u64) -> Option<&ClientHistory> {
        self.clients.get(&client)
    }

    /// Clients that report now and for which there is no room.
    pub(crate) fn unlisted(&self) -> u64 {
        self.unlisted
    }
}

impl ClientHistory {
    fn new(client: &ClientSnapshot) -> ClientHistory {
        ClientHistory {
            latest: ClientSnapshot {
                reports: 0,
                reported_ns: 0,
                counts: ClientCounts::default(),
                ..client.clone()
            },
            counts: ClientCounts::default(),
            interval_ns: 0,
            is_live: false,
            seen_unix_ms: 0,
            samples: VecDeque::new(),
        }
    }

    fn observe(&mut self, at_unix_ms: u64, still_ms: u64, client: &ClientSnapshot) {
        (self.is_live, self.seen_unix_ms) = (true, at_unix_ms);
        // A new connection counts from nothing again.
        let goes_on = client.reports >= self.latest.reports
            && client.reported_ns >= self.latest.reported_ns
            && has_all(&client.counts, &self.latest.counts);
        let (before, before_ns) =
            if goes_on { (self.latest.counts, self.latest.reported_ns) } else { Default::default() };
        let is_new = !goes_on || client.reports > self.latest.reports;
        if is_new {
            self.counts = client.counts.since(&before);
            self.interval_ns = client.reported_ns - before_ns;
        }
        let is_held = !is_new && client.age_ms.saturating_add(still_ms) <= HELD_MS;
        self.latest = client.clone();
        let blank = SelectorSample { at_unix_ms, ..SelectorSample::default() };
        self.push(if is_new || is_held { self.sample(at_unix_ms, is_held) } else { blank });
    }

    fn sample(&self, at_unix_ms: u64, is_held: bool) -> SelectorSample {
        let small = |count: u64| u32::try_from(count).unwrap_or(u32::MAX);
        let ClientCounts { server, one_sided, cache_hits, cache_misses, fallbacks, .. } = self.counts;
        let known = &self.latest.estimates;
        SelectorSample {
            at_unix_ms,
            interval_ns: self.interval_ns,
            is_held,
            server: small(server),
            one_sided: small(one_sided),
            cache_hits: small(cache_hits),
            cache_misses: small(cache_misses),
            fallbacks: small(fallbacks),
            server_ns: known.server_ns as f32,
            read_ns: known.read_ns as f32,
            rtt_ns: known.rtt_ns as f32,
            one_sided_ns: known.one_sided_ns as f32,
            reads: known.reads_thousandths as f32 / 1e3,
        }
    }

    fn push(&mut self, sample: SelectorSample) {
        if self.samples.len() == SAMPLES_MAX {
            self.samples.pop_front();
        }
        self.samples.push_back(sample);
    }

    /// The samples of so many seconds, oldest first.
    pub(crate) fn samples(&self, seconds: usize) -> impl ExactSizeIterator<Item = &SelectorSample> {
        self.samples.range(self.samples.len().saturating_sub(seconds)..)
    }

    /// The one-sided part of the searches of the last ten seconds.
    pub(crate) fn ratio_10s(&self) -> Option<f64> {
        let fresh = self.samples(RATIO_SAMPLES).filter(|sample| !sample.is_held);
        let (one_sided, all) = fresh.fold((0, 0), |(one_sided, all), sample| {
            let (own, other) = (u64::from(sample.one_sided), u64::from(sample.server));
            (one_sided + own, all + own + other)
        });
        share(one_sided, all)
    }

    /// Whether what was counted last is what the client does now: it has reported within a while.
    pub(crate) fn is_known(&self) -> bool {
        self.samples.back().is_some_and(|sample| sample.interval_ns > 0)
    }

    /// What it counts now; none: nothing is known of that.
    pub(crate) fn counts_now(&self) -> Option<&ClientCounts> {
        self.is_known().then_some(&self.counts)
    }

    /// A count of the last interval, a second; none: see [`ClientHistory::is_known`].
    pub(crate) fn per_second(&self, count: impl Fn(&ClientCounts) -> u64) -> Option<f64> {
        per_second(count(self.counts_now()?), self.interval_ns)
    }
}

impl SelectorSample {
    pub(crate) fn server_ns(&self) -> Option<f64> {
        known(self.server_ns)
    }

    pub(crate) fn read_ns(&self) -> Option<f64> {
        known(self.read_ns)
    }

    pub(crate) fn rtt_ns(&self) -> Option<f64> {
        known(self.rtt_ns)
    }

    pub(crate) fn one_sided_ns(&self) -> Option<f64> {
        known(self.one_sided_ns)
    }

    pub(crate) fn reads(&self) -> Option<f64> {
        known(self.reads)
    }

    pub(crate) fn queue_estimate_ns(&self) -> Option<f64> {
        Some((self.server_ns()? - self.rtt_ns()?).max(0.0))
    }

    pub(crate) fn one_sided_share(&self) -> Option<f64> {
        share(self.one_sided.into(), u64::from(self.one_sided) + u64::from(self.server))
    }

    pub(crate) fn cache_hit_share(&self) -> Option<f64> {
        share(self.cache_hits.into(), u64::from(self.cache_hits) + u64::from(self.cache_misses))
    }

    pub(crate) fn searches_per_second(&self) -> Option<f64> {
        per_second(u64::from(self.server) + u64::from(self.one_sided), self.interval_ns)
    }

    pub(crate) fn fallbacks_per_second(&self) -> Option<f64> {
        per_second(self.fallbacks.into(), self.interval_ns)
    }
}

fn known(figure: f32) -> Option<f64> {
    (figure > 0.0).then_some(f64::from(figure))
}

/// Whether nothing was counted less often than before.
fn has_all(counts: &ClientCounts, before: &ClientCounts) -> bool {
    counts.to_array().iter().zip(before.to_array()).all(|(count, before)| *count >= before)
}

/// A part of a whole; none of nothing.
pub(crate) fn share(part: u64, all: u64) -> Option<f64> {
    (all > 0).then(|| part as f64 / all as f64)
}

fn per_second(count: u64, interval_ns: u64) -> Option<f64> {
    (interval_ns > 0).then(|| count as f64 * 1e9 / interval_ns as f64)
}

#[cfg(test)]
pub(crate) mod tests {
    use cell_node::{ClientEstimates, ReportPolicy, ReportTransport};

    use super::*;

    /// A client that has sent so many reports of a second each, 30 searches by the server and 10 by itself in
    /// each of them.
    pub(crate) fn client(client: u64, reports: u64) -> ClientSnapshot {
        ClientSnapshot {
            client,
            name: "17@host".into(),
            transport: ReportTransport::Tcp,
            policy: ReportPolicy::Adaptive,
            settings_revision: 0,
            age_ms: 100,
            reports,
            reported_ns: reports * 1_000_000_000,
            counts: ClientCounts {
                server: 30 * reports,
                one_sided: 10 * reports,
                estimate: 40 * reports,
                cache_hits: 3 * reports,
                cache_misses: reports,
                ..ClientCounts::default()
            },
            last_searches: 40,
            estimates: ClientEstimates {
                server_ns: 30_000,
                read_ns: 6_000,
                rtt_ns: 5_000,
                one_sided_ns: 12_000,
                reads_thousandths: 2_000,
                share_millionths: Some(750_000),
            },
            in_hand: 1,
        }
    }

    fn last(history: &SelectorHistory, of: u64) -> SelectorSample {
        *history.client(of).unwrap().samples(1).last().unwrap()
    }

    #[test]
    fn observe_each_second_gives_rates_and_shares() {
        let mut history = SelectorHistory::default();
        for second in 1..=3 {
            history.observe(second * 1_000, 0, &[client(7, second)]);
            assert_eq!(last(&history, 7).searches_per_second(), Some(40.0));
        }
        let known = history.client(7).unwrap();
        assert_eq!((known.per_second(|counts| counts.server), known.ratio_10s()), (Some(30.0), Some(0.25)));
        let sample = last(&history, 7);
        assert_eq!((sample.one_sided_share(), sample.cache_hit_share()), (Some(0.25), Some(0.75)));
        assert_eq!((sample.queue_estimate_ns(), sample.reads()), (Some(25_000.0), Some(2.0)));
    }

    #[test]
    fn observe_two_reports_at_once_or_none_shows_the_same_rates() {
        let mut history = SelectorHistory::default();
        history.observe(1_000, 0, &[client(7, 1)]);
        history.observe(2_000, 0, &[client(7, 1)]);
        assert_eq!(last(&history, 7).searches_per_second(), Some(40.0), "held");
        history.observe(3_000, 0, &[client(7, 3)]);
        assert_eq!(last(&history, 7).searches_per_second(), Some(40.0), "80 in two seconds");
        history.observe(4_000, 0, &[ClientSnapshot { age_ms: 3_000, ..client(7, 3) }]);
        assert_eq!(last(&history, 7).searches_per_second(), None, "it is silent");
        let silent = history.client(7).unwrap();
        assert_eq!((silent.per_second(|counts| counts.server), silent.counts_now()), (None, None));
        assert_eq!(history.client(7).unwrap().ratio_10s(), Some(0.25));
    }

    /// A server that stood still showed its clients' last rates for as long as it did.
    #[test]
    fn observe_figures_that_stand_still_is_held_for_a_while_and_then_nothing_is_known() {
        let mut history = SelectorHistory::default();
        history.observe(1_000, 0, &[client(7, 1)]);
        for (still_s, wanted) in [(1, Some(40.0)), (2, Some(40.0)), (3, None), (60, None)] {
            history.observe(1_000 * (1 + still_s), 1_000 * still_s, &[client(7, 1)]);
            assert_eq!(last(&history, 7).searches_per_second(), wanted, "{still_s}");
        }
        assert_eq!(history.live().count(), 1);
        history.observe(62_000, 0, &[client(7, 62)]);
        assert_eq!(last(&history, 7).searches_per_second(), Some(40.0));
    }

    #[test]
    fn observe_a_new_connection_of_a_client_begins_from_nothing() {
        let mut history = SelectorHistory::default();
        history.observe(1_000, 0, &[client(7, 9)]);
        history.observe(2_000, 0, &[client(7, 1)]);
        assert_eq!(last(&history, 7).searches_per_second(), Some(40.0));
    }

    /// Where the looks between came late, a new connection may have as many reports as the one before it.
    #[test]
    fn observe_counts_that_are_less_than_before_is_a_new_connection_however_many_reports_it_had() {
        let mut history = SelectorHistory::default();
        history.observe(1_000, 0, &[client(7, 3)]);
        history.observe(8_000, 0, &[ClientSnapshot { counts: client(7, 1).counts, ..client(7, 4) }]);
        assert_eq!(last(&history, 7).searches_per_second(), Some(10.0), "40 in four seconds");
    }

    #[test]
    fn client_that_has_gone_is_not_live_and_its_samples_stay_for_ten_minutes() {
        let mut history = SelectorHistory::default();
        history.observe(1_000, 0, &[client(7, 1)]);
        history.observe(2_000, 0, &[]);
        assert_eq!(history.live().count(), 0);
        assert_eq!(history.client(7).unwrap().samples(600).len(), 2);
        assert_eq!(last(&history, 7).searches_per_second(), None);
        history.observe(601_000, 0, &[]);
        assert!(history.client(7).is_none());
    }

    #[test]
    fn samples_of_more_than_ten_minutes_are_the_last_ten() {
        let mut history = SelectorHistory::default();
        for second in 1..=700 {
            history.observe(second * 1_000, 0, &[client(7, second)]);
        }
        let known = history.client(7).unwrap();
        assert_eq!(known.samples(10_000).len(), SAMPLES_MAX);
        assert_eq!(known.samples(2).map(|sample| sample.at_unix_ms).collect::<Vec<_>>(), [699_000, 700_000]);
    }

    #[test]
    fn clients_past_the_bound_push_out_the_longest_silent_one_and_are_counted_once() {
        let mut history = SelectorHistory::default();
        let all = |range: std::ops::Range<u64>| range.map(|number| client(number, 1)).collect::<Vec<_>>();
        history.observe(1_000, 0, &all(0..1));
        history.observe(2_000, 0, &all(1..256));
        assert_eq!(history.unlisted(), 0);
        history.observe(3_000, 0, &all(1..257));
        assert!(history.client(0).is_none() && history.client(256).is_some());
        assert_eq!(history.unlisted(), 0, "it is not there any more");
        history.observe(4_000, 0, &all(1..258));
        assert!(history.client(257).is_none(), "all others are live");
        assert_eq!((history.unlisted(), history.live().count()), (1, 256));
        history.observe(5_000, 0, &all(1..258));
        assert_eq!(history.unlisted(), 1, "a client counts once, however long it stays");
        history.observe(6_000, 0, &all(1..257));
        assert_eq!(history.unlisted(), 0);
    }
}
