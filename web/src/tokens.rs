//! Who sent a request, by its token.

use axum::http::{HeaderMap, StatusCode, header};
use cell_node::AccessRules;

use crate::access::Caller;
use crate::problem::{FieldProblem, Problem};

/// The token that a request has.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let (scheme, token) = given?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Who sent a request.
///
/// # Errors
/// 400: it has several tokens. 401: it has none, or one that this node does not know.
pub(crate) fn caller(access: &AccessRules, headers: &HeaderMap) -> Result<Caller, Problem> {
    if headers.get_all(header::AUTHORIZATION).iter().nth(1).is_some() {
        let (pointer, detail) = ("/header/authorization".to_owned(), "it is given more than once".to_owned());
        let error = FieldProblem { pointer, detail, ..FieldProblem::default() };
        return Err(Problem::bad_request(error).next("send one Authorization header"));
    }
    let holder = bearer(headers).and_then(|token| access.holder(token.as_bytes()));
    let holder = holder.ok_or_else(|| {
        let detail = "Tokens are configured on this node, and this request has none that it knows.";
        Problem::new(StatusCode::UNAUTHORIZED, "unauthorised", detail)
            .next("send `Authorization: Bearer` with a token of the role that is needed, such as viewer")
    })?;
    Ok(Caller { name: holder.name, grants: holder.grants })
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;
    use sha2::{Digest, Sha256};

    use super::*;

    #[test]
    fn caller_is_who_has_the_token() {
        let hash = |token: &str| HEXLOWER.encode(&Sha256::digest(token));
        let file = tempfile::NamedTempFile::new().unwrap();
        let lines =
            format!("viewer screen {}\nadmin root {}\nwriter job {}\n", hash("a"), hash("b"), hash("c"));
        std::fs::write(file.path(), lines).unwrap();
        let access = AccessRules::open(file.path().to_str().unwrap()).unwrap();
        let headers = |value: &str| HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]);
        let who =
            |value| caller(&access, &headers(value)).map(|caller| (caller.name.clone(), caller.roles()));
        assert_eq!(who("Bearer a"), Ok(("screen".to_owned(), vec!["viewer"])));
        let all = vec!["reader", "writer", "viewer", "operator", "admin"];
        assert_eq!(who("bearer b"), Ok(("root".to_owned(), all)));
        assert_eq!(who("Bearer c"), Ok(("job".to_owned(), vec!["reader", "writer"])));
        for wrong in ["Bearer d", "Bearer ", "Basic a", "a", &format!("Bearer {}", hash("a"))] {
            assert_eq!(who(wrong).unwrap_err().status, StatusCode::UNAUTHORIZED, "{wrong}");
        }
        let mut twice = headers("Bearer a");
        twice.append(header::AUTHORIZATION, "Bearer a".parse().unwrap());
        assert_eq!(caller(&access, &twice).unwrap_err().status, StatusCode::BAD_REQUEST);
        assert_eq!(caller(&access, &HeaderMap::new()).unwrap_err().code, "unauthorised");
    }
}
