//! What a core that sleeps is woken by.

use crate::Error;
use frwr_reactor::{Context, Reactor};
use std::{
    io,
    os::fd::{BorrowedFd, OwnedFd},
};

/// Descriptors of what is in a reactor, to be waited for by it: its own, since it is asked to take them. Ports and targets live as long as
/// the reactor that polls them.
pub(crate) fn own_descriptors<'a>(descriptors: impl Iterator<Item = BorrowedFd<'a>>) -> Result<Vec<OwnedFd>, Error> {
    descriptors.map(|one| one.try_clone_to_owned()).collect::<Result<_, _>>().map_err(no_descriptor)
}

/// What becomes readable wakes the reactor.
pub(crate) fn wake_by<C: Context>(reactor: &mut Reactor<C>, descriptors: Vec<OwnedFd>) -> Result<(), Error> {
    descriptors.into_iter().try_for_each(|one| reactor.wake_by(one).map_err(no_descriptor))
}

/// A core that is to sleep has nothing to wait for.
#[expect(clippy::needless_pass_by_value, reason = "it maps errors")]
pub(super) fn no_descriptor(source: io::Error) -> Error {
    let text = format!("no descriptor to sleep on ({source}); raise `ulimit -n`, or use --idle spin");
    Error::no_room("descriptor", text)
}
