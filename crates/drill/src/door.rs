//! A connection to one supervisor: over the socket in the folder of its cluster; or, to an agent, over TCP,
//! under TLS if it knows whom to trust.

use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cell_cluster::{boottime_ns, local_socket};
use cell_fabric::TlsTrust;
use cell_resolver::look_up_within;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use serde::Serialize;

use crate::deadline::{Deadline, EndOfAll, SupervisorSocket};
use crate::error::DrillError;
use crate::wire::{AGENT_WIRE, ANSWER_BYTES_MAX, AgentHello, DrillAnswer, DrillRequest, Refused, Status};

/// A supervisor that says nothing for so long is given up. What an agent waits for itself takes less.
pub const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// An agent whose host is silent for so long, or whose name nobody looks up, is not reached.
const CONNECT_WITHIN: Duration = Duration::from_secs(4);
/// How long [`crate::Drill::check`] takes at most, however many agents stand still: one of them that is not
/// reached, or does not answer, has its whole time. Who asks another node to run a drill waits for longer.
pub const CHECK_WITHIN: Duration = CONNECT_WITHIN.saturating_add(ANSWER_WITHIN);
/// How often an agent's clock is asked for: the fastest answer tells most.
const CLOCK_LOOKS: usize = 5;
/// How an end that speaks TLS begins its answer to one that does not: an alert.
const TLS_ALERT: char = '\u{15}';

/// The socket for drills of the cluster in `dir`.
#[must_use]
pub fn drill_socket(dir: &Path) -> PathBuf {
    dir.join("drill.socket")
}

/// The agents of a cluster, one a host, and how they are talked to.
#[derive(Clone, Default)]
pub struct Agents {
    /// Where each is: HOST:PORT.
    pub addresses: Vec<String>,
    /// Whom they are trusted by under TLS; none: it is done without.
    pub trust: Option<TlsTrust>,
    /// A token of the role admin.
    pub token: String,
}

/// What is read from and written to.
trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// See the module's text.
pub(crate) struct Door {
    /// Where the agent is; none: it is the supervisor of a folder.
    agent: Option<String>,
    stream: BufReader<Box<dyn Stream>>,
    /// The numbers of its nodes, of an agent.
    pub(crate) nodes: Vec<u16>,
    /// The agent does no faults to them.
    pub(crate) looks_only: bool,
    /// By how many nanoseconds this host's clock is ahead of the agent's.
    ahead_ns: i64,
    deadline: Option<Deadline>,
    /// It has let this one in: each exchange has [`ANSWER_WITHIN`]. Until then all of it has.
    is_in: bool,
    /// However long an exchange may take.
    end_of_all: EndOfAll,
}

impl Door {
    /// The supervisor of the cluster in `dir`.
    pub(crate) fn of_folder(dir: &Path, end_of_all: EndOfAll) -> Result<Door, DrillError> {
        let path = drill_socket(dir);
        let connected = local_socket::connect(&path, end_of_all.bound(ANSWER_WITHIN)).map(|socket| {
            let deadline = Deadline::default(); // started by each exchange
            let stream = SupervisorSocket { socket, deadline: deadline.clone() };
            let door = Door::new(None, Box::new(stream));
            Door { deadline: Some(deadline), is_in: true, end_of_all, ..door }
        });
        connected.map_err(|error| {
            let why = match error.kind() {
                ErrorKind::NotFound => "there is none".to_owned(),
                ErrorKind::ConnectionRefused => "nobody listens: its supervisor is gone".to_owned(),
                _ => error.to_string(),
            };
            DrillError::NoSupervisor { path, why }
        })
    }

