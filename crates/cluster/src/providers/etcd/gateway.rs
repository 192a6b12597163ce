//! What is said to etcd's JSON gateway and what it answers: bytes are base64, large numbers are text, and
//! zero, false and empty are left out.

use data_encoding::BASE64;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::keys::range_end;
use crate::request::Revision;

pub(super) const PATH_TXN: &str = "/v3/kv/txn";
pub(super) const PATH_RANGE: &str = "/v3/kv/range";
pub(super) const PATH_WATCH: &str = "/v3/watch";
pub(super) const PATH_COMPACT: &str = "/v3/kv/compaction";
pub(super) const PATH_STATUS: &str = "/v3/maintenance/status";
pub(super) const PATH_AUTHENTICATE: &str = "/v3/auth/authenticate";

pub(super) fn base64(bytes: impl AsRef<[u8]>) -> String {
    BASE64.encode(bytes.as_ref())
}

/// That there is no such key.
pub(super) fn is_absent(key: &str) -> Value {
    json!({"key": base64(key), "target": "CREATE", "result": "EQUAL", "create_revision": "0"})
}

/// That there is such a key.
pub(super) fn is_there(key: &str) -> Value {
    json!({"key": base64(key), "target": "CREATE", "result": "GREATER", "create_revision": "0"})
}

/// That the key was last written by this revision.
pub(super) fn is_of_revision(key: &str, revision: Revision) -> Value {
    json!({"key": base64(key), "target": "MOD", "result": "EQUAL", "mod_revision": revision.to_string()})
}

/// That the key has this value.
pub(super) fn is_of_value(key: &str, value: &str) -> Value {
    json!({"key": base64(key), "target": "VALUE", "result": "EQUAL", "value": base64(value)})
}

/// That no key with this prefix was written after this revision.
pub(super) fn none_written_after(prefix: &str, revision: Revision) -> Value {
    json!({
        "key": base64(prefix), "range_end": base64(range_end(prefix.as_bytes())),
        "target": "MOD", "result": "LESS", "mod_revision": (revision + 1).to_string(),
    })
}

pub(super) fn put(key: &str, value: &str) -> Value {
    json!({"request_put": {"key": base64(key), "value": base64(value)}})
}

pub(super) fn delete(key: &str) -> Value {
    json!({"request_delete_range": {"key": base64(key)}})
}

pub(super) fn delete_range(from: &[u8], end: &[u8]) -> Value {
    json!({"request_delete_range": {"key": base64(from), "range_end": base64(end)}})
}

pub(super) fn get(key: &str) -> Value {
    json!({"request_range": range_of_key(key)})
}

pub(super) fn get_range(range: Value) -> Value {
    json!({"request_range": range})
}

/// A transaction within one.
pub(super) fn nested(compare: Vec<Value>, success: Vec<Value>) -> Value {
    json!({"request_txn": {"compare": compare, "success": success}})
}

pub(super) fn txn(compare: Vec<Value>, success: Vec<Value>, failure: Vec<Value>) -> Value {
    json!({"compare": compare, "success": success, "failure": failure})
}

pub(super) fn range_of_key(key: &str) -> Value {
    json!({"key": base64(key)})
}

/// The first keys of a range; no limit: all of them.
pub(super) fn range(from: &[u8], end: &[u8], limit: Option<usize>) -> Value {
    let mut range = json!({"key": base64(from), "range_end": base64(end)});
    if let Some(limit) = limit {
        range["limit"] = Value::from(limit.to_string());
    }
    range
}

/// How many keys there are with this prefix.
pub(super) fn count_of(prefix: &str) -> Value {
    json!({"key": base64(prefix), "range_end": base64(range_end(prefix.as_bytes())), "count_only": true})
}

/// What changes below this prefix from a revision on. In fragments: a gateway of before 3.4.17 takes no more
/// than 4 MiB at a time from its own etcd.
pub(super) fn watch(prefix: &str, from: Revision) -> Value {
    let create = json!({
        "key": base64(prefix), "range_end": base64(range_end(prefix.as_bytes())),
        "start_revision": from.to_string(), "fragment": true,
    });
    json!({"create_request": create})
}

