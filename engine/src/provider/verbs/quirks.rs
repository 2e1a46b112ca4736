//! What is known of devices beyond what they say of themselves, by driver.

use super::options::MAX_INLINE_BYTES;
use crate::provider::Quirks;

/// How a row of the table came to be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// Run by this project's tests, at every run.
    Run,
    /// Read in source and manual pages; not run on hardware.
    NotRunOnHardware,
}

/// One row: a driver and what is different about its devices.
#[derive(Clone, Copy, Debug)]
pub struct KnownDevice {
    /// As [`super::system::driver`] names it; empty for all others.
    pub driver: &'static str,
    /// Defects that the engine steers around.
    pub quirks: Quirks,
    /// Windows are allocated after their queue pair.
    pub allocate_after_queue_pair: bool,
    /// A window's bounds are enforced.
    pub enforces_bounds: bool,
    /// A message behind a bind needs the fence flag.
    pub fence_after_registration: bool,
    /// Bytes that one bind can cover, where the device does not say it.
    pub max_bind_bytes: u64,
    /// Largest retry count that ends.
    pub max_retry_count: u8,
    /// The longest queue is counted in the blocks that a send queue is made of, and a work request takes several.
    pub counts_blocks: bool,
    /// The work request builder is safe, and worth it.
    pub prefers_builder: bool,
    /// The work request builder gets the length of a message wrong whose elements differ in length: such chains go by
    /// lists, which may take a prefix, whatever the device says of refused posts.
    pub builder_miscounts_lists: bool,
    /// Queue pairs of a port may be made in a thread domain: its library leaves no lock out by that but those of posts.
    pub thread_domains: bool,
    /// Bytes that go inline unless the options say otherwise.
    pub inline_bytes: u32,
    /// How that is known.
    pub evidence: Evidence,
    /// Why, for people.
    pub reason: &'static str,
}

/// What a transport retry count may be at most on devices that keep to the specification (3 bits).
const MAX_RETRY_COUNT: u8 = 7;

/// Bytes that go inline: a command of NVMe, what answers it, and a header of NFS. What is longer costs more to copy twice than a card
/// takes to fetch it, and makes each entry of the send queue larger.
const INLINE_BYTES: u32 = 64;
const _: () = assert!(INLINE_BYTES <= MAX_INLINE_BYTES);

/// What is assumed of devices that the table does not name: the careful choice everywhere.
const UNKNOWN: KnownDevice = KnownDevice {
    driver: "",
    quirks: Quirks {
        invalidate_flag_misplaced: false,
        crashes_on_double_invalidate: true,
        free_before_queue_pair: true,
        // A flushed bind may have taken effect: no device promises otherwise.
        flushed_registration_may_be_live: true,
        // The standard asks for the event (ibv_get_async_event(3)).
        silent_about_last_receive: false,
        shared_receives_need_one_domain: false,
    },
    allocate_after_queue_pair: true,
    enforces_bounds: true,
    fence_after_registration: false,
    max_bind_bytes: u64::MAX,
    max_retry_count: MAX_RETRY_COUNT,
    counts_blocks: false,
    prefers_builder: false,
    builder_miscounts_lists: false,
    thread_domains: false,
    inline_bytes: INLINE_BYTES,
    evidence: Evidence::NotRunOnHardware,
    reason: "not in the table: windows are allocated after and freed before their queue pair, no key is invalidated twice",
};