    /// The agent at this address, which lets in who has the token; its clock is known then.
    pub(crate) fn of_agent(agents: &Agents, agent: &str, end_of_all: EndOfAll) -> Result<Door, DrillError> {
        let away = |why: String| DrillError::AgentAway { agent: agent.to_owned(), why };
        let socket = connect(agent, end_of_all.bound(CONNECT_WITHIN));
        let socket = socket.map_err(|error| away(format!("is not reached: {error}")))?;
        let peer = socket.peer_addr().map_err(|error| away(format!("is not reached: {error}")))?;
        let deadline = Deadline::after(end_of_all.bound(ANSWER_WITHIN));
        let socket = SupervisorSocket { socket, deadline: deadline.clone() };
        let stream: Box<dyn Stream> = match &agents.trust {
            None if wants_tls(peer.ip()) => {
                let why = "is on another host, and is sent no token in the clear: nobody is named by --ca";
                return Err(away(why.to_owned()));
            }
            None => Box::new(socket),
            Some(trust) => {
                let what = "cannot be spoken to over TLS";
                let under_tls = shake_hands(trust, agent, socket);
                Box::new(under_tls.map_err(|error| away(in_words(what, &error, deadline.patience())))?)
            }
        };
        let mut door = Door::new(Some(agent.to_owned()), stream);
        door.deadline = Some(deadline);
        let hello = AgentHello { wire: AGENT_WIRE, token: agents.token.clone() };
        match door.answer(&hello) {
            Err(DrillError::Refused { what, next }) => {
                Err(DrillError::NotLetIn { agent: agent.to_owned(), what, next })
            }
            Err(error) => Err(error),
            Ok(_) => {
                door.learn_clock()?;
                (door.is_in, door.end_of_all) = (true, end_of_all);
                Ok(door)
            }
        }
    }

    fn new(agent: Option<String>, stream: Box<dyn Stream>) -> Door {
        let stream = BufReader::new(stream);
        let (nodes, looks_only, ahead_ns) = (Vec::new(), false, 0);
        let (deadline, is_in, end_of_all) = (None, false, EndOfAll::NEVER);
        Door { agent, stream, nodes, looks_only, ahead_ns, deadline, is_in, end_of_all }
    }

    /// From now on each exchange has its whole time.
    pub(crate) fn end_never(&mut self) {
        self.end_of_all = EndOfAll::NEVER;
    }

    /// Where the agent is; none: it is the supervisor of a folder.
    pub(crate) fn agent(&self) -> Option<&str> {
        self.agent.as_deref()
    }

    /// By how many milliseconds this host's clock is ahead of the agent's.
    pub(crate) fn ahead_ms(&self) -> i64 {
        self.ahead_ns / 1_000_000
    }

    /// Asks for something and waits until it is done. When that was is by this host's clock.
    pub(crate) fn ask(&mut self, request: DrillRequest) -> Result<DrillAnswer, DrillError> {
        let mut answer = self.answer(&request)?;
        answer.at_ns = answer.at_ns.saturating_add_signed(self.ahead_ns);
        Ok(answer)
    }

    /// Asks for a status, and when that was.
    pub(crate) fn look(&mut self, request: DrillRequest) -> Result<(u64, Status), DrillError> {
        let answer = self.ask(request)?;
        match answer.status {
            Some(status) => Ok((answer.at_ns, status)),
            None => Err(self.trouble("reports no status".to_owned())),
        }
    }

    fn answer(&mut self, asked: &impl Serialize) -> Result<DrillAnswer, DrillError> {
        let said = match self.exchange(asked) {
            Ok(said) => said,
            // Its words, not the error itself: a pipe that breaks here is not the reader of our output.
            Err(error) if is_gone(&error) => return Err(self.trouble("is gone".to_owned())),
            Err(error) => {
                let patience = self.deadline.as_ref().map_or(ANSWER_WITHIN, Deadline::patience);
                return Err(self.trouble(in_words("does not answer", &error, patience)));
            }
        };
        if said.is_empty() {
            return Err(self.trouble("is gone".to_owned()));
        }
        if said.starts_with(TLS_ALERT) {
            return Err(self.trouble("speaks TLS, and was spoken to in the clear".to_owned()));
        }
        match serde_json::from_str::<DrillAnswer>(&said) {
            Err(error) => Err(self.trouble(format!("gives an answer of another version: {error}"))),
            Ok(DrillAnswer { refused: Some(refused), .. }) => Err(match refused {
                Refused { what, next, is_away: true } => DrillError::Away { what, next },
                Refused { what, next, is_away: false } => DrillError::Refused { what, next },
            }),
            Ok(answer) => Ok(answer),
        }
    }

