//! Sentinel: asks the Sentinels for the master.
//!
//! Source: <https://redis.io/docs/latest/develop/reference/sentinel-clients/>

use super::dialogue::{Dialogue, in_time};
use super::handshake::{self, Purpose};
use super::link::Link;
use super::slots::Name as Named;
use super::{Directory, wire};
use crate::faults::{self, OnPanic};
use crate::protocol::{DEFECT, Failure, Mono, Risk};
use crate::server::{
    Address, Deliver, Endpoint, Incoming, Sentinel, Sentinels, Welcome, events::naming,
};
use redis::{PushKind, Value};
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The event that a Sentinel publishes after a failover.
const SWITCH: &str = "+switch-master";
/// If one Sentinel names the last known master, the others have this long to contradict it, or as long as it took if that is
/// longer: a Sentinel that hangs must not cost the leases.
const CONTRADICTION: Duration = Duration::from_millis(250);
/// The pause before reconnecting to a lost Sentinel. Meanwhile the others report a failover.
const WATCH_PAUSE: Duration = Duration::from_secs(5);

impl Sentinel {
    fn endpoint(&self, master: &Endpoint) -> Endpoint {
        let Self { host, port, login_source } = self.clone();
        let address = Address::Tcp { host, port };
        Endpoint { address, login_source, db: 0, ..master.clone() }
    }
}

/// Connects to the master that the Sentinels name. A server that turns out to be a replica is refused: during
/// a failover there may be no master.
pub(super) async fn connect(
    endpoint: &Endpoint,
    sentinels: &Sentinels,
    directory: &Arc<Directory>,
    deliver: Deliver,
) -> Result<(Link, Welcome), Failure> {
    let began = Mono::now();
    let named = ask_all(endpoint, sentinels, directory.master().as_ref()).await?;
    let mut failures = Vec::new();
    for (tried, (host, port)) in named.iter().enumerate() {
        let left = endpoint.connect_timeout.saturating_sub(Mono::now().since(began));
        let share = left / u32::try_from(named.len() - tried).unwrap_or(u32::MAX);
        let name = format!("the master {host}:{port}");
        let address = Address::Tcp { host: host.clone(), port: *port };
        let server = Endpoint { address, connect_timeout: share, ..endpoint.clone() };
        let delivery = naming(name.clone(), Arc::clone(&deliver));
        match handshake::connect(&server, directory, delivery, Purpose::Server).await {
            Ok((_, welcome)) if welcome.risks.iter().any(Risk::is_replica) => {
                failures.push(format!("{name}: it is a replica, a failover is under way"));
            }
            Ok((mut link, welcome)) => {
                link.set_name(&name);
                directory.set_master((host.clone(), *port));
                watch_all(&mut link.tasks, endpoint, sentinels, (host, *port), &deliver);
                return Ok((link, welcome));
            }
            Err(Failure::Lost(why)) => failures.push(format!("{name}: {why}")),
            Err(other) => return Err(other),
        }
    }
    Err(Failure::Lost(failures.join("; ")))
}

/// The masters that the Sentinels name, most votes first.
pub(super) async fn masters(
    endpoint: &Endpoint,
    sentinels: &Sentinels,
    directory: &Directory,
) -> Result<Vec<Endpoint>, Failure> {
    let named = ask_all(endpoint, sentinels, directory.master().as_ref()).await?.into_iter();
    let server =
        |(host, port)| Endpoint { address: Address::Tcp { host, port }, ..endpoint.clone() };
    Ok(named.map(server).collect())
}

/// Asks all Sentinels at once for the master. They may disagree: one that is partitioned from the others has
/// not noticed a failover. So the master with the most votes comes first. Those that are silent are waited for as long as
/// no majority agrees, unless the first of the others name the one that was `known` before.
async fn ask_all(
    endpoint: &Endpoint,
    sentinels: &Sentinels,
    known: Option<&Named>,
) -> Result<Vec<Named>, Failure> {
    let began = Mono::now();
    // The other half is for connecting to the master.
    let limit = endpoint.connect_timeout / 2;
    let mut questions = JoinSet::new();
    for (number, sentinel) in sentinels.all.iter().enumerate() {
        let server = Endpoint { connect_timeout: limit, ..sentinel.endpoint(endpoint) };
        let master = sentinels.master.clone();
        questions.spawn(async move { (number, ask(&server, &master).await) });
    }
    let (mut answers, mut named) = (BTreeMap::new(), Vec::new());
    let mut patience = Duration::MAX;
    while let Ok(Some(Ok((number, answer)))) = timeout(patience, questions.join_next()).await {
        answers.insert(number, answer);
        named = by_votes(&answers);
        let Some((first, votes)) = named.first() else { continue };
        // A lost Sentinel is not waited for if a majority agrees.
        if votes * 2 > sentinels.all.len() {
            break;
        }
        let passed = Mono::now().since(began);
        patience = if Some(first) == known { passed.max(CONTRADICTION) } else { Duration::MAX };
    }
    if named.is_empty() {
        let failures = answers.iter().filter_map(|(number, answer)| {
            let Sentinel { host, port, .. } = sentinels.all.get(*number)?;
            Some(format!("{host}:{port}: {}", answer.as_ref().err()?))
        });
        let failures = failures.collect::<Vec<_>>().join("; ");
        return Err(Failure::Lost(format!("no Sentinel knows the master: {failures}")));
    }
    Ok(named.into_iter().map(|(address, _)| address).collect())
}

