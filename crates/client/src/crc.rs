//! The checksum of values on their way.

/// CRC-64/XZ.
pub(crate) fn crc(bytes: &[u8]) -> u64 {
    let mut digest = crc64fast::Digest::new();
    digest.write(bytes);
    digest.sum64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc_is_crc_64_xz() {
        assert_eq!(crc(b"123456789"), 0x995D_C9BB_DF19_39FA);
    }
}
