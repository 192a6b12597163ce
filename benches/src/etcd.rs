//! etcd as a rival in failover: three members on this machine at their defaults, spoken to over their JSON
//! gateway. Its leader is killed under writes; how long no write is accepted is what a user of it would see.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cell_tests::ports::Ports;
use cell_tests::reaper;
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
        let ports = Ports::take();
        let members = (0..MEMBERS).map(|member| launch(folder, ports.first, member).map(Some));
        let etcd = Self { members: members.collect::<io::Result<_>>()?, ports };
        let deadline = now() + READY;
        while !(0..MEMBERS).any(|member| etcd.put(member)) {
            if now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            disk::pause(Duration::from_millis(20));
        }
        Ok(etcd)
    }

    /// Kills the leader under writes of one client, which goes on at the next member when a call fails; the
    /// longest time from an accepted write to the next one.
    ///
    /// # Errors
    /// No leader, or no write accepted in time.
    pub fn kill_leader(&mut self) -> io::Result<Duration> {
        let leader = (0..MEMBERS).find(|member| self.leads(*member));
        let Some(leader) = leader else { return Err(io::Error::other("etcd has no leader")) };
        let started = now();
        let (mut accepted, mut last, mut longest) = (0, started, Duration::ZERO);
        let mut member = (leader + 1) % MEMBERS;
        while accepted < 2 * WRITES {
            if accepted == WRITES
                && let Some(mut child) = self.members[usize::from(leader)].take()
            {
                child.kill()?;
                child.wait()?;
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

fn launch(folder: &Path, first: u16, member: u16) -> io::Result<Child> {
    let data: PathBuf = folder.join(format!("etcd-{member}"));
    std::fs::create_dir_all(&data)?;
    let url = |port: u16| format!("http://127.0.0.1:{port}");
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
        assert!(etcd.kill_leader().unwrap() > Duration::ZERO);
        assert_eq!(etcd.members.iter().flatten().count(), 2);
        assert_eq!((0..MEMBERS).filter(|member| etcd.leads(*member)).count(), 1);
    }
}
