//! The console: one page whose files are in the program. What it shows it asks of `/api/v1`, of this node
//! alone; its address says which page is open, so every address below `/console/` gives the same document.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};

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

/// `GET /console/{*path}`: a file, or the document for every address that is a page.
pub(crate) async fn get_file(Path(path): Path<String>, headers: HeaderMap) -> Response {
    respond(FILES.iter().find(|file| file.name == path).unwrap_or(&DOCUMENT), &headers)
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
        for path in ["overview", "tree/1.0", "no-such-file.js"] {
            let response = get_file(Path(path.to_owned()), HeaderMap::new()).await;
            assert_eq!(response.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8", "{path}");
            assert_eq!(response.headers()[header::CONTENT_SECURITY_POLICY], POLICY);
        }
    }
}
