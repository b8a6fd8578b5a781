//! Queries that wait for what their manager has asked for before them.

use super::ticket::Ticket;
use crate::machine::{Protocol, UnderWay};
use crate::protocol::query::Question;

/// A query, and the changes that it must see and that may not have arrived yet.
struct Query {
    ticket: Ticket,
    question: Question,
    before: Vec<UnderWay>,
}

/// A query goes to the servers on a connection of its own, and would overtake what is on its way to them.
#[derive(Default)]
pub(super) struct Queries(Vec<Query>);

impl Queries {
    /// The first page waits for the changes that are on their way. The others show what came before the first.
    pub(super) fn add(&mut self, ticket: Ticket, question: Question, machine: &dyn Protocol) {
        let is_first = question.cursor.is_empty();
        let before = if is_first { machine.under_way() } else { Vec::new() };
        self.0.push(Query { ticket, question, before });
    }

    /// Takes the queries that nothing holds up any more; all of them once the manager has ended.
    pub(super) fn take_ready(
        &mut self,
        machine: &dyn Protocol,
        ended: bool,
    ) -> Vec<(Ticket, Question)> {
        for query in &mut self.0 {
            // A change that has arrived is not looked at again: another one may get its number.
            query.before.retain(|what| machine.is_under_way(*what));
        }
        let ready = self.0.extract_if(.., |query| ended || query.before.is_empty());
        ready.map(|query| (query.ticket, query.question)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::Caller;
    use crate::core::tests::{HANG, config, hold};
    use crate::core::watch::Watch;
    use crate::machine::{
        Command, Denied, Event, LeaseId, LossReason, Machine, NodeId, Notice, OpId, Outcome,
        ServerProbe, Wait,
    };
    use crate::protocol::{Mode, Mono, ServerTime};
    use std::sync::Arc;

    struct Nobody;

    impl Caller for Nobody {
        fn complete(&self, _: OpId, _: Outcome) {}
        fn lose(&self, _: LeaseId, _: LossReason) {}
        fn tell(&self, _: Notice) {}
        fn ping(&self) {}
        fn last_turn(&self) -> Mono {
            Mono::default()
        }
        fn wake(&self) {}
        fn watch(&self, _: Watch) {}
    }

    /// A machine that asks for a lock.
    fn asking() -> Machine {
        let (mut machine, mut out) = (Machine::new(config("c".to_owned()), 5), Vec::new());
        let now = Mono::from_micros(1_000_000);
        machine.handle_command(now, OpId(1), Command::Open, &mut out);
        let time = ServerTime::from_micros(9);
        let probe = ServerProbe { replication_id: Some("one".to_owned()), time, uptime: None };
        let denied = Denied::default();
        let connected = Event::Connected { probe, risks: Vec::new(), denied };
        machine.handle_event(now, NodeId(0), connected, &mut out);
        let (name, label, wait, mode) =
            ("a".to_owned(), Arc::default(), Wait::Never, Mode::Exclusive);
        let acquire = Command::Acquire { name, ttl: HANG, wait, label, hold: hold(false), mode };
        machine.handle_command(now, OpId(2), acquire, &mut out);
        assert!(!machine.under_way().is_empty(), "the request is on its way");
        machine
    }

    fn ready(queries: &mut Queries, machine: &Machine, ended: bool) -> Vec<String> {
        let ready = queries.take_ready(machine, ended);
        ready.into_iter().map(|(_, question)| question.cursor).collect()
    }

    #[test]
    fn the_first_page_waits_for_what_is_on_its_way_and_the_others_do_not() {
        let (mut queries, mut machine) = (Queries::default(), asking());
        for cursor in ["", "5", ""] {
            let question = Question { cursor: cursor.to_owned(), ..Question::default() };
            queries.add(Ticket::new(OpId(9), Arc::new(Nobody)), question, &machine);
        }
        assert_eq!(ready(&mut queries, &machine, false), ["5"]);
        assert_eq!(ready(&mut queries, &machine, false), [""; 0]);
        let lost = Event::Disconnected("cut".to_owned());
        machine.handle_event(Mono::from_micros(1_000_001), NodeId(0), lost, &mut Vec::new());
        assert_eq!(ready(&mut queries, &machine, false), ["", ""], "it has not arrived");
        assert_eq!(ready(&mut queries, &machine, true), [""; 0], "once");
    }

    #[test]
    fn no_query_waits_for_a_manager_that_has_ended() {
        let (mut queries, machine) = (Queries::default(), asking());
        queries.add(Ticket::new(OpId(9), Arc::new(Nobody)), Question::default(), &machine);
        assert_eq!(ready(&mut queries, &machine, false), [""; 0]);
        assert_eq!(ready(&mut queries, &machine, true), [""]);
    }
}
