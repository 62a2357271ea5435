//! Tasks whose panic is reported.
//!
//! Without this, tokio would keep the panic in a handle that is never read.

use std::future::{poll_fn, Future};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::pin::pin;
use std::task::Poll;

use tokio::task::{spawn_local, JoinHandle};

/// The text of a panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("of an unknown kind"))
}

/// Run to the end; an error is the text of a panic.
pub async fn caught<F: Future>(task: F) -> Result<F::Output, String> {
    let mut task = pin!(task);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(panic_text(&*panic))),
    })
    .await
}

/// Start a task without which the server is useless; `fail` gets the text of its panic.
pub fn spawn_vital(
    what: &'static str,
    fail: impl FnOnce(String) + 'static,
    task: impl Future<Output = ()> + 'static,
) -> JoinHandle<()> {
    spawn_local(async move {
        if let Err(text) = caught(task).await {
            fail(format!("the task that {what} has ended: {text}"));
        }
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::task::{yield_now, LocalSet};

    use super::*;

    fn run(task: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        LocalSet::new().block_on(&runtime, task);
    }

    #[test]
    fn a_panic_of_a_vital_task_is_reported() {
        run(async {
            let reported = Rc::new(RefCell::new(String::new()));
            let kept = reported.clone();
            let fail = move |text| *kept.borrow_mut() = text;
            let task = async {
                yield_now().await;
                panic!("of {}", "a test");
            };
            spawn_vital("counts", fail, task).await.expect("the panic is caught");
            assert_eq!(*reported.borrow(), "the task that counts has ended: panic: of a test");
        });
    }
}
