//! What a poll has to look at beside completions, news of Control, and what is left to be told or
//! posted.

use frwr_mempool::mutant;

/// See the module. A poll that waits asks [`Chores::is_alert`] alone, so whatever makes work for
/// polls raises the alert.
#[derive(Debug)]
pub(crate) struct Chores {
    /// Connections share receives, of which each poll may have some to post.
    shares_receives: bool,
    /// Objects of all connections that are to be destroyed, or being destroyed.
    freeing: u32,
    /// Connections that are neither vacant nor ready.
    unsettled: u32,
    /// Some connection may need attention (`Connection::needs_attention`).
    attention: bool,
    /// Set with all of these; a poll that finds nothing of them takes it back.
    alert: bool,
}

impl Chores {
    pub(crate) const fn new(shares_receives: bool) -> Self {
        Self { shares_receives, freeing: 0, unsettled: 0, attention: false, alert: true }
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
        self.freeing > 0 || self.unsettled > 0 || self.attention || self.shares_receives
    }

    /// Some connection has something that waits: the next poll looks at all of them.
    #[inline(always)]
    pub(crate) fn ask_attention(&mut self) {
        (self.attention, self.alert) = (true, true);
    }

    /// Whether one may.
    #[inline(always)]
    pub(crate) fn need_attention(&self) -> bool {
        self.attention
    }

    /// All connections were looked at. Whether one still has something that waits.
    pub(crate) fn attended(&mut self, needed: bool) {
        self.attention = needed;
    }

    /// A connection opens, or ends.
    pub(crate) fn unsettle(&mut self) {
        self.unsettled += 1;
        self.alert = true;
    }

    /// A connection is ready, or vacant.
    pub(crate) fn settle(&mut self) {
        self.unsettled -= 1;
    }

    /// Connections that open or end.
    #[inline(always)]
    pub(crate) fn unsettled(&self) -> u32 {
        self.unsettled
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
        self.freeing > 0 && !(mutant!(returned_behind_others) && self.unsettled > 0)
    }
}
