//! How a pair is made: options of devices and engines.

use super::{Pair, Side, Watch, Watched, address};
use crate::pace::Pace;
use core::time::Duration;
use frwr_engine::{
    EngineOptions,
    provider::{
        ConnectionParameters, Device,
        soft::{SoftDevice, SoftFabric, SoftOptions},
    },
};
use std::net::SocketAddr;

/// Receives that each side may use of the other unless told otherwise.
const PEER_RECEIVES: u32 = 32;

/// What a pair is made of; the host is the requester.
#[derive(Clone)]
pub struct Setup {
    pub host_device: SoftOptions,
    pub target_device: SoftOptions,
    pub host: EngineOptions,
    pub target: EngineOptions,
    pub peer_receives: u32,
    pub parameters: ConnectionParameters,
}

impl Setup {
    pub fn new(profile: &str) -> Self {
        let device = SoftOptions::new(profile.parse().unwrap());
        let common = EngineOptions::default().connections(2);
        Self {
            host_device: device,
            target_device: device,
            host: common.clone(),
            target: common.transfer_depth(64).queue_depth(1).registrations(1),
            peer_receives: PEER_RECEIVES,
            parameters: ConnectionParameters::default(),
        }
    }

    /// Changes the host's device.
    pub fn device(mut self, change: impl FnOnce(&mut SoftOptions)) -> Self {
        change(&mut self.host_device);
        self
    }

    /// Changes the host's engine.
    pub fn host(mut self, change: impl FnOnce(&mut EngineOptions)) -> Self {
        change(&mut self.host);
        self
    }

    /// Changes the target's engine.
    pub fn target(mut self, change: impl FnOnce(&mut EngineOptions)) -> Self {
        change(&mut self.target);
        self
    }

    /// Messages that the host may send unasked.
    pub fn peer_receives(mut self, receives: u32) -> Self {
        self.peer_receives = receives;
        self
    }

    /// A connected pair.
    pub fn pair(self) -> Pair<SoftDevice> {
        let mut pair = self.apart(|device| device);
        pair.connect();
        pair
    }

    /// A connected pair whose devices record and follow a script.
    pub fn watched(self) -> Watched {
        let mut watched = self.watched_apart();
        watched.pair.connect();
        watched
    }

    /// The same, not connected yet.
    pub fn watched_apart(self) -> Watched {
        let mut watches = Vec::new();
        let mut pair = self.apart(|device| {
            let (device, watch) = Watch::over(device);
            watches.push(watch);
            device
        });
        let (target, host) = (watches.pop().unwrap(), watches.pop().unwrap());
        let mut watched = Watched { host: host.of(&mut pair.host), target: target.of(&mut pair.target), pair };
        watched.host.clear();
        watched.target.clear();
        watched
    }

    /// A pair over any device, the target listening, not connected. The host's device is wrapped first.
    pub fn apart<D: Device>(self, mut wrap: impl FnMut(SoftDevice) -> D) -> Pair<D> {
        let fabric = SoftFabric::new();
        let host = wrap(fabric.device(self.host_device));
        let target = wrap(fabric.device(self.target_device));
        self.over(host, target, address())
    }

    /// The same over two devices that exist.
    pub fn over<D: Device>(self, host: D, target: D, address: SocketAddr) -> Pair<D> {
        let pace = Pace::of(host.capabilities());
        let host = Side::new(host, self.host);
        let mut pair = Pair { host, target: Side::new(target, self.target), now: Duration::ZERO, address, pace };
        pair.host.peer_receives = self.peer_receives;
        (pair.host.parameters, pair.target.parameters) = (self.parameters, self.parameters);
        pair.target.engine.listen(address).unwrap();
        pair.steps(4);
        pair
    }
}
