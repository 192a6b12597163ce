//! The whole takeover of a pair, for a control thread: claim, rebuild, new logs, wait, publish.
//!
//! The order is the point. The cut is recorded before the new logs are created, because their first frames name it; the
//! new logs are open (files and folders synced) before the pair is published, because a published epoch's folders are
//! expected by the next recovery; and nobody serves before the trust that earlier owners granted has run out, which
//! the publication's own transaction checks.
//!
//! 1. owner A answers a client at 0 ms: trust until 500 ms, and dies at 1 ms;
//! 2. B, on the same host, finds A's lock free and has replayed at 100 ms;
//! 3. if B served now, a write to B at 110 ms would be missed by the client's one-sided read of A's memory at 120 ms.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use cell_cluster::{Claim, ClusterError, Place, Tenure};
use cell_terms::Durability;
use cell_wal::{LogDevice, LogId, LogOptions, LogStart, PairLog, Predecessor};

use crate::error::RecoveryError;
use crate::progress::{Progress, RecoveryStage};
use crate::rebuild::{ClaimRequest, Environment, Rebuild, Rebuilt, Step};
use crate::recovered::Recovered;

/// How long to wait before a call of the coordinator is made again.
const RETRY_NS: u64 = 20_000_000;
/// How long to wait for the disk before asking again.
const DISK_NS: u64 = 200_000;
/// Trust is asked about again at least so often: a coordinator that restarts counts leases as just granted.
const TRUST_NS: u64 = 50_000_000;

/// How the pair will be served.
#[derive(Clone, Debug)]
pub struct PublishRequest {
    /// When writes are acknowledged; with `none` there are no logs.
    pub durability: Durability,
    /// Where.
    pub place: Place,
    /// How logs are written.
    pub log: LogOptions,
    /// A random number that no client can guess, fresh for each takeover: see [`LogStart::salt`].
    pub salt: u64,
}

/// Waits for so many nanoseconds, or longer; `false` gives the takeover up. In the simulator, time passes in it.
pub type Pause<'a> = dyn FnMut(u64) -> bool + 'a;

/// Takes a pair over, from the claim to its publication. What keeps it from being served is written to the region
/// table, if it is the pair's own data.
///
/// # Errors
/// See [`RecoveryError`]. Nothing is served then; the claim stands until somebody claims the pair again.
pub fn take_over(
    environment: &Environment,
    claim: &ClaimRequest,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
    progress: &Arc<Progress>,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    let rebuild = insist(pause, || Rebuild::claim(environment, claim, progress))?;
    complete(environment, rebuild, publish, device, progress, pause)
}

/// [`take_over`] after the claim.
///
/// # Errors
/// As [`take_over`].
pub fn complete(
    environment: &Environment,
    rebuild: Rebuild,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
    progress: &Arc<Progress>,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    let tenure = rebuild.tenure();
    let done = run(environment, rebuild, publish, device, progress, pause);
    if let Err(error) = &done {
        progress.set_stage(RecoveryStage::Failed);
        report(environment, tenure, error);
    }
    done
}

fn run(
    environment: &Environment,
    mut rebuild: Rebuild,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
    progress: &Arc<Progress>,
    pause: &mut Pause<'_>,
) -> Result<Recovered, RecoveryError> {
    let tenure = rebuild.tenure();
    let log = LogId { pair: tenure.pair, epoch: tenure.epoch };
    let mut opening = None;
    while insist(pause, || rebuild.step())? == Step::More {
        // The disk makes the first segments ready while the rebuild is verified.
        if let (None, Some(predecessor)) = (&opening, rebuild.predecessor()) {
            opening = begin_log(log, predecessor, publish, device)?;
        }
    }
    let Rebuilt { claim, mut recovered, predecessor, .. } = rebuild.finish();
    if opening.is_none() {
        opening = begin_log(log, predecessor, publish, device)?;
    }
    progress.set_stage(RecoveryStage::Opening);
    recovered.log = match opening {
        Some(opening) => Some(open_log(opening, device, pause)?),
        None => None,
    };
    progress.set_stage(RecoveryStage::Waiting);
    wait_for_trust(environment, &claim, publish, pause)?;
    progress.set_stage(RecoveryStage::Serving);
    tracing::info!(
        pair = tenure.pair.0,
        epoch = tenure.epoch.0,
        cut = recovered.csn_cut.0,
        entries = recovered.entries,
        log_bytes = recovered.log_bytes,
        "pair taken over"
    );
    Ok(recovered)
}

fn begin_log(
    log: LogId,
    predecessor: Predecessor,
    publish: &PublishRequest,
    device: &mut dyn LogDevice,
) -> Result<Option<PairLog>, RecoveryError> {
    if publish.durability == Durability::None {
        return Ok(None);
    }
    let start = LogStart { log, predecessor, salt: publish.salt };
    let log = PairLog::create(start, publish.log, device);
    device.submit()?;
    Ok(Some(log))
}

/// Waits until both logs' opening frames are durable.
fn open_log(
    mut log: PairLog,
    device: &mut dyn LogDevice,
    pause: &mut Pause<'_>,
) -> Result<PairLog, RecoveryError> {
    let mut events = Vec::new();
    let mut waited_ns = 0;
    while !log.is_open() {
        device.poll(&mut events);
        if events.is_empty() {
            log.tick(Duration::from_nanos(waited_ns), device)?;
            device.submit()?;
            if !pause(DISK_NS) {
                return Err(RecoveryError::GivenUp);
            }
            waited_ns += DISK_NS;
        }
        for event in events.drain(..) {
            log.on_event(event, device)?;
        }
        device.submit()?;
    }
    Ok(log)
}

fn wait_for_trust(
    environment: &Environment,
    claim: &Claim,
    publish: &PublishRequest,
    pause: &mut Pause<'_>,
) -> Result<(), RecoveryError> {
    loop {
        let remaining = insist(pause, || Ok(environment.table.trust_remaining_ns(claim)?))?;
        if let Some(remaining_ns) = remaining {
            if !pause(remaining_ns.clamp(1, TRUST_NS)) {
                return Err(RecoveryError::GivenUp);
            }
            continue;
        }
        let published = insist(pause, || {
            Ok(environment.table.publish(claim.tenure, publish.durability, &publish.place)?)
        });
        match published {
            Err(RecoveryError::Cluster(ClusterError::TrustRemains { .. })) => {}
            other => return other.map(|_| ()),
        }
    }
}

/// Calls again what failed for a reason that may pass, as long as the caller waits.
fn insist<T>(
    pause: &mut Pause<'_>,
    mut call: impl FnMut() -> Result<T, RecoveryError>,
) -> Result<T, RecoveryError> {
    loop {
        match call() {
            Err(error) if error.is_transient() => {
                tracing::debug!(error = &error as &dyn Error, "recovery waits for the coordinator");
                if !pause(RETRY_NS) {
                    return Err(error);
                }
            }
            other => return other,
        }
    }
}

/// Tells the region table, so that everybody sees what the pair lacks.
fn report(environment: &Environment, tenure: Tenure, error: &RecoveryError) {
    tracing::error!(pair = tenure.pair.0, error = error as &dyn Error, "the pair cannot be recovered");
    let Some(missing) = error.missing(tenure.pair) else { return };
    if let Err(failed) = environment.table.mark_unavailable(tenure, &missing) {
        let error = &failed as &dyn Error;
        tracing::warn!(
            pair = tenure.pair.0,
            error,
            "the region table does not say that the pair is unavailable"
        );
    }
}