/// Which etcd answered, and how far it was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Header {
    #[serde(default, deserialize_with = "number")]
    pub(super) cluster_id: u64,
    /// The member that was asked; 0: it does not say.
    #[serde(default, deserialize_with = "number")]
    pub(super) member_id: u64,
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: Revision,
}

impl Header {
    /// Whether it is one of etcd's: those have neither zero.
    pub(super) fn is_etcds(self) -> bool {
        self.cluster_id != 0 && self.revision != 0
    }
}

/// An answer that says at which revision it was made.
pub(super) trait Headed {
    fn header(&self) -> Header;
}

/// A key as etcd has it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct StoredKey {
    #[serde(deserialize_with = "text")]
    pub(super) key: String,
    #[serde(default, deserialize_with = "text")]
    pub(super) value: String,
    #[serde(default, deserialize_with = "number")]
    pub(super) create_revision: Revision,
    #[serde(default, deserialize_with = "number")]
    pub(super) mod_revision: Revision,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct RangeAnswer {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) kvs: Vec<StoredKey>,
    #[serde(default)]
    pub(super) more: bool,
    #[serde(default, deserialize_with = "number")]
    pub(super) count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct TxnAnswer {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    responses: Vec<OperationAnswer>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
struct OperationAnswer {
    #[serde(default)]
    response_range: Option<RangeAnswer>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
pub(super) struct HeaderAnswer {
    #[serde(default)]
    pub(super) header: Header,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct TokenAnswer {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) token: String,
}

/// One line of a watch.
#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct WatchLine {
    #[serde(default)]
    pub(super) result: Option<WatchResult>,
}

#[derive(Clone, Debug, Default, Deserialize)]
pub(super) struct WatchResult {
    #[serde(default)]
    pub(super) header: Header,
    #[serde(default)]
    pub(super) canceled: bool,
    #[serde(default, deserialize_with = "number")]
    pub(super) compact_revision: Revision,
    #[serde(default)]
    pub(super) events: Vec<WatchEvent>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct WatchEvent {
    /// Left out: a put.
    #[serde(default)]
    r#type: Option<String>,
    pub(super) kv: StoredKey,
}

impl WatchEvent {
    pub(super) fn is_delete(&self) -> bool {
        self.r#type.as_deref() == Some("DELETE")
    }
}

impl Headed for RangeAnswer {
    fn header(&self) -> Header {
        self.header
    }
}

impl Headed for TxnAnswer {
    fn header(&self) -> Header {
        self.header
    }
}

impl Headed for HeaderAnswer {
    fn header(&self) -> Header {
        self.header
    }
}

impl TxnAnswer {
    /// What the operation in this place has read.
    pub(super) fn read(&self, at: usize) -> Result<&RangeAnswer, ClusterError> {
        self.responses
            .get(at)
            .and_then(|response| response.response_range.as_ref())
            .ok_or(ClusterError::Answer)
    }

    /// The one key that the operation in this place has read, if it is there.
    pub(super) fn key(&self, at: usize) -> Result<Option<&StoredKey>, ClusterError> {
        Ok(self.read(at)?.kvs.first())
    }
}

/// What etcd said in place of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Complaint {
    /// HTTP's.
    pub(super) status: u16,
    /// gRPC's; none: it was not etcd that spoke.
    pub(super) code: Option<u32>,
    pub(super) message: String,
}

/// The two shapes that complaints have.
#[derive(Deserialize)]
struct ComplaintText {
    #[serde(default)]
    code: Option<u32>,
    #[serde(default)]
    message: Option<String>,
    #[serde(default)]
    error: Option<Value>,
}

/// What a complaint comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Another member may answer; the request may have been carried out by this one.
    Unknown,
    /// It was not carried out, because etcd does not know the token.
    Token,
    /// It was not carried out: etcd's alarm for its space is on.
    NoSpace,
    /// Its answer is longer than the gateway takes. It was carried out.
    TooLong(EtcdError),
    /// It was not carried out, because it is not etcd that listens there. Other members may be etcd's.
    Stranger(EtcdError),
    /// It was not carried out, and will not be.
    Never(EtcdError),
}

