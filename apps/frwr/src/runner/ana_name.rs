//! How well a subsystem can be reached, as files and the control socket say it.

use frwr_nvmf::{controller::MAX_ANA_GROUPS, wire::AnaState};
use serde::Deserialize;
use std::collections::BTreeMap;

/// States of all ANA groups of a subsystem.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnaStates {
    /// Of all but those that follow.
    pub all: AnaState,
    /// Of these.
    pub but: BTreeMap<u32, AnaState>,
}

impl AnaStates {
    /// Those of all groups, by their identifiers from 1, in the fewest words: of all what most of them have.
    pub(super) fn of_groups(states: &[AnaState]) -> Self {
        let alike = |state: &&AnaState| states.iter().filter(|other| other == state).count();
        // Of as many, that of the lowest group.
        let all = states.iter().rev().max_by_key(alike).copied().unwrap_or_default();
        let others = (1..).zip(states.iter().copied()).filter(|(_, state)| *state != all);
        Self { all, but: others.collect() }
    }

    /// Of one group.
    pub(super) fn of(&self, group: u32) -> AnaState {
        self.but.get(&group).copied().unwrap_or(self.all)
    }

    /// As a target takes it at the start, where all are optimized of which nothing is said.
    pub(super) fn at_start(&self) -> Vec<(u32, AnaState)> {
        let all = (1..=MAX_ANA_GROUPS).map(|group| (group, self.of(group)));
        all.filter(|(_, state)| *state != AnaState::default()).collect()
    }
}

/// A state, by its name.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AnaName {
    Optimized,
    NonOptimized,
    Inaccessible,
    PersistentLoss,
    Change,
}

impl AnaName {
    /// What it names.
    pub(super) fn state(self) -> AnaState {
        match self {
            Self::Optimized => AnaState::Optimized,
            Self::NonOptimized => AnaState::NonOptimized,
            Self::Inaccessible => AnaState::Inaccessible,
            Self::PersistentLoss => AnaState::PersistentLoss,
            Self::Change => AnaState::Change,
        }
    }
}

/// The same, the other way round.
pub(super) fn ana_name(state: AnaState) -> &'static str {
    match state {
        AnaState::Optimized => "optimized",
        AnaState::NonOptimized => "non_optimized",
        AnaState::Inaccessible => "inaccessible",
        AnaState::PersistentLoss => "persistent_loss",
        AnaState::Change => "change",
    }
}
