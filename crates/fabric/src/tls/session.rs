//! One connection's TLS, over whatever pipe carries its records. It never waits: what the pipe does not take
//! or give now is gone on with by the next call.
//!
//! Its buffers are bounded: the library keeps one record of input, or a message of the hand-shake of 64 KiB
//! at most, what one read of the pipe has decrypted, and the records of [`PLAINTEXT_AT_ONCE`] bytes of
//! output, after which nothing is encrypted until the pipe has taken them.

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, Connection, Error, ServerConfig, ServerConnection};

use crate::tls_failure::TlsFailure;

/// What is encrypted before the pipe has taken it; the library's own limit is the same.
const PLAINTEXT_AT_ONCE: usize = 64 * 1024;
/// How often one read takes from the pipe, some 4 KiB at most each time: a peer whose records hold nothing,
/// or a byte each, would keep it at that for as long as they come. The longest message takes fewer.
const PULLS_AT_ONCE: usize = 24;

/// What carries records. Neither direction waits.
pub(super) trait Pipe: Read + Write {
    /// Whether the last read has surely taken all that had come.
    fn is_drained(&self) -> bool;
}

/// Why a call did not do what it was asked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Obstacle {
    /// The pipe takes or gives no more just now.
    Blocked,
    /// It has been read from for long and gave nothing, and may have more: others have their turn first.
    Interrupted,
    /// The pipe failed.
    Pipe(ErrorKind),
    /// TLS failed: nothing goes on this connection any more.
    Tls(TlsFailure),
}

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    /// Plaintext that is encrypted and whose records the pipe has not taken whole.
    in_flight: usize,
    /// Something has gone to the peer.
    has_spoken: bool,
    /// The peer sends no more: it said so, or its end of the pipe is closed.
    ended: bool,
    /// The last read ended after [`PULLS_AT_ONCE`]: the pipe may have more.
    interrupted: bool,
    /// What every read from here on comes to.
    obstacle: Option<Obstacle>,
}

