//! Claims against names, paths and messages of cargo.

use super::*;

#[track_caller]
fn case(name: &str, id: Option<&str>) {
    assert_eq!(id, case_of(name).as_deref(), "{name}");
}

#[test]
fn names_tell_their_case() {
    case("a01_one_model_turn", Some("A01"));
    case("x03_logs", Some("X03"));
    case("v07b_child", Some("V07b"));
    case("lr_017_takeover", Some("LR-017"));
    case("cur_4_gap", Some("CUR-4"));
    case("y01_no_such_family", None);
    case("b7_crashed_session_is_listed", Some("B7"));
    case("a1_short", None);
    case("a012_long", None);
    case("a01", None);
    case("run_the_host", None);
    case("err_", None);
    case("abc_01", None);
    case("_a01_x", None);
}

fn claims(text: &str) -> Claims {
    Claims::parse(text).unwrap()
}

fn test(name: &str) -> NumberedTest {
    NumberedTest { name: name.to_owned(), file: PathBuf::from("crates/c/src/t.rs"), line: 3 }
}

#[test]
fn a_claim_needs_a_test_and_a_numbered_test_a_claim() {
    let claims = claims("[[case]]\nid = \"A01\"\n[[case]]\nid = \"LR-017\"");
    assert!(check_source(&claims, &[test("a01_x"), test("a01_y"), test("lr_017_z")]).is_empty());
    let problems = check_source(&claims, &[test("a01_x"), test("b02_y")]);
    assert_eq!(2, problems.len(), "{problems:?}");
    assert!(problems[0].contains("LR-017 has no test: none begins with `lr_017_`"));
    assert!(problems[1].starts_with("crates/c/src/t.rs:3: b02_y is a test for B02"));
}

#[test]
fn ids_are_unique_and_well_formed() {
    let claims = claims(
        "[[case]]\nid = \"A01\"\n[[case]]\nid = \"A01\"\n[[case]]\nid = \"a02\"\n[[case]]\nid = \"LR17\"",
    );
    let problems = check_source(&claims, &[test("a01_x")]);
    assert_eq!(3, problems.len(), "{problems:?}");
    assert!(problems[0].contains("claimed twice"));
    assert!(problems[1].contains("a02 is not the form"));
    assert!(problems[2].contains("LR17 is not the form"));
}

#[test]
fn the_file_is_strict() {
    assert!(Claims::parse("[[case]]\nid = \"A01\"\nrunz = []").is_err());
    assert!(Claims::parse("[[case]]\nid = \"A01\"\nruns = [\"on-paper\"]").is_err());
    assert!(Claims::parse("[[case]]\nruns = [\"wire\"]").is_err());
}

fn at(package: &str, target: &str, path: &str) -> Listed {
    Listed { package: package.to_owned(), target: target.to_owned(), path: path.to_owned() }
}

#[test]
fn a_test_runs_where_its_path_says() {
    let listed = at("mainspring-store-redb", "conformance", "in_process::a01_over_the_wire");
    assert!(listed.runs_in("in_process"));
    assert!(listed.runs_in("redb"));
    assert!(!listed.runs_in("wire"));
    assert!(!listed.runs_in("memory"));
    assert!(!at("mainspring-wire", "it", "a01_x").runs_in("wire"));
    assert!(at("mainspring-host", "cases-wire", "redb_memory::a01_x").runs_in("wire"));
    assert!(!at("mainspring-host", "wires", "process::a01_x").runs_in("wire"));
}

#[test]
fn each_place_of_a_claim_needs_a_built_test() {
    let claims = claims(
        "[[case]]\nid = \"A01\"\nruns = [\"in-process\", \"wire\"]\nstores = [\"memory\", \"redb\"]",
    );
    let tests = [at("c", "it", "in_process::memory::a01_x"), at("c", "it", "wire::memory::a01_x")];
    let problems = check_places(&claims, &tests);
    assert_eq!(1, problems.len(), "{problems:?}");
    assert!(problems[0].contains("`redb`"));
    let problems = check_places(&claims, &[at("c", "it", "a02_x")]);
    assert_eq!(["A01 has no test that is built"], *problems);
}

#[test]
fn test_binaries_are_found_in_the_messages_of_cargo() {
    let messages = concat!(
        r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-1"}"#,
        "\n",
        r#"{"reason":"compiler-artifact","manifest_path":"/w/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":null}"#,
        "\nnot json\n",
        r#"{"reason":"build-finished","success":true}"#,
    );
    let found = binaries(messages).unwrap();
    assert_eq!(1, found.len());
    assert_eq!(("it", Path::new("/t/it-1")), (&*found[0].target, &*found[0].executable));
}

#[test]
fn a_list_of_tests_is_read() {
    let output = "m::a01_x: test\nbench_me: benchmark\n\nb02_y: test\n";
    assert_eq!(["m::a01_x", "b02_y"], *test_paths(output).collect::<Vec<_>>());
}
