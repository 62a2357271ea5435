//! Messages to one stream that differ in a few bytes: what its watchers of a key get of the same events.
//!
//! ```text
//! head, tail, middles ──► blocks of  | prefix | head | middle | tail |  for each middle
//! ```

use bytes::{BufMut, Bytes, BytesMut};

use crate::grpc::PREFIX_BYTES;
use crate::server::outbox::put_message_prefix;

/// Messages with their prefixes, one behind the other.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub bytes: Bytes,
    pub message_bytes: usize, // without prefixes
}

impl Block {
    /// The messages without their prefixes.
    pub fn messages(&self) -> impl Iterator<Item = Bytes> + '_ {
        let mut rest = self.bytes.clone();
        std::iter::from_fn(move || {
            let prefix = rest.get(1..PREFIX_BYTES)?;
            let size = u32::from_be_bytes(prefix.try_into().ok()?) as usize;
            let mut message = rest.split_to(PREFIX_BYTES + size);
            Some(message.split_off(PREFIX_BYTES))
        })
    }
}

/// Join the messages into blocks of at most so many bytes, or of one message.
pub fn join(head: &[u8], tail: &[u8], middles: &[&[u8]], block_bytes_max: usize) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = middles;
    while !rest.is_empty() {
        let (mut count, mut message_bytes) = (0, 0);
        for middle in rest {
            let size = head.len() + middle.len() + tail.len();
            if count > 0 && message_bytes + size + (count + 1) * PREFIX_BYTES > block_bytes_max {
                break;
            }
            count += 1;
            message_bytes += size;
        }
        let (fitting, others) = rest.split_at(count);
        let mut bytes = BytesMut::with_capacity(message_bytes + count * PREFIX_BYTES);
        for middle in fitting {
            put_message_prefix(&mut bytes, head.len() + middle.len() + tail.len());
            bytes.put_slice(head);
            bytes.put_slice(middle);
            bytes.put_slice(tail);
        }
        blocks.push(Block { bytes: bytes.freeze(), message_bytes });
        rest = others;
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(blocks: &[Block]) -> Vec<Vec<u8>> {
        blocks.iter().flat_map(|block| block.messages().map(|each| each.to_vec())).collect()
    }

    #[test]
    fn messages_are_joined_as_far_as_a_block_goes() {
        let middles: Vec<&[u8]> = vec![b"1", b"", b"333"];
        let expected = [b"head1tail".to_vec(), b"headtail".to_vec(), b"head333tail".to_vec()];
        for (bytes_max, count) in [(0, 3), (14 + 13 - 1, 3), (14 + 13, 2), (14 + 13 + 16, 1)] {
            let blocks = join(b"head", b"tail", &middles, bytes_max);
            assert_eq!((blocks.len(), messages(&blocks)), (count, expected.to_vec()));
            let message_bytes: usize = blocks.iter().map(|block| block.message_bytes).sum();
            assert_eq!(message_bytes, 9 + 8 + 11);
        }
        assert_eq!(join(b"head", b"tail", &[], 100), vec![]);
    }

    #[test]
    fn a_message_may_be_empty() {
        let blocks = join(b"", b"", &[b"", b""], 100);
        assert_eq!(messages(&blocks), vec![Vec::<u8>::new(), Vec::new()]);
    }
}
