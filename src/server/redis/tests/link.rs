//! The events that a link reads from a server's answers.

use super::scripted::{HANG, Scripted, calm};
use crate::protocol::{
    Call, Failure, Intent, LockKeys, Message, Mode, Mono, NodeId, Reply, RequestId, SendMode,
    ServerTime, Take, Token,
};
use crate::server::redis::frames::Frames;
use crate::server::redis::link::{Link, Origin};
use crate::server::redis::socket::Socket;
use crate::server::redis::stream::Parts;
use crate::server::redis::{Dialect, Directory, connect};
use crate::server::{Incoming, Item, Login};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::timeout;

const TOKEN: &str = "hf1.client.7";
const REQUEST: RequestId = RequestId(1);

fn keys() -> LockKeys {
    LockKeys::new("lock:", "a")
}

fn token() -> Token {
    Token::from_text(TOKEN)
}

fn call(call: Call, send_mode: SendMode) -> Item {
    Item::Call { request: REQUEST, call, send_mode }
}

fn take() -> Item {
    let ttl = Duration::from_secs(1);
    call(Call::Take { keys: keys(), token: token(), ttl, block: 1 }, SendMode::Plain)
}

fn renewal() -> Item {
    let ttl = Duration::from_secs(1);
    call(Call::Renew { keys: keys(), token: token(), ttl }, SendMode::Plain)
}

/// The answer to a renewal.
fn renewed() -> String {
    replied(Ok(Reply::Owner(true)))
}

fn release(send_mode: SendMode) -> Item {
    let epoch = ServerTime::from_micros(0);
    call(Call::Release { keys: keys(), token: token(), epoch, shared: false }, send_mode)
}

async fn open(server: &Scripted) -> Link {
    let directory = Arc::<Directory>::default();
    let deliver = Arc::new(|incoming| panic!("{incoming:?}"));
    connect(&server.endpoint(), &directory, NodeId(0), deliver).await.unwrap().0
}

/// The first `count` events, as texts.
async fn events(link: &mut Link, count: usize) -> Vec<String> {
    let (socket, mut events) = (Arc::clone(link.socket()), Vec::new());
    link.flush();
    let reading = socket.while_readable(|| {
        link.read(&mut events);
        events.len() < count && !socket.is_over()
    });
    timeout(HANG, reading).await.expect("the events come").unwrap();
    events.iter().map(text).collect()
}

fn text(event: &Incoming) -> String {
    format!("{event:?}")
}

fn replied(reply: Result<Reply, Failure>) -> String {
    text(&Incoming::Reply(REQUEST, reply))
}

/// The events after `items`, which are sent behind the handshake, to a server that answers as `other` says, and an
/// acknowledged renewal behind them.
async fn heard(
    items: &[Item],
    other: impl Fn(&[&str]) -> Option<&'static str> + Send + Sync + 'static,
) -> Vec<String> {
    let server = Scripted::but(other).await;
    let mut link = open(&server).await;
    link.send(items);
    link.send(&[renewal()]);
    let mut heard = Vec::new();
    while link.expects() {
        heard.extend(events(&mut link, 1).await);
        assert!(!link.socket().is_over(), "the connection lasts: {heard:?}");
    }
    assert_eq!(heard.pop(), Some(renewed()), "the renewal is answered last: {heard:?}");
    heard
}

#[tokio::test]
async fn a_tracked_lock_has_changed_unless_its_token_is_there() {
    let changed = text(&Incoming::Message(Message::Changed(keys())));
    for (token, answer, has_changed) in [
        (Some(token()), "_\r\n", true),
        (Some(token()), "$12\r\nhf1.client.7\r\n", false),
        (Some(token()), "$13\r\nhf1.client.7+\r\n", false),
        (Some(token()), "$12\r\nhf1.client.8\r\n", true),
        (None, "$12\r\nhf1.client.8\r\n", false),
        (None, "_\r\n", true),
        (None, "-WRONGTYPE it is a hash\r\n", true),
        (None, "-LOADING soon\r\n", false),
        (None, ":1\r\n", false),
    ] {
        let expected = if has_changed { vec![changed.clone()] } else { Vec::new() };
        let answers = move |words: &[&str]| matches!(words, ["GET", "lock:a"]).then_some(answer);
        assert_eq!(
            heard(&[Item::Track { keys: keys(), token }], answers).await,
            expected,
            "{answer}"
        );
    }
}

