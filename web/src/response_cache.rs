//! Responses that are kept for a while, so that many who ask at a time cost no more than one.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::now;

/// How long a value is kept.
const LIFETIME: Duration = Duration::from_millis(900);

/// The place of one value: a text, if nothing else is said.
pub(crate) struct CachedResponse<T = Bytes>(Mutex<CachedValue<T>>);

/// The value, and until when it is kept.
pub(crate) struct CachedValue<T>(Option<(Instant, T)>);

impl<T> Default for CachedResponse<T> {
    fn default() -> CachedResponse<T> {
        CachedResponse(Mutex::new(CachedValue(None)))
    }
}

impl<T> CachedResponse<T> {
    /// The value, for whoever makes it anew: others wait meanwhile.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, CachedValue<T>> {
        self.0.lock().await
    }
}

impl<T: Clone> CachedValue<T> {
    /// The value, if it is kept still.
    pub(crate) fn get(&self) -> Option<T> {
        self.0.as_ref().filter(|(until, _)| now() < *until).map(|(_, value)| value.clone())
    }

    /// Keeps a new value.
    pub(crate) fn replace(&mut self, value: T) {
        self.0 = Some((now() + LIFETIME, value));
    }
}
