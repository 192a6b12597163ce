//! Tests that no request of any kind breaks a route: parameters and bodies that are right by the document's
//! schemas, wrong in one place, or anything at all. What comes back is never a 500, and
//! [`crate::test_cluster`] checks that it is what the document says.

use std::os::unix::net::UnixListener;
use std::thread;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::string::string_regex;
use proptest::test_runner::TestRunner;
use serde_json::{Map, Number, Value, json};

use crate::api::conformity::document;
use crate::api::routes::{ROUTES, RouteText};
use crate::full_cluster;
use crate::test_cluster::{TestCluster, TestRequest};

/// Names that objects without names of their own are tried with.
const NAMES: [&str; 6] = [
    "fill_percent",
    "exploration",
    "client_retry_shortest",
    "client_retry_longest",
    "segment_bytes",
    "a/b~c",
];
/// Requests to a route that takes no body, and to one that does.
const CASES: u32 = 24;
const CASES_OF_BODIES: u32 = 192;
/// More than a body may have.
const LONG: usize = 66_000;

/// A value that a schema permits.
fn valid(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(branches) = schema["anyOf"].as_array() {
        return select(branches.clone()).prop_flat_map(|branch| valid(&branch)).boxed();
    }
    if let Some(words) = schema["enum"].as_array() {
        return select(words.clone()).boxed();
    }
    let kinds = schema["type"].as_array().cloned().unwrap_or_else(|| vec![schema["type"].clone()]);
    let schema = schema.clone();
    select(kinds).prop_flat_map(move |kind| of_kind(kind.as_str().unwrap_or_default(), &schema)).boxed()
}

fn of_kind(kind: &str, schema: &Value) -> BoxedStrategy<Value> {
    let bound = |keyword: &str| schema[keyword].as_u64();
    match kind {
        "null" => Just(Value::Null).boxed(),
        "boolean" => any::<bool>().prop_map(Value::from).boxed(),
        "integer" => {
            let (min, max) = (bound("minimum").unwrap_or(0), bound("maximum").unwrap_or(u64::MAX));
            prop_oneof![min..=max, min..=max.min(min.saturating_add(2))].prop_map(Value::from).boxed()
        }
        "number" => prop_oneof![0.0..1.0, any::<f64>()].prop_map(Value::from).boxed(),
        "string" => {
            let pattern = schema["pattern"].as_str().map(|pattern| pattern.trim_matches(['^', '$']));
            let pattern = string_regex(pattern.unwrap_or("[ -~]{0,12}")).expect("a pattern of the document");
            pattern.prop_map(Value::from).boxed()
        }
        "object" => object(schema),
        other => panic!("bodies have no {other}"),
    }
}

fn object(schema: &Value) -> BoxedStrategy<Value> {
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    let fields: Vec<_> = schema["properties"].as_object().into_iter().flatten().collect();
    let fields: Vec<_> = fields
        .into_iter()
        .map(|(name, field)| {
            let field = match required.contains(&json!(name)) {
                true => valid(field).prop_map(Some).boxed(),
                false => prop::option::weighted(0.3, valid(field)).boxed(),
            };
            (Just(name.clone()), field)
        })
        .collect();
    let others = match &schema["additionalProperties"] {
        others @ Value::Object(_) => vec((select(&NAMES), valid(others)), 0..4).boxed(),
        _ => Just(Vec::new()).boxed(),
    };
    (fields, others)
        .prop_map(|(fields, others)| {
            let fields = fields.into_iter().filter_map(|(name, value)| Some((name, value?)));
            let others = others.into_iter().map(|(name, value)| (name.to_owned(), value));
            Value::Object(fields.chain(others).collect())
        })
        .boxed()
}