// gRPC's codes.
const INVALID_ARGUMENT: u32 = 3;
const PERMISSION_DENIED: u32 = 7;
/// There is no room, or an answer is longer than a gateway takes.
pub(super) const RESOURCE_EXHAUSTED: u32 = 8;
const FAILED_PRECONDITION: u32 = 9;
/// A revision is forgotten already, or is not there yet.
pub(super) const OUT_OF_RANGE: u32 = 11;
const UNIMPLEMENTED: u32 = 12;
const UNAUTHENTICATED: u32 = 16;

impl Complaint {
    pub(super) fn read(status: u16, body: &[u8]) -> Complaint {
        let words = || String::from_utf8_lossy(&body[..body.len().min(200)]).trim().to_owned();
        let Ok(text) = serde_json::from_slice::<ComplaintText>(body) else {
            return Complaint { status, code: None, message: words() };
        };
        let inner = text.error.as_ref().filter(|error| error.is_object());
        let of_inner = |name: &str| inner.and_then(|error| error.get(name));
        let code = text.code.or_else(|| {
            let code = of_inner("grpc_code").or_else(|| of_inner("code"));
            code.and_then(Value::as_u64).and_then(|code| u32::try_from(code).ok())
        });
        let message = text.message.or_else(|| of_inner("message").and_then(Value::as_str).map(str::to_owned));
        Complaint { status, code, message: message.unwrap_or_else(words) }
    }

    /// What it comes to, of an endpoint, for a cluster whose keys have this prefix.
    pub(super) fn verdict(&self, endpoint: &str, prefix: &str) -> Verdict {
        let says = |words: &str| self.message.contains(words);
        match self.code {
            // A proxy's, which may have passed it on, or a member's that stops.
            None if self.status >= 500 || matches!(self.status, 408 | 429) => Verdict::Unknown,
            None if says("HTTP request to an HTTPS server") => {
                Verdict::Stranger(EtcdError::SpeaksTls { endpoint: endpoint.into() })
            }
            None if says("CommonName of client") => Verdict::Never(EtcdError::CommonName),
            None | Some(UNIMPLEMENTED) => {
                Verdict::Stranger(EtcdError::NoGateway { endpoint: endpoint.into(), status: self.status })
            }
            Some(UNAUTHENTICATED) => Verdict::Token,
            Some(INVALID_ARGUMENT) if says("user name is empty") || says("auth store is old") => {
                Verdict::Token
            }
            Some(INVALID_ARGUMENT) if says("authentication failed") => Verdict::Never(EtcdError::Credentials),
            Some(PERMISSION_DENIED) => Verdict::Never(EtcdError::Permission { prefix: prefix.into() }),
            Some(RESOURCE_EXHAUSTED) if says("database space exceeded") => Verdict::NoSpace,
            Some(code @ RESOURCE_EXHAUSTED) if says("received message larger than max") => {
                Verdict::TooLong(EtcdError::Complaint { code, message: self.message.as_str().into() })
            }
            // This member does not answer that, and others do.
            Some(FAILED_PRECONDITION) if says("for learner") || says("not leader") => Verdict::Unknown,
            Some(code @ (INVALID_ARGUMENT | FAILED_PRECONDITION | OUT_OF_RANGE)) => {
                Verdict::Never(EtcdError::Complaint { code, message: self.message.as_str().into() })
            }
            Some(_) => Verdict::Unknown,
        }
    }

    /// Whether etcd wants no tokens.
    pub(super) fn wants_no_token(&self) -> bool {
        self.code == Some(FAILED_PRECONDITION) && self.message.contains("authentication is not enabled")
    }
}

#[derive(Deserialize)]
#[serde(untagged)]
enum NumberText {
    Number(u64),
    Text(String),
}

fn number<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    match NumberText::deserialize(from)? {
        NumberText::Number(number) => Ok(number),
        NumberText::Text(text) => text.parse().map_err(D::Error::custom),
    }
}

