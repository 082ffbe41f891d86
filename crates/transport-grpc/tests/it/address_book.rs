//! Servers for tests: bound, running, and stopped at the end.

use std::sync::Arc;

use mainspring_api::{Harness, HarnessRegistry, Operations, Sessions};
use mainspring_transport_grpc::{
    Listener, ServeError, ServeOptions, serve, serve_harness, serve_operators,
};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[derive(Debug, Clone, Copy)]
pub(crate) enum Over {
    Tcp,
    Unix,
}

pub(crate) const BOTH: [Over; 2] = [Over::Tcp, Over::Unix];

pub(crate) struct Running {
    pub(crate) address: String,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<Result<(), ServeError>>,
    dir: TempDir,
}

impl Running {
    async fn start<F>(
        over: Over,
        run: impl FnOnce(Listener, Box<dyn Future<Output = ()> + Send + Unpin>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let dir = tempfile::tempdir().unwrap();
        let address = match over {
            Over::Tcp => "127.0.0.1:0".to_owned(),
            Over::Unix => format!("unix://{}", dir.path().join("s.sock").display()),
        };
        Self::start_at(&address, dir, run).await
    }

    async fn start_at<F>(
        address: &str,
        dir: TempDir,
        run: impl FnOnce(Listener, Box<dyn Future<Output = ()> + Send + Unpin>) -> F,
    ) -> Self
    where
        F: Future<Output = Result<(), ServeError>> + Send + 'static,
    {
        let listener = Listener::bind(address).await.unwrap();
        let address = listener.address().to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = Box::pin(async move {
            let _ = stopped.await;
        });
        let task = tokio::spawn(run(listener, Box::new(shutdown)));
        Self { address, stop: Some(stop), task, dir }
    }

    pub(crate) async fn sessions(over: Over, sessions: Arc<dyn Sessions>) -> Self {
        Self::sessions_with(over, sessions, ServeOptions::default()).await
    }

    pub(crate) async fn sessions_with(
        over: Over,
        sessions: Arc<dyn Sessions>,
        options: ServeOptions,
    ) -> Self {
        Self::start(over, |listener, shutdown| serve(sessions, listener, options, shutdown)).await
    }

    pub(crate) async fn operators(
        over: Over,
        registry: Arc<dyn HarnessRegistry>,
        operations: Arc<dyn Operations>,
        options: ServeOptions,
    ) -> Self {
        Self::start(over, |listener, shutdown| {
            serve_operators(registry, operations, listener, options, shutdown)
        })
        .await
    }

    pub(crate) async fn harness(over: Over, harness: Arc<dyn Harness>) -> Self {
        Self::harness_with(over, harness, ServeOptions::default()).await
    }

    pub(crate) async fn harness_with(
        over: Over,
        harness: Arc<dyn Harness>,
        options: ServeOptions,
    ) -> Self {
        Self::start(over, |listener, shutdown| serve_harness(harness, listener, options, shutdown))
            .await
    }

    /// Stops it, and serves another harness in its place.
    pub(crate) async fn replace(mut self, harness: Arc<dyn Harness>) -> Self {
        self.ask_to_stop();
        self.task.await.unwrap().unwrap();
        let options = ServeOptions::default();
        Self::start_at(&self.address, self.dir, |listener, shutdown| {
            serve_harness(harness, listener, options, shutdown)
        })
        .await
    }

    /// Asks it to stop, without waiting.
    pub(crate) fn ask_to_stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
        }
    }

    pub(crate) async fn stop(mut self) -> Result<(), ServeError> {
        self.ask_to_stop();
        self.task.await.unwrap()
    }
}
