//! CRC-64 (XZ) of extents and of anything else.

use crc64fast::Digest;

use crate::fold;

/// CRC-64 (XZ) of an encoded extent, or of anything else.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u64 {
    match fold::sum_of(bytes) {
        Some(sum) => sum,
        None => {
            let mut digest = Digest::new();
            digest.write(bytes);
            digest.sum64()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_of_check_string_is_the_published_one() {
        assert_eq!(checksum(b"123456789"), 0x995d_c9bb_df19_39fa);
        assert_eq!(checksum(&[0; 1024]), 0xc378_6397_2069_270c);
    }
}
