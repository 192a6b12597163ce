//! Checkpoint images: a container of typed, compressed, checked blocks. What a section means, and what is in
//! the opaque geometry, is not known here.
//!
//! An image is written to a file of another name, synced, renamed, and its folder synced; a reader refuses a
//! file that is not whole. See `docs/design/log.md`.

mod layout;
mod reader;
mod writer;

pub use layout::{
    BLOCK_BYTES_MAX, BlockEntry, Codec, GEOMETRY_BYTES_MAX, IMAGE_VERSION, ImageHeader, ImageSummary,
};
pub use reader::{BlockBuffer, ImageReader};
pub use writer::{BlockEncoder, EncodedBlock, ImageWriter};

/// Why an image was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ImageFault {
    /// The file is shorter than an image can be, or than its footer says.
    #[error("it is truncated")]
    Truncated,
    /// The file does not begin like an image.
    #[error("it is not a checkpoint image")]
    NotAnImage,
    /// Another format version.
    #[error("it has format version {0}; this build reads version {IMAGE_VERSION}")]
    Version(u32),
    /// The header is damaged.
    #[error("its header's check does not match")]
    HeaderCheck,
    /// The footer is damaged, or the file was cut or written over.
    #[error("its footer's check does not match")]
    FooterCheck,
    /// The block index is damaged.
    #[error("its block index's check does not match")]
    IndexCheck,
    /// Sound checks over fields that contradict one another.
    #[error("it contradicts itself")]
    Contradiction,
    /// A block is damaged.
    #[error("the check of block {0} does not match")]
    BlockCheck(u32),
    /// A block with a sound check does not decompress to what the index says.
    #[error("block {0} does not decompress")]
    BlockDecode(u32),
}
