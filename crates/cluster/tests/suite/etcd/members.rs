//! Members of a real etcd, each a process of this test, where the program `etcd` is installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use cell_cluster::{Coordinator, Etcd, EtcdOptions, boottime_ns, initialise};
use cell_terms::Incarnation;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificates::Folder;
use crate::ports::Ports;
use crate::reaper;

const PATIENCE_NS: u64 = 120_000_000_000;
/// What the keys of the tests begin with.
pub(crate) const PREFIX: &str = "test/cell";

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

/// etcd's own tool, which gives up after 5 s if nothing else is said.
fn etcdctl() -> Command {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").arg("--command-timeout=60s");
    command.stdout(Stdio::null()).stderr(Stdio::null());
    command
}

/// A cluster of etcd. Its processes end with it, or with the test.
pub(crate) struct EtcdMembers {
    folder: TempDir,
    ports: Ports,
    count: usize,
    extra: Vec<String>,
    /// What members show and want to see at their ports with TLS.
    tls: Option<Folder>,
    running: Vec<Option<Child>>,
}

impl EtcdMembers {
    /// So many members, with further arguments, that answer; none: the program is not installed.
    pub(crate) fn start(count: usize, extra: &[&str]) -> Option<EtcdMembers> {
        EtcdMembers::start_with(count, extra, None)
    }

    /// Members that have ports with TLS besides, with the certificates of a folder: who comes there has to
    /// show one that `ca.pem` has signed.
    pub(crate) fn start_with(count: usize, extra: &[&str], tls: Option<Folder>) -> Option<EtcdMembers> {
        if !is_installed() {
            println!("SKIPPED: rows on a real etcd: etcd is missing (apt install etcd-server)");
            return None;
        }
        let mut members = EtcdMembers {
            folder: tempfile::tempdir().unwrap(),
            ports: Ports::take(),
            count,
            extra: extra.iter().map(|argument| (*argument).to_owned()).collect(),
            tls,
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

    /// Its port with TLS.
    fn secure(&self, member: usize) -> String {
        format!("https://127.0.0.1:{}", usize::from(self.ports.first) + 100 + member)
    }

    fn peer(&self, member: usize) -> String {
        format!("http://127.0.0.1:{}", usize::from(self.ports.first) + 2 * member + 1)
    }

    /// Where a member keeps what it knows.
    pub(crate) fn data(&self, member: usize) -> PathBuf {
        self.folder.path().join(format!("m{member}"))
    }

    /// All members, as each is given them at its first start.
    fn initial_cluster(&self) -> String {
        let all = (0..self.count).map(|member| format!("m{member}={}", self.peer(member)));
        all.collect::<Vec<_>>().join(",")
    }

    /// Saves a snapshot; false: the program for that is not installed.
    pub(crate) fn save_snapshot(&self, file: &Path) -> bool {
        let mut command = etcdctl();
        command.args(["--endpoints", &self.client(0), "snapshot", "save"]).arg(file);
        match command.status() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                println!("SKIPPED: snapshots of etcd: etcdctl is missing (apt install etcd-client)");
                return false;
            }
            status => assert!(status.unwrap().success(), "a snapshot is saved"),
        }
        true
    }

    /// Makes a member that does not run what a snapshot says.
    pub(crate) fn restore_snapshot(&self, member: usize, file: &Path) {
        std::fs::remove_dir_all(self.data(member)).unwrap();
        let mut command = etcdctl();
        command.args(["snapshot", "restore"]).arg(file).arg("--data-dir").arg(self.data(member));
        command.args(["--name", &format!("m{member}"), "--initial-cluster", &self.initial_cluster()]);
        command.args(["--initial-advertise-peer-urls", &self.peer(member)]);
        assert!(command.status().unwrap().success(), "a snapshot is restored");
    }

