//! The problems that each route answers, for the API's document. Tests hold the answers to it.

use serde_json::{Map, Value, json};

use crate::api::guard::API;
use crate::api::routes::{Place, RouteText};

/// Every status of a problem, with what it means.
const PROBLEMS: [(u16, &str); 15] = [
    (400, "A part of the request is wrong; errors says which."),
    (401, "The request has no token, or one that is not known."),
    (403, "The caller may not do it, the node is read-only, or the request is of a page of another host."),
    (404, "What is asked for is not there."),
    (408, "The body did not come in time."),
    (409, "It, or something that excludes it, is under way."),
    (412, "What was seen is not so any more: nothing was done."),
    (413, "The body is too long."),
    (415, "The body is not of JSON's type."),
    (421, "The Host header does not name this node."),
    (422, "The body cannot be taken; errors says why. Or its Idempotency-Key came with another request."),
    (428, "If-Match is missing."),
    (429, "There were too many changes, or tokens that are not known. Retry-After says how long to wait."),
    (500, "The node could not answer; its log has more."),
    (503, "What the route needs does not answer now. Retry-After may say how long to wait."),
];

/// The name of what the document says once of a status.
fn name(status: u16) -> String {
    format!("Problem{status}")
}

/// What the document says of each status.
pub(crate) fn components() -> Map<String, Value> {
    let problem =
        || json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}});
    let response = |(status, meaning): (u16, &str)| {
        (name(status), json!({"description": meaning, "content": problem()}))
    };
    PROBLEMS.into_iter().map(response).collect()
}

/// The problems of a route, by status.
pub(crate) fn responses(route: &RouteText) -> Map<String, Value> {
    let statuses = PROBLEMS.iter().map(|(status, _)| *status).filter(|status| answers(route, *status));
    let reference = |status| json!({"$ref": format!("#/components/responses/{}", name(status))});
    statuses.map(|status| (status.to_string(), reference(status))).collect()
}

/// Whether a route may answer a problem of this status.
fn answers(route: &RouteText, status: u16) -> bool {
    let changes = route.method != "GET";
    let has = |place, name: Option<&str>| {
        let mut parameters = route.parameters.iter();
        parameters.any(|one| one.place == place && name.is_none_or(|name| one.name == name))
    };
    let by_kind = match status {
        400 | 421 => true,
        401 | 429 | 500 | 503 => route.path.starts_with(API),
        403 => changes || (route.role.is_some() && route.path.starts_with(API)),
        404 => has(Place::Path, None),
        408 | 409 | 413 | 415 | 422 => changes,
        412 => has(Place::Header, Some("If-Match")),
        428 => route.parameters.iter().any(|one| one.name == "If-Match" && one.is_required),
        _ => false,
    };
    by_kind || route.problems.contains(&status)
}
