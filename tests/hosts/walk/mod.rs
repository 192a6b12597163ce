//! Hosts that are as a fresh Debian is, with systemd and ssh, on which a page's blocks are typed.

mod page;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use cell_tests::hosts::{Host, HostGroups, HostProcess, Hosts};
use cell_tests::program::{self, Said};
use cell_tests::wait;
use rustix::process::getuid;

use page::{Block, What};
pub(super) use page::{Section, sections};

/// Hosts beside the client's.
const HOSTS: u16 = 5;
/// Where commands are looked for, as root's shell does.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What a page's commands are, with the packages that they come from.
const PROGRAMS: [(&str, &str); 10] = [
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("glusterd", "glusterfs-server"),
    ("gluster", "glusterfs-cli"),
    ("mount.glusterfs", "glusterfs-client"),
    ("sshd", "openssh-server"),
    ("ssh", "openssh-client"),
    ("curl", "curl"),
    ("openssl", "openssl"),
    ("systemctl", "systemd"),
];
const SYSTEMD: &str = include_str!("systemd.sh");
/// How long a block may take, in seconds: it waits for several things, one after the other.
const BLOCK_SECONDS: u64 = 5 * wait::PATIENCE.as_secs();
/// Runs the block of its second argument, for as many seconds at the most as its first says.
const SHELL: &str = "cd /root && unset CDPATH && HOME=/root LC_ALL=C.UTF-8 PATH=\"$2\" \
                     exec timeout --kill-after=5 \"$0\" bash -euo pipefail -c \"$1\"";

/// A machine that follows a page.
pub(super) struct Walk {
    /// The first process of systemd on each host, as the host numbers it.
    systems: BTreeMap<u16, (HostProcess, String)>,
    hosts: Hosts,
    // Removed when nothing is in them any more.
    _groups: HostGroups,
    /// Blocks that were done, on however many hosts.
    done: AtomicUsize,
}

impl Walk {
    /// Starts hosts, client and systemd; `None`, said loudly, where the machine lacks what it takes.
    ///
    /// # Panics
    /// If everything is there and they do not come up.
    pub(super) fn start() -> Option<Self> {
        if !is_possible() {
            return None;
        }
        let hosts = Hosts::start(HOSTS)?;
        let groups = HostGroups::begin();
        make_homes(&hosts);
        let systems =
            hosts.numbers().map(|number| (number, start_systemd(&hosts, &groups, number))).collect();
        let mount =
            ["mount", "--bind", &home(&hosts, "client").display().to_string(), "/root"].map(str::to_owned);
        hosts.client().done(mount);
        hosts.client().done(["rm", "-f", "/usr/bin/cell"]);
        let walk = Self { systems, hosts, _groups: groups, done: AtomicUsize::new(0) };
        for number in walk.hosts.numbers() {
            let up = "systemctl is-system-running";
            let name = walk.hosts.host(number).name().to_owned();
            wait::until(&format!("systemd runs on {name}"), || {
                walk.type_on(Some(number), up).code == Some(0)
            });
            let login = format!("ssh -o ConnectTimeout=5 root@{name} true");
            wait::until(&format!("{name} is reached by ssh"), || walk.type_on(None, &login).code == Some(0));
        }
        Some(walk)
    }

