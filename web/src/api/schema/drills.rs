//! Of drills: `/drills…`, `/operations/{id}`, and the body that begins one.

use cell_drill::FaultKind;
use serde_json::Value;

use super::build::{
    Field, NODE_NAME, about, either, flag, integer, list, map, number, object, one_type_of, or_null, pattern,
    share, shared, text, word,
};
use super::envelope::{of_cluster, of_node, of_scope, shown};
use crate::drill::parameters;

fn kinds() -> [&'static str; FaultKind::ALL.len()] {
    FaultKind::ALL.map(FaultKind::word)
}

/// `GET /api/v1/drills`.
pub(crate) fn drills() -> Value {
    let parameter = object([
        ("min?", integer("The least that it takes.")),
        ("max?", integer("The most that it takes.")),
        ("default", one_type_of(&["integer", "boolean"], "Its value if none is given.")),
        ("unit?", or_null(text("Of the number. Null: it counts."))),
        ("meaning", text("What it does.")),
    ]);
    let kind = object([
        ("kind", word(&kinds(), "The fault.")),
        ("meaning", text("What it does.")),
        ("parameters", map(parameter, "What can be given with it, by name.")),
    ]);
    let runs = || ("runs", list(shared("DrillRun"), "Runs, newest first."));
    let whole = [
        ("allowed", flag("Whether drills can be run.")),
        ("why_not", or_null(text("Why not. Null: they can."))),
        ("kinds", list(kind, "The faults that there are.")),
        runs(),
    ];
    let agent = text("Where the agent is that takes drills of it. Null: it has none.");
    let part = [runs(), ("total?", integer("Runs that it keeps.")), ("agent?", or_null(agent))];
    of_scope(whole.into_iter().chain(shown()), part)
}

fn run_fields() -> Vec<Field> {
    const STATES: [&str; 8] =
        ["beginning", "running", "healing", "verifying", "passed", "failed", "inconclusive", "halted"];
    let moment = object([
        ("name", text("What happened.")),
        ("at_ms", integer("Milliseconds since the begin.")),
        ("pair", or_null(integer("To which pair. Null: to none."))),
    ]);
    let lane = object([
        ("at_ms", integer("Milliseconds since the begin.")),
        ("attempted", integer("Operations that were under way in the step.")),
        ("succeeded", integer("Those of them that were answered in it.")),
        ("failed", integer("Those that ended in it otherwise. All others were still under way.")),
        ("p99_us", or_null(integer("99 of 100 took no longer, in microseconds. Null: none ended."))),
    ]);
    let report = about(report(), "What it found. Null: it has not ended, or was halted.");
    vec![
        ("id", text("Its name.")),
        ("kind", word(&kinds(), "The fault.")),
        ("node", integer("The node that it is done to.")),
        ("runner", integer("The node that runs it.")),
        ("state", word(&STATES, "How far it is, or how it ended.")),
        ("waits_for", or_null(text("What it waits for before it begins. Null: it has begun, or is halted."))),
        (
            "begun_unix_ms",
            integer("When it began, or, before that, was asked for, in milliseconds since 1970."),
        ),
        ("ended_unix_ms", or_null(integer("When it ended. Null: it has not."))),
        ("who", text("Who began it.")),
        ("halted_by", or_null(text("Who halted it. Null: nobody."))),
        ("timeline", list(moment, "What happened, in order.")),
        ("lane", list(lane, "The drill's operations over time.")),
        ("report", or_null(report)),
    ]
}

/// A run.
pub(super) fn run() -> Value {
    object(run_fields())
}

/// A run that did not come to its end has `verdict` and `reasons` alone.
fn report() -> Value {
    let count = |name: &'static str, what: &str| (name, integer(what));
    let since = |name: &'static str, what: &str| {
        (name, or_null(number(&format!("{what}, in milliseconds since the fault. Null: not seen."))))
    };
    let counts = [
        count("acknowledged?", "Keys with an acknowledged write."),
        count("found?", "Those that were right, whichever way they were read."),
        count("lost?", "Those that were missing."),
        count("stale?", "Those that were old."),
        count("phantom?", "Keys or values that nobody wrote."),
        count("unknown?", "Writes of unknown outcome."),
        count("not_linearizable?", "Keys whose history has no order."),
        count("undecided?", "Keys whose history is too wide to be decided."),
        count("histories?", "Keys whose history was checked."),
        count("operations?", "Operations that ended."),
        count("writes_acknowledged?", "Writes acknowledged."),
        count("refused?", "Operations refused."),
        count("writes_during_fault?", "Writes to the node's pairs during the fault."),
        count("read_back_by_server?", "Keys that one-sided search did not answer."),
        count("pairs_owned?", "Pairs that the node owned."),
        count("entries_left?", "Entries of the drill that are still in the store, at most."),
    ];
    let times = [
        since("detected_ms?", "When somebody noticed"),
        since("lease_ended_ms?", "When the lease ended"),
        since("claimed_ms?", "When the first pair had a new owner"),
        since("first_served_ms?", "When the first pair was served again"),
        since("served_ms?", "When all pairs were served again"),
        since("all_back_ms?", "When all nodes were back"),
    ];
    object(report_words().into_iter().chain(counts).chain(times).chain(report_lists()))
}

