//! Tests that the API is as its table says: every route is in it, and each takes what it names and nothing
//! else.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::api::routes::{Answer, HEALTH_ROUTES, Parameter, Place, ROUTES, RouteText, Takes};
use crate::test_cluster::{TestAnswer, TestCluster, TestRequest};

/// The router's own text: its routes cannot be asked for otherwise.
const ROUTER: &str = include_str!("router.rs");

/// Method and path of each route but those of the console, as the router names them.
fn routed() -> BTreeSet<(String, String)> {
    let calls = ROUTER.split(".route(").skip(1).filter_map(|call| {
        let (path, handler) = call.trim_start().strip_prefix('"')?.split_once('"')?;
        let method = ["get(", "post(", "patch("].into_iter().find(|method| handler.contains(*method))?;
        Some((method.trim_end_matches('(').to_uppercase(), path.to_owned()))
    });
    calls.filter(|(_, path)| path != "/" && !path.starts_with("/console")).collect()
}

#[test]
fn every_route_is_in_the_table_and_all_of_the_table_is_routed() {
    let all = HEALTH_ROUTES.iter().chain(&ROUTES);
    let described: BTreeSet<(String, String)> =
        all.map(|route| (route.method.to_owned(), route.path.replace("}:halt", "}"))).collect();
    assert_eq!(described.len(), HEALTH_ROUTES.len() + ROUTES.len());
    assert_eq!(described, routed());
}

/// A request with an example for each parameter that is needed, and one more or one less.
fn request(route: &RouteText, more: &[(&str, &str)], without: Option<&str>) -> TestRequest {
    let mut path = route.path.to_owned();
    let mut query = Vec::new();
    let mut headers = Vec::new();
    for parameter in route.parameters {
        let given = more.iter().find(|(name, _)| *name == parameter.name).map(|(_, value)| *value);
        if without == Some(parameter.name) || (given.is_none() && !parameter.is_required) {
            continue;
        }
        let value = given.unwrap_or(parameter.example);
        match parameter.place {
            Place::Path => path = path.replace(&format!("{{{}}}", parameter.name), value),
            Place::Query => query.push(format!("{}={value}", parameter.name)),
            Place::Header => headers.push((parameter.name, value)),
        }
    }
    let unknown = more.iter().filter(|(name, _)| route.parameters.iter().all(|known| known.name != *name));
    query.extend(unknown.map(|(name, value)| format!("{name}={value}")));
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let request = TestRequest::new(route.method, &path);
    let request = route.body.iter().fold(request, |request, body| request.json(body.example));
    headers.into_iter().fold(request, |request, (name, value)| request.header(name, value))
}

/// Streams do not end by themselves: only what refuses one is asked of it.
fn ends(route: &RouteText) -> bool {
    !route.path.ends_with("/stream")
}

fn queries(route: &RouteText) -> impl Iterator<Item = &Parameter> {
    route.parameters.iter().filter(|parameter| parameter.place == Place::Query)
}

/// An answer that a route may give: its document, or a problem that says what and why.
fn check(route: &RouteText, answer: &TestAnswer) {
    let kind = answer.header("content-type").unwrap_or_default();
    if answer.status == route.success {
        assert_eq!(kind, "application/json", "{route:?}");
        assert!(answer.body.is_object() || answer.body.is_array(), "{route:?}: {answer:?}");
    } else {
        assert_eq!(kind, "application/problem+json", "{route:?}: {answer:?}");
        assert!(answer.status < 500 || answer.status == 503, "{route:?}: {answer:?}");
        for field in ["detail", "code", "request_id"] {
            assert!(answer.body[field].is_string(), "{route:?}: {answer:?}");
        }
    }
}

#[test]
fn routes_answer_examples_with_what_they_promise() {
    let cluster = TestCluster::start(2);
    for route in ROUTES.iter().filter(|route| ends(route)) {
        check(route, &cluster.send(0, &request(route, &[], None)));
        for parameter in queries(route) {
            let more = [(parameter.name, parameter.example)];
            let answer = cluster.send(1, &request(route, &more, None));
            check(route, &answer);
            assert_ne!(answer.body["code"], "bad_request", "{route:?} {more:?}: {answer:?}");
        }
    }
}

