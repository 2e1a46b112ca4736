//! One round: every host comes and goes once, all at the same time.

use super::{
    host::Side,
    host_core::{Drive, HostCore},
    ledger::Ledger,
    plan::Plan,
    summary::Summary,
    target::{self, StartError},
};
use frwr_reactor::{Clock, Placement, Reactors, Schedule, Seat};

/// Host and round, and what is there before.
pub(super) struct Round<'a> {
    pub(super) seed: u64,
    pub(super) number: u64,
    pub(super) clock: &'a Clock,
    pub(super) target: &'a target::Running,
}

impl Round<'_> {
    /// All hosts, until the last has gone.
    ///
    /// # Errors
    /// What was wrong, and with whom.
    pub(super) fn run(&self, ledgers: Vec<Ledger>, summary: &mut Summary) -> Result<Vec<Ledger>, String> {
        let plans: Vec<_> = (0..ledgers.len() as u64).map(|host| Plan::new(self.seed, self.number, host)).collect();
        let hosts = ledgers.into_iter().zip(&plans).enumerate();
        let running: Result<Vec<_>, _> =
            hosts.map(|(number, (ledger, plan))| self.start(number, ledger, plan)).collect();
        let mut ledgers = Vec::with_capacity(plans.len());
        let mut wrong = Ok(());
        for (running, plan) in running?.into_iter().zip(&plans) {
            for ended in running.join() {
                let core = ended.map_err(|error| error.to_string())?.context;
                summary.add(plan.end, core.sessions, core.ledger.ended);
                wrong = wrong.and(core.result);
                ledgers.push(core.ledger);
            }
        }
        wrong.map(|()| ledgers)
    }

    /// A host on a reactor of its own, which ends with it.
    fn start(
        &self,
        number: usize,
        mut ledger: Ledger,
        plan: &Plan,
    ) -> Result<frwr_reactor::Running<(), HostCore>, String> {
        ledger.begin();
        let mut parts = Some((ledger, plan.clone(), self.target.orders.clone()));
        let reactors = Reactors::new(Placement::Unpinned { reactors: 1 }).clock(self.clock.clone());
        let running = reactors.launch(|_| {
            let (parts, fabric) = (parts.take(), self.target.fabric.clone());
            move |seat: Seat<()>, _| {
                let (ledger, plan, orders) =
                    parts.ok_or_else(|| StartError::Parts("a second core of a host".to_owned()))?;
                let side = Side::new(&fabric, number, &plan).map_err(StartError::Parts)?;
                let shutdown = seat.shutdown_handle();
                let mut reactor = seat.reactor(HostCore::new(side, ledger, plan, orders, shutdown));
                reactor.add("host", Schedule::Busy, Drive)?;
                Ok::<_, StartError>(reactor)
            }
        });
        running.map_err(|error| error.to_string())
    }
}
