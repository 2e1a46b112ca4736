//! Metrics over HTTP, for who collects them, and a page that draws them: `/metrics`, `/` and nothing else, to be got or asked about (GET,
//! HEAD), in the same turn as the control socket and by the same rules. Requests are parsed by httparse; a server crate would bring threads
//! or an asynchronous runtime.

use super::exposition::Format;
use rustix::event::{PollFd, PollFlags};
use std::{
    io::{self, ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
};

/// Clients at a time: what collects metrics, and a person's browser. The oldest makes room.
const MAX_VISITORS: usize = 8;
/// Connections that are taken in a turn.
const MAX_ACCEPTED: usize = 4;
/// Bytes of a request: browsers send one or two thousand.
const MAX_HEAD: usize = 8 << 10;
/// Headers of it.
const MAX_HEADERS: usize = 64;
/// Bytes given to a client in a turn.
const WRITE_BYTES: usize = 256 << 10;

const NOT_ALLOWED: &str = "405 Method Not Allowed";
const TEXT_TYPE: &str = "text/plain; charset=utf-8";
const PAGE_TYPE: &str = "text/html; charset=utf-8";

/// What draws the metrics in a browser; it asks for them each second.
const PAGE: &str = include_str!("page.html");
/// What the page may do: what is in it, and ask where it came from. It would be what a mistake in it, or a host's name, could do at most.
const PAGE_MAY: &str = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; \
                        frame-ancestors 'none'; base-uri 'none'; form-action 'none'";

/// Who asks: to be answered, whether it is still there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Visitor(u64);

#[derive(Debug)]
struct Guest {
    visitor: Visitor,
    stream: TcpStream,
    head: Vec<u8>,
    state: State,
    /// It wants to know what it would get, and not to get it.
    without_body: bool,
    /// How it wants metrics.
    format: Format,
    output: Vec<u8>,
    written: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Its request arrives.
    Arriving,
    /// It has to be answered.
    Asks,
    /// Somebody works for it.
    Waits,
    /// It is being answered; then it is over.
    Answered,
    Over,
}

/// The port.
#[derive(Debug)]
pub(crate) struct Web {
    listener: TcpListener,
    guests: Vec<Guest>,
    count: u64,
}

impl Web {
    /// Listens there.
    ///
    /// # Errors
    /// As bind(2).
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, guests: Vec::new(), count: 0 })
    }

    /// Where it listens: with the port that the system chose, where that was 0.
    pub(crate) fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What it waits for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let of = |guest: &Guest| match guest.state {
            State::Arriving => PollFlags::IN,
            State::Answered => PollFlags::OUT,
            State::Asks | State::Waits | State::Over => PollFlags::empty(),
        };
        let guests = self.guests.iter().map(move |guest| (guest, of(guest))).filter(|(_, flags)| !flags.is_empty());
        let guests = guests.map(|(guest, flags)| PollFd::new(&guest.stream, flags));
        [PollFd::new(&self.listener, PollFlags::IN)].into_iter().chain(guests)
    }

    /// Takes connections, reads and writes, all without waiting. Returns the work done.
    pub(crate) fn turn(&mut self) -> u32 {
        let mut work = 0;
        for _ in 0..MAX_ACCEPTED {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                if self.guests.len() == MAX_VISITORS {
                    self.guests.remove(0);
                }
                self.count += 1;
                let visitor = Visitor(self.count);
                self.guests.push(Guest::new(visitor, stream));
            }
            work += 1;
        }
        work += self.guests.iter_mut().map(|guest| u32::from(guest.turn())).sum::<u32>();
        self.guests.retain(|guest| guest.state != State::Over);
        work
    }

    /// Somebody who asked for metrics. To be answered by [`Web::answer`].
    pub(crate) fn next_visitor(&mut self) -> Option<Visitor> {
        let guest = self.guests.iter_mut().find(|guest| guest.state == State::Asks)?;
        guest.state = State::Waits;
        Some(guest.visitor)
    }

    /// The metrics that were asked for, as OpenMetrics.
    pub(crate) fn answer(&mut self, visitor: Visitor, text: &str) {
        if let Some(guest) = self.guests.iter_mut().find(|guest| guest.visitor == visitor) {
            let format = guest.format;
            guest.answer("200 OK", format.media_type(), &format.of(text));
        }
    }
}

impl Guest {
    fn new(visitor: Visitor, stream: TcpStream) -> Self {
        let (head, state, output) = (Vec::new(), State::Arriving, Vec::new());
        Self { visitor, stream, head, state, without_body: false, format: Format::Text, output, written: 0 }
    }

    /// Returns whether something moved.
    fn turn(&mut self) -> bool {
        match self.state {
            State::Arriving => self.read(),
            State::Answered => self.write(),
            State::Asks | State::Waits | State::Over => false,
        }
    }

    fn read(&mut self) -> bool {
        let mut bytes = [0; MAX_HEAD];
        let room = (MAX_HEAD + 1 - self.head.len()).min(MAX_HEAD);
        match self.stream.read(&mut bytes[..room]) {
            Ok(0) => self.state = State::Over,
            Ok(count) => {
                self.head.extend_from_slice(&bytes[..count]);
                self.understand();
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            Err(_) => self.state = State::Over,
        }
        true
    }

    fn understand(&mut self) {
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&self.head);
        let path = request.path.map(|path| path.split('?').next().unwrap_or_default());
        self.without_body = request.method == Some("HEAD");
        self.format = Format::wanted(&accepted(request.headers));
        match (parsed, request.method, path) {
            (Ok(httparse::Status::Partial), ..) if self.head.len() <= MAX_HEAD => {}
            (Ok(httparse::Status::Partial), ..) | (Err(httparse::Error::TooManyHeaders), ..) => {
                let text = format!("a request has {MAX_HEAD} bytes and {MAX_HEADERS} headers at most; send less\n");
                self.answer("431 Request Header Fields Too Large", TEXT_TYPE, &text);
            }
            (Err(error), ..) => self.answer("400 Bad Request", TEXT_TYPE, &format!("no request: {error}\n")),
            (Ok(_), Some("GET" | "HEAD"), Some("/metrics")) => self.state = State::Asks,
            (Ok(_), Some("GET" | "HEAD"), Some("/")) => self.answer("200 OK", PAGE_TYPE, PAGE),
            (Ok(_), Some("GET" | "HEAD"), _) => self.answer("404 Not Found", TEXT_TYPE, "there are / and /metrics\n"),
            (Ok(_), ..) => self.answer(NOT_ALLOWED, TEXT_TYPE, "there are GET and HEAD of / and /metrics\n"),
        }
    }

