//! Status of a completion (Base 3.3.3.2.1 and figures 95 to 103).

use core::fmt;

/// The status field of a completion without its phase bit, which is reserved over fabrics: status code in bits 7:0,
/// status code type in 10:8, command retry delay in 12:11, More in 13, Do Not Retry in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        impl Status {
            $($(#[$doc])* pub const $name: Self = Self($code);)*

            /// The name in the standard, or `unknown status`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.code() {
                    $($code => $text,)*
                    _ => "unknown status",
                }
            }
        }
    };
}

statuses! {
    /// Generic 00h.
    SUCCESS = 0x000, "Successful Completion";
    /// Generic 01h.
    INVALID_COMMAND_OPCODE = 0x001, "Invalid Command Opcode";
    /// Generic 02h.
    INVALID_FIELD = 0x002, "Invalid Field in Command";
    /// Generic 03h.
    COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
    /// Generic 04h.
    DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
    /// Generic 05h.
    ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
    /// Generic 06h.
    INTERNAL_ERROR = 0x006, "Internal Error";
    /// Generic 07h.
    COMMAND_ABORT_REQUESTED = 0x007, "Command Abort Requested";
    /// Generic 08h.
    ABORTED_SUBMISSION_QUEUE_DELETION = 0x008, "Command Aborted due to SQ Deletion";
    /// Generic 09h.
    ABORTED_FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
    /// Generic 0Ah.
    ABORTED_MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
    /// Generic 0Bh.
    INVALID_NAMESPACE = 0x00b, "Invalid Namespace or Format";
    /// Generic 0Ch.
    COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
    /// Generic 2Ch.
    INVALID_COMMAND_SET = 0x02c, "Invalid I/O Command Set";
    /// Generic 0Dh.
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00d, "Invalid SGL Segment Descriptor";
    /// Generic 0Eh.
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x00e, "Invalid Number of SGL Descriptors";
    /// Generic 0Fh.
    DATA_SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
    /// Generic 10h.
    METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
    /// Generic 11h.
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    /// Generic 14h.
    ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
    /// Generic 15h.
    OPERATION_DENIED = 0x015, "Operation Denied";
    /// Generic 16h.
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    /// Generic 18h.
    HOST_IDENTIFIER_INCONSISTENT_FORMAT = 0x018, "Host Identifier Inconsistent Format";
    /// Generic 1Ah.
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    /// Generic 1Ch.
    SANITIZE_FAILED = 0x01c, "Sanitize Failed";
    /// Generic 1Dh.
    SANITIZE_IN_PROGRESS = 0x01d, "Sanitize In Progress";
    /// Generic 1Eh.
    SGL_DATA_BLOCK_GRANULARITY_INVALID = 0x01e, "SGL Data Block Granularity Invalid";
    /// Generic 20h.
    NAMESPACE_IS_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    /// Generic 21h.
    COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
    /// Generic 22h.
    TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
    /// Generic 23h.
    COMMAND_PROHIBITED_BY_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
    /// Generic 24h.
    ADMIN_MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
    /// Generic 80h (I/O command set specific).
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    /// Generic 81h.
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    /// Generic 82h.
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
    /// Generic 83h.
    RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
    /// Generic 84h.
    FORMAT_IN_PROGRESS = 0x084, "Format In Progress";
    /// Command specific 01h.
    INVALID_QUEUE_IDENTIFIER = 0x101, "Invalid Queue Identifier";
    /// Command specific 02h.
    INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
    /// Command specific 05h.
    ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
    /// Command specific 03h.
    ABORT_COMMAND_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
    /// Command specific 09h.
    INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
    /// Command specific 0Eh.
    FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
    /// Command specific 83h (I/O command set specific, NVM figure 40).
    COMMAND_SIZE_LIMIT_EXCEEDED = 0x183, "Command Size Limit Exceeded";
    /// Command specific 0Dh.
    FEATURE_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
    /// Fabrics command specific 80h.
    CONNECT_INCOMPATIBLE_FORMAT = 0x180, "Connect Incompatible Format";
    /// Fabrics command specific 81h.
    CONNECT_CONTROLLER_BUSY = 0x181, "Connect Controller Busy";
    /// Fabrics command specific 82h; the result says which parameter ([`super::InvalidParameter`]).
    CONNECT_INVALID_PARAMETERS = 0x182, "Connect Invalid Parameters";
    /// Fabrics command specific 84h.
    CONNECT_INVALID_HOST = 0x184, "Connect Invalid Host";
    /// Fabrics command specific 91h.
    AUTHENTICATION_REQUIRED = 0x191, "Authentication Required";
    /// Media 80h.
    WRITE_FAULT = 0x280, "Write Fault";
    /// Media 85h.
    COMPARE_FAILURE = 0x285, "Compare Failure";
    /// Media 82h.
    GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
    /// Media 83h.
    APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
    /// Media 84h.
    REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
    /// Media 86h.
    ACCESS_DENIED = 0x286, "Access Denied";
    /// Media 87h.
    DEALLOCATED_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
    /// Media 88h.
    STORAGE_TAG_CHECK_ERROR = 0x288, "End-to-End Storage Tag Check Error";
    /// Path related 00h: also of a namespace that is switched off.
    INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
    /// Path related 60h.
    CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
    /// Path related 70h.
    HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
    /// Path related 71h.
    COMMAND_ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
    /// Path related 01h.
    ANA_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
    /// Path related 02h.
    ANA_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
    /// Path related 03h.
    ANA_TRANSITION = 0x303, "Asymmetric Access Transition";
    /// Media 81h.
    UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
}

impl Status {
    const DO_NOT_RETRY: u16 = 1 << 14;
    const CODE: u16 = 0x7ff;
    const RETRY_DELAY_SHIFT: u16 = 11;

    /// From the 16-bit status word of a completion, bit 0 of which is reserved.
    #[must_use]
    pub const fn from_wire(word: u16) -> Self {
        Self(word >> 1)
    }

    /// The 16-bit status word of a completion.
    #[must_use]
    pub const fn to_wire(self) -> u16 {
        self.0 << 1
    }

    /// Status code type in bits 10:8 and status code in bits 7:0.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & Self::CODE
    }

    /// The code alone, to be compared with the names here.
    #[must_use]
    pub const fn without_flags(self) -> Self {
        Self(self.code())
    }

    /// Command Retry Delay: which of the controller's three delay times passes before the command is tried again, from 1; 0 for none.
    #[must_use]
    pub const fn retry_delay(self) -> u8 {
        // Two bits.
        (self.0 >> Self::RETRY_DELAY_SHIFT & 0b11) as u8
    }

    /// Whether the command succeeded; the flags beside the code do not count.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// The same code with Do Not Retry: the command would fail again.
    #[must_use]
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | Self::DO_NOT_RETRY)
    }

    /// Whether the controller said Do Not Retry.
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 & Self::DO_NOT_RETRY != 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#05x})", self.name(), self.code())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
