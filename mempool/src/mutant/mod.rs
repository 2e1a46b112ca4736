//! Defects that tests have to see: each is a condition in the code which is false, unless a test build switches it on.
//!
//! A build with `--cfg frwr_mutants` asks the environment variable `FRWR_MUTANT` once, and behaves as if that one defect were
//! there. No other build has any of it: the condition is the constant `false`, and a build without debug assertions is refused.

#[cfg(frwr_mutants)]
mod names;

#[cfg(all(frwr_mutants, not(debug_assertions)))]
compile_error!("mutants are for tests: a build with --cfg frwr_mutants has debug assertions, and is never released.");

#[cfg(frwr_mutants)]
#[doc(hidden)]
pub use names::Mutant;

/// Whether this defect is switched on. The names are in `mutant/names.rs`.
#[cfg(not(frwr_mutants))]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        false
    };
}

/// Whether this defect is switched on. The names are in `mutant/names.rs`.
#[cfg(frwr_mutants)]
#[doc(hidden)]
#[macro_export]
macro_rules! mutant {
    ($name:ident) => {
        $crate::mutant::is_on($crate::mutant::Mutant::$name)
    };
}

/// Whether this is the one that the environment asks for.
#[cfg(frwr_mutants)]
#[doc(hidden)]
#[must_use]
pub fn is_on(mutant: Mutant) -> bool {
    static CHOSEN: std::sync::OnceLock<Option<Mutant>> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(chosen) == Some(mutant)
}

/// The one that the environment asks for. A name that does not exist ends the process: a test that passes with it says nothing.
#[cfg(frwr_mutants)]
fn chosen() -> Option<Mutant> {
    let name = std::env::var("FRWR_MUTANT").ok().filter(|name| !name.is_empty())?;
    let found = Mutant::ALL.iter().find(|(known, _)| *known == name).map(|(_, mutant)| *mutant);
    if found.is_none() {
        let known: Vec<_> = Mutant::ALL.iter().map(|(known, _)| *known).collect();
        eprintln!("FRWR_MUTANT={name} names no mutant; there are: {}", known.join(" "));
        std::process::abort();
    }
    found
}
