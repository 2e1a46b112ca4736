//! Pairs of software NICs.

use super::pair::Pair;
use frwr_engine::provider::soft::{SoftDevice, SoftFabric, SoftOptions, SoftProfile};
use std::net::SocketAddr;

pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 4420);

/// Two NICs of a profile.
pub fn pair(profile: SoftProfile) -> Pair<SoftDevice> {
    pair_with(SoftOptions::new(profile))
}

pub fn pair_with(options: SoftOptions) -> Pair<SoftDevice> {
    let fabric = SoftFabric::new();
    Pair::new(fabric.device(options), fabric.device(options), ADDRESS)
}

/// Runs a test on every profile; a failure names it.
pub fn on_all(test: impl Fn(SoftProfile)) {
    on(&SoftProfile::ALL, test);
}

pub fn on(profiles: &[SoftProfile], test: impl Fn(SoftProfile)) {
    for profile in profiles {
        eprintln!("profile {profile}");
        test(*profile);
    }
}

/// Profiles that are strict with bounds and invalidation.
pub const STRICT: [SoftProfile; 4] = [
    SoftProfile::RegMr,
    SoftProfile::Window,
    SoftProfile::Umr { rotating_key_bits: 8 },
    SoftProfile::Umr { rotating_key_bits: 0 },
];
