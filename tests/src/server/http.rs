//! Asking a server over HTTP.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::Server;
use crate::wait;

/// How long a node may take to answer.
const ANSWERS: Duration = Duration::from_secs(60);
/// How long it may take to accept a connection.
const ACCEPTS: Duration = Duration::from_secs(10);

impl Server {
    /// Where its first node serves HTTP.
    pub fn http_address(&self) -> SocketAddr {
        self.http_address_of(0)
    }

    /// Where a node serves HTTP.
    pub fn http_address_of(&self, node: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.ports.first + 80 + node))
    }

    /// GETs a path of the first node's HTTP listener: status and body.
    pub fn http(&self, path: &str) -> Option<(u16, String)> {
        self.http_of(0, path)
    }

    /// GETs a path of one node's HTTP listener: status and body.
    pub fn http_of(&self, node: u16, path: &str) -> Option<(u16, String)> {
        self.http_ask(node, &format!("GET {path}"), "", "")
    }

    /// GETs a path of the first node's HTTP listener with this token: status and body.
    pub fn http_as(&self, token: &str, path: &str) -> Option<(u16, String)> {
        self.http_ask(0, &format!("GET {path}"), &format!("Authorization: Bearer {token}\r\n"), "")
    }

    /// POSTs a JSON body to a path of one node's HTTP listener: status and body.
    pub fn http_post(&self, node: u16, path: &str, body: &str) -> Option<(u16, String)> {
        let headers = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        self.http_ask(node, &format!("POST {path}"), &headers, body)
    }

    /// The same of a change that is to be as this revision shows it.
    pub fn http_post_as_seen(
        &self,
        node: u16,
        path: &str,
        revision: &str,
        body: &str,
    ) -> Option<(u16, String)> {
        let length = body.len();
        let headers = format!(
            "Content-Type: application/json\r\nContent-Length: {length}\r\nIf-Match: \"{revision}\"\r\n"
        );
        self.http_ask(node, &format!("POST {path}"), &headers, body)
    }

    /// PATCHes what the cluster is tuned to, whatever that was, with a JSON body: status and body.
    pub fn http_tune(&self, body: &str) -> Option<(u16, String)> {
        const PATH: &str = "/api/v1/tuning";
        let (_, seen) = self.http(PATH)?;
        let seen: serde_json::Value = serde_json::from_str(&seen).ok()?;
        let (revision, length) = (seen["revision"].as_str()?, body.len());
        let headers = format!(
            "Content-Type: application/json\r\nContent-Length: {length}\r\nIf-Match: \"{revision}\"\r\n"
        );
        self.http_ask(0, &format!("PATCH {PATH}"), &headers, body)
    }

    fn http_ask(&self, node: u16, what: &str, headers: &str, body: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.http_address_of(node), ACCEPTS).ok()?;
        stream.set_read_timeout(Some(ANSWERS)).ok()?;
        write!(stream, "{what} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n{body}")
            .ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        let (head, body) = text.split_once("\r\n\r\n")?;
        Some((head.split(' ').nth(1)?.parse().ok()?, body.to_owned()))
    }

    /// Waits until a page of a node's HTTP listener has these words.
    ///
    /// # Panics
    /// If it never has.
    pub fn wait_http(&self, node: u16, path: &str, words: &str) {
        let is_said = || self.http_of(node, path).is_some_and(|(_, body)| body.contains(words));
        wait::until(&format!("{path} says `{words}`"), is_said);
    }
}
