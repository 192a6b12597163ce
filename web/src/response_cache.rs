//! Responses that are kept for a while, so that many who ask at a time cost no more than one.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::now;

/// How long a value is kept.
const LIFETIME: Duration = Duration::from_millis(900);

/// The place of one value: a text, if nothing else is said.
pub(crate) struct CachedResponse<T = Bytes>(Mutex<CachedValue<T>>);

/// The value that is kept, if there is one.
pub(crate) struct CachedValue<T>(Option<Kept<T>>);

struct Kept<T> {
    value: T,
    until: Instant,
    /// It shows all that the coordinator's rows said at this revision; zero: that was not asked for.
    revision: u64,
}

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
        self.get_as_of(0)
    }

    /// The same if it shows all that the coordinator's rows said at this revision.
    pub(crate) fn get_as_of(&self, revision: u64) -> Option<T> {
        let kept = self.0.as_ref().filter(|kept| now() < kept.until && kept.revision >= revision);
        kept.map(|kept| kept.value.clone())
    }

    /// Keeps a new value.
    pub(crate) fn replace(&mut self, value: T) {
        self.replace_as_of(value, 0);
    }

    /// Keeps a new value that shows all that the coordinator's rows said at this revision.
    pub(crate) fn replace_as_of(&mut self, value: T, revision: u64) {
        self.0 = Some(Kept { value, until: now() + LIFETIME, revision });
    }
}
