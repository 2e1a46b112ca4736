//! Controller properties (Base 3.1.3): what a fabrics controller has in place of memory-mapped registers.

use core::time::Duration;

/// NVMe 1.4: identify descriptors and keep alive are as this version says.
pub const VERSION: u32 = 0x0001_0400;

/// A property by its offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// CAP, 8 bytes, read only.
    Capabilities,
    /// VS, 4 bytes, read only.
    Version,
    /// CC, 4 bytes.
    Configuration,
    /// CSTS, 4 bytes, read only.
    Status,
}

impl Property {
    /// By the offset of a Property Get or Set; `None` for those that are optional or reserved.
    #[must_use]
    pub const fn from_offset(offset: u32) -> Option<Self> {
        match offset {
            0x00 => Some(Self::Capabilities),
            0x08 => Some(Self::Version),
            0x14 => Some(Self::Configuration),
            0x1c => Some(Self::Status),
            _ => None,
        }
    }

    /// The offset of a Property Get or Set.
    #[must_use]
    pub const fn offset(self) -> u32 {
        match self {
            Self::Capabilities => 0x00,
            Self::Version => 0x08,
            Self::Configuration => 0x14,
            Self::Status => 0x1c,
        }
    }
}

/// CAP (Base figure 36).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerCapabilities(pub u64);

impl ControllerCapabilities {
    /// CQR in bit 16, which is 1 for every fabrics controller.
    const CONTIGUOUS_QUEUES: u64 = 1 << 16;
    /// CSS: bit 37 is the NVM command set.
    const NVM_COMMAND_SET: u64 = 1 << 37;

    /// A controller with pages of 4 KiB and the NVM command set.
    ///
    /// `entries` is the largest I/O queue, at least 2; `timeout_half_seconds` is the longest time that a change of
    /// CC.EN takes, in units of 500 ms.
    #[must_use]
    pub const fn new(entries: u16, timeout_half_seconds: u8) -> Self {
        let largest = entries.saturating_sub(1) as u64;
        let timeout = (timeout_half_seconds as u64) << 24;
        Self(largest | timeout | Self::CONTIGUOUS_QUEUES | Self::NVM_COMMAND_SET)
    }

    /// MQES plus one: entries of the largest I/O queue.
    #[must_use]
    pub const fn max_queue_entries(self) -> u32 {
        (self.0 & 0xffff) as u32 + 1
    }

    /// TO: the longest time that a change of CC.EN takes.
    #[must_use]
    pub const fn ready_timeout(self) -> Duration {
        Duration::from_millis(((self.0 >> 24) & 0xff) * 500)
    }

    /// Whether the controller has the NVM command set.
    #[must_use]
    pub const fn has_nvm_command_set(self) -> bool {
        self.0 & Self::NVM_COMMAND_SET != 0
    }

    /// MPSMIN: the smallest memory page, in bytes; MDTS counts in it.
    #[must_use]
    pub const fn minimum_page_size(self) -> u64 {
        1 << (12 + ((self.0 >> 48) & 0xf))
    }
}

/// CC.SHN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownNotification {
    /// 00b.
    None,
    /// 01b.
    Normal,
    /// 10b.
    Abrupt,
    /// 11b.
    Reserved,
}

/// CC (Base figure 41).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerConfiguration(pub u32);

impl ControllerConfiguration {
    const ENABLE: u32 = 1;
    /// IOSQES: entries of 2^6 bytes; IOCQES: entries of 2^4 bytes.
    const ENTRY_SIZES: u32 = (6 << 16) | (4 << 20);
    const SHUTDOWN_SHIFT: u32 = 14;

    /// Enabled: NVM command set, pages of 4 KiB, round robin arbitration.
    pub const ENABLED: Self = Self(Self::ENABLE | Self::ENTRY_SIZES);
    /// Enabled, with notification of a normal shutdown.
    pub const NORMAL_SHUTDOWN: Self = Self(Self::ENABLED.0 | 1 << Self::SHUTDOWN_SHIFT);

    /// EN.
    #[must_use]
    pub const fn is_enabled(self) -> bool {
        self.0 & Self::ENABLE != 0
    }

    /// SHN.
    #[must_use]
    pub const fn shutdown(self) -> ShutdownNotification {
        match (self.0 >> Self::SHUTDOWN_SHIFT) & 3 {
            0 => ShutdownNotification::None,
            1 => ShutdownNotification::Normal,
            2 => ShutdownNotification::Abrupt,
            _ => ShutdownNotification::Reserved,
        }
    }

    /// Whether what a host asks for when enabling is what this controller offers: CSS 000b, MPS 0 and entry sizes of the
    /// NVM command set. Hosts may write AMS as they like where only round robin is offered, but not reserved values.
    #[must_use]
    pub const fn is_supported(self) -> bool {
        let command_set = (self.0 >> 4) & 7;
        let page_size = (self.0 >> 7) & 0xf;
        let arbitration = (self.0 >> 11) & 7;
        let sizes = self.0 & 0x00ff_0000;
        command_set == 0 && page_size == 0 && arbitration == 0 && sizes == Self::ENTRY_SIZES
    }
}

/// CSTS.SHST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownStatus {
    /// 00b.
    Normal,
    /// 01b.
    Occurring,
    /// 10b.
    Complete,
    /// 11b.
    Reserved,
}

/// CSTS (Base figure 42).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControllerStatus(pub u32);

impl ControllerStatus {
    const READY: u32 = 1;
    /// CFS alone.
    pub const FATAL_STATUS: Self = Self(1 << 1);
    const SHUTDOWN_SHIFT: u32 = 2;

    /// With RDY and SHST as given.
    #[must_use]
    pub const fn new(ready: bool, shutdown: ShutdownStatus) -> Self {
        let shutdown = match shutdown {
            ShutdownStatus::Normal => 0,
            ShutdownStatus::Occurring => 1,
            ShutdownStatus::Complete => 2,
            ShutdownStatus::Reserved => 3,
        };
        Self(ready as u32 | shutdown << Self::SHUTDOWN_SHIFT)
    }

    /// RDY.
    #[must_use]
    pub const fn is_ready(self) -> bool {
        self.0 & Self::READY != 0
    }

    /// CFS: the controller can only be reset.
    #[must_use]
    pub const fn is_fatal(self) -> bool {
        self.0 & Self::FATAL_STATUS.0 != 0
    }

    /// SHST.
    #[must_use]
    pub const fn shutdown(self) -> ShutdownStatus {
        match (self.0 >> Self::SHUTDOWN_SHIFT) & 3 {
            0 => ShutdownStatus::Normal,
            1 => ShutdownStatus::Occurring,
            2 => ShutdownStatus::Complete,
            _ => ShutdownStatus::Reserved,
        }
    }
}
