//! One token's way to a lock: it asks, waits in the queue at the server, and is granted.
//!
//! A grant comes in the answer to a request, or by a message from the script that frees the lock. Messages are hints;
//! an entry in the queue polls from time to time, which also shows the server that its owner lives.
//!
//! Where a grant counts only once replicas have it, the caller is notified then. If the connection breaks before, the
//! same token asks again, so no grant counts as confirmed that another server never had.

use super::context::Context;
use super::handoff::HandoffBudget;
use super::interface::{Effect, Polling};
use super::lease::PendingRenewal;
use super::request::{CallError, Fallback, Finished};
use super::server_data::ServerData;
use super::servers::Servers;
use super::timers::{Owner, Timer};
use super::waiting_room::Rank;
use crate::protocol::{
    CLAIM, Call, Grant, HeldBy, Intent, LockKeys, Mode, Mono, NodeId, OpId, Refusal, Reply,
    ServerTime, TOKEN_PREFIX, Take, Token, TokenId, is_owner, valid_until,
};
use std::sync::Arc;
use std::time::Duration;

#[cfg(all(test, feature = "core"))]
mod tests;

/// An entry in the queue polls at this interval, in ms, with jitter. The scripts give up who misses two.
const POLL_MS: (u64, u64) = (2_000, 3_000);
/// Other code frees a lock without a message; also the polling interval of entries that get no messages.
const BLIND_POLL_MS: (u64, u64) = (100, 140);
/// Where the server tells that other code has freed a lock, the polling interval is so many times as long.
const TOLD_POLLS_LESS: u32 = 10;
/// Callers that a quorum wakes at the same time ask this far apart: longer than acquiring a lock takes.
const WOKEN_MS: (u64, u64) = (0, 10);
/// The first pause of a caller that a quorum has refused.
const CONTENDED_MS: (u64, u64) = (10, 40);

/// An entry for an owner polls at least this often, in ms: the owner may have got the lock elsewhere.
const OWNER_POLL_MS: (u64, u64) = (400, 600);

/// A caller that polls as old code does joins the queue when so many polls in a row have found it in use: by clients
/// that do not poll, since those that do leave it empty. It would get the lock only between two of them.
const QUEUE_SEEN_MAX: u8 = 3;

/// A token that asks for a lock, with or without an entry in the wait queue at the server.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent")]
pub(super) struct Entry {
    pub(super) keys: LockKeys,
    pub(super) beneficiary: Beneficiary,
    /// The wish of its caller if the lock is held: [`Self::next_intent`] says what the next call does.
    pub(super) intent: Intent,
    pub(super) mode: Mode,
    pub(super) pending: Pending,
    pub(super) token: Token,
    pub(super) label: Arc<str>,
    /// The lease of the last request: that of the first caller in the queue here.
    pub(super) ttl: Duration,
    /// The longest of the leases requested so far: the server may have granted as much.
    pub(super) max_ttl: Duration,
    /// The rest of its process's handoff budget, if the lock came by handoff.
    pub(super) budget: Option<HandoffBudget>,
    /// How many fences its grant reserves. Never changes, so that a repeat finds the same fence.
    pub(super) block: u8,
    pub(super) position: Position,
    /// When the caller came to which its position belongs.
    since: Mono,
    /// Its token owned nothing then: its first request was sent, or the last one whose answer says so.
    pub(super) unowned: Mono,
    /// Its first request had to wait for room, so it enters the queue at the position of its caller.
    was_delayed: bool,
    /// A message said that it has the lock, but not for how long; on a quorum, that the lock may be free.
    hinted: bool,
    /// A message said that the lock of other code may be free, and no answer has come since.
    pub(super) told: bool,
    /// How many refusals have come since the last sign that the lock may be free.
    misses: u32,
    /// How many answers in a row have said to a caller in no queue that others use it.
    queue_seen: u8,
    pub(super) approach: Approach,
    /// A request of this token was lost and may still be executed.
    pub(super) uncertain: bool,
    /// What it does in place of asking for the lock: to take over a hold of its owner. Meanwhile its own token stays in the
    /// queue.
    pub(super) takes_over: Option<Box<TakeOver>>,
    /// The grant by this server that waits for replicas.
    pub(super) confirming: Option<Box<(NodeId, Granted)>>,
}

