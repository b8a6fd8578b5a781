//! Sequences of a quorum that random schedules seldom reach. Every call is judged as in these.

use super::quorum::{Kind, LONG, LONGEST, Simulation};
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, HoldTerms, LeaseId, Outcome, Protocol, Quorum, Wait};
use crate::protocol::{Mode, Script};
use std::sync::Arc;
use std::time::Duration;

/// The first process requests the lock.
fn acquire(simulation: &mut Simulation, ttl: Duration, hold: HoldTerms) {
    let (name, label) = ("a".to_owned(), Arc::default());
    let (wait, mode) = (Wait::Forever, Mode::Exclusive);
    let acquire = Command::Acquire { name, ttl, wait, label, hold, mode };
    simulation.processes[0].command(simulation.now, acquire);
}

/// The first process and these servers deliver all messages between them.
fn talk(simulation: &mut Simulation, nodes: std::ops::Range<usize>) {
    for _ in 0..3 {
        for node in nodes.clone() {
            while simulation.execute(0, node) || simulation.answer(0, node) {}
        }
    }
    simulation.collect(0);
}

fn talk_to_all(simulation: &mut Simulation) {
    let nodes = simulation.nodes.len();
    talk(simulation, 0..nodes);
}

fn held(simulation: &mut Simulation) -> LeaseId {
    simulation.processes[0].held.pop().expect("the lock is held").0
}

/// The first process replaces its connection to the first server. The one request on the wire, of this
/// script, arrives half a second later.
fn give_up_connection(simulation: &mut Simulation, script: Script) {
    simulation.processes[0].event(0, Event::Disconnected("no answer".to_owned()));
    simulation.connect(0, 0);
    let lost = std::mem::take(&mut simulation.processes[0].dropped);
    assert!(lost.len() == 1 && lost[0].1.script() == Some(script), "{lost:?}");
    let at = simulation.now + ms(500);
    for (node, call) in lost {
        simulation.nodes[node].arrives_late(at, call);
    }
}

/// Whether the first server has the lock.
fn has_lock(simulation: &Simulation) -> bool {
    simulation.nodes[0].server.owner(simulation.now, &World::keys()).is_some()
}

/// A lock on all servers but the first, which will vote late.
fn acquire_without_first(simulation: &mut Simulation, ttl: Duration) -> LeaseId {
    acquire(simulation, ttl, ONE_LEASE);
    let nodes = simulation.nodes.len();
    talk(simulation, 1..nodes);
    give_up_connection(simulation, Script::Vote);
    held(simulation)
}

/// The lock is released everywhere; then a late request takes it on the first server, which must not keep it.
fn release_ahead_of_late_request(simulation: &mut Simulation, lease: LeaseId) {
    let release = Command::Release { lease, exported: false };
    simulation.processes[0].command(simulation.now, release);
    talk_to_all(simulation);
    assert!(simulation.processes[0].open.is_empty(), "the release is answered");
    assert!(!has_lock(simulation), "and is done");
    simulation.pass(ms(600));
    assert!(has_lock(simulation), "the late request has taken it again");
    simulation.pass(ms(600));
    talk_to_all(simulation);
    assert!(!has_lock(simulation), "it is withdrawn once more");
}

/// Of five servers, if a vote could cut a lease:
///
/// 1. A is cut off from server 1, and its vote for 1.5 s there is on the wire when A gives that connection up.
/// 2. A has the lock on three others, and copies it to server 1. A loses one of the three, and extends to 60 s.
/// 3. Within a second the vote arrives on server 1, which forgets the lock after 1.5 s.
/// 4. B gets a majority, and A still holds one by its clock.
#[test]
fn a_late_vote_shortens_no_lease() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, ms(1_500));
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk_to_all(&mut simulation);
    assert!(has_lock(&simulation), "the first server has a copy");
    simulation.pass(ms(3_000));
    assert!(has_lock(&simulation), "it keeps the lock for the extended lease");
}

/// 1. A's vote on server 1 is on the wire when A gives that connection up. The others grant the lock.
/// 2. A releases, on a new connection to server 1 as well, and is answered `true`.
/// 3. The vote arrives. Without a second withdrawal server 1 has the lock for a whole lease.
#[test]
fn a_vote_after_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, LONG);
    release_ahead_of_late_request(&mut simulation, lease);
}

