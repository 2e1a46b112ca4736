//! Bringing a controller up and shutting it down: one command after the other (Base 3.5.1 and 3.6.1, RDMA 3.4).

use super::options::ADMIN_ENTRIES;
use super::{Host, HostFailure, Opened, State};
use crate::nvmf::{
    self, ADMIN_QUEUE, Command, CompletionQueueEntry, Connect, ConnectData, ControllerCapabilities,
    ControllerConfiguration, ControllerStatus, DYNAMIC_CONTROLLER, DataPointer, IDENTIFY_BYTES, Identify,
    IdentifyController, IdentifyNamespace, KeyedDataBlock, Property, PropertyGet, PropertySet, PropertySize,
    SetFeatures, ShutdownStatus, cns, feature,
};
use crate::storage::Geometry;
use frwr_engine::gather::Segment;
use frwr_engine::provider::{Access, Port};
use frwr_engine::{Chunk, Submission, SubmitError};
use zerocopy::{FromBytes, IntoBytes};

/// Queue identifier of the one I/O queue.
pub(super) const IO_QUEUE: u16 = 1;
/// Connect's data as a keyed data block says its length.
const CONNECT_DATA_BYTES: u32 = nvmf::CONNECT_DATA_BYTES as u32;
/// Identify structures as a keyed data block says their length.
const STRUCTURE_BYTES: u32 = IDENTIFY_BYTES as u32;

