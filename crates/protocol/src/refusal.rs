//! Status codes, and what the caller should do.
//!
//! A reply whose status is [`StatusCode::Ok`] has the body of its kind. [`StatusCode::NotFound`] has no body.
//! Every other status comes with kind [`crate::ReplyKind::Refused`] (`NotOwner` with a hint as
//! [`crate::ReplyKind::Elsewhere`]) and this body:
//!
//! | status | body |
//! |---|---|
//! | `ConditionFailed` | present u8 (0 or 1), reserved 7, version 16 (zero when absent) |
//! | `ReadOnly` | reason u8, reserved 7 |
//! | `Malformed` | what u8, reserved 7 |
//! | `KeyInvalid`, `ValueTooLarge`, `TooLong` | length u32, most permitted u32 |
//! | `NumberBelowFloor` | floor u64 |
//! | `VersionUnsupported` | lowest u16, highest u16, reserved 4 |
//! | all others | none |

use cell_terms::{OperationNumber, Version};

use crate::cursor::{Reader, VERSION_BYTES, Writer};
use crate::wire_enum::wire_enum;
use crate::{DecodeError, EncodeError, Malformed};

wire_enum! {
    /// How a request ended. "Was not done" below means: surely not, and never will be by this request.
    pub enum StatusCode: u16 {
        /// Done.
        Ok = 0,
        /// There is no such key. An answer, not a failure.
        NotFound = 1,
        /// The condition of a write does not hold; the write was not done and will not be. Look at the
        /// current version and decide anew.
        ConditionFailed = 2,
        /// A queue is full; the request was not done. Try again after a while, longer each time.
        Busy = 3,
        /// The pair takes no writes (the reason says why); reads and, but for a failed log, deletes go on.
        /// Not done. An operator must act; do not hammer.
        ReadOnly = 4,
        /// The key is empty or too long. Not done. Do not repeat.
        KeyInvalid = 5,
        /// The value is too long. Not done. Do not repeat.
        ValueTooLarge = 6,
        /// The session was never opened or has ended. This copy was not done; an earlier copy of the same
        /// write may have been. Open a new session; only a write that was sent once may be sent again in it.
        SessionUnknown = 7,
        /// The client itself said that it does not wait for this number any more. This copy was not done; its
        /// fate was decided before. Do not repeat.
        NumberBelowFloor = 8,
        /// The pair is being recovered. Not done. Try again until it is.
        Recovering = 9,
        /// This worker does not own what the request is about. Not done. Learn the owner, from the hint if
        /// there is one ([`crate::Reply::Elsewhere`]), and ask there.
        NotOwner = 10,
        /// The bytes are not a request, or the request makes no sense now. Not done. A defect of the client.
        Malformed = 11,
        /// The request or its answer is longer than permitted. Not done. Ask for less.
        TooLong = 12,
        /// The server is going away. Not done. Connect again, here after a while or elsewhere.
        Shutdown = 13,
        /// The server broke a promise of its own and says so rather than guess. The fate of a write is
        /// unknown: ask again with the same number.
        Internal = 14,
        /// The hello's protocol version is not spoken here. Use one of those in the body.
        VersionUnsupported = 15,
        /// The token is missing, wrong or lacks the role. Not done. Do not repeat without another token.
        Unauthorized = 16,
        /// The node's coordinator, which opens the sessions, does not answer it, or takes no more
        /// connections. Not done. Try again after a while, longer each time. Who has a session goes on.
        CoordinatorAway = 17,
    }
}

wire_enum! {
    /// Why a pair takes no writes.
    pub enum ReadOnlyReason: u8 {
        /// The disk under the log is full. Deletes go on out of a reserve.
        DiskFull = 1,
        /// A region has no room. Deletes go on out of a reserve.
        RegionFull = 2,
        /// The log failed; the node is giving its pairs up.
        LogFailed = 3,
        /// The disk under the coordinator is full, so that no session is opened. Who has one goes on.
        CoordinatorFull = 4,
    }
}

