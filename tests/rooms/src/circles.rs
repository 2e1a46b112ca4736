//! Which files reach each other.

use crate::names::Arrows;
use std::collections::{BTreeMap, BTreeSet};

/// Sets of files of which each reaches each other one, those of one file left out.
pub(crate) fn of(arrows: &Arrows) -> Vec<BTreeSet<usize>> {
    let mut next = BTreeMap::<usize, Vec<usize>>::new();
    for (from, to) in arrows.keys() {
        next.entry(*from).or_default().push(*to);
    }
    let reach: BTreeMap<_, _> = next.keys().map(|from| (*from, reached(*from, &next))).collect();
    let mut circles = BTreeSet::new();
    for (from, there) in &reach {
        let back = |to: &&usize| reach.get(*to).is_some_and(|further| further.contains(from));
        let circle: BTreeSet<_> = there.iter().filter(back).copied().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

/// All that can be reached from a file by one arrow or more.
fn reached(from: usize, next: &BTreeMap<usize, Vec<usize>>) -> BTreeSet<usize> {
    let (mut there, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(file) = left.pop() {
        for to in next.get(&file).into_iter().flatten() {
            if there.insert(*to) {
                left.push(*to);
            }
        }
    }
    there
}

#[cfg(test)]
mod tests {
    use super::of;
    use std::collections::BTreeSet;

    #[test]
    fn files_that_reach_each_other_are_a_circle_and_what_only_leads_there_is_not() {
        let arrows = [(0, 1), (1, 2), (2, 1), (2, 3), (3, 4), (4, 5), (5, 3), (6, 6)];
        let arrows = arrows.into_iter().map(|pair| (pair, BTreeSet::new())).collect();
        assert_eq!(of(&arrows), [BTreeSet::from([1, 2]), BTreeSet::from([3, 4, 5])]);
    }
}
