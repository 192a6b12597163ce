//! Who answers at a port at which nothing says Cell's hello: some services wait for a line before they say
//! anything.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use cell_fabric::Stranger;

/// How long one step may take: a command that has failed waits no longer for a better message.
const PATIENCE: Duration = Duration::from_millis(250);

/// What a service speaks that answers a line; none if it is silent.
pub(crate) fn speaks(address: SocketAddr) -> Option<Stranger> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    stream.set_write_timeout(Some(PATIENCE)).ok()?;
    stream.write_all(Stranger::PROBE).ok()?;
    let mut first = [0; 16];
    match stream.read(&mut first) {
        Ok(length @ 1..) => Some(guess(&first[..length])),
        _ => None,
    }
}

fn guess(first: &[u8]) -> Stranger {
    match first {
        // The answer to a command.
        [b'+', ..] => Stranger::Redis,
        first => match Stranger::guess(first) {
            Stranger::Probe => Stranger::Unknown, // what was sent comes back
            guessed => guessed,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A service that reads a line, and answers so.
    fn answered(answer: &'static [u8]) -> Option<Stranger> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = [0; Stranger::PROBE.len()];
            stream.read_exact(&mut asked).unwrap();
            assert_eq!(Stranger::guess(&asked), Stranger::Probe, "a node would warn of anything else");
            stream.write_all(answer).unwrap();
        });
        let found = speaks(address);
        serve.join().unwrap();
        found
    }

    #[test]
    fn speaks_names_services_that_wait_for_a_line() {
        assert_eq!(answered(b"-ERR wrong number of arguments\r\n"), Some(Stranger::Redis));
        assert_eq!(answered(b"+PONG\r\n"), Some(Stranger::Redis));
        assert_eq!(answered(b"HTTP/1.1 405 Method Not Allowed\r\n\r\n"), Some(Stranger::Http));
        assert_eq!(answered(b"ERROR\r\n"), Some(Stranger::Unknown));
        assert_eq!(answered(Stranger::PROBE), Some(Stranger::Unknown), "an echo is no Redis");
        assert_eq!(answered(b""), None);
    }
}