/// A status other than Ok and NotFound, with its body. What each asks of the caller is described at
/// [`StatusCode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// [`StatusCode::ConditionFailed`]
    #[error("the condition does not hold: there is {}", Present(*current))]
    ConditionFailed {
        /// The entry's version, if there is an entry.
        current: Option<Version>,
    },
    /// [`StatusCode::Busy`]
    #[error("the server is busy")]
    Busy,
    /// [`StatusCode::ReadOnly`]
    #[error("the pair is read-only: {reason}")]
    ReadOnly {
        /// Why.
        reason: ReadOnlyReason,
    },
    /// [`StatusCode::KeyInvalid`]
    #[error("a key has 1 to {max} bytes here, this one {len}")]
    KeyInvalid {
        /// Its length.
        len: u32,
        /// The longest permitted.
        max: u32,
    },
    /// [`StatusCode::ValueTooLarge`]
    #[error("a value has at most {max} bytes here, this one {len}")]
    ValueTooLarge {
        /// Its length.
        len: u32,
        /// The longest permitted.
        max: u32,
    },
    /// [`StatusCode::SessionUnknown`]
    #[error("the session is unknown or has ended")]
    SessionUnknown,
    /// [`StatusCode::NumberBelowFloor`]
    #[error("the write's number is below its session's floor, {}", floor.0)]
    NumberBelowFloor {
        /// The floor that the pair knows.
        floor: OperationNumber,
    },
    /// [`StatusCode::Recovering`]
    #[error("the pair is being recovered")]
    Recovering,
    /// [`StatusCode::NotOwner`]
    #[error("this worker does not own the key")]
    NotOwner,
    /// [`StatusCode::Malformed`]
    #[error("the server could not read the request ({what:?})")]
    Malformed {
        /// What is wrong with it.
        what: Malformed,
    },
    /// [`StatusCode::TooLong`]
    #[error("the request asks for {len}, at most {max} are permitted")]
    TooLong {
        /// What was asked for.
        len: u32,
        /// The most permitted.
        max: u32,
    },
    /// [`StatusCode::Shutdown`]
    #[error("the server is shutting down")]
    Shutdown,
    /// [`StatusCode::Internal`]
    #[error("the server found a defect of its own; its log has more")]
    Internal,
    /// [`StatusCode::VersionUnsupported`]
    #[error("the server speaks protocol versions {min} to {max}")]
    VersionUnsupported {
        /// The oldest version spoken.
        min: u16,
        /// The newest version spoken.
        max: u16,
    },
    /// [`StatusCode::Unauthorized`]
    #[error("the token is missing, wrong or lacks the role")]
    Unauthorized,
    /// [`StatusCode::CoordinatorAway`]
    #[error(
        "the coordinator of the node is not reached, or takes no more connections, and without it no session \
         is opened"
    )]
    CoordinatorAway,
}

/// What there is, in words.
struct Present(Option<Version>);

impl std::fmt::Display for Present {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(version) => write!(f, "an entry of version {version}"),
            None => f.write_str("no entry"),
        }
    }
}

impl std::fmt::Display for ReadOnlyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ReadOnlyReason::DiskFull => "the disk under the log is full",
            ReadOnlyReason::RegionFull => "its region is full",
            ReadOnlyReason::LogFailed => "its log failed",
            ReadOnlyReason::CoordinatorFull => {
                "the disk under the coordinator is full, so that no new client can write"
            }
        })
    }
}

