//! Connections of their own: those of operators, of replicas and of Sentinels, and logins that end.

use super::scripted::{Answer, HANG, Scripted, bulk, calm, deliveries, next};
use crate::protocol::query::Question;
use crate::protocol::{Failure, Mono, NodeId, Refusal, TokenId};
use crate::server::redis::dialogue::Dialogue;
use crate::server::redis::replicas::ReplicaAcker;
use crate::server::redis::subscriber::{Channels, Subscriber};
use crate::server::redis::{Directory, connect, login_renewal, page, sentinel, survey};
use crate::server::{Address, Asked, Deliver, Endpoint, Incoming, Login, LoginSource, Replicas};
use crate::server::{Sentinel, Sentinels};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::time::timeout;

fn refused(failure: &Failure) -> &str {
    match failure {
        Failure::Refused(refusal) => &refusal.code,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_survey_has_an_answer_to_each_question_and_tells_refusals() {
    let server = Scripted::but(|words| match words {
        ["DBSIZE"] => Some(":3\r\n"),
        ["CONFIG", ..] => Some("-NOPERM no permissions to run 'config'\r\n"),
        _ => None,
    })
    .await;
    let questions = [&["DBSIZE"][..], &["CONFIG", "GET", "save"]];
    let questions = questions.map(|words| words.iter().map(ToString::to_string).collect());
    let surveys = survey(&Arc::new(server.endpoint()), questions.to_vec()).await.unwrap();
    let [survey] = &surveys[..] else { panic!("{surveys:?}") };
    assert_eq!(survey.server, server.endpoint().address.to_string());
    assert_eq!((&survey.failure, survey.round_trips.len()), (&None, 6));
    // The server's clock stands in 2023.
    assert!(survey.ahead < -1_000_000, "{}", survey.ahead);
    let [size, config] = &survey.answers[..] else { panic!("{survey:?}") };
    assert_eq!((&*size.text, size.refused), ("3", false));
    assert!(config.refused && config.text.starts_with("NOPERM"), "{config:?}");
}

#[tokio::test]
async fn a_survey_without_the_right_to_the_time_goes_on_and_one_without_a_server_fails() {
    let denied = Scripted::but(|words| match words {
        ["TIME"] => Some("-NOPERM no permissions to run 'time'\r\n"),
        ["DBSIZE"] => Some(":3\r\n"),
        _ => None,
    })
    .await;
    // They hang up on a question.
    let [at_time, at_question] = ["TIME", "DBSIZE"]
        .map(|last| Scripted::start(move |words| (words != [last]).then(|| calm(words))));
    let questions = || vec![vec!["DBSIZE".to_owned()]];
    let survey = |server: Endpoint| async move {
        survey(&Arc::new(server), questions()).await.unwrap().remove(0)
    };
    let answered = survey(denied.endpoint()).await;
    assert_eq!((&answered.failure, answered.round_trips.len()), (&None, 0));
    assert_eq!(answered.answers.len(), 1);
    for server in [at_time.await, at_question.await] {
        let failed = survey(server.endpoint()).await;
        assert!(failed.failure.is_some() && failed.answers.is_empty(), "{failed:?}");
        assert_eq!(failed.server, server.endpoint().address.to_string());
    }
}

/// The keys of a page about the keys `lock:…`.
async fn keys(server: &Scripted, count: u32) -> Result<(Vec<String>, String), Failure> {
    let question = Question { starts_with: "lock:".to_owned(), count, ..Question::default() };
    let endpoint = Arc::new(server.endpoint());
    let page = page(&endpoint, &Arc::default(), &question, HANG).await?;
    Ok((page.held.into_iter().map(|holding| holding.key).collect(), page.cursor))
}

/// A server with the keys `lock:a` and `lock:b`, of which it answers as `about` says.
async fn with_two_keys(
    about: impl Fn(&[&str], &str) -> Answer + Send + Sync + 'static,
) -> Scripted {
    Scripted::start(move |words| match words {
        ["SCAN", ..] => {
            Some(format!("*2\r\n{}*2\r\n{}{}", bulk("0"), bulk("lock:a"), bulk("lock:b")))
        }
        ["EVAL" | "EVALSHA", _, _, key @ ("lock:a" | "lock:b"), ..] => about(words, key),
        _ => Some(calm(words)),
    })
    .await
}

fn held() -> String {
    format!("*4\r\n{}:1000\r\n*0\r\n*0\r\n", bulk("hf1.client.7"))
}

#[tokio::test]
async fn a_page_leaves_out_keys_that_are_no_locks_or_forbidden() {
    for (refusal, code) in [
        ("-WRONGTYPE it is a hash\r\n", None),
        ("-NOPERM this user has no permissions to access one of the keys\r\n", Some("NOPERM")),
    ] {
        let one = with_two_keys(move |_, key| {
            Some(if key == "lock:a" { refusal.to_owned() } else { held() })
        });
        assert_eq!(keys(&one.await, 100).await.unwrap().0, ["lock:b"], "{refusal}");
        // If the user may read none, an empty page would be wrong.
        let none = keys(&with_two_keys(move |_, _| Some(refusal.to_owned())).await, 100).await;
        match code {
            None => assert!(none.unwrap().0.is_empty(), "no key is a lock"),
            Some(code) => assert_eq!(refused(&none.unwrap_err()), code),
        }
    }
    // A key that is no lock is one that the user may read.
    let neither = with_two_keys(|_, key| {
        let denied = "-NOPERM this user has no permissions to access one of the keys\r\n";
        Some(if key == "lock:a" { "-WRONGTYPE it is a hash\r\n" } else { denied }.to_owned())
    });
    assert!(keys(&neither.await, 100).await.unwrap().0.is_empty(), "there is no lock");
    // It concerns all keys, or the server.
    for refusal in ["-NOPERM no permissions to run the 'evalsha' command\r\n", "-LOADING soon\r\n"]
    {
        let server = with_two_keys(move |_, key| {
            Some(if key == "lock:a" { refusal.to_owned() } else { held() })
        });
        assert!(keys(&server.await, 100).await.is_err(), "{refusal}");
    }
}

#[tokio::test]
async fn a_page_about_one_key_scans_nothing_and_shows_the_value_of_other_code() {
    let server = with_two_keys(|words, _| {
        let theirs = format!("*4\r\n{}:1000\r\n*0\r\n*0\r\n", bulk("theirs"));
        Some(if words.last() == Some(&"foreign") { theirs } else { "*0\r\n".to_owned() })
    })
    .await;
    let one = Question { starts_with: "lock:b".to_owned(), whole_key: true, ..Question::default() };
    let endpoint = Arc::new(server.endpoint());
    let page = page(&endpoint, &Arc::default(), &one, HANG).await.unwrap();
    let [held] = &page.held[..] else { panic!("{page:?}") };
    assert_eq!((&*held.key, &*held.token, &*page.cursor), ("lock:b", "theirs", ""));
    assert!(server.asked("SCAN").is_empty(), "the key is known");
    assert!(keys(&server, 100).await.unwrap().0.is_empty(), "among all keys it may be anything");
}

#[tokio::test]
async fn a_page_sends_its_script_to_a_server_that_lacks_it() {
    let has = with_two_keys(|_, _| Some(held())).await;
    keys(&has, 100).await.unwrap();
    assert!(has.asked("EVAL ").is_empty(), "the server has it");
    let lacks = |words: &[&str]| match words[0] {
        "EVALSHA" => Some("-NOSCRIPT No matching script\r\n".to_owned()),
        _ => Some(held()),
    };
    let server = with_two_keys(move |words, _| lacks(words)).await;
    assert_eq!(keys(&server, 100).await.unwrap().0, ["lock:a", "lock:b"]);
    let forgets = with_two_keys(|_, _| Some("-NOSCRIPT No matching script\r\n".to_owned())).await;
    assert_eq!(keys(&forgets, 100).await, Err(Failure::NoScript));
}

#[tokio::test]
async fn a_page_examines_no_more_keys_than_it_was_asked_for() {
    let server = Scripted::start(|words| match words {
        ["SCAN", ..] => Some(format!("*2\r\n{}*0\r\n", bulk("7"))),
        _ => Some(calm(words)),
    })
    .await;
    let (found, cursor) = keys(&server, 700).await.unwrap();
    assert!(found.is_empty() && cursor.contains('7'), "{cursor}");
    assert_eq!(
        server.asked("SCAN"),
        ["SCAN 0 MATCH lock:* COUNT 500", "SCAN 7 MATCH lock:* COUNT 200"]
    );
}

/// `data`: the replication id of the data that the grants are in.
async fn acker(
    server: &Scripted,
    replicas: Replicas,
    data: &str,
    deliver: Deliver,
) -> Result<ReplicaAcker, Failure> {
    let (endpoint, directory) = (server.endpoint(), Arc::<Directory>::default());
    let data = Some(data.to_owned());
    ReplicaAcker::open((&endpoint, &endpoint), replicas, data, &directory, deliver).await
}

#[tokio::test]
async fn a_grant_is_confirmed_once_enough_replicas_have_it() {
    for (count, acknowledged, enough) in
        [(2, ":2\r\n", true), (2, ":1\r\n", false), (1, ":3\r\n", true)]
    {
        let server = Scripted::but(move |words| (words[0] == "WAIT").then_some(acknowledged)).await;
        let (deliver, mut deliveries) = deliveries();
        let acker = acker(&server, Replicas::AtLeast(count), "run/data", deliver).await.unwrap();
        acker.confirm(TokenId(7));
        match next(&mut deliveries).await {
            Incoming::Confirmed(TokenId(7), verdict) => assert_eq!(verdict.is_ok(), enough),
            other => panic!("{other:?}"),
        }
        let asked = server.asked("WAIT");
        assert!(asked[1].starts_with(&format!("WAIT {count} ")), "{asked:?}");
    }
}

#[tokio::test]
async fn a_connection_has_its_grants_confirmed() {
    let server = Scripted::but(|words| (words[0] == "WAIT").then_some(":1\r\n")).await;
    let replicas = Some(Replicas::AtLeast(1));
    let (deliver, mut deliveries) = deliveries();
    let endpoint = Endpoint { replicas, ..server.endpoint() };
    let directory = Arc::<Directory>::default();
    let (link, _) = connect(&endpoint, &directory, NodeId(0), deliver).await.unwrap();
    link.confirm(TokenId(7));
    let confirmed = next(&mut deliveries).await;
    assert!(matches!(confirmed, Incoming::Confirmed(TokenId(7), Ok(()))), "{confirmed:?}");
}

#[tokio::test]
async fn a_majority_counts_the_replicas_that_were_seen() {
    for (connected, needed) in [("0", 1), ("1", 1), ("2", 1), ("3", 2), ("4", 2)] {
        let server = Scripted::start(move |words| {
            if let ["WAIT", count, _] = words {
                return Some(format!(":{count}\r\n"));
            }
            let connected = format!("connected_slaves:{connected}\r\n");
            // The length of the text stays as it is.
            Some(calm(words).replace("connected_slaves:0\r\n", &connected))
        })
        .await;
        let (deliver, mut deliveries) = deliveries();
        let acker = acker(&server, Replicas::Majority, "run/data", deliver).await.unwrap();
        acker.confirm(TokenId(7));
        assert!(
            matches!(next(&mut deliveries).await, Incoming::Confirmed(_, Ok(()))),
            "{connected}"
        );
        let last = server.asked("WAIT").pop().unwrap();
        assert!(last.starts_with(&format!("WAIT {needed} ")), "{connected}: {last}");
    }
}

#[tokio::test]
async fn a_server_with_other_data_or_a_refusal_confirms_nothing() {
    for (data, answer) in
        [("other/data", ":1\r\n"), ("run/data", "-ERR unknown command 'WAIT'\r\n")]
    {
        let server = Scripted::but(move |words| (words[0] == "WAIT").then_some(answer)).await;
        let (deliver, _deliveries) = deliveries();
        assert!(acker(&server, Replicas::AtLeast(1), data, deliver).await.is_err(), "{answer}");
    }
}

#[tokio::test]
async fn a_login_that_is_refused_once_more_is_told_and_asked_for_until_it_is_taken() {
    let asked = Arc::new(Asked::new(|| true));
    let login = |password: &str| Login::new(None, Some(password.to_owned()));
    let first = Arc::new(login("a"));
    let endpoint = Endpoint {
        login_source: LoginSource::Asked(Arc::clone(&asked)),
        ..Scripted::but(|_| None).await.endpoint()
    };
    let (deliver, mut deliveries) = deliveries();
    let renewing = tokio::spawn(login_renewal::renew(endpoint, first, deliver));
    let refusal = || Err(Refusal { code: "WRONGPASS".to_owned(), detail: String::new() });
    for (password, answer, is_told) in [
        ("b", refusal(), false),
        ("c", refusal(), true),
        ("d", Ok(()), false),
        ("e", refusal(), false),
    ] {
        asked.answer(Ok(login(password)), true);
        match next(&mut deliveries).await {
            Incoming::Login(login, tell) => {
                assert_eq!(login.password.as_deref(), Some(password));
                tell.send(answer).unwrap();
            }
            other => panic!("{other:?}"),
        }
        if is_told {
            let told = next(&mut deliveries).await;
            assert!(matches!(told, Incoming::LoginNotRenewed(_)), "{told:?}");
        }
    }
    asked.answer(Ok(login("f")), true);
    match next(&mut deliveries).await {
        // The connection has ended.
        Incoming::Login(_, tell) => drop(tell),
        other => panic!("{other:?}"),
    }
    timeout(HANG, renewing).await.expect("it ends with its connection").unwrap();
}

/// A Sentinel that names the master at a port of this host, or is silent.
async fn sentinel(port: Option<u16>) -> Scripted {
    Scripted::start(move |words| match (words[0], port) {
        ("SENTINEL", Some(port)) => {
            Some(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string())))
        }
        ("SENTINEL", None) => Some(String::new()),
        _ => Some(calm(words)),
    })
    .await
}

