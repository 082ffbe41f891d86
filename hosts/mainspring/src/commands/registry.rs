//! The registry of harnesses, on a server's operators' listener.

use std::sync::Arc;

use mainspring::api::{Condition, HarnessRegistry, RegisterOutcome, SessionsError, method};
use serde_json::json;

use crate::args::{Global, HarnessGet, HarnessList, HarnessRegister, HarnessRetire};
use crate::context::caller;
use crate::error::CliError;
use crate::input;
use crate::output::{Output, shown_json};
use crate::remote::{Link, REGISTRY_CALL_MAX};
use crate::spec_json::{registration_json, spec_from_json};

pub(crate) async fn register(
    global: &Global,
    args: HarnessRegister,
    output: Output,
) -> Result<(), CliError> {
    let spec = spec_from_json(&args.spec, &input::read(&args.spec).await?)?;
    let registry = registry(global).await?;
    let caller = caller(method::REGISTER_HARNESS);
    let registered = registry.register(&caller, &args.name, spec);
    let (harness, outcome) = in_time(registered).await?;
    let outcome = match outcome {
        RegisterOutcome::Created => "REGISTER_OUTCOME_CREATED",
        RegisterOutcome::Unchanged => "REGISTER_OUTCOME_UNCHANGED",
        RegisterOutcome::Reactivated => "REGISTER_OUTCOME_REACTIVATED",
    };
    show(&json!({"harness": registration_json(&harness), "outcome": outcome}), output);
    Ok(())
}

pub(crate) async fn get(global: &Global, args: HarnessGet, output: Output) -> Result<(), CliError> {
    let registry = registry(global).await?;
    let caller = caller(method::GET_HARNESS);
    let harness = in_time(registry.get(&caller, &args.name, args.observe)).await?;
    show(&registration_json(&harness), output);
    Ok(())
}

pub(crate) async fn list(
    global: &Global,
    args: HarnessList,
    output: Output,
) -> Result<(), CliError> {
    let registry = registry(global).await?;
    let caller = caller(method::LIST_HARNESSES);
    let mut token = String::new();
    loop {
        let page = registry.list(&caller, args.page_size, &token, args.include_retired);
        let (harnesses, next) = in_time(page).await?;
        for harness in &harnesses {
            show(&registration_json(harness), output);
        }
        if next.is_empty() {
            return Ok(());
        }
        token = next;
    }
}

pub(crate) async fn retire(
    global: &Global,
    args: HarnessRetire,
    output: Output,
) -> Result<(), CliError> {
    let registry = registry(global).await?;
    let caller = caller(method::RETIRE_HARNESS);
    let harness = in_time(registry.retire(&caller, &args.name, &args.reason)).await?;
    show(&registration_json(&harness), output);
    Ok(())
}

async fn registry(global: &Global) -> Result<Arc<dyn HarnessRegistry>, CliError> {
    let Some(server) = &global.server else {
        return Err(CliError::usage("--server is needed: the address of the operators' listener"));
    };
    Link::to(global, server).registry().await
}

/// One call, within its bound.
async fn in_time<T>(call: impl Future<Output = Result<T, SessionsError>>) -> Result<T, CliError> {
    match tokio::time::timeout(REGISTRY_CALL_MAX, call).await {
        Ok(answered) => Ok(answered?),
        Err(_) => Err(CliError {
            outcome: mainspring::api::Outcome::Unknown,
            ..CliError::of(
                Condition::DeadlineExceeded,
                format!("the registry did not answer within {} s", REGISTRY_CALL_MAX.as_secs()),
            )
        }),
    }
}

/// Proto-JSON, in both formats: on several lines for people.
fn show(value: &serde_json::Value, output: Output) {
    let pretty = || serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string());
    output
        .line(|| pretty().lines().map(shown_json).collect::<Vec<_>>().join("\n"), || value.clone());
}
