//! Servers of a Cluster in virtual time, and a slot that moves among them key by key.
//!
//! All keys lie in one keyspace, as if they never moved, so whoever judges a call sees the whole lock. Beside it stands
//! where each key is, and what each server has heard of that. The servers' clocks show the same.
//!
//! Source: <https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/>

use super::server::Server;
use crate::machine::{NodeId, Routes, SendMode, ServerProbe};
use crate::protocol::call::Call;
use crate::protocol::clock::Mono;
use crate::protocol::error::{Failure, Refusal};
use crate::protocol::keys::{LockKeys, SLOTS};
use crate::protocol::reply::Reply;
use crate::protocol::script::Script;
use crate::server::embedded::{Plain, Value, keys_of, keys_of_plain};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::Arc;

/// How many servers there are.
pub(super) const SERVERS: u16 = 3;

/// The servers, which all managers of a schedule share.
#[derive(Clone)]
pub(super) struct Cluster(Rc<RefCell<State>>);

struct State {
    /// Has all the keys.
    server: Server,
    /// The slot of every lock.
    slot: u16,
    /// Whether the other slots are spread over two servers, or all on the one that has this one.
    spread: bool,
    /// Before Redis 7.0 the old owner sends elsewhere also whoever names some keys that are still there.
    before_7: bool,
    nodes: Vec<Node>,
    /// Where the keys are that have not moved.
    owner: NodeId,
    moving: Option<Move>,
    /// Whose shard channels the keyspace knows at the moment.
    publisher: NodeId,
}

/// The slot is on its way.
struct Move {
    to: NodeId,
    /// The keys that are there already.
    arrived: BTreeSet<String>,
    /// A key leaves at one of so many moments.
    pace: u32,
}

/// One server, and what it has heard.
struct Node {
    /// Who has the slot.
    owner: NodeId,
    /// Where the slot moves to from here.
    migrating: Option<NodeId>,
    /// Whether it moves to here.
    importing: bool,
    replication_id: String,
    /// The scripts that it knows by their hashes.
    scripts: BTreeSet<Script>,
    /// Who listens to which shard channel.
    subscriptions: BTreeSet<(u64, Arc<str>)>,
    /// The subscriptions that it has ended unasked.
    ended: BTreeSet<(u64, Arc<str>)>,
}

impl Node {
    fn new(replication_id: String) -> Self {
        Self {
            owner: NodeId(0),
            migrating: None,
            importing: false,
            replication_id,
            scripts: BTreeSet::new(),
            subscriptions: BTreeSet::new(),
            ended: BTreeSet::new(),
        }
    }
}

/// All servers.
pub(super) fn servers() -> impl Iterator<Item = NodeId> {
    (0..SERVERS).map(NodeId)
}

pub(super) fn any_server(rng: &mut fastrand::Rng) -> NodeId {
    NodeId(rng.u16(..SERVERS))
}

impl State {
    fn node(&self, node: NodeId) -> &Node {
        &self.nodes[usize::from(node.0)]
    }

    fn node_mut(&mut self, node: NodeId) -> &mut Node {
        &mut self.nodes[usize::from(node.0)]
    }

    fn exists(&self, now: Mono, key: &str) -> bool {
        self.server.ask(now, &["EXISTS", key]) == ["1"]
    }

    /// Whether a key exists on this server.
    fn has(&self, now: Mono, node: NodeId, key: &str) -> bool {
        let place = match &self.moving {
            Some(moving) if moving.arrived.contains(key) => moving.to,
            _ => self.owner,
        };
        place == node && self.exists(now, key)
    }

    /// Why a server does not execute a call, if so.
    fn refuses(
        &self,
        now: Mono,
        at: NodeId,
        send_mode: SendMode,
        script: Option<Script>,
        keys: &[String],
    ) -> Option<Failure> {
        let node = self.node(at);
        let importing = node.importing && matches!(send_mode, SendMode::Asking(_));
        let owns = node.owner == at;
        if node.migrating.is_some() || importing {
            let missing = keys.iter().filter(|key| !self.has(now, at, key)).count();
            match node.migrating {
                Some(_) if missing > 0 && missing < keys.len() && !self.before_7 => {
                    return Some(try_again());
                }
                Some(to) if missing > 0 => return Some(Failure::Moving(to)),
                None if !owns && missing > 0 && keys.len() > 1 => return Some(try_again()),
                _ => {}
            }
        }
        if !owns && !importing {
            return Some(Failure::Moved(node.owner));
        }
        let by_hash = matches!(send_mode, SendMode::Plain | SendMode::Redirected);
        let knows = script.is_none_or(|script| node.scripts.contains(&script));
        (by_hash && !knows).then_some(Failure::NoScript)
    }

