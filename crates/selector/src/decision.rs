//! What the selector is asked, and what it answers.

/// Who does a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchPath {
    /// The server: one message each way.
    Server,
    /// The client, with one-sided reads.
    OneSided,
}

impl SearchPath {
    /// The other one.
    #[must_use]
    pub fn other(self) -> SearchPath {
        match self {
            SearchPath::Server => SearchPath::OneSided,
            SearchPath::OneSided => SearchPath::Server,
        }
    }
}

/// What kind of search it is. Kinds have estimates of their own, because one request of a scan or of a
/// multi-get takes far longer than that of one key, on either path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SearchKind {
    /// One key: get, search.
    Point,
    /// Many keys in one request.
    MultiGet,
    /// One page of a range.
    Scan,
}

impl SearchKind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 3;

    /// All of them; of kinds that are as frequent, the last one counts.
    pub(crate) const ALL: [SearchKind; SearchKind::COUNT] =
        [SearchKind::Scan, SearchKind::MultiGet, SearchKind::Point];

    pub(crate) fn index(self) -> usize {
        match self {
            SearchKind::Point => 0,
            SearchKind::MultiGet => 1,
            SearchKind::Scan => 2,
        }
    }
}

/// Names a meganode among those of a connection: the bits of the pointer to its root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeganodeId(pub u64);

/// Why a search cannot be done with one-sided reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// The server's registrations are not known (yet).
    NotRegistered,
    /// The server grants no trust in what is read, or none was granted yet.
    NotTrusted,
    /// The server permits no one-sided reads, or the fabric's provider cannot do them.
    NotPermitted,
}

/// A search that is to be decided on.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The time.
    pub now_ns: u64,
    /// What kind of search it is.
    pub kind: SearchKind,
    /// Where its key lies, if that is known without a read.
    pub meganode: Option<MeganodeId>,
    /// Whether one-sided reads are possible.
    pub one_sided: Result<(), Obstacle>,
    /// Reads that the client has in hand besides this one; writes wait for the server's disk, not for the
    /// client's processor.
    pub in_hand: u32,
}

/// Who is to do a search, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Who.
    pub path: SearchPath,
    /// Why.
    pub reason: Reason,
}

/// Why a path was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It is estimated to be the better one, or both are as good and it was drawn.
    Estimate,
    /// It is estimated to be the worse one, and taken to see whether that still holds.
    Exploration,
    /// Too little is known of at least one path.
    NotEnoughSamples,
    /// As `NotEnoughSamples`, because the history was dropped after an idle time.
    IdleReset,
    /// The other path is not possible.
    OnlyServer(Obstacle),
    /// The policy is a fixed share.
    FixedShare,
}
