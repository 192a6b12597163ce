//! What every request goes through before its handler: the role that its route wants, by the table of
//! routes; and if it changes something where it comes from, what its body is, whether it was done already.

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cell_node::TokenRole;
use http_body_util::LengthLimitError;
use sha2::{Digest, Sha256};

use crate::access::Caller;
use crate::api::left_out;
use crate::api::routes::{RouteText, find, is_known};
use crate::body_limit::limited_body;
use crate::idempotency::{Fingerprint, KeptAnswer, Known, RepeatId};
use crate::problem::{FieldProblem, Problem};
use crate::shared::Shared;
use crate::{host, status_page};

/// What routes of the API begin with.
pub(crate) const API: &str = "/api/";
/// Longest body of a request.
const BODY_BYTES_MAX: usize = 64 << 10;
/// Time for a body.
const BODY_PATIENCE: Duration = Duration::from_secs(10);
/// Longest answer that is kept for repeats.
const ANSWER_BYTES_MAX: usize = 256 << 10;
/// Longest `Idempotency-Key`.
const KEY_BYTES_MAX: usize = 128;
const KEY_HEADER: &str = "idempotency-key";
const TYPES: [&str; 2] = ["application/json", "application/merge-patch+json"];

/// What a request wants of its caller: what the table says of its route. A route that is not in the table is
/// for admins alone. Where there is no such route, or not with that method, whoever would change something is
/// an operator.
fn wanted(request: &Request) -> (Option<TokenRole>, Option<&'static RouteText>) {
    let is_safe = is_safe(request.method());
    let method = if is_safe { "GET" } else { request.method().as_str() };
    let path = request.extensions().get::<MatchedPath>().map(MatchedPath::as_str);
    let path = path.filter(|path| path.starts_with(API) || *path == status_page::PATH);
    match (path, path.and_then(|path| find(method, path))) {
        (_, Some(route)) => (route.role, Some(route)),
        (Some(status_page::PATH), None) if is_safe => (Some(TokenRole::Viewer), None),
        (Some(path), None) if is_safe && !is_known(path) => (Some(TokenRole::Admin), None),
        _ => ((!is_safe).then_some(TokenRole::Operator), None),
    }
}

/// Whether a caller has a role.
fn admit(caller: &Caller, wanted: Option<TokenRole>) -> Result<(), Problem> {
    let Some(wanted) = wanted.filter(|wanted| !caller.grants.has(*wanted)) else { return Ok(()) };
    let (wanted, has) = (wanted.word(), caller.roles().join(", "));
    let detail = format!("This needs the role {wanted}; your token has {has}.");
    let next = "ask whoever keeps the tokens for one with more rights";
    Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail).next(next))
}

/// Whether a method changes nothing.
fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// See the module's text.
pub(crate) async fn guard(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let is_guarded = path.starts_with(API) || path == status_page::PATH;
    let (wanted, route) = wanted(&request);
    if let (Err(problem), true) = (admit(&caller, wanted), is_guarded) {
        return problem.into_response();
    }
    if let Some(route) = route.filter(|route| !(route.keys.is_empty() || caller.grants.reads)) {
        let has_body = request.method() != Method::HEAD;
        return match left_out::permit(route, request.uri()) {
            Ok(()) if has_body => left_out::without(next.run(request).await, route.keys).await,
            Ok(()) => next.run(request).await,
            Err(problem) => problem.into_response(),
        };
    }
    if is_safe(request.method()) {
        return next.run(request).await;
    }
    if shared.is_read_only() {
        return read_only().into_response();
    }
    if let Err(problem) = shared.limits.count_change(&caller) {
        return problem.into_response();
    }
    match guarded(&shared, &caller, request, next).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn guarded(
    shared: &Shared,
    caller: &Caller,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    let (mut parts, body) = request.into_parts();
    check_origin(&parts.headers)?;
    let body = read_body(body, BODY_PATIENCE).await?;
    check_type(&parts.headers, &body)?;
    let Some(key) = key(&parts.headers)? else {
        return Ok(next.run(Request::from_parts(parts, body.into())).await);
    };
    let (key, fingerprint) = (format!("{} {key}", caller.name), fingerprint(caller, &parts, &body));
    match shared.idempotency().begin(&key, fingerprint) {
        Known::New => {}
        Known::Answered(answer) => return Ok(again(answer)),
        Known::UnderWay => return Err(under_way()),
        Known::OtherRequest => return Err(other_request()),
    }
    let under_way = UnderWay { shared, key };
    parts.extensions.insert(repeat_id(&under_way.key, &fingerprint));
    let response = next.run(Request::from_parts(parts, body.into())).await;
    Ok(under_way.end(response).await)
}

/// A whole body. It has `patience` to come.
async fn read_body(body: Body, patience: Duration) -> Result<Bytes, Problem> {
    match tokio::time::timeout(patience, limited_body(body, BODY_BYTES_MAX)).await {
        Ok(Ok(body)) => Ok(body),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("The body is longer than {} KiB.", BODY_BYTES_MAX >> 10);
            let next = "send less at a time";
            Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).next(next))
        }
        Ok(Err(error)) => {
            let detail = format!("The body broke off: {error}.");
            Err(Problem::new(StatusCode::BAD_REQUEST, "body_broken", detail).next("send it again"))
        }
        Err(_) => {
            let detail = format!("The body did not come within {} s.", patience.as_secs());
            Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "body_too_slow", detail).next("send it again"))
        }
    }
}

