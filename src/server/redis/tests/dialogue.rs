//! What a new connection says first, and what is made of the server's answers.

use super::scripted::{HANG, Scripted, bulk, calm, deliveries, next, trusting};
use crate::protocol::{Failure, NodeId, quorum};
use crate::server::redis::dialogue::{Dialogue, answer_in, in_time};
use crate::server::redis::stream::Parts;
use crate::server::redis::{Directory, Link, connect};
use crate::server::{
    Address, Asked, Endpoint, Incoming, Login, LoginSource, Replicas, Resp, Welcome,
};
use redis::{PushKind, Value};
use socket2::SockRef;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

const DENIED: &str = "-NOPERM this user has no permissions to run it\r\n";
const MESSAGE: &str = "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n";

fn login(password: &str) -> Login {
    Login::new(None, Some(password.to_owned()))
}

/// Why there is no connection.
async fn failure(endpoint: &Endpoint) -> Failure {
    Dialogue::open(endpoint).await.err().expect("it fails")
}

/// A server that leaves some commands without an answer, and ends the connection.
async fn hanging_up(on: &'static str) -> Scripted {
    Scripted::start(move |words| (words[0] != on).then(|| calm(words))).await
}

#[tokio::test]
async fn a_server_that_hangs_up_without_a_word_may_expect_tls() {
    let (at_once, later) = (hanging_up("HELLO").await, hanging_up("CLIENT").await);
    let with_tls = Scripted::with_tls(|_| None).await;
    for (server, is_advised) in [(at_once, true), (later, false), (with_tls, false)] {
        let why = failure(&server.endpoint()).await.to_string();
        assert_eq!(why.contains("use rediss://"), is_advised, "{why}");
    }
}

#[cfg(unix)]
#[tokio::test]
async fn a_socket_file_has_no_tls() {
    let path = std::env::temp_dir().join(format!("holdfast-{}", uuid::Uuid::new_v4()));
    let listener = tokio::net::UnixListener::bind(&path).unwrap();
    let path = path.to_str().unwrap().to_owned();
    let address = Address::Unix { path: path.clone() };
    let endpoint = Endpoint { address, ..hanging_up("HELLO").await.endpoint() };
    let hanging_up = async { drop(listener.accept().await.unwrap()) };
    let (why, ()) = tokio::join!(failure(&endpoint), hanging_up);
    assert!(!why.to_string().contains("rediss://"), "{why}");
    std::fs::remove_file(path).unwrap();
}

#[tokio::test]
async fn the_last_words_of_a_server_are_the_reason() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let address = Address::Tcp { host: "127.0.0.1".to_owned(), port };
    let endpoint = Endpoint { address, ..hanging_up("HELLO").await.endpoint() };
    let saying = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.read_buf(&mut Vec::new()).await.unwrap();
        stream.write_all(b"-ERR max number of clients reached\r\n").await.unwrap();
    };
    let (why, ()) = tokio::join!(failure(&endpoint), saying);
    assert_eq!(why.to_string(), "ERR max number of clients reached");
}

#[tokio::test]
async fn a_server_without_resp3_is_spoken_to_in_resp2() {
    let unknown = "-ERR unknown command 'HELLO'\r\n";
    let two = "*2\r\n$5\r\nproto\r\n:2\r\n";
    let user = LoginSource::fixed(Some("app".to_owned()), Some("s3cret".to_owned()));
    for (hello, resp, auths) in [
        ("%1\r\n$5\r\nproto\r\n:3\r\n", Resp::Three, vec![]),
        (two, Resp::Two, vec![]),
        (unknown, Resp::Two, vec!["AUTH app s3cret"]),
    ] {
        // Who only names itself is not refused.
        let server = Scripted::but(move |words| match words {
            ["HELLO", ..] => Some(hello),
            ["CLIENT", "SETINFO", ..] => Some("-ERR unknown subcommand\r\n"),
            _ => None,
        })
        .await;
        let endpoint = Endpoint { login_source: user.clone(), ..server.endpoint() };
        let dialogue = Dialogue::open(&endpoint).await.unwrap();
        assert_eq!(dialogue.resp(), resp, "{hello}");
        assert_eq!(server.asked("HELLO"), ["HELLO 3 AUTH app s3cret"]);
        assert_eq!(server.asked("AUTH"), auths, "{hello}");
        assert_eq!(server.asked("CLIENT SETINFO").len(), 2 + 2 * auths.len());
    }
}

