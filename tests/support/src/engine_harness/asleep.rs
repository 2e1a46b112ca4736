//! Controls that sleep. Where Control looks in every step of its engine, an object is destroyed by the time that anybody could be told
//! too early that its key is dead; only behind a Control that answers late is it seen whether the engine waits.

use core::cell::Cell;

/// Steps of a side from one look of its sleeping Control to the next.
const NAP: u64 = 9;

thread_local! {
    static STEPS_PER_LOOK: Cell<u64> = const { Cell::new(1) };
}

/// Runs the named tests of a file once more, in a module of their own, with Controls that sleep.
#[macro_export]
macro_rules! asleep {
    ($($test:ident),+ $(,)?) => {
        /// Controls answer many steps later.
        mod asleep {
            $(
                #[test]
                fn $test() {
                    $crate::engine_harness::while_control_sleeps(super::$test);
                }
            )+
        }
    };
}

/// Runs a test whose sides have Controls that look now and then: whatever they answer comes many steps later.
pub fn while_control_sleeps(test: fn()) {
    // Each test has a thread of its own.
    STEPS_PER_LOOK.set(NAP);
    test();
}

/// How often the Control of a new side looks.
pub(super) fn steps_per_look() -> u64 {
    STEPS_PER_LOOK.get()
}
