//! A text that is kept for a while, so that many who ask at a time cost no more than one.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::{Mutex, MutexGuard};

use crate::clock::now;

/// How long a text is kept.
const KEPT: Duration = Duration::from_millis(900);

/// The place of one text.
#[derive(Default)]
pub(crate) struct Kept(Mutex<KeptText>);

/// The text, and until when it is kept.
#[derive(Default)]
pub(crate) struct KeptText(Option<(Instant, Bytes)>);

impl Kept {
    /// The text, for whoever makes it anew: others wait meanwhile.
    pub(crate) async fn lock(&self) -> MutexGuard<'_, KeptText> {
        self.0.lock().await
    }
}

impl KeptText {
    /// The text, if it is kept still.
    pub(crate) fn text(&self) -> Option<Bytes> {
        self.0.as_ref().filter(|(until, _)| now() < *until).map(|(_, text)| text.clone())
    }

    /// Keeps a new text.
    pub(crate) fn keep(&mut self, text: Bytes) {
        self.0 = Some((now() + KEPT, text));
    }
}
