//! TLS 1.3, between the sockets of `tcp` and the table of connections. It begins before the hello of the
//! fabric and goes around all that follows, so that whoever listens learns neither tokens nor data.
//!
//! | file | what |
//! |---|---|
//! | `session` | one connection's TLS over any pipe, its buffers bounded |
//! | `socket` | a socket, in the clear or under TLS, and who began how |
//! | `connector` | to whom an endpoint connects under TLS, and by which name |
//! | `node_tls`, `shown` | both sides of a process that serves: one certificate for all of its doors |
//! | `trust` | whom an end trusts |
//! | `pem_files` | the files of both, read again when they change |
//!
//! Nothing is resumed: each connection shows a certificate, so that one that is trusted no longer opens none.
//! Who connects shows none: clients are known by their tokens, which they say once TLS is spoken.

mod connector;
mod node_tls;
mod pem_files;
mod session;
mod shown;
mod socket;
#[cfg(test)]
pub(crate) mod test_certificates;
mod trust;

pub(crate) use connector::TlsConnector;
pub use node_tls::NodeTls;
pub use pem_files::{TlsError, TlsFiles};
pub(crate) use socket::Socket;
pub use trust::TlsTrust;
