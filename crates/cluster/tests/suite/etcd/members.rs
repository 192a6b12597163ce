//! Members of a real etcd, each a process of this test, where the program `etcd` is installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cell_cluster::{Coordinator, Etcd, EtcdOptions, boottime_ns, initialise};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::ports::Ports;
use crate::reaper;

const PATIENCE_NS: u64 = 120_000_000_000;

/// Waits until there is something.
pub(crate) fn until_some<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end_ns = boottime_ns() + PATIENCE_NS;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(boottime_ns() < end_ns, "{what}");
        std::thread::park_timeout(Duration::from_millis(5));
    }
}

pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    until_some(what, || condition().then_some(()));
}

/// Whether there is one to try it on.
pub(crate) fn is_installed() -> bool {
    Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_ok()
}

/// A cluster of etcd. Its processes end with it, or with the test.
pub(crate) struct EtcdMembers {
    folder: TempDir,
    ports: Ports,
    count: usize,
    extra: Vec<String>,
    running: Vec<Option<Child>>,
}

impl EtcdMembers {
    /// So many members, with further arguments, that answer; none: the program is not installed.
    pub(crate) fn start(count: usize, extra: &[&str]) -> Option<EtcdMembers> {
        if !is_installed() {
            println!("SKIPPED: rows on a real etcd: etcd is missing (apt install etcd-server)");
            return None;
        }
        let mut members = EtcdMembers {
            folder: tempfile::tempdir().unwrap(),
            ports: Ports::take(),
            count,
            extra: extra.iter().map(|argument| (*argument).to_owned()).collect(),
            running: (0..count).map(|_| None).collect(),
        };
        (0..count).for_each(|member| members.begin(member));
        let way = members.way(Duration::from_secs(2));
        until("etcd answers", || way.read("nothing").is_ok());
        Some(members)
    }

    fn client(&self, member: usize) -> String {
        format!("http://127.0.0.1:{}", usize::from(self.ports.first) + 2 * member)
    }

    fn peer(&self, member: usize) -> String {
        format!("http://127.0.0.1:{}", usize::from(self.ports.first) + 2 * member + 1)
    }

    /// Where a member keeps what it knows.
    pub(crate) fn data(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("m{member}"))
    }

    /// Starts a member that does not run.
    pub(crate) fn begin(&mut self, member: usize) {
        let all = (0..self.count).map(|other| format!("m{other}={}", self.peer(other)));
        let all = all.collect::<Vec<_>>().join(",");
        let mut command = Command::new("etcd");
        command.arg("--name").arg(format!("m{member}")).arg("--data-dir").arg(self.data(member));
        for (flag, url) in [
            ("--listen-client-urls", self.client(member)),
            ("--advertise-client-urls", self.client(member)),
            ("--listen-peer-urls", self.peer(member)),
            ("--initial-advertise-peer-urls", self.peer(member)),
        ] {
            command.arg(flag).arg(url);
        }
        command.args(["--initial-cluster", &all, "--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(&self.extra).stdout(Stdio::null()).stderr(Stdio::null());
        reaper::mark(&mut command);
        self.running[member] = Some(command.spawn().unwrap());
    }

    fn pid(&self, member: usize) -> Pid {
        Pid::from_child(self.running[member].as_ref().expect("it runs"))
    }

    pub(crate) fn stop(&self, member: usize) {
        kill_process(self.pid(member), Signal::STOP).unwrap();
    }

    pub(crate) fn go_on(&self, member: usize) {
        kill_process(self.pid(member), Signal::CONT).unwrap();
    }

    pub(crate) fn kill(&mut self, member: usize) {
        let mut child = self.running[member].take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Asks one member's gateway; none: it does not answer.
    fn ask(&self, member: usize, path: &str, body: &Value) -> Option<Value> {
        let answer = ureq::post(format!("{}{path}", self.client(member))).send(body.to_string());
        let text = answer.ok()?.body_mut().read_to_string().ok()?;
        serde_json::from_str(&text).ok()
    }

    /// Asks one member's gateway, which runs.
    pub(crate) fn post(&self, member: usize, path: &str, body: &Value) -> Value {
        self.ask(member, path, body).expect("it answers")
    }

    /// The member that leads, while none is stopped.
    pub(crate) fn leader(&self) -> usize {
        let leads = |member: &usize| {
            let status = self.ask(*member, "/v3/maintenance/status", &json!({})).unwrap_or_default();
            status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
        };
        until_some("there is a leader", || (0..self.count).find(leads))
    }

    /// Takes all alarms back.
    pub(crate) fn disarm(&self) {
        let alarm = "/v3/maintenance/alarm";
        let all = self.post(0, alarm, &json!({"action": "GET"}));
        for raised in all["alarms"].as_array().cloned().unwrap_or_default() {
            let (id, kind) = (&raised["memberID"], &raised["alarm"]);
            self.post(0, alarm, &json!({"action": "DEACTIVATE", "memberID": id, "alarm": kind}));
        }
    }

    /// A way to all members; nothing is initialised.
    pub(crate) fn way(&self, deadline: Duration) -> Etcd {
        let options = EtcdOptions {
            endpoints: (0..self.count).map(|member| self.client(member)).collect(),
            prefix: "test/cell".to_owned(),
            user: None,
            ca_file: None,
            client_certificate: None,
            deadline,
            compaction: None,
        };
        Etcd::new(&options).unwrap()
    }

    /// A way to a table.
    pub(crate) fn table(&self, deadline: Duration) -> Etcd {
        let way = self.way(deadline);
        initialise(&way, 7).unwrap();
        way
    }
}

impl Drop for EtcdMembers {
    fn drop(&mut self) {
        for mut child in self.running.iter_mut().filter_map(Option::take) {
            let _ = child.kill(); // it may have ended
            let _ = child.wait();
        }
    }
}

/// A copy of a folder and all that is in it.
pub(crate) fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}
