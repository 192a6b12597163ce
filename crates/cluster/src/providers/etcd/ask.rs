//! Asking etcd: over its members, within one deadline, with a token where there is a user.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::clock::Clock;
use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::gateway::{Complaint, Headed, Header, HeaderAnswer, PATH_STATUS, Verdict};
use crate::providers::etcd::history::History;
use crate::providers::etcd::http_words::named_ms;
use crate::providers::etcd::keys::Keys;
use crate::providers::etcd::log_ins::LogIns;
use crate::providers::etcd::post::{Gateway, PostFailure, Question};
use crate::providers::etcd::route::{Repeats, Route, TryTimes};
use crate::request::CoordinatorRefusal;

/// Log-ins in one call: the token of the first may be none any more when it is used.
const LOG_INS_MAX: usize = 2;

/// Who asks, by its password's file.
pub(super) type User = (String, PathBuf);

/// etcd, as it is asked for one cluster.
pub(super) struct Asker {
    pub(super) gateway: Box<dyn Gateway>,
    pub(super) keys: Keys,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) user: Option<User>,
    pub(super) log_ins: LogIns,
    /// A log-in goes on in a thread of its own.
    pub(super) own: Weak<Asker>,
    /// The member that answered last.
    preferred: AtomicUsize,
    history: Mutex<History>,
    /// The member that answered last, by what it says; 0: none has said.
    member_id: AtomicU64,
    deadline_ns: AtomicU64,
}

impl Asker {
    pub(super) fn new(
        gateway: Box<dyn Gateway>,
        prefix: &str,
        user: Option<User>,
        clock: Arc<dyn Clock>,
        deadline: Duration,
    ) -> Arc<Asker> {
        let log_ins = LogIns::over(gateway.members());
        let asker = Arc::new_cyclic(|own| Asker {
            gateway,
            keys: Keys::new(prefix),
            clock,
            user,
            log_ins,
            own: own.clone(),
            preferred: AtomicUsize::new(0),
            history: Mutex::default(),
            member_id: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(0),
        });
        asker.set_deadline(deadline);
        asker
    }