/// The table: drivers whose devices have windows. What hardware that is, and of which version of rdma-core on, is in `hardware`.
pub static KNOWN_DEVICES: [KnownDevice; 5] = [
    KnownDevice {
        driver: "rxe",
        // No IBV_EVENT_QP_LAST_WQE_REACHED (spdk issue 1697).
        quirks: Quirks {
            invalidate_flag_misplaced: true,
            silent_about_last_receive: true,
            // Found by the conformance suite (kernel 6.1).
            shared_receives_need_one_domain: true,
            ..UNKNOWN.quirks
        },
        enforces_bounds: false,
        // 7 retries for ever.
        max_retry_count: 6,
        // `wr_set_sge_list` of rdma-core 44 to 55 (found by the suite over the builder).
        builder_miscounts_lists: true,
        // Its kernel copies whatever is sent: medians of a request were the same.
        inline_bytes: 0,
        evidence: Evidence::Run,
        reason: "a second invalidation crashes the kernel, window bounds are not enforced, remote invalidation is flagged \
                 with the wrong bit, retry count 7 never ends, a queue pair destroyed under a bound window blocks 50 s, \
                 ibv_wr_* miscounts lists of unequal elements",
        ..UNKNOWN
    },
    KnownDevice {
        driver: "mlx5",
        quirks: Quirks { crashes_on_double_invalidate: false, free_before_queue_pair: false, ..UNKNOWN.quirks },
        allocate_after_queue_pair: false,
        // One bind covers 2 GiB at most.
        max_bind_bytes: 1 << 31,
        counts_blocks: true,
        prefers_builder: true,
        // Nothing but posts takes the locks of its queue pairs (rdma-core 44). A shared receive queue's is taken by whoever destroys a
        // queue pair, so those are in no thread domain.
        thread_domains: true,
        reason: "binds of at most 2 GiB; ibv_wr_* is its native interface; a LOCAL_INV is checked against the queue pair",
        ..UNKNOWN
    },
    KnownDevice {
        driver: "mlx4",
        quirks: Quirks { crashes_on_double_invalidate: false, free_before_queue_pair: false, ..UNKNOWN.quirks },
        allocate_after_queue_pair: false,
        reason: "binds by ibv_post_send only; its library orders binds and invalidations strongly",
        ..UNKNOWN
    },
    KnownDevice {
        driver: "irdma",
        quirks: Quirks { crashes_on_double_invalidate: false, free_before_queue_pair: false, ..UNKNOWN.quirks },
        allocate_after_queue_pair: false,
        fence_after_registration: true,
        reason: "binds by ibv_post_send only, on reliable connections, of memory that is not zero-based (Intel IPU E2000, rdma-core 64); its \
                 library writes the window's key itself; a SEND behind a bind needs the fence",
        ..UNKNOWN
    },
    KnownDevice {
        driver: "ionic",
        reason: "its library never writes the window's key, and refuses binds of no bytes, and inline or solicited binds and invalidations \
                 (providers/ionic/ionic_verbs.c of rdma-core 61); else as an unknown device",
        ..UNKNOWN
    },
];

/// Elements that a message has at most where each takes room of every work request: an engine uses no more with pages of 4 KiB.
pub(super) const MOST_ELEMENTS: u32 = 19;

/// Work requests of the longest send queue of mlx5, which has so many blocks. Each has room for the largest: for a message of
/// so many elements, and for a list of so many entries.
pub(super) fn longest_send_queue(blocks: u32, elements: u32, entries: u16) -> u32 {
    const BLOCK_BYTES: u64 = 64;
    // Segments for control, UMR and key, and the block that the one entry of a bind takes. Every queue pair may bind or
    // invalidate, and libmlx5 puts elements and entries behind all of that.
    const AROUND: u64 = 192;
    const ELEMENT: u64 = 16;
    let work_request = (AROUND + ELEMENT * u64::from(elements.max(entries.into()))).next_multiple_of(BLOCK_BYTES);
    // Not more than blocks.
    (u64::from(blocks) * BLOCK_BYTES / work_request) as u32
}

/// The row of a driver.
#[must_use]
pub fn known_device(driver: &str) -> &'static KnownDevice {
    static OTHER: KnownDevice = UNKNOWN;
    KNOWN_DEVICES.iter().find(|row| row.driver == driver).unwrap_or(&OTHER)
}

#[cfg(test)]
mod tests {
    use super::{Evidence, KNOWN_DEVICES, known_device, longest_send_queue};

    #[test]
    fn a_send_queue_has_room_for_the_largest_work_request_in_each_place() {
        for (elements, entries, expected) in
            [(0, 0, 10_922), (1, 0, 8192), (4, 4, 8192), (5, 4, 6553), (19, 0, 4096), (19, 20, 4096), (19, 52, 2048)]
        {
            assert_eq!(longest_send_queue(1 << 15, elements, entries), expected, "{elements} {entries}");
        }
        assert_eq!(longest_send_queue(u32::MAX, 0, 0), u32::MAX / 3);
    }

    #[test]
    fn a_driver_finds_its_row_and_all_others_the_careful_one() {
        for row in &KNOWN_DEVICES {
            let found = known_device(row.driver);
            assert_eq!((found.driver, found.reason), (row.driver, row.reason));
        }
        for unknown in ["", "bnxt_re", "RXE", "mlx5_core"] {
            let found = known_device(unknown);
            assert_eq!((found.driver, found.evidence), ("", Evidence::NotRunOnHardware), "{unknown}");
            assert!(found.quirks.crashes_on_double_invalidate && found.quirks.free_before_queue_pair);
            assert!(found.allocate_after_queue_pair && !found.prefers_builder);
        }
        let rxe = known_device("rxe");
        assert_eq!((rxe.max_retry_count, rxe.enforces_bounds, rxe.evidence), (6, false, Evidence::Run));
        let with_threads = KNOWN_DEVICES.iter().filter(|row| row.thread_domains);
        assert_eq!(with_threads.map(|row| row.driver).collect::<Vec<_>>(), ["mlx5"]);
        assert_eq!((known_device("mlx5").inline_bytes, rxe.inline_bytes), (64, 0));
        assert_eq!(known_device("mlx5").max_bind_bytes, 1 << 31);
        assert!(known_device("irdma").fence_after_registration);
    }
}
