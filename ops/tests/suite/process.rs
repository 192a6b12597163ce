//! Processes: what a supervisor, a node and their signals do.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "real processes have real time")]

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::harness::{Dev, FLAGS, ServiceManager, command};
use cell_tests::lease::LONG_LEASE;
use cell_tests::ports::Ports;
use cell_tests::process::{by_number, signal, stop, wait_ended};
use cell_tests::wait;
use rustix::process::{Pid, Signal};

#[test]
fn dev_a_killed_node_comes_back_with_what_it_acknowledged() {
    let mut dev = Dev::start();
    dev.out(&["put", "key", "value"]);
    for _ in 0..2 {
        let status = dev.out(&["status", "--json"]);
        assert!(status.contains("serving"), "{status}");
        signal(dev.node(), Signal::KILL);
        dev.wait_for("died");
        dev.wait_for("serving");
        assert_eq!(dev.out(&["get", "key"]), "value\n");
    }
    assert_eq!(dev.stop(), Some(0));
}

/// A node that met the same end again and again was started again at once, each time with a new epoch and its
/// folders.
#[test]
fn dev_a_node_that_aborts_again_and_again_is_held_back_and_says_why() {
    let mut dev = Dev::start();
    dev.out(&["put", "key", "value"]);
    for _ in 0..2 {
        signal(dev.node(), Signal::ABORT);
        dev.wait_for("died");
        dev.wait_for("serving");
    }
    signal(dev.node(), Signal::ABORT);
    let held = dev.wait_for("held_back");
    assert_eq!((&held["count"], &held["wait_ms"]), (&3.into(), &1_000.into()), "{held}");
    assert_eq!(held["cause"], "ended by signal 6");
    dev.wait_for("serving");
    let why = "ended 3 times in quick succession, and was held back for 1 s: ended by signal 6";
    assert!(dev.out(&["status"]).contains(why));
    assert!(dev.server.log().contains(why), "the supervisor's log has it");
    let port = dev.server.port() + 80;
    wait::until("an event says it", || http(port, "/api/v1/events").contains(why));
    wait::until("the verdict says it", || http(port, "/api/v1/cluster/status").contains(why));
    assert_eq!(dev.out(&["get", "key"]), "value\n");
    assert_eq!(dev.stop(), Some(0));
}

/// What goes to a terminal is for people; what nodes report is in files, unless it is asked for.
#[test]
fn dev_prints_lines_for_people_and_its_nodes_messages_go_to_files() {
    for shown in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let ports = Ports::take();
        let port = ports.first.to_string();
        let mut command = command(&["dev", "--port", &port, "--dir", data.to_str().unwrap(), "--nodes=2"]);
        command.args(FLAGS).arg("--tracing-filter=info").args(shown.then_some("--show-logs"));
        let mut dev = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("is up")));
        signal(Pid::from_child(&dev), Signal::TERM);
        assert!(lines.last().unwrap().contains("stopped"));
        assert_eq!(dev.wait().unwrap().code(), Some(0));
        let mut said = String::new();
        dev.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said.contains("INFO"), shown, "{said}");
        for name in ["supervisor", "node-0", "node-1"] {
            let file = data.join("messages").join(format!("{name}.log"));
            let kept = std::fs::read_to_string(&file).unwrap_or_default();
            assert_eq!(
                kept.contains("INFO") && name != "supervisor",
                !shown && name != "supervisor",
                "{name}: {kept}"
            );
        }
    }
}

#[test]
fn metrics_have_the_counters_of_log_fabric_and_lease() {
    let dev = Dev::start();
    dev.out(&["put", "key", "value"]);
    let wanted =
        ["cell_log_records_total ", "cell_fabric_messages_received_total ", "cell_lease_renewals_total "];
    let metrics = wait::until_some(&format!("all of {wanted:?} are counted"), || {
        let (_, metrics) = dev.server.http("/metrics")?;
        let counted = |name: &&str| {
            let line = metrics.lines().find_map(|line| line.strip_prefix(*name));
            line.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0)
        };
        wanted.iter().all(counted).then_some(metrics)
    });
    assert!(metrics.contains("# TYPE cell_log_held_bytes gauge"), "{metrics}");
    assert!(metrics.contains("# TYPE cell_fabric_received_bytes_total counter"), "{metrics}");
}