    pub(super) fn set_deadline(&self, deadline: Duration) {
        self.deadline_ns.store(u64::try_from(deadline.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When a call that begins now ends.
    pub(super) fn deadline_from_now(&self) -> u64 {
        self.clock.now_ns().saturating_add(self.deadline_ns.load(Ordering::Relaxed))
    }

    /// Whether etcd's rows are not those that were seen.
    pub(super) fn has_lost_history(&self) -> bool {
        self.history().is_lost()
    }

    /// Which cluster of etcd has answered; none: nobody has.
    pub(super) fn cluster_id(&self) -> Option<u64> {
        self.history().cluster_id()
    }

    /// Which member has answered last; none: nobody has, or does not say.
    pub(super) fn member_id(&self) -> Option<u64> {
        Some(self.member_id.load(Ordering::Relaxed)).filter(|id| *id != 0)
    }

    /// Whether this is said by another cluster of etcd than the one that answers; where nobody says by whom,
    /// it is not.
    pub(super) fn is_of_another(&self, header: Header) -> bool {
        header.cluster_id != 0 && self.history().is_of_another(header)
    }

    /// The rows are not those that this process has seen.
    pub(super) fn lose_history(&self) -> ClusterError {
        self.history().lose();
        tracing::error!("etcd has another history than before: this process has to start again");
        EtcdError::HistoryLost.into()
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One question, and its answer as of when it was asked, or later.
    pub(super) fn ask<T: DeserializeOwned + Headed>(
        &self,
        path: &str,
        body: &Value,
        repeats: Repeats,
        until_ns: u64,
    ) -> Result<T, ClusterError> {
        let known = {
            let history = self.history();
            if history.is_lost() {
                return Err(EtcdError::HistoryLost.into());
            }
            history.revision()
        };
        let body = body.to_string();
        let answer = self.over_members((path, &body), repeats, until_ns, |question| {
            let bytes = self.gateway.post(question)?;
            self.read_answer::<T>(question.member, &bytes)
        })?;
        let answer = answer.map_err(|source| match repeats {
            Repeats::Reads => ClusterError::Unreadable { what: "an answer of etcd", source },
            Repeats::Harmless | Repeats::Never => {
                ClusterError::OutcomeUnknown(io::Error::new(io::ErrorKind::InvalidData, source))
            }
        })?;
        if self.history().observe(known, answer.header()) {
            return Ok(answer);
        }
        Err(self.lose_history())
    }

    /// What stands in an answer of etcd's. What answers without its header is not etcd, which is no answer:
    /// another member is asked.
    fn read_answer<T: DeserializeOwned + Headed>(
        &self,
        member: usize,
        bytes: &[u8],
    ) -> Result<Result<T, serde_json::Error>, PostFailure> {
        let answer = serde_json::from_slice::<T>(bytes);
        let header = match &answer {
            Ok(answer) => Some(answer.header()),
            Err(_) => serde_json::from_slice::<HeaderAnswer>(bytes).ok().map(|answer| answer.header()),
        };
        match header.filter(|header| header.is_etcds()) {
            Some(header) if self.history().is_of_another(header) => Err(PostFailure::OtherCluster),
            Some(header) => {
                self.member_id.store(header.member_id, Ordering::Relaxed);
                Ok(answer)
            }
            None => Err(self.stranger(member)),
        }
    }

    /// Something has answered that is not etcd.
    fn stranger(&self, member: usize) -> PostFailure {
        let words = format!("{}: it answers, but not as etcd does", self.gateway.endpoint(member));
        PostFailure::Unanswered { sent: true, source: io::Error::new(io::ErrorKind::InvalidData, words) }
    }

    /// An answer that goes on, to a question that only reads.
    pub(super) fn open(
        &self,
        path: &str,
        body: &Value,
        until_ns: u64,
    ) -> Result<Box<dyn Read + Send>, ClusterError> {
        let body = body.to_string();
        let question = (path, body.as_str());
        self.over_members(question, Repeats::Reads, until_ns, |question| self.gateway.open(question))
    }

    /// Asks one member after the other a question, its path and body, until one answers.
    fn over_members<T>(
        &self,
        (path, body): (&str, &str),
        repeats: Repeats,
        until_ns: u64,
        ask: impl Fn(Question<'_>) -> Result<T, PostFailure>,
    ) -> Result<T, ClusterError> {
        let mut log_ins = 0;
        self.try_members(repeats, until_ns, |member, times| {
            let token = self.token(until_ns)?;
            // To wait for a log-in took of the call's time.
            let left = self.left(until_ns).unwrap_or(Duration::from_millis(1));
            let times = TryTimes { connect: times.connect.min(left), whole: times.whole.min(left) };
            let complaint = match ask(Question { member, path, body, token: token.as_deref(), times }) {
                Ok(answer) => return Ok(Tried::Answered(answer)),
                Err(PostFailure::Unanswered { sent, source }) => return Ok(Tried::Failed(sent, source)),
                Err(PostFailure::OtherCluster) => return Ok(Tried::Stranger(self.of_another(member))),
                Err(PostFailure::Complained(complaint)) => complaint,
            };
            match self.verdict(member, &complaint) {
                Verdict::Unknown => Ok(self.unanswered(member, &complaint)),
                Verdict::TooLong(_) if repeats != Repeats::Reads => Ok(self.unanswered(member, &complaint)),
                Verdict::Token if self.user.is_some() && log_ins < LOG_INS_MAX => {
                    log_ins += 1;
                    self.log_ins.forget(token.as_deref());
                    Ok(Tried::Again)
                }
                Verdict::NoSpace => Err(ClusterError::Refused(CoordinatorRefusal::SpaceAlarm)),
                Verdict::Token if self.user.is_none() => Err(self.refused(member, EtcdError::NoUser)),
                Verdict::Token => Err(self.refused(member, EtcdError::Credentials)),
                Verdict::Stranger(error) => Ok(Tried::Stranger(error)),
                Verdict::TooLong(error) | Verdict::Never(error) => Err(self.refused(member, error)),
            }
        })
    }

    /// Tries one member after the other until one has answered, or nobody else is to be asked.
    pub(super) fn try_members<T>(
        &self,
        repeats: Repeats,
        until_ns: u64,
        mut attempt: impl FnMut(usize, TryTimes) -> Result<Tried<T>, ClusterError>,
    ) -> Result<T, ClusterError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut route = Route::new(self.gateway.members(), first, repeats);
        let given_ms = named_ms(self.left(until_ns).unwrap_or_default());
        loop {
            let Some(left) = self.left(until_ns) else {
                let words = format!("no member of etcd has answered within {given_ms} ms");
                return Err(route.given_up(io::Error::new(io::ErrorKind::TimedOut, words)));
            };
            let member = route.member();
            let tried = attempt(member, route.times(left)).map_err(|error| match error {
                // This try was not sent; one before it may have been.
                ClusterError::NotReached(why) => route.given_up(why),
                error => error,
            });
            match tried? {
                Tried::Answered(answer) => {
                    self.preferred.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Tried::Again => {}
                Tried::Failed(sent, why) => self.failed(&mut route, sent, why)?,
                Tried::Stranger(error) => self.met_stranger(&mut route, error)?,
            }
        }
    }

    pub(super) fn verdict(&self, member: usize, complaint: &Complaint) -> Verdict {
        complaint.verdict(self.gateway.endpoint(member), self.keys.prefix())
    }

    fn unanswered<T>(&self, member: usize, complaint: &Complaint) -> Tried<T> {
        let why = format!("{}: {}", self.gateway.endpoint(member), complaint.message);
        Tried::Failed(true, io::Error::other(why))
    }

    pub(super) fn of_another(&self, member: usize) -> EtcdError {
        EtcdError::OtherCluster { endpoint: self.gateway.endpoint(member).into() }
    }

    /// It will not do that. The next call begins with another member: this one may be of another cluster,
    /// which knows other users.
    pub(super) fn refused(&self, member: usize, error: EtcdError) -> ClusterError {
        self.pass_by(member);
        error.into()
    }

    /// The next call begins with another member than this one.
    fn pass_by(&self, member: usize) {
        let next = (member + 1) % self.gateway.members();
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn failed(&self, route: &mut Route, sent: bool, why: io::Error) -> Result<(), ClusterError> {
        self.pass_by(route.member());
        route.failed(sent, why)
    }

    /// Who listens there is none of this etcd's members. Where nobody else is asked, that is what is wrong;
    /// and where all are of another cluster, the one that was seen is gone.
    fn met_stranger(&self, route: &mut Route, error: EtcdError) -> Result<(), ClusterError> {
        if !route.met_stranger() {
            return self.failed(route, false, io::Error::other(error));
        }
        if !matches!(error, EtcdError::OtherCluster { .. }) {
            return Err(error.into());
        }
        self.history().lose();
        tracing::error!(%error, "etcd was replaced: this process has to start again");
        Err(EtcdError::HistoryLost.into())
    }

    /// Refuses members that are of different clusters, as far as they answer within this time.
    pub(super) fn check_members(&self, until_ns: u64) -> Result<(), ClusterError> {
        let mut clusters = BTreeMap::<u64, Vec<&str>>::new();
        for member in 0..self.gateway.members() {
            if let Some(cluster) = self.cluster_of(member, until_ns) {
                clusters.entry(cluster).or_default().push(self.gateway.endpoint(member));
            }
        }
        if clusters.len() <= 1 {
            return Ok(());
        }
        let words = clusters.iter().map(|(id, members)| format!("{} of {id:x}", members.join(", ")));
        let clusters = words.collect::<Vec<_>>().join("; ").into();
        Err(EtcdError::Clusters { clusters }.into())
    }

    /// Which cluster a member is of, by what it says of itself, whoever asks.
    fn cluster_of(&self, member: usize, until_ns: u64) -> Option<u64> {
        let untried = u32::try_from(self.gateway.members() - member).unwrap_or(u32::MAX).max(1);
        let share = self.left(until_ns)? / untried;
        let times = TryTimes { connect: share, whole: share };
        let question = Question { member, path: PATH_STATUS, body: "{}", token: None, times };
        let answer = self.gateway.post(question).ok()?;
        let header = serde_json::from_slice::<HeaderAnswer>(&answer).ok()?.header();
        header.is_etcds().then_some(header.cluster_id)
    }

    pub(super) fn left(&self, until_ns: u64) -> Option<Duration> {
        match until_ns.saturating_sub(self.clock.now_ns()) {
            0 => None,
            left_ns => Some(Duration::from_nanos(left_ns.max(1_000_000))),
        }
    }
}

/// What became of one try.
pub(super) enum Tried<T> {
    Answered(T),
    /// The same member is to be asked again.
    Again,
    /// No answer, before or after it was sent.
    Failed(bool, io::Error),
    /// Who was asked is none of this etcd's members.
    Stranger(EtcdError),
}