#[tokio::test]
async fn a_login_that_is_refused_is_asked_for_once_more() {
    for (answers, opens) in [(["old", "new"], true), (["old", "old"], false)] {
        let server = Scripted::but(|words| match words {
            ["HELLO", "3", "AUTH", _, "old"] => Some("-WRONGPASS invalid\r\n"),
            _ => None,
        })
        .await;
        let (ask, mut questions) = mpsc::unbounded_channel();
        let asked = Arc::new(Asked::new(move || ask.send(()).is_ok()));
        let login_source = LoginSource::Asked(Arc::clone(&asked));
        let endpoint = Endpoint { login_source, ..server.endpoint() };
        let answering = async {
            for password in answers {
                questions.recv().await.unwrap();
                asked.answer(Ok(login(password)), false);
            }
        };
        let (opened, ()) = tokio::join!(Dialogue::open(&endpoint), answering);
        match opened {
            Ok(dialogue) => assert_eq!(dialogue.login().password.as_deref(), Some("new")),
            Err(why) => assert!(why.to_string().starts_with("WRONGPASS"), "{why}"),
        }
        assert_eq!(server.asked("HELLO").len(), 1 + usize::from(opens));
    }
    // Another refusal is not about the login.
    let server = Scripted::but(|words| (words[0] == "HELLO").then_some("-LOADING soon\r\n")).await;
    let asked = Arc::new(Asked::new(|| true));
    asked.answer(Ok(login("a")), false);
    let endpoint =
        Endpoint { login_source: LoginSource::Asked(Arc::clone(&asked)), ..server.endpoint() };
    assert!(failure(&endpoint).await.to_string().starts_with("LOADING"));
}

#[tokio::test]
async fn a_connection_has_the_login_that_the_server_took_last() {
    let server = Scripted::but(|words| match words {
        ["AUTH", "bad"] => Some("-WRONGPASS invalid\r\n"),
        _ => None,
    })
    .await;
    let mut dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
    for (password, taken) in [("new", true), ("bad", false)] {
        let logged_in = dialogue.log_in_again(&Arc::new(login(password))).await;
        assert_eq!(logged_in.is_ok(), taken, "{password}");
        assert_eq!(dialogue.login().password.as_deref(), Some("new"));
    }
    assert_eq!(server.asked("AUTH"), ["AUTH new", "AUTH bad"]);
    dialogue.log_in_again(&Arc::default()).await.unwrap();
    assert_eq!(dialogue.login().password, None, "it needs none");
}

#[tokio::test]
async fn a_connection_sends_at_once_and_notices_a_peer_that_is_gone() {
    let server = Scripted::but(|_| None).await;
    match Parts::open(&server.endpoint()).await.unwrap() {
        Parts::Tcp(stream) => {
            assert!(stream.nodelay().unwrap(), "nothing waits for an acknowledgement");
            assert!(SockRef::from(&stream).keepalive().unwrap(), "a silent peer is checked");
        }
        #[cfg(unix)]
        Parts::Unix(_) => panic!("it is TCP"),
    }
}

#[tokio::test]
async fn who_waits_for_a_connection_in_vain_is_told_what_may_be_wrong() {
    let server = Scripted::but(|_| None).await;
    let asked = LoginSource::Asked(Arc::new(Asked::new(|| true)));
    // The question stays without an answer.
    assert!(timeout(Duration::from_millis(1), asked.login(HANG)).await.is_err());
    let brief = Duration::from_millis(1);
    let plain = Endpoint { connect_timeout: brief, ..server.endpoint() };
    let with_tls = Endpoint { tls: Some(trusting()), ..plain.clone() };
    let asking = Endpoint { login_source: asked, ..with_tls.clone() };
    let why = |endpoint: Endpoint| async move {
        in_time(&endpoint, pending::<Result<(), Failure>>()).await.unwrap_err().to_string()
    };
    let plainly = why(plain.clone()).await;
    assert_eq!(plainly, "no connection within 1 ms");
    let hint = why(with_tls).await;
    assert!(hint.starts_with(&plainly) && hint.ends_with("redis://"), "{hint}");
    let hint = why(asking).await;
    assert!(hint.starts_with(&plainly) && hint.contains("has not answered"), "{hint}");
    assert_eq!(in_time(&plain, ready(Ok(7))).await, Ok(7));
    let silence = answer_in(brief, pending::<Result<(), Failure>>()).await.unwrap_err();
    assert_eq!(silence.to_string(), "no answer within 1 ms");
    assert_eq!(answer_in(HANG, ready(Ok(7))).await, Ok(7));
}

