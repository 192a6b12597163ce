//! The client's settings.

use cell_fabric::{TlsTrust, VerbsOptions};
use cell_selector::SelectorSettings;
use cell_terms::setting::{Applies, Bounds, Setting, Settings};

use crate::backoff::Backoff;
use crate::transport::Transport;

/// Most operations that a client can hold, in flight and queued: slots are numbered in 16 bits.
pub(crate) const OPERATIONS_MAX: usize = 60_000;

/// Why nothing of an RDMA device changes while a client runs.
const DEVICE_OPENED: &str = "A client opens its device when it starts.";

/// The client's settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "client_deadline",
        meaning: "Time that an operation has, retries included; past it a write's fate may be unknown.",
        default: "30 s",
        bounds: Bounds::Milliseconds { min: 100, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_in_flight_max",
        meaning: "Operations that a client has outstanding at its server; the server's own limit holds too.",
        default: "1024",
        bounds: Bounds::Integer { min: 1, max: 16_384 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_queue_max",
        meaning: "Operations that wait in the client beyond those in flight; more are refused at once.",
        default: "4096",
        bounds: Bounds::Integer { min: 0, max: 40_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_retries_max",
        meaning: "Times that an operation is sent again, within its deadline.",
        default: "1000",
        bounds: Bounds::Integer { min: 0, max: 1_000_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_retry_shortest",
        meaning: "Wait before the first retry and the first new connection; it doubles from there.",
        default: "1 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 1_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_retry_longest",
        meaning: "Longest wait between two retries or two attempts to connect.",
        default: "200 ms",
        bounds: Bounds::Milliseconds { min: 1, max: 10_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_connect_timeout",
        meaning: "Time for a new connection, from its begin to the server's hello.",
        default: "5 s",
        bounds: Bounds::Milliseconds { min: 100, max: 60_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_silence",
        meaning: "A connection is given up when an answer is due and nothing comes for so long, or when \
                  the server goes on talking and passes a question over for so long; after half of it the \
                  server is asked for a sign of life.",
        default: "3 s",
        bounds: Bounds::Milliseconds { min: 100, max: 60_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_search",
        meaning: "Who searches the tree for a read: the server, the client itself with one-sided reads, or \
                  whoever is expected to cost less (auto).",
        default: "auto",
        bounds: Bounds::Choice(&["auto", "server", "client"]),
        applies: Applies::Live,
    },
    Setting {
        name: "client_name",
        meaning: "What a client calls itself, for people who look at a node's clients; empty: its process and host.",
        default: "",
        bounds: Bounds::Text { max: 64 },
        applies: Applies::Restart("Each client has a name of its own, which servers show from its hello on."),
    },
    Setting {
        name: "client_report_interval",
        meaning: "How often a client reports to its nodes how it searches and what it measures, and learns of \
                  settings that were changed for it; 0: never. Where the cluster is tuned to 0, clients that \
                  run report every 5 s: they would not learn of the next change.",
        default: "1 s",
        bounds: Bounds::Milliseconds { min: 0, max: 5_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "client_cache_inner",
        meaning: "Whether a client that searches itself keeps the tree nodes above the leaves.",
        default: "true",
        bounds: Bounds::Flag,
        applies: Applies::Live,
    },
    Setting {
        name: "client_cache_bytes",
        meaning: "Tree nodes that a client that searches itself keeps at most.",
        default: "128 MiB",
        bounds: Bounds::Bytes { min: 0, max: 64 << 30, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "client_stream_credit_bytes",
        meaning: "Bytes of one large value that the server may send ahead of what the client has taken in; \
                  of connections that are made from then on.",
        default: "1 MiB",
        bounds: Bounds::Bytes { min: 1 << 10, max: 1 << 30, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "client_transport",
        meaning: "What a client talks over: shared memory where its server offers it on the same host and TCP \
                  otherwise (auto), or one of them alone; or RDMA (verbs), in builds with that feature.",
        default: "auto",
        bounds: Bounds::Choice(&["auto", "tcp", "shm", "verbs"]),
        applies: Applies::Restart("A client opens what it talks over when it starts."),
    },
    Setting {
        name: "client_verbs_device",
        meaning: "Name of the RDMA device that a client uses; empty: the first one with an active port.",
        default: "",
        bounds: Bounds::Text { max: 64 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "client_verbs_port",
        meaning: "Port of the RDMA device; 0: the first active one.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 255 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "client_verbs_gid",
        meaning: "Index of the port's GID; 65535: on Ethernet that of the address which a connection has at this end, \
                  over loopback and InfiniBand the first of RoCE v2 with an IPv4 address, else the next best.",
        default: "65535",
        bounds: Bounds::Integer { min: 0, max: 65_535 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "client_verbs_reads_ordered",
        meaning: "Whether the servers' devices load the bytes of one read in address order: a client then asks for \
                  no checksum of tree nodes. Only where the machines are known to.",
        default: "false",
        bounds: Bounds::Flag,
        applies: Applies::Restart(
            "Whether tree nodes carry checksums is agreed when a client asks for the regions.",
        ),
    },
    Setting {
        name: "client_shm_users",
        meaning: "Numbers of users, separated by commas, whose servers a client shares memory with, besides root's \
                  and its own user's. Others are reached over TCP.",
        default: "",
        bounds: Bounds::Form(cell_fabric::USERS),
        applies: Applies::Restart(
            "A client that shares memory with a server keeps it: whom it trusts is decided before it \
             connects.",
        ),
    },
    Setting {
        name: "client_spin_us",
        meaning: "Microseconds that a client looks for an answer before it sleeps; while it looks, a server need \
                  not wake it, and a core is busy. Where answers take longer, or others want the core, it \
                  looks ever more seldom; where it may use one core only, it does not.",
        default: "50",
        bounds: Bounds::Integer { min: 0, max: 1_000_000 },
        applies: Applies::Live,
    },
];

/// Who searches the tree for a read. Writes and conditional operations always go to the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Whoever is expected to cost less, decided for each read: see [`cell_selector`].
    #[default]
    Auto,
    /// The server: one message each way.
    Server,
    /// The client, with one-sided reads; what it cannot answer so it asks the server.
    Client,
}

/// [`SETTINGS`] as a client uses them, with what identifies it.
#[derive(Clone, Debug, PartialEq)]
pub struct ClientOptions {
    /// What the client calls itself; shown by the server. Empty: process and host. At most
    /// [`cell_protocol::NAME_BYTES_MAX`] bytes.
    pub name: String,
    /// Proves the client's role; empty where none is asked for. At most [`cell_protocol::TOKEN_BYTES_MAX`]
    /// bytes.
    pub token: Vec<u8>,
    /// Whom the client trusts under TLS; none: it connects in the clear. A file that is replaced counts from
    /// the next connection on.
    pub trust: Option<TlsTrust>,
    /// Time that an operation has, retries included.
    pub deadline_ms: u64,
    /// Operations outstanding at the server.
    pub in_flight_max: usize,
    /// Operations that wait in the client beyond those.
    pub queue_max: usize,
    /// Times that an operation is sent again.
    pub retries_max: u32,
    /// Wait before the first retry.
    pub retry_shortest_ms: u64,
    /// Longest wait between two retries.
    pub retry_longest_ms: u64,
    /// Time for a new connection, the hello included.
    pub connect_timeout_ms: u64,
    /// Silence after which a connection on which an answer is due is given up; so is one whose server leaves
    /// a question of the client's own unanswered for so long.
    pub silence_ms: u64,
    /// Bytes of one large value that may be sent ahead.
    pub stream_credit_bytes: u32,
    /// Who searches the tree.
    pub search: Search,
    /// How that is decided, if it is.
    pub selector: SelectorSettings,
    /// Whether tree nodes above the leaves are kept.
    pub cache_inner: bool,
    /// Bytes of tree nodes that are kept.
    pub cache_bytes: usize,
    /// What to talk over.
    pub transport: Transport,
    /// Users whose servers memory is shared with, besides root and the own one.
    pub shm_users: Vec<u32>,
    /// The RDMA device, and how its reads go.
    pub verbs: VerbsOptions,
    /// How long to look for an answer before sleeping.
    pub spin_us: u64,
    /// How often nodes get a report of how the client searches; 0: never.
    pub report_ms: u64,
    /// Names of settings that stay as they are here when the cluster is tuned, though they are as their
    /// defaults are. Options that differ from the defaults stay in any case; those of `selector` never do.
    pub own: Vec<&'static str>,
}

impl ClientOptions {
    /// The settings in force, without a token and without TLS.
    ///
    /// # Panics
    /// If [`SETTINGS`] and [`cell_selector::SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> ClientOptions {
        let size = |name| usize::try_from(settings.integer(name)).unwrap_or(usize::MAX);
        let small = |name| u32::try_from(settings.integer(name)).unwrap_or(u32::MAX);
        ClientOptions {
            name: settings.text("client_name").to_owned(),
            token: Vec::new(),
            trust: None,
            deadline_ms: settings.integer("client_deadline"),
            in_flight_max: size("client_in_flight_max"),
            queue_max: size("client_queue_max"),
            retries_max: small("client_retries_max"),
            retry_shortest_ms: settings.integer("client_retry_shortest"),
            retry_longest_ms: settings.integer("client_retry_longest"),
            connect_timeout_ms: settings.integer("client_connect_timeout"),
            silence_ms: settings.integer("client_silence"),
            stream_credit_bytes: small("client_stream_credit_bytes"),
            search: search_of(settings.text("client_search")),
            selector: SelectorSettings::from_settings(settings),
            cache_inner: settings.flag("client_cache_inner"),
            cache_bytes: size("client_cache_bytes"),
            transport: settings.text("client_transport").parse().unwrap_or_default(),
            shm_users: cell_fabric::users_of(settings.text("client_shm_users")),
            verbs: VerbsOptions::from_settings_of(settings, "client"),
            spin_us: settings.integer("client_spin_us"),
            report_ms: settings.integer("client_report_interval"),
            own: ClientOptions::given(settings),
        }
    }

    /// How long to wait before something is tried again.
    pub(crate) fn backoff(&self) -> Backoff {
        Backoff::new(self.retry_shortest_ms, self.retry_longest_ms)
    }

    /// Most operations that the client holds at once.
    pub(crate) fn operations_max(&self) -> usize {
        self.in_flight_max.max(1).saturating_add(self.queue_max).min(OPERATIONS_MAX)
    }
}

fn search_of(text: &str) -> Search {
    match text {
        "server" => Search::Server,
        "client" => Search::Client,
        _ => Search::Auto,
    }
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions::from_settings(&Settings::new(&[SETTINGS, cell_selector::SETTINGS]))
    }
}

#[cfg(test)]
mod tests {
    use cell_random::Random;

    use super::*;

    #[test]
    fn operations_max_of_the_defaults_are_those_in_flight_and_those_that_wait() {
        let options = ClientOptions::default();
        assert_eq!((options.in_flight_max, options.operations_max()), (1_024, 5_120));
    }

    /// Where a host is lost, its lease of 5 s on etcd is waited for, then a log root that waits for the lost
    /// copy for 10 s, and the replay. A client with defaults gave up after 5 s, or after 64 refusals.
    #[test]
    fn options_defaults_outlast_a_lost_host() {
        let options = ClientOptions::default();
        assert!(options.deadline_ms >= 2 * (5_000 + 10_000), "{}", options.deadline_ms);
        let (backoff, mut random) = (options.backoff(), Random::new(1));
        let waits = (1..=options.retries_max).map(|failed| backoff.wait_ns(failed, &mut random));
        let waits_ns: u64 = waits.sum();
        assert!(waits_ns / 1_000_000 >= options.deadline_ms, "{waits_ns} ns");
    }

    #[test]
    fn operations_max_of_the_largest_settings_fits_the_numbering() {
        let options =
            ClientOptions { in_flight_max: 16_384, queue_max: usize::MAX, ..ClientOptions::default() };
        assert_eq!(options.operations_max(), OPERATIONS_MAX);
        assert!(OPERATIONS_MAX < usize::from(u16::MAX));
    }
}
