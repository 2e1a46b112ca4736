//! What can be chosen when a device is opened.

use crate::provider::ConnectionParameters;

/// Largest path MTU of a reliable connection, in bytes.
pub const MAX_MTU: u32 = 4096;
/// Smallest path MTU.
pub const MIN_MTU: u32 = 256;
/// Largest `ack_timeout`: 5 bits in the connection's attributes (ibv_modify_qp(3)).
pub const MAX_ACK_TIMEOUT: u8 = 31;
/// Largest `min_rnr_timer`: 5 bits as well.
pub const MAX_RNR_TIMER: u8 = 31;

/// How chains are posted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PostInterface {
    /// The work request builder where the table of devices says that it is faster and the device can, else lists.
    #[default]
    Automatic,
    /// `ibv_post_send`: every device.
    List,
    /// `ibv_wr_*`: mlx5 and rxe; opening fails where the device cannot.
    Builder,
}

/// What memory is opened to peers by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// Lists where the device can and their keys rotate, else windows.
    #[default]
    Automatic,
    /// Type 2 windows: one range for each, bound to its queue pair.
    Windows,
    /// Indirect keys of mlx5: a list of ranges for each; opening fails where there are none. **Never run on hardware.**
    Lists,
}

/// What whoever opens a device will do with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Opens memory to peers by work requests, and responds as well. Opening fails where the device has neither windows nor lists.
    #[default]
    Requester,
    /// Opens none: it sends messages, replies, reads and writes what peers have opened, and may register memory for a long time
    /// (`Port::register_memory`). A device without windows and lists is opened too. `Capabilities::attributes` say then that there are no
    /// memory management extensions, and `Capabilities::send_with_invalidate` whether keys of peers can be invalidated.
    Responder,
}

/// Most entries that a list can be asked for: the bytes of a send queue entry end at about that many.
pub const MAX_LIST_ENTRIES: u16 = 52;

/// Entries that lists have unless told otherwise: 16 segments of a header then cover a request of 1 MiB in scattered pages.
/// Every entry of the send queue is as large as the longest list makes it, 512 bytes with 20, so that fewer fit the longest send queue.
const LIST_ENTRIES: u16 = 20;

/// Most bytes of inline data that can be asked for: work requests of the devices that are known end below that.
pub const MAX_INLINE_BYTES: u32 = 1024;

frwr_mempool::options! {
    /// How to open a device.
    #[derive(Clone, Debug)]
    pub struct VerbsOptions {
        /// Its name, as `ibv_devices` and `rdma link` show it.
        pub device: String,
        /// Port of the device, from 1.
        pub port: u8,
        /// Index in the port's GID table, for connections and for the self-test. Connecting to, or accepting, a peer that can
        /// be reached by another address only fails. `None`: where the table has one address of the peer's family that one,
        /// else routing decides.
        pub gid_index: Option<u8>,
        /// Largest path MTU in bytes, a power of two from [`MIN_MTU`] to [`MAX_MTU`]; `None` for what the path offers. Not
        /// negotiated: choose the same at both ends, since a queue pair refuses packets that are larger than its own.
        pub mtu: Option<u32>,
        /// Traffic class of what is sent (the IP header's TOS byte on RoCE v2); `None` for the connection manager's choice.
        pub traffic_class: Option<u8>,
        /// Time until a packet is sent again: 4.096 us * 2^n, n up to [`MAX_ACK_TIMEOUT`], 0 for never; `None` for the
        /// connection manager's choice.
        pub ack_timeout: Option<u8>,
        /// Code of the shortest pause that we ask of a peer whose message met no receive, up to [`MAX_RNR_TIMER`]
        /// (ibv_modify_qp(3)); `None` for the connection manager's choice.
        pub min_rnr_timer: Option<u8>,
        /// How chains are posted. Lists are posted by the builder, whatever is said here.
        pub post: PostInterface,
        /// What the device is opened for.
        pub role: Role,
        /// What memory is opened to peers by. Where a responder's device cannot, it opens none.
        pub registration: Registration,
        /// Entries of the longest list that is registered at once, 1 to [`MAX_LIST_ENTRIES`]; a device whose work requests have no room
        /// for as many registers no lists.
        pub list_entries: u16,
        /// Messages and RDMA WRITEs of up to so many bytes are copied into their work request (`IBV_SEND_INLINE`, ibv_post_send(3)), so that the
        /// device need not fetch them: 0 to [`MAX_INLINE_BYTES`], 0 for none; `None` for what the table of devices says. What consists of
        /// several pieces is fetched, and what has a fence. A queue pair that cannot be made with so much room has none.
        pub inline_bytes: Option<u32>,
        /// Queue pairs of a port are made in a thread domain of its own (ibv_alloc_td(3)) where the table of devices says so (mlx5): a port is used by
        /// one thread at a time, so that posts need no locks and ring a register that no other core rings. A port that gets none, since
        /// registers are limited, is as without. **Never run on hardware.**
        pub thread_domains: bool,
        /// Each port has a completion channel (ibv_create_comp_channel(3)), so that the core that owns it may sleep: `Port::descriptor` is
        /// there, and `Port::arm` complies. False: it is polled, and nothing is made for anything else. **Never run on hardware.**
        pub completion_channels: bool,
        /// Retries of every connection in place of what connections ask for.
        pub parameters: Option<ConnectionParameters>,
        /// Tries bind, access, invalidation and refused access on a loop-back queue pair before the device is used.
        pub self_test: bool,
        /// The self-test also asks an mlx5 device what source and manual pages leave open. Nothing follows from the answers.
        pub unsettled: bool,
    }
}

