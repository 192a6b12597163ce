//! Whether answers are as the API's document says. Every answer that a test gets of the API goes through
//! [`check_answer`]; what only a whole node answers is checked where it is made, with [`covers`].

use std::collections::BTreeSet;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use axum::extract::Query;
use serde_json::Value;

use crate::api::openapi;
use crate::api::routes::{Answer, ROUTES, RouteText};
use crate::api::schema::NODE_TITLE;
use crate::api::schema::check::Checker;

static DOCUMENT: LazyLock<Value> = LazyLock::new(openapi::document);
static CHECKER: LazyLock<Mutex<Checker<'static>>> = LazyLock::new(|| Mutex::new(Checker::new(&DOCUMENT)));

/// The document.
pub(crate) fn document() -> &'static Value {
    &DOCUMENT
}

fn checker() -> MutexGuard<'static, Checker<'static>> {
    CHECKER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A route's name.
pub(crate) fn name(route: &RouteText) -> String {
    format!("{} {}", route.method, route.path)
}

/// The route that a request of this method and path means.
pub(crate) fn route_of(method: &str, path: &str) -> Option<&'static RouteText> {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |route: &&RouteText| {
        let (known, given) = (route.path.split('/'), path.split('/'));
        known.clone().count() == given.clone().count()
            && known.zip(given).all(|(known, given)| is(known, given))
    };
    let routes = ROUTES.iter().filter(|route| route.method == method).filter(fits);
    routes.min_by_key(|route| (route.path.matches('{').count(), !route.path.ends_with(":halt")))
}

/// Whether a part of a path is as the table has it.
fn is(known: &str, given: &str) -> bool {
    match known.split_once('}') {
        Some((_, end)) => given.ends_with(end),
        None => known == given,
    }
}

/// The schema of a route's JSON; none if it answers something else.
fn schema_of(route: &RouteText) -> Option<&'static Value> {
    let responses = &DOCUMENT["paths"][route.path][route.method.to_lowercase()]["responses"];
    match route.answer {
        Answer::Json(_) => {
            Some(&responses[route.success.to_string()]["content"]["application/json"]["schema"])
        }
        Answer::Events | Answer::Plain(_) => None,
    }
}

/// Whether the document says that a route may answer a problem of this status.
fn is_described(route: &RouteText, status: u16) -> bool {
    let responses = &DOCUMENT["paths"][route.path][route.method.to_lowercase()]["responses"];
    responses.get(status.to_string()).is_some()
}

/// Of a schema with two branches the one that is meant, with its path: by what is asked for, or by the kind
/// of operation that is answered.
fn branch<'s>(name: String, schema: &'s Value, of_node: bool, body: &Value) -> (String, &'s Value) {
    let branches = schema["anyOf"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |(_, branch): &(usize, &Value)| match branch["properties"]["operation"]["enum"].as_array() {
        Some(kinds) => kinds.contains(&body["operation"]),
        None => (branch["title"] == NODE_TITLE) == of_node,
    };
    match branches.iter().enumerate().find(of) {
        Some((number, branch)) => (format!("{name}/{number}"), branch),
        None => (name, schema),
    }
}

/// What is wrong with what a route answers if all is well.
fn faults(route: &RouteText, of_node: bool, body: &Value) -> Vec<String> {
    let Some(schema) = schema_of(route) else { return Vec::new() };
    let (name, schema) = branch(name(route), schema, of_node, body);
    assert!(schema["type"] == "object", "{name} has no schema");
    checker().faults(&name, schema, body)
}

/// Whether a node's part alone is asked for.
fn is_of_node(path: &str) -> bool {
    let query = path.parse().map(|uri| Query::<Vec<(String, String)>>::try_from_uri(&uri));
    let scope = ("scope".to_owned(), "node".to_owned());
    matches!(query, Ok(Ok(Query(pairs))) if pairs.contains(&scope))
}

/// Panics if an answer is not as the document says.
pub(crate) fn check_answer(method: &str, path: &str, status: u16, kind: &str, body: &Value) {
    if !path.starts_with("/api/") || method == "HEAD" {
        return;
    }
    let route = route_of(method, path);
    let faults = match route.filter(|route| route.success == status) {
        Some(route) if kind == "application/json" => faults(route, is_of_node(path), body),
        Some(route) if kind == "text/event-stream" && schema_of(route).is_none() => return,
        _ if route.is_some_and(|route| !is_described(route, status)) => {
            vec![format!("the status {status} is not in the document")]
        }
        _ if kind == "application/problem+json" && body["status"] == status => {
            let problem = &DOCUMENT["components"]["schemas"]["Problem"];
            checker().faults("Problem", problem, body)
        }
        _ => vec![format!("{status} {kind} is not in the document")],
    };
    assert!(faults.is_empty(), "{method} {path}: {faults:#?} in {body:#}");
}

/// Panics unless a route may answer each of these, and they show all that the document says of it.
pub(crate) fn covers(method: &str, path: &str, answers: &[Value]) {
    let route = route_of(method, path).unwrap_or_else(|| panic!("there is no route {method} {path}"));
    let of_node = is_of_node(path);
    for answer in answers {
        let faults = faults(route, of_node, answer);
        assert!(faults.is_empty(), "{method} {path}: {faults:#?} in {answer:#}");
    }
    let (name, schema) =
        branch(name(route), schema_of(route).expect("it answers JSON"), of_node, &answers[0]);
    let mut all = BTreeSet::new();
    checker().paths(&name, schema, &mut all);
    assert_eq!(checker().unmet(&all), [""; 0], "{method} {path}");
}

/// Parts of the document that no answer of this process has shown, of all routes but these.
pub(crate) fn unmet(but: &[&str]) -> Vec<String> {
    let mut all = BTreeSet::new();
    for route in ROUTES.iter().filter(|route| !but.contains(&&*name(route))) {
        if let Some(schema) = schema_of(route) {
            checker().paths(&name(route), schema, &mut all);
        }
    }
    // Which of two branches was meant is known: nobody asks the schema of both.
    all.retain(|path| !ROUTES.iter().any(|route| *path == name(route)));
    checker().unmet(&all)
}

#[test]
fn route_of_a_request_is_the_one_that_says_most_of_it() {
    let path = |method, path| route_of(method, path).map(|route| route.path);
    assert_eq!(path("GET", "/api/v1/drills/preview?kind=kill"), Some("/api/v1/drills/preview"));
    assert_eq!(path("GET", "/api/v1/drills/drill-0-1"), Some("/api/v1/drills/{id}"));
    assert_eq!(path("POST", "/api/v1/drills/drill-0-1:halt"), Some("/api/v1/drills/{id}:halt"));
    assert_eq!(path("PATCH", "/api/v1/tuning"), Some("/api/v1/tuning"));
    assert_eq!(path("GET", "/api/v1/nothing"), None);
}
