//! Bringing a controller up and shutting it down, one command after the other (Base 3.5.1 and 3.6.1, RDMA 3.4), and what is
//! found out on the way.

use super::admin_data::{AdminData, Asked};
use super::ana::Ana;
use super::attachment::Attachment;
use super::context::Context;
use super::discovery::Discovery;
use super::failure::HostFailure;
use super::followers::share;
use super::limits::Limits;
use super::namespace::{Namespace, ana_group};
use super::options::HostOptions;
use super::queues::Queues;
use super::step::{Stage, Step};
use crate::wire::{
    Command, ControllerCapabilities, ControllerConfiguration, ControllerStatus, IdentifyController, Property,
    PropertyGet, PropertySet, PropertySize, SetFeatures, ShutdownStatus, cns, feature,
};
use frwr_engine::provider::Port;

/// What follows a step.
pub(super) enum Next {
    Step(Step),
    /// The controller is ready, and its Keep Alive Timer runs; Identify Controller follows.
    Enabled,
    OpenIo(u16),
    Ready,
    ShutDown,
}

/// What is known of a controller and its namespace. Between two sessions it is what the last one found out.
#[derive(Debug)]
pub(super) struct Found {
    limits: Limits,
    namespace: Namespace,
    ana: Ana,
    discovery: Discovery,
    /// I/O queues granted, over all cores.
    granted: u16,
}

