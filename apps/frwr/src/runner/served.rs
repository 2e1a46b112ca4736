//! Devices as the main thread serves them: each by its Control.

use crate::Error;
use core::task::Waker;
use frwr_engine::{
    control::{Control, ControlStatistics},
    provider::Device,
};
use frwr_mempool::limits::{Limits, Resource};
use std::os::fd::BorrowedFd;

/// A Control, whatever its device is.
pub(crate) trait Served {
    /// As [`Control::poll`].
    fn poll(&mut self) -> u32;
    /// As [`Control::wakes`].
    fn wakes(&self, waker: &Waker);
    /// As [`Control::arm`].
    fn arm(&self) -> bool;
    /// As [`Control::descriptors`].
    fn descriptors(&self) -> Vec<BorrowedFd<'_>>;
    /// As [`Control::statistics`].
    fn statistics(&self) -> ControlStatistics;
    /// Queue pairs that the device refused to destroy and still has.
    fn queue_pairs_kept(&self) -> u64;
    /// What the run cannot go on with, if that has come to light.
    fn trouble(&self) -> Option<Error>;
}

impl<D: Device> Served for Control<D> {
    fn poll(&mut self) -> u32 {
        Control::poll(self)
    }

    fn wakes(&self, waker: &Waker) {
        Control::wakes(self, waker);
    }

    fn arm(&self) -> bool {
        Control::arm(self)
    }

    fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        Control::descriptors(self)
    }

    fn statistics(&self) -> ControlStatistics {
        Control::statistics(self)
    }

    fn queue_pairs_kept(&self) -> u64 {
        Control::statistics(self).queue_pairs_kept
    }

    fn trouble(&self) -> Option<Error> {
        let (statistics, device) = (Control::statistics(self), || self.device().capabilities().name);
        if statistics.device_failures > 0 {
            return Some(gone(device()));
        }
        (statistics.memories_refused > 0).then(|| {
            let limit = Limits::of_process().soft_limit(Resource::LockedMemory).filter(|limit| *limit < u64::MAX);
            Error::no_room("locked_memory", format!("device {} cannot register memory: {}", device(), locked(limit)))
        })
    }
}

/// Why somebody gave up that the device did not tell: the kernel tells of a removal late, and one process after the other.
pub(crate) fn removed<D: Device>(control: &Control<D>) -> Option<Error> {
    let device = control.device();
    (!device.is_present()).then(|| gone(device.capabilities().name))
}

fn gone(device: &str) -> Error {
    let text = format!("device {device} is gone: it was removed or has failed; `rdma link` and `dmesg` say more");
    Error::failed("device_gone", text)
}

/// What is in the way of memory that a device shall have; the limit is `None` where there is none, or it cannot be read.
fn locked(limit: Option<u64>) -> String {
    match limit {
        Some(limit) => format!(
            "the limit of locked memory is {} KiB; raise it (`ulimit -l unlimited`, LimitMEMLOCK=infinity in a service), or \
             give CAP_IPC_LOCK",
            limit >> 10
        ),
        None => "it has no registration or memory left; `rdma resource show mr` says who has them".to_owned(),
    }
}
