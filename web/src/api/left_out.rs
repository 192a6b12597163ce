//! Answers without their keys, for callers who may see figures and not read entries.

use axum::body::{Body, to_bytes};
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use crate::api::routes::{Place, RouteText, Takes};
use crate::problem::Problem;

/// The member that says so.
const SAYS_SO: &str = "keys_left_out";
/// Longer answers there are none.
const ANSWER_BYTES_MAX: usize = 8 << 20;

/// Whether such a caller may ask this: who names keys learns by the answer where others are.
///
/// # Errors
/// 403: it names a key.
pub(crate) fn permit(route: &RouteText, uri: &Uri) -> Result<(), Problem> {
    let takes_key = |name: &str| {
        let mut parameters = route.parameters.iter();
        parameters.any(|one| one.place == Place::Query && one.takes == Takes::Hex && one.name == name)
    };
    let query = uri.query().unwrap_or_default();
    let names_key = query.split('&').filter_map(|part| part.split('=').next()).any(takes_key);
    // A name that is written in another way is found by its sign.
    if names_key || query.contains('%') {
        let detail = "Keys are for those who read entries: this needs the role reader besides.";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail)
            .next("ask for all keys, or with a token that has the role reader, too"));
    }
    Ok(())
}

/// The answer without the members of these names, and with one that says so.
pub(crate) async fn without(response: Response, keys: &[&str]) -> Response {
    if response.status() != StatusCode::OK {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let whole = to_bytes(body, ANSWER_BYTES_MAX).await.ok();
    let Some(Value::Object(mut document)) = whole.and_then(|body| serde_json::from_slice(&body).ok()) else {
        tracing::error!("an answer whose keys are to be left out cannot be read");
        return Problem::internal().into_response();
    };
    let mut value = Value::Object(std::mem::take(&mut document));
    remove(&mut value, keys);
    value[SAYS_SO] = true.into();
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(value.to_string()))
}

fn remove(value: &mut Value, keys: &[&str]) {
    match value {
        Value::Object(members) => {
            members.retain(|name, _| !keys.contains(&name.as_str()));
            members.values_mut().for_each(|member| remove(member, keys));
        }
        Value::Array(items) => items.iter_mut().for_each(|item| remove(item, keys)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::conformity::{check_answer, route_of};

    #[test]
    fn permit_refuses_what_names_a_key_however_it_is_written() {
        let route = route_of("GET", "/api/v1/tree/buckets").unwrap();
        let permits = |query: &str| permit(route, &format!("/?{query}").parse().unwrap()).is_ok();
        assert!(permits("columns=4&scope=node") && permits(""));
        for query in ["from=61", "columns=4&to=61", "to", "%66rom=61"] {
            assert!(!permits(query), "{query}");
        }
    }

    #[tokio::test]
    async fn without_removes_members_however_deep_and_nothing_of_a_problem() {
        let text = r#"{"low": 1, "buckets": [{"high": 2, "entries": 3}]}"#;
        let answer = without(text.into_response(), &["low", "high"]).await;
        let body: Value = serde_json::from_slice(&to_bytes(answer.into_body(), 999).await.unwrap()).unwrap();
        assert_eq!(body, serde_json::json!({"buckets": [{"entries": 3}], "keys_left_out": true}));
        let problem = without((StatusCode::NOT_FOUND, text).into_response(), &["low"]).await;
        assert_eq!(to_bytes(problem.into_body(), 999).await.unwrap(), text);
        assert_eq!(without("text".into_response(), &["low"]).await.status(), 500);
    }

    #[test]
    fn document_of_a_meganode_without_its_keys_is_as_the_api_says() {
        let document = serde_json::json!({
            "version": 1, "at_unix_ms": 1, "age_ms": 1, "id": "1.0", "pair": 1, "slot": 0, "node": 0,
            "use": "entries", "height": 1, "entries": 0, "tree_nodes": 1, "tree_nodes_all": 2, "levels": [],
            "slots": "", "right": null, "keys_left_out": true,
        });
        check_answer("GET", "/api/v1/tree/meganodes/1.0", 200, "application/json", &document);
    }
}
