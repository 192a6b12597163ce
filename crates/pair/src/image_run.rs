//! The copy of a pair into a checkpoint's image, a step at a time. In production one thread for each copy
//! steps it to its end; the simulator takes steps between the worker's turns.

use std::sync::{Arc, Mutex, PoisonError};

use cell_recovery::image::{ImageBase, ImageCopy, ImageError, ImageSource, WrittenImage};
use cell_terms::{Csn, PairId};
use cell_wal::Storage;

use crate::checkpoint_failure::CheckpointFailure;
use crate::meganodes::SlotEnds;
use crate::memory::MemoryObserver;
use crate::pair::Pair;

/// A pair of which images are written, as the threads that copy it see it.
#[derive(Clone)]
pub struct ImageSubject {
    /// The memory.
    pub source: Arc<ImageSource>,
    /// How far the meganodes' nodes go, announced by the owner before it makes new ones reachable.
    pub ends: Arc<SlotEnds>,
    /// The image that was written and is not recorded yet.
    written: Arc<Mutex<Option<WrittenImage>>>,
}

impl ImageSubject {
    /// What a pair's copies read.
    #[must_use]
    pub fn new<O: MemoryObserver>(pair: &Pair<O>) -> ImageSubject {
        ImageSubject { source: Arc::new(pair.source()), ends: pair.slot_ends(), written: Arc::default() }
    }

    /// The image that was written last, once.
    #[must_use]
    pub fn take_written(&self) -> Option<WrittenImage> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps what became of an image.
    fn ended(&self, image: Result<WrittenImage, CheckpointFailure>) -> ImageEnd {
        let written = image.as_ref().map(|image| image.csn_max).map_err(|failure| *failure);
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = image.ok();
        ImageEnd { pair: self.source.pair, written }
    }

    fn failed(&self, error: ImageError) -> ImageTurn {
        tracing::error!(pair = self.source.pair.0, %error, "a checkpoint failed; the log goes on growing");
        ImageTurn::Failed { end: self.ended(Err((&error).into())), error }
    }
}

/// What became of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageEnd {
    /// The pair.
    pub pair: PairId,
    /// The highest CSN in the image, or why there is none.
    pub written: Result<Csn, CheckpointFailure>,
}

/// An image to be written.
pub struct ImageJob {
    of: ImageSubject,
    base: ImageBase,
}

/// What a step of a copy leads to.
pub enum ImageTurn {
    /// Step again.
    More(Box<ImageRun>),
    /// The image is written and synced: the owner is to be notified.
    Written(ImageEnd),
    /// There is no image: the owner is to be notified.
    Failed {
        /// For the owner.
        end: ImageEnd,
        /// Why.
        error: ImageError,
    },
}

impl ImageJob {
    /// An image of this pair, which begins with `base`.
    #[must_use]
    pub fn new(of: &ImageSubject, base: ImageBase) -> ImageJob {
        ImageJob { of: of.clone(), base }
    }

    /// The pair.
    #[must_use]
    pub fn pair(&self) -> PairId {
        self.of.source.pair
    }

    /// Begins the image.
    #[must_use]
    pub fn begin(self, storage: Arc<dyn Storage>, level: i32) -> ImageTurn {
        let ImageJob { of, base } = self;
        match ImageCopy::begin(of.source.clone(), storage, level, base) {
            Ok(copy) => ImageTurn::More(Box::new(ImageRun { of, copy })),
            Err(error) => of.failed(error),
        }
    }

    /// Writes the image in one go.
    #[must_use]
    pub fn run(self, storage: Arc<dyn Storage>, level: i32) -> ImageEnd {
        let mut turn = self.begin(storage, level);
        loop {
            match turn {
                ImageTurn::More(run) => turn = run.step(u32::MAX),
                ImageTurn::Written(end) | ImageTurn::Failed { end, .. } => return end,
            }
        }
    }
}

/// An image in progress.
pub struct ImageRun {
    of: ImageSubject,
    copy: ImageCopy<Arc<ImageSource>>,
}

impl ImageRun {
    /// Copies up to so many tree nodes, each with its extents.
    #[must_use]
    pub fn step(mut self: Box<ImageRun>, nodes_max: u32) -> ImageTurn {
        let copied = self.copy.step(&|slot| self.of.ends.end(slot), nodes_max);
        let ImageRun { of, copy } = match copied {
            Ok(true) => return ImageTurn::More(self),
            Ok(false) => *self,
            Err(error) => {
                let ImageRun { of, copy } = *self;
                copy.abandon();
                return of.failed(error);
            }
        };
        match copy.finish() {
            Ok(image) => ImageTurn::Written(of.ended(Ok(image))),
            Err(error) => of.failed(error),
        }
    }
}
