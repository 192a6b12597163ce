//! Messages between [`crate::CoordinatorServer`] and [`crate::Remote`]: one JSON object a line, of limited
//! length. Over a network a hello comes first, and its answer before anything is asked. Versions do not mix:
//! hello, questions and answers have theirs, and of another version nothing is made: who asks in one gets
//! that as an answer, and who is answered in one takes that for a refusal.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

use crate::clock_watch::ClockReading;
use crate::request::{CoordinatorRefusal, CoordinatorRequest, Response};

/// Longest line: a transaction of [`crate::request::TRANSACTION_BYTES_MAX`], every byte escaped, and its
/// keys.
pub(crate) const LINE_BYTES_MAX: u64 = 4 << 20;
/// Longest line of who has not been let in yet.
pub(crate) const HELLO_BYTES_MAX: u64 = 4 << 10;
/// The version of all that is said: of a hello, of questions and of their answers. A change of any of them is
/// another version, and the lines of one stand in `tests/golden/coordinator-VERSION.txt`.
pub(crate) const WIRE_VERSION: u32 = 3;
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
    /// [`WIRE_VERSION`]; zero of who asks without, as was done before.
    #[serde(default)]
    pub(crate) version: u32,
    pub(crate) number: u64,
    pub(crate) request: CoordinatorRequest,
}

/// The answer to the question with that number.
#[derive(Serialize, Deserialize)]
pub(crate) struct NumberedResponse {
    /// [`WIRE_VERSION`]; zero of who answers without, as was done before.
    #[serde(default)]
    pub(crate) version: u32,
    pub(crate) number: u64,
    pub(crate) response: Response,
    /// The coordinator's clock; none in a refusal, which carries nothing out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) clock: Option<ClockReading>,
}

/// What stands in each line that is asked, in every version.
#[derive(Deserialize)]
struct AnyVersion {
    version: u32,
}

/// What stands in each answer, in every version.
#[derive(Deserialize)]
struct AnyAnswer {
    #[serde(default)]
    version: u32,
    number: u64,
}

/// Refuses what was asked in another version.
pub(crate) fn check_version(asked: u32) -> Result<(), CoordinatorRefusal> {
    if asked == WIRE_VERSION {
        return Ok(());
    }
    Err(CoordinatorRefusal::Version { asked, known: WIRE_VERSION })
}

/// Why a line is no hello and no question: of another version, which has others, or garbage.
pub(crate) fn why_unreadable(line: &[u8]) -> CoordinatorRefusal {
    let version = serde_json::from_slice::<AnyVersion>(line).map(|line| check_version(line.version));
    match version {
        Ok(Err(refusal)) => refusal,
        _ => CoordinatorRefusal::Unreadable,
    }
}

/// Whether a coordinator says this before it has read the question, so that it means the same in every
/// version.
fn is_of_every_version(response: &Response) -> bool {
    matches!(
        response,
        Response::Refused(
            CoordinatorRefusal::Busy
                | CoordinatorRefusal::Token
                | CoordinatorRefusal::Stranger { .. }
                | CoordinatorRefusal::Version { .. }
        )
    )
}

/// The answer that a line is. What is answered in another version is a refusal, whether it reads or not: a
/// coordinator of before takes a question for one of its own version, and its answer may mean something else.
pub(crate) fn parse_answer(line: &[u8]) -> serde_json::Result<NumberedResponse> {
    let answer = serde_json::from_slice::<NumberedResponse>(line);
    let counts =
        |answer: &NumberedResponse| answer.version == WIRE_VERSION || is_of_every_version(&answer.response);
    if answer.as_ref().is_ok_and(counts) {
        return answer;
    }
    match serde_json::from_slice::<AnyAnswer>(line) {
        Ok(AnyAnswer { version, number }) if version != WIRE_VERSION => {
            let response = Response::Refused(answered_in(version));
            Ok(NumberedResponse { version, number, response, clock: None })
        }
        _ => answer,
    }
}

