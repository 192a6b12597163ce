//! Connections whose peers have not shown yet who they are. There are only so many of them, and each has only
//! so long: whoever says nothing, in whatever number, takes the places of those who came from where it comes
//! from, and nobody else's.

use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most at a time. For one that connects in order a place is taken for the time of some messages.
pub(crate) const STRANGERS_MAX: usize = 256;

/// Those who have not shown yet who they are: see the module's text. There are 256 places.
#[derive(Default)]
pub struct Strangers {
    /// In the order in which they came.
    list: Mutex<Vec<Stranger>>,
    next: AtomicU64,
}

struct Stranger {
    number: u64,
    place: IpAddr,
    stream: Arc<TcpStream>,
}

/// The place of one of [`Strangers`]. Dropping it frees it.
pub struct Place {
    strangers: Arc<Strangers>,
    number: u64,
}

impl Strangers {
    /// Takes one in. Where there are too many, one goes for it.
    pub fn enter(self: &Arc<Self>, address: IpAddr, stream: &Arc<TcpStream>) -> Place {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut list = self.lock();
        if list.len() >= STRANGERS_MAX {
            let places: Vec<IpAddr> = list.iter().map(|one| one.place).collect();
            if let Some(index) = who_goes(&places) {
                // Its thread finds the connection closed.
                let _ = list.remove(index).stream.shutdown(Shutdown::Both);
            }
        }
        list.push(Stranger { number, place: network(address), stream: stream.clone() });
        Place { strangers: self.clone(), number }
    }

    /// Closes all.
    pub(crate) fn close(&self) {
        for stranger in self.lock().drain(..) {
            let _ = stranger.stream.shutdown(Shutdown::Both);
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stranger>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.strangers.lock().retain(|one| one.number != self.number);
    }
}

/// Where a peer is. One that has an IPv6 network has all addresses of it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address => address,
    }
}

/// Of the place that has most, the one that came first. They stand in the order in which they came.
fn who_goes(places: &[IpAddr]) -> Option<usize> {
    let count = |place: &IpAddr| places.iter().filter(|other| *other == place).count();
    let most = places.iter().map(count).max()?;
    places.iter().position(|place| count(place) == most)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn place(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn who_goes_is_the_first_of_the_place_with_most() {
        let of = |lasts: &[u8]| who_goes(&lasts.iter().copied().map(place).collect::<Vec<_>>());
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[1, 2, 2, 3]), Some(1), "the node at 1 came before, and stays");
        assert_eq!(of(&[1, 2, 3]), Some(0));
    }

    #[test]
    fn network_of_addresses_that_one_peer_may_have_is_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::2"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), place(1));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }

    #[test]
    fn enter_past_the_most_closes_one_of_the_place_that_has_most_and_nobody_elses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // With its other end, which has to stay.
        let connect = || {
            let stream = Arc::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
            (stream, listener.accept().unwrap().0)
        };
        let strangers = Arc::new(Strangers::default());
        let (node, _node_end) = connect();
        let in_order = strangers.enter(place(1), &node);
        let mut silent = Vec::new();
        for _ in 0..STRANGERS_MAX + 7 {
            let (stream, end) = connect();
            silent.push((strangers.enter(place(2), &stream), stream, end));
        }
        assert_eq!(strangers.count(), STRANGERS_MAX);
        let is_open = |stream: &TcpStream| {
            stream.set_nonblocking(true).unwrap();
            stream.peek(&mut [0]).is_err() // it would block
        };
        assert!(is_open(&node));
        let closed = silent.iter().filter(|(_, stream, _)| !is_open(stream)).count();
        assert_eq!(closed, 8, "the first ones");
        assert!(silent.iter().take(8).all(|(_, stream, _)| !is_open(stream)));
        drop(in_order);
        drop(silent);
        assert_eq!(strangers.count(), 0);
    }
}
