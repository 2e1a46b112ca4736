//! What is done again and again: each operation with all that is known of it. `client_requests` begins it, `server` answers it; everybody
//! else asks here.

use super::{
    parameters::{Invalidation, KeyKind, MAX_RANGES, MAX_SEGMENTS, MAX_SEND_BYTES, MAX_SIZE, Parameters},
    summary::Scale,
};
use clap::ValueEnum;
use frwr_engine::provider::Access;

/// What is done again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Operation {
    /// RDMA WRITE to memory that the server keeps open, to its completion.
    Write,
    /// RDMA READ from memory that the server keeps open, to its completion.
    Read,
    /// RDMA WRITEs to and fro, each seen in memory by the side that it goes to, as perftest's ib_write_lat has them; figures are half of
    /// that.
    Pingpong,
    /// A message there and one of the same size back; figures are half of that.
    Send,
    /// A key is made, and killed by LOCAL_INV.
    Register,
    /// A registered request: key and message, the server's RDMA, its reply, and a dead key.
    Request,
}

/// What passes between both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    /// RDMA of the client's, which the server's device serves by itself.
    Transfers,
    /// RDMA of either side's, each seen in memory.
    Rallies,
    /// A message, and its reply.
    Messages,
    /// Nothing: keys are made, and killed.
    Keys,
}

/// An operation.
struct Facts {
    /// On the command line, in reports and in private data.
    name: &'static str,
    number: u8,
    traffic: Traffic,
    /// The same bytes go there and come back, so that they are one piece, and a figure is half of the time.
    to_and_fro: bool,
    /// What the server keeps open to the client for the whole run.
    server_opens: Option<Access>,
    /// Keys that it may have, the usual one first; none where its requests have none.
    keys: &'static [KeyKind],
    /// What a round trip ends with.
    to: &'static str,
}

impl Operation {
    const fn facts(self) -> Facts {
        use KeyKind::{Memory, Request, Static};
        match self {
            Self::Write => Facts {
                name: "write",
                number: 1,
                traffic: Traffic::Transfers,
                to_and_fro: false,
                // It reads back what it wrote.
                server_opens: Some(Access::RemoteReadWrite),
                keys: &[Static, Memory],
                to: "completion",
            },
            Self::Read => Facts {
                name: "read",
                number: 2,
                traffic: Traffic::Transfers,
                to_and_fro: false,
                server_opens: Some(Access::RemoteRead),
                keys: &[Static, Memory],
                to: "completion",
            },
            Self::Pingpong => Facts {
                name: "pingpong",
                number: 6,
                traffic: Traffic::Rallies,
                to_and_fro: true,
                server_opens: Some(Access::RemoteWrite),
                keys: &[Static, Memory],
                to: "the WRITE that comes back",
            },
            Self::Send => Facts {
                name: "send",
                number: 3,
                traffic: Traffic::Messages,
                to_and_fro: true,
                server_opens: None,
                keys: &[],
                to: "the message that comes back",
            },
            Self::Register => Facts {
                name: "register",
                number: 4,
                traffic: Traffic::Keys,
                to_and_fro: false,
                server_opens: None,
                keys: &[Request, Memory],
                to: "its death",
            },
            Self::Request => Facts {
                name: "request",
                number: 5,
                traffic: Traffic::Messages,
                to_and_fro: false,
                server_opens: None,
                keys: &[Request, Static, Memory],
                to: "the dead key",
            },
        }
    }

