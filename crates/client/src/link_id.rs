//! The name of a connection.

/// Names a connection of a client towards its shell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

impl LinkId {
    /// The connection by which a client comes in.
    pub const BOOTSTRAP: LinkId = LinkId(0);

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
