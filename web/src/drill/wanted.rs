//! What a request wants of a drill: its fields, their bounds, and what is wrong with them.

use std::time::Duration;

use axum::http::StatusCode;
use cell_client::ClientOptions;
use cell_drill::{DELAY_MS, DELAY_MS_DEFAULT, Drill, FaultKind, Load, Supervisors};
use serde_json::{Map, Value, json};

use crate::clock::milliseconds;
use crate::problem::{FieldProblem, Problem};

/// How long everything may take to be back once the fault is over.
const PATIENCE: Duration = Duration::from_secs(60);
/// Nodes of a cluster, at most.
const NODES_MAX: u64 = 1_024;

/// A field that is a whole number.
struct NumberField {
    name: &'static str,
    min: u64,
    max: u64,
    default: u64,
    unit: Option<&'static str>,
    meaning: &'static str,
}

const BEFORE_MS: NumberField = NumberField {
    name: "before_ms",
    min: 0,
    max: 60_000,
    default: 2_000,
    unit: Some("ms"),
    meaning: "Traffic before the fault.",
};
const THREADS: NumberField = NumberField {
    name: "threads",
    min: 1,
    max: 16,
    default: 4,
    unit: None,
    meaning: "Clients; every second one searches the servers' memory itself.",
};
const RATE: NumberField = NumberField {
    name: "rate",
    min: 1,
    max: 20_000,
    default: 2_000,
    unit: Some("operations/s"),
    meaning: "Operations a second, all clients together.",
};
const DELAY: NumberField = NumberField {
    name: "delay_ms",
    min: *DELAY_MS.start(),
    max: *DELAY_MS.end(),
    default: DELAY_MS_DEFAULT,
    unit: Some("ms"),
    meaning: "How much longer each write and sync of the node's logs takes.",
};
/// Operations of a drill, at most: its ledger has a line for each, and is read back in memory.
const OPERATIONS_MAX: u64 = 10_000_000;
const _: () = {
    let seconds = (BEFORE_MS.max + DOWN_MS_MAX) / 1_000 + PATIENCE.as_secs();
    assert!(RATE.max * seconds <= OPERATIONS_MAX, "the traffic lasts until all is back");
};
/// Longest fault.
const DOWN_MS_MAX: u64 = 60_000;
const KEEP: &str = "keep";
/// The field that names the preview that was seen.
pub(crate) const PREVIEW: &str = "preview";
const COMMON: [NumberField; 3] = [BEFORE_MS, THREADS, RATE];

/// How long a fault lasts; none of what is over when it is over.
fn down_ms(kind: FaultKind) -> Option<NumberField> {
    let (min, meaning) = match kind {
        FaultKind::Restart | FaultKind::Rolling => return None,
        FaultKind::Kill => (0, "How long no process follows."),
        FaultKind::Stop | FaultKind::Partition | FaultKind::PartitionIn | FaultKind::PartitionOut => {
            (100, "How long it lasts; past the lease, others take over.")
        }
        FaultKind::SlowDisk => (100, "How long it lasts; nobody takes over."),
    };
    Some(NumberField { name: "down_ms", min, max: DOWN_MS_MAX, default: 3_000, unit: Some("ms"), meaning })
}

/// By how much a fault makes a disk slower; none of the others.
fn delay_ms(kind: FaultKind) -> Option<NumberField> {
    (kind == FaultKind::SlowDisk).then_some(DELAY)
}

/// The parameters of a kind, by name, for people and programs.
pub(crate) fn parameters(kind: FaultKind) -> Value {
    let describe = |field: NumberField| {
        let NumberField { name, min, max, default, unit, meaning } = field;
        let bounds = json!({"min": min, "max": max, "default": default, "unit": unit, "meaning": meaning});
        (name.to_owned(), bounds)
    };
    let mut all: Map<String, Value> =
        down_ms(kind).into_iter().chain(delay_ms(kind)).chain(COMMON).map(describe).collect();
    let meaning = "The drill's entries stay in the store; without it a drill that passes removes them.";
    all.insert(KEEP.to_owned(), json!({"default": false, "meaning": meaning}));
    Value::Object(all)
}

/// A drill that is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DrillWanted {
    pub(crate) kind: FaultKind,
    /// The node that it is done to.
    pub(crate) node: u16,
    lasts: Option<Duration>,
    delay: Duration,
    before: Duration,
    threads: u16,
    rate: u32,
    keep: bool,
    /// Who wants it.
    pub(crate) who: String,
    /// The revision of the preview that they have seen.
    pub(crate) preview: Option<String>,
}

