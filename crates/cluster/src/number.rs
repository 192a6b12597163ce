//! The types of `cell_terms` as JSON: plain numbers and words. `terms` itself stays free of serde.

use cell_terms::{Csn, Durability, Epoch, Incarnation, NodeId, PairId, RegionId, SessionId, SlotIndex};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A typed number that JSON carries as a plain one.
pub trait Number: Copy {
    /// The plain number.
    fn to_number(self) -> u64;

    /// The typed one; `None` if the plain one is too large for it.
    fn from_number(number: u64) -> Option<Self>;
}

macro_rules! number {
    ($($name:ident($inner:ty)),* $(,)?) => {$(
        impl Number for $name {
            fn to_number(self) -> u64 {
                u64::from(self.0)
            }

            fn from_number(number: u64) -> Option<Self> {
                <$inner>::try_from(number).ok().map($name)
            }
        }
    )*};
}

number!(
    Csn(u64),
    Epoch(u32),
    Incarnation(u64),
    NodeId(u32),
    PairId(u32),
    RegionId(u32),
    SessionId(u64),
    SlotIndex(u32),
);

/// For `#[serde(with)]` and `#[serde(serialize_with)]` on a field.
///
/// # Errors
/// Those of the serializer.
pub fn serialize<T: Number, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    value.to_number().serialize(to)
}

pub(crate) fn deserialize<'de, T: Number, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::from_number(u64::deserialize(from)?).ok_or_else(|| D::Error::custom("number out of range"))
}

pub(crate) mod optional {
    use super::{Deserialize, Deserializer, Number, Serialize, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Number, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        value.map(T::to_number).serialize(to)
    }

    pub(crate) fn deserialize<'de, T: Number, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        match Option::<u64>::deserialize(from)? {
            None => Ok(None),
            Some(number) => {
                T::from_number(number).map(Some).ok_or_else(|| D::Error::custom("number out of range"))
            }
        }
    }
}

pub(crate) mod list {
    use super::{Deserialize, Deserializer, Number, Serializer};
    use serde::de::Error as _;

    pub(crate) fn serialize<T: Number, S: Serializer>(values: &[T], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(values.iter().map(|value| value.to_number()))
    }

    pub(crate) fn deserialize<'de, T: Number, D: Deserializer<'de>>(from: D) -> Result<Vec<T>, D::Error> {
        let numbers = Vec::<u64>::deserialize(from)?;
        let values = numbers.into_iter().map(T::from_number).collect::<Option<Vec<T>>>();
        values.ok_or_else(|| D::Error::custom("number out of range"))
    }
}

/// For [`Durability`], by the words of the setting.
pub mod durability {
    use super::{Deserialize, Deserializer, Durability, Serializer};
    use serde::de::Error as _;

    /// The setting's word for it.
    pub(crate) fn word(value: Durability) -> &'static str {
        match value {
            Durability::Sync => "sync",
            Durability::Async => "async",
            Durability::None => "none",
        }
    }

    /// For `#[serde(with)]` and `#[serde(serialize_with)]` on a field.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(value: &Durability, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(word(*value))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Durability, D::Error> {
        match String::deserialize(from)?.as_str() {
            "sync" => Ok(Durability::Sync),
            "async" => Ok(Durability::Async),
            "none" => Ok(Durability::None),
            other => Err(D::Error::unknown_variant(other, &["sync", "async", "none"])),
        }
    }
}
