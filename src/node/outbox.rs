//! Records on their way from the core to JavaScript, and when JavaScript has to be woken.
//!
//! Any thread adds records; one thread takes them. No record may stay unread while JavaScript sleeps: `npm
//! run loom` tries every order of the threads.

use crate::protocol::Mono;
use std::collections::{BTreeMap, VecDeque};
use std::sync::PoisonError;

#[cfg(loom)]
use loom::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};
#[cfg(not(loom))]
use std::sync::{
    Mutex, MutexGuard,
    atomic::{AtomicU64, Ordering},
};

/// The length of a record. `records` defines its meaning.
pub(super) const RECORD_LENGTH: usize = 4;

/// One outcome, loss or notice.
pub(super) type Record = [f64; RECORD_LENGTH];

/// The records of one environment that JavaScript has not read yet, and the texts of type `T` of some of
/// them.
pub(super) struct Outbox<T> {
    queue: Mutex<Queue<T>>,
    /// When JavaScript last drained, in µs of the monotonic clock.
    turned: AtomicU64,
}

struct Queue<T> {
    records: VecDeque<Record>,
    /// The texts of outcomes, by entry.
    texts: BTreeMap<u32, T>,
    /// The texts of notices, in the order of their records.
    notices: VecDeque<String>,
    /// Whether JavaScript was woken and has not emptied the queue since.
    armed: bool,
}

impl<T> Outbox<T> {
    pub(super) fn new() -> Self {
        let queue = Queue {
            records: VecDeque::new(),
            texts: BTreeMap::new(),
            notices: VecDeque::new(),
            armed: false,
        };
        Self { queue: Mutex::new(queue), turned: AtomicU64::new(0) }
    }

    /// Adds a record, with the text of its entry.
    pub(super) fn push(&self, record: Record, text: Option<(u32, T)>) {
        let mut queue = self.lock();
        queue.records.push_back(record);
        queue.texts.extend(text);
    }

    /// Adds the record of a notice, with its text.
    pub(super) fn push_notice(&self, record: Record, text: String) {
        let mut queue = self.lock();
        queue.records.push_back(record);
        queue.notices.push_back(text);
    }

    /// Whether JavaScript has to be woken for records. The caller that gets `true` wakes it; others get
    /// `false` until JavaScript has emptied the queue.
    pub(super) fn arm(&self) -> bool {
        let mut queue = self.lock();
        let wake = !queue.armed && !queue.records.is_empty();
        queue.armed |= wake;
        wake
    }

    /// Moves records into `into` and returns their number. If they do not fill it, the next record wakes again.
    pub(super) fn drain(&self, clock: impl FnOnce() -> Mono, into: &mut [f64]) -> usize {
        let mut queue = self.lock();
        let count = queue.take(into);
        // Under the same lock: a record added between the two would wake no reader.
        queue.armed = !queue.records.is_empty();
        drop(queue);
        // Read only now: this turn must not seem older than a heartbeat that it has just taken, or the core would not ask again.
        self.turned.store(clock().as_micros(), Ordering::Relaxed);
        count
    }

    /// Whether there are records that JavaScript has not taken.
    pub(super) fn has_records(&self) -> bool {
        !self.lock().records.is_empty()
    }

    /// Takes the text of `entry`.
    pub(super) fn take_text(&self, entry: u32) -> Option<T> {
        self.lock().texts.remove(&entry)
    }

    /// Takes the text of the oldest notice.
    pub(super) fn take_notice(&self) -> Option<String> {
        self.lock().notices.pop_front()
    }

    /// When JavaScript last drained.
    pub(super) fn last_turn(&self) -> Mono {
        Mono::from_micros(self.turned.load(Ordering::Relaxed))
    }

    /// A panic elsewhere leaves only whole records behind, so poison is ignored.
    fn lock(&self) -> MutexGuard<'_, Queue<T>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Queue<T> {
    fn take(&mut self, into: &mut [f64]) -> usize {
        let mut count = 0;
        for space in into.chunks_exact_mut(RECORD_LENGTH) {
            let Some(record) = self.records.pop_front() else {
                break;
            };
            space.copy_from_slice(&record);
            count += 1;
        }
        count
    }
}

#[cfg(all(test, loom))]
mod model {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicUsize;

    /// The drain function under test.
    type Drain = fn(&Outbox<u32>, &mut [f64]) -> usize;

    /// An environment: a wake arrives later, on its own thread, which then drains until the queue is empty.
    struct Environment {
        outbox: Outbox<u32>,
        wakes: AtomicUsize,
    }

