//! Showing the configuration, without what may be a secret in it.

use serde_json::json;
use toml::Value;

use super::settings::{SETTINGS, Shows};
use super::{Loaded, Origin};
use crate::output::{Output, shown_line};

/// `KEY = VALUE`, and where it came from when that is asked for. A setting
/// without a value is shown as a comment is.
pub(crate) fn show(loaded: &Loaded, with_origin: bool, output: Output) {
    for setting in SETTINGS {
        let value = loaded.values.get(setting.key);
        let shown = value.map(|value| shown(value, setting.shows));
        let shown = shown.as_ref();
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

/// What stands for what is not shown.
const REDACTED: &str = "redacted";

/// The part of a value that may be shown.
fn shown(value: &Value, shows: Shows) -> Value {
    let text = |show: fn(&str) -> String| match value {
        Value::String(text) => Value::String(show(text)),
        _ => Value::String(REDACTED.to_owned()),
    };
    match (shows, value) {
        (Shows::Whole, _) => value.clone(),
        (Shows::Nothing, _) => text(|_| REDACTED.to_owned()),
        (Shows::Url, _) => text(url),
        (Shows::Tools, Value::Array(tools)) => {
            let shown = |entry: &Value| tool(entry.as_str().unwrap_or_default()).into();
            Value::Array(tools.iter().map(shown).collect())
        }
        (Shows::Tools, _) => text(tool),
        (Shows::Harnesses, Value::Array(harnesses)) => {
            Value::Array(harnesses.iter().map(|entry| shown(entry, Shows::Harnesses)).collect())
        }
        (Shows::Harnesses, Value::Table(harness)) => {
            let mut harness = harness.clone();
            if let Some(Value::String(command)) = harness.get_mut("command") {
                *command = first_word(command);
            }
            Value::Table(harness)
        }
        (Shows::Harnesses, _) => text(|_| REDACTED.to_owned()),
        (Shows::KafkaClient, _) => kafka_client("", value),
    }
}

/// A client's settings without those that may be secrets, by librdkafka's names,
/// whose dots may be written as tables.
fn kafka_client(name: &str, value: &Value) -> Value {
    let may_be_secret = ["password", "secret", "sasl.", "ssl.key"];
    match value {
        Value::Table(table) => {
            let shown = |(key, value): (&String, &Value)| {
                (key.clone(), kafka_client(&format!("{name}{key}."), value))
            };
            Value::Table(table.iter().map(shown).collect())
        }
        _ if may_be_secret.iter().any(|part| name.contains(part)) => REDACTED.into(),
        _ => value.clone(),
    }
}

/// A URL without userinfo, query and fragment.
fn url(text: &str) -> String {
    let end = text.find(['?', '#']).unwrap_or(text.len());
    let (place, rest) = text.split_at(end);
    let (scheme, place) = match place.split_once("://") {
        Some((scheme, place)) => (format!("{scheme}://"), place),
        None => (String::new(), place),
    };
    let place = match place.rsplit_once('@') {
        // It may be that the userinfo itself has one of the marks, unescaped.
        None if rest.contains('@') => return REDACTED.to_owned(),
        None => place.to_owned(),
        Some((_, place)) => format!("{REDACTED}@{place}"),
    };
    let rest = if rest.is_empty() { String::new() } else { format!("{}{REDACTED}", &rest[..1]) };
    format!("{scheme}{place}{rest}")
}

/// A tool by its name and where it is.
fn tool(entry: &str) -> String {
    const DURABLE: &str = ",durable";
    let (entry, durable) = match entry.strip_suffix(DURABLE) {
        Some(entry) => (entry, DURABLE),
        None => (entry, ""),
    };
    let place =
        entry.split_once('=').and_then(|(name, place)| Some((name, place.split_once(':')?)));
    match place {
        Some((name, ("exec", command))) => format!("{name}=exec:{}{durable}", first_word(command)),
        Some((name, ("http", place))) => format!("{name}=http:{}{durable}", url(place)),
        _ => REDACTED.to_owned(),
    }
}

/// A command line without its arguments.
fn first_word(command: &str) -> String {
    let command = command.trim();
    match command.split_once(char::is_whitespace) {
        Some((word, _)) => format!("{word} {REDACTED}"),
        None => command.to_owned(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_what_may_be_a_credential() {
        for (text, expected) in [
            ("https://a.example/v1", "https://a.example/v1"),
            ("https://key@a.example/v1", "https://redacted@a.example/v1"),
            ("https://user:p/w@a.example/v1", "https://redacted@a.example/v1"),
            ("https://a.example/v1?key=s#f", "https://a.example/v1?redacted"),
            ("https://a.example#f", "https://a.example#redacted"),
            ("https://user:p?w@a.example", "redacted"),
            ("user:pw@a.example", "redacted@a.example"),
        ] {
            assert_eq!(url(text), expected);
        }
    }

    #[test]
    fn a_kafka_client_is_shown_without_what_may_be_a_secret() {
        let table = r#"
            "security.protocol" = "SASL_SSL"
            "sasl.password" = "s3cret"
            "ssl.key.pem" = "s3cret"
            "ssl.keystore.password" = "s3cret"
            sasl.username = "s3cret"
            socket.timeout.ms = 1000
        "#;
        let table = Value::Table(table.parse().unwrap());
        let shown = super::text(&shown(&table, Shows::KafkaClient));
        assert!(!shown.contains("s3cret"), "{shown}");
        assert!(shown.contains("SASL_SSL") && shown.contains("1000"), "{shown}");
    }

    #[test]
    fn tools_are_shown_without_their_arguments() {
        for (text, expected) in [
            ("a=exec:./a", "a=exec:./a"),
            ("a=exec:./a --key s3cret,durable", "a=exec:./a redacted,durable"),
            ("a=http:https://k@h/p?q=1,durable", "a=http:https://redacted@h/p?redacted,durable"),
            ("a=s3cret", "redacted"),
            ("s3cret", "redacted"),
        ] {
            assert_eq!(tool(text), expected);
        }
    }
}
