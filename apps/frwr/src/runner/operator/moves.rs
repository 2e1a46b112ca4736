//! Devices that come and go while the target serves: one at a time, each step behind what the one before has to bring.

use super::{
    super::{
        fleet::{Arrived, Fleet, HandedOver, Leaving, Left, Wanted},
        orders::Orders,
        places::Places,
        prepared::Patience,
        progress::{Doing, Progress},
        serve_report::{ServedDevice, ServedTarget},
        snapshot::TargetSnapshot,
        start::unit,
        survey::{Findings, Survey},
    },
    aside::Aside,
    changes::done,
    deadlines::STEP_TIME,
    listeners::of_device,
    planned::{Asker, stands_still},
};
use crate::control::{Failure, NOT_DONE, TIMED_OUT};
use core::time::Duration;
use frwr_nvmf::controller::TargetListening;
use frwr_reactor::PollerHandle;
use serde_json::{Value, json};
use std::{net::SocketAddr, sync::Arc};

/// How long a device may take to listen, or to say that it cannot: what it has to do is a few commands.
const LISTEN_TIME: Duration = Duration::from_secs(5);
/// How long it is waited for that cores end what hosts have: they end connections themselves, so longer where a medium hangs alone.
const END_TIME: Duration = Duration::from_secs(5);

/// What moves change beside themselves.
pub(super) struct Around<'a> {
    pub(super) now: Duration,
    pub(super) orders: &'a mut Orders,
    pub(super) survey: &'a mut Survey,
    pub(super) places: &'a mut Places,
    pub(super) progress: &'a Progress,
    pub(super) served: &'a mut ServedTarget,
}

impl Around<'_> {
    /// Each core for the device of a place.
    fn units(&self, place: usize) -> impl Iterator<Item = usize> + use<> {
        let cores = self.orders.cores();
        (0..cores).map(move |core| unit(place, core, cores))
    }
}

/// What came of a move.
pub(super) struct Moved {
    pub(super) asker: Asker,
    pub(super) result: Result<Value, Failure>,
    /// The others are to be told where it listens, before somebody is answered.
    pub(super) listens: bool,
}

/// A device on its way to cores.
#[derive(Debug)]
pub(super) struct Coming {
    asker: Asker,
    place: usize,
    label: String,
}

/// A device that is not told any more what is changed, while its cores give it up.
struct Going {
    place: usize,
    leaving: Box<dyn Leaving>,
    /// Who waits for that, and what is answered then; nobody any more where that took too long.
    asker: Option<(Asker, Result<Value, Failure>)>,
    until: Duration,
}

enum Move {
    /// Cores are given their parts: by these, which are to be removed behind that.
    Enters {
        coming: Coming,
        served: ServedDevice,
        comes: Vec<PollerHandle>,
        round: u64,
        until: Duration,
    },
    /// It is asked to listen.
    Listens {
        coming: Coming,
        served: ServedDevice,
        round: u64,
        until: Duration,
    },
    /// What it did is asked for once more, in front of its end: that counts on.
    Ends {
        asker: Asker,
        place: usize,
        round: u64,
    },
    Goes(Going),
}

/// The device that comes or goes, if one does.
pub(super) struct Moves {
    fleet: Arc<dyn Fleet>,
    opening: Aside<Arrived, Coming>,
    under_way: Option<Move>,
    closing: Aside<(), (Option<Asker>, Result<Value, Failure>)>,
    /// The place that was given last.
    given: usize,
}

impl Moves {
    /// Of a target with so many devices, in the first places.
    pub(super) fn new(fleet: Arc<dyn Fleet>, devices: usize) -> Self {
        let given = devices.saturating_sub(1);
        Self { fleet, opening: Aside::default(), under_way: None, closing: Aside::default(), given }
    }

    /// Changes wait for it.
    pub(super) fn is_busy(&self) -> bool {
        let is_stuck = matches!(&self.under_way, Some(Move::Goes(Going { asker: None, .. })));
        self.opening.is_busy() || self.closing.is_busy() || self.under_way.is_some() && !is_stuck
    }

    /// It has to be looked at.
    pub(super) fn is_under_way(&self) -> bool {
        self.is_busy() || self.under_way.is_some()
    }

    /// Nobody waits any more: what is being closed is.
    pub(super) fn end(self) {
        self.closing.finish();
    }

    /// A device can come: none has still to leave.
    ///
    /// # Errors
    /// One has.
    pub(super) fn free(&self, served: &ServedTarget) -> Result<(), Failure> {
        let Some(Move::Goes(going)) = &self.under_way else { return Ok(()) };
        let label = served.label(going.place);
        let text = format!(
            "{label} has not left yet; nothing was changed; `remove_device` waits for that, and says what holds it up"
        );
        Err(Failure::new(NOT_DONE, text))
    }

