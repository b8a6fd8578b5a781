//! A whole core with its keeper, connected to a server that sends arbitrary bytes.

use super::{Caller, Handle, Reader, Submission, Ticket, Watch};
use crate::fuzzing::Bytes;
use crate::keeper;
use crate::machine::{
    Command, Config, HoldTerms, LeaseId, LossReason, Notice, OpId, Outcome, Polling, Settings, Wait,
};
use crate::protocol::message::{inbox, notices};
use crate::protocol::query::Question;
use crate::protocol::{Mode, Mono};
use crate::server::{Address, Endpoint, LoginSource, Replicas};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{UnixListener, UnixStream};

/// Separates what the server sends at once: it continues when the client has sent more.
const TURN: u8 = 0xff;
/// How long the client waits for a server that sends nothing more.
const PATIENCE: Duration = Duration::from_millis(5);
/// An operation that is open for this long never ends. Far above the sum of all timeouts.
const HANG: Duration = Duration::from_secs(20);

/// Opens a manager, acquires a lock, queries, releases and closes, while the server sends the parts of
/// `data`, and nothing after them.
///
/// # Panics
/// If an operation does not end, or ends only because the core has gone.
pub fn conversation(data: &[u8]) {
    let mut bytes = Bytes::new(data);
    let choice = bytes.byte();
    let server = Server::start(bytes.take(usize::MAX), choice & 1 == 1);
    let talk = Talk::start(config(choice), endpoint(&server, choice));
    if talk.ask(1, Command::Open) == Outcome::Done {
        let wait = if choice & 2 == 0 { Wait::Never } else { Wait::UpTo(PATIENCE) };
        let granted = talk.ask(2, acquire("a", wait));
        talk.begin(3, acquire("b", Wait::Forever));
        talk.query(4);
        if let Outcome::Acquired { lease, .. } = granted {
            talk.ask(5, Command::Extend { lease, ttl: None });
            talk.ask(6, Command::Release { lease, exported: true });
        }
        talk.ask(7, Command::Force { name: "a".to_owned(), foreign: false, owners: Vec::new() });
        talk.ask(8, Command::Close);
        let _ended = (talk.outcome(3), talk.outcome(4));
    }
}

fn config(choice: u8) -> Config {
    Config {
        client: "c".to_owned(),
        started: Mono::now(),
        secret: "c".to_owned(),
        prefix: "lock:".to_owned(),
        command_timeout: PATIENCE,
        open_patience: Duration::ZERO,
        cluster: false,
        confirm: choice & 4 != 0,
        quorum: choice & 8 != 0,
        polling: (choice & 16 != 0)
            .then_some(Polling { least: PATIENCE / 20, most: PATIENCE / 10 }),
        linger_max: usize::from(choice & 32 != 0),
    }
}

fn endpoint(server: &Server, choice: u8) -> Endpoint {
    let path = server.path.to_string_lossy().into_owned();
    let one = Endpoint {
        address: Address::Unix { path },
        tls: None,
        login_source: LoginSource::fixed(None, (choice & 16 != 0).then(|| "s3cret".to_owned())),
        db: u32::from(choice & 32 != 0),
        client_name: "holdfast".to_owned(),
        channels: vec![notices("c"), inbox("c")],
        connect_timeout: PATIENCE,
        replicas: (choice & 4 != 0).then_some(Replicas::Majority),
    };
    if choice & 8 == 0 {
        return one;
    }
    let settings = Settings {
        servers: ["a", "b", "c"].map(str::to_owned).into(),
        node_timeout: PATIENCE / 4,
        longest_lease: None,
    };
    let voter = Endpoint { replicas: None, channels: Vec::new(), ..one.clone() };
    let servers = vec![voter.clone(), voter.clone(), voter];
    Endpoint { address: Address::Quorum { servers, settings }, ..one }
}

fn acquire(name: &str, wait: Wait) -> Command {
    let hold = HoldTerms {
        renew: true,
        leave_to_expire: false,
        max_hold: None,
        stall_timeout: Duration::from_secs(30),
        linger: PATIENCE / 10,
    };
    let (name, label, ttl) = (name.to_owned(), Arc::default(), Duration::from_millis(60));
    Command::Acquire { name, ttl, wait, label, hold, mode: Mode::Exclusive }
}

