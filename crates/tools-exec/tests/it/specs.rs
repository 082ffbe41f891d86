//! One line for each tool.

use mainspring_api::{Classify as _, ErrorKind, ToolExecutor as _};
use mainspring_tools_exec::{ToolEntry, Tools, ToolsConfigError, ToolsOptions};

#[test]
fn a_line_names_a_tool_its_place_and_whether_it_may_be_repeated() {
    for (spec, name, is_durable) in [
        ("a=exec:true", "a", false),
        ("a=exec:true,durable", "a", true),
        ("a=exec:sh -c 'echo a=b,durable'", "a", false),
        ("pay.v2/x:y_z-1=http:http://h/x", "pay.v2/x:y_z-1", false),
        ("a=http:https://h:8443/x?q=1,durable", "a", true),
        ("a=http:http://h/x%2Cdurable", "a", false),
        ("a=exec: 'with space' \"b\\\"c\" ", "a", false),
    ] {
        let entry = ToolEntry::parse(spec).unwrap();
        assert_eq!((entry.name(), entry.is_durable()), (name, is_durable), "{spec}");
    }
    let tools = Tools::parse(["b=exec:true,durable", "a=exec:true"]).unwrap();
    assert_eq!(tools.names().collect::<Vec<_>>(), ["a", "b"]);
    let repeatable = ["a", "b", "c"].map(|tool| tools.is_repeatable(tool));
    assert_eq!(repeatable, [false, true, false]);
}

#[test]
fn a_bad_line_is_refused_by_the_rule_that_it_breaks_and_not_quoted() {
    let long = format!("{}=exec:true", "n".repeat(129));
    for (spec, words) in [
        ("", "not NAME=exec:CMD or NAME=http:URL"),
        ("exec:s3cret", "not NAME=exec:CMD or NAME=http:URL"),
        ("=exec:true", "tool name \"\" is not 1 to 128"),
        ("a b=exec:true", "tool name \"a b\""),
        ("é=exec:true", "tool name \"é\""),
        (&long, "is not 1 to 128"),
        ("a=", "tool \"a\" is neither exec:CMD nor http:URL"),
        ("a=s3cret", "tool \"a\" is neither"),
        ("a=https://s3cret", "tool \"a\" is neither"),
        ("a b=s3cret", "tool name \"a b\""),
        ("a=exec:", "tool \"a\": command is empty"),
        ("a=exec:  ,durable", "tool \"a\": command is empty"),
        ("a=exec:'s3cret", "tool \"a\": command line has a quote that is not closed"),
        ("a=exec:s3cret\\", "tool \"a\": command line ends in a backslash"),
        ("a=exec:s3cret\0", "tool \"a\": command holds a zero character"),
        ("a=http:", "tool \"a\": its url is not an absolute one"),
        ("a=http://s3cret/x", "tool \"a\": its url is not an absolute one"),
        ("a=http:ftp://s3cret/x", "tool \"a\": its url has a scheme other than http and https"),
        ("a=http:http://h/x#s3cret", "tool \"a\": its url has a fragment"),
    ] {
        let error = ToolEntry::parse(spec).unwrap_err();
        assert!(error.to_string().contains(words), "{spec}: {error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
        assert_eq!((error.kind(), error.code()), (ErrorKind::InvalidInput, "invalid_argument"));
    }
    let error = Tools::parse(["a=exec:true", "a=http:http://h/"]).unwrap_err();
    assert_eq!(error, ToolsConfigError::Duplicate { name: "a".to_owned() });
}

#[test]
fn a_bound_of_zero_is_refused_by_its_name() {
    type Set = fn(&mut ToolsOptions);
    let zero: [(&str, Set); 4] = [
        ("call_within", |options| options.call_within = std::time::Duration::ZERO),
        ("connect_within", |options| options.connect_within = std::time::Duration::ZERO),
        ("output_bytes_max", |options| options.output_bytes_max = 0),
        ("calls_max", |options| options.calls_max = 0),
    ];
    for (bound, set) in zero {
        let mut options = ToolsOptions::default();
        set(&mut options);
        let error = Tools::builder().options(options).build().unwrap_err();
        assert_eq!(error.to_string(), format!("{bound} is zero"));
    }
}

#[test]
fn debug_shows_commands_and_no_secret_of_an_address() {
    let tools = Tools::parse([
        "a=exec:refund --live",
        "b=http:http://alice:s3cret@127.0.0.1:8000/p-s3cret?token=s3cret",
    ]);
    let told = format!("{:?}", tools.unwrap());
    assert!(told.contains("refund") && told.contains("--live"), "{told}");
    assert!(told.contains("http://127.0.0.1:8000/..."), "{told}");
    assert!(!told.contains("s3cret") && !told.contains("alice"), "{told}");
    let entry = ToolEntry::http("b", "http://h/x?token=s3cret").unwrap();
    assert!(!format!("{entry:?}").contains("s3cret"));
}
