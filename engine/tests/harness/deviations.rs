//! Where a device is known to do something else than the others. A row is either checked to go wrong in the known way, or
//! named with the reason why it is not run: nothing is left out silently.

use super::subject::{Subject, say};

/// A row of the suite that some device does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row {
    BoundsOfARegistration,
    DomainOfABase,
    InvalidationThroughAnotherQueuePair,
    EventOfAnAccessError,
    FlushedRegistration,
    SecondLocalInvalidation,
    SecondRemoteInvalidation,
    InvalidationOfAnotherKey,
    RegistrationOfNothing,
    RegistrationBehindNotReady,
    DestroyUnderALiveKey,
    ReceiveOnADeadQueuePair,
    StatusOfALocalKey,
    StatusOfAShortReceive,
    FieldsThatTheDeviceDoesNotSee,
    DomainOfASharedReceive,
    LooksOfARegistration,
    LooksOfALocalInvalidation,
    DeregistrationUnderALiveKey,
}

/// On which subjects that deviate a row is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Run {
    /// On the software profile and on the device: both go wrong in the same way.
    Both,
    /// On the software profile only: the device, or the guest under it, would not survive it.
    ModelOnly,
    /// On the device only: the software profile is right.
    DeviceOnly,
    /// On every device that is reached through the provider, whatever it is.
    Provider,
    /// On devices whose second invalidation the provider takes for deadly, and refuses.
    Guarded,
    /// The same, and on the profile that imitates one.
    GuardedAndModel,
    /// On ionic.
    Ionic,
    /// On a ConnectX, by what libmlx5's source lets expect: one that fails here looks at more than it is asked to.
    ConnectX,
}

/// All deviations, each of rxe but where the provider's own or a ConnectX's are named: the row, where it is run, and why.
const DEVIATIONS: [(Row, Run, &str); 19] = [
    (Row::BoundsOfARegistration, Run::Both, "rxe enforces the bounds of the memory region only"),
    (Row::DomainOfABase, Run::Both, "rxe binds a memory region of another domain"),
    (Row::InvalidationThroughAnotherQueuePair, Run::Both, "rxe lets any queue pair of any domain invalidate a window"),
    (Row::EventOfAnAccessError, Run::Both, "rxe raises no asynchronous event"),
    (
        Row::FlushedRegistration,
        Run::ModelOnly,
        "a registration behind a SEND without receive hangs the queue pair on rxe",
    ),
    (
        Row::SecondLocalInvalidation,
        Run::GuardedAndModel,
        "a second invalidation takes rxe's host down, and what it does to a device that nobody knows is not tried; the provider refuses \
         the post",
    ),
    (
        Row::SecondRemoteInvalidation,
        Run::ModelOnly,
        "a second SEND_WITH_INV takes rxe's host down, and no provider can stop the peer",
    ),
    (
        Row::InvalidationOfAnotherKey,
        Run::Guarded,
        "the key of a window that is not bound takes rxe's host down; the provider refuses all but the object's own, there and on devices \
         that nobody knows",
    ),
    (
        Row::RegistrationOfNothing,
        Run::Ionic,
        "libionic refuses a bind of no bytes (ionic_v1_prep_bind of rdma-core 61)",
    ),
    (
        Row::RegistrationBehindNotReady,
        Run::ModelOnly,
        "a registration behind a SEND without receive hangs the queue pair on rxe",
    ),
    (Row::DestroyUnderALiveKey, Run::ModelOnly, "rxe takes 50 s to destroy a queue pair under a live window"),
    (
        Row::ReceiveOnADeadQueuePair,
        Run::DeviceOnly,
        "rxe flushes a receive posted to a dead queue pair when something else wakes it",
    ),
    (Row::StatusOfALocalKey, Run::DeviceOnly, "rxe calls a bad local key an operation error, IBV_WC_LOC_QP_OP_ERR"),
    (
        Row::StatusOfAShortReceive,
        Run::DeviceOnly,
        "rxe calls a receive that is too short an operation error, at both ends (found by this suite, kernel 6.1)",
    ),
    (
        Row::FieldsThatTheDeviceDoesNotSee,
        Run::Provider,
        "local key, list, base address and index bits of the key are not in a bind, base address and index bits \
         not in a UMR; the provider refuses the post",
    ),
    (
        Row::DomainOfASharedReceive,
        Run::DeviceOnly,
        "rxe checks the receives of a shared queue against the domain of the queue pair (found by this suite, kernel 6.1)",
    ),
    (
        Row::LooksOfARegistration,
        Run::ConnectX,
        "windows and lists are UMRs, of which libmlx5 has nothing compared but whether a window is free: memory is looked at when it is \
         used, of the old key only the index (source; no card was seen)",
    ),
    (
        Row::LooksOfALocalInvalidation,
        Run::ConnectX,
        "libmlx5 has a LOCAL_INV compared with the queue pair only, not with the key's low byte or its life (source; no card was seen)",
    ),
    (
        Row::DeregistrationUnderALiveKey,
        Run::ConnectX,
        "memory goes under a live key, whose accesses fail from then on (source; no card was seen)",
    ),
];

impl Row {
    fn deviation(self) -> (Run, &'static str) {
        let found = DEVIATIONS.iter().find(|(row, ..)| *row == self);
        found.map(|(_, run, why)| (*run, *why)).expect("every row is in the table")
    }
}

impl Subject {
    /// Whether this subject is known to go wrong in this row.
    pub fn deviates(self, row: Row) -> bool {
        let (run, why) = row.deviation();
        let deviates = match run {
            Run::Both => self.is_rxe(),
            Run::ModelOnly => self.is_rxe() && !self.is_real(),
            Run::DeviceOnly => self.is_rxe() && self.is_real(),
            Run::Provider => self.is_real(),
            Run::Guarded => self.is_guarded(),
            Run::GuardedAndModel => self.is_rxe() || self.is_guarded(),
            Run::Ionic => self.is_ionic(),
            Run::ConnectX => self.is_connectx(),
        };
        if deviates && self.is_real() {
            say(&format!("KNOWN DEVIATION on {self}: {why}"));
        }
        deviates
    }

    /// Whether this subject runs this row at all; says why where it does not.
    pub fn runs(self, row: Row) -> bool {
        let (run, why) = row.deviation();
        let runs = !self.is_real()
            || !self.is_rxe()
            || matches!(
                run,
                Run::Both
                    | Run::DeviceOnly
                    | Run::Provider
                    | Run::Guarded
                    | Run::GuardedAndModel
                    | Run::Ionic
                    | Run::ConnectX
            );
        if !runs {
            self.not_run(why);
        }
        runs
    }

    /// What is right, or the known wrong outcome where the table has one.
    pub fn expects<T>(self, row: Row, right: T, known_wrong: T) -> T {
        if self.deviates(row) { known_wrong } else { right }
    }
}
