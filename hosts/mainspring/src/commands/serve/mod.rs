//! Serving sessions.

#[cfg(feature = "transport-grpc")]
use std::time::Duration;

#[cfg(feature = "transport-grpc")]
use mainspring::api::Condition;
#[cfg(feature = "transport-grpc")]
use mainspring::eventlog::OpenProgress;
#[cfg(feature = "transport-grpc")]
use mainspring::transport_grpc::{ServeError, ServerTls};

#[cfg(feature = "transport-grpc")]
mod hosts;
#[cfg(feature = "transport-grpc")]
mod operators;
#[cfg(feature = "transport-grpc")]
mod rules;
#[cfg(feature = "transport-grpc")]
mod secure;

use crate::args::Global;
use crate::config::Loaded;
use crate::error::CliError;
use crate::output::Output;
#[cfg(feature = "transport-grpc")]
use crate::stops::Stops;
#[cfg(feature = "transport-grpc")]
use operators::Operators;

#[cfg(feature = "transport-grpc")]
pub(crate) async fn serve(
    global: &Global,
    loaded: &Loaded,
    output: Output,
) -> Result<(), CliError> {
    use crate::context::{Open, Setup, journal, open_log_with};
    use mainspring::api::{Signal, SystemClock};
    use mainspring::transport_grpc::{Listener, ServeOptions, serve_when};
    use std::sync::Arc;

    use crate::telemetry::http::{Readiness, Watch};

    if global.server_flag {
        return Err(CliError::usage("serve opens a journal here; it takes no --server"));
    }
    // What a file says of a server is for its clients.
    let global = &Global { server: None, ..global.clone() };
    let config = &loaded.config;
    rules::check(config)?;
    let mut options = ServeOptions::default();
    options.authenticator = secure::authenticator(config)?;
    let setup = Setup { global, runs_turns: true, authorizer: secure::authorizer(config)? };
    let tls = secure::tls(config)?;
    options.tls = for_address(tls.as_ref(), &config.addr);
    // Sockets are bound before the journal is opened: a taken address changes nothing.
    let listener = Listener::bind(&config.addr).await.map_err(|error| serve_failed(&error))?;
    let address = listener.address().to_string();
    let operators = match &config.registry_addr {
        Some(address) => Some(Listener::bind(address).await.map_err(|error| serve_failed(&error))?),
        None => None,
    };
    setup.check()?;
    let (stores, standing) = crate::standing::stores(config)?;
    let readiness = Readiness::of(standing.clone());
    let watch = match &config.metrics.addr {
        Some(address) => Some(Watch::start(address, readiness.clone()).await?),
        None => None,
    };
    if let Some(watch) = &watch {
        output.note(&format!("metrics on http://{}/metrics", watch.address()));
    }
    let opening = mainspring::Opening::new(Arc::new(SystemClock));
    let (ready, stop) = (Signal::<()>::default(), Signal::<()>::default());
    let mut operators_options = options.clone();
    operators_options.drain_max = CALLS_MAX;
    operators_options.tls =
        config.registry_addr.as_deref().and_then(|address| for_address(tls.as_ref(), address));
    options.operations = Some(opening.clone());
    let drain_max = Duration::from_secs(config.drain_max.into());
    // Whoever watches a turn does so to its end. The others are cut below.
    options.drain_max = drain_max + INTERRUPT_MAX + CALLS_MAX;
    // Ends with this call, and its socket with it, however this call ends.
    let serving = serve_when(ready.wait(), opening.clone(), listener, options, stop.wait());
    let mut serving = Serving { running: Box::pin(serving), served: None };
    let mut stops = Stops::listen()?;
    let progress = told_once(opening.progress(), format!("listening on {address}"));
    let log = tokio::select! {
        biased;
        // Nothing was begun that would have to end.
        _ = stops.next() => return Ok(()),
        () = serving.ended() => return serving.result(),
        log = open_log_with(stores, journal(global, Open::OrCreate)?, progress) => log?,
    };
    if let Some(took) = opening.recovery() {
        crate::output::tell(&crate::progress::recovered(took));
    }
    let host = setup.host(log)?;
    let service = host.service().clone();
    service.check_reclaim()?;
    // Registrations are loaded also when no operator can call.
    let registry = Arc::new(host.open_registry().await?);
    // Before any turn: a host that others do not know of would lose its turns to them.
    hosts::join(&service, config.advertise.as_deref(), &address).await?;
    registry.follow_others();
    let mut operators = operators.map(|listener| {
        Operators::start(registry, Arc::new(service.clone()), listener, operators_options)
    });
    service.watch_approvals();
    service.reclaim_deleted()?;
    opening.opened(Arc::new(service.clone()), Arc::new(service.clone()));
    ready.set(());
    readiness.opened();
    // Health says so before the line below does.
    let _ = futures_util::poll!(std::pin::pin!(serving.ended()));
    let at = operators.as_ref().map(Operators::address);
    output.line(
        || match at {
            Some(at) => format!("serving on {address}, operators on {at}"),
            None => format!("serving on {address}"),
        },
        || serde_json::json!({"serving": address, "operators": at}),
    );
    if config.resume_interrupted {
        hosts::go_on(service.clone());
    }
    let broken = tokio::select! {
        () = serving.ended() => None,
        error = operators::broken(operators.as_mut()) => Some(error),
        // It refuses every call by that name, and never does anything else again.
        error = standing.stopped() => Some(error),
        _ = stops.next() => {
            crate::output::tell("draining; a second signal interrupts the turns that run");
            None
        }
    };
    service.drain();
    readiness.draining();
    stop.set(());
    // They drain in a task of their own, beside the sessions.
    if let Some(operators) = &operators {
        operators.stop();
    }
    // Turns may outlive their clients' calls, and calls the turns that they show.
    let ended = serving.along(async {
        tokio::select! {
            biased;
            () = service.idle() => true,
            _ = stops.next() => false,
            () = tokio::time::sleep(drain_max) => false,
        }
    });
    if !ended.await {
        service.interrupt();
        let idle = serving.along(async {
            tokio::select! {
                idle = tokio::time::timeout(INTERRUPT_MAX, service.idle()) => Some(idle),
                _ = stops.next() => None,
            }
        });
        // Ending here leaves the turns as they are, to be resumed. Closing the
        // runtimes first would fail them, and record that.
        match idle.await {
            Some(Ok(())) => {}
            Some(Err(_)) => return Err(left(Condition::DeadlineExceeded, "the drain was over")),
            None => return Err(left(Condition::Cancelled, "the process was told to end")),
        }
    }
    let all_ended = async {
        serving.ended().await;
        if let Some(operators) = &mut operators {
            operators.ended().await;
        }
    };
    let cut = tokio::select! {
        biased;
        () = all_ended => None,
        _ = stops.next() => None,
        () = tokio::time::sleep(CALLS_MAX) => {
            Some(serve_failed(&ServeError::DrainTimeout { seconds: CALLS_MAX.as_secs() }))
        }
    };
    host.close().await;
    match broken.or(cut) {
        Some(error) => Err(error),
        None => serving.result(),
    }
}

