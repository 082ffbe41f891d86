//! `api::HarnessRegistry` over a connection.

use std::time::Duration;

use mainspring_api::{
    Caller, Condition, HarnessRegistration, HarnessRegistry, HarnessSpec, Outcome, RegisterOutcome,
    SessionsError, async_trait,
};
use mainspring_wire::v1::harness_registry_client::HarnessRegistryClient;
use mainspring_wire::v1::harness_registry_server::SERVICE_NAME as REGISTRY;
use mainspring_wire::{harnesses_from_wire, registered_from_wire, v1};
use tonic::{Response, Status};

use crate::link::{ConnectOptions, Link};
use crate::sessions::{Outgoing, bad_answer, bad_request, not_served};
use crate::status::Effect;

/// How long a call to a registry may take.
pub const REGISTRY_CALL_MAX: Duration = Duration::from_secs(30);

/// A registry of harnesses on another host. Clones share the connection, which
/// is made anew when it is lost. A call takes at most [`REGISTRY_CALL_MAX`].
#[derive(Debug, Clone)]
pub struct RemoteHarnessRegistry {
    client: HarnessRegistryClient<Link>,
    out: Outgoing,
}

impl RemoteHarnessRegistry {
    /// Connects to `address`.
    ///
    /// # Errors
    /// As for [`RemoteSessions::connect`](crate::RemoteSessions::connect).
    pub async fn connect(
        address: &str,
        options: impl Into<ConnectOptions>,
    ) -> Result<Self, SessionsError> {
        let options = options.into();
        let link = Link::connect(address, &options).await?;
        let bytes_max = options.link.message_bytes_max;
        let client = HarnessRegistryClient::new(link)
            .max_decoding_message_size(bytes_max)
            .max_encoding_message_size(bytes_max);
        Ok(Self { client, out: Outgoing { bytes_max } })
    }
}

async fn bounded<T>(
    operation: &str,
    effect: Effect,
    answer: impl Future<Output = Result<Response<T>, Status>>,
) -> Result<T, SessionsError> {
    match tokio::time::timeout(REGISTRY_CALL_MAX, answer).await {
        Ok(answer) => {
            answer.map(Response::into_inner).map_err(not_served(operation, REGISTRY, effect))
        }
        Err(_) => {
            let seconds = REGISTRY_CALL_MAX.as_secs();
            let text = format!("{operation}: no answer within REGISTRY_CALL_MAX, {seconds} s");
            let outcome = match effect {
                Effect::Read => Outcome::NotApplied,
                Effect::Write => Outcome::Unknown,
            };
            Err(SessionsError::new(Condition::DeadlineExceeded, text).with_outcome(outcome))
        }
    }
}

#[async_trait]
impl HarnessRegistry for RemoteHarnessRegistry {
    async fn register(
        &self,
        caller: &Caller,
        name: &str,
        spec: HarnessSpec,
    ) -> Result<(HarnessRegistration, RegisterOutcome), SessionsError> {
        let spec = Some(spec.try_into().map_err(bad_request)?);
        let message = v1::RegisterHarnessRequest { name: name.to_owned(), spec };
        let mut client = self.client.clone();
        let answer = client.register_harness(self.out.call(caller, message)?);
        let answer = bounded("harness register", Effect::Write, answer).await?;
        registered_from_wire(answer)
            .map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }

    async fn get(
        &self,
        caller: &Caller,
        name: &str,
        observe: bool,
    ) -> Result<HarnessRegistration, SessionsError> {
        let message = v1::GetHarnessRequest { name: name.to_owned(), observe };
        let mut client = self.client.clone();
        let answer = client.get_harness(self.out.call(caller, message)?);
        let answer = bounded("harness get", Effect::Read, answer).await?;
        answer.try_into().map_err(bad_answer)
    }

    async fn list(
        &self,
        caller: &Caller,
        page_size: i32,
        page_token: &str,
        include_retired: bool,
    ) -> Result<(Vec<HarnessRegistration>, String), SessionsError> {
        let page_token = page_token.to_owned();
        let message = v1::ListHarnessesRequest { page_size, page_token, include_retired };
        let mut client = self.client.clone();
        let answer = client.list_harnesses(self.out.call(caller, message)?);
        let answer = bounded("harness list", Effect::Read, answer).await?;
        harnesses_from_wire(answer).map_err(bad_answer)
    }

    async fn retire(
        &self,
        caller: &Caller,
        name: &str,
        reason: &str,
    ) -> Result<HarnessRegistration, SessionsError> {
        let message = v1::RetireHarnessRequest { name: name.to_owned(), reason: reason.to_owned() };
        let mut client = self.client.clone();
        let answer = client.retire_harness(self.out.call(caller, message)?);
        let answer = bounded("harness retire", Effect::Write, answer).await?;
        answer.try_into().map_err(|error| bad_answer(error).with_outcome(Outcome::Unknown))
    }
}
