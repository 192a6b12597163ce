//! The network between hosts, and faults of it. What ARP asks always goes through: a host whose address is
//! not found any more would be cut off both ways by a fault of one.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::Pid;

use crate::process::{children, wait_ended};
use crate::{program, reaper, wait};

use super::process::end_of;

const SCRIPT: &str = include_str!("switch.sh");
/// Rules are added to this chain.
const CHAIN: &str = "add rule bridge hosts forward";
/// What a rule is about.
const PACKETS: &str = "ether type != arp";

/// A bridge that joins the hosts; host N is at its `port-N`.
pub struct Network {
    outside: Child,
    switch: Pid,
}

impl Network {
    pub(super) fn start(folder: &Path) -> Self {
        let (out, log) = (folder.join("switch.up"), folder.join("logs/switch.log"));
        let [printed, errors] = [&out, &log].map(|path| File::create(path).expect("a file can be made"));
        let mut command = Command::new("unshare");
        command.args(["--net", "--pid", "--fork", "--kill-child", "sh", "-c", SCRIPT, "switch"]);
        command.stdin(Stdio::null()).stdout(printed).stderr(errors);
        reaper::mark(&mut command);
        let outside = command.spawn().expect("unshare can be started");
        let parent = Pid::from_child(&outside);
        let switch = wait::until_some("the network's first process is there", || children(parent).pop());
        wait::until("the network is up", || {
            let is_up = fs::read_to_string(&out).is_ok_and(|said| said.contains("up"));
            assert!(is_up || !children(parent).is_empty(), "no network: {}", end_of(&log));
            is_up
        });
        Self { outside, switch }
    }

    /// The process that keeps the network.
    pub(super) fn switch(&self) -> Pid {
        self.switch
    }

    /// Nothing goes to this host, and nothing comes from it.
    ///
    /// # Panics
    /// As all faults: if rules cannot be added.
    pub fn cut_off(&self, host: u16) {
        self.add(&[
            &format!("iifname port-{host} {PACKETS} drop"),
            &format!("oifname port-{host} {PACKETS} drop"),
        ]);
    }

    /// Two hosts do not hear each other.
    pub fn part(&self, one: u16, other: u16) {
        self.drop_one_way(one, other);
        self.drop_one_way(other, one);
    }

    /// What one host sends to another one is lost. The other way it arrives.
    pub fn drop_one_way(&self, from: u16, to: u16) {
        self.add(&[&format!("iifname port-{from} oifname port-{to} {PACKETS} drop")]);
    }

    /// What this host sends is lost, and all that is sent to it arrives.
    pub fn mute(&self, host: u16) {
        self.add(&[&format!("iifname port-{host} {PACKETS} drop")]);
    }

    /// What is sent to this host is lost, and all that it sends arrives.
    pub fn deafen(&self, host: u16) {
        self.add(&[&format!("oifname port-{host} {PACKETS} drop")]);
    }

    /// So many packets of a hundred are lost on their way to this host, and as many on their way from it.
    pub fn loss(&self, host: u16, percent: u8) {
        let lost = format!("numgen random mod 100 < {percent} drop");
        self.add(&[
            &format!("iifname port-{host} {PACKETS} {lost}"),
            &format!("oifname port-{host} {PACKETS} {lost}"),
        ]);
    }

    /// No more than this goes to the host in a second. What it is sent beyond that waits, and is lost after
    /// 400 ms.
    ///
    /// # Panics
    /// If the kernel lacks the token bucket filter.
    pub fn slow(&self, host: u16, kilobits: u32) {
        let (port, rate) = (format!("port-{host}"), format!("{kilobits}kbit"));
        let slow = ["tc", "qdisc", "replace", "dev", &port, "root", "tbf", "rate", &rate];
        let done = self.run(&[&slow[..], &["burst", "16kb", "latency", "400ms"]].concat());
        done.expect("the kernel has tbf");
    }

    /// All goes through again.
    ///
    /// # Panics
    /// If rules cannot be changed.
    pub(super) fn heal(&self) {
        self.run(&["nft", "flush chain bridge hosts forward"]).expect("rules can be removed");
        let links = self.run(&["ip", "-o", "link", "show", "type", "veth"]).unwrap_or_default();
        let ports = links.lines().filter_map(|line| line.split([' ', '@', ':']).find(|word| is_port(word)));
        for port in ports {
            // Only one that was made slow has it.
            let _ = self.run(&["tc", "qdisc", "delete", "dev", port, "root"]);
        }
    }

    fn add(&self, rules: &[&str]) {
        let rules: Vec<String> = rules.iter().map(|rule| format!("{CHAIN} {rule}")).collect();
        self.run(&["nft", &rules.join("\n")]).expect("a rule can be added");
    }

    fn run(&self, arguments: &[&str]) -> Result<String, String> {
        run_in_network(self.switch, arguments)
    }
}

fn is_port(word: &str) -> bool {
    word.starts_with("port-")
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.outside.kill();
        let _ = self.outside.wait();
        wait_ended(&[self.switch]);
    }
}

/// Runs a command to its end that sees this machine's files, and the network of a process; what it printed.
pub(super) fn run_in_network(process: Pid, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("nsenter");
    command.args(["--target", &process.as_raw_nonzero().to_string(), "--net", "--"]).args(arguments);
    let mut command = program::quiet(command);
    let path = std::env::var("PATH").unwrap_or_default();
    let output = command.env("PATH", format!("{path}:/usr/sbin:/sbin")).output();
    let output = output.map_err(|error| error.to_string())?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(words(&output.stdout)) } else { Err(words(&output.stderr)) }
}
