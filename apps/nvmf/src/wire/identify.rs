//! Data structures of the Identify command (Base 5.17.2, NVM 4.1.5). Fields that neither host nor target here sets or
//! reads are reserved bytes.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every Identify data structure.
pub const IDENTIFY_BYTES: usize = 4096;

/// Block sizes that a format can name here: LBADS below 9 is reserved (NVM figure 98), 16 is 64 KiB.
const SMALLEST_BLOCK_SHIFT: u8 = 9;
const LARGEST_BLOCK_SHIFT: u8 = 16;

/// Identify Controller (CNS 01h; Base figure 275).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct IdentifyController {
    /// VID and SSVID; 0 as this controller is no PCI function.
    pub vendor: [U16; 2],
    /// SN, ASCII padded with spaces.
    pub serial_number: [u8; super::SERIAL_BYTES],
    /// MN, ASCII padded with spaces.
    pub model_number: [u8; 40],
    /// FR, ASCII padded with spaces.
    pub firmware_revision: [u8; 8],
    reserved_rab: [u8; 4],
    /// CMIC; bit 1: the subsystem may have more than one controller.
    pub multi_path: u8,
    /// MDTS: the largest data transfer as a power of two in units of CAP.MPSMIN; 0 for no limit.
    pub max_data_transfer: u8,
    /// CNTLID.
    pub controller_id: U16,
    /// VER.
    pub version: U32,
    reserved_rtd3: [u8; 8],
    /// OAES: the asynchronous events that can be switched on.
    pub events: U32,
    /// CTRATT; bit 6: any command restarts the Keep Alive Timer.
    pub controller_attributes: U32,
    reserved_rrls: [u8; 11],
    /// CNTRLTYPE; 1: I/O controller.
    pub controller_type: u8,
    reserved_fguid: [u8; 16],
    /// CRDT1 to CRDT3: Command Retry Delay Times in units of 100 ms, which a status names.
    pub retry_delays: [U16; 3],
    reserved_crdt: [u8; 124],
    /// ACL: Abort commands outstanding at most, 0-based.
    pub abort_limit: u8,
    /// AERL: Asynchronous Event Requests outstanding at most, 0-based.
    pub async_event_limit: u8,
    /// FRMW; bit 0: slot 1 is read only, bits 3:1: slots.
    pub firmware: u8,
    /// LPA; bit 1: Commands Supported and Effects, bit 2: offsets of log pages.
    pub log_pages: u8,
    /// ELPE: entries of the Error Information log, 0-based.
    pub error_log_entries: u8,
    reserved_npss: [u8; 3],
    /// WCTEMP in kelvin; 0 for none.
    pub warning_temperature: U16,
    /// CCTEMP in kelvin; 0 for none.
    pub critical_temperature: U16,
    reserved_mtfa: [u8; 50],
    /// KAS: granularity of keep alive in units of 100 ms; 0 for no keep alive.
    pub keep_alive: U16,
    reserved_kas: [u8; 20],
    /// ANATT: seconds that a change of an ANA state takes at most.
    pub ana_transition_time: u8,
    /// ANACAP; bits 4:0: states that can be reported, bit 6: a namespace's group does not change.
    pub ana_capabilities: u8,
    /// ANAGRPMAX.
    pub ana_max_group: U32,
    /// NANAGRPID.
    pub ana_groups: U32,
    reserved_pels: [u8; 34],
    /// CQT (Base 2.1): what a controller needs in milliseconds, at the worst, to be done with all commands of a host that it has lost; 0 where
    /// it does not say.
    pub command_quiesce_time: U16,
    reserved_cqt: [u8; 124],
    /// SQES: required size in bits 3:0 and maximum in 7:4, as powers of two.
    pub submission_entry_size: u8,
    /// CQES.
    pub completion_entry_size: u8,
    /// MAXCMD: commands outstanding per queue.
    pub max_commands: U16,
    /// NN: largest valid namespace identifier.
    pub namespaces: U32,
    /// ONCS: optional commands of the NVM command set.
    pub optional_commands: U16,
    /// FUSES: fused operations; bit 0: Compare and Write.
    pub fused_operations: U16,
    reserved_fna: u8,
    /// VWC; bit 0: a volatile write cache is present, bits 2:1 say how Flush treats the broadcast identifier.
    pub volatile_write_cache: u8,
    reserved_awun: [u8; 6],
    /// ACWU: blocks of one Compare and Write at most, of whatever namespace, 0-based.
    pub compare_and_write_unit: U16,
    reserved_copy_formats: [u8; 2],
    /// SGLS.
    pub sgl_support: U32,
    /// MNAN: namespaces of the subsystem at most; has to be said where ANA is reported.
    pub max_namespaces: U32,
    reserved_maxdna: [u8; 224],
    /// SUBNQN.
    pub subsystem: [u8; 256],
    reserved_fabrics: [u8; 768],
    /// IOCCSZ: command capsule of an I/O queue in units of 16 bytes.
    pub io_command_capsule: U32,
    /// IORCSZ: response capsule of an I/O queue in units of 16 bytes.
    pub io_response_capsule: U32,
    /// ICDOFF: where in-capsule data starts behind the entry, in units of 16 bytes.
    pub in_capsule_data_offset: U16,
    /// FCATT; bit 0 is 0: dynamic controller model.
    pub attributes: u8,
    /// MSDBD: data blocks per command.
    pub max_data_blocks: u8,
    reserved_end: [u8; 2292],
}

