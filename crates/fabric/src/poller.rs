//! Sleeping until something happens: one epoll over the wake descriptors of a shell, and a way to be woken.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::endpoint::Endpoint;
use crate::error::FabricError;
use crate::ready_parts::ReadyParts;

const WAKER_TOKEN: u64 = u64::MAX;
/// Of what is added one by one.
const OTHERS_TOKEN: u64 = u64::MAX - 1;

/// What a shell sleeps on. It says that something is there, and in which parts of an endpoint; the shell then
/// polls all it has.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
    bell: Arc<Bell>,
    events: ReadyList,
}

/// Wakes a [`Poller`] from another thread. Cheap to call often: only the first call since the last wait costs
/// a system call. What was stored before `wake` is seen after the `wait` that it ends.
#[derive(Clone, Debug)]
pub struct Waker(Arc<Bell>);

#[derive(Debug)]
struct Bell {
    descriptor: OwnedFd,
    rung: AtomicBool,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// A [`Waker`] was used.
    pub woken: bool,
    /// Descriptors that have something.
    pub ready: usize,
    /// Those of them that are parts of an endpoint.
    pub parts: ReadyParts,
}

impl Poller {
    /// A poller with nothing but its waker.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn new() -> Result<Poller, FabricError> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(poll_error)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let descriptor = eventfd(0, flags).map_err(poll_error)?;
        epoll::add(&epoll, &descriptor, EventData::new_u64(WAKER_TOKEN), EventFlags::IN)
            .map_err(poll_error)?;
        let bell = Arc::new(Bell { descriptor, rung: AtomicBool::new(false) });
        Ok(Poller { epoll, bell, events: ReadyList::default() })
    }

    /// Watches a descriptor that its owner drains when polled, such as an endpoint's. It leaves when it is
    /// closed.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn add(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), FabricError> {
        let token = EventData::new_u64(OTHERS_TOKEN);
        epoll::add(&self.epoll, descriptor, token, EventFlags::IN).map_err(poll_error)
    }

    /// Watches all parts of an endpoint, and distinguishes them: of one endpoint.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn add_endpoint(&mut self, endpoint: &impl Endpoint) -> Result<(), FabricError> {
        for (part, descriptor) in (0_u64..).zip(endpoint.wake_descriptors()) {
            let token = EventData::new_u64(part);
            epoll::add(&self.epoll, descriptor, token, EventFlags::IN).map_err(poll_error)?;
        }
        Ok(())
    }

    /// Watches a descriptor that nobody drains, such as the eventfd of an io_uring: each signal wakes once.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn add_edge(&mut self, descriptor: BorrowedFd<'_>) -> Result<(), FabricError> {
        let flags = EventFlags::IN | EventFlags::ET;
        epoll::add(&self.epoll, descriptor, EventData::new_u64(OTHERS_TOKEN), flags).map_err(poll_error)
    }

    /// A waker for other threads.
    #[must_use]
    pub fn waker(&self) -> Waker {
        Waker(Arc::clone(&self.bell))
    }

    /// Sleeps until a descriptor has something, a waker is used, or the time is over (`None`: for ever). It
    /// may return early without a reason.
    pub fn wait(&mut self, timeout: Option<Duration>) -> Wait {
        self.events.wait(&self.epoll, timeout);
        let (mut woken, mut parts) = (false, ReadyParts::default());
        for (token, _) in self.events.iter() {
            match token {
                WAKER_TOKEN => woken = true,
                part => {
                    parts = parts
                        .and(usize::try_from(part).map_or_else(|_| ReadyParts::default(), ReadyParts::of))
                }
            }
        }
        if woken {
            self.bell.silence();
        }
        Wait { woken, ready: self.events.len() - usize::from(woken), parts }
    }
}

impl Waker {
    /// Ends the poller's wait, the current one or the next.
    pub fn wake(&self) {
        if !self.0.rung.swap(true, Ordering::AcqRel) {
            // An eventfd takes 2^64 - 2 unread signals, and `rung` permits one: this cannot fail.
            let _ = rustix::io::write(&self.0.descriptor, &1_u64.to_le_bytes());
        }
    }
}

impl Bell {
    /// Drains before it permits the next signal: the other way round a signal could be drained that `rung`
    /// still counts as pending, and no later one would be sent. The swap reads what the ringer released.
    fn silence(&self) {
        let _ = rustix::io::read(&self.descriptor, &mut [0; 8]);
        self.rung.swap(false, Ordering::AcqRel);
    }
}

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;

/// What an epoll instance reported last: tokens and what is said of them. (The kernel's own event may hold a
/// pointer and could not change threads with its endpoint.)
#[derive(Debug, Default)]
pub(crate) struct ReadyList(Vec<(u64, EventFlags)>);

impl ReadyList {
    /// Replaces the list by what is ready, waiting at most `timeout`; empty on time-out or interruption.
    pub(crate) fn wait(&mut self, epoll: &OwnedFd, timeout: Option<Duration>) {
        self.0.clear();
        // What a Timespec cannot hold is longer than any machine runs.
        let timespec = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; EVENTS_MAX];
        match epoll::wait(epoll, &mut room, timespec.as_ref()) {
            Ok((events, _)) => self.0.extend(events.iter().map(|event| (event.data.u64(), event.flags))),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => panic!("an epoll instance that this process holds cannot be waited on: {errno}"),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there may be more than was reported.
    pub(crate) fn is_full(&self) -> bool {
        self.0.len() == EVENTS_MAX
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, EventFlags)> + '_ {
        self.0.iter().copied()
    }
}

pub(crate) fn poll_error(errno: rustix::io::Errno) -> FabricError {
    FabricError::Poll { source: io::Error::from(errno) }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn wait_nothing_happens_times_out() {
        let mut poller = Poller::new().unwrap();
        let nothing = Wait { woken: false, ready: 0, parts: ReadyParts::default() };
        assert_eq!(poller.wait(Some(Duration::from_millis(1))), nothing);
    }

    #[test]
    fn wake_before_wait_ends_it_once() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        waker.wake();
        waker.wake();
        assert!(poller.wait(None).woken);
        assert!(!poller.wait(Some(Duration::ZERO)).woken);
        waker.wake();
        assert!(poller.wait(None).woken);
    }

    #[test]
    fn wake_from_another_thread_ends_a_sleep() {
        let mut poller = Poller::new().unwrap();
        let waker = poller.waker();
        std::thread::scope(|scope| {
            scope.spawn(|| waker.wake());
            while !poller.wait(None).woken {}
        });
    }

    #[test]
    fn add_edge_undrained_descriptor_wakes_once_a_signal() {
        let mut poller = Poller::new().unwrap();
        let descriptor = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
        poller.add_edge(descriptor.as_fd()).unwrap();
        for _ in 0..2 {
            rustix::io::write(&descriptor, &1_u64.to_le_bytes()).unwrap();
            assert_eq!(poller.wait(None).ready, 1);
            assert_eq!(poller.wait(Some(Duration::ZERO)).ready, 0);
        }
    }
}
