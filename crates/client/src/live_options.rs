//! The settings that change while a client runs: the cluster's, which nodes send with the answers to reports.
//!
//! What a client's own user decided counts before them: what was given as a variable, as `--set` or by name
//! in [`ClientOptions::own`], and each option that is not as its default is. The constants of the selector
//! are the exception: the load of all clients is the operator's, so the cluster's count before all others.

use cell_protocol::SettingValues;
use cell_terms::setting::{Settings, Source};

use crate::ClientOptions;
use crate::client_core::ClientCore;
use crate::options::SETTINGS;

/// Where the cluster says 0 a client reports so often, because it would learn of no later change.
const REPORT_LONGEST_MS: u64 = 5_000;

/// A setting that changes live, and its field.
struct LiveOption {
    name: &'static str,
    copy: fn(&mut ClientOptions, &ClientOptions),
    is_same: fn(&ClientOptions, &ClientOptions) -> bool,
}

macro_rules! live_options {
    ($($name:literal: $field:ident,)*) => {
        const LIVE: &[LiveOption] = &[$(LiveOption {
            name: $name,
            copy: |to, from| to.$field = from.$field,
            is_same: |one, other| one.$field == other.$field,
        },)*];
    };
}

live_options! {
    "client_deadline": deadline_ms,
    "client_in_flight_max": in_flight_max,
    "client_queue_max": queue_max,
    "client_retries_max": retries_max,
    "client_retry_shortest": retry_shortest_ms,
    "client_retry_longest": retry_longest_ms,
    "client_connect_timeout": connect_timeout_ms,
    "client_silence": silence_ms,
    "client_search": search,
    "client_report_interval": report_ms,
    "client_cache_inner": cache_inner,
    "client_cache_bytes": cache_bytes,
    "client_stream_credit_bytes": stream_credit_bytes,
    "client_spin_us": spin_us,
}

impl ClientOptions {
    /// Which of the live settings somebody has given.
    pub(crate) fn given(settings: &Settings) -> Vec<&'static str> {
        let is_given = |name| settings.get(name).is_some_and(|(_, source)| source > Source::Default);
        LIVE.iter().map(|option| option.name).filter(|name| is_given(name)).collect()
    }

    /// These options, which a client was started with, under the cluster's values.
    pub(crate) fn tuned(&self, values: &SettingValues<'_>) -> ClientOptions {
        let mut cluster = Settings::new(&[SETTINGS, cell_selector::SETTINGS]);
        for (name, text) in values.iter() {
            if let Err(error) = cluster.overrule(name, text, Source::Admin) {
                tracing::debug!(%error, "a setting of the cluster is not taken");
            }
        }
        let is_tuned = |name| cluster.get(name).is_some_and(|(_, source)| source == Source::Admin);
        let (wanted, default) = (ClientOptions::from_settings(&cluster), ClientOptions::default());
        let mut tuned = self.clone();
        for option in LIVE.iter().filter(|option| is_tuned(option.name)) {
            if (option.is_same)(self, &default) && !self.own.contains(&option.name) {
                (option.copy)(&mut tuned, &wanted);
            }
        }
        if tuned.report_ms == 0 && self.report_ms > 0 {
            tuned.report_ms = REPORT_LONGEST_MS;
        }
        for (name, text) in values.iter() {
            let _ = tuned.selector.set(name, text); // one that is wrong was reported
        }
        tuned
    }
}

impl ClientCore {
    /// Keeps so many bytes of tree nodes at most, whatever the cluster says.
    pub(crate) fn bound_cache(&mut self, bytes_max: usize) {
        self.cache_bytes_max = bytes_max;
    }

    /// How long a thread that waits looks for an answer before it sleeps.
    pub(crate) fn spin_ns(&self) -> u64 {
        self.options.spin_us.saturating_mul(1_000)
    }

