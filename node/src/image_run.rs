//! The copy of a pair into a checkpoint's image, a step at a time. In production one thread for each copy
//! steps it to its end; the simulator takes steps between the worker's turns.

use std::sync::{Arc, Mutex, PoisonError};

use cell_recovery::image::{ImageBase, ImageCopy, ImageError, ImageSource, WrittenImage};
use cell_terms::PairId;
use cell_wal::Storage;

use crate::store::{SlotEnds, Store};
use crate::worker::ControlEvent;

/// What is needed to copy a pair.
#[derive(Clone)]
pub(crate) struct Copied {
    pub(crate) source: Arc<ImageSource>,
    /// How far the meganodes' nodes go, told by the worker before it makes new ones reachable.
    pub(crate) ends: Arc<SlotEnds>,
    /// The image that was written and is not recorded yet.
    written: Arc<Mutex<Option<WrittenImage>>>,
}

impl Copied {
    pub(crate) fn new(store: &Store) -> Copied {
        Copied { source: Arc::new(store.source()), ends: store.slot_ends(), written: Arc::default() }
    }

    /// The image that was written last, once.
    pub(crate) fn take_written(&self) -> Option<WrittenImage> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Keeps what became of an image; the worker is to be told.
    fn ended(&self, image: Option<WrittenImage>) -> ControlEvent {
        let csn_max = image.as_ref().map(|image| image.csn_max);
        *self.written.lock().unwrap_or_else(PoisonError::into_inner) = image;
        ControlEvent::ImageWritten { pair: self.source.pair, csn_max }
    }

    fn failed(&self, error: ImageError) -> ImageTurn {
        tracing::error!(%error, "a checkpoint failed; the log goes on growing");
        ImageTurn::Failed { event: self.ended(None), error }
    }
}

/// An image to be written.
pub struct ImageJob {
    of: Copied,
    base: ImageBase,
}

/// What a step of a copy leads to.
pub enum ImageTurn {
    /// Step again.
    More(Box<ImageRun>),
    /// The image is written and synced: the worker is to be told so.
    Written(ControlEvent),
    /// There is no image: the worker is to be told so.
    Failed {
        /// For the worker.
        event: ControlEvent,
        /// Why.
        error: ImageError,
    },
}

impl ImageJob {
    pub(crate) fn new(of: &Copied, base: ImageBase) -> ImageJob {
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

    /// Writes the image in one go; what the worker is to be told.
    pub(crate) fn run(self, storage: Arc<dyn Storage>, level: i32) -> ControlEvent {
        let mut turn = self.begin(storage, level);
        loop {
            match turn {
                ImageTurn::More(run) => turn = run.step(u32::MAX),
                ImageTurn::Written(event) | ImageTurn::Failed { event, .. } => return event,
            }
        }
    }
}

/// An image in progress.
pub struct ImageRun {
    of: Copied,
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
            Ok(image) => ImageTurn::Written(of.ended(Some(image))),
            Err(error) => of.failed(error),
        }
    }
}
