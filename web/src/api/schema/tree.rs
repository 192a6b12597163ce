//! Of the key space: `/tree/…`.

use serde_json::Value;

use super::build::{
    MEGANODE, about, decimal, flag, integer, list, number, object, or_null, pattern, share, shared, text,
    tuple, word,
};
use super::envelope::{age, at, of_cluster, of_node, of_scope};

/// What counts as a read of a meganode: then comes of which time.
const READS: &str = "Reads by servers, and one-sided ones as clients report them once a second (of many, \
                     some are drawn; a client that ends reports nothing of its last second):";

fn low() -> Value {
    about(shared("Key"), "Its keys are at or above this.")
}

fn high() -> Value {
    about(or_null(shared("Key")), "Its keys are below this. Null: it has no end.")
}

fn keys_left_out() -> super::build::Field {
    ("keys_left_out?", flag("True: keys are not in the answer, because the caller does not read entries."))
}

fn meganode_name(meaning: &str) -> Value {
    pattern(MEGANODE, meaning)
}

/// A key.
pub(super) fn key() -> Value {
    object([
        ("text", text("Printable UTF-8 as it is, a backslash as two, any other byte as \\xNN.")),
        ("hex", pattern(super::build::HEX, "The bytes, two digits each.")),
    ])
}

/// `GET /api/v1/tree/buckets`.
pub(crate) fn buckets() -> Value {
    let router = || shared("Router");
    let whole = [
        ("low?", low()),
        ("high?", high()),
        ("meganodes_all", integer("Meganodes of entries of all nodes that answered.")),
        ("entries_all", integer("Their entries.")),
        ("levels_max", integer("Levels of the highest.")),
        ("splits", shared("Splits")),
        ("buckets", list(bucket(), "Ranges of keys in order, without a gap.")),
        ("routers", list(router(), "Meganodes that lead to others.")),
        keys_left_out(),
    ];
    let part = [
        ("meganodes", integer("Its meganodes of entries.")),
        ("entries", integer("Their entries.")),
        ("height", integer("Levels of the highest.")),
        ("pairs", list(integer("A pair."), "The pairs that it reports.")),
        ("splits", shared("Splits")),
        ("router", or_null(router())),
        ("rows?", list(row(), "Its meganodes in the range, in key order.")),
        keys_left_out(),
    ];
    of_scope(whole, part)
}

fn bucket() -> Value {
    const STATES: [&str; 4] = ["entries", "splitting", "unserved", "not told"];
    let rate = |what: &str| or_null(number(&format!("{what} a second. Null: not known of all of it.")));
    object([
        ("low?", low()),
        ("high?", high()),
        ("meganodes", integer("Meganodes in it; 0 where nobody reports the range.")),
        ("entries", integer("Their entries.")),
        ("bytes", integer("Bytes of their extents, about: a pair's shared out by entries.")),
        ("tree_nodes", integer("Tree nodes in use.")),
        ("tree_nodes_all", integer("Tree nodes that their slots have.")),
        ("fill", share("The part of the tree nodes that is in use.")),
        ("height", integer("Levels of the highest.")),
        ("node", or_null(integer("Who has most of the entries. Null: nobody serves it."))),
        ("pair", or_null(integer("The pair. Null: several, or not known."))),
        ("state", word(&STATES, "not told: its node did not answer.")),
        ("writes_per_second", rate("Writes")),
        ("reads_per_second", rate(READS)),
        ("id", or_null(meganode_name("The meganode's name, PAIR.SLOT. Null: several."))),
    ])
}

/// A meganode that leads to others.
pub(super) fn router() -> Value {
    object([
        ("id", meganode_name("Its name, PAIR.SLOT.")),
        ("pair", integer("Its pair.")),
        ("node", integer("The node that serves it.")),
        ("height", integer("Its levels.")),
        ("entries", integer("Meganodes that it knows.")),
        ("fill", share("The part of its tree nodes that is in use.")),
    ])
}

/// `GET /api/v1/tree/heat`.
pub(crate) fn heat() -> Value {
    let rate = || or_null(number("The mean of the step, a second. Null: not known of all keys in it."));
    let rows = |what: &str| {
        let row = or_null(list(rate(), "By range. Null: nothing is known of the step."));
        list(row, what)
    };
    let whole = [
        ("step_ms", integer("Milliseconds of a step.")),
        ("times_unix_ms", list(integer("A time."), "When each step began, in milliseconds since 1970.")),
        (
            "lows",
            list(
                pattern(super::build::HEX, "A key, two digits a byte."),
                "Where each range begins now, in order. What a range did before a split is shared equally.",
            ),
        ),
        ("high", about(or_null(shared("Key")), "Where the last range ends. Null: it has no end.")),
        ("writes", rows("Writes, a row for each step.")),
        ("reads", rows(&format!("{READS} a row for each step."))),
    ];
    let key = || text("A key in base 64.");
    let range = [key(), or_null(key()), flag("Whether the node has these keys no more.")];
    let rates = |what: &str| list(rate(), what);
    let row = [integer("The step's number."), rates("Writes, by range."), rates("Reads, by range.")];
    let part = [
        (
            "ranges",
            list(
                tuple(
                    &range,
                    "Where it begins, where it ends (null: it has no end), whether it is a former one.",
                ),
                "Its ranges, and those of keys that it had.",
            ),
        ),
        ("rows", list(tuple(&row, "A step."), "The steps of which something is known.")),
    ];
    of_scope(whole, part)
}