impl Session {
    /// A connector's; its first message waits to be sent.
    ///
    /// # Errors
    /// No random bytes.
    pub(super) fn connector(
        config: Arc<ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Session, Box<Error>> {
        Ok(Session::of(Connection::Client(ClientConnection::new(config, name).map_err(Box::new)?)))
    }

    /// An acceptor's.
    ///
    /// # Errors
    /// No random bytes.
    pub(super) fn acceptor(config: Arc<ServerConfig>) -> Result<Session, Box<Error>> {
        Ok(Session::of(Connection::Server(ServerConnection::new(config).map_err(Box::new)?)))
    }

    fn of(connection: Connection) -> Session {
        let (has_spoken, ended, interrupted) = (false, false, false);
        Session { connection, in_flight: 0, has_spoken, ended, interrupted, obstacle: None }
    }

    /// Whether the hand-shake is not through.
    pub(super) fn is_shaking_hands(&self) -> bool {
        self.connection.is_handshaking()
    }

    /// Whether something has gone to the peer, so that it takes what comes in the clear for none of ours.
    pub(super) fn has_spoken(&self) -> bool {
        self.has_spoken
    }

    /// Whether records wait for the pipe.
    pub(super) fn has_unsent(&self) -> bool {
        self.connection.wants_write()
    }

    /// Whether a read has something to say although the pipe has nothing.
    pub(super) fn is_over(&self) -> bool {
        self.ended || self.obstacle.is_some()
    }

    /// Whether the last read left something in the pipe that it had room for.
    pub(super) fn is_interrupted(&self) -> bool {
        self.interrupted
    }

    /// Reads decrypted bytes until there is no more room for them, or the pipe has no more for now, or was
    /// read from for long (see [`Session::is_interrupted`]). Nothing read: the peer sends no more.
    ///
    /// # Errors
    /// Nothing was read, and why.
    pub(super) fn read(&mut self, pipe: &mut impl Pipe, into: &mut [u8]) -> Result<usize, Obstacle> {
        let (mut count, mut pulls) = (0, 0);
        self.interrupted = false;
        loop {
            // What keeps it from giving any is found by the pull.
            count += self.connection.reader().read(&mut into[count..]).unwrap_or(0);
            // Without a byte to give, a pipe is asked until it says itself that it has no more: a short read
            // may have been short because the peer's end is closed.
            let is_enough = count == into.len() || (count > 0 && pipe.is_drained());
            if is_enough || self.is_over() {
                break;
            }
            self.interrupted = pulls == PULLS_AT_ONCE;
            if self.interrupted || !self.pull(pipe) {
                break;
            }
            pulls += 1;
        }
        match self.obstacle {
            _ if count > 0 => Ok(count),
            Some(obstacle) => Err(obstacle),
            None if self.ended => Ok(0),
            None if self.interrupted => Err(Obstacle::Interrupted),
            None => Err(Obstacle::Blocked),
        }
    }

    /// Takes some of what the pipe has; false if there is nothing.
    fn pull(&mut self, pipe: &mut impl Pipe) -> bool {
        match self.connection.read_tls(pipe) {
            Ok(0) => self.ended = true,
            Ok(_) => {
                self.process(pipe);
                return true;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => self.obstacle = Some(Obstacle::Pipe(error.kind())),
        }
        false
    }

    fn process(&mut self, pipe: &mut impl Pipe) {
        let processed = self.connection.process_new_packets();
        // What follows of it for the peer: the next message of the hand-shake, new keys, or why it ends. A
        // pipe that takes none is found by who writes.
        let _ = self.push(pipe);
        if let Err(error) = processed {
            let failure = TlsFailure::of(&error);
            let has_shown_none = matches!(self.connection, Connection::Client(_));
            self.fail(if has_shown_none { failure.of_who_showed_none() } else { failure });
        }
    }

    /// Encrypts from the front of these bytes, and hands records to the pipe. So many bytes have gone, with
    /// all of their records; what has not stands at the front at the next call.
    ///
    /// # Errors
    /// None have gone, and why.
    pub(super) fn write(&mut self, pipe: &mut impl Pipe, bytes: &[u8]) -> Result<usize, Obstacle> {
        if self.in_flight == 0 {
            self.push(pipe)?;
            let front = &bytes[..bytes.len().min(PLAINTEXT_AT_ONCE)];
            self.in_flight = self.connection.writer().write(front).unwrap_or(0);
            if self.in_flight == 0 {
                return Err(self.fail(TlsFailure::Broken));
            }
        }
        self.push(pipe)?;
        Ok(std::mem::take(&mut self.in_flight))
    }

    /// Takes all of these few bytes, and hands on what the pipe takes. Before the hand-shake is through they
    /// wait for it.
    ///
    /// # Errors
    /// [`Obstacle::Blocked`]: they are taken, and not all of their records have gone.
    pub(super) fn send(&mut self, pipe: &mut impl Pipe, bytes: &[u8]) -> Result<(), Obstacle> {
        match self.connection.writer().write(bytes) {
            Ok(count) if count == bytes.len() => self.push(pipe),
            _ => Err(self.fail(TlsFailure::Broken)),
        }
    }

    /// Hands records to the pipe until none wait.
    ///
    /// # Errors
    /// Some wait on, and why.
    pub(super) fn push(&mut self, pipe: &mut impl Pipe) -> Result<(), Obstacle> {
        while self.connection.wants_write() {
            match self.connection.write_tls(pipe) {
                Ok(0) => return Err(Obstacle::Pipe(ErrorKind::WriteZero)),
                Ok(_) => self.has_spoken = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Err(Obstacle::Blocked),
                Err(error) => return Err(Obstacle::Pipe(error.kind())),
            }
        }
        Ok(())
    }

    /// Says that nothing more comes, if the pipe takes it at once.
    pub(super) fn close(&mut self, pipe: &mut impl Pipe) {
        if !self.is_shaking_hands() {
            self.connection.send_close_notify();
        }
        let _ = self.push(pipe); // the peer sees the pipe's end
    }

    /// The first failure counts.
    fn fail(&mut self, failure: TlsFailure) -> Obstacle {
        *self.obstacle.get_or_insert(Obstacle::Tls(failure))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io;
    use std::rc::Rc;

    use super::*;
    use crate::tls::test_certificates::{Authority, Folder};
    use crate::tls::{NodeTls, TlsFiles, TlsTrust};

    /// One direction of a pipe in memory.
    #[derive(Debug)]
    struct Way {
        bytes: VecDeque<u8>,
        /// It holds no more.
        room: usize,
        /// One read or write moves no more.
        step: usize,
        /// All that ever went.
        passed: usize,
        /// It ends after so many bytes in all.
        end_after: usize,
        closed: bool,
    }

    impl Way {
        fn new(room: usize, step: usize) -> Rc<RefCell<Way>> {
            let bytes = VecDeque::new();
            Rc::new(RefCell::new(Way { bytes, room, step, passed: 0, end_after: usize::MAX, closed: false }))
        }
    }

    /// One end.
    struct Ends {
        from: Rc<RefCell<Way>>,
        to: Rc<RefCell<Way>>,
        drained: bool,
    }

    impl Read for Ends {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let mut way = self.from.borrow_mut();
            let count = into.len().min(way.bytes.len()).min(way.step);
            self.drained = way.bytes.len() == count;
            if count == 0 {
                return if way.closed { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
            }
            into[..count].iter_mut().for_each(|byte| *byte = way.bytes.pop_front().unwrap());
            Ok(count)
        }
    }

    impl Write for Ends {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut way = self.to.borrow_mut();
            if way.closed {
                return Err(ErrorKind::BrokenPipe.into());
            }
            let left = way.end_after - way.passed;
            let count = bytes.len().min(way.room - way.bytes.len()).min(way.step).min(left);
            way.bytes.extend(&bytes[..count]);
            way.passed += count;
            way.closed = way.passed == way.end_after;
            if count == 0 { Err(ErrorKind::WouldBlock.into()) } else { Ok(count) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Pipe for Ends {
        fn is_drained(&self) -> bool {
            self.drained
        }
    }

    /// An end, what it has to send, and what it got.
    struct Party {
        session: Session,
        pipe: Ends,
        output: Vec<u8>,
        got: Vec<u8>,
        /// How its reads ended, if they did.
        end: Option<Result<usize, Obstacle>>,
    }

    impl Party {
        /// Does what it can; whether that was anything. No more of its output goes before the hand-shake.
        fn turn(&mut self, read_bytes: usize) -> bool {
            let Party { session, pipe, output, got, end } = self;
            let mut moved = false;
            let before = pipe.to.borrow().passed;
            let _ = session.push(pipe);
            if end.is_none() {
                let mut into = vec![0; read_bytes];
                match session.read(pipe, &mut into) {
                    Ok(count @ 1..) => {
                        got.extend_from_slice(&into[..count]);
                        moved = true;
                    }
                    Err(Obstacle::Blocked) => {}
                    Err(Obstacle::Interrupted) => moved = true,
                    ended => *end = Some(ended),
                }
            }
            let may_write = !session.is_shaking_hands() && !output.is_empty() && !session.is_over();
            if may_write && let Ok(count) = session.write(pipe, output) {
                output.drain(..count);
                moved = true;
            }
            moved || pipe.to.borrow().passed > before
        }
    }

    fn node(folder: &Folder) -> NodeTls {
        let [certificate, key] = ["node.pem", "node.key"].map(|name| folder.path(name));
        NodeTls::open(TlsFiles { certificate, key, trust: Some(folder.path("ca.pem")) }).unwrap()
    }

    /// Two ends, over ways that hold and move so much.
    fn parties(room: usize, step: usize) -> (Party, Party) {
        let authority = Authority::new("one");
        let folder = authority.folder(&["127.0.0.1"]);
        let node = node(&folder);
        let trust = TlsTrust::open(&folder.path("ca.pem")).unwrap();
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        let (there, back) = (Way::new(room, step), Way::new(room, step));
        let party = |session, from: &Rc<RefCell<Way>>, to: &Rc<RefCell<Way>>| Party {
            session,
            pipe: Ends { from: from.clone(), to: to.clone(), drained: false },
            output: Vec::new(),
            got: Vec::new(),
            end: None,
        };
        (
            party(Session::connector(trust.client(), name).unwrap(), &back, &there),
            party(Session::acceptor(node.server()).unwrap(), &there, &back),
        )
    }

    /// Turns both for as long as anything moves.
    fn run(one: &mut Party, other: &mut Party, read_bytes: usize) {
        let mut still = 0;
        while still < 3 {
            let moved = one.turn(read_bytes) | other.turn(read_bytes);
            still = if moved { 0 } else { still + 1 };
        }
    }

    fn bytes(count: usize, seed: u8) -> Vec<u8> {
        (0..count).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
    }

    #[test]
    fn all_bytes_arrive_in_order_however_the_pipe_cuts_them() {
        for (room, step, count) in
            [(1, 1, 300), (3, 2, 2_000), (7_000, 1_500, 300_000), (1 << 20, 1 << 20, 300_000)]
        {
            for read_bytes in [1, 13, 16 * 1024] {
                let (mut client, mut server) = parties(room, step);
                (client.output, server.output) = (bytes(count, 1), bytes(count, 2));
                run(&mut client, &mut server, read_bytes);
                assert_eq!((client.end, server.end), (None, None), "{room} {step} {read_bytes}");
                assert!(server.got == bytes(count, 1) && client.got == bytes(count, 2), "{room} {step}");
                assert!(!client.session.has_unsent() && !server.session.has_unsent());
            }
        }
    }

    /// A peer whose records have next to nothing in them kept one read at it for as long as they came.
    #[test]
    fn read_of_many_short_records_leaves_some_for_the_next() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        run(&mut client, &mut server, 100);
        for _ in 0..10_000 {
            assert_eq!(client.session.send(&mut client.pipe, b"x"), Ok(()));
        }
        let waiting = |server: &Party| server.pipe.from.borrow().bytes.len();
        let (before, mut into) = (waiting(&server), vec![0; 20_000]);
        let count = server.session.read(&mut server.pipe, &mut into).unwrap();
        let taken = before - waiting(&server);
        assert!(count > 0 && taken > 0 && taken <= PULLS_AT_ONCE * 5_000, "{count} {taken}");
        assert!(server.session.is_interrupted() && !server.session.is_over());
        server.got.extend_from_slice(&into[..count]);
        run(&mut client, &mut server, 16 * 1024);
        assert!(server.got == [b'x'; 10_000] && !server.session.is_interrupted());
    }

    #[test]
    fn read_that_gets_nothing_out_of_much_is_interrupted_and_goes_on() {
        let (mut client, mut server) = parties(1 << 20, 1);
        run(&mut client, &mut server, 100);
        assert_eq!(client.session.send(&mut client.pipe, &bytes(100, 7)), Ok(()));
        let read = server.session.read(&mut server.pipe, &mut [0; 100]);
        assert_eq!(read, Err(Obstacle::Interrupted), "a byte a pull");
        run(&mut client, &mut server, 100);
        assert_eq!((server.got, server.end), (bytes(100, 7), None));
    }

    #[test]
    fn few_bytes_that_are_sent_before_the_hand_shake_go_when_it_is_through() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        assert_eq!(client.session.send(&mut client.pipe, b"hello"), Ok(()));
        assert!(client.session.is_shaking_hands() && client.session.has_spoken());
        run(&mut client, &mut server, 100);
        assert_eq!(server.got, b"hello");
        assert!(!client.session.is_shaking_hands() && !server.session.is_shaking_hands());
    }

    /// Nothing is encrypted for a peer that takes nothing, beyond what was at first.
    #[test]
    fn slow_reader_bounds_what_is_kept_for_it() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        run(&mut client, &mut server, 100);
        server.pipe.to.borrow_mut().room = 5;
        let long = bytes(10 << 20, 3);
        let mut gone = 0;
        for _ in 0..100 {
            match server.session.write(&mut server.pipe, &long[gone..]) {
                Ok(count) => gone += count,
                Err(obstacle) => assert_eq!(obstacle, Obstacle::Blocked),
            }
            assert_eq!((gone, server.session.in_flight), (0, PLAINTEXT_AT_ONCE));
        }
        assert!(server.session.has_unsent());
        server.pipe.to.borrow_mut().room = 1 << 20;
        assert_eq!(server.session.write(&mut server.pipe, &long), Ok(PLAINTEXT_AT_ONCE));
        run(&mut client, &mut server, 16 * 1024);
        assert!(client.got == long[..PLAINTEXT_AT_ONCE]);
    }

    #[test]
    fn records_of_the_greatest_length_arrive_and_longer_ones_break_it_off() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        run(&mut client, &mut server, 100);
        client.output = bytes(16 * 1024, 4);
        let before = client.pipe.to.borrow().passed;
        run(&mut client, &mut server, 16 * 1024);
        assert!(server.got == bytes(16 * 1024, 4));
        assert_eq!(client.pipe.to.borrow().passed - before, 16 * 1024 + 5 + 1 + 16, "one record");
        client.pipe.write_all(&[0x17, 3, 3, 0xff, 0xff]).unwrap();
        client.pipe.write_all(&[0; 1 << 16]).unwrap();
        run(&mut client, &mut server, 16 * 1024);
        assert_eq!(server.end, Some(Err(Obstacle::Tls(TlsFailure::Broken))));
    }

    /// A pipe that ends after any byte ends both, and neither is ever given what the other did not send.
    #[test]
    fn end_after_each_byte_is_an_end_or_a_failure_and_gives_only_what_was_sent() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        (client.output, server.output) = (bytes(40, 5), bytes(40, 6));
        run(&mut client, &mut server, 100);
        let whole = client.pipe.to.borrow().passed;
        assert!(whole > 200, "{whole}");
        for end_after in 1..=whole {
            let (mut client, mut server) = parties(1 << 20, 1 << 20);
            client.pipe.to.borrow_mut().end_after = end_after;
            (client.output, server.output) = (bytes(40, 5), bytes(40, 6));
            run(&mut client, &mut server, 100);
            let end = server.end.expect("its pipe has ended");
            assert!(matches!(end, Ok(0) | Err(Obstacle::Tls(_) | Obstacle::Pipe(_))), "{end_after}: {end:?}");
            assert!(bytes(40, 5).starts_with(&server.got), "{end_after}");
            assert!(bytes(40, 6).starts_with(&client.got), "{end_after}");
        }
    }

