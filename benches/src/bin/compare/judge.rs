//! Whether goals are met, and why not.

use super::figure::{Measured, readable_beside};
use super::goal::Goal;
use super::rows::Case;

/// What several boots of the virtual machine say of one case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Boots {
    /// In how many it was met.
    pub(super) met: usize,
    /// How many there were.
    pub(super) of: usize,
    /// The smallest and the largest ratio; of a case without one its figure. Nothing where no boot had either.
    pub(super) range: Option<(f64, f64)>,
}

/// What a run says of one case.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Verdict {
    /// Our figure, or why there is none.
    pub(super) ours: Measured,
    /// The peer's, where the case has one.
    pub(super) peer: Option<Measured>,
    /// Ours divided by the peer's.
    pub(super) ratio: Option<f64>,
    /// Nothing where it could not be found out.
    pub(super) met: Option<bool>,
    /// Why it is not met, or not known; what to know of it otherwise.
    pub(super) why: String,
    /// Where there were several boots.
    pub(super) boots: Option<Boots>,
}

impl Verdict {
    /// What boots are ordered by: the ratio, else the figure.
    fn size(&self) -> Option<f64> {
        self.ratio.or_else(|| self.ours.as_ref().ok().map(|figure| figure.value))
    }

    /// How much of what the first goal allows is used, where that is known: at most 1 where it is met.
    pub(super) fn used(&self, case: &Case) -> Option<f64> {
        let ours = self.ours.as_ref().ok()?.value;
        case.goals.iter().filter_map(|goal| goal.used(ours, self.ratio)).reduce(f64::max)
    }

    /// The larger spread of both figures.
    pub(super) fn spread(&self) -> Option<f64> {
        let peer = self.peer.as_ref().and_then(|peer| peer.as_ref().ok());
        let spreads = [self.ours.as_ref().ok(), peer].into_iter().flatten().map(|figure| figure.spread);
        spreads.reduce(f64::max)
    }
}

/// Judges one case. Where the peer is absent, goals that need no ratio decide alone.
pub(super) fn judge(goals: &[Goal], ours: Measured, peer: Option<Measured>) -> Verdict {
    let Ok(figure) = &ours else {
        let why = ours.as_ref().err().cloned().unwrap_or_default();
        return Verdict { ours, peer, ratio: None, met: None, why, boots: None };
    };
    let value = figure.value;
    let ratio = peer.as_ref().and_then(|peer| peer.as_ref().ok()).and_then(|peer| figure.by(peer));
    let no_peer = peer.as_ref().and_then(|peer| peer.as_ref().err()).map(|reason| format!("no peer: {reason}"));
    let answers: Vec<_> = goals.iter().map(|goal| (*goal, goal.holds(value, ratio))).collect();
    let missed: Vec<_> = answers.iter().filter(|(_, holds)| *holds == Some(false)).map(|(goal, _)| *goal).collect();
    let known = answers.iter().any(|(_, holds)| holds.is_some());
    let (met, why) = if !missed.is_empty() {
        (Some(false), missed.iter().map(|goal| shortfall(*goal, value, ratio)).collect::<Vec<_>>().join("; "))
    } else if known {
        (Some(true), no_peer.unwrap_or_default())
    } else if goals.is_empty() {
        (None, no_peer.unwrap_or_else(|| "for information".to_owned()))
    } else {
        (None, no_peer.unwrap_or_else(|| "the peer's figure is not above 0".to_owned()))
    };
    Verdict { ours, peer, ratio, met, why, boots: None }
}

