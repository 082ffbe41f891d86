//! The optional parts of a host, as far as they are built in.

use std::sync::Arc;

use mainspring::HostBuilder;
use mainspring::api::{ModelProvider, Runtime, ToolExecutor};
use mainspring::runtime_local::{ChildSpec, LocalRuntime};

use crate::args::{HarnessArgs, ModelArgs};
use crate::error::CliError;

/// Adds harnesses and the model that the command line names.
pub(crate) fn configure(
    mut builder: HostBuilder,
    harnesses: &HarnessArgs,
    model_args: Option<&ModelArgs>,
) -> Result<HostBuilder, CliError> {
    builder = builder.replace_built_in(harnesses.replace_builtin);
    match model_args {
        // No turn is run, so no model is needed and every harness is of use.
        None => builder = builder.every_built_in(),
        Some(args) => {
            if let Some(tools) = tools(args)? {
                builder = builder.tools(tools);
            }
            if let Some(model) = model(args)? {
                builder = builder.model(model);
            }
        }
    }
    let mut remote: Vec<(&str, &str)> = Vec::new();
    let mut children = LocalRuntime::builder();
    let mut local: Vec<&str> = Vec::new();
    for spec in &harnesses.harness_at {
        let (name, place) = spec
            .split_once('=')
            .filter(|(name, place)| !name.is_empty() && !place.is_empty())
            .ok_or_else(|| CliError::usage(format!("harness {spec:?} is not NAME=ADDR")))?;
        if let Some(command) = place.strip_prefix("exec:") {
            let spec = ChildSpec::parse(command)
                .map_err(|error| CliError::usage(format!("harness {name:?}: {error}")))?;
            children = children.child(name, spec);
            local.push(name);
        } else {
            remote.push((name, place));
        }
    }
    if !local.is_empty() {
        let runtime = children.build().map_err(|error| CliError::usage(error.to_string()))?;
        let runtime: Arc<dyn Runtime> = Arc::new(runtime);
        for name in local.iter().copied() {
            builder = builder.harness(name, Arc::clone(&runtime));
        }
    }
    if !remote.is_empty() {
        let runtime = remote_runtime(&remote)?;
        for (name, _) in &remote {
            builder = builder.harness(*name, Arc::clone(&runtime));
        }
    }
    with_grpc(builder, !local.is_empty() || !remote.is_empty())
}

/// The executor of the tools that the command line names.
#[cfg(feature = "tools-exec")]
fn tools(args: &ModelArgs) -> Result<Option<Arc<dyn ToolExecutor>>, CliError> {
    if args.tool.is_empty() {
        return Ok(None);
    }
    let tools = mainspring::tools_exec::Tools::parse(&args.tool);
    Ok(Some(Arc::new(tools.map_err(|error| CliError::usage(error.to_string()))?)))
}

#[cfg(not(feature = "tools-exec"))]
fn tools(args: &ModelArgs) -> Result<Option<Arc<dyn ToolExecutor>>, CliError> {
    match args.tool.is_empty() {
        true => Ok(None),
        false => Err(CliError::usage("this build has no tools-exec for --tool")),
    }
}

#[cfg(feature = "runtime-remote")]
fn remote_runtime(harnesses: &[(&str, &str)]) -> Result<Arc<dyn Runtime>, CliError> {
    let runtime = mainspring::runtime_remote::RemoteRuntime::new(harnesses.iter().copied());
    Ok(Arc::new(runtime.map_err(|error| CliError::usage(error.to_string()))?))
}

#[cfg(not(feature = "runtime-remote"))]
fn remote_runtime(_harnesses: &[(&str, &str)]) -> Result<Arc<dyn Runtime>, CliError> {
    Err(CliError::usage("this build has no runtime-remote for a harness at an address"))
}

#[cfg(feature = "transport-grpc")]
fn with_grpc(builder: HostBuilder, _needed: bool) -> Result<HostBuilder, CliError> {
    use mainspring::transport_grpc::{GrpcConnector, LinkOptions};
    Ok(builder.grpc(Arc::new(GrpcConnector::new(LinkOptions::default()))))
}

#[cfg(not(feature = "transport-grpc"))]
fn with_grpc(builder: HostBuilder, needed: bool) -> Result<HostBuilder, CliError> {
    if needed {
        return Err(CliError::usage("this build has no transport-grpc to reach other processes"));
    }
    Ok(builder)
}

#[cfg(feature = "model-http")]
fn model(args: &ModelArgs) -> Result<Option<Arc<dyn ModelProvider>>, CliError> {
    use mainspring::api::Secret;
    use mainspring::model_http::{HttpModel, HttpModelOptions};
    let Some(model) = &args.model else { return Ok(None) };
    let key = ["MODEL_API_KEY", "OPENAI_API_KEY"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|key| !key.is_empty()));
    let mut options = HttpModelOptions::new(model);
    options.base_url.clone_from(&args.model_base_url);
    options.path.clone_from(&args.model_path);
    options.auth_header.clone_from(&args.model_auth_header);
    options.api_key = key.map(Secret::new);
    let model = HttpModel::new(options).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(Some(Arc::new(model)))
}

#[cfg(not(feature = "model-http"))]
fn model(args: &ModelArgs) -> Result<Option<Arc<dyn ModelProvider>>, CliError> {
    match args.model {
        None => Ok(None),
        Some(_) => Err(CliError::usage("this build has no model-http for --model")),
    }
}