impl DrillWanted {
    /// Out of the body of a request, of which nothing may be left. The node's name must be typed: a program
    /// that writes it did so on purpose, too.
    pub(crate) fn parse(body: Map<String, Value>) -> Result<DrillWanted, Problem> {
        let mut fields = Fields { body, errors: Vec::new() };
        let (kind, node, confirm) = (fields.kind(), fields.node(), fields.text("confirm"));
        let lasts = match kind.and_then(down_ms) {
            Some(field) => Some(Duration::from_millis(fields.number(&field))),
            None => fields.no_length(kind),
        };
        let delay = match kind {
            Some(FaultKind::SlowDisk) | None => Duration::from_millis(fields.number(&DELAY)),
            Some(kind) => fields.no_delay(kind),
        };
        let before = Duration::from_millis(fields.number(&BEFORE_MS));
        let threads = u16::try_from(fields.number(&THREADS)).unwrap_or(u16::MAX);
        let rate = u32::try_from(fields.number(&RATE)).unwrap_or(u32::MAX);
        let keep = fields.flag(KEEP);
        let preview = fields.text(PREVIEW);
        let errors = fields.end();
        let (Some(kind), Some(node), []) = (kind, node, errors.as_slice()) else {
            return Err(invalid(errors));
        };
        if confirm.as_deref() != Some(&*name_of(node)) {
            return Err(not_confirmed(node));
        }
        let who = String::new();
        Ok(DrillWanted { kind, node, lasts, delay, before, threads, rate, keep, who, preview })
    }

    /// By how much the disk is to be slower.
    pub(crate) fn delay_ms(&self) -> u64 {
        milliseconds(self.delay)
    }

    /// The drill itself, whose faults they do.
    pub(crate) fn drill(&self, at: Supervisors) -> Drill {
        // The deadline bounds tries, as with every command.
        let options =
            ClientOptions { name: "drill".to_owned(), retries_max: u32::MAX, ..ClientOptions::default() };
        Drill {
            at,
            fault: self.kind,
            node: self.node,
            lasts: self.lasts,
            delay: self.delay,
            before: self.before,
            patience: PATIENCE,
            load: Load { threads: self.threads, rate: self.rate },
            options,
            keep: self.keep,
            claim: None,
        }
    }
}

/// What is typed to confirm.
pub(crate) fn name_of(node: impl std::fmt::Display) -> String {
    format!("node-{node}")
}

fn not_confirmed(node: u16) -> Problem {
    let name = name_of(node);
    let error = FieldProblem {
        pointer: "/confirm".to_owned(),
        detail: format!("it must be `{name}`"),
        ..FieldProblem::default()
    };
    let detail = "The node's name was not typed.";
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_confirmed", detail);
    Problem { errors: vec![error], ..problem.next(format!("send \"confirm\": \"{name}\"")) }
}

fn invalid(errors: Vec<FieldProblem>) -> Problem {
    let detail = "No drill was started: some fields cannot be taken.";
    let next = "correct them; GET /api/v1/drills lists kinds and their parameters";
    let problem = Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", detail);
    Problem { errors, ..problem.next(next) }
}

/// The fields that nobody has taken yet, and what was wrong with those that were.
struct Fields {
    body: Map<String, Value>,
    errors: Vec<FieldProblem>,
}

impl Fields {
    fn wrong(&mut self, name: &str, detail: impl Into<String>) {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        self.errors.push(FieldProblem { pointer, detail: detail.into(), ..FieldProblem::default() });
    }

