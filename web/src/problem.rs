//! Errors as RFC 9457 `application/problem+json`. A handler returns a [`Problem`]; the name of the request is
//! put into its body on the way out.

use std::borrow::Cow;
use std::time::Duration;

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// The version of every document, problems included. It grows when a field changes its meaning or goes away;
/// new fields may come without.
pub(crate) const VERSION: u32 = 1;

/// An error of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// A word that programs compare.
    pub(crate) code: &'static str,
    /// What is wrong, in a sentence or two.
    pub(crate) detail: Cow<'static, str>,
    /// What to do.
    pub(crate) next: Option<Cow<'static, str>>,
    /// Which parts of the request are wrong.
    pub(crate) errors: Vec<FieldProblem>,
    /// After how many seconds it may be tried again.
    pub(crate) retry_after: Option<u64>,
}

/// What is wrong with one part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct FieldProblem {
    /// `/query/NAME`, `/path/NAME`, `/header/NAME`, or a JSON pointer into the body.
    pub(crate) pointer: String,
    pub(crate) detail: String,
    /// The least that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) min: Option<String>,
    /// The most that is taken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) unit: Option<&'static str>,
}

impl Problem {
    /// An error with this status.
    pub(crate) fn new(
        status: StatusCode,
        code: &'static str,
        detail: impl Into<Cow<'static, str>>,
    ) -> Problem {
        Problem { status, code, detail: detail.into(), next: None, errors: Vec::new(), retry_after: None }
    }

    /// The same, with what to do.
    pub(crate) fn next(self, next: impl Into<Cow<'static, str>>) -> Problem {
        Problem { next: Some(next.into()), ..self }
    }

    /// The same, to be tried again after this time.
    pub(crate) fn retry_after(self, time: Duration) -> Problem {
        Problem {
            retry_after: Some(time.as_millis().div_ceil(1_000).try_into().unwrap_or(u64::MAX).max(1)),
            ..self
        }
    }

    /// No such route.
    pub(crate) fn no_route() -> Problem {
        let detail = "There is no such route.";
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail).next("see the documentation of the API")
    }

    /// The route is there, and what is asked for is not.
    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, "not_found", detail)
    }

    /// The route has other methods.
    pub(crate) fn method_not_allowed() -> Problem {
        let detail = "This route does not take this method.";
        Problem::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", detail)
    }

    /// The `Host` header does not name this node.
    pub(crate) fn host_refused() -> Problem {
        let detail = "The Host header does not name this node.";
        Problem::new(StatusCode::MISDIRECTED_REQUEST, "host_refused", detail)
            .next("ask localhost, or have the name put into the node's setting http_hosts")
    }

    /// The handler failed.
    pub(crate) fn internal() -> Problem {
        let detail = "The node could not answer; its log has more.";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail)
    }

    /// What the route needs is not there now.
    pub(crate) fn unavailable(detail: impl Into<Cow<'static, str>>) -> Problem {
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
    }

    /// A part of the request is wrong.
    pub(crate) fn bad_request(error: FieldProblem) -> Problem {
        let detail = match error.pointer.as_str() {
            "" => error.detail.clone(), // of the whole body
            pointer => format!("{pointer}: {}", error.detail),
        };
        Problem { errors: vec![error], ..Problem::new(StatusCode::BAD_REQUEST, "bad_request", detail) }
    }

    /// The response to one request.
    pub(crate) fn respond(&self, request_id: &str) -> Response {
        #[derive(Serialize)]
        struct Body<'a> {
            version: u32,
            r#type: &'static str,
            title: Option<&'static str>,
            status: u16,
            detail: &'a str,
            code: &'static str,
            request_id: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            next: Option<&'a str>,
            #[serde(skip_serializing_if = "<[_]>::is_empty")]
            errors: &'a [FieldProblem],
        }
        let Problem { status, code, detail, next, errors, retry_after } = self;
        let (title, next) = (status.canonical_reason(), next.as_deref());
        let status_number = status.as_u16();
        let body = Body {
            version: VERSION,
            r#type: "about:blank",
            title,
            status: status_number,
            detail,
            code,
            request_id,
            next,
            errors,
        };
        let body = serde_json::to_string(&body).expect("plain structures with text keys");
        let mut response = (*status, body).into_response();
        let json = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(*seconds));
        }
        response
    }
}

/// The body comes when the request's name is known; see [`complete`].
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.status.into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Gives a response that a handler ended with a problem its body.
pub(crate) fn complete(response: Response, request_id: &str) -> Response {
    match response.extensions().get::<Problem>() {
        Some(problem) => {
            let mut whole = problem.respond(request_id);
            for (name, value) in response.headers() {
                whole.headers_mut().entry(name).or_insert_with(|| value.clone());
            }
            whole
        }
        None => response,
    }
}