    /// Does all blocks of a section, in their order.
    ///
    /// # Panics
    /// If one fails, or prints something else than the page shows.
    pub(super) fn follow(&self, section: &Section) {
        for block in &section.blocks {
            block.hosts.iter().for_each(|host| self.do_block(block, host));
            self.done.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How many blocks were done.
    pub(super) fn done(&self) -> usize {
        self.done.load(Ordering::SeqCst)
    }

    /// The client's host.
    pub(super) fn client(&self) -> &Host {
        self.hosts.client()
    }

    /// A file in the folder that the client's commands are typed in, where this machine finds it.
    pub(super) fn on_client(&self, file: &str) -> PathBuf {
        home(&self.hosts, "client").join(file)
    }

    fn do_block(&self, block: &Block, name: &str) {
        let number = page::number_of(name);
        let What::Commands(commands) = &block.what else {
            self.hosts.host(number.expect("a host is switched off")).cut();
            return;
        };
        let said = self.type_on(number, commands);
        let line = block.line;
        println!("line {line} on {name}:\n{}{}", said.out, said.err);
        assert_eq!(said.code, Some(0), "the block of line {line} fails on {name}: {said:?}");
        if let Some(prints) = &block.prints {
            assert!(
                page::shows(prints, &said.out),
                "line {line}, {name}: the page shows other output: {said:?}"
            );
        }
    }

    /// Types commands on a host, or on the client.
    ///
    /// # Panics
    /// If there is no such host, or it is down.
    pub(super) fn type_on(&self, host: Option<u16>, commands: &str) -> Said {
        let patience = BLOCK_SECONDS.to_string();
        let shell = ["sh", "-c", SHELL, &patience, commands, PATH];
        let Some(number) = host else { return self.hosts.client().run(shell) };
        let (_, system) = &self.systems[&number];
        let enter = ["nsenter", "--target", system, "--mount", "--pid", "--cgroup", "--"];
        self.hosts.host(number).run(enter.iter().chain(&shell))
    }
}

/// The folder of root on a host.
fn home(hosts: &Hosts, of: &str) -> PathBuf {
    hosts.folder().join("homes").join(of)
}

/// Folders of root: on the client the clone and a key, on hosts who may log in.
fn make_homes(hosts: &Hosts) {
    let client = home(hosts, "client");
    for folder in ["target/release", "ops/systemd", ".ssh"] {
        fs::create_dir_all(client.join(folder)).expect("a folder can be made");
    }
    put_program(&client.join("target/release/cell"));
    let unit = "ops/systemd/cell-node@.service";
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the workspace");
    fs::copy(root.join(unit), client.join(unit)).expect("the unit can be copied");
    make_key(&client.join(".ssh/id_ed25519"));
    let config = "StrictHostKeyChecking accept-new\nLogLevel ERROR\n";
    fs::write(client.join(".ssh/config"), config).expect("a file can be written");
    for number in hosts.numbers() {
        let folder = home(hosts, &number.to_string());
        fs::create_dir_all(folder.join(".ssh")).expect("a folder can be made");
        let key = client.join(".ssh/id_ed25519.pub");
        fs::copy(key, folder.join(".ssh/authorized_keys")).expect("a key can be copied");
        make_key(&folder.join("host_key"));
    }
}

/// Without what a debugger reads of it, if it can be stripped: all hosts get it over ssh.
fn put_program(to: &Path) {
    let strip = Command::new("strip").args(["--strip-debug", "-o"]).arg(to).arg(program::path()).status();
    if !strip.is_ok_and(|ended| ended.success()) {
        fs::copy(program::path(), to).expect("cell can be copied");
    }
}

fn make_key(file: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
    assert!(made.is_ok_and(|status| status.success()), "no key at {}", file.display());
    fs::set_permissions(file, Permissions::from_mode(0o600)).expect("the mode of an own file can be set");
}

/// systemd on a host, and its first process as the host numbers it.
fn start_systemd(hosts: &Hosts, groups: &HostGroups, number: u16) -> (HostProcess, String) {
    let group = groups.name(number);
    let home = home(hosts, &number.to_string()).display().to_string();
    let process = hosts.host(number).spawn("systemd", ["sh", "-c", SYSTEMD, "systemd", &group, &home]);
    let system = wait::until_some("systemd is started", || {
        let first = process.child()?.as_raw_nonzero();
        let program = fs::read_to_string(format!("/proc/{first}/cmdline")).ok()?;
        let status = fs::read_to_string(format!("/proc/{first}/status")).ok()?;
        // As this machine numbers it, as the host does, as it does itself.
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let own = numbers.split_whitespace().nth(1)?.to_owned();
        program.starts_with("/lib/systemd/systemd\0").then_some(own)
    });
    (process, system)
}

/// Whether this machine has what a page's commands are; if not, it says so.
fn is_possible() -> bool {
    let is_there = |(program, _): &&(&str, &str)| {
        let look = format!("PATH=$PATH:/usr/sbin:/sbin; command -v {program}");
        Command::new("sh")
            .args(["-c", &look])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|found| found.success())
    };
    let missing: Vec<&str> =
        PROGRAMS.iter().filter(|program| !is_there(program)).map(|(_, package)| *package).collect();
    let has_groups = fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("cgroup2"));
    let has_fuse = Path::new("/dev/fuse").exists();
    let is_possible = getuid().is_root() && missing.is_empty() && has_groups && has_fuse;
    if !is_possible {
        println!(
            "SKIPPED: the walk-through of docs/THREE-HOSTS.md: it needs root, cgroup2, /dev/fuse and \
             Debian's packages; missing: {missing:?}"
        );
    }
    is_possible
}
