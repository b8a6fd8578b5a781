//! Asks every server of an address about itself, for its operators.
//!
//! It uses its own connections, so that it also covers a server that no manager could use.

use super::dialogue::{Dialogue, in_time};
use super::servers::servers;
use super::{Directory, wire};
use crate::protocol::survey::{Answer, Survey};
use crate::protocol::{Failure, Mono, ServerTime};
use crate::server::Endpoint;
use redis::{Cmd, Value};
use std::sync::Arc;
use tokio::task::JoinSet;

/// The number of measured round trips. The first one includes the rest of the connection's setup.
const ROUND_TRIPS: usize = 6;

/// The questions: each one is a command.
pub(crate) type Questions = Vec<Vec<String>>;

/// The answers of every server of an address, on connections of their own. All are asked at once.
pub(crate) async fn survey(
    endpoint: &Arc<Endpoint>,
    questions: Questions,
) -> Result<Vec<Survey>, Failure> {
    let servers = servers(endpoint, &Arc::<Directory>::default()).await?;
    let mut surveys = vec![Survey::default(); servers.len()];
    let mut asking = JoinSet::new();
    for (number, server) in servers.into_iter().enumerate() {
        let questions = questions.clone();
        asking.spawn(async move { (number, about(&server, &questions).await) });
    }
    while let Some(asked) = asking.join_next().await {
        let (number, survey) = asked.map_err(|defect| Failure::Lost(defect.to_string()))?;
        if let Some(place) = surveys.get_mut(number) {
            *place = survey;
        }
    }
    Ok(surveys)
}

async fn about(server: &Endpoint, questions: &Questions) -> Survey {
    let name = server.address.to_string();
    match in_time(server, ask(server, questions)).await {
        Ok(survey) => Survey { server: name, ..survey },
        Err(failure) => {
            Survey { server: name, failure: Some(failure.to_string()), ..Survey::default() }
        }
    }
}

async fn ask(server: &Endpoint, questions: &Questions) -> Result<Survey, Failure> {
    let mut dialogue = Dialogue::open_database(server).await?;
    // The other answers say so if a user may not ask for the time.
    let mut survey = match measure(&mut dialogue).await {
        Err(Failure::Refused(_)) => Survey::default(),
        measured => measured?,
    };
    for question in questions {
        let mut command = Cmd::new();
        command.arg(question);
        survey.answers.push(match dialogue.ask_one(&command).await {
            Ok(value) => Answer { text: lines(value).join("\n"), refused: false },
            Err(lost @ Failure::Lost(_)) => return Err(lost),
            // A missing script, or a key on another server, is an answer as well.
            Err(other) => Answer { text: other.to_string(), refused: true },
        });
    }
    Ok(survey)
}

/// Measures a few round trips, and compares clocks by the quickest of them.
async fn measure(dialogue: &mut Dialogue) -> Result<Survey, Failure> {
    let mut trips = Vec::with_capacity(ROUND_TRIPS);
    for _ in 0..ROUND_TRIPS {
        let (sent, here) = (Mono::now(), ServerTime::now());
        let there = wire::server_time(&dialogue.ask_one(&redis::cmd("TIME")).await?)?;
        let took = u64::try_from(Mono::now().since(sent).as_micros()).unwrap_or(u64::MAX);
        trips.push(Trip { took, here, there });
    }
    Ok(compared(&trips))
}

fn compared(trips: &[Trip]) -> Survey {
    let quickest = trips.iter().min_by_key(|trip| trip.took);
    Survey {
        ahead: quickest.map_or(0, Trip::ahead),
        round_trips: trips.iter().map(|trip| trip.took).collect(),
        ..Survey::default()
    }
}

/// A round trip that asked a server for its time.
struct Trip {
    /// How long it took, in µs.
    took: u64,
    /// When it began, by the clock of this process.
    here: ServerTime,
    /// The server's answer.
    there: ServerTime,
}

impl Trip {
    /// How far the server's clock is ahead, in µs, if the server read it halfway.
    fn ahead(&self) -> i64 {
        let there = i64::try_from(self.there.as_micros()).unwrap_or(i64::MAX);
        let here = i64::try_from(self.here.as_micros() + self.took / 2).unwrap_or(i64::MAX);
        there - here
    }
}

/// All texts and numbers in a value, from left to right.
fn lines(value: Value) -> Vec<String> {
    match value {
        Value::Array(values) | Value::Set(values) => values.into_iter().flat_map(lines).collect(),
        Value::BulkString(bytes) => vec![String::from_utf8_lossy(&bytes).into_owned()],
        Value::Int(number) => vec![number.to_string()],
        Value::Map(pairs) => {
            pairs.into_iter().flat_map(|(key, value)| [lines(key), lines(value)].concat()).collect()
        }
        Value::Okay => vec!["OK".to_owned()],
        Value::SimpleString(text) | Value::VerbatimString { text, .. } => vec![text],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_and_number_of_an_answer_has_a_line() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let map = Value::Map(vec![(text("save"), text("")), (text("databases"), Value::Int(16))]);
        assert_eq!(lines(map), ["save", "", "databases", "16"]);
        assert_eq!(lines(Value::Array(vec![Value::Okay, Value::Nil])), ["OK"]);
    }

    #[test]
    fn clocks_are_compared_in_the_middle_of_the_quickest_round_trip() {
        let [early, late] = [1_000_000, 1_000_700].map(ServerTime::from_micros);
        let slow = Trip { took: 500, here: late, there: early };
        let quick = Trip { took: 400, here: early, there: late };
        let Survey { ahead, round_trips, .. } = compared(&[slow, quick]);
        assert_eq!((ahead, &round_trips[..]), (500, &[500, 400][..]));
        assert_eq!(compared(&[Trip { took: 400, here: late, there: early }]).ahead, -900);
    }
}
