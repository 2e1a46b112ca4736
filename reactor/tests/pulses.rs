//! What another thread sees of a reactor that stands still, while it stands.

use std::convert::Infallible;
use std::io;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use frwr_reactor::{
    Context, CoreIndex, Idle, LaunchError, Now, Options, Outbox, Placement, Poller, Pulse, Reactor, Reactors, Running,
    Schedule, Seat, Sleep, Source, Turn, poll_fn,
};

/// Where somebody stops, once: it says that it has come there, and goes on when it is told.
#[derive(Clone)]
struct Gate(Arc<Mutex<Option<Held>>>);

/// Where it says that it is held, and where it hears that it may go on.
type Held = (mpsc::Sender<()>, mpsc::Receiver<()>);

/// The other side of it.
struct Keeper {
    arrived: mpsc::Receiver<()>,
    release: mpsc::Sender<()>,
}

fn gate() -> (Gate, Keeper) {
    let ((arrive, arrived), (release, released)) = (mpsc::channel(), mpsc::channel());
    (Gate(Arc::new(Mutex::new(Some((arrive, released))))), Keeper { arrived, release })
}

impl Gate {
    fn pass(&self) {
        if let Some((arrive, released)) = self.0.lock().unwrap().take() {
            arrive.send(()).unwrap();
            let _ = released.recv();
        }
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    First,
    Second,
    Timed,
    Flush,
    Message,
    Shutdown,
    Drained,
    Nowhere,
}

struct Core {
    gate: Gate,
    at: Place,
}

impl Core {
    fn pass(&self, place: Place) {
        if self.at == place {
            self.gate.pass();
        }
    }
}

impl Context for Core {
    type Message = ();

    fn message(&mut self, _: Source, _: (), _: &Now) {
        self.pass(Place::Message);
    }
}

/// Comes by all places of its own; finds work, so that it is flushed.
struct Passes;

impl Poller<Core> for Passes {
    fn poll(&mut self, core: &mut Core, _: &Now) -> u32 {
        core.pass(Place::Second);
        1
    }

    fn flush(&mut self, core: &mut Core, _: &Now) {
        core.pass(Place::Flush);
    }

    fn sleep_until(&self, _: &Core) -> Sleep {
        Sleep::Busy
    }

    fn begin_shutdown(&mut self, core: &mut Core, _: &Now) {
        core.pass(Place::Shutdown);
    }

    fn drained(&self, core: &Core) -> bool {
        core.pass(Place::Drained);
        true
    }
}

fn busy(seat: Seat<()>, gate: Gate, at: Place) -> Reactor<Core> {
    let mut reactor = seat.reactor(Core { gate, at });
    let first = poll_fn(|core: &mut Core, _: &Now| {
        core.pass(Place::First);
        0
    });
    let timed = poll_fn(|core: &mut Core, _: &Now| {
        core.pass(Place::Timed);
        0
    });
    reactor.add("first", Schedule::Busy, first).unwrap();
    reactor.add("timed", Schedule::Every(Duration::from_nanos(1)), timed).unwrap();
    reactor.add("second", Schedule::Busy, Passes).unwrap();
    reactor
}

fn pulse(running: &Running<(), Core>, core: usize) -> Pulse {
    running.pulses().nth(core).unwrap()
}

/// Waits until this is seen of a reactor.
fn wait_for(running: &Running<(), Core>, core: usize, seen: impl Fn(&Pulse) -> bool) -> Pulse {
    loop {
        let pulse = pulse(running, core);
        if seen(&pulse) {
            return pulse;
        }
        std::thread::yield_now();
    }
}

#[test]
fn a_reactor_that_stands_still_tells_whose_turn_it_is_while_it_stands() {
    for (at, turn) in [
        (Place::First, Turn::Poller("first")),
        (Place::Second, Turn::Poller("second")),
        (Place::Timed, Turn::Poller("timed")),
        (Place::Flush, Turn::Poller("second")),
        (Place::Message, Turn::Messages),
        (Place::Shutdown, Turn::Poller("second")),
        (Place::Drained, Turn::Poller("second")),
    ] {
        let (gate, keeper) = gate();
        let init = |_: CoreIndex| {
            let gate = gate.clone();
            move |seat: Seat<()>, _: Outbox<()>| Ok::<_, Infallible>(busy(seat, gate, at))
        };
        let mut running = Reactors::new(Placement::Unpinned { reactors: 1 }).foreign(1).launch(init).unwrap();
        running.take_foreign().unwrap().send(CoreIndex(0), ()).unwrap();
        if matches!(at, Place::Shutdown | Place::Drained) {
            running.shutdown_handle().request(Duration::ZERO);
        }
        keeper.arrived.recv().unwrap();
        let stands = pulse(&running, 0);
        assert_eq!((stands.core, stands.cpu, stands.turn, stands.ended), (CoreIndex(0), None, turn, false));
        // It publishes nothing: whoever looks again sees no iteration between.
        assert_eq!(pulse(&running, 0), stands);
        assert_eq!(running.statistics()[0].pollers.len(), 3, "and can be looked at as ever");
        keeper.release.send(()).unwrap();
        if !matches!(at, Place::Shutdown | Place::Drained) {
            // The second poller finds work in each.
            let goes_on = wait_for(&running, 0, |pulse| pulse.busy_iterations > stands.busy_iterations);
            assert!(goes_on.iterations > stands.iterations);
            running.shutdown_handle().request(Duration::ZERO);
        }
        let ended = wait_for(&running, 0, |pulse| pulse.ended);
        assert_eq!(ended.turn, Turn::Loop);
        assert!(running.join().into_iter().all(|ended| ended.is_ok()));
    }
}

/// Rests until a message comes.
struct Rests;

impl Poller<Core> for Rests {
    fn poll(&mut self, _: &mut Core, _: &Now) -> u32 {
        0
    }

