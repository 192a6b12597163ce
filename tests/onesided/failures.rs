//! The errors of a client whose server is gone, and of what it cannot do; and that it goes on when
//! the server is back.

use std::time::{Duration, Instant};

use cell_client::{
    Client, ClientError, ClientOptions, Condition, Fate, Operation, Output, Search, Transport,
};
use cell_protocol::Refusal;
use cell_tests::server::Server;

use crate::onesided::clients::{PATIENCE, client};

/// For so long a call goes on trying while the server is gone.
const SHORT: Duration = Duration::from_secs(1);

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    Operation::Put { key, value, condition: Condition::Always }
}

/// The outcome of an operation that has a time of its own.
fn within(client: &mut Client, operation: &Operation<'_>, deadline: Duration) -> Result<Output, ClientError> {
    client.submit_within(operation, deadline).expect("there is room");
    client.poll(PATIENCE).expect("each operation ends at its deadline").outcome
}

pub(crate) fn killed_server_is_reported_and_writes_go_on_when_it_is_back(
    transport: Transport,
    flags: &[&str],
) {
    let mut server = Server::start_with(flags);
    let mut clients = [Search::Client, Search::Auto, Search::Server].map(|search| {
        let mut client = client(&server, transport, search);
        client.put(b"key", b"before").expect("it is written");
        assert_eq!(client.get(b"key").expect("a get").expect("an entry").value, b"before");
        client
    });
    server.kill_all();
    for client in &mut clients {
        let error = within(client, &put(b"other", b"x"), SHORT).expect_err("there is nobody to write it");
        let (ClientError::Deadline { last, .. } | ClientError::Unknown { last, .. }) = error else {
            panic!("{error:?}");
        };
        assert!(last.is_some(), "the reason is given: {error}");
        // Memory that was read may be believed for as long as the last lease surely held.
        match within(client, &Operation::Get { key: b"key" }, SHORT) {
            Err(error @ ClientError::Deadline { .. }) => assert_eq!(error.fate(), Fate::NotDone),
            Ok(Output::Value(Some(item))) => assert_eq!(item.value, b"before"),
            outcome => panic!("{outcome:?}"),
        }
    }
    // Asked while nobody is there, done when somebody is, within the deadline.
    for (number, client) in clients.iter_mut().enumerate() {
        client.submit_within(&put(format!("key-{number}").as_bytes(), b"after"), PATIENCE).expect("room");
        assert!(client.poll(Duration::from_millis(50)).is_none(), "nobody is there");
    }
    server.resume();
    for (number, client) in clients.iter_mut().enumerate() {
        let completion = client.poll(PATIENCE).expect("it ends");
        completion.outcome.expect("it is written now");
        let key = format!("key-{number}");
        assert_eq!(client.get(key.as_bytes()).expect("a get").expect("an entry").value, b"after");
        assert_eq!(client.get(b"key").expect("a get").expect("an entry").value, b"before");
    }
    reads_one_sided_again(&mut clients[0]);
}

/// The memory of the server's new life is searched as that of the old one was.
#[allow(clippy::disallowed_methods, reason = "real processes have real time")]
fn reads_one_sided_again(client: &mut Client) {
    let done = |client: &Client| client.one_sided_counters().expect("it searches itself").done;
    let (before, began) = (done(client), Instant::now());
    while done(client) == before {
        assert!(client.get(b"key").expect("a get").is_some());
        assert!(began.elapsed() < PATIENCE, "{:?}", client.one_sided_counters());
    }
}

pub(crate) fn what_cannot_be_done_is_refused_by_name(transport: Transport, flags: &[&str]) {
    let server = Server::start_steady(flags);
    for search in [Search::Server, Search::Client, Search::Auto] {
        let options =
            ClientOptions { transport, search, in_flight_max: 2, queue_max: 1, ..ClientOptions::default() };
        let mut client = Client::connect(&server.address().to_string(), options).expect("it is there");
        let tickets = [b"a", b"b", b"c"].map(|key| client.submit(&put(key, b"1")).expect("room for three"));
        let error = client.submit(&put(b"d", b"1")).expect_err("the queue is full");
        assert!(matches!(error, ClientError::QueueFull { max: 3 }), "{error:?}");
        assert_eq!(error.to_string(), "3 operations are waiting in this client, the limit");
        for _ in tickets {
            client.poll(PATIENCE).expect("it ends").outcome.expect("it is written");
        }
        client.put(b"d", b"1").expect("there is room again");

        let long = vec![b'k'; 500];
        for key in [&b""[..], &long] {
            let len = u32::try_from(key.len()).expect("a short length");
            let refused = [
                client.get(key).map(drop),
                client.search(key).map(drop),
                client.multi_get(&[&b"a"[..], key]).map(drop),
                client.put(key, b"1").map(drop),
                client.delete(key).map(drop),
            ];
            for outcome in refused {
                let error = outcome.expect_err("no tree has such a key");
                let ClientError::Refused(Refusal::KeyInvalid { len: said, .. }) = error else {
                    panic!("{error:?}");
                };
                assert!(said == len && error.to_string().contains(&format!("this one {len}")), "{error}");
            }
        }
        let max = client.server().expect("it said so").limits.value_bytes_max;
        let error = client.put(b"a", &vec![0; max as usize + 1]).expect_err("no value is so long");
        assert!(matches!(error, ClientError::Refused(Refusal::ValueTooLarge { .. })), "{error:?}");
        let error = client.get(&vec![b'k'; 100_000]).expect_err("no message takes it");
        assert!(matches!(error, ClientError::Unsendable(_)), "{error:?}");
        assert_eq!(client.get(b"a").expect("a get").expect("an entry").value, b"1");
    }
}