    fn exchange(&mut self, asked: &impl Serialize) -> io::Result<String> {
        let mut line = serde_json::to_vec(asked)?;
        line.push(b'\n');
        if let Some(deadline) = self.deadline.as_ref().filter(|_| self.is_in) {
            deadline.begin(self.end_of_all.bound(ANSWER_WITHIN));
        }
        let stream = self.stream.get_mut();
        stream.write_all(&line)?;
        stream.flush()?;
        let mut said = Vec::new();
        self.stream.by_ref().take(ANSWER_BYTES_MAX).read_until(b'\n', &mut said)?;
        if said.len() as u64 == ANSWER_BYTES_MAX {
            return Err(io::Error::other("what it says has no end"));
        }
        String::from_utf8(said).map_err(io::Error::other)
    }

    /// Clocks of two hosts have started at different times. Half of the time of an answer is the most by
    /// which this is wrong.
    fn learn_clock(&mut self) -> Result<(), DrillError> {
        let mut fastest_ns = u64::MAX;
        for _ in 0..CLOCK_LOOKS {
            let asked_ns = boottime_ns();
            let answer = self.answer(&DrillRequest::Nodes)?;
            let took_ns = boottime_ns().saturating_sub(asked_ns);
            if took_ns < fastest_ns {
                fastest_ns = took_ns;
                self.ahead_ns = difference(asked_ns + took_ns / 2, answer.at_ns);
            }
        }
        Ok(())
    }

    fn trouble(&self, why: String) -> DrillError {
        match &self.agent {
            Some(agent) => DrillError::AgentAway { agent: agent.clone(), why },
            None => DrillError::Supervisor(why),
        }
    }
}

/// What has failed, and why; of an end that stands still the system says what is about its own socket.
fn in_words(what: &str, error: &io::Error, patience: Duration) -> String {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => match patience.as_secs() {
            0 => format!("does not answer within {} ms", patience.as_millis()),
            seconds => format!("does not answer within {seconds} s"),
        },
        _ => format!("{what}: {error}"),
    }
}

/// Whether the other end was closed, in order or not.
fn is_gone(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::UnexpectedEof
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionAborted
            | ErrorKind::BrokenPipe
    )
}

/// Whether an agent there speaks TLS, as all do that are reached from another host.
fn wants_tls(peer: IpAddr) -> bool {
    !peer.to_canonical().is_loopback()
}

/// By how much one time is later than another.
fn difference(one: u64, other: u64) -> i64 {
    i64::try_from(i128::from(one) - i128::from(other)).unwrap_or(0)
}

/// The host of HOST:PORT, without the brackets of an IPv6 address.
fn host_of(agent: &str) -> &str {
    agent.rsplit_once(':').map_or(agent, |(host, _)| host).trim_matches(['[', ']'])
}

