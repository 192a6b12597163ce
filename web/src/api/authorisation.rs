//! Tests of who may do what: each route with each role, without a token and with one that is not known.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::Arc;

use cell_cluster::Sim;
use cell_node::TokenRole;
use data_encoding::{BASE64, HEXLOWER};
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use crate::api::routes::{Place, ROUTES, RouteText};
use crate::full_cluster;
use crate::test_cluster::{TestCluster, TestRequest};

/// What each route wants, said once more and apart from the table that the guard goes by: a letter for each
/// role that may ask (reader, writer, viewer, operator, admin).
const WHO: [(&str, &str); 42] = [
    ("get /api/openapi.json", "rwvoa"),
    ("get /api/v1/whoami", "rwvoa"),
    ("get /api/v1/cluster/status", "voa"),
    ("get /api/v1/cluster", "voa"),
    ("get /api/v1/status", "voa"),
    ("get /api/v1/nodes", "voa"),
    ("get /api/v1/regions", "voa"),
    ("get /api/v1/moves", "voa"),
    ("post /api/v1/moves", "oa"),
    ("post /api/v1/moves:cancel", "oa"),
    ("get /api/v1/balance", "voa"),
    ("get /api/v1/drains", "voa"),
    ("post /api/v1/drains", "oa"),
    ("post /api/v1/drains:end", "oa"),
    ("post /api/v1/nodes:remove", "oa"),
    ("get /api/v1/wal", "voa"),
    ("get /api/v1/recoveries", "voa"),
    ("get /api/v1/events", "voa"),
    ("get /api/v1/series", "voa"),
    ("get /api/v1/stream", "voa"),
    ("get /api/v1/selector/pairs", "voa"),
    ("get /api/v1/selector/pairs/{client}/{node}/series", "voa"),
    ("get /api/v1/tree/buckets", "voa"),
    ("get /api/v1/tree/meganodes/{id}", "voa"),
    ("get /api/v1/tree/heat", "rwa"),
    ("get /api/v1/tree/meganodes/{id}/nodes/{index}", "rwa"),
    ("get /api/v1/tree/locate", "rwa"),
    ("get /api/v1/kv", "rwa"),
    ("get /api/v1/kv/{key}", "rwa"),
    ("get /api/v1/tuning", "voa"),
    ("get /api/v1/tuning/schema", "voa"),
    ("get /api/v1/tuning/history", "voa"),
    ("get /api/v1/drills", "voa"),
    ("get /api/v1/drills/preview", "voa"),
    ("get /api/v1/drills/{id}", "voa"),
    ("get /api/v1/operations/{id}", "voa"),
    ("post /api/v1/tree:check", "oa"),
    ("patch /api/v1/tuning", "oa"),
    ("post /api/v1/tuning:revert", "oa"),
    ("post /api/v1/drills", "a"),
    ("post /api/v1/drills/{id}:halt", "a"),
    ("get /status", "voa"),
];

/// A file in which each role has a token, which is its word.
fn tokens() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let line = |role: TokenRole| {
        let word = role.word();
        format!("{word} {word}-1 {}\n", HEXLOWER.encode(&Sha256::digest(word)))
    };
    std::fs::write(file.path(), TokenRole::ALL.map(line).concat()).unwrap();
    file
}

fn start(nodes: u32, more: &[(&str, &str)]) -> TestCluster {
    let file = tokens();
    let settings = [&[("tokens_file", file.path().to_str().unwrap())], more].concat();
    TestCluster::start_with(nodes, &settings, |sources| sources)
}

fn with(token: &str, request: TestRequest) -> TestRequest {
    request.header("authorization", &format!("Bearer {token}"))
}

/// Without its conditions a request fails later than at its role: nothing is changed.
fn request(method: &'static str, path: &str) -> TestRequest {
    match method {
        "GET" => TestRequest::new(method, path),
        _ => TestRequest::new(method, path).json("{}"),
    }
}

