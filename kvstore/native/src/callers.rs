//! Whose a call is, told by its id alone: nothing is kept for a call, and little for a connection.
//!
//! ```text
//! id = number of the call << SLOT_BITS | slot of its connection
//! ```
//!
//! A slot is given to another connection as late as can be, and knows those before for a while, so a
//! call can be asked about after its client has left.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

const SLOT_BITS: u32 = 17;
const SLOTS_MAX: usize = 1 << SLOT_BITS;
const KNOWN_MAX: usize = 4; // connections a slot knows
const REST_MIN: usize = 64; // slots that rest before one is given away again
/// Of what is no call.
pub const NO_SLOT: u32 = 0;

/// The id of a call with this number.
pub fn id_of(number: u64, slot: u32) -> u64 {
    number << SLOT_BITS | u64::from(slot)
}

/// The number of an id.
pub fn number_of(id: u64) -> u64 {
    id >> SLOT_BITS
}

/// The connections a slot was given to, with the number of the first call each could make.
type Slot = VecDeque<(u64, String)>;

#[derive(Default)]
struct State {
    slots: Vec<Slot>,
    resting: VecDeque<u32>,
}

/// Shared between the loop thread, which writes, and the driver's.
#[derive(Default)]
pub struct Callers(Mutex<State>);

impl Callers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Give a slot to a connection whose calls come after this number.
    pub fn enter(&self, number: u64, peer: String) -> u32 {
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

    /// Take a slot back; its connection is over.
    pub fn leave(&self, slot: u32) {
        if slot != NO_SLOT {
            self.lock().resting.push_back(slot);
        }
    }

    /// The address that made a call; nothing when it is no longer known.
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
        let callers = Callers::default();
        let first = callers.enter(0, "a:1".to_owned());
        let id = id_of(1, first);
        callers.leave(first);
        let mut later = Vec::new();
        for number in 1..=u64::try_from(REST_MIN).unwrap() + 1 {
            let slot = callers.enter(number, format!("b:{number}"));
            later.push((slot, id_of(number + 1, slot), format!("b:{number}")));
            callers.leave(slot);
        }
        assert!(later.iter().any(|(slot, _, _)| *slot == first));
        assert_eq!(callers.peer_of(id).as_deref(), Some("a:1"));
        for (_, id, peer) in later {
            assert_eq!(callers.peer_of(id), Some(peer));
        }
        assert_eq!(callers.peer_of(id_of(1, NO_SLOT)), None);
        assert_eq!(callers.peer_of(id_of(1, 1 << 16)), None);
    }
}
