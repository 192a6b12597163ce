//! When the last batch of a log is sealed, and up to where that proves the log whole.

use std::time::Duration;

use cell_terms::Csn;

/// What a pair's log knows of its seals.
#[derive(Debug)]
pub(crate) struct Sealing {
    /// The highest watermark that a durable frame carries.
    csn: Csn,
    /// The last batch has no seal behind it.
    open: bool,
    /// Somebody waits until it is proved up to here: the idle time does not count.
    csn_wanted: Csn,
    idle_since: Option<Duration>,
}

impl Sealing {
    /// Of a log that follows this cut, which is recorded.
    pub(crate) const fn new(cut: Csn) -> Sealing {
        Sealing { csn: cut, open: false, csn_wanted: cut, idle_since: None }
    }

    /// Damage at or below is found; above, it looks like a torn write.
    pub(crate) const fn csn(&self) -> Csn {
        self.csn
    }

    pub(crate) fn want(&mut self, upto: Csn) {
        self.csn_wanted = self.csn_wanted.max(upto);
    }

    /// Whether somebody waits for a seal that no frame has served for.
    pub(crate) fn is_wanted(&self) -> bool {
        self.csn_wanted > self.csn
    }

    /// Frames that carry this watermark are durable.
    pub(crate) const fn proves(&mut self, watermark: Csn) {
        self.csn = watermark;
    }

    /// A batch is durable, and nothing stands behind it yet.
    pub(crate) const fn batch_ended(&mut self) {
        (self.open, self.idle_since) = (true, None);
    }

    /// The seal is on its way.
    pub(crate) const fn seals(&mut self) {
        (self.open, self.idle_since) = (false, None);
    }

    /// Whether the last batch is unsealed.
    pub(crate) const fn is_open(&self) -> bool {
        self.open
    }

    /// Whether an idle log is to be sealed now; it is idle from the first look on.
    pub(crate) fn is_due(&mut self, now: Duration, idle: Duration) -> bool {
        let since = *self.idle_since.get_or_insert(now);
        self.is_wanted() || now.saturating_sub(since) >= idle
    }

    /// How long until an idle log is to be sealed.
    pub(crate) fn due(&self, now: Duration, idle: Duration) -> Duration {
        if self.is_wanted() {
            return Duration::ZERO;
        }
        idle.saturating_sub(self.idle_since.map_or(Duration::ZERO, |since| now.saturating_sub(since)))
    }
}
