//! Bringing a controller up and shutting it down: one command after the other (Base 3.5.1 and 3.6.1, RDMA 3.4).

use super::ana::ANA_GROUPS_ONLY;
use super::discovery::DiscoveryRead;
use super::followers::share;
use super::options::{ADMIN_ENTRIES, Admin};
use super::queues::QueueOf;
use super::transport::Outgoing;
use super::{Host, HostFailure, State};
use crate::wire::{
    self, ADMIN_QUEUE, BROADCAST_NAMESPACE, Command, CompletionQueueEntry, Connect, ConnectData,
    ControllerCapabilities, ControllerConfiguration, ControllerStatus, DYNAMIC_CONTROLLER, DataPointer, GetLogPage,
    IDENTIFY_BYTES, Identify, IdentifyController, KeyedDataBlock, Property, PropertyGet, PropertySet, PropertySize,
    SetFeatures, ShutdownStatus, cns, feature, log_page,
};
use core::time::Duration;
use frwr_engine::gather::Segment;
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, SubmitError};

/// How often CSTS is read while a change takes: at most that much is lost of a change, and a controller that takes minutes is not asked
/// thousands of times a second.
const STATUS_PERIOD: Duration = Duration::from_millis(10);
/// Connect's data as a keyed data block says its length.
const CONNECT_DATA_BYTES: u32 = wire::CONNECT_DATA_BYTES as u32;
/// Identify structures as a keyed data block says their length.
const STRUCTURE_BYTES: u32 = IDENTIFY_BYTES as u32;

/// One command of the bring-up or the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Connect on the admin queue.
    Connect,
    /// Property Get of CAP.
    GetCapabilities,
    /// Property Set of CC: enable.
    Enable,
    /// Property Get of CSTS until RDY is set.
    AwaitReady,
    /// Identify Controller.
    IdentifyController,
    /// Identify Controller of the NVM command set.
    IdentifyCommandSet,
    /// Set Features: Number of Queues.
    SetQueues,
    /// Set Features: Asynchronous Event Configuration.
    SetEvents,
    /// Identify: Active Namespace ID list.
    IdentifyActive,
    /// Identify Namespace.
    IdentifyNamespace,
    /// Get Log Page: Asymmetric Namespace Access.
    ReadAna,
    /// Get Log Page: Discovery, a part of it.
    ReadDiscovery,
    /// Connect on an I/O queue, counted from 0.
    ConnectIo(u16),
    /// Property Set of CC: shutdown notification.
    ShutDown,
    /// Property Get of CSTS until SHST says complete.
    AwaitShutdown,
}

impl Step {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Connect => "Connect of the admin queue",
            Self::GetCapabilities => "Property Get of CAP",
            Self::Enable => "Property Set of CC",
            Self::AwaitReady => "waiting for CSTS.RDY",
            Self::IdentifyController => "Identify Controller",
            Self::IdentifyCommandSet => "Identify Controller of the NVM command set",
            Self::SetQueues => "Set Features of the number of queues",
            Self::SetEvents => "Set Features of asynchronous events",
            Self::IdentifyActive => "Identify of active namespaces",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::ReadAna => "Get Log Page of asymmetric namespace access",
            Self::ReadDiscovery => "Get Log Page of the discovery log",
            Self::ConnectIo(_) => "Connect of an I/O queue",
            Self::ShutDown => "shutdown notification",
            Self::AwaitShutdown => "waiting for CSTS.SHST",
        }
    }

    /// The session can do without it: its refusal is no failure.
    fn is_optional(self) -> bool {
        matches!(self, Self::IdentifyCommandSet | Self::SetEvents | Self::IdentifyActive | Self::ReadAna)
    }

    /// What passes before it is asked again where the answer says not yet.
    fn pause(self) -> Duration {
        if matches!(self, Self::AwaitReady | Self::AwaitShutdown) { STATUS_PERIOD } else { Duration::ZERO }
    }

    /// It belongs to the end of a session.
    pub(super) fn is_shutdown(self) -> bool {
        matches!(self, Self::ShutDown | Self::AwaitShutdown)
    }
}

/// Admin data whose address and key the engine asks for later.
fn keyed(length: u32) -> DataPointer {
    DataPointer::Keyed(KeyedDataBlock { address: 0, length, key: 0, invalidate: false })
}

fn get(property: Property, size: PropertySize) -> Command {
    Command::PropertyGet(PropertyGet { property, size })
}

fn configure(configuration: ControllerConfiguration) -> Command {
    let (property, size) = (Property::Configuration, PropertySize::Four);
    Command::PropertySet(PropertySet { property, size, value: configuration.0.into() })
}

