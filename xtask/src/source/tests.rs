//! The splitter and the outline, on the texts that fool simpler ones.

use super::*;

#[track_caller]
fn split(text: &str, code: &str, comments: &str) {
    let source = Source::new(text);
    assert_eq!(code, source.code);
    assert_eq!(comments, source.comments);
}

#[test]
fn code_and_comments_part() {
    split("a // b\nc", "a     \nc", "  // b\n ");
    split("a /* /* b */ */ c", "a               c", "  /* /* b */ */  ");
    split("a /* open", "a        ", "  /* open");
    split(r#"x("// no", b"\"/*")"#, r#"x("     ", b"    ")"#, &" ".repeat(19));
}

#[test]
fn raw_strings_and_characters_hide_their_insides() {
    let raw = "r#\"a\"b // \"# + r\"c\\\" + br##\"\"#\"##";
    let source = Source::new(raw);
    assert_eq!("r#\"       \"# + r\"  \" + br##\"  \"##", source.code);
    split("'\"' '\\'' 'a' '\\u{1F600}' b'\"'", "' ' '  ' ' ' '         ' b' '", &" ".repeat(29));
    split("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}", &" ".repeat(23));
    split("r#type", "r#type", &" ".repeat(6));
}

#[test]
fn offsets_survive_wide_characters() {
    let text = "// ü\nfn ü() { \"ü\" }";
    let source = Source::new(text);
    assert_eq!(text.len(), source.code.len());
    assert_eq!(text.len(), source.comments.len());
}

#[test]
fn functions_are_found_with_their_attributes() {
    let text = r#"
#![deny(missing_docs)]
/// fn not_me()
#[derive(Debug)]
struct S { f: fn(u8) -> u8 }
#[tokio::test(flavor = "multi_thread")]
#[cfg(unix)]
async fn a01_one() {}
pub(crate) fn helper() { let s = "fn in_string()"; }
pub async fn case<S: Subject>(subject: S) {}
macro_rules! m { ($case:ident) => { #[test] fn $case() {} } }
proptest! { #[test] fn inside(x in 0..3) { } }
"#;
    let outline = Source::new(text).outline();
    let names: Vec<_> = outline.functions.iter().map(|f| (f.name.as_str(), f.line)).collect();
    assert_eq!([("a01_one", 8), ("helper", 9), ("case", 10), ("inside", 12)], *names);
    let [one, helper, case, inside] = &*outline.functions else { panic!("four functions") };
    assert!(one.is_test() && one.is_async && !one.public);
    assert!(!helper.is_test() && !helper.public);
    assert!(case.public && case.is_async && case.attributes.is_empty());
    assert!(inside.is_test());
    assert!(outline.attributes.contains(&("deny(missing_docs)".to_owned(), 2)));
}

#[test]
fn an_attribute_of_another_item_does_not_stick() {
    let outline = Source::new("#[test]\nmod m;\nfn f() {}").outline();
    assert!(!outline.functions[0].is_test());
    let outline = Source::new("#[cfg(test)] mod tests { fn f() {} }").outline();
    assert!(!outline.functions[0].is_test());
}

#[test]
fn macro_bodies_are_definitions_and_calls() {
    let code = "use a::b; macro_rules! all { ($o:expr) => { one!($o => x, y) } }\ncall!(z); if a != b {} !(c)";
    let bodies = macro_bodies(code);
    assert_eq!(2, bodies.len(), "{bodies:?}");
    assert!(bodies[0].contains("x, y"));
    assert_eq!("z", bodies[1]);
}

#[test]
fn words_have_lines() {
    assert_eq!([("a", 1), ("b_1", 1), ("c", 3)], *words("a+b_1\n\n c;").collect::<Vec<_>>());
}