/// What it comes to that the coordinator speaks this version; zero: it does not say which.
pub(crate) fn answered_in(known: u32) -> CoordinatorRefusal {
    CoordinatorRefusal::Version { asked: WIRE_VERSION, known }
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
    use std::collections::BTreeSet;
    use std::fs;

    use cell_terms::Incarnation;

    use super::*;
    use crate::request::{
        Grant, KeyChange, KeyCondition, KeyPage, KeyValue, LivingLease, Quota, Transaction,
        TransactionOutcome,
    };

    /// What distinguishes the kinds of requests: a new one does not compile before it has a number.
    fn request_kind(request: &CoordinatorRequest) -> usize {
        match request {
            CoordinatorRequest::Transact(_) => 0,
            CoordinatorRequest::Read { .. } => 1,
            CoordinatorRequest::List { .. } => 2,
            CoordinatorRequest::ChangesSince { .. } => 3,
            CoordinatorRequest::Grant { .. } => 4,
            CoordinatorRequest::KeepAlive { .. } => 5,
            CoordinatorRequest::Remaining { .. } => 6,
            CoordinatorRequest::End { .. } => 7,
        }
    }

    /// The same of answers, and of refusals after them.
    fn response_kind(response: &Response) -> usize {
        match response {
            Response::Transacted(_) => 0,
            Response::Value(_) => 1,
            Response::Page(_) => 2,
            Response::Changes { .. } => 3,
            Response::Granted(_) => 4,
            Response::Alive => 5,
            Response::Remaining(_) => 6,
            Response::Ended => 7,
            Response::Refused(refusal) => match refusal {
                CoordinatorRefusal::LeaseEnded { .. } => 8,
                CoordinatorRefusal::Compacted { .. } => 9,
                CoordinatorRefusal::TooLarge { .. } => 10,
                CoordinatorRefusal::KeyTwice { .. } => 11,
                CoordinatorRefusal::LeaseTime { .. } => 12,
                CoordinatorRefusal::Stopped => 13,
                CoordinatorRefusal::NoRoom => 14,
                CoordinatorRefusal::SpaceAlarm => 15,
                CoordinatorRefusal::Quota { .. } => 16,
                CoordinatorRefusal::LeaseIdsUsedUp => 17,
                CoordinatorRefusal::Stranger { .. } => 18,
                CoordinatorRefusal::Token => 19,
                CoordinatorRefusal::Unreadable => 20,
                CoordinatorRefusal::Version { .. } => 21,
                CoordinatorRefusal::Busy => 22,
            },
        }
    }

    fn requests() -> Vec<CoordinatorRequest> {
        let (lease, key) = (Incarnation(7), || "a".to_owned());
        let full = Transaction::new()
            .when(KeyCondition::Absent { key: key() })
            .when(KeyCondition::Revision { key: key(), revision: 3 })
            .when(KeyCondition::Value { key: key(), value: "v".to_owned() })
            .when(KeyCondition::LeaseAlive { lease })
            .when(KeyCondition::LeaseEnded { lease })
            .put("a", "v")
            .put_leased("b", "w", lease)
            .delete("c")
            .dispensable();
        vec![
            CoordinatorRequest::Transact(full),
            CoordinatorRequest::Transact(Transaction::new()),
            CoordinatorRequest::Read { key: key() },
            CoordinatorRequest::List { prefix: key(), after: Some("b".to_owned()) },
            CoordinatorRequest::List { prefix: key(), after: None },
            CoordinatorRequest::ChangesSince { revision: 3 },
            CoordinatorRequest::Grant { ttl_ms: 1_000 },
            CoordinatorRequest::KeepAlive { lease },
            CoordinatorRequest::Remaining { lease },
            CoordinatorRequest::End { lease },
        ]
    }

    fn responses() -> Vec<Response> {
        let (lease, key) = (Incarnation(7), || "a".to_owned());
        let plain =
            KeyValue { key: key(), value: "v".to_owned(), revision_created: 1, revision: 3, lease: None };
        let leased = KeyValue { lease: Some(lease), ..plain.clone() };
        let change = KeyChange { revision: 3, key: key(), value: None };
        let refusals = [
            CoordinatorRefusal::LeaseEnded { lease: 7 },
            CoordinatorRefusal::Compacted { oldest: 3 },
            CoordinatorRefusal::TooLarge { size: 2, limit: 1 },
            CoordinatorRefusal::KeyTwice { operation: 1 },
            CoordinatorRefusal::LeaseTime { ttl_ms: 1 },
            CoordinatorRefusal::Stopped,
            CoordinatorRefusal::NoRoom,
            CoordinatorRefusal::SpaceAlarm,
            CoordinatorRefusal::Quota { what: Quota::LeasesOfOne, limit: 16 },
            CoordinatorRefusal::LeaseIdsUsedUp,
            CoordinatorRefusal::Stranger { user: 1, own: 2 },
            CoordinatorRefusal::Token,
            CoordinatorRefusal::Unreadable,
            CoordinatorRefusal::Version { asked: 1, known: 2 },
            CoordinatorRefusal::Busy,
        ];
        let mut responses = vec![
            Response::Transacted(TransactionOutcome::Applied { revision: 3 }),
            Response::Transacted(TransactionOutcome::Refused { condition: 1 }),
            Response::Value(None),
            Response::Value(Some(leased)),
            Response::Page(KeyPage { revision: 3, entries: vec![plain], more: true }),
            Response::Changes { revision: 3, changes: vec![change] },
            Response::Granted(Grant { lease, ttl_ms: 1_000 }),
            Response::Alive,
            Response::Remaining(None),
            Response::Remaining(Some(LivingLease { remaining_ns: 5, renewals: 2 })),
            Response::Ended,
        ];
        responses.extend(refusals.map(Response::Refused));
        responses
    }

    /// One of each message, a line each.
    fn messages() -> Vec<String> {
        let hello = Hello { version: WIRE_VERSION, token: "secret".to_owned() };
        let mut lines = vec![serde_json::to_string(&hello).unwrap()];
        let welcomes = [Welcome::Welcome, Welcome::Refused(CoordinatorRefusal::Token)];
        lines.extend(welcomes.iter().map(|welcome| serde_json::to_string(welcome).unwrap()));
        for request in requests() {
            let question = NumberedRequest { version: WIRE_VERSION, number: 1, request: request.clone() };
            let line = serde_json::to_string(&question).unwrap();
            assert_eq!(serde_json::from_str::<NumberedRequest>(&line).unwrap().request, request);
            lines.push(line);
        }
        for response in responses() {
            let (version, response) = (WIRE_VERSION, response.clone());
            let answer = NumberedResponse { version, number: 1, response, clock: None };
            let line = serde_json::to_string(&answer).unwrap();
            assert_eq!(parse_answer(line.as_bytes()).unwrap().response, answer.response);
            lines.push(line);
        }
        lines
    }

    /// What a coordinator answers of how long a lease lasts was another message once, and of the same
    /// version: whoever was of before that read nothing that was meant. `CELL_BLESS=1` writes the lines of a
    /// version that has none yet.
    #[test]
    fn messages_of_a_version_are_those_of_its_golden_file() {
        let requests: BTreeSet<usize> = requests().iter().map(request_kind).collect();
        let responses: BTreeSet<usize> = responses().iter().map(response_kind).collect();
        assert!(requests.into_iter().eq(0..8) && responses.into_iter().eq(0..23), "one of each");
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
        let path = format!("{folder}/coordinator-{WIRE_VERSION}.txt");
        let text = messages().join("\n") + "\n";
        if std::env::var_os("CELL_BLESS").is_some() {
            let _ = fs::File::create_new(&path).and_then(|mut file| file.write_all(text.as_bytes()));
        }
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(text, golden, "other lines are another WIRE_VERSION, and not another golden file");
    }

    /// The answer was that its request could not be read, or it was answered and could not read that.
    #[test]
    fn lines_of_another_version_are_answered_so_also_where_they_cannot_be_read() {
        let of_before = CoordinatorRefusal::Version { asked: 1, known: WIRE_VERSION };
        assert_eq!(check_version(WIRE_VERSION), Ok(()));
        assert_eq!(check_version(1), Err(of_before));
        for unknown in [r#"{"version":1,"ask":"a"}"#, r#"{"version":1,"number":1,"request":{"join":{}}}"#] {
            assert_eq!(why_unreadable(unknown.as_bytes()), of_before, "{unknown}");
        }
        for garbage in ["{}", "[[", r#"{"version":3,"number":1,"request":{"join":{}}}"#] {
            assert_eq!(why_unreadable(garbage.as_bytes()), CoordinatorRefusal::Unreadable, "{garbage}");
        }
    }

    /// A coordinator of version 1 answered all questions, and what it said of a lease could not be read: that
    /// was taken for a coordinator that does not answer, and it was asked for ever.
    #[test]
    fn answer_of_another_version_is_a_refusal_that_says_so() {
        let granted = r#""number":4,"response":{"granted":{"lease":7,"ttl_ms":1000}}}"#;
        for (line, known) in [
            (format!("{{{granted}"), 0),
            (r#"{"number":4,"response":{"remaining":5}}"#.to_owned(), 0),
            (r#"{"number":4,"response":{"refused":"unreadable"}}"#.to_owned(), 0),
            (format!(r#"{{"version":4,{granted}"#), 4),
            (r#"{"version":4,"number":4,"response":{"of_later":{}}}"#.to_owned(), 4),
        ] {
            let answer = parse_answer(line.as_bytes()).unwrap();
            let refused = CoordinatorRefusal::Version { asked: WIRE_VERSION, known };
            assert_eq!((answer.number, answer.response), (4, Response::Refused(refused)), "{line}");
        }
        // What is said before the question is read is as good as ever.
        for refusal in [
            CoordinatorRefusal::Busy,
            CoordinatorRefusal::Token,
            CoordinatorRefusal::Stranger { user: 1, own: 2 },
            CoordinatorRefusal::Version { asked: WIRE_VERSION, known: 2 },
        ] {
            let words = serde_json::to_string(&Response::Refused(refusal)).unwrap();
            let answer = parse_answer(format!(r#"{{"number":0,"response":{words}}}"#).as_bytes()).unwrap();
            assert_eq!((answer.number, answer.response), (0, Response::Refused(refusal)));
        }
        for garbage in ["{}", "[[", r#"{"version":3,"number":1,"response":{"of_later":{}}}"#] {
            assert!(parse_answer(garbage.as_bytes()).is_err(), "{garbage}");
        }
    }

    #[test]
    fn answer_with_or_without_a_clock_is_read_by_either() {
        let clock = Some(ClockReading { clock: 3, now_ns: 5 });
        let (version, response) = (WIRE_VERSION, Response::Alive);
        let answer = NumberedResponse { version, number: 1, response, clock };
        let text = serde_json::to_string(&answer).unwrap();
        assert_eq!(text, r#"{"version":3,"number":1,"response":"alive","clock":{"clock":3,"now_ns":5}}"#);
        assert_eq!(serde_json::from_str::<NumberedResponse>(&text).unwrap().clock, clock);
        let without = r#"{"version":3,"number":1,"response":"alive"}"#;
        assert_eq!(serde_json::from_str::<NumberedResponse>(without).unwrap().clock, None);
        assert_eq!(serde_json::to_string(&NumberedResponse { clock: None, ..answer }).unwrap(), without);
    }

    #[test]
    fn hello_and_its_answer_are_lines_of_this_form() {
        let hello = Hello { version: WIRE_VERSION, token: "secret".to_owned() };
        assert_eq!(serde_json::to_string(&hello).unwrap(), r#"{"version":3,"token":"secret"}"#);
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
