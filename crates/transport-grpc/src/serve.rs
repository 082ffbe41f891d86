//! Serves until told to stop, then drains.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use mainspring_api::{Authenticator, Harness, HarnessRegistry, Operations, Sessions, Signal};
use mainspring_wire::{FILE_DESCRIPTOR_SET, operations_v1, v1};
use tonic::service::{Routes, RoutesBuilder};
use tonic::transport::Server;
use tonic_health::ServingStatus;

use crate::address::PeerAddress;
use crate::channel::{CONNECTION_WINDOW, SERVER_STREAM_WINDOW};
use crate::front::Front;
use crate::harness::HarnessServer;
use crate::incoming::connections;
use crate::listen::{Listener, ServeError};
use crate::open::Watches;
use crate::operators::{AdministrationServer, HarnessRegistryServer};
use crate::options::LinkOptions;
use crate::sessions::{OperationsServer, SessionsServer};
use crate::tls::{ServerTls, TlsError};

/// How to serve.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Bounds and intervals of the connections.
    pub link: LinkOptions,
    /// How long running calls may take to end after the shutdown was asked
    /// for; then their connections are cut. Default 10 s.
    pub drain_max: Duration,
    /// Who says whose a call is. With it, every call but those of the health
    /// service must have credentials that hold: `authorization: Bearer`, a
    /// client certificate, or both. Without it callers are anonymous,
    /// and credentials that they send are taken and not looked at.
    pub authenticator: Option<Arc<dyn Authenticator>>,
    /// The certificates to serve with; for TCP. They are loaded anew when
    /// their files change.
    pub tls: Option<ServerTls>,
    /// What find, verify, export and import go to; without it they are refused
    /// by name. [`serve`] alone uses it.
    pub operations: Option<Arc<dyn Operations>>,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            link: LinkOptions::default(),
            drain_max: Duration::from_secs(10),
            authenticator: None,
            tls: None,
            operations: None,
        }
    }
}

/// Serves `sessions` (as `agentsessions.v1.Sessions` and, for what that has no
/// method for, as `mainspring.v1.Operations`), the health service and
/// reflection until `shutdown` resolves, then lets running calls end.
///
/// # Errors
/// - [`ServeError::DrainTimeout`] when calls had to be cut.
/// - [`ServeError::Serve`] when the server broke down.
pub async fn serve(
    sessions: Arc<dyn Sessions>,
    listener: Listener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    serve_when(std::future::ready(()), sessions, listener, options, shutdown).await
}

/// As [`serve`], while the health service answers NOT_SERVING until `ready`
/// resolves. Calls are taken at once: what they answer until then is the
/// matter of `sessions`.
///
/// # Errors
/// As [`serve`].
pub async fn serve_when(
    ready: impl Future<Output = ()> + Send + 'static,
    sessions: Arc<dyn Sessions>,
    listener: Listener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let mut routes = Routes::builder();
    let link = || options.link.clone();
    let authenticator = || options.authenticator.clone();
    let operations =
        OperationsServer::new(Arc::clone(&sessions), options.operations.clone(), link());
    let sessions = SessionsServer::new(sessions, link());
    routes.add_service(sessions.authenticated_by(authenticator()).into_service());
    routes.add_service(operations.authenticated_by(authenticator()).into_service());
    let watches = Watches::new();
    add_reflection(&mut routes, &[SESSIONS, OPERATIONS], &watches, &options)?;
    run(routes, watches, &[SESSIONS, OPERATIONS], ready, listener, options, shutdown).await
}

/// Serves `registry` (as `agentsessions.v1.HarnessRegistry`), what of
/// `operations` is for operators alone (as `mainspring.v1.Administration`), the
/// health service and reflection until `shutdown` resolves, then lets running
/// calls end.
///
/// `listener` is the operators' own: their services are never served beside
/// the sessions.
///
/// # Errors
/// As [`serve`].
pub async fn serve_operators(
    registry: Arc<dyn HarnessRegistry>,
    operations: Arc<dyn Operations>,
    listener: Listener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let mut routes = Routes::builder();
    let authenticator = || options.authenticator.clone();
    let registry = HarnessRegistryServer::new(registry, options.link.clone());
    let administration = AdministrationServer::new(operations, options.link.clone());
    routes.add_service(registry.authenticated_by(authenticator()).into_service());
    routes.add_service(administration.authenticated_by(authenticator()).into_service());
    let watches = Watches::new();
    add_reflection(&mut routes, &[REGISTRY, ADMINISTRATION], &watches, &options)?;
    let ready = std::future::ready(());
    run(routes, watches, &[REGISTRY, ADMINISTRATION], ready, listener, options, shutdown).await
}