#[tokio::test]
async fn tracking_is_denied_by_an_error_that_lasts() {
    let denied = text(&Incoming::TrackingDenied);
    for (answer, expected) in [
        ("+OK\r\n", Vec::new()),
        ("-LOADING soon\r\n", Vec::new()),
        ("-ERR CLIENT CACHING can be called only when tracking is on\r\n", vec![denied]),
    ] {
        let answers = move |words: &[&str]| match words {
            ["CLIENT", "CACHING", "YES"] => Some(answer),
            ["GET", "lock:a"] => Some("$1\r\nx\r\n"),
            _ => None,
        };
        let track = Item::Track { keys: keys(), token: None };
        assert_eq!(heard(&[track], answers).await, expected, "{answer}");
    }
}

#[tokio::test]
async fn a_probe_that_fails_leaves_the_next_one_as_it_is() {
    let refuses = AtomicBool::new(false);
    let probes = [1, 2].map(|us| Item::Probe { sent: Mono::from_micros(us) });
    let answers = move |words: &[&str]| match words {
        // The first one after the handshake.
        ["TIME"] if refuses.swap(false, Ordering::Relaxed) => Some("-LOADING soon\r\n"),
        ["PUBSUB", ..] => {
            refuses.store(true, Ordering::Relaxed);
            None
        }
        _ => None,
    };
    let heard = heard(&probes, answers).await;
    let [answer] = &heard[..] else { panic!("{heard:?}") };
    let second = format!("{:?}", Mono::from_micros(2));
    assert!(answer.starts_with("Probed") && answer.contains(&second), "{answer}");
}

#[tokio::test]
async fn a_lock_is_taken_by_three_answers_however_they_arrive() {
    let reply = |number, take| text(&Incoming::Reply(RequestId(number), Ok(Reply::Take(take))));
    for (answers, expected) in [
        (["+OK\r\n", ":5\r\n", "*2\r\n$12\r\nhf1.client.7\r\n_\r\n"], Take::Taken { last: 5 }),
        (["+OK\r\n", ":5\r\n", "*2\r\n$13\r\nhf1.client.7+\r\n:1\r\n"], Take::Overtaken),
        (["_\r\n", ":5\r\n", "*2\r\n$12\r\nhf1.client.8\r\n_\r\n"], Take::Held),
        (["_\r\n", ":5\r\n", "*2\r\n_\r\n_\r\n"], Take::Unseen),
        (["+OK\r\n", "-OOM none left\r\n", "*2\r\n$12\r\nhf1.client.7\r\n_\r\n"], Take::Unfenced),
        // The last answer alone.
        (["", "+OK\r\n:5\r\n", "*2\r\n$12\r\nhf1.client.7\r\n_\r\n"], Take::Taken { last: 5 }),
    ] {
        let server = Scripted::but(move |words| match words {
            ["SET", "lock:a", ..] => Some(answers[0]),
            ["INCRBY", ..] => Some(answers[1]),
            ["MGET", "lock:a", ..] => Some(answers[2]),
            _ => None,
        })
        .await;
        let mut link = open(&server).await;
        let mut takes = [take(), take(), take()];
        for (item, number) in takes.iter_mut().zip(1..) {
            if let Item::Call { request, .. } = item {
                *request = RequestId(number);
            }
        }
        link.send(&takes);
        assert_eq!(events(&mut link, 3).await, [1, 2, 3].map(|number| reply(number, expected)));
        assert!(!link.expects() && !link.has_backlog(), "nothing is left");
    }
}

#[tokio::test]
async fn a_redirected_request_follows_asking_whose_answer_concerns_nobody() {
    let answers = |words: &[&str]| match words {
        ["ASKING"] => Some("-ERR This instance has cluster support disabled\r\n"),
        ["EVAL", _, _, "lock:a", ..] => Some(":1\r\n"),
        _ => None,
    };
    let heard = heard(&[release(SendMode::Asking(NodeId(1)))], answers).await;
    assert_eq!(heard, [replied(Ok(Reply::Owner(true)))]);
}

#[tokio::test]
async fn a_redirection_names_a_server_of_a_cluster() {
    let moved = |words: &[&str]| {
        matches!(words, ["EVALSHA", _, _, "lock:a", ..]).then_some("-MOVED 1 :7001\r\n")
    };
    let server = Scripted::but(moved).await;
    let mut link = open(&server).await;
    let directory = Arc::<Directory>::default();
    let name = ("10.0.0.1".to_owned(), 7000);
    let node = directory.node("10.0.0.1", 7001).unwrap();
    link.set_origin(name, Origin { host: "10.0.0.1".to_owned(), directory });
    link.send(&[release(SendMode::Plain)]);
    assert_eq!(events(&mut link, 1).await, [replied(Err(Failure::Moved(node)))]);
    server.hang_up();
    let ended = events(&mut link, 1).await;
    assert!(ended[0].starts_with("Disconnected(\"10.0.0.1:7000: "), "{ended:?}");
}

