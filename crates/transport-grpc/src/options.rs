//! Bounds and intervals of a connection, the same on both sides.

use std::sync::Arc;
use std::time::Duration;

use mainspring_api::{Entropy, OsEntropy};

use crate::harness::HarnessExtensions;

/// The default of [`LinkOptions::message_bytes_max`].
///
/// Plain gRPC takes 4 MiB, but a turn's start carries the whole history, unless
/// `history-range` was agreed on.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Bounds and intervals of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LinkOptions {
    /// The largest message that is sent or taken, in bytes. Default 64 MiB.
    pub message_bytes_max: usize,
    /// Between two HTTP/2 keep-alive pings of a server, and of a sessions
    /// client; `None` sends none. Default 30 s: proxies cut streams that are
    /// idle for about five and a half minutes.
    pub keep_alive_interval: Option<Duration>,
    /// The same for a host's pings to a harness. Default 310 s: the usual gRPC
    /// servers (C core, hence Python, and Go) close a connection that is
    /// pinged more often than every five minutes while they have nothing to
    /// say, which would end a turn that waits for a slow model or tool.
    pub harness_keep_alive_interval: Option<Duration>,
    /// How long the answer to a ping may take. Default 20 s.
    pub keep_alive_timeout: Duration,
    /// How long connecting may take. Default 20 s.
    pub connect_timeout: Duration,
    /// What a harness offers and a host uses beyond `agentsessions.v1`. Default
    /// all; with none of them only the plain contract is spoken.
    pub harness_extensions: HarnessExtensions,
    /// Where ids come from.
    pub entropy: Arc<dyn Entropy>,
}

impl Default for LinkOptions {
    fn default() -> Self {
        Self {
            message_bytes_max: MESSAGE_BYTES_MAX,
            keep_alive_interval: Some(Duration::from_secs(30)),
            harness_keep_alive_interval: Some(Duration::from_secs(310)),
            keep_alive_timeout: Duration::from_secs(20),
            connect_timeout: Duration::from_secs(20),
            harness_extensions: HarnessExtensions::ALL,
            entropy: Arc::new(OsEntropy),
        }
    }
}
