//! What a drill says at its end: a verdict with its reasons, for people and as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use cell_terms::text::counted;
use serde_json::{Value, json};

use crate::fault::FaultKind;
use crate::journal::{Tally, Wait};
use crate::keys::Keys;
use crate::proof::DrillProof;
use crate::timeline::{DrillEvent, Moment, Timeline};

/// Writes to the pairs that the node owned below which nothing is shown.
const WRITES_MIN: u64 = 20;

/// How a drill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DrillVerdict {
    /// Nothing acknowledged was lost, nothing stale was read, and everything is served again.
    Pass,
    /// Something is wrong.
    Fail,
    /// Nothing is wrong, but too little happened to say so.
    Inconclusive,
}

impl DrillVerdict {
    /// Its word.
    pub fn word(self) -> &'static str {
        match self {
            DrillVerdict::Pass => "PASS",
            DrillVerdict::Fail => "FAIL",
            DrillVerdict::Inconclusive => "INCONCLUSIVE",
        }
    }
}

/// Times that clients waited, of keys that were asked for while the fault and its consequences lasted.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Unavailable {
    /// The longest wait of the key that waited longest.
    pub max_ms: f64,
    /// Of a hundred keys, one waited longer than this.
    pub p99_ms: f64,
    /// Keys that were asked for.
    pub keys: u64,
    /// Writes to pairs that the node owned which were started or still under way, and which somebody, in the
    /// end, acknowledged: the node itself before it was noticed, a survivor, or the node's next life.
    pub writes: u64,
    /// Where the drill's keys lay.
    pub spread: Spread,
    /// The operations that took longest: key, what it was, milliseconds.
    pub slowest: Vec<(Vec<u8>, String, f64)>,
}

/// Operations that are named as the slowest.
const SLOWEST: usize = 5;

impl Unavailable {
    /// Of operations that overlap a time, on CLOCK_BOOTTIME; `is_victims` says of a pair whether the node
    /// owned it.
    pub(crate) fn within(
        waits: &[Wait],
        from_ns: u64,
        to_ns: u64,
        is_victims: &dyn Fn(u32) -> bool,
        keys: &Keys,
    ) -> Unavailable {
        let mut longest: std::collections::BTreeMap<&[u8], u64> = std::collections::BTreeMap::new();
        let mut writes = 0;
        let overlaps = |wait: &&Wait| wait.ended_ns >= from_ns && wait.started_ns <= to_ns;
        let time = |wait: &Wait| wait.ended_ns.saturating_sub(wait.started_ns.max(from_ns));
        let mut patient = Vec::new();
        for wait in waits.iter().filter(overlaps) {
            writes += u64::from(wait.written_to.is_some_and(is_victims));
            if !wait.impatient {
                let of_key = longest.entry(&wait.key).or_default();
                *of_key = (*of_key).max(time(wait));
                patient.push(wait);
            }
        }
        patient.sort_unstable_by_key(|wait| std::cmp::Reverse(time(wait)));
        patient.truncate(SLOWEST);
        let mut sorted: Vec<u64> = longest.into_values().collect();
        sorted.sort_unstable();
        let ms = |ns: Option<&u64>| hundredths(ns.copied().unwrap_or(0) / 10_000);
        let at = (sorted.len() * 99).div_ceil(100).saturating_sub(1);
        Unavailable {
            max_ms: ms(sorted.last()),
            p99_ms: ms(sorted.get(at)),
            keys: sorted.len() as u64,
            writes,
            spread: Spread::of(waits, keys),
            slowest: patient
                .iter()
                .map(|wait| (wait.key.clone(), wait.words(), ms(Some(&time(wait)))))
                .collect(),
        }
    }
}

/// Where the keys of a drill lie, as far as its acknowledged writes tell, those before the fault among them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Pairs with keys.
    pub pairs: BTreeSet<u32>,
    /// Whether a key at each of the drill's stems was written: no other pair has any then.
    pub is_whole: bool,
}