    impl Environment {
        fn put(&self, entry: u32) {
            self.outbox.push([f64::from(entry), 0.0, 0.0, 0.0], Some((entry, entry)));
            if self.outbox.arm() {
                self.wakes.fetch_add(1, Ordering::AcqRel);
            }
        }

        fn turn(&self, drain: Drain, buffer: &mut [f64], seen: &mut Vec<u32>) {
            while self.wakes.swap(0, Ordering::AcqRel) > 0 {
                loop {
                    let count = drain(&self.outbox, buffer);
                    for record in buffer.chunks_exact(RECORD_LENGTH).take(count) {
                        let entry = record[0] as u32;
                        assert_eq!(
                            self.outbox.take_text(entry),
                            Some(entry),
                            "a record without its text"
                        );
                        seen.push(entry);
                    }
                    if count * RECORD_LENGTH < buffer.len() {
                        break;
                    }
                }
            }
        }
    }

    /// Two threads add records while JavaScript drains: it reads each exactly once, without polling.
    fn every_record_is_seen(drain: Drain) {
        // Room for one record is filled more than once.
        for room in [1, 2] {
            every_record_is_seen_in(room, drain);
        }
    }

    fn every_record_is_seen_in(room: usize, drain: Drain) {
        loom::model(move || {
            let environment =
                Arc::new(Environment { outbox: Outbox::new(), wakes: AtomicUsize::new(0) });
            let threads = [1, 2].map(|entry| {
                let environment = Arc::clone(&environment);
                loom::thread::spawn(move || environment.put(entry))
            });
            let (mut seen, mut buffer) = (Vec::new(), vec![0.0; room * RECORD_LENGTH]);
            environment.turn(drain, &mut buffer, &mut seen);
            for thread in threads {
                thread.join().unwrap();
            }
            environment.turn(drain, &mut buffer, &mut seen);
            seen.sort_unstable();
            assert_eq!(seen, [1, 2], "a record that nobody reads");
        });
    }

    /// Reads a clock on which any time may pass between two readings.
    fn read(clock: &AtomicUsize) -> Mono {
        Mono::from_micros(clock.fetch_add(1, Ordering::AcqRel) as u64)
    }

    /// The keeper asks for a heartbeat at some time and adds its record, while JavaScript drains. The turn that takes the
    /// record counts as an answer, so the keeper does not ask again.
    fn a_heartbeat_is_felt(drain: fn(&Outbox<u32>, &AtomicUsize, &mut [f64]) -> usize) {
        loom::model(move || {
            let (outbox, clock) = (Arc::new(Outbox::<u32>::new()), Arc::new(AtomicUsize::new(1)));
            let keeper = {
                let (outbox, clock) = (Arc::clone(&outbox), Arc::clone(&clock));
                loom::thread::spawn(move || {
                    let asked = read(&clock);
                    outbox.push([0.0; RECORD_LENGTH], None);
                    asked
                })
            };
            let mut buffer = [0.0; RECORD_LENGTH];
            let is_taken = drain(&outbox, &clock, &mut buffer) == 1;
            let asked = keeper.join().unwrap();
            assert!(!is_taken || outbox.last_turn() >= asked, "a heartbeat that nobody feels");
        });
    }

    #[test]
    fn no_heartbeat_is_lost() {
        a_heartbeat_is_felt(|outbox, clock, into| outbox.drain(|| read(clock), into));
    }

    #[test]
    #[should_panic(expected = "a heartbeat that nobody feels")]
    fn a_clock_that_is_read_first_loses_a_heartbeat() {
        a_heartbeat_is_felt(|outbox, clock, into| {
            let now = read(clock);
            outbox.drain(|| now, into)
        });
    }

    #[test]
    fn no_record_is_left_behind() {
        every_record_is_seen(|outbox, into| outbox.drain(Mono::default, into));
    }

    #[test]
    #[should_panic(expected = "a record that nobody reads")]
    fn a_flag_that_is_cleared_outside_the_lock_loses_a_record() {
        every_record_is_seen(|outbox, into| {
            let mut queue = outbox.lock();
            let (count, left) = (queue.take(into), !queue.records.is_empty());
            drop(queue);
            outbox.lock().armed = left;
            count
        });
    }

    #[test]
    #[should_panic(expected = "a record that nobody reads")]
    fn a_flag_that_is_never_cleared_loses_a_record() {
        every_record_is_seen(|outbox, into| outbox.lock().take(into));
    }
}
