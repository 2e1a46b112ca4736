//! The control socket itself: who may connect, and whose turn it is.

use super::{
    connection::{Connection, scratch},
    place::{self, Place},
    rpc::{Call, Failure},
};
use rustix::event::{PollFd, PollFlags};
use serde_json::Value;
use std::{
    io,
    path::{Path, PathBuf},
};

/// Clients at a time: a few people, what collects metrics, and scripts that never end. The one that was silent longest makes room.
pub(crate) const MAX_CLIENTS: usize = 16;
/// Connections that are taken in a turn.
const MAX_ACCEPTED: usize = 4;

/// Who called: to be answered, whether it is still there or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Caller(u64);

#[derive(Debug)]
struct Client {
    caller: Caller,
    connection: Connection,
    /// By the server's count, when it said or was told something last.
    heard: u64,
}

/// A socket with its clients. Dropped, it takes its file away.
#[derive(Debug)]
pub(crate) struct Server {
    place: Place,
    clients: Vec<Client>,
    scratch: Box<[u8]>,
    /// Counts clients and what they do.
    count: u64,
    /// Whose call is taken next.
    turn: usize,
}

impl Server {
    /// Listens there.
    ///
    /// # Errors
    /// As [`Place::take`].
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let place = Place::take(path)?;
        Ok(Self { place, clients: Vec::new(), scratch: scratch(), count: 0, turn: 0 })
    }

    /// Listens at the first place by default where this process does not listen already; `None` where no place is known.
    ///
    /// # Errors
    /// As [`Place::take`], with the place.
    pub(crate) fn open_default() -> Option<Result<Self, (PathBuf, io::Error)>> {
        let mut last = None;
        for path in place::default_paths()? {
            match Self::open(&path) {
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => last = Some(Err((path, error))),
                other => return Some(other.map_err(|error| (path, error))),
            }
        }
        last
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }

    /// Takes connections, reads and writes, all without waiting. Returns the work done.
    pub(crate) fn turn(&mut self) -> u32 {
        let mut work = 0;
        for _ in 0..MAX_ACCEPTED {
            // Where there is no file left for another one it stays with the kernel, and is taken later.
            let Ok((stream, _)) = self.place.listener().accept() else { break };
            if stream.set_nonblocking(true).is_ok() {
                self.make_room();
                self.count += 1;
                let caller = Caller(self.count);
                self.clients.push(Client { caller, connection: Connection::new(stream), heard: self.count });
            }
            work += 1;
        }
        for client in &mut self.clients {
            if client.connection.turn(&mut self.scratch) {
                self.count += 1;
                client.heard = self.count;
                work += 1;
            }
        }
        self.clients.retain(|client| !client.connection.is_over());
        work
    }

    /// The client that was silent longest goes; one that is being served only where all are.
    fn make_room(&mut self) {
        if self.clients.len() < MAX_CLIENTS {
            return;
        }
        let age = |(_, client): &(usize, &Client)| (client.connection.is_served(), client.heard);
        if let Some((oldest, _)) = self.clients.iter().enumerate().min_by_key(age) {
            self.clients.remove(oldest);
        }
    }

    /// The next call; clients take turns. To be answered by [`Server::answer`].
    pub(crate) fn next_call(&mut self) -> Option<(Caller, Call)> {
        for _ in 0..self.clients.len() {
            self.turn = (self.turn + 1) % self.clients.len();
            let client = &mut self.clients[self.turn];
            if let Some(call) = client.connection.next_call() {
                return Some((client.caller, call));
            }
        }
        None
    }

    /// A call is done.
    pub(crate) fn answer(&mut self, caller: Caller, result: Result<Value, Failure>) {
        if let Some(client) = self.clients.iter_mut().find(|client| client.caller == caller) {
            client.connection.answer(result);
        }
    }

    /// What it waits for.
    pub(crate) fn interests(&self) -> impl Iterator<Item = PollFd<'_>> {
        let of = |client: &Client| {
            let listens = if client.connection.listens() { PollFlags::IN } else { PollFlags::empty() };
            let tells = if client.connection.has_output() { PollFlags::OUT } else { PollFlags::empty() };
            listens | tells
        };
        // One that is being served and says nothing is not waited for: its end alone would wake us again and again.
        let clients =
            self.clients.iter().map(move |client| (client, of(client))).filter(|(_, flags)| !flags.is_empty());
        let clients = clients.map(|(client, flags)| PollFd::new(client.connection.stream(), flags));
        [PollFd::new(self.place.listener(), PollFlags::IN)].into_iter().chain(clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{MAX_ANSWER_BYTES, frames::MAX_REQUEST_BYTES};
    use serde_json::json;
    use std::{
        io::{Read as _, Write as _},
        os::unix::net::UnixStream,
    };

    struct Served {
        server: Server,
        _folder: tempfile::TempDir,
    }

    impl Served {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            let server = Server::open(&folder.path().join("socket")).unwrap();
            Self { server, _folder: folder }
        }

        fn client(&mut self) -> UnixStream {
            let stream = UnixStream::connect(self.server.path()).unwrap();
            self.turn();
            stream
        }

        /// Everything that can be done now; a call is answered by its method's name.
        fn turn(&mut self) {
            while self.server.turn() > 0 || self.serve() {}
        }

        fn serve(&mut self) -> bool {
            let Some((caller, call)) = self.server.next_call() else { return false };
            let result = match call.method.as_str() {
                "large" => Ok(json!("x".repeat(MAX_ANSWER_BYTES))),
                "half" => Ok(json!("x".repeat(MAX_ANSWER_BYTES / 2))),
                name => Ok(json!(name)),
            };
            self.server.answer(caller, result);
            true
        }

        fn told(&mut self, mut stream: &UnixStream, text: &str) -> Value {
            stream.write_all(text.as_bytes()).unwrap();
            self.line(stream)
        }

        /// The next line that the client is told.
        fn line(&mut self, stream: &UnixStream) -> Value {
            self.turn();
            stream.set_nonblocking(true).unwrap();
            let (mut line, mut byte) = (Vec::new(), [0]);
            let mut reader = stream;
            while !line.ends_with(b"\n") {
                match reader.read(&mut byte) {
                    Ok(0) => panic!("ended: {}", String::from_utf8_lossy(&line)),
                    Ok(_) => line.push(byte[0]),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.turn(),
                    Err(error) => panic!("{error}"),
                }
            }
            stream.set_nonblocking(false).unwrap();
            serde_json::from_slice(&line).unwrap()
        }
    }

    fn request(id: u32, method: &str) -> String {
        json!({ "jsonrpc": "2.0", "id": id, "method": method }).to_string()
    }

    #[test]
    fn requests_are_answered_in_their_order_and_notifications_are_not() {
        let mut served = Served::new();
        let client = served.client();
        let notification = r#"{"jsonrpc":"2.0","method":"quiet"}"#;
        let first = served.told(&client, &format!("{}{notification}\n{}", request(1, "a"), request(2, "b")));
        assert_eq!(first, json!({"jsonrpc": "2.0", "id": 1, "result": "a"}));
        assert_eq!(served.line(&client)["result"], "b");
        let both = served.told(&client, &format!("[{},7,{notification}]", request(3, "c")));
        assert_eq!((&both[0]["result"], &both[1]["error"]["code"]), (&json!("c"), &json!(-32600)));
        assert_eq!(both.as_array().unwrap().len(), 2);
        // Nothing but notifications: no answer at all.
        assert_eq!(served.told(&client, &format!("[{notification}]{}", request(4, "d")))["id"], 4);
    }

    #[test]
    fn what_cannot_be_understood_is_told_and_ends_the_connection() {
        for (said, code) in [("nonsense", -32700), ("{\"id\":", -32700), ("}", -32700)] {
            let mut served = Served::new();
            let client = served.client();
            (&client).write_all(said.as_bytes()).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(served.line(&client)["error"]["code"], code, "{said}");
            served.turn();
            assert_eq!((&client).read(&mut [0]).unwrap(), 0, "{said}");
            assert!(served.server.clients.is_empty());
        }
        // A whole value that is no JSON leaves the rest as it is.
        let mut served = Served::new();
        let client = served.client();
        assert_eq!(served.told(&client, &format!("{{a}}{}", request(1, "next")))["error"]["code"], -32700);
        assert_eq!(served.line(&client)["result"], "next");
    }

    #[test]
    fn a_line_without_end_is_refused_at_its_limit() {
        let mut served = Served::new();
        let client = served.client();
        client.set_nonblocking(true).unwrap();
        let (piece, mut sent) = (vec![b'['; 64 << 10], 0);
        while !served.server.clients.is_empty() && sent < 100 << 20 {
            match (&client).write(&piece) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break,
            }
            served.turn();
        }
        assert!(sent < 4 * MAX_REQUEST_BYTES, "{sent} bytes were taken");
        let mut told = String::new();
        let _ = (&client).read_to_string(&mut told);
        assert!(told.contains("-32001") && told.contains("1048576"), "{told}");
    }

    #[test]
    fn an_answer_has_a_limit_and_so_have_all_of_a_batch() {
        let mut served = Served::new();
        let client = served.client();
        assert_eq!(served.told(&client, &request(1, "large"))["error"]["code"], -32002);
        let all = served.told(&client, &format!("[{},{},{}]", request(2, "half"), request(3, "half"), request(4, "a")));
        assert_eq!((&all[1]["error"]["code"], &all[2]["result"]), (&json!(-32002), &json!("a")));
    }

    #[test]
    fn who_never_reads_is_not_served_on_and_harms_nobody() {
        let mut served = Served::new();
        let (deaf, other) = (served.client(), served.client());
        deaf.set_nonblocking(true).unwrap();
        let piece = request(1, "half");
        let mut sent = 0;
        while let Ok(bytes) = (&deaf).write(piece.as_bytes()) {
            sent += bytes;
            served.turn();
            assert!(sent < 64 << 20, "it is read for ever");
        }
        assert_eq!(served.told(&other, &request(2, "a"))["result"], "a");
        // Its output holds one answer.
        let held: usize = served.server.clients.iter().map(|client| usize::from(client.connection.has_output())).sum();
        assert_eq!(held, 1);
    }

    #[test]
    fn the_client_that_was_silent_longest_makes_room() {
        let mut served = Served::new();
        let clients: Vec<_> = (0..MAX_CLIENTS).map(|_| served.client()).collect();
        assert_eq!(served.told(&clients[0], &request(1, "a"))["result"], "a");
        let newcomer = served.client();
        assert_eq!(served.told(&newcomer, &request(2, "b"))["result"], "b");
        assert_eq!((&clients[1]).read(&mut [0]).unwrap(), 0, "the second was silent longest");
        assert_eq!(served.told(&clients[0], &request(3, "c"))["result"], "c");
    }

    #[test]
    fn its_file_goes_with_it() {
        let served = Served::new();
        let path = served.server.path().to_owned();
        assert!(path.exists());
        drop(served.server);
        assert!(!path.exists());
    }
}