    /// Puts the cluster's values into force.
    pub(crate) fn tune(&mut self, now_ns: u64, values: &SettingValues<'_>) {
        let mut tuned = self.started_with.tuned(values);
        if tuned.cache_bytes > self.cache_bytes_max && self.started_with.cache_bytes != tuned.cache_bytes {
            let wanted = tuned.cache_bytes;
            tracing::debug!(wanted, "the cluster's client_cache_bytes is more than this machine has");
            tuned.cache_bytes = self.options.cache_bytes;
        }
        let waited = std::mem::replace(&mut self.backoff, tuned.backoff());
        self.pending.set_max(tuned.operations_max());
        self.links.take_options(&tuned);
        self.reporting.set_every(&tuned);
        if let Some(reader) = &mut self.reader {
            reader.take_options(&tuned);
        }
        self.options = tuned;
        if self.backoff != waited {
            self.shorten_all_waits(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use cell_terms::setting::Applies;

    use super::*;
    use crate::Search;

    /// A value of each live setting that is not its default.
    const OTHERS: &[(&str, &str)] = &[
        ("client_deadline", "7 s"),
        ("client_in_flight_max", "7"),
        ("client_queue_max", "8"),
        ("client_retries_max", "9"),
        ("client_retry_shortest", "2 ms"),
        ("client_retry_longest", "300 ms"),
        ("client_connect_timeout", "1 s"),
        ("client_silence", "1 s"),
        ("client_search", "server"),
        ("client_report_interval", "2 s"),
        ("client_cache_inner", "false"),
        ("client_cache_bytes", "1 MiB"),
        ("client_stream_credit_bytes", "2 MiB"),
        ("client_spin_us", "0"),
    ];

    fn tuned(options: &ClientOptions, values: &[(&str, &str)]) -> ClientOptions {
        options.tuned(&SettingValues::List(values))
    }

    #[test]
    fn live_options_are_the_settings_that_are_declared_live() {
        let live = SETTINGS.iter().filter(|setting| setting.applies == Applies::Live);
        let declared: Vec<_> = live.map(|setting| setting.name).collect();
        assert_eq!(declared, LIVE.iter().map(|option| option.name).collect::<Vec<_>>());
        assert_eq!(declared, OTHERS.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }

    #[test]
    fn tuned_of_each_live_setting_is_what_the_settings_would_give_and_nothing_else() {
        let started_with = ClientOptions::default();
        for &(name, text) in OTHERS {
            let mut settings = Settings::new(&[SETTINGS, cell_selector::SETTINGS]);
            settings.set(name, text, Source::Default).unwrap();
            let wanted = ClientOptions::from_settings(&settings);
            assert_ne!(wanted, started_with, "{name}");
            assert_eq!(tuned(&started_with, &[(name, text)]), wanted, "{name}");
        }
        assert_eq!(tuned(&started_with, &[]), started_with);
        let left =
            [("client_name", "x"), ("client_transport", "tcp"), ("lease_ms", "1 s"), ("client_x", "1")];
        assert_eq!(tuned(&started_with, &left), started_with, "what does not apply live");
    }

    #[test]
    fn tuned_leaves_what_the_clients_user_gave_in_any_way() {
        for &(name, text) in OTHERS {
            let mut settings = Settings::new(&[SETTINGS, cell_selector::SETTINGS]);
            let default = settings.shown(name);
            settings.set(name, &default, Source::Environment).unwrap();
            let given = ClientOptions::from_settings(&settings);
            assert_eq!(tuned(&given, &[(name, text)]), given, "a variable that is as the default: {name}");
            let named = ClientOptions { own: vec![name], ..ClientOptions::default() };
            assert_eq!(tuned(&named, &[(name, text)]), named, "{name}");
        }
        let in_code = ClientOptions { deadline_ms: 9_000, ..ClientOptions::default() };
        let found = tuned(&in_code, &[("client_deadline", "7 s"), ("client_retries_max", "3")]);
        assert_eq!((found.deadline_ms, found.retries_max), (9_000, 3));
    }

    #[test]
    fn tuned_selector_counts_before_what_the_client_was_given() {
        let mut given = ClientOptions::default();
        given.selector.reads_initial = 9.0;
        assert_eq!(tuned(&given, &[("client_selector_reads", "4")]).selector.reads_initial, 4.0);
    }

    #[test]
    fn tuned_to_no_reports_reports_on_seldom() {
        let silent = [("client_report_interval", "0")];
        assert_eq!(tuned(&ClientOptions::default(), &silent).report_ms, REPORT_LONGEST_MS);
        let never = ClientOptions { report_ms: 0, ..ClientOptions::default() };
        assert_eq!(tuned(&never, &silent).report_ms, 0);
    }

    #[test]
    fn tune_moves_spin_and_search_of_a_running_core_and_takes_them_back() {
        let mut core = ClientCore::new(ClientOptions::default(), 1);
        core.tune(1, &SettingValues::List(&[("client_spin_us", "7"), ("client_search", "client")]));
        assert_eq!((core.spin_ns(), core.options.search), (7_000, Search::Client));
        core.tune(1, &SettingValues::List(&[]));
        assert_eq!((core.spin_ns(), core.options.search), (50_000, Search::Auto));
    }

    #[test]
    fn tune_to_a_cache_larger_than_the_machine_keeps_the_cache() {
        let mut core = ClientCore::new(ClientOptions::default(), 1);
        core.bound_cache(256 << 20);
        core.tune(1, &SettingValues::List(&[("client_cache_bytes", "200 MiB")]));
        assert_eq!(core.options.cache_bytes, 200 << 20);
        core.tune(1, &SettingValues::List(&[("client_cache_bytes", "300 MiB")]));
        assert_eq!(core.options.cache_bytes, 200 << 20);
    }
}