/// The parts that the connections to the server have not sent yet.
type Script = Arc<Mutex<VecDeque<Vec<u8>>>>;

struct Server {
    path: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    fn start(says: &[u8], hangs_up: bool) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("holdfast-fuzz-{}-{count}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let script: Script =
            Arc::new(Mutex::new(says.split(|byte| *byte == TURN).map(<[u8]>::to_vec).collect()));
        let runtime = keeper::runtime().expect("a runtime");
        let _inside = runtime.enter();
        let listener = UnixListener::bind(&path).expect("a socket");
        Self { task: runtime.spawn(serve(listener, script, hangs_up)), path }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
        drop(std::fs::remove_file(&self.path));
    }
}

async fn serve(listener: UnixListener, script: Script, hangs_up: bool) {
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        connections.spawn(speak(stream, Arc::clone(&script), hangs_up));
    }
}

/// Answers each message of the client with the next part. An empty part hangs up.
async fn speak(stream: UnixStream, script: Script, hangs_up: bool) {
    while listen(&stream).await.is_ok() {
        let next = script.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(next) = next else {
            if hangs_up {
                return;
            }
            continue;
        };
        if next.is_empty() || say(&stream, &next).await.is_err() {
            return;
        }
    }
}

/// Reads one message of the client.
async fn listen(stream: &UnixStream) -> io::Result<()> {
    let mut heard = [0; 4096];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut heard) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
}

async fn say(stream: &UnixStream, mut words: &[u8]) -> io::Result<()> {
    while !words.is_empty() {
        stream.writable().await?;
        match stream.try_write(words) {
            Ok(count) => words = &words[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The caller's side.
struct Talk {
    handle: Handle,
    caller: Arc<Recorder>,
}

impl Talk {
    fn start(config: Config, endpoint: Endpoint) -> Self {
        let caller = Arc::new(Recorder::default());
        let outcomes: Arc<dyn Caller> = Arc::<Recorder>::clone(&caller);
        let handle = Handle::start(config, endpoint, outcomes, Reader::Keeper).expect("a keeper");
        Self { handle, caller }
    }

    fn ticket(&self, op: u32) -> Ticket {
        let caller: Arc<dyn Caller> = Arc::<Recorder>::clone(&self.caller);
        Ticket::new(OpId(op), caller)
    }

    fn begin(&self, op: u32, command: Command) {
        let _reported = self.handle.submit(&mut vec![Submission::Begin(OpId(op), command)]);
    }

    fn query(&self, op: u32) {
        let question =
            Question { starts_with: "lock:".into(), count: 1_000, ..Question::default() };
        let _reported = self.handle.submit(&mut vec![Submission::Query(self.ticket(op), question)]);
    }

    fn ask(&self, op: u32, command: Command) -> Outcome {
        self.begin(op, command);
        self.outcome(op)
    }

    /// Waits for the outcome.
    fn outcome(&self, op: u32) -> Outcome {
        let outcomes = self.caller.outcomes.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |seen: &mut BTreeMap<OpId, Outcome>| !seen.contains_key(&OpId(op));
        let (mut outcomes, _) = self
            .caller
            .ended
            .wait_timeout_while(outcomes, HANG, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let outcome = outcomes.remove(&OpId(op));
        let outcome = outcome.unwrap_or_else(|| panic!("operation {op} does not end"));
        assert_ne!(outcome, Outcome::Internal, "the core has gone");
        outcome
    }
}

#[derive(Default)]
struct Recorder {
    outcomes: Mutex<BTreeMap<OpId, Outcome>>,
    ended: Condvar,
}

impl Caller for Recorder {
    fn complete(&self, op: OpId, outcome: Outcome) {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner).insert(op, outcome);
        self.ended.notify_all();
    }
    fn lose(&self, _: LeaseId, _: LossReason) {}
    fn tell(&self, _: Notice) {}
    fn ping(&self) {}
    fn last_turn(&self) -> Mono {
        Mono::now()
    }
    fn wake(&self) {}
    fn watch(&self, _: Watch) {}
}
