//! Asking etcd: over its members, within one deadline, with a token where there is a user.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::gateway::{
    Complaint, Headed, Header, HeaderAnswer, PATH_AUTHENTICATE, PATH_STATUS, TokenAnswer, Verdict,
};
use crate::providers::etcd::history::History;
use crate::providers::etcd::keys::Keys;
use crate::providers::etcd::log_in_rest::LogInRest;
use crate::providers::etcd::post::{Gateway, PostFailure, Question};
use crate::providers::etcd::route::{Repeats, Route, TryTimes};
use crate::request::CoordinatorRefusal;

/// Log-ins in one call: the token of the first may be none any more when it is used.
const LOG_INS_MAX: usize = 2;

/// Who asks, by its password's file.
pub(super) type User = (String, PathBuf);

/// etcd, as it is asked for one cluster.
pub(super) struct Asker {
    gateway: Box<dyn Gateway>,
    pub(super) keys: Keys,
    pub(super) clock: Arc<dyn Clock>,
    user: Option<User>,
    token: Mutex<Token>,
    log_in_rest: Mutex<LogInRest>,
    /// The member that answered last.
    preferred: AtomicUsize,
    history: Mutex<History>,
    /// The member that answered last, by what it says; 0: none has said.
    member_id: AtomicU64,
    deadline_ns: AtomicU64,
}

/// By what etcd knows the user.
#[derive(Clone, Default)]
enum Token {
    /// Nobody has logged in yet, or the token is none any more.
    #[default]
    Unknown,
    /// etcd wants none.
    NotWanted,
    Known(Arc<str>),
}