impl<P: Port> Host<P> {
    /// Sends the step's command; tried again by the next poll where the engine has no room.
    pub(super) fn issue(&mut self, step: Step) {
        let (command, data) = self.command_of(step);
        let queue = if let Step::ConnectIo(queue) = step { QueueOf::Io(queue) } else { QueueOf::Admin };
        let slot = self.admin_slot(Admin::Step);
        if let Err(error) = self.send(queue, slot, command, data)
            && !matches!(error, SubmitError::NoSlot | SubmitError::NotConnected)
        {
            self.fail(HostFailure::Unsupported("the engine's way to open admin data"));
        }
    }

    /// Submits a command that is no I/O. `data` are the bytes of admin data that it opens.
    pub(super) fn send(
        &mut self,
        queue: QueueOf,
        slot: u16,
        command: Command,
        data: Option<(Access, u32)>,
    ) -> Result<(), SubmitError> {
        let connection = self.queues.connection(queue).ok_or(SubmitError::NotConnected)?;
        let segment = |length| [Segment { memory: self.admin_data_id, offset: 0, length }];
        let segments = data.map(|(_, length)| segment(length));
        let chunk = data.zip(segments.as_ref()).map(|((access, _), segments)| Chunk { access, segments });
        self.context.transport.submit(connection, slot, &Outgoing::admin(command, chunk.as_slice()))
    }

    fn command_of(&mut self, step: Step) -> (Command, Option<(Access, u32)>) {
        match step {
            Step::Connect => self.connect_command(ADMIN_QUEUE, ADMIN_ENTRIES, DYNAMIC_CONTROLLER),
            Step::ConnectIo(queue) => {
                self.connect_command(self.queues.id(queue), self.context.options.io_entries(), self.limits.id)
            }
            Step::GetCapabilities => (get(Property::Capabilities, PropertySize::Eight), None),
            Step::Enable => (configure(ControllerConfiguration::ENABLED), None),
            Step::AwaitReady | Step::AwaitShutdown => (get(Property::Status, PropertySize::Four), None),
            Step::IdentifyController => identify(cns::CONTROLLER, 0),
            Step::IdentifyCommandSet => identify(cns::COMMAND_SET_CONTROLLER, 0),
            Step::IdentifyNamespace => identify(cns::NAMESPACE, self.context.options.namespace),
            Step::SetQueues => {
                // Submission queues in the lower half, completion queues in the upper; both numbers are 0-based.
                let last = u32::from(self.context.options.all_queues() - 1);
                (set_feature(feature::NUMBER_OF_QUEUES, last | last << 16), None)
            }
            Step::SetEvents => (set_feature(feature::ASYNCHRONOUS_EVENTS, self.limits.events), None),
            Step::IdentifyActive => identify(cns::ACTIVE_NAMESPACES, 0),
            Step::ReadAna => get_log_page(log_page::ANA, ANA_GROUPS_ONLY, self.ana_offset()),
            Step::ReadDiscovery => get_log_page(log_page::DISCOVERY, 0, self.discovery_offset()),
            Step::ShutDown => (configure(ControllerConfiguration::NORMAL_SHUTDOWN), None),
        }
    }

    fn connect_command(&mut self, queue_id: u16, entries: u16, controller_id: u16) -> (Command, Option<(Access, u32)>) {
        let (host, subsystem, host_id) =
            (self.context.options.host, self.context.options.subsystem, self.context.options.host_id);
        let data = ConnectData { host_id, controller_id, subsystem, host: Some(host) };
        // The memory holds ADMIN_DATA_BYTES, which is more.
        let _ = self.admin_data.write(0, &data.to_bytes());
        // More than 49 days is for ever.
        let milliseconds = u32::try_from(self.context.options.keep_alive.as_millis()).unwrap_or(u32::MAX);
        let connect = Connect {
            record_format: 0,
            queue_id,
            queue_size: entries - 1,
            attributes: 0,
            keep_alive_timeout: if queue_id == ADMIN_QUEUE { milliseconds } else { 0 },
            data: keyed(CONNECT_DATA_BYTES),
        };
        (Command::Connect(connect), Some((Access::RemoteRead, CONNECT_DATA_BYTES)))
    }

    /// The step's command was answered.
    pub(super) fn step_answered(&mut self, response: &CompletionQueueEntry) {
        let State::Bringing { step, deadline, .. } = self.state else { return };
        let status = response.status();
        if !status.is_success() && !step.is_optional() {
            return self.fail(HostFailure::Command { step: step.name(), status });
        }
        match self.next_step(step, response.result.get(), status.is_success()) {
            Ok(Next::Step(next)) if next == step => {
                self.state = State::Bringing { step, at: self.context.time.after(step.pause()), deadline };
            }
            Ok(Next::Step(step)) => self.bring(step),
            Ok(Next::OpenIo(queue)) => self.open_next(QueueOf::Io(queue)),
            Ok(Next::Ready) => self.ready(),
            Ok(Next::ShutDown) => self.stop(),
            Err(failure) => self.fail(failure),
        }
    }

