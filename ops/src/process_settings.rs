//! Settings of a node's process; those of the store are declared by the crates that use them.

use cell_terms::setting::{
    Applies, Bounds, HOST_PORT, OPTIONAL_HOST_PORT, OPTIONAL_PATH, PATH, Setting, TextForm,
};

use anyhow::Context;
use cell_cluster::TlsAddress;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit};

use crate::logging;

/// Has all that this process makes from now on be its user's alone: files can be read and written by nobody
/// else, and folders only passed through, for whoever may talk to a socket in one.
pub(crate) fn keep_files_private() {
    rustix::process::umask(Mode::from_raw_mode(0o066));
}

/// Lets this process have as many files and connections open as it may. What it is given at first, a thousand
/// as a rule, is less than a cluster has nodes.
pub(crate) fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = Rlimit { current: limit.maximum, ..limit };
    let _ = setrlimit(Resource::Nofile, wanted); // it goes by what it has
}

/// Has the kernel kill this process when its supervisor has ended, also while it stands still. The thread
/// that has started it is the supervisor's first one, which lives as long as that.
pub(crate) fn end_with_supervisor() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL)).context("cannot be notified of the supervisor's end")
}

/// The coordinator of a cluster of one.
pub(crate) const EMBEDDED: &str = "embedded";
/// The coordinator of a cluster on several machines.
pub(crate) const ETCD: &str = "etcd";
/// Where an agent listens.
pub(crate) const AGENT_ADDRESS: &str = "agent_address";
/// Why where a node is found does not change while it runs.
const WRITTEN_AT_JOIN: &str = "It is written into the cluster's table when the node joins.";

/// Where a coordinator listens over TLS.
pub(crate) const COORDINATOR_LISTEN: &str = "coordinator_listen_address";
/// The token that it is shown.
pub(crate) const COORDINATOR_TOKEN_FILE: &str = "coordinator_token_file";

/// Where the coordinator is. An address, or a word that is misspelt, is no path with a `/`.
const COORDINATOR: TextForm = TextForm {
    takes: "the path of a unix socket, `tls://HOST:PORT`, `embedded` or `etcd`",
    check: |text| match (text, TlsAddress::parse(text)) {
        (EMBEDDED | ETCD, _) => Ok(()),
        (_, Some(address)) => address.map(drop),
        (other, None) if other.contains("://") => {
            Err("over a network it is reached as tls://HOST:PORT alone".to_owned())
        }
        (path, None) if path.contains('/') => (PATH.check)(path),
        _ => Err("a path has a `/`, and over a network it is tls://HOST:PORT; `cell dev` has its socket at \
                  DIR/coordinator.socket"
            .to_owned()),
    },
    ..PATH
};