#[test]
fn parameters_that_are_wrong_unknown_or_missing_are_named() {
    let cluster = TestCluster::start(1);
    let refused = |route: &RouteText, request: &TestRequest, name: &str| {
        let answer = cluster.send(0, request);
        assert_eq!(answer.status, 400, "{route:?} {name}: {answer:?}");
        assert_eq!(answer.pointers(), [format!("/query/{name}")], "{route:?}");
    };
    for route in ROUTES.iter().filter(|route| route.method == "GET") {
        refused(route, &request(route, &[("no_such_parameter", "1")], None), "no_such_parameter");
        for parameter in queries(route) {
            let wrong = match parameter.takes {
                Takes::Integer(_, u64::MAX) => "-1",
                Takes::Integer(0, _) => "x",
                Takes::Integer(..) => "0",
                Takes::Flag | Takes::Choice(_) => "neither",
                Takes::Hex => "6",
                Takes::Text => continue,
            };
            refused(route, &request(route, &[(parameter.name, wrong)], None), parameter.name);
        }
        for parameter in queries(route).filter(|parameter| parameter.is_required) {
            refused(route, &request(route, &[], Some(parameter.name)), parameter.name);
        }
    }
}

#[test]
fn methods_that_are_not_described_are_refused() {
    // More at once than a caller may change by default.
    let cluster = TestCluster::start_with(1, &[("http_changes_per_second", "10000")], |sources| sources);
    for route in &ROUTES {
        let path = route.path.replace(['{', '}'], "");
        let answer = cluster.send(0, &TestRequest::new("DELETE", &path).json("{}"));
        assert_eq!(answer.status, 405, "{path}: {answer:?}");
    }
}

#[test]
fn document_has_every_route_with_its_parameters() {
    let cluster = TestCluster::start(1);
    let document = cluster.get(0, "/api/openapi.json").body;
    assert_eq!(document["openapi"], "3.1.0");
    for route in &ROUTES {
        let described = &document["paths"][route.path][route.method.to_lowercase()];
        assert_eq!(described["summary"], route.summary);
        let names: Vec<&str> = described["parameters"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, route.parameters.iter().map(|parameter| parameter.name).collect::<Vec<_>>());
        assert_eq!(described["requestBody"].is_object(), route.body.is_some());
    }
}

/// They were left out, and of errors the document said nothing but that there are some.
#[test]
fn document_has_health_routes_and_the_problems_of_each_route() {
    let cluster = TestCluster::start(1);
    let document = cluster.get(0, "/api/openapi.json").body;
    for route in &HEALTH_ROUTES {
        let described = &document["paths"][route.path]["get"];
        let Answer::Plain(types) = route.answer else { panic!("{route:?}") };
        let accepts = ["*/*", "application/openmetrics-text"];
        for accept in &accepts[..types.len()] {
            let answer = cluster.send(0, &TestRequest::new("GET", route.path).header("accept", accept));
            let kind = answer.header("content-type").unwrap();
            assert!(
                described["responses"][answer.status.to_string()]["content"].get(kind).is_some(),
                "{kind}"
            );
        }
        assert_eq!(described["security"], serde_json::json!([]));
    }
    assert!(document["paths"]["/readyz"]["get"]["responses"]["503"]["content"].is_object());
    let statuses = |path: &str, method: &str| {
        let responses = document["paths"][path][method]["responses"].as_object().unwrap();
        let known = responses.iter().filter(|(status, _)| *status != "default");
        let mut statuses: Vec<u16> = known.map(|(status, _)| status.parse().unwrap()).collect();
        statuses.sort_unstable();
        statuses
    };
    assert_eq!(statuses("/livez", "get"), [200, 400, 421]);
    assert_eq!(statuses("/api/v1/whoami", "get"), [200, 400, 401, 421, 429, 500, 503]);
    assert_eq!(statuses("/api/v1/nodes", "get"), [200, 400, 401, 403, 421, 429, 500, 503]);
    assert_eq!(statuses("/api/v1/kv/{key}", "get"), [200, 400, 401, 403, 404, 421, 429, 500, 503]);
    let changes = [200, 400, 401, 403, 408, 409, 412, 413, 415, 421, 422, 428, 429, 500, 503];
    assert_eq!(statuses("/api/v1/tuning", "patch"), changes);
    for (name, response) in document["components"]["responses"].as_object().unwrap() {
        let schema = &response["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/Problem", "{name}");
    }
}

/// A value of the query: of the kind that is wanted, near it, or anything.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<u64>().prop_map(|number| number.to_string()),
        "[0-9a-fA-F]{0,12}",
        "[a-z_,]{0,20}",
        "(%[0-9a-f]{2}){0,8}",
        Just(String::new()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn values_of_any_kind_are_answered_or_refused_in_order(
        route in 0..ROUTES.len(),
        values in prop::collection::vec(value(), 6),
    ) {
        thread_local! { static CLUSTER: TestCluster = TestCluster::start(1); }
        let route = &ROUTES[route];
        let more: Vec<(&str, &str)> =
            queries(route).zip(&values).map(|(parameter, value)| (parameter.name, value.as_str())).collect();
        prop_assume!(ends(route));
        CLUSTER.with(|cluster| check(route, &cluster.send(0, &request(route, &more, None))));
    }
}
