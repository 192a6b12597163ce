//! Registrations: which regions of this process peers may read, by key.
//!
//! Where peers map memory (`shm`), the registry keeps a *ledger* as well: a page of words that peers map
//! for reading, one word a registration, which holds the key while the registration lasts. A peer looks at
//! it after each read, so that what it loaded after the registration's end is not taken for an answer.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(feature = "verbs")]
use std::sync::Arc;
use std::sync::{Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use cell_memory::Region;
use cell_terms::Words;
#[cfg(feature = "verbs")]
use cell_terms::{Epoch, RegionId};

use crate::error::FabricError;
use crate::remote_access::{RegionAccess, RegionKey};
use crate::shm::{SharedWords, seal_for_readers, sealed_file};
#[cfg(feature = "verbs")]
use crate::taken::{RegionDevice, TakenRegions};
#[cfg(feature = "verbs")]
use crate::verbs::{Device, RegisteredRegion, RemoteRegion};

/// Registrations that a ledger has words for.
pub(crate) const LEDGER_WORDS: usize = 8_192;

/// The registrations of one endpoint, or of all providers of a host's.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    regions: RwLock<HashMap<RegionKey, Registration>>,
    ledger: Option<Ledger>,
    /// Regions are registered with it too.
    #[cfg(feature = "verbs")]
    device: Option<Arc<Device>>,
    /// Regions that the device has taken and that are to be registered, each under the key that it gets.
    #[cfg(feature = "verbs")]
    taken: TakenRegions<RegisteredRegion>,
}

#[derive(Debug)]
struct Registration {
    region: Region,
    share: Option<Share>,
    #[cfg(feature = "verbs")]
    registered: Option<RegisteredRegion>,
}

/// What a peer needs to map a region.
#[derive(Debug)]
pub(crate) struct Share {
    /// Opened for reading.
    pub(crate) file: File,
    /// The registration's word in the ledger.
    pub(crate) slot: u32,
}

#[derive(Debug)]
struct Ledger {
    /// For reading alone.
    file: OwnedFd,
    words: SharedWords,
    /// Words that no registration has, the next one last.
    free: Mutex<Vec<u32>>,
}

impl Registry {
    /// With a ledger, so that regions can be handed to peers.
    ///
    /// # Errors
    /// No memory or no descriptor for the ledger.
    pub(crate) fn with_ledger() -> Result<Registry, FabricError> {
        let made = || -> std::io::Result<Ledger> {
            let file = sealed_file("cell-ledger", LEDGER_WORDS * 8)?;
            let words = SharedWords::map_writable(&file, LEDGER_WORDS)?;
            let file = seal_for_readers(&file)?;
            let slots = u32::try_from(LEDGER_WORDS).unwrap_or(0);
            Ok(Ledger { file, words, free: Mutex::new((0..slots).rev().collect()) })
        };
        let ledger = made().map_err(|source| FabricError::SharedMemory { source })?;
        Ok(Registry { ledger: Some(ledger), ..Registry::default() })
    }

    /// The registry with a device that regions are registered with too, whole.
    #[cfg(feature = "verbs")]
    pub(crate) fn with_device(self, device: Option<Arc<Device>>) -> Registry {
        Registry { device, ..self }
    }

    /// The device, if there is one.
    #[cfg(feature = "verbs")]
    pub(crate) fn device(&self) -> Option<&Arc<Device>> {
        self.device.as_ref()
    }

    /// Whether peers can come over RDMA.
    pub(crate) fn serves_verbs(&self) -> bool {
        #[cfg(feature = "verbs")]
        return self.device.is_some();
        #[cfg(not(feature = "verbs"))]
        false
    }

    /// Lets peers read the region by a fresh random key; to let them write to it takes a device.
    pub(crate) fn register(&self, region: &Region, access: RegionAccess) -> Result<RegionKey, FabricError> {
        if access != RegionAccess::Read && !self.serves_verbs() {
            return Err(FabricError::AccessUnavailable);
        }
        #[cfg(feature = "verbs")]
        let (key, registered) = match self.had_taken(region, access) {
            Some(taken) => taken,
            None => {
                let key = fresh_key()?;
                (key, self.register_with_device(region, key, access)?)
            }
        };
        #[cfg(not(feature = "verbs"))]
        let key = fresh_key()?;
        let share = self.ledger.as_ref().map(|ledger| ledger.enter(key, region)).transpose()?;
        let registration = Registration {
            region: region.clone(),
            share,
            #[cfg(feature = "verbs")]
            registered,
        };
        self.regions_mut().insert(key, registration);
        Ok(key)
    }

    #[cfg(feature = "verbs")]
    fn had_taken(
        &self,
        region: &Region,
        access: RegionAccess,
    ) -> Option<(RegionKey, Option<RegisteredRegion>)> {
        let taken = self.taken.claim(region.spec().id, region.spec().epoch);
        taken.filter(|_| access == RegionAccess::Read)
    }