/// A route's path, with an example for each part that is open.
fn path(route: &RouteText) -> String {
    let open = route.parameters.iter().filter(|parameter| parameter.place == Place::Path);
    open.fold(route.path.to_owned(), |path, parameter| {
        path.replace(&format!("{{{}}}", parameter.name), parameter.example)
    })
}

/// Method and path of every route of the API's document that is not for everybody, and of the page.
fn described(cluster: &TestCluster) -> Vec<(&'static str, String)> {
    let document = cluster.send(0, &with("viewer", TestRequest::new("GET", "/api/openapi.json"))).body;
    let mut routes = vec![("GET", "/status".to_owned())];
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let method =
                ["GET", "POST", "PATCH"].into_iter().find(|known| known.eq_ignore_ascii_case(method));
            if operation["security"].is_null() {
                routes.push((method.unwrap(), path.clone()));
            }
        }
    }
    routes
}

#[test]
fn routes_of_the_document_each_answer_the_roles_that_they_are_for_and_no_others() {
    let cluster = start(1, &[]);
    let routes = described(&cluster);
    assert_eq!(routes.len(), WHO.len());
    for (method, path) in &routes {
        let name = format!("{} {path}", method.to_lowercase());
        let (_, permitted) = WHO.iter().find(|(known, _)| *known == name).expect("each is in the list");
        let route = ROUTES.iter().find(|route| route.method == *method && route.path == path);
        let path = route.map_or_else(|| path.clone(), self::path);
        for token in [None, Some("guessed")] {
            let asked = request(method, &path);
            let answer =
                cluster.send(0, &token.map_or_else(|| asked.clone(), |token| with(token, asked.clone())));
            // Of guesses there are soon too many.
            assert!(answer.status == 401 || answer.status == 429, "{name}: {answer:?}");
            if answer.status == 401 {
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                assert!(path == "/status" || answer.body["code"] == "unauthorised", "{name}: {answer:?}");
            }
        }
        for role in TokenRole::ALL {
            let answer = cluster.send(0, &with(role.word(), request(method, &path)));
            let is_refused = answer.body["code"] == "forbidden";
            assert_eq!(is_refused, !permitted.contains(&role.word()[..1]), "{name} {role:?}: {answer:?}");
            assert!(answer.status != 401 && answer.body["detail"] != "There is no such route.", "{name}");
            if is_refused {
                assert_eq!(answer.problem(), (403, "forbidden"));
            }
        }
    }
}

/// The keys of [`full_cluster`]: they are in no other text.
const KEYS: [&str; 3] = ["c-fence", "g-fence", "p-fence"];

/// The text of all that a caller is answered.
fn all_answers(cluster: &TestCluster, token: &str) -> String {
    let address = cluster.nodes[0].server.address();
    let mut text = String::new();
    for route in ROUTES.iter().filter(|route| route.method == "GET" && !route.path.ends_with("/stream")) {
        for scope in ["cluster", "node"] {
            let needed = route.parameters.iter().filter(|one| one.is_required && one.place == Place::Query);
            let needed: String = needed.map(|one| format!("&{}={}", one.name, one.example)).collect();
            let takes_scope = route.parameters.iter().any(|one| one.name == "scope");
            let scope = if takes_scope { format!("scope={scope}") } else { String::new() };
            let path = format!("{}?{scope}{needed}", path(route)).replace("?&", "?");
            text.push_str(&with(token, TestRequest::new("GET", &path)).exchange(address));
        }
    }
    text + &with(token, TestRequest::new("GET", "/status")).exchange(address)
}

