//! What people are told of the lock of an image, by which one of several gateways serves it.

use crate::output::in_line;
use frwr_nvmf::storage::{RbdLock, RbdLockFrom};

/// What has become of it; nothing where nobody is known yet.
pub(super) fn lock_line(name: &str, lock: &RbdLock) -> Option<String> {
    let fenced = "is on its cluster's blocklist, and can write no more; this gateway serves the image now";
    Some(match lock {
        RbdLock::Owner { from: RbdLockFrom::Nobody } => {
            format!("{name}: has taken the lock, which nobody had; this gateway serves the image now")
        }
        RbdLock::Owner { from: RbdLockFrom::Gone(owner) } => {
            format!(
                "{name}: has taken over the lock from {}, whose watch was gone: that client {fenced}",
                in_line(owner)
            )
        }
        RbdLock::Owner { from: RbdLockFrom::Alive(owner) } => {
            format!("{name}: has taken over the lock from {}, as it was asked to: that client {fenced}", in_line(owner))
        }
        RbdLock::Standby { trouble: Some(trouble), .. } => format!(
            "{name}: its lock cannot be had ({}), which is tried once a second; see ceph -s, and that its user may blocklist clients \
             (mon 'profile rbd')",
            in_line(trouble)
        ),
        RbdLock::Standby { owner: Some(owner), .. } => format!(
            "{name}: {} has the lock, and serves the image; this gateway takes over when that client is gone",
            in_line(owner)
        ),
        RbdLock::Releasing { trouble: Some(trouble) } => format!(
            "{name}: its lock cannot be given back ({}), which is tried once a second; this gateway serves the image no more; see \
             ceph -s",
            in_line(trouble)
        ),
        RbdLock::Standby { .. } | RbdLock::Releasing { .. } => return None,
        RbdLock::Released => format!(
            "{name}: has given the lock back; this gateway serves the image no more until another one has had it and is gone, or \
             acquire_lock"
        ),
        RbdLock::Lost => format!(
            "{name}: has lost the lock: the cluster has this client on its blocklist, since another one took over; every command to \
             the image is sent to other paths until it is opened again: start serve again, or remove_namespace and add_namespace"
        ),
        // Of a later library.
        other => format!("{name}: {other:?}"),
    })
}

/// All words of [`lock_name`].
pub(super) const LOCK_NAMES: [&str; 5] = ["owner", "standby", "releasing", "released", "lost"];

/// In one word, for answers.
pub(super) fn lock_name(lock: &RbdLock) -> &'static str {
    match lock {
        RbdLock::Owner { .. } => "owner",
        RbdLock::Standby { .. } => "standby",
        RbdLock::Releasing { .. } => "releasing",
        RbdLock::Released => "released",
        _ => "lost",
    }
}
