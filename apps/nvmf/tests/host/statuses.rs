//! What the host does about a status: which ends its request, and which is one of a command that is sent again.

use core::cell::{Cell, RefCell};
use core::time::Duration;
use frwr_nvmf::host::{HostOptions, IoError};
use frwr_nvmf::wire::{Command, Status};
use frwr_support::nvmf_harness::host_options;
use frwr_support::nvmf_harness::scripted::{Answer, Scripted};
use std::rc::Rc;

const MILLISECOND: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Sent again as often as `command_retries` says.
const AGAIN: [u16; 12] = [0x004, 0x005, 0x006, 0x007, 0x008, 0x021, 0x022, 0x280, 0x281, 0x287, 0x0c0, 0x7ff];
/// Sent again as long as `inaccessible_timeout` says.
const AWAY: [u16; 10] = [0x01d, 0x024, 0x082, 0x084, 0x300, 0x302, 0x303, 0x360, 0x370, 0x371];
/// Never sent again.
const FINAL: [u16; 16] =
    [0x001, 0x002, 0x00b, 0x00d, 0x00e, 0x00f, 0x011, 0x016, 0x020, 0x080, 0x081, 0x083, 0x183, 0x285, 0x286, 0x301];

fn status(code: u16) -> Status {
    Status::from_wire(code << 1)
}

/// Commands that came, and answers that are still to be refusals.
struct Refusing {
    scripted: Scripted,
    asked: Rc<Cell<u32>>,
    times: Rc<Cell<u32>>,
    with: Rc<RefCell<Status>>,
}

impl Refusing {
    fn new(options: HostOptions, delays: [u16; 3]) -> Self {
        let (asked, times) = (Rc::new(Cell::new(0_u32)), Rc::new(Cell::new(0_u32)));
        let with = Rc::new(RefCell::new(Status::SUCCESS));
        let (seen, left, said) = (asked.clone(), times.clone(), with.clone());
        let mut scripted = Scripted::ready("reg_mr", options, |controller| {
            controller.identify.retry_delays = delays.map(Into::into);
            controller.rule = Box::new(move |asked| match asked.command {
                Command::Flush { .. } | Command::Write(_) => {
                    seen.set(seen.get() + 1);
                    let refused = left.get() > 0;
                    left.set(left.get().saturating_sub(1));
                    refused.then(|| Answer::Status(*said.borrow(), 0))
                }
                _ => None,
            });
        });
        scripted.tick = MILLISECOND;
        Self { scripted, asked, times, with }
    }

    /// One flush, refused so often; how it ended, how often it was sent, and how long it took.
    fn flush(&mut self, with: Status, times: u32) -> (Result<(), IoError>, u32, Duration) {
        self.asked.set(0);
        self.times.set(times);
        *self.with.borrow_mut() = with;
        self.scripted.lone.host.flush_namespace(1).unwrap();
        let begin = self.scripted.lone.now;
        self.scripted.until("ended", |scripted| !scripted.completions.is_empty());
        let result = self.scripted.completions.remove(0).result;
        self.scripted.steps(20);
        assert!(self.scripted.completions.is_empty(), "once");
        (result, self.asked.get(), self.scripted.lone.now - begin)
    }
}

#[test]
fn what_may_be_tried_again_is_as_often_as_the_options_say() {
    for retries in [0, 1, 5] {
        let options = host_options().command_retries(Some(retries));
        let mut refusing = Refusing::new(options, [0; 3]);
        for code in AGAIN {
            for times in [0, 1, 5, 6] {
                let (result, asked, passed) = refusing.flush(status(code), times);
                let enough = times <= u32::from(retries);
                let expected = if enough { Ok(()) } else { Err(IoError::Status(status(code))) };
                assert_eq!(
                    (result, asked),
                    (expected, times.min(retries.into()) + 1),
                    "{code:#x}, {times} of {retries}"
                );
                // Each pause is twice the one before, up to a second.
                let pauses: u64 = [100, 200, 400, 800, 1000].into_iter().take(asked as usize - 1).sum();
                assert!(passed >= MILLISECOND * pauses as u32, "{code:#x}, {times}: {passed:?}");
                assert!(passed < MILLISECOND * (pauses as u32 + 200), "{code:#x}, {times}: {passed:?}");
            }
        }
        assert_eq!(refusing.scripted.lone.host.statistics().failures, 0);
        refusing.scripted.finish();
    }
}

