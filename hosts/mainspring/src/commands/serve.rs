//! Serving sessions.

#[cfg(feature = "transport-grpc")]
use mainspring::eventlog::OpenProgress;

use crate::args::{Global, Serve};
use crate::error::CliError;
#[cfg(feature = "transport-grpc")]
use crate::error::EXIT_CANCELLED;
use crate::output::Output;

#[cfg(feature = "transport-grpc")]
pub(crate) async fn serve(global: &Global, args: Serve, output: Output) -> Result<(), CliError> {
    use crate::context::{Open, Setup, journal, open_log_with};
    use mainspring::api::{Signal, SystemClock};
    use mainspring::transport_grpc::{Listener, ServeOptions, serve_when};
    use std::sync::Arc;

    if global.server.is_some() {
        return Err(CliError::usage("serve opens a journal here; it takes no --server"));
    }
    if args.registry_addr.is_some() {
        return Err(CliError::unimplemented("--registry-addr"));
    }
    refuse_public(&args.addr)?;
    let harnesses = crate::args::HarnessArgs {
        harness_at: args.harness,
        replace_builtin: args.replace_builtin,
    };
    let approval_ttl = args.approval.ttl();
    let setup = Setup { global, harnesses: &harnesses, model: Some(&args.model), approval_ttl };
    // The socket is bound before the journal is opened: a taken address changes nothing.
    let listener = Listener::bind(&args.addr).await.map_err(|error| serve_failed(&error))?;
    let address = listener.address().to_string();
    setup.check()?;
    let opening = mainspring::Opening::new(Arc::new(SystemClock));
    let (ready, stop) = (Signal::<()>::default(), Signal::<()>::default());
    let options = ServeOptions::default();
    // Ends with this call, and its socket with it, however this call ends.
    let serving = serve_when(ready.wait(), opening.clone(), listener, options, stop.wait());
    let mut serving = std::pin::pin!(serving);
    let mut stops = Stops::listen()?;
    let progress = told_once(opening.progress(), format!("listening on {address}"));
    let log = tokio::select! {
        biased;
        // Nothing was begun that would have to end.
        () = stops.next() => return Ok(()),
        served = &mut serving => return served.map_err(|error| serve_failed(&error)),
        log = open_log_with(journal(global, Open::OrCreate)?, progress) => log?,
    };
    if let Some(took) = opening.recovery() {
        crate::output::tell(&crate::progress::recovered(took));
    }
    let host = setup.host(log)?;
    let service = host.service().clone();
    service.watch_approvals();
    opening.opened(Arc::new(service.clone()));
    ready.set(());
    // Health says so before the line below does.
    let _ = futures_util::poll!(&mut serving);
    output.line(|| format!("serving on {address}"), || serde_json::json!({"serving": address}));
    let served = tokio::select! {
        served = &mut serving => Some(served),
        () = stops.next() => {
            service.drain();
            crate::output::tell("draining; a second signal interrupts the turns that run");
            stop.set(());
            // Turns outlive their clients' streams.
            let ended = async { tokio::join!(&mut serving, service.idle()).0 };
            tokio::select! {
                served = ended => Some(served),
                () = stops.next() => None,
                () = tokio::time::sleep(DRAIN_MAX) => None,
            }
        }
    };
    service.interrupt();
    tokio::spawn(async move {
        stops.next().await;
        std::process::exit(EXIT_CANCELLED.into());
    });
    let interrupted = tokio::time::timeout(INTERRUPT_MAX, service.idle());
    let (idle, served) = match served {
        Some(served) => (interrupted.await, served),
        // Who still watches is told.
        None => {
            let (idle, served) =
                tokio::join!(interrupted, tokio::time::timeout(INTERRUPT_MAX, &mut serving));
            (idle, served.unwrap_or(Ok(())))
        }
    };
    if idle.is_err() {
        // Ending here leaves the turns as they are, to be resumed. Closing the
        // runtimes first would fail them, and record that.
        let error = CliError::of(
            mainspring::api::Condition::DeadlineExceeded,
            "turns were still running when the drain was over; they can be resumed",
        );
        let _ = output.fail(&error);
        std::process::exit(error.exit_code().into());
    }
    host.close().await;
    served.map_err(|error| serve_failed(&error))
}

/// Says once, on standard error, that the store recovers.
#[cfg(feature = "transport-grpc")]
fn told_once(progress: OpenProgress, meanwhile: String) -> OpenProgress {
    let once = std::sync::Once::new();
    OpenProgress::new(move |recovering| {
        once.call_once(|| crate::output::tell(&format!("store is recovering; {meanwhile}")));
        progress.tell(recovering);
    })
}

/// How long calls and turns may run on once the host is told to stop; then
/// turns are interrupted, to be resumed.
#[cfg(feature = "transport-grpc")]
const DRAIN_MAX: std::time::Duration = std::time::Duration::from_secs(30);

/// How long turns may take to stop once they are interrupted: the grace of an
/// effect in flight, the harness's to leave, and a margin.
#[cfg(feature = "transport-grpc")]
const INTERRUPT_MAX: std::time::Duration =
    mainspring::controller::EFFECT_GRACE.saturating_add(std::time::Duration::from_secs(7));

#[cfg(not(feature = "transport-grpc"))]
pub(crate) async fn serve(_global: &Global, _args: Serve, _output: Output) -> Result<(), CliError> {
    Err(CliError::usage("this build has no transport-grpc to serve with"))
}

/// Beyond this machine, callers must be known and the line encrypted; neither
/// can be set up yet.
#[cfg(feature = "transport-grpc")]
fn refuse_public(address: &str) -> Result<(), CliError> {
    if address.starts_with("unix:") {
        return Ok(());
    }
    let Some((host, _)) = address.rsplit_once(':') else {
        return Err(CliError::usage(format!("{address} is neither HOST:PORT nor unix:PATH")));
    };
    let ip = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    let loopback = host == "localhost" || ip.is_ok_and(|ip| ip.is_loopback());
    if loopback {
        return Ok(());
    }
    Err(CliError::usage(format!(
        "{address} is not a loopback address: listening there needs TLS and an authenticator, \
         which are not supported yet"
    )))
}

/// A server's error, by what can be done about it.
#[cfg(feature = "transport-grpc")]
pub(crate) fn serve_failed(error: &mainspring::transport_grpc::ServeError) -> CliError {
    use mainspring::api::Condition;
    use mainspring::transport_grpc::ServeError;
    let condition = match error {
        ServeError::Address(_) => Condition::InvalidArgument,
        ServeError::DrainTimeout { .. } => Condition::DeadlineExceeded,
        ServeError::Serve(_) => Condition::Internal,
        _ => Condition::Unavailable,
    };
    CliError::of(condition, mainspring::api::report(error))
}

/// SIGINT and SIGTERM, none of them lost.
#[cfg(feature = "transport-grpc")]
pub(crate) struct Stops {
    int: tokio::signal::unix::Signal,
    term: tokio::signal::unix::Signal,
}

#[cfg(feature = "transport-grpc")]
impl Stops {
    pub(crate) fn listen() -> Result<Self, CliError> {
        use tokio::signal::unix::{SignalKind, signal};
        let heard =
            |kind| signal(kind).map_err(|error| CliError::internal(format!("signals: {error}")));
        Ok(Self { int: heard(SignalKind::interrupt())?, term: heard(SignalKind::terminate())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        let heard = tokio::select! {
            heard = self.int.recv() => heard,
            heard = self.term.recv() => heard,
        };
        if heard.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
