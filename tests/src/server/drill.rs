//! What a drill does to a server: needs `--allow-drills`.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use serde_json::{Value, json};

use super::Server;

impl Server {
    /// Makes each write of the first node's logs so much slower, up to two seconds; zero ends that.
    ///
    /// # Panics
    /// If the supervisor does not do it.
    pub fn slow_disk(&self, delay: Duration) {
        let socket = self.folder().join("drill.socket");
        let mut stream = UnixStream::connect(socket).expect("the supervisor takes drills");
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        let request = json!({"do": "slow_disk", "node": 0, "delay_ms": delay_ms});
        writeln!(stream, "{request}").expect("the supervisor listens");
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).expect("the supervisor answers");
        let answer: Value = serde_json::from_str(&answer).expect("its answer is JSON");
        assert!(answer["refused"].is_null(), "{answer}");
    }
}
