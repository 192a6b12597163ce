//! What the members of a cluster agree on: leases, sessions, epochs and the region table.
//!
//! | module | role |
//! |---|---|
//! | [`CoordinatorStore`] | an etcd-shaped key-value core: revisions, leases, transactions; no clock, thread or file |
//! | [`Coordinator`] | how a store is reached: blocking calls with a deadline, for control threads only |
//! | [`Embedded`] | a store on sled, hosted by one process of a single-machine cluster |
//! | [`CoordinatorServer`], [`Remote`] | the embedded store for the other processes of its user |
//! | [`CoordinatorTlsServer`] | the same for processes of other machines, over TLS, by a token |
//! | [`Renewers`] | the threads that renew the leases of those, and how long they wait for a processor |
//! | [`local_socket`] | sockets in the cluster's folder, and who may use them |
//! | [`Etcd`] | the rows on etcd, for clusters of several machines |
//! | [`Sim`] | a store in memory with injected failures, for tests and the simulator |
//! | [`Table`] | the region table: pairs, owners, epochs, cuts, checkpoints |
//! | [`Layout`] | how the key space is spread over the first pairs |
//! | [`Sessions`] | client sessions, whose ids are never reused |
//! | [`Members`] | the living incarnations and where they are reached |
//! | [`ClusterTerms`], [`NodeSeat`] | what all nodes agree on, and who is which node: compared at joining |
//! | [`Incidents`] | what becomes of the pairs of those that died |
//! | [`Moves`] | who is to give which pair to whom, and how far that is |
//! | [`Balance`] | who balances, and what each member reports of its pairs |
//! | [`Drains`] | which nodes are to be emptied, and which were removed |
//! | [`JoinedNodes`] | which nodes have joined, also those that live no more |
//! | [`RootProofs`] | whether a joining node has the log root before it that the members have |
//! | [`Notices`] | what owners of pairs send each other across nodes, in words of their own |
//! | [`Tuning`] | settings that were changed for the whole cluster, and who changed them |
//! | [`Watch`] | all of that, as a member follows it |
//! | [`LeaseKeeper`], [`FirstLease`], [`LeaseThread`] | how a node knows until when it surely holds its lease |
//!
//! Every write of the typed layers is *one* transaction, conditional on what it was decided from and on the
//! writer's own lease. A call that ends as [`ClusterError::OutcomeUnknown`] may have been carried out: the
//! typed layers look first and then try again, and so must whoever uses [`Coordinator`] directly.

mod attempts;
mod balance;
mod claim;
mod clock;
mod clock_watch;
mod coordinator;
mod copy;
mod drain_look;
mod drain_row;
mod drains;
mod error;
mod etcd_error;
mod finding;
mod host;
mod incident;
mod joined;
mod layout;
mod lease;
mod lease_news;
mod lease_thread;
pub mod local_socket;
mod lock;
mod member;
mod missing;
mod move_row;
mod move_stage;
mod moves;
mod notice;
pub mod number;
mod pairs_left;
mod providers;
mod renewals;
mod renewers;
mod request;
mod root_proof;
mod row;
#[cfg(test)]
mod scripted_thread;
mod session;
mod settings;
mod table;
mod terms;
#[cfg(test)]
#[path = "../tests/suite/test_tls.rs"]
mod test_tls;
mod thread_look;
mod trouble;
mod tuning;
mod urgent;
mod watch;
mod way_back;

pub use balance::{
    Balance, BalancerSeat, FiguresRow, KEY_DRILL, PauseCause, ReportedArrival, ReportedHold, ReportedPair,
    ReportedState, SeatSeen,
};
pub use claim::{Claim, ClaimReason, NewPair, Ownership};
pub use clock::{Clock, ManualClock, boottime_ns};
pub use clock_watch::ClockReading;
pub use coordinator::{Coordinator, initialise};
pub use copy::{KEY_DOCTOR, KEY_PEER_SECRET, copy_table, members_alive};
pub use drain_row::{DRAINS_AT_ONCE, DrainAuthor, DrainRow, NodeRefusal};
pub use drains::{DrainPlanned, Drains, DrainsSeen};
pub use error::ClusterError;
pub use etcd_error::EtcdError;
pub use finding::{Finding, RefutedFinding};
pub use host::HostId;
pub use incident::{IncidentRow, Incidents, NewIncident, ShareRow, ShareTimes, is_nobodys};
pub use joined::{JoinedNodes, JoinedRow};
pub use layout::{Layout, LayoutRange};
pub use lease::{LeaseCommand, LeaseKeeper, LeaseTerms, Renewal};
pub use lease_thread::{FirstLease, LeaseThread, LeaseTries};
pub use lock::FolderLock;
pub use member::{MemberRow, Members};
pub use missing::Missing;
pub use move_row::{
    CopyProgress, MoveMotive, MoveName, MoveOutcome, MoveRefusal, MoveRow, MoveSide, PAIR_CLAIMED,
};
pub use move_stage::{MoveStage, MoveTimes};
pub use moves::{BalancerWish, Moves};
pub use notice::{NOTICE_PREFIX, Notices};
pub use pairs_left::pairs_left;
pub use providers::{
    Away, COORDINATOR_BYTES_MIN, CoordinatorServer, CoordinatorStore, CoordinatorTlsServer, Delta, Embedded,
    Etcd, EtcdOptions, Fault, Remote, STORE_FORMAT_VERSION, Sim, SimLink, StoreImage, StoreMeta,
    StrangerPlace, Strangers, TlsAddress, TlsCredentials, TokenCheck, parse_etcd_endpoints,
};
pub use renewals::RenewalFigures;
pub use renewers::Renewers;
pub use request::{
    CoordinatorRefusal, CoordinatorRequest, Grant, KeyChange, KeyCondition, KeyOperation, KeyPage, KeyValue,
    LivingLease, Quota, Response, Revision, Transaction, TransactionOutcome,
};
pub use root_proof::{RootAnswer, RootProofs, RootQuestion, RootVerdict};
pub use row::{
    CheckpointRow, EpochRow, PairGeometry, PairRow, PairState, ROW_FORMAT_VERSION, ServingAddress,
};
pub use session::{SessionRow, Sessions};
pub use settings::{COUNTERS, ClusterCounts, SETTINGS};
pub use table::{MoveDates, Table};
pub use terms::{ClusterTerms, Joining, NodeSeat, OtherMember, TermsDifference};
pub use trouble::Trouble;
pub use tuning::{
    CHANGES_MAX, Tuned, TunedEnd, TunedSetting, TunedStep, TunedValue, Tuning, TuningChange, TuningRow,
    WORDS_BYTES_MAX, WantedTuning,
};
pub use watch::{BalanceView, ClusterView, Look, Watch, newest_change};
pub use way_back::TakenBack;
