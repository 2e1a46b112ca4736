//! What a software NIC claims to be, and how strictly it behaves.

use crate::provider::{
    BaseAddress, Capabilities, Contiguity, DeviceAttributes, FailureStatus, KeyScope, PostModel, Quirks, SendQueueCost,
};
use core::fmt;
use core::num::NonZeroU64;
use core::str::FromStr;
use std::net::IpAddr;

/// Largest payload of one packet, in bytes: the largest path MTU of InfiniBand.
pub const MAX_MTU: u32 = 4096;
/// Smallest payload of one packet, in bytes: the smallest path MTU of InfiniBand.
pub const MIN_MTU: u32 = 256;

/// Largest page of a page list, in bytes: the largest power of two of 32 bits.
const LARGEST_PAGE: u32 = 1 << 31;

/// The device that a software NIC imitates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SoftProfile {
    /// The kernel's REG_MR: page lists, any base address, keys of the protection domain.
    RegMr,
    /// Type 2B memory windows, strict.
    Window,
    /// mlx5 indirect mkeys: lists with gaps, zero based, silent replacement, all-or-nothing posts.
    Umr {
        /// Key bits that rotate: 8, or 0 where the key is fixed (U10).
        rotating_key_bits: u8,
    },
    /// Linux soft RoCE 6.1: windows with its leniencies.
    Rxe,
}

impl SoftProfile {
    /// Every profile, for suites that run over all of them.
    pub const ALL: [Self; 5] =
        [Self::RegMr, Self::Window, Self::Umr { rotating_key_bits: 8 }, Self::Umr { rotating_key_bits: 0 }, Self::Rxe];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::RegMr => "reg_mr",
            Self::Window => "window",
            Self::Umr { rotating_key_bits: 0 } => "umr:fixed-key",
            Self::Umr { .. } => "umr",
            Self::Rxe => "rxe",
        }
    }

    /// What a device of this profile says of itself.
    #[must_use]
    pub const fn capabilities(self) -> Capabilities {
        let window = Capabilities {
            name: "soft:window",
            attributes: attributes(1),
            contiguity: Contiguity::SingleRange,
            max_registration_bytes: 1 << 31,
            base_address: BaseAddress::Virtual,
            rotating_key_bits: 8,
            key_scope: KeyScope::QueuePair,
            allocate_after_queue_pair: false,
            remote_invalidation: true,
            send_with_invalidate: true,
            refuses_live_registration: true,
            enforces_bounds: true,
            send_queue_cost: SendQueueCost { register: 1, invalidate: 1, message: 1 },
            post_model: PostModel::Prefix,
            fence_after_registration: false,
            quirks: Quirks {
                invalidate_flag_misplaced: false,
                crashes_on_double_invalidate: false,
                free_before_queue_pair: false,
                flushed_registration_may_be_live: false,
                silent_about_last_receive: false,
                shared_receives_need_one_domain: false,
            },
        };
        match self {
            Self::Window => window,
            Self::RegMr => Capabilities {
                name: "soft:reg_mr",
                attributes: attributes(256),
                contiguity: Contiguity::PageList { page_size: 4096 },
                base_address: BaseAddress::Any,
                key_scope: KeyScope::ProtectionDomain,
                ..window
            },
            Self::Umr { rotating_key_bits } => Capabilities {
                name: if rotating_key_bits == 0 { "soft:umr:fixed-key" } else { "soft:umr" },
                attributes: attributes(32),
                contiguity: Contiguity::Gaps { page_size: 0 },
                base_address: BaseAddress::Zero,
                rotating_key_bits,
                key_scope: KeyScope::ProtectionDomain,
                refuses_live_registration: false,
                post_model: PostModel::AllOrNothing,
                ..window
            },
            Self::Rxe => Capabilities {
                name: "soft:rxe",
                allocate_after_queue_pair: true,
                enforces_bounds: false,
                quirks: Quirks {
                    invalidate_flag_misplaced: true,
                    crashes_on_double_invalidate: true,
                    free_before_queue_pair: true,
                    flushed_registration_may_be_live: true,
                    silent_about_last_receive: true,
                    // Of the device only: here the queue's domain is looked at under every profile.
                    shared_receives_need_one_domain: false,
                },
                ..window
            },
        }
    }
}

/// Attributes that all profiles share; the numbers are those of a small real device.
const fn attributes(list: u32) -> DeviceAttributes {
    DeviceAttributes {
        memory_management_extensions: true,
        max_fast_reg_page_list_len: list,
        sg_gaps: false,
        max_send_sge: 16,
        max_sge_rd: 16,
        max_qp_wr: 4096,
        max_cqe: 1 << 17,
        max_registrations: 1 << 20,
        max_rdma_reads: 16,
        max_srq: 1024,
        max_srq_wr: 1 << 15,
    }
}

