//! The client for asynchronous programs, on tokio (feature `aio`): the same core as [`crate::Client`], with
//! futures in place of blocking calls.
//!
//! | part | what it is |
//! |---|---|
//! | [`Client`] | a handle; clone it into as many tasks as there are |
//! | `shared` | the blocking client under one lock, and who waits for which operation |
//! | `steps` | what they have the blocking client do |
//! | `room` | who waits for room in the client's queue |
//! | `pump` | the task that lets operations go on while their futures sleep |
//! | [`ScanStream`] | the entries of a range; the next page is under way while one is yielded |
//!
//! What is answered by the client's own search of mapped memory is ready when its future is first polled:
//! no task switch, and the lock is free but for tasks of the same client on other threads. It takes of its
//! task's budget ([`tokio::task::coop`]), as each entry of a scan does: a task that asks without an end for
//! what is there lets others run now and then. An operation that is alone under way is looked for by its own
//! task for [`ClientOptions::spin_us`], in looks of some microseconds between which other tasks run; where
//! answers take longer it looks ever more seldom.
//!
//! **Cancellation.** Dropping a future gives its operation up, as its deadline would: what has not left is
//! not done, and the room in the client's queue is free again at once. A write that has left is done at most
//! once. Whether it was is not known ([`Fate::Unknown`]): it is not sent again, and it has its effect or not
//! before a later write of the same client to the same pair is answered that was submitted when no earlier
//! write was outstanding.
//!
//! ```no_run
//! # async fn example() -> Result<(), cell_client::ClientError> {
//! let client = cell_client::aio::Client::connect("127.0.0.1:7000", Default::default()).await?;
//! client.put(b"apple", b"green").await?;
//! let (apple, pear) = tokio::join!(client.get(b"apple"), client.get(b"pear"));
//! assert_eq!(apple?.map(|item| item.value), Some(b"green".to_vec()));
//! assert_eq!(pear?, None);
//! client.close().await;
//! # Ok(())
//! # }
//! ```

mod call;
mod multi_get;
mod pump;
mod room;
mod scan;
mod shared;
mod steps;

use std::sync::Arc;

use cell_terms::Version;

pub use scan::ScanStream;

use crate::error::Fate;
use crate::output::{Item, NodeStatus, Output};
use crate::scanner::ScanRange;
use crate::{ClientError, ClientOptions, Condition, OneSidedCounters, Operation, SelectorReport};
use call::{call, call_if_room};
use shared::Shared;

/// A client of a Cell store. Clones are handles to the same connections and the same session; the session
/// ends with the last one.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
    _handle: Arc<Handle>,
}

/// Dropped with the last clone of a client.
#[derive(Debug)]
struct Handle(Arc<Shared>);

impl Drop for Handle {
    fn drop(&mut self) {
        drop(self.0.end());
    }
}

impl Client {
    /// As [`crate::Client::connect`], on the present runtime, whose tasks the client's pump becomes one of.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// Outside of a tokio runtime with I/O and time enabled.
    pub async fn connect(server: &str, options: ClientOptions) -> Result<Client, ClientError> {
        let server = server.to_owned();
        let connecting = tokio::task::spawn_blocking(move || crate::Client::connect(&server, options));
        // The runtime is shutting down: nobody is left to use the client.
        let connected = connecting.await.map_err(|_| ClientError::Closed { fate: Fate::NotDone })??;
        let (shared, descriptor) = Shared::new(connected)?;
        let shared = Arc::new(shared);
        pump::start(Arc::clone(&shared), descriptor)?;
        Ok(Client { _handle: Arc::new(Handle(Arc::clone(&shared))), shared })
    }

    /// Whether there is an entry.
    ///
    /// # Errors
    /// See [`ClientError`]; so for all operations.
    pub async fn search(&self, key: &[u8]) -> Result<bool, ClientError> {
        self.call(&Operation::Search { key }).await.map(Output::into_exists)
    }

    /// The entry, if there is one; values of any length.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn get(&self, key: &[u8]) -> Result<Option<Item>, ClientError> {
        self.call(&Operation::Get { key }).await.map(Output::into_item)
    }

    /// Writes an entry, whatever is there. It is durable when this returns.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<Version, ClientError> {
        self.put_if(key, value, Condition::Always).await
    }

    /// Writes an entry if the condition holds.
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub async fn put_if(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<Version, ClientError> {
        self.call(&Operation::Put { key, value, condition }).await.map(Output::into_version)
    }

    /// Writes an entry if it still has this version (compare and swap).
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub async fn cas(&self, key: &[u8], expected: Version, value: &[u8]) -> Result<Version, ClientError> {
        self.put_if(key, value, Condition::IfVersion(expected)).await
    }

    /// Removes an entry; returns whether there was one.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn delete(&self, key: &[u8]) -> Result<bool, ClientError> {
        self.delete_if(key, Condition::Always).await
    }

    /// Removes an entry if the condition holds: always or if-version.
    ///
    /// # Errors
    /// [`ClientError::ConditionFailed`] with the present version, or another [`ClientError`].
    pub async fn delete_if(&self, key: &[u8], condition: Condition) -> Result<bool, ClientError> {
        self.call(&Operation::Delete { key, condition }).await.map(Output::into_existed)
    }

    /// Many entries, in the order of the keys; each is as of its own moment. Any number of keys: they go in
    /// messages that are under way together.
    ///
    /// # Errors
    /// See [`ClientError`]; the first error ends the call.
    pub async fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Item>>, ClientError> {
        multi_get::multi_get(self, keys).await
    }

    /// The entries of a range, page by page. See [`ScanRange`].
    #[must_use]
    pub fn scan(&self, range: ScanRange) -> ScanStream {
        ScanStream::new(self.clone(), range)
    }

    /// The node's status.
    ///
    /// # Errors
    /// See [`ClientError`].
    pub async fn status(&self) -> Result<NodeStatus, ClientError> {
        self.call(&Operation::Status).await.map(Output::into_status)
    }

    /// What the one-sided path has counted, if this client searches itself.
    #[must_use]
    pub fn one_sided_counters(&self) -> Option<OneSidedCounters> {
        self.shared.one_sided_counters()
    }

    /// What was decided on who searches, and what that rests on; none if the client has no choice, or was
    /// closed.
    #[must_use]
    pub fn selector_report(&self) -> Option<SelectorReport> {
        self.shared.selector_report()
    }

    /// Operations without an answer yet.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.shared.outstanding()
    }

    /// Ends the session on the server, so that it need not keep this client's results, and disconnects all
    /// clones. What is outstanding ends with [`ClientError::Closed`].
    pub async fn close(self) {
        if let Some(client) = self.shared.end() {
            // It fails only if the runtime ends: then the client is dropped, which ends the session too.
            let _ = tokio::task::spawn_blocking(move || client.close()).await;
        }
    }

    /// Waits for room in the client's queue, submits, and waits for the answer.
    pub(crate) async fn call(&self, operation: &Operation<'_>) -> Result<Output, ClientError> {
        call(&self.shared, operation).await
    }

    /// As [`Client::call`], but none if there is no room now.
    async fn call_if_room(&self, operation: &Operation<'_>) -> Result<Option<Output>, ClientError> {
        call_if_room(&self.shared, operation).await
    }
}
