//! The console: one page whose files are in the program. What it shows it asks of `/api/v1`, of this node
//! alone; its address says which page is open, so the addresses of all pages give the same document.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

use crate::problem::Problem;

/// Nothing of another origin is loaded or asked, and no script runs that is not a file of the console.
pub(crate) const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; font-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

struct File {
    name: &'static str,
    kind: &'static str,
    plain: &'static [u8],
    compressed: &'static [u8],
}

macro_rules! file {
    ($name:literal, $kind:literal) => {
        File {
            name: $name,
            kind: $kind,
            plain: include_bytes!(concat!("../console/dist/", $name)),
            compressed: include_bytes!(concat!("../console/dist/", $name, ".gz")),
        }
    };
}

static DOCUMENT: File = file!("index.html", "text/html; charset=utf-8");
static FILES: [File; 3] = [
    file!("console.js", "text/javascript; charset=utf-8"),
    file!("console.css", "text/css; charset=utf-8"),
    file!("icon.svg", "image/svg+xml"),
];

/// `GET /`.
pub(crate) async fn to_console() -> Redirect {
    Redirect::temporary("/console/")
}

/// `GET /console/`.
pub(crate) async fn get_document(headers: HeaderMap) -> Response {
    respond(&DOCUMENT, &headers)
}

/// The pages, as `shell/pages.ts` has them.
const PAGES: [&str; 10] =
    ["overview", "tree", "selector", "nodes", "durability", "recovery", "tuning", "events", "data", "api"];

/// `GET /console/{*path}`: a file, or the document for every address that is a page. Of everything else it is
/// said that it is not there: to people by the document, which says so on its page.
pub(crate) async fn get_file(Path(path): Path<String>, mut headers: HeaderMap) -> Response {
    if let Some(file) = FILES.iter().find(|file| file.name == path) {
        return respond(file, &headers);
    }
    if PAGES.contains(&path.strip_suffix('/').unwrap_or(&path)) {
        return respond(&DOCUMENT, &headers);
    }
    let accepts = headers.get(header::ACCEPT).and_then(|kinds| kinds.to_str().ok()).unwrap_or_default();
    if !accepts.contains("text/html") {
        return Problem::not_found("The console has no such file and no such page.")
            .next("open /console/; a page that was open before an upgrade must be loaded anew")
            .into_response();
    }
    headers.remove(header::IF_NONE_MATCH);
    let mut response = respond(&DOCUMENT, &headers);
    *response.status_mut() = StatusCode::NOT_FOUND;
    response
}

fn respond(file: &File, headers: &HeaderMap) -> Response {
    let asked =
        |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let tag = tag(file);
    let is_known = asked(header::IF_NONE_MATCH).split(',').any(|known| known.trim() == tag);
    let takes_gzip = asked(header::ACCEPT_ENCODING).split(',').any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        name.trim() == "gzip" && !matches!(weight.trim(), "q=0" | "q=0.0")
    });
    let mut response = match (is_known, takes_gzip) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => ([(header::CONTENT_ENCODING, "gzip")], file.compressed).into_response(),
        (false, false) => file.plain.into_response(),
    };
    let answered = response.headers_mut();
    answered.insert(header::CONTENT_TYPE, HeaderValue::from_static(file.kind));
    answered.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    answered.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    answered.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    answered.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        answered.insert(header::ETAG, tag);
    }
    response
}

/// Distinguishes the files of one build from those of another.
fn tag(file: &File) -> String {
    let mut digest = crc64fast::Digest::new();
    digest.write(file.plain);
    format!("\"{:016x}\"", digest.sum64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(file: &File, with: &[(HeaderName, &str)]) -> Response {
        let with = with.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        respond(file, &HeaderMap::from_iter(with))
    }

    #[tokio::test]
    async fn files_come_compressed_to_those_who_take_it() {
        let plain = ask(&FILES[0], &[]);
        assert!(plain.headers().get(header::CONTENT_ENCODING).is_none());
        for refused in ["identity", "gzip;q=0"] {
            let response = ask(&FILES[0], &[(header::ACCEPT_ENCODING, refused)]);
            assert!(response.headers().get(header::CONTENT_ENCODING).is_none(), "{refused}");
        }
        let packed = ask(&FILES[0], &[(header::ACCEPT_ENCODING, "br, gzip")]);
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        let bytes = axum::body::to_bytes(packed.into_body(), usize::MAX).await.unwrap();
        assert_eq!(bytes[..2], [0x1f, 0x8b]);
    }

    #[test]
    fn who_has_a_file_does_not_get_it_again() {
        let tag = ask(&DOCUMENT, &[]).headers()[header::ETAG].clone();
        let again = ask(&DOCUMENT, &[(header::IF_NONE_MATCH, tag.to_str().unwrap())]);
        assert_eq!(again.status(), StatusCode::NOT_MODIFIED);
        let other = ask(&DOCUMENT, &[(header::IF_NONE_MATCH, "\"0\"")]);
        assert_eq!(other.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_page_s_address_gives_the_document() {
        for path in PAGES.into_iter().chain(["tree/"]) {
            let response = get_file(Path(path.to_owned()), HeaderMap::new()).await;
            assert_eq!(response.status(), StatusCode::OK, "{path}");
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
            assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        }
    }

    /// A script that was not there was answered with the document, as a success.
    #[tokio::test]
    async fn what_is_neither_a_file_nor_a_page_is_not_there() {
        let ask = |path: &str, accept: &str| {
            let tag = tag(&DOCUMENT);
            let with = [(header::ACCEPT, accept), (header::IF_NONE_MATCH, &*tag)];
            let with = with.map(|(name, value)| (name, HeaderValue::from_str(value).unwrap()));
            get_file(Path(path.to_owned()), HeaderMap::from_iter(with))
        };
        for path in ["no-such-file.js", "console.js.map", "nothing", "tree/1.0", "Tree", ""] {
            let plain = ask(path, "*/*").await;
            assert_eq!(plain.status(), StatusCode::NOT_FOUND, "{path}");
            assert!(plain.headers().get(header::CONTENT_TYPE).is_none(), "{path}: the problem comes later");
            let page = ask(path, "text/html,application/xhtml+xml;q=0.9").await;
            assert_eq!(page.status(), StatusCode::NOT_FOUND, "{path}");
            assert_eq!(page.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
        }
    }

    #[test]
    fn pages_are_those_of_the_console() {
        let pages = include_str!("../console/src/shell/pages.ts").split("path: \"/console/").skip(1);
        let pages: Vec<_> = pages.filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(pages, PAGES);
    }
}
