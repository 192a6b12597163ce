//! Errors as RFC 9457 `application/problem+json`.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// An error of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    /// No such route.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed,
    /// The `Host` header names another machine.
    HostRefused,
    /// The handler failed.
    Internal,
}

impl Problem {
    /// A word that programs compare.
    pub(crate) const fn code(self) -> &'static str {
        match self {
            Problem::NotFound => "not_found",
            Problem::MethodNotAllowed => "method_not_allowed",
            Problem::HostRefused => "host_refused",
            Problem::Internal => "internal",
        }
    }

    const fn status(self) -> StatusCode {
        match self {
            Problem::NotFound => StatusCode::NOT_FOUND,
            Problem::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Problem::HostRefused => StatusCode::MISDIRECTED_REQUEST,
            Problem::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    const fn detail(self) -> &'static str {
        match self {
            Problem::NotFound => "There is no such route. Known: /livez, /readyz, /metrics, /api/v1/status.",
            Problem::MethodNotAllowed => "This route answers GET only.",
            Problem::HostRefused => {
                "The Host header names another machine. This node answers on loopback only; ask localhost."
            }
            Problem::Internal => "The node could not answer; its log tells more.",
        }
    }

    /// The response to one request.
    pub(crate) fn respond(self, request_id: &str) -> Response {
        let status = self.status();
        let body = json!({
            "type": "about:blank",
            "title": status.canonical_reason(),
            "status": status.as_u16(),
            "detail": self.detail(),
            "code": self.code(),
            "request_id": request_id,
        });
        let json = HeaderValue::from_static("application/problem+json");
        let mut response = (status, body.to_string()).into_response();
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }
}