/// Declarations; see `cell settings`.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "node_id",
        meaning: "The node's number in its cluster. Two living nodes must not share one.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 1_023 },
        applies: Applies::Restart("It distinguishes the node from all others for as long as it lives."),
    },
    Setting {
        name: "listen_address",
        meaning: "Where clients connect (the fabric), by address or name; an IPv6 address in brackets. \
                  One that is not loopback needs TLS (tls_certificate_file) and tokens (tokens_file), or \
                  insecure_network. 0.0.0.0 and [::] are every address of this host, and need an \
                  advertise_address.",
        default: "127.0.0.1:7000",
        bounds: Bounds::Form(HOST_PORT),
        applies: Applies::Restart(
            "The socket is opened when the process starts, and others know the node by its address.",
        ),
    },
    Setting {
        name: "advertise_address",
        meaning: "Where others are to connect to the fabric, where that is not listen_address: behind a forwarded \
                  port, say. A name is looked up by each client, anew for each connection.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_HOST_PORT),
        applies: Applies::Restart(WRITTEN_AT_JOIN),
    },
    Setting {
        name: "insecure_network",
        meaning: "Lets the fabric listen beyond loopback without TLS or without tokens. For trusted \
                  networks only: whoever is on the network can read and change what the node has, or what \
                  goes over the network, tokens too. It is warned of for as long as it is so.",
        default: "false",
        bounds: Bounds::Flag,
        applies: Applies::Restart("The socket is opened when the process starts."),
    },
    Setting {
        name: "http_address",
        meaning: "Where health checks, metrics, the console and the admin API are served over HTTP, by address \
                  or name, which is looked up when the node starts; an IPv6 address in brackets. An address \
                  that is not loopback needs TLS (tls_certificate_file) and tokens (tokens_file).",
        default: "127.0.0.1:7080",
        bounds: Bounds::Form(HOST_PORT),
        applies: Applies::Restart("The socket is opened when the process starts."),
    },
    Setting {
        name: "advertise_http_address",
        meaning: "Where others find HTTP, by address or name, where that is not http_address.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_HOST_PORT),
        applies: Applies::Restart(WRITTEN_AT_JOIN),
    },
    Setting {
        name: AGENT_ADDRESS,
        meaning: "Where `cell agent` listens for drills, by address or name. Who comes there needs a token of \
                  the role admin (tokens_file); an address that is not loopback needs TLS \
                  (tls_certificate_file).",
        default: "",
        bounds: Bounds::Form(OPTIONAL_HOST_PORT),
        applies: Applies::Restart("The socket is opened when the process starts."),
    },
    Setting {
        name: "coordinator_address",
        meaning: "The path of the unix socket on which the coordinator of the cluster listens (`cell dev`: \
                  `coordinator.socket` in its folder), for its own user and root; `tls://HOST:PORT` is where \
                  one listens for other machines (`cell coordinator`), which needs coordinator_token_file; \
                  `embedded` keeps one in this process, in `data_dir`, for a cluster of one node; `etcd` is \
                  that of etcd_endpoints.",
        default: EMBEDDED,
        bounds: Bounds::Form(COORDINATOR),
        applies: Applies::Restart("The node's lease is with the coordinator that it joined."),
    },
    Setting {
        name: COORDINATOR_LISTEN,
        meaning: "Where `cell coordinator` listens for nodes of other machines, besides its socket, by \
                  address or name. It always speaks TLS (tls_certificate_file) and asks for a token of role \
                  admin (tokens_file), on loopback too. 0.0.0.0 and [::] are every address of the host.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_HOST_PORT),
        applies: Applies::Restart("The socket is opened when the process starts."),
    },
    Setting {
        name: COORDINATOR_TOKEN_FILE,
        meaning: "The file of the token, of role admin in the coordinator's tokens_file, that is shown where \
                  coordinator_address begins with `tls://`. It is read for each connection. The coordinator \
                  is trusted by tls_trust_file, or else by tls_certificate_file.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart("The node's lease is with the coordinator that it joined."),
    },
    Setting {
        name: "data_dir",
        meaning: "The folder of what is this host's own, on a local disk: a node's lock and socket in `node-N`, an \
                  embedded coordinator's table in `coordinator`; and, without a log_root, logs and \
                  checkpoints in `log`, which nodes of one machine share.",
        default: "./cell-data",
        bounds: Bounds::Form(PATH),
        applies: Applies::Restart(
            "The node's lock lies there, and is held for as long as the process lives.",
        ),
    },
    Setting {
        name: "log_root",
        meaning: "The folder of all logs and checkpoints, where that is not `log` in data_dir. Every node of the \
                  cluster must see the same one, under whatever path. It must be there already; a node whose \
                  log root is not the cluster's is refused.",
        default: "",
        bounds: Bounds::Form(OPTIONAL_PATH),
        applies: Applies::Restart("The logs that the node writes lie there."),
    },
    Setting {
        name: "tracing_filter",
        meaning: "What is reported on stderr: a level, or directives such as `info,cell_node=debug`.",
        default: "info",
        bounds: Bounds::Form(logging::DIRECTIVES),
        applies: Applies::Live,
    },
];
