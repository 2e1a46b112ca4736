//! Paths that come and go while the others serve. Their hosts are made before: a path is a place, which leads to an address or nowhere.

use super::Paths;
use super::one::OnePath;
use super::options::PathsError;
use frwr_engine::provider::Port;
use std::net::SocketAddr;

impl<P: Port> Paths<P> {
    /// Has a vacant path of several lead to `address`, and starts to connect there.
    ///
    /// # Errors
    /// [`PathsError::Taken`] where it is not vacant.
    pub fn connect_path(&mut self, path: u16, address: SocketAddr) -> Result<(), PathsError> {
        let vacant = self.paths.get_mut(usize::from(path)).filter(|one| one.is_vacant());
        vacant.ok_or(PathsError::Taken { path })?.connect(address);
        Ok(())
    }

    /// A path of several is not to be tried again: it serves while its session lasts, and is vacant behind that
    /// ([`PathState::Vacant`](super::PathState::Vacant)). Where changes of the medium wait until its controller is over, it is tried until
    /// they do no longer, since its return ends that sooner. One that has no session becomes vacant at once, or with the next polls; before
    /// [`Paths::start`] it is a place for one that comes later.
    pub fn retire_path(&mut self, path: u16) {
        if self.paths.len() > 1
            && let Some(one) = self.paths.get_mut(usize::from(path))
        {
            one.retire();
        }
    }

    /// There are paths, and none will serve again. Where all are vacant, another one may come.
    pub(super) fn all_are_final(&self) -> bool {
        let used = || self.paths.iter().filter(|path| !path.is_vacant());
        used().next().is_some() && used().all(|path: &OnePath<P>| path.state().is_final())
    }
}
