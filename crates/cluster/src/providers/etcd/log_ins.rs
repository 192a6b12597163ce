//! What a process knows of its log-ins at etcd: the token that it has, or why it has none.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use cell_terms::text::with_causes;

use crate::error::ClusterError;
use crate::etcd_error::EtcdError;
use crate::providers::etcd::log_in_backoff::LogInBackoff;

/// What a process knows of its log-ins.
pub(super) struct LogIns {
    state: Mutex<LogInState>,
    /// Somebody waits for the end of the one that is under way.
    pub(super) ended: Condvar,
}

/// How the last one ended, and whether one is under way.
pub(super) struct LogInState {
    pub(super) token: Token,
    pub(super) backoff: LogInBackoff,
    pub(super) is_under_way: bool,
    /// How many have ended.
    pub(super) count: u64,
    /// Why the last one gave no token.
    pub(super) failure: Option<Failure>,
}

/// By what etcd knows the user.
pub(super) enum Token {
    /// Nobody has logged in yet, or the token is none any more.
    Unknown,
    /// etcd wants none.
    NotWanted,
    Known(Arc<str>),
}

/// What all get that have waited for a log-in.
pub(super) enum Failure {
    Etcd(EtcdError),
    NotReached(io::ErrorKind, String),
}

impl Failure {
    pub(super) fn of(error: ClusterError) -> Failure {
        match error {
            ClusterError::Etcd(error) => Failure::Etcd(error),
            ClusterError::NotReached(error) | ClusterError::OutcomeUnknown(error) => {
                Failure::NotReached(error.kind(), format!("logging in: {error}"))
            }
            other => Failure::NotReached(io::ErrorKind::Other, with_causes(&other)),
        }
    }

    /// As of a call that was not sent.
    fn to_error(&self) -> ClusterError {
        match self {
            Failure::Etcd(error) => error.clone().into(),
            Failure::NotReached(kind, words) => {
                ClusterError::NotReached(io::Error::new(*kind, words.as_str()))
            }
        }
    }
}

impl LogIns {
    /// At so many members.
    pub(super) fn over(members: usize) -> LogIns {
        let state = LogInState {
            token: Token::Unknown,
            backoff: LogInBackoff::over(members),
            is_under_way: false,
            count: 0,
            failure: None,
        };
        LogIns { state: Mutex::new(state), ended: Condvar::new() }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LogInState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token that did not count; another one may be known by now.
    pub(super) fn forget(&self, token: Option<&str>) {
        let mut state = self.state();
        let is_that = match (&state.token, token) {
            (Token::Known(known), Some(token)) => **known == *token,
            (Token::NotWanted, None) => true,
            _ => false,
        };
        if is_that {
            state.token = Token::Unknown;
        }
    }
}

impl LogInState {
    /// Why there is no token.
    pub(super) fn why_none(&self) -> ClusterError {
        let not_yet = || {
            let words = "logging in: etcd has not answered yet, and is waited for";
            ClusterError::NotReached(io::Error::new(io::ErrorKind::TimedOut, words))
        };
        self.failure.as_ref().map_or_else(not_yet, Failure::to_error)
    }
}
