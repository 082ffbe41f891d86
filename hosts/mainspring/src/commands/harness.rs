//! Serving a reference harness to hosts.

use crate::args::HarnessServe;
use crate::error::CliError;
use crate::output::Output;

#[cfg(feature = "transport-grpc")]
pub(crate) async fn serve(args: HarnessServe, output: Output) -> Result<(), CliError> {
    use super::serve::serve_failed;
    use crate::stops::Stops;
    use mainspring::harness::{REFERENCE_KINDS, reference};
    use mainspring::transport_grpc::{Listener, ServeOptions, serve_harness};

    let harness = reference(&args.kind, &args.model).ok_or_else(|| {
        let kinds = REFERENCE_KINDS.join(", ");
        CliError::usage(format!("unknown kind {:?}; there are: {kinds}", args.kind))
    })?;
    let under_host = args.addr.is_none();
    let address = match args.addr.or_else(|| std::env::var("HARNESS_ADDR").ok()) {
        Some(address) => address,
        None => return Err(CliError::usage("--addr or HARNESS_ADDR is needed")),
    };
    let listener = Listener::bind(&address).await.map_err(|error| serve_failed(&error))?;
    let address = listener.address().to_string();
    output.line(
        || format!("harness {} on {address}", args.kind),
        || serde_json::json!({"harness": args.kind, "serving": address}),
    );
    let mut stops = Stops::listen()?;
    let shutdown = async move {
        tokio::select! {
            _ = stops.next() => {}
            () = host_gone(under_host) => {}
        }
    };
    serve_harness(harness, listener, ServeOptions::default(), shutdown)
        .await
        .map_err(|error| serve_failed(&error))
}

/// Waits until the host that started this process is gone: its end of
/// standard input closes with it.
#[cfg(feature = "transport-grpc")]
async fn host_gone(under_host: bool) {
    use tokio::io::AsyncReadExt as _;
    if !under_host {
        return std::future::pending().await;
    }
    let mut stdin = tokio::io::stdin();
    let mut byte = [0u8; 64];
    while matches!(stdin.read(&mut byte).await, Ok(read) if read > 0) {}
}

#[cfg(not(feature = "transport-grpc"))]
pub(crate) async fn serve(_args: HarnessServe, _output: Output) -> Result<(), CliError> {
    Err(CliError::usage("this build has no transport-grpc to serve with"))
}