    /// A place without a device, of so many; one that had one lately is the last that is given again.
    pub(super) fn free_place(&self, findings: &Findings, places: usize) -> Option<usize> {
        let others = (1..=places).map(|step| (self.given + step) % places);
        others.into_iter().find(|place| findings.device(*place).is_none())
    }

    /// Opens a device.
    pub(super) fn arrive(&mut self, asker: Asker, wanted: Wanted, label: String, now: Duration) -> Option<Moved> {
        let (coming, fleet) = (Coming { asker, place: wanted.place, label: label.clone() }, Arc::clone(&self.fleet));
        let (patience, place) = (wanted.wait.clone(), wanted.place);
        let failure = match self.opening.begin(coming, label, patience, now, move || fleet.open(wanted)) {
            Ok(()) => {
                self.given = place;
                return None;
            }
            Err(failure) => failure,
        };
        Some(Moved { asker, result: Err(failure), listens: false })
    }

    /// Has the cores give up a device that hosts have nothing of any more, or no time left for.
    pub(super) fn end_device(&mut self, asker: Asker, place: usize, survey: &mut Survey) {
        self.under_way = Some(Move::Ends { asker, place, round: survey.want() });
    }

    /// The same of one that has said this. Who waits is answered this where it has.
    fn depart(
        &mut self,
        asker: Asker,
        place: usize,
        result: Result<Value, Failure>,
        findings: &Findings,
        around: &mut Around<'_>,
    ) {
        let said = findings.cores.iter().map(|core| core.snapshots.get(place).cloned().flatten());
        around.survey.former.leaves(said.collect());
        around.places.leave(place);
        let units: Vec<_> = around.units(place).collect();
        units.iter().for_each(|unit| around.orders.remove(*unit));
        around.survey.forget(units.into_iter());
        let (leaving, until) = (self.fleet.take_out(place), around.now.saturating_add(END_TIME));
        self.under_way = Some(Move::Goes(Going { place, leaving, asker: Some((asker, result)), until }));
    }

    /// The same once more, of one that had not left in time; it may have by now.
    pub(super) fn wait_again(&mut self, asker: Asker, now: Duration) -> Option<Moved> {
        let result = Ok(done(true));
        let Some(Move::Goes(going)) = &mut self.under_way else { return Some(Moved { asker, result, listens: false }) };
        (going.asker, going.until) = (Some((asker, result)), now.saturating_add(END_TIME));
        None
    }

    /// Brings it on. `say` is told what a person may not expect.
    pub(super) fn turn(&mut self, around: &mut Around<'_>, say: &mut dyn FnMut(&str)) -> Option<Moved> {
        if let Some((coming, result)) = self.opening.turn(around.now) {
            return self.opened(coming, result, around, say);
        }
        if let Some(((asker, result), closed)) = self.closing.turn(around.now) {
            // One that does not close is left to itself.
            if let Err(failure) = closed {
                say(&format!("warning: a device that has left is not closed: {}", failure.message));
            }
            return asker.map(|asker| Moved { asker, result, listens: false });
        }
        match self.under_way.take()? {
            Move::Goes(going) => self.goes(going, around),
            comes => {
                self.under_way = Some(comes);
                None
            }
        }
    }

    fn opened(
        &mut self,
        coming: Coming,
        result: Result<Arrived, Failure>,
        around: &mut Around<'_>,
        say: &mut dyn FnMut(&str),
    ) -> Option<Moved> {
        let (asker, place) = (coming.asker, coming.place);
        let failed = |failure| Some(Moved { asker, result: Err(failure), listens: false });
        let arrived = match result {
            Ok(arrived) => arrived,
            Err(failure) => return failed(failure),
        };
        // It serves from the start as far as the end of the program goes: that it cannot is its own failure.
        around.units(place).for_each(|unit| around.progress.occupy(unit, Doing::Serving));
        let (HandedOver { device, ends, served, notes }, comes) = match arrived.hand_over() {
            Ok(handed_over) => handed_over,
            Err(error) => {
                around.units(place).for_each(|unit| around.progress.vacate(unit));
                return failed(Failure::new(NOT_DONE, format!("{error}; nothing was changed")));
            }
        };
        notes.iter().for_each(|note| say(&format!("device {}: {note}", served.label)));
        around.places.expect(place, device);
        around.units(place).zip(ends).for_each(|(unit, ends)| around.orders.add(unit, ends));
        let (round, until) = (around.survey.want(), around.now.saturating_add(STEP_TIME));
        self.under_way = Some(Move::Enters { coming, served, comes, round, until });
        None
    }