/// Connects to the first of its addresses that answers. Half of the time is for what its name leads to, and
/// each address has its part of the rest.
fn connect(agent: &str, within: Duration) -> io::Result<TcpStream> {
    let mut last = ErrorKind::TimedOut.into();
    let addresses: Vec<SocketAddr> = look_up_within(agent, within / 2)?;
    for address in &addresses {
        match TcpStream::connect_timeout(address, part_of(within / 2, addresses.len())) {
            Ok(socket) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// How long each of so many addresses is tried; at least for a moment.
fn part_of(time: Duration, addresses: usize) -> Duration {
    (time / u32::try_from(addresses.clamp(1, 40)).unwrap_or(1)).max(Duration::from_micros(1))
}

fn shake_hands(
    trust: &TlsTrust,
    agent: &str,
    mut socket: SupervisorSocket<TcpStream>,
) -> io::Result<StreamOwned<ClientConnection, SupervisorSocket<TcpStream>>> {
    let name = ServerName::try_from(host_of(agent).to_owned()).map_err(io::Error::other)?;
    let mut connection = ClientConnection::new(trust.client(), name).map_err(io::Error::other)?;
    while connection.is_handshaking() {
        connection.complete_io(&mut socket)?;
    }
    Ok(StreamOwned::new(connection, socket))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread::{JoinHandle, spawn};

    use super::*;
    use crate::wire::NodeView;

    /// A node of this number that serves.
    pub(crate) fn view(node: u16) -> NodeView {
        let address = "127.0.0.1:7000".parse().unwrap();
        NodeView {
            node,
            pid: Some(1),
            state: "serving".to_owned(),
            lives: 1,
            partitioned: false,
            partition: None,
            disk_delay_ms: 0,
            why: None,
            drained_by: None,
            drain_stall: None,
            server: address,
            http: address,
        }
    }

    /// An agent that answers one connection, its hello first, until that ends; what it was asked.
    pub(crate) fn agent(
        mut answer: impl FnMut(&str) -> DrillAnswer + Send + 'static,
    ) -> (String, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let serves = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut asked = Vec::new();
            for line in BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok) {
                let mut said = serde_json::to_vec(&answer(&line)).unwrap();
                said.push(b'\n');
                asked.push(line);
                if stream.write_all(&said).is_err() {
                    break;
                }
            }
            asked
        });
        (address, serves)
    }

    /// The answer of who did nothing, for this reason.
    pub(crate) fn refusing(what: &str, is_away: bool) -> DrillAnswer {
        let refused = Refused { what: what.to_owned(), next: "do something".to_owned(), is_away };
        DrillAnswer { refused: Some(refused), ..DrillAnswer::default() }
    }

    /// Agents at these addresses, without TLS.
    pub(crate) fn agents(addresses: &[&str]) -> Agents {
        let addresses = addresses.iter().map(|address| (*address).to_owned()).collect();
        Agents { addresses, trust: None, token: "secret".to_owned() }
    }

    /// The agent at this address, by which a token goes in the clear.
    fn enter(address: &str) -> Result<Door, DrillError> {
        Door::of_agent(&agents(&[address]), address, EndOfAll::NEVER)
    }

    #[test]
    fn of_agent_says_hello_first_and_has_times_by_its_own_clock() {
        const LATE_NS: u64 = 3_600_000_000_000;
        let clock = || boottime_ns() + LATE_NS;
        let (address, serves) = agent(move |_| DrillAnswer { at_ns: clock(), ..DrillAnswer::default() });
        let mut door = enter(&address).unwrap();
        let before = boottime_ns();
        let at_ns = door.ask(DrillRequest::Stop { node: 4 }).unwrap().at_ns;
        let second = 1_000_000_000;
        assert!(at_ns + second > before && at_ns < boottime_ns() + second, "{at_ns} {before}");
        drop(door);
        let asked = serves.join().unwrap();
        assert_eq!(asked[0], r#"{"wire":2,"token":"secret"}"#);
        assert_eq!(asked.last().unwrap(), r#"{"do":"stop","node":4}"#);
    }

    #[test]
    fn of_agent_that_refuses_the_hello_or_is_away_says_so_and_which_it_is() {
        let (address, _serves) = agent(|_| refusing("no such token", false));
        let refused = enter(&address).err().unwrap();
        assert!(matches!(&refused, DrillError::NotLetIn { what, .. } if what == "no such token"));
        assert!(refused.to_string().contains(&address), "{refused}");
        let nobody = "127.0.0.1:1";
        let away = enter(nobody).err().unwrap();
        assert!(matches!(&away, DrillError::AgentAway { .. }) && away.to_string().contains(nobody), "{away}");
    }

    /// "Resource temporarily unavailable" was said of it.
    #[test]
    fn agent_that_stands_still_does_not_answer() {
        let (own, _theirs) = UnixStream::pair().unwrap();
        own.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let mut door = Door::new(Some("host-1:7090".to_owned()), Box::new(own));
        let error = door.ask(DrillRequest::Stop { node: 4 }).unwrap_err().to_string();
        assert!(error.contains("host-1:7090") && error.contains("does not answer within 10 s"), "{error}");
        let what = "cannot be spoken to over TLS";
        let refused = in_words(what, &ErrorKind::ConnectionRefused.into(), ANSWER_WITHIN);
        assert_eq!(refused, "cannot be spoken to over TLS: connection refused");
    }

    /// Each of its bytes came in time, and a node that wanted to begin a drill waited for ever.
    #[test]
    fn agent_that_drips_does_not_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let drips = spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            while stream.write_all(b" ").is_ok() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
        let deadline = Deadline::after(Duration::from_millis(50));
        let mut door =
            Door::new(Some("host-1:7090".to_owned()), Box::new(SupervisorSocket { socket, deadline }));
        let error = door.ask(DrillRequest::Status).unwrap_err().to_string();
        assert!(error.contains("host-1:7090") && error.contains("does not answer within"), "{error}");
        drop(door);
        drips.join().unwrap();
    }

    /// A supervisor that stood still was waited for as long, of whatever was left of the time of all.
    #[test]
    fn supervisor_that_stands_still_is_waited_for_until_the_end_of_all_alone() {
        let (socket, _theirs) = UnixStream::pair().unwrap();
        let (deadline, end_of_all) = (Deadline::default(), EndOfAll::after(Duration::from_millis(50)));
        let stream = SupervisorSocket { socket, deadline: deadline.clone() };
        let door = Door::new(None, Box::new(stream));
        let mut door = Door { deadline: Some(deadline), is_in: true, end_of_all, ..door };
        let error = door.ask(DrillRequest::Status).unwrap_err().to_string();
        assert!(error.contains("does not answer within") && error.ends_with("ms"), "{error}");
    }

    /// Packets to one of two addresses may be dropped.
    #[test]
    fn connect_to_all_addresses_takes_as_long_as_to_one() {
        for addresses in [1, 2, 7] {
            let all = part_of(CONNECT_WITHIN, addresses) * u32::try_from(addresses).unwrap();
            assert!(all <= CONNECT_WITHIN && all > CONNECT_WITHIN / 2, "{addresses}: {all:?}");
        }
    }

    /// A node that runs a drill took memory for as long as one wrote, and ended.
    #[test]
    fn answer_without_an_end_is_none() {
        let (own, mut theirs) = UnixStream::pair().unwrap();
        let mut door = Door::new(Some("host-1:7090".to_owned()), Box::new(own));
        let writes = spawn(move || {
            let longest = usize::try_from(ANSWER_BYTES_MAX).unwrap();
            let wrote = theirs.write_all(&vec![b' '; longest]);
            wrote.and_then(|()| theirs.write_all(b"{}\n"))
        });
        let error = door.ask(DrillRequest::Status).unwrap_err().to_string();
        assert!(error.contains("host-1:7090") && error.contains("has no end"), "{error}");
        drop(door);
        let _ = writes.join().unwrap(); // nobody has read all of it
    }

    /// Scripts took a coordinator that was silent for a command line that was wrong.
    #[test]
    fn answer_of_who_is_away_is_no_refusal() {
        for is_away in [true, false] {
            let (address, _serves) = agent(move |asked| match asked.contains("stop") {
                true => refusing("not now", is_away),
                false => DrillAnswer::default(),
            });
            let mut door = enter(&address).unwrap();
            let error = door.ask(DrillRequest::Stop { node: 4 }).unwrap_err();
            assert_eq!(matches!(&error, DrillError::Away { .. }), is_away, "{error}");
            assert_eq!(matches!(&error, DrillError::Refused { .. }), !is_away, "{error}");
        }
    }

    /// The token of the role admin went over the network before the agent could say that it speaks TLS.
    #[test]
    fn wants_tls_of_whoever_is_not_on_this_host() {
        let wants = |address: &str| wants_tls(address.parse().unwrap());
        assert!(["127.0.0.1", "127.8.0.1", "::1", "::ffff:127.0.0.1"].into_iter().all(|own| !wants(own)));
        assert!(["192.0.2.1", "0.0.0.0", "2001:db8::1", "::ffff:192.0.2.1"].into_iter().all(wants));
    }

    #[test]
    fn host_of_is_without_port_and_brackets() {
        let hosts = ["host-1.test:7090", "192.0.2.1:7090", "[2001:db8::1]:7090"].map(host_of);
        assert_eq!(hosts, ["host-1.test", "192.0.2.1", "2001:db8::1"]);
    }
}
