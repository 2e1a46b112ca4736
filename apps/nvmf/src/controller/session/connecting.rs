//! How far connections are on their way to a controller.

/// How far a connection's Connect command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Connecting {
    /// There is none, or it was answered.
    No,
    /// Its data is fetched from the host.
    Arriving,
    /// Its data is here: what it still waits for is not the host's to do.
    Held(Wait),
}

/// What a Connect waits for that its host can do nothing for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Wait {
    /// Something short: its turn, another core, or keys that somebody changes.
    Short,
    /// The commands that storages have of a former session: the place of its controller.
    Late(usize),
    /// Whether another session of its host lives: the place of that one's controller, and what its host's device was asked.
    Former { place: usize, question: u64 },
}

impl Wait {
    /// A former session, or one that may be one, is what it waits for.
    pub(in super::super) fn is_for_former(self) -> bool {
        self != Self::Short
    }
}
