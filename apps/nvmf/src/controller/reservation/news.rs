//! Which hosts are told of what another one did to a namespace (Base 8.19).

use super::state::{Held, HostId, Hosts, Request, State};
use crate::wire::{AcquireAction, ReservationNotificationKind, ReservationType};
use arrayvec::ArrayVec;

/// News of a process that are kept for cores which have not heard them: each has them with its next poll, so that one
/// which is behind so many does not poll, or not often enough for any host to read what it is told. It is told how many
/// it has lost.
pub(super) const MAX_NEWS: usize = 64;

/// What some hosts are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Told {
    pub(in super::super) kind: ReservationNotificationKind,
    pub(in super::super) hosts: Hosts,
}

/// Hosts of a namespace are to be told something, by whatever controllers they are connected.
#[derive(Clone, Debug)]
pub(in super::super) struct News {
    /// Of all of a process, from 1.
    pub(super) number: u64,
    pub(in super::super) entry: usize,
    pub(in super::super) told: Told,
}

/// What hosts are told of a request that `by` has made: those that it unregistered, and those that stay registered
/// where the reservation that they went by is none any more, or of another type. `held`: the one before; `state`: how
/// it is now.
pub(super) fn told(
    by: &HostId,
    request: Request,
    held: Option<Held>,
    unregistered: &Hosts,
    state: &State,
) -> ArrayVec<Told, 2> {
    use ReservationNotificationKind::{RegistrationPreempted, ReservationPreempted, ReservationReleased};
    let preempts = matches!(request, Request::Acquire { action, .. } if action != AcquireAction::Acquire);
    let ended = held.filter(|held| state.held.is_none_or(|now| now.kind != held.kind));
    // Of one that none but its holder could use others are told only where it becomes another one.
    let concerns = ended.is_some_and(|held| preempts || ReservationType::is_of_registrants(held.kind));
    let others = state.registrants.iter().map(|registrant| registrant.host).filter(|host| concerns && host != by);
    let gone = if preempts { RegistrationPreempted } else { ReservationPreempted };
    let all = [(gone, unregistered.clone()), (ReservationReleased, others.collect())];
    let all = all.into_iter().filter(|(_, hosts)| !hosts.is_empty());
    all.map(|(kind, hosts)| Told { kind, hosts }).collect()
}
