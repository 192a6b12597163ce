//! The adaptive rule: a share of the searches goes to the server, and the share moves a little each interval
//! towards the path on which a search costs all clients less.
//!
//! - What a search costs: its mean latency; the wait in its queue once more, because those behind it wait for
//!   it as long; and for each other read that its client has in hand, the client's processor time for its
//!   reads after the first, which takes the client no more than a message to the server would.
//! - What goes wrong on the way counts: a one-sided search that waits for a watermark or a lease costs its
//!   wait, and one that ends at the server costs what was lost and the server's search.
//! - The share moves by its log odds. The step halves when the direction turns and grows while it lasts, so
//!   that many clients that see the same do not all change sides.
//! - Between two paths that cost the same any share is right, and the drawn one stays where it is.
//! - For a client that has several operations in hand, a path is drawn for a run of searches: those of one
//!   path leave and come back together, in few messages. Searches that take turns are dearer on either path,
//!   and their latencies show how long a turn takes and not what a path does. Scans that take long are drawn
//!   each for itself.
//! - The worse path is taken so seldom that it costs a given part of the *time*: at least once in a while,
//!   never more often than that part.

use crate::decision::SearchPath;
use crate::path_cost::PathCost;
use crate::settings::SelectorSettings;

/// Samples of each path before they are compared.
const SAMPLES_MIN: u32 = 4;

/// Samples of both paths together that an interval has at least.
const INTERVAL_SAMPLES_MIN: u32 = 8;

/// While a path lacks samples, one of so many searches goes there.
const FIRST_SAMPLES_SHARE: f64 = 0.25;

/// Largest and smallest step of the log odds.
const STEP_MAX: f64 = 0.6;
const STEP_MIN: f64 = 0.02;

/// The step grows so while the direction lasts, and shrinks so when it turns.
const STEP_GROWTH: f64 = 1.4;
const STEP_SHRINKAGE: f64 = 0.5;

/// The first estimates lead so far at most: all clients may have started together, at the server.
const FIRST_ODDS_MAX: f64 = 1.5;

/// The log odds stay within these bounds, a share of 1e-6: what is drawn of a path that takes a thousand
/// times as long costs nothing then. It takes 23 of the longest steps from there to the middle.
const ODDS_MAX: f64 = 14.0;

/// A path that was not taken for so long is taken, if so many searches have gone by since. The longer a
/// search or a run of them takes on it, the longer it rests, up to the second bound.
const EXPLORE_EVERY_NS: u64 = 50_000_000;
const EXPLORE_EVERY_NS_MAX: u64 = 500_000_000;
const EXPLORE_EVERY_SEARCHES: u32 = 32;

/// Of a search's time on the path that is estimated to be worse, at least this part counts as lost.
const EXPLORE_LOSS_MIN: f64 = 0.5;

/// A longer pause between two searches counts as one of this length: a client that rests explores no more
/// for it.
const PAUSE_NS_MAX: u64 = 5_000_000;

/// A search by an idle server takes at most so many times the lowest read latency: who meets a server that is
/// busy all the time does not take the wait for a part of the way.
const SERVER_RTTS_MAX: f64 = 3.0;

/// Beyond so many times the lowest latency the mean one comes from a queue; below, from how searches differ.
const QUEUE_FROM: f64 = 1.5;

/// Operations that a client has in hand wait for each other, at the server as at the network card. That is no
/// queue of others: each lets a search take so many times the lowest latency longer.
const OWN_WAIT: f64 = 0.25;

/// A client's processor time for a read is at most so much of the lowest latency: over RDMA it is less than
/// over TCP.
const READ_CPU_PART_MAX: f64 = 0.5;

/// Of a search's reads so many take the client no more than a message to the server and its reply would.
const READS_AS_A_MESSAGE: f64 = 1.0;

/// Where nearly all searches take one path, one is decided on and so many follow it: with searches of a
/// microsecond even a decision costs.
pub(crate) const FOLLOWERS: u32 = 7;

