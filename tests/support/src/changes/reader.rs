//! Who reads metrics as nobody should: half requests, requests whose answer is never read, ends in the middle, and a control socket
//! that is asked without an end.

use crate::Random;
use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// Connections that it keeps and never reads.
const KEPT: usize = 8;
/// Between two attempts: it shares a machine with those whom it shall not disturb.
const PAUSE: Duration = Duration::from_millis(20);
/// How long it waits for anything at all.
const PATIENCE: Duration = Duration::from_secs(10);
/// Of OpenMetrics, whose end can be told.
const REQUEST: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/openmetrics-text\r\n\r\n";

/// On a thread of its own, until it is stopped.
#[derive(Debug)]
pub struct HostileReader {
    metrics: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl HostileReader {
    /// Begins.
    #[must_use]
    pub fn start(metrics: SocketAddr, socket: &Path, seed: u64) -> Self {
        let (stop, socket) = (Arc::<AtomicBool>::default(), socket.to_owned());
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || hostile(metrics, &socket, Random::new(seed), &stop)
        });
        Self { metrics, stop, thread }
    }

    /// Ends, and reads once as one should: how often it attacked, and the metrics.
    ///
    /// # Errors
    /// There are none any more.
    pub fn end(self) -> Result<(u64, String), String> {
        self.stop.store(true, Relaxed);
        let attacks = self.thread.join().map_err(|_| "the hostile reader panicked".to_owned())?;
        let text = metrics(self.metrics).map_err(|error| format!("metrics: {error}"))?;
        if text.starts_with("HTTP/1.1 200") && text.ends_with("# EOF\n") {
            return Ok((attacks, text));
        }
        Err(format!("no metrics: {text:?}"))
    }
}

fn metrics(from: SocketAddr) -> io::Result<String> {
    let (mut stream, mut text) = (TcpStream::connect(from)?, String::new());
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(REQUEST)?;
    stream.read_to_string(&mut text)?;
    Ok(text)
}

fn hostile(metrics: SocketAddr, socket: &PathBuf, mut random: Random, stop: &AtomicBool) -> u64 {
    let (mut attacks, mut deaf, mut floods) = (0, Vec::new(), Vec::new());
    while !stop.load(Relaxed) {
        attacks += 1;
        // Whatever becomes of one: the target may refuse it, and the next one is tried.
        if random.one_in(5) {
            floods.extend(flood(socket, &mut random));
        } else {
            deaf.extend(attack(metrics, &mut random).ok().flatten());
        }
        deaf.drain(..deaf.len().saturating_sub(KEPT));
        floods.drain(..floods.len().saturating_sub(KEPT));
        thread::sleep(PAUSE);
    }
    attacks
}

/// What is kept open of it.
fn attack(metrics: SocketAddr, random: &mut Random) -> io::Result<Option<TcpStream>> {
    let mut stream = TcpStream::connect(metrics)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    match random.below(5) {
        0 => stream.write_all(&REQUEST[..random.below(REQUEST.len() as u64) as usize])?,
        1 => {
            stream.write_all(REQUEST)?;
            return Ok(None);
        }
        2 => {
            stream.write_all(REQUEST)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.read_exact(&mut [0; 100])?;
            stream.shutdown(Shutdown::Both)?;
            return Ok(None);
        }
        3 => {
            let noise: Vec<u8> = (0..random.below(20_000)).map(|_| random.bits() as u8).collect();
            stream.write_all(&noise)?;
        }
        _ => stream.write_all(REQUEST)?,
    }
    Ok(Some(stream))
}

/// Asks for much, and reads none of it.
fn flood(socket: &PathBuf, random: &mut Random) -> io::Result<UnixStream> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_nonblocking(true)?;
    let half = &br#"{"jsonrpc":"2.0","id":1,"method":"metrics"}"#[..];
    for _ in 0..random.below(50) {
        stream.write_all(half)?;
    }
    stream.write_all(&half[..random.below(half.len() as u64) as usize])?;
    Ok(stream)
}
