//! MR objects on their way: asked for, made, destroyed, kept by the device (S22, S24, S28, S103 to S105). What a connection has of them
//! stands in its [`Objects`](crate::objects::Objects).

use super::{Engine, life::keys_at_stake};
use crate::{
    connection::{Ending, Phase as Connected},
    event::{ConnectionId, DisconnectCause},
    link::{DESCRIPTORS_PER_MESSAGE, ToControl},
    mr,
    options::StalePolicy,
    provider::{CommandError, Port, RegistrationId},
    trace::TracePoint,
};
use arrayvec::ArrayVec;
use frwr_mempool::mutant;

impl<P: Port> Engine<P> {
    /// Asks for MR objects as long as there are descriptors without one (S22, S24, S28); later, where Control's lane has no room.
    pub(super) fn refill(&mut self, index: usize, most: u32) {
        let connection = self.connections[index].key;
        let mut wanted = most;
        while wanted > 0 {
            let mut descriptors: ArrayVec<u32, DESCRIPTORS_PER_MESSAGE> = ArrayVec::new();
            while !descriptors.is_full() && wanted > 0 {
                let objects = &mut self.connections[index].objects;
                let Some(descriptor) = objects.take_absent(&mut self.pool) else { break };
                descriptors.push(descriptor);
                wanted -= 1;
            }
            if descriptors.is_empty() {
                return;
            }
            let count = descriptors.len() as u32;
            let message =
                ToControl::Allocate { connection, depth: self.pool.depth(), descriptors: descriptors.clone() };
            if !self.link.tell(message) {
                let objects = &mut self.connections[index].objects;
                for descriptor in descriptors {
                    objects.put_absent(&mut self.pool, descriptor);
                }
                objects.ask_later(wanted + count);
                self.chores.ask_attention(index);
                return;
            }
            self.connections[index].objects.asked(count);
        }
    }

    /// Asks for the objects that Control's lane had no room for.
    pub(super) fn refill_unasked(&mut self, index: usize) {
        let unasked = self.connections[index].objects.take_unasked();
        self.refill(index, unasked);
        self.filled(index);
    }

    /// A request found too few MRs: ask for one full-sized request's worth, unless that was just done (S24, D22).
    pub(super) fn request_refill(&mut self, index: usize) {
        let connection = &self.connections[index];
        // F16: several refills at a time.
        let is_asked = connection.objects.are_awaited() && !mutant!(F16_concurrent);
        if connection.is_ready() && !is_asked && self.polls.now().since_epoch() >= connection.objects.refill_after() {
            self.refill(index, self.plan.refill);
        }
    }

    /// Whether a connection has fewer MRs than a request needs, in use or not, and the device makes no more.
    pub(super) fn never_has(&self, index: usize, mrs: u32) -> bool {
        let connection = &self.connections[index];
        if !connection.objects.are_exhausted() {
            return false;
        }
        let usable = |descriptor: &u32| {
            let state = self.pool.get(*descriptor).map(mr::Mr::state);
            let gone = matches!(state, None | Some(mr::State::Absent | mr::State::Recovering | mr::State::Stale(_)));
            !gone && connection.pad() != Some(*descriptor)
        };
        (self.pool.of(connection.key.index).filter(usable).count() as u32) < mrs
    }

    pub(super) fn allocated(
        &mut self,
        connection: ConnectionId,
        descriptor: u32,
        object: Result<(RegistrationId, u32), CommandError>,
    ) {
        let index = usize::from(self.pool.connection_of(descriptor));
        let Some(entry) = self.connections.get_mut(index) else { return };
        let repaired = entry.objects.answered(object.is_ok());
        let (object, key) = match object {
            Ok(made) => made,
            Err(error) => return self.not_allocated(index, connection, descriptor, error),
        };
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        let installed = mr.install(object, key, connection);
        debug_assert!(installed.is_ok(), "a descriptor from the absent list has no object");
        self.counters.mr_allocated(repaired);
        // Mutant: an object that was made for a connection that ends stays.
        if self.connections[index].is_ending() && !mutant!(allocated_while_ending) {
            self.free_object(index, descriptor);
            return;
        }
        self.connections[index].idle.push(descriptor);
        if mutant!(K1_allocated) {
            self.connections[index].idle.push(descriptor);
        }
        self.filled(index);
    }

    /// The device made no object for a descriptor.
    #[cold]
    fn not_allocated(&mut self, index: usize, connection: ConnectionId, descriptor: u32, error: CommandError) {
        let entry = &mut self.connections[index];
        entry.objects.not_made(self.polls.now().since_epoch());
        if mutant!(F9_not_made) {
            // F9: a descriptor without an object is pooled.
            entry.idle.push(descriptor);
        } else if !mutant!(S10_not_made) {
            entry.objects.put_absent(&mut self.pool, descriptor);
        }
        self.counters.mr_not_allocated(error);
        // K17: a device without another object ends the connection.
        if mutant!(K17_refill) {
            self.fail(index, DisconnectCause::Device);
        }
        // The failure is told of the connection; there is no MR whose name could be (F10).
        let named = if mutant!(F10) { Some(descriptor) } else { None };
        self.record(TracePoint::MrAllocationFailed(error), connection.index, named, 0);
        self.filled(index);
    }