fn http(port: u16, path: &str) -> String {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// One that stands still cannot see that its supervisor is gone.
#[test]
fn dev_a_killed_supervisor_takes_its_node_along_also_one_that_stands_still() {
    let mut dev = Dev::start();
    for (value, stands_still) in [("first", false), ("second", true)] {
        dev.out(&["put", "key", value]);
        if stands_still {
            stop(dev.node());
        }
        dev.server.kill_all();
        dev.restart();
        assert_eq!(dev.out(&["get", "key"]), format!("{value}\n"));
    }
}

/// A closed terminal: the kernel and the shell may send a SIGHUP each.
#[test]
fn dev_at_a_hangup_stops_in_order_and_a_second_one_ends_nothing_at_once() {
    let mut dev = Dev::start();
    dev.out(&["put", "key", "value"]);
    let supervisor = dev.server.supervisor();
    for _ in 0..2 {
        signal(supervisor, Signal::HUP);
    }
    dev.wait_for("stopped");
    assert_eq!(dev.server.wait_end(), Some(0), "and each node did");
    dev.restart();
    assert_eq!(dev.out(&["get", "key"]), "value\n");
    assert_eq!(dev.stop(), Some(0));
}

/// As `nohup` starts it: who ignores a closed terminal goes on ignoring it.
#[test]
fn dev_that_was_started_to_ignore_hangups_has_no_handler_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ports) = (folder.path().join("data"), Ports::take());
    let mut dev = std::process::Command::new("sh");
    dev.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_cell"), "dev"]);
    dev.args(["--port", &ports.first.to_string(), "--dir", data.to_str().unwrap()]).args(FLAGS);
    cell_tests::reaper::mark(&mut dev);
    let mut dev = dev.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(dev.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.contains("is up")));
    let process = Pid::from_child(&dev);
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.as_raw_nonzero())).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    assert_eq!(u64::from_str_radix(mask.trim(), 16).unwrap() & 1, 1, "{status}");
    signal(process, Signal::HUP);
    signal(process, Signal::TERM);
    assert!(lines.last().unwrap().contains("stopped"));
    assert_eq!(dev.wait().unwrap().code(), Some(0));
}

#[test]
fn dev_whose_terminal_is_closed_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let (data, ports) = (folder.path().join("data"), Ports::take());
    let (cell, flags) = (env!("CARGO_BIN_EXE_cell"), FLAGS[..3].join(" "));
    let run = format!("exec {cell} dev --port {} --dir {} {flags}", ports.first, data.display());
    let mut terminal = std::process::Command::new("script");
    terminal.args(["-qfec", &run, "/dev/null"]).env("SHELL", "/bin/sh");
    cell_tests::reaper::mark(&mut terminal);
    let Ok(mut terminal) = terminal.stdin(Stdio::piped()).stdout(Stdio::null()).spawn() else {
        println!("SKIPPED: a closed terminal: `script` is not installed");
        return;
    };
    let server = format!("127.0.0.1:{}", ports.first);
    let put = ["put", "key", "value", "--timeout", "120s", "--server", &server];
    assert!(command(&put).output().unwrap().status.success());
    let lock = std::fs::read_to_string(data.join("coordinator/lock")).unwrap();
    let supervisor = by_number(lock.trim().parse().unwrap());
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    wait_ended(&[supervisor]);
    let said = std::fs::read_to_string(data.join("messages/node-0.log")).unwrap();
    assert!(said.contains("stopping: a last checkpoint is taken"), "{said}");
    assert!(!said.contains("the supervisor is gone"), "{said}");
}

