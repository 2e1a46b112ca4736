//! What there is of one namespace: whose it is, and what all cores look at.

use super::published::Published;
use super::state::State;
use crate::wire::Nqn;
use std::sync::Arc;

/// Which namespace reservations are of: another medium that takes an identifier should have another NGUID, as hosts believe that it is
/// what they had otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Key {
    pub(in super::super) subsystem: Nqn,
    pub(in super::super) identifier: u32,
    pub(in super::super) nguid: [u8; 16],
}

/// A namespace of the book.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) state: State,
    pub(super) published: Arc<Published>,
}

impl Entry {
    pub(super) fn new(key: Key, state: State) -> Self {
        let published = Arc::new(Published::new());
        published.publish(&state);
        Self { key, state, published }
    }
}
