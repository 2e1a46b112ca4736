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
    /// Generic 06h.
    INTERNAL_ERROR = 0x006, "Internal Error";
    /// Generic 07h.
    COMMAND_ABORT_REQUESTED = 0x007, "Command Abort Requested";
    /// Generic 08h.
    ABORTED_SUBMISSION_QUEUE_DELETION = 0x008, "Command Aborted due to SQ Deletion";
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
    /// Generic 11h.
    SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
    /// Generic 16h.
    SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
    /// Generic 1Ah.
    KEEP_ALIVE_TIMEOUT_INVALID = 0x01a, "Keep Alive Timeout Invalid";
    /// Generic 20h.
    NAMESPACE_IS_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
    /// Generic 80h (I/O command set specific).
    LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
    /// Generic 81h.
    CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
    /// Generic 82h.
    NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
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
    /// Media 80h.
    WRITE_FAULT = 0x280, "Write Fault";
    /// Media 85h.
    COMPARE_FAILURE = 0x285, "Compare Failure";
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