/// The hold of its owner that an entry is to take over, and the token that does it: new, and in no queue.
#[derive(Debug)]
pub(super) struct TakeOver {
    pub(super) former: Token,
    pub(super) id: TokenId,
    token: Token,
    /// A request for it was lost and may still be executed.
    pub(super) uncertain: bool,
}

/// The callers that an entry serves.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Beneficiary {
    /// One caller, which is in no queue.
    Caller(OpId),
    /// The first caller that waits for the lock here.
    Queue,
}

/// The next request of an entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Approach {
    /// Plain commands, where the lock is likely to be free. They come once only: they grant nothing to a token that owns
    /// the lock.
    FastPath,
    Script,
    /// The script: the fast path may have taken the lock, which has no fence yet.
    Completion,
}

/// Why an entry has no lock yet.
#[derive(Debug)]
pub(super) enum Pending {
    /// The grant came when its lease had ended.
    Late,
    Unanswered,
    // Boxed, as below: few entries have it, and the others are small.
    Held(Box<HeldBy>),
    /// No majority of the servers could be reached.
    NoQuorum(Vec<String>),
    Refused(Refusal),
}

/// Where an entry is in the queue at the server, as far as is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum Position {
    Unknown,
    Queued(u64),
    /// It is in the queue, and asks to be moved back.
    MovingBack(u64),
    /// The server has lost the entry; it enqueues again at its old position.
    Lost(u64),
}

impl Position {
    /// The position after the server has lost the entry.
    const fn lost(self) -> Self {
        match self {
            Self::Queued(seq) | Self::MovingBack(seq) | Self::Lost(seq) => Self::Lost(seq),
            Self::Unknown => Self::Unknown,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Granted {
    pub(super) fence: u64,
    /// The end of the lease, by this process's clock.
    pub(super) until: Mono,
    /// The moment from which the lease counts: when it was requested, or granted by message.
    pub(super) since: Mono,
    /// The fence was issued later than this. A request for what its token has already is answered by the fence of that.
    pub(super) issued_after: Mono,
    pub(super) pending_renewal: Option<PendingRenewal>,
    /// It was taken on the fast path.
    pub(super) fast_path: bool,
}

/// The consequence of an answer or a message.
#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    Nothing,
    Granted(Granted),
    /// The grant is unusable: its token is given back, and another takes its position.
    Discard,
    /// An answer is known: requests that have waited only for that end, and the entry asks again.
    Known(Again),
    /// The server refuses for good: all callers that the entry serves get the error.
    Refused,
    Send,
}

/// When an entry asks again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Again {
    Now,
    Soon,
    /// When the lock may be free, or to stay in the queue.
    Poll,
}

/// Whether `holder`, the value of a lock, is other code's.
pub(super) fn is_foreign(holder: &str) -> bool {
    !holder.is_empty() && !holder.starts_with(TOKEN_PREFIX)
}

impl Entry {
    /// An entry that reserves one fence. Its token is new.
    pub(super) const fn new(
        keys: LockKeys,
        token: Token,
        ttl: Duration,
        label: Arc<str>,
        mode: Mode,
        beneficiary: Beneficiary,
        intent: Intent,
    ) -> Self {
        Self {
            keys,
            beneficiary,
            intent,
            mode,
            pending: Pending::Unanswered,
            token,
            label,
            ttl,
            max_ttl: Duration::ZERO,
            budget: None,
            block: 1,
            position: Position::Unknown,
            since: Mono::NEVER,
            unowned: Mono::NEVER,
            was_delayed: false,
            hinted: false,
            told: false,
            misses: 0,
            queue_seen: 0,
            approach: Approach::Script,
            uncertain: false,
            takes_over: None,
            confirming: None,
        }
    }

    /// The entry that takes its position under another token.
    pub(super) fn replacement(&self, token: Token) -> Self {
        let Self { ttl, mode, beneficiary, .. } = *self;
        let (keys, intent) = (self.keys.clone(), self.intent.clone());
        let label = Arc::clone(&self.label);
        Self {
            block: self.block,
            position: self.position.lost(),
            // It has stolen once, and must not steal again.
            uncertain: self.steals(),
            ..Self::new(keys, token, ttl, label, mode, beneficiary, intent)
        }
    }

    /// Its caller came at `since`, and must not precede earlier callers: enqueues at `seq`, if that is known.
    pub(super) const fn take_position(&mut self, since: Mono, seq: Option<u64>) {
        self.since = since;
        if let Some(seq) = seq {
            self.position = Position::Lost(seq);
        }
    }

