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

const JOINED_BYTES_MAX: usize = 16 << 10; // stays in the nearest cache

/// Checks many rows with few calls: key | stored | key | stored | … gives the residue if all are intact,
/// and one long text is checked faster than its parts.
#[derive(Default)]
pub struct Checker {
    joined: Vec<u8>,
    is_damaged: bool,
}

impl Checker {
    pub fn add(&mut self, key: &[u8], stored: &[u8]) {
        let size = key.len() + stored.len();
        if stored.len() < SUM_BYTES || size > JOINED_BYTES_MAX {
            self.is_damaged |= checked(key, stored).is_none();
            return;
        }
        if self.joined.len() + size > JOINED_BYTES_MAX {
            self.check_joined();
        }
        self.joined.extend_from_slice(key);
        self.joined.extend_from_slice(stored);
    }

    /// Return whether all rows are what was written.
    pub fn are_intact(mut self) -> bool {
        self.check_joined();
        !self.is_damaged
    }

    fn check_joined(&mut self) {
        self.is_damaged |= crc32c::crc32c_append(RESIDUE, &self.joined) != RESIDUE;
        self.joined.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_rows_are_checked_together() {
        let stored = |key: &[u8], size: usize| {
            let mut value = vec![7; size];
            value.extend_from_slice(&sum(key, &vec![7; size]).to_le_bytes());
            value
        };
        let sizes: Vec<usize> = (0..200).chain([JOINED_BYTES_MAX, 1 << 20]).collect();
        for damaged in [None, Some(0), Some(7), Some(199), Some(200), Some(201)] {
            let mut checker = Checker::default();
            for (number, &size) in sizes.iter().enumerate() {
                let key = number.to_be_bytes();
                let mut row = stored(&key, size);
                if damaged == Some(number) {
                    row[size / 2] ^= 1;
                }
                checker.add(&key, &row);
            }
            assert_eq!(checker.are_intact(), damaged.is_none());
        }
        let mut short = Checker::default();
        short.add(b"", b"");
        assert!(!short.are_intact());
    }

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