    /// Only who listens at this server hears what a script publishes there.
    fn let_publish(&mut self, node: NodeId) {
        if self.publisher != node {
            let before = std::mem::replace(&mut self.publisher, node);
            self.server.change_subscriptions(
                &self.node(before).subscriptions,
                &self.node(node).subscriptions,
            );
        }
    }

    fn end_subscriptions(
        &mut self,
        node: NodeId,
        over: impl Fn(u64) -> bool,
    ) -> BTreeSet<(u64, Arc<str>)> {
        let all = std::mem::take(&mut self.node_mut(node).subscriptions);
        let (over, subscriptions): (BTreeSet<_>, _) =
            all.iter().cloned().partition(|(it, _)| over(*it));
        if self.publisher == node {
            self.server.change_subscriptions(&all, &subscriptions);
        }
        self.node_mut(node).subscriptions = subscriptions;
        over
    }

    /// Whether every server knows who has the slot, and nothing moves.
    fn is_settled(&self) -> bool {
        let knows = |node: &Node| node.owner == self.owner && node.migrating.is_none();
        self.moving.is_none() && self.nodes.iter().all(|node| knows(node) && !node.importing)
    }

    /// Another key reaches the server to which the slot moves; when there is none left, that has it.
    fn move_key(&mut self, now: Mono, rng: &mut fastrand::Rng) {
        let Some(moving) = &mut self.moving else { return };
        let mut left = self.server.ask(now, &["KEYS", "*"]);
        left.retain(|key| !moving.arrived.contains(key));
        left.sort_unstable();
        if let Some(key) = rng.choice(left) {
            moving.arrived.insert(key);
        } else {
            self.owner = moving.to;
            self.moving = None;
        }
    }

    /// A server hears who has the slot now.
    fn tell(&mut self, node: NodeId) {
        let owner = self.owner;
        let told = self.node_mut(node);
        (told.owner, told.migrating, told.importing) = (owner, None, false);
        if node != owner {
            let ended = self.end_subscriptions(node, |_| true);
            self.node_mut(node).ended.extend(ended);
        }
    }
}

fn try_again() -> Failure {
    Refusal { code: "TRYAGAIN".to_owned(), detail: String::new() }.into()
}

impl Cluster {
    /// The locks of `keys`, whose slot is the same, are on the first server.
    pub(super) fn new(server: Server, keys: &LockKeys, rng: &mut fastrand::Rng) -> Self {
        let replication_ids = servers().map(|node| format!("of {node:?}"));
        Self(Rc::new(RefCell::new(State {
            server,
            slot: keys.slot(),
            spread: rng.bool(),
            before_7: rng.u32(..4) == 0,
            nodes: replication_ids.map(Node::new).collect(),
            owner: NodeId(0),
            moving: None,
            publisher: NodeId(0),
        })))
    }

    pub(super) fn server(&self) -> Server {
        self.0.borrow().server.clone()
    }

    /// A call reaches a server.
    pub(super) fn execute(
        &self,
        now: Mono,
        node: NodeId,
        send_mode: SendMode,
        call: &Call,
    ) -> Result<Reply, Failure> {
        let mut state = self.0.borrow_mut();
        let keys = keys_of(call);
        if let Some(failure) = state.refuses(now, node, send_mode, call.script(), &keys) {
            return Err(failure);
        }
        state.node_mut(node).scripts.extend(call.script());
        state.let_publish(node);
        state.server.execute(now, call)
    }

    /// One of the plain commands of a call reaches a server.
    pub(super) fn execute_plain(
        &self,
        now: Mono,
        node: NodeId,
        send_mode: SendMode,
        call: &Call,
        part: Plain,
    ) -> Result<Value, Failure> {
        let state = self.0.borrow();
        let keys = keys_of_plain(call, part);
        match state.refuses(now, node, send_mode, None, &keys) {
            Some(failure) => Err(failure),
            None => state.server.execute_plain(now, call, part),
        }
    }

    /// A call that a server has executed reaches it once more.
    pub(super) fn execute_again(&self, now: Mono, node: NodeId, send_mode: SendMode, call: &Call) {
        let mut state = self.0.borrow_mut();
        if state.refuses(now, node, send_mode, call.script(), &keys_of(call)).is_none() {
            state.let_publish(node);
            state.server.execute_again(now, call);
        }
    }

    pub(super) fn probe(&self, now: Mono, node: NodeId) -> ServerProbe {
        let state = self.0.borrow();
        let replication_id = Some(state.node(node).replication_id.clone());
        ServerProbe { replication_id, ..state.server.probe(now) }
    }

    /// Which server has which slot, as `node` has heard.
    pub(super) fn routes(&self, node: NodeId) -> Routes {
        let state = self.0.borrow();
        let (slot, owner) = (state.slot, state.node(node).owner);
        if state.spread {
            let (below, above) = ((0, slot - 1, NodeId(0)), (slot + 1, SLOTS - 1, NodeId(1)));
            Routes::new(&[below, (slot, slot, owner), above])
        } else {
            Routes::new(&[(0, SLOTS - 1, owner)])
        }
    }

