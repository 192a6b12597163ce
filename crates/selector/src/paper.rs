//! The paper's rule: join the shorter queue.

use crate::decision::{SearchKind, SearchPath};
use crate::reads_table::MeanReads;
use crate::settings::SelectorSettings;
use crate::window::Window;

/// What is known of one kind of search on a connection.
#[derive(Clone, Debug)]
struct Latencies {
    /// `l_s`.
    server: Window,
    /// `l_r`.
    read: Window,
    /// `m` of multi-gets and pages; searches of one key have theirs by meganode.
    reads: Option<MeanReads>,
}

/// What is known of a connection. The paper has one kind of search, of one key. The others have windows of
/// their own: a page takes the server as long as many keys, and is many reads.
#[derive(Clone, Debug)]
pub(crate) struct PaperRule {
    kinds: [Latencies; SearchKind::COUNT],
}

impl PaperRule {
    pub(crate) fn new(settings: &SelectorSettings) -> PaperRule {
        let window = || Window::new(settings.samples, settings.outlier_deviations);
        let kinds = std::array::from_fn(|_| Latencies { server: window(), read: window(), reads: None });
        PaperRule { kinds }
    }

    /// Drops the connection's history.
    pub(crate) fn clear(&mut self) {
        for known in &mut self.kinds {
            known.server.clear();
            known.read.clear();
            known.reads = None;
        }
    }

    /// A search by the server took so long. Section 2.5: when more samples are discarded than kept, the
    /// connection's history goes, of both paths.
    pub(crate) fn on_server(&mut self, kind: SearchKind, latency_ns: u64) {
        if !self.kinds[kind.index()].server.push(latency_ns) {
            self.clear();
        }
    }

    /// A read took so long.
    pub(crate) fn on_read(&mut self, kind: SearchKind, latency_ns: u64) {
        if !self.kinds[kind.index()].read.push(latency_ns) {
            self.clear();
        }
    }

    /// A one-sided search took so many reads.
    pub(crate) fn on_reads(&mut self, kind: SearchKind, reads: u32) {
        self.kinds[kind.index()].reads.get_or_insert_with(|| MeanReads::new(f64::from(reads))).push(reads);
    }

    /// `l_s` of a kind.
    pub(crate) fn server_ns(&self, kind: SearchKind) -> Option<f64> {
        self.kinds[kind.index()].server.mean()
    }

    /// `l_r` of a kind.
    pub(crate) fn read_ns(&self, kind: SearchKind) -> Option<f64> {
        self.kinds[kind.index()].read.mean()
    }

    /// The path of the shorter queue, or the one that lacks samples (`Err`). `rtt_ns` is the lowest read
    /// latency seen, `point_reads` is `m` of a search of one key.
    pub(crate) fn choose(
        &self,
        kind: SearchKind,
        rtt_ns: f64,
        point_reads: f64,
    ) -> Result<SearchPath, SearchPath> {
        let server_ns = self.server_ns(kind).ok_or(SearchPath::Server)?;
        let read_ns = self.read_ns(kind).ok_or(SearchPath::OneSided)?;
        let reads = match &self.kinds[kind.index()].reads {
            Some(reads) if kind != SearchKind::Point => reads.get(),
            _ => point_reads,
        };
        if server_ns - rtt_ns < reads * (read_ns - rtt_ns) {
            Ok(SearchPath::Server)
        } else {
            Ok(SearchPath::OneSided)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> PaperRule {
        PaperRule::new(&SelectorSettings::default())
    }

    #[test]
    fn kinds_are_compared_each_by_its_own_latencies_and_reads() {
        let mut rule = rule();
        for _ in 0..20 {
            rule.on_server(SearchKind::Point, 20_000);
            rule.on_server(SearchKind::Scan, 200_000);
            for kind in [SearchKind::Point, SearchKind::Scan] {
                rule.on_read(kind, 15_000);
            }
            rule.on_reads(SearchKind::Scan, 60);
        }
        // Sixty reads with 5 us of queue each: a page of 200 us is the server's, though five reads are not.
        assert_eq!(rule.choose(SearchKind::Scan, 10_000.0, 5.0), Ok(SearchPath::Server));
        assert_eq!(rule.choose(SearchKind::Point, 10_000.0, 1.0), Ok(SearchPath::OneSided));
        assert_eq!(rule.choose(SearchKind::MultiGet, 10_000.0, 5.0), Err(SearchPath::Server));
    }

    #[test]
    fn more_outliers_than_samples_on_one_path_drop_both_histories() {
        let mut rule = rule();
        for at in 0..100 {
            rule.on_server(SearchKind::Point, 20_000 + at % 7);
            rule.on_read(SearchKind::Point, 15_000 + at % 7);
        }
        for _ in 0..100 {
            rule.on_read(SearchKind::Point, 900_000);
            if rule.server_ns(SearchKind::Point).is_none() {
                return;
            }
        }
        panic!("the history of the server's path was kept");
    }
}
