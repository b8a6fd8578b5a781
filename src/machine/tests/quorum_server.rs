//! One server of the quorum's simulator: its clock, its restarts, and late requests.

use super::quorum_watch::{Seen, judge, parts};
use super::server::Server;
use super::world::World;
use crate::machine::ServerProbe;
use crate::protocol::{Call, Failure, Mono, Reply, Script, ServerTime};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}

pub(super) struct Node {
    pub(super) server: Server,
    drift_ppm: i64,
    started: Mono,
    /// The start by its own wall clock.
    started_at: ServerTime,
    /// The tokens whose leases ended early, and their regular end by its wall clock.
    ended_early: BTreeMap<String, ServerTime>,
    pub(super) down_until: Option<Mono>,
    /// Requests of lost connections, and when they arrive.
    late: Vec<(Mono, Call)>,
    known: BTreeSet<Script>,
}

/// The effect of a call.
pub(super) struct Done {
    pub(super) reply: Result<Reply, Failure>,
    /// The lock was released, so subscribers must get a message.
    pub(super) must_tell: bool,
    /// The rule that it broke.
    pub(super) broken: Option<String>,
}

impl Node {
    /// A server that has been up for `uptime`.
    pub(super) fn new(now: Mono, uptime: Duration, step_us: i64, drift_ppm: i64) -> Self {
        let server = Server::new();
        server.step_clock(step_us);
        let mut node = Self {
            server,
            drift_ppm,
            started: Mono::from_micros(now.as_micros() - micros(uptime)),
            started_at: ServerTime::default(),
            ended_early: BTreeMap::new(),
            down_until: None,
            late: Vec::new(),
            known: Script::ALL.into(),
        };
        node.started_at =
            ServerTime::from_micros(node.server.time(now).as_micros() - micros(uptime));
        node
    }

    pub(super) fn uptime(&self, now: Mono) -> Duration {
        now.since(self.started)
    }

    /// Whether a token has the lock here, or would have it but for an early end of its lease.
    pub(super) fn carries(&self, now: Mono, token: &str) -> bool {
        let owner = self.server.owner(now, &World::keys());
        owner.as_deref().and_then(parts).is_some_and(|(owner, _)| owner == token)
            || self.ended_early.get(token).is_some_and(|until| *until > self.server.time(now))
    }

    /// Ends a lease early, and returns its token.
    pub(super) fn end_lease(&mut self, now: Mono) -> Option<String> {
        let key = World::keys().lock().to_owned();
        let owner = self.server.owner(now, &World::keys())?;
        let (token, _) = parts(&owner)?;
        let left_ms: u64 = self.server.command(now, &["PTTL", &key])?.parse().ok()?;
        let until = self.server.time(now).as_micros() + left_ms * 1_000;
        // The manager replaces a lease that ended early, and the new lease may be shorter. The later end counts.
        let known = self.ended_early.entry(token.to_owned()).or_default();
        *known = ServerTime::from_micros(until).max(*known);
        self.server.command(now, &["DEL", &key]);
        Some(token.to_owned())
    }

    /// Its answer to a new connection. Its uptime is the difference of two clocks without their fractions, as
    /// Redis computes it: up to a second too much.
    pub(super) fn probe(&self, now: Mono) -> ServerProbe {
        let seconds = |time: ServerTime| time.as_micros() / 1_000_000;
        let up = seconds(self.server.time(now)).saturating_sub(seconds(self.started_at));
        ServerProbe {
            uptime: Some(Duration::from_secs(up)),
            replication_id: None,
            ..self.server.probe(now)
        }
    }

    pub(super) fn execute(&self, now: Mono, call: &Call) -> Done {
        let before = Seen::on(&self.server, now);
        let reply = self.server.execute(now, call);
        let after = Seen::on(&self.server, now);
        let broken = judge(call, self.server.time(now), &reply, &before, &after)
            .map(|rule| format!("{rule}: {call:?} -> {reply:?}\n  {before:?}\n  {after:?}"));
        let freed = matches!((call, &reply), (Call::Withdraw { .. }, Ok(Reply::Owner(true))));
        Done { reply, must_tell: freed && before.is_marked(), broken }
    }

    /// Whether it can execute a script, whose source may come with the call.
    pub(super) fn knows(&mut self, script: Script, with_source: bool) -> bool {
        if with_source {
            self.known.insert(script);
        }
        self.known.contains(&script)
    }

    pub(super) fn arrives_late(&mut self, at: Mono, call: Call) {
        self.late.push((at, call));
    }

    /// Sets its clocks to `now`, skewed by `skew`; returns the late requests that arrive by then.
    pub(super) fn pass(&mut self, now: Mono, skew: impl Fn(i64, Mono) -> Mono) -> Vec<Call> {
        self.server.set_clock(skew(self.drift_ppm, now));
        self.down_until = self.down_until.filter(|until| *until > now);
        let (due, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.late).into_iter().partition(|(at, _)| *at <= now);
        self.late = rest;
        due.into_iter().map(|(_, call)| call).collect()
    }

    /// Drops its buffers.
    pub(super) fn restart(&mut self, now: Mono, down: Duration, loses: bool) {
        self.late.clear();
        self.known.clear();
        self.started = now + down;
        let at = self.server.time(now).as_micros() + micros(down);
        self.started_at = ServerTime::from_micros(at);
        self.down_until = Some(now + down);
        if loses {
            self.end_lease(now);
            self.server.flush();
        }
    }
}
