//! Channels to a peer.

use std::path::PathBuf;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

use crate::address::PeerAddress;
use crate::options::LinkOptions;

fn configured(
    endpoint: Endpoint,
    options: &LinkOptions,
    keep_alive_interval: Option<Duration>,
) -> Endpoint {
    let endpoint = endpoint
        .connect_timeout(options.connect_timeout)
        .keep_alive_timeout(options.keep_alive_timeout)
        // A start frame of many megabytes should not wait for 64 KiB windows.
        .http2_adaptive_window(true);
    match keep_alive_interval {
        Some(interval) => endpoint.http2_keep_alive_interval(interval).keep_alive_while_idle(true),
        None => endpoint,
    }
}

/// Connects, and connects again by itself when the connection is lost.
pub(crate) async fn connect(
    address: &PeerAddress,
    options: &LinkOptions,
    keep_alive_interval: Option<Duration>,
) -> Result<Channel, Error> {
    match address {
        PeerAddress::Tcp(authority) => {
            let endpoint = Endpoint::from_shared(format!("http://{authority}"))?;
            configured(endpoint, options, keep_alive_interval).connect().await
        }
        PeerAddress::Unix(path) => {
            // The uri is only what the requests name as their authority.
            let endpoint =
                configured(Endpoint::from_static("http://localhost"), options, keep_alive_interval);
            endpoint.connect_with_connector(unix_connector(path.clone())).await
        }
    }
}

fn unix_connector(
    path: PathBuf,
) -> impl tower::Service<Uri, Response = TokioIo<UnixStream>, Error = std::io::Error, Future: Send> + Send
{
    tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    })
}