#[test]
fn viewers_and_operators_see_no_key_in_any_answer() {
    let file = tokens();
    let settings = [("tokens_file", file.path().to_str().unwrap())];
    let cluster = full_cluster::start_set(&settings, |sources| sources);
    let shown = |text: &str, key: &str| {
        let [hex, base64] = [HEXLOWER.encode(key.as_bytes()), BASE64.encode(key.as_bytes())];
        text.contains(key) || text.contains(&hex) || text.contains(&base64)
    };
    let of_admin = all_answers(&cluster, "admin");
    assert!(KEYS.iter().all(|key| shown(&of_admin, key)), "the fences are there to be seen");
    for token in ["viewer", "operator"] {
        let text = all_answers(&cluster, token);
        assert!(text.contains("keys_left_out"), "it is said");
        assert!(!KEYS.iter().any(|key| shown(&text, key)), "{text}");
    }
    let asked = |token, path: &str| cluster.send(0, &with(token, TestRequest::new("GET", path)));
    let buckets = asked("viewer", "/api/v1/tree/buckets");
    assert_eq!((buckets.status, &buckets.body["keys_left_out"]), (200, &true.into()));
    assert!(buckets.body["buckets"].as_array().is_some_and(|all| !all.is_empty()));
    // Nor do they learn where keys are by asking for ranges.
    assert_eq!(asked("viewer", "/api/v1/tree/buckets?from=61").problem(), (403, "forbidden"));
    assert_eq!(asked("admin", "/api/v1/tree/buckets?from=61").status, 200);
}

#[test]
fn routes_that_are_not_there_reveal_nothing_without_a_token() {
    let cluster = start(1, &[]);
    assert_eq!(cluster.get(0, "/api/v1/nothing").status, 401);
    assert_eq!(cluster.send(0, &with("viewer", TestRequest::new("GET", "/api/v1/nothing"))).status, 404);
    let post = TestRequest::new("POST", "/api/v1/status");
    assert_eq!(cluster.send(0, &with("viewer", post.clone())).problem(), (403, "forbidden"));
    assert_eq!(cluster.send(0, &with("operator", post)).status, 405);
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(cluster.get(0, path).status, 200, "{path}");
    }
}