    /// Who reads over other providers is served though the device does not take the region.
    #[cfg(feature = "verbs")]
    fn register_with_device(
        &self,
        region: &Region,
        key: RegionKey,
        access: RegionAccess,
    ) -> Result<Option<RegisteredRegion>, FabricError> {
        let Some(device) = &self.device else { return Ok(None) };
        match RegisteredRegion::new(device, region, key, access) {
            Ok(registered) => Ok(Some(registered)),
            Err(error) if access == RegionAccess::Read => {
                tracing::warn!(%error, region = %region.spec().id, "a region cannot be read over RDMA");
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Waits out a read that is at it, if one is: afterwards none goes through the key, and nobody can map
    /// it. A device's registration ends with the value, at the end of this.
    pub(crate) fn deregister(&self, key: RegionKey) {
        let ended = self.regions_mut().remove(&key);
        if let (Some(ledger), Some(Registration { share: Some(share), .. })) = (&self.ledger, &ended) {
            ledger.strike(share.slot);
        }
    }

    /// Does something with a region while it is certainly registered.
    pub(crate) fn with_region<T>(&self, key: RegionKey, work: impl FnOnce(&Region) -> T) -> Option<T> {
        self.regions().get(&key).map(|registration| work(&registration.region))
    }

    /// Hands a region out while it is certainly registered.
    pub(crate) fn with_share<T>(&self, key: RegionKey, work: impl FnOnce(&Share) -> T) -> Option<T> {
        self.regions().get(&key).and_then(|registration| registration.share.as_ref()).map(work)
    }

    /// How a device's peers address a region, while it is certainly registered.
    #[cfg(feature = "verbs")]
    pub(crate) fn remote_region(&self, key: RegionKey) -> Option<RemoteRegion> {
        self.regions().get(&key)?.registered.as_ref().map(RegisteredRegion::remote)
    }

    /// The ledger's file, for peers to map.
    pub(crate) fn ledger(&self) -> Option<BorrowedFd<'_>> {
        self.ledger.as_ref().map(|ledger| ledger.file.as_fd())
    }

    // No code that can panic runs under the lock.
    fn regions(&self) -> RwLockReadGuard<'_, HashMap<RegionKey, Registration>> {
        self.regions.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn regions_mut(&self) -> RwLockWriteGuard<'_, HashMap<RegionKey, Registration>> {
        self.regions.write().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fresh_key() -> Result<RegionKey, FabricError> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|errno| FabricError::Random { source: errno.into() })?;
    // Of 2^64 keys none is met twice; zero is what a free word of the ledger holds.
    Ok(RegionKey(u64::from_le_bytes(bytes).max(1)))
}

#[cfg(feature = "verbs")]
impl RegionDevice for Registry {
    /// Has the device take a region, whole: it locks all of the memory. To register the region is a matter of
    /// microseconds then.
    fn take(&self, region: &Region) -> Result<RegionKey, FabricError> {
        let key = fresh_key()?;
        let registered = self.register_with_device(region, key, RegionAccess::Read)?;
        self.taken.put(region.spec().id, region.spec().epoch, key, registered);
        Ok(key)
    }

    fn give_back(&self, region: RegionId, epoch: Epoch, key: RegionKey) {
        self.taken.give_back(region, epoch, key);
    }
}

impl Ledger {
    fn enter(&self, key: RegionKey, region: &Region) -> Result<Share, FabricError> {
        let file = region.share().map_err(|source| FabricError::RegionNotShared { source })?;
        let slot = self.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let slot = slot.ok_or(FabricError::TooManyRegions { max: LEDGER_WORDS })?;
        self.words.store_release(index(slot), key.0);
        Ok(Share { file, slot })
    }

    /// Ends a registration's word. The fence sets it before everything that the caller does to the memory
    /// next.
    fn strike(&self, slot: u32) {
        self.words.store_release(index(slot), 0);
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(slot);
    }
}

/// A ledger as a peer sees it.
#[derive(Debug)]
pub(crate) struct LedgerView(SharedWords);

impl LedgerView {
    /// Maps a peer's ledger.
    ///
    /// # Errors
    /// Not a sealed file of that size, or it cannot be mapped.
    pub(crate) fn open(file: &OwnedFd) -> std::io::Result<LedgerView> {
        SharedWords::map_readable(file, LEDGER_WORDS).map(LedgerView)
    }

    /// Whether the registration lasted when everything before this call was loaded.
    pub(crate) fn lasts(&self, slot: u32, key: RegionKey) -> bool {
        std::sync::atomic::fence(std::sync::atomic::Ordering::Acquire);
        index(slot) < LEDGER_WORDS && self.0.load(index(slot)) == key.0
    }
}

fn index(slot: u32) -> usize {
    usize::try_from(slot).unwrap_or(usize::MAX)
}