    /// Its caller was served, and the next one came at `since`: moves back to `seq`.
    pub(super) const fn move_back(&mut self, since: Mono, seq: u64) {
        self.since = since;
        self.position = Position::MovingBack(seq);
    }

    /// Whether it has the position of a caller earlier than `began`, whose position is `seq`.
    pub(super) fn is_ahead_of(&self, began: Mono, seq: u64) -> bool {
        matches!(self.position, Position::Queued(own) if own < seq) && self.came_before(began)
    }

    /// Whether the caller whose position it has came before `began`.
    pub(super) fn came_before(&self, began: Mono) -> bool {
        self.since < began
    }

    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.position, Position::Queued(_) | Position::MovingBack(_))
    }

    /// Whether a caller that polls had better join the queue.
    pub(super) const fn should_join(&self) -> bool {
        self.queue_seen >= QUEUE_SEEN_MAX
    }

    /// The hold that its owner has elsewhere, as `held` tells.
    pub(super) fn hold_of_owner(&self, held: &HeldBy) -> Option<Token> {
        if !is_owner(&self.label) {
            return None;
        }
        Some(Token::from_text(&held.holder)).filter(|holder| holder.is_of_owner(&self.label))
    }

    /// The hold of `client`, this manager, that the entry has heard it waits for, if it cannot get the lock beside that. Of a
    /// theft a message tells, which says more.
    pub(super) fn behind(&self, client: &str) -> Option<TokenId> {
        let Pending::Held(held) = &self.pending else { return None };
        if self.steals() {
            return None;
        }
        let holder = match &*held.sharer {
            "" => &held.holder,
            _ if self.mode.is_shared() => return None,
            sharer => sharer,
        };
        Token::from_text(holder).number(client).map(TokenId)
    }

    /// Takes over the hold `former` of its owner. If that has ended meanwhile, the entry asks again where it is in the
    /// queue: for the next hold of its owner may be its own.
    pub(super) fn take_over(&mut self, context: &mut Context, former: Token) {
        let id = context.next_token_id();
        let token = context.token(id, self.mode, &self.label);
        self.takes_over = Some(Box::new(TakeOver { former, id, token, uncertain: false }));
        // It is of the entry's own token, which that hold may have taken the lock over from.
        self.confirming = None;
    }

    /// Whether it is to take a held lock away from its owners, beginning with a poll that shows them.
    pub(super) const fn steals(&self) -> bool {
        matches!(self.intent, Intent::Poll | Intent::Steal(_))
    }

    /// Whether it steals the lock, now that these are the owners. If an answer was lost it may have had the lock already,
    /// and a later owner must not be robbed.
    fn may_steal(&self, owners: &str) -> bool {
        match &self.intent {
            Intent::Poll => true,
            Intent::Steal(seen) => **seen != *owners && !self.uncertain,
            Intent::Try | Intent::Join(_) => false,
        }
    }

    /// The intent of the next call: an entry that waits enqueues at its position, or keeps its place.
    fn next_intent(&self, context: &Context, servers: &Servers) -> Intent {
        if !matches!(self.intent, Intent::Join(_)) {
            return self.intent.clone();
        }
        match self.position {
            Position::Unknown if self.was_delayed && self.came_before(context.now) => {
                Intent::Join(servers.position_of(context, &self.keys, self.since))
            }
            Position::Unknown => Intent::Join(None),
            Position::Queued(_) => Intent::Poll,
            Position::MovingBack(seq) | Position::Lost(seq) => Intent::Join(Some(seq)),
        }
    }

    /// The answer took longer than its lease. If the entry ends now, it gives back what was granted.
    pub(super) fn too_late(&mut self) -> Step {
        self.pending = Pending::Late;
        self.uncertain = true;
        Step::Known(Again::Soon)
    }

    fn refused(&mut self, refusal: Refusal) -> Step {
        // An entry in the queue needs only that the server keeps it.
        let transient = refusal.is_transient() || (self.is_queued() && refusal.is_shortage());
        self.pending = Pending::Refused(refusal);
        if transient { Step::Known(Again::Soon) } else { Step::Refused }
    }

    fn held(&mut self, held: Box<HeldBy>, quorum: bool) -> Step {
        let otherwise = self.position.lost();
        self.position = held.queued.map_or(otherwise, |queued| Position::Queued(queued.seq));
        self.misses = if self.hinted { 0 } else { self.misses + 1 };
        self.queue_seen = if held.queueing { self.queue_seen.saturating_add(1) } else { 0 };
        let hinted = self.hinted && !quorum;
        let owners = Arc::clone(&held.owners);
        self.pending = Pending::Held(held);
        if self.may_steal(&owners) {
            self.intent = Intent::Steal(owners);
            return Step::Send;
        }
        let now = hinted || matches!(self.position, Position::Lost(_));
        Step::Known(if now { Again::Now } else { Again::Poll })
    }
}

