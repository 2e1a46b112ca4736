//! A port executes what Control asks of it late: objects are made and destroyed long after they were asked for (fault 29).

use super::{Harm, NicFault};
use frwr_engine::provider::soft::Interference;

const POLLS: [u64; 3] = [2, 30, 300];

pub(super) const FAULT: NicFault = NicFault {
    name: "late commands",
    ends_connections: false,
    port: Harm::None,
    strike: |victim, random| victim.interfere(LateCommands { polls: random.of(&POLLS) }),
};

struct LateCommands {
    polls: u64,
}

impl Interference for LateCommands {
    fn holds_commands(&mut self) -> bool {
        let holds = self.polls > 0;
        self.polls -= u64::from(holds);
        holds
    }

    fn is_over(&self) -> bool {
        self.polls == 0
    }
}