impl Spread {
    pub(crate) fn of(waits: &[Wait], keys: &Keys) -> Spread {
        let written = waits.iter().filter_map(|wait| Some((keys.stem_of(&wait.key)?, wait.written_to?)));
        let (stems, pairs): (BTreeSet<&[u8]>, BTreeSet<u32>) = written.unzip();
        Spread { pairs, is_whole: keys.stems().iter().all(|stem| stems.contains(&stem[..])) }
    }
}

/// A number of hundredths.
#[allow(clippy::cast_precision_loss, reason = "a drill lasts seconds")]
fn hundredths(number: u64) -> f64 {
    number as f64 / 100.0
}

/// Everything that a drill found.
pub struct Report {
    /// The fault.
    pub fault: FaultKind,
    /// The node that it was done to.
    pub node: u16,
    /// By how much a slow disk was slower; none of other faults.
    pub delay: Option<Duration>,
    /// The drill's number, as in its keys.
    pub run: u64,
    /// What happened.
    pub timeline: Timeline,
    /// What was done.
    pub tally: Tally,
    /// How long it was not.
    pub unavailable: Unavailable,
    /// What was found; none if the cluster could not be read any more.
    pub proof: Option<DrillProof>,
    /// Why the cluster could not be read, or did not come back.
    pub troubles: Vec<String>,
    /// Entries of the drill that are still in the store, at most; `cell drill clean` removes them.
    pub entries_left: u64,
}

impl Report {
    /// The verdict.
    pub fn verdict(&self) -> DrillVerdict {
        match &self.proof {
            None => DrillVerdict::Fail,
            Some(proof) if proof.has_failed() || !self.troubles.is_empty() => DrillVerdict::Fail,
            Some(proof) if !self.doubts(proof).is_empty() => DrillVerdict::Inconclusive,
            Some(_) => DrillVerdict::Pass,
        }
    }

    /// Why nothing would have been found, had it been wrong.
    fn doubts(&self, proof: &DrillProof) -> Vec<String> {
        let mut doubts = Vec::new();
        if proof.undecided > 0 {
            let keys = counted(proof.undecided, "key", "keys");
            doubts.push(format!("{keys} whose history is too wide to be decided"));
        }
        if self.timeline.owned() == 0 {
            let next = self.timeline.busiest(|_| true).map_or(String::new(), |(node, pairs)| {
                let pairs = counted(pairs as u64, "pair", "pairs");
                format!("; drill node {node}, which owned {pairs}")
            });
            doubts.push(format!("the node owned no pair: its loss shows nothing{next}"));
        }
        if self.tally.writes == 0 {
            doubts.push("no write was acknowledged at all: nothing could be lost".to_owned());
        } else if proof.acknowledged == 0 {
            // Keys that several clients write have a history alone.
            doubts.push("no acknowledged key was read back: nothing lost would have been found".to_owned());
        }
        let writes = self.unavailable.writes;
        // Of a node without pairs there is none, at whatever rate.
        if writes < WRITES_MIN && self.timeline.owned() > 0 {
            doubts.push(self.few_writes(writes));
        }
        if proof.strayed > 0 {
            let keys = counted(proof.strayed, "key", "keys");
            doubts.push(format!("{keys} read back by its server where one-sided search was to find them"));
        }
        doubts
    }

    /// Why there were so few, and what helps.
    fn few_writes(&self, writes: u64) -> String {
        let Spread { pairs, is_whole } = &self.unavailable.spread;
        if !is_whole || pairs.iter().any(|pair| self.timeline.has_owned(*pair)) {
            let writes = counted(writes, "write", "writes");
            return format!(
                "{writes} to the pairs acknowledged during the fault, {WRITES_MIN} are needed: give a higher \
                 --rate"
            );
        }
        let next =
            self.timeline.busiest(|pair| pairs.contains(&pair)).map_or(String::new(), |(node, count)| {
                let count = counted(count as u64, "pair", "pairs");
                format!("; drill node {node}, which owned {count} with such keys")
            });
        format!("no key of a drill lies in what the node owned, and no --rate changes that{next}")
    }

