//! Precedence, and what is refused.

use super::*;

/// A folder with a file of settings.
struct Sources {
    dir: tempfile::TempDir,
}

impl Sources {
    fn new(file: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("c.toml"), file).unwrap();
        Self { dir }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("c.toml")
    }

    fn load(
        &self,
        variables: &[(&str, &str)],
        flags: &[(&'static str, Value)],
    ) -> Result<Loaded, CliError> {
        load(Some(&self.path()), os(variables), Flags(flags.to_vec()))
    }
}

fn os(variables: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    variables.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

#[track_caller]
fn refused(loaded: Result<Loaded, CliError>, says: &str) {
    let error = loaded.map(|loaded| loaded.config).unwrap_err();
    assert!(error.message.contains(says), "{says:?} is not in: {}", error.message);
    assert_eq!(error.exit_code(), 2);
}

/// A value of a setting's own form, different for each source.
fn sample(setting: &Setting, source: u8) -> Option<(String, Value)> {
    let enumerated: &[&str] = match setting.key {
        "output" => &["text", "json", "text"],
        "exec_state" => &["derived", "reference", "derived"],
        "tls.client_auth" => &["optional", "required", "optional"],
        "authz.policy" => &["owner", "owner+allowlist", "cedar"],
        "log.format" => &["text", "json", "text"],
        _ => &[],
    };
    let text = match enumerated {
        [] => format!("v{source}"),
        words => words[usize::from(source)].to_owned(),
    };
    Some(match setting.form {
        Form::Text => (text.clone(), Value::from(text)),
        Form::Number => ((7 + source).to_string(), Value::from(i64::from(7 + source))),
        Form::Switch => ((source == 1).to_string(), Value::from(source == 1)),
        Form::Texts => (text.clone(), Value::from(vec![text])),
        Form::Table => return None,
    })
}

/// Every setting from every combination of sources: the closest one counts,
/// and is told.
#[test]
fn a_flag_goes_before_a_variable_before_the_file_before_the_default() {
    for setting in SETTINGS {
        let Some(_) = sample(setting, 0) else { continue };
        for sources in 0..8u8 {
            let has = |bit: u8| sources & (1 << bit) != 0;
            let variable = setting.variable();
            if has(1) && variable.is_none() {
                continue;
            }
            let [file, var, flag] = [0, 1, 2].map(|source| sample(setting, source).unwrap());
            let text =
                if has(0) { format!("{} = {}\n", setting.key, file.1) } else { String::new() };
            let sources = Sources::new(&text);
            let name = variable.unwrap_or_default();
            let variables: &[_] = if has(1) { &[(&*name, &*var.0)] } else { &[] };
            let flags: &[_] = if has(2) { &[(setting.key, flag.1.clone())] } else { &[] };
            let loaded = match sources.load(variables, flags) {
                Ok(loaded) => loaded,
                // A flag of the model's without a model.
                Err(error) => {
                    assert!(error.message.contains("needs --model"), "{}", error.message);
                    assert!(setting.key.starts_with("model_") && has(2));
                    continue;
                }
            };
            let default = setting.default.map(|default| parsed(default).unwrap());
            let (value, origin) = match (has(2), has(1), has(0)) {
                (true, ..) => (Some(flag.1), Origin::Flag),
                (_, true, _) => (Some(var.1), Origin::Variable(name.clone())),
                (_, _, true) => (Some(file.1), Origin::File(sources.path())),
                _ => (default, Origin::Default),
            };
            assert_eq!(loaded.values.get(setting.key), value.as_ref(), "{}", setting.key);
            assert_eq!(*loaded.origin(setting.key), origin, "{}", setting.key);
        }
    }
}

#[test]
fn what_is_no_setting_is_refused_by_name() {
    for (file, says) in [
        ("nope = 1\n", "line 1: unknown field `nope`"),
        ("\n[tls]\nkeys = 'k'\n", "line 3: unknown field `keys`"),
        ("[nope]\n", "`nope`"),
        ("drain_max = 'x'\n", "line 1: invalid type"),
        ("drain_max = -1\n", "line 1: invalid value"),
        ("output = 'xml'\n", "unknown variant `xml`"),
        ("[[harness]]\nname='a'\nruntime='docker'\n", "unknown variant `docker`"),
        ("[[harness]]\nname='a'\nruntime='child'\nx=1\n", "unknown field `x`"),
        ("[[authz.allow.create]]\nissuer='i'\nsubjects='s'\n", "unknown field `subjects`"),
        ("[authz.allow]\nread=[]\n", "a list for \"read\"; there are: create, list"),
        ("token = \n", "line 1"),
        ("approval_ttl = 0\n", "approval_ttl is 0"),
        ("token = 'a'\ntoken_file = 'b'\n", "token and token_file"),
    ] {
        refused(Sources::new(file).load(&[], &[]), says);
    }
    let sources = Sources::new("");
    for (name, value, says) in [
        ("MAINSPRING_NOPE", "1", "MAINSPRING_NOPE in the environment is no setting"),
        ("MAINSPRING_HARNESS", "1", "MAINSPRING_HARNESS"),
        ("MAINSPRING_DRAIN_MAX", "soon", "MAINSPRING_DRAIN_MAX is not a whole number"),
        ("MAINSPRING_DRAIN_MAX", "-1", "MAINSPRING_DRAIN_MAX: invalid value"),
        ("MAINSPRING_REPLACE_BUILTIN", "yes", "MAINSPRING_REPLACE_BUILTIN is neither"),
        ("MAINSPRING_OUTPUT", "xml", "MAINSPRING_OUTPUT: unknown variant"),
        (
            "MAINSPRING_AUTHN_OIDC_AUDIENCES",
            "[1",
            "MAINSPRING_AUTHN_OIDC_AUDIENCES is not an array",
        ),
    ] {
        refused(sources.load(&[(name, value)], &[]), says);
    }
}

#[test]
fn a_secret_is_never_told_by_what_is_wrong_beside_it() {
    for file in ["token = \"s3cret\n", "token = s3cret\n", "token = [\"s3cret\"]\n"] {
        let error = Sources::new(file).load(&[], &[]).map(|loaded| loaded.config).unwrap_err();
        assert!(!error.message.contains("s3cret"), "{}", error.message);
    }
    let loaded = Sources::new("token = \"s3cret\"\n").load(&[], &[]).unwrap();
    assert!(!format!("{:?}", loaded.config).contains("s3cret"));
    assert_eq!(loaded.config.token.unwrap().expose(), "s3cret");
}

#[test]
fn what_a_host_tells_its_tools_and_other_programs_is_let_through() {
    let sources = Sources::new("");
    let variables = [
        ("MAINSPRING_SESSION", "s"),
        ("MAINSPRING_TOOL", "t"),
        ("PATH", "/bin"),
        ("MAINSPRING", "x"),
    ];
    sources.load(&variables, &[]).unwrap();
    let loaded = sources.load(&[("MAINSPRING_LOG", "debug")], &[]).unwrap();
    assert_eq!(loaded.config.log.level.as_deref(), Some("debug"));
    let both = [("MAINSPRING_LOG", "debug"), ("MAINSPRING_LOG_LEVEL", "info")];
    let loaded = sources.load(&both, &[]).unwrap();
    assert_eq!(loaded.config.log.level.as_deref(), Some("info"));
    let empty = sources.load(&[("MAINSPRING_SERVER", "")], &[]).unwrap();
    assert_eq!(empty.config.server, None);
}

#[test]
fn a_list_is_one_text_or_an_array() {
    let sources = Sources::new("");
    let name = "MAINSPRING_AUTHN_OIDC_AUDIENCES";
    for (text, expected) in [("a,b", vec!["a,b"]), ("['a', 'b']", vec!["a", "b"])] {
        let loaded = sources.load(&[(name, text)], &[]).unwrap();
        assert_eq!(loaded.config.authn.oidc.unwrap().audiences, expected);
    }
}

/// A journal that is named more closely than the server is meant.
#[test]
fn the_closer_place_counts() {
    let sources = Sources::new("server = 'a:1'\njournal = 'j'\n");
    assert_eq!(sources.load(&[], &[]).unwrap().server(), Some("a:1"));
    let variable = [("MAINSPRING_JOURNAL", "j")];
    assert_eq!(sources.load(&variable, &[]).unwrap().server(), None);
    let flag = [("server", Value::from("b:1"))];
    assert_eq!(sources.load(&variable, &flag).unwrap().server(), Some("b:1"));
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let missing = Path::new("/nonexistent/c.toml");
    refused(load(Some(missing), os(&[]), Flags::default()), "/nonexistent/c.toml");
    let variable = [("MAINSPRING_CONFIG", "/nonexistent/d.toml")];
    refused(load(None, os(&variable), Flags::default()), "/nonexistent/d.toml");
}

/// Each key of the table is a key of the file, and the other way round.
#[test]
fn the_table_names_every_setting() {
    for setting in SETTINGS {
        let value = match (setting.key, sample(setting, 0)) {
            (_, Some((_, value))) => value,
            ("authz.allow" | "kafka.client", None) => Value::Table(Table::new()),
            (_, None) => Value::Array(Vec::new()),
        };
        typed(&BTreeMap::from([(setting.key, value)])).unwrap();
    }
    let known: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    let source = include_str!("typed.rs");
    let body = source.split("pub(crate) struct Config {").nth(1).unwrap();
    let body = body.split("\n}").next().unwrap();
    for line in body.lines().filter_map(|line| line.trim().strip_prefix("pub(crate) ")) {
        let key = line.split(':').next().unwrap();
        let dotted = format!("{key}.");
        let named = known.iter().any(|known| *known == key || known.starts_with(&dotted));
        assert!(named, "{key} is in no table");
    }
}

/// Of the two, the one of the closer source counts, and the other is not shown.
#[test]
fn a_closer_token_goes_before_the_other_kind_of_token() {
    let variable = |name: &'static str| [(name, "v")];
    let flag = |key: &'static str| [(key, Value::from("f"))];
    for (file, variables, flags, counts) in [
        ("token = 'x'\n", &variable("MAINSPRING_TOKEN_FILE")[..], &[][..], "token_file"),
        ("token_file = 'x'\n", &variable("MAINSPRING_TOKEN"), &[], "token"),
        ("token = 'x'\n", &[], &flag("token_file"), "token_file"),
        ("", &variable("MAINSPRING_TOKEN"), &flag("token_file"), "token_file"),
    ] {
        let loaded = Sources::new(file).load(variables, flags).unwrap();
        let config = &loaded.config;
        assert_eq!(config.token.is_some(), counts == "token", "{file}");
        assert_eq!(config.token_file.is_some(), counts == "token_file", "{file}");
        let shown = ["token", "token_file"].map(|key| loaded.values.contains_key(key));
        assert_eq!(shown, [counts == "token", counts == "token_file"], "{file}");
    }
    let both = [("MAINSPRING_TOKEN", "a"), ("MAINSPRING_TOKEN_FILE", "b")];
    refused(Sources::new("").load(&both, &[]), "token and token_file");
}

#[test]
fn what_kubernetes_says_of_a_service_is_no_setting_and_not_refused() {
    let sources = Sources::new("");
    let passed = [
        ("MAINSPRING_PORT", "tcp://10.0.0.1:8080"),
        ("MAINSPRING_PORT_8080_TCP_ADDR", "10.0.0.1"),
        ("MAINSPRING_SERVICE_HOST", "10.0.0.1"),
        ("MAINSPRING_SERVICE_PORT_GRPC", "8080"),
    ];
    sources.load(&passed, &[]).unwrap();
    for name in ["MAINSPRING_PORTS", "MAINSPRING_SERVICE", "MAINSPRING_HOST"] {
        refused(sources.load(&[(name, "1")], &[]), name);
    }
    for setting in SETTINGS {
        let passed = setting.variable().is_some_and(|name| settings::is_of_a_service(&name));
        assert!(!passed, "{}", setting.key);
    }
}
