//! What a panic of a task ends.
//!
//! ```text
//! a task of the whole server (accepts, keeps deadlines) ─panic─► Inbox.fail: the process ends with an error
//! a task of one connection                              ─panic─► this connection, with a line in the log
//! ```
//!
//! Without this, tokio would keep the panic in a handle that is never read, and the server would go on
//! without accepting, say.

use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::task::Poll;

use tokio::task::spawn_local;

use crate::server::call_table::CallTable;
use crate::server::connection_state::Conn;
use crate::tasks::panic_text;

/// Start a task of one connection, which a panic closes.
pub fn spawn_of_connection(
    table: &Rc<CallTable>,
    conn: &Rc<Conn>,
    task: impl Future<Output = ()> + 'static,
) {
    let (table, conn) = (table.clone(), conn.clone());
    // In a box, or it would be copied from one future into the next: this is on the way of a request.
    let mut task = Box::pin(task);
    spawn_local(poll_fn(move |cx| {
        catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))).unwrap_or_else(|panic| {
            let text = panic_text(&*panic);
            table.inbox.add_notice(format!("connection closed: {text}: {}", conn.peer));
            conn.break_off();
            Poll::Ready(())
        })
    }));
}

#[cfg(test)]
mod tests {
    use tokio::task::{yield_now, LocalSet};

    use super::*;
    use crate::fuzzing;

    fn run(task: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, task);
    }

    #[test]
    fn a_panic_of_a_connections_task_ends_that_connection() {
        run(async {
            let table = fuzzing::table();
            let conns = ["one", "other"]
                .map(|peer| Rc::new(Conn::new(peer.into(), 0, fuzzing::port(None))));
            spawn_of_connection(&table, &conns[0], async { panic!("of a test") });
            spawn_of_connection(&table, &conns[1], async {});
            yield_now().await;
            conns[0].is_broken_off_now().await;
            assert!(!conns[1].is_broken_off.get());
            let notices = table.inbox.take().notices;
            assert_eq!(notices, ["connection closed: panic: of a test: one"]);
            assert_eq!(table.inbox.failure(), None);
        });
    }
}
