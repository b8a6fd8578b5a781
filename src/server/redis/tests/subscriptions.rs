//! Connections for messages: those of shard channels, and those whose login ends.

use super::scripted::{HANG, Scripted, bulk, calm, deliveries, next};
use crate::protocol::Failure;
use crate::server::redis::dialogue::Dialogue;
use crate::server::redis::shard_channels;
use crate::server::redis::subscriber::{Channels, Subscriber, Subscription};
use crate::server::{Asked, Endpoint, Incoming, Login, LoginSource};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::timeout;

fn on(channel: &str) -> Subscription {
    (channel.into(), true)
}

fn off(channel: &str) -> Subscription {
    (channel.into(), false)
}

/// The next event, which is about a subscription.
async fn changed(deliveries: &mut UnboundedReceiver<Incoming>) -> Subscription {
    match next(deliveries).await {
        Incoming::Listening(channel, on) => (channel, on),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn shard_channels_have_one_connection_as_long_as_it_lasts() {
    let server = Scripted::but(|_| None).await;
    let (deliver, mut deliveries) = deliveries();
    let (changes, wanted) = mpsc::unbounded_channel();
    let listening = tokio::spawn(shard_channels::listen(server.endpoint(), wanted, deliver));
    // Nothing is subscribed that could end.
    changes.send(off("a")).unwrap();
    for change in [on("b"), off("b"), on("c")] {
        changes.send(change.clone()).unwrap();
        assert_eq!(changed(&mut deliveries).await, change);
    }
    assert_eq!(server.asked("SSUBSCRIBE"), ["SSUBSCRIBE b", "SSUBSCRIBE c"]);
    assert_eq!(server.asked("SUNSUBSCRIBE"), ["SUNSUBSCRIBE b"]);
    assert_eq!(server.asked("HELLO").len(), 1);
    server.hang_up();
    assert_eq!(changed(&mut deliveries).await, off("c"));
    changes.send(on("d")).unwrap();
    assert_eq!(changed(&mut deliveries).await, on("d"));
    assert_eq!(server.asked("HELLO").len(), 2);
    drop(changes);
    server.hang_up();
    assert_eq!(changed(&mut deliveries).await, off("d"));
    timeout(HANG, listening).await.expect("it ends with its manager").unwrap();
}

#[tokio::test]
async fn what_waits_for_a_connection_that_fails_is_refused() {
    let server = Scripted::start(|_| None).await;
    let (deliver, mut deliveries) = deliveries();
    let (changes, wanted) = mpsc::unbounded_channel();
    for change in [on("a"), off("b"), on("c")] {
        changes.send(change).unwrap();
    }
    drop(changes);
    let listening = shard_channels::listen(server.endpoint(), wanted, deliver);
    timeout(HANG, listening).await.expect("it does not wait for each");
    assert_eq!(changed(&mut deliveries).await, off("a"));
    assert_eq!(changed(&mut deliveries).await, off("c"));
    assert!(deliveries.recv().await.is_none(), "what should end has no answer");
    assert_eq!(server.asked("HELLO").len(), 1);
}

#[tokio::test]
async fn subscriptions_move_to_a_connection_with_the_next_login_and_lose_nothing() {
    const MESSAGE: &str =
        ">3\r\n$7\r\nmessage\r\n$20\r\nholdfast:free:lock:a\r\n$11\r\nfree lock:a\r\n";
    let is_answered = AtomicBool::new(false);
    let server = Scripted::start(move |words| match words {
        // The old connection gets no answer to this one.
        ["SUBSCRIBE", "b"] if !is_answered.swap(true, Ordering::Relaxed) => Some(String::new()),
        ["UNSUBSCRIBE"] => Some(format!("{MESSAGE}{}", calm(&["UNSUBSCRIBE", "a"]))),
        _ => Some(calm(words)),
    })
    .await;
    let login = |password: &str| Login::new(None, Some(password.to_owned()));
    let first =
        Endpoint { login_source: LoginSource::Fixed(Arc::new(login("old"))), ..server.endpoint() };
    let asked = Arc::new(Asked::new(|| true));
    let login_source = LoginSource::Asked(Arc::clone(&asked));
    let endpoint = Endpoint { login_source, ..server.endpoint() };
    let dialogue = Dialogue::open(&first).await.unwrap();
    let mut subscriber = Subscriber::new(dialogue, Channels::Plain, HANG, HANG);
    let (deliver, mut deliveries) = deliveries();
    let (changes, mut wanted) = mpsc::unbounded_channel();
    let running = tokio::spawn(async move {
        let open = |server: Endpoint| async move { Dialogue::open(&server).await };
        subscriber.run_renewed(&endpoint, open, &mut wanted, &deliver).await
    });
    changes.send(on("a")).unwrap();
    assert_eq!(changed(&mut deliveries).await, on("a"));
    changes.send(on("b")).unwrap();
    while server.asked("SUBSCRIBE").len() < 2 {
        tokio::task::yield_now().await;
    }
    asked.answer(Ok(login("new")), true);
    // It was published before the new connection had subscribed.
    let message = next(&mut deliveries).await;
    assert!(matches!(message, Incoming::Message(_)), "{message:?}");
    assert_eq!(changed(&mut deliveries).await, on("b"));
    let commands = ["SUBSCRIBE a", "SUBSCRIBE b", "SUBSCRIBE a", "SUBSCRIBE b"];
    assert_eq!(server.asked("SUBSCRIBE"), commands);
    let logins = ["old", "new"].map(|password| format!("HELLO 3 AUTH default {password}"));
    assert_eq!(server.asked("HELLO"), logins);
    server.hang_up();
    let ended = timeout(HANG, running).await.expect("it ends with its connection").unwrap();
    assert!(matches!(ended, Failure::Lost(_)), "{ended:?}");
    assert!(deliveries.recv().await.is_none(), "a move is no news");
}

#[tokio::test]
async fn only_a_channel_that_was_asked_for_is_subscribed_in_the_end() {
    let server = Scripted::start(|words| match words[0] {
        "SUBSCRIBE" | "UNSUBSCRIBE" => Some(String::new()),
        _ => Some(calm(words)),
    })
    .await;
    for (asked, expected) in [(on("b"), vec!["a", "b"]), (off("b"), vec!["a"])] {
        let dialogue = Dialogue::open(&server.endpoint()).await.unwrap();
        let mut subscriber = Subscriber::new(dialogue, Channels::Plain, HANG, HANG);
        subscriber.has(&["a".into()]);
        subscriber.ask(asked).await.unwrap();
        let channels = subscriber.into_channels();
        assert_eq!(channels.iter().map(|channel| &**channel).collect::<Vec<_>>(), expected);
    }
    // What a connection says before it has an answer: a confirmation of another channel is none of this one.
    let other = Scripted::start(|words| match words[0] {
        "SUBSCRIBE" => Some(format!(">3\r\n{}{}:1\r\n", bulk("subscribe"), bulk("other"))),
        _ => Some(calm(words)),
    })
    .await;
    let dialogue = Dialogue::open(&other.endpoint()).await.unwrap();
    let brief = std::time::Duration::from_millis(5);
    let mut subscriber = Subscriber::new(dialogue, Channels::Plain, HANG, brief);
    let unconfirmed = subscriber.confirm(&"a".into()).await.unwrap_err();
    assert_eq!(unconfirmed.to_string(), "no answer within 5 ms");
}
