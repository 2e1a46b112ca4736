//! The fixed newstyle handshake: greeting, structured replies where the server has them, and the export. It knows bytes, and
//! neither sockets nor time.

use super::wire::{
    self, Blocks, DEFAULT_BLOCKS, GREETING_BYTES, NbdBreach, OPTION_REPLY_BYTES, OptionRefusal, OptionReply,
    export_flag, option,
};
use core::time::Duration;

/// How long a server may take until a connection is made, all of its messages together: a busy one on a busy machine takes a part of that.
pub(super) const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// Replies to one option: far more than there are kinds of information.
const MAX_OPTION_REPLIES: u32 = 64;
/// Characters of what a server says for people that are shown to them.
const MAX_SHOWN: usize = 200;

/// What a server says of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) bytes: u64,
    flags: u16,
    pub(super) blocks: Blocks,
    /// Reads are answered in chunks.
    pub(super) structured: bool,
}

impl Export {
    const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) const fn is_read_only(&self) -> bool {
        self.has(export_flag::READ_ONLY)
    }

    pub(super) const fn can_flush(&self) -> bool {
        self.has(export_flag::SEND_FLUSH)
    }

    pub(super) const fn can_fua(&self) -> bool {
        self.has(export_flag::SEND_FUA)
    }

    pub(super) const fn can_trim(&self) -> bool {
        self.has(export_flag::SEND_TRIM)
    }

    pub(super) const fn can_write_zeroes(&self) -> bool {
        self.has(export_flag::SEND_WRITE_ZEROES)
    }

    /// Several connections see one cache.
    pub(super) const fn can_multi_conn(&self) -> bool {
        self.has(export_flag::CAN_MULTI_CONN)
    }

    /// Whoever has used `before` can use this one instead and see no difference; what may have changed is more.
    pub(super) const fn takes_the_place_of(&self, before: &Self, block_bytes: u32) -> bool {
        let promises = export_flag::SEND_FLUSH
            | export_flag::SEND_FUA
            | export_flag::SEND_TRIM
            | export_flag::SEND_WRITE_ZEROES
            | export_flag::CAN_MULTI_CONN;
        let kept = self.flags & before.flags & promises == before.flags & promises;
        let fits = self.blocks.minimum <= block_bytes && self.blocks.maximum >= block_bytes;
        // Who had neither was taken to have no cache, and is asked neither to flush one nor to write through it.
        let as_durable = before.can_flush() || before.can_fua() || before.is_read_only() || !self.can_flush();
        kept && fits && as_durable && (before.is_read_only() || !self.is_read_only())
    }
}

/// Why a server does not let us use an export.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NbdRefusal {
    /// It wants TLS.
    #[error(
        "the server requires TLS, which is not there; let it serve this export without (nbdkit --tls=off), over a network \
         that you trust or through a tunnel"
    )]
    TlsRequired,
    /// It has no such export.
    #[error("the server has no such export{said}; `nbdinfo --list` shows those that it has")]
    UnknownExport {
        /// What it said of it.
        said: String,
    },
    /// It is too old.
    #[error("the server does not know NBD_OPT_GO; use one of this decade (nbdkit, qemu-nbd)")]
    TooOld,
    /// Another reason.
    #[error("the server refuses the export (NBD_REP_ERR {number}){said}; see what it logs")]
    Other {
        /// Number of the error, without its highest bit.
        number: u32,
        /// What it said of it.
        said: String,
    },
    /// It speaks otherwise than the protocol allows.
    #[error(transparent)]
    Breach(#[from] NbdBreach),
}

#[derive(Clone, Copy, Debug)]
enum State {
    Greeting,
    Structured,
    Go { structured: bool, found: Option<(u64, u16)>, blocks: Blocks },
}

/// A handshake under way.
#[derive(Debug)]
pub(super) struct Handshake {
    state: State,
    replies: u32,
}

impl Handshake {
    pub(super) const fn new() -> Self {
        Self { state: State::Greeting, replies: 0 }
    }

    /// Takes one message from the front of `input`, appends what is to be sent to `out`, and says how many bytes it took: 0
    /// where the message is not all there. The export once it is open; what follows in `input` are replies to requests.
    pub(super) fn advance(
        &mut self,
        input: &[u8],
        export: &str,
        out: &mut Vec<u8>,
    ) -> Result<(usize, Option<Export>), NbdRefusal> {
        let asked = match self.state {
            State::Greeting => {
                let Some(bytes) = input.first_chunk::<GREETING_BYTES>() else { return Ok((0, None)) };
                out.extend_from_slice(&wire::greeting(bytes)?);
                wire::put_option(out, option::STRUCTURED_REPLY, &[]);
                self.state = State::Structured;
                return Ok((GREETING_BYTES, None));
            }
            State::Structured => option::STRUCTURED_REPLY,
            State::Go { .. } => option::GO,
        };
        let Some((header, rest)) = input.split_first_chunk::<OPTION_REPLY_BYTES>() else { return Ok((0, None)) };
        let (kind, length) = wire::option_reply(header, asked)?;
        let Some(data) = rest.get(..length as usize) else { return Ok((0, None)) };
        self.replies += 1;
        if self.replies > MAX_OPTION_REPLIES {
            return Err(NbdBreach::NoExport.into());
        }
        let export = self.reply(wire::option_data(kind, data)?, export, out)?;
        Ok((OPTION_REPLY_BYTES + data.len(), export))
    }

    fn reply(&mut self, reply: OptionReply<'_>, export: &str, out: &mut Vec<u8>) -> Result<Option<Export>, NbdRefusal> {
        match (&mut self.state, reply) {
            (_, OptionReply::Refused(OptionRefusal::TlsRequired, _)) => Err(NbdRefusal::TlsRequired),
            (State::Structured, OptionReply::Ack | OptionReply::Refused(..)) => {
                wire::put_go(out, export);
                let structured = reply == OptionReply::Ack;
                self.state = State::Go { structured, found: None, blocks: DEFAULT_BLOCKS };
                Ok(None)
            }
            (State::Go { found, .. }, OptionReply::Export(bytes, flags)) => {
                *found = Some((bytes, flags));
                Ok(None)
            }
            (State::Go { blocks, .. }, OptionReply::Blocks(said)) => {
                *blocks = said;
                Ok(None)
            }
            (&mut State::Go { structured, found, blocks }, OptionReply::Ack) => match found {
                Some((bytes, flags)) if flags & export_flag::HAS_FLAGS != 0 => {
                    Ok(Some(Export { bytes, flags, blocks, structured }))
                }
                _ => Err(NbdBreach::NoExport.into()),
            },
            (State::Go { .. }, OptionReply::Other) => Ok(None),
            (_, OptionReply::Refused(OptionRefusal::Unsupported, _)) => Err(NbdRefusal::TooOld),
            (_, OptionReply::Refused(OptionRefusal::UnknownExport, text)) => {
                Err(NbdRefusal::UnknownExport { said: shown(text) })
            }
            (_, OptionReply::Refused(OptionRefusal::Other(number), text)) => {
                Err(NbdRefusal::Other { number, said: shown(text) })
            }
            (State::Greeting | State::Structured, _) => Err(NbdBreach::NoExport.into()),
        }
    }
}

/// What a stranger says, as a part of a line.
fn shown(text: &[u8]) -> String {
    let text: String = String::from_utf8_lossy(text).chars().take(MAX_SHOWN).collect();
    if text.is_empty() { text } else { format!(" ({text:?})") }
}
