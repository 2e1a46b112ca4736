//! The MR objects of one connection: which descriptors have none, what Control was asked to make or to destroy, and what the device
//! did not. Nothing here asks: the engine does, and says so.

use crate::pool::Pool;
use core::time::Duration;
use frwr_mempool::{freelist::List, mutant};
use std::collections::VecDeque;

/// How long the device is left alone after it had no MR object left. Waiters are woken by the MRs that come back; this
/// only bounds how often a device that is full is asked (K12).
const REFILL_PAUSE: Duration = Duration::from_millis(1);

/// Times in a row that the device made no object, behind which a request that needs more MRs than its connection has ends
/// instead of waiting, and those behind it are served. With the pause in between that is a tenth of a second: longer than
/// another connection takes to end and give its objects back, short for who waits.
const MAX_EMPTY_REFILLS: u32 = 100;

/// See the module.
#[derive(Debug)]
pub(crate) struct Objects {
    /// Descriptors without a device object.
    absent: List,
    /// Those that Control was asked to make.
    allocating: u32,
    /// Those that Control is to be asked for as soon as its lane has room.
    unasked: u32,
    /// Those of them that are made in place of stale ones (S103).
    repairing: u32,
    /// Those that are to be destroyed, or being destroyed.
    freeing: u32,
    /// Those of them that Control was not told of yet.
    to_free: VecDeque<u32>,
    /// Those that the device did not destroy: tried again when the queue pair has drained, and when it is destroyed.
    not_freed: Vec<u32>,
    /// Those that the device kept although the queue pair was destroyed (S105).
    orphans: u32,
    /// Not before this time is the device asked again after it had no object left.
    refill_after: Duration,
    /// Times in a row that the device was asked for objects and made none.
    empty_refills: u32,
}

impl Objects {
    /// Of a vacant connection, which has so many descriptors at most.
    pub(crate) fn new(absent: List, registrations: u32) -> Self {
        Self {
            absent,
            allocating: 0,
            unasked: 0,
            repairing: 0,
            freeing: 0,
            to_free: VecDeque::with_capacity(registrations as usize),
            not_freed: Vec::with_capacity(registrations as usize),
            orphans: 0,
            refill_after: Duration::ZERO,
            empty_refills: 0,
        }
    }

    /// A connection opens in the place of a former one.
    pub(crate) fn begin(&mut self) {
        (self.repairing, self.empty_refills, self.orphans, self.unasked) = (0, 0, 0, 0);
    }

    /// Takes a descriptor that has no object, to have one made for it.
    pub(crate) fn take_absent(&mut self, pool: &mut Pool) -> Option<u32> {
        pool.pop(&mut self.absent)
    }

    /// A descriptor has no object, or none any more.
    pub(crate) fn put_absent(&mut self, pool: &mut Pool, descriptor: u32) {
        pool.put(&mut self.absent, descriptor);
    }

    /// Control was asked to make so many.
    pub(crate) fn asked(&mut self, count: u32) {
        self.allocating += count;
    }

    /// Control's lane has no room to ask for so many.
    pub(crate) fn ask_later(&mut self, count: u32) {
        self.unasked += count;
    }

    /// Objects are to be asked for.
    pub(crate) fn has_unasked(&self) -> bool {
        self.unasked > 0
    }

    /// How many are to be asked for; from here on none.
    pub(crate) fn take_unasked(&mut self) -> u32 {
        core::mem::take(&mut self.unasked)
    }

    /// Control makes objects.
    pub(crate) fn are_made(&self) -> bool {
        self.allocating > 0
    }

    /// Objects are being made, or to be asked for.
    pub(crate) fn are_awaited(&self) -> bool {
        self.allocating > 0 || self.unasked > 0
    }

    /// One is made in place of a stale one.
    pub(crate) fn repair(&mut self) {
        self.repairing += 1;
    }

    /// Control answered for one: the device made it, or did not. Whether it was in place of a stale one.
    pub(crate) fn answered(&mut self, made: bool) -> bool {
        // F16: the gate stays up where the device made nothing.
        if made || !mutant!(F16_gate) {
            self.allocating = self.allocating.saturating_sub(1);
        }
        if made {
            self.empty_refills = 0;
        }
        let repairs = self.repairing > 0;
        self.repairing = self.repairing.saturating_sub(1);
        repairs
    }

    /// The device made none, as Control answered at this time.
    pub(crate) fn not_made(&mut self, now: Duration) {
        self.refill_after = now.saturating_add(REFILL_PAUSE);
        self.empty_refills = self.empty_refills.saturating_add(u32::from(self.allocating == 0));
    }

    /// From when on the device is worth asking.
    pub(crate) fn refill_after(&self) -> Duration {
        self.refill_after
    }

    /// The device makes no more, and none is to come back.
    pub(crate) fn are_exhausted(&self) -> bool {
        self.empty_refills >= MAX_EMPTY_REFILLS && self.allocating == 0 && self.freeing == 0
    }

    /// One is to be destroyed.
    pub(crate) fn free(&mut self, descriptor: u32) {
        self.to_free.push_back(descriptor);
        self.freeing += 1;
    }

    /// Those that the device kept are to be tried once more. Returns how many.
    pub(crate) fn free_again(&mut self) -> u32 {
        // At most the descriptors.
        let count = self.not_freed.len() as u32;
        self.freeing += count;
        self.to_free.extend(self.not_freed.drain(..));
        count
    }

    /// Those that Control is to be told of, in order.
    pub(crate) fn to_free(&self) -> &VecDeque<u32> {
        &self.to_free
    }

    /// Control was told of the first so many.
    pub(crate) fn told(&mut self, count: usize) {
        self.to_free.drain(..count);
    }

    /// Objects are being destroyed, or to be.
    pub(crate) fn are_destroyed(&self) -> bool {
        self.freeing > 0
    }

    /// One is destroyed, or given up.
    pub(crate) fn destroyed(&mut self) {
        self.freeing = self.freeing.saturating_sub(1);
    }

    /// The device did not destroy one.
    pub(crate) fn kept(&mut self, descriptor: u32) {
        self.destroyed();
        if !mutant!(F9_not_tried_again) {
            self.not_freed.push(descriptor);
        }
    }

    /// The device kept some that were not tried again.
    pub(crate) fn has_kept(&self) -> bool {
        !self.not_freed.is_empty()
    }

    /// One is given up, behind its queue pair.
    pub(crate) fn orphaned(&mut self) {
        self.orphans += 1;
    }

    /// Those that were given up.
    pub(crate) fn orphans(&self) -> u32 {
        self.orphans
    }
}