#[tokio::test]
async fn a_database_is_selected_unless_it_is_the_first() {
    let server = Scripted::but(|words| (words == ["SELECT", "9"]).then_some("-ERR no\r\n")).await;
    for db in [0, 3] {
        Dialogue::open_database(&Endpoint { db, ..server.endpoint() }).await.unwrap();
    }
    assert_eq!(server.asked("SELECT"), ["SELECT 3"]);
    assert_eq!(server.asked("HELLO"), ["HELLO 3", "HELLO 3"]);
    let refused = Dialogue::open_database(&Endpoint { db: 9, ..server.endpoint() }).await;
    assert!(refused.is_err(), "the locks would be in another one");
}

#[tokio::test]
async fn messages_that_come_between_are_kept_in_their_order() {
    let server = Scripted::start(|words| {
        let message = || [bulk("message"), bulk("a"), bulk(words[0])].concat();
        let comes = matches!(words[0], "GET" | "SUBSCRIBE");
        let ahead = if comes { format!(">3\r\n{}", message()) } else { String::new() };
        Some(ahead + &calm(words))
    })
    .await;
    let mut dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
    assert_eq!(dialogue.ask_one(redis::cmd("GET").arg("a")).await, Ok(Value::Nil));
    assert_eq!(dialogue.subscribe(&["a".into(), "b".into()]).await, Ok(None));
    assert!(!dialogue.pushes_arrays(), "they are no arrays");
    for text in ["GET", "SUBSCRIBE"] {
        let data = ["a", text].map(|part| Value::BulkString(part.into())).to_vec();
        let message = Value::Push { kind: PushKind::Message, data };
        assert_eq!(dialogue.read().await, Ok(message));
    }
    let more = timeout(Duration::from_millis(1), dialogue.read()).await;
    assert!(more.is_err(), "the confirmations were taken: {more:?}");
}

#[tokio::test]
async fn only_the_first_channel_is_tried() {
    let server = Scripted::but(|_| None).await;
    let channels = vec!["first".into(), "second".into()];
    let (_link, _) = connected(&Endpoint { channels, ..server.endpoint() }).await.unwrap();
    assert_eq!(server.asked("PUBLISH"), ["PUBLISH first "]);
    assert_eq!(server.asked("PUBSUB"), ["PUBSUB NUMSUB first"]);
    assert_eq!(server.asked("SUBSCRIBE"), ["SUBSCRIBE first second"]);
    let probes = server.asked("EVAL ").into_iter();
    assert_eq!(probes.filter(|probe| probe.ends_with(" holdfast:probe first")).count(), 1);
}

#[tokio::test]
async fn in_resp2_a_link_subscribes_beside_itself() {
    let server =
        Scripted::but(|words| (words[0] == "HELLO").then_some("-ERR unknown command 'HELLO'\r\n"))
            .await;
    let (deliver, mut deliveries) = deliveries();
    let directory = Arc::<Directory>::default();
    let endpoint = server.endpoint();
    let (mut link, _) = connect(&endpoint, &directory, NodeId(0), deliver).await.unwrap();
    link.listen("b".into(), true);
    assert!(!link.expects(), "the answer is for the other connection");
    let began = next(&mut deliveries).await;
    assert!(matches!(&began, Incoming::Listening(channel, true) if &**channel == "b"), "{began:?}");
    server.hang_up();
    let ended = next(&mut deliveries).await;
    let why = "the connection for messages: ";
    assert!(matches!(&ended, Incoming::Disconnected(it) if it.starts_with(why)), "{ended:?}");
}

#[tokio::test]
async fn what_an_array_is_depends_on_subscriptions() {
    let server = Scripted::start(|words| match words[0] {
        "MGET" => Some(format!("*{MESSAGE}")),
        _ => Some(calm(words).replace('>', "*")),
    })
    .await;
    let mut dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
    let mut question = redis::cmd("MGET");
    question.arg("a");
    let is_array = |answer: Result<Value, _>| matches!(answer, Ok(Value::Array(_)));
    assert!(is_array(dialogue.ask_one(&question).await), "it is an answer");
    let channels = ["a".into()];
    assert_eq!(dialogue.subscribe(&channels).await, Ok(None));
    assert!(dialogue.pushes_arrays(), "the confirmation was one");
    dialogue.send(&question).await.unwrap();
    assert!(matches!(dialogue.read().await, Ok(Value::Push { .. })), "it is a message");
    dialogue.unsubscribe(&channels).await.unwrap();
    assert!(is_array(dialogue.ask_one(&question).await), "it is an answer again");
}

