//! Showing the configuration.

use serde_json::json;
use toml::Value;

use super::settings::SETTINGS;
use super::{Loaded, Origin};
use crate::output::{Output, shown_line};

/// `KEY = VALUE`, and where it came from when that is asked for. A setting
/// without a value is shown as a comment is.
pub(crate) fn show(loaded: &Loaded, with_origin: bool, output: Output) {
    for setting in SETTINGS {
        let value = loaded.values.get(setting.key);
        let redacted = Value::String("redacted".to_owned());
        let shown = if setting.is_secret { value.map(|_| &redacted) } else { value };
        let origin = shown.map(|_| loaded.origin(setting.key));
        output.line(
            || {
                let line = match shown {
                    Some(value) => format!("{} = {}", setting.key, shown_line(&text(value))),
                    None => format!("# {} is not set", setting.key),
                };
                match origin {
                    Some(origin) if with_origin => format!("{line}  # {}", shown_line(&of(origin))),
                    _ => line,
                }
            },
            || {
                let mut line = json!({
                    "key": setting.key,
                    "value": shown.map(|value| serde_json::to_value(value).unwrap_or_default()),
                });
                if with_origin {
                    line["origin"] = match origin {
                        None => serde_json::Value::Null,
                        Some(Origin::Default) => json!({"kind": "default"}),
                        Some(Origin::File(path)) => {
                            json!({"kind": "file", "path": path.display().to_string()})
                        }
                        Some(Origin::Variable(name)) => {
                            json!({"kind": "environment", "name": name})
                        }
                        Some(Origin::Flag) => json!({"kind": "flag"}),
                    };
                }
                line
            },
        );
    }
}

/// A value as a file would have it, on one line.
fn text(value: &Value) -> String {
    match value {
        Value::Table(table) => {
            let members: Vec<_> =
                table.iter().map(|(key, value)| format!("{key:?} = {}", text(value))).collect();
            format!("{{ {} }}", members.join(", "))
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(text).collect();
            format!("[{}]", values.join(", "))
        }
        other => other.to_string(),
    }
}

fn of(origin: &Origin) -> String {
    match origin {
        Origin::Default => "default".to_owned(),
        Origin::File(path) => path.display().to_string(),
        Origin::Variable(name) => name.clone(),
        Origin::Flag => "command line".to_owned(),
    }
}
