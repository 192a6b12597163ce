//! `GET /api/v1/whoami`: who the caller is to this node, and what they may do.

use std::sync::Arc;

use axum::Extension;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::access::Caller;
use crate::api::document::Document;
use crate::api::params::Params;
use crate::problem::Problem;
use crate::shared::Shared;

#[derive(Debug, Serialize)]
struct WhoAmI {
    name: String,
    /// The one that permits most.
    role: &'static str,
    roles: Vec<&'static str>,
    tokens_required: bool,
}

/// `GET /api/v1/whoami`.
pub(crate) async fn get_whoami(
    State(shared): State<Arc<Shared>>,
    Extension(caller): Extension<Caller>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    let roles = caller.roles();
    let role = roles.last().copied().unwrap_or_default();
    let who = WhoAmI { name: caller.name, role, roles, tokens_required: shared.wants_tokens() };
    Ok(axum::Json(Document::of_node(who, shared.look().1)).into_response())
}