layout!(
    IdentifyController, IDENTIFY_BYTES; max_data_transfer: 77, controller_id: 78, version: 80, events: 92,
    controller_attributes: 96, controller_type: 111, retry_delays: 128, abort_limit: 258, async_event_limit: 259,
    log_pages: 261, warning_temperature: 266, keep_alive: 320, ana_transition_time: 342, ana_groups: 348,
    submission_entry_size: 512, max_commands: 514, namespaces: 516, optional_commands: 520, fused_operations: 522,
    volatile_write_cache: 525, compare_and_write_unit: 532, sgl_support: 536, max_namespaces: 540, subsystem: 768,
    io_command_capsule: 1792, io_response_capsule: 1796, in_capsule_data_offset: 1800, max_data_blocks: 1803
);

impl IdentifyController {
    /// SGLS bits 1:0, 01b: SGLs without a rule on alignment.
    pub const SGL_SUPPORTED: u32 = 1;
    /// SGLS bit 2: keyed data blocks.
    pub const SGL_KEYED: u32 = 1 << 2;
    /// SGLS bit 20: an address field can be an offset: in-capsule data.
    pub const SGL_OFFSET: u32 = 1 << 20;
    /// CMIC bit 1: the subsystem may have more than one controller.
    pub const MULTI_CONTROLLER: u8 = 1 << 1;
    /// CTRATT bit 6, TBKAS: traffic based keep alive.
    pub const TRAFFIC_BASED_KEEP_ALIVE: u32 = 1 << 6;
    /// CNTRLTYPE of an I/O controller.
    pub const IO_CONTROLLER: u8 = 1;
    /// CNTRLTYPE of a discovery controller.
    pub const DISCOVERY_CONTROLLER: u8 = 2;
    /// CMIC bit 3: the subsystem reports asymmetric namespace access.
    pub const REPORTS_ANA: u8 = 1 << 3;
    /// OAES bit 8: Namespace Attribute Notices.
    pub const NAMESPACE_EVENTS: u32 = 1 << 8;
    /// OAES bit 11: Asymmetric Namespace Access Change Notices.
    pub const ANA_EVENTS: u32 = 1 << 11;
    /// OAES bit 15: Normal NVM Subsystem Shutdown.
    pub const SHUTDOWN_EVENTS: u32 = 1 << 15;
    /// OAES bit 31: Discovery Log Page Change Notification.
    pub const DISCOVERY_EVENTS: u32 = 1 << 31;
    /// LPA bit 1: Commands Supported and Effects.
    pub const EFFECTS_LOG: u8 = 1 << 1;
    /// LPA bit 2: Get Log Page takes offsets and lengths of 32 bits.
    pub const LOG_OFFSETS: u8 = 1 << 2;
    /// FUSES bit 0.
    pub const COMPARE_AND_WRITE: u16 = 1;
    /// SQES: required and maximum 2^6 bytes.
    pub const SUBMISSION_ENTRY: u8 = 0x66;
    /// CQES: required and maximum 2^4 bytes.
    pub const COMPLETION_ENTRY: u8 = 0x44;

    /// Whether commands can point to the host's memory by keyed data blocks, without which RDMA cannot work.
    #[must_use]
    pub fn supports_keyed_blocks(&self) -> bool {
        let support = self.sgl_support.get();
        matches!(support & 3, 1 | 2) && support & Self::SGL_KEYED != 0
    }

