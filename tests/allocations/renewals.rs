//! What renewals of a lease allocate in the process that holds it: nothing, so that none waits for a process
//! that takes or gives back memory.

use std::sync::Arc;

use allocation_counter::measure;
use cell_cluster::local_socket::own_user;
use cell_cluster::{Coordinator, CoordinatorServer, Embedded, Remote};
use cell_tests::wait::PATIENCE;

#[test]
fn renewals_allocate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let embedded: Arc<dyn Coordinator> = Arc::new(Embedded::open(folder.path()).unwrap());
    let path = folder.path().join("coordinator.socket");
    let server = CoordinatorServer::start(embedded.clone(), &path, |_| Ok(own_user())).unwrap();
    let remote: Arc<dyn Coordinator> = Arc::new(Remote::new(server.path(), PATIENCE));
    for coordinator in [embedded, remote] {
        let lease = coordinator.grant(60_000).unwrap().lease;
        coordinator.keep_alive(lease).unwrap();
        let renewed = || assert!(coordinator.keep_alive_timed(lease).unwrap().is_some());
        let counted = measure(|| (0..100).for_each(|_| renewed()));
        assert_eq!(counted.count_total, 0, "{counted:?}");
    }
}
