//! Pages of a Cluster whose slots move.

use super::scripted::{Answer, HANG, Scripted, bulk, calm};
use crate::protocol::Failure;
use crate::protocol::query::{Page, Question};
use crate::server::redis::{Directory, page};
use crate::server::{Address, Endpoint};
use std::sync::{Arc, OnceLock};

/// A Cluster of one server, which answers as `answer` says, who gets its port as well.
async fn cluster(answer: impl Fn(&[&str], u16) -> Answer + Send + Sync + 'static) -> Scripted {
    let port = Arc::new(OnceLock::new());
    let known = Arc::clone(&port);
    let server = Scripted::start(move |words| {
        let port = *known.get().unwrap();
        match words {
            ["CLUSTER", "SLOTS"] => Some(format!(
                "*1\r\n*3\r\n:0\r\n:16383\r\n*3\r\n{}:{port}\r\n{}",
                bulk("127.0.0.1"),
                bulk("id")
            )),
            ["CLUSTER", "NODES"] => Some(bulk(&format!(
                "id 127.0.0.1:{port}@1 myself,master - 0 1 1 connected 0-16383\n"
            ))),
            ["SCAN", ..] => Some(format!("*2\r\n{}*1\r\n{}", bulk("0"), bulk("lock:a"))),
            _ => answer(words, port),
        }
    })
    .await;
    port.set(server.port()).unwrap();
    server
}

async fn locks(server: &Scripted) -> Result<Page, Failure> {
    let seeds = vec![("127.0.0.1".to_owned(), server.port())];
    let endpoint = Endpoint { address: Address::Cluster { seeds }, ..server.endpoint() };
    let question = Question { starts_with: "lock:".to_owned(), count: 10, ..Question::default() };
    page(&Arc::new(endpoint), &Arc::<Directory>::default(), &question, HANG).await
}

/// Whether it asks about the lock at once.
fn is_whole(words: &[&str]) -> bool {
    matches!(words, ["EVAL" | "EVALSHA", _, _, "lock:a", ..])
}

#[tokio::test]
async fn a_lock_whose_keys_are_apart_is_read_key_by_key() {
    for (code, asks) in [("ASK", 2), ("MOVED", 0)] {
        let other = Scripted::start(|words| match words {
            ["ASKING"] => Some("+OK\r\n".to_owned()),
            ["GET", "lock:a"] => Some(bulk("hf1.client.7")),
            ["PTTL", "lock:a"] => Some(":900\r\n".to_owned()),
            _ => Some(calm(words)),
        })
        .await;
        let there = format!("-{code} 1 127.0.0.1:{}\r\n", other.port());
        let home = cluster(move |words, _| match words {
            _ if is_whole(words) => Some("-TRYAGAIN Multiple keys request\r\n".to_owned()),
            ["GET" | "PTTL", "lock:a"] => Some(there.clone()),
            // The entry came half a second ago.
            ["ZRANGE", "{lock:a}:queue", "0", "999", "WITHSCORES"] => {
                Some(format!("*2\r\n{}{}", bulk("hf1.client.9"), bulk("1699999999500000")))
            }
            ["HGET", "{lock:a}:waiters", "hf1.client.9"] => {
                Some(bulk("1700000000000 10000 1 0 5 inbox"))
            }
            _ => Some(calm(words)),
        })
        .await;
        let page = locks(&home).await.unwrap();
        assert_eq!(page.cursor, "", "the slots have not moved");
        let [held] = &page.held[..] else { panic!("{page:?}") };
        assert_eq!((&*held.key, &*held.token, held.remaining_ms), ("lock:a", "hf1.client.7", 900));
        let [waits] = &page.pending[..] else { panic!("{page:?}") };
        assert_eq!((&*waits.token, waits.position, waits.waited_ms), ("hf1.client.9", 1, 500));
        assert!(waits.shared, "it waits for a share");
        assert_eq!(other.asked("ASKING").len(), asks, "{code}");
        assert_eq!((other.asked("GET").len(), other.asked("HELLO").len()), (1, 1));
    }
}

#[tokio::test]
async fn a_key_that_is_sent_on_for_ever_is_given_up() {
    let server = cluster(|words, port| match words {
        _ if is_whole(words) => Some("-TRYAGAIN Multiple keys request\r\n".to_owned()),
        ["GET" | "PTTL", "lock:a"] => Some(format!("-MOVED 1 127.0.0.1:{port}\r\n")),
        _ => Some(calm(words)),
    })
    .await;
    match locks(&server).await {
        Err(Failure::Refused(refusal)) => assert_eq!(refusal.code, "REDIRECTED"),
        other => panic!("{other:?}"),
    }
    assert_eq!(server.asked("GET lock:a").len(), 6);
}

#[tokio::test]
async fn a_lock_that_other_code_has_or_nobody_is_not_shown() {
    for value in [Some("theirs"), None] {
        let server = cluster(move |words, _| match words {
            _ if is_whole(words) => Some("-TRYAGAIN Multiple keys request\r\n".to_owned()),
            ["GET", "lock:a"] => Some(value.map_or_else(|| "_\r\n".to_owned(), bulk)),
            ["PTTL", "lock:a"] => Some(":-1\r\n".to_owned()),
            _ => Some(calm(words)),
        })
        .await;
        assert_eq!(locks(&server).await, Ok(Page::default()), "{value:?}");
    }
}