#[test]
fn tokens_name_who_changed_what_and_nodes_ask_each_other_without() {
    let cluster = start(2, &[]);
    let change = TestRequest::new("PATCH", "/api/v1/tuning").json(r#"{"fill_percent": 80}"#);
    let change = change.header("if-match", "\"0\"").header("idempotency-key", "k");
    assert_eq!(cluster.send(1, &with("operator", change.clone())).status, 200);
    assert_eq!(cluster.send(1, &with("viewer", change)).problem(), (403, "forbidden"));
    let document = cluster.send(0, &with("viewer", TestRequest::new("GET", "/api/v1/tuning"))).body;
    assert_eq!(
        (document["nodes"].as_array().unwrap().len(), &document["missing"]),
        (2, &serde_json::json!([]))
    );
    let history = TestRequest::new("GET", "/api/v1/tuning/history");
    assert_eq!(cluster.send(0, &with("viewer", history)).body["changes"][0]["who"], "operator-1");
    let who = cluster.send(0, &with("viewer", TestRequest::new("GET", "/api/v1/whoami"))).body;
    assert_eq!((&who["name"], &who["role"]), (&"viewer-1".into(), &"viewer".into()));
    assert_eq!(who["tokens_required"], true);
}

#[test]
fn tokens_that_are_not_known_are_refused_and_soon_too_many() {
    let cluster = start(1, &[]);
    let status = TestRequest::new("GET", "/api/v1/status");
    for _ in 0..10 {
        assert_eq!(cluster.send(0, &with("x", status.clone())).problem(), (401, "unauthorised"));
    }
    let answer = cluster.send(0, &with("x", status.clone()));
    assert_eq!(answer.problem(), (429, "too_many_failures"));
    assert!(answer.header("retry-after").is_some() && answer.header("www-authenticate").is_none());
    assert_eq!(cluster.send(0, &status).status, 401, "none at all is no failure");
    assert_eq!(cluster.send(0, &with("viewer", status)).status, 200, "others of this machine go on");
}

#[test]
fn tokens_are_read_again_and_a_file_that_is_wrong_changes_nothing() {
    let file = tokens();
    let settings = [("tokens_file", file.path().to_str().unwrap())];
    let cluster = TestCluster::start_with(1, &settings, |sources| sources);
    let reload = |lines: &str| {
        std::fs::write(file.path(), lines).unwrap();
        cluster.nodes[0].server.reload();
    };
    let status = |token| cluster.send(0, &with(token, TestRequest::new("GET", "/api/v1/status"))).status;
    for wrong in ["", "viewer other x\n"] {
        reload(wrong);
        assert_eq!(status("viewer"), 200, "{wrong:?}");
    }
    reload(&format!("viewer other {}\n", HEXLOWER.encode(&Sha256::digest("other"))));
    assert_eq!((status("other"), status("viewer")), (200, 401));
}

/// Who had a stream kept it for as long as they liked.
#[test]
fn stream_ends_when_its_token_is_revoked_and_others_go_on() {
    let file = tokens();
    let settings = [("tokens_file", file.path().to_str().unwrap())];
    let cluster = TestCluster::start_with(1, &settings, |sources| sources);
    let address = cluster.nodes[0].server.address();
    let follow = |token: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let request = format!(
            "GET /api/v1/stream?topics=status HTTP/1.1\r\nHost: {address}\r\n\
             Authorization: Bearer {token}\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).unwrap();
        BufReader::new(stream).lines().map_while(Result::ok)
    };
    let is_document = |line: &String| line.starts_with("data: ");
    let (mut viewer, mut operator) = (follow("viewer"), follow("operator"));
    assert!(viewer.any(|line| is_document(&line)) && operator.any(|line| is_document(&line)));
    let operators = format!("operator operator-1 {}\n", HEXLOWER.encode(&Sha256::digest("operator")));
    std::fs::write(file.path(), operators).unwrap();
    cluster.nodes[0].server.reload();
    let more = viewer.filter(is_document).take(60).count();
    assert!(more < 60, "a minute later it still goes on");
    assert_eq!(operator.filter(is_document).take(3).count(), 3);
}

#[test]
fn changes_past_the_limit_are_refused_for_who_makes_them() {
    let cluster = start(1, &[("http_changes_per_second", "1")]);
    let change = |role| with(role, TestRequest::new("POST", "/api/v1/tuning:revert").json("{}"));
    let codes: Vec<_> = (0..20).map(|_| cluster.send(0, &change("operator")).status).collect();
    assert!(codes.contains(&429), "{codes:?}");
    assert_ne!(codes[0], 429);
    assert_ne!(cluster.send(0, &change("admin")).status, 429);
}

#[test]
fn status_page_wants_a_token_and_says_how() {
    let cluster = start(1, &[]);
    let page = TestRequest::new("GET", "/status");
    let refused = cluster.send(0, &page);
    assert_eq!((refused.status, refused.header("content-type")), (401, Some("text/html; charset=utf-8")));
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    assert_eq!(cluster.send(0, &with("viewer", page)).status, 200);
    assert_eq!(cluster.get(0, "/console/").status, 200);
}

/// The first read of the secret was made by requests, without a bound.
#[test]
fn peers_before_the_secret_is_known_are_asked_to_come_again() {
    let cluster =
        TestCluster::start_with(1, &[("tokens_file", tokens().path().to_str().unwrap())], |sources| {
            sources.coordinator(Arc::new({
                let link = Sim::new(9).link();
                link.set_cut(true);
                link
            }))
        });
    let answer = cluster.send(0, &TestRequest::new("GET", "/api/v1/status").header("x-cell-peer", "x"));
    assert_eq!((answer.problem(), answer.header("retry-after")), ((503, "unavailable"), Some("1")));
    assert_eq!(cluster.send(0, &with("viewer", TestRequest::new("GET", "/api/v1/status"))).status, 200);
}

#[test]
fn read_only_node_changes_nothing_for_anybody() {
    let cluster = start(1, &[("http_read_only", "true")]);
    for route in ROUTES.iter().filter(|route| route.method != "GET") {
        let (method, path) = (route.method, &*path(route));
        let answer = cluster.send(0, &with("admin", request(method, path)));
        assert_eq!(answer.problem(), (403, "read_only"), "{path}");
    }
    assert_eq!(cluster.send(0, &with("admin", TestRequest::new("GET", "/api/v1/tuning"))).status, 200);
}
