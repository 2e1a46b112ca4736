//! Which core gets a host's connect request.

use crate::wire::{ADMIN_QUEUE, RequestPrivateData};
use frwr_engine::control::{ConnectRequest, ListeningCore, Placed};
use zerocopy::FromBytes;

/// For [`frwr_engine::control::Control::place_connections`], where a target is spread over cores: admin queues go to the core
/// of number `home`, each I/O queue to the core that has the fewest of them. `home` is that core's number in the order of
/// `Control::open_core`.
pub fn place_queues(home: usize) -> impl FnMut(&ConnectRequest<'_>) -> Placed + Send + 'static {
    move |request| {
        let at_home = request.members.iter().position(|member| member.core == home).unwrap_or(0);
        match RequestPrivateData::read_from_prefix(request.private_data) {
            Ok((data, _)) if data.queue_id.get() != ADMIN_QUEUE => {
                // An admin queue costs next to nothing and weighs nothing; it only decides between equals.
                let load = |member: &ListeningCore| (member.weight, member.connections);
                let least = request.members.iter().enumerate().min_by_key(|(_, member)| load(member));
                Placed { member: least.map_or(at_home, |(at, _)| at), weight: 1 }
            }
            // What cannot be understood is rejected there.
            _ => Placed { member: at_home, weight: 0 },
        }
    }
}