fn sentinels(all: &[Scripted]) -> Sentinels {
    let one = |server: &Scripted| Sentinel {
        host: "127.0.0.1".to_owned(),
        port: server.port(),
        login_source: LoginSource::fixed(None, None),
    };
    Sentinels { master: "my".to_owned(), all: all.iter().map(one).collect() }
}

/// The ports of the masters that these name, and whether those that are silent were waited for, for so long at most.
async fn named(
    ports: &[Option<u16>],
    known: Option<u16>,
    limit: Duration,
) -> (Result<Vec<String>, Failure>, bool) {
    let mut all = Vec::new();
    for port in ports {
        all.push(sentinel(*port).await);
    }
    let directory = Directory::default();
    if let Some(port) = known {
        directory.set_master(("127.0.0.1".to_owned(), port));
    }
    // Half of it is for the Sentinels.
    let endpoint = Endpoint { connect_timeout: limit * 2, ..all[0].endpoint() };
    let began = Mono::now();
    let masters = sentinel::masters(&endpoint, &sentinels(&all), &directory).await;
    let waited = Mono::now().since(began) >= limit;
    let address = |master: Endpoint| master.address.to_string();
    (masters.map(|masters| masters.into_iter().map(address).collect()), waited)
}

#[tokio::test]
async fn sentinels_are_waited_for_until_a_majority_or_the_known_master_is_named() {
    let (short, long) = (Duration::from_secs(2), HANG / 2);
    let at = |port: u16| format!("127.0.0.1:{port}");
    for (ports, known, limit, expected, waited) in [
        (vec![Some(1), Some(1), None], None, long, vec![at(1)], false),
        // Half of them are no majority.
        (vec![Some(1), None], Some(2), short, vec![at(1)], true),
        (vec![Some(1), None], Some(1), long, vec![at(1)], false),
        (vec![Some(1), Some(2), Some(2)], Some(1), long, vec![at(2), at(1)], false),
    ] {
        let (named, has_waited) = named(&ports, known, limit).await;
        // Those that answer after a majority has agreed are not counted.
        assert!(expected.starts_with(&named.unwrap()), "{ports:?}");
        assert_eq!(has_waited, waited, "{ports:?}, known: {known:?}");
    }
    let (nobody, _) = named(&[None], None, short / 20).await;
    assert!(nobody.is_err(), "nobody names a master");
}

