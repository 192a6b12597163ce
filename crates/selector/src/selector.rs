//! One connection's selector: its estimates, and the rule in force.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

use crate::adaptive::{Balance, Choice};
use crate::decision::{Decision, MeganodeId, Question, Reason, SearchKind, SearchPath};
use crate::decisions::Decisions;
use crate::paper::PaperRule;
use crate::reads_table::ReadsTable;
use crate::settings::{Policy, SelectorSettings};

/// What was measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sample {
    /// The server has answered a search.
    Server {
        /// What kind it was.
        kind: SearchKind,
        /// From the request's departure to the answer.
        latency_ns: u64,
    },
    /// A one-sided read has come back.
    Read {
        /// Of what kind of search it is.
        kind: SearchKind,
        /// From its posting.
        latency_ns: u64,
    },
    /// A search was done with one-sided reads.
    OneSided {
        /// What kind it was.
        kind: SearchKind,
        /// In which meganode its last leaf is.
        meganode: Option<MeganodeId>,
        /// From its begin to its answer.
        latency_ns: u64,
        /// Reads that it took, one after another or together.
        reads: u32,
    },
    /// A search was done in the server's mapped memory, by the client's processor alone: also a read.
    InPlace {
        /// What kind it was.
        kind: SearchKind,
        /// How long it took.
        latency_ns: u64,
    },
    /// A search in place could not be answered at once: its owner's watermark or lease was waited for.
    Wait {
        /// What kind it was.
        kind: SearchKind,
        /// How long it took besides.
        waited_ns: u64,
    },
    /// A one-sided search could not be answered: the server is asked now.
    Fallback {
        /// What kind it was.
        kind: SearchKind,
        /// From its begin until now.
        latency_ns: u64,
        /// It was done in place, and measured.
        in_place: bool,
    },
}

/// What is known of a connection, in nanoseconds; of the kind of search that it has most of.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimates {
    /// `l_s`.
    pub server_ns: Option<f64>,
    /// `l_r`.
    pub read_ns: Option<f64>,
    /// A whole search with one-sided reads.
    pub one_sided_ns: Option<f64>,
    /// `RTT`: the lowest read latency seen.
    pub rtt_ns: Option<f64>,
    /// `m`.
    pub reads: f64,
    /// The part of the searches that goes to the server by the rule in force, if that goes by a share.
    pub share: Option<f64>,
}

#[derive(Clone, Debug)]
enum Rule {
    Paper(Box<PaperRule>),
    Adaptive(Box<[Balance; SearchKind::COUNT]>),
    Fixed,
}

impl Rule {
    fn new(settings: &SelectorSettings) -> Rule {
        match settings.policy {
            Policy::Paper => Rule::Paper(Box::new(PaperRule::new(settings))),
            Policy::Adaptive => Rule::Adaptive(Box::default()),
            Policy::Fixed => Rule::Fixed,
        }
    }
}

/// The weight of a new latency in the figures that are only reported.
const REPORT_WEIGHT: f64 = 1.0 / 64.0;

/// Searches that follow a decision: see [`Balance::followers`].
#[derive(Clone, Copy, Debug)]
struct Followers {
    left: u32,
    kind: SearchKind,
    path: SearchPath,
}

impl Followers {
    const NONE: Followers = Followers { left: 0, kind: SearchKind::Point, path: SearchPath::Server };
}

/// When so many searches of a kind were counted, all counts are halved.
const RECENT_MAX: u32 = 4096;

/// See the crate's text.
#[derive(Clone, Debug)]
pub struct Selector {
    settings: SelectorSettings,
    random: Xoshiro256PlusPlus,
    rule: Rule,
    reads: ReadsTable,
    rtt_ns: u64,
    /// Moving means for reports, by any policy.
    server_ns: f64,
    read_ns: f64,
    one_sided_ns: f64,
    used_ns: u64,
    /// The history was dropped, and both paths have not been measured since.
    was_reset: bool,
    /// Searches by kind, the recent ones above all.
    recent: [u32; SearchKind::COUNT],
    followers: Followers,
    decisions: Decisions,
}

impl Selector {
    /// A selector that knows nothing yet. `random` is a stream of its own.
    ///
    /// # Panics
    /// If a constant is out of bounds: see [`SelectorSettings::check`].
    #[must_use]
    pub fn new(settings: SelectorSettings, random: Xoshiro256PlusPlus) -> Selector {
        assert_eq!(settings.check(), Ok(()), "the settings were not checked");
        let rule = Rule::new(&settings);
        Selector {
            reads: ReadsTable::new(settings.reads_initial),
            settings,
            random,
            rule,
            rtt_ns: u64::MAX,
            server_ns: 0.0,
            read_ns: 0.0,
            one_sided_ns: 0.0,
            used_ns: 0,
            was_reset: false,
            recent: [0; SearchKind::COUNT],
            followers: Followers::NONE,
            decisions: Decisions::default(),
        }
    }