    /// Judges a step's result.
    fn next_step(&mut self, step: Step, result: u64, success: bool) -> Result<Next, HostFailure> {
        // CSTS and the identifier of a controller have fewer bits than a result.
        let csts = ControllerStatus(result as u32);
        Ok(Next::Step(match step {
            Step::Connect => {
                self.limits.id = result as u16;
                Step::GetCapabilities
            }
            Step::GetCapabilities => {
                self.check_capabilities(ControllerCapabilities(result))?;
                Step::Enable
            }
            Step::Enable => Step::AwaitReady,
            Step::AwaitReady if csts.is_fatal() => return Err(HostFailure::ControllerFatal),
            Step::AwaitReady if csts.is_ready() => {
                self.begin_keep_alive();
                Step::IdentifyController
            }
            Step::AwaitReady => Step::AwaitReady,
            Step::IdentifyController => {
                self.check_controller()?;
                if self.context.options.is_discovery() {
                    // A part of it may have been read in a session that ended.
                    self.discovery = DiscoveryRead::default();
                    self.discovered.clear();
                    Step::ReadDiscovery
                } else if self.limits.optional_commands & IdentifyController::WRITE_ZEROES != 0 {
                    Step::IdentifyCommandSet
                } else {
                    Step::SetQueues
                }
            }
            Step::IdentifyCommandSet => {
                self.take_command_set(success);
                Step::SetQueues
            }
            Step::ReadDiscovery if self.take_discovery()? => return Ok(Next::Ready),
            Step::ReadDiscovery => Step::ReadDiscovery,
            Step::SetQueues => {
                // 0-based, in both halves; a controller may grant more than was asked for.
                let granted = (result as u16).min((result >> 16) as u16).saturating_add(1);
                self.granted = granted.min(self.context.options.all_queues());
                (_, self.limits.queues) = share(self.granted, self.followers.count() + 1, 0);
                if self.limits.events == 0 { Step::IdentifyActive } else { Step::SetEvents }
            }
            Step::SetEvents => {
                if !success {
                    self.limits.events = 0;
                }
                Step::IdentifyActive
            }
            Step::IdentifyActive => {
                self.take_active(success);
                Step::IdentifyNamespace
            }
            Step::IdentifyNamespace => {
                self.check_namespace(false)?;
                if self.limits.reports_ana {
                    self.begin_ana();
                    return Ok(Next::Step(Step::ReadAna));
                }
                self.ana.unknown();
                return Ok(Next::OpenIo(0));
            }
            Step::ReadAna if self.take_ana(success) => return Ok(Next::OpenIo(0)),
            Step::ReadAna => Step::ReadAna,
            Step::ConnectIo(queue) if queue + 1 < self.limits.queues => return Ok(Next::OpenIo(queue + 1)),
            Step::ConnectIo(_) => return Ok(Next::Ready),
            Step::ShutDown => Step::AwaitShutdown,
            Step::AwaitShutdown if csts.shutdown() == ShutdownStatus::Complete => return Ok(Next::ShutDown),
            Step::AwaitShutdown => Step::AwaitShutdown,
        }))
    }
}

/// What follows a step.
enum Next {
    Step(Step),
    OpenIo(u16),
    Ready,
    ShutDown,
}

fn set_feature(feature: u8, value: u32) -> Command {
    Command::SetFeatures(SetFeatures { feature, save: false, value })
}

pub(super) fn identify(structure: u8, namespace: u32) -> (Command, Option<(Access, u32)>) {
    let command = Command::Identify(Identify { structure, namespace, data: keyed(STRUCTURE_BYTES) });
    (command, Some((Access::RemoteWrite, STRUCTURE_BYTES)))
}

/// 4 KiB of a log page, whose event is cleared by that.
pub(super) fn get_log_page(page: u8, specific: u8, offset: u64) -> (Command, Option<(Access, u32)>) {
    let command = Command::GetLogPage(GetLogPage {
        page,
        specific,
        retain_event: false,
        length: STRUCTURE_BYTES.into(),
        offset,
        offset_is_index: false,
        namespace: BROADCAST_NAMESPACE,
        data: keyed(STRUCTURE_BYTES),
    });
    (command, Some((Access::RemoteWrite, STRUCTURE_BYTES)))
}