#[test]
fn a_vote_after_a_copy_and_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, LONG);
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk_to_all(&mut simulation);
    assert!(has_lock(&simulation), "the first server has a copy");
    release_ahead_of_late_request(&mut simulation, lease);
}

#[test]
fn an_unreachable_minority_causes_no_delay() {
    // Three servers.
    let mut simulation = Simulation::new(0, Kind::Hasty);
    simulation.processes[0].event(0, Event::Disconnected("away".to_owned()));
    acquire(&mut simulation, LONG, ONE_LEASE);
    talk(&mut simulation, 1..3);
    held(&mut simulation);
}

#[test]
fn a_release_that_only_a_minority_answers_is_unknown() {
    let mut simulation = Simulation::new(0, Kind::Hasty);
    acquire(&mut simulation, LONG, ONE_LEASE);
    talk_to_all(&mut simulation);
    let lease = held(&mut simulation);
    for node in 1..3 {
        simulation.processes[0].event(node, Event::Disconnected("away".to_owned()));
    }
    let release = Command::Release { lease, exported: false };
    simulation.processes[0].command(simulation.now, release);
    while simulation.execute(0, 0) || simulation.answer(0, 0) {}
    let outcomes = &simulation.processes[0].outcomes;
    assert!(matches!(outcomes[..], [(_, Outcome::Quorum(_))]), "{outcomes:?}");
}

#[test]
fn servers_have_no_vote_for_a_longer_lease_than_was_known() {
    for (ttl, granted) in [(LONGEST, 1), (LONG, 0)] {
        // The uptime of all servers is at least the longer of these.
        let mut simulation = Simulation::new(0, Kind::Losing);
        acquire(&mut simulation, ttl, ONE_LEASE);
        talk_to_all(&mut simulation);
        assert_eq!(simulation.processes[0].held.len(), granted);
    }
}

#[test]
fn a_copy_after_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let nodes = simulation.nodes.len();
    acquire(&mut simulation, ms(1_500), ONE_LEASE);
    talk_to_all(&mut simulation);
    let lease = held(&mut simulation);
    simulation.nodes[0].end_lease(simulation.now);
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk(&mut simulation, 0..1);
    talk(&mut simulation, 1..nodes);
    give_up_connection(&mut simulation, Script::CopyLock);
    release_ahead_of_late_request(&mut simulation, lease);
}

/// 1. A process is stopped during a vote, for longer than `commandTimeout`.
/// 2. It finds the votes, has the fence written, and then runs its timers.
/// 3. By the machine's own limit the request would be too old: the manager would close the connections on which all
///    servers have just answered.
#[test]
fn a_quorum_that_was_stopped_during_an_election_keeps_its_connections() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    acquire(&mut simulation, ms(30_000), RENEWED);
    let nodes = 0..simulation.nodes.len();
    for node in nodes.clone() {
        assert!(simulation.execute(0, node), "each is asked for its vote");
    }
    simulation.processes[0].stopped_until = Some(simulation.now + ms(60_000));
    simulation.pass(COMMAND_TIMEOUT + ms(1_000));
    simulation.wake_up(0);
    simulation.hear(0);
    simulation.processes[0].input(Quorum::handle_timeout);
    // All have answered: the second round begins at once.
    assert!(
        simulation.processes[0]
            .connections
            .iter()
            .all(|connection| connection.up && !connection.connecting),
        "every connection is kept"
    );
    for node in nodes {
        while simulation.execute(0, node) || simulation.answer(0, node) {}
    }
    simulation.collect(0);
    assert_eq!(simulation.processes[0].held.len(), 1);
}

/// The first process asks three servers for the lock for a second and a half, and is stopped until its lease is
/// over by its own clock. The servers have voted late, so there it is not.
fn granted_too_late() -> Simulation {
    let mut simulation = Simulation::new(0, Kind::Hasty);
    acquire(&mut simulation, ms(1_500), ONE_LEASE);
    simulation.processes[0].stopped_until = Some(simulation.now + ms(60_000));
    simulation.pass(ms(1_400));
    for node in 0..3 {
        assert!(simulation.execute(0, node), "each is asked for its vote");
    }
    simulation.pass(ms(200));
    simulation.wake_up(0);
    talk_to_all(&mut simulation);
    assert!(
        simulation.processes[0].held.is_empty() && has_lock(&simulation),
        "the lease is over here, and not at the servers"
    );
    simulation
}