impl Asker {
    pub(super) fn new(
        gateway: Box<dyn Gateway>,
        prefix: &str,
        user: Option<User>,
        clock: Arc<dyn Clock>,
        deadline: Duration,
    ) -> Asker {
        let log_in_rest = Mutex::new(LogInRest::over(gateway.members()));
        let asker = Asker {
            gateway,
            keys: Keys::new(prefix),
            clock,
            user,
            token: Mutex::default(),
            log_in_rest,
            preferred: AtomicUsize::new(0),
            history: Mutex::default(),
            member_id: AtomicU64::new(0),
            deadline_ns: AtomicU64::new(0),
        };
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
                    self.forget(token.as_deref());
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
    fn try_members<T>(
        &self,
        repeats: Repeats,
        until_ns: u64,
        mut attempt: impl FnMut(usize, TryTimes) -> Result<Tried<T>, ClusterError>,
    ) -> Result<T, ClusterError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let mut route = Route::new(self.gateway.members(), first, repeats);
        loop {
            let Some(left) = self.left(until_ns) else {
                return Err(route.given_up(io::ErrorKind::TimedOut.into()));
            };
            let member = route.member();
            match attempt(member, route.times(left))? {
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

    fn verdict(&self, member: usize, complaint: &Complaint) -> Verdict {
        complaint.verdict(self.gateway.endpoint(member), self.keys.prefix())
    }

    fn unanswered<T>(&self, member: usize, complaint: &Complaint) -> Tried<T> {
        let why = format!("{}: {}", self.gateway.endpoint(member), complaint.message);
        Tried::Failed(true, io::Error::other(why))
    }

    fn of_another(&self, member: usize) -> EtcdError {
        EtcdError::OtherCluster { endpoint: self.gateway.endpoint(member).into() }
    }

    /// It will not do that. The next call begins with another member: this one may be of another cluster,
    /// which knows other users.
    fn refused(&self, member: usize, error: EtcdError) -> ClusterError {
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

    fn left(&self, until_ns: u64) -> Option<Duration> {
        match until_ns.saturating_sub(self.clock.now_ns()) {
            0 => None,
            left_ns => Some(Duration::from_nanos(left_ns.max(1_000_000))),
        }
    }

    fn tokens(&self) -> MutexGuard<'_, Token> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token that did not count; another one may be known by now.
    fn forget(&self, token: Option<&str>) {
        let mut known = self.tokens();
        let is_that = match (&*known, token) {
            (Token::Known(known), Some(token)) => **known == *token,
            (Token::NotWanted, None) => true,
            _ => false,
        };
        if is_that {
            *known = Token::Unknown;
        }
    }

    /// The user's token; none: there is no user, or etcd wants none.
    fn token(&self, until_ns: u64) -> Result<Option<Arc<str>>, ClusterError> {
        let Some(user) = &self.user else { return Ok(None) };
        let known = self.tokens().clone();
        match known {
            Token::Known(token) => Ok(Some(token)),
            Token::NotWanted => Ok(None),
            Token::Unknown => {
                let token = self.log_in(user, until_ns)?;
                *self.tokens() = token.clone().map_or(Token::NotWanted, Token::Known);
                Ok(token)
            }
        }
    }

    fn log_in(&self, user: &User, until_ns: u64) -> Result<Option<Arc<str>>, ClusterError> {
        let (name, file) = user;
        let password = std::fs::read_to_string(file).map_err(|error| {
            let why = format!("{}: {error}", file.display()).into();
            EtcdError::Password { why }
        })?;
        let password = password.trim_end_matches(['\n', '\r']);
        self.log_in_rest().take_turn(password, self.clock.now_ns())?;
        let body = json!({"name": name, "password": password}).to_string();
        let answered = self.ask_for_token(&body, until_ns);
        match &answered {
            Ok(_) => self.log_in_rest().accepted(),
            Err(ClusterError::Etcd(error)) if error.refuses_log_in() => {
                self.log_in_rest().refused(password, error.clone(), self.clock.now_ns());
            }
            Err(_) => {} // nobody has said anything of the password
        }
        answered
    }

    fn log_in_rest(&self) -> MutexGuard<'_, LogInRest> {
        self.log_in_rest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The token that a log-in gives; none: etcd wants none.
    fn ask_for_token(&self, body: &str, until_ns: u64) -> Result<Option<Arc<str>>, ClusterError> {
        self.try_members(Repeats::Reads, until_ns, |member, times| {
            let question = Question { member, path: PATH_AUTHENTICATE, body, token: None, times };
            let complaint = match self.gateway.post(question) {
                Ok(answer) => return Ok(self.read_token(member, &answer)),
                Err(PostFailure::Unanswered { sent, source }) => return Ok(Tried::Failed(sent, source)),
                Err(PostFailure::OtherCluster) => return Ok(Tried::Stranger(self.of_another(member))),
                Err(PostFailure::Complained(complaint)) => complaint,
            };
            if complaint.wants_no_token() {
                return Ok(Tried::Answered(None));
            }
            match self.verdict(member, &complaint) {
                Verdict::Stranger(error) => Ok(Tried::Stranger(error)),
                Verdict::Token => Err(self.refused(member, EtcdError::Credentials)),
                Verdict::Never(error) => Err(self.refused(member, error)),
                Verdict::Unknown | Verdict::NoSpace | Verdict::TooLong(_) => {
                    Ok(self.unanswered(member, &complaint))
                }
            }
        })
    }

    /// The token in the answer to a log-in.
    fn read_token(&self, member: usize, answer: &[u8]) -> Tried<Option<Arc<str>>> {
        match serde_json::from_slice::<TokenAnswer>(answer) {
            Ok(answer) if self.is_of_another(answer.header) => Tried::Stranger(self.of_another(member)),
            Ok(answer) if !answer.token.is_empty() => Tried::Answered(Some(answer.token.into())),
            _ => {
                let words = format!("{}: it gives no token", self.gateway.endpoint(member));
                Tried::Failed(true, io::Error::new(io::ErrorKind::InvalidData, words))
            }
        }
    }
}

/// What became of one try.
enum Tried<T> {
    Answered(T),
    /// The same member is to be asked again.
    Again,
    /// No answer, before or after it was sent.
    Failed(bool, io::Error),
    /// Who was asked is none of this etcd's members.
    Stranger(EtcdError),
}
