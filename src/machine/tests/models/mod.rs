//! Models of the protocol, small enough to check every state.
//!
//! The simulator runs the code itself on random schedules. A model is a short version of the protocol with
//! all its schedules: it shows that the rules are right, and that each is needed, since every variant that
//! breaks a rule breaks a promise.

mod foreign;
mod lock;
mod owner;
mod quorum_fence;

use stateright::{Checker, HasDiscoveries, Model};
use std::fmt::Debug;
use std::hash::Hash;

/// Checks every state of `model`, of which there must be at least `least`: its promises hold in all of them,
/// and its "sometimes" properties in some.
fn assert_holds<M>(what: &str, model: M, least: usize)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let checker = model.checker().spawn_bfs().join();
    let states = checker.unique_state_count();
    println!("{what}: {states} states");
    checker.assert_properties();
    assert!(checker.is_done(), "{what}: the search was cut off");
    assert!(states >= least, "{what}: only {states} states; does anything happen in it?");
}

/// Searches `model`, a variant without a rule, until it breaks `promise`.
fn assert_breaks<M>(what: &str, model: M, promise: &'static str)
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let found = HasDiscoveries::AnyOf([promise].into());
    let checker = model.checker().finish_when(found).spawn_bfs().join();
    let Some(path) = checker.discovery(promise) else {
        panic!("{what}: {} states, and {promise:?} holds in all", checker.unique_state_count());
    };
    let states = checker.unique_state_count();
    println!("{what}: {promise:?} is broken after {states} states by {:?}", path.into_actions());
}