#[test]
fn what_is_away_is_waited_for_and_no_longer_than_the_options_say() {
    let options = host_options().inaccessible_timeout(6 * SECOND).command_retries(Some(0));
    let mut refusing = Refusing::new(options, [0; 3]);
    for code in AWAY {
        // A second, as a namespace that an operator switches off and on.
        let (result, asked, passed) = refusing.flush(status(code), 4);
        assert_eq!((result, asked), (Ok(()), 5), "{code:#x}");
        assert!(passed >= SECOND, "{code:#x}");
        let (result, _, passed) = refusing.flush(status(code), u32::MAX);
        assert_eq!(result, Err(IoError::Status(status(code))), "{code:#x}");
        assert!((6 * SECOND..8 * SECOND).contains(&passed), "{code:#x} {passed:?}");
    }
    assert_eq!(refusing.scripted.lone.host.statistics().failures, 0);
    refusing.scripted.finish();
}

#[test]
fn do_not_retry_and_what_cannot_pass_end_the_request_at_once() {
    let mut refusing = Refusing::new(host_options(), [1; 3]);
    let final_ones = FINAL.map(status).into_iter();
    let told = AGAIN.into_iter().chain(AWAY).chain(FINAL).map(|code| status(code).do_not_retry());
    for status in final_ones.chain(told) {
        let (result, asked, _) = refusing.flush(status, 1);
        assert_eq!((result, asked), (Err(IoError::Status(status)), 1), "{status}");
    }
    assert_eq!(refusing.scripted.lone.host.statistics().repeated, 0);
    refusing.scripted.finish();
}

#[test]
fn a_controller_says_how_long_the_pause_is_within_a_minute() {
    let mut refusing = Refusing::new(host_options(), [20, 0, u16::MAX]);
    refusing.scripted.tick = 10 * MILLISECOND;
    for (delay, least) in [(0, 100), (1, 2000), (2, 100), (3, 60_000)] {
        for code in [0x006, 0x300] {
            let (result, asked, passed) = refusing.flush(status(code | delay << 11), 1);
            assert_eq!((result, asked), (Ok(()), 2), "{code:#x} {delay}");
            assert!((least..least + 300).contains(&passed.as_millis()), "{code:#x} {delay}: {passed:?}");
        }
    }
    refusing.scripted.finish();
}

#[test]
fn a_request_that_pauses_can_be_aborted_and_outlives_its_session() {
    let mut refusing = Refusing::new(host_options(), [0; 3]);
    refusing.times.set(3);
    *refusing.with.borrow_mut() = status(0x006);
    let scripted = &mut refusing.scripted;
    scripted.lone.host.flush_namespace(7).unwrap();
    scripted.until("refused", |scripted| scripted.lone.host.statistics().repeated == 1);
    assert_eq!(scripted.lone.host.abort(7), 1);
    scripted.until("aborted", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions.remove(0).result, Err(IoError::Aborted));
    assert_eq!(refusing.asked.get(), 1);
    let segment = scripted.segment(0, 4);
    scripted.lone.host.write(0, &[segment], 8).unwrap();
    scripted.until("refused", |scripted| scripted.lone.host.statistics().repeated == 2);
    scripted.controller.hang_up();
    scripted.until("ended", |scripted| !scripted.completions.is_empty());
    assert_eq!(scripted.completions.remove(0).result, Ok(()));
    assert_eq!(scripted.lone.host.statistics().sessions, 2);
    // A host that is stopped waits for what pauses.
    refusing.times.set(2);
    scripted.lone.host.flush_namespace(9).unwrap();
    scripted.lone.host.shut_down();
    scripted.until("stopped", |scripted| scripted.lone.host.is_stopped());
    assert_eq!(scripted.completions.remove(0).result, Ok(()));
}

#[test]
fn a_host_that_sleeps_until_poll_at_wakes_when_a_pause_is_over() {
    let mut refusing = Refusing::new(host_options().keep_alive(Duration::ZERO), [0; 3]);
    refusing.times.set(5);
    *refusing.with.borrow_mut() = status(0x022);
    let scripted = &mut refusing.scripted;
    scripted.lone.host.flush_namespace(1).unwrap();
    let begin = scripted.lone.now;
    for _ in 0..200 {
        scripted.steps(3);
        if !scripted.completions.is_empty() {
            break;
        }
        let at = scripted.lone.host.poll_at().unwrap();
        scripted.lone.now = scripted.lone.now.max(at);
    }
    assert_eq!(scripted.completions.remove(0).result, Ok(()));
    assert!((2500..3000).contains(&(scripted.lone.now - begin).as_millis()), "{:?}", scripted.lone.now - begin);
    scripted.finish();
}
