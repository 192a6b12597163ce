//! `GET /api/openapi.json`: the API as an OpenAPI 3.1 document, made from the table of routes. What they take
//! and answer is in `api/schema`.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};

use crate::api::params::Params;
use crate::api::routes::{Answer, BodyText, Parameter, Place, ROUTES, RouteText, Takes};
use crate::api::schema;
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
    for route in &ROUTES {
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
            "securitySchemes": {"bearer": {"type": "http", "scheme": "bearer"}},
        },
        // Tokens are asked for where `tokens_file` names some.
        "security": [{}, {"bearer": []}],
    })
}

fn operation(route: &RouteText) -> Value {
    let (media, schema) = match route.answer {
        Answer::Json(schema) => ("application/json", schema()),
        Answer::Events => ("text/event-stream", json!({"type": "string"})),
    };
    let role = route.role.word();
    let mut operation = json!({
        "tags": [route.tag],
        "summary": route.summary,
        "description": format!("Requires the role {role}, where tokens are asked for."),
        "parameters": route.parameters.iter().map(parameter).collect::<Vec<_>>(),
        "responses": {
            (route.success.to_string()): {
                "description": "What was asked for.",
                "content": {(media): {"schema": schema}},
            },
            "default": {
                "description": "A problem.",
                "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    });
    if let Some(BodyText { schema, example, is_required }) = &route.body {
        let example: Value = serde_json::from_str(example).unwrap_or_default();
        let content = json!({"application/json": {"schema": schema(), "example": example}});
        operation["requestBody"] = json!({"required": is_required, "content": content});
    }
    operation
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
