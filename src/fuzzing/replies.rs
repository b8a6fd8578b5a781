//! Replies and pushes of a hostile or broken server.

use super::query::{self, inspection};
use super::{Directory, persistence, sentinel, slots, subscriber, values, wire};
use crate::protocol::query::Page;
use crate::protocol::{Failure, Refusal, Script};
use crate::server::Deliver;
use redis::{Parser, Value};
use std::sync::Arc;

/// No error takes more of a log than this, however much the server sent.
const TEXT_MAX: usize = 1_000;

/// Parses replies from bytes as a socket delivers them, and gives each to every reader of replies.
///
/// # Panics
/// If a reply makes a reader panic, or its error text is not fit for people.
pub fn replies(data: &[u8]) {
    let values = parse(data);
    for value in &values {
        for script in Script::ALL {
            judge(wire::reply(script, value.clone()));
        }
        judge(sentinel::read_address(value));
        let directory = Directory::default();
        let _slots = slots::read_slots(value, "asked");
        judge(query::read_scan(value.clone()));
        inspection::add(&mut Page::default(), "key", value.clone());
        if let Value::ServerError(error) = value {
            refuse(error.code(), error.details().unwrap_or_default(), &directory);
        }
        push(value);
        push(&values::push(value.clone()));
    }
    judge(wire::probe(values.get(..wire::PROBE_COMMANDS).unwrap_or(&values)));
    judge(wire::introduced(&values, "a:1"));
    let _about = (
        wire::connected_replicas(&values),
        wire::is_replica(&values),
        persistence::forgets(&values, "a:1"),
    );
}

fn parse(data: &[u8]) -> Vec<Value> {
    let (mut parser, mut left, mut values) = (Parser::new(), data, Vec::new());
    while !left.is_empty()
        && let Ok(value) = parser.parse_value(&mut left)
    {
        values.push(value);
    }
    values
}

fn push(push: &Value) {
    let _told = wire::pushed(push);
    let _successor = sentinel::successor(push, "mymaster");
    let nobody: Deliver = Arc::new(|_| {});
    subscriber::overhear(push.clone(), &nobody);
}

fn refuse(code: &str, detail: &str, directory: &Directory) {
    let mut failure =
        Failure::Refused(Refusal { code: code.to_owned(), detail: detail.to_owned() });
    directory.redirect(&mut failure, "asked");
}

fn judge<T>(answer: Result<T, Failure>) {
    if let Err(failure) = answer {
        judge_failure(&failure);
    }
}

fn judge_failure(failure: &Failure) {
    let text = failure.to_string();
    assert!(!text.is_empty(), "{failure:?} says nothing");
    assert!(text.len() <= TEXT_MAX, "{} bytes of {failure:?}", text.len());
}
