//! Of figures and events over time: `/series`, `/events`.

use serde_json::{Value, json};

use super::build::{
    about, anything, decimal, either, flag, integer, list, number, object, or_null, shared, text, word,
};
use super::envelope::of_scope;
use crate::event_kind::EVENT_KINDS;
use crate::rates::OPERATIONS;

/// Figures of which each may be unknown.
pub(super) fn values(meaning: &str) -> Value {
    list(or_null(number("A figure. Null: it is not known.")), meaning)
}

/// `GET /api/v1/series`.
pub(crate) fn series() -> Value {
    let all = json!({"type": "string", "enum": ["all"], "description": "All nodes together."});
    let one = object([
        ("name", text("The series.")),
        ("unit", text("The unit of its figures; empty for a count.")),
        ("node", either([integer("The node."), all])),
        (
            "values",
            values(
                "A figure for each time. Of all nodes together it is not known while that of one that was a \
                 member then is not, as of one that has died since, nor of a time at which the node that is \
                 asked had not seen its cluster yet; those under missing are left out of it.",
            ),
        ),
    ]);
    let whole = [
        ("step_ms", integer("Milliseconds of a step.")),
        ("times_unix_ms", list(integer("A time."), "When each step began, in milliseconds since 1970.")),
        ("series", list(one, "The series that were asked for.")),
        ("marks", list(shared("Mark"), "Changes of settings in that time.")),
    ];
    let figures = object([("name", text("The series.")), ("values", values("A figure for each step."))]);
    let step = or_null(shared("LatencyHistogram"));
    let times = object([
        ("operation", word(&OPERATIONS, "The kind of request.")),
        ("values", list(step, "What requests took, by step. Null: it is not known.")),
    ]);
    let part = [
        ("series", list(figures, "Its figures.")),
        ("times", list(times, "What its requests took, for series of latencies.")),
    ];
    of_scope(whole, part)
}

/// `GET /api/v1/events`.
pub(crate) fn events() -> Value {
    let id =
        |what: &str| or_null(text(&format!("The id of the {what} event of the list. Null: it is empty.")));
    let whole = [
        ("events", list(shared("Event"), "Newest first.")),
        ("first_id", id("oldest")),
        ("last_id", id("newest")),
        ("cursor", text("How far these and all earlier events go: asked for with it, what comes is newer.")),
        (
            "complete_since_unix_ms",
            integer(
                "From when on the nodes that answered have kept all, in milliseconds since 1970: what one \
                 saw before it was started, or before it died, is not there any more. Those under missing \
                 are left out. While the node that is asked has not seen its cluster yet: now.",
            ),
        ),
        ("total", integer("Events that fit what was asked for.")),
        (
            "truncated",
            flag("Whether the oldest of them are left out: more than limit, or than 240 KiB hold."),
        ),
    ];
    let part = [
        ("events", list(shared("Event"), "Its events, newest first.")),
        ("log", decimal("Names its log: a node that is started again begins another.")),
        ("counted", integer("Events that the log has had.")),
        ("since_unix_ms", integer("From when on these are all, by its wall clock.")),
        ("clock_unix_ms", integer("Its wall clock, in milliseconds since 1970.")),
    ];
    of_scope(whole, part)
}

/// Something that happened.
pub(super) fn event() -> Value {
    let severity = word(
        &["info", "warning", "critical"],
        "As it should be; something is lost that comes back; something is not served.",
    );
    object([
        ("id", text("The same at all nodes that saw it.")),
        ("at_unix_ms", integer("When, in milliseconds since 1970, by the clock of that node.")),
        ("node", integer("Where it happened, or to whom.")),
        ("kind", word(EVENT_KINDS, "What kind of event it is.")),
        ("severity", severity),
        ("text", text("What happened, in a sentence.")),
        ("details", about(anything(""), "The same for programs; the fields are those of the kind.")),
    ])
}