/// Tells that the lock is free.
const MESSAGE: &str =
    ">3\r\n$7\r\nmessage\r\n$20\r\nholdfast:free:lock:a\r\n$11\r\nfree lock:a\r\n";

#[tokio::test]
async fn a_message_that_came_with_the_handshake_is_the_first_event() {
    let server = Scripted::start(|words| {
        let ahead = if words[0] == "PUBLISH" { MESSAGE } else { "" };
        Some(format!("{ahead}{}", calm(words)))
    })
    .await;
    let mut link = open(&server).await;
    link.send(&[renewal()]);
    let freed = text(&Incoming::Message(Message::Freed(keys())));
    assert_eq!(events(&mut link, 2).await, [freed, renewed()]);
}

/// A request for a share, which others may join.
fn share(request: u64) -> Item {
    let call = Call::Acquire {
        keys: keys(),
        token: Token::from_text(&format!("hf1.client.{request}")),
        ttl: Duration::from_secs(1),
        epoch: ServerTime::from_micros(0),
        block: 1,
        inbox: "".into(),
        intent: Intent::Join(None),
        mode: Mode::SHARED,
    };
    Item::Call { request: RequestId(request), call, send_mode: SendMode::Plain }
}

#[tokio::test]
async fn shares_together_bring_their_script_until_the_server_has_it() {
    let forgets = AtomicBool::new(false);
    let server = Scripted::but(move |words| match words {
        ["EVAL", _, _, "lock:a", ..] => Some("*2\r\n:7\r\n:0\r\n"),
        ["EVALSHA", _, _, "lock:a", ..] if !forgets.swap(true, Ordering::Relaxed) => {
            Some("*2\r\n:9\r\n:1\r\n")
        }
        _ => None,
    })
    .await;
    let mut link = open(&server).await;
    let joined = |fence| Ok(Reply::Joined { fence });
    let alone = || Err(Failure::Together);
    for [first, second] in [
        [Ok(Reply::Granted { fence: 7 }), joined(8)],
        [joined(9), joined(10)],
        [alone(), alone()],
        [Ok(Reply::Granted { fence: 7 }), joined(8)],
    ] {
        link.send(&[renewal()]);
        link.send(&[share(1), share(2)]);
        let [first, second] = [(1, first), (2, second)]
            .map(|(number, reply)| text(&Incoming::Reply(RequestId(number), reply)));
        assert_eq!(events(&mut link, 3).await, [renewed(), first, second]);
    }
    let asked = server.asked("EVAL").into_iter().filter(|command| command.contains(" lock:a "));
    let commands: Vec<_> = asked.map(|it| it.starts_with("EVALSHA ")).collect();
    assert_eq!(commands, [false, true, true, false]);
}

#[tokio::test]
async fn only_a_confirmation_changes_what_is_listened_to() {
    const REFUSED: &str = "-NOPERM no permissions to access channel\r\n";
    const CONFIRMED: &str = ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
    const ENDED: &str = ">3\r\n$11\r\nunsubscribe\r\n$1\r\nb\r\n:1\r\n";
    let freed = text(&Incoming::Message(Message::Freed(keys())));
    let began = text(&Incoming::Listening("b".into(), true));
    for (on, answers, expected) in [
        (true, [MESSAGE, CONFIRMED], vec![freed.clone(), began]),
        (false, [MESSAGE, ENDED], vec![freed.clone()]),
        (false, [MESSAGE, REFUSED], vec![freed.clone()]),
    ] {
        let answer = answers.concat();
        let server = Scripted::start(move |words| match words {
            ["SUBSCRIBE" | "UNSUBSCRIBE", "b"] => Some(answer.clone()),
            _ => Some(calm(words)),
        })
        .await;
        let mut link = open(&server).await;
        link.listen("b".into(), on);
        link.send(&[renewal()]);
        let count = expected.len() + 1;
        assert_eq!(events(&mut link, count).await, [expected, vec![renewed()]].concat());
    }
    let server = Scripted::but(|words| (words == ["SUBSCRIBE", "b"]).then_some(REFUSED)).await;
    let mut link = open(&server).await;
    link.listen("b".into(), true);
    let denied = events(&mut link, 1).await;
    assert!(denied[0].starts_with("PubsubDenied"), "{denied:?}");
}