pub(super) type Answer = Result<Named, Failure>;

/// The named masters and their votes: most votes first, then in the order of the Sentinels.
fn by_votes(answers: &BTreeMap<usize, Answer>) -> Vec<(Named, usize)> {
    let mut named: Vec<(Named, usize)> = Vec::new();
    for address in answers.values().flatten() {
        match named.iter_mut().find(|(other, _)| other == address) {
            Some((_, votes)) => *votes += 1,
            None => named.push((address.clone(), 1)),
        }
    }
    named.sort_by_key(|(_, votes)| std::cmp::Reverse(*votes));
    named
}

async fn ask(server: &Endpoint, master: &str) -> Answer {
    let question = async {
        let mut dialogue = Dialogue::open(server).await?;
        let mut question = redis::cmd("SENTINEL");
        question.arg("GET-MASTER-ADDR-BY-NAME").arg(master);
        read_address(&dialogue.ask_one(&question).await?)
    };
    in_time(server, question).await
}

pub(super) fn read_address(answer: &Value) -> Answer {
    let read = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        _ => None,
    };
    let address = match answer {
        Value::Nil => return Err(Failure::Lost("it knows no master of this name".to_owned())),
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => read(host).zip(read(port).and_then(|port| port.parse().ok())),
            _ => None,
        },
        _ => None,
    };
    address.ok_or_else(|| Failure::Lost(wire::brief(format!("it answered {answer:?}"))))
}

/// Gives up the connection to `current` as soon as a Sentinel names another master. The old master takes
/// writes for about ten more seconds, even in an ordered failover, because nothing notifies it.
fn watch_all(
    tasks: &mut JoinSet<()>,
    endpoint: &Endpoint,
    sentinels: &Sentinels,
    current: (&str, u16),
    deliver: &Deliver,
) {
    for sentinel in &sentinels.all {
        let watch = Watch {
            sentinel: sentinel.endpoint(endpoint),
            endpoint: endpoint.clone(),
            sentinels: sentinels.clone(),
            current: (current.0.to_owned(), current.1),
            deliver: Arc::clone(deliver),
        };
        tasks.spawn(async move {
            let report = Arc::clone(&watch.deliver);
            let _reported = OnPanic(|| report(Incoming::Disconnected(DEFECT.to_owned())));
            loop {
                faults::at("watching");
                if watch.listen().await != Ended::Login {
                    tokio::time::sleep(WATCH_PAUSE).await;
                }
            }
        });
    }
}

/// Why a subscription has ended.
#[derive(Clone, Copy, Eq, PartialEq)]
enum Ended {
    /// Its login is about to.
    Login,
    Lost,
}

/// The subscription to one Sentinel.
struct Watch {
    sentinel: Endpoint,
    endpoint: Endpoint,
    sentinels: Sentinels,
    /// The master of the connection that is given up.
    current: Named,
    deliver: Deliver,
}

impl Watch {
    /// Listens until the Sentinel is gone, or until the login must be renewed. If it denies the subscription, this waits
    /// forever, because asking again would be denied too.
    async fn listen(&self) -> Ended {
        let subscribing = async {
            let mut dialogue = Dialogue::open(&self.sentinel).await?;
            let refused = dialogue.subscribe(&[SWITCH.into()]).await?;
            Ok((dialogue, refused))
        };
        let mut dialogue = match in_time(&self.sentinel, subscribing).await {
            Ok((dialogue, None)) => dialogue,
            Ok((_, Some(refused))) if wire::lasting(&refused).is_some() => {
                return std::future::pending().await;
            }
            Ok((_, Some(_))) | Err(_) => return Ended::Lost,
        };
        if self.catch_up().await.is_err() {
            // A Sentinel that does not answer would not report a failover either.
            return Ended::Lost;
        }
        let login = dialogue.login();
        let Endpoint { login_source, connect_timeout, .. } = &self.sentinel;
        let mut renewal = pin!(login_source.next(&login, None, *connect_timeout, drop));
        loop {
            let push = tokio::select! {
                push = dialogue.read() => push,
                // The watch asks for failovers that it missed meanwhile.
                _ = &mut renewal => return Ended::Login,
            };
            let Ok(push) = push else { return Ended::Lost };
            faults::at("push");
            // A slow Sentinel may report a failover that this connection has already followed.
            let named = successor(&push, &self.sentinels.master);
            if let Some(other) = named.filter(|named| *named != self.current) {
                self.give_up(&other);
            }
        }
    }

