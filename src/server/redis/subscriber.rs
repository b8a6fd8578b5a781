//! A connection that subscribes to channels, and asks for nothing else.

use super::dialogue::Dialogue;
use super::login_renewal::successor;
use super::wire;
use crate::faults;
use crate::protocol::Failure;
use crate::server::{Deliver, Endpoint, Incoming, LoginSource};
use redis::{PushKind, Value};
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::timeout;

/// A channel, and whether to subscribe or unsubscribe.
pub(super) type Subscription = (Arc<str>, bool);

/// The kind of the channels.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Channels {
    Plain,
    /// Each is in a slot of a Cluster.
    Shard,
}

impl Channels {
    const fn command(self, on: bool) -> &'static str {
        match (self, on) {
            (Self::Plain, true) => "SUBSCRIBE",
            (Self::Plain, false) => "UNSUBSCRIBE",
            (Self::Shard, true) => "SSUBSCRIBE",
            (Self::Shard, false) => "SUNSUBSCRIBE",
        }
    }
}

/// See the module.
pub(super) struct Subscriber {
    dialogue: Dialogue,
    kind: Channels,
    state: State,
    /// A connection that is silent for this long is checked: a firewall may have dropped it without notice.
    check_after: Duration,
    /// The timeout of an answer.
    patience: Duration,
}

/// The channels that are subscribed or asked for.
#[derive(Default)]
pub(super) struct State {
    subscribed: BTreeSet<Arc<str>>,
    /// The subscription that has no answer yet. There is one at a time: an error does not name its channel.
    asked: Option<Subscription>,
}

impl Subscriber {
    pub(super) fn new(
        dialogue: Dialogue,
        kind: Channels,
        check_after: Duration,
        patience: Duration,
    ) -> Self {
        Self { dialogue, kind, state: State::default(), check_after, patience }
    }

    /// The server has confirmed these channels before.
    pub(super) fn has(&mut self, channels: &[Arc<str>]) {
        self.state.subscribed.extend(channels.iter().cloned());
    }

    /// Every channel that is subscribed, or that was asked for.
    pub(super) fn into_channels(self) -> BTreeSet<Arc<str>> {
        let State { mut subscribed, asked } = self.state;
        subscribed.extend(asked.and_then(|(channel, on)| on.then_some(channel)));
        subscribed
    }

    /// Does the same as [`Self::run`], on a new connection each time the login of the old one is due.
    pub(super) async fn run_renewed<F>(
        &mut self,
        endpoint: &Endpoint,
        open: impl Fn(Endpoint) -> F,
        wanted: &mut UnboundedReceiver<Subscription>,
        deliver: &Deliver,
    ) -> Failure
    where
        F: Future<Output = Result<Dialogue, Failure>>,
    {
        let mut replaced = true;
        loop {
            let login = self.dialogue.login();
            let next = async {
                if !replaced {
                    LoginSource::pause().await;
                }
                successor(endpoint, &login, &open).await
            };
            let dialogue = tokio::select! {
                Err(failure) = self.run(wanted, deliver) => return failure,
                dialogue = next => dialogue,
            };
            let mut next = Self::new(dialogue, self.kind, self.check_after, self.patience);
            replaced = next.subscribe_as(&self.state.subscribed, deliver).await.is_ok();
            if replaced && let Err(failure) = self.replace(next, deliver).await {
                return failure;
            }
        }
    }

    /// Fails if the connection, which has subscribed to `channel`, has broken. Messages that come meanwhile are dropped: a
    /// manager that has just connected polls.
    pub(super) async fn confirm(&mut self, channel: &Arc<str>) -> Result<(), Failure> {
        self.subscribe_as(&BTreeSet::from([Arc::clone(channel)]), &(Arc::new(drop) as Deliver))
            .await
    }

    /// Subscribes to the channels that another connection has.
    async fn subscribe_as(
        &mut self,
        channels: &BTreeSet<Arc<str>>,
        deliver: &Deliver,
    ) -> Result<(), Failure> {
        let begun: Deliver = {
            let deliver = Arc::clone(deliver);
            // The manager knows of these subscriptions.
            Arc::new(move |incoming| match incoming {
                Incoming::Listening(_, true) => {}
                other => deliver(other),
            })
        };
        for channel in channels {
            self.ask((Arc::clone(channel), true)).await?;
            while self.state.asked.is_some() {
                self.hear_next(&begun).await?;
            }
        }
        Ok(())
    }

