//! Regions that a device has taken ahead, from then until each is registered or given back. To lock a
//! region's memory takes long, and who polls an endpoint has no time for that.

#[cfg(any(test, feature = "verbs"))]
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;
#[cfg(any(test, feature = "verbs"))]
use std::sync::{Mutex, MutexGuard, PoisonError};

use cell_memory::Region;
use cell_terms::mutant::{Mutant, planted};
use cell_terms::{Epoch, RegionId};

use crate::error::FabricError;
use crate::remote_access::RegionKey;

/// A device that takes regions before they are registered.
pub trait RegionDevice: Debug + Send + Sync {
    /// Takes a region that peers are to read, whole, under the key that it will have. Nobody learns of the
    /// key before it is registered.
    ///
    /// # Errors
    /// No random bytes.
    fn take(&self, region: &Region) -> Result<RegionKey, FabricError>;

    /// Gives up what was taken under that key, unless it has been registered since.
    fn give_back(&self, region: RegionId, epoch: Epoch, key: RegionKey);
}

/// Has an endpoint's device take regions before the endpoint registers them, on any thread. Without a device
/// it does nothing.
#[derive(Clone, Debug, Default)]
pub struct RegionTaker {
    device: Option<Arc<dyn RegionDevice>>,
}

/// A region that a device has taken. Dropped before it is registered it is given back; afterwards that means
/// nothing. So a region that nobody comes to serve is not locked for ever.
#[derive(Debug)]
#[must_use = "dropped at once it is given back at once"]
pub struct TakenRegion {
    device: Arc<dyn RegionDevice>,
    region: RegionId,
    epoch: Epoch,
    key: RegionKey,
}

impl RegionTaker {
    /// Has this device take regions.
    #[must_use]
    pub fn of(device: Arc<dyn RegionDevice>) -> RegionTaker {
        RegionTaker { device: Some(device) }
    }

    /// Has the device take a region that peers are to read, whole; none without a device. A region that it
    /// does not take is reported, and registered without it.
    ///
    /// # Errors
    /// No random bytes.
    pub fn take(&self, region: &Region) -> Result<Option<TakenRegion>, FabricError> {
        let Some(device) = &self.device else { return Ok(None) };
        let key = device.take(region)?;
        let (region, epoch) = (region.spec().id, region.spec().epoch);
        Ok(Some(TakenRegion { device: Arc::clone(device), region, epoch, key }))
    }
}

impl Drop for TakenRegion {
    fn drop(&mut self) {
        if !planted(Mutant::TakenKept) {
            self.device.give_back(self.region, self.epoch, self.key);
        }
    }
}

/// What a device has taken, by region and epoch, each under the key that it gets. It has no registration
/// where the device did not take the region.
#[cfg(any(test, feature = "verbs"))]
#[derive(Debug)]
pub(crate) struct TakenRegions<R>(Mutex<Taken<R>>);

#[cfg(any(test, feature = "verbs"))]
type Taken<R> = HashMap<(RegionId, Epoch), (RegionKey, Option<R>)>;

#[cfg(any(test, feature = "verbs"))]
impl<R> Default for TakenRegions<R> {
    fn default() -> TakenRegions<R> {
        TakenRegions(Mutex::default())
    }
}

#[cfg(any(test, feature = "verbs"))]
impl<R> TakenRegions<R> {
    pub(crate) fn put(&self, region: RegionId, epoch: Epoch, key: RegionKey, registered: Option<R>) {
        let before = self.lock().insert((region, epoch), (key, registered));
        drop(before); // to end a registration takes a while: not under the lock
    }

    /// Takes it out: it is to be registered.
    pub(crate) fn claim(&self, region: RegionId, epoch: Epoch) -> Option<(RegionKey, Option<R>)> {
        self.lock().remove(&(region, epoch))
    }

    /// Ends what was taken under this key, if it is still here.
    pub(crate) fn give_back(&self, region: RegionId, epoch: Epoch, key: RegionKey) {
        let mut taken = self.lock();
        let is_it = taken.get(&(region, epoch)).is_some_and(|(of, _)| *of == key);
        let ended = if is_it { taken.remove(&(region, epoch)) } else { None };
        drop(taken);
        drop(ended);
    }

    fn lock(&self) -> MutexGuard<'_, Taken<R>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cell_memory::{HugePages, RegionOptions, RegionSpec};
    use cell_terms::PairId;

    use super::*;

    /// Its registrations are references to one thing, which can be counted.
    #[derive(Debug, Default)]
    struct Fake {
        taken: TakenRegions<Arc<()>>,
        memory: Arc<()>,
        keys: Mutex<u64>,
    }

    impl Fake {
        fn locked(&self) -> usize {
            Arc::strong_count(&self.memory) - 1
        }
    }

    impl RegionDevice for Fake {
        fn take(&self, region: &Region) -> Result<RegionKey, FabricError> {
            let mut keys = self.keys.lock().unwrap();
            *keys += 1;
            let key = RegionKey(*keys);
            self.taken.put(region.spec().id, region.spec().epoch, key, Some(self.memory.clone()));
            Ok(key)
        }

        fn give_back(&self, region: RegionId, epoch: Epoch, key: RegionKey) {
            self.taken.give_back(region, epoch, key);
        }
    }

    fn region(epoch: u32) -> Region {
        let spec = RegionSpec::extent(PairId(4), Epoch(epoch), 2 << 20).unwrap();
        let options = RegionOptions { pages: HugePages::Small, memory_check: false };
        Region::create(&spec, options).unwrap().0
    }

    /// A copy that failed kept its memory locked, and the memory itself, for as long as the process lived.
    fn what_nobody_registers_is_given_back() {
        let fake = Arc::new(Fake::default());
        let taker = RegionTaker::of(fake.clone());
        let (first, second) = (region(1), region(2));
        let taken = taker.take(&first).unwrap().unwrap();
        let other = taker.take(&second).unwrap().unwrap();
        assert_eq!(fake.locked(), 2);
        drop(other);
        assert_eq!(fake.locked(), 1, "each by itself");
        // What is registered is the endpoint's: it ends with that, and not before.
        let (key, registered) = fake.taken.claim(first.spec().id, first.spec().epoch).unwrap();
        assert_eq!(key, RegionKey(1));
        drop(taken);
        assert_eq!(fake.locked(), 1);
        drop(registered);
        assert_eq!(fake.locked(), 0);
    }

    #[test]
    fn region_that_nobody_registers_is_given_back() {
        what_nobody_registers_is_given_back();
    }

    #[test]
    #[cfg(debug_assertions)]
    fn mutant_taken_kept_is_caught() {
        use cell_terms::mutant::plant;
        cell_terms::mutant::in_own_process(|| {
            plant(Some(Mutant::TakenKept));
            let passed = std::panic::catch_unwind(what_nobody_registers_is_given_back).is_ok();
            plant(None);
            assert!(!passed);
            println!("mutant {} caught by cell-fabric's taken regions", Mutant::TakenKept.name());
        });
    }

    #[test]
    fn give_back_of_an_earlier_take_leaves_a_later_one_alone() {
        let fake = Arc::new(Fake::default());
        let taker = RegionTaker::of(fake.clone());
        let region = region(1);
        let earlier = taker.take(&region).unwrap().unwrap();
        let later = taker.take(&region).unwrap().unwrap();
        assert_eq!(fake.locked(), 1, "the later one is in its place");
        drop(earlier);
        assert_eq!(fake.locked(), 1);
        drop(later);
        assert_eq!(fake.locked(), 0);
        assert!(RegionTaker::default().take(&region).unwrap().is_none(), "without a device nothing happens");
    }
}