    /// Other constants from now on. What was measured is kept as long as the policy stays, and with the
    /// paper's the length of its averages.
    ///
    /// # Panics
    /// As [`Selector::new`].
    pub fn set_settings(&mut self, settings: &SelectorSettings) {
        assert_eq!(settings.check(), Ok(()), "the settings were not checked");
        let before = std::mem::replace(&mut self.settings, settings.clone());
        let keeps_averages = before.samples == settings.samples
            && before.outlier_deviations.to_bits() == settings.outlier_deviations.to_bits();
        if before.policy != settings.policy || (settings.policy == Policy::Paper && !keeps_averages) {
            self.rule = Rule::new(settings);
        }
        self.drop_followers();
        self.reads.set_initial(settings.reads_initial);
    }

    /// The constants in force.
    #[must_use]
    pub fn settings(&self) -> &SelectorSettings {
        &self.settings
    }

    /// Decides who does a search.
    #[inline]
    pub fn decide(&mut self, question: &Question) -> Decision {
        let Followers { left, kind, path } = self.followers;
        let is_idle = question.now_ns.saturating_sub(self.used_ns) >= self.settings.idle_ns;
        if left > 0 && kind == question.kind && question.one_sided.is_ok() && !is_idle {
            self.followers.left -= 1;
            self.used_ns = self.used_ns.max(question.now_ns);
            return self.decisions.count_estimate(path);
        }
        self.decide_anew(question)
    }

    fn decide_anew(&mut self, question: &Question) -> Decision {
        self.drop_followers();
        self.forget_after_idle(question.now_ns);
        let decision = match question.one_sided {
            Err(obstacle) => Decision { path: SearchPath::Server, reason: Reason::OnlyServer(obstacle) },
            Ok(()) => self.choose(question),
        };
        self.decisions.count(decision);
        let recent = &mut self.recent[question.kind.index()];
        *recent += 1;
        if *recent > RECENT_MAX {
            self.recent.iter_mut().for_each(|count| *count /= 2);
        }
        decision
    }

    fn drop_followers(&mut self) {
        let Followers { left, kind, path } = std::mem::replace(&mut self.followers, Followers::NONE);
        if let Rule::Adaptive(balances) = &mut self.rule {
            balances[kind.index()].on_not_followed(path, left);
        }
    }

    fn choose(&mut self, question: &Question) -> Decision {
        let draw = draw(&mut self.random);
        let unknown = if self.was_reset { Reason::IdleReset } else { Reason::NotEnoughSamples };
        match &mut self.rule {
            Rule::Fixed => {
                let server = draw < self.settings.fixed_share;
                let path = if server { SearchPath::Server } else { SearchPath::OneSided };
                Decision { path, reason: Reason::FixedShare }
            }
            Rule::Paper(rule) => {
                let reads = self.reads.expected(question.meganode);
                match rule.choose(question.kind, self.rtt_ns as f64, reads) {
                    Err(path) => Decision { path, reason: unknown },
                    Ok(path) if draw < self.settings.exploration => {
                        Decision { path: path.other(), reason: Reason::Exploration }
                    }
                    Ok(path) => Decision { path, reason: Reason::Estimate },
                }
            }
            Rule::Adaptive(balances) => {
                let balance = &mut balances[question.kind.index()];
                let ratio = match question.meganode {
                    None => 1.0,
                    known => self.reads.expected(known) / self.reads.expected(None),
                };
                let known = (ratio, self.rtt_ns as f64);
                match balance.choose(question.now_ns, question.in_hand, draw, known, &self.settings) {
                    Choice::Estimated(path) => {
                        let left = balance.followers();
                        self.followers = Followers { left, kind: question.kind, path };
                        Decision { path, reason: Reason::Estimate }
                    }
                    Choice::Explored(path) => Decision { path, reason: Reason::Exploration },
                    Choice::Unknown(path) => Decision { path, reason: unknown },
                }
            }
        }
    }

    /// Whether the meganode of a search can change the decision: it does where both paths are in use.
    #[must_use]
    pub fn wants_meganode(&self, kind: SearchKind) -> bool {
        match &self.rule {
            Rule::Paper(_) => true,
            Rule::Adaptive(balances) => {
                balances[kind.index()].share().is_some_and(|share| (0.02..0.98).contains(&share))
            }
            Rule::Fixed => false,
        }
    }

