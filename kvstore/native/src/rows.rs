//! Rows of the database with their checksums, as `kvstore.storage.row_sums` describes them.
//!
//! ```text
//! stored = value | CRC-32C of key | value, begun at RESIDUE; 4 bytes little-endian
//! ```

pub const SUM_BYTES: usize = 4;
const RESIDUE: u32 = 0x4867_4BC7; // what any bytes with their own CRC-32C behind them give

/// The checksum of a row.
pub fn sum(key: &[u8], value: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(RESIDUE, key), value)
}

/// The value of a stored row, or None if it is not what was written.
pub fn checked<'a>(key: &[u8], stored: &'a [u8]) -> Option<&'a [u8]> {
    let (value, written) = stored.split_last_chunk::<SUM_BYTES>()?;
    (sum(key, value) == u32::from_le_bytes(*written)).then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_its_value_if_nothing_was_changed() {
        let mut stored = b"value".to_vec();
        stored.extend_from_slice(&sum(b"key", b"value").to_le_bytes());
        assert_eq!(checked(b"key", &stored), Some(&b"value"[..]));
        assert_eq!(checked(b"kez", &stored), None);
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 0x10;
            assert_eq!(checked(b"key", &damaged), None);
        }
    }

    #[test]
    fn a_row_without_room_for_a_checksum_is_damaged() {
        for size in 0..SUM_BYTES {
            assert_eq!(checked(b"key", &vec![0; size]), None);
        }
    }
}
