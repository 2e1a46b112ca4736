//! The medium of the file of reservations: what was not flushed when its power goes is there, or is not, or is there in part.

use frwr_nvmf::controller::{ReservationMedium, ReservationWriter, Reservations};
use frwr_support::Random;
use std::cell::{RefCell, RefMut};
use std::io;
use std::path::Path;
use std::rc::Rc;

/// What a target does to it while it opens it, and one more: it may die in front of any of these.
const OPENING: u64 = 6;

/// What a name of the folder leads to.
#[derive(Clone, Default)]
struct Leaf {
    bytes: Vec<u8>,
    is_flushed: bool,
}

struct State {
    file: Option<Leaf>,
    beside: Option<Leaf>,
    /// What the folder on the medium calls the file, where that is not what it is.
    former: Option<Option<Leaf>>,
    random: Random,
    /// One operation in this many fails; 0 for none.
    fails_one_in: u64,
    /// So many go well, and then none: the power goes.
    left: u64,
    has_ended: bool,
}

/// The medium, in the hands of all that have a way to it.
#[derive(Clone)]
pub(super) struct Paper(Rc<RefCell<State>>);

impl Paper {
    /// There is no file yet.
    pub(super) fn new(random: Random) -> Self {
        let (file, beside, former, fails_one_in, left, has_ended) = (None, None, None, 0, u64::MAX, false);
        Self(Rc::new(RefCell::new(State { file, beside, former, random, fails_one_in, left, has_ended })))
    }

    /// One operation in so many fails from now on; 0 for none.
    pub(super) fn fails(&self, one_in: u64) {
        self.0.borrow_mut().fails_one_in = one_in;
    }

    /// So many operations go well from now on, and at the next one the power goes.
    pub(super) fn ends_after(&self, operations: u64) {
        let mut state = self.0.borrow_mut();
        (state.left, state.has_ended) = (operations, false);
    }

    /// It goes at the next one.
    pub(super) fn is_ending(&self) -> bool {
        self.0.borrow().left == 0
    }

    /// It is to go now.
    pub(super) fn has_ended(&self) -> bool {
        self.0.borrow().has_ended
    }

    /// The power goes.
    pub(super) fn lose_power(&self) {
        let mut state = self.0.borrow_mut();
        let State { file, beside, former, random, left, has_ended, .. } = &mut *state;
        (*beside, *left, *has_ended) = (None, u64::MAX, false);
        if let Some(former) = former.take()
            && random.one_in(2)
        {
            *file = former;
        }
        if let Some(leaf) = file.as_mut().filter(|leaf| !leaf.is_flushed) {
            leaf.bytes.truncate(random.below(leaf.bytes.len() as u64 + 1) as usize);
            leaf.is_flushed = true;
        }
    }

    /// As a target that starts opens it. Its power may go meanwhile: then it starts again.
    ///
    /// # Errors
    /// What is there is not what was written.
    pub(super) fn open(&self) -> Result<(Reservations, ReservationWriter<Self>), String> {
        {
            let mut state = self.0.borrow_mut();
            (state.fails_one_in, state.left) = (0, state.random.below(OPENING));
        }
        drop(Reservations::open_on(self.clone()));
        self.lose_power();
        Reservations::open_on(self.clone()).map_err(|error| error.to_string())
    }

    fn operate(&self) -> io::Result<RefMut<'_, State>> {
        let mut state = self.0.borrow_mut();
        let State { random, fails_one_in, left, has_ended, .. } = &mut *state;
        let fails = *fails_one_in > 0 && random.one_in(*fails_one_in);
        *has_ended = *left == 0;
        if fails || *has_ended {
            return Err(io::Error::other("the medium fails"));
        }
        *left -= 1;
        Ok(state)
    }
}

impl ReservationMedium for Paper {
    fn path(&self) -> &Path {
        Path::new("reservations")
    }

    fn read(&mut self, _: u64) -> io::Result<Option<Vec<u8>>> {
        Ok(self.operate()?.file.as_ref().map(|leaf| leaf.bytes.clone()))
    }

    fn write_beside(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.operate()?.beside = Some(Leaf { bytes: bytes.to_vec(), is_flushed: false });
        Ok(())
    }

    fn flush_beside(&mut self) -> io::Result<()> {
        self.operate()?.beside.iter_mut().for_each(|leaf| leaf.is_flushed = true);
        Ok(())
    }

    fn replace(&mut self) -> io::Result<()> {
        let mut state = self.operate()?;
        let new = state.beside.take().ok_or(io::ErrorKind::NotFound)?;
        let former = state.file.replace(new);
        state.former.get_or_insert(former);
        Ok(())
    }

    fn flush_folder(&mut self) -> io::Result<()> {
        self.operate()?.former = None;
        Ok(())
    }
}