    /// Has Control try once more to destroy what the device kept. It is told with the step that this is a part of: a connection that
    /// ends is looked at by every poll.
    pub(super) fn free_again(&mut self, index: usize) {
        self.chores.free(self.connections[index].objects.free_again());
    }

    /// Has Control destroy an MR's object. From here on nothing but its destruction is awaited.
    pub(super) fn free_object(&mut self, index: usize, descriptor: u32) {
        if self.trace.is_some() {
            self.record_doomed(descriptor);
        }
        let entry = &mut self.connections[index];
        let Some(mr) = self.pool.get_mut(descriptor) else { return };
        let doomed = keys_at_stake(mr);
        let _ = mr.connection_lost(entry.key);
        let _ = mr.begin_recovery();
        self.pool.doom_keys(descriptor, doomed);
        entry.objects.free(descriptor);
        self.chores.free(1);
        self.chores.ask_attention(index);
        self.send_frees(index);
    }

    /// Tells Control of the objects to destroy, as far as its lane has room; the rest follows.
    pub(super) fn send_frees(&mut self, index: usize) {
        while !self.connections[index].objects.to_free().is_empty() {
            let mut objects: ArrayVec<_, DESCRIPTORS_PER_MESSAGE> = ArrayVec::new();
            for &descriptor in self.connections[index].objects.to_free().iter().take(DESCRIPTORS_PER_MESSAGE) {
                if let Some(mr) = self.pool.get(descriptor) {
                    objects.push((descriptor, mr.object()));
                }
            }
            let count = objects.len();
            if !self.link.tell(ToControl::Free { objects }) && !mutant!(free_lost) {
                return;
            }
            self.connections[index].objects.told(count);
        }
    }

    /// Has an MR destroyed whose state on the device is unknown or cannot be changed any more. Its fence is the
    /// destruction; where the policy says so a new object takes its place (D8).
    pub(super) fn quarantine(&mut self, index: usize, descriptor: u32) {
        self.free_object(index, descriptor);
    }

    /// A destroyed object's descriptor came back from Control.
    pub(super) fn object_destroyed(&mut self, descriptor: u32) {
        self.counters.mr_destroyed(self.pool.take_doomed_keys(descriptor));
        if self.trace.is_some() {
            self.record_all_dead(TracePoint::KeyDestroyed, descriptor);
        }
        self.record(
            TracePoint::MrDestroyed,
            usize::from(self.pool.connection_of(descriptor)) as u16,
            Some(descriptor),
            0,
        );
        self.object_gone(descriptor);
    }

    /// A descriptor's object is destroyed, or was given up behind its queue pair.
    fn object_gone(&mut self, descriptor: u32) {
        let index = usize::from(self.pool.connection_of(descriptor));
        if let Some(mr) = self.pool.get_mut(descriptor) {
            let _ = mr.destroyed();
        }
        self.pool.forget_keys(descriptor);
        let connection = &mut self.connections[index];
        connection.objects.destroyed();
        self.chores.freed();
        // S10: each end of a connection loses its descriptors.
        if !mutant!(S10_descriptors) || connection.is_ready() {
            connection.objects.put_absent(&mut self.pool, descriptor);
        }
        if connection.is_ready() {
            // A rare event, so that a walk over the slots in use is good enough.
            if let Some(slot) = self.requests.fencing(descriptor)
                && !mutant!(destruction_tells_nobody)
            {
                self.fenced(slot, descriptor);
            }
            if self.options.stale_policy == StalePolicy::Repair {
                self.connections[index].objects.repair();
                self.refill(index, 1);
            }
        }
    }

    /// The device did not destroy an object, whose key may be alive: the connection ends, and the object is tried again when its
    /// queue pair has drained, and once more when that is destroyed. Then it is given up, and told with the connection's end (S105).
    pub(super) fn object_not_destroyed(&mut self, descriptor: u32, error: CommandError) {
        let index = usize::from(self.pool.connection_of(descriptor));
        self.counters.mr_not_destroyed(error);
        self.record(TracePoint::MrDestroyFailed(error), index as u16, Some(descriptor), 0);
        let Some(connection) = self.connections.get_mut(index) else { return };
        if mutant!(F9_kept) {
            // An object that the device kept counts as destroyed.
            return self.object_gone(descriptor);
        }
        if matches!(connection.phase(), Connected::Ending { step: Ending::Sweep, .. }) {
            self.counters.mr_orphaned();
            connection.objects.orphaned();
            if self.trace.is_some() {
                self.record_all_dead(TracePoint::KeyOrphaned, descriptor);
            }
            // What was to die with it lives on.
            let _ = self.pool.take_doomed_keys(descriptor);
            self.object_gone(descriptor);
            return;
        }
        connection.objects.kept(descriptor);
        self.chores.freed();
        if !matches!(connection.phase(), Connected::Ending { step: Ending::Destroy, .. }) {
            self.fail(index, DisconnectCause::Device);
        }
    }
}
