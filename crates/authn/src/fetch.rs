//! Getting an issuer's documents.

use std::time::Duration;

use mainspring_support_http::{client, is_loopback};
use reqwest::{Client, Response, Url};
use serde::Deserialize;

use crate::config::AuthnConfigError;
use crate::keys::KeySet;

/// The bytes that a document of an issuer may have.
pub const DOCUMENT_BYTES_MAX: usize = 512 << 10;

/// How long getting an issuer's keys may take in all.
pub const FETCH_MAX: Duration = Duration::from_secs(10);

/// How long a connection may take to come about.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// Where an issuer's keys are.
#[derive(Debug)]
pub(crate) enum Source {
    /// At an address.
    Url(Url),
    /// Where the issuer says, in the document at this address.
    Discovered { document: Url, issuer: String },
}

/// Gets an issuer's keys. Follows no redirect.
#[derive(Debug)]
pub(crate) struct Fetcher {
    source: Source,
    connect: Connect,
}

/// Clients by scheme: a document on this machine may name an address elsewhere.
#[derive(Debug)]
struct Connect {
    first: Client,
    first_is_loopback: bool,
}

impl Fetcher {
    pub(crate) fn new(source: Source) -> Result<Self, AuthnConfigError> {
        let url = match &source {
            Source::Url(url) | Source::Discovered { document: url, .. } => url,
        };
        let first = client(url, CONNECT_MAX)
            .map_err(|error| AuthnConfigError::Client(error.to_string()))?;
        let first_is_loopback = is_loopback(url);
        Ok(Self { source, connect: Connect { first, first_is_loopback } })
    }

    /// The issuer's keys as they are now.
    ///
    /// # Errors
    /// Says what failed, without a word of what was answered.
    pub(crate) async fn fetch(&self) -> Result<KeySet, &'static str> {
        let fetched = tokio::time::timeout(FETCH_MAX, self.unbounded()).await;
        fetched.unwrap_or(Err("no answer within 10 s (FETCH_MAX)"))
    }

    async fn unbounded(&self) -> Result<KeySet, &'static str> {
        let keys = match &self.source {
            Source::Url(url) => self.get(&self.connect.first, url).await?,
            Source::Discovered { document, issuer } => {
                let text = self.get(&self.connect.first, document).await?;
                let url = jwks_url(&text, issuer, document)?;
                if url.scheme() == document.scheme()
                    && is_loopback(&url) == self.connect.first_is_loopback
                {
                    self.get(&self.connect.first, &url).await?
                } else {
                    let other = client(&url, CONNECT_MAX).map_err(|_| "no http client")?;
                    self.get(&other, &url).await?
                }
            }
        };
        KeySet::parse(&keys)
    }

    async fn get(&self, client: &Client, url: &Url) -> Result<Vec<u8>, &'static str> {
        let response = client.get(url.clone()).header("accept", "application/json").send().await;
        let response = response.map_err(|_| "the issuer cannot be reached")?;
        if response.status() != reqwest::StatusCode::OK {
            return Err("the issuer did not answer with status 200");
        }
        body(response).await
    }
}

async fn body(mut response: Response) -> Result<Vec<u8>, &'static str> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| "the answer was cut")? {
        if body.len() + chunk.len() > DOCUMENT_BYTES_MAX {
            return Err("the answer is over 512 KiB (DOCUMENT_BYTES_MAX)");
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Where the discovery document says that the keys are.
fn jwks_url(text: &[u8], issuer: &str, document: &Url) -> Result<Url, &'static str> {
    #[derive(Deserialize)]
    struct Discovery {
        issuer: String,
        jwks_uri: String,
    }
    let found: Discovery =
        serde_json::from_slice(text).map_err(|_| "the discovery document cannot be read")?;
    if found.issuer != issuer {
        return Err("the discovery document is another issuer's");
    }
    let url = usable(&found.jwks_uri)?;
    if document.scheme() == "https" && url.scheme() != "https" {
        return Err("the discovery document names an address without TLS");
    }
    Ok(url)
}

/// The address of the document in which an issuer says where its keys are.
pub(crate) fn discovery_url(issuer: &str) -> String {
    format!("{}/.well-known/openid-configuration", issuer.strip_suffix('/').unwrap_or(issuer))
}

/// An address that a document may be got from.
pub(crate) fn usable(text: &str) -> Result<Url, &'static str> {
    let url = Url::parse(text).map_err(|_| "it is no address")?;
    match url.scheme() {
        "https" => {}
        "http" if is_loopback(&url) => {}
        "http" => return Err("http is for this machine alone"),
        _ => return Err("it is neither https nor http"),
    }
    if !url.has_host() {
        return Err("it names no host");
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("it holds credentials");
    }
    if url.fragment().is_some() {
        return Err("it holds a fragment");
    }
    Ok(url)
}
