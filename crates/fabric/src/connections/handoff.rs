//! One listening socket, several takers: an accepted socket goes to the endpoint that its hello asks for.
//!
//! The worker's own connections stay with the endpoint that listens. Sockets for the one-sided service, and
//! for the worker's endpoint over `verbs`, are handed over: the endpoint that listens reads the hello and
//! nothing beyond it, then leaves the socket on the other one's queue and rings. That one judges its own
//! limits and answers the hello. TLS that was started goes along with its socket.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;

use crate::address::PeerAddress;
use crate::close::HelloRefusal;
use crate::error::FabricError;
use crate::greeting::Greeting;
use crate::hello::{Hello, WORKER, WORKER_ONE_SIDED};
use crate::partition::Partition;
use crate::poller::poll_error;
use crate::read_permission::ReadPermission;
use crate::tls::Socket;

/// How an endpoint takes connections: by listening, or from a queue that the one that listens fills.
#[derive(Debug)]
pub(crate) struct Acceptor {
    /// What it says of itself in the answer to a good hello.
    pub(super) greeting: Greeting,
    /// Whether its host serves one-sided reads, as the answer says.
    pub(super) one_sided: bool,
    pub(super) partition: Partition,
    /// Where it finds sockets that were accepted for it; none at the endpoint that listens.
    pub(super) own_queue: Option<Arc<HandoffQueue>>,
    /// At the one-sided service: who may read; none: whoever comes.
    pub(super) readers: Option<Arc<dyn ReadPermission>>,
    /// At the endpoint that listens: the one-sided service's, where there is one.
    service_queue: Option<Arc<HandoffQueue>>,
    /// At the endpoint that listens: that of connections over `verbs`, where it is offered.
    verbs_queue: Option<Arc<HandoffQueue>>,
}

/// Who is to answer a hello.
#[derive(Debug)]
pub(super) enum Taker {
    /// The endpoint that listens.
    Listener,
    /// Who takes sockets from this queue.
    Queue(Arc<HandoffQueue>),
    /// Nobody, for this reason.
    Nobody(HelloRefusal),
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
    pub(super) socket: Socket,
    pub(super) peer: PeerAddress,
    pub(super) hello: Box<Hello>,
}

impl Acceptor {
    /// Of the endpoint that listens.
    ///
    /// # Errors
    /// A greeting that is too long.
    pub(crate) fn new(
        greeting: &Greeting,
        one_sided: bool,
        partition: &Partition,
    ) -> Result<Acceptor, FabricError> {
        // Refused here, because later it could only be answered by refusing every peer.
        let answer = Hello { greeting: greeting.clone(), ..Hello::of_connector(WORKER, 0) };
        answer.encode()?;
        Ok(Acceptor {
            greeting: greeting.clone(),
            one_sided,
            partition: partition.clone(),
            own_queue: None,
            readers: None,
            service_queue: None,
            verbs_queue: None,
        })
    }

    /// The one-sided service's, to which this one hands sockets over from now on, of those who may read.
    ///
    /// # Errors
    /// No descriptors.
    pub(crate) fn add_service(
        &mut self,
        readers: Option<Arc<dyn ReadPermission>>,
    ) -> Result<Acceptor, FabricError> {
        let queue = self.service_queue.insert(Arc::new(HandoffQueue::new()?)).clone();
        Ok(Acceptor { readers, ..self.taking_from(queue) })
    }

    /// That of connections over `verbs`, to which this one hands sockets over from now on.
    ///
    /// # Errors
    /// No descriptors.
    #[cfg(feature = "verbs")]
    pub(crate) fn add_verbs(&mut self) -> Result<Acceptor, FabricError> {
        let queue = self.verbs_queue.insert(Arc::new(HandoffQueue::new()?)).clone();
        Ok(self.taking_from(queue))
    }

    fn taking_from(&self, queue: Arc<HandoffQueue>) -> Acceptor {
        Acceptor {
            greeting: self.greeting.clone(),
            one_sided: self.one_sided,
            partition: self.partition.clone(),
            own_queue: Some(queue),
            readers: None,
            service_queue: None,
            verbs_queue: None,
        }
    }