impl VerbsOptions {
    /// The defaults for a device.
    #[must_use]
    pub fn new(device: impl Into<String>) -> Self {
        Self {
            device: device.into(),
            port: 1,
            gid_index: None,
            mtu: None,
            traffic_class: None,
            ack_timeout: None,
            min_rnr_timer: None,
            post: PostInterface::Automatic,
            role: Role::Requester,
            registration: Registration::Automatic,
            list_entries: LIST_ENTRIES,
            inline_bytes: None,
            thread_domains: true,
            completion_channels: false,
            parameters: None,
            self_test: true,
            unsettled: false,
        }
    }
}

/// An option that no device takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name} is {value}; it must be {limit}")]
pub struct OptionError {
    /// Which.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
    /// What it must be.
    pub limit: &'static str,
}

impl VerbsOptions {
    /// Checks what no device needs to be asked for.
    ///
    /// # Errors
    /// [`OptionError`] names the first that is out of range.
    pub fn check(&self) -> Result<(), OptionError> {
        let good_mtu = |mtu: u32| mtu.is_power_of_two() && (MIN_MTU..=MAX_MTU).contains(&mtu);
        let fail = |name, value, limit| Err(OptionError { name, value, limit });
        if self.port == 0 {
            return fail("port", 0, "1 or more: ports of a device count from 1");
        }
        if let Some(mtu) = self.mtu.filter(|mtu| !good_mtu(*mtu)) {
            return fail("mtu", mtu, "256, 512, 1024, 2048 or 4096");
        }
        if let Some(timeout) = self.ack_timeout.filter(|timeout| *timeout > MAX_ACK_TIMEOUT) {
            return fail("ack_timeout", timeout.into(), "0 to 31: 4.096 us * 2^n");
        }
        if let Some(timer) = self.min_rnr_timer.filter(|timer| *timer > MAX_RNR_TIMER) {
            return fail("min_rnr_timer", timer.into(), "0 to 31");
        }
        if !(1..=MAX_LIST_ENTRIES).contains(&self.list_entries) {
            return fail("list_entries", self.list_entries.into(), "1 to 52");
        }
        if let Some(bytes) = self.inline_bytes.filter(|bytes| *bytes > MAX_INLINE_BYTES) {
            return fail("inline_bytes", bytes, "0 to 1024");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{OptionError, VerbsOptions};

    #[test]
    fn an_option_out_of_range_is_named() {
        let good = || VerbsOptions::new("rxe0");
        let failure = |options: VerbsOptions| options.check().err().map(|error: OptionError| (error.name, error.value));
        for (options, expected) in [
            (good(), None),
            (good().port(0), Some(("port", 0))),
            (good().port(255), None),
            (good().mtu(Some(256)), None),
            (good().mtu(Some(4096)), None),
            (good().mtu(Some(0)), Some(("mtu", 0))),
            (good().mtu(Some(128)), Some(("mtu", 128))),
            (good().mtu(Some(1500)), Some(("mtu", 1500))),
            (good().mtu(Some(8192)), Some(("mtu", 8192))),
            (good().ack_timeout(Some(31)), None),
            (good().ack_timeout(Some(32)), Some(("ack_timeout", 32))),
            (good().min_rnr_timer(Some(31)), None),
            (good().min_rnr_timer(Some(32)), Some(("min_rnr_timer", 32))),
            (good().list_entries(1), None),
            (good().list_entries(52), None),
            (good().list_entries(0), Some(("list_entries", 0))),
            (good().list_entries(53), Some(("list_entries", 53))),
            (good().inline_bytes(Some(0)), None),
            (good().inline_bytes(Some(1024)), None),
            (good().inline_bytes(Some(1025)), Some(("inline_bytes", 1025))),
        ] {
            let shown = format!("{options:?}");
            assert_eq!(failure(options), expected, "{shown}");
        }
        let error = good().mtu(Some(1500)).check().unwrap_err();
        assert_eq!(error.to_string(), "mtu is 1500; it must be 256, 512, 1024, 2048 or 4096");
    }
}
