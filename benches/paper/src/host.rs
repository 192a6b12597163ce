//! A machine that clients share with their server: its cores, the threads that take turns on them, and what a
//! round trip takes of whom.

use std::collections::VecDeque;

use cell_selector::SearchPath;

/// A thread that takes a smaller part of a round trip than this has no part in it: it only looks now and then
/// whether there is something to do.
const PART_MIN: f64 = 0.01;

/// What a message and its answer take, or a read, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct RoundTrip {
    /// Processor time of the client's thread, half of it before and half of it after the way.
    pub(crate) client_ns: f64,
    /// Processor time of the server's thread that answers; none where no thread does.
    pub(crate) server_ns: f64,
    /// What passes while neither of them works; below zero if both work at the same time.
    pub(crate) way_ns: f64,
}

impl RoundTrip {
    /// What is left of the whole is the way.
    pub(crate) fn new(whole_ns: f64, client_ns: f64, server_ns: f64) -> RoundTrip {
        let client_ns = client_ns.min(whole_ns);
        let server_ns = if server_ns < PART_MIN * whole_ns { 0.0 } else { server_ns };
        RoundTrip { client_ns, server_ns, way_ns: whole_ns - client_ns - server_ns }
    }

    /// There, or back.
    pub(crate) fn way_each_ns(&self) -> f64 {
        self.way_ns.max(0.0) / 2.0
    }

    /// So long before the end of the server's work its answer leaves.
    pub(crate) fn early_ns(&self) -> f64 {
        (-self.way_ns).max(0.0)
    }
}

/// Clients and one server on one machine, which do searches alone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Host {
    /// What all threads share.
    pub(crate) cores: usize,
    /// A search by the server.
    pub(crate) message: RoundTrip,
    /// One read of a one-sided search; in place, all of it, which is the client's work.
    pub(crate) read: RoundTrip,
    /// Whether clients search in memory that they have mapped, without reads.
    pub(crate) is_in_place: bool,
}

impl Host {
    pub(crate) fn trip(&self, path: SearchPath) -> &RoundTrip {
        match path {
            SearchPath::Server => &self.message,
            SearchPath::OneSided => &self.read,
        }
    }

    /// Whether a search by this path is the client's work alone.
    pub(crate) fn is_alone(&self, path: SearchPath) -> bool {
        self.is_in_place && path == SearchPath::OneSided
    }
}

/// Work of a thread, and the event that follows from it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Job {
    pub(crate) slot: usize,
    pub(crate) work_ns: f64,
    /// The event comes so long after the work's end.
    pub(crate) after_ns: f64,
    pub(crate) event: u8,
    /// Whether it sends a message or a read, or searches: latencies count from its begin.
    pub(crate) posts: bool,
}

/// Cores, and the threads that take turns on them. A thread does one job after the other, and each to its
/// end; then the thread that has waited longest comes next.
#[derive(Clone, Debug)]
pub(crate) struct Cores {
    idle: usize,
    waiting: VecDeque<usize>,
    /// By thread; the first one is done now, or waits for a core.
    jobs: Vec<VecDeque<Job>>,
}

impl Cores {
    pub(crate) fn new(cores: usize, threads: usize) -> Cores {
        Cores { idle: cores, waiting: VecDeque::new(), jobs: vec![VecDeque::new(); threads] }
    }

    /// One more job of a thread.
    pub(crate) fn add(&mut self, thread: usize, job: Job) {
        self.jobs[thread].push_back(job);
        if self.jobs[thread].len() == 1 {
            self.waiting.push_back(thread);
        }
    }

    /// The job that begins now, and whose; none while no core is idle or nobody waits.
    pub(crate) fn begin(&mut self) -> Option<(usize, Job)> {
        if self.idle == 0 {
            return None;
        }
        let thread = self.waiting.pop_front()?;
        self.idle -= 1;
        Some((thread, self.jobs[thread][0]))
    }

    /// A thread's job is done.
    pub(crate) fn end(&mut self, thread: usize) {
        self.idle += 1;
        self.jobs[thread].pop_front();
        if !self.jobs[thread].is_empty() {
            self.waiting.push_back(thread);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(slot: usize) -> Job {
        Job { slot, work_ns: 1.0, after_ns: 0.0, event: 0, posts: false }
    }

    #[test]
    fn threads_take_turns_and_each_does_its_jobs_in_order() {
        let mut cores = Cores::new(1, 3);
        for (thread, slot) in [(0, 10), (0, 11), (1, 20), (2, 30)] {
            cores.add(thread, job(slot));
        }
        let mut done = Vec::new();
        while let Some((thread, job)) = cores.begin() {
            assert_eq!(cores.begin(), None, "the one core is taken");
            done.push(job.slot);
            cores.end(thread);
        }
        assert_eq!(done, [10, 20, 30, 11]);
    }

    #[test]
    fn a_thread_has_one_core_at_a_time() {
        let mut cores = Cores::new(2, 1);
        cores.add(0, job(1));
        cores.add(0, job(2));
        assert_eq!(cores.begin(), Some((0, job(1))));
        assert_eq!(cores.begin(), None);
        cores.end(0);
        assert_eq!(cores.begin(), Some((0, job(2))));
    }

    #[test]
    fn round_trip_is_the_whole_also_where_both_ends_work_at_the_same_time() {
        let apart = RoundTrip::new(30.0, 10.0, 12.0);
        assert_eq!((apart.way_each_ns(), apart.early_ns()), (4.0, 0.0));
        let together = RoundTrip::new(30.0, 20.0, 15.0);
        assert_eq!((together.way_each_ns(), together.early_ns()), (0.0, 5.0));
        let nobody = RoundTrip::new(30.0, 20.0, 0.1);
        assert_eq!((nobody.server_ns, nobody.way_each_ns()), (0.0, 5.0));
    }
}
