//! Waits that are cut short by what has become known since they began. None gets longer.
//!
//! | what becomes known | what waits | at most so long from then on |
//! |---|---|---|
//! | the cluster's settings have other waits | all | as long as by those, after as many failures |
//! | the region table has changed | connections (what waits for an owner is routed) | as after one failure |
//! | the same | the next question for registrations that are looked for | as after one answer without them |
//! | a client without servers is welcomed | connections, what waits for an owner, the session | the same |
//!
//! What was refused because its server is busy is not touched by table and welcome: they do not say that it
//! is less so.

use crate::client_core::ClientCore;

/// How many failures count at most, where everything may be well again.
const FAILED_ONCE: u32 = 1;

impl ClientCore {
    /// Other settings are in force.
    pub(crate) fn shorten_all_waits(&mut self, now_ns: u64) {
        let ClientCore { pending, backoff, random, .. } = self;
        pending.shorten_waits(|waits| now_ns.saturating_add(backoff.wait_ns(waits.backoffs, random)));
        self.shorten_waits_of_connections(now_ns, u32::MAX);
        self.session.shorten_wait(now_ns, u32::MAX, &self.backoff, &mut self.random);
    }

    /// The region table has changed: a node that it names may be another one than before.
    pub(crate) fn on_new_table(&mut self, now_ns: u64) {
        self.shorten_waits_of_connections(now_ns, FAILED_ONCE);
        self.reader.iter_mut().for_each(|reader| reader.on_new_table());
    }

    /// The client had no server, and has one again.
    pub(crate) fn on_contact(&mut self, now_ns: u64) {
        let ClientCore { pending, backoff, random, .. } = self;
        pending.shorten_waits(|waits| {
            if waits.waits_for_owner() {
                now_ns.saturating_add(backoff.wait_ns(FAILED_ONCE, random))
            } else {
                u64::MAX
            }
        });
        self.shorten_waits_of_connections(now_ns, FAILED_ONCE);
        self.session.shorten_wait(now_ns, FAILED_ONCE, &self.backoff, &mut self.random);
    }

    fn shorten_waits_of_connections(&mut self, now_ns: u64, failed_max: u32) {
        for (_, link) in self.links.iter_mut() {
            link.connection.shorten_wait(now_ns, failed_max, &mut self.random);
        }
    }
}