/// What several boots say of one case: the figures of the middle one (the larger of two), and met where every boot has it so. One that missed it tells
/// why, else one that does not know. `None` of no boots.
pub(super) fn over_boots(mut verdicts: Vec<Verdict>) -> Option<Verdict> {
    let of = verdicts.len();
    let met = verdicts.iter().filter(|verdict| verdict.met == Some(true)).count();
    let telling = verdicts.iter().position(|verdict| verdict.met == Some(false));
    let telling = telling.or_else(|| verdicts.iter().position(|verdict| verdict.met.is_none()));
    let told = telling.and_then(|at| Some((at, verdicts.get(at)?.met, verdicts.get(at)?.why.clone())));
    let size = |verdict: &Verdict| verdict.size().unwrap_or(f64::INFINITY);
    verdicts.sort_by(|one, other| size(one).total_cmp(&size(other)));
    let known = || verdicts.iter().filter_map(Verdict::size);
    let range = known().next().zip(known().next_back());
    let mut middle = verdicts.into_iter().nth(of / 2)?;
    if of > 1 {
        middle.boots = Some(Boots { met, of, range });
        if let Some((at, met, why)) = told {
            middle.met = met;
            middle.why = if why.is_empty() { why } else { format!("boot {}: {why}", at + 1) };
        }
    }
    Some(middle)
}

fn shortfall(goal: Goal, ours: f64, ratio: Option<f64>) -> String {
    let (figure, times) = match goal {
        Goal::AtMost(_) | Goal::AtLeast(_) | Goal::Equal(_) => (ours, ""),
        Goal::RatioAtMost(_) | Goal::RatioAtLeast(_) => (ratio.unwrap_or_default(), "x"),
    };
    format!("{}{times} where the goal is {goal}", readable_beside(figure, goal.limit()))
}

/// A row is met where all its cases with goals are: one that is missed decides, then one that is not known.
pub(super) fn row_met<'a>(cases: impl IntoIterator<Item = (&'a Case, &'a Verdict)>) -> Option<bool> {
    let mut met = Some(true);
    for (case, verdict) in cases {
        if case.goals.is_empty() {
            continue;
        }
        match verdict.met {
            Some(false) => return Some(false),
            None => met = None,
            Some(true) => {}
        }
    }
    met
}

