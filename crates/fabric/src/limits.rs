//! The fabric's settings: how much a peer can make an endpoint hold, and for how long.

use cell_terms::setting::{Applies, Bounds, Setting, Settings, TextForm};

use crate::close::CloseReason;

/// The longest message any endpoint may permit; what is longer goes in chunks.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;

/// Why nothing of an RDMA device changes while a process runs.
const DEVICE_OPENED: &str =
    "The device is opened, and memory is registered with it, when the process starts.";

/// Numbers of users, separated by commas, as settings hold them.
pub const USERS: TextForm = TextForm {
    max: 256,
    takes: "numbers of users, separated by commas, or nothing",
    check: |text| {
        let mut users = text.split(',').map(str::trim).filter(|user| !user.is_empty());
        match users.find(|user| user.parse::<u32>().is_err()) {
            Some(user) => Err(format!("`{user}` is no number of a user")),
            None => Ok(()),
        }
    },
};

/// The fabric's settings.
pub const SETTINGS: &[Setting] = &[
    Setting {
        name: "fabric_connections_max",
        meaning: "Connections that one worker holds at most over each transport; more are refused with a \
                  reason. Who has not said a protocol's hello, with a token where one is asked for, within a \
                  second makes room. Beyond the limit are 16 places for whoever shows a token of an operator \
                  or admin, and over shared memory 16 more for root and the server's own user.",
        default: "1024",
        bounds: Bounds::Integer { min: 64, max: 65_536 },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_handshakes_max",
        meaning: "New connections that have not said who they are; past that the oldest of them makes room for the \
                  next. They are not counted among fabric_connections_max.",
        default: "512",
        bounds: Bounds::Integer { min: 16, max: 65_536 },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_message_bytes_max",
        meaning: "Longest message; a peer that announces a longer one is disconnected before memory is taken for it.",
        default: "64 KiB",
        bounds: Bounds::Bytes { min: 1 << 10, max: MESSAGE_BYTES_MAX as u64, power_of_two: false },
        applies: Applies::Restart(
            "Both ends of a connection agree on it when they connect, and what is on its way may be as \
             long.",
        ),
    },
    Setting {
        name: "fabric_connection_output_bytes_max",
        meaning: "Replies that wait for a peer that does not read; past half of it nothing more is read from the peer.",
        default: "1 MiB",
        bounds: Bounds::Bytes { min: 256 << 10, max: 256 << 20, power_of_two: false },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_handshake_timeout",
        meaning: "Time a new connection has for its hello, in both directions.",
        default: "5 s",
        bounds: Bounds::Milliseconds { min: 500, max: 60_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_idle_timeout",
        meaning: "A connection on which nothing comes for this long is closed; 0 keeps it for ever.",
        default: "60 s",
        bounds: Bounds::MillisecondsOrNone { min: 10_000, max: 86_400_000 },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_shm",
        meaning: "Whether processes of this host can connect over shared memory, by a socket beside the data.",
        default: "on",
        bounds: Bounds::Choice(&["on", "off"]),
        applies: Applies::Restart("The socket is opened when the process starts."),
    },
    Setting {
        name: "fabric_shm_ring_bytes",
        meaning: "Shared memory that a connection takes in each direction; of those that are made from then on.",
        default: "256 KiB",
        bounds: Bounds::Bytes { min: 4 << 10, max: 1 << 20, power_of_two: true },
        applies: Applies::Live,
    },
    Setting {
        name: "fabric_verbs",
        meaning: "Whether processes can connect over RDMA: where there is a device (auto), or the node does not start \
                  (on). It takes a build with the feature verbs, and all memory of all regions at start.",
        default: "auto",
        bounds: Bounds::Choice(&["auto", "on", "off"]),
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "fabric_verbs_device",
        meaning: "Name of the RDMA device; empty: the first one with an active port, which on Ethernet has the \
                  address that is listened on.",
        default: "",
        bounds: Bounds::Text { max: 64 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "fabric_verbs_port",
        meaning: "Port of the RDMA device; 0: the first active one.",
        default: "0",
        bounds: Bounds::Integer { min: 0, max: 255 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "fabric_verbs_gid",
        meaning: "Index of the port's GID; 65535: on Ethernet that of the address which a connection has at this end, \
                  over loopback and InfiniBand the first of RoCE v2 with an IPv4 address, else the next best.",
        default: "65535",
        bounds: Bounds::Integer { min: 0, max: 65_535 },
        applies: Applies::Restart(DEVICE_OPENED),
    },
    Setting {
        name: "fabric_verbs_reads_ordered",
        meaning: "Whether devices load the bytes of one read in address order: tree nodes then carry no checksum. \
                  Only where the machine is known to.",
        default: "false",
        bounds: Bounds::Flag,
        applies: Applies::Restart(
            "Whether tree nodes carry checksums is decided before the first one is read.",
        ),
    },
    Setting {
        name: "fabric_shm_users",
        meaning: "Numbers of users, separated by commas, that may connect over shared memory besides root and the \
                  server's own.",
        default: "",
        bounds: Bounds::Form(USERS),
        applies: Applies::Restart(
            "A process that has mapped memory keeps it: who may is decided before anybody connects.",
        ),
    },
];

/// [`SETTINGS`] as an endpoint uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FabricLimits {
    /// Connections of one endpoint whose hellos are through.
    pub connections_max: usize,
    /// Accepted connections of one endpoint whose hello has not come, besides those.
    pub handshakes_max: usize,
    /// Bytes of one message, at most [`MESSAGE_BYTES_MAX`].
    pub message_bytes_max: usize,
    /// Bytes of one connection's output that the network has not taken.
    pub connection_output_bytes_max: usize,
    /// Time for the hello.
    pub handshake_timeout_ns: u64,
    /// Time without anything received; zero: for ever.
    pub idle_timeout_ns: u64,
    /// Bytes of shared memory a connection and direction, where limits are changed; an endpoint begins with
    /// [`crate::ShmOptions::ring_bytes`].
    pub shm_ring_bytes: usize,
}

impl FabricLimits {
    /// Why a connection that has been silent for so long is closed, if it is: `pending` says whether output
    /// waits for the peer.
    pub(crate) fn overdue(&self, is_open: bool, silent_ns: u64, pending: bool) -> Option<CloseReason> {
        if !is_open {
            return (silent_ns >= self.handshake_timeout_ns).then_some(CloseReason::HandshakeTimeout);
        }
        if self.idle_timeout_ns == 0 || silent_ns < self.idle_timeout_ns {
            return None;
        }
        Some(if pending { CloseReason::Stalled } else { CloseReason::Idle })
    }

    /// The settings in force.
    ///
    /// # Panics
    /// If [`SETTINGS`] are not among the declarations.
    #[must_use]
    pub fn from_settings(settings: &Settings) -> FabricLimits {
        let size = |name| usize::try_from(settings.integer(name)).unwrap_or(usize::MAX);
        let time_ns = |name| settings.integer(name).saturating_mul(1_000_000);
        FabricLimits {
            connections_max: size("fabric_connections_max"),
            handshakes_max: size("fabric_handshakes_max"),
            message_bytes_max: size("fabric_message_bytes_max"),
            connection_output_bytes_max: size("fabric_connection_output_bytes_max"),
            handshake_timeout_ns: time_ns("fabric_handshake_timeout"),
            idle_timeout_ns: time_ns("fabric_idle_timeout"),
            shm_ring_bytes: size("fabric_shm_ring_bytes"),
        }
    }

    /// These limits in place of earlier ones: messages may be as long as before.
    pub(crate) fn after(self, earlier: FabricLimits) -> FabricLimits {
        FabricLimits { message_bytes_max: earlier.message_bytes_max, ..self }.checked()
    }

    /// Output above which nothing more is read from a peer, and below which a full output is writable again.
    pub(crate) const fn output_high_water(&self) -> usize {
        self.connection_output_bytes_max / 2
    }

    /// The limits with what could not work made to work: a message always fits an empty output.
    pub(crate) fn checked(self) -> FabricLimits {
        let message_bytes_max = self.message_bytes_max.min(MESSAGE_BYTES_MAX);
        FabricLimits {
            connections_max: self.connections_max.clamp(1, 1 << 16),
            handshakes_max: self.handshakes_max.clamp(1, 1 << 16),
            message_bytes_max,
            connection_output_bytes_max: self.connection_output_bytes_max.max(2 * (message_bytes_max + 4)),
            ..self
        }
    }
}

impl Default for FabricLimits {
    fn default() -> FabricLimits {
        FabricLimits::from_settings(&Settings::new(&[SETTINGS]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_defaults_are_those_of_the_reliability_page() {
        let limits = FabricLimits::default();
        assert_eq!((limits.connections_max, limits.handshakes_max), (1_024, 512));
        assert_eq!(limits.message_bytes_max, 64 << 10);
        assert_eq!(limits.handshake_timeout_ns, 5_000_000_000);
        assert_eq!(limits.idle_timeout_ns, 60_000_000_000);
        assert_eq!(limits.checked(), limits);
    }
}