    /// The largest data transfer in bytes where `minimum_page_size` is that of CAP; `None` for no limit.
    #[must_use]
    pub fn max_transfer_bytes(&self, minimum_page_size: u64) -> Option<u64> {
        match self.max_data_transfer {
            0 => None,
            shift => Some(minimum_page_size.checked_shl(shift.into()).filter(|bytes| *bytes != 0).unwrap_or(u64::MAX)),
        }
    }

    /// Bytes of in-capsule data that an I/O queue takes.
    #[must_use]
    pub fn in_capsule_bytes(&self) -> u64 {
        (u64::from(self.io_command_capsule.get()) * 16).saturating_sub(super::COMMAND_CAPSULE_BYTES as u64)
    }
}

/// LBA format (NVM figure 98).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct LbaFormat {
    /// MS: metadata bytes per block.
    pub metadata_size: U16,
    /// LBADS: block size as a power of two.
    pub block_shift: u8,
    /// RP.
    pub relative_performance: u8,
}

/// Identify Namespace (CNS 00h; NVM figure 97).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct IdentifyNamespace {
    /// NSZE: blocks.
    pub size: U64,
    /// NCAP: blocks that may be allocated.
    pub capacity: U64,
    /// NUSE: blocks that are allocated.
    pub utilization: U64,
    /// NSFEAT.
    pub features: u8,
    /// NLBAF: LBA formats, 0-based.
    pub formats: u8,
    /// FLBAS: the format in use in bits 3:0.
    pub format: u8,
    reserved_mc: [u8; 3],
    /// NMIC; bit 0: several controllers may be attached to the namespace.
    pub sharing: u8,
    /// RESCAP: what reservations there are; 0 for none.
    pub reservations: u8,
    reserved_fpi: u8,
    /// DLFEAT; bit 3: Write Zeroes may ask for blocks to be deallocated.
    pub deallocate_features: u8,
    reserved_nawun: [u8; 4],
    /// NACWU: blocks of one Compare and Write at most, 0-based; only where NSFEAT says that it is there.
    pub compare_and_write_unit: U16,
    reserved_nabsn: [u8; 52],
    /// ANAGRPID; 0 for none.
    pub ana_group: U32,
    reserved_nsattr: [u8; 3],
    /// NSATTR; bit 0: write protected.
    pub attributes: u8,
    reserved_nvmsetid: [u8; 4],
    /// NGUID; zeros for none.
    pub nguid: [u8; 16],
    /// EUI64; zeros for none.
    pub eui64: [u8; 8],
    /// LBAF0 to LBAF15.
    pub lba_formats: [LbaFormat; 16],
    reserved_end: [u8; 3904],
}

layout!(
    IdentifyNamespace, IDENTIFY_BYTES; format: 26, sharing: 30, reservations: 31, deallocate_features: 33,
    compare_and_write_unit: 38, ana_group: 92, attributes: 99, nguid: 104, lba_formats: 128
);

/// A namespace's format that cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedFormat {
    /// Metadata or a block size outside 512 bytes to 64 KiB.
    #[error("blocks of 2^{shift} bytes with {metadata} bytes of metadata; 2^9 to 2^16 without metadata are supported")]
    Format {
        /// LBADS.
        shift: u8,
        /// MS.
        metadata: u16,
    },
    /// NSZE is 0: the namespace is inactive.
    #[error("the namespace is not active")]
    Inactive,
}

impl IdentifyNamespace {
    /// NSFEAT bit 1, NSABP: NAWUN, NAWUPF and NACWU are those of this namespace.
    pub const OWN_ATOMIC_UNITS: u8 = 1 << 1;
    /// NMIC bit 0.
    pub const SHARED: u8 = 1;
    /// RESCAP bits 7:1: all six types, and IEKEY as the standard has it since 1.3.
    pub const ALL_RESERVATIONS: u8 = 0xfe;
    /// RESCAP bit 0: reservations can survive a loss of power.
    pub const RESERVATIONS_PERSIST: u8 = 1;
    /// NSATTR bit 0.
    pub const WRITE_PROTECTED: u8 = 1;
    /// DLFEAT bit 3.
    pub const ZEROES_DEALLOCATE: u8 = 1 << 3;

    /// Blocks and bytes per block.
    ///
    /// # Errors
    /// [`UnsupportedFormat`].
    pub fn geometry(&self) -> Result<(u64, u32), UnsupportedFormat> {
        if self.size.get() == 0 {
            return Err(UnsupportedFormat::Inactive);
        }
        let format = self.lba_formats[usize::from(self.format & 0xf)];
        let (shift, metadata) = (format.block_shift, format.metadata_size.get());
        if !(SMALLEST_BLOCK_SHIFT..=LARGEST_BLOCK_SHIFT).contains(&shift) || metadata != 0 {
            return Err(UnsupportedFormat::Format { shift, metadata });
        }
        Ok((self.size.get(), 1 << shift))
    }
}

