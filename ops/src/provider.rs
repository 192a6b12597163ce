//! A coordinator that this process asks and does not host: nodes, agents and commands open it here, by its
//! place and the same settings.

use std::time::Duration;

use cell_cluster::{
    ClockReading, ClusterError, Coordinator, CoordinatorRequest, Etcd, Remote, Renewers, Response,
};
use cell_fabric::{TLS_CERTIFICATE_FILE, TLS_TRUST_FILE};
use cell_terms::setting::Settings;

use crate::exit::Failure;
use crate::process_settings::{COORDINATOR_TOKEN_FILE, EMBEDDED, ETCD};
use crate::{coordinator_tls, etcd_settings};

/// The settings by which one is reached, for commands that have no others.
pub(crate) const REACHED_BY: [&str; 12] = [
    "coordinator_deadline_ms",
    COORDINATOR_TOKEN_FILE,
    TLS_CERTIFICATE_FILE,
    TLS_TRUST_FILE,
    "etcd_endpoints",
    "etcd_prefix",
    "etcd_user",
    "etcd_password_file",
    "etcd_ca_file",
    "etcd_client_certificate_file",
    "etcd_client_key_file",
    "etcd_compaction",
];

/// Where a coordinator is, for people.
pub(crate) fn place_words(settings: &Settings) -> String {
    match settings.text("coordinator_address") {
        EMBEDDED => "this process itself".to_owned(),
        ETCD => etcd_settings::place_words(settings),
        place => place.to_owned(),
    }
}

/// A coordinator elsewhere.
pub(crate) enum Provider {
    Etcd(Etcd),
    /// At a unix socket, or over TLS.
    Remote(Remote),
}

impl Provider {
    /// The coordinator at this place: `etcd`, `tls://HOST:PORT`, or the path of a unix socket. Nothing is
    /// asked of it yet. Each call takes at most so long.
    pub(crate) fn open(place: &str, settings: &Settings, deadline: Duration) -> Result<Provider, Failure> {
        if place == ETCD {
            let etcd = etcd_settings::open(settings)?;
            etcd.set_deadline(deadline);
            return Ok(Provider::Etcd(etcd));
        }
        Ok(Provider::Remote(match coordinator_tls::address(place)? {
            Some(address) => coordinator_tls::open(address, settings, deadline)?,
            None => Remote::new(place, deadline),
        }))
    }

    /// Each call takes at most so long from now on.
    pub(crate) fn set_deadline(&self, deadline: Duration) {
        match self {
            Provider::Etcd(etcd) => etcd.set_deadline(deadline),
            Provider::Remote(remote) => remote.set_deadline(deadline),
        }
    }

    fn coordinator(&self) -> &dyn Coordinator {
        match self {
            Provider::Etcd(etcd) => etcd,
            Provider::Remote(remote) => remote,
        }
    }
}

impl Coordinator for Provider {
    fn call(&self, request: &CoordinatorRequest) -> Result<Response, ClusterError> {
        self.coordinator().call(request)
    }

    fn clock_ns(&self) -> Option<u64> {
        self.coordinator().clock_ns()
    }

    fn call_timed(
        &self,
        request: &CoordinatorRequest,
    ) -> Result<(Response, Option<ClockReading>), ClusterError> {
        self.coordinator().call_timed(request)
    }

    fn renewers(&self) -> Option<&Renewers> {
        self.coordinator().renewers()
    }
}