fn row() -> Value {
    let pairs = |one: &str, other: &str| tuple(&[integer(one), integer(other)], "Two counts.");
    let rate = |what: &str| or_null(number(&format!("{what} a second. Null: not known.")));
    let items = [
        text("The low key in base 64."),
        text("The high key in base 64. =: the low key of the next row; empty: it has no end."),
        pairs("Its pair.", "Its slot."),
        integer("Its levels."),
        pairs("Tree nodes in use.", "Tree nodes of the slot."),
        pairs("Entries.", "Bytes of their extents, about."),
        flag("Whether it is being split."),
        tuple(&[rate("Writes"), rate("Reads")], "Rates."),
    ];
    tuple(&items, "A meganode.")
}

/// `GET /api/v1/tree/meganodes/{id}`.
pub(crate) fn meganode() -> Value {
    let mut histogram =
        list(integer("Tree nodes."), "Tree nodes by fill: below 10 %, and so on to 90 % and more.");
    histogram["minItems"] = 10.into();
    histogram["maxItems"] = 10.into();
    let level = object([
        ("level", integer("0 for leaves.")),
        ("nodes", integer("Tree nodes of the level.")),
        ("entries", integer("Their entries.")),
        ("fill_histogram", histogram),
    ]);
    of_node([
        ("id", meganode_name("Its name, PAIR.SLOT.")),
        ("pair", integer("Its pair.")),
        ("slot", integer("Its slot.")),
        ("node", integer("The node that serves it.")),
        ("low?", low()),
        ("high?", high()),
        ("use", word(&["entries", "router", "adopted"], "adopted: a split fills it.")),
        ("height", integer("Its levels.")),
        ("entries", integer("Entries of its leaves.")),
        ("tree_nodes", integer("Tree nodes in use.")),
        ("tree_nodes_all", integer("Tree nodes of its slot.")),
        ("levels", list(level, "Its levels, leaves first.")),
        ("slots", text("Base 64 of a byte for each tree node: 0 free, 1 inner, 2 leaf, 3 hidden.")),
        ("right", or_null(meganode_name("The meganode behind it. Null: it is the last one."))),
        keys_left_out(),
    ])
}

/// `GET /api/v1/tree/meganodes/{id}/nodes/{index}`, whose version is the tree node's.
pub(crate) fn tree_node() -> Value {
    object([
        at(),
        age(),
        ("version", decimal("Of the tree node: it grows by two with each change.")),
        ("index", integer("Its place in the slot.")),
        ("level", integer("0 for leaves.")),
        ("low", low()),
        ("high", high()),
        ("entries", integer("Its entries.")),
        ("keys", list(shared("Key"), "The first of their keys, 64 at most.")),
        ("right", or_null(integer("The tree node behind it. Null: it is the last one of its level."))),
    ])
}

fn place() -> [super::build::Field; 4] {
    let step = object([
        ("index", integer("The tree node's place in the slot.")),
        ("level", integer("0 for leaves.")),
    ]);
    [
        ("node", integer("The node that has it.")),
        ("pair", integer("The pair.")),
        ("meganode", meganode_name("The meganode, PAIR.SLOT.")),
        ("path", list(step, "Tree nodes from the root to the leaf.")),
    ]
}

/// `GET /api/v1/tree/locate`.
pub(crate) fn locate() -> Value {
    let located = [
        ("key", shared("Key")),
        ("found", flag("Whether there is such an entry.")),
        ("bytes", or_null(integer("Bytes of its value. Null: there is none."))),
        ("searched", word(&["server"], "By whom it was searched.")),
    ];
    let mut whole = of_node(located.into_iter().chain(place()));
    whole["title"] = "of the cluster".into();
    let mut part = of_node([(
        "place",
        about(or_null(object(place())), "Where the node has the key. Null: it has not the meganode."),
    )]);
    part["title"] = super::envelope::NODE_TITLE.into();
    super::build::either([whole, part])
}

/// The body of `POST /api/v1/tree:check`.
pub(crate) fn check_wanted() -> Value {
    let mut schema = object([]);
    schema["additionalProperties"] = false.into();
    schema
}

/// The answer to a request that began a check.
pub(crate) fn check_started() -> Value {
    of_node([
        ("operation", text("Its name, for /api/v1/operations.")),
        ("runner", integer("The node that keeps it.")),
    ])
}

/// A check, as `GET /api/v1/operations/{id}` has it.
pub(super) fn check_operation() -> Value {
    let violation = object([
        ("pair", integer("The pair.")),
        ("slot", integer("The meganode's slot.")),
        ("index", integer("The tree node's place in the slot.")),
        ("what", text("The rule that it breaks.")),
    ]);
    let counts = || {
        [
            ("done", flag("Whether it has ended.")),
            ("tree_nodes", integer("Tree nodes that were looked at.")),
            ("tree_nodes_all", integer("Tree nodes in use when it began.")),
            ("entries", integer("Entries in them.")),
            ("violations", integer("Rules that were found broken.")),
            ("duration_us", or_null(integer("How long it took, in microseconds. Null: it has not ended."))),
        ]
    };
    let part = object([("node", integer("The node."))].into_iter().chain(counts()).chain([
        ("pairs", list(integer("A pair."), "The pairs that were gone through; empty until it has ended.")),
        ("found", list(violation, "The first of the violations.")),
    ]));
    let states = ["running", "passed", "incomplete", "failed"];
    let fields = [
        ("operation", word(&["tree_check"], "What it is.")),
        ("id", text("Its name.")),
        ("runner", integer("The node that keeps it.")),
        ("state", word(&states, "How far it is, or how it ended.")),
        ("begun_unix_ms", integer("When it began, in milliseconds since 1970.")),
        (
            "unchecked_pairs",
            list(integer("A pair."), "Pairs that nobody has gone through; empty until it has ended."),
        ),
        ("nodes", list(part, "The parts, by node.")),
    ];
    let mut check = of_cluster(fields.into_iter().chain(counts()));
    check["title"] = "a check of the tree".into();
    check
}