    fn answer(&mut self, status: &str, kind: &str, body: &str) {
        let length = body.len();
        // RFC 9110 wants it of this status (15.5.6).
        let allowed = if status == NOT_ALLOWED { "Allow: GET, HEAD\r\n" } else { "" };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\nVary: Accept\r\n\
             {allowed}X-Content-Type-Options: nosniff\r\nContent-Security-Policy: {PAGE_MAY}\r\n\r\n"
        );
        // All that is said of it, its length included (9.3.2).
        let body = if self.without_body { "" } else { body };
        (self.output, self.state) = (format!("{head}{body}").into_bytes(), State::Answered);
        self.write();
    }

    fn write(&mut self) -> bool {
        let left = &self.output[self.written..];
        match self.stream.write(&left[..left.len().min(WRITE_BYTES)]) {
            Ok(count) => self.written += count,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return false,
            Err(_) => self.state = State::Over,
        }
        if self.written == self.output.len() {
            self.state = State::Over;
        }
        true
    }
}

/// All that it says of what it would take.
fn accepted(headers: &[httparse::Header<'_>]) -> String {
    let all = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("accept"));
    let all: Vec<_> = all.map(|header| String::from_utf8_lossy(header.value)).collect();
    all.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(web: &mut Web) {
        while web.turn() > 0 {
            while let Some(visitor) = web.next_visitor() {
                web.answer(visitor, "all\n");
            }
        }
    }

    /// What somebody is told who says this and no more.
    fn told(web: &mut Web, said: &[u8]) -> String {
        let mut stream = TcpStream::connect(web.address().unwrap()).unwrap();
        // Whoever is turned away in the middle need not be heard to the end.
        let _ = stream.write_all(said);
        stream.set_nonblocking(true).unwrap();
        let mut text = Vec::new();
        loop {
            served(web);
            match stream.read_to_end(&mut text) {
                Ok(_) => return String::from_utf8(text).unwrap(),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return String::from_utf8(text).unwrap(),
            }
        }
    }

    #[test]
    fn metrics_are_got_and_nothing_else_is() {
        let mut web = Web::open(([127, 0, 0, 1], 0).into()).unwrap();
        let all = told(&mut web, b"GET /metrics?x=1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(all.starts_with("HTTP/1.1 200 OK\r\n") && all.ends_with("\r\n\r\nall\n"), "{all}");
        assert!(all.contains("\r\nContent-Type: text/plain; version=0.0.4;"), "{all}");
        let all = told(
            &mut web,
            b"GET /metrics HTTP/1.1\r\naccept: text/html\r\nAccept: application/openmetrics-text\r\n\r\n",
        );
        assert!(all.contains("\r\nContent-Type: application/openmetrics-text; version=1.0.0;"), "{all}");
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS + 1));
        let long = [&b"GET /"[..], &vec![b'x'; MAX_HEAD]].concat();
        for (said, status) in [
            (&b"GET / HTTP/1.1\r\n\r\n"[..], "200"),
            (b"GET /favicon.ico HTTP/1.1\r\n\r\n", "404"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"\x16\x03\x01\x00\r\n\r\n", "400"),
            (many.as_bytes(), "431"),
            (&long, "431"),
        ] {
            let all = told(&mut web, said);
            assert!(all.starts_with(&format!("HTTP/1.1 {status} ")), "{all}");
        }
    }

    #[test]
    fn who_asks_about_something_is_told_all_but_that() {
        let mut web = Web::open(([127, 0, 0, 1], 0).into()).unwrap();
        for (path, status) in [("/metrics", 200), ("/", 200), ("/x", 404)] {
            let request = |method: &str| format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes();
            let (all, head) = (told(&mut web, &request("GET")), told(&mut web, &request("HEAD")));
            let (of_all, body) = all.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("HTTP/1.1 {status} ")) && !body.is_empty(), "{head}");
            assert_eq!(head, format!("{of_all}\r\n\r\n"));
        }
        let refused = told(&mut web, b"PUT / HTTP/1.1\r\n\r\n");
        assert!(refused.starts_with("HTTP/1.1 405 ") && refused.contains("\r\nAllow: GET, HEAD\r\n"), "{refused}");
    }

    #[test]
    fn who_never_ends_his_request_makes_room() {
        let mut web = Web::open(([127, 0, 0, 1], 0).into()).unwrap();
        let halves: Vec<_> = (0..3 * MAX_VISITORS)
            .map(|_| {
                let mut half = TcpStream::connect(web.address().unwrap()).unwrap();
                half.write_all(b"GET /met").unwrap();
                served(&mut web);
                half
            })
            .collect();
        assert!(told(&mut web, b"GET /metrics HTTP/1.0\r\n\r\n").ends_with("all\n"));
        assert!(web.guests.len() < MAX_VISITORS + 1);
        drop(halves);
    }
}