/// TLS for what is listened to over TCP; the file system guards a unix socket.
#[cfg(feature = "transport-grpc")]
fn for_address(tls: Option<&ServerTls>, address: &str) -> Option<ServerTls> {
    tls.filter(|_| !rules::is_unix(address)).cloned()
}

#[cfg(feature = "transport-grpc")]
fn left(condition: Condition, when: &str) -> CliError {
    CliError::of(condition, format!("turns were still running when {when}; they can be resumed"))
}

/// The server, whose end may be waited for more than once.
#[cfg(feature = "transport-grpc")]
struct Serving<F> {
    running: std::pin::Pin<Box<F>>,
    served: Option<Result<(), ServeError>>,
}

#[cfg(feature = "transport-grpc")]
impl<F: Future<Output = Result<(), ServeError>>> Serving<F> {
    async fn ended(&mut self) {
        if self.served.is_none() {
            self.served = Some(self.running.as_mut().await);
        }
    }

    /// Serves on while something else is waited for.
    async fn along<T>(&mut self, other: impl Future<Output = T>) -> T {
        let serving = async {
            self.ended().await;
            std::future::pending::<std::convert::Infallible>().await
        };
        tokio::select! {
            other = other => other,
            never = serving => match never {},
        }
    }

    /// How it ended; one that has not is cut with the process.
    fn result(self) -> Result<(), CliError> {
        self.served.unwrap_or(Ok(())).map_err(|error| serve_failed(&error))
    }
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

/// How long calls may take to end once no turn runs any more.
#[cfg(feature = "transport-grpc")]
const CALLS_MAX: Duration = Duration::from_secs(10);

/// How long turns may take to stop once they are interrupted: the grace of an
/// effect in flight, the harness's to leave, and a margin.
#[cfg(feature = "transport-grpc")]
const INTERRUPT_MAX: Duration =
    mainspring::controller::EFFECT_GRACE.saturating_add(Duration::from_secs(7));

#[cfg(not(feature = "transport-grpc"))]
pub(crate) async fn serve(
    _global: &Global,
    _loaded: &Loaded,
    _output: Output,
) -> Result<(), CliError> {
    Err(CliError::usage("this build has no transport-grpc to serve with"))
}

/// A server's error, by what can be done about it.
#[cfg(feature = "transport-grpc")]
pub(crate) fn serve_failed(error: &mainspring::transport_grpc::ServeError) -> CliError {
    let condition = match error {
        ServeError::Address(_) => Condition::InvalidArgument,
        ServeError::DrainTimeout { .. } => Condition::DeadlineExceeded,
        ServeError::Serve(_) => Condition::Internal,
        _ => Condition::Unavailable,
    };
    CliError::of(condition, mainspring::api::report(error))
}
