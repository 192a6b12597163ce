//! `GET /api/v1/operations/{id}`: how far something is that a request has started, whatever it is.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;

use crate::api::params::{Params, PathText};
use crate::api::{drills, tree};
use crate::problem::Problem;
use crate::shared::Shared;

/// `GET /api/v1/operations/{id}`.
pub(crate) async fn get_operation(
    State(shared): State<Arc<Shared>>,
    PathText(id): PathText<String>,
    params: Params,
) -> Result<Response, Problem> {
    params.end()?;
    if let Some(drill) = drills::operation(&shared, &id).await {
        return drill;
    }
    if let Some(check) = tree::check_operation(&shared, &id).await {
        return check;
    }
    Err(Problem::not_found(format!("There is no operation `{id}`.")))
}
