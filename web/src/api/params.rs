//! The query and the path of a request. What is wrong with it is said by parameter; a parameter that the
//! route does not know is wrong, too.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use data_encoding::HEXLOWER_PERMISSIVE;
use serde::de::DeserializeOwned;

use crate::api::document::Scope;
use crate::problem::{FieldProblem, Problem};

/// Longer keys than any node takes are not looked at.
const KEY_BYTES_MAX: usize = 64 << 10;

/// Parameters that nobody has taken yet. A handler takes those that it knows, then asks [`Params::end`].
#[derive(Debug, Default)]
pub(crate) struct Params(BTreeMap<String, String>);

impl<S: Send + Sync> FromRequestParts<S> for Params {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Params, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|error| wrong("", error.body_text()))?;
        let mut params = BTreeMap::new();
        for (name, value) in pairs {
            if params.insert(name.clone(), value).is_some() {
                return Err(wrong(&name, "it is given twice".to_owned()));
            }
        }
        Ok(Params(params))
    }
}

/// The parts of the path that have names. They are text: a part that is no UTF-8 is refused with a problem.
#[derive(Debug)]
pub(crate) struct PathText<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathText<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<PathText<T>, Problem> {
        let Path(text) = Path::<T>::from_request_parts(parts, state).await.map_err(|error| {
            let (pointer, detail) = ("/path".to_owned(), error.body_text());
            Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
        })?;
        Ok(PathText(text))
    }
}

fn wrong(name: &str, detail: String) -> Problem {
    let pointer = if name.is_empty() { "/query".to_owned() } else { format!("/query/{name}") };
    Problem::bad_request(FieldProblem { pointer, detail, ..FieldProblem::default() })
}

impl Params {
    /// A parameter as it is written.
    pub(crate) fn text(&mut self, name: &str) -> Option<String> {
        self.0.remove(name)
    }

    /// A whole number within bounds.
    pub(crate) fn integer(
        &mut self,
        name: &str,
        bounds: RangeInclusive<u64>,
        default: u64,
    ) -> Result<u64, Problem> {
        self.text(name).map_or(Ok(default), |text| Params::parse_integer(name, &text, bounds))
    }

    /// The whole number that a parameter is, within bounds.
    pub(crate) fn parse_integer(name: &str, text: &str, bounds: RangeInclusive<u64>) -> Result<u64, Problem> {
        match text.parse() {
            Ok(number) if bounds.contains(&number) => Ok(number),
            _ => {
                let (min, max) = bounds.into_inner();
                let detail = format!("`{text}` is no whole number from {min} to {max}");
                let (min, max) = (Some(min.to_string()), Some(max.to_string()));
                let pointer = format!("/query/{name}");
                Err(Problem::bad_request(FieldProblem { pointer, detail, min, max, unit: None }))
            }
        }
    }

    /// Whether a flag is given: `1` or `true`, `0` or `false`.
    pub(crate) fn flag(&mut self, name: &str) -> Result<bool, Problem> {
        match self.text(name).as_deref() {
            None | Some("0" | "false") => Ok(false),
            Some("1" | "true" | "") => Ok(true),
            Some(other) => Err(wrong(name, format!("`{other}` is neither 0 nor 1"))),
        }
    }

    /// A key in hexadecimal digits.
    pub(crate) fn key(&mut self, name: &str) -> Result<Option<Vec<u8>>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        parse_key(&text).map(Some).map_err(|detail| wrong(name, detail))
    }

    /// Whose figures are wanted.
    pub(crate) fn scope(&mut self) -> Result<Scope, Problem> {
        match self.text("scope").as_deref() {
            None | Some("cluster") => Ok(Scope::Cluster),
            Some("node") => Ok(Scope::Node),
            Some(other) => Err(wrong("scope", format!("`{other}` is neither cluster nor node"))),
        }
    }

    /// A parameter's value is wrong in a way that its route alone knows.
    pub(crate) fn refuse(name: &str, detail: String) -> Problem {
        wrong(name, detail)
    }

    /// All that the route knows was taken: what is left is wrong.
    pub(crate) fn end(self) -> Result<(), Problem> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(wrong(name, "this route has no such parameter".to_owned())),
        }
    }
}

/// A key of hexadecimal digits, two a byte.
pub(crate) fn parse_key(text: &str) -> Result<Vec<u8>, String> {
    if text.len() > 2 * KEY_BYTES_MAX {
        return Err("it is longer than any key".to_owned());
    }
    HEXLOWER_PERMISSIVE
        .decode(text.as_bytes())
        .map_err(|error| format!("a key is given in hexadecimal digits, two a byte: {error}"))
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    async fn params(query: &str) -> Result<Params, Problem> {
        let (mut parts, ()) = Request::get(format!("/x?{query}")).body(()).unwrap().into_parts();
        Params::from_request_parts(&mut parts, &()).await
    }

    fn pointer(problem: Problem) -> String {
        assert_eq!((problem.status.as_u16(), problem.errors.len()), (400, 1));
        problem.errors[0].pointer.clone()
    }

    #[tokio::test]
    async fn good_parameters_are_taken_with_their_defaults() {
        let mut params = params("seconds=60&from=00fF&scope=node&reverse=1").await.unwrap();
        assert_eq!(params.integer("seconds", 1..=600, 9).unwrap(), 60);
        assert_eq!(params.integer("step", 1..=10, 9).unwrap(), 9);
        assert_eq!(params.key("from").unwrap(), Some(vec![0, 255]));
        assert_eq!((params.key("to").unwrap(), params.scope().unwrap()), (None, Scope::Node));
        assert!(params.flag("reverse").unwrap() && !params.flag("dry").unwrap());
        params.end().unwrap();
    }

    #[tokio::test]
    async fn bad_parameters_are_named() {
        let problem = params("seconds=601").await.unwrap().integer("seconds", 1..=600, 9).unwrap_err();
        assert_eq!(
            (problem.errors[0].min.as_deref(), problem.errors[0].max.as_deref()),
            (Some("1"), Some("600"))
        );
        assert_eq!(pointer(problem), "/query/seconds");
        for (query, name) in [("from=0", "from"), ("from=zz", "from")] {
            assert_eq!(pointer(params(query).await.unwrap().key(name).unwrap_err()), "/query/from");
        }
        assert_eq!(pointer(params("scope=all").await.unwrap().scope().unwrap_err()), "/query/scope");
        assert_eq!(pointer(params("a=1").await.unwrap().end().unwrap_err()), "/query/a");
        assert_eq!(pointer(params("a=1&a=2").await.unwrap_err()), "/query/a");
    }
}
