//! Tokens that are not known, as places show them: who guesses is not listened to any more, for a while. A
//! pure core: the time is given to it.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use cell_fabric::PeerAddress;

use crate::rate_limit::RateLimit;

/// Tokens that are not known, a minute and place.
const FAILURES_PER_MINUTE: f64 = 10.0;

/// Where somebody is who shows a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LoginPlace {
    /// A network. One caller may have all addresses of an IPv6 network of 64 bits: they are counted together.
    Network(IpAddr),
    /// A user of this machine, as the kernel says.
    User(u32),
    /// This machine, where it is not known who asks: one with a wrong token must not lock the others out.
    Machine,
}

/// How often each place has failed to show a token of late.
#[derive(Debug)]
pub struct FailedLogins {
    failures: RateLimit<LoginPlace>,
}

impl LoginPlace {
    /// Of a network address.
    #[must_use]
    pub fn of_address(address: IpAddr) -> LoginPlace {
        match address.to_canonical() {
            address if address.is_loopback() => LoginPlace::Machine,
            IpAddr::V6(address) => {
                LoginPlace::Network(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into())
            }
            address => LoginPlace::Network(address),
        }
    }

    /// Of a peer of the fabric.
    #[must_use]
    pub fn of_peer(peer: Option<PeerAddress>) -> LoginPlace {
        match peer {
            Some(PeerAddress::Tcp(address)) => LoginPlace::of_address(address.ip()),
            Some(PeerAddress::Shm { user }) => LoginPlace::User(user),
            _ => LoginPlace::Machine,
        }
    }
}

impl Default for FailedLogins {
    fn default() -> FailedLogins {
        FailedLogins { failures: RateLimit::new(FAILURES_PER_MINUTE / 60.0, FAILURES_PER_MINUTE) }
    }
}

impl FailedLogins {
    /// Whether a token from there is looked at.
    ///
    /// # Errors
    /// When one is: there were too many that are not known.
    pub fn check(&self, place: LoginPlace, now: Duration) -> Result<(), Duration> {
        match place {
            LoginPlace::Machine => Ok(()),
            place => self.failures.check(&place, now),
        }
    }

    /// Counts a token that is not known.
    ///
    /// # Errors
    /// When the next one is looked at: there were too many before.
    pub fn count(&mut self, place: LoginPlace, now: Duration) -> Result<(), Duration> {
        self.failures.take(&place, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_after_too_many_failures_refuses_the_network_but_never_this_machine() {
        let mut logins = FailedLogins::default();
        let [one, same, other, local] = ["2001:db8::1", "2001:db8::2", "2001:db8:0:1::1", "::ffff:127.0.0.1"]
            .map(|address| LoginPlace::of_address(address.parse().unwrap()));
        let (now, user) = (Duration::from_secs(5), LoginPlace::of_peer(Some(PeerAddress::Shm { user: 7 })));
        for place in [one, local, user] {
            assert_eq!([(); 10].map(|()| logins.count(place, now)), [Ok(()); 10]);
            assert_eq!(logins.count(place, now), Err(Duration::from_secs(6)));
        }
        for place in [one, same, user] {
            assert_eq!(logins.check(place, now), Err(Duration::from_secs(6)), "{place:?}");
            assert_eq!(logins.check(place, now + Duration::from_secs(6)), Ok(()), "{place:?}");
        }
        let another = LoginPlace::of_peer(Some(PeerAddress::Shm { user: 8 }));
        assert_eq!([other, another, local].map(|place| logins.check(place, now)), [Ok(()); 3]);
        let loopback = LoginPlace::of_peer(Some(PeerAddress::Tcp("127.0.0.1:9".parse().unwrap())));
        assert_eq!(loopback, LoginPlace::Machine);
    }
}
