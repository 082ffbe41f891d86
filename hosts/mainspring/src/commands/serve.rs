//! Serving sessions.

use crate::args::{Global, Serve};
use crate::error::{CliError, EXIT_CANCELLED};
use crate::output::Output;

#[cfg(feature = "transport-grpc")]
pub(crate) async fn serve(global: &Global, args: Serve, output: Output) -> Result<(), CliError> {
    use mainspring::transport_grpc::{Listener, ServeOptions};
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
    // The socket is bound before the journal is opened: a taken address changes nothing.
    let listener = Listener::bind(&args.addr).await.map_err(|error| serve_failed(&error))?;
    let address = listener.address().to_string();
    let host = crate::context::embedded(
        global,
        &harnesses,
        Some(&args.model),
        crate::context::Open::OrCreate,
    )?;
    output.line(|| format!("serving on {address}"), || serde_json::json!({"serving": address}));
    let service = host.service().clone();
    let shutdown = {
        let service = service.clone();
        async move {
            terminated().await;
            service.drain();
            eprintln!("draining; a second signal stops at once");
            tokio::spawn(async {
                terminated().await;
                std::process::exit(EXIT_CANCELLED.into());
            });
        }
    };
    let served = mainspring::transport_grpc::serve(
        Arc::new(service.clone()),
        listener,
        ServeOptions::default(),
        shutdown,
    )
    .await;
    // Turns outlive their clients' streams: they end, or this process is
    // killed and they are resumed.
    if tokio::time::timeout(DRAIN_MAX, service.idle()).await.is_err() {
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

/// How long turns may run on once the last client's call has ended or was cut,
/// which takes 10 s at most: together below the 30 s that supervisors give.
#[cfg(feature = "transport-grpc")]
const DRAIN_MAX: std::time::Duration = std::time::Duration::from_secs(15);

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

/// Waits for SIGINT or SIGTERM.
#[cfg(feature = "transport-grpc")]
pub(crate) async fn terminated() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut term) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        result = tokio::signal::ctrl_c() => {
            if result.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}