/// A web page of another host may send a request to this one, though it cannot read the answer.
fn check_origin(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let own = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if origin.to_str().is_ok_and(|origin| host::is_origin(origin, own)) {
        return Ok(());
    }
    let detail =
        "The Origin header names another host: a page that this node has not served cannot change it.";
    let next = "use the console of this node, or a program that sends no Origin";
    Err(Problem::new(StatusCode::FORBIDDEN, "origin_refused", detail).next(next))
}

fn check_type(headers: &HeaderMap, body: &Bytes) -> Result<(), Problem> {
    let Some(given) = headers.get(header::CONTENT_TYPE) else {
        return if body.is_empty() { Ok(()) } else { Err(unsupported("The body has no Content-Type.")) };
    };
    let essence = given.to_str().unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if TYPES.iter().any(|known| known.eq_ignore_ascii_case(essence)) {
        return Ok(());
    }
    Err(unsupported("The Content-Type is none that this API takes."))
}

fn unsupported(detail: &'static str) -> Problem {
    Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail)
        .next(format!("send {}", TYPES.join(" or ")))
}

fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(KEY_HEADER) else { return Ok(None) };
    let text = key.to_str().ok().filter(|key| (1..=KEY_BYTES_MAX).contains(&key.len()));
    text.map(Some).ok_or_else(|| {
        let detail = format!("a key has 1 to {KEY_BYTES_MAX} printable ASCII characters");
        let pointer = format!("/header/{KEY_HEADER}");
        Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
    })
}

/// The condition is left out: who reads the revision anew before a repeat still means the same change.
fn fingerprint(caller: &Caller, parts: &Parts, body: &Bytes) -> Fingerprint {
    let mut hash = Sha256::new();
    for part in [caller.name.as_bytes(), parts.method.as_str().as_bytes(), parts.uri.to_string().as_bytes()] {
        hash.update(part);
        hash.update([0]);
    }
    hash.update(body);
    hash.finalize().into()
}

fn repeat_id(key: &str, fingerprint: &Fingerprint) -> RepeatId {
    let hash = Sha256::new().chain_update(fingerprint).chain_update(key).finalize();
    RepeatId(hash.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte)))
}

fn read_only() -> Problem {
    let detail = "This node's admin API is read-only: it changes nothing.";
    Problem::new(StatusCode::FORBIDDEN, "read_only", detail)
        .next("ask another node, or start this one without `http_read_only`")
}

fn under_way() -> Problem {
    let detail = "A request with this Idempotency-Key is under way.";
    Problem::new(StatusCode::CONFLICT, "in_progress", detail).next("send it again in a second")
}

fn other_request() -> Problem {
    let detail = "This Idempotency-Key came with another request before.";
    Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "idempotency_key_reused", detail)
        .next("draw a new key for each change")
}

fn again(answer: KeptAnswer) -> Response {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = answer.status;
    *response.headers_mut() = answer.headers;
    response.headers_mut().insert("idempotency-replayed", HeaderValue::from_static("true"));
    response
}

/// A key whose request is under way; it is free again when this is dropped, whatever became of the request.
struct UnderWay<'a> {
    shared: &'a Shared,
    key: String,
}

impl UnderWay<'_> {
    /// Keeps an answer that says that something was done.
    async fn end(self, response: Response) -> Response {
        if !response.status().is_success() {
            return response;
        }
        let (parts, body) = response.into_parts();
        let Ok(body) = to_bytes(body, ANSWER_BYTES_MAX).await else {
            tracing::error!("an answer to a change is too long to be kept");
            return Problem::internal().into_response();
        };
        let answer = KeptAnswer { status: parts.status, headers: parts.headers.clone(), body: body.clone() };
        self.shared.idempotency().end(&self.key, answer);
        Response::from_parts(parts, body.into())
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.shared.idempotency().abandon(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures_util::stream;

    use super::*;

    #[tokio::test]
    async fn read_body_distinguishes_a_long_one_a_broken_one_and_a_slow_one() {
        let long = Body::from(vec![b'x'; BODY_BYTES_MAX + 1]);
        let broken =
            Body::from_stream(stream::iter([Ok("x"), Err(io::Error::from(io::ErrorKind::BrokenPipe))]));
        let slow = Body::from_stream(stream::pending::<io::Result<Bytes>>());
        for (body, patience, status, code) in [
            (long, BODY_PATIENCE, 413, "body_too_large"),
            (broken, BODY_PATIENCE, 400, "body_broken"),
            (slow, Duration::from_millis(1), 408, "body_too_slow"),
        ] {
            let problem = read_body(body, patience).await.unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (status, code), "{}", problem.detail);
        }
        assert_eq!(read_body(Body::from("x"), BODY_PATIENCE).await.unwrap(), "x");
    }
}