#[test]
fn dev_a_second_one_on_the_same_folder_or_port_says_so() {
    let dev = Dev::start();
    let other = Ports::take();
    let output = command(&["dev", "--port", &other.first.to_string(), "--dir", dev.data()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("is held by process") && error.contains("--dir"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let port = dev.server.port().to_string();
    let output =
        command(&["dev", "--port", &port, "--dir", folder.path().to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--port"));
}

#[test]
fn node_by_itself_notifies_systemd_and_stops_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let manager = ServiceManager::listen(folder.path());
    let ports = Ports::take();
    let port = ports.first;
    let config = folder.path().join("node.toml");
    let text = format!(
        "listen_address = \"127.0.0.1:{port}\"\nhttp_address = \"127.0.0.1:{}\"\ndata_dir = \"{}\"\n",
        port + 80,
        folder.path().join("data").display()
    );
    std::fs::write(&config, text).unwrap();
    let mut node = command(&["node", "--config", config.to_str().unwrap()])
        .args(FLAGS)
        .args(LONG_LEASE)
        .env("NOTIFY_SOCKET", &manager.socket)
        .env("WATCHDOG_USEC", "2000000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    manager.wait_for("STATUS=");
    manager.wait_for("READY=1");
    manager.wait_for("WATCHDOG=1");
    let server = format!("127.0.0.1:{port}");
    assert!(command(&["put", "key", "value", "--server", &server]).output().unwrap().status.success());
    signal(Pid::from_child(&node), Signal::TERM);
    manager.wait_for("STOPPING=1");
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// Passes connections to `from` on to `to`; counts them.
fn forward(from: u16, to: u16) -> Arc<AtomicUsize> {
    let listener = TcpListener::bind(("127.0.0.1", from)).unwrap();
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for near in listener.incoming().map_while(Result::ok) {
            counted.fetch_add(1, Ordering::SeqCst);
            let Ok(far) = TcpStream::connect(("127.0.0.1", to)) else { continue };
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Write);
                });
            }
        }
    });
    count
}

/// Who asks where the store is served gets the advertised address, and goes there.
#[test]
fn node_behind_a_forwarded_port_is_reached_by_what_it_advertises() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let port = ports.first;
    let (forwarded, http) = (port + 40, port + 80);
    let count = forward(forwarded, port);
    let mut node = command(&["node"])
        .args(FLAGS)
        .args(LONG_LEASE)
        .args(["--listen-address", &format!("127.0.0.1:{port}")])
        .args(["--advertise-address", &format!("127.0.0.1:{forwarded}")])
        .args(["--http-address", &format!("127.0.0.1:{http}")])
        .args(["--data-dir", folder.path().join("data").to_str().unwrap()])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let server = format!("127.0.0.1:{port}");
    let put = ["put", "key", "value", "--transport", "tcp", "--timeout", "60s", "--server", &server];
    wait::until("the node serves", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        command(&put).output().unwrap().status.success()
    });
    // Of several servers it asks each node that the table has, where it says that it is.
    let twice = format!("{server},{server}");
    let shown = command(&["tree", "show", "--transport", "tcp", "--server", &twice]).output().unwrap();
    assert!(shown.status.success(), "{shown:?}");
    assert!(count.load(Ordering::SeqCst) > 0, "nobody came by the advertised address");
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));

    for wrong in ["127.0.0.1:0", "0.0.0.0:7000", "nowhere"] {
        let data = folder.path().join("other");
        let mut node = command(&["node", "--advertise-address", wrong]);
        let said = node.args(["--data-dir", data.to_str().unwrap()]).output().unwrap();
        assert_eq!(said.status.code(), Some(2), "{wrong}");
        assert!(String::from_utf8_lossy(&said.stderr).contains("advertise_address"), "{said:?}");
    }
}