impl Entry {
    /// Lets it wait, if there is no room for its request. Returns whether it waits.
    pub(super) fn waits(&mut self, servers: &mut Servers, id: TokenId) -> bool {
        if servers.has_room(&self.keys) || self.confirming.is_some() || servers.asks(id) {
            return false;
        }
        let is_new = matches!(self.position, Position::Unknown);
        let may_own = self.uncertain || self.approach == Approach::Completion;
        let rank = if is_new && !may_own { Rank::New } else { Rank::Known };
        servers.wait(Owner::Entry(id), &self.keys, rank);
        self.was_delayed |= is_new;
        true
    }

    /// Asks for the lock, unless it has an open request or a grant that waits for replicas. `wanted`: the lease of the
    /// caller that it serves next, if there is one.
    pub(super) fn send(
        &mut self,
        context: &mut Context,
        servers: &mut Servers,
        id: TokenId,
        wanted: Option<Duration>,
    ) {
        if self.confirming.is_some() || servers.asks(id) {
            return;
        }
        self.ttl = wanted.unwrap_or(self.ttl);
        self.max_ttl = self.max_ttl.max(self.ttl);
        self.hinted = false;
        self.unowned = self.unowned.min(context.now);
        let call = self.call(context, servers);
        // While its slot moves, a poll is refused until all keys have arrived; until then the fallback keeps the entry.
        let keeps_entry = self.is_queued() && self.takes_over.is_none();
        let fallback = if keeps_entry { Fallback::KeepEntry } else { Fallback::None };
        let by_script = call.script().is_some();
        if servers.send(context, Owner::Entry(id), call, fallback) && !by_script {
            self.approach = Approach::Script;
        }
    }

