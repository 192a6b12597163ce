//! Asking etcd: over its members, within one deadline, with a token where there is a user.

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
    Complaint, Headed, HeaderAnswer, PATH_AUTHENTICATE, TokenAnswer, Verdict,
};
use crate::providers::etcd::history::History;
use crate::providers::etcd::keys::Keys;
use crate::providers::etcd::post::{Gateway, PostFailure, Question};
use crate::providers::etcd::route::{Repeats, Route};
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
    /// The member that answered last.
    preferred: AtomicUsize,
    history: Mutex<History>,
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
        let asker = Asker {
            gateway,
            keys: Keys::new(prefix),
            clock,
            user,
            token: Mutex::default(),
            preferred: AtomicUsize::new(0),
            history: Mutex::default(),
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
        tracing::error!("etcd has another history than before: this process has to start again");
        Err(EtcdError::HistoryLost.into())
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
            Some(_) => Ok(answer),
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
        let mut route = self.route(repeats);
        let mut log_ins = 0;
        loop {
            let Some(left) = self.left(until_ns) else {
                return Err(route.given_up(io::ErrorKind::TimedOut.into()));
            };
            let member = route.member();
            let token = self.token(until_ns)?;
            let times = route.times(left);
            match ask(Question { member, path, body, token: token.as_deref(), times }) {
                Ok(answer) => {
                    self.preferred.store(member, Ordering::Relaxed);
                    return Ok(answer);
                }
                Err(PostFailure::Unanswered { sent, source }) => self.failed(&mut route, sent, source)?,
                Err(PostFailure::Complained(complaint)) => match self.verdict(member, &complaint) {
                    Verdict::Unknown => {
                        let why = format!("{}: {}", self.gateway.endpoint(member), complaint.message);
                        self.failed(&mut route, true, io::Error::other(why))?;
                    }
                    Verdict::Token if self.user.is_some() && log_ins < LOG_INS_MAX => {
                        log_ins += 1;
                        self.forget(token.as_deref());
                    }
                    Verdict::Token => return Err(EtcdError::Credentials.into()),
                    Verdict::NoSpace => return Err(ClusterError::Refused(CoordinatorRefusal::SpaceAlarm)),
                    Verdict::Stranger(error) => self.met_stranger(&mut route, error)?,
                    Verdict::Never(error) => return Err(error.into()),
                },
            }
        }
    }

    fn route(&self, repeats: Repeats) -> Route {
        Route::new(self.gateway.members(), self.preferred.load(Ordering::Relaxed), repeats)
    }

    fn verdict(&self, member: usize, complaint: &Complaint) -> Verdict {
        complaint.verdict(self.gateway.endpoint(member), self.keys.prefix())
    }

    /// The next call begins with another member than this one.
    fn failed(&self, route: &mut Route, sent: bool, why: io::Error) -> Result<(), ClusterError> {
        let member = route.member();
        let next = (member + 1) % self.gateway.members();
        let _ = self.preferred.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
        route.failed(sent, why)
    }

    /// It is not etcd that listens there. Where nobody else is asked, that is what is wrong.
    fn met_stranger(&self, route: &mut Route, error: EtcdError) -> Result<(), ClusterError> {
        if route.met_stranger() {
            return Err(error.into());
        }
        self.failed(route, false, io::Error::other(error))
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
        let body = json!({"name": name, "password": password.trim_end_matches(['\n', '\r'])}).to_string();
        let mut route = self.route(Repeats::Reads);
        loop {
            let Some(left) = self.left(until_ns) else {
                return Err(route.given_up(io::ErrorKind::TimedOut.into()));
            };
            let member = route.member();
            let times = route.times(left);
            match self.gateway.post(Question {
                member,
                path: PATH_AUTHENTICATE,
                body: &body,
                token: None,
                times,
            }) {
                Ok(answer) => match serde_json::from_slice::<TokenAnswer>(&answer) {
                    Ok(answer) if !answer.token.is_empty() => return Ok(Some(answer.token.into())),
                    _ => {
                        let words = format!("{}: it gives no token", self.gateway.endpoint(member));
                        self.failed(&mut route, true, io::Error::new(io::ErrorKind::InvalidData, words))?;
                    }
                },
                Err(PostFailure::Complained(complaint)) if complaint.wants_no_token() => return Ok(None),
                Err(PostFailure::Unanswered { sent, source }) => self.failed(&mut route, sent, source)?,
                Err(PostFailure::Complained(complaint)) => match self.verdict(member, &complaint) {
                    Verdict::Never(error) => return Err(error.into()),
                    Verdict::Stranger(error) => self.met_stranger(&mut route, error)?,
                    Verdict::Token => return Err(EtcdError::Credentials.into()),
                    Verdict::Unknown | Verdict::NoSpace => {
                        let why = format!("{}: {}", self.gateway.endpoint(member), complaint.message);
                        self.failed(&mut route, true, io::Error::other(why))?;
                    }
                },
            }
        }
    }
}
