//! What the main thread has the cores of a target do beside their work, and what they answer: over two lanes for each core. That there
//! are orders the cores see by the word that they look at in each poll anyway ([`Progress::asks`]), so that orders cost nothing while
//! there are none.

use super::{
    change::{Change, Returned},
    progress::Progress,
    snapshot::TargetSnapshot,
};
use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use frwr_mempool::lane;
use frwr_nvmf::{
    controller::{ChangeEvent, ChangeId},
    storage::AnyStorage,
};
use std::sync::Arc;

/// Orders on their way to a core, and answers on their way back: a report, a change, and what is taken back, each once more where the
/// former one came too late.
const LANE: usize = 8;
/// What became of changes comes beside answers to all orders that there may be, and takes nobody's room: as many may wait.
const OUTCOMES: usize = LANE;

/// What a core shall do.
#[derive(Debug)]
pub(super) enum Order {
    /// Hand over what it has done so far, and what it has.
    Report {
        /// Which time that is.
        round: u64,
    },
    /// Change something, unless that was taken back.
    Change {
        /// Which change.
        number: u64,
        change: Box<Change>,
        ticket: Ticket,
    },
    /// Say what became of changes.
    Outcome,
}

/// What a core says to it.
#[derive(Debug)]
pub(super) enum Answer {
    Report {
        round: u64,
        snapshot: Box<TargetSnapshot>,
    },
    Changed {
        number: u64,
        result: Result<Option<ChangeId>, String>,
        /// What the core has no longer, for the main thread to close.
        returned: Option<Returned>,
    },
    /// A change that was taken back before, with what it would have brought.
    Withdrawn(Box<Change>),
    /// What became of a change that takes its time.
    Became(Box<ChangeEvent<AnyStorage>>),
}

/// Decides between the core that takes an order and the main thread that takes it back: one of them is first.
#[derive(Clone, Debug, Default)]
pub(super) struct Ticket(Arc<AtomicU8>);

const OPEN: u8 = 0;
const TAKEN: u8 = 1;
const WITHDRAWN: u8 = 2;

impl Ticket {
    /// The core: does it now. False where it shall not any more.
    pub(super) fn take(&self) -> bool {
        self.0.compare_exchange(OPEN, TAKEN, Relaxed, Relaxed).is_ok()
    }

    /// The main thread: it shall not be done any more. False where it was done already, or is being done.
    pub(super) fn withdraw(&self) -> bool {
        self.0.compare_exchange(OPEN, WITHDRAWN, Relaxed, Relaxed).is_ok()
    }
}

/// A core's end of both lanes.
#[derive(Debug)]
pub(super) struct Desk {
    orders: lane::Receiver<Order>,
    answers: lane::Sender<Answer>,
}

impl Desk {
    /// The next order. To be called behind a look at the word that tells of it.
    pub(super) fn next(&mut self) -> Option<Order> {
        self.orders.pop()
    }

    /// What became of a change has room, beside the answers to all other orders.
    pub(super) fn has_room(&self) -> bool {
        self.answers.len() < OUTCOMES
    }

    /// What has no room came too late, and nobody waits for it.
    pub(super) fn answer(&mut self, answer: Answer) {
        let _ = self.answers.push(answer);
    }
}

/// The main thread's ends of both lanes.
#[derive(Debug)]
pub(super) struct Ends {
    orders: lane::Sender<Order>,
    answers: lane::Receiver<Answer>,
}

/// The ends of both lanes of a unit: the main thread's, and its core's.
pub(super) fn desk() -> (Ends, Desk) {
    let ((orders, of_core), (answers, of_main)) = (lane::bounded(LANE), lane::bounded(LANE + OUTCOMES));
    (Ends { orders, answers: of_main }, Desk { orders: of_core, answers })
}

/// The main thread's ends of the lanes of all units: of each core for each place of a device, in the order of
/// [`super::start::unit`]. Where no device is there is nothing.
#[derive(Debug)]
pub(super) struct Orders {
    units: Vec<Option<Ends>>,
    cores: usize,
    progress: Progress,
}

impl Orders {
    /// For units of so many cores and places, which are still to come.
    pub(super) fn new(progress: &Progress, cores: usize, places: usize) -> Self {
        Self { units: (0..cores * places).map(|_| None).collect(), cores, progress: progress.clone() }
    }

    /// A unit comes.
    pub(super) fn add(&mut self, unit: usize, ends: Ends) {
        if let Some(place) = self.units.get_mut(unit) {
            *place = Some(ends);
        }
    }

    /// It goes: it is asked nothing more, and what it has still to say nobody hears.
    pub(super) fn remove(&mut self, unit: usize) {
        if let Some(place) = self.units.get_mut(unit) {
            *place = None;
        }
    }

    /// Numbers that units may have.
    pub(super) fn numbers(&self) -> core::ops::Range<usize> {
        0..self.units.len()
    }

    /// There is a unit of this number.
    pub(super) fn has(&self, unit: usize) -> bool {
        self.units.get(unit).is_some_and(Option::is_some)
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.units.iter().flatten().count()
    }

    /// Cores of each device.
    pub(super) fn cores(&self) -> usize {
        self.cores.max(1)
    }

    /// The place of a unit's device.
    pub(super) fn device_of(&self, unit: usize) -> usize {
        unit / self.cores.max(1)
    }

    /// The reactor of a unit.
    pub(super) fn reactor_of(&self, unit: usize) -> usize {
        unit % self.cores.max(1)
    }

    /// The unit has taken all orders that it was given.
    pub(super) fn has_none_left(&self, unit: usize) -> bool {
        self.units.get(unit).is_some_and(|unit| unit.as_ref().is_some_and(|ends| ends.orders.is_empty()))
    }

    /// Gives an order. False where the core has not taken the former ones: it stands still.
    pub(super) fn give(&mut self, unit: usize, order: Order) -> bool {
        let ends = self.units.get_mut(unit).and_then(Option::as_mut);
        let taken = ends.is_some_and(|ends| ends.orders.push(order).is_ok());
        self.progress.ask();
        taken
    }

    /// An answer of any unit, and which.
    pub(super) fn next_answer(&mut self) -> Option<(usize, Answer)> {
        let answers = self.units.iter_mut().enumerate();
        answers.filter_map(|(unit, ends)| Some((unit, ends.as_mut()?.answers.pop()?))).next()
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, LANE, OUTCOMES, Order, Orders, Ticket, desk};
    use crate::runner::progress::Progress;

    #[test]
    fn an_order_is_done_or_taken_back_and_never_both() {
        let (first, second) = (Ticket::default(), Ticket::default());
        assert!(first.clone().take() && !first.withdraw());
        assert!(second.withdraw() && !second.clone().take());
    }

    #[test]
    fn however_much_became_of_changes_each_order_has_its_answer() {
        let mut orders = Orders::new(&Progress::new(1), 1, 1);
        let (ends, mut desk) = desk();
        orders.add(0, ends);
        let answer = |number| Answer::Changed { number, result: Ok(None), returned: None };
        let mut outcomes = 0;
        while desk.has_room() {
            desk.answer(answer(0));
            outcomes += 1;
        }
        let given = (1..).take_while(|round| orders.give(0, Order::Report { round: *round })).count();
        while let Some(order) = desk.next() {
            let Order::Report { round } = order else { panic!("nothing else was ordered: {order:?}") };
            desk.answer(answer(round));
        }
        let answers: Vec<_> = core::iter::from_fn(|| orders.next_answer()).collect();
        assert_eq!((outcomes, given, answers.len()), (OUTCOMES, LANE, OUTCOMES + LANE));
    }
}
