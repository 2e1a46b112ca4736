//! What helps where a host has no session, or a target none that could come: it follows from why.

use crate::Error;
use frwr_engine::{OpenFailure, provider::CommandError};
use frwr_nvmf::host::HostFailure;
use frwr_nvmf::wire::{RejectStatus, Status};
use std::{fmt::Display, net::SocketAddr};

/// What to do about a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// This: another try would fail in the same way.
    Change(&'static str),
    /// This, or more tries: it may pass.
    ChangeOrTry(&'static str),
}

impl Remedy {
    /// As a part of a sentence; `tries`: how the program is told to try more often.
    pub(super) fn text(self, tries: &str) -> String {
        match self {
            Self::Change(change) => change.to_owned(),
            Self::ChangeOrTry(change) => format!("{change}, or {tries}"),
        }
    }

    /// What to do about the last failure of a host that never had a session.
    pub(super) fn of(failure: &HostFailure) -> Self {
        use Remedy::{Change, ChangeOrTry};
        match failure {
            HostFailure::Open(OpenFailure::Unreachable(_)) => ChangeOrTry("start the target, look at --connect"),
            HostFailure::Open(OpenFailure::Stale) => ChangeOrTry("wait until the target has noticed that"),
            HostFailure::Open(OpenFailure::Rejected) => {
                ChangeOrTry("see what listens there, since it gave no reason of NVMe-oF")
            }
            HostFailure::Open(OpenFailure::LockedMemory { .. }) => ChangeOrTry("do that"),
            HostFailure::Open(OpenFailure::SharedReceives { .. } | OpenFailure::NotMade(_)) => {
                ChangeOrTry("lower --queues and --queue-depth, use another device")
            }
            HostFailure::Rejected(status) => rejected(*status),
            HostFailure::Command { status, .. } => refused(*status),
            HostFailure::Disconnected(_) => ChangeOrTry("look at what the target prints of it"),
            HostFailure::Timeout { .. } | HostFailure::CommandTimeout { .. } | HostFailure::KeepAlive { .. } => {
                ChangeOrTry("see whether the target runs")
            }
            HostFailure::AuthenticationRequired => Change("give it the host's key by --dhchap-key"),
            HostFailure::Authentication(_) => {
                Change("compare those of --dhchap-key and --dhchap-ctrl-key with what the target has for this host")
            }
            HostFailure::ControllerFatal => ChangeOrTry("restart the target, whose log says why"),
            HostFailure::Unsupported(_) => Change("use another target"),
            HostFailure::QueueDepth { .. } => Change("lower --queue-depth"),
            HostFailure::Format(_) | HostFailure::NamespaceChanged => Change("name another namespace by --nsid"),
            HostFailure::ControllerLoss | HostFailure::TooManyAttempts => Change("look at what the target prints"),
        }
    }
}

/// The target was never reached; `tries`: how the program is told to try more often.
pub(super) fn no_session(address: SocketAddr, attempts: u64, failure: &HostFailure, tries: &str) -> Error {
    let remedy = Remedy::of(failure).text(tries);
    let text = format!("no session with {address} after {attempts} attempt(s): {failure}; {remedy}");
    if is_answer(failure) { Error::refused("no_session", text) } else { Error::failed("no_session", text) }
}

/// A target is there: it said this, or what it said is this.
const fn is_answer(failure: &HostFailure) -> bool {
    matches!(
        failure,
        HostFailure::Rejected(_)
            | HostFailure::Command { .. }
            | HostFailure::AuthenticationRequired
            | HostFailure::Authentication(_)
            | HostFailure::Unsupported(_)
            | HostFailure::QueueDepth { .. }
            | HostFailure::Format(_)
            | HostFailure::NamespaceChanged
    )
}

/// Nobody can listen there, for what the device said.
pub(crate) fn cannot_listen(address: impl Display, reason: Option<CommandError>) -> Error {
    let reason = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let text = format!(
        "--listen {address}: the address is taken, or is none of the device's network interface{reason}; `ip address` lists \
         addresses, and another port may be free"
    );
    Error::failed("listen", text)
}

/// The target refused the connection.
fn rejected(status: RejectStatus) -> Remedy {
    match status {
        RejectStatus::NoResources => {
            Remedy::ChangeOrTry("end another host of the target or raise its limits, lower --queues and --queue-depth")
        }
        RejectStatus::InvalidHostSendQueue | RejectStatus::InvalidHostReceiveQueue => {
            Remedy::Change("lower --queue-depth")
        }
        RejectStatus::InvalidQueueId => Remedy::Change("lower --queues, or use fewer cores"),
        RejectStatus::InvalidInboundReads | RejectStatus::InvalidOutboundReads => {
            Remedy::Change("look at the options of the target, which wants another number of RDMA READs")
        }
        RejectStatus::InvalidPrivateDataLength
        | RejectStatus::InvalidRecordFormat
        | RejectStatus::InvalidControllerId => {
            Remedy::Change("use another target: this one speaks another version of NVMe over RDMA")
        }
    }
}

/// The controller refused a command of the bring-up.
fn refused(status: Status) -> Remedy {
    let change = match status.without_flags() {
        Status::CONNECT_INVALID_HOST => "have the target allow this host, or give a name that it allows by --host-nqn",
        Status::CONNECT_INVALID_PARAMETERS => {
            "look at --subsystem; `frwr discover` lists the subsystems that there are"
        }
        Status::INVALID_NAMESPACE => "name a namespace that there is by --nsid",
        Status::KEEP_ALIVE_TIMEOUT_INVALID => "look at the limits of the target's Keep Alive Timeout",
        Status::INVALID_QUEUE_SIZE => "lower --queue-depth",
        Status::INVALID_QUEUE_IDENTIFIER => "lower --queues, or use fewer cores",
        _ => "look at what the target prints of it",
    };
    if status.is_final() { Remedy::Change(change) } else { Remedy::ChangeOrTry(change) }
}

#[cfg(test)]
mod tests {
    use super::{Remedy, no_session};
    use core::time::Duration;
    use frwr_engine::OpenFailure;
    use frwr_engine::provider::Errno;
    use frwr_nvmf::host::HostFailure;
    use frwr_nvmf::wire::{RejectStatus, Status};

    const RECONNECTS: &str = "raise --reconnects";

    fn remedy(failure: &HostFailure) -> String {
        Remedy::of(failure).text(RECONNECTS)
    }

    #[test]
    fn where_software_nics_look_for_each_other_is_said_only_where_nobody_was_found() {
        let address = "127.0.0.1:4420".parse().unwrap();
        let says = |failure: &HostFailure| {
            let text = no_session(address, 1, failure, RECONNECTS).between_processes().to_string();
            text.contains("software NICs find each other in")
        };
        assert!(says(&HostFailure::Open(OpenFailure::Unreachable(Errno::ECONNREFUSED))));
        assert!(says(&HostFailure::Timeout { what: "connecting", stood_still: Duration::ZERO }));
        for answer in [
            HostFailure::AuthenticationRequired,
            HostFailure::Command { step: "Connect", status: Status::CONNECT_INVALID_HOST },
            HostFailure::Rejected(RejectStatus::NoResources),
            HostFailure::QueueDepth { wanted: 9, limit: 8 },
        ] {
            assert!(!says(&answer), "{answer}");
        }
    }

    #[test]
    fn another_try_is_a_remedy_only_where_the_host_itself_would_try_again() {
        let statuses = (0..0x800).flat_map(|code| {
            let status = Status::from_wire(code << 1);
            [status, status.do_not_retry()]
        });
        let commands = statuses.map(|status| HostFailure::Command { step: "a step", status });
        let rejections = (0..16).filter_map(RejectStatus::from_wire).map(HostFailure::Rejected);
        let others = [
            HostFailure::Open(OpenFailure::Unreachable(Errno::ECONNREFUSED)),
            HostFailure::Open(OpenFailure::Stale),
            HostFailure::Timeout { what: "connecting", stood_still: Duration::ZERO },
            HostFailure::KeepAlive { stood_still: Duration::ZERO },
            HostFailure::AuthenticationRequired,
            HostFailure::Unsupported("anything"),
            HostFailure::QueueDepth { wanted: 9, limit: 8 },
            HostFailure::NamespaceChanged,
        ];
        for failure in commands.chain(rejections).chain(others) {
            let text = remedy(&failure);
            assert!(!text.is_empty());
            assert_eq!(text.contains(RECONNECTS), !failure.is_permanent(false), "{failure}: {text}");
        }
        let refused = |status: Status| remedy(&HostFailure::Command { step: "Connect", status: status.do_not_retry() });
        assert!(refused(Status::CONNECT_INVALID_HOST).contains("--host-nqn"));
        assert!(refused(Status::CONNECT_INVALID_PARAMETERS).contains("--subsystem"));
        for open in [OpenFailure::Unreachable(Errno::ECONNREFUSED), OpenFailure::Stale] {
            assert!(remedy(&HostFailure::Open(open)).contains(RECONNECTS));
        }
    }
}