#[tokio::test]
async fn who_logs_in_again_is_told_what_the_server_says() {
    let with = |password: &str| Login::new(None, Some(password.to_owned()));
    let server = Scripted::but(|words| match words {
        ["AUTH", "bad"] => Some("-WRONGPASS invalid\r\n"),
        _ => None,
    })
    .await;
    let mut link = open(&server).await;
    let mut log_in = |login: &Login| {
        let (tell, told) = oneshot::channel();
        link.log_in(login, tell);
        told
    };
    let (bad, good) = (log_in(&with("bad")), log_in(&with("good")));
    // Nobody waits for the answer to this one.
    drop(log_in(&with("bad")));
    let mut without = log_in(&Login::default());
    assert_eq!(without.try_recv(), Ok(Ok(())), "without a password there is nothing to say");
    link.send(&[renewal()]);
    events(&mut link, 1).await;
    assert_eq!(bad.await.unwrap().map_err(|refusal| refusal.code), Err("WRONGPASS".to_owned()));
    assert_eq!(good.await, Ok(Ok(())));
    assert_eq!(server.asked("AUTH"), ["AUTH bad", "AUTH good", "AUTH bad"]);
}

#[tokio::test]
async fn a_connection_that_makes_no_sense_is_lost() {
    for answer in [
        // Two answers to one command.
        Some("+OK\r\n+OK\r\n"),
        Some("HTTP/1.1 400 Bad Request\r\n"),
        None,
    ] {
        let server = Scripted::start(move |words| match words {
            ["SET", "lock:a", ..] => answer.map(str::to_owned),
            _ => Some(calm(words)),
        })
        .await;
        let mut link = open(&server).await;
        link.set_name("the server");
        link.send(&[renewal()]);
        let heard = events(&mut link, usize::MAX).await;
        let lost = heard.last().unwrap();
        assert!(lost.starts_with("Disconnected(\"the server: "), "{heard:?}");
        let mut more = Vec::new();
        link.read(&mut more);
        assert!(more.is_empty(), "a loss is reported once: {more:?}");
    }
}

#[tokio::test]
async fn what_the_kernel_does_not_take_at_once_is_written_later() {
    // More than the buffers of the kernel hold, on both sides.
    const COUNT: usize = 2_500;
    write_all_of(COUNT, &Scripted::but(|_| None).await).await;
    write_all_of(COUNT, &Scripted::with_tls(|words| Some(calm(words))).await).await;
}

#[tokio::test]
async fn all_that_tls_has_read_is_an_event() {
    // More than TLS keeps to be written, and less than the kernel takes.
    const COUNT: usize = 2_000;
    let server = Scripted::with_tls(|words| Some(calm(words))).await;
    let mut link = open(&server).await;
    link.send(&std::iter::repeat_with(renewal).take(COUNT).collect::<Vec<_>>());
    link.flush();
    assert!(!link.has_backlog(), "all is written at once");
    assert_eq!(events(&mut link, COUNT).await, vec![renewed(); COUNT]);
    server.hang_up();
    let ended = events(&mut link, 1).await;
    assert_eq!(ended, [r#"Disconnected("the server closed the connection")"#]);
}

async fn write_all_of(count: usize, server: &Scripted) {
    let mut link = open(server).await;
    let (ttl, keys) = (Duration::from_secs(1), LockKeys::new("lock:", &"a".repeat(4_000)));
    let renew = || Call::Renew { keys: keys.clone(), token: token(), ttl };
    let large = std::iter::repeat_with(|| call(renew(), SendMode::Plain));
    link.send(&large.take(count).collect::<Vec<_>>());
    link.flush();
    // The server has had no turn on this thread yet.
    assert!(link.has_backlog(), "the kernel takes a part");
    let (mut events, began, reserved) = (Vec::new(), Mono::now(), link.reserved());
    while events.len() < count && Mono::now().since(began) < HANG {
        tokio::task::yield_now().await;
        link.flush();
        link.read(&mut events);
    }
    assert!(!link.has_backlog() && !link.expects(), "all is written and answered");
    assert!(link.reserved() < reserved / 4, "{} of {reserved} bytes are kept", link.reserved());
    assert_eq!(server.asked("SET lock:a").len(), count);
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn what_was_not_delivered_is_discarded_by_an_abort_alone() {
    for aborts in [false, true] {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut peer, _) = listener.accept().await.unwrap();
        let socket = Socket::try_from(Parts::Tcp(stream)).unwrap();
        let mut link = Link::new(socket, None, Frames::new(), Vec::new(), None, Dialect::PLAIN);
        link.send(&[release(SendMode::Plain)]);
        link.flush();
        // A task that waits for the socket keeps it open.
        let waiter = Arc::clone(link.socket());
        if aborts {
            link.abort();
        } else {
            drop(link);
        }
        assert!(waiter.is_over(), "the waiter lets go");
        let read = timeout(HANG, peer.read_to_end(&mut Vec::new())).await.expect("it ends");
        assert_eq!(read.is_err(), aborts, "{read:?}");
    }
}