#[tokio::test]
async fn a_refused_subscription_is_told_and_a_refused_end_leaves_it() {
    let server = Scripted::but(|words| match words {
        ["SUBSCRIBE", "a"] | ["UNSUBSCRIBE", ..] => Some(DENIED),
        ["MGET", ..] => Some("*3\r\n$7\r\nmessage\r\n$1\r\na\r\n$1\r\nb\r\n"),
        _ => None,
    })
    .await;
    let mut dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
    let refused = dialogue.subscribe(&["a".into()]).await.unwrap();
    assert!(matches!(refused, Some(Failure::Refused(_))), "{refused:?}");
    let channels = ["b".into()];
    assert_eq!(dialogue.subscribe(&channels).await, Ok(None));
    dialogue.unsubscribe(&channels).await.unwrap();
    dialogue.send(redis::cmd("MGET").arg("a")).await.unwrap();
    assert!(matches!(dialogue.read().await, Ok(Value::Push { .. })), "it is subscribed still");
}

/// A connection for locks, and what the server allows.
async fn connected(endpoint: &Endpoint) -> Result<(Link, Welcome), Failure> {
    let deliver = Arc::new(|_| ());
    connect(endpoint, &Arc::<Directory>::default(), NodeId(0), deliver).await
}

/// Why there are no messages with a server that answers as `other` says.
async fn without_messages(
    other: impl Fn(&[&str]) -> Option<&'static str> + Send + Sync + 'static,
) -> Result<Option<String>, Failure> {
    let server = Scripted::but(other).await;
    let (_link, welcome) = connected(&server.endpoint()).await?;
    let abilities = welcome.abilities.unwrap();
    assert_eq!(abilities.pubsub, welcome.denied.pubsub.is_none());
    assert!(abilities.clock && abilities.plain_commands, "{abilities:?}");
    Ok(welcome.denied.pubsub)
}

#[tokio::test]
async fn a_server_that_denies_messages_says_why() {
    assert_eq!(without_messages(|_| None).await, Ok(None));
    for command in ["SUBSCRIBE", "PUBLISH", "PUBSUB"] {
        let why = without_messages(move |words| (words[0] == command).then_some(DENIED)).await;
        assert!(why.unwrap().unwrap().starts_with("NOPERM"), "{command}");
        let passes = move |words: &[&str]| (words[0] == command).then_some("-LOADING soon\r\n");
        assert!(without_messages(passes).await.is_err(), "{command}: it may be allowed later");
    }
    let nobody = "*2\r\n$16\r\nholdfast:inbox:a\r\n:0\r\n";
    for hello in [None, Some("-ERR unknown command 'HELLO'\r\n")] {
        let uncounted = without_messages(move |words| match words[0] {
            "PUBSUB" => Some(nobody),
            "HELLO" => hello,
            _ => None,
        });
        let why = uncounted.await.unwrap().unwrap();
        assert!(why.contains("does not count"), "{why}");
    }
}

#[tokio::test]
async fn messages_that_are_arrays_have_a_connection_of_their_own() {
    let arrays = || Scripted::start(|words| Some(calm(words).replace('>', "*")));
    let two = || {
        Scripted::but(|words| (words[0] == "HELLO").then_some("-ERR unknown command 'HELLO'\r\n"))
    };
    let pushes = || Scripted::but(|_| None);
    for (server, tracks, resp, names) in [
        (arrays().await, vec!["ON OPTIN NOLOOP", "OFF"], Resp::Three, 2),
        (two().await, vec![], Resp::Two, 2),
        (pushes().await, vec!["ON OPTIN NOLOOP"], Resp::Three, 1),
    ] {
        let (_link, welcome) = connected(&server.endpoint()).await.unwrap();
        let tracked = server.asked("CLIENT TRACKING");
        let expected = tracks.iter().map(|how| format!("CLIENT TRACKING {how}"));
        assert_eq!(tracked, expected.collect::<Vec<_>>());
        let abilities = welcome.abilities.unwrap();
        assert_eq!((abilities.tracking, abilities.resp), (names == 1, resp));
        assert_eq!(welcome.denied.tracking, !abilities.tracking);
        assert_eq!(server.asked("CLIENT SETNAME scripted").len(), names);
        assert_eq!(abilities.server, server.endpoint().address.to_string());
    }
}