fn text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let bytes = BASE64.decode(String::deserialize(from)?.as_bytes()).map_err(D::Error::custom)?;
    String::from_utf8(bytes).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As Debian's 3.4.23 says it.
    #[test]
    fn answers_with_what_etcd_leaves_out_are_read() {
        let header = concat!(
            r#""header":{"cluster_id":"13061576741656834432","member_id":"1","#,
            r#""revision":"2","raft_term":"2"}"#
        );
        let kv = r#"{"key":"YQ==","create_revision":"2","mod_revision":"2","version":"1","value":"MQ=="}"#;
        let refused = format!(
            r#"{{{header},"responses":[
            {{"response_range":{{"header":{{"revision":"2"}},"kvs":[{kv}],"count":"1"}}}},
            {{"response_range":{{"header":{{"revision":"2"}}}}}}]}}"#
        );
        let refused: TxnAnswer = serde_json::from_str(&refused).unwrap();
        assert!(!refused.succeeded);
        let header = Header { cluster_id: 13_061_576_741_656_834_432, member_id: 1, revision: 2 };
        assert_eq!(refused.header, header);
        let stored = refused.key(0).unwrap().unwrap();
        assert_eq!((stored.key.as_str(), stored.value.as_str(), stored.mod_revision), ("a", "1", 2));
        assert_eq!(refused.key(1).unwrap(), None);
        assert!(refused.key(2).is_err(), "there is no such operation");
        let applied =
            r#"{"header":{"revision":"3"},"succeeded":true,"responses":[{"response_put":{"header":{}}}]}"#;
        assert!(serde_json::from_str::<TxnAnswer>(applied).unwrap().succeeded);
        let compacted = r#"{"result":{"header":{"revision":"4"},"canceled":true,"compact_revision":"3"}}"#;
        let line: WatchLine = serde_json::from_str(compacted).unwrap();
        assert!(line.result.is_some_and(|result| result.canceled && result.compact_revision == 3));
        let gone = r#"{"result":{"events":[{"type":"DELETE","kv":{"key":"YQ==","mod_revision":"4"}}]}}"#;
        let line: WatchLine = serde_json::from_str(gone).unwrap();
        assert!(line.result.unwrap().events[0].is_delete());
    }

    fn verdict(status: u16, body: &str) -> Verdict {
        Complaint::read(status, body.as_bytes()).verdict("e", "cell/")
    }

    #[test]
    fn complaints_of_both_shapes_are_judged() {
        let flat = |code: u32, message: &str| {
            verdict(400, &format!(r#"{{"error":"{message}","message":"{message}","code":{code}}}"#))
        };
        assert_eq!(flat(16, "etcdserver: invalid auth token"), Verdict::Token);
        assert_eq!(flat(3, "etcdserver: user name is empty"), Verdict::Token);
        assert_eq!(
            flat(3, "etcdserver: authentication failed, invalid user ID or password"),
            Verdict::Never(EtcdError::Credentials)
        );
        assert_eq!(
            flat(7, "etcdserver: permission denied"),
            Verdict::Never(EtcdError::Permission { prefix: "cell/".into() })
        );
        assert_eq!(flat(8, "etcdserver: mvcc: database space exceeded"), Verdict::NoSpace);
        assert_eq!(flat(8, "etcdserver: too many requests"), Verdict::Unknown);
        for code in [2, 4, 14] {
            assert_eq!(flat(code, "etcdserver: request timed out"), Verdict::Unknown);
        }
        let nested = r#"{"error":{"grpc_code":14,"http_code":503,"message":"etcdserver: no leader"}}"#;
        assert_eq!(verdict(503, nested), Verdict::Unknown);
        assert_eq!(Complaint::read(503, nested.as_bytes()).message, "etcdserver: no leader");
        assert_eq!(verdict(502, "<html>"), Verdict::Unknown);
        assert_eq!(verdict(408, "<html>"), Verdict::Unknown);
        assert_eq!(flat(9, "etcdserver: rpc not supported for learner"), Verdict::Unknown);
        assert!(matches!(
            verdict(404, "Not Found\n"),
            Verdict::Stranger(EtcdError::NoGateway { status: 404, .. })
        ));
        let secure = verdict(400, "Client sent an HTTP request to an HTTPS server.\n");
        assert_eq!(secure, Verdict::Stranger(EtcdError::SpeaksTls { endpoint: "e".into() }));
        let common_name = "CommonName of client sending a request against gateway will be ignored\n";
        assert_eq!(verdict(400, common_name), Verdict::Never(EtcdError::CommonName));
        let words = "etcdserver: authentication is not enabled";
        let not_enabled = format!(r#"{{"error":"{words}","message":"{words}","code":9}}"#);
        assert!(Complaint::read(412, not_enabled.as_bytes()).wants_no_token());
    }
}