/// Shares of the worse path below which that is so.
const FOLLOWED_SHARE_MAX: f64 = 0.01;

/// For each other operation that a client has in hand, so many searches follow one draw, if they take no
/// longer than this in all.
const RUN_IN_HAND: f64 = 8.0;
const RUN_NS_MAX: u64 = 1_000_000;

/// A search that comes with others and takes so long for each of them gains nothing by a shared message.
/// Long ones (scans) are drawn each for itself: then both paths are at work at the same time.
const LONG_SEARCH_NS: f64 = 15_000.0;

/// After a change of paths, so many searches for each other operation in hand are not measured: they share
/// the way with those before, and meet caches and threads that rested.
const CHANGE_IN_HAND: f64 = 3.0;

/// So many earlier searches count in what searches lose by waits.
const LOST_MEMORY: f64 = 64.0;

/// By how much the log odds of a meganode move with the logarithm of its reads: where both paths are used,
/// the meganodes that take fewer reads are read one-sided first.
const MEGANODE_WEIGHT: f64 = 3.0;

/// What a path was taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The estimates.
    Estimated(SearchPath),
    /// To see whether they still hold.
    Explored(SearchPath),
    /// There are none.
    Unknown(SearchPath),
}

impl Choice {
    fn path(self) -> SearchPath {
        let (Choice::Estimated(path) | Choice::Explored(path) | Choice::Unknown(path)) = self;
        path
    }
}

/// Searches that follow one draw.
#[derive(Clone, Copy, Debug, Default)]
struct Run {
    left: u32,
    draw: f64,
    /// When it began, by the time with searches.
    began_ns: u64,
    /// The path of all of them, if that was not taken for long.
    rested: Option<SearchPath>,
    /// The path of most of them, and how many searches more the change to it is felt by.
    path: Option<SearchPath>,
    changing: u32,
}

/// The balance between the paths, for one kind of search on one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Balance {
    pub(crate) server: PathCost,
    pub(crate) one_sided: PathCost,
    /// Of single reads.
    pub(crate) read: PathCost,
    /// Log odds of the server.
    odds: f64,
    step: f64,
    direction: f64,
    /// What was compared was known.
    is_known: bool,
    share: f64,
    /// The share, kept within what exploration asks for.
    share_explored: f64,
    folded_ns: u64,
    /// Searches decided on since the last interval, and operations in hand at that, summed up.
    searches: u32,
    in_hand: u64,
    in_hand_mean: f64,
    run: Run,
    /// Of the one-sided searches since the last interval: reads, and how many were done in place.
    reads: u64,
    in_place: u32,
    reads_mean: f64,
    is_in_place: bool,
    /// One-sided searches since the last interval: those done and measured; all that were decided on, with
    /// those that follow; and what they all lost by waits and at servers.
    done: u32,
    decided: u32,
    lost_ns: u64,
    lost_mean_ns: f64,
    /// Time with searches, which pauses are not part of; and when the last search was decided on.
    active_ns: u64,
    asked_ns: u64,
    /// When each path was taken last by that time, searches since, and after how long it is taken again.
    taken_ns: [u64; 2],
    since_taken: [u32; 2],
    explore_after_ns: [u64; 2],
}

impl Balance {
    /// The share of the searches that goes to the server.
    pub(crate) fn share(&self) -> Option<f64> {
        self.is_known.then_some(self.share_explored)
    }

    /// The server has answered a search after so long.
    #[inline]
    pub(crate) fn on_server(&mut self, latency_ns: u64) {
        if self.is_measured(SearchPath::Server) {
            self.server.push(latency_ns);
        }
    }

    /// A one-sided search took so long and so many reads, none if it was in place.
    #[inline]
    pub(crate) fn on_one_sided(&mut self, latency_ns: u64, reads: u32) {
        if self.is_measured(SearchPath::OneSided) {
            self.one_sided.push(latency_ns);
        }
        self.done += 1;
        self.reads += u64::from(reads);
        self.in_place += u32::from(reads == 0);
    }