    /// Asks right behind a release that is likely to grant it the lock. The answer confirms the grant, which a message
    /// alone would not do: so the lock can be handed off at once, without a claim.
    pub(super) fn ask_behind(&self, context: &mut Context, servers: &mut Servers, id: TokenId) {
        if self.confirming.is_none() && !servers.is_open(Owner::EntryBehind(id)) {
            let (keys, token, mode) = (self.keys.clone(), self.token.clone(), self.mode);
            let (ttl, block, epoch) = (self.ttl, self.block, ServerTime::default());
            let (inbox, intent) = (servers.inbox(context, &keys), Intent::Poll);
            let call = Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode };
            servers.send(context, Owner::EntryBehind(id), call, Fallback::None);
        }
    }

    fn call(&self, context: &Context, servers: &Servers) -> Call {
        let (keys, token) = (self.keys.clone(), self.token.clone());
        let (ttl, block, mode) = (self.ttl, self.block, self.mode);
        if let Some(take_over) = &self.takes_over {
            let (token, owner) = (take_over.token.clone(), take_over.former.clone());
            return Call::Adopt { keys, token, epoch: ServerTime::default(), owner, ttl, mode };
        }
        let is_new = matches!(self.position, Position::Unknown);
        if self.approach == Approach::FastPath
            && is_new
            && servers.of(&keys).data.has_fast_path(mode)
        {
            let token = if mode.is_shared() { token.lone_share() } else { token };
            return Call::Take { keys, token, ttl, block };
        }
        let (epoch, intent) = (ServerTime::default(), self.next_intent(context, servers));
        let inbox = servers.inbox(context, &keys);
        Call::Acquire { keys, token, ttl, epoch, block, inbox, intent, mode }
    }

    /// A request was answered, or never will be.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
        finished: Finished,
    ) -> Step {
        let owner = Owner::Entry(id);
        let (now, sent, data) = (context.now, finished.sent, &servers.get(finished.node).data);
        match finished.reply {
            Ok(Reply::Granted { fence } | Reply::Joined { fence }) => {
                self.granted(now, data, sent, fence, false)
            }
            Ok(Reply::Take(take)) => self.take_answered(now, data, sent, take),
            Ok(Reply::Held(held)) => {
                self.unowned = sent;
                self.held(held, context.config.quorum)
            }
            Ok(Reply::Owner(false)) if self.takes_over.is_some() => {
                self.takes_over = None;
                // A thief whose former hold has ended must not rob a later owner.
                self.uncertain |= self.steals();
                Step::Send
            }
            // The answer to the fallback, which has kept the entry.
            Ok(Reply::Owner(_)) => {
                let at = now + context.jitter(BLIND_POLL_MS);
                servers.retry_at(context, owner, at);
                Step::Nothing
            }
            Ok(_) => {
                debug_assert!(false, "not a reply of acquire");
                Step::Nothing
            }
            Err(CallError::NoQuorum(causes)) => {
                self.pending = Pending::NoQuorum(causes);
                Step::Known(Again::Soon)
            }
            Err(CallError::Refused(refusal)) => self.refused(refusal),
            Err(error) => {
                match error {
                    // The same token asks again once connected: if it was granted, it still is.
                    CallError::Lost(_) => {
                        match &mut self.takes_over {
                            Some(take_over) => take_over.uncertain = true,
                            // A steal begins with a poll, which grants nothing.
                            None => self.uncertain |= self.intent != Intent::Poll,
                        }
                        self.pending = Pending::Unanswered;
                    }
                    CallError::Halfway(_) => match &mut self.takes_over {
                        Some(take_over) => take_over.uncertain = true,
                        None => self.uncertain = true,
                    },
                    _ => {}
                }
                // The reconnection of an ASK target resumes no entry.
                servers.retry(context, owner);
                Step::Nothing
            }
        }
    }

    fn granted(
        &mut self,
        now: Mono,
        data: &ServerData,
        since: Mono,
        fence: u64,
        fast_path: bool,
    ) -> Step {
        let until = valid_until(since, self.ttl);
        if data.is_outdated(fence) {
            // To give back what it has taken over would release what the owner had. A repeat gets a later fence.
            return if self.takes_over.is_some() { Step::Send } else { Step::Discard };
        }
        if until <= now {
            return self.too_late();
        }
        let issued_after = self.unowned;
        let pending_renewal = None;
        Step::Granted(Granted { fence, until, since, issued_after, pending_renewal, fast_path })
    }

    /// The fast path was answered. The script completes what it has begun.
    fn take_answered(&mut self, now: Mono, data: &ServerData, sent: Mono, take: Take) -> Step {
        match take {
            Take::Taken { last } => {
                let before = last.saturating_sub(self.block.into());
                if data.may_follow(now, before) {
                    return self.granted(now, data, sent, before + 1, true);
                }
                self.approach = Approach::Completion;
                Step::Send
            }
            Take::Held | Take::Unseen => Step::Send,
            // Its release serves the waiters whom it has overtaken.
            Take::Overtaken => Step::Discard,
            Take::Unfenced => {
                self.approach = Approach::Completion;
                Step::Send
            }
        }
    }

    /// A message says that the lock is granted to an entry.
    pub(super) fn granted_by_message(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        data: &ServerData,
        id: TokenId,
        grant: &Grant,
    ) -> Step {
        if self.takes_over.is_some() || servers.is_open(Owner::EntryBehind(id)) {
            // The answer comes at about the same time, and says more.
            self.hinted = true;
            return Step::Nothing;
        }
        let now = context.now;
        if data.is_outdated(grant.fence) {
            return Step::Discard;
        }
        // A forged fence from the future would exceed those of all later owners, and if an answer later than the grant
        // denies it, the server has lost the grant since. Once its clock was set back, a message cannot be dated. Only a new
        // answer counts then.
        let denied = data.is_from_the_future(now, grant.fence)
            || data.is_set_back(now)
            || matches!(&self.pending, Pending::Held(held) if held.time > grant.time);
        let since = data.local_time(now, grant.time).map(|since| since.min(now));
        match since.filter(|_| !denied).map(|since| (since, valid_until(since, grant.claim))) {
            Some((since, until)) if now < until => {
                context.stats.hand_off(now.since(since));
                let (fence, pending_renewal) = (grant.fence, Some(PendingRenewal::Claim));
                let (issued_after, fast_path) = (since, false);
                Step::Granted(Granted {
                    fence,
                    until,
                    since,
                    issued_after,
                    pending_renewal,
                    fast_path,
                })
            }
            _ => {
                // The rest of the claim is unknown: the entry asks for it.
                self.hinted = true;
                Step::Send
            }
        }
    }

    /// Whether it waits in the queue for a lock that other code has. One that polls as old code does leaves that its share.
    pub(super) fn waits_for_other_code(&self, context: &Context) -> bool {
        let Pending::Held(held) = &self.pending else { return false };
        !context.config.quorum && matches!(self.intent, Intent::Join(_)) && is_foreign(&held.holder)
    }

    /// Polls when the lock may be free, or to stay in the queue. A message in vain may be one of many that say nothing, so
    /// the server is not asked for the next one until a poll.
    pub(super) fn poll_later(&mut self, context: &mut Context, servers: &Servers, id: TokenId) {
        let server = servers.of(&self.keys);
        let was_told = std::mem::take(&mut self.told);
        let is_told = server.data.tells && !was_told && self.waits_for_other_code(context);
        if is_told {
            let (node, keys) = (servers.node(&self.keys), self.keys.clone());
            context.push(Effect::Track { node, keys, token: None });
        }
        let pause = self.poll_pause(context, server.connection.pubsub_denied, is_told);
        servers.retry_at(context, Owner::Entry(id), context.now + pause);
    }

    /// A caller of this process has the lock of a quorum: its release lets this entry ask, or a poll, if the lock was lost.
    pub(super) fn wait_for_release(
        &mut self,
        context: &mut Context,
        servers: &Servers,
        id: TokenId,
    ) {
        self.misses = 1;
        self.poll_later(context, servers, id);
    }

    /// A lock of a quorum may be free: asks soon.
    pub(super) fn ask_soon(&mut self, context: &mut Context, servers: &Servers, id: TokenId) {
        let at = context.now + context.jitter(WOKEN_MS);
        self.misses = 0;
        let owner = Owner::Entry(id);
        if servers.is_open(owner) {
            self.hinted = true;
        } else if context.timers.at(Timer::retry(owner)).is_none_or(|planned| planned > at) {
            servers.retry_at(context, owner, at);
        }
    }

    /// The pause before the next poll: until the holder's lease ends, and a few seconds at most to stay in the queue.
    fn poll_pause(&self, context: &mut Context, pubsub_denied: bool, is_told: bool) -> Duration {
        if let Some(Polling { least, most }) = context.config.polling
            && self.intent == Intent::Try
        {
            return context.between(least, most);
        }
        let heartbeat = context.jitter(POLL_MS);
        let (blind, behind) = (context.jitter(BLIND_POLL_MS), context.jitter((50, 200)));
        let Pending::Held(held) = &self.pending else { return heartbeat };
        if context.config.quorum {
            return self.quorum_pause(context, held, pubsub_denied);
        }
        if is_foreign(&held.holder) && !is_told {
            return blind;
        }
        let claim = CLAIM.min(self.ttl);
        let position = held.queued.map_or(1, |queued| queued.position);
        let after_expiry = if position <= 1 { Duration::from_millis(5) } else { behind };
        let expiry = held.remaining.map_or(heartbeat, |remaining| remaining + after_expiry);
        if is_told {
            // The server may tell late of a key that has ended.
            return expiry.min(blind * TOLD_POLLS_LESS);
        }
        // A waiter that died ahead of this one leaves the queue only when a script looks.
        let given_up = held.awaited.map_or(heartbeat, |awaited| awaited + after_expiry);
        let mut pause = heartbeat.min(expiry).min(given_up);
        if position <= 2 {
            // A grant may come at any moment, and its message be lost.
            pause = pause.min(claim);
        }
        if pubsub_denied {
            pause = pause.min(claim / 3).min(blind);
        }
        if is_owner(&self.label) {
            pause = pause.min(context.jitter(OWNER_POLL_MS));
        }
        pause
    }

    /// The pause before a quorum is asked again: there is no queue, so random pauses keep callers apart. They grow
    /// while the lock stays held, since a message says when it may be free.
    fn quorum_pause(&self, context: &mut Context, held: &HeldBy, pubsub_denied: bool) -> Duration {
        if self.misses == 0 {
            return context.jitter(WOKEN_MS);
        }
        let unnotified = pubsub_denied || !held.holder.starts_with(TOKEN_PREFIX);
        let (least_ms, most_ms) = CONTENDED_MS;
        let doublings = self.misses.min(if unnotified { 2 } else { 5 }) - 1;
        let pause = context.jitter((least_ms << doublings, most_ms << doublings));
        let apart = context.jitter(WOKEN_MS);
        held.remaining.map_or(pause, |remaining| pause.min(remaining + apart))
    }
}
