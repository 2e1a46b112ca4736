//! The bridges of one port, moved on by its polls. One system call asks which of them there is something to read for,
//! however many there are.

use super::bridge::{Bridge, Side};
use crate::provider::QueuePairId;
use core::mem::MaybeUninit;
use rustix::event::{Timespec, epoll};
use rustix::io;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// Sockets that are read in one poll; others have their turn in the next.
const READY_PER_POLL: usize = 64;
/// Bridges whose queue pair is gone and whose peer does not read what it said last. More of them end the oldest: a process that is
/// stopped keeps so much of ours, and no more.
const MAX_LINGERING: usize = 64;
const AT_ONCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The bridges of one port.
#[derive(Default)]
pub(in super::super) struct Bridges {
    /// Made with the first of them, or before where somebody waits for it.
    epoll: Option<OwnedFd>,
    /// Whoever sleeps waits for it.
    is_awaited: bool,
    places: Vec<Option<Box<Bridge>>>,
    count: usize,
    /// Places of those whose queue pair is gone, oldest first.
    lingering: VecDeque<usize>,
}

/// What epoll tells of a socket of the bridge in this place.
fn data(place: usize, side: Side) -> epoll::EventData {
    epoll::EventData::new_u64((place as u64) << 1 | u64::from(side == Side::Responses))
}

fn meant(data: epoll::EventData) -> (usize, Side) {
    let side = if data.u64() & 1 == 0 { Side::Requests } else { Side::Responses };
    ((data.u64() >> 1) as usize, side)
}

/// Nobody waits for the sockets of a bridge any more.
fn forget(epoll: &OwnedFd, bridge: &Bridge) {
    for side in [Side::Requests, Side::Responses] {
        // The peer may hold what it sent us: that it is closed here would not make epoll forget it. It may be forgotten already.
        let _ = epoll::delete(epoll, bridge.socket(side));
    }
}

impl Bridges {
    pub(in super::super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// What becomes readable where something comes is to be waited for: it is there from now on, if the system has descriptors left.
    pub(in super::super) fn prepare(&mut self) {
        if self.epoll.is_none() {
            self.lingering.reserve_exact(MAX_LINGERING + 1);
            self.epoll = epoll::create(epoll::CreateFlags::CLOEXEC).ok();
        }
        self.is_awaited = self.epoll.is_some();
    }

    /// What becomes readable where something comes, once it was prepared.
    pub(in super::super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.as_ref().filter(|_| self.is_awaited).map(AsFd::as_fd)
    }

    /// Whatever comes from now on is told by the descriptor, newly. False where something is to be done before, or nobody waits for it.
    pub(in super::super) fn arm(&self) -> bool {
        if self.is_empty() {
            return true;
        }
        let Some(epoll) = self.epoll.as_ref().filter(|_| self.is_awaited) else { return false };
        let mut one = [MaybeUninit::<epoll::Event>::uninit()];
        // What has come and is not read would not be told of again.
        let has_come = epoll::wait(epoll, &mut one, Some(&AT_ONCE)).map_or(true, |(ready, _)| !ready.is_empty());
        !has_come && self.places.iter().flatten().all(|bridge| bridge.rests())
    }

    /// # Errors
    /// Those of epoll: a process has so many descriptors, and a peer may have sent some that cannot be waited for.
    pub(in super::super) fn add(&mut self, bridge: Box<Bridge>) -> io::Result<()> {
        let place = self.places.iter().position(Option::is_none).unwrap_or(self.places.len());
        let epoll = match &self.epoll {
            Some(epoll) => epoll,
            None => {
                self.lingering.reserve_exact(MAX_LINGERING + 1);
                self.epoll.insert(epoll::create(epoll::CreateFlags::CLOEXEC)?)
            }
        };
        for side in [Side::Requests, Side::Responses] {
            if let Err(error) = epoll::add(epoll, bridge.socket(side), data(place, side), epoll::EventFlags::IN) {
                forget(epoll, &bridge);
                return Err(error);
            }
        }
        match self.places.get_mut(place) {
            Some(free) => *free = Some(bridge),
            None => self.places.push(Some(bridge)),
        }
        self.count += 1;
        Ok(())
    }

    /// Takes what has come to the queue pairs; `broken` hears whose peer said what no queue pair says.
    pub(in super::super) fn receive(&mut self, mut broken: impl FnMut(QueuePairId)) {
        self.read();
        for place in 0..self.places.len() {
            let Some(Some(bridge)) = self.places.get_mut(place) else { continue };
            if bridge.deliver().is_err() {
                let queue_pair = bridge.queue_pair();
                self.remove(place);
                broken(queue_pair);
            }
        }
    }

    fn read(&mut self) {
        let Some(epoll) = &self.epoll else { return };
        let mut room = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_PER_POLL];
        // What fails now is asked again in the next poll.
        let Ok((ready, _)) = epoll::wait(epoll, &mut room, Some(&AT_ONCE)) else { return };
        for event in ready {
            let (place, side) = meant(event.data);
            let Some(Some(bridge)) = self.places.get_mut(place) else { continue };
            if !bridge.read(side) {
                // It would be told of for ever.
                let _ = epoll::delete(epoll, bridge.socket(side));
            }
        }
    }

    /// Brings to the sockets what the queue pairs said, and forgets bridges that have nothing left to do.
    pub(in super::super) fn send(&mut self) {
        for place in 0..self.places.len() {
            let Some(Some(bridge)) = self.places.get_mut(place) else { continue };
            bridge.send();
            if bridge.is_over() {
                self.remove(place);
            } else if bridge.lingers() && !self.lingering.contains(&place) {
                self.lingering.push_back(place);
            }
        }
        if self.lingering.len() > MAX_LINGERING
            && let Some(oldest) = self.lingering.front()
        {
            self.remove(*oldest);
        }
    }

    fn remove(&mut self, place: usize) {
        let Some(bridge) = self.places.get_mut(place).and_then(Option::take) else { return };
        self.count -= 1;
        self.lingering.retain(|lingers| *lingers != place);
        if let Some(epoll) = &self.epoll {
            forget(epoll, &bridge);
        }
    }

    /// All connections end.
    pub(in super::super) fn clear(&mut self) {
        for place in 0..self.places.len() {
            self.remove(place);
        }
    }
}
