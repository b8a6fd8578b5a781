//! Sequences of a quorum that random schedules seldom meet. Every call is judged as in these.

use super::quorum::{Kind, LONG, LONGEST, Simulation};
use super::world::{COMMAND_TIMEOUT, ONE_LEASE, RENEWED, World, ms};
use crate::machine::{Command, Event, Hold, LeaseId, Outcome, Protocol, Quorum, Wait};
use crate::protocol::call::Mode;
use crate::protocol::script::Script;
use std::time::Duration;

/// The first process wants the lock.
fn acquire(simulation: &mut Simulation, ttl: Duration, hold: Hold) {
    let (name, label) = ("a".to_owned(), String::new());
    let (wait, mode) = (Wait::Forever, Mode::Exclusive);
    let acquire = Command::Acquire { name, ttl, wait, label, hold, mode };
    simulation.processes[0].command(simulation.now, acquire);
}

/// The first process and these servers tell each other all that there is to tell.
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

/// The first process gives its connection to the first server up, and makes another. The one request on the
/// wire, of this script, arrives half a second later.
fn give_up_connection(simulation: &mut Simulation, script: Script) {
    simulation.processes[0].event(0, Event::Disconnected("no answer".to_owned()));
    simulation.connect(0, 0);
    let lost = std::mem::take(&mut simulation.processes[0].dropped);
    assert!(lost.len() == 1 && lost[0].1.script() == script, "{lost:?}");
    let at = simulation.now + ms(500);
    for (node, call) in lost {
        simulation.nodes[node].arrives_late(at, call);
    }
}

/// Whether the first server has the lock.
fn has_lock(simulation: &Simulation) -> bool {
    simulation.nodes[0].server.owner(simulation.now, &World::keys()).is_some()
}

/// A lock that all servers but the first have, which will get the vote late.
fn acquire_without_first(simulation: &mut Simulation, ttl: Duration) -> LeaseId {
    acquire(simulation, ttl, ONE_LEASE);
    let nodes = simulation.nodes.len();
    talk(simulation, 1..nodes);
    give_up_connection(simulation, Script::Vote);
    held(simulation)
}

/// The lock is released everywhere; then the first server gets it by a late request, and does not keep it.
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

#[test]
fn a_vote_that_comes_late_cuts_no_lease() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, ms(1_500));
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk_to_all(&mut simulation);
    assert!(has_lock(&simulation), "the first server is filled");
    simulation.pass(ms(3_000));
    assert!(has_lock(&simulation), "it keeps the lock for the extended lease");
}

#[test]
fn a_vote_that_comes_after_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, LONG);
    release_ahead_of_late_request(&mut simulation, lease);
}

#[test]
fn a_vote_that_comes_after_a_fill_and_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let lease = acquire_without_first(&mut simulation, LONG);
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk_to_all(&mut simulation);
    assert!(has_lock(&simulation), "the first server is filled");
    release_ahead_of_late_request(&mut simulation, lease);
}

#[test]
fn a_minority_that_is_away_is_in_nobodys_way() {
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
        // All have been up for as long as the longer of these.
        let mut simulation = Simulation::new(0, Kind::Losing);
        acquire(&mut simulation, ttl, ONE_LEASE);
        talk_to_all(&mut simulation);
        assert_eq!(simulation.processes[0].held.len(), granted);
    }
}

#[test]
fn a_fill_that_comes_after_the_release_is_withdrawn() {
    let mut simulation = Simulation::new(0, Kind::Steady);
    let nodes = simulation.nodes.len();
    acquire(&mut simulation, ms(1_500), ONE_LEASE);
    talk_to_all(&mut simulation);
    let lease = held(&mut simulation);
    simulation.nodes[0].end_lease(simulation.now);
    simulation.processes[0].command(simulation.now, Command::Extend { lease, ttl: Some(LONG) });
    talk(&mut simulation, 0..1);
    talk(&mut simulation, 1..nodes);
    give_up_connection(&mut simulation, Script::Fill);
    release_ahead_of_late_request(&mut simulation, lease);
}

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
    // Everybody has answered: it goes on at once, with the second round.
    assert!(simulation.processes[0].links.iter().all(|link| link.up && !link.connecting));
    for node in nodes {
        while simulation.execute(0, node) || simulation.answer(0, node) {}
    }
    simulation.collect(0);
    assert_eq!(simulation.processes[0].held.len(), 1);
}
