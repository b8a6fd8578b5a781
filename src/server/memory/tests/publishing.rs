//! Messages reach all subscribers, in order, and only once.

use super::{Bench, int};
use crate::server::memory::Message;

fn message(subscriber: u64, channel: &str, payload: &str) -> Message {
    Message { subscriber, channel: channel.to_owned(), payload: payload.as_bytes().to_vec() }
}

#[test]
fn a_message_goes_to_all_subscribers() {
    let bench = Bench::new();
    for (subscriber, channel) in [(1, "a"), (2, "a"), (2, "b"), (2, "a")] {
        bench.store.subscribe(subscriber, channel);
    }
    bench.check(&[
        ("PUBLISH a one", int(2)),
        ("PUBLISH nobody two", int(0)),
        ("PUBLISH b three", int(1)),
    ]);
    let expected = [message(1, "a", "one"), message(2, "a", "one"), message(2, "b", "three")];
    assert_eq!(bench.store.take_messages(), expected);
    assert_eq!(bench.store.take_messages(), []);
}

#[test]
fn an_unsubscribed_client_gets_no_messages() {
    let bench = Bench::new();
    for (subscriber, channel) in [(1, "a"), (1, "b"), (2, "a")] {
        bench.store.subscribe(subscriber, channel);
    }
    bench.store.unsubscribe(1);
    bench.check(&[("PUBLISH a x", int(1)), ("PUBLISH b x", int(0))]);
    assert_eq!(bench.store.take_messages(), [message(2, "a", "x")]);
}

#[test]
fn a_script_publishes_and_counts() {
    let mut bench = Bench::new();
    bench.store.subscribe(1, "a");
    let counted = bench.eval(
        "redis.call('PUBLISH', 'a', 'x')
         local counts = redis.call('PUBSUB', 'NUMSUB', 'a', 'b')
         return counts[2] * 10 + counts[4]",
    );
    assert_eq!(counted, int(10));
    assert_eq!(bench.store.take_messages(), [message(1, "a", "x")]);
}