    /// Takes in what was measured.
    #[inline]
    pub fn on_sample(&mut self, now_ns: u64, sample: Sample) {
        self.used_ns = self.used_ns.max(now_ns);
        match sample {
            Sample::Server { kind, latency_ns } => {
                follow(&mut self.server_ns, latency_ns);
                match &mut self.rule {
                    Rule::Paper(rule) => rule.on_server(kind, latency_ns),
                    Rule::Adaptive(balances) => balances[kind.index()].on_server(latency_ns),
                    Rule::Fixed => {}
                }
            }
            Sample::Read { kind, latency_ns } => self.on_read(kind, latency_ns),
            Sample::OneSided { kind, meganode, latency_ns, reads } => {
                self.on_reads(kind, meganode, reads);
                self.on_one_sided(kind, latency_ns, reads);
            }
            // It comes right after its decision: of those that follow one, the last is measured.
            Sample::InPlace { .. } if self.followers.left > 0 => {}
            Sample::InPlace { kind, latency_ns } => {
                self.on_read(kind, latency_ns);
                self.on_reads(kind, None, 1);
                self.on_one_sided(kind, latency_ns, 0);
            }
            Sample::Wait { kind, waited_ns } => {
                if let Rule::Adaptive(balances) = &mut self.rule {
                    balances[kind.index()].on_wait(waited_ns);
                }
            }
            Sample::Fallback { kind, latency_ns, in_place } => {
                if let Rule::Adaptive(balances) = &mut self.rule {
                    balances[kind.index()].on_fallback(latency_ns, in_place);
                }
            }
        }
    }

    fn on_read(&mut self, kind: SearchKind, latency_ns: u64) {
        self.rtt_ns = self.rtt_ns.min(latency_ns);
        follow(&mut self.read_ns, latency_ns);
        match &mut self.rule {
            Rule::Paper(rule) => rule.on_read(kind, latency_ns),
            Rule::Adaptive(balances) => balances[kind.index()].read.push(latency_ns),
            Rule::Fixed => {}
        }
    }

    fn on_reads(&mut self, kind: SearchKind, meganode: Option<MeganodeId>, reads: u32) {
        if kind == SearchKind::Point {
            self.reads.push(meganode, reads);
        } else if let Rule::Paper(rule) = &mut self.rule {
            rule.on_reads(kind, reads);
        }
    }

    fn on_one_sided(&mut self, kind: SearchKind, latency_ns: u64, reads: u32) {
        self.was_reset = false;
        follow(&mut self.one_sided_ns, latency_ns);
        if let Rule::Adaptive(balances) = &mut self.rule {
            balances[kind.index()].on_one_sided(latency_ns, reads);
        }
    }

    /// Drops the history when nothing was searched for long.
    fn forget_after_idle(&mut self, now_ns: u64) {
        let idle = now_ns.saturating_sub(self.used_ns) >= self.settings.idle_ns && self.used_ns > 0;
        self.used_ns = self.used_ns.max(now_ns);
        if idle {
            self.was_reset = true;
            self.drop_history();
        }
    }

    /// The connection is a new one, perhaps to another server or over something else: what was measured says
    /// nothing of it. What was decided stays counted.
    pub fn on_connection(&mut self) {
        self.drop_history();
        self.rtt_ns = u64::MAX;
    }

    fn drop_history(&mut self) {
        self.reads.clear();
        match &mut self.rule {
            Rule::Paper(rule) => rule.clear(),
            Rule::Adaptive(balances) => **balances = Default::default(),
            Rule::Fixed => {}
        }
        (self.server_ns, self.read_ns, self.one_sided_ns) = (0.0, 0.0, 0.0);
        self.followers = Followers::NONE;
        self.recent = [0; SearchKind::COUNT];
    }

    /// How often what was decided, since the start.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// What is known.
    #[must_use]
    pub fn estimates(&self) -> Estimates {
        let known = |mean_ns: f64| (mean_ns > 0.0).then_some(mean_ns);
        let kind = SearchKind::ALL.into_iter().max_by_key(|kind| self.recent[kind.index()]);
        let kind = kind.unwrap_or(SearchKind::Point);
        let (server, read, share) = match &self.rule {
            Rule::Paper(rule) => (rule.server_ns(kind), rule.read_ns(kind), None),
            Rule::Adaptive(balances) => {
                let Balance { server, read, .. } = &balances[kind.index()];
                (server.mean_ns(), read.mean_ns(), balances[kind.index()].share())
            }
            Rule::Fixed => (None, None, Some(self.settings.fixed_share)),
        };
        Estimates {
            server_ns: server.or(known(self.server_ns)),
            read_ns: read.or(known(self.read_ns)),
            one_sided_ns: known(self.one_sided_ns),
            rtt_ns: (self.rtt_ns < u64::MAX).then_some(self.rtt_ns as f64),
            reads: self.reads.expected(None),
            share,
        }
    }
}

/// Lets a mean follow what is measured.
fn follow(mean_ns: &mut f64, latency_ns: u64) {
    let latency_ns = latency_ns as f64;
    if *mean_ns > 0.0 {
        *mean_ns += REPORT_WEIGHT * (latency_ns - *mean_ns);
    } else {
        *mean_ns = latency_ns;
    }
}

/// A number from 0 to below 1.
fn draw(random: &mut Xoshiro256PlusPlus) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (random.next_u64() >> 11) as f64 / STEPS
}
