//! DNS queries over UDP: S sockets, so many unanswered on each at most.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::net::UdpSocket;
use tokio::task::spawn_local;
use tokio::time::timeout;

use crate::options::Options;
use crate::tally::Tally;
use crate::{started, Fault};

const LOST: Duration = Duration::from_secs(1);
const HEADER_BYTES: usize = 12;
const ANSWER_BYTES_MAX: usize = 4096;
const LABEL_BYTES_MAX: usize = 63;
const IS_ANSWER: u8 = 0x80;
const RCODE: u8 = 0x0f;
const RECURSION_DESIRED: u8 = 0x01;
const CLASS_IN: u16 = 1;
const TYPE_OPT: u16 = 41;
const UDP_BYTES: u16 = 1232; // what EDNS says that this client takes

/// What is asked, and what every answer must be.
struct Question {
    name: String, // {n} is a number below count
    count: u64,
    kind: u16,
    rcode: u8,
}

impl Question {
    fn of(options: &Options) -> Result<Self, Fault> {
        Ok(Self {
            name: options.text("name")?.to_owned(),
            count: options.count("names")?.max(1) as u64,
            kind: u16::try_from(options.count("type")?)?,
            rcode: u8::try_from(options.count_or("rcode", 0)?)?,
        })
    }

    /// Return the query of a number, with the identifier 0.
    fn query(&self, number: u64) -> Result<Vec<u8>, Fault> {
        let mut query = vec![0, 0, RECURSION_DESIRED, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        for label in self.name.replace("{n}", &number.to_string()).split('.') {
            if label.is_empty() || label.len() > LABEL_BYTES_MAX {
                return Err(format!("--name: a label of {} bytes", label.len()).into());
            }
            query.push(label.len() as u8);
            query.extend_from_slice(label.as_bytes());
        }
        query.push(0);
        for number in [self.kind, CLASS_IN] {
            query.extend_from_slice(&number.to_be_bytes());
        }
        query.push(0); // EDNS: the root's name, its type, the size, no flags and no options
        for number in [TYPE_OPT, UDP_BYTES, 0, 0, 0] {
            query.extend_from_slice(&number.to_be_bytes());
        }
        Ok(query)
    }

    /// Check an answer; return its identifier.
    fn check(&self, answer: &[u8]) -> Result<u16, Fault> {
        if answer.len() < HEADER_BYTES || answer[2] & IS_ANSWER == 0 {
            return Err(format!("no answer: {} bytes", answer.len()).into());
        }
        let (rcode, records) = (answer[3] & RCODE, u16::from_be_bytes([answer[6], answer[7]]));
        if rcode != self.rcode || (records == 0) != (rcode != 0) {
            return Err(format!("an answer with rcode {rcode} and {records} records").into());
        }
        Ok(u16::from_be_bytes([answer[0], answer[1]]))
    }
}

pub async fn play(options: &Options) -> Result<String, Fault> {
    let question = Question::of(options)?;
    let queries = (0..question.count).map(|number| question.query(number));
    let queries = Rc::new(queries.collect::<Result<Vec<_>, _>>()?);
    let question = Rc::new(question);
    let mut sockets = Vec::new();
    for _ in 0..options.count("connections")? {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).await?;
        socket.connect(options.endpoint()).await?;
        sockets.push(socket);
    }
    let window = u16::try_from(options.count("in-flight")?.max(1))?;
    let tally = Rc::new(Tally::new());
    started(&tally)?;
    let end = Instant::now() + Duration::from_secs_f64(options.number("seconds")?);
    let next = Rc::new(Cell::new(0));
    let mut all = Vec::new();
    for socket in sockets {
        let asking = Asking {
            socket,
            question: question.clone(),
            queries: queries.clone(),
            next: next.clone(),
            slots: (0..window).map(|id| Slot { id, sent_ns: None }).collect(),
            tally: tally.clone(),
        };
        all.push(spawn_local(asking.play(end)));
    }
    for each in all {
        each.await??;
    }
    tally.report("")
}

/// One query that may be unanswered; the rest of its identifier by the window is its slot.
struct Slot {
    id: u16,
    sent_ns: Option<u64>,
}

struct Asking {
    socket: UdpSocket,
    question: Rc<Question>,
    queries: Rc<Vec<Vec<u8>>>,
    next: Rc<Cell<u64>>,
    slots: Vec<Slot>,
    tally: Rc<Tally>,
}

impl Asking {
    async fn play(mut self, end: Instant) -> Result<(), Fault> {
        let mut answer = vec![0; ANSWER_BYTES_MAX];
        let mut looked = Instant::now();
        for number in 0..self.slots.len() {
            self.ask(number).await?;
        }
        while self.slots.iter().any(|slot| slot.sent_ns.is_some()) {
            let received = timeout(LOST, self.socket.recv(&mut answer)).await;
            let now = Instant::now();
            if let Ok(count) = received {
                let id = self.question.check(&answer[..count?])?;
                let number = usize::from(id) % self.slots.len();
                let slot = &mut self.slots[number];
                if slot.id == id {
                    if let Some(sent_ns) = slot.sent_ns.take() {
                        self.tally.note(sent_ns, self.tally.now_ns());
                        if now < end {
                            self.ask(number).await?;
                        }
                    }
                }
            }
            if now.duration_since(looked) >= LOST {
                looked = now;
                self.give_up(now < end).await?;
            }
        }
        Ok(())
    }

    async fn ask(&mut self, number: usize) -> Result<(), Fault> {
        let window = self.slots.len();
        let slot = &mut self.slots[number];
        let above = usize::from(slot.id) + window;
        slot.id = u16::try_from(above).unwrap_or(number as u16);
        let count = self.next.get();
        self.next.set(count + 1);
        let mut query = self.queries[(count % self.question.count) as usize].clone();
        query[..2].copy_from_slice(&slot.id.to_be_bytes());
        slot.sent_ns = Some(self.tally.now_ns());
        self.socket.send(&query).await?;
        Ok(())
    }

    /// Count queries that got no answer in time as refused, and ask again.
    async fn give_up(&mut self, goes_on: bool) -> Result<(), Fault> {
        let limit_ns = self.tally.now_ns().saturating_sub(LOST.as_nanos() as u64);
        for number in 0..self.slots.len() {
            if self.slots[number].sent_ns.is_some_and(|sent_ns| sent_ns < limit_ns) {
                self.slots[number].sent_ns = None;
                self.tally.refused.set(self.tally.refused.get() + 1);
                if goes_on {
                    self.ask(number).await?;
                }
            }
        }
        Ok(())
    }
}