/// Active Namespace ID list (CNS 02h): ascending identifiers, zeros behind the last.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct IdentifyActiveNamespaces {
    /// Namespace identifiers.
    pub namespaces: [U32; 1024],
}

const _: () = assert!(size_of::<IdentifyActiveNamespaces>() == IDENTIFY_BYTES);

/// Type and length of a descriptor, in front of its identifier.
const DESCRIPTOR_HEADER_BYTES: usize = 4;

/// Namespace Identification Descriptor list (CNS 03h; Base figure 277) with one descriptor: the NGUID.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct IdentifyDescriptors {
    /// NIDT; 2: NGUID.
    pub identifier_type: u8,
    /// NIDL: bytes of the identifier.
    pub identifier_length: u8,
    reserved: [u8; 2],
    /// NID.
    pub nguid: [u8; 16],
    /// A descriptor of type 0 ends the list.
    end: [u8; 4076],
}

layout!(IdentifyDescriptors, IDENTIFY_BYTES; nguid: 4);

impl IdentifyDescriptors {
    const TYPE_NGUID: u8 = 2;
    const TYPE_UUID: u8 = 3;

    /// With one NGUID.
    #[must_use]
    pub fn new(nguid: [u8; 16]) -> Self {
        Self {
            identifier_type: Self::TYPE_NGUID,
            identifier_length: size_of::<[u8; 16]>() as u8,
            reserved: [0; 2],
            nguid,
            end: [0; 4076],
        }
    }

    /// The UUID in a list of any descriptors; zeros where there is none. What does not fit ends the list.
    #[must_use]
    pub fn uuid(list: &[u8; IDENTIFY_BYTES]) -> [u8; 16] {
        let mut rest: &[u8] = list;
        while let Some((&[kind, length, ..], behind)) = rest.split_first_chunk::<DESCRIPTOR_HEADER_BYTES>()
            && length > 0
            && let Some((identifier, next)) = behind.split_at_checked(length.into())
        {
            match (kind, identifier.try_into()) {
                (Self::TYPE_UUID, Ok(uuid)) => return uuid,
                _ => rest = next,
            }
        }
        [0; 16]
    }
}

/// Identify Controller of the NVM command set (CNS 06h, CSI 00h; NVM figure 102): limits of commands without a data transfer.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy)]
#[repr(C)]
pub struct IdentifyNvmController {
    /// VSL.
    pub verify_limit: u8,
    /// WZSL: the largest Write Zeroes as a power of two in units of CAP.MPSMIN; 0 for no limit.
    pub write_zeroes_limit: u8,
    /// WUSL.
    pub write_uncorrectable_limit: u8,
    /// DMRL: ranges of one Dataset Management; 0 for no limit.
    pub dataset_ranges_limit: u8,
    /// DMRSL: blocks of one range; 0 for no limit.
    pub dataset_range_blocks_limit: U32,
    /// DMSL: blocks of all ranges of one command; 0 for no limit.
    pub dataset_blocks_limit: U64,
    reserved: [u8; 4080],
}

const _: () = assert!(size_of::<IdentifyNvmController>() == IDENTIFY_BYTES);

impl IdentifyNvmController {
    /// Bytes of the largest Write Zeroes where the smallest page has `page` bytes (CAP.MPSMIN); `None` for no limit.
    #[must_use]
    pub fn max_zeroes_bytes(&self, page: u64) -> Option<u64> {
        match self.write_zeroes_limit {
            0 => None,
            // What does not fit 64 bits is no limit either.
            shift => page.checked_mul(1_u64.checked_shl(shift.into())?),
        }
    }
}

/// Ranges of one Dataset Management command: NR is a 0-based byte.
pub const MAX_DATASET_RANGES: u32 = 256;

/// Bytes of a [`DatasetRange`].
pub const DATASET_RANGE_BYTES: usize = 16;

/// One range of a Dataset Management command (NVM figure 45).
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned, Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct DatasetRange {
    /// Context attributes: hints.
    pub attributes: U32,
    /// Length in blocks; may be 0.
    pub blocks: U32,
    /// Starting LBA.
    pub lba: U64,
}

const _: () = assert!(size_of::<DatasetRange>() == DATASET_RANGE_BYTES);
