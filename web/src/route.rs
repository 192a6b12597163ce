//! Routes and what is done for every request.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::freshness::Freshness;
use crate::problem::Problem;
use crate::source::StatusSource;
use crate::{cluster, health, host, metrics, status};

/// What handlers share.
pub(crate) struct Shared {
    source: Arc<dyn StatusSource>,
    freshness: Freshness,
    requests: AtomicU64,
}

impl Shared {
    /// Over a node's snapshots.
    pub(crate) fn new(source: Arc<dyn StatusSource>) -> Shared {
        let freshness = Freshness::new(source.snapshot().uptime_ms, now());
        Shared { source, freshness, requests: AtomicU64::new(0) }
    }

    /// The newest snapshot and its age. The server calls it each second too, so that an age is known when
    /// asked.
    pub(crate) fn look(&self) -> (Arc<cell_node::NodeSnapshot>, std::time::Duration) {
        let snapshot = self.source.snapshot();
        let age = self.freshness.observe(snapshot.uptime_ms, now());
        (snapshot, age)
    }
}

#[allow(clippy::disallowed_methods, reason = "web is a shell: it shows ages")]
fn now() -> Instant {
    Instant::now()
}

/// The name of one request, for its response and the log.
#[derive(Clone, Debug)]
struct RequestName(String);

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/api/v1/status", get(status_json))
        .route("/api/v1/cluster", get(cluster_json))
        .fallback(|request: Request| async move { problem(Problem::NotFound, &request) })
        .method_not_allowed_fallback(|request: Request| async move {
            problem(Problem::MethodNotAllowed, &request)
        })
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), name_and_guard))
        .with_state(shared)
}

/// Names each request, and turns away those that were meant for another host.
async fn name_and_guard(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let number = shared.requests.fetch_add(1, Ordering::Relaxed) + 1;
    let name = format!("{:x}-{number}", shared.source.snapshot().incarnation.0);
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let mut response = if host.is_some_and(host::is_local) {
        request.extensions_mut().insert(RequestName(name.clone()));
        next.run(request).await
    } else {
        Problem::HostRefused.respond(&name)
    };
    let headers = response.headers_mut();
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert("x-request-id", name);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

fn problem(problem: Problem, request: &Request) -> Response {
    let name = request.extensions().get::<RequestName>();
    problem.respond(name.map_or("", |name| &name.0))
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (snapshot, age) = shared.look();
    let checks = health::checks(&snapshot, age);
    let code = if health::is_ready(&checks) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_verbose = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let text = match (is_verbose, code) {
        (true, _) => health::verbose(&checks),
        (false, StatusCode::OK) => "ready\n".into(),
        (false, _) => "not ready; /readyz?verbose tells why\n".into(),
    };
    (code, text).into_response()
}

async fn metrics_text(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    match metrics::render(shared.look().0) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            tracing::error!(%error, "metrics could not be rendered");
            problem(Problem::Internal, &request)
        }
    }
}

async fn status_json(State(shared): State<Arc<Shared>>) -> Response {
    let (snapshot, age) = shared.look();
    axum::Json(status::document(&snapshot, age)).into_response()
}

async fn cluster_json(State(shared): State<Arc<Shared>>) -> Response {
    let (snapshot, age) = shared.look();
    axum::Json(cluster::document(&snapshot, age)).into_response()
}
