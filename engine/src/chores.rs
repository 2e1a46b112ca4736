//! What a poll has to look at beside completions, news of Control, and what is left to be told or
//! posted.

use crate::connection_set::ConnectionSet;
use frwr_mempool::{Region, mutant, region::CarveError};

/// See the module. A poll that waits asks [`Chores::is_alert`] alone, so whatever makes work for
/// polls raises the alert.
#[derive(Debug)]
pub(crate) struct Chores {
    /// Connections share receives, of which each poll may have some to post.
    shares_receives: bool,
    /// Objects of all connections that are to be destroyed, or being destroyed.
    freeing: u32,
    /// Connections that are neither vacant nor ready.
    unsettled: ConnectionSet,
    /// Connections that may need attention (`Connection::needs_attention`).
    attention: ConnectionSet,
    /// Set with all of these; a poll that finds nothing of them takes it back.
    alert: bool,
}

impl Chores {
    pub(crate) fn new_in(region: &mut Region, connections: usize, shares_receives: bool) -> Result<Self, CarveError> {
        let unsettled = ConnectionSet::new_in(region, connections)?;
        let attention = ConnectionSet::new_in(region, connections)?;
        Ok(Self { shares_receives, freeing: 0, unsettled, attention, alert: true })
    }

    /// Bytes of the region that it takes.
    pub(crate) fn bytes_needed(connections: usize) -> Option<usize> {
        ConnectionSet::bytes_needed(connections)?.checked_mul(2)
    }

    /// A poll may have more to look at than one of a core that waits.
    #[inline(always)]
    pub(crate) fn is_alert(&self) -> bool {
        debug_assert!(self.alert || !self.are_there(), "who makes work for a poll raises the alert");
        self.alert
    }

    /// The next poll looks at all of this.
    pub(crate) fn raise_alert(&mut self) {
        self.alert = true;
    }

    /// A poll looked at all of this. `more`: there is something else that the next one is to look
    /// at.
    pub(crate) fn looked_at(&mut self, more: bool) {
        self.alert = self.are_there() || more;
    }

    fn are_there(&self) -> bool {
        self.freeing > 0 || !self.unsettled.is_empty() || !self.attention.is_empty() || self.shares_receives
    }

    /// This connection has something that waits: each poll looks at it until it has none.
    pub(crate) fn ask_attention(&mut self, index: usize) {
        self.attention.insert(index);
        self.alert = true;
    }

    /// Connections that may.
    #[inline(always)]
    pub(crate) fn attention(&self) -> &ConnectionSet {
        &self.attention
    }

    /// This one was looked at, and has nothing that waits.
    pub(crate) fn attended(&mut self, index: usize) {
        self.attention.remove(index);
    }

    /// Mutant: nobody looks again at those who still wait.
    pub(crate) fn forget_attention(&mut self) {
        self.attention.clear();
    }

    /// A connection opens, or ends.
    pub(crate) fn unsettle(&mut self, index: usize) {
        self.unsettled.insert(index);
        self.alert = true;
    }

    /// A connection is ready, or vacant.
    pub(crate) fn settle(&mut self, index: usize) {
        self.unsettled.remove(index);
    }

    /// Connections that open or end.
    #[inline(always)]
    pub(crate) fn unsettled(&self) -> &ConnectionSet {
        &self.unsettled
    }

    /// So many objects more are to be destroyed.
    pub(crate) fn free(&mut self, objects: u32) {
        self.freeing += objects;
        self.alert |= objects > 0;
    }

    /// One is destroyed, or the device refused to.
    pub(crate) fn freed(&mut self) {
        self.freeing = self.freeing.saturating_sub(1);
    }

    /// Objects are to be destroyed, or being destroyed.
    pub(crate) fn frees(&self) -> bool {
        self.freeing > 0
    }

    /// Some of them may have come back from Control. Mutant: they are looked at when no connection
    /// opens or ends.
    pub(crate) fn may_be_returned(&self) -> bool {
        self.freeing > 0 && (self.unsettled.is_empty() || !mutant!(returned_behind_others))
    }
}
