//! The blocking client under one lock, and who waits for which of its operations.
//!
//! An operation that is alone under way is looked for by its own task, as a blocking call looks for it, while
//! its answer may come sooner than the pump could be woken and wake the task:
//!
//! 1. the task sends the request and yields: other tasks run, and may submit;
//! 2. if it is still alone it looks a few times, and yields again;
//! 3. the answer is there. If none is in time, or another operation is submitted, the pump is woken, and
//!    wakes who waits.
//!
//! A pump that is woken between 1 and 3 leaves it to who looks, and comes again after a millisecond. Were it
//! woken at 3 to make up for that, it would be once for each operation of a task that asks one by one: the
//! next one is under way when it runs. A task that is not polled again holds up no operation but its own.
//! That goes on when the pump is awake, within [`IDLE_SLEEP_MAX`] at most: who looks sets no bell of a ring.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use cell_fabric::LookPause;
use tokio::sync::Notify;

use super::room::Room;
use crate::error::Fate;
use crate::{ClientError, OneSidedCounters, Operation, Output, SelectorReport, Ticket};

/// Steps of one turn of the pump, or looks for one answer: other tasks of the thread want to run too.
const STEPS_A_TURN: usize = 16;
/// The runtime's timers count milliseconds: shorter waits are waited for by turns.
const SHORTEST_SLEEP: Duration = Duration::from_millis(1);
/// The pump looks at an idle client at least this often.
const IDLE_SLEEP_MAX: Duration = Duration::from_secs(1);

/// What all handles, futures and the pump of a client share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// The pump has something to do: an operation was submitted, or the client is gone.
    work: Notify,
    /// Who waits for room in the client's queue.
    room: Room,
}

#[derive(Debug)]
struct State {
    /// None when it was closed.
    client: Option<crate::Client>,
    /// Operations whose futures wait.
    answers: HashMap<Ticket, AnswerState>,
    /// The operation whose own task looks for its answer.
    looked_for: Option<Ticket>,
    pause: LookPause,
    /// Futures to wake when the lock is free again.
    wakers: Vec<Waker>,
}

#[derive(Debug)]
enum AnswerState {
    /// The future waits; the waker is that of its last poll.
    Awaited(Option<Waker>),
    /// The answer is there.
    There(Result<Output, ClientError>),
}

/// What became of an operation that was submitted.
pub(super) enum Started {
    /// It has ended already.
    Ended(Result<Output, ClientError>),
    /// Its answer is to come. `looks`: its own task looks for it, see [`Shared::look`].
    Waits { ticket: Ticket, looks: bool },
}

/// What the pump does after a turn.
pub(super) enum Turn {
    /// Another turn, after other tasks.
    Again,
    /// Sleep, at most so long.
    Sleep(Duration),
    /// The client is gone.
    Over,
}

impl Shared {
    /// Shares a client that is connected; also the descriptor that is readable when it has something to do.
    pub(super) fn new(client: crate::Client) -> Result<(Shared, OwnedFd), ClientError> {
        let descriptor = client.wake_descriptor()?;
        let state = State {
            client: Some(client),
            answers: HashMap::new(),
            looked_for: None,
            pause: LookPause::default(),
            wakers: Vec::new(),
        };
        Ok((Shared { state: Mutex::new(state), work: Notify::new(), room: Room::default() }, descriptor))
    }