    /// The filter under its connections.
    #[cfg(feature = "verbs")]
    pub(crate) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Who is to answer a hello that the endpoint that listens has read.
    pub(super) fn taker(&self, hello: &Hello) -> Taker {
        let over_verbs = hello.queue_pair.is_some();
        let queue = match (hello.worker, over_verbs) {
            (WORKER, false) => return Taker::Listener,
            (WORKER, true) => &self.verbs_queue,
            (WORKER_ONE_SIDED, false) => &self.service_queue,
            _ => &None,
        };
        match queue {
            Some(queue) => Taker::Queue(Arc::clone(queue)),
            None if over_verbs && self.verbs_queue.is_none() => Taker::Nobody(HelloRefusal::NoVerbs),
            None => Taker::Nobody(HelloRefusal::NoSuchWorker),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue_pair_end::QueuePairEnd;

    const END: QueuePairEnd = QueuePairEnd {
        number: 1,
        packet: 1,
        gid: [1; 16],
        lid: 0,
        packet_size: 3,
        reads_at_once: 1,
        slot_bytes: 4_096,
        slots: 16,
    };

    fn acceptor() -> Acceptor {
        Acceptor::new(&Greeting::default(), true, &Partition::default()).unwrap()
    }

    /// The taker of a hello: the listener, the queue of another acceptor, or the reason why nobody is.
    fn taker(
        acceptor: &Acceptor,
        worker: u16,
        over_verbs: bool,
    ) -> Result<Option<Arc<HandoffQueue>>, HelloRefusal> {
        let queue_pair = over_verbs.then(|| Box::new(END));
        match acceptor.taker(&Hello { queue_pair, ..Hello::of_connector(worker, 1_024) }) {
            Taker::Listener => Ok(None),
            Taker::Queue(queue) => Ok(Some(queue)),
            Taker::Nobody(refusal) => Err(refusal),
        }
    }

    #[test]
    fn taker_of_each_worker_number_without_service_and_verbs() {
        let acceptor = acceptor();
        assert!(matches!(taker(&acceptor, WORKER, false), Ok(None)));
        for worker in [1, 2, WORKER_ONE_SIDED] {
            assert_eq!(taker(&acceptor, worker, false).unwrap_err(), HelloRefusal::NoSuchWorker);
        }
        for worker in [WORKER, 1, WORKER_ONE_SIDED] {
            assert_eq!(taker(&acceptor, worker, true).unwrap_err(), HelloRefusal::NoVerbs);
        }
    }

    #[test]
    fn taker_of_the_service_is_its_queue_until_it_is_closed() {
        let mut acceptor = acceptor();
        let service = acceptor.add_service(None).unwrap().own_queue.unwrap();
        let found = taker(&acceptor, WORKER_ONE_SIDED, false).unwrap().unwrap();
        assert!(Arc::ptr_eq(&found, &service));
        assert!(matches!(taker(&acceptor, WORKER, false), Ok(None)));
        assert_eq!(taker(&acceptor, WORKER_ONE_SIDED, true).unwrap_err(), HelloRefusal::NoVerbs);
        let handed = || Handed {
            socket: Socket::plain(eventfd(0, EventfdFlags::CLOEXEC).unwrap()),
            peer: PeerAddress::Shm { user: 0 },
            hello: Box::new(Hello::of_connector(WORKER_ONE_SIDED, 1_024)),
        };
        found.leave(handed()).unwrap();
        assert_eq!(service.take().len(), 1);
        service.close();
        assert!(found.leave(handed()).is_err());
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn taker_over_verbs_is_its_queue_and_another_workers_is_nobody() {
        let mut acceptor = acceptor();
        let verbs = acceptor.add_verbs().unwrap().own_queue.unwrap();
        assert!(Arc::ptr_eq(&taker(&acceptor, WORKER, true).unwrap().unwrap(), &verbs));
        for worker in [1, WORKER_ONE_SIDED] {
            assert_eq!(taker(&acceptor, worker, true).unwrap_err(), HelloRefusal::NoSuchWorker);
        }
    }
}