#[tokio::test]
async fn a_master_is_left_once_a_sentinel_names_another() {
    let switch = |to: u16| {
        let message = format!("my 127.0.0.1 1 127.0.0.1 {to}");
        format!(">3\r\n{}{}{}", bulk("message"), bulk("+switch-master"), bulk(&message))
    };
    let master = Scripted::but(|_| None).await;
    let port = master.port();
    // A late report of a failover that was followed, and another one.
    for (to, leaves) in [(vec![port, 1], true), (vec![port], false)] {
        let pushes: String = to.iter().map(|to| switch(*to)).collect();
        let watched = Scripted::start(move |words| match words[0] {
            "SENTINEL" => Some(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string()))),
            "SUBSCRIBE" => Some(format!("{}{pushes}", calm(words))),
            _ => Some(calm(words)),
        })
        .await;
        let all = [watched];
        let (deliver, mut deliveries) = deliveries();
        let address = Address::Sentinel(sentinels(&all));
        let endpoint = Endpoint { address, ..all[0].endpoint() };
        let directory = Arc::<Directory>::default();
        let connecting = connect(&endpoint, &directory, NodeId(0), deliver);
        let (link, _) = connecting.await.unwrap();
        assert_eq!(directory.master(), Some(("127.0.0.1".to_owned(), port)));
        if leaves {
            let left = next(&mut deliveries).await;
            assert!(
                matches!(&left, Incoming::Disconnected(why) if why.ends_with(":1")),
                "{left:?}"
            );
        } else {
            // The question for a failover that was missed follows the subscription.
            while all[0].asked("SENTINEL").len() < 2 {
                tokio::task::yield_now().await;
            }
        }
        drop(link);
        assert!(deliveries.recv().await.is_none(), "nothing else is delivered");
    }
}