#[tokio::test]
async fn what_locks_cannot_do_without_is_named_with_the_user() {
    let no_time = "-NOPERM this user has no permissions to run the 'time' command\r\n";
    let server = Scripted::but(move |words| (words == ["TIME"]).then_some(no_time)).await;
    for (username, user) in [(None, "default"), (Some("app".to_owned()), "app")] {
        let login_source = LoginSource::fixed(username, Some("s3cret".to_owned()));
        let endpoint = Endpoint { login_source, ..server.endpoint() };
        let why = connected(&endpoint).await.err().unwrap().to_string();
        assert!(why.ends_with(&format!("grant it by ACL SETUSER {user} +time")), "{why}");
    }
    let later = Scripted::but(|words| (words == ["TIME"]).then_some("-LOADING soon\r\n")).await;
    let why = connected(&later.endpoint()).await.err().unwrap().to_string();
    assert!(!why.contains("ACL"), "{why}");
}

/// A connection to a server of a quorum, which gets its channels later.
async fn of_quorum(
    server: &Scripted,
    longest_lease: Option<Duration>,
) -> Result<(Link, Welcome), Failure> {
    let names = vec!["a:1".to_owned()];
    let node_timeout = Duration::from_secs(1);
    let settings = quorum::Settings { servers: names, node_timeout, longest_lease };
    let servers = vec![Endpoint { channels: Vec::new(), ..server.endpoint() }];
    let address = Address::Quorum { servers, settings };
    connected(&Endpoint { address, ..server.endpoint() }).await
}

#[tokio::test]
async fn a_server_of_a_quorum_is_asked_what_its_vote_needs() {
    let forgets = |words: &[&str]| match words {
        ["INFO", "persistence"] => Some("$15\r\naof_enabled:0\r\n\r\n"),
        ["CONFIG", ..] => Some("*2\r\n$11\r\nappendfsync\r\n$8\r\neverysec\r\n"),
        ["MGET", ..] => Some(DENIED),
        _ => None,
    };
    let server = Scripted::but(forgets).await;
    for (longest_lease, risks) in [(None, 1), (Some(HANG), 0)] {
        let (_link, welcome) = of_quorum(&server, longest_lease).await.unwrap();
        assert_eq!(welcome.risks.len(), risks, "{:?}", welcome.risks);
        assert_eq!(welcome.abilities.unwrap().risks, welcome.risks);
        assert_eq!(welcome.denied.plain_commands, None, "a vote uses none");
    }
    assert_eq!(server.asked("CONFIG").len(), 1);
    // Channels of locks come and go, so one of them shows how messages come.
    let tried = server.asked("SUBSCRIBE");
    assert_eq!(server.asked("UNSUBSCRIBE").len(), tried.len());
    assert!(tried.len() == 2 && server.asked("PUBLISH").is_empty(), "{tried:?}");
    let clockless = Scripted::start(|words| match words[0] {
        "EVAL" => {
            let no = bulk("This Redis command is not allowed from scripts");
            Some(format!("*3\r\n{no}{0}{0}", bulk("")))
        }
        _ => Some(calm(words)),
    });
    let why = of_quorum(&clockless.await, None).await.err().unwrap().to_string();
    assert!(why.starts_with("NOCLOCK") && why.contains("not allowed from scripts"), "{why}");
}

#[tokio::test]
async fn the_connections_of_a_manager_have_one_login() {
    let server = Scripted::but(|words| match words[0] {
        "HELLO" => Some("*2\r\n$5\r\nproto\r\n:2\r\n"),
        "WAIT" => Some(":0\r\n"),
        _ => None,
    })
    .await;
    let (ask, mut questions) = mpsc::unbounded_channel();
    let asked = Arc::new(Asked::new(move || ask.send(()).is_ok()));
    let answering = async {
        questions.recv().await.unwrap();
        asked.answer(Ok(login("a")), false);
    };
    let endpoint = Endpoint {
        login_source: LoginSource::Asked(Arc::clone(&asked)),
        replicas: Some(Replicas::AtLeast(1)),
        ..server.endpoint()
    };
    let (opened, ()) = tokio::join!(connected(&endpoint), answering);
    let _link = opened.unwrap();
    // One for requests, one for messages, and one for replicas.
    assert_eq!(server.asked("HELLO"), vec!["HELLO 3 AUTH default a"; 3]);
    assert!(questions.try_recv().is_err(), "it is asked for once");
}
