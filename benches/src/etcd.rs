//! etcd of three members on this machine at their defaults, spoken to over their JSON gateway. As a rival in
//! failover its leader is killed under writes; how long no write is accepted is what a user of it would see.
//! As the coordinator of nodes it is taken away from them, its leader alone or whole, and given back.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cell_tests::ports::Ports;
use cell_tests::{process, reaper};
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::disk;

/// Members of a cluster: the fewest that survive one.
const MEMBERS: u16 = 3;
/// How long a call waits, and how long a cluster may take to elect.
const CALL: Duration = Duration::from_millis(300);
const READY: Duration = Duration::from_secs(60);
/// Writes that are accepted before the leader is killed, and after.
const WRITES: usize = 50;

/// A cluster of members, each with its data in a folder of its own.
pub struct Etcd {
    folder: PathBuf,
    /// None: it was killed.
    members: Vec<Option<Child>>,
    ports: Ports,
}

/// Whether there is one to compare with.
pub fn is_installed() -> bool {
    disk::has("etcd")
}

impl Etcd {
    /// Starts a cluster and waits until it has accepted a write.
    ///
    /// # Errors
    /// A process that failed, or no leader in time.
    pub fn start(folder: &Path) -> io::Result<Self> {
        let members = (0..MEMBERS).map(|_| None).collect();
        let mut etcd = Self { folder: folder.to_owned(), members, ports: Ports::take() };
        etcd.start_members()?;
        Ok(etcd)
    }

    /// Where nodes ask all members, for `etcd_endpoints`.
    pub fn endpoints(&self) -> String {
        let urls = (0..MEMBERS).map(|member| url(client_port(self.ports.first, member)));
        urls.collect::<Vec<_>>().join(",")
    }

    /// Starts the members that do not run, with what they have on disk, and waits until a write is accepted.
    ///
    /// # Errors
    /// As [`Etcd::start`].
    pub fn start_members(&mut self) -> io::Result<()> {
        for (member, place) in (0..MEMBERS).zip(&mut self.members) {
            if place.is_none() {
                *place = Some(launch(&self.folder, self.ports.first, member)?);
            }
        }
        self.wait_accepted()
    }

    /// `kill -9` of all members.
    ///
    /// # Errors
    /// The system's.
    pub fn kill_members(&mut self) -> io::Result<()> {
        // Each is dead before the first one is waited for: nobody is left who could elect.
        self.members.iter_mut().flatten().try_for_each(Child::kill)?;
        (0..MEMBERS).try_for_each(|member| self.kill(member))
    }

    /// SIGSTOP: all members stand still.
    ///
    /// # Panics
    /// If one goes on.
    pub fn stop_members(&self) {
        self.processes().for_each(process::stop);
    }

    /// SIGCONT: they go on. Waits until a write is accepted.
    ///
    /// # Errors
    /// None is in time.
    ///
    /// # Panics
    /// If one does not live.
    pub fn continue_members(&self) -> io::Result<()> {
        self.processes().for_each(|member| process::signal(member, Signal::CONT));
        self.wait_accepted()
    }

    /// `kill -9` of the member that leads.
    ///
    /// # Errors
    /// No leader.
    pub fn kill_leader(&mut self) -> io::Result<()> {
        let leader = self.leader()?;
        self.kill(leader)
    }