    /// As the command line and reports have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The names of all that are so, for people.
    pub(super) fn names(is_so: impl Fn(Self) -> bool) -> String {
        let all: Vec<_> = Self::value_variants().iter().filter(|one| is_so(**one)).map(|one| one.name()).collect();
        match all.split_last() {
            Some((last, [])) => (*last).to_owned(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
            None => String::new(),
        }
    }

    pub(super) fn number(self) -> u8 {
        self.facts().number
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        Self::value_variants().iter().copied().find(|operation| operation.number() == number)
    }

    fn traffic(self) -> Traffic {
        self.facts().traffic
    }

    /// Each request is RDMA on memory that the server keeps open.
    pub(super) fn is_transfer(self) -> bool {
        matches!(self.traffic(), Traffic::Transfers | Traffic::Rallies)
    }

    /// Both sides write, and look into memory for what the other one wrote.
    pub(super) fn rallies(self) -> bool {
        self.traffic() == Traffic::Rallies
    }

    /// Each request is a message to the server.
    pub(super) fn sends_messages(self) -> bool {
        self.traffic() == Traffic::Messages
    }

    /// That message is all: what is moved is in it.
    pub(super) fn is_message_alone(self) -> bool {
        self.sends_messages() && self.facts().to_and_fro
    }

    /// That message names memory for RDMA of the server's.
    pub(super) fn asks_for_rdma(self) -> bool {
        self.sends_messages() && !self.facts().to_and_fro
    }

    /// Keys are made and killed, and no bytes move.
    pub(super) fn makes_keys_alone(self) -> bool {
        self.traffic() == Traffic::Keys
    }

    /// The server's device does all that there is to do: its program is asked at the beginning and at the end only.
    pub(super) fn leaves_server_alone(self) -> bool {
        !self.sends_messages() && !self.rallies()
    }

    /// What the server keeps open to the client for the whole run.
    pub(super) fn server_opens(self) -> Option<Access> {
        self.facts().server_opens
    }

    /// The client writes into what the server keeps open, and not reads from it.
    pub(super) fn writes(self) -> bool {
        self.server_opens().is_some_and(Access::permits_write)
    }

    /// What the client wrote is read back at the end.
    pub(super) fn reads_back(self) -> bool {
        self.server_opens() == Some(Access::RemoteReadWrite)
    }

    /// Ranges of the server's memory that a request may go to or come from.
    pub(super) fn max_ranges(self) -> u8 {
        if self.traffic() == Traffic::Transfers { MAX_RANGES } else { 1 }
    }

    /// Pieces that the memory of a request may be in.
    pub(super) fn max_segments(self) -> u8 {
        if self.facts().to_and_fro { 1 } else { MAX_SEGMENTS }
    }

    /// Bytes of a request.
    pub(super) fn max_size(self) -> u32 {
        if self.is_message_alone() { MAX_SEND_BYTES } else { MAX_SIZE }
    }

    /// Keys that it may have, the usual one first; none where its requests have none.
    pub(super) fn keys(self) -> &'static [KeyKind] {
        self.facts().keys
    }

    /// Requests that have memory of their own, of so many in flight: all keys of `register` cover the same bytes, and a message carries
    /// what it moves.
    pub(super) fn slots(self, depth: u32) -> u32 {
        if self.makes_keys_alone() || self.is_message_alone() { 1 } else { depth }
    }

    /// Bytes that a request of this size moves.
    pub(super) fn moved_bytes(self, size: u32) -> u32 {
        if self.makes_keys_alone() { 0 } else { size }
    }

    /// Whether figures are the whole of a round trip.
    pub(super) fn scale(self) -> Scale {
        if self.facts().to_and_fro { Scale::HalfRoundTrip } else { Scale::RoundTrip }
    }

    /// What figures are from and to; at a rate they begin when a request was meant to.
    pub(super) fn figures(self, at_rate: bool) -> String {
        let Facts { to_and_fro, to, .. } = self.facts();
        let from = match (self.makes_keys_alone(), at_rate) {
            _ if to_and_fro && !at_rate => return "half of the round trip, as perftest shows it".to_owned(),
            (false, false) => "submission",
            (false, true) => "when it was meant to begin",
            (true, false) => "making the key",
            (true, true) => "when it was meant to be made",
        };
        format!("round trip: from {from} to {to}")
    }
}

impl Parameters {
    /// Whether the client opens keys by work requests, which not every device does.
    #[must_use]
    pub fn client_opens_keys(&self) -> bool {
        let no_key = self.operation.is_message_alone() || self.operation.traffic() == Traffic::Transfers;
        !no_key && self.key != KeyKind::Memory
    }

