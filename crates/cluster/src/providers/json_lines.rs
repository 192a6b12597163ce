//! Messages between [`crate::CoordinatorServer`] and [`crate::Remote`]: one JSON object a line, of limited
//! length. Over a network a hello comes first, and its answer before anything is asked.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::clock_watch::ClockReading;
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Response};

/// Longest line: a transaction of [`crate::request::TRANSACTION_BYTES_MAX`], every byte escaped, and its
/// keys.
pub(crate) const LINE_BYTES_MAX: u64 = 4 << 20;
/// Longest line of who has not been let in yet.
pub(crate) const HELLO_BYTES_MAX: u64 = 4 << 10;
/// The version of all that is said over a network.
pub(crate) const HELLO_VERSION: u32 = 1;
/// Read at a time; most answers are shorter.
const PART_BYTES: usize = 4 << 10;

/// What who connects over a network says first.
#[derive(Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    /// By which they are let in.
    pub(crate) token: String,
}

/// The answer to a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Welcome {
    /// What comes now are questions.
    Welcome,
    /// Nothing more is said.
    Refused(CoordinatorRefusal),
}

/// A request with its number on the connection.
#[derive(Serialize, Deserialize)]
pub(crate) struct NumberedRequest {
    pub(crate) number: u64,
    pub(crate) request: CoordinatorRequest,
}

/// The answer to the question with that number.
#[derive(Serialize, Deserialize)]
pub(crate) struct NumberedResponse {
    pub(crate) number: u64,
    pub(crate) response: Response,
    /// The coordinator's clock; none in a refusal, which carries nothing out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<ClockReading>,
}

/// Reads a line without its end. None: the peer closed the connection between two lines.
pub(crate) fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Option<()>> {
    read_line_within(LINE_BYTES_MAX, from, line)
}

/// The same, of so many bytes at most.
pub(crate) fn read_line_within(
    bytes_max: u64,
    from: &mut impl BufRead,
    line: &mut Vec<u8>,
) -> io::Result<Option<()>> {
    line.clear();
    let count = io::Read::take(&mut *from, bytes_max).read_until(b'\n', line)?;
    match line.pop() {
        None if count == 0 => Ok(None),
        Some(b'\n') => Ok(Some(())),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Writes one message as one line, in one write. What `line` has is lost, and its memory used.
pub(crate) fn write_line<T: Serialize>(
    to: &mut impl Write,
    line: &mut Vec<u8>,
    message: &T,
) -> io::Result<()> {
    line.clear();
    serde_json::to_writer(&mut *line, message)?;
    line.push(b'\n');
    to.write_all(line)
}

/// Reads the one line that comes, without its end, by a peer that says no more than that.
pub(crate) fn read_only_line(from: &mut impl Read, line: &mut Vec<u8>) -> io::Result<()> {
    line.clear();
    let mut part = [0; PART_BYTES];
    while line.last() != Some(&b'\n') {
        match from.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => line.extend_from_slice(&part[..count]),
        }
        if line.len() as u64 > LINE_BYTES_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    line.pop();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_with_or_without_a_clock_is_read_by_either() {
        let clock = Some(ClockReading { clock: 3, now_ns: 5 });
        let answer = NumberedResponse { number: 1, response: Response::Alive, clock };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(text, r#"{"number":1,"response":"alive","clock":{"clock":3,"now_ns":5}}"#);
        assert_eq!(serde_json::from_str::<NumberedResponse>(&text).unwrap().clock, clock);
        let without = r#"{"number":1,"response":"alive"}"#;
        assert_eq!(serde_json::from_str::<NumberedResponse>(without).unwrap().clock, None);
        assert_eq!(serde_json::to_string(&NumberedResponse { clock: None, ..answer }).unwrap(), without);
    }

    #[test]
    fn hello_and_its_answer_are_lines_of_this_form() {
        let hello = Hello { version: HELLO_VERSION, token: "secret".to_owned() };
        assert_eq!(serde_json::to_string(&hello).unwrap(), r#"{"version":1,"token":"secret"}"#);
        let refused = Welcome::Refused(CoordinatorRefusal::Token);
        for (welcome, text) in [(Welcome::Welcome, r#""welcome""#), (refused, r#"{"refused":"token"}"#)] {
            assert_eq!(serde_json::to_string(&welcome).unwrap(), text);
            assert_eq!(serde_json::from_str::<Welcome>(text).unwrap(), welcome);
        }
    }

    #[test]
    fn read_line_cut_or_endless_lines_are_errors() {
        let mut line = Vec::new();
        assert!(read_line(&mut &b""[..], &mut line).unwrap().is_none());
        assert!(read_line(&mut &b"{}"[..], &mut line).is_err());
        let mut endless = io::BufReader::new(io::repeat(b' '));
        assert!(read_line(&mut endless, &mut line).is_err());
        let mut two = &b"a\nb\n"[..];
        assert!(read_line(&mut two, &mut line).unwrap().is_some());
        assert_eq!(line, b"a");
    }

    #[test]
    fn read_only_line_takes_it_in_parts_and_refuses_what_is_cut_or_endless() {
        let mut line = b"left".to_vec();
        let long = [vec![b'a'; 3 * PART_BYTES], b"\n".to_vec()].concat();
        read_only_line(&mut &long[..], &mut line).unwrap();
        assert_eq!(line, long[..long.len() - 1]);
        let cut = read_only_line(&mut &b"{}"[..], &mut line).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
        let endless = read_only_line(&mut io::repeat(b' '), &mut line).unwrap_err();
        assert_eq!(endless.kind(), io::ErrorKind::InvalidData);
    }
}