#[test]
fn a_grant_that_came_too_late_is_given_back_also_where_the_next_vote_is_not_asked_for() {
    let mut simulation = granted_too_late();
    simulation.processes[0].event(0, Event::Disconnected("away".to_owned()));
    simulation.pass(ms(100));
    talk(&mut simulation, 1..3);
    let lease = held(&mut simulation);
    simulation.processes[0].command(simulation.now, Command::Release { lease, exported: false });
    talk(&mut simulation, 1..3);
    assert!(has_lock(&simulation), "the first server has the earlier attempt still");
    simulation.connect(0, 0);
    simulation.pass(ms(10));
    talk_to_all(&mut simulation);
    assert!(!has_lock(&simulation), "the first server gets its withdrawal, too");
}

#[test]
fn a_server_that_votes_after_the_grant_gets_the_fence() {
    // Three servers.
    let mut simulation = Simulation::new(0, Kind::Hasty);
    acquire(&mut simulation, LONG, ONE_LEASE);
    talk(&mut simulation, 0..2);
    held(&mut simulation);
    talk(&mut simulation, 2..3);
    let fence =
        |node: usize| simulation.nodes[node].server.own_fence(simulation.now, &World::keys());
    assert_eq!(fence(2), fence(0));
}

/// Of three servers:
///
/// 1. A holds the lock on servers 1 and 2, extends it by 4 s, and is answered by both.
/// 2. Server 1 restarts without its data, and has no vote until the longest lease is over.
/// 3. A extends again. The answers take so long that the caller's patience ends. Then servers 1 and 3 deny the
///    extension.
/// 4. The attempt is withdrawn from server 2. If A still counted on the 4 s, servers 2 and 3 would grant the lock to
///    B beside it.
#[test]
fn a_lock_is_lost_that_was_denied_when_nobody_waited_for_the_answer() {
    // Three servers.
    let mut simulation = Simulation::new(0, Kind::Hasty);
    acquire(&mut simulation, LONG, ONE_LEASE);
    talk_to_all(&mut simulation);
    let lease = held(&mut simulation);
    for node in 0..3 {
        simulation.nodes[node].end_lease(simulation.now);
        simulation.processes[0].event(node, Event::Disconnected("away".to_owned()));
    }
    let extend = Command::Extend { lease, ttl: None };
    simulation.processes[0].command(simulation.now, extend.clone());
    simulation.pass(COMMAND_TIMEOUT.mul_f64(0.9));
    (0..3).for_each(|node| simulation.connect(0, node));
    simulation.pass(ms(250));
    assert!(simulation.processes[0].open.is_empty(), "the caller's patience has ended");
    assert_eq!(simulation.processes[0].leases(simulation.now).count(), 1, "not denied yet");
    talk_to_all(&mut simulation);
    assert_eq!(simulation.processes[0].leases(simulation.now).count(), 0, "it knows");
    simulation.processes[0].command(simulation.now, extend);
    let outcomes = &simulation.processes[0].outcomes;
    assert!(matches!(outcomes[..], [(_, Outcome::Lost)]), "{outcomes:?}");
}

#[test]
fn a_quorum_is_idle_once_nothing_is_left_to_do() {
    // Three servers.
    let mut simulation = Simulation::new(0, Kind::Hasty);
    assert!(simulation.processes[0].quorum.is_idle(), "a new quorum has nothing to do");
    acquire(&mut simulation, LONG, ONE_LEASE);
    assert!(!simulation.processes[0].quorum.is_idle(), "it waits for votes");
    talk_to_all(&mut simulation);
    let lease = held(&mut simulation);
    assert!(!simulation.processes[0].quorum.is_idle(), "it holds a lock");
    simulation.processes[0].event(0, Event::Disconnected("away".to_owned()));
    simulation.processes[0].command(simulation.now, Command::Release { lease, exported: false });
    talk(&mut simulation, 1..3);
    simulation.pass(ms(500));
    assert!(simulation.processes[0].open.is_empty(), "the release is answered");
    assert!(!simulation.processes[0].quorum.is_idle(), "it owes a withdrawal");
}
