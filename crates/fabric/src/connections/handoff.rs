//! One listening socket, many workers: accepted sockets go to the endpoint whose worker the hello names.
//!
//! The endpoint that listens reads the hello and nothing beyond it, then leaves the socket on the other
//! endpoint's queue and rings. The other endpoint judges its own limits and answers the hello.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::address::PeerAddress;
use crate::close::HelloRefusal;
use crate::error::FabricError;
use crate::greeting::Greeting;
use crate::hello::{Hello, WORKER_ONE_SIDED};
use crate::partition::Partition;
use crate::poller::poll_error;

/// One of the acceptors of a host, which is a group of them behind one listener.
#[derive(Clone, Debug)]
pub(crate) struct Acceptor {
    group: Arc<Group>,
    pub(super) worker: u16,
    /// It takes the connections over `verbs` of that worker, not those over the socket itself.
    over_verbs: bool,
    /// What it says of itself in the answer to a good hello.
    pub(super) greeting: Greeting,
    /// Whether its host serves one-sided reads, as the answer says.
    pub(super) one_sided: bool,
    pub(super) partition: Partition,
}

/// The endpoints of one host.
#[derive(Debug)]
struct Group {
    workers: Vec<HandoffQueue>,
    /// Likewise for connections over `verbs`; none where it is not offered.
    verbs: Vec<HandoffQueue>,
    one_sided: Option<HandoffQueue>,
}

/// Where one endpoint finds sockets that were accepted for it.
#[derive(Debug)]
pub(super) struct HandoffQueue {
    /// Edge-triggered and never drained.
    pub(super) bell: OwnedFd,
    state: Mutex<QueueState>,
}

#[derive(Debug)]
struct QueueState {
    open: bool,
    waiting: Vec<Handed>,
}

/// An accepted socket whose hello was read and not answered.
#[derive(Debug)]
pub(super) struct Handed {
    pub(super) socket: OwnedFd,
    pub(super) peer: PeerAddress,
    pub(super) hello: Box<Hello>,
}

impl Acceptor {
    /// One a worker. `service`: another one at the end, for the one-sided service.
    ///
    /// # Errors
    /// A greeting that is too long, or no descriptors.
    pub(crate) fn group(
        workers: u16,
        service: bool,
        greeting: &Greeting,
        one_sided: bool,
        partition: &Partition,
        verbs: bool,
    ) -> Result<Vec<Acceptor>, FabricError> {
        // Refused here, because later it could only be answered by refusing every peer.
        let answer = Hello { greeting: greeting.clone(), ..Hello::of_connector(0, 0) };
        answer.encode()?;
        // The last number names the one-sided service.
        let workers = workers.clamp(1, WORKER_ONE_SIDED - 1);
        let group = Arc::new(Group::new(workers, service, verbs)?);
        let acceptor = |worker| Acceptor {
            group: Arc::clone(&group),
            worker,
            over_verbs: false,
            greeting: greeting.clone(),
            one_sided,
            partition: partition.clone(),
        };
        Ok((0..workers).chain(service.then_some(WORKER_ONE_SIDED)).map(acceptor).collect())
    }

    /// The acceptor of the same worker's connections over `verbs`, of a group that offers it.
    #[cfg(feature = "verbs")]
    pub(crate) fn over_verbs(&self) -> Acceptor {
        Acceptor { over_verbs: true, ..self.clone() }
    }

    /// The filter under its connections.
    #[cfg(feature = "verbs")]
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Whether this is whom a hello means.
    pub(super) fn is_for(&self, hello: &Hello) -> bool {
        self.worker == hello.worker && self.over_verbs == hello.queue_pair.is_some()
    }

    /// The queue of whom a hello means.
    pub(super) fn queue_of(&self, hello: &Hello) -> Option<&HandoffQueue> {
        self.group.queue(hello.worker, hello.queue_pair.is_some())
    }

    /// Why nobody is there whom a hello means.
    pub(super) fn refusal(&self, hello: &Hello) -> HelloRefusal {
        let lacks_verbs = hello.queue_pair.is_some() && self.group.verbs.is_empty();
        if lacks_verbs { HelloRefusal::NoVerbs } else { HelloRefusal::NoSuchWorker }
    }

    /// Where this acceptor finds sockets that were accepted for it.
    pub(super) fn own_queue(&self) -> Option<&HandoffQueue> {
        self.group.queue(self.worker, self.over_verbs)
    }
}

impl Group {
    fn new(workers: u16, one_sided: bool, verbs: bool) -> Result<Group, FabricError> {
        let queues = |count| (0..count).map(|_| HandoffQueue::new()).collect::<Result<_, _>>();
        Ok(Group {
            workers: queues(workers)?,
            verbs: queues(if verbs { workers } else { 0 })?,
            one_sided: if one_sided { Some(HandoffQueue::new()?) } else { None },
        })
    }

    /// The queue of a worker number as a hello names it.
    fn queue(&self, worker: u16, verbs: bool) -> Option<&HandoffQueue> {
        match (worker, verbs) {
            (worker, true) => self.verbs.get(usize::from(worker)),
            (WORKER_ONE_SIDED, false) => self.one_sided.as_ref(),
            (worker, false) => self.workers.get(usize::from(worker)),
        }
    }
}

impl HandoffQueue {
    fn new() -> Result<HandoffQueue, FabricError> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(poll_error)?;
        Ok(HandoffQueue { bell, state: Mutex::new(QueueState { open: true, waiting: Vec::new() }) })
    }

    /// Leaves a socket, or gives it back when nobody sits here any more.
    pub(super) fn leave(&self, handed: Handed) -> Result<(), Handed> {
        let mut state = self.state();
        if !state.open {
            return Err(handed);
        }
        state.waiting.push(handed);
        drop(state);
        let _ = rustix::io::write(&self.bell, &1_u64.to_le_bytes());
        Ok(())
    }

    /// Takes what was left.
    pub(super) fn take(&self) -> Vec<Handed> {
        std::mem::take(&mut self.state().waiting)
    }

    /// The endpoint is going: closes what was left and takes no more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.open = false;
        state.waiting.clear();
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        // No code that can panic runs under the lock; should one, a list of sockets is still a list of
        // sockets.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
