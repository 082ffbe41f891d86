//! Views in files of all kinds, and addresses. What a store does with its view
//! is tested with brokers.

use mainspring_api::SystemClock;
use tempfile::TempDir;

use super::*;

fn view_in(folder: &TempDir) -> PathBuf {
    folder.path().join("view.redb")
}

fn open(path: &Path) -> Result<RedbEngine, LogError> {
    open_view(path, &SystemClock)
}

fn put(engine: &RedbEngine, key: &[u8], value: &[u8]) {
    let done = engine.write(&mut |kv| {
        kv.put(Space::Meta, key, value)?;
        Ok(Keep::Yes)
    });
    done.unwrap();
}

fn get(engine: &RedbEngine, key: &[u8]) -> Option<Vec<u8>> {
    let mut found = None;
    let read = engine.read(&mut |kv| {
        found = kv.get(Space::Meta, key)?;
        Ok(())
    });
    read.unwrap();
    found
}

/// The names of files beside the view that were put aside.
fn aside(folder: &TempDir) -> Vec<String> {
    let names = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("view.redb.damaged-")).collect()
}

#[test]
fn a_view_keeps_what_it_holds() {
    let folder = TempDir::new().unwrap();
    let path = view_in(&folder);
    let engine = open(&path).unwrap();
    put(&engine, b"\0\0\0\0x", b"1");
    drop(engine);
    let engine = open(&path).unwrap();
    assert_eq!(get(&engine, b"\0\0\0\0x").as_deref(), Some(&b"1"[..]));
    assert_eq!(aside(&folder), [""; 0]);
}

#[test]
fn what_cannot_be_a_view_is_put_aside_as_it_is() {
    let folder = TempDir::new().unwrap();
    let path = view_in(&folder);
    fs::write(&path, "x".repeat(10_000)).unwrap();
    let engine = open(&path).unwrap();
    let [name] = &aside(&folder)[..] else { panic!("{:?}", aside(&folder)) };
    assert_eq!(fs::read(folder.path().join(name)).unwrap().len(), 10_000);
    // An older form is filled anew as well.
    put(&engine, SCHEMA, b"1");
    drop(engine);
    drop(open(&path).unwrap());
    assert_eq!(aside(&folder).len(), 2);
    // A file that was cut.
    let bytes = fs::read(&path).unwrap();
    fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    drop(open(&path).unwrap());
    assert_eq!(aside(&folder).len(), 3);
    open(&path).unwrap();
    assert_eq!(aside(&folder).len(), 3);
}

#[test]
fn a_journal_is_no_view_and_a_view_no_journal() {
    let folder = TempDir::new().unwrap();
    let path = view_in(&folder);
    let config = RedbConfig::at(&path);
    drop(mainspring_store_redb::open_store(&config, KvOptions::default()).unwrap());
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("is a journal"), "{error}");
    drop(mainspring_store_redb::open_store(&config, KvOptions::default()).unwrap());
    assert_eq!(aside(&folder), [""; 0]);

    let path = folder.path().join("other.redb");
    drop(open(&path).unwrap());
    let config = RedbConfig::at(&path);
    mainspring_store_redb::open_store(&config, KvOptions::default()).unwrap_err();
    drop(open(&path).unwrap());
}

#[test]
fn a_view_that_is_held_names_its_file_and_its_holder() {
    let folder = TempDir::new().unwrap();
    let path = view_in(&folder);
    let _held = open(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(matches!(&error, LogError::Held { .. }), "{error}");
    let pid = std::process::id().to_string();
    let text = error.to_string();
    assert!(text.contains("view.redb") && text.contains(&pid), "{text}");
    assert!(text.contains("--server"), "{text}");
}

#[test]
fn an_address_names_brokers_and_a_topic() {
    let factory = KafkaFactory::new(KafkaConfig::new("", ""), "view.redb");
    let config = factory.config("//a:1,b:2/main").unwrap();
    assert_eq!((&*config.brokers, &*config.topic), ("a:1,b:2", "main"));
    for rest in ["", "a:1/t", "//a:1", "//a:1/", "///t", "//a:1/t/u", "//a:1/t?x"] {
        let error = factory.config(rest).unwrap_err().to_string();
        assert!(error.contains("kafka://HOST:PORT,HOST:PORT/TOPIC"), "{error}");
    }
}

#[test]
fn a_folder_is_no_view_and_stays_where_it_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("views");
    std::fs::create_dir(&path).unwrap();
    let error = open(&path).unwrap_err();
    assert!(error.to_string().contains("is a folder"), "{error}");
    assert!(path.is_dir());
    assert_eq!(aside(&folder), Vec::<String>::new());
}
