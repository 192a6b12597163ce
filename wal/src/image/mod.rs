//! Checkpoint images.

/// Why an image was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImageFault {
    /// The file is shorter than an image can be.
    #[error("it is truncated")]
    Truncated,
}
