//! What gateways share out that serve the same subsystems, each a `serve` of its own: identifiers, and where hosts find the others.

use crate::{
    Error,
    address::Purpose,
    options::{Limit, Listen, address, check_address, texts},
};
use clap::Args;
use core::{fmt, ops::RangeInclusive, str::FromStr};
use frwr_nvmf::controller::{
    ElsewhereListener, IDS_PER_CONTROLLER, MAX_CONTROLLER_ID, MAX_LISTENERS, MAX_TARGETS, TargetOptions,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::net::SocketAddr;

const FIRST_ID: Limit = Limit::new("the first of --controller-ids", 1, MAX_CONTROLLER_ID as u64);
/// The listeners of all devices have a PORTID each from this one on.
const FIRST_PORT_ID: Limit =
    Limit::new("--first-port-id", 1, u16::MAX as u64 + 1 - (MAX_TARGETS as usize * MAX_LISTENERS) as u64);
const PORT_ID: Limit = Limit::new("the PORTID of --other-gateway", 1, u16::MAX as u64);
/// Addresses of other gateways: what a discovery log has beside those of all devices.
const OTHERS: usize = MAX_LISTENERS;

/// What stands between the ends of a range.
const TO: char = '-';
/// What stands between a PORTID and an address.
const AT: char = '/';

/// A gateway's part of what all gateways have together that serve the same subsystems.
#[derive(Clone, Debug, PartialEq, Eq, Args, Deserialize, Serialize)]
#[serde(default)]
pub struct GatewayArguments {
    /// Identifiers of its controllers (CNTLID). Where other gateways serve the same subsystems, each has a range of its own: hosts refuse
    /// a controller whose identifier another one of the subsystem has.
    #[arg(long, value_name = "FIRST-LAST", default_value_t = Self::default().controller_ids)]
    pub controller_ids: ControllerIds,
    /// The lowest PORTID of its listeners, of which each device has 16 from there on. Where other gateways serve the same subsystems,
    /// each has others.
    #[arg(
        long, value_name = "PORTID", default_value_t = Self::default().first_port_id,
        value_parser = FIRST_PORT_ID.parser::<u16>()
    )]
    pub first_port_id: u16,
    /// Where another gateway listens that serves the same subsystems to the same hosts, with its PORTID there: its discovery log lists it,
    /// too. May be given more than once.
    #[arg(long, value_name = "PORTID/ADDR:PORT")]
    #[serde(deserialize_with = "others_of")]
    pub other_gateway: Vec<OtherGateway>,
}

impl Default for GatewayArguments {
    fn default() -> Self {
        let all = ControllerIds { first: 1, last: MAX_CONTROLLER_ID };
        Self { controller_ids: all, first_port_id: 1, other_gateway: Vec::new() }
    }
}

impl GatewayArguments {
    /// Others serve the same, or somebody has prepared for that.
    pub(super) fn is_one_of_several(&self) -> bool {
        *self != Self::default()
    }

    /// Checks them for a target of so many devices that listens there, and has so many controllers on each.
    pub(super) fn check(&self, devices: usize, listen: &[Listen], controllers: u32) -> Result<(), Error> {
        self.check_ids(devices, controllers)?;
        FIRST_PORT_ID.check(self.first_port_id)?;
        let wrong = |text: String| Err(Error::usage("gateway", text));
        let count = self.other_gateway.len();
        if count > OTHERS {
            return wrong(format!(
                "--other-gateway is given {count} times: may be {OTHERS} times at most; leave some out"
            ));
        }
        // Devices are few.
        let own = usize::from(self.first_port_id)..usize::from(self.first_port_id) + devices * MAX_LISTENERS;
        for (at, other) in self.other_gateway.iter().enumerate() {
            let OtherGateway { port, address } = *other;
            PORT_ID.check(port)?;
            check_address("--other-gateway", address, Purpose::Connect)?;
            if own.contains(&usize::from(port)) {
                let (first, last) = (own.start, own.end - 1);
                return wrong(format!(
                    "--other-gateway is {other}: PORTIDs from {first} to {last} are of this one's own listeners; say the one that the \
                     other gateway has, or another --first-port-id here or there"
                ));
            }
            if listen.iter().any(|own| own.address == address) {
                return wrong(format!("--other-gateway is {other}, where this one listens itself; leave it out"));
            }
            let before = &self.other_gateway[..at];
            if before.iter().any(|one| one.address == address) {
                return wrong(format!("--other-gateway has {address} twice; name it once"));
            }
            if before.iter().any(|one| one.port == port) {
                return wrong(format!("--other-gateway has PORTID {port} twice; each port has its own"));
            }
        }
        Ok(())
    }

