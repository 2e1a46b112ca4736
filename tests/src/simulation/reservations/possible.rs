//! All that a namespace's reservation may be, by the commands whose answers are not known yet, and what of it is in the file that
//! survives the target.

use frwr_nvmf::wire::{PersistChange, Status};
use frwr_support::Random;
use frwr_support::nvmf_harness::reservations::{Asked, Model};

/// What a host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Where that is a registration, with what is to survive from now on.
    Change(Asked, PersistChange),
    Report,
}

/// How one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Told(Status),
    /// A report: type, whether that survives, and of each registrant host, key, and whether it holds the reservation.
    Seen {
        kind: u8,
        persists: bool,
        registrants: Vec<(usize, u64, bool)>,
    },
}

/// A command that was submitted and has not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UnderWay {
    pub(super) desk: usize,
    pub(super) cookie: u64,
    pub(super) host: usize,
    pub(super) question: Question,
    /// Its program is gone.
    pub(super) is_ghost: bool,
}

/// A command under way was executed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Executed {
    answer: Answer,
    /// Nobody is told of it before it is in the file.
    needs_file: bool,
}

/// One possibility: of each command under way what came of it when it was last executed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Possible {
    model: Model,
    /// That is to survive.
    persists: bool,
    executed: Vec<Option<Executed>>,
}

/// What may be in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Filed {
    /// `None` where nothing was to survive.
    model: Option<Model>,
    /// Commands under way of which somebody may be told because they are there.
    holds: Vec<bool>,
}

impl Possible {
    fn execute(&mut self, nth: usize, UnderWay { host, question, .. }: UnderWay) {
        let (answer, needs_file) = match question {
            Question::Change(asked, persist) => {
                let (status, before) = (self.model.apply(host, asked), self.persists);
                let is_done = status == Status::SUCCESS;
                match persist {
                    PersistChange::Set | PersistChange::Clear if is_done => {
                        self.persists = persist == PersistChange::Set
                    }
                    _ => {}
                }
                (Answer::Told(status), is_done && (before || self.persists))
            }
            Question::Report => {
                let mut registrants: Vec<_> = self.model.registrants().collect();
                registrants.sort_unstable();
                let kind = self.model.kind().map_or(0, |kind| kind as u8);
                (Answer::Seen { kind, persists: self.persists, registrants }, false)
            }
        };
        self.executed[nth] = Some(Executed { answer, needs_file });
    }

    /// What is in the file if it is written now.
    fn filed(&self) -> Filed {
        let model = self.persists.then(|| {
            let mut kept = self.model.clone();
            kept.forget_told();
            kept.forget_orders();
            kept
        });
        let holds = self.executed.iter().map(|executed| executed.as_ref().is_some_and(|one| one.needs_file)).collect();
        Filed { model, holds }
    }

    /// There is what is in the file; nobody was told of what had to be and is not.
    fn again(&self, filed: &Filed) -> Self {
        let still = |(executed, holds): (&Option<Executed>, &bool)| {
            let Executed { answer, needs_file } = executed.clone()?;
            (*holds || !needs_file).then_some(Executed { answer, needs_file: false })
        };
        let executed = self.executed.iter().zip(&filed.holds).map(still).collect();
        Self { model: filed.model.clone().unwrap_or_default(), persists: filed.model.is_some(), executed }
    }
}

/// Those that differ.
fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    all.fold(Vec::new(), |mut known, one| {
        if !known.contains(&one) {
            known.push(one);
        }
        known
    })
}

/// All possibilities.
pub(super) struct Worlds {
    all: Vec<Possible>,
    filed: Vec<Filed>,
    under_way: Vec<UnderWay>,
}

impl Worlds {
    pub(super) fn new() -> Self {
        let nothing = Possible { model: Model::default(), persists: false, executed: Vec::new() };
        Self { filed: vec![nothing.filed()], all: vec![nothing], under_way: Vec::new() }
    }

    pub(super) fn under_way(&self) -> &[UnderWay] {
        &self.under_way
    }

    pub(super) fn count(&self) -> usize {
        self.all.len()
    }

    pub(super) fn some(&self, random: &mut Random) -> Option<&Model> {
        self.all.get(random.below(self.all.len() as u64) as usize).map(|possible| &possible.model)
    }