/// Any JSON.
fn anything() -> impl Strategy<Value = Value> {
    let huge = || Value::Number("123456789012345678901234567890".parse::<Number>().expect("a number"));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        Just(json!(u64::MAX)),
        Just(json!(1e300)),
        Just(huge()),
        ".{0,8}".prop_map(Value::from),
        Just(json!("\u{0}\u{7f}\u{fffd}")),
        Just(json!("x".repeat(5_000))),
    ];
    leaf.prop_recursive(4, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((".{0,6}", inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// A body that is right, or wrong in one place.
fn near(schema: &Value) -> BoxedStrategy<Value> {
    (valid(schema), 0..6_u8, any::<prop::sample::Index>(), ".{0,6}", anything())
        .prop_map(|(mut value, how, at, name, other)| {
            let Some(fields) = value.as_object_mut() else { return value };
            let known = fields.keys().nth(at.index(fields.len().max(1))).cloned();
            match (how, known) {
                (0, Some(known)) => drop(fields.remove(&known)),
                (1, Some(known)) => drop(fields.insert(known, other)),
                (2, _) => drop(fields.insert(name, other)),
                (3, _) => return json!([value]),
                _ => {}
            }
            value
        })
        .boxed()
}

/// The bytes of a body.
fn bytes(schema: &Value) -> BoxedStrategy<Vec<u8>> {
    let text = |value: Value| value.to_string().into_bytes();
    let cut = |(mut bytes, at, byte): (Vec<u8>, prop::sample::Index, u8)| {
        let at = at.index(bytes.len() + 1);
        match byte {
            0..128 => bytes.truncate(at),
            _ => bytes.insert(at, byte), // no UTF-8
        }
        bytes
    };
    let near = near(schema).prop_map(text);
    prop_oneof![
        8 => near.clone(),
        2 => anything().prop_map(text),
        2 => (near, any::<prop::sample::Index>(), any::<u8>()).prop_map(cut),
        1 => vec(any::<u8>(), 0..64),
        1 => (1..6_000_usize).prop_map(|depth| "[".repeat(depth).into_bytes()),
        1 => (1..6_000_usize).prop_map(|depth| r#"{"a":"#.repeat(depth).into_bytes()),
        1 => Just(json!({"kind": "x".repeat(LONG)}).to_string().into_bytes()),
        1 => Just(Vec::new()),
    ]
    .boxed()
}

/// Bytes as a query or a path has them.
fn escaped(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("%{byte:02x}")).collect()
}

/// A parameter's value, as it stands in the request: as the document has it, or anything.
fn value(parameter: &Value) -> BoxedStrategy<String> {
    let example = parameter["example"].as_str().unwrap_or_default().to_owned();
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    if parameter["in"] == "header" {
        return prop_oneof![3 => Just(example), 1 => "[!-~]{0,140}"].boxed();
    }
    prop_oneof![
        4 => Just(example),
        4 => valid(&parameter["schema"]).prop_map(move |value| escaped(text(value).as_bytes())),
        1 => ".{0,12}".prop_map(|text| escaped(text.as_bytes())),
        1 => vec(any::<u8>(), 0..12).prop_map(|bytes| escaped(&bytes)),
        1 => Just("9".repeat(40)),
        1 => Just("a".repeat(5_000)),
    ]
    .boxed()
}

/// A request to a route.
fn request(route: &'static RouteText) -> impl Strategy<Value = TestRequest> {
    let described = &document()["paths"][route.path][route.method.to_lowercase()];
    let parameters: Vec<_> = described["parameters"].as_array().into_iter().flatten().cloned().collect();
    let given: Vec<_> = parameters
        .into_iter()
        .map(|parameter| {
            let chance = if parameter["required"] == true { 0.95 } else { 0.4 };
            let value = prop::option::weighted(chance, value(&parameter));
            (Just(parameter), value)
        })
        .collect();
    let schema = &described["requestBody"]["content"]["application/json"]["schema"];
    let body = match schema.is_object() {
        true => bytes(schema),
        false => prop_oneof![4 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..64)].boxed(),
    };
    (given, body, prop::bool::weighted(0.95)).prop_map(move |(given, body, is_typed)| {
        let (mut path, mut query, mut headers) = (route.path.to_owned(), Vec::new(), Vec::new());
        for (parameter, value) in given {
            let name = parameter["name"].as_str().unwrap_or_default().to_owned();
            match (parameter["in"].as_str(), value) {
                (Some("path"), value) => {
                    path = path.replace(&format!("{{{name}}}"), &value.unwrap_or_default());
                }
                (Some("query"), Some(value)) => query.push(format!("{name}={value}")),
                (Some("header"), Some(value)) => headers.push((name, value)),
                _ => {}
            }
        }
        let request = TestRequest::new(route.method, &format!("{path}?{}", query.join("&"))).raw(&body);
        let typed = is_typed.then_some(("content-type".to_owned(), "application/json".to_owned()));
        headers.into_iter().chain(typed).fold(request, |request, (name, value)| request.header(&name, &value))
    })
}

/// A cluster whose supervisor hangs up on whoever asks it for more than that it is there.
fn start(folder: &std::path::Path) -> TestCluster {
    let listener = UnixListener::bind(cell_drill::drill_socket(folder)).unwrap();
    thread::spawn(move || listener.incoming().for_each(drop));
    full_cluster::start_with(|sources| sources.data_folder(folder))
}

#[test]
fn requests_of_any_kind_are_answered_or_refused_as_the_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = start(folder.path());
    for route in ROUTES.iter().filter(|route| !route.path.ends_with("/stream")) {
        let cases = if route.body.is_some() { CASES_OF_BODIES } else { CASES };
        let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
        let outcome = TestRunner::new(config).run(&request(route), |request| {
            // Else every change would be one of a revision that has passed.
            let revision = cluster.get(0, "/api/v1/tuning").body["revision"].to_string();
            let answer = cluster.send(0, &request.replaced("If-Match", "\"0\"", &revision));
            prop_assert!(answer.status < 500 || answer.status == 503, "{answer:?}");
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{} {}: {error}", route.method, route.path);
        }
    }
}

#[test]
fn values_that_are_valid_by_a_schema_have_no_faults() {
    let schemas = ROUTES.iter().filter_map(|route| route.body.as_ref()).map(|body| (body.schema)());
    for schema in schemas {
        let config = ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() };
        let outcome = TestRunner::new(config).run(&valid(&schema), |value| {
            let mut checker = crate::api::schema::check::Checker::new(document());
            prop_assert_eq!(checker.faults("body", &schema, &value), [""; 0]);
            Ok(())
        });
        outcome.unwrap();
    }
}

#[test]
fn examples_of_bodies_are_as_their_schemas_say() {
    for (route, body) in ROUTES.iter().filter_map(|route| Some((route, route.body.as_ref()?))) {
        let example: Value = serde_json::from_str(body.example).unwrap();
        let mut checker = crate::api::schema::check::Checker::new(document());
        assert_eq!(checker.faults("body", &(body.schema)(), &example), [""; 0], "{route:?}");
    }
}
