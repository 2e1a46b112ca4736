//! How a work request failed, and the numbers of system errors: small values, made where something failed and nowhere else.

use core::fmt;

/// Why a work request failed; names and order of `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum FailureStatus {
    /// IBV_WC_LOC_LEN_ERR.
    #[error("local length error")]
    LocalLength,
    /// IBV_WC_LOC_QP_OP_ERR.
    #[error("local queue pair operation error")]
    LocalOperation,
    /// IBV_WC_LOC_PROT_ERR.
    #[error("local protection error")]
    LocalProtection,
    /// IBV_WC_WR_FLUSH_ERR.
    #[error("flushed")]
    Flushed,
    /// IBV_WC_MW_BIND_ERR.
    #[error("memory window bind error")]
    Bind,
    /// IBV_WC_BAD_RESP_ERR.
    #[error("bad response error")]
    BadResponse,
    /// IBV_WC_LOC_ACCESS_ERR.
    #[error("local access error")]
    LocalAccess,
    /// IBV_WC_REM_INV_REQ_ERR.
    #[error("remote invalid request error")]
    RemoteInvalidRequest,
    /// IBV_WC_REM_ACCESS_ERR.
    #[error("remote access error")]
    RemoteAccess,
    /// IBV_WC_REM_OP_ERR.
    #[error("remote operation error")]
    RemoteOperation,
    /// IBV_WC_RETRY_EXC_ERR.
    #[error("transport retry counter exceeded")]
    RetryExceeded,
    /// IBV_WC_RNR_RETRY_EXC_ERR.
    #[error("receiver-not-ready retry counter exceeded")]
    RnrRetryExceeded,
    /// IBV_WC_REM_ABORT_ERR.
    #[error("aborted by the remote side")]
    RemoteAborted,
    /// IBV_WC_FATAL_ERR.
    #[error("fatal error")]
    Fatal,
    /// IBV_WC_RESP_TIMEOUT_ERR.
    #[error("response timeout error")]
    ResponseTimeout,
    /// IBV_WC_GENERAL_ERR.
    #[error("general error")]
    General,
    /// A status that has no name here, by its number; what exceeds a `u16` is `u16::MAX`.
    #[error("unnamed status")]
    Other(u16),
}

/// The names with their numbers, which are the interface between the kernel, libraries and devices (`enum ibv_wc_status`).
const STATUSES: [(FailureStatus, u16); 16] = [
    (FailureStatus::LocalLength, 1),
    (FailureStatus::LocalOperation, 2),
    (FailureStatus::LocalProtection, 4),
    (FailureStatus::Flushed, 5),
    (FailureStatus::Bind, 6),
    (FailureStatus::BadResponse, 7),
    (FailureStatus::LocalAccess, 8),
    (FailureStatus::RemoteInvalidRequest, 9),
    (FailureStatus::RemoteAccess, 10),
    (FailureStatus::RemoteOperation, 11),
    (FailureStatus::RetryExceeded, 12),
    (FailureStatus::RnrRetryExceeded, 13),
    (FailureStatus::RemoteAborted, 16),
    (FailureStatus::Fatal, 19),
    (FailureStatus::ResponseTimeout, 20),
    (FailureStatus::General, 21),
];

impl FailureStatus {
    /// The status with this number; 0, which is success, is none of them and comes back as [`FailureStatus::Other`].
    #[must_use]
    pub fn of_number(number: u32) -> Self {
        let number = u16::try_from(number).unwrap_or(u16::MAX);
        STATUSES.iter().find(|(_, known)| *known == number).map_or(Self::Other(number), |(status, _)| *status)
    }

    /// Its number in `enum ibv_wc_status`.
    #[must_use]
    pub fn number(self) -> u16 {
        match self {
            Self::Other(number) => number,
            named => STATUSES.iter().find(|(status, _)| *status == named).map_or(u16::MAX, |(_, number)| *number),
        }
    }
}

/// What a failed completion says: the status, and what the maker of the device knows besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Failure {
    /// Why.
    pub status: FailureStatus,
    /// `vendor_err` of `ibv_wc`: a code of the device's maker, 0 where it has none. Those of the software NIC are in
    /// [`super::soft::vendor_code`].
    pub vendor_code: u32,
}

impl Failure {
    /// With both.
    #[must_use]
    pub const fn new(status: FailureStatus, vendor_code: u32) -> Self {
        Self { status, vendor_code }
    }

    /// A work request that came back because another one had failed, or was given up with its queue.
    pub const FLUSHED: Self = Self::new(FailureStatus::Flushed, 0);

    /// Whether it is a consequence only.
    #[must_use]
    pub const fn is_flush(self) -> bool {
        matches!(self.status, FailureStatus::Flushed)
    }
}

/// Without a vendor code.
impl From<FailureStatus> for Failure {
    fn from(status: FailureStatus) -> Self {
        Self::new(status, 0)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (status {}, vendor {:#x})", self.status, self.status.number(), self.vendor_code)
    }
}

impl core::error::Error for Failure {}

/// The number of a system error (errno(3)), as the system or a library said it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted.
    pub const EPERM: Self = Self(1);
    /// No such file, device or object.
    pub const ENOENT: Self = Self(2);
    /// Input or output error.
    pub const EIO: Self = Self(5);
    /// Out of memory, or out of whatever the device has a number of.
    pub const ENOMEM: Self = Self(12);
    /// In use.
    pub const EBUSY: Self = Self(16);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// Nobody listens.
    pub const ECONNREFUSED: Self = Self(111);
    /// There is no way there.
    pub const EHOSTUNREACH: Self = Self(113);
    /// The address is in use.
    pub const EADDRINUSE: Self = Self(98);
    /// The address cannot be assigned.
    pub const EADDRNOTAVAIL: Self = Self(99);

    /// Its name on Linux; `None` for those that no system call of RDMA is known to say.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        NAMES.iter().find(|(number, _)| *number == self.0).map(|(_, name)| *name)
    }
}