    /// What cores have said in a round.
    pub(super) fn told(&mut self, round: u64, findings: &Findings, around: &mut Around<'_>) -> Option<Moved> {
        match self.under_way.take()? {
            Move::Enters { coming, served, comes, round: wanted, until } if wanted <= round => {
                let missing = findings.cores.iter().position(|core| !core.has(coming.place));
                match missing {
                    None => {
                        comes.iter().for_each(PollerHandle::remove);
                        around.places.begin(coming.place);
                        let (round, until) = (around.survey.want(), around.now.saturating_add(LISTEN_TIME));
                        self.under_way = Some(Move::Listens { coming, served, round, until });
                    }
                    Some(_) if around.now < until => {
                        let round = around.survey.want();
                        self.under_way = Some(Move::Enters { coming, served, comes, round, until });
                    }
                    Some(core) => self.depart(coming.asker, coming.place, Err(stands_still(core)), findings, around),
                }
                None
            }
            Move::Listens { coming, served, round: wanted, until } if wanted <= round => {
                match listening(&coming, findings, around) {
                    Some(Ok(())) => {
                        around.places.serve(coming.place);
                        around.served.join(served);
                        return Some(Moved { asker: coming.asker, result: Ok(done(true)), listens: true });
                    }
                    None if around.now < until => {
                        let round = around.survey.want();
                        self.under_way = Some(Move::Listens { coming, served, round, until });
                    }
                    None => {
                        let (label, seconds) = (&coming.label, LISTEN_TIME.as_secs());
                        let text = format!(
                            "{label} has not said in {seconds} s whether it listens; nothing was changed; see what `dmesg` says of it"
                        );
                        self.depart(coming.asker, coming.place, Err(Failure::new(TIMED_OUT, text)), findings, around);
                    }
                    Some(Err(failure)) => self.depart(coming.asker, coming.place, Err(failure), findings, around),
                }
                None
            }
            Move::Ends { asker, place, round: wanted } if wanted <= round => {
                self.depart(asker, place, Ok(done(true)), findings, around);
                None
            }
            other => {
                self.under_way = Some(other);
                None
            }
        }
    }

    fn goes(&mut self, mut going: Going, around: &mut Around<'_>) -> Option<Moved> {
        match going.leaving.turn() {
            Left::All(did) => self.close(going, did, around),
            Left::Not(by) => {
                let late = around.now >= going.until;
                let told = going.asker.take_if(|_| late).map(|(asker, result)| {
                    let held_up = || json!({ "changed": true, "complete": false, "held_up_by": by });
                    Moved { asker, result: result.map(|_| held_up()), listens: false }
                });
                self.under_way = Some(Move::Goes(going));
                told
            }
        }
    }

    /// No core has anything of it.
    fn close(
        &mut self,
        Going { place, leaving, asker, .. }: Going,
        did: Vec<Option<TargetSnapshot>>,
        around: &mut Around<'_>,
    ) -> Option<Moved> {
        let device = around.places.take(place);
        let control = device.as_ref().map(|device| device.control.statistics());
        around.survey.former.has_left(did, control.unwrap_or_default());
        around.units(place).for_each(|unit| around.progress.vacate(unit));
        let name = around.served.label(place).to_owned();
        around.served.part(place);
        let call = move || {
            drop(leaving);
            drop(device);
            Ok(())
        };
        let (asker, result) = asker.unzip();
        let result = result.unwrap_or_else(|| Ok(done(true)));
        match self.closing.begin((asker, result.clone()), name, Patience::default(), around.now, call) {
            Ok(()) => None,
            // Where there is no thread for it, it is closed by now.
            Err(_) => asker.map(|asker| Moved { asker, result, listens: false }),
        }
    }
}

/// Whether a device listens wherever it should, on all cores; `None` while that is not known.
fn listening(coming: &Coming, findings: &Findings, around: &Around<'_>) -> Option<Result<(), Failure>> {
    if let Some(error) = around.places.trouble_of(coming.place) {
        return Some(Err(Failure::new(NOT_DONE, format!("{error}; nothing was changed"))));
    }
    if !findings.cores.iter().all(|core| core.has(coming.place)) {
        return None;
    }
    let all = of_device(findings, coming.place);
    let failed = |address: SocketAddr, reason: String| {
        let (label, remedy) = (&coming.label, "`ip address` lists those that there are");
        let text = format!(
            "{label} cannot listen at {address} ({reason}): the address is taken, or is none of its network interface; nothing was \
             changed; {remedy}"
        );
        Failure::new(NOT_DONE, text)
    };
    let failure = all.iter().find_map(|one| match one.listening {
        TargetListening::Failed(reason) => Some(failed(one.address, reason.to_string())),
        TargetListening::Stopped => Some(failed(one.address, "it stopped".to_owned())),
        _ => None,
    });
    let all_listen = all.iter().all(|one| one.listening == TargetListening::Listens);
    failure.map(Err).or(all_listen.then_some(Ok(())))
}
