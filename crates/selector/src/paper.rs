//! The paper's rule: join the shorter queue.

use crate::decision::SearchPath;
use crate::settings::SelectorSettings;
use crate::window::Window;

/// What is known of a connection.
#[derive(Clone, Debug)]
pub(crate) struct PaperRule {
    /// `l_s`.
    pub(crate) server: Window,
    /// `l_r`.
    pub(crate) read: Window,
}

impl PaperRule {
    pub(crate) fn new(settings: &SelectorSettings) -> PaperRule {
        let window = Window::new(settings.samples, settings.outlier_deviations);
        PaperRule { server: window.clone(), read: window }
    }

    pub(crate) fn clear(&mut self) {
        self.server.clear();
        self.read.clear();
    }

    /// The path of the shorter queue, or the one that lacks samples (`Err`). `rtt_ns` is the lowest read
    /// latency seen, `reads` is `m`.
    pub(crate) fn choose(&self, rtt_ns: f64, reads: f64) -> Result<SearchPath, SearchPath> {
        let server_ns = self.server.mean().ok_or(SearchPath::Server)?;
        let read_ns = self.read.mean().ok_or(SearchPath::OneSided)?;
        if server_ns - rtt_ns < reads * (read_ns - rtt_ns) {
            Ok(SearchPath::Server)
        } else {
            Ok(SearchPath::OneSided)
        }
    }
}