    /// Whoever panicked with the lock in hand has left the client as sound as an unwound call leaves it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lock back, then wakes whose answers came.
    fn unlock(&self, mut state: MutexGuard<'_, State>) {
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Submits an operation as soon as the client's queue has room.
    pub(super) async fn begin(&self, operation: &Operation<'_>) -> Result<Started, ClientError> {
        let attempt = || match self.try_begin(operation) {
            Err(ClientError::QueueFull { .. }) => None,
            started => Some(started),
        };
        self.room.wait_for(attempt).await
    }

    /// Submits an operation, if there is room. One that the client answers itself is answered at once.
    pub(super) fn try_begin(&self, operation: &Operation<'_>) -> Result<Started, ClientError> {
        let mut state = self.lock();
        let closed = ClientError::Closed { fate: Fate::NotDone };
        let client = state.client.as_mut().ok_or(closed)?;
        let who = match client.answer_at_once(operation) {
            Ok(output) => return Ok(Started::Ended(Ok(output))),
            Err(who) => who,
        };
        let ticket = match client.submit_to(who, operation) {
            Ok(ticket) => ticket,
            Err(error) => {
                // Who waits for room waits for what is under way, and its own task may look for that no more.
                if state.looked_for.take().is_some() {
                    self.work.notify_one();
                }
                return Err(error);
            }
        };
        let answer = client.answered_at_once(ticket);
        let looks = answer.is_none() && client.begins_to_look();
        let looked = std::mem::replace(&mut state.looked_for, looks.then_some(ticket)).is_some();
        // Who looked before looks no more: it is not alone.
        let is_pumps = !looks && (answer.is_none() || looked);
        if answer.is_none() {
            state.answers.insert(ticket, AnswerState::Awaited(None));
        }
        // The look for the answer may have ended others.
        self.hand_out(&mut state);
        self.unlock(state);
        if is_pumps {
            self.work.notify_one();
        }
        match answer {
            Some(completion) => Ok(Started::Ended(completion.outcome)),
            None => Ok(Started::Waits { ticket, looks }),
        }
    }

    /// Looks a few times for the answer of an operation that is alone under way. Whether to look on, when
    /// other tasks have run; if not, its answer is there, or the pump lets it go on.
    pub(super) fn look(&self, ticket: Ticket) -> bool {
        for _ in 0..STEPS_A_TURN {
            let mut state = self.lock();
            let State { client, looked_for, .. } = &mut *state;
            let Some(client) = client.as_mut().filter(|_| *looked_for == Some(ticket)) else { return false };
            let looks_on = client.look();
            self.hand_out(&mut state);
            if looks_on {
                let pause = state.pause.next_pause();
                self.unlock(state);
                pause();
                continue;
            }
            state.looked_for = None;
            let is_there = matches!(state.answers.get(&ticket), Some(AnswerState::There(_)));
            self.unlock(state);
            if !is_there {
                self.work.notify_one();
            }
            return false;
        }
        true
    }

    /// Lets operations go on as far as they can without a wait.
    pub(super) fn turn(&self) -> Turn {
        let mut state = self.lock();
        let is_looked_for = state.looked_for.is_some();
        if state.client.as_ref().is_some_and(|client| is_looked_for && client.is_looking()) {
            return Turn::Sleep(SHORTEST_SLEEP);
        }
        let mut turn = Turn::Again;
        for _ in 0..STEPS_A_TURN {
            let Some(client) = &mut state.client else {
                turn = Turn::Over;
                break;
            };
            let due = client.step_or_rest();
            self.hand_out(&mut state);
            if let Some(rest) = due {
                let busy = state.client.as_ref().is_some_and(|client| client.outstanding() > 0);
                let rest = if busy { rest.min(crate::blocking::SLEEP_MAX) } else { rest.min(IDLE_SLEEP_MAX) };
                turn = if rest < SHORTEST_SLEEP { Turn::Again } else { Turn::Sleep(rest) };
                break;
            }
        }
        self.unlock(state);
        turn
    }

    /// Gives each completion to who waits for it.
    fn hand_out(&self, state: &mut State) {
        let State { client: Some(client), answers, wakers, .. } = state else { return };
        while let Some(completion) = client.next_completion() {
            self.room.wake_next();
            let Some(answer) = answers.get_mut(&completion.ticket) else { continue };
            match std::mem::replace(answer, AnswerState::There(completion.outcome)) {
                AnswerState::Awaited(waker) => wakers.extend(waker),
                AnswerState::There(_) => unreachable!("each ticket has one completion"),
            }
        }
    }

    /// The answer of an operation, if it is there; else its future's waker is kept. `fate`: of an operation
    /// that ended with the client.
    pub(super) fn take_answer(
        &self,
        ticket: Ticket,
        fate: Fate,
        waker: &Waker,
    ) -> Poll<Result<Output, ClientError>> {
        let mut state = self.lock();
        match state.answers.remove(&ticket) {
            Some(AnswerState::There(outcome)) => Poll::Ready(outcome),
            Some(AnswerState::Awaited(before)) => {
                state.answers.insert(ticket, AnswerState::Awaited(Some(waker.clone())));
                drop(state);
                drop(before); // it may be the last one of its task, and the task hold answers of this client
                Poll::Pending
            }
            None => Poll::Ready(Err(ClientError::Closed { fate })),
        }
    }

    /// Nobody waits for an operation any more: it is given up, as at its deadline.
    pub(super) fn abandon(&self, ticket: Ticket) {
        let mut state = self.lock();
        if state.looked_for == Some(ticket) {
            state.looked_for = None;
        }
        let answer = state.answers.remove(&ticket);
        let is_under_way = matches!(answer, Some(AnswerState::Awaited(_)));
        if let Some(client) = state.client.as_mut().filter(|_| is_under_way) {
            client.give_up(ticket);
        }
        drop(state);
        drop(answer); // as in `take_answer`
        if is_under_way {
            self.room.wake_next();
            self.work.notify_one(); // the server is to learn of it, and what waited behind it may leave
        }
    }

    /// Waits until the pump has something to do.
    pub(super) async fn work(&self) {
        self.work.notified().await;
    }

    /// Ends the client: what is outstanding ends, nothing is taken in any more. Gives it to the first caller.
    pub(super) fn end(&self) -> Option<crate::Client> {
        let mut state = self.lock();
        let client = state.client.take();
        for (_, answer) in std::mem::take(&mut state.answers) {
            if let AnswerState::Awaited(Some(waker)) = answer {
                state.wakers.push(waker);
            }
        }
        self.unlock(state);
        self.work.notify_one();
        self.room.wake_all();
        client
    }

    pub(super) fn one_sided_counters(&self) -> Option<OneSidedCounters> {
        self.lock().client.as_ref().and_then(|client| client.one_sided_counters().cloned())
    }

    pub(super) fn selector_report(&self) -> Option<SelectorReport> {
        self.lock().client.as_ref().and_then(crate::Client::selector_report)
    }

    pub(super) fn outstanding(&self) -> usize {
        self.lock().client.as_ref().map_or(0, crate::Client::outstanding)
    }
}
