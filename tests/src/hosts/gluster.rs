//! GlusterFS on hosts: a brick a host, three in all, and the volume mounted on each, as docs/LOG-ROOT.md has
//! it for a log root. While a host is away nothing may be asked of all: GlusterFS waits for that host's
//! answer, and refuses what comes meanwhile.

use std::path::{Path, PathBuf};

use crate::program::Said;
use crate::wait;

use super::{Hosts, is_possible};

const SCRIPT: &str = include_str!("gluster.sh");
/// Where each host has the volume.
const MOUNT: &str = "/mnt/cell";
/// What it takes.
const PROGRAMS: [&str; 3] = ["glusterd", "gluster", "mount.glusterfs"];

/// A volume of three copies.
pub struct Gluster<'h> {
    hosts: &'h Hosts,
}

impl<'h> Gluster<'h> {
    /// Makes a volume over all hosts, which are three, mounts it on each, and makes the folder of a log root
    /// in it; `None`, said loudly, without GlusterFS or FUSE.
    ///
    /// # Panics
    /// If it is installed and does not come up.
    pub fn start(hosts: &'h Hosts) -> Option<Self> {
        if !is_possible("a log root on GlusterFS (apt install glusterfs-server)", &PROGRAMS) {
            return None;
        }
        if !Path::new("/dev/fuse").exists() {
            println!("SKIPPED: a log root on GlusterFS: the kernel has no FUSE");
            return None;
        }
        let gluster = Self { hosts };
        gluster.on_all(|host| gluster.done(host, &["daemon"]));
        for peer in hosts.numbers().skip(1) {
            gluster.wait_done(1, &["peer", hosts.host(peer).name()]);
        }
        let others = hosts.numbers().count() - 1;
        for host in hosts.numbers() {
            wait::until("all hosts are in GlusterFS's pool", || {
                gluster.script(host, &["peers"]).out.trim() == others.to_string()
            });
        }
        let names = hosts.numbers().map(|host| hosts.host(host).name());
        let volume: Vec<&str> = ["volume"].into_iter().chain(names).collect();
        gluster.done(1, &volume);
        gluster.on_all(|host| gluster.mount(host, MOUNT));
        hosts.host(1).done(["mkdir", &gluster.log_root().display().to_string()]);
        Some(gluster)
    }

    /// The folder of the log root.
    pub fn log_root(&self) -> PathBuf {
        PathBuf::from(MOUNT).join("log")
    }

    /// On a host that was started again: its brick, and the volume mounted.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn start_host(&self, host: u16) {
        self.done(host, &["daemon"]);
        self.mount(host, MOUNT);
    }

    /// Mounts the volume on a host, also a second time, in another folder.
    ///
    /// # Panics
    /// If that is not possible.
    pub fn mount(&self, host: u16, folder: &str) {
        self.wait_done(host, &["mount", folder]);
    }

    /// `kill -9` of a host's brick, which ends at once.
    ///
    /// # Panics
    /// If it does not run.
    pub fn kill_brick(&self, host: u16) {
        self.done(host, &["brick", "KILL"]);
        wait::until("the brick has ended", || !self.runs(host));
    }

    /// SIGSTOP: a host's brick stands still.
    ///
    /// # Panics
    /// If it does not run.
    pub fn stop_brick(&self, host: u16) {
        self.done(host, &["brick", "STOP"]);
    }

    /// SIGCONT: it goes on.
    ///
    /// # Panics
    /// If it does not run.
    pub fn cont_brick(&self, host: u16) {
        self.done(host, &["brick", "CONT"]);
    }

    /// Starts bricks that were killed. All hosts have to be there.
    ///
    /// # Panics
    /// If they do not come up.
    pub fn start_bricks(&self) {
        self.wait_done(1, &["start"]);
        for host in self.hosts.numbers() {
            wait::until("a brick runs again", || self.runs(host));
        }
    }

    /// Waits until each brick has all that the others have.
    ///
    /// # Panics
    /// If it never does.
    pub fn wait_healed(&self) {
        wait::until("the bricks have healed", || {
            let said = self.script(1, &["to-heal"]);
            said.code == Some(0) && said.out.trim() == "0"
        });
    }

    /// Whether a host's mount can be read: it reaches two bricks.
    pub fn is_served(&self, host: u16) -> bool {
        self.script(host, &["served", MOUNT]).code == Some(0)
    }

    fn runs(&self, host: u16) -> bool {
        self.script(host, &["runs"]).code == Some(0)
    }

    /// Each host's part takes seconds.
    fn on_all(&self, what: impl Fn(u16) + Sync) {
        std::thread::scope(|scope| {
            for host in self.hosts.numbers() {
                let what = &what;
                scope.spawn(move || what(host));
            }
        });
    }

    /// Runs a part of the script to its end.
    fn script(&self, host: u16, arguments: &[&str]) -> Said {
        self.hosts.host(host).run(["sh", "-c", SCRIPT, "gluster"].iter().chain(arguments))
    }

    #[track_caller]
    fn done(&self, host: u16, arguments: &[&str]) {
        let said = self.script(host, arguments);
        assert_eq!(said.code, Some(0), "{arguments:?} on host {host}: {said:?}");
    }

    /// Again and again, until it is done: daemons answer when they are ready.
    #[track_caller]
    fn wait_done(&self, host: u16, arguments: &[&str]) {
        let mut last = String::new();
        wait::until(&format!("{arguments:?} on host {host}"), || {
            let said = self.script(host, arguments);
            let words = format!("{said:?}");
            if said.code != Some(0) && words != last {
                println!("not yet, {arguments:?} on host {host}: {words}");
                last = words;
            }
            said.code == Some(0)
        });
    }
}
