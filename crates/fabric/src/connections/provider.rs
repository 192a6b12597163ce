//! What a provider's endpoint does that is not its transport's: one-sided operations above all.

use std::fmt::Debug;

use crate::counter::FabricCounters;
use crate::endpoint::ConnectionId;
use crate::error::SendError;
use crate::limits::FabricLimits;
use crate::remote_access::{ReadTag, RemoteAccess};

use super::messenger::Messenger;
use super::transport::{Sink, Transport};

/// A provider's part of an endpoint, beside the messenger over its transport. What has a default is right for
/// a provider whose one-sided operations travel on the connection that they are posted on.
pub(crate) trait Provider: Debug {
    type Transport: Transport;

    /// See [`crate::OneSided::post`].
    fn post(
        &mut self,
        messenger: &mut Messenger<Self::Transport>,
        connection: ConnectionId,
        access: &RemoteAccess<'_>,
        tag: ReadTag,
    ) -> Result<(), SendError>;

    /// See [`crate::OneSided::reads_ordered`].
    fn reads_ordered(&self) -> bool {
        true
    }

    /// Polls the messenger. The events of [`Provider::own_connections`] are not for the sink.
    fn poll(&mut self, messenger: &mut Messenger<Self::Transport>, sink: &mut Sink<'_>) -> usize {
        messenger.poll(sink)
    }

    /// The user closes a connection, which is still there.
    fn closing(&mut self, _messenger: &mut Messenger<Self::Transport>, _connection: ConnectionId) {}

    /// Other limits from now on; the messenger's table has them.
    fn set_limits(&mut self, _messenger: &mut Messenger<Self::Transport>, _limits: FabricLimits) {}

    /// How many connections of the messenger are the provider's own, which the user does not see.
    fn own_connections(&self) -> usize {
        0
    }

    /// Whether a poll would report nothing beside what the messenger has.
    fn is_quiet(&self) -> bool {
        true
    }

    /// What was counted beside the messenger's table.
    fn counters(&self) -> FabricCounters {
        FabricCounters::default()
    }
}
