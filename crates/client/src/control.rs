//! Requests of the client's own: hello, sessions, signs of life, the table, registrations.

use cell_protocol::{
    EncodeError, Hello, PROTOCOL_VERSION, ReportTransport, Request, RequestHeader, RequestId,
};

use crate::ClientOptions;
use crate::mutant::{Mutant, planted};

/// A request of the client's own, or of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    Hello,
    OpenSession,
    CloseSession,
    KeepAlive,
    /// The region table, from a row on.
    Table {
        from: u32,
    },
    /// The registrations, for one-sided reads.
    Regions,
    /// How long the lease holds: the tiniest request, for its reply's header.
    Trust,
    /// What the client has counted since the last one: see `reporting`.
    Report,
    Credit {
        stream: RequestId,
        bytes: u32,
    },
    Cancel {
        stream: RequestId,
    },
}

impl Control {
    /// The server answers without waiting for anything: an answer that is late says something about the
    /// server.
    pub(crate) fn is_answered_at_once(self) -> bool {
        matches!(self, Control::OpenSession | Control::Regions | Control::Trust | Control::Table { .. })
    }
}

/// A request of the client's own whose answer is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SentControl {
    pub(crate) id: RequestId,
    /// The time before it left: what its reply says of the lease is counted from there.
    pub(crate) sent_ns: u64,
}

/// Those of a connection.
#[derive(Debug, Default)]
pub(crate) struct SentControls {
    pub(crate) hello: Option<RequestId>,
    pub(crate) open_session: Option<SentControl>,
    pub(crate) close_session: Option<RequestId>,
    /// With the number of the first row that was asked for.
    pub(crate) table: Option<(SentControl, u32)>,
    pub(crate) regions: Option<SentControl>,
    pub(crate) trust: Option<SentControl>,
    /// Nobody waits for its answer.
    pub(crate) report: Option<RequestId>,
}

impl SentControls {
    /// When the oldest of those left that are answered promptly.
    #[inline]
    pub(crate) fn oldest_ns(&self) -> Option<u64> {
        let table = self.table.map(|(asked, _)| asked);
        let prompt = [self.open_session, table, self.regions, self.trust];
        prompt.iter().flatten().map(|asked| asked.sent_ns).min()
    }
}

/// The hello of these options. Over RDMA nothing encrypts messages: the token was shown when the connection
/// was made, under TLS where that is spoken, and is said no more.
pub(crate) fn hello(options: &ClientOptions, transport: ReportTransport) -> Request<'_> {
    let is_shown = transport == ReportTransport::Verbs && !planted(Mutant::TokenInMessage);
    Request::Hello(Hello {
        version: PROTOCOL_VERSION,
        name: &options.name,
        token: if is_shown { &[] } else { &options.token },
        stream_credit_bytes: options.stream_credit_bytes,
    })
}

/// Whether the hello of these options can be said.
pub(crate) fn check_hello(options: &ClientOptions) -> Result<(), EncodeError> {
    hello(options, ReportTransport::Tcp).encode(RequestHeader::default(), &mut Vec::new())
}