    #[test]
    fn byte_that_was_changed_breaks_it_off_for_good() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        run(&mut client, &mut server, 100);
        assert_eq!(client.session.send(&mut client.pipe, b"pay 10"), Ok(()));
        let mut way = client.pipe.to.borrow_mut();
        let last = way.bytes.len() - 1;
        way.bytes[last] ^= 1;
        drop(way);
        run(&mut client, &mut server, 100);
        let broken = Err(Obstacle::Tls(TlsFailure::Broken));
        assert_eq!((server.end, server.got.as_slice()), (Some(broken), &[][..]));
        assert_eq!(server.session.read(&mut server.pipe, &mut [0; 10]), broken);
        assert!(server.session.is_over());
        assert!(matches!(client.end, Some(Err(Obstacle::Tls(TlsFailure::Alert(_))))), "{:?}", client.end);
    }

    #[test]
    fn close_is_reported_and_what_was_sent_before_arrives() {
        let (mut client, mut server) = parties(1 << 20, 1 << 20);
        run(&mut client, &mut server, 100);
        assert_eq!(client.session.send(&mut client.pipe, b"last"), Ok(()));
        client.session.close(&mut client.pipe);
        run(&mut client, &mut server, 100);
        assert_eq!((server.got.as_slice(), server.end), (&b"last"[..], Some(Ok(0))));
    }

    #[test]
    fn certificate_that_is_not_trusted_is_reported_to_both() {
        let (_, mut server) = parties(1 << 20, 1 << 20);
        let other = Authority::new("two").folder(&["127.0.0.1"]);
        let trust = TlsTrust::open(&other.path("ca.pem")).unwrap();
        let name = ServerName::IpAddress(std::net::IpAddr::from([127, 0, 0, 1]).into());
        let mut client = Party {
            session: Session::connector(trust.client(), name).unwrap(),
            pipe: Ends { from: server.pipe.to.clone(), to: server.pipe.from.clone(), drained: false },
            output: Vec::new(),
            got: Vec::new(),
            end: None,
        };
        run(&mut client, &mut server, 100);
        assert_eq!(client.end, Some(Err(Obstacle::Tls(TlsFailure::Untrusted))));
        assert_eq!(server.end, Some(Err(Obstacle::Tls(TlsFailure::NotTrustedByPeer))));
    }
}
