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