    /// Goes on with `next`, which has subscribed to the same channels. So no message is missed; one may come twice.
    async fn replace(&mut self, next: Self, deliver: &Deliver) -> Result<(), Failure> {
        let mut old = std::mem::replace(self, next);
        let asked = old.state.asked.take();
        // Messages on the old connection until it has unsubscribed were published before the new one had subscribed.
        let messages: Deliver = {
            let deliver = Arc::clone(deliver);
            Arc::new(move |incoming| {
                if let Incoming::Message(_) = incoming {
                    deliver(incoming);
                }
            })
        };
        let _broken = old.drain(&messages).await;
        match asked {
            Some(subscription) => self.ask(subscription).await,
            None => Ok(()),
        }
    }

    /// Delivers what comes until every subscription has ended.
    async fn drain(&mut self, deliver: &Deliver) -> Result<(), Failure> {
        if !self.state.subscribed.is_empty() {
            self.dialogue.send(&wire::subscription(self.kind.command(false), &[])).await?;
        }
        while !self.state.subscribed.is_empty() {
            self.hear_next(deliver).await?;
        }
        Ok(())
    }

    /// Handles the next thing that the server sends.
    async fn hear_next(&mut self, deliver: &Deliver) -> Result<(), Failure> {
        let heard = timeout(self.patience, self.dialogue.read()).await;
        let value = heard.map_err(|_| self.silence())??;
        self.state.hear(value, self.kind, deliver);
        Ok(())
    }

    fn silence(&self) -> Failure {
        Failure::Lost(format!("no answer within {} ms", self.patience.as_millis()))
    }

    /// Delivers messages and carries `wanted` out until the connection breaks.
    pub(super) async fn run(
        &mut self,
        wanted: &mut UnboundedReceiver<Subscription>,
        deliver: &Deliver,
    ) -> Result<Infallible, Failure> {
        let mut changes = true;
        loop {
            let limit = match (&self.state.asked, self.state.subscribed.is_empty()) {
                (Some(_), _) => self.patience,
                (None, false) => self.check_after,
                (None, true) => Duration::MAX,
            };
            tokio::select! {
                subscription = wanted.recv(), if changes && self.state.asked.is_none() => {
                    match subscription {
                        Some(subscription) => self.ask(subscription).await?,
                        None => changes = false,
                    }
                }
                value = self.dialogue.read() => self.state.hear(value?, self.kind, deliver),
                () = tokio::time::sleep(limit) => self.check().await?,
            }
        }
    }

    /// Changes a subscription.
    pub(super) async fn ask(&mut self, (channel, on): Subscription) -> Result<(), Failure> {
        faults::at("subscriber");
        let command = wire::subscription(self.kind.command(on), &[Arc::clone(&channel)]);
        self.state.asked = Some((channel, on));
        self.dialogue.send(&command).await
    }

    /// The server has been silent. To subscribe again changes nothing, and every user may do it who has subscribed.
    async fn check(&mut self) -> Result<(), Failure> {
        if self.state.asked.is_some() {
            return Err(self.silence());
        }
        match self.state.subscribed.first() {
            Some(channel) => self.ask((Arc::clone(channel), true)).await,
            None => Ok(()),
        }
    }
}

impl State {
    /// Handles what the server sent.
    fn hear(&mut self, value: Value, kind: Channels, deliver: &Deliver) {
        let (push, data) = match value {
            Value::Push { kind, data } => (kind, data),
            // An answer of another kind is none to us.
            other => {
                if let Err(error) = other.extract_error() {
                    self.refused(wire::failure(&error), kind, deliver);
                }
                return;
            }
        };
        faults::at("push");
        match (push, data.first()) {
            (PushKind::Message | PushKind::SMessage, _) => {
                if let Some(message) = wire::message(&data) {
                    deliver(Incoming::Message(message));
                }
            }
            (
                push @ (PushKind::Subscribe
                | PushKind::SSubscribe
                | PushKind::Unsubscribe
                | PushKind::SUnsubscribe),
                Some(Value::BulkString(channel)),
            ) => {
                let Ok(channel) = std::str::from_utf8(channel) else { return };
                let on = matches!(push, PushKind::Subscribe | PushKind::SSubscribe);
                self.changed((channel.into(), on), deliver);
            }
            _ => {}
        }
    }