impl Found {
    pub(super) fn new(options: &HostOptions) -> Self {
        Self {
            limits: Limits::default(),
            namespace: Namespace::default(),
            ana: Ana::default(),
            discovery: Discovery::new(options),
            granted: 0,
        }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    pub(super) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    pub(super) fn ana(&self) -> &Ana {
        &self.ana
    }

    /// How the namespace can be reached is told by others as well.
    pub(super) fn ana_mut(&mut self) -> &mut Ana {
        &mut self.ana
    }

    pub(super) fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    /// I/O queues granted, over all cores.
    pub(super) fn granted(&self) -> u16 {
        self.granted
    }

    /// What the host with the admin queue found out. More queues than this one has places for would be a mistake of the
    /// other one's.
    pub(super) fn learn<P: Port>(&mut self, attachment: &Attachment, context: &Context<P>) {
        self.limits = attachment.limits.with_queues(attachment.limits.queues.min(context.options.queues));
        self.namespace.told(attachment.geometry);
        self.ana.set(attachment.ana, context.time.watched());
    }

    /// A step's command.
    pub(super) fn command_of<P: Port>(
        &self,
        step: Step,
        queues: &Queues,
        data: &AdminData,
        context: &Context<P>,
    ) -> Asked {
        let options = &context.options;
        match step {
            Step::Connect => data.connect(None, context),
            Step::ConnectIo(queue) => data.connect(Some((queues.id(queue), self.limits.id)), context),
            Step::Authenticate(_, Stage::Receive) => AdminData::receive_message(),
            // The others send nothing.
            Step::Authenticate(..) => data.send_message(),
            Step::GetCapabilities => get(Property::Capabilities, PropertySize::Eight),
            Step::Enable => configure(ControllerConfiguration::ENABLED),
            Step::AwaitReady | Step::AwaitShutdown => get(Property::Status, PropertySize::Four),
            Step::IdentifyController => Asked::identify(cns::CONTROLLER, 0),
            Step::IdentifyCommandSet => Asked::identify(cns::COMMAND_SET_CONTROLLER, 0),
            Step::IdentifyDescriptors => Asked::identify(cns::DESCRIPTORS, options.namespace),
            Step::IdentifyNamespace => Asked::identify(cns::NAMESPACE, options.namespace),
            Step::SetQueues => {
                // Submission queues in the lower half, completion queues in the upper; both numbers are 0-based.
                let last = u32::from(options.all_queues() - 1);
                set_feature(feature::NUMBER_OF_QUEUES, last | last << 16)
            }
            Step::SetEvents => set_feature(feature::ASYNCHRONOUS_EVENTS, self.limits.events),
            Step::IdentifyActive => Asked::identify(cns::ACTIVE_NAMESPACES, 0),
            Step::ReadAna => self.ana.asked(),
            Step::ReadDiscovery => self.discovery.asked(),
            Step::ShutDown => configure(ControllerConfiguration::NORMAL_SHUTDOWN),
        }
    }

    /// Judges a step's result.
    pub(super) fn next_step<P: Port>(
        &mut self,
        step: Step,
        result: u64,
        success: bool,
        data: &AdminData,
        context: &Context<P>,
    ) -> Result<Next, HostFailure> {
        let options = &context.options;
        // CSTS and the identifier of a controller have fewer bits than a result.
        let csts = ControllerStatus(result as u32);
        Ok(Next::Step(match step {
            Step::Connect => {
                self.limits.named(result as u16);
                Step::GetCapabilities
            }
            // The session knows what follows.
            Step::Authenticate(..) => step,
            Step::GetCapabilities => {
                self.limits.check_capabilities(ControllerCapabilities(result), options)?;
                Step::Enable
            }
            Step::Enable => Step::AwaitReady,
            Step::AwaitReady if csts.is_fatal() => return Err(HostFailure::ControllerFatal),
            Step::AwaitReady if csts.is_ready() => return Ok(Next::Enabled),
            Step::AwaitReady => Step::AwaitReady,
            Step::IdentifyController => {
                self.limits.check_controller(&data.read(), options)?;
                if options.is_discovery() {
                    self.discovery.begin();
                    // Before the log page is read: what changes meanwhile is told.
                    if self.limits.events == 0 { Step::ReadDiscovery } else { Step::SetEvents }
                } else if self.limits.optional_commands & IdentifyController::WRITE_ZEROES != 0 {
                    Step::IdentifyCommandSet
                } else {
                    Step::SetQueues
                }
            }
            Step::IdentifyCommandSet => {
                self.limits.take_command_set(&data.read(), success);
                Step::SetQueues
            }
            Step::ReadDiscovery if self.discovery.take(&data.read())? => return Ok(Next::Ready),
            Step::ReadDiscovery => Step::ReadDiscovery,
            Step::SetQueues => {
                // 0-based, in both halves; a controller may grant more than was asked for.
                let granted = (result as u16).min((result >> 16) as u16).saturating_add(1);
                self.granted = granted.min(options.all_queues());
                let (_, queues) = share(self.granted, options.followers + 1, 0);
                self.limits.granted(queues);
                if self.limits.events == 0 { Step::IdentifyActive } else { Step::SetEvents }
            }
            Step::SetEvents => {
                if !success {
                    self.limits.without_events();
                }
                if options.is_discovery() { Step::ReadDiscovery } else { Step::IdentifyActive }
            }
            Step::IdentifyActive => {
                self.namespace.take_active(&data.read(), success);
                Step::IdentifyDescriptors
            }
            Step::IdentifyDescriptors => {
                self.namespace.take_descriptors(&data.read(), success);
                Step::IdentifyNamespace
            }
            Step::IdentifyNamespace => {
                let group = self.take_namespace(data, false)?;
                if self.limits.reports_ana {
                    self.ana.begin(group);
                    return Ok(Next::Step(Step::ReadAna));
                }
                self.ana.unknown();
                return Ok(Next::OpenIo(0));
            }
            Step::ReadAna if self.take_ana(success, data, context) => return Ok(Next::OpenIo(0)),
            Step::ReadAna => Step::ReadAna,
            Step::ConnectIo(queue) if queue + 1 < self.limits.queues => return Ok(Next::OpenIo(queue + 1)),
            Step::ConnectIo(_) => return Ok(Next::Ready),
            Step::ShutDown => Step::AwaitShutdown,
            Step::AwaitShutdown if csts.shutdown() == ShutdownStatus::Complete => return Ok(Next::ShutDown),
            Step::AwaitShutdown => Step::AwaitShutdown,
        }))
    }

    /// Takes a part of the log page of asymmetric access; true where it was the last one needed.
    pub(super) fn take_ana<P: Port>(&mut self, success: bool, data: &AdminData, context: &Context<P>) -> bool {
        let bytes = data.read();
        self.ana.take(success.then_some(&bytes), self.limits.log_offsets, context.time.watched())
    }

    /// Takes the namespace's Identify, and returns its group. `live`: the session goes on.
    fn take_namespace(&mut self, data: &AdminData, live: bool) -> Result<u32, HostFailure> {
        let identified = self.namespace.check_namespace(&data.read(), live)?;
        self.limits.zeroes_may_deallocate(identified.zeroes_deallocate);
        if let Some(blocks) = identified.compare_and_write {
            self.limits.compares_and_writes(blocks);
        }
        Ok(identified.group)
    }

    /// The namespace was identified again, since something about it changed.
    pub(super) fn take_changed(&mut self, data: &AdminData) -> Result<(), HostFailure> {
        let group = self.take_namespace(data, true)?;
        self.ana.group(group);
        Ok(())
    }

    /// Takes a part of the discovery log page, which is read again since it changed; true where it was the last.
    ///
    /// # Errors
    /// As of [`Discovery::take`].
    pub(super) fn take_discovery(&mut self, data: &AdminData) -> Result<bool, HostFailure> {
        self.discovery.take(&data.read())
    }

    /// The namespace was identified again for its group. Of the rest a controller without a path to it need not know.
    pub(super) fn take_group(&mut self, data: &AdminData) {
        self.ana.regroup(ana_group(&data.read()));
    }
}

fn get(property: Property, size: PropertySize) -> Asked {
    Asked::plain(Command::PropertyGet(PropertyGet { property, size }))
}

fn configure(configuration: ControllerConfiguration) -> Asked {
    let (property, size) = (Property::Configuration, PropertySize::Four);
    Asked::plain(Command::PropertySet(PropertySet { property, size, value: configuration.0.into() }))
}

fn set_feature(feature: u8, value: u32) -> Asked {
    Asked::plain(Command::SetFeatures(SetFeatures { feature, save: false, namespace: 0, value }))
}