    /// Subscribes to a shard channel, or no longer; says whether that is done.
    pub(super) fn listen(
        &self,
        node: NodeId,
        subscriber: u64,
        channel: &Arc<str>,
        on: bool,
    ) -> bool {
        let mut state = self.0.borrow_mut();
        let subscription = (subscriber, Arc::clone(channel));
        let here = state.node(node).owner == node;
        let before = state.node(node).subscriptions.clone();
        if !on {
            state.node_mut(node).subscriptions.remove(&subscription);
        } else if here {
            state.node_mut(node).subscriptions.insert(subscription);
        }
        if state.publisher == node {
            state.server.change_subscriptions(&before, &state.node(node).subscriptions);
        }
        here || !on
    }

    /// The connection of a subscriber is gone; the channels that it has listened to.
    pub(super) fn end_subscriptions(&self, node: NodeId, subscriber: u64) -> Vec<Arc<str>> {
        let mut state = self.0.borrow_mut();
        let mut ended = state.end_subscriptions(node, |other| other == subscriber);
        let (own, others) = std::mem::take(&mut state.node_mut(node).ended)
            .into_iter()
            .partition(|(other, _)| *other == subscriber);
        state.node_mut(node).ended = others;
        let own: BTreeSet<_> = own;
        ended.extend(own);
        ended.into_iter().map(|(_, channel)| channel).collect()
    }

    /// A subscription that a server has ended unasked.
    pub(super) fn next_ended(&self, node: NodeId, subscriber: u64) -> Option<Arc<str>> {
        let mut state = self.0.borrow_mut();
        let ended = &mut state.node_mut(node).ended;
        let next = ended.iter().find(|(other, _)| *other == subscriber).cloned()?;
        ended.remove(&next);
        Some(next.1)
    }

    pub(super) fn has_ended(&self, node: NodeId, subscriber: u64) -> bool {
        self.0.borrow().node(node).ended.iter().any(|(other, _)| *other == subscriber)
    }

    /// The slot begins to move, if it does not already. Says where to.
    pub(super) fn begin_move(&self, rng: &mut fastrand::Rng) -> Option<NodeId> {
        let mut state = self.0.borrow_mut();
        let (owner, to) = (state.owner, any_server(rng));
        if !state.is_settled() || to == owner {
            return None;
        }
        state.node_mut(to).importing = true;
        state.node_mut(owner).migrating = Some(to);
        state.moving = Some(Move { to, arrived: BTreeSet::new(), pace: rng.u32(1..20) });
        Some(to)
    }

    /// A little later the next key of a slot that moves has arrived, or another server knows that all have.
    pub(super) fn go_on(&self, now: Mono, rng: &mut fastrand::Rng) {
        let mut state = self.0.borrow_mut();
        match state.moving.as_ref().map(|moving| moving.pace) {
            Some(pace) if rng.u32(..pace) == 0 => state.move_key(now, rng),
            None if !state.is_settled() && rng.u32(..4) == 0 => state.tell(any_server(rng)),
            _ => {}
        }
    }

    /// All keys arrive, and all servers know it.
    pub(super) fn settle(&self, now: Mono, rng: &mut fastrand::Rng) {
        let mut state = self.0.borrow_mut();
        while state.moving.is_some() {
            state.move_key(now, rng);
        }
        if !state.is_settled() {
            servers().for_each(|node| state.tell(node));
        }
    }

    /// A server has restarted with its data: it knows no scripts, and its connections are gone.
    pub(super) fn restart(&self, node: NodeId, replication_id: String) {
        self.0.borrow_mut().node_mut(node).scripts.clear();
        self.0.borrow_mut().node_mut(node).replication_id = replication_id;
    }

    /// A key that other code has made is where the old owner, who has it not, has sent that code.
    pub(super) fn place(&self, key: &str) {
        if let Some(moving) = &mut self.0.borrow_mut().moving {
            moving.arrived.insert(key.to_owned());
        }
    }

    /// Where the slot moves to, if it does.
    pub(super) fn target(&self) -> Option<NodeId> {
        self.0.borrow().moving.as_ref().map(|moving| moving.to)
    }

    /// Whether the two keys that keep the queue of a lock are on two servers; or each server says that another has the slot.
    pub(super) fn is_out_of_reach(&self, now: Mono, keys: &LockKeys) -> bool {
        let state = self.0.borrow();
        let Some(Move { to, .. }) = state.moving else {
            return !state.is_settled() && state.node(state.owner).owner != state.owner;
        };
        let apart = |one: &str, other: &str| {
            let at = |key: &str| state.has(now, to, key);
            state.exists(now, one) && state.exists(now, other) && at(one) != at(other)
        };
        apart(&keys.queue(), &keys.waiters())
    }
}
