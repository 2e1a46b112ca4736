//! The receives that messages of one connection go into: those that its peer offers, and its own, which are parted between what the peer
//! sends unasked and replies. Counts alone: which buffer is which nobody says.

use frwr_mempool::mutant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Credits {
    /// Receives of the peer that we may still use; below 0 where more are in use than it still offers. Each message of the peer adds one,
    /// answered or not: 64 bits do not overflow.
    peer: i64,
    /// Those that it offers for what we send unasked, used or not.
    offered: u32,
    /// Those of them that messages without a reply took, and that the peer was not said to have posted again.
    unreturned: u32,
    /// What the caller asked to grant.
    to_grant: Option<u32>,
    /// Receives of ours that the peer was granted for what it sends unasked; all others are for replies.
    granted: u32,
    /// Receives for replies.
    replies: u32,
    /// Those of them in which no reply is awaited, and none is in the caller's hands: so many requests may be sent.
    free_replies: u32,
    /// Replies that are awaited to requests that were cancelled: the peer may still send them, into receives that are kept for it.
    abandoned: u32,
}

impl Credits {
    /// A connection opens: its peer offers so many receives, and is to be granted so many, if the caller said how many.
    pub(crate) fn begin(&mut self, offered: u32, to_grant: Option<u32>) {
        let abandoned = if mutant!(abandoned_replies_kept) { self.abandoned } else { 0 };
        *self = Self { peer: offered.into(), offered, to_grant, abandoned, ..*self };
        self.unreturned = 0;
    }

    /// So many receives are posted: those that the peer is granted, and those for replies. `for_replies` of `all` that there may be are
    /// kept for these, unless the caller said how many the peer is to have.
    pub(crate) fn part(&mut self, posted: u32, for_replies: u32, all: u32) {
        self.granted = self.to_grant.unwrap_or(all.saturating_sub(for_replies)).min(posted);
        self.replies = posted - self.granted;
        self.free_replies = self.replies;
    }

    /// A message may be sent: the peer has a receive for it, and we have one for its reply, where it is answered.
    #[inline(always)]
    pub(crate) fn may_send(&self, answered: bool) -> bool {
        self.peer > 0 && (!answered || self.free_replies > 0)
    }

    /// The peer has a receive for a message.
    #[inline(always)]
    pub(crate) fn has_peer_receive(&self) -> bool {
        self.peer > 0
    }

    /// A receive for one more reply is free.
    pub(crate) fn has_reply_receive(&self) -> bool {
        self.free_replies > 0
    }

    /// Some receive is for replies, free or not.
    pub(crate) fn has_replies(&self) -> bool {
        self.replies > 0
    }

    /// Whether the peer has no receive for a message, and no reply is due that would bring one: only a message that the peer sends
    /// unasked could.
    pub(crate) fn lack_peer_receives(&self) -> bool {
        self.peer <= 0 && self.free_replies == self.replies
    }

    /// A request takes a receive of the peer, and one for its reply where it is answered.
    #[inline(always)]
    pub(crate) fn take(&mut self, sends: bool, answered: bool) {
        // S4: the peer's receive, or ours, is used without being counted.
        self.peer -= i64::from(sends && !mutant!(S4_peer_receive));
        self.free_replies -= u32::from(sends && answered && !mutant!(S4_reply_receive));
        self.unreturned += u32::from(sends && !answered);
    }

    /// What it took comes back unused. `one_way`: it sends, and is not answered.
    pub(crate) fn give_back(&mut self, sends: bool, answered: bool, one_way: bool) {
        self.peer += i64::from(sends);
        self.free_replies += u32::from(answered);
        self.unreturned -= u32::from(one_way);
    }

    /// A response takes a receive of the peer.
    #[inline(always)]
    pub(crate) fn take_for_response(&mut self) {
        self.peer -= 1;
    }

    /// The peer sent a message: it has a receive for what answers it, or it answers what took one.
    #[inline(always)]
    pub(crate) fn message_came(&mut self) {
        self.peer += 1;
    }

    /// The message was one that the peer posted no receive for an answer of.
    pub(crate) fn message_was_one_way(&mut self) {
        self.peer -= 1;
    }

    /// A receive that a reply came in is free for another one.
    #[inline(always)]
    pub(crate) fn reply_released(&mut self, is_reply: bool) {
        // Mutant: a receive that a reply came in is for no other.
        self.free_replies += u32::from(is_reply && !mutant!(reply_receive_lost));
    }

    /// There is one more receive, for replies.
    pub(crate) fn add_reply_receive(&mut self) {
        self.replies += 1;
        self.free_replies += 1;
    }

    /// The reply of a request that was cancelled may still come.
    pub(crate) fn abandon_reply(&mut self) {
        // Mutant: the receive of a reply that may still come is not kept for it.
        self.abandoned += u32::from(!mutant!(abandoned_uncounted));
    }

    /// A message answers no request that is awaited: whether it can be the reply of one that was cancelled.
    pub(crate) fn take_abandoned(&mut self) -> bool {
        let is_one = self.abandoned > 0;
        // Mutant: each message to no request brings a receive for another reply.
        if !mutant!(abandoned_never_spent) {
            self.abandoned -= u32::from(is_one);
        }
        is_one
    }

    /// The peer posted so many receives again of those that messages without a reply took.
    ///
    /// # Errors
    /// Those took fewer: so many.
    pub(crate) fn returned(&mut self, returned: u32) -> Result<(), u32> {
        self.unreturned = self.unreturned.checked_sub(returned).ok_or(self.unreturned)?;
        self.peer += i64::from(returned);
        Ok(())
    }

    /// The peer offers so many from here on.
    pub(crate) fn set_offered(&mut self, offered: u32) {
        let before = core::mem::replace(&mut self.offered, offered);
        self.peer += i64::from(offered) - i64::from(before);
    }

    /// The peer is granted so many from here on: those that are more are taken from the receives for replies, those that are fewer are
    /// given to them.
    ///
    /// # Errors
    /// So many can be granted at most: the others are in use.
    pub(crate) fn set_granted(&mut self, granted: u32) -> Result<(), u32> {
        let most = self.granted + self.free_replies;
        if granted > most {
            return Err(most);
        }
        // What is granted and what is free for replies are parts of what is posted.
        self.replies = self.replies + self.granted - granted;
        self.free_replies = most - granted;
        self.granted = granted;
        Ok(())
    }

    /// Receives that the peer offers for what we send unasked, used or not.
    pub(crate) fn offered(&self) -> u32 {
        self.offered
    }

    /// Receives of the peer that are free.
    pub(crate) fn free_of_peer(&self) -> u64 {
        // Below 0 nothing is free.
        self.peer.try_into().unwrap_or(0)
    }

    /// Receives that the peer is granted.
    pub(crate) fn granted(&self) -> u32 {
        self.granted
    }

    /// Receives for replies, and those of them that are free.
    pub(crate) fn replies(&self) -> (u32, u32) {
        (self.replies, self.free_replies)
    }
}
