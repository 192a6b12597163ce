//! Values that prove themselves: each is made from its name alone, so whoever reads one knows which it is,
//! and that no byte of it is another's.

use crate::operation::WrittenValue;

/// Every value says its name in its first bytes.
const NAME_BYTES: usize = 8;
/// One value in so many is larger than a message of the wire, so that streams are exercised.
const LARGE_EVERY: u64 = 211;
const LARGE_BYTES: u64 = 300_000;
const SMALL_BYTES: u64 = 500;

fn scatter(input: u64) -> u64 {
    let mut mixed = input.wrapping_add(0x9E37_79B9_7F4A_7C15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// The bytes of a value: 8 to some hundred, now and then some hundred thousand.
pub fn encode(name: WrittenValue) -> Vec<u8> {
    let bound = if name % LARGE_EVERY == 7 { LARGE_BYTES } else { SMALL_BYTES };
    let length = NAME_BYTES + usize::try_from(scatter(name) % bound).unwrap_or(0);
    let mut bytes = name.to_le_bytes().to_vec();
    let mut block = 0;
    while bytes.len() < length {
        block += 1;
        bytes.extend_from_slice(&scatter(name ^ block << 48).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// The name of a value; `None` if the bytes are no value that anyone wrote.
pub fn decode(bytes: &[u8]) -> Option<WrittenValue> {
    let name = WrittenValue::from_le_bytes(*bytes.first_chunk::<NAME_BYTES>()?);
    (encode(name) == bytes).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_says_whether_it_is_whole_or_damaged() {
        for name in [0, 1, 7, 211 + 7, u64::MAX] {
            let bytes = encode(name);
            assert_eq!(decode(&bytes), Some(name));
            assert_eq!(decode(&bytes[..bytes.len() - 1]), None);
            let mut damaged = bytes.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(decode(&damaged), None);
        }
        assert!((0..1_000).any(|name| encode(name).len() > 64 << 10));
    }
}
