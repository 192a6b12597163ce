//! How often what was decided, and why.

use crate::decision::{Decision, Obstacle, Reason, SearchPath};

macro_rules! decisions {
    ($($field:ident: $meaning:literal;)+) => {
        /// How often what was decided: by path, and by reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Decisions {
            $(#[doc = $meaning] pub $field: u64,)+
        }

        impl Decisions {
            /// Adds those of another connection.
            pub fn add(&mut self, other: &Decisions) {
                $(self.$field += other.$field;)+
            }
        }
    };
}

decisions! {
    server: "Searches for the server.";
    one_sided: "Searches for the client.";
    estimate: "Of both, those by [`Reason::Estimate`].";
    exploration: "By [`Reason::Exploration`].";
    fixed_share: "By [`Reason::FixedShare`].";
    not_enough_samples: "By [`Reason::NotEnoughSamples`].";
    idle_reset: "By [`Reason::IdleReset`].";
    not_registered: "By [`Obstacle::NotRegistered`].";
    not_permitted: "By [`Obstacle::NotPermitted`].";
    not_trusted: "By [`Obstacle::NotTrusted`].";
}

impl Decisions {
    #[inline]
    pub(crate) fn count(&mut self, decision: Decision) {
        match decision.path {
            SearchPath::Server => self.server += 1,
            SearchPath::OneSided => self.one_sided += 1,
        }
        let by_reason = match decision.reason {
            Reason::Estimate => &mut self.estimate,
            Reason::Exploration => &mut self.exploration,
            Reason::FixedShare => &mut self.fixed_share,
            Reason::NotEnoughSamples => &mut self.not_enough_samples,
            Reason::IdleReset => &mut self.idle_reset,
            Reason::OnlyServer(Obstacle::NotRegistered) => &mut self.not_registered,
            Reason::OnlyServer(Obstacle::NotPermitted) => &mut self.not_permitted,
            Reason::OnlyServer(Obstacle::NotTrusted) => &mut self.not_trusted,
        };
        *by_reason += 1;
    }

    /// Counts a decision by the estimates.
    #[inline]
    pub(crate) fn count_estimate(&mut self, path: SearchPath) -> Decision {
        let decision = Decision { path, reason: Reason::Estimate };
        self.count(decision);
        decision
    }

    /// Of those for the server, those that only it could do.
    #[must_use]
    pub fn only_server(&self) -> u64 {
        self.not_registered + self.not_permitted + self.not_trusted
    }

    /// Share of the searches that went to the server.
    #[must_use]
    pub fn server_share(&self) -> Option<f64> {
        let all = self.server + self.one_sided;
        (all > 0).then(|| self.server as f64 / all as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_each_reason_is_one_path_and_one_reason() {
        let mut decisions = Decisions::default();
        let reasons = [
            Reason::Estimate,
            Reason::Exploration,
            Reason::FixedShare,
            Reason::NotEnoughSamples,
            Reason::IdleReset,
            Reason::OnlyServer(Obstacle::NotRegistered),
            Reason::OnlyServer(Obstacle::NotPermitted),
            Reason::OnlyServer(Obstacle::NotTrusted),
        ];
        for reason in reasons {
            decisions.count(Decision { path: SearchPath::Server, reason });
        }
        decisions.count(Decision { path: SearchPath::OneSided, reason: Reason::Estimate });
        let one_each = Decisions {
            server: 8,
            one_sided: 1,
            estimate: 2,
            exploration: 1,
            fixed_share: 1,
            not_enough_samples: 1,
            idle_reset: 1,
            not_registered: 1,
            not_permitted: 1,
            not_trusted: 1,
        };
        assert_eq!((decisions, decisions.only_server()), (one_each, 3));
    }
}
