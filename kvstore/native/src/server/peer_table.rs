//! The client's address of a call, from the call's id alone: nothing is stored per call, and little per
//! connection.
//!
//! ```text
//! id = number of the call << SLOT_BITS | slot of its connection
//! ```
//!
//! A slot is reused as late as possible and keeps its last connections for a while, so the address is
//! still known after the client has disconnected.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SLOT_BITS: u32 = 17;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const KNOWN_MAX: usize = 4; // connections a slot keeps
const REST_MIN: usize = 64; // free slots before one is reused
/// The slot of ids that are no calls.
pub const NO_SLOT: u32 = 0;

/// The id of a call with this number.
pub fn id_of(number: u64, slot: u32) -> u64 {
    number << SLOT_BITS | u64::from(slot)
}

/// The number of an id.
pub fn number_of(id: u64) -> u64 {
    id >> SLOT_BITS
}

/// The connections of a slot, each with the number of its first possible call.
type Slot = VecDeque<(u64, String)>;

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    resting: VecDeque<u32>,
}

/// Shared between the loop thread, which writes, and the driver's thread.
#[derive(Default)]
pub struct PeerTable(Mutex<State>);

impl PeerTable {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Assign a slot to a connection whose calls come after this number.
    pub fn assign(&self, number: u64, peer: String) -> u32 {
        let state = &mut *self.lock();
        let slot = match state.resting.len() > REST_MIN || state.slots.len() + 1 >= SLOTS_MAX {
            true => state.resting.pop_front(),
            false => {
                state.slots.push(Slot::new());
                u32::try_from(state.slots.len()).ok() // from 1 on
            }
        };
        let Some(slot) = slot else { return NO_SLOT };
        let known = &mut state.slots[slot as usize - 1];
        known.truncate(KNOWN_MAX - 1);
        known.push_front((number, peer));
        slot
    }

    /// Release the slot of a closed connection.
    pub fn release(&self, slot: u32) {
        if slot != NO_SLOT {
            self.lock().resting.push_back(slot);
        }
    }

    /// The client's address of a call; none when it is no longer known.
    pub fn peer_of(&self, id: u64) -> Option<String> {
        let slot = (id & (SLOTS_MAX as u64 - 1)) as usize;
        let state = self.lock();
        let known = state.slots.get(slot.checked_sub(1)?)?;
        let found = known.iter().find(|(first, _)| *first < number_of(id));
        found.map(|(_, peer)| peer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_after_its_slot_is_another_connections() {
        let peers = PeerTable::default();
        let first = peers.assign(0, "a:1".to_owned());
        let id = id_of(1, first);
        peers.release(first);
        let mut later = Vec::new();
        for number in 1..=u64::try_from(REST_MIN).unwrap() + 1 {
            let slot = peers.assign(number, format!("b:{number}"));
            later.push((slot, id_of(number + 1, slot), format!("b:{number}")));
            peers.release(slot);
        }
        assert!(later.iter().any(|(slot, _, _)| *slot == first));
        assert_eq!(peers.peer_of(id).as_deref(), Some("a:1"));
        for (_, id, peer) in later {
            assert_eq!(peers.peer_of(id), Some(peer));
        }
        assert_eq!(peers.peer_of(id_of(1, NO_SLOT)), None);
        assert_eq!(peers.peer_of(id_of(1, 1 << 16)), None);
    }
}