#[tokio::test]
async fn a_failover_that_was_missed_is_asked_for() {
    let master = Scripted::but(|_| None).await;
    let port = master.port();
    let asked = AtomicBool::new(false);
    let watched = Scripted::start(move |words| match words[0] {
        "SENTINEL" => {
            // It was noticed after the first question.
            let port = if asked.swap(true, Ordering::Relaxed) { 1 } else { port };
            Some(format!("*2\r\n{}{}", bulk("127.0.0.1"), bulk(&port.to_string())))
        }
        _ => Some(calm(words)),
    })
    .await;
    let all = [watched];
    let endpoint = Endpoint { address: Address::Sentinel(sentinels(&all)), ..all[0].endpoint() };
    let (deliver, mut deliveries) = deliveries();
    let directory = Arc::<Directory>::default();
    let (_link, _) = connect(&endpoint, &directory, NodeId(0), deliver).await.unwrap();
    let left = next(&mut deliveries).await;
    assert!(matches!(&left, Incoming::Disconnected(why) if why.ends_with(":1")), "{left:?}");
}

/// Why there is no connection to the master that these name.
async fn without_master(all: &[Scripted]) -> Failure {
    let address = Address::Sentinel(sentinels(all));
    let endpoint = Endpoint { address, ..all[0].endpoint() };
    let (deliver, _deliveries) = deliveries();
    let connected = connect(&endpoint, &Arc::<Directory>::default(), NodeId(0), deliver).await;
    connected.err().expect("there is none")
}

