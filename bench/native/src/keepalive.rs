//! Lease keep-alives: S streams, so many unanswered on each at most.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::task::spawn_local;

use crate::grpc::{Connection, Messages, Target};
use crate::options::Options;
use crate::proto::{keep_alive, number_of};
use crate::tally::Tally;
use crate::{started, Fault};

const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
const TTL: u64 = 3;

pub async fn play(options: &Options) -> Result<String, Fault> {
    let connections =
        Connection::open_many(&Target::of(options)?, options.count("connections")?).await?;
    let (streams, window) = (options.count("streams")?, options.count("window")?);
    let leases = options.count("leases")? as u64; // 1 to so many; they must be there
    let tally = Rc::new(Tally::new());
    started(&tally)?;
    let end = Instant::now() + Duration::from_secs_f64(options.number("seconds")?);
    let next = Rc::new(Cell::new(0));
    let mut all = Vec::new();
    for stream in 0..streams {
        let connection = connections[stream % connections.len()].clone();
        all.push(spawn_local(keep(connection, window, leases, next.clone(), end, tally.clone())));
    }
    for each in all {
        each.await??;
    }
    tally.report("")
}

async fn keep(
    connection: Connection,
    window: usize,
    leases: u64,
    next: Rc<Cell<u64>>,
    end: Instant,
    tally: Rc<Tally>,
) -> Result<(), Fault> {
    let (response, mut send) = connection.begin(KEEP_ALIVE).await?;
    let mut waiting = std::collections::VecDeque::new(); // answers come in order
    let mut ask = |waiting: &mut std::collections::VecDeque<u64>| -> Result<(), Fault> {
        next.set(next.get() + 1);
        send.send_data(keep_alive(next.get() % leases + 1).framed(), false)?;
        waiting.push_back(tally.now_ns());
        Ok(())
    };
    for _ in 0..window {
        ask(&mut waiting)?;
    }
    let mut messages = Messages::of(response).await?;
    while !waiting.is_empty() {
        let goes_on = messages
            .take(|message| {
                if number_of(message, TTL)? == 0 {
                    return Err("a lease is gone".into());
                }
                let sent_ns = waiting.pop_front().ok_or("an answer to nothing")?;
                tally.note(sent_ns, tally.now_ns());
                if Instant::now() < end {
                    ask(&mut waiting)?;
                }
                Ok(())
            })
            .await?;
        if !goes_on {
            return Err("a keep-alive stream ended".into());
        }
    }
    Ok(())
}
