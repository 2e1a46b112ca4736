//! The smallest protocol: a message is a cookie, a number of grants and the grants; a reply repeats the cookie.

use frwr_engine::{AnnounceError, Announcement, CLASSIFY_BYTES, ConnectionId, Grant, Message, Protocol, RequestHandle};

/// Bytes in front of the grants: cookie and number.
pub(super) const HEADER: usize = 12;
/// Bytes of a grant: address, length, key.
pub(super) const GRANT: usize = 16;
/// Grants that a message has room for.
pub(super) const GRANTS: usize = 16;
/// Bytes of a command.
pub(super) const COMMAND: usize = HEADER + GRANTS * GRANT;
/// In place of the number of grants: it is a reply.
const REPLY: u32 = u32::MAX;
/// Requests whose names are remembered: more than are ever in flight, so that late replies name requests that have ended.
const NAMES: usize = 1 << 12;

const _: () = assert!(HEADER <= CLASSIFY_BYTES, "what tells a reply is in what the engine shows");

/// The protocol of one side.
pub(super) struct Tiny {
    names: Vec<(u64, RequestHandle)>,
    /// Refuse to announce, as for a message without room.
    pub(super) refuses: bool,
}

impl Tiny {
    pub(super) fn new() -> Self {
        Self { names: vec![(u64::MAX, RequestHandle::NONE); NAMES], refuses: false }
    }

    pub(super) fn name(&mut self, cookie: u64, handle: RequestHandle) {
        self.names[cookie as usize % NAMES] = (cookie, handle);
    }
}

/// The message of a request, without its grants.
pub(super) fn command(cookie: u64) -> [u8; COMMAND] {
    let mut message = [0; COMMAND];
    message[..8].copy_from_slice(&cookie.to_le_bytes());
    message
}

/// The reply to a request.
pub(super) fn reply(cookie: u64) -> [u8; HEADER] {
    let mut message = [0xFF; HEADER];
    message[..8].copy_from_slice(&cookie.to_le_bytes());
    message
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn cookie_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from(word(bytes, 0)?) | u64::from(word(bytes, 4)?) << 32)
}

/// The cookie and grants of a command.
pub(super) fn read_command(bytes: &[u8; COMMAND]) -> (u64, Vec<Grant>) {
    let count = word(bytes, 8).unwrap_or(0) as usize;
    let grant = |place: &[u8]| Grant {
        address: cookie_of(place).unwrap_or(0),
        length: word(place, 8).unwrap_or(0),
        key: word(place, 12).unwrap_or(0),
    };
    let grants = bytes[HEADER..].chunks(GRANT).take(count).map(grant).collect();
    (cookie_of(bytes).unwrap_or(0), grants)
}

impl Protocol for Tiny {
    fn announce(&mut self, message: &mut [u8], announced: &Announcement<'_>) -> Result<(), AnnounceError> {
        if self.refuses {
            return Err(AnnounceError);
        }
        let grants = announced.grants();
        message[8..HEADER].copy_from_slice(&(grants.len() as u32).to_le_bytes());
        for (place, grant) in message[HEADER..].chunks_mut(GRANT).zip(grants) {
            place[..8].copy_from_slice(&grant.address.to_le_bytes());
            place[8..12].copy_from_slice(&grant.length.to_le_bytes());
            place[12..].copy_from_slice(&grant.key.to_le_bytes());
        }
        Ok(())
    }

    fn classify(&mut self, _: ConnectionId, prefix: &[u8], _: u32) -> Message {
        match (cookie_of(prefix), word(prefix, 8)) {
            (Some(cookie), Some(REPLY)) => {
                let (named, handle) = self.names[cookie as usize % NAMES];
                Message::Reply(if named == cookie { handle } else { RequestHandle::NONE })
            }
            (Some(_), Some(_)) => Message::Command,
            _ => Message::Malformed,
        }
    }
}
