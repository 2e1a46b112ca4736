//! What a client may not send: what was wrong, the value and its limit.

use core::fmt;

/// How a client broke the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Breach {
    /// It connected once more than it said.
    Connections,
    /// It never came to an end with connecting.
    Unconnected,
    /// Bytes that are no message.
    NoMessage,
    /// Another command than those of the operation that it asked for.
    Unasked,
    /// A slot beyond its depth.
    Slot { slot: u16, depth: u32 },
    /// A slot whose command was not answered yet.
    SlotTaken { slot: u16, depth: u32 },
    /// A message of another length.
    Length { bytes: u32, size: u32 },
    /// Ranges that are not as many as it says, or not of that size.
    Ranges { count: u8, size: u32 },
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Connections => write!(f, "a connection more than it had room for"),
            Self::Unconnected => write!(f, "it did not finish connecting"),
            Self::NoMessage => write!(f, "a message that is none"),
            Self::Unasked => write!(f, "a command that it did not ask for"),
            Self::Slot { slot, depth } => {
                write!(
                    f,
                    "a command in slot {slot}, but it asked for depth {depth}, whose last slot is {}",
                    depth.max(1) - 1
                )
            }
            Self::SlotTaken { slot, depth } => write!(
                f,
                "a second command in slot {slot}, whose first one was not answered yet; it asked for depth {depth}, so {depth} at \
                 most may wait for an answer, one in each slot"
            ),
            Self::Length { bytes, size } => write!(f, "a message of {bytes} bytes, but it asked for {size}"),
            Self::Ranges { count, size } => {
                write!(f, "memory in {count} range(s) that is not the {size} bytes it asked for")
            }
        }
    }
}
