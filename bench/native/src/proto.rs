//! The few Protobuf messages a load needs: written by hand, read field by field.
//!
//! Field numbers are those of etcd's rpc.proto and kv.proto.

use bytes::{BufMut, Bytes, BytesMut};

use crate::Fault;

pub const COUNT: u64 = 4; // of a RangeResponse

pub enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Walks over the fields of one message.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Fields<'a> {
    pub fn next(&mut self) -> Result<Option<(u64, Value<'a>)>, Fault> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Number(self.varint()?),
            2 => {
                let length = self.varint()? as usize;
                if length > self.0.len() {
                    return Err(format!("a field of {length} bytes in {}", self.0.len()).into());
                }
                let (value, rest) = self.0.split_at(length);
                self.0 = rest;
                Value::Bytes(value)
            }
            kind => return Err(format!("wire type {kind} is in none of these messages").into()),
        };
        Ok(Some((tag >> 3, value)))
    }

    fn varint(&mut self) -> Result<u64, Fault> {
        let mut value = 0;
        for (index, byte) in self.0.iter().enumerate().take(10) {
            value |= u64::from(byte & 0x7f) << (7 * index);
            if byte & 0x80 == 0 {
                self.0 = &self.0[index + 1..];
                return Ok(value);
            }
        }
        Err("a varint without an end".into())
    }
}

/// Return the first field of that number that is bytes; empty if there is none.
pub fn bytes_of(message: &[u8], wanted: u64) -> Result<&[u8], Fault> {
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next()? {
        if let (true, Value::Bytes(found)) = (number == wanted, value) {
            return Ok(found);
        }
    }
    Ok(&[])
}

/// Return the first field of that number that is a number; 0 if there is none.
pub fn number_of(message: &[u8], wanted: u64) -> Result<u64, Fault> {
    let mut fields = Fields(message);
    while let Some((number, value)) = fields.next()? {
        if let (true, Value::Number(found)) = (number == wanted, value) {
            return Ok(found);
        }
    }
    Ok(0)
}

/// A message being written.
#[derive(Default)]
pub struct Message(Vec<u8>);

impl Message {
    pub fn number(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    pub fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }

    pub fn message(self, field: u64, value: Message) -> Self {
        self.bytes(field, &value.0)
    }

    /// Return it as gRPC frames it.
    pub fn framed(self) -> Bytes {
        let mut frame = BytesMut::with_capacity(self.0.len() + 5);
        frame.put_u8(0);
        frame.put_u32(self.0.len() as u32);
        frame.put_slice(&self.0);
        frame.freeze()
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

pub fn put(key: &[u8], value: &[u8]) -> Message {
    Message::default().bytes(1, key).bytes(2, value)
}

pub fn range(key: &[u8]) -> Message {
    Message::default().bytes(1, key)
}

/// A transaction without a condition: one operation (1: range, 2: put).
pub fn txn(operation: u64, request: Message) -> Message {
    Message::default().message(2, Message::default().message(operation, request))
}

/// If the key was last changed at that revision, put it.
pub fn compare_and_swap(key: &[u8], mod_revision: u64, value: &[u8]) -> Message {
    let compare =
        Message::default().number(1, 0).number(2, 2).bytes(3, key).number(6, mod_revision);
    // In the order of the fields' numbers, as every library writes.
    Message::default()
        .message(1, compare)
        .message(2, Message::default().message(2, put(key, value)))
}

/// If the key was last changed at that revision (0: is not there), do; else read it.
pub fn guarded(key: &[u8], mod_revision: u64, operation: u64, request: Message) -> Message {
    let compare =
        Message::default().number(1, 0).number(2, 2).bytes(3, key).number(6, mod_revision);
    Message::default()
        .message(1, compare)
        .message(2, Message::default().message(operation, request))
        .message(3, Message::default().message(1, range(key)))
}

/// Return (store revision, succeeded) of a TxnResponse.
pub fn txn_outcome(response: &[u8]) -> Result<(u64, bool), Fault> {
    let revision = number_of(bytes_of(response, 1)?, 3)?;
    Ok((revision, number_of(response, 2)? == 1))
}

pub fn watch(key: &[u8]) -> Message {
    Message::default().message(1, Message::default().bytes(1, key))
}

/// Watch [key, end); with_previous: each event with what was there before.
pub fn watch_range(key: &[u8], end: &[u8], with_previous: bool) -> Message {
    let request = Message::default().bytes(1, key).bytes(2, end);
    let request = if with_previous { request.number(6, 1) } else { request };
    Message::default().message(1, request)
}

pub fn keep_alive(lease: u64) -> Message {
    Message::default().number(1, lease)
}
