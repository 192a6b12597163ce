//! Whether what real nodes answer is as the API's document says, by the strict check that `web` has for what
//! it makes itself: fields that no schema names are faults.

use std::sync::OnceLock;

use cell_tests::server::Server;
use serde_json::Value;

use check::Checker;

#[path = "../../web/src/api/schema/build.rs"]
#[allow(dead_code, reason = "the check needs the patterns alone")]
mod build;
#[path = "../../web/src/api/schema/check.rs"]
#[allow(dead_code, reason = "what was seen is of no interest here")]
mod check;

/// The document of the program under test, which is the same at every node.
static DOCUMENT: OnceLock<Value> = OnceLock::new();

/// Panics if what a node answered to `GET` of a path is not as the document says.
pub(crate) fn check_answer(server: &Server, path: &str, status: u16, answer: &Value) {
    let document = DOCUMENT.get_or_init(|| {
        let (_, text) = server.http("/api/openapi.json").expect("the node answers");
        serde_json::from_str(&text).expect("it is JSON")
    });
    let problem = &document["components"]["schemas"]["Problem"];
    let schema = if status == 200 { schema_of(document, path) } else { problem };
    assert!(schema.is_object(), "{path}: the document says nothing of it");
    let faults = Checker::new(document).faults(path, schema, answer);
    assert!(faults.is_empty(), "{path}: {faults:#?} in {answer:#}");
}

/// The schema of what a route answers; of two routes that fit, the one that says more of the path.
fn schema_of<'d>(document: &'d Value, path: &str) -> &'d Value {
    let path = path.split('?').next().unwrap_or_default();
    let is = |known: &str, given: &str| known.starts_with('{') || known == given;
    let fits = |(route, _): &(&String, &Value)| {
        let (known, given) = (route.split('/'), path.split('/'));
        known.clone().count() == given.clone().count()
            && known.zip(given).all(|(known, given)| is(known, given))
    };
    let routes = document["paths"].as_object().into_iter().flatten().filter(fits);
    let route = routes.min_by_key(|(route, _)| route.matches('{').count());
    let (_, methods) = route.unwrap_or_else(|| panic!("the document has no {path}"));
    &methods["get"]["responses"]["200"]["content"]["application/json"]["schema"]
}
