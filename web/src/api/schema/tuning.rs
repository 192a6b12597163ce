//! Of settings: `/tuning…`, and the bodies that change them.

use serde_json::{Value, json};

use super::build::{
    about, decimal, either, flag, integer, list, map, object, one_type_of, or_null, shared, text, word,
};
use super::envelope::{of_node, of_scope};

const APPLIES: [&str; 3] = ["live", "restart", "creation"];
const KINDS: [&str; 7] = ["integer", "real", "bytes", "time", "choice", "flag", "text"];

fn expires() -> Value {
    or_null(integer("When the values end by themselves, in milliseconds since 1970. Null: they do not."))
}

/// `GET /api/v1/tuning`.
pub(crate) fn tuning() -> Value {
    let node = object([
        ("node", integer("The node.")),
        ("revision", decimal("The revision that it has seen.")),
        ("in_force", flag("Whether it has all values of the cluster's revision in force.")),
    ]);
    let whole = [
        ("revision", decimal("Counts the changes; 0: there was none.")),
        ("settings", list(setting(), "Every setting, by section.")),
        ("nodes", list(node, "What each node has in force.")),
    ];
    let part = [
        ("revision", decimal("The revision that it has seen.")),
        ("in_force", flag("Whether it has all values of that revision in force.")),
    ];
    of_scope(whole, part)
}

fn setting() -> Value {
    const SOURCES: [&str; 5] = ["default", "file", "environment", "flag", "admin"];
    let bound = |what| one_type_of(&["number", "string", "null"], what);
    object([
        ("name", text("Its name.")),
        ("value", text("The value in force, as people write it.")),
        (
            "value_number",
            one_type_of(&["number", "null"], "The same as a number in its unit. Null: it is none."),
        ),
        ("default", text("Its default, as people write it.")),
        ("source", word(&SOURCES, "Where the value is from. admin: the cluster was tuned to it.")),
        ("applies", word(&APPLIES, "When a change takes effect.")),
        ("why_not_live", or_null(text("Why it does not change while nodes run. Null: it does."))),
        ("unit", or_null(text("Of its numbers. Null: it has none."))),
        ("kind", word(&KINDS, "What its values are.")),
        ("min", bound("The least that it takes, a number or text with a unit. Null: no such bound.")),
        ("max", bound("The most that it takes, a number or text with a unit. Null: no such bound.")),
        ("or_none", flag("Whether it takes 0 besides, which stands for none.")),
        ("choices", or_null(list(text("A word."), "The words that it takes. Null: not a choice."))),
        ("section", text("What it belongs to.")),
        ("meaning", text("What it does.")),
        ("expires_unix_ms", expires()),
        ("series", or_null(text("The series of /api/v1/series that it moves. Null: none shows it."))),
    ])
}

/// `GET /api/v1/tuning/schema`.
pub(crate) fn schema() -> Value {
    let bound = |what| one_type_of(&["number"], what);
    let row = object([
        ("name", text("Its name.")),
        ("section", text("What it belongs to.")),
        ("default", text("Its default, as people write it.")),
        (
            "default_value",
            one_type_of(
                &["number", "string", "boolean"],
                "The same as a number in its unit, a flag or text.",
            ),
        ),
        ("takes", text("What it takes, in words.")),
        ("unit", or_null(text("Of its numbers. Null: it has none."))),
        ("applies", word(&APPLIES, "When a change takes effect.")),
        ("why_not_live", or_null(text("Why it does not change while nodes run. Null: it does."))),
        ("meaning", text("What it does.")),
        ("kind", word(&KINDS, "What its values are.")),
        ("min?", bound("The least that it takes, in its unit.")),
        ("max?", bound("The most that it takes, in its unit.")),
        ("or_none?", flag("Whether it takes 0 besides, which stands for none.")),
        ("power_of_two?", flag("Whether it takes powers of two alone.")),
        ("choices?", list(text("A word."), "The words that it takes.")),
        ("bytes_max?", integer("Of text: the most bytes.")),
    ]);
    object([
        ("version", json!({"type": "integer", "minimum": 1, "description": "Of the document."})),
        ("settings", list(row, "Every setting, by section.")),
    ])
}

/// One setting of a change.
pub(super) fn tuned_setting() -> Value {
    let step = || {
        [
            ("expires_unix_ms", integer("When it would have ended, in milliseconds since 1970.")),
            (
                "after?",
                text("The value that would have come after it. None: what each node was started with."),
            ),
        ]
    };
    let later = list(object(step()), "The ends of the values that would have come after it, in order.");
    let end = object(step().into_iter().chain([("later?", later)]));
    let given = "Null: what each node was started with.";
    object([
        ("name", text("Its name.")),
        ("old", or_null(text(&format!("The value before. {given}")))),
        ("old_end?", about(end, "The end that the value before had.")),
        ("new", or_null(text(&format!("The value from then on. {given}")))),
        ("new_expires_unix_ms?", integer("When that value ends, in milliseconds since 1970.")),
    ])
}

/// `GET /api/v1/tuning/history`.
pub(crate) fn history() -> Value {
    let row = object([
        ("revision", decimal("The revision that it made.")),
        ("at_unix_ms", integer("When, in milliseconds since 1970, by its author's clock.")),
        ("who", text("Who.")),
        ("reason", or_null(text("Why, in the author's words. Null: none was given."))),
        ("changes", list(shared("TunedSetting"), "What.")),
        ("reverted_by", or_null(decimal("The revision that took it back. Null: none."))),
        ("expires_unix_ms", expires()),
    ]);
    of_node([
        ("changes", list(row, "The changes, newest first.")),
        ("next", or_null(decimal("What before is to be for the next page. Null: there are no older ones."))),
    ])
}

/// What a change did, or would do.
pub(crate) fn change() -> Value {
    of_node([
        ("revision", decimal("The revision that is in force now.")),
        ("changes", list(shared("TunedSetting"), "What changed, or would.")),
        ("dry_run", flag("Whether nothing was changed.")),
        ("expires_unix_ms", expires()),
    ])
}

/// The body of `PATCH /api/v1/tuning`.
pub(crate) fn patch() -> Value {
    let value = one_type_of(
        &["string", "number", "boolean", "null"],
        "Its value, as people write it or in its unit. Null: what each node was started with.",
    );
    map(value, "Values by the settings' names.")
}

/// The body of `POST /api/v1/tuning:revert`.
pub(crate) fn revert() -> Value {
    let revision = either([decimal("As the history has it."), integer("Or as a number.")]);
    object([("revision", about(revision, "The change that is to be taken back."))])
}