    /// A subscription has begun or ended.
    fn changed(&mut self, (channel, on): Subscription, deliver: &Deliver) {
        self.asked.take_if(|asked| *asked == (Arc::clone(&channel), on));
        if !on {
            self.subscribed.remove(&channel);
        } else if !self.subscribed.insert(Arc::clone(&channel)) {
            // The answer to a check.
            return;
        }
        deliver(Incoming::Listening(channel, on));
    }

    fn refused(&mut self, failure: Failure, kind: Channels, deliver: &Deliver) {
        let Some((channel, true)) = self.asked.take() else { return };
        self.subscribed.remove(&channel);
        match failure {
            Failure::Refused(refusal)
                if kind == Channels::Plain || !is_elsewhere(&refusal.code) =>
            {
                deliver(Incoming::PubsubDenied(refusal.to_string()));
            }
            // The slot has moved, or is about to: the waiters find out where to.
            _ => deliver(Incoming::Listening(channel, false)),
        }
    }
}

fn is_elsewhere(code: &str) -> bool {
    matches!(code, "MOVED" | "ASK" | "TRYAGAIN" | "CLUSTERDOWN" | "LOADING" | "MASTERDOWN")
}

/// Handles a value with two channels subscribed.
#[cfg(any(test, fuzzing))]
pub(super) fn overhear(value: Value, deliver: &Deliver) {
    let subscribed = BTreeSet::from(["a".into(), "b".into()]);
    let mut state = State { subscribed, asked: Some(("c".into(), true)) };
    state.hear(value, Channels::Shard, deliver);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    /// The deliveries of each frame, with the channel `a` subscribed and `asked` not answered yet.
    fn heard(kind: Channels, asked: Option<Subscription>, frames: &[&str]) -> Vec<String> {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&heard);
        let deliver: Deliver =
            Arc::new(move |event| into.lock().unwrap().push(format!("{event:?}")));
        let mut state = State { subscribed: BTreeSet::from(["a".into()]), asked };
        for frame in frames {
            state.hear(wire::value(frame.as_bytes()).unwrap(), kind, &deliver);
        }
        assert_eq!(state.asked, None);
        drop(deliver);
        Arc::into_inner(heard).map(|heard| heard.into_inner().unwrap()).unwrap_or_default()
    }

    #[test]
    fn the_answer_to_a_check_is_no_news() {
        let again = ">3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
        let new = ">3\r\n$9\r\nsubscribe\r\n$1\r\nb\r\n:2\r\n";
        assert!(
            heard(Channels::Plain, Some(("a".into(), true)), &[again]).is_empty(),
            "a known subscription is no news"
        );
        let told = heard(Channels::Plain, Some(("b".into(), true)), &[again, new]);
        assert_eq!(told, [r#"Listening("b", true)"#]);
    }

    #[test]
    fn a_slot_that_has_moved_is_no_denial() {
        let asked = || Some(("b".into(), true));
        let moved = "-MOVED 1 127.0.0.1:7000\r\n";
        assert_eq!(heard(Channels::Shard, asked(), &[moved]), [r#"Listening("b", false)"#]);
        let denied = heard(Channels::Shard, asked(), &["-NOPERM no\r\n"]);
        assert_eq!(denied, [r#"PubsubDenied("NOPERM no")"#]);
        assert!(
            heard(Channels::Shard, Some(("a".into(), false)), &[moved]).is_empty(),
            "a refused unsubscribe is no news"
        );
    }

    #[test]
    fn the_server_ends_a_subscription_by_itself() {
        let ended = ">3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n";
        assert_eq!(heard(Channels::Shard, None, &[ended]), [r#"Listening("a", false)"#]);
    }
}