    fn check_ids(&self, devices: usize, controllers: u32) -> Result<(), Error> {
        let ControllerIds { first, last } = self.controller_ids;
        FIRST_ID.check(first)?;
        let last_id = Limit::new("the last of --controller-ids", first.into(), MAX_CONTROLLER_ID.into());
        last_id.check(last)?;
        // At most MAX_TARGETS, and few enough controllers for 32 bits.
        let devices = devices.max(1) as u32;
        let (each, wanted) = ((u32::from(last - first) + 1) / devices, controllers * u32::from(IDS_PER_CONTROLLER));
        if each >= wanted {
            return Ok(());
        }
        let (ids, all) = (self.controller_ids, wanted * devices);
        let text = format!(
            "--controller-ids is {ids}: the hosts that there may be, and the discovery service, need {wanted} for each of {devices} \
             devices, so {all}; widen it, or lower --hosts"
        );
        Err(Error::usage("controller_ids", text))
    }

    /// Devices that there may be at a time, of which each has identifiers for so many controllers, and PORTIDs in front of those of
    /// other gateways: as many as were checked at least.
    pub(super) fn places(&self, controllers: u32) -> u16 {
        let ControllerIds { first, last } = self.controller_ids;
        let (ids, each) = (u32::from(last.saturating_sub(first)) + 1, controllers * u32::from(IDS_PER_CONTROLLER));
        let behind = self.other_gateway.iter().filter_map(|other| other.port.checked_sub(self.first_port_id));
        let by_ports = behind.min().map_or(MAX_TARGETS, |ports| ports / MAX_LISTENERS as u16);
        // At most MAX_TARGETS.
        (ids / each.max(1)).min(MAX_TARGETS.into()).min(by_ports.into()) as u16
    }

    /// Tells a target of its part.
    pub(super) fn of_target(&self, options: TargetOptions) -> TargetOptions {
        let ControllerIds { first, last } = self.controller_ids;
        options.controller_ids(RangeInclusive::new(first, last)).first_port_id(self.first_port_id)
    }

    /// What the discovery log lists beside this one's own listeners.
    pub(super) fn elsewhere(&self) -> impl Iterator<Item = ElsewhereListener> {
        self.other_gateway.iter().map(|&OtherGateway { port, address }| ElsewhereListener { port, address })
    }
}

/// A range of controller identifiers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControllerIds {
    /// The lowest.
    pub first: u16,
    /// The highest.
    pub last: u16,
}

impl FromStr for ControllerIds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ends = text.split_once(TO).and_then(|(first, last)| Some((first.parse().ok()?, last.parse().ok()?)));
        let (first, last) = ends.ok_or_else(|| {
            format!("must be the first and the last of a range from 1 to {MAX_CONTROLLER_ID}, such as 1-32759")
        })?;
        Ok(Self { first, last })
    }
}

impl fmt::Display for ControllerIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{TO}{}", self.first, self.last)
    }
}

impl<'de> Deserialize<'de> for ControllerIds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        value_of(&String::deserialize(deserializer)?)
    }
}

impl Serialize for ControllerIds {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Where another gateway listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherGateway {
    /// PORTID, as it has it.
    pub port: u16,
    /// Its address.
    pub address: SocketAddr,
}

impl FromStr for OtherGateway {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (port, at) = text.split_once(AT).ok_or_else(|| {
            format!(
                "must have the PORTID of the other gateway's listener in front, as 17{AT}10.0.0.2:4420; `frwr ctl listeners` there \
                 tells it"
            )
        })?;
        let port = port.parse().map_err(|_| format!("its PORTID must be a whole number from 1 to {}", u16::MAX))?;
        Ok(Self { port, address: address(at)? })
    }
}

impl fmt::Display for OtherGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{AT}{}", self.port, self.address)
    }
}

impl Serialize for OtherGateway {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What `--other-gateway` takes, or a list of it.
fn others_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<OtherGateway>, D::Error> {
    let all = texts(deserializer, "a PORTID and an address such as \"17/10.0.0.2:4420\"")?;
    all.iter().map(|text| value_of(text)).collect()
}

/// A value of a file, of which is said what it is where it cannot be.
fn value_of<T: FromStr<Err = String>, E: serde::de::Error>(text: &str) -> Result<T, E> {
    text.parse().map_err(|reason| E::custom(format!("is {text:?}: {reason}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_may_be_as_many_as_there_are_identifiers_and_ports_for() {
        let all = GatewayArguments::default();
        let ids = |first, last| GatewayArguments { controller_ids: ControllerIds { first, last }, ..all.clone() };
        let behind = |port| GatewayArguments {
            first_port_id: 17,
            other_gateway: vec![OtherGateway { port, address: SocketAddr::from(([10, 0, 0, 2], 4420)) }],
            ..all.clone()
        };
        // 18 controllers of 2 identifiers each.
        for (gateway, places) in [
            (all.clone(), MAX_TARGETS),
            (ids(1, 36 * 3), 3),
            (ids(1, 36 * 3 - 1), 2),
            (ids(1, 32759), MAX_TARGETS),
            (behind(1), MAX_TARGETS),
            (behind(17 + 16 * 2), 2),
            (behind(17 + 16 * 8), MAX_TARGETS),
        ] {
            assert_eq!(gateway.places(18), places, "{gateway:?}");
        }
    }
}