/// Numbers of Linux on the machines that it has RDMA devices on (asm-generic/errno.h, errno-base.h).
const NAMES: [(i32, &str); 33] = [
    (1, "EPERM"),
    (2, "ENOENT"),
    (4, "EINTR"),
    (5, "EIO"),
    (6, "ENXIO"),
    (7, "E2BIG"),
    (9, "EBADF"),
    (11, "EAGAIN"),
    (12, "ENOMEM"),
    (13, "EACCES"),
    (14, "EFAULT"),
    (16, "EBUSY"),
    (17, "EEXIST"),
    (19, "ENODEV"),
    (22, "EINVAL"),
    (23, "ENFILE"),
    (24, "EMFILE"),
    (28, "ENOSPC"),
    (34, "ERANGE"),
    (38, "ENOSYS"),
    (71, "EPROTO"),
    (75, "EOVERFLOW"),
    (93, "EPROTONOSUPPORT"),
    (95, "EOPNOTSUPP"),
    (97, "EAFNOSUPPORT"),
    (98, "EADDRINUSE"),
    (99, "EADDRNOTAVAIL"),
    (101, "ENETUNREACH"),
    (104, "ECONNRESET"),
    (105, "ENOBUFS"),
    (110, "ETIMEDOUT"),
    (111, "ECONNREFUSED"),
    (113, "EHOSTUNREACH"),
];

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "errno {}", self.0)?;
        self.name().map_or(Ok(()), |name| write!(f, " {name}"))
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::{Errno, Failure, FailureStatus};

    #[test]
    fn every_number_keeps_its_number() {
        for number in 1..64 {
            assert_eq!(u32::from(FailureStatus::of_number(number).number()), number);
        }
        assert_eq!(FailureStatus::of_number(22), FailureStatus::Other(22));
        assert_eq!(FailureStatus::of_number(70_000), FailureStatus::Other(u16::MAX));
    }

    #[test]
    fn a_failure_names_status_number_and_vendor_code() {
        let failure = Failure::new(FailureStatus::RemoteAccess, 0x88);
        assert_eq!(failure.to_string(), "remote access error (status 10, vendor 0x88)");
        let unnamed = Failure::from(FailureStatus::of_number(23));
        assert_eq!(unnamed.to_string(), "unnamed status (status 23, vendor 0x0)");
    }

    #[test]
    fn an_errno_is_a_number_with_its_name_where_it_has_one() {
        assert_eq!(Errno(12).to_string(), "errno 12 ENOMEM");
        assert_eq!(Errno(133).to_string(), "errno 133");
    }

    #[cfg(feature = "verbs")]
    #[test]
    fn the_numbers_are_those_of_the_library() {
        use ibverbs_sys::ibv_wc_status as raw;
        for (number, status) in [
            (raw::IBV_WC_LOC_LEN_ERR, FailureStatus::LocalLength),
            (raw::IBV_WC_LOC_QP_OP_ERR, FailureStatus::LocalOperation),
            (raw::IBV_WC_LOC_PROT_ERR, FailureStatus::LocalProtection),
            (raw::IBV_WC_WR_FLUSH_ERR, FailureStatus::Flushed),
            (raw::IBV_WC_MW_BIND_ERR, FailureStatus::Bind),
            (raw::IBV_WC_BAD_RESP_ERR, FailureStatus::BadResponse),
            (raw::IBV_WC_LOC_ACCESS_ERR, FailureStatus::LocalAccess),
            (raw::IBV_WC_REM_INV_REQ_ERR, FailureStatus::RemoteInvalidRequest),
            (raw::IBV_WC_REM_ACCESS_ERR, FailureStatus::RemoteAccess),
            (raw::IBV_WC_REM_OP_ERR, FailureStatus::RemoteOperation),
            (raw::IBV_WC_RETRY_EXC_ERR, FailureStatus::RetryExceeded),
            (raw::IBV_WC_RNR_RETRY_EXC_ERR, FailureStatus::RnrRetryExceeded),
            (raw::IBV_WC_REM_ABORT_ERR, FailureStatus::RemoteAborted),
            (raw::IBV_WC_FATAL_ERR, FailureStatus::Fatal),
            (raw::IBV_WC_RESP_TIMEOUT_ERR, FailureStatus::ResponseTimeout),
            (raw::IBV_WC_GENERAL_ERR, FailureStatus::General),
        ] {
            assert_eq!(FailureStatus::of_number(number), status);
        }
        for (number, name) in
            [(libc::EADDRNOTAVAIL, "EADDRNOTAVAIL"), (libc::ENOBUFS, "ENOBUFS"), (libc::EAGAIN, "EAGAIN")]
        {
            assert_eq!(Errno(number).name(), Some(name));
        }
    }
}