    /// Kills the leader under writes of one client, which goes on at the next member when a call fails; the
    /// longest time from an accepted write to the next one.
    ///
    /// # Errors
    /// No leader, or no write accepted in time.
    pub fn kill_leader_under_writes(&mut self) -> io::Result<Duration> {
        let leader = self.leader()?;
        let started = now();
        let (mut accepted, mut last, mut longest) = (0, started, Duration::ZERO);
        let mut member = (leader + 1) % MEMBERS;
        while accepted < 2 * WRITES {
            if accepted == WRITES {
                self.kill(leader)?;
            }
            if self.members[usize::from(member)].is_some() && self.put(member) {
                let asked = std::mem::replace(&mut last, now());
                longest = longest.max(last - asked);
                accepted += 1;
            } else {
                member = (member + 1) % MEMBERS;
            }
            if now() - started > READY {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(longest)
    }

    /// Ends it, and removes what it has on disk.
    pub fn remove(self) {
        let folder = self.folder.clone();
        drop(self);
        // What cannot be removed is left: it goes with the bench's folder.
        let _ = std::fs::remove_dir_all(folder);
    }

    /// The processes of all members that run, or stand still.
    fn processes(&self) -> impl Iterator<Item = Pid> {
        self.members.iter().flatten().map(Pid::from_child)
    }

    /// Kills a member, unless that was done.
    fn kill(&mut self, member: u16) -> io::Result<()> {
        let Some(mut child) = self.members[usize::from(member)].take() else { return Ok(()) };
        child.kill()?;
        child.wait()?;
        Ok(())
    }

    fn wait_accepted(&self) -> io::Result<()> {
        let deadline = now() + READY;
        while !(0..MEMBERS).any(|member| self.put(member)) {
            if now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            disk::pause(Duration::from_millis(20));
        }
        Ok(())
    }

    fn leader(&self) -> io::Result<u16> {
        let leader = (0..MEMBERS).find(|member| self.leads(*member));
        leader.ok_or_else(|| io::Error::other("etcd has no leader"))
    }

    fn leads(&self, member: u16) -> bool {
        let said = self.call(member, "/v3/maintenance/status", &json!({})).ok();
        said.is_some_and(|said| said["leader"].is_string() && said["leader"] == said["header"]["member_id"])
    }

    fn put(&self, member: u16) -> bool {
        let entry = json!({ "key": "a2V5", "value": "dmFsdWU=" }); // base64 of "key" and "value"
        self.call(member, "/v3/kv/put", &entry).is_ok_and(|said| said["header"].is_object())
    }

    fn call(&self, member: u16, path: &str, body: &Value) -> io::Result<Value> {
        let address = ([127, 0, 0, 1], client_port(self.ports.first, member)).into();
        let mut stream = TcpStream::connect_timeout(&address, CALL)?;
        stream.set_read_timeout(Some(CALL))?;
        let body = body.to_string();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: etcd\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len()
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        let body = text.find('{').map_or("", |at| &text[at..]);
        let body = body.rfind('}').map_or("", |end| &body[..=end]);
        Ok(serde_json::from_str(body)?)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        // What they have on disk is a bench's; a member that is gone already is as well.
        for child in self.members.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn client_port(first: u16, member: u16) -> u16 {
    first + 2 * member
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn launch(folder: &Path, first: u16, member: u16) -> io::Result<Child> {
    let data: PathBuf = folder.join(format!("etcd-{member}"));
    std::fs::create_dir_all(&data)?;
    let peer = |member: u16| url(client_port(first, member) + 1);
    let cluster: Vec<String> = (0..MEMBERS).map(|member| format!("m{member}={}", peer(member))).collect();
    let client = url(client_port(first, member));
    let mut command = Command::new("etcd");
    command
        .args(["--name", &format!("m{member}"), "--initial-cluster", &cluster.join(",")])
        .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer(member), "--initial-advertise-peer-urls", &peer(member)])
        .arg("--data-dir")
        .arg(&data)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    reaper::mark(&mut command);
    command.spawn()
}

#[allow(clippy::disallowed_methods, reason = "a bench reads the clock; nothing decides by it")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leader_killed_writes_go_on_at_the_others() {
        if !is_installed() {
            println!("SKIPPED: etcd as a rival: etcd is missing (apt install etcd-server)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut etcd = Etcd::start(folder.path()).unwrap();
        assert!(etcd.kill_leader_under_writes().unwrap() > Duration::ZERO);
        assert_eq!(etcd.members.iter().flatten().count(), 2);
        assert_eq!((0..MEMBERS).filter(|member| etcd.leads(*member)).count(), 1);
    }

    #[test]
    fn members_that_are_away_accept_nothing_until_they_are_back() {
        if !is_installed() {
            println!("SKIPPED: etcd that is away: etcd is missing (apt install etcd-server)");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let mut etcd = Etcd::start(folder.path()).unwrap();
        let is_away = |etcd: &Etcd| (0..MEMBERS).all(|member| !etcd.put(member));
        etcd.stop_members();
        assert!(is_away(&etcd));
        etcd.continue_members().unwrap();
        etcd.kill_members().unwrap();
        assert!(is_away(&etcd));
        etcd.start_members().unwrap();
        assert_eq!(etcd.members.iter().flatten().count(), usize::from(MEMBERS));
    }
}