    /// A field; null is as if it were not there.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.body.remove(name).filter(|value| !value.is_null())
    }

    fn kind(&mut self) -> Option<FaultKind> {
        let kinds = FaultKind::ALL.map(FaultKind::word).join(", ");
        let value = self.take("kind");
        let kind = value.as_ref().and_then(Value::as_str).and_then(FaultKind::from_word);
        match (kind, value) {
            (None, None) => self.wrong("kind", format!("it is missing; the kinds are {kinds}")),
            (None, Some(value)) => self.wrong("kind", format!("{value} is none of {kinds}")),
            (Some(_), _) => {}
        }
        kind
    }

    fn node(&mut self) -> Option<u16> {
        let value = self.take("node");
        let node = value.as_ref().and_then(Value::as_u64).filter(|node| *node < NODES_MAX);
        match (node, value) {
            (None, None) => {
                self.wrong("node", "it is missing: the number of the node that the fault is done to")
            }
            (None, Some(value)) => {
                self.wrong("node", format!("{value} is no node's number"));
            }
            (Some(_), _) => {}
        }
        node.and_then(|node| u16::try_from(node).ok())
    }

    fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            Some(Value::String(text)) => Some(text),
            None => None,
            Some(other) => {
                self.wrong(name, format!("{other} is no text"));
                None
            }
        }
    }

    fn number(&mut self, field: &NumberField) -> u64 {
        let NumberField { name, min, max, default, unit, .. } = field;
        let Some(value) = self.take(name) else { return *default };
        match value.as_u64() {
            Some(number) if (*min..=*max).contains(&number) => number,
            _ => {
                let detail = format!("{value} is no whole number from {min} to {max}");
                let (min, max) = (Some(min.to_string()), Some(max.to_string()));
                self.errors.push(FieldProblem { pointer: format!("/{name}"), detail, min, max, unit: *unit });
                *default
            }
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            Some(Value::Bool(flag)) => flag,
            None => false,
            Some(other) => {
                self.wrong(name, format!("{other} is neither true nor false"));
                false
            }
        }
    }

    /// Of a kind that lasts for no time that could be given.
    fn no_length(&mut self, kind: Option<FaultKind>) -> Option<Duration> {
        if self.take("down_ms").is_some() && kind.is_some() {
            self.wrong("down_ms", "a restart is over when it is over: leave it out");
        }
        None
    }

    /// Of a kind that makes nothing slower.
    fn no_delay(&mut self, kind: FaultKind) -> Duration {
        if self.take(DELAY.name).is_some() {
            self.wrong(DELAY.name, format!("it is of slow-disk, and not of {}: leave it out", kind.word()));
        }
        Duration::from_millis(DELAY.default)
    }

    /// What is wrong; what is left is wrong, too.
    fn end(mut self) -> Vec<FieldProblem> {
        let left: Vec<String> = self.body.keys().cloned().collect();
        for name in left {
            self.wrong(&name, "there is no such field");
        }
        self.errors
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    fn parse(body: Value) -> Result<DrillWanted, Problem> {
        let Value::Object(body) = body else { panic!("{body} is no object") };
        DrillWanted::parse(body)
    }

    /// A drill as a request without options wants it.
    pub(crate) fn wanted(kind: FaultKind, node: u16) -> DrillWanted {
        parse(json!({"kind": kind.word(), "node": node, "confirm": name_of(node)})).unwrap()
    }

    #[test]
    fn parse_what_the_console_sends() {
        let kill = parse(json!({"kind": "kill", "node": 2, "down_ms": 1500, "confirm": "node-2"})).unwrap();
        assert_eq!(
            (kill.kind, kill.node, kill.lasts),
            (FaultKind::Kill, 2, Some(Duration::from_millis(1500)))
        );
        let restart = json!({"kind": "restart", "node": 0, "down_ms": null, "confirm": "node-0"});
        assert_eq!(parse(restart).unwrap().lasts, None);
        let drill = kill.drill(Supervisors::Folder("d".into()));
        assert_eq!((drill.before, drill.load.rate, drill.keep), (Duration::from_secs(2), 2_000, false));
    }

    #[test]
    fn parse_names_every_field_that_is_wrong() {
        let bad = json!({
            "kind": "explode", "node": 1_024, "confirm": 3, "before_ms": -1, "threads": 17, "rate": 0.5, "keep": "yes",
            "a/b": 1,
        });
        let problem = parse(bad).unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.code), (422, "invalid"));
        let pointers: Vec<_> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
        let expected = ["/kind", "/node", "/confirm", "/before_ms", "/threads", "/rate", "/keep", "/a~1b"];
        assert_eq!(pointers, expected);
        let problem = parse(json!({})).unwrap_err();
        assert_eq!(problem.errors.len(), 2, "{problem:?}");
        let late = parse(json!({"kind": "stop", "node": 1, "down_ms": 60_001})).unwrap_err();
        assert_eq!((late.errors[0].min.as_deref(), late.errors[0].unit), (Some("100"), Some("ms")));
        let restart = json!({"kind": "restart", "node": 1, "down_ms": 5});
        assert_eq!(parse(restart).unwrap_err().errors[0].pointer, "/down_ms");
    }

    #[test]
    fn parse_a_delay_of_a_slow_disk_within_its_bounds_alone() {
        let slow = |delay: Value| {
            parse(json!({"kind": "slow-disk", "node": 1, "delay_ms": delay, "confirm": "node-1"}))
        };
        let delay = |delay: Value| slow(delay).unwrap().drill(Supervisors::Folder("d".into())).delay;
        assert_eq!(delay(json!(250)), Duration::from_millis(250));
        assert_eq!(delay(Value::Null), Duration::from_millis(100));
        for wrong in [json!(0), json!(2_001), json!("100ms"), json!(1.5)] {
            let problem = slow(wrong).unwrap_err();
            let error = &problem.errors[0];
            assert_eq!((error.pointer.as_str(), error.max.as_deref()), ("/delay_ms", Some("2000")));
        }
        let kill = json!({"kind": "kill", "node": 1, "delay_ms": 100, "confirm": "node-1"});
        let problem = parse(kill).unwrap_err();
        assert_eq!(problem.errors[0].pointer, "/delay_ms");
        assert!(problem.errors[0].detail.contains("slow-disk"), "{problem:?}");
    }

    #[test]
    fn parse_wants_the_nodes_own_name() {
        for confirm in [json!("node-2"), json!(""), Value::Null] {
            let problem = parse(json!({"kind": "kill", "node": 1, "confirm": confirm})).unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (422, "not_confirmed"));
            assert_eq!(problem.errors[0].pointer, "/confirm");
        }
    }

    #[test]
    fn parameters_of_each_kind_have_their_bounds() {
        assert_eq!(parameters(FaultKind::Kill)["down_ms"]["default"], 3_000);
        assert_eq!(parameters(FaultKind::Restart).get("down_ms"), None);
        assert_eq!(parameters(FaultKind::Kill).get("delay_ms"), None);
        assert_eq!(parameters(FaultKind::SlowDisk)["delay_ms"]["default"], 100);
        for kind in FaultKind::ALL {
            assert_eq!(parameters(kind)["rate"]["max"], 20_000);
        }
    }
}
