//! One operation as a future.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::coop;

use super::shared::{Shared, Started};
use crate::error::Fate;
use crate::{ClientError, Operation, Output, Ticket};

/// Submits an operation as soon as the client's queue has room, and waits for its answer, which it looks for
/// itself first if nothing else is under way.
pub(super) async fn call(shared: &Shared, operation: &Operation<'_>) -> Result<Output, ClientError> {
    let started = shared.begin(operation).await?;
    ended(shared, operation, started).await
}

/// As [`call`], if there is room in the client's queue now: it does not wait for any. None: there is none.
pub(super) async fn call_if_room(
    shared: &Shared,
    operation: &Operation<'_>,
) -> Result<Option<Output>, ClientError> {
    match shared.try_begin(operation) {
        Ok(started) => ended(shared, operation, started).await.map(Some),
        Err(ClientError::QueueFull { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Waits for the answer of an operation that was submitted.
async fn ended(shared: &Shared, operation: &Operation<'_>, started: Started) -> Result<Output, ClientError> {
    match started {
        Started::Ended(outcome) => {
            // A task that asks again and again for what is there waits for nothing: others are to run, too.
            coop::consume_budget().await;
            outcome
        }
        Started::Waits { ticket, mut looks } => {
            let is_write = matches!(operation, Operation::Put { .. } | Operation::Delete { .. });
            let answer = Answer { shared, ticket, is_write, taken: false };
            while looks {
                tokio::task::yield_now().await;
                looks = shared.look(ticket);
            }
            answer.await
        }
    }
}

/// The answer of an operation that was submitted. Dropped before, it gives the operation up.
struct Answer<'a> {
    shared: &'a Shared,
    ticket: Ticket,
    is_write: bool,
    taken: bool,
}

impl Future for Answer<'_> {
    type Output = Result<Output, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let fate = if self.is_write { Fate::Unknown } else { Fate::NotDone };
        let answer = self.shared.take_answer(self.ticket, fate, context.waker());
        self.taken = answer.is_ready();
        answer
    }
}

impl Drop for Answer<'_> {
    fn drop(&mut self) {
        if !self.taken {
            self.shared.abandon(self.ticket);
        }
    }
}
