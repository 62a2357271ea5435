//! kvload: the load generator for what h2load cannot do and Python is too slow for.
//!
//!     kvload unary     HOST:PORT --kind put --connections 100 --in-flight 10 --seconds 2 --rate 0
//!     kvload watch     HOST:PORT --streams 10 --watchers 100 --distinct 0 --connections 10 ...
//!     kvload keepalive HOST:PORT --streams 20 --window 20 --leases 1000 ...
//!     kvload kubernetes HOST:PORT --objects 100000 --connections 10 --in-flight 10 --seconds 5
//!     kvload api        HOST:PORT --method GET --path /api/v1/namespaces/x --bearer TOKEN ...
//!     kvload watches    HOST:PORT --watch PATH --watchers 1000 --window 1 ...
//!     kvload dns        HOST:PORT --name web-{n}.default.svc.cluster.local --names 1000 --type 1 ...
//!     kvload source              a server that only tells watchers: the client's own limit
//!
//! With --ca FILE it speaks TLS, with --cert FILE --key FILE it shows a certificate, --token TEXT goes
//! with every call. A rate of 0: as fast as it goes. When everything is connected it prints `ready` and waits for a
//! line; then it loads, and prints its figures as one line of JSON. One thread does all the work;
//! `cpu_share` says how much of a core that took: near 1 the figures are this program's own.

mod api;
mod dns;
mod grpc;
mod keepalive;
mod kubernetes;
mod options;
mod pacing;
mod proto;
mod source;
mod tally;
mod template;
mod tls;
mod unary;
mod watch;

use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use crate::options::Options;
use crate::tally::Tally;

pub const COMMANDS: &str = "one of unary, watch, keepalive, kubernetes, api, watches, dns, source";

pub type Fault = Box<dyn Error>;

/// Say that all is connected, wait for the word, and begin to measure.
fn started(tally: &Tally) -> Result<(), Fault> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_line(&mut String::new())?;
    tally.begin()
}

async fn play() -> Result<String, Fault> {
    let options = Options::parse(std::env::args().skip(1))?;
    match options.command.as_str() {
        "unary" => unary::play(&options).await,
        "watch" => watch::play(&options).await,
        "keepalive" => keepalive::play(&options).await,
        "kubernetes" => kubernetes::play(&options).await,
        "api" => api::play(&options).await,
        "watches" => api::play_watches(&options).await,
        "dns" => dns::play(&options).await,
        "source" => source::play().await,
        other => Err(format!("{other}: {COMMANDS}").into()),
    }
}

fn main() -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("kvload: {error}");
            return ExitCode::FAILURE;
        }
    };
    match tokio::task::LocalSet::new().block_on(&runtime, play()) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("kvload: {fault}");
            ExitCode::FAILURE
        }
    }
}