    /// A one-sided search that was measured in place has waited so long besides.
    pub(crate) fn on_wait(&mut self, waited_ns: u64) {
        self.lost_ns = self.lost_ns.saturating_add(waited_ns);
    }

    /// A one-sided search was given to the server after so long. `was_measured`: in place, before that.
    pub(crate) fn on_fallback(&mut self, latency_ns: u64, was_measured: bool) {
        let server_ns = whole_ns(self.server.mean_ns().unwrap_or(0.0));
        let cost_ns = latency_ns.saturating_add(server_ns);
        if was_measured {
            self.on_wait(cost_ns);
        } else {
            self.one_sided.push(cost_ns);
        }
    }

    /// Decides on a search. `draw` is between 0 and 1; `reads_ratio` is what the search's meganode takes of
    /// reads, as a part of what searches take in the mean.
    #[inline]
    pub(crate) fn choose(
        &mut self,
        now_ns: u64,
        in_hand: u32,
        draw: f64,
        (reads_ratio, rtt_ns): (f64, f64),
        settings: &SelectorSettings,
    ) -> Choice {
        self.in_hand += u64::from(in_hand);
        self.searches += 1;
        if now_ns.saturating_sub(self.folded_ns) >= settings.interval_ns {
            self.fold(now_ns, rtt_ns, settings);
        }
        self.active_ns += now_ns.saturating_sub(self.asked_ns).min(PAUSE_NS_MAX);
        self.asked_ns = now_ns;
        let choice = self.draw(draw, reads_ratio);
        let path = choice.path();
        let (taken, left) = if path == SearchPath::Server { (0, 1) } else { (1, 0) };
        if path == SearchPath::OneSided {
            let follow = if matches!(choice, Choice::Estimated(_)) { self.followers() } else { 0 };
            self.decided = self.decided.saturating_add(1 + follow);
        }
        self.taken_ns[taken] = self.active_ns;
        self.since_taken[taken] = 0;
        self.since_taken[left] = self.since_taken[left].saturating_add(1);
        choice
    }

    /// How many searches of the same kind may follow a choice that was estimated.
    pub(crate) fn followers(&self) -> u32 {
        let worse = self.share_explored.min(1.0 - self.share_explored);
        if self.is_known && worse < FOLLOWED_SHARE_MAX { FOLLOWERS } else { 0 }
    }

    /// So many did not follow their decision after all.
    pub(crate) fn on_not_followed(&mut self, path: SearchPath, searches: u32) {
        if path == SearchPath::OneSided {
            self.decided = self.decided.saturating_sub(searches);
        }
    }

    fn draw(&mut self, draw: f64, reads_ratio: f64) -> Choice {
        if !self.is_known {
            return Choice::Unknown(self.first(draw));
        }
        if self.run.left == 0 || self.active_ns - self.run.began_ns > RUN_NS_MAX {
            self.begin_run(draw);
        }
        self.run.left -= 1;
        self.run.changing = self.run.changing.saturating_sub(1);
        match self.run.rested {
            Some(path) => Choice::Explored(path),
            None => self.at(self.run.draw, reads_ratio),
        }
    }

    fn begin_run(&mut self, draw: f64) {
        let rested = self.rested_path();
        let path = rested.unwrap_or_else(|| self.at(draw, 1.0).path());
        let left = whole_count(self.run_in_hand() * self.in_hand_mean).max(1);
        let changing = match self.run.path {
            Some(before) if before != path && left > 1 => whole_count(CHANGE_IN_HAND * self.in_hand_mean),
            _ => self.run.changing,
        };
        self.run = Run { left, draw, began_ns: self.active_ns, rested, path: Some(path), changing };
    }

    /// Whether a search by this path that is done now counts: it was not among the first after a change.
    fn is_measured(&self, path: SearchPath) -> bool {
        self.run.changing == 0 || self.run.path != Some(path)
    }

