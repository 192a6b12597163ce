//! A test that is killed leaves no process behind, nothing mounted, and no host.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use cell_tests::faulty_disk::{Fault, FaultyDisk};
use cell_tests::hosts::{HostGroups, Hosts};
use cell_tests::process::{by_number, have_ended, stop, wait_ended};
use cell_tests::reaper;
use cell_tests::server::Server;
use cell_tests::small_disk::SmallDisk;
use cell_tests::wait;

/// Set in the process that is killed.
const VICTIM: &str = "CELL_TEST_VICTIM";
/// What the victim says before the numbers of what it has started.
const STARTED: &str = "started ";
/// On a host, the machine's control groups are seen in `/run/groups`.
const SEE_GROUPS: &str = "mkdir /run/groups && mount -t cgroup2 none /run/groups";

/// Killed when it is dropped, in case that the test fails before.
struct Victim(Child);

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster whose supervisor and one of whose nodes stand still, and a shell: none of them notices by itself
/// that its test is gone.
fn start_and_stand_still() -> ! {
    let server = Server::start_with(&["--nodes=3", "--slot-bytes=4MiB", "--lease-ms=60s"]);
    let nodes = server.nodes();
    assert_eq!(nodes.len(), 3);
    let mut shell = Command::new("sh");
    reaper::mark(&mut shell);
    let shell = shell.args(["-c", "trap '' TERM INT HUP; while :; do sleep 1; done"]).spawn();
    let mut shell = shell.expect("a shell can be started");
    stop(nodes[0]);
    stop(server.supervisor());
    let all =
        nodes.into_iter().chain([server.supervisor()]).map(|process| process.as_raw_nonzero().to_string());
    let numbers: Vec<String> = all.chain([shell.id().to_string()]).collect();
    println!("\n{STARTED}{}", numbers.join(" "));
    panic!("the shell has ended: {:?}", shell.wait());
}

/// Disks of both kinds, as far as this machine has what they take.
fn mount_and_stand_still() -> ! {
    let (small, faulty) = (SmallDisk::new(16), FaultyDisk::new(Fault::VolatileCache, 64));
    let mounts = small.iter().map(|disk| disk.path().to_owned()).chain(faulty.iter().map(FaultyDisk::mount));
    let folders = mounts.map(|mount| mount.parent().expect("it is in a folder").display().to_string());
    println!("\n{STARTED}{}", folders.collect::<Vec<_>>().join(" "));
    loop {
        std::thread::park();
    }
}

/// Hosts, on one of which a process runs whose parents are not the test's, and a control group for it, if the
/// kernel has some.
fn start_hosts_and_stand_still() -> ! {
    let (hosts, groups) = (Hosts::start(1), HostGroups::begin());
    let mut started = Vec::new();
    if let Some(hosts) = &hosts {
        let (host, group) = (hosts.host(1), groups.name(1));
        host.done(["sh", "-c", "setsid sleep infinity >/dev/null 2>&1 &"]);
        started.push(hosts.folder().display().to_string());
        let make = format!("{SEE_GROUPS} && mkdir -p /run/groups/{group}/inner");
        started.extend((host.run(["sh", "-c", &make]).code == Some(0)).then_some(group));
    }
    println!("\n{STARTED}{}", started.join(" "));
    loop {
        std::thread::park();
    }
}

/// How many processes a process has started that live, also those whose parents have ended: they have its
/// mark (`tests/src/reaper.rs`).
fn started_by(process: u32) -> usize {
    let mark = format!("STARTED_BY_TEST={process};");
    let has_mark =
        |environment: &[u8]| environment.split(|byte| *byte == 0).any(|one| one == mark.as_bytes());
    let all = fs::read_dir("/proc").expect("the kernel lists processes").flatten();
    let environments = all.filter_map(|one| fs::read(one.path().join("environ")).ok());
    environments.filter(|environment| has_mark(environment)).count()
}

/// Starts the test of this thread again as one that is to be killed; what it says that it has started.
fn start_victim() -> (Victim, Vec<String>) {
    let thread = std::thread::current();
    let name = thread.name().expect("libtest names a test's thread after the test");
    let mut command = Command::new(std::env::current_exe().expect("a test knows its own path"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(VICTIM, "1");
    reaper::mark(&mut command);
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut victim = Victim(child.expect("a test can be started again"));
    let said = BufReader::new(victim.0.stdout.take().expect("it is a pipe"));
    let mut lines = said.lines().map_while(Result::ok);
    let line = lines.find(|line| line.starts_with(STARTED)).expect("it says what it has started");
    let started = line[STARTED.len()..].split_whitespace().map(str::to_owned).collect();
    (victim, started)
}

#[test]
fn test_that_is_killed_leaves_no_process_behind() {
    if std::env::var_os(VICTIM).is_some() {
        start_and_stand_still();
    }
    let (victim, numbers) = start_victim();
    let numbers = numbers.iter().map(|number| number.parse().expect("a number"));
    let started: Vec<_> = numbers.map(by_number).collect();
    assert_eq!(started.len(), 5, "{started:?}");
    assert!(started.iter().all(|process| !have_ended(&[*process])), "all of them run: {started:?}");
    drop(victim); // by `kill -9`
    wait_ended(&started);
}

#[test]
fn test_that_is_killed_leaves_nothing_mounted() {
    if std::env::var_os(VICTIM).is_some() {
        mount_and_stand_still();
    }
    let (victim, folders) = start_victim();
    if folders.is_empty() {
        println!("SKIPPED: disks of a test that is killed: it takes root, ext4 and loop devices");
    }
    let is_mounted = |folder: &String| {
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("what is mounted can be read");
        mounts.contains(folder.as_str())
    };
    assert!(folders.iter().all(is_mounted), "{folders:?}");
    drop(victim); // by `kill -9`
    for folder in &folders {
        wait::until(&format!("{folder} is gone, and nothing is mounted in it"), || {
            !is_mounted(folder) && !Path::new(folder).exists()
        });
    }
}

#[test]
fn test_that_is_killed_leaves_no_host_behind() {
    if std::env::var_os(VICTIM).is_some() {
        start_hosts_and_stand_still();
    }
    let (victim, started) = start_victim();
    let number = victim.0.id();
    let Some(folder) = started.first() else {
        println!("SKIPPED: hosts of a test that is killed: it takes root, iproute2, nftables and overlay");
        return;
    };
    // The first processes of a host, of the client's and of the network, with their `unshare`, and one more.
    assert!(Path::new(folder).exists() && started_by(number) >= 7, "{} run", started_by(number));
    drop(victim); // by `kill -9`
    wait::until("nothing runs that it has started", || started_by(number) == 0);
    wait::until(&format!("{folder} is gone"), || !Path::new(folder).exists());
    // Whoever starts hosts next removes its control groups.
    let Some(group) = started.get(1) else {
        println!("SKIPPED: control groups of a test that is killed: the kernel has no cgroup2");
        return;
    };
    let hosts = Hosts::start(1).expect("hosts were started just now");
    hosts.host(1).done(["sh", "-c", &format!("{SEE_GROUPS} && ! [ -e /run/groups/{group} ]")]);
}
