//! One connection to an agent: a hello, then a line for each request and one for its answer.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cell_drill::wire::{DrillAnswer, HELLO_BYTES_MAX, LINE_BYTES_MAX};
use rustix::net::sockopt;
use rustls::{ServerConnection, StreamOwned};

use super::guards::Guards;
use super::host::AgentHost;
use super::session::AgentSession;
use crate::dev::drill_listener::{no_request, not_done};
use crate::dev::scale_wire::refuse;

/// How long each read and write may take until somebody is let in, and each write later.
const HELLO_PATIENCE: Duration = Duration::from_secs(10);
/// A drill looks all the time while its fault lasts: one that is silent for so long has lost it.
const SILENCE: Duration = Duration::from_secs(15);
/// Who asks nothing for so long is let go.
const IDLE: Duration = Duration::from_secs(600);
/// The kernel asks a host that is silent for so long whether it is there, so often, and so many times.
const KEEP_ALIVE: (Duration, Duration, u32) = (Duration::from_secs(5), Duration::from_secs(5), 3);
/// What was said to a host is taken within such a time, or it is dead: while something is on its way, the
/// kernel asks nothing.
const TAKEN_WITHIN_MS: u32 = 20_000;
/// How TLS begins.
const TLS_HAND_SHAKE: u8 = 0x16;

/// Serves a connection until it ends. Who has shown a token of the role admin is one of so many: what
/// `let_in` returns, unless there are too many, is dropped in the end.
pub(super) fn serve(
    socket: TcpStream,
    guards: &Guards,
    host: &AgentHost,
    let_in: impl FnOnce() -> Option<Arc<()>>,
) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(HELLO_PATIENCE))?;
    socket.set_write_timeout(Some(HELLO_PATIENCE))?;
    notice_death(&socket)?;
    let own = socket.try_clone()?;
    match guards.tls() {
        None => converse(BufReader::new(socket), &own, guards, host, let_in),
        Some(tls) => {
            let connection = ServerConnection::new(tls.server()).map_err(io::Error::other)?;
            converse(BufReader::new(StreamOwned::new(connection, socket)), &own, guards, host, let_in)
        }
    }
}

/// A read fails once the other host has been silent for too long: the drill's turn ends with its connection.
fn notice_death(socket: &TcpStream) -> io::Result<()> {
    let (idle, interval, count) = KEEP_ALIVE;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, idle)?;
    sockopt::set_tcp_keepintvl(socket, interval)?;
    sockopt::set_tcp_keepcnt(socket, count)?;
    Ok(sockopt::set_tcp_user_timeout(socket, TAKEN_WITHIN_MS)?)
}

/// The same, whatever is around its bytes; `socket` is below them.
fn converse<S: Read + Write>(
    mut stream: BufReader<S>,
    socket: &TcpStream,
    guards: &Guards,
    host: &AgentHost,
    let_in: impl FnOnce() -> Option<Arc<()>>,
) -> io::Result<()> {
    if stream.fill_buf()?.first() == Some(&TLS_HAND_SHAKE) {
        let next = "leave --ca out, or give the agent a certificate (tls_certificate_file, tls_key_file)";
        return say(&mut stream, &not_done(refuse("the agent does not speak TLS".to_owned(), next)));
    }
    let mut line = String::new();
    if stream.by_ref().take(HELLO_BYTES_MAX).read_line(&mut line)? == 0 {
        return Ok(());
    }
    let credential = match guards.admit(&line, socket.peer_addr()?) {
        Ok(credential) => credential,
        Err(refused) => return say(&mut stream, &not_done(refused)),
    };
    let Some(_place) = let_in() else {
        let refused = refuse("it has as many connections as it takes".to_owned(), "wait until one has ended");
        return say(&mut stream, &not_done(refused));
    };
    let hello = DrillAnswer { at_ns: cell_cluster::boottime_ns(), ..DrillAnswer::default() };
    say(&mut stream, &hello)?;
    socket.set_read_timeout(Some(SILENCE))?;
    let (mut session, mut asked_at) = (AgentSession::new(host), Instant::now());
    line.clear();
    loop {
        match stream.by_ref().take(LINE_BYTES_MAX).read_line(&mut line) {
            Ok(0) => return Ok(()),
            Ok(_) => {}
            // The time is over. (A connection that is dead has timed out.)
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                session.heal();
                if asked_at.elapsed() >= IDLE {
                    return Ok(());
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        if !guards.administers(&credential) {
            let next = "give --token (or CELL_TOKEN) one of the role admin";
            return say(&mut stream, &not_done(refuse("the token counts no more".to_owned(), next)));
        }
        let answer = match serde_json::from_str(&line) {
            Ok(request) => session.answer(request),
            Err(error) => no_request(&error),
        };
        say(&mut stream, &answer)?;
        line.clear();
        asked_at = Instant::now();
    }
}

fn say<S: Read + Write>(stream: &mut BufReader<S>, answer: &DrillAnswer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    let stream = stream.get_mut();
    stream.write_all(&line)?;
    stream.flush()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// A drill looks all the time, so that an answer is mostly on its way when its host dies. The kernel sent
    /// it again for a quarter of an hour, and nobody else had a turn until the connection was let go as idle.
    #[test]
    fn notice_death_also_while_an_answer_is_on_its_way() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        notice_death(&socket).unwrap();
        let (idle, interval, count) = KEEP_ALIVE;
        assert!(sockopt::socket_keepalive(&socket).unwrap());
        assert_eq!(sockopt::tcp_user_timeout(&socket).unwrap(), TAKEN_WITHIN_MS);
        assert_eq!((idle + interval * count).as_millis(), u128::from(TAKEN_WITHIN_MS));
    }
}