    /// A path that was not taken for so long that it is taken now.
    fn rested_path(&self) -> Option<SearchPath> {
        [SearchPath::Server, SearchPath::OneSided].into_iter().enumerate().find_map(|(at, path)| {
            let long_ago = self.active_ns - self.taken_ns[at] >= self.explore_after_ns[at];
            (long_ago && self.since_taken[at] >= EXPLORE_EVERY_SEARCHES).then_some(path)
        })
    }

    fn at(&self, draw: f64, reads_ratio: f64) -> Choice {
        let (mut share, mut explored) = (self.share, self.share_explored);
        if self.followers() > 0 {
            // One draw is for all that follow it.
            let of_all = |share: f64| {
                let worse = share.min(1.0 - share) * f64::from(1 + FOLLOWERS);
                if share < 0.5 { worse } else { 1.0 - worse }
            };
            (share, explored) = (of_all(share), of_all(explored));
        }
        if (reads_ratio - 1.0).abs() > 0.05 {
            share = share_of(self.odds + MEGANODE_WEIGHT * reads_ratio.ln());
            explored = share.clamp(explored.min(1.0 - explored), explored.max(1.0 - explored));
        }
        let path_at = |share: f64| if draw < share { SearchPath::Server } else { SearchPath::OneSided };
        if path_at(share) == path_at(explored) {
            Choice::Estimated(path_at(explored))
        } else {
            Choice::Explored(path_at(explored))
        }
    }

    /// Before both paths are known: the server, and now and then the reads.
    fn first(&self, draw: f64) -> SearchPath {
        let lacks_reads = self.one_sided.samples() < SAMPLES_MIN;
        let lacks_server = self.server.samples() < SAMPLES_MIN;
        let reads_share = match (lacks_reads, lacks_server) {
            (true, false) => FIRST_SAMPLES_SHARE,
            (false, true) => 1.0 - FIRST_SAMPLES_SHARE,
            _ => 0.5,
        };
        let is_first = self.server.samples() == 0 && self.one_sided.samples() == 0;
        if is_first || draw >= reads_share { SearchPath::Server } else { SearchPath::OneSided }
    }

    /// An interval is over.
    fn fold(&mut self, now_ns: u64, rtt_ns: f64, settings: &SelectorSettings) {
        if self.server.count() + self.one_sided.count() < INTERVAL_SAMPLES_MIN
            || self.server.samples() < SAMPLES_MIN
            || self.one_sided.samples() < SAMPLES_MIN
        {
            return;
        }
        self.folded_ns = now_ns;
        self.server.fold();
        self.one_sided.fold();
        self.read.fold();
        let (server_ns, one_sided_ns) = self.costs(rtt_ns, settings);
        (self.in_hand, self.searches, self.reads, self.in_place) = (0, 0, 0, 0);
        (self.done, self.decided, self.lost_ns) = (0, 0, 0);
        self.explore_after_ns = [&self.server, &self.one_sided].map(|path| {
            // With an exploration of 0: the longest.
            let every_ns = self.run_ns(path.mean_ns().unwrap_or(0.0)) / settings.exploration;
            whole_ns(every_ns).clamp(EXPLORE_EVERY_NS, EXPLORE_EVERY_NS_MAX)
        });
        let pull = (one_sided_ns / server_ns).ln();
        if self.is_known {
            self.move_odds(pull);
        } else {
            (self.is_known, self.odds, self.step) =
                (true, pull.clamp(-FIRST_ODDS_MAX, FIRST_ODDS_MAX), STEP_MAX / 2.0);
        }
        self.share = share_of(self.odds);
        // What is lost is a part of the time: the worse path is taken the more seldom the worse it is.
        let part = settings.exploration;
        let worse = (server_ns / one_sided_ns).min(one_sided_ns / server_ns);
        let explored = (part * worse / (1.0 - worse).max(EXPLORE_LOSS_MIN)).min(0.5);
        self.share_explored = self.share.clamp(explored, 1.0 - explored);
    }

