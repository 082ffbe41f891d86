//! What a gate does, from its config or from what a person typed.

use mainspring_api::{HarnessError, Json, JsonObject, Mediation};
use mainspring_eventlog::json;

/// What a turn with a config of any other shape fails with. It quotes nothing:
/// a config may hold what must not reach a journal's error text.
pub const GATE_CONFIG_INVALID: &str =
    "gate config is not a json object with an optional array \"steps\" of known steps";

/// One effect of a script.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Step {
    pub(super) effect: Effect,
    /// Whether the run goes on when it fails.
    pub(super) is_optional: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Effect {
    Model(String),
    Call { tool: String, args: Option<JsonObject>, key: Option<String>, mediation: Mediation },
    Say(String),
    Usage,
    Report { id: String, output: Option<JsonObject> },
}

/// The steps of a config; `None` when it has none and the input decides.
pub(super) fn parse(config: &[u8]) -> Result<Option<Vec<Step>>, HarnessError> {
    if config.is_empty() {
        return Ok(None);
    }
    let members = json::parse_object(config).ok();
    members.and_then(steps).ok_or_else(|| HarnessError::failed(GATE_CONFIG_INVALID))
}

/// The step that a person asked for.
pub(super) fn by_hand(text: &str) -> Step {
    let effect = refund(text).or_else(|| tool(text));
    let effect = effect.unwrap_or_else(|| Effect::Model(text.to_owned()));
    Step { effect, is_optional: false }
}

fn refund(text: &str) -> Option<Effect> {
    let mut words = text.split_whitespace();
    let (Some("refund"), Some(amount), None) = (words.next(), words.next(), words.next()) else {
        return None;
    };
    let amount: f64 = amount.parse().ok().filter(|amount: &f64| amount.is_finite())?;
    Some(Effect::Call {
        tool: "refund".to_owned(),
        args: Some(one("amount", Json::Number(amount))),
        key: None,
        mediation: Mediation::RequiresApproval,
    })
}

fn tool(text: &str) -> Option<Effect> {
    let rest = text.trim().strip_prefix("tool")?.strip_prefix(char::is_whitespace)?.trim();
    let (tool, words) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    let args = match words.trim() {
        "" => None,
        words => Some(
            json::parse_object(words.as_bytes()).unwrap_or_else(|_| one("input", words.into())),
        ),
    };
    let (tool, mediation) = (tool.to_owned(), Mediation::ControllerMediated);
    Some(Effect::Call { tool, args, key: None, mediation })
}

fn one(name: &str, value: Json) -> JsonObject {
    JsonObject::from([(name.to_owned(), value)])
}

/// The outer `None` is a shape that is refused.
fn steps(mut config: JsonObject) -> Option<Option<Vec<Step>>> {
    let steps = config.remove("steps");
    if !config.is_empty() {
        return None;
    }
    match steps {
        None => Some(None),
        Some(Json::Array(steps)) => {
            steps.into_iter().map(|item| step(object(item)?)).collect::<Option<_>>().map(Some)
        }
        Some(_) => None,
    }
}

/// Takes the members of one form; what is left over belongs to none.
fn step(mut members: JsonObject) -> Option<Step> {
    let is_optional = match members.remove("optional") {
        None => false,
        Some(Json::Bool(is_optional)) => is_optional,
        Some(_) => return None,
    };
    let effect = if let Some(text) = members.remove("model") {
        Effect::Model(string(text)?)
    } else if let Some(tool) = members.remove("tool") {
        call(tool, &mut members, Mediation::ControllerMediated)?
    } else if let Some(tool) = members.remove("gate") {
        call(tool, &mut members, Mediation::RequiresApproval)?
    } else if let Some(text) = members.remove("say") {
        Effect::Say(string(text)?)
    } else if let Some(id) = members.remove("report") {
        Effect::Report { id: string(id)?, output: optional(members.remove("output"), object)? }
    } else if members.remove("usage")? == Json::Bool(true) {
        Effect::Usage
    } else {
        return None;
    };
    members.is_empty().then_some(Step { effect, is_optional })
}

fn call(tool: Json, members: &mut JsonObject, mediation: Mediation) -> Option<Effect> {
    Some(Effect::Call {
        tool: string(tool)?,
        args: optional(members.remove("args"), object)?,
        key: optional(members.remove("key"), string)?,
        mediation,
    })
}

/// A member that may be absent, but not of another type.
fn optional<T>(value: Option<Json>, take: fn(Json) -> Option<T>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => take(value).map(Some),
    }
}

fn string(value: Json) -> Option<String> {
    match value {
        Json::String(text) => Some(text),
        _ => None,
    }
}

