//! Certificates and credentials of a cluster with TLS, made with openssl.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::fetch::found;
use super::net::random;
use super::state::{State, Tls};

/// The folder with keys and certificates, in the cluster's folder.
const FOLDER: &str = "tls";
/// The certificate that signs the others, in the cluster's folder.
pub(super) const CA_FILE: &str = "tls/ca.pem";
/// The name of the SCRAM user, and the common name in the client's certificate.
const USER: &str = "mainspring";
/// How long certificates are good for; a cluster rarely lives for a week.
const DAYS: &str = "3650";

/// A broker's key and certificate in one file, in the cluster's folder.
pub(super) fn keystore_file(id: u8) -> String {
    format!("{FOLDER}/broker-{id}.pem")
}

/// What a cluster in `folder` gives to its clients; the addresses are not known yet.
pub(super) fn credentials(folder: &Path) -> Result<Tls> {
    let path = |name: &str| folder.join(FOLDER).join(name).display().to_string();
    Ok(Tls {
        ca: path("ca.pem"),
        client_certificate: path("client.pem"),
        client_key: path("client.key"),
        client_principal: format!("User:CN={USER}"),
        user: USER.to_owned(),
        password: hex(&random::<16>()?),
        sasl_bootstrap: String::new(),
        mtls_bootstrap: String::new(),
    })
}

/// Bytes as lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes what is missing, and the brokers' certificates in any case: they name addresses, which may have changed.
pub(super) fn make(folder: &Path, state: &State) -> Result<()> {
    let keys = folder.join(FOLDER);
    std::fs::create_dir_all(&keys).with_context(|| format!("cannot make {}", keys.display()))?;
    // The last of the files that are made once.
    if !keys.join("client.pem").exists() {
        let ca = ["-subj", "/CN=mainspring test authority"];
        request(&keys, "ca", &[], &[&ca[..], &["-addext", "keyUsage=keyCertSign"]].concat())?;
        request(&keys, "client", SIGNED, &["-subj", &format!("/CN={USER}")])?;
    }
    for broker in &state.brokers {
        let name = format!("broker-{}", broker.id);
        let subject = format!("/CN={name}");
        let names = format!("subjectAltName=IP:{},DNS:localhost", broker.host);
        request(&keys, &name, SIGNED, &["-subj", &subject, "-addext", &names])?;
        // Kafka takes both from one file.
        let key = std::fs::read_to_string(keys.join(format!("{name}.key")))?;
        let certificate = std::fs::read_to_string(keys.join(format!("{name}.pem")))?;
        std::fs::write(folder.join(keystore_file(broker.id)), key + &certificate)?;
    }
    Ok(())
}

/// A certificate of the authority's, rather than one that signs itself.
const SIGNED: &[&str] =
    &["-CA", "ca.pem", "-CAkey", "ca.key", "-addext", "basicConstraints=critical,CA:FALSE"];

/// Makes `name`.key and `name`.pem.
fn request(keys: &Path, name: &str, signed: &[&str], subject: &[&str]) -> Result<()> {
    let output = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
        .args(["-noenc", "-days", DAYS])
        .args(["-keyout", &format!("{name}.key"), "-out", &format!("{name}.pem")])
        .args(signed)
        .args(subject)
        .current_dir(keys)
        .stdin(Stdio::null())
        .output();
    let output =
        found(output, "openssl", "OpenSSL 3, which --tls needs, e.g. apt package openssl")?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("openssl did not make the certificate `{name}`: {}", said.trim());
    }
    Ok(())
}