#[tokio::test]
async fn why_there_is_no_master_is_told_of_each_server() {
    let closed = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap().port();
    let (one, other) = (sentinel(Some(closed)).await, sentinel(Some(1)).await);
    let why = without_master(&[one, other]).await.to_string();
    let told = why.split("; ").map(|each| each.rsplit_once(": ").unwrap().0);
    let mut told: Vec<_> = told.collect();
    told.sort_unstable();
    let mut expected = [closed, 1].map(|port| format!("the master 127.0.0.1:{port}"));
    expected.sort_unstable();
    assert_eq!(told, expected, "{why}");
    let knows_none = Scripted::but(|words| (words[0] == "SENTINEL").then_some("_\r\n")).await;
    let port = knows_none.port();
    let why = without_master(&[knows_none]).await.to_string();
    let expected =
        format!("no Sentinel knows the master: 127.0.0.1:{port}: it knows no master of this name");
    assert_eq!(why, expected);
    // Another server would refuse it as well.
    let denying = Scripted::but(|words| (words[0] == "HELLO").then_some("-WRONGPASS no\r\n")).await;
    let why = without_master(&[sentinel(Some(denying.port())).await]).await;
    assert_eq!(refused(&why), "WRONGPASS");
}

#[tokio::test]
async fn a_master_that_is_a_replica_is_refused() {
    // The length of the text stays as it is.
    let role = |words: &[&str]| calm(words).replace("role:master", "role:slave ");
    let replica = Scripted::start(move |words| Some(role(words))).await;
    let all = [sentinel(Some(replica.port())).await];
    let address = Address::Sentinel(sentinels(&all));
    let endpoint = Endpoint { address, ..all[0].endpoint() };
    let directory = Arc::<Directory>::default();
    let (deliver, _deliveries) = deliveries();
    let connected = connect(&endpoint, &directory, NodeId(0), deliver).await;
    let why = connected.err().map(|why| why.to_string()).unwrap_or_default();
    assert!(why.starts_with("the master 127.0.0.1:") && why.contains("it is a replica"), "{why}");
    assert_eq!(directory.master(), None);
}

#[tokio::test]
async fn a_silent_connection_for_messages_is_checked_and_given_up_without_an_answer() {
    for (answers, patience) in [(true, HANG), (false, Duration::from_millis(50))] {
        let server = Scripted::start(move |words| {
            let is_check = words == ["SUBSCRIBE", "a"];
            Some(if is_check && !answers { String::new() } else { calm(words) })
        })
        .await;
        let dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
        let check_after = Duration::from_millis(1);
        let mut subscriber = Subscriber::new(dialogue, Channels::Plain, check_after, patience);
        subscriber.has(&["a".into()]);
        let (deliver, mut deliveries) = deliveries();
        let (_wants, mut wanted) = mpsc::unbounded_channel();
        let checked = async {
            while server.asked("SUBSCRIBE a").len() < 3 {
                tokio::task::yield_now().await;
            }
        };
        let lasts = tokio::select! {
            ended = subscriber.run(&mut wanted, &deliver) => ended.is_ok(),
            () = checked => true,
            () = tokio::time::sleep(HANG) => panic!("it is checked"),
        };
        assert_eq!(lasts, answers);
        assert!(deliveries.try_recv().is_err(), "a check is no news");
    }
}
