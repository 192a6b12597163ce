//! The words of Cell as types: ids, pointers, numbers with units, the types of a setting and of a counter.
//!
//! Every crate uses this one, so it holds no logic beyond what makes the types safe to use. Different kinds
//! of numbers are different types; the words are those of ARCHITECTURE.md ("Glossary").

mod counter;
mod id;
mod id_map;
pub mod mutant;
mod number;
mod pointer;
mod publication;
mod root;
mod seldom;
pub mod setting;
pub mod text;
mod words;

pub use counter::{Counter, CounterKind, CounterValue};
pub use id::{
    ExtentOffset, Incarnation, NodeId, OperationNumber, PairId, RegionId, RegionKind, SessionId, SlotIndex,
};
pub use id_map::{IdHasher, IdMap};
pub use number::{Csn, Durability, Epoch, Version, Watermark};
pub use pointer::{OFFSET_BITS, Pointer, REGION_ID_BITS};
pub use publication::{SharedWord, publish_watermarks, published_watermarks};
pub use root::Root;
pub use seldom::Seldom;
pub use words::{WORDS_PER_LINE, Words, WordsMut};
