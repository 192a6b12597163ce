//! `GET /api/openapi.json`: the API as an OpenAPI 3.1 document, made from the table of routes. What they take
//! and answer is in `api/schema`.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::api::params::Params;
use crate::api::routes::{Answer, BodyText, HEALTH_ROUTES, Parameter, Place, ROUTES, RouteText, Takes};
use crate::api::{problem_text, schema};
use crate::problem::Problem;

/// `GET /api/openapi.json`.
pub(crate) async fn get_document(params: Params) -> Result<Response, Problem> {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    params.end()?;
    let text = TEXT.get_or_init(|| document().to_string().into());
    Ok(([(header::CONTENT_TYPE, "application/json")], text.clone()).into_response())
}

/// The document.
pub(crate) fn document() -> Value {
    let mut paths = Map::new();
    for route in HEALTH_ROUTES.iter().chain(&ROUTES) {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.to_lowercase()] = operation(route);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Cell admin API",
            "version": "1",
            "description": "What a node reports of its cluster, and what can be changed. Every answer has a \
                version; fields are added without a new one, so pass by what you do not know. Errors are RFC \
                9457 problems.",
        },
        "paths": paths,
        "components": {
            "schemas": schema::components(),
            "responses": problem_text::components(),
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        // Tokens are asked for where `tokens_file` names some.
        "security": [{}, {"bearer": []}],
    })
}

fn operation(route: &RouteText) -> Value {
    let mut whom = match (route.answer, route.role) {
        (Answer::Plain(_), _) => "Everybody may ask for it, without a token.".to_owned(),
        (_, Some(role)) => format!("Requires the role {}, where tokens are asked for.", role.word()),
        (_, None) => "Requires any token, where tokens are asked for.".to_owned(),
    };
    if !route.keys.is_empty() {
        whom.push_str(" Without the role reader no key may be named, and the answer has none.");
    }
    let mut responses = problem_text::responses(route);
    for status in route.problems {
        if let Answer::Plain(types) = route.answer {
            responses
                .insert(status.to_string(), response("It is not so.", types, &json!({"type": "string"})));
        }
    }
    responses.insert(route.success.to_string(), success(route));
    let problem = json!({"$ref": "#/components/schemas/Problem"});
    let other = response("Another problem.", &["application/problem+json"], &problem);
    responses.insert("default".to_owned(), other);
    let mut operation = json!({
        "tags": [route.tag],
        "summary": route.summary,
        "description": whom,
        "parameters": route.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": responses,
    });
    if matches!(route.answer, Answer::Plain(_)) {
        operation["security"] = json!([]);
    }
    if let Some(BodyText { schema, example, is_required }) = &route.body {
        let example: Value = serde_json::from_str(example).unwrap_or_default();
        let content = json!({"application/json": {"schema": schema(), "example": example}});
        operation["requestBody"] = json!({"required": is_required, "content": content});
    }
    operation
}

/// What a route answers if all is well.
fn success(route: &RouteText) -> Value {
    let text = json!({"type": "string"});
    let (types, schema): (&[&str], _) = match route.answer {
        Answer::Json(schema) => (&["application/json"], schema()),
        Answer::Events => (&["text/event-stream"], text),
        Answer::Plain(types) => (types, text),
    };
    response("What was asked for.", types, &schema)
}

fn response(meaning: &str, types: &[&str], schema: &Value) -> Value {
    let content: Map<_, _> =
        types.iter().map(|kind| ((*kind).to_owned(), json!({"schema": schema}))).collect();
    json!({"description": meaning, "content": content})
}

fn parameter(parameter: &Parameter) -> Value {
    let place = match parameter.place {
        Place::Path => "path",
        Place::Query => "query",
        Place::Header => "header",
    };
    let schema = match parameter.takes {
        Takes::Integer(least, most) => json!({"type": "integer", "minimum": least, "maximum": most}),
        Takes::Flag => json!({"type": "string", "enum": ["0", "1"]}),
        Takes::Hex => json!({"type": "string", "pattern": "^([0-9a-fA-F]{2})*$"}),
        Takes::Choice(words) => json!({"type": "string", "enum": words}),
        Takes::Text => json!({"type": "string"}),
    };
    json!({
        "name": parameter.name, "in": place, "required": parameter.is_required,
        "description": parameter.meaning, "schema": schema, "example": parameter.example,
    })
}
