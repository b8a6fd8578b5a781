//! Schedules of seeds that were never run before, and of all that have ever failed.
//!
//! `npm run simulate` says which seeds to run. A seed that breaks a promise does not end the campaign: its events are
//! told, without those that do not matter.

use super::steps::{Run, Steps, shorten};
use super::{quorum, simulator};
use crate::protocol::Mono;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The seeds that have failed once.
const KNOWN: &str = include_str!("seeds.txt");
/// One of this many seeds is used for a quorum as well.
const SEEDS_PER_QUORUM: u64 = 10;
/// How often a long campaign says how far it is.
const REPORT: Duration = Duration::from_secs(60);
/// The name of its threads.
const THREAD: &str = "campaign";

/// One schedule of a seed.
#[derive(Clone, Copy)]
enum Schedule {
    Server(simulator::Kind),
    Quorum(quorum::Kind),
}

impl Schedule {
    fn run(self, seed: u64, steps: Steps, is_told: bool) -> Run {
        match self {
            Self::Server(kind) => simulator::run(seed, kind, steps, is_told),
            Self::Quorum(kind) => quorum::run(seed, kind, steps, is_told),
        }
    }

    /// The story of a broken promise, if this schedule breaks one.
    fn judge(self, seed: u64) -> Option<String> {
        let run = |steps| self.run(seed, steps, false);
        let whole = run(Steps::default());
        whole.broken.as_ref()?;
        let Run { broken, story, .. } = self.run(seed, shorten(&whole, run), true);
        Some(broken.unwrap_or_default().lines().next().unwrap_or_default().to_owned() + &story)
    }
}

fn servers_of(seed: u64) -> impl Iterator<Item = Schedule> {
    simulator::kinds_of(seed).map(Schedule::Server)
}

fn quorums() -> impl Iterator<Item = Schedule> {
    quorum::KINDS.into_iter().map(Schedule::Quorum)
}

/// What all threads of a campaign have done so far.
#[derive(Default)]
struct Campaign {
    servers: AtomicU64,
    quorums: AtomicU64,
    broken: AtomicU64,
}

impl Campaign {
    fn run(&self, seed: u64, schedule: Schedule) {
        if let Some(story) = schedule.judge(seed) {
            self.broken.fetch_add(1, Relaxed);
            println!("BROKEN: {story}");
        }
        let count =
            if matches!(schedule, Schedule::Server(_)) { &self.servers } else { &self.quorums };
        count.fetch_add(1, Relaxed);
    }

    fn report(&self, began: Mono) {
        let [servers, quorums, broken] =
            [&self.servers, &self.quorums, &self.broken].map(|count| count.load(Relaxed));
        let ms = Mono::now().since(began).as_millis().max(1);
        let rate = u128::from(servers + quorums) * 1_000 / ms;
        println!(
            "{servers} schedules of one server and {quorums} of a quorum in {} s, {rate} per second; {broken} broke a promise",
            ms / 1_000
        );
    }
}

#[test]
#[ignore = "npm run simulate says which seeds to run"]
fn fresh_seeds() {
    let (from, seeds) =
        (simulator::number("HOLDFAST_FROM", 0), simulator::number("HOLDFAST_SEEDS", 1));
    silence_threads();
    let (campaign, next, began) = (Campaign::default(), AtomicU64::new(0), Mono::now());
    let reported = Mutex::new(began);
    let work = || {
        while let Some(number) = Some(next.fetch_add(1, Relaxed)).filter(|it| *it < seeds) {
            let seed = from + number;
            let quorums = quorums().filter(|_| number.is_multiple_of(SEEDS_PER_QUORUM));
            servers_of(seed).chain(quorums).for_each(|it| campaign.run(seed, it));
            let mut reported = reported.lock().unwrap();
            if Mono::now().since(*reported) >= REPORT {
                *reported = Mono::now();
                campaign.report(began);
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, Into::into) {
            let thread = std::thread::Builder::new().name(THREAD.to_owned());
            thread.spawn_scoped(scope, work).unwrap();
        }
    });
    campaign.report(began);
    assert_eq!(campaign.broken.into_inner(), 0, "promises were broken");
}

/// What goes wrong in a campaign is told by its story.
fn silence_threads() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() != Some(THREAD) {
            report(panic);
        }
    }));
}

#[test]
fn seeds_that_have_failed_once_fail_no_more() {
    let seeds = KNOWN.lines().filter_map(|line| line.split_whitespace().next()?.parse().ok());
    let seeds: Vec<u64> = seeds.collect();
    assert!(!seeds.is_empty(), "no seeds are known");
    for seed in seeds {
        let stories = servers_of(seed).chain(quorums()).filter_map(|it| it.judge(seed));
        let stories: Vec<_> = stories.collect();
        assert!(stories.is_empty(), "{}", stories.join("\n"));
    }
}