    /// Asks for a failover from before the subscription. Connecting can outlast one: the master stops, is
    /// still named, and answers when it resumes, after another was promoted.
    async fn catch_up(&self) -> Result<(), Failure> {
        // Another connection asks: in RESP2 one that has subscribed may not.
        if ask(&self.sentinel, &self.sentinels.master).await? == self.current {
            return Ok(());
        }
        // This Sentinel may be the one that has not noticed the failover.
        let all = ask_all(&self.endpoint, &self.sentinels, None).await?;
        if let Some(other) = all.first().filter(|first| **first != self.current) {
            self.give_up(other);
        }
        Ok(())
    }

    fn give_up(&self, (host, port): &Named) {
        let why = format!("a Sentinel reports that the master is now {host}:{port}");
        (self.deliver)(Incoming::Disconnected(why));
    }
}

/// Reads `<master> <old host> <old port> <new host> <new port>`.
pub(super) fn successor(push: &Value, master: &str) -> Option<Named> {
    let Value::Push { kind: PushKind::Message, data } = push else { return None };
    let [_, Value::BulkString(message)] = data.as_slice() else { return None };
    let mut words = std::str::from_utf8(message).ok()?.strip_prefix(master)?.split(' ');
    match (words.next()?, words.nth(2)?, words.next()?) {
        ("", host, port) => Some((host.to_owned(), port.parse().ok()?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::LoginSource;

    fn bulk(text: &str) -> Value {
        Value::BulkString(text.as_bytes().to_vec())
    }

    #[test]
    fn a_password_is_never_shown() {
        let (host, password) = ("::1".to_owned(), Some("s3cret".to_owned()));
        let login_source = LoginSource::fixed(None, password);
        let all = vec![Sentinel { host, port: 26379, login_source }];
        let sentinels = Sentinels { master: "mymaster".to_owned(), all };
        assert!(!format!("{sentinels:?}").contains("s3cret"), "the password is hidden");
    }

    #[test]
    fn an_address_is_a_host_and_a_port() {
        let good = Value::Array(vec![bulk("10.0.0.1"), bulk("6379")]);
        assert_eq!(read_address(&good).unwrap(), ("10.0.0.1".to_owned(), 6379));
        for bad in [
            Value::Nil,
            Value::Okay,
            Value::Array(vec![bulk("10.0.0.1")]),
            Value::Array(vec![bulk("10.0.0.1"), bulk("66000")]),
        ] {
            assert!(matches!(read_address(&bad), Err(Failure::Lost(_))), "{bad:?} is no address");
        }
    }

    #[test]
    fn whom_most_name_comes_first_and_then_the_earlier_one() {
        let (old, new) = (("10.0.0.1".to_owned(), 6379), ("10.0.0.2".to_owned(), 6379));
        let failed = || Err(Failure::Lost("refused".to_owned()));
        let order = |answers: Vec<Answer>| {
            let named = by_votes(&answers.into_iter().enumerate().collect());
            named.into_iter().map(|(address, _)| address).collect::<Vec<_>>()
        };
        let [first, second] = [&old, &new].map(|address| Ok(address.clone()));
        let answers = vec![first.clone(), second.clone(), second.clone()];
        assert_eq!(order(answers), [new.clone(), old.clone()]);
        assert_eq!(
            order(vec![first.clone(), failed(), second.clone()]),
            [old.clone(), new.clone()]
        );
        let answers = [second.clone(), first, second.clone(), second].into_iter().enumerate();
        assert_eq!(by_votes(&answers.collect()), [(new, 3), (old, 1)]);
        assert!(order(vec![failed()]).is_empty(), "a Sentinel that failed names nobody");
    }

    #[test]
    fn a_message_names_a_successor_of_this_master_only() {
        let push = |text: &str| Value::Push {
            kind: PushKind::Message,
            data: vec![bulk(SWITCH), bulk(text)],
        };
        let switch = push("my 10.0.0.1 6379 10.0.0.2 6380");
        assert_eq!(successor(&switch, "my"), Some(("10.0.0.2".to_owned(), 6380)));
        assert_eq!(successor(&push("my2 10.0.0.1 6379 10.0.0.2 6380"), "my"), None);
        assert_eq!(successor(&push("my 10.0.0.1"), "my"), None);
    }
}
