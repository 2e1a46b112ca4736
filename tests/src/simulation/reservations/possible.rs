//! All that a namespace's reservation may be, by the commands whose answers are not known yet.

use frwr_nvmf::wire::Status;
use frwr_support::Random;
use frwr_support::nvmf_harness::reservations::{Asked, Model};

/// What a host asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Change(Asked),
    Report,
}

/// How one ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Told(Status),
    /// A report: type, and of each registrant host, key, and whether it holds the reservation.
    Seen(u8, Vec<(usize, u64, bool)>),
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

/// One possibility: of each command under way the answer that it got when it was last executed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Possible {
    model: Model,
    answers: Vec<Option<Answer>>,
}

impl Possible {
    fn execute(&mut self, nth: usize, UnderWay { host, question, .. }: UnderWay) {
        self.answers[nth] = Some(match question {
            Question::Change(asked) => Answer::Told(self.model.apply(host, asked)),
            Question::Report => {
                let mut registrants: Vec<_> = self.model.registrants().collect();
                registrants.sort_unstable();
                Answer::Seen(self.model.kind().map_or(0, |kind| kind as u8), registrants)
            }
        });
    }
}

/// All possibilities.
pub(super) struct Worlds {
    all: Vec<Possible>,
    under_way: Vec<UnderWay>,
}

impl Worlds {
    pub(super) fn new() -> Self {
        Self { all: vec![Possible { model: Model::default(), answers: Vec::new() }], under_way: Vec::new() }
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
        self.change(|possible| {
            possible.answers.push(None);
            possible.model.forget_told();
        });
    }

    /// Each command under way may be executed: `again`, any number of times.
    pub(super) fn close(&mut self, again: bool) {
        let mut at = 0;
        while let Some(possible) = self.all.get(at).cloned() {
            at += 1;
            for (nth, under_way) in self.under_way.iter().enumerate() {
                if possible.answers[nth].is_some() && !again {
                    continue;
                }
                let mut next = possible.clone();
                next.execute(nth, *under_way);
                if again {
                    next.model.forget_told();
                }
                if !self.all.contains(&next) {
                    self.all.push(next);
                }
            }
        }
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
        self.all.retain(|possible| answer.is_none() || possible.answers[at].as_ref() == answer);
        if self.all.is_empty() {
            return Err(format!("{ended:?} ended with {answer:?}, which is so in no order: {before}"));
        }
        self.change(|possible| {
            possible.answers.remove(at);
        });
        Ok(ended)
    }

    /// No order to end commands is known any more.
    pub(super) fn forget_orders(&mut self) {
        self.change(|possible| possible.model.forget_orders());
    }

    /// Nothing is registered any more.
    pub(super) fn forget(&mut self) {
        self.change(|possible| possible.model = Model::default());
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
        let mut all = Vec::with_capacity(self.all.len());
        for mut possible in self.all.drain(..) {
            change(&mut possible);
            if !all.contains(&possible) {
                all.push(possible);
            }
        }
        self.all = all;
    }

    pub(super) fn describe(&self) -> String {
        format!("under way {:?}, possible {:?}", self.under_way, self.all)
    }
}