    /// Searches of a run for each other operation in hand, none for long searches.
    fn run_in_hand(&self) -> f64 {
        let latency_ns = |path: &PathCost| path.mean_ns().unwrap_or(0.0);
        let shorter_ns = latency_ns(&self.server).min(latency_ns(&self.one_sided));
        if shorter_ns > LONG_SEARCH_NS * (1.0 + self.in_hand_mean) { 0.0 } else { RUN_IN_HAND }
    }

    /// How long a run of searches of this latency takes.
    fn run_ns(&self, latency_ns: f64) -> f64 {
        let in_turn = self.run_in_hand() * self.in_hand_mean / (1.0 + self.in_hand_mean);
        latency_ns.max((latency_ns * in_turn).min(RUN_NS_MAX as f64))
    }

    /// What a search costs on either path.
    fn costs(&mut self, rtt_ns: f64, settings: &SelectorSettings) -> (f64, f64) {
        let in_hand = self.in_hand as f64 / f64::from(self.searches.max(1));
        self.in_hand_mean = in_hand;
        if self.done > 0 {
            let done = f64::from(self.done);
            self.reads_mean = self.reads as f64 / done;
            self.is_in_place = 2.0 * f64::from(self.in_place) > done;
        }
        let count = f64::from(self.decided);
        let fresh_ns = self.lost_ns as f64 / count.max(1.0);
        self.lost_mean_ns += (fresh_ns - self.lost_mean_ns) * count / (count + LOST_MEMORY);
        let mean_ns = |cost: &PathCost| cost.mean_ns().unwrap_or(0.0);
        let (server_ns, one_sided_ns) = (mean_ns(&self.server), mean_ns(&self.one_sided));
        if self.is_in_place {
            // No queue, and the client does nothing else meanwhile.
            return (server_ns, one_sided_ns * (1.0 + in_hand) + self.lost_mean_ns);
        }
        // An idle server's search takes its processor's time besides the way there and back.
        let lowest_ns = self.server.lowest_ns().map_or(rtt_ns, |lowest_ns| lowest_ns as f64);
        let lowest_ns = lowest_ns.clamp(rtt_ns, SERVER_RTTS_MAX * rtt_ns);
        let own = 1.0 + OWN_WAIT * in_hand;
        let wait_ns = |mean_ns: f64, lowest_ns: f64| (mean_ns - QUEUE_FROM * own * lowest_ns).max(0.0);
        let weight = settings.wait_weight - 1.0;
        let read_cpu_ns = settings.read_cpu_ns.min(READ_CPU_PART_MAX * rtt_ns);
        let reads_wait_ns = self.reads_mean * weight * wait_ns(mean_ns(&self.read), rtt_ns);
        let processor_ns = in_hand * (self.reads_mean - READS_AS_A_MESSAGE).max(0.0) * read_cpu_ns;
        let one_sided_ns = one_sided_ns + self.lost_mean_ns + reads_wait_ns + processor_ns;
        (server_ns + weight * wait_ns(server_ns, lowest_ns), one_sided_ns)
    }

    fn move_odds(&mut self, pull: f64) {
        let direction = pull.signum();
        let factor = if direction == self.direction { STEP_GROWTH } else { STEP_SHRINKAGE };
        self.step = (self.step * factor).clamp(STEP_MIN, STEP_MAX);
        self.direction = direction;
        self.odds = (self.odds + self.step * pull.clamp(-1.0, 1.0)).clamp(-ODDS_MAX, ODDS_MAX);
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast of a float saturates")]
fn whole_ns(ns: f64) -> u64 {
    ns as u64
}

fn whole_count(count: f64) -> u32 {
    u32::try_from(whole_ns(count)).unwrap_or(u32::MAX)
}

fn share_of(odds: f64) -> f64 {
    1.0 / (1.0 + (-odds).exp())
}