impl Refusal {
    /// The status code that goes with it.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Refusal::ConditionFailed { .. } => StatusCode::ConditionFailed,
            Refusal::Busy => StatusCode::Busy,
            Refusal::ReadOnly { .. } => StatusCode::ReadOnly,
            Refusal::KeyInvalid { .. } => StatusCode::KeyInvalid,
            Refusal::ValueTooLarge { .. } => StatusCode::ValueTooLarge,
            Refusal::SessionUnknown => StatusCode::SessionUnknown,
            Refusal::NumberBelowFloor { .. } => StatusCode::NumberBelowFloor,
            Refusal::Recovering => StatusCode::Recovering,
            Refusal::NotOwner => StatusCode::NotOwner,
            Refusal::Malformed { .. } => StatusCode::Malformed,
            Refusal::TooLong { .. } => StatusCode::TooLong,
            Refusal::Shutdown => StatusCode::Shutdown,
            Refusal::Internal => StatusCode::Internal,
            Refusal::VersionUnsupported { .. } => StatusCode::VersionUnsupported,
            Refusal::Unauthorized => StatusCode::Unauthorized,
            Refusal::CoordinatorAway => StatusCode::CoordinatorAway,
        }
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), EncodeError> {
        match *self {
            Refusal::ConditionFailed { current } => {
                writer.u8(u8::from(current.is_some()))?;
                writer.reserved(7)?;
                writer.version(current.unwrap_or_default())
            }
            Refusal::ReadOnly { reason } => {
                writer.u8(reason.code())?;
                writer.reserved(7)
            }
            Refusal::Malformed { what } => {
                writer.u8(what.code())?;
                writer.reserved(7)
            }
            Refusal::KeyInvalid { len, max }
            | Refusal::ValueTooLarge { len, max }
            | Refusal::TooLong { len, max } => {
                writer.u32(len)?;
                writer.u32(max)
            }
            Refusal::NumberBelowFloor { floor } => writer.u64(floor.0),
            Refusal::VersionUnsupported { min, max } => {
                writer.u16(min)?;
                writer.u16(max)?;
                writer.reserved(4)
            }
            Refusal::Busy
            | Refusal::SessionUnknown
            | Refusal::Recovering
            | Refusal::NotOwner
            | Refusal::Shutdown
            | Refusal::Internal
            | Refusal::Unauthorized
            | Refusal::CoordinatorAway => Ok(()),
        }
    }

    /// The refusal that a status and its body say; none for Ok and NotFound.
    pub(crate) fn decode(
        status: StatusCode,
        reader: &mut Reader<'_>,
    ) -> Result<Option<Refusal>, DecodeError> {
        Ok(Some(match status {
            StatusCode::Ok | StatusCode::NotFound => return Ok(None),
            StatusCode::ConditionFailed => Refusal::ConditionFailed { current: current(reader)? },
            StatusCode::Busy => Refusal::Busy,
            StatusCode::ReadOnly => {
                let code = reader.u8()?;
                let reason = ReadOnlyReason::from_code(code).ok_or_else(|| reader.bad_tag(code))?;
                reader.reserved(7)?;
                Refusal::ReadOnly { reason }
            }
            StatusCode::KeyInvalid => Refusal::KeyInvalid { len: reader.u32()?, max: reader.u32()? },
            StatusCode::ValueTooLarge => Refusal::ValueTooLarge { len: reader.u32()?, max: reader.u32()? },
            StatusCode::SessionUnknown => Refusal::SessionUnknown,
            StatusCode::NumberBelowFloor => {
                Refusal::NumberBelowFloor { floor: OperationNumber(reader.u64()?) }
            }
            StatusCode::Recovering => Refusal::Recovering,
            StatusCode::NotOwner => Refusal::NotOwner,
            StatusCode::Malformed => {
                let code = reader.u8()?;
                let what = Malformed::from_code(code).ok_or_else(|| reader.bad_tag(code))?;
                reader.reserved(7)?;
                Refusal::Malformed { what }
            }
            StatusCode::TooLong => Refusal::TooLong { len: reader.u32()?, max: reader.u32()? },
            StatusCode::Shutdown => Refusal::Shutdown,
            StatusCode::Internal => Refusal::Internal,
            StatusCode::VersionUnsupported => {
                let refusal = Refusal::VersionUnsupported { min: reader.u16()?, max: reader.u16()? };
                reader.reserved(4)?;
                refusal
            }
            StatusCode::Unauthorized => Refusal::Unauthorized,
            StatusCode::CoordinatorAway => Refusal::CoordinatorAway,
        }))
    }
}

fn current(reader: &mut Reader<'_>) -> Result<Option<Version>, DecodeError> {
    let present = reader.u8()?;
    reader.reserved(7)?;
    match present {
        0 => reader.reserved(VERSION_BYTES).map(|()| None),
        1 => reader.version().map(Some),
        other => Err(reader.bad_tag(other)),
    }
}
