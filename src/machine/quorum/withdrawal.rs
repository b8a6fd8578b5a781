//! Withdrawals to be sent or repeated, since a connection was lost before them or before their answer.

use super::candidacy::NodeRequest;
use super::servers::node_id;
use crate::machine::context::Context;
use crate::machine::release::REPEAT_AFTER;
use crate::machine::timers::Timer;
use crate::protocol::Mono;
use std::collections::BTreeMap;

/// By server and attempt.
#[derive(Debug, Default)]
pub(super) struct Withdrawals(BTreeMap<(usize, u64), Withdrawal>);

/// A token that must be withdrawn, and once more in case a server buffers an earlier request.
#[derive(Debug)]
struct Withdrawal {
    request: NodeRequest,
    /// When it is sent next, while connected.
    due: Mono,
    /// The server has confirmed it once; only the repeat is left.
    confirmed: bool,
}

impl Withdrawals {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Keeps a withdrawal that must be sent, or repeated, from `due` on. No ballot counts it.
    pub(super) fn add(&mut self, node: usize, request: NodeRequest, due: Mono) {
        let request = NodeRequest { ballot: None, ..request };
        let id = (node, request.attempt);
        self.0.insert(id, Withdrawal { request, due, confirmed: false });
    }

    /// A withdrawal was not answered by its script.
    pub(super) fn failed(&mut self, context: &mut Context, node: usize, request: &NodeRequest) {
        self.add(node, request.clone(), context.now + REPEAT_AFTER);
        context
            .timers
            .set(Timer::Withdrawal(node_id(node), request.attempt), context.now + REPEAT_AFTER);
    }

    /// A server has answered a withdrawal that was sent at `sent`.
    pub(super) fn answered(
        &mut self,
        context: &mut Context,
        node: usize,
        attempt: u64,
        sent: Mono,
    ) {
        let Some(withdrawal) = self.0.get_mut(&(node, attempt)) else { return };
        let timer = Timer::Withdrawal(node_id(node), attempt);
        if withdrawal.confirmed && sent >= withdrawal.due {
            self.0.remove(&(node, attempt));
            return context.timers.clear(timer);
        }
        if !withdrawal.confirmed {
            withdrawal.confirmed = true;
            withdrawal.due = context.now + REPEAT_AFTER;
        }
        context.timers.set(timer, withdrawal.due);
    }

    /// A server is connected again: plans its withdrawals.
    pub(super) fn connected(&self, context: &mut Context, node: usize) {
        for ((_, attempt), withdrawal) in self.0.range((node, 0)..=(node, u64::MAX)) {
            let timer = Timer::Withdrawal(node_id(node), *attempt);
            context.timers.set(timer, withdrawal.due.max(context.now));
        }
    }

    /// The request of a withdrawal that is due.
    pub(super) fn request(&self, node: usize, attempt: u64) -> Option<&NodeRequest> {
        self.0.get(&(node, attempt)).map(|withdrawal| &withdrawal.request)
    }

    #[cfg(all(test, feature = "core"))]
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
