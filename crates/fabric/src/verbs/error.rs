//! What does not work with an RDMA device, why, and what to do.

use std::io;
use std::net::IpAddr;

/// Why RDMA cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VerbsError {
    /// The machine has none, or its driver is not loaded.
    #[error(
        "this machine has no RDMA device: `rdma link` lists none; load its driver, or add a software device"
    )]
    NoDevice,
    /// Another name is needed.
    #[error("there is no RDMA device {name}; there is: {there}")]
    DeviceUnknown {
        /// What was asked for.
        name: String,
        /// The devices' names.
        there: String,
    },
    /// The link is down, or the port's number is wrong.
    #[error("the RDMA device {device} has no active port{which}; see `rdma link`")]
    NoActivePort {
        /// Its name.
        device: String,
        /// The number that was asked for, in words.
        which: String,
    },
    /// The port's table of GIDs lacks what was asked for, or is empty.
    #[error("port {port} of the RDMA device {device} has no GID{which}; give its network device an address")]
    NoGid {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// The index that was asked for, in words.
        which: String,
    },
    /// This process listens where the port sends no packets from.
    #[error(
        "port {port} of the RDMA device {device} has no GID of {address}, where this process listens; it has {there}: \
         set `fabric_verbs_device` to the device of that network, or `fabric_verbs_gid` to one of its GIDs"
    )]
    NoGidOfAddress {
        /// The device's name.
        device: String,
        /// The port.
        port: u8,
        /// Where this process listens.
        address: IpAddr,
        /// The addresses that it has, in words.
        there: String,
    },
    /// Another index is needed.
    #[error(
        "GID {index} of the RDMA device {device} cannot be used: packets name GIDs 0 to 255; \
         set `fabric_verbs_gid` or `client_verbs_gid` to one of those"
    )]
    GidNotAddressable {
        /// The device's name.
        device: String,
        /// The index that was asked for.
        index: u32,
    },
    /// The memory limit, or the machine, does not give the whole region.
    #[error(
        "RDMA takes all {bytes} bytes of a region: make regions smaller, or turn `fabric_verbs` off, because not all \
         can be had"
    )]
    RegionNotWhole {
        /// The region's size.
        bytes: u64,
        /// Why.
        #[source]
        source: cell_memory::MemoryError,
    },
    /// The region's memory cannot be locked.
    #[error(
        "the RDMA device cannot lock {bytes} bytes of a region: it takes the whole region; see `ulimit -l`"
    )]
    Registration {
        /// The region's size.
        bytes: u64,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// A call that failed.
    #[error("{call} failed for the RDMA device {device}; see `ulimit -l` and the limits of the device")]
    Call {
        /// Its name.
        call: &'static str,
        /// The device's name.
        device: String,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
}

impl VerbsError {
    /// The kind of the system's answer, for who keeps no more.
    pub(super) fn kind(&self) -> io::ErrorKind {
        match self {
            VerbsError::Registration { source, .. } | VerbsError::Call { source, .. } => source.kind(),
            _ => io::ErrorKind::NotFound,
        }
    }
}
