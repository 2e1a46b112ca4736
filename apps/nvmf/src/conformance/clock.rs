//! The time as storages are told it.

use core::{
    cell::{Cell, RefCell},
    time::Duration,
};

type Source = RefCell<Box<dyn FnMut() -> Duration>>;

/// The time as storages are told it.
#[derive(Default)]
pub(super) struct Clock {
    counted: Cell<Duration>,
    source: Option<Source>,
}

impl Clock {
    pub(super) fn of(source: impl FnMut() -> Duration + 'static) -> Self {
        Self { source: Some(RefCell::new(Box::new(source))), ..Self::default() }
    }

    /// For the next poll.
    pub(super) fn now(&self) -> Duration {
        self.counted.set(self.counted.get() + Duration::from_micros(1));
        self.source.as_ref().map_or_else(|| self.counted.get(), |source| source.borrow_mut()())
    }
}
