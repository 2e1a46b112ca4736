//! An export of an NBD server as a namespace (the protocol document of the NBD project): by sockets that never block, which the core that
//! polls the storage drives; no thread, no allocation for an operation. What a connection may lose, and what is sent again when it
//! ends, is in `shared` and `storage`.

mod access;
mod bytes;
mod connection;
mod coverage;
mod handshake;
mod link;
mod medium;
mod replies;
mod shared;
mod socket;
mod storage;
mod tasks;
mod uri;
mod wakeup;
mod wire;

pub use handshake::NbdRefusal;
pub use medium::{NbdError, NbdMedium};
pub use storage::NbdStorage;
pub use uri::{MAX_NBD_CONNECTIONS, NbdAddress, NbdOptions, NbdUriError, is_nbd_uri};
pub use wire::NbdBreach;