    fn sleep_until(&self, _: &Core) -> Sleep {
        Sleep::Forever
    }
}

#[test]
fn a_reactor_that_sleeps_does_not_stand_still() {
    let (gate, _keeper) = gate();
    let init = |_: CoreIndex| {
        let gate = gate.clone();
        move |seat: Seat<()>, _: Outbox<()>| {
            let mut reactor = seat.reactor(Core { gate, at: Place::Nowhere });
            reactor.add("rests", Schedule::Busy, Rests).unwrap();
            Ok::<_, Infallible>(reactor)
        }
    };
    let options = Options::default().idle(Idle::SleepAfter(Duration::ZERO));
    let reactors = Reactors::new(Placement::Unpinned { reactors: 1 }).options(options);
    let running = reactors.launch(init).unwrap();
    wait_for(&running, 0, |pulse| pulse.turn == Turn::Asleep);
    assert!(running.shutdown(Duration::from_secs(60)).into_iter().all(|ended| ended.is_ok()));
}

#[test]
fn a_reactor_that_stands_still_can_be_left_behind() {
    let (gate, keeper) = gate();
    let init = |core: CoreIndex| {
        let (gate, at) = (gate.clone(), if core.0 == 1 { Place::Second } else { Place::Nowhere });
        move |seat: Seat<()>, _: Outbox<()>| Ok::<_, Infallible>(busy(seat, gate, at))
    };
    let running = Reactors::new(Placement::Unpinned { reactors: 2 }).launch(init).unwrap();
    keeper.arrived.recv().unwrap();
    running.shutdown_handle().request(Duration::ZERO);
    wait_for(&running, 0, |pulse| pulse.ended);
    assert!(!running.is_finished());
    let left = running.abandon();
    assert!(matches!(&left[..], [Some(Ok(finished)), None] if finished.core == CoreIndex(0)), "{}", left.len());
    drop(keeper.release);
}

/// What becomes of a launch of two reactors, of which the first fails in its initialisation, or is set up and waits for the second,
/// which stands still in its own until it was seen there and `seen` has returned.
fn launched(
    first_fails: bool,
    mut seen: impl FnMut(&mpsc::Sender<()>) -> ControlFlow<()>,
) -> Result<Running<(), Core>, LaunchError<io::Error>> {
    let (gate, keeper) = gate();
    let Keeper { arrived, release } = keeper;
    let init = |core: CoreIndex| {
        let gate = gate.clone();
        move |seat: Seat<()>, _: Outbox<()>| {
            match core.index() {
                0 if first_fails => return Err(io::Error::other("no")),
                0 => {}
                _ => gate.pass(),
            }
            Ok(busy(seat, gate, Place::Nowhere))
        }
    };
    let mut stands = false;
    let watch = |pulses: &[Pulse]| {
        stands |= arrived.try_recv().is_ok();
        let [first, second] = pulses else { panic!("{pulses:?}") };
        if !stands || (first.turn != Turn::Asleep && !first.ended) {
            return ControlFlow::Continue(());
        }
        assert_eq!((second.core, second.turn, second.ended), (CoreIndex(1), Turn::SettingUp, false));
        assert!(second.thread > 0 && second.iterations == 0 && first.ended == first_fails);
        seen(&release)
    };
    Reactors::new(Placement::Unpinned { reactors: 2 }).launch_watched(init, watch)
}

#[test]
fn an_initialisation_that_stands_still_is_seen_and_waited_for() {
    let goes_on = |release: &mpsc::Sender<()>| {
        let _ = release.send(());
        ControlFlow::Continue(())
    };
    let running = launched(false, goes_on).unwrap();
    for core in [0, 1] {
        wait_for(&running, core, |pulse| pulse.iterations > 0);
    }
    assert!(running.shutdown(Duration::ZERO).into_iter().all(|ended| ended.is_ok()));
    assert!(matches!(launched(true, goes_on), Err(LaunchError::Init { core: CoreIndex(0), .. })));
}

#[test]
fn an_initialisation_that_stands_still_can_be_given_up() {
    for first_fails in [false, true] {
        assert!(matches!(launched(first_fails, |_| ControlFlow::Break(())), Err(LaunchError::GivenUp)));
    }
}