    /// Starts a member that does not run.
    pub(crate) fn begin(&mut self, member: usize) {
        let all = self.initial_cluster();
        let mut command = Command::new("etcd");
        command.arg("--name").arg(format!("m{member}")).arg("--data-dir").arg(self.data(member));
        let mut listens = self.client(member);
        if let Some(tls) = &self.tls {
            listens += &format!(",{}", self.secure(member));
            for (flag, file) in
                [("--cert-file", "node.pem"), ("--key-file", "node.key"), ("--trusted-ca-file", "ca.pem")]
            {
                command.arg(flag).arg(tls.path(file));
            }
            command.arg("--client-cert-auth");
        }
        for (flag, url) in [
            ("--listen-client-urls", listens),
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

    /// The revision that has written a lease's row; none: it has ended.
    pub(crate) fn lease_revision(&self, lease: Incarnation) -> Option<u64> {
        let key = data_encoding::BASE64.encode(format!("{PREFIX}/lease/{:016x}", lease.0).as_bytes());
        let found = self.post(0, "/v3/kv/range", &json!({"key": key}));
        found["kvs"][0]["mod_revision"].as_str().and_then(|revision| revision.parse().ok())
    }

    /// The member that leads, while none is stopped.
    pub(crate) fn leader(&self) -> usize {
        let leads = |member: &usize| {
            let status = self.ask(*member, "/v3/maintenance/status", &json!({})).unwrap_or_default();
            status["leader"].is_string() && status["leader"] == status["header"]["member_id"]
        };
        until_some("there is a leader", || (0..self.count).find(leads))
    }

    /// What the first member gives who logs in.
    pub(crate) fn token(&self, name: &str, password: &str) -> String {
        let answer = self.post(0, "/v3/auth/authenticate", &json!({"name": name, "password": password}));
        answer["token"].as_str().expect("it gives a token").to_owned()
    }

    /// Whether a token counts. That keeps one alive that does.
    pub(crate) fn counts(&self, token: &str) -> bool {
        let question = json!({"key": data_encoding::BASE64.encode(format!("{PREFIX}/a").as_bytes())});
        self.post_as(token, "/v3/kv/range", &question).is_some()
    }

    /// Asks the first member as who has this token; none: it does not answer that.
    fn post_as(&self, token: &str, path: &str, body: &Value) -> Option<()> {
        let asked = ureq::post(format!("{}{path}", self.client(0))).header("authorization", token);
        asked.send(body.to_string()).ok().map(drop)
    }

    /// Changes a user's password.
    pub(crate) fn change_password(&self, name: &str, password: &str) {
        let root = self.token("root", "root");
        let question = json!({"name": name, "password": password});
        self.post_as(&root, "/v3/auth/user/changepw", &question).expect("root may");
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

    /// How all members are reached.
    pub(crate) fn options(&self, deadline: Duration) -> EtcdOptions {
        EtcdOptions {
            endpoints: (0..self.count).map(|member| self.client(member)).collect(),
            prefix: PREFIX.to_owned(),
            user: None,
            ca_file: None,
            client_certificate: None,
            deadline,
            compaction: None,
        }
    }

    /// How all members are reached over TLS, with a certificate and its key.
    pub(crate) fn secure_options(&self, client: Option<(PathBuf, PathBuf)>) -> EtcdOptions {
        let tls = self.tls.as_ref().expect("they have ports with TLS");
        EtcdOptions {
            endpoints: (0..self.count).map(|member| self.secure(member)).collect(),
            ca_file: Some(tls.path("ca.pem")),
            client_certificate: client,
            ..self.options(Duration::from_secs(2))
        }
    }

    /// A way to all members; nothing is initialised.
    pub(crate) fn way(&self, deadline: Duration) -> Etcd {
        Etcd::new(&self.options(deadline)).unwrap()
    }

    /// From now on who asks has to be one of these users, by name and password. The first one may read and
    /// write what lies below the prefix, the others nothing; `root` everything.
    pub(crate) fn want_users(&self, users: &[(&str, &str)]) {
        let post = |path: &str, body: Value| drop(self.post(0, path, &body));
        for (name, password) in users.iter().chain(&[("root", "root")]) {
            post("/v3/auth/user/add", json!({"name": name, "password": password}));
        }
        let base64 = |text: &str| data_encoding::BASE64.encode(text.as_bytes());
        let (from, end) = (base64(&format!("{PREFIX}/")), base64(&format!("{PREFIX}0"))); // `0` follows `/`
        let range = json!({"permType": "READWRITE", "key": from, "range_end": end});
        for (role, user) in [("root", "root"), ("cell", users[0].0)] {
            post("/v3/auth/role/add", json!({"name": role}));
            if role != "root" {
                post("/v3/auth/role/grant", json!({"name": role, "perm": range}));
            }
            post("/v3/auth/user/grant", json!({"user": user, "role": role}));
        }
        post("/v3/auth/enable", json!({}));
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
