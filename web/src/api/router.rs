//! Routes and what is done for every request.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Extension, Router};

use crate::access::Caller;
use crate::api::balance::BalanceDocument;
use crate::api::cluster_status::ClusterStatus;
use crate::api::drains::DrainsDocument;
use crate::api::guard;
use crate::api::nodes::Nodes;
use crate::api::recoveries::Recoveries;
use crate::api::regions::Regions;
use crate::api::selector::SelectorPairs;
use crate::api::wal::Wal;
use crate::api::{
    cluster, drains, drill_preview, drills, events, gathered, kv, moves, openapi, operations, selector,
    series, status, stream, tree, tuning, tuning_change, whoami,
};
use crate::connections::Peer;
use crate::exposition::Format;
use crate::problem::{self, FieldProblem, Problem};
use crate::shared::Shared;
use crate::{console, health, host, metrics, status_page};

pub(crate) fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(console::to_console))
        .route("/console", get(console::to_console))
        .route("/console/", get(console::get_document))
        .route("/console/{*path}", get(console::get_file))
        .route(status_page::PATH, get(status_page::get_page))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics_text))
        .route("/api/openapi.json", get(openapi::get_document))
        .route("/api/v1/status", get(status::get_status))
        .route("/api/v1/cluster", get(cluster::get_cluster))
        .route("/api/v1/cluster/status", get(gathered::get::<ClusterStatus>))
        .route("/api/v1/nodes", get(gathered::get::<Nodes>))
        .route("/api/v1/regions", get(gathered::get::<Regions>))
        .route("/api/v1/moves", get(moves::get_moves))
        .route("/api/v1/moves", post(moves::post_move))
        .route("/api/v1/moves:cancel", post(moves::post_cancel))
        .route("/api/v1/balance", get(gathered::get::<BalanceDocument>))
        .route("/api/v1/drains", get(gathered::get::<DrainsDocument>))
        .route("/api/v1/drains", post(drains::post_drain))
        .route("/api/v1/drains:end", post(drains::post_end))
        .route("/api/v1/nodes:remove", post(drains::post_remove))
        .route("/api/v1/wal", get(gathered::get::<Wal>))
        .route("/api/v1/recoveries", get(gathered::get::<Recoveries>))
        .route("/api/v1/events", get(events::get_events))
        .route("/api/v1/series", get(series::get_series))
        .route("/api/v1/stream", get(stream::get_stream))
        .route("/api/v1/selector/pairs", get(gathered::get::<SelectorPairs>))
        .route("/api/v1/selector/pairs/{client}/{node}/series", get(selector::get_series))
        .route("/api/v1/tree/buckets", get(tree::get_buckets))
        .route("/api/v1/tree/heat", get(tree::get_heat))
        .route("/api/v1/tree/locate", get(tree::get_locate))
        .route("/api/v1/tree/meganodes/{id}", get(tree::get_meganode))
        .route("/api/v1/tree/meganodes/{id}/nodes/{index}", get(tree::get_tree_node))
        .route("/api/v1/tree:check", post(tree::post_check))
        .route("/api/v1/kv", get(kv::get_page))
        .route("/api/v1/kv/{key}", get(kv::get_value))
        .route("/api/v1/drills", get(drills::get_drills))
        .route("/api/v1/drills", post(drills::post_drills))
        .route("/api/v1/drills/preview", get(drill_preview::get_preview))
        .route("/api/v1/drills/{id}", get(drills::get_drill))
        .route("/api/v1/drills/{id}", post(drills::post_drill))
        .route("/api/v1/operations/{id}", get(operations::get_operation))
        .route("/api/v1/tuning", get(tuning::get_tuning))
        .route("/api/v1/tuning", patch(tuning_change::patch_tuning))
        .route("/api/v1/tuning:revert", post(tuning_change::post_revert))
        .route("/api/v1/tuning/schema", get(tuning::get_schema))
        .route("/api/v1/tuning/history", get(tuning::get_history))
        .route("/api/v1/whoami", get(whoami::get_whoami))
        .fallback(async || Problem::no_route())
        .method_not_allowed_fallback(async || Problem::method_not_allowed())
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), guard::guard))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), name_and_guard))
        .with_state(shared)
}

/// Names each request, turns away those that were meant for another host, and finds out who sends it.
async fn name_and_guard(
    State(shared): State<Arc<Shared>>,
    Extension(peer): Extension<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    let name = shared.name_request();
    let caller = caller(&shared, &request, peer.address.ip());
    if !is_open(request.uri().path()) {
        peer.set_known(caller.is_ok());
    }
    let mut response = match caller {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        Err(problem) => refused(request.uri().path(), problem),
    };
    response = problem::complete(response, &name);
    shared.answers.count(response.status());
    let headers = response.headers_mut();
    if let Ok(name) = HeaderValue::from_str(&name) {
        headers.insert("x-request-id", name);
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Who sends a request.
fn caller(shared: &Shared, request: &Request, peer: IpAddr) -> Result<Caller, Problem> {
    let host = named_host(request.headers())?;
    let authority = request.uri().authority(); // of a request that was meant for a proxy
    let is_own = |host: &str| shared.hosts.permits(host);
    if !is_own(host) || authority.is_some_and(|authority| !is_own(authority.as_str())) {
        return Err(Problem::host_refused());
    }
    match is_open(request.uri().path()) {
        true => Ok(Caller::anonymous()),
        false => shared.caller(request.headers(), peer),
    }
}

/// The host that a request names.
///
/// # Errors
/// 400: it names none or several, or what it names is none.
fn named_host(headers: &HeaderMap) -> Result<&str, Problem> {
    let wrong = |detail: &str| {
        let (pointer, detail) = ("/header/host".to_owned(), detail.to_owned());
        Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
            .next("send one Host header, such as localhost:7080")
    };
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => {
            let host = host.to_str().ok().filter(|host| host::is_well_formed(host));
            host.ok_or_else(|| wrong("it is no host, with or without a port"))
        }
        (Some(_), Some(_)) => Err(wrong("it is given more than once")),
        (None, _) => Err(wrong("it is missing")),
    }
}

/// Whether everybody may ask for it: health, metrics, the console's files, and what is not there.
fn is_open(path: &str) -> bool {
    !path.starts_with(guard::API) && path != status_page::PATH
}

/// What a caller gets who is nobody.
fn refused(path: &str, problem: Problem) -> Response {
    if problem.status != StatusCode::UNAUTHORIZED {
        return problem.into_response();
    }
    let bearer = [(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))];
    match path {
        status_page::PATH => (bearer, status_page::refused()).into_response(),
        _ => (bearer, problem).into_response(),
    }
}

async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    let (snapshot, age) = shared.look();
    let checks = health::checks(&snapshot, age, shared.own_missing_pairs().missing());
    let code = if health::is_ready(&checks) { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let is_verbose = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|part| part == "verbose" || part.starts_with("verbose=")));
    let text = match (is_verbose, code) {
        (true, _) => health::verbose(&checks),
        (false, StatusCode::OK) => "ready\n".into(),
        (false, _) => "not ready; /readyz?verbose says why\n".into(),
    };
    (code, text).into_response()
}

async fn metrics_text(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Result<Response, Problem> {
    let format = Format::wanted(headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()));
    let (snapshot, age) = shared.look();
    let text = metrics::render(snapshot, age, shared.figures()).map_err(|error| {
        tracing::error!(%error, "metrics could not be rendered");
        Problem::internal()
    })?;
    Ok(([(header::CONTENT_TYPE, format.content_type())], format.write(text)).into_response())
}
