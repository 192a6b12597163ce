//! A port of a device.

/// The port in use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Port {
    pub(super) number: u8,
    pub(super) lid: u16,
    /// The packet size in use, 1 to 5.
    pub(super) packet_size: u8,
    pub(super) gids: u32,
    pub(super) is_ethernet: bool,
}