/// Least IOCCSZ and IORCSZ, in their units of 16 bytes: the entries themselves (Base figure 275).
const LEAST_COMMAND_UNITS: u32 = (nvmf::COMMAND_CAPSULE_BYTES / 16) as u32;
const LEAST_RESPONSE_UNITS: u32 = (nvmf::RESPONSE_CAPSULE_BYTES / 16) as u32;

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
    /// Set Features: Number of Queues.
    SetQueues,
    /// Identify Namespace.
    IdentifyNamespace,
    /// Connect on the I/O queue.
    ConnectIo,
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
            Self::SetQueues => "Set Features of the number of queues",
            Self::IdentifyNamespace => "Identify Namespace",
            Self::ConnectIo => "Connect of the I/O queue",
            Self::ShutDown => "shutdown notification",
            Self::AwaitShutdown => "waiting for CSTS.SHST",
        }
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
    /// The command slot of the bring-up.
    pub(super) fn admin_slot(&self) -> u16 {
        self.options.queue_depth
    }

    /// Sends the step's command; tried again by the next poll where the engine has no room.
    pub(super) fn issue(&mut self, step: Step) {
        let (command, data) = self.command_of(step);
        let queue = if step == Step::ConnectIo { Opened::Io } else { Opened::Admin };
        let slot = self.admin_slot();
        if let Err(error) = self.send(queue, slot, command, data)
            && !matches!(error, SubmitError::NoSlot | SubmitError::NotConnected)
        {
            self.fail(HostFailure::Unsupported("the engine's way to open admin data"));
        }
    }

    /// Submits a command that is no I/O. `data` are the bytes of admin data that it opens.
    pub(super) fn send(
        &mut self,
        queue: Opened,
        slot: u16,
        command: Command,
        data: Option<(Access, u32)>,
    ) -> Result<(), SubmitError> {
        let connection = match queue {
            Opened::Admin => self.connections.admin,
            Opened::Io => self.connections.io,
        };
        let connection = connection.ok_or(SubmitError::NotConnected)?;
        let identifier = self.commands.next_identifier(slot);
        let entry = command.encode(identifier).map_err(|_| SubmitError::MessageLength)?;
        let segment = |length| [Segment { memory: self.admin_data_id, offset: 0, length }];
        let segments = data.map(|(_, length)| segment(length));
        let chunk = data.zip(segments.as_ref()).map(|((access, _), segments)| Chunk { access, segments });
        let submission = Submission {
            message: entry.as_bytes(),
            inline: &[],
            chunks: chunk.as_slice(),
            invite_invalidation: false,
            iova_cookie: identifier.into(),
            cookie: identifier.into(),
        };
        let handle = self.engine.submit(connection, &submission, &mut self.commands)?;
        self.commands.posted(identifier, connection, handle);
        Ok(())
    }

    fn command_of(&mut self, step: Step) -> (Command, Option<(Access, u32)>) {
        match step {
            Step::Connect => self.connect_command(ADMIN_QUEUE, ADMIN_ENTRIES, DYNAMIC_CONTROLLER),
            Step::ConnectIo => self.connect_command(IO_QUEUE, self.options.io_entries(), self.controller.id),
            Step::GetCapabilities => (get(Property::Capabilities, PropertySize::Eight), None),
            Step::Enable => (configure(ControllerConfiguration::ENABLED), None),
            Step::AwaitReady | Step::AwaitShutdown => (get(Property::Status, PropertySize::Four), None),
            Step::IdentifyController => identify(cns::CONTROLLER, 0),
            Step::IdentifyNamespace => identify(cns::NAMESPACE, self.options.namespace),
            Step::SetQueues => {
                // One pair of I/O queues: both numbers are 0-based.
                let set = SetFeatures { feature: feature::NUMBER_OF_QUEUES, save: false, value: 0 };
                (Command::SetFeatures(set), None)
            }
            Step::ShutDown => (configure(ControllerConfiguration::NORMAL_SHUTDOWN), None),
        }
    }

    fn connect_command(&mut self, queue_id: u16, entries: u16, controller_id: u16) -> (Command, Option<(Access, u32)>) {
        let (host, subsystem, host_id) = (self.options.host, self.options.subsystem, self.options.host_id);
        let data = ConnectData { host_id, controller_id, subsystem, host };
        // The memory holds ADMIN_DATA_BYTES, which is more.
        let _ = self.admin_data.write(0, &data.to_bytes());
        // More than 49 days is for ever.
        let milliseconds = u32::try_from(self.options.keep_alive.as_millis()).unwrap_or(u32::MAX);
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
        let State::Bringing { step, deadline } = self.state else { return };
        let status = response.status();
        if !status.is_success() {
            return self.fail(HostFailure::Command { step: step.name(), status });
        }
        match self.next_step(step, response.result.get()) {
            Ok(Next::Step(next)) if next == step => self.state = State::Bringing { step, deadline },
            Ok(Next::Step(step)) => self.bring(step),
            Ok(Next::OpenIo) => self.open_next(Opened::Io),
            Ok(Next::Ready) => self.ready(),
            Ok(Next::ShutDown) => self.stop(),
            Err(failure) => self.fail(failure),
        }
    }

    /// Judges a step's result.
    fn next_step(&mut self, step: Step, result: u64) -> Result<Next, HostFailure> {
        // CSTS and the identifier of a controller have fewer bits than a result.
        let csts = ControllerStatus(result as u32);
        Ok(Next::Step(match step {
            Step::Connect => {
                self.controller.id = result as u16;
                Step::GetCapabilities
            }
            Step::GetCapabilities => {
                self.check_capabilities(ControllerCapabilities(result))?;
                Step::Enable
            }
            Step::Enable => Step::AwaitReady,
            Step::AwaitReady if csts.is_fatal() => return Err(HostFailure::ControllerFatal),
            Step::AwaitReady if csts.is_ready() => Step::IdentifyController,
            Step::AwaitReady => Step::AwaitReady,
            Step::IdentifyController => {
                self.check_controller()?;
                Step::SetQueues
            }
            // What is granted is 0-based, so it is never less than the one queue that was asked for.
            Step::SetQueues => Step::IdentifyNamespace,
            Step::IdentifyNamespace => {
                self.check_namespace()?;
                return Ok(Next::OpenIo);
            }
            Step::ConnectIo => return Ok(Next::Ready),
            Step::ShutDown => Step::AwaitShutdown,
            Step::AwaitShutdown if csts.shutdown() == ShutdownStatus::Complete => return Ok(Next::ShutDown),
            Step::AwaitShutdown => Step::AwaitShutdown,
        }))
    }

    fn check_capabilities(&mut self, capabilities: ControllerCapabilities) -> Result<(), HostFailure> {
        self.controller.capabilities = capabilities;
        if !capabilities.has_nvm_command_set() {
            return Err(HostFailure::Unsupported("the NVM command set"));
        }
        if capabilities.minimum_page_size() > 4096 {
            return Err(HostFailure::Unsupported("memory pages of 4 KiB (CAP.MPSMIN)"));
        }
        self.check_depth(self.options.io_entries(), capabilities.max_queue_entries())
    }

    fn check_depth(&self, needed: u16, limit: u32) -> Result<(), HostFailure> {
        // The limit is of entries or commands; a depth is one less than the entries.
        if u32::from(needed) <= limit {
            return Ok(());
        }
        let beside = u32::from(needed - self.options.queue_depth);
        Err(HostFailure::QueueDepth { wanted: self.options.queue_depth, limit: limit.saturating_sub(beside) })
    }

    fn check_controller(&mut self) -> Result<(), HostFailure> {
        let mut bytes = [0; IDENTIFY_BYTES];
        // The memory holds ADMIN_DATA_BYTES, as many.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(identify) = IdentifyController::ref_from_bytes(&bytes) else {
            return Err(HostFailure::Unsupported("Identify Controller"));
        };
        if !identify.supports_keyed_blocks() {
            return Err(HostFailure::Unsupported("keyed data blocks (SGLS)"));
        }
        if identify.controller_id.get() != self.controller.id {
            return Err(HostFailure::Unsupported("the identifier that Connect gave it (CNTLID)"));
        }
        let (command, response) = (identify.io_command_capsule.get(), identify.io_response_capsule.get());
        if command < LEAST_COMMAND_UNITS || response < LEAST_RESPONSE_UNITS {
            return Err(HostFailure::Unsupported("capsules as long as their entries (IOCCSZ, IORCSZ)"));
        }
        if identify.subsystem != self.options.subsystem.to_field() {
            return Err(HostFailure::Unsupported("the subsystem that it was connected to (SUBNQN)"));
        }
        let offset = identify.sgl_support.get() & IdentifyController::SGL_OFFSET != 0;
        // In-capsule data starts right behind the command, or this host does not use it.
        let usable = offset && identify.in_capsule_data_offset.get() == 0;
        self.controller.in_capsule_bytes = if usable { identify.in_capsule_bytes() } else { 0 };
        let page = self.controller.capabilities.minimum_page_size();
        self.controller.max_transfer = identify.max_transfer_bytes(page);
        match u32::from(identify.max_commands.get()) {
            0 => Ok(()),
            limit => self.check_depth(self.options.queue_depth, limit),
        }
    }

    fn check_namespace(&mut self) -> Result<(), HostFailure> {
        let mut bytes = [0; IDENTIFY_BYTES];
        // As above.
        let _ = self.admin_data.read(0, &mut bytes);
        let Ok(identify) = IdentifyNamespace::ref_from_bytes(&bytes) else {
            return Err(HostFailure::Unsupported("Identify Namespace"));
        };
        let (blocks, block_bytes) = identify.geometry().map_err(HostFailure::Format)?;
        let geometry = Geometry::new(blocks, block_bytes)
            .map_err(|_| HostFailure::Unsupported("namespaces of fewer than 2^64 bytes"))?;
        match self.geometry {
            Some(before) if before != geometry => Err(HostFailure::NamespaceChanged),
            _ => {
                self.geometry = Some(geometry);
                Ok(())
            }
        }
    }
}

/// What follows a step.
enum Next {
    Step(Step),
    OpenIo,
    Ready,
    ShutDown,
}

fn identify(structure: u8, namespace: u32) -> (Command, Option<(Access, u32)>) {
    let command = Command::Identify(Identify { structure, namespace, data: keyed(STRUCTURE_BYTES) });
    (command, Some((Access::RemoteWrite, STRUCTURE_BYTES)))
}