impl fmt::Display for SoftProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is not a [`SoftProfile`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown profile; use one of reg_mr, window, umr, umr:fixed-key, rxe")]
pub struct UnknownProfile;

impl FromStr for SoftProfile {
    type Err = UnknownProfile;

    fn from_str(name: &str) -> Result<Self, UnknownProfile> {
        Self::ALL.into_iter().find(|profile| profile.name() == name).ok_or(UnknownProfile)
    }
}

frwr_mempool::options! {
    /// How to make a software NIC. Every number of `capabilities` may be changed (U13).
    #[derive(Clone, Copy, Debug)]
    pub struct SoftOptions {
        /// Which device to imitate where capabilities do not say it.
        pub profile: SoftProfile,
        /// What it says of itself, and keeps.
        pub capabilities: Capabilities,
        /// Payload bytes of one packet, [`MIN_MTU`] to [`MAX_MTU`].
        pub mtu: u32,
        /// Packets that each of the four lanes of a connection holds. Each takes a little more than [`MAX_MTU`] bytes.
        pub wire_packets: u32,
        /// Seed of the first key bytes; equal seeds and equal calls give equal results.
        pub seed: u64,
        /// Work begins with the doorbell, as on hardware; where false with the next poll, so that a test can act in between.
        pub starts_at_doorbell: bool,
        /// Where those that it connects to see it; nowhere unless somebody asks for it, since devices of one process need no addresses.
        pub address: Option<IpAddr>,
        /// What is sent is read once more when its completion is due or its queue pair fails, as a device does that sends again; what its
        /// program changed meanwhile is told by [`SoftMonitor::violations`](super::SoftMonitor::violations). For tests: each message is read twice.
        pub watches_buffers: bool,
        /// A defect on purpose: every n-th invalidation is said to be done and is not. `None` for an honest device.
        pub skip_invalidations: Option<NonZeroU64>,
    }
}

impl SoftOptions {
    /// Packets that each lane of a connection holds unless told otherwise: 512 KiB in flight per direction.
    pub const DEFAULT_WIRE_PACKETS: u32 = 128;

    /// The defaults of a profile.
    #[must_use]
    pub const fn new(profile: SoftProfile) -> Self {
        Self {
            profile,
            capabilities: profile.capabilities(),
            mtu: MAX_MTU,
            wire_packets: Self::DEFAULT_WIRE_PACKETS,
            seed: 0x6672_7772,
            starts_at_doorbell: true,
            address: None,
            watches_buffers: false,
            skip_invalidations: None,
        }
    }

    /// The same with every number that would make no sense moved to the nearest that does: packets of [`MIN_MTU`] to
    /// [`MAX_MTU`] bytes, at least one packet per lane, one send queue entry per work request, pages of a power of two.
    #[must_use]
    pub(super) fn in_range(mut self) -> Self {
        self.mtu = self.mtu.clamp(MIN_MTU, MAX_MTU);
        self.wire_packets = self.wire_packets.max(1);
        let cost = &mut self.capabilities.send_queue_cost;
        for entries in [&mut cost.register, &mut cost.invalidate, &mut cost.message] {
            *entries = (*entries).max(1);
        }
        match &mut self.capabilities.contiguity {
            Contiguity::Gaps { page_size: 0 } | Contiguity::SingleRange => {}
            Contiguity::PageList { page_size } | Contiguity::Gaps { page_size } => {
                *page_size = page_size.checked_next_power_of_two().unwrap_or(LARGEST_PAGE);
            }
        }
        self
    }

    /// The same with registrations of lists with gaps (`SG_GAPS`; S3, S31).
    #[must_use]
    pub const fn with_gaps(mut self) -> Self {
        self.capabilities.attributes.sg_gaps = true;
        self.capabilities.contiguity = Contiguity::Gaps { page_size: 4096 };
        self
    }

    /// The same without registration by work request, as most cards are from user space: it opens no keys, and can only respond.
    #[must_use]
    pub const fn without_registrations(mut self) -> Self {
        let capabilities = &mut self.capabilities;
        capabilities.attributes.memory_management_extensions = false;
        (capabilities.attributes.max_fast_reg_page_list_len, capabilities.attributes.max_registrations) = (0, 0);
        capabilities.remote_invalidation = false;
        self
    }
}

impl Default for SoftOptions {
    fn default() -> Self {
        Self::new(SoftProfile::RegMr)
    }
}

/// Where profiles differ beyond their capabilities.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// How a refused registration completes.
    pub(super) register_failure: FailureStatus,
    /// A registration must name the object's current key.
    pub(super) names_old_key: bool,
    /// A registration may not repeat the key of the one before (I20).
    pub(super) refuses_repeated_key: bool,
    /// The base registration must be of the queue pair's domain; rxe forgets to look.
    pub(super) checks_base_domain: bool,
    /// A retry count of 7 never runs out.
    pub(super) endless_retries: bool,
    /// A queue pair hangs when a message with a registration behind it meets no receive.
    pub(super) hangs_when_not_ready: bool,
    /// An invalidation must come through the right queue pair and domain; rxe forgets to look.
    pub(super) checks_invalidator: bool,
    /// A queue pair that fails by itself or by its peer's fault raises an asynchronous event; rxe is silent.
    pub(super) queue_pair_events: bool,
}

impl Rules {
    pub(super) const fn of(profile: SoftProfile) -> Self {
        let strict = Self {
            register_failure: FailureStatus::Bind,
            names_old_key: true,
            refuses_repeated_key: true,
            checks_base_domain: true,
            endless_retries: false,
            hangs_when_not_ready: false,
            checks_invalidator: true,
            queue_pair_events: true,
        };
        match profile {
            SoftProfile::Window => strict,
            SoftProfile::RegMr => {
                Self { register_failure: FailureStatus::LocalOperation, names_old_key: false, ..strict }
            }
            SoftProfile::Umr { .. } => Self { names_old_key: false, refuses_repeated_key: false, ..strict },
            SoftProfile::Rxe => Self {
                refuses_repeated_key: false,
                checks_base_domain: false,
                endless_retries: true,
                hangs_when_not_ready: true,
                checks_invalidator: false,
                queue_pair_events: false,
                ..strict
            },
        }
    }
}