fn report_words() -> [Field; 9] {
    [
        ("verdict", word(&["PASS", "FAIL", "INCONCLUSIVE"], "What it shows.")),
        ("reasons", list(text("A reason."), "Why it is not a pass.")),
        ("drill?", word(&kinds(), "The fault.")),
        ("node?", integer("The node that it was done to.")),
        ("delay_ms?", or_null(integer("By how much a slow disk was slower. Null: it was another fault."))),
        ("run?", text("The drill's number, in hexadecimal digits, as in its keys.")),
        (
            "replayed_bytes?",
            or_null(integer("Bytes of images and logs that takeovers read. Null: none was recorded.")),
        ),
        ("unavailable_ms_max?", number("The longest wait of a key, in milliseconds.")),
        ("unavailable_ms_p99?", number("99 of 100 keys waited no longer, in milliseconds.")),
    ]
}

fn report_lists() -> [Field; 4] {
    let way = object([
        ("found", integer("Keys that were right.")),
        ("lost", integer("Keys that were missing.")),
        ("stale", integer("Keys that were old.")),
        ("phantom", integer("Keys or values that nobody wrote.")),
    ]);
    let slow = object([
        ("key", text("The key.")),
        ("what", text("The operation.")),
        ("ms", number("How long it took, in milliseconds.")),
    ]);
    let wrong = object([("key", text("The key.")), ("what", text("What is wrong with it."))]);
    let moment = object([
        ("at_ms", number("Milliseconds since the fault.")),
        ("event", text("What happened.")),
        ("pair", or_null(integer("To which pair. Null: to none."))),
    ]);
    [
        ("ways?", map(way, "How the keys were read back, by way.")),
        ("slowest?", list(slow, "The operations that took longest.")),
        ("wrong?", list(wrong, "Some of the keys that are wrong.")),
        ("timeline?", list(moment, "What happened, in order.")),
    ]
}

/// `GET /api/v1/drills/{id}`.
pub(crate) fn drill() -> Value {
    of_node(run_fields())
}

/// `GET /api/v1/operations/{id}`.
pub(crate) fn operation() -> Value {
    let fields = [("operation", word(&["drill"], "What it is.")), ("done", flag("Whether it has ended."))];
    let mut drill = of_node(fields.into_iter().chain(run_fields()));
    drill["title"] = "a drill".into();
    either([drill, super::tree::check_operation()])
}

/// `GET /api/v1/drills/preview`.
pub(crate) fn preview() -> Value {
    of_cluster([
        ("node", integer("The node.")),
        ("kind", word(&kinds(), "The fault.")),
        ("pairs", list(integer("A pair."), "The pairs that stop.")),
        ("entries", or_null(integer("Their entries. Null: the node does not know."))),
        (
            "key_share",
            or_null(share("The part of all entries that they have. Null: some node does not know its own.")),
        ),
        ("survivors", list(integer("A node."), "The nodes that can take over.")),
        ("sentence", text("What would happen.")),
        ("confirm", pattern(NODE_NAME, "What is to be typed.")),
        ("revision", text("Another one where it would stop something else; POST /api/v1/drills takes it.")),
    ])
}

/// The answer to a request that began or halted one.
pub(crate) fn started() -> Value {
    of_node([
        ("operation", text("Its name, for /api/v1/operations and /api/v1/drills.")),
        ("runner", integer("The node that runs it.")),
    ])
}

/// The body of `POST /api/v1/drills`.
pub(crate) fn wanted() -> Value {
    let mut schema = object([
        ("kind", word(&kinds(), "The fault.")),
        ("node", integer("The number of the node that it is done to.")),
        ("confirm", pattern(NODE_NAME, "The node's name.")),
        (
            "preview?",
            text("The revision of the preview that was seen: 412 if it would stop something else now."),
        ),
    ]);
    let parameters = FaultKind::ALL.map(parameters);
    for (name, given) in parameters.iter().filter_map(Value::as_object).flatten() {
        let known = schema["properties"].get(name).and_then(|known| known["minimum"].as_u64());
        let mut field = number_or_flag(given);
        if let (Some(known), Some(least)) = (known, field["minimum"].as_u64()) {
            field["minimum"] = known.min(least).into(); // each kind has a bound of its own
        }
        schema["properties"][name] = field;
    }
    schema["additionalProperties"] = false.into();
    schema
}

/// A parameter as `/api/v1/drills` lists it.
fn number_or_flag(given: &Value) -> Value {
    let meaning = given["meaning"].as_str().unwrap_or_default();
    let mut schema = if given["default"].is_boolean() { flag(meaning) } else { integer(meaning) };
    for (keyword, bound) in [("minimum", "min"), ("maximum", "max"), ("default", "default")] {
        if let Some(value) = given.get(bound) {
            schema[keyword] = value.clone();
        }
    }
    schema
}

/// The body of `POST /api/v1/drills/{id}:halt`: none, or nothing in it.
pub(crate) fn halt() -> Value {
    let mut schema = object([]);
    schema["additionalProperties"] = false.into();
    schema
}