    /// The same of the server.
    #[must_use]
    pub fn server_opens_keys(&self) -> bool {
        self.operation.is_transfer() && self.key != KeyKind::Memory
    }

    /// The client has a key of its own that is open for the whole run.
    pub(super) fn has_key_for_run(&self) -> bool {
        self.operation.rallies() || (self.operation.asks_for_rdma() && self.key == KeyKind::Static)
    }

    /// Each request has a key, which names its memory to the server.
    pub(super) fn has_key_per_request(&self) -> bool {
        self.operation.asks_for_rdma() && self.key == KeyKind::Request
    }

    /// The server's reply kills it.
    pub(super) fn is_killed_by_reply(&self) -> bool {
        self.has_key_per_request() && self.invalidation == Invalidation::Remote
    }

    /// Keys are made and killed by system calls, one after the other.
    pub(super) fn registers_by_call(&self) -> bool {
        self.operation.makes_keys_alone() && self.key == KeyKind::Memory
    }

    /// Whose key it is: `none` where a request has none.
    pub(super) fn key_name(&self) -> &'static str {
        if self.operation.is_message_alone() { "none" } else { self.key.name() }
    }

    /// Who kills it: `none` where nobody does, request by request.
    pub(super) fn invalidation_name(&self) -> &'static str {
        match (self.has_key_per_request(), self.operation.makes_keys_alone(), self.key) {
            (true, ..) => self.invalidation.name(),
            (_, true, KeyKind::Request) => Invalidation::Local.name(),
            _ => "none",
        }
    }

    /// What the server does with the memory; `None` where it does nothing by itself.
    pub(super) fn peer_name(&self) -> Option<&'static str> {
        self.operation.asks_for_rdma().then(|| self.peer_does.name())
    }

    /// Keys of a run in words.
    pub(super) fn keys_in_words(&self) -> &'static str {
        match (self.operation.traffic(), self.key) {
            _ if self.operation.is_message_alone() => "no key",
            (Traffic::Transfers, KeyKind::Memory) => "one key of the server's for the run, by ibv_reg_mr",
            (Traffic::Transfers, _) => "one key of the server's for the run",
            (Traffic::Rallies, KeyKind::Memory) => "one key of either side's for the run, by ibv_reg_mr",
            (Traffic::Rallies, _) => "one key of either side's for the run",
            (_, KeyKind::Request) if self.is_killed_by_reply() => "a key per request, killed by the server's reply",
            (_, KeyKind::Request) => "a key per request, killed by LOCAL_INV",
            (_, KeyKind::Static) => "one key for the run",
            (_, KeyKind::Memory) => "ibv_reg_mr and ibv_dereg_mr per request",
        }
    }

    /// Where the server's memory is in several ranges, whereto or wherefrom, in words.
    pub(super) fn ranges_in_words(&self) -> String {
        let way = if self.operation.writes() { "to" } else { "from" };
        let of_server = || format!(" {way} {} ranges of the server's memory", self.ranges);
        if self.ranges > 1 { of_server() } else { String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::Operation;
    use clap::ValueEnum as _;

    #[test]
    fn names_are_those_of_the_command_line_and_numbers_tell_operations_apart() {
        for &operation in Operation::value_variants() {
            assert_eq!(operation.to_possible_value().unwrap().get_name(), operation.name());
            assert_eq!(Operation::of(operation.number()), Some(operation));
        }
        assert_eq!((Operation::of(0), Operation::of(u8::MAX)), (None, None));
    }

    #[test]
    fn those_that_are_so_are_listed_as_people_do() {
        use Operation::{Pingpong, Read, Request, Send, Write};
        assert_eq!(Operation::names(|op| op == Request), "request");
        assert_eq!(Operation::names(|op| matches!(op, Send | Request)), "send and request");
        assert_eq!(Operation::names(|op| matches!(op, Write | Read | Pingpong)), "write, read and pingpong");
        assert_eq!(Operation::names(|_| false), "");
    }
}
