//! The optional parts of a host, as far as they are built in.

use std::sync::Arc;
use std::time::Duration;

use mainspring::HostBuilder;
use mainspring::api::{ModelProvider, Runtime, ToolExecutor};
use mainspring::runtime_local::{ChildSpec, LocalRuntime};
use mainspring::sessions::{ExecStateProjection, Reclaim};

use crate::config::{Config, ExecStateView, HarnessConfig, HarnessRuntime};
use crate::error::CliError;

/// Adds the harnesses, and the model and tools, that the configuration names.
pub(crate) fn configure(
    mut builder: HostBuilder,
    config: &Config,
    runs_turns: bool,
) -> Result<HostBuilder, CliError> {
    builder = builder.replace_built_in(config.replace_builtin);
    if let Some(seconds) = config.approval_ttl {
        builder = builder.approval_ttl(Duration::from_secs(seconds.into()));
    }
    builder = builder.exec_state(match config.exec_state {
        ExecStateView::Derived => ExecStateProjection::Derived,
        ExecStateView::Reference => ExecStateProjection::Reference,
    });
    if let Some(days) = config.delete.retention_days {
        let retention = Duration::from_secs(u64::from(days) * 86_400);
        builder = builder.reclaim(Reclaim { retention });
    }
    // Also where no turn is run: what a tool is says where a turn that was cut stands.
    if let Some(tools) = tools(config)? {
        builder = builder.tools(tools);
    }
    if runs_turns {
        if let Some(model) = model(config)? {
            builder = builder.model(model);
        }
    } else {
        // No turn is run, so no model is needed and every harness is of use.
        builder = builder.every_built_in();
    }
    let mut remote: Vec<(&str, &str)> = Vec::new();
    let mut children = LocalRuntime::builder();
    let mut local: Vec<&str> = Vec::new();
    for harness in &config.harness {
        let name = &*harness.name;
        match place(harness)? {
            Place::Child(command) => {
                let spec = ChildSpec::parse(command)
                    .map_err(|error| CliError::usage(format!("harness {name:?}: {error}")))?;
                children = children.child(name, spec);
                local.push(name);
            }
            Place::Remote(address) => remote.push((name, address)),
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

/// Where a harness runs, of what this build can run.
#[derive(Debug)]
enum Place<'a> {
    Child(&'a str),
    Remote(&'a str),
}

/// What the configuration says of a harness must be all there, and no more.
fn place(harness: &HarnessConfig) -> Result<Place<'_>, CliError> {
    let HarnessConfig { name, runtime, command, address, image, template, limits } = harness;
    let refuse = |why: &str| Err(CliError::usage(format!("harness {name:?}: {why}")));
    if name.is_empty() {
        return refuse("its name is empty");
    }
    let has_pod_keys = image.is_some() || template.is_some() || limits.is_some();
    match (runtime, command, address) {
        (HarnessRuntime::Pod, ..) => {
            refuse("runtime \"pod\" is not in this build; there are: child, remote")
        }
        (HarnessRuntime::Vm, ..) => {
            refuse("runtime \"vm\" is not in this build; there are: child, remote")
        }
        _ if has_pod_keys => refuse("image, template and limits are for pods and VMs"),
        (HarnessRuntime::Child, Some(command), None) => Ok(Place::Child(command)),
        (HarnessRuntime::Child, ..) => refuse("a child has a command, and no address"),
        (HarnessRuntime::Remote, None, Some(address)) => Ok(Place::Remote(address)),
        (HarnessRuntime::Remote, ..) => refuse("a remote one has an address, and no command"),
    }
}

/// The executor of the tools that the configuration names.
#[cfg(feature = "tools-exec")]
fn tools(config: &Config) -> Result<Option<Arc<dyn ToolExecutor>>, CliError> {
    if config.tool.is_empty() {
        return Ok(None);
    }
    let tools = mainspring::tools_exec::Tools::parse(&config.tool);
    Ok(Some(Arc::new(tools.map_err(|error| CliError::usage(error.to_string()))?)))
}

#[cfg(not(feature = "tools-exec"))]
fn tools(config: &Config) -> Result<Option<Arc<dyn ToolExecutor>>, CliError> {
    match config.tool.is_empty() {
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
fn model(config: &Config) -> Result<Option<Arc<dyn ModelProvider>>, CliError> {
    use mainspring::api::Secret;
    use mainspring::model_http::{HttpModel, HttpModelOptions};
    let Some(model) = &config.model else { return Ok(None) };
    let key = ["MODEL_API_KEY", "OPENAI_API_KEY"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|key| !key.is_empty()));
    let mut options = HttpModelOptions::new(model);
    options.base_url.clone_from(&config.model_base_url);
    options.path.clone_from(&config.model_path);
    options.auth_header.clone_from(&config.model_auth_header);
    options.api_key = key.map(Secret::new);
    let model = HttpModel::new(options).map_err(|error| CliError::usage(error.to_string()))?;
    Ok(Some(Arc::new(model)))
}

#[cfg(not(feature = "model-http"))]
fn model(config: &Config) -> Result<Option<Arc<dyn ModelProvider>>, CliError> {
    match config.model {
        None => Ok(None),
        Some(_) => Err(CliError::usage("this build has no model-http for --model")),
    }
}