    /// Why it is not a pass.
    pub fn reasons(&self) -> Vec<String> {
        let mut reasons = self.troubles.clone();
        let Some(proof) = &self.proof else { return reasons };
        let counts = [
            (proof.lost, "acknowledged, and not there"),
            (proof.stale, "there with a value that was replaced or removed"),
            (proof.phantom, "that nobody wrote, or with a value that nobody wrote"),
            (proof.not_linearizable, "whose history has no order that fits what every client was answered"),
        ];
        for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
            reasons.push(format!("{} {what}", counted(count, "key", "keys")));
        }
        reasons.extend(self.doubts(proof));
        reasons
    }

    /// As one JSON object.
    pub fn to_json(&self) -> Value {
        let proof = self.proof.clone().unwrap_or_default();
        let moment = |moment: &Moment| json!({"at_ms": self.timeline.since_ms(moment.at_ns), "event": moment.event.word(), "pair": moment.pair});
        let ways: serde_json::Map<String, Value> = proof
            .ways
            .iter()
            .map(|(name, way)| {
                let counts = json!({"found": way.found, "lost": way.lost, "stale": way.stale,
                    "phantom": way.phantom});
                ((*name).to_owned(), counts)
            })
            .collect();
        let slow = |(key, what, ms): &(Vec<u8>, String, f64)| json!({"key": key.escape_ascii().to_string(), "what": what, "ms": ms});
        let named = proof
            .named
            .iter()
            .map(|(key, what)| json!({"key": key.escape_ascii().to_string(), "what": what}));
        json!({
            "drill": self.fault.word(),
            "node": (self.fault != FaultKind::Rolling).then_some(self.node),
            "delay_ms": self.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
            "run": format!("{:016x}", self.run),
            "verdict": self.verdict().word(), "reasons": self.reasons(),
            "acknowledged": proof.acknowledged, "found": proof.found, "lost": proof.lost,
            "phantom": proof.phantom, "stale": proof.stale, "unknown": self.tally.unknown,
            "not_linearizable": proof.not_linearizable, "undecided": proof.undecided,
            "histories": proof.histories, "operations": self.tally.operations,
            "writes_acknowledged": self.tally.writes, "refused": self.tally.refused,
            "writes_during_fault": self.unavailable.writes,
            "read_back_by_server": proof.strayed,
            "unavailable_ms_max": self.unavailable.max_ms, "unavailable_ms_p99": self.unavailable.p99_ms,
            "slowest": self.unavailable.slowest.iter().map(slow).collect::<Vec<_>>(),
            "pairs_owned": self.timeline.owned(), "entries_left": self.entries_left,
            "detected_ms": self.timeline.first_ms(DrillEvent::Detected),
            "lease_ended_ms": self.timeline.first_ms(DrillEvent::LeaseEnded),
            "claimed_ms": self.timeline.first_ms(DrillEvent::Claimed),
            "first_served_ms": self.timeline.first_ms(DrillEvent::Serving),
            "served_ms": self.timeline.served_ms(),
            "all_back_ms": self.timeline.first_ms(DrillEvent::AllBack),
            "replayed_bytes": self.timeline.replayed_bytes(),
            "ways": ways, "wrong": named.collect::<Vec<_>>(),
            "timeline": self.timeline.moments().iter().map(moment).collect::<Vec<_>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use cell_linearizability::Call;

    use super::*;
    use crate::wire::{PairView, Status};

    fn wait(key: u8, started_ms: u64, ended_ms: u64, impatient: bool) -> Wait {
        let ns = 1_000_000;
        Wait {
            key: vec![key],
            call: Call::Put(1),
            started_ns: started_ms * ns,
            ended_ns: ended_ms * ns,
            impatient,
            written_to: Some(u32::from(key)),
        }
    }

    /// A cluster whose node 0 owns pairs 1 to so many.
    fn owning(pairs: u32) -> Status {
        let pair = |pair| {
            let (owner, state) = (Some(5), "serving".into());
            PairView { pair, node: 0, owner, epoch: 1, state, cut_epoch: None, trouble: None, next: None }
        };
        Status { pairs: (1..=pairs).map(pair).collect(), ..Status::default() }
    }

    fn report(proof: Option<DrillProof>, writes: u64) -> Report {
        Report {
            fault: FaultKind::Kill,
            node: 0,
            delay: None,
            run: 7,
            timeline: Timeline::new(0, &owning(2), 0),
            tally: Tally { writes: 200, ..Tally::default() },
            unavailable: Unavailable { writes, ..Unavailable::default() },
            proof,
            troubles: Vec::new(),
            entries_left: 0,
        }
    }

    #[test]
    fn unavailable_counts_from_the_fault_and_patient_clients_alone() {
        let waits = [
            wait(1, 0, 5, false),         // before
            wait(1, 90, 700, false),      // from the injection on
            wait(2, 300, 340, false),     // short
            wait(2, 400, 410, false),     // shorter
            wait(3, 200, 5_000, true),    // gave up by design
            wait(4, 2_000, 9_000, false), // after
        ];
        let keys = Keys::new(7);
        let unavailable = Unavailable::within(&waits, 100_000_000, 1_000_000_000, &|_| true, &keys);
        assert_eq!((unavailable.max_ms, unavailable.p99_ms), (600.0, 600.0));
        assert_eq!((unavailable.keys, unavailable.writes), (2, 4));
        assert_eq!(unavailable.slowest[0].2, 600.0);
    }

    #[test]
    fn unavailable_counts_acknowledged_writes_to_the_victims_pairs_alone() {
        let unanswered = Wait { written_to: None, ..wait(1, 200, 300, false) };
        let read = Wait { call: Call::Get, ..unanswered.clone() };
        let waits = [
            wait(1, 200, 300, false),
            wait(2, 200, 300, false), // another node's
            wait(1, 90, 110, false),  // under way when the fault began
            wait(1, 990, 1_200, false),
            wait(1, 1_001, 1_200, false), // when all was over
            unanswered,
            read,
        ];
        let count = |is_victims: &dyn Fn(u32) -> bool| {
            Unavailable::within(&waits, 100_000_000, 1_000_000_000, is_victims, &Keys::new(7)).writes
        };
        assert_eq!((count(&|pair| pair == 1), count(&|_| false)), (3, 0));
    }

    /// A drill that has shown nothing says so, whatever was read back.
    #[test]
    fn verdict_is_inconclusive_for_each_reason_that_makes_a_pass_mean_nothing() {
        let good = DrillProof { acknowledged: 9, found: 9, ..DrillProof::default() };
        let whole = || report(Some(good.clone()), 20);
        assert_eq!((whole().verdict(), whole().reasons().len()), (DrillVerdict::Pass, 0));
        let nothing = Tally::default();
        let nobody = Timeline::new(0, &owning(0), 0);
        let elsewhere = Timeline::new(1, &owning(2), 0);
        let strayed = DrillProof { strayed: 1, ..good.clone() };
        let undecided = DrillProof { undecided: 1, ..good.clone() };
        let unread = DrillProof { acknowledged: 0, found: 0, ..good.clone() };
        let cases = [
            ("owned no pair", Report { timeline: nobody, ..whole() }),
            ("owned no pair", Report { timeline: elsewhere, ..whole() }),
            ("no write was acknowledged", Report { tally: nothing, ..whole() }),
            ("no acknowledged key", Report { proof: Some(unread), ..whole() }),
            ("19 writes", report(Some(good.clone()), 19)),
            ("0 writes", report(Some(good.clone()), 0)),
            ("read back by its server", Report { proof: Some(strayed), ..whole() }),
            ("too wide", Report { proof: Some(undecided), ..whole() }),
        ];
        for (reason, report) in cases {
            assert_eq!(report.verdict(), DrillVerdict::Inconclusive, "{reason}");
            assert!(report.reasons().iter().any(|given| given.contains(reason)), "{:?}", report.reasons());
        }
    }

    /// A cluster that was started with more nodes than its folder has owners says where a drill shows more.
    #[test]
    fn reasons_of_a_node_without_pairs_name_the_node_that_has_them() {
        let elsewhere = Timeline::new(1, &owning(2), 0);
        let good = DrillProof { acknowledged: 9, found: 9, ..DrillProof::default() };
        let report = Report { timeline: elsewhere, ..report(Some(good), 0) };
        let owned = "the node owned no pair: its loss shows nothing; drill node 0, which owned 2 pairs";
        assert_eq!(report.reasons(), [owned], "and nothing of a higher rate, which would not help");
        let nobody = Report { timeline: Timeline::new(0, &owning(0), 0), ..report };
        assert_eq!(nobody.reasons(), ["the node owned no pair: its loss shows nothing"]);
    }

    /// It asked for a higher rate, which helped as little as the one before.
    #[test]
    fn reasons_of_a_node_without_a_drills_keys_name_the_node_that_has_them() {
        // Node 0 owns pair 1, in which no drill has a key, node 1 pairs 2 and 3.
        let mut cluster = owning(3);
        cluster.pairs[1..].iter_mut().for_each(|pair| pair.node = 1);
        let keys = Keys::new(7);
        let written = |number: u64, pair: u32| Wait {
            key: keys.own(0, number),
            written_to: Some(pair),
            ..wait(0, 0, 5, false)
        };
        let elsewhere: Vec<Wait> =
            (0..62).map(|number| written(number, 2 + u32::from(number % 2 == 1))).collect();
        let said = |waits: &[Wait]| {
            let unavailable = Unavailable { spread: Spread::of(waits, &keys), ..Unavailable::default() };
            let timeline = Timeline::new(0, &cluster, 0);
            let good = DrillProof { acknowledged: 9, found: 9, ..DrillProof::default() };
            Report { timeline, unavailable, ..report(Some(good), 0) }.reasons()
        };
        let words = "no key of a drill lies in what the node owned, and no --rate changes that; drill node \
                     1, which owned 2 pairs with such keys";
        assert_eq!(said(&elsewhere), [words]);
        let higher =
            |reasons: Vec<String>| reasons.len() == 1 && reasons[0].ends_with("give a higher --rate");
        assert!(higher(said(&elsewhere[1..])), "the part that was not written may lie there");
        let some = [&elsewhere[..], &[written(0, 1)]].concat();
        assert!(higher(said(&some)), "some lie there");
    }

    #[test]
    fn verdict_of_each_case_is_reported() {
        let good = DrillProof { acknowledged: 9, found: 9, ..DrillProof::default() };
        let cases = [
            (Some(good.clone()), 100, DrillVerdict::Pass),
            (Some(good.clone()), 19, DrillVerdict::Inconclusive),
            (Some(DrillProof { undecided: 1, ..good.clone() }), 100, DrillVerdict::Inconclusive),
            (Some(DrillProof { lost: 1, ..good.clone() }), 100, DrillVerdict::Fail),
            (Some(DrillProof { stale: 1, ..good.clone() }), 0, DrillVerdict::Fail),
            (Some(DrillProof { not_linearizable: 1, ..good.clone() }), 100, DrillVerdict::Fail),
            (None, 100, DrillVerdict::Fail),
        ];
        for (proof, writes, verdict) in cases {
            let report = report(proof.clone(), writes);
            assert_eq!(report.verdict(), verdict, "{proof:?}");
            assert_eq!(report.reasons().is_empty(), verdict == DrillVerdict::Pass || proof.is_none());
        }
        let troubled = Report { troubles: vec!["it did not come back".into()], ..report(Some(good), 100) };
        assert_eq!(troubled.verdict(), DrillVerdict::Fail);
    }

    #[test]
    fn to_json_has_the_fields_that_scripts_rely_on() {
        let document = report(Some(DrillProof::default()), 0).to_json();
        let fields = "verdict acknowledged found lost phantom stale unknown unavailable_ms_max \
                      unavailable_ms_p99 detected_ms first_served_ms served_ms replayed_bytes";
        for field in fields.split_whitespace() {
            assert!(document.get(field).is_some(), "{field} is not in {document}");
        }
    }
}
