//! Trying one server after the other.

use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Starts one attempt after the other, the next as soon as one has failed or has taken `patience`: a silent
/// server would otherwise block all others. Returns the first accepted output, or all failures.
///
/// Source: <https://www.rfc-editor.org/rfc/rfc8305>, section 5
pub(super) async fn first_of<F, T, E>(
    attempts: impl IntoIterator<Item = F>,
    patience: Duration,
    accept: impl Fn(F::Output) -> Result<T, E>,
) -> Result<T, Vec<E>>
where
    F: Future<Output: Send> + Send + 'static,
{
    let mut attempts = attempts.into_iter();
    let mut under_way = JoinSet::new();
    let mut failures = Vec::new();
    loop {
        if let Some(attempt) = attempts.next() {
            under_way.spawn(attempt);
        }
        match timeout(patience, under_way.join_next()).await {
            Ok(Some(Ok(output))) => match accept(output) {
                Ok(accepted) => return Ok(accepted),
                Err(failure) => failures.push(failure),
            },
            Ok(None) => return Err(failures),
            // The attempt is slow, or the runtime has ended its task.
            Ok(Some(Err(_))) | Err(_) => {}
        }
    }
}
