//! The table of layers, on small workspaces.

use super::*;

fn of(place: &str, uses: &[&str]) -> Crate {
    let (group, folder) = place.split_once('/').unwrap_or(("", place));
    let package = match (group, folder) {
        ("crates", "facade") => "mainspring".to_owned(),
        ("crates", _) => format!("mainspring-{folder}"),
        _ => folder.to_owned(),
    };
    let uses = uses.iter().map(|name| (*name).to_owned()).collect();
    Crate { group: group.to_owned(), folder: folder.to_owned(), package, uses }
}

/// A small workspace in which `place` uses `uses`.
#[track_caller]
fn edges(place: &str, uses: &[&str], forbidden: &[&str]) {
    let mut crates: Vec<Crate> = [
        "api",
        "support-time",
        "wire",
        "eventlog",
        "controller",
        "placement",
        "live",
        "turns",
        "store-redb",
        "store-fjall",
        "transport-grpc",
        "transport-http",
        "driver-process",
        "backend-http",
        "sessions",
        "live-sessions",
        "facade",
        "conformance",
        "testkit",
        "sim",
        "bench",
    ]
    .iter()
    .map(|name| of(&format!("crates/{name}"), &[]))
    .filter(|other| format!("crates/{}", other.folder) != place)
    .collect();
    crates.push(of(place, uses));
    let problems = check(&crates);
    assert_eq!(forbidden.len(), problems.len(), "{problems:?}");
    for (name, problem) in forbidden.iter().zip(&problems) {
        assert!(problem.contains(&format!("must not depend on {name} ")), "{problem}");
    }
}

#[test]
fn arrows_point_down() {
    edges("crates/api", &[], &[]);
    edges("crates/api", &["support-time"], &["support-time"]);
    edges("crates/support-time", &["api"], &["api"]);
    edges("crates/eventlog", &["api", "support-time"], &[]);
    edges("crates/eventlog", &["wire"], &["wire"]);
    edges("crates/wire", &["eventlog"], &["eventlog"]);
    edges("crates/store-redb", &["api", "eventlog"], &[]);
    edges("crates/sessions", &["placement", "controller", "eventlog", "api"], &[]);
    edges("crates/sessions", &["live-sessions", "facade"], &["live-sessions", "facade"]);
    edges("crates/controller", &["sessions"], &["sessions"]);
    edges("hosts/mainspring", &["facade", "store-redb", "api"], &[]);
}

#[test]
fn only_the_listed_edges_go_sideways() {
    edges("crates/placement", &["controller"], &[]);
    edges("crates/transport-grpc", &["live"], &[]);
    edges("crates/driver-process", &["live"], &[]);
    edges("crates/transport-http", &["turns"], &[]);
    edges("crates/backend-http", &["turns"], &[]);
    edges("crates/controller", &["placement"], &["placement"]);
    edges("crates/store-fjall", &["store-redb"], &["store-redb"]);
    edges("crates/transport-grpc", &["turns"], &["turns"]);
}

#[test]
fn side_crates_use_what_is_listed_and_are_used_by_none() {
    edges("crates/conformance", &["api", "eventlog", "wire", "live", "turns", "testkit"], &[]);
    edges("crates/conformance", &["controller"], &["controller"]);
    edges("crates/testkit", &["api", "eventlog"], &[]);
    edges("crates/testkit", &["wire"], &["wire"]);
    edges("crates/sim", &["api"], &["api"]);
    edges("crates/bench", &["api", "eventlog", "store-fjall", "store-redb"], &[]);
    edges("crates/bench", &["sessions"], &["sessions"]);
    edges("crates/facade", &["bench"], &["bench"]);
    edges("xtask", &["api"], &["api"]);
    edges("crates/store-redb", &["conformance"], &["conformance"]);
    edges("hosts/mainspring", &["testkit"], &["testkit"]);
}

#[test]
fn an_unknown_crate_and_a_wrong_name_are_told() {
    let mut wrong = of("crates/wire", &[]);
    wrong.package = "wire".to_owned();
    let problems = check(&[of("crates/gadget", &[]), wrong, of("tools/gadget", &[])]);
    assert_eq!(3, problems.len(), "{problems:?}");
    assert!(problems[0].starts_with("gadget is in no layer"), "{}", problems[0]);
    assert!(problems[1].contains("must be the package mainspring-wire"), "{}", problems[1]);
    assert!(problems[2].starts_with("gadget is in no layer"), "{}", problems[2]);
}

#[test]
fn a_family_needs_a_name_after_its_dash() {
    assert_eq!(Some(Layer::Level(2)), layer_of("store-redb"));
    assert_eq!(None, layer_of("store-"));
    assert_eq!(None, layer_of("store"));
    assert_eq!(None, layer_of("apis"));
}

#[test]
fn the_table_lists_each_crate_with_its_layer() {
    let text = table(&[
        of("crates/wire", &["api"]),
        of("crates/api", &[]),
        of("hosts/mainspring", &["facade"]),
    ]);
    let lines: Vec<String> =
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        ["layer crate depends on", "L0 api -", "L1 wire api", "L5 hosts/mainspring facade"],
        *lines
    );
}

#[test]
fn what_api_pulls_is_read_and_judged() {
    let output = "mainspring-api v0.1.0 (/w/crates/api)\nbytes v1.0.0\nsyn v2.0.0\nbytes v1.0.0 (*)\n\ntokio-util v0.7.0\n";
    let pulled = packages_of_tree(output);
    assert_eq!(["bytes", "syn", "tokio-util"], *pulled);
    assert_eq!(1, check_api(&pulled).len());
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(3, check_api(&names(&["serde_core", "serde", "rustls"])).len());
    assert!(
        check_api(&names(&["ringbuffer", "futures-core", "thiserror", "getrandom"])).is_empty()
    );
}
