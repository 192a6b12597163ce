//! Images of a world's pairs, a step at a time, and what its worker knows of them.

use std::sync::Arc;

use cell_node::{CheckpointCommand, Command, ControlEvent};
use cell_pair::{CheckpointFailure, SlotEnds};
use cell_recovery::image::{ImageBase, ImageCopy, ImageSource, WrittenImage};
use cell_terms::{Csn, PairId};
use cell_test_kit::record_image;
use cell_wal::Errno;

use super::{Replied, TURNS, World};

/// An image that is being made.
pub(crate) struct Image {
    pair: PairId,
    copy: ImageCopy<ImageSource>,
    ends: Arc<SlotEnds>,
}

impl World {
    /// The answer to a request, waited for; images wanted meanwhile are written, if there is room.
    pub(crate) fn answer_with_checkpoints(&mut self, id: u32) -> Replied {
        let mut written = None;
        for _ in 0..TURNS {
            if let Some(replied) = self.answered(id) {
                return replied;
            }
            self.turn();
            for command in std::mem::take(&mut self.serving.commands) {
                match command {
                    Command::Checkpoint(pair, CheckpointCommand::WriteImage { base }) => {
                        written = self.write_image(pair, *base);
                        let csn_max = written.as_ref().map(|written: &WrittenImage| written.csn_max);
                        let written = csn_max.ok_or(CheckpointFailure::Disk(Errno::ENOSPC));
                        self.serving.worker.control(ControlEvent::ImageWritten { pair, written });
                    }
                    Command::Checkpoint(pair, CheckpointCommand::Record { base, csn_max }) => {
                        self.record(pair, base, csn_max, written.take().unwrap().path);
                        self.serving
                            .worker
                            .control(ControlEvent::CheckpointRecorded { pair, recorded: true });
                    }
                    _ => {}
                }
            }
        }
        panic!("request {id} is not answered");
    }

    fn write_image(&self, pair: PairId, base: ImageBase) -> Option<WrittenImage> {
        let store = self.serving.worker.pairs().find(|store| store.id() == pair).unwrap();
        let (source, ends) = (store.source(), store.slot_ends());
        let storage = Arc::new(self.serving.process.disk.clone());
        cell_recovery::image::write_image(&source, storage, 1, base, &|slot| ends.end(slot)).ok()
    }

    fn record(&self, pair: PairId, base: Csn, csn_max: Csn, file: String) {
        let process = &self.serving.process;
        let table = &process.environment.table;
        let ownership = process.ownership(pair, table.pair(pair).unwrap().epoch);
        record_image(table, &process.disk, ownership, base, (csn_max, file));
    }

    /// Waits until the worker wants an image of a pair, and begins it.
    pub(crate) fn next_image(&mut self, pair: PairId) -> Image {
        self.serving.commands.clear();
        for _ in 0..TURNS {
            self.turn();
            for command in std::mem::take(&mut self.serving.commands) {
                let Command::Checkpoint(of, CheckpointCommand::WriteImage { base }) = command else {
                    continue;
                };
                if of == pair {
                    let store = self.serving.worker.pairs().find(|store| store.id() == pair).unwrap();
                    let (source, ends) = (store.source(), store.slot_ends());
                    let copy =
                        ImageCopy::begin(source, Arc::new(self.serving.process.disk.clone()), 1, *base);
                    return Image { pair, copy: copy.unwrap(), ends };
                }
            }
        }
        panic!("no image of {pair} is wanted");
    }

    /// Copies so many tree nodes; whether there are more.
    pub(crate) fn step_image(&mut self, image: &mut Image, nodes: u32) -> bool {
        let Image { copy, ends, .. } = image;
        copy.step(&|slot| ends.end(slot), nodes).unwrap()
    }

    /// Completes an image and records the checkpoint.
    pub(crate) fn end_image(&mut self, image: Image) {
        self.record_image(image, true);
    }

    /// Completes an image and records the checkpoint; the worker is notified that this failed.
    pub(crate) fn end_image_unanswered(&mut self, image: Image) {
        self.record_image(image, false);
    }

    /// Completes an image, and nobody says so.
    pub(crate) fn finish_image(&mut self, image: Image) {
        image.copy.finish().unwrap();
    }

    /// Completes an image, and the worker is notified.
    pub(crate) fn image_written(&mut self, image: Image) -> WrittenImage {
        let Image { pair, copy, .. } = image;
        let written = copy.finish().unwrap();
        let event = ControlEvent::ImageWritten { pair, written: Ok(written.csn_max) };
        self.serving.worker.control(event);
        written
    }

    fn record_image(&mut self, image: Image, recorded: bool) {
        let pair = image.pair;
        let written = self.image_written(image);
        for _ in 0..TURNS {
            self.turn();
            for command in std::mem::take(&mut self.serving.commands) {
                let Command::Checkpoint(_, CheckpointCommand::Record { base, csn_max }) = command else {
                    continue;
                };
                self.record(pair, base, csn_max, written.path);
                return self.serving.worker.control(ControlEvent::CheckpointRecorded { pair, recorded });
            }
        }
        panic!("the image of {pair} is not recorded");
    }

    /// The worker's image could not be written.
    pub(crate) fn image_failed(&mut self, pair: PairId, why: CheckpointFailure) {
        self.serving.worker.control(ControlEvent::ImageWritten { pair, written: Err(why) });
    }
}