/// At a SIGHUP a node reads its configuration file again: what applies live takes effect at once, and what
/// does not is named and stays; a file that is wrong changes nothing, and is warned of until it is right.
#[test]
fn node_at_a_hangup_takes_over_what_applies_live_and_names_the_rest() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let (port, config) = (ports.first, folder.path().join("cell.toml"));
    let configure = |lines: &str| {
        let text = format!(
            "listen_address = \"127.0.0.1:{port}\"\nhttp_address = \"127.0.0.1:{}\"\n\
             data_dir = \"{}\"\n{lines}",
            port + 80,
            folder.path().join("data").display()
        );
        std::fs::write(&config, text).unwrap();
    };
    configure("tracing_filter = \"error\"\n");
    let mut node = command(&["node", "--config", config.to_str().unwrap()])
        .args(&FLAGS[..3])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(node.stderr.take().unwrap());
    let (sender, lines) = std::sync::mpsc::channel();
    std::thread::spawn(move || said.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
    let wait_for = |words: &str| {
        while !lines.recv_timeout(wait::PATIENCE).unwrap_or_else(|_| panic!("no `{words}`")).contains(words) {
        }
    };
    let server = format!("127.0.0.1:{port}");
    let put = ["put", "key", "value", "--timeout", "60s", "--server", &server];
    wait::until("the node serves", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        command(&put).output().unwrap().status.success()
    });

    configure("checkpoint_age_ms = \"1 s\"\nlease_ms = \"700 ms\"\n"); // and the filter is the default again
    signal(Pid::from_child(&node), Signal::HUP);
    wait_for("`checkpoint_age_ms` is changed");
    wait_for(
        "`lease_ms` stays 500 ms and does not become 700 ms: a change takes effect when the process starts",
    );
    let status = || {
        // a lease of half a second may end on a busy machine; then nobody answers for a moment
        let said = command(&["status", "--server", &server]).output().unwrap();
        said.status.success().then(|| String::from_utf8(said.stdout).unwrap())
    };
    let stays =
        "node-0: `lease_ms` stays 500 ms until the process starts again, and the configuration has 700 ms";
    wait::until("the status warns of what waits for a start", || {
        status().is_some_and(|said| said.contains(stays))
    });
    wait::until("a checkpoint is taken of the age that is now the limit", || {
        http(port + 80, "/metrics").contains("\ncell_pair_checkpoints_total{pair=\"1\"} 1")
    });

    configure("checkpoint_age_ms = \"1 year\"\n");
    signal(Pid::from_child(&node), Signal::HUP);
    wait_for("the configuration is wrong: all settings stay");
    let warning =
        "node-0: the configuration is wrong since it was read again, and the settings before it hold: ";
    let why = format!("{warning}{}: `checkpoint_age_ms` cannot be `1 year`", config.display());
    let warned = wait::until_some("the status warns", || status().filter(|said| said.contains(&why)));
    assert!(warned.contains("\nWarnings:\n"), "{warned}");
    wait::until("readiness warns", || http(port + 80, "/readyz?verbose").contains("[-]warnings: the conf"));
    wait::until("the verdict warns", || {
        http(port + 80, "/api/v1/cluster/status").contains("serves, but: the configuration is wrong")
    });
    configure("checkpoint_age_ms = \"2 s\"\n");
    signal(Pid::from_child(&node), Signal::HUP);
    wait::until("the status warns no more", || status().is_some_and(|said| !said.contains("Warnings")));
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// It listens, and says hello to nobody yet. Its HTTP knows why, and nobody asked that.
#[test]
fn status_of_a_node_that_waits_for_its_coordinator_says_what_its_http_knows() {
    let folder = tempfile::tempdir().unwrap();
    let ports = Ports::take();
    let [server, http] = [0, 80].map(|offset| format!("127.0.0.1:{}", ports.first + offset));
    let (coordinator, config) = (folder.path().join("coordinator.socket"), folder.path().join("cell.toml"));
    std::fs::write(&config, "tracing_filter = \"error\"\n").unwrap();
    let mut node = command(&["node", "--listen-address", &server, "--http-address", &http])
        .args(&FLAGS[..3])
        .arg("--config")
        .arg(&config)
        .arg("--data-dir")
        .arg(folder.path().join("data"))
        .arg("--coordinator-address")
        .arg(&coordinator)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let status = |more: &[&str]| {
        let said = command(&["status", "--timeout", "1s", "--server", &server]).args(more).output().unwrap();
        (said.status.code(), String::from_utf8(said.stdout).unwrap())
    };
    let waits = format!("starting: waiting for the coordinator at {}, tried ", coordinator.display());
    let (code, said) = wait::until_some("the status says what the node waits for", || {
        assert!(node.try_wait().unwrap().is_none(), "it has ended");
        Some(status(&[])).filter(|(_, said)| said.contains(&waits))
    });
    let words = format!("http://{http} says that the node is not ready:\n[-]reads: {waits}");
    assert!(code == Some(5) && said.contains(&words), "{code:?} {said}");
    assert!(said.starts_with(&format!("cannot reach a Cell server at {server}: ")), "{said}");

    let (code, said) = status(&["--json"]);
    let document: serde_json::Value = serde_json::from_str(&said).unwrap();
    let shown = &document["nodes"][0];
    assert_eq!((code, &shown["error"]["code"]), (Some(5), &"unreachable".into()), "{said}");
    let reads = &shown["readiness"][0]["checks"][0];
    assert!(reads["seen"].as_str().unwrap().starts_with(&waits) && reads["ok"] == false, "{said}");
    assert_eq!(status(&["--http", "127.0.0.1:1"]).0, Some(4), "nobody says anything there");
    assert_eq!(status(&["--ca", "/nowhere"]).0, Some(2), "it has no certificates");

    // So do commands that ask the admin API of a node by its fabric address.
    let listed = command(&["node", "ls", "--server", &server]).output().unwrap();
    let said = String::from_utf8(listed.stderr).unwrap();
    let words = format!("http://{http} says that the node is not ready: reads: {waits}");
    assert_eq!(listed.status.code(), Some(5), "{said}");
    assert!(said.contains(&words) && said.contains("next: see to that, or name a node"), "{said}");
    assert!(said.contains(&format!("`--http http://{http}` asks this one")), "{said}");

    std::fs::write(&config, "tracing_filter = = 1\n").unwrap();
    signal(Pid::from_child(&node), Signal::HUP);
    wait::until("it warns of its configuration", || {
        status(&[]).1.contains("[-]warnings: the configuration is wrong since it was read again")
    });
    signal(Pid::from_child(&node), Signal::TERM);
    assert_eq!(node.wait().unwrap().code(), Some(0));
}

