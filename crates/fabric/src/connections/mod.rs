//! What all providers between processes share: one table of connections, one handshake, one loop over both,
//! and one endpoint. A provider adds a [`Transport`]: its sockets, and how messages travel once a connection
//! is open; and a [`Provider`]: how one-sided operations do.
//!
//! | file | what |
//! |---|---|
//! | `mark`, `slots` | ids and places of connections |
//! | `connection` | one connection: phase, limits, what is unfinished on it |
//! | `table` | all of an endpoint: sends, close reasons, counters, time-outs |
//! | `transport`, `provider` | what a provider has to bring |
//! | `listener`, `handoff` | who accepts, and how accepted sockets get to the one that their hello asks for |
//! | `waiting` | accepted connections whose peers are not known yet, the oldest first |
//! | `withheld` | questions that wait until the host may send again |
//! | `ahead` | who is read before the kernel is asked who has something |
//! | `messenger`, `handshake` | the loop of an endpoint; from a socket to an open connection |
//! | `endpoint` | an endpoint as its users see it |

mod ahead;
mod connection;
mod endpoint;
mod handoff;
mod handshake;
mod listener;
mod mark;
mod messenger;
mod provider;
#[cfg(test)]
#[cfg(feature = "verbs")]
mod set_up_tests;
mod slots;
mod sweep;
mod table;
mod transport;
mod waiting;
mod withheld;

pub(crate) use connection::{Connection, ConnectionPhase, Link, Started};
pub use endpoint::MessengerEndpoint;
pub(crate) use handoff::Acceptor;
pub(crate) use listener::Listener;
#[cfg(feature = "verbs")]
pub(crate) use mark::MARK_VERBS;
pub(crate) use mark::{MARK_LANE, MARK_SHM, MARK_TCP, mark_of};
pub(crate) use messenger::{EVENTS_PER_POLL, Messenger};
pub(crate) use provider::Provider;
pub(crate) use table::ConnectionTable;
pub(crate) use transport::{Greeted, Sink, Transport, Written};
pub(crate) use withheld::WithheldQuestions;