fn object(value: Json) -> Option<JsonObject> {
    match value {
        Json::Object(members) => Some(members),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(tool: &str, args: Option<JsonObject>, mediation: Mediation) -> Effect {
        Effect::Call { tool: tool.to_owned(), args, key: None, mediation }
    }

    #[test]
    fn only_the_documented_shapes_are_a_config() {
        for (text, effects) in [
            ("", None),
            ("{}", None),
            (" {\"steps\":[]}\n", Some(vec![])),
            (r#"{"steps":[{"model":"hi"}]}"#, Some(vec![Effect::Model("hi".into())])),
            (r#"{"steps":[{"say":""}]}"#, Some(vec![Effect::Say(String::new())])),
            (r#"{"steps":[{"usage":true}]}"#, Some(vec![Effect::Usage])),
            (
                r#"{"steps":[{"tool":"t"},{"gate":"g","args":{}}]}"#,
                Some(vec![
                    call("t", None, Mediation::ControllerMediated),
                    call("g", Some(JsonObject::new()), Mediation::RequiresApproval),
                ]),
            ),
            (
                r#"{"steps":[{"report":"r"},{"report":"r","output":{"a":null}}]}"#,
                Some(vec![
                    Effect::Report { id: "r".into(), output: None },
                    Effect::Report { id: "r".into(), output: Some(one("a", Json::Null)) },
                ]),
            ),
        ] {
            let steps = parse(text.as_bytes()).unwrap();
            let found = steps.map(|steps| steps.into_iter().map(|step| step.effect).collect());
            assert_eq!(found, effects, "{text}");
        }
        let optional =
            parse(br#"{"steps":[{"say":"a","optional":true},{"say":"b","optional":false}]}"#);
        let optional = optional.unwrap().unwrap();
        assert_eq!([true, false], [optional[0].is_optional, optional[1].is_optional]);
    }

    #[test]
    fn any_other_config_is_refused_and_not_quoted() {
        let steps = [
            r#""s3cret""#,
            "null",
            "{}",
            r#"{"s3cret":1}"#,
            r#"{"model":1}"#,
            r#"{"model":"a","say":"s3cret"}"#,
            r#"{"model":"a","args":{}}"#,
            r#"{"model":"a","model":"s3cret"}"#,
            r#"{"tool":null}"#,
            r#"{"tool":"t","args":[]}"#,
            r#"{"tool":"t","args":null}"#,
            r#"{"tool":"t","args":{"a":1,"a":2}}"#,
            r#"{"tool":"t","args":{"a":1e999}}"#,
            r#"{"tool":"t","key":1}"#,
            r#"{"tool":"t","key":null}"#,
            r#"{"tool":"t","gate":"g"}"#,
            r#"{"tool":"t","output":{}}"#,
            r#"{"say":"a","optional":1}"#,
            r#"{"say":"a","optional":null}"#,
            r#"{"say":"\ud800"}"#,
            r#"{"usage":false}"#,
            r#"{"usage":1}"#,
            r#"{"optional":true}"#,
            r#"{"report":"r","output":[]}"#,
            r#"{"report":"r","args":{}}"#,
        ];
        let whole = ["null", "[]", "\"s3cret\"", "s3cret", "{\"steps\":{}}", "{\"steps\":null}"];
        let more = ["{\"step\":[]}", "{\"steps\":[],\"s3cret\":1}", "{\"steps\":[]} s3cret"];
        let twice = "{\"steps\":[],\"steps\":[]}".to_owned();
        let bad = steps.iter().map(|step| format!("{{\"steps\":[{step}]}}")).chain([twice]);
        for bad in bad.chain(whole.into_iter().chain(more).map(str::to_owned)) {
            let error = parse(bad.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), GATE_CONFIG_INVALID, "{bad}");
        }
        let error = parse(b"{\"steps\":[{\"say\":\"\xff\"}]}").unwrap_err();
        assert_eq!(error.to_string(), GATE_CONFIG_INVALID);
    }

    #[test]
    fn words_become_a_call_or_a_question() {
        let amount = |n| Some(one("amount", Json::Number(n)));
        let input = |text: &str| Some(one("input", text.into()));
        let (gated, ungated) = (Mediation::RequiresApproval, Mediation::ControllerMediated);
        for (text, effect) in [
            ("refund 5", Some(call("refund", amount(5.0), gated))),
            ("  refund\t-2.5\n", Some(call("refund", amount(-2.5), gated))),
            ("refund", None),
            ("refund five", None),
            ("refund inf", None),
            ("refund 5 now", None),
            ("refunds 5", None),
            ("tool search", Some(call("search", None, ungated))),
            (" tool  search  two words ", Some(call("search", input("two words"), ungated))),
            ("tool search {\"a\":1}", Some(call("search", Some(one("a", 1.0.into())), ungated))),
            ("tool search {\"a\":", Some(call("search", input("{\"a\":"), ungated))),
            ("tool search [1]", Some(call("search", input("[1]"), ungated))),
            ("tool", None),
            ("tool ", None),
            ("toolbox a", None),
            ("hello", None),
            ("", None),
        ] {
            let step = by_hand(text);
            assert_eq!(step.effect, effect.unwrap_or_else(|| Effect::Model(text.to_owned())));
            assert!(!step.is_optional);
        }
    }
}