/// A node on its way back: `--timeout` is for connecting, too.
#[test]
fn command_with_a_timeout_waits_for_a_server_that_is_not_there_yet() {
    let mut dev = Dev::start();
    assert_eq!(dev.stop(), Some(0));
    assert_eq!(dev.code(&["put", "key", "value"]), 4, "without one nobody waits");
    let mut put = dev.command(&["put", "key", "value", "--timeout", "120s"]).spawn().unwrap();
    dev.restart();
    assert_eq!(put.wait().unwrap().code(), Some(0));
    assert_eq!(dev.out(&["get", "key"]), "value\n");
}

/// Services that wait for a line before they say anything, and one that never says anything.
#[test]
fn command_at_another_services_port_names_what_answers_there_within_its_timeout() {
    let answers: [(&[u8], &str); 3] = [
        (b"-ERR wrong number of arguments for 'ping' command\r\n", "speaks the Redis protocol"),
        (b"HTTP/1.1 405 Method Not Allowed\r\n\r\n", "speaks HTTP"),
        (b"", "no hello from the server within"),
    ];
    for (answer, words) in answers {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap().to_string();
        let serve = move |mut stream: TcpStream| {
            let mut seen = Vec::new();
            let mut part = [0; 64];
            while !answer.is_empty() && !seen.ends_with(b"\r\n") {
                match stream.read(&mut part) {
                    Ok(length @ 1..) => seen.extend_from_slice(&part[..length]),
                    _ => return,
                }
            }
            let _ = stream.write_all(answer);
            while matches!(stream.read(&mut part), Ok(1..)) {} // until the other end has gone
        };
        // They end with the test's process.
        std::thread::spawn(move || {
            listener.incoming().flatten().for_each(|stream| drop(std::thread::spawn(move || serve(stream))));
        });
        let output = command(&["get", "key", "--timeout", "1s", "--server", &server]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{error}");
        assert!(error.contains(words) && error.contains("next: "), "{error}");
    }
}

#[test]
fn checkpoint_that_fails_is_a_warning_until_one_succeeds_and_the_node_serves_on() {
    let mut dev = Dev::start_with(&["--checkpoint-age-ms=1s"]);
    let (port, node) = (dev.server.port() + 80, dev.node());
    // Where the folder of the pair's images would be.
    let in_the_way = Path::new(dev.data()).join("log").join("pair-00000001");
    std::fs::write(&in_the_way, "").unwrap();
    dev.out(&["put", "key", "value"]);
    let warning = "of pair-1 failed, and the log grows: the disk under the logs says: ";
    wait::until("the status warns", || dev.out(&["status"]).contains(warning));
    assert!(dev.out(&["status", "--json"]).contains("\"warnings\":[\"the last checkpoint"));
    wait::until("readiness warns", || http(port, "/readyz?verbose").contains("[-]warnings: the last"));
    let status = "/api/v1/cluster/status";
    wait::until("the verdict warns", || http(port, status).contains("serves, but: the last"));
    wait::until("an event says it", || http(port, "/api/v1/events").contains("pair-1: a checkpoint failed"));
    assert_eq!(dev.out(&["get", "key"]), "value\n");
    std::fs::remove_file(in_the_way).unwrap();
    wait::until("one succeeds", || !dev.out(&["status"]).contains("Warnings"));
    wait::until("readiness has no warning", || http(port, "/readyz?verbose").contains("[+]warnings: none"));
    assert_eq!((dev.node(), dev.stop()), (node, Some(0)));
}

/// Each round has a progress file of its own and an empty store: what it finds is what it did. With few puts
/// in flight a load has much left to do when it is interrupted.
#[test]
fn load_interrupted_records_what_is_acknowledged() {
    let dev = Dev::start();
    let source = dev.beside("source.tsv");
    let lines: String = (0..400_000).map(|n| format!("key{n:06}\t{n}\n")).collect();
    std::fs::write(&source, lines).unwrap();
    let source = source.to_str().unwrap();
    for (kill, name) in [(Signal::INT, "progress-int"), (Signal::KILL, "progress-kill")] {
        dev.out(&["del", "--all", "--yes"]);
        let progress = dev.beside(name);
        let load = ["load", source, "--progress", progress.to_str().unwrap()];
        let verify = ["verify", "--source", source, "--progress", progress.to_str().unwrap()];
        let slow = [&load[..], &["--in-flight", "2"]].concat();
        let mut child = dev.command(&slow).stderr(Stdio::null()).spawn().unwrap();
        let recorded = || {
            let document: serde_json::Value =
                serde_json::from_slice(&std::fs::read(&progress).ok()?).unwrap();
            document["records"].as_u64().filter(|records| *records > 0)
        };
        wait::until_some("something is recorded", recorded);
        signal(Pid::from_child(&child), kill);
        let code = child.wait().unwrap().code();
        assert_eq!(code, (kill == Signal::INT).then_some(130), "it had not come to its end");
        let recorded = recorded().unwrap();
        assert!(recorded < 400_000);
        let verified = dev.cell(&verify);
        let said = String::from_utf8(verified.stdout).unwrap();
        assert_eq!(verified.status.code(), Some(0), "after {kill:?}: {said}");
        if kill == Signal::KILL {
            dev.out(&load);
            dev.out(&verify);
            assert_eq!(dev.out(&["count", "--prefix", "key"]), "400000\n");
        }
    }
}

/// Damage in the middle of a log is distinguished from a torn write: the node refuses, is not started again,
/// and `inspect` shows where.
#[test]
fn dev_a_damaged_log_is_refused_and_shown() {
    let mut dev = Dev::start();
    for n in 0..50 {
        dev.out(&["put", &format!("key{n}"), "value"]);
    }
    dev.server.kill_all();
    let data = dev.data();
    let frames = dev.out(&["inspect", "log", data, "--frames", "--json"]);
    let frames = frames.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let batches: Vec<_> =
        frames.filter(|frame| frame["records"].as_u64() > Some(0) && frame["offset"].is_u64()).collect();
    let frame = &batches[batches.len() / 4];
    let segment = frame["segment"].as_str().unwrap();
    let file = OpenOptions::new().read(true).write(true).open(format!("{data}/log/{segment}")).unwrap();
    let offset = frame["offset"].as_u64().unwrap() + 140;
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();

    let shown = dev.cell(&["inspect", "log", data]);
    assert_eq!(shown.status.code(), Some(7));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains(&format!("DAMAGED at {segment}")), "{shown}");
    let port = dev.server.port().to_string();
    let output = command(&["dev", "--port", &port, "--dir", data]).args(FLAGS).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("node 0 died: exit code 7") && error.contains(segment), "{error}");
}
