//! Why requests and transfers wait.

/// What a request or a transfer finds too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitCause {
    Registrations,
    PeerReceives,
    ReplyReceives,
    SendEntries,
    Order,
}

frwr_mempool::statistics! {
    /// Requests, or transfers, that wait or have waited, by what they waited for first.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Waits {
        /// MRs of their connection ([`EngineOptions::registrations`](crate::EngineOptions::registrations)).
        pub registrations: u64,
        /// A receive of the peer for their message ([`ConnectionOptions::peer_receives`](crate::ConnectionOptions::peer_receives)).
        pub peer_receives: u64,
        /// A receive of ours for the reply: what was granted to the peer is not for replies
        /// ([`ConnectionOptions::granted_receives`](crate::ConnectionOptions::granted_receives)), nor is a reply that the caller has not released.
        pub reply_receives: u64,
        /// Entries of the send queue; or room for lists of segments, which the next flush makes.
        pub send_entries: u64,
        /// Nothing but those that waited in front of them.
        pub order: u64,
    }
}

impl Waits {
    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.registrations + self.peer_receives + self.reply_receives + self.send_entries + self.order
    }

    pub(crate) fn add(&mut self, cause: WaitCause, count: u64) {
        let counter = match cause {
            WaitCause::Registrations => &mut self.registrations,
            WaitCause::PeerReceives => &mut self.peer_receives,
            WaitCause::ReplyReceives => &mut self.reply_receives,
            WaitCause::SendEntries => &mut self.send_entries,
            WaitCause::Order => &mut self.order,
        };
        *counter += count;
    }
}

frwr_mempool::statistics! {
    /// What waits at this moment: of each connection the first of its kind by what it waits for, those behind it by their order.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[non_exhaustive]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Waiting {
        /// Requests.
        pub requests: Waits => Gauge,
        /// Transfers.
        pub transfers: Waits => Gauge,
    }
}