    pub(super) fn only(&self) -> Option<&Model> {
        match &self.all[..] {
            [only] => Some(&only.model),
            _ => None,
        }
    }

    pub(super) fn any(&self, so: impl Fn(&Model) -> bool) -> bool {
        self.all.iter().any(|possible| so(&possible.model))
    }

    pub(super) fn all(&self, so: impl Fn(&Model) -> bool) -> bool {
        self.all.iter().all(|possible| so(&possible.model))
    }

    /// A command is under way. What hosts were told of earlier ones is of no concern any more.
    pub(super) fn begin(&mut self, under_way: UnderWay) {
        self.under_way.push(under_way);
        self.filed.iter_mut().for_each(|filed| filed.holds.push(false));
        self.change(|possible| {
            possible.executed.push(None);
            possible.model.forget_told();
        });
    }

    /// Each command under way may be executed: `again`, any number of times. The file may be written behind each of them.
    pub(super) fn close(&mut self, again: bool) {
        let mut at = 0;
        while let Some(possible) = self.all.get(at).cloned() {
            at += 1;
            let may_be = |(nth, under_way): (usize, &UnderWay)| {
                if possible.executed[nth].is_some() && !again {
                    return None;
                }
                let mut next = possible.clone();
                next.execute(nth, *under_way);
                if again {
                    next.model.forget_told();
                }
                Some(next)
            };
            for next in self.under_way.iter().enumerate().filter_map(may_be) {
                if !self.all.contains(&next) {
                    self.all.push(next);
                }
            }
        }
        self.filed = distinct(self.filed.drain(..).chain(self.all.iter().map(Possible::filed)));
    }

    /// One has ended.
    ///
    /// # Errors
    /// It was not under way, or cannot have ended so.
    pub(super) fn take(&mut self, desk: usize, cookie: u64, answer: Option<&Answer>) -> Result<UnderWay, String> {
        let at = self.under_way.iter().position(|one| (one.desk, one.cookie) == (desk, cookie));
        let at = at.ok_or_else(|| format!("no such command of reservations was under way: {answer:?}"))?;
        let before = self.describe();
        let ended = self.under_way.remove(at);
        let is_told = |one: &Option<Executed>| one.as_ref().map(|executed| &executed.answer) == answer;
        self.all.retain(|possible| answer.is_none() || is_told(&possible.executed[at]));
        if self.all.is_empty() {
            return Err(format!("{ended:?} ended with {answer:?}, which is so in no order: {before}"));
        }
        let needs_file = |one: &Option<Executed>| one.as_ref().is_some_and(|executed| executed.needs_file);
        if answer.is_some() && self.all.iter().all(|possible| needs_file(&possible.executed[at])) {
            // Whatever the file had before is over.
            self.filed = self.all.iter().map(Possible::filed).collect();
        }
        self.change(|possible| {
            possible.executed.remove(at);
        });
        for filed in &mut self.filed {
            filed.holds.remove(at);
        }
        self.filed = distinct(self.filed.drain(..));
        Ok(ended)
    }

    /// No order to end commands is known any more.
    pub(super) fn forget_orders(&mut self) {
        self.change(|possible| possible.model.forget_orders());
    }

    /// The target began anew.
    pub(super) fn begin_anew(&mut self) {
        let again = self.filed.iter().flat_map(|filed| self.all.iter().map(|possible| possible.again(filed)));
        self.all = distinct(again);
        self.filed = distinct(self.all.iter().map(Possible::filed));
    }

    pub(super) fn haunted(&mut self, desk: usize) {
        self.under_way.iter_mut().filter(|one| one.desk == desk).for_each(|one| one.is_ghost = true);
    }

    /// A command of a program of this desk that is gone.
    pub(super) fn ghost(&self, desk: usize) -> Option<u64> {
        self.under_way.iter().find(|one| one.desk == desk && one.is_ghost).map(|one| one.cookie)
    }

    /// Changes all possibilities, some of which may be the same then.
    fn change(&mut self, change: impl Fn(&mut Possible)) {
        self.all.iter_mut().for_each(change);
        self.all = distinct(self.all.drain(..));
    }

    pub(super) fn describe(&self) -> String {
        format!("under way {:?}, possible {:?}, in the file {:?}", self.under_way, self.all, self.filed)
    }
}
