//! What became of each promise.

use core::fmt;

/// Whether a promise is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was kept in all that was tried.
    Kept,
    /// The medium of the test cannot do what would show it, or the storage does not offer it.
    NotShown(String),
    /// It was not: what was seen.
    Broken(String),
}

/// Of one storage, each promise with its verdict.
#[derive(Clone, Debug)]
pub struct Report {
    subject: String,
    verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    pub(super) fn new(subject: &str, verdicts: Vec<(&'static str, Verdict)>) -> Self {
        Self { subject: subject.to_owned(), verdicts }
    }

    /// Names of the promises with their verdicts, in the order of [`super::PROMISES`].
    pub fn verdicts(&self) -> impl Iterator<Item = (&'static str, &Verdict)> {
        self.verdicts.iter().map(|(name, verdict)| (*name, verdict))
    }

    fn named(&self, is_wanted: fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.verdicts().filter(|(_, verdict)| is_wanted(verdict)).map(|(name, _)| name).collect()
    }

    /// Promises that are broken.
    #[must_use]
    pub fn broken(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::Broken(_)))
    }

    /// Promises of which nothing was seen.
    #[must_use]
    pub fn not_shown(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::NotShown(_)))
    }

    /// The promise of this name was tried, and kept.
    #[must_use]
    pub fn is_shown(&self, name: &str) -> bool {
        self.verdicts().any(|(found, verdict)| found == name && *verdict == Verdict::Kept)
    }

    /// Says all of it, one line for each promise.
    ///
    /// # Panics
    /// Where a promise is broken.
    pub fn assert_unbroken(&self) {
        println!("{self}");
        assert!(self.broken().is_empty(), "{} breaks {:?}:\n{self}", self.subject, self.broken());
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (broken, not_shown) = (self.broken().len(), self.not_shown().len());
        let kept = self.verdicts.len() - broken - not_shown;
        write!(f, "{}: {kept} promises kept, {not_shown} not shown, {broken} broken", self.subject)?;
        for (name, verdict) in self.verdicts() {
            match verdict {
                Verdict::Kept => write!(f, "\n  kept: {name}")?,
                Verdict::NotShown(why) => write!(f, "\n  not shown: {name}: {why}")?,
                Verdict::Broken(what) => write!(f, "\n  BROKEN: {name}: {what}")?,
            }
        }
        Ok(())
    }
}