/// The case whose figures stand for the row: of those that are missed the worst, else one that is not known, else of those that are
/// met the one that uses most of its goal. The first of equals; of a row without goals the first.
pub(super) fn headline<'a>(cases: &'a [(&'a Case, Verdict)]) -> Option<&'a (&'a Case, Verdict)> {
    let with_goals = |met| cases.iter().filter(move |(case, verdict)| !case.goals.is_empty() && verdict.met == met);
    let worst = |met| {
        let used = |(case, verdict): &(&Case, Verdict)| verdict.used(case).unwrap_or(0.0);
        with_goals(met).rev().max_by(|one, other| used(one).total_cmp(&used(other)))
    };
    worst(Some(false)).or_else(|| with_goals(None).next()).or_else(|| worst(Some(true))).or_else(|| cases.first())
}

#[cfg(test)]
mod tests {
    use super::super::figure::Figure;
    use super::super::quantity::Quantity;
    use super::*;

    fn exact(value: f64) -> Measured {
        Ok(Figure::exact(value))
    }

    fn absent() -> Measured {
        Err("not installed".to_owned())
    }

    #[test]
    fn cases_are_judged() {
        let half = [Goal::RatioAtMost(0.5), Goal::AtMost(23.0)];
        for (goals, ours, peer, ratio, met, why) in [
            (&half[..], exact(20.0), Some(exact(46.0)), Some(20.0 / 46.0), Some(true), ""),
            (
                &half,
                exact(30.0),
                Some(exact(40.0)),
                Some(0.75),
                Some(false),
                "0.75x where the goal is <=0.5x; 30 where the goal is <=23",
            ),
            (&half, exact(20.0), Some(absent()), None, Some(true), "no peer: not installed"),
            (&half, exact(24.0), Some(absent()), None, Some(false), "24 where the goal is <=23"),
            (&half[1..], exact(23.004), None, None, Some(false), "23.004 where the goal is <=23"),
            (&half[..1], exact(20.0), Some(absent()), None, None, "no peer: not installed"),
            (&half, absent(), Some(exact(46.0)), None, None, "not installed"),
            (&half[..1], exact(1.0), Some(exact(0.0)), None, None, "the peer's figure is not above 0"),
            (
                &[Goal::RatioAtLeast(0.95)],
                exact(-2.0),
                Some(exact(-1.0)),
                None,
                None,
                "the peer's figure is not above 0",
            ),
            (&[], exact(1.0), Some(exact(2.0)), Some(0.5), None, "for information"),
            (&[Goal::AtMost(0.0)], exact(0.0), Some(exact(0.0)), None, Some(true), ""),
        ] {
            let verdict = judge(goals, ours, peer);
            assert_eq!((verdict.ratio, verdict.met, verdict.why.as_str()), (ratio, met, why), "{goals:?}");
        }
    }

    fn case(goals: &'static [Goal]) -> Case {
        Case {
            name: "",
            unit: "insn",
            ours: Quantity::Stated(1.0),
            peer: None,
            peer_name: "",
            floor: None,
            goals,
            stretch: None,
        }
    }

    #[test]
    fn the_worst_case_decides_a_row() {
        let goal = case(&[Goal::AtMost(1.0)]);
        let none = case(&[]);
        let good = judge(goal.goals, exact(1.0), None);
        let bad = judge(goal.goals, exact(2.0), None);
        let unknown = judge(goal.goals, absent(), None);
        let information = judge(none.goals, exact(5.0), None);
        let (worse, better) = (judge(goal.goals, exact(3.0), None), judge(goal.goals, exact(0.5), None));
        for (cases, met, shown) in [
            (vec![(&goal, good.clone()), (&none, information.clone())], Some(true), 0),
            (vec![(&goal, good.clone()), (&goal, unknown.clone())], None, 1),
            (vec![(&goal, good.clone()), (&goal, unknown.clone()), (&goal, bad.clone())], Some(false), 2),
            (vec![(&goal, bad.clone()), (&goal, worse.clone()), (&goal, worse)], Some(false), 1),
            (vec![(&goal, better.clone()), (&goal, good.clone())], Some(true), 1),
            (vec![(&goal, good.clone()), (&goal, better)], Some(true), 0),
        ] {
            assert_eq!(row_met(cases.iter().map(|(case, verdict)| (*case, verdict))), met);
            assert_eq!(headline(&cases), Some(&cases[shown]));
        }
    }

    #[test]
    fn the_tightest_goal_says_how_much_is_used() {
        let both = case(&[Goal::RatioAtMost(0.5), Goal::AtMost(40.0)]);
        let verdict = judge(both.goals, exact(20.0), Some(exact(50.0)));
        assert_eq!(verdict.used(&both), Some(0.8));
        assert_eq!(judge(both.goals, absent(), None).used(&both), None);
    }

    #[test]
    fn several_boots_have_to_agree_and_the_middle_one_is_shown() {
        let goal = [Goal::RatioAtMost(0.5)];
        let boot = |ours: Measured| judge(&goal, ours, Some(exact(10.0)));
        let good = over_boots([3.0, 5.0, 4.0].map(|ours| boot(exact(ours))).into()).expect("boots");
        let boots = |met, of, range| Some(Boots { met, of, range });
        assert_eq!((good.ratio, good.met, good.why.as_str()), (Some(0.4), Some(true), ""));
        assert_eq!(good.boots, boots(3, 3, Some((0.3, 0.5))));
        let bad = over_boots(vec![boot(exact(4.0)), boot(exact(6.0)), boot(absent())]).expect("boots");
        assert_eq!((bad.met, bad.boots), (Some(false), boots(1, 3, Some((0.4, 0.6)))));
        assert_eq!(bad.why, "boot 2: 0.6x where the goal is <=0.5x");
        let unknown = over_boots(vec![boot(absent()), boot(exact(4.0))]).expect("boots");
        assert_eq!((unknown.met, unknown.why.as_str()), (None, "boot 1: not installed"));
        let one = boot(exact(4.0));
        assert_eq!(over_boots(vec![one.clone()]), Some(one));
        assert_eq!(over_boots(Vec::new()), None);
    }
}