/// Reflection of `services`, health and itself: the set of descriptors has
/// services that are not served here.
fn add_reflection(
    routes: &mut RoutesBuilder,
    services: &[&str],
    watches: &Watches,
    options: &ServeOptions,
) -> Result<(), ServeError> {
    let builder = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET);
    let served = services.iter().chain(&[HEALTH, REFLECTION]);
    let reflection = served
        .fold(builder, |builder, name| builder.with_service_name(*name))
        .build_v1()
        .map_err(|error| ServeError::Serve(error.into()))?;
    let mut front = Front::new(options.link.clone());
    front.authenticator.clone_from(&options.authenticator);
    routes.add_service(front.before(watches.of(reflection)));
    Ok(())
}

/// Serves `harness` and the health service until `shutdown` resolves, then
/// lets running executions end.
///
/// # Errors
/// As [`serve`].
pub async fn serve_harness(
    harness: Arc<dyn Harness>,
    listener: Listener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    let mut routes = Routes::builder();
    let server = HarnessServer::new(harness, options.link.clone());
    routes.add_service(server.authenticated_by(options.authenticator.clone()).into_service());
    let ready = std::future::ready(());
    let watches = Watches::new();
    run(routes, watches, &[HARNESS], ready, listener, options, shutdown).await
}

const SESSIONS: &str = v1::sessions_server::SERVICE_NAME;
const OPERATIONS: &str = operations_v1::operations_server::SERVICE_NAME;
const REGISTRY: &str = v1::harness_registry_server::SERVICE_NAME;
const ADMINISTRATION: &str = operations_v1::administration_server::SERVICE_NAME;
const HARNESS: &str = v1::harness_server::SERVICE_NAME;
const HEALTH: &str = tonic_health::pb::health_server::SERVICE_NAME;
const REFLECTION: &str = tonic_reflection::pb::v1::server_reflection_server::SERVICE_NAME;

async fn run(
    mut routes: RoutesBuilder,
    watches: Watches,
    services: &'static [&'static str],
    ready: impl Future<Output = ()> + Send + 'static,
    listener: Listener,
    options: ServeOptions,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<(), ServeError> {
    if options.tls.is_some() && matches!(listener.address(), PeerAddress::Unix(_)) {
        return Err(TlsError::Settings("TLS is for TCP, and this is a unix socket").into());
    }
    let (reporter, health) = tonic_health::server::health_reporter();
    let report = async move |status| {
        for name in std::iter::once(&"").chain(services) {
            reporter.set_service_status(*name, status).await;
        }
    };
    let mut ready = Box::pin(ready);
    // Before the first connection is accepted, so that none sees another status.
    let is_ready = (&mut ready).now_or_never().is_some();
    let first = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
    report(first).await;
    routes.add_service(watches.of(health));

    let Listener { socket, guard, .. } = listener;
    let (stopping, cut) = (watches.stopping(), Signal::<()>::default());
    let stopped = {
        let stopping = stopping.clone();
        async move {
            let mut shutdown = std::pin::pin!(shutdown);
            let opened = async {
                if !is_ready {
                    ready.await;
                    report(ServingStatus::Serving).await;
                }
                std::future::pending::<()>().await;
            };
            tokio::select! {
                biased;
                () = &mut shutdown => {}
                () = opened => {}
            }
            // Balancers stop sending before the listener closes.
            report(ServingStatus::NotServing).await;
            stopping.set(());
        }
    };
    let server = Server::builder()
        .http2_keepalive_interval(options.link.keep_alive_interval)
        .http2_keepalive_timeout(Some(options.link.keep_alive_timeout))
        .initial_stream_window_size(SERVER_STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .add_routes(routes.routes())
        .serve_with_incoming_shutdown(
            connections(socket, options.tls.clone(), cut.clone()),
            stopped,
        );
    let mut server = std::pin::pin!(server);
    let drained = async {
        stopping.wait().await;
        tokio::time::sleep(options.drain_max).await;
    };
    let fresh = async {
        match &options.tls {
            Some(tls) => tls.keep_fresh().await,
            None => std::future::pending().await,
        }
    };
    let outcome = tokio::select! {
        () = fresh => unreachable!("it never ends"),
        result = &mut server => result.map_err(|error| ServeError::Serve(error.into())),
        () = drained => {
            cut.set(());
            let _ = server.await;
            Err(ServeError::DrainTimeout { seconds: options.drain_max.as_secs() })
        }
    };
    drop(guard);
    outcome
}
