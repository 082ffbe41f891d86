//! A server that knows its callers: its issuer, its certificates, its files.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use mainspring::api::{Clock as _, SystemClock};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, SanType,
    SerialNumber,
};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _};
use serde_json::json;

use crate::support::{Dir, Done, Serving};

pub(crate) const ISSUER: &str = "https://issuer.example";
/// Who vouches for client certificates.
pub(crate) const TRUST_DOMAIN: &str = "spiffe://example.org";
/// The subject of the client certificate.
pub(crate) const CAROL: &str = "spiffe://example.org/carol";

/// When good tokens end, in seconds: long after any run of these tests.
const LATER: i64 = 4_000_000_000;
/// When a token ended that is no good any more.
const PAST: i64 = 1_000_000_000;

/// Signs tokens.
struct Issuer(Ed25519KeyPair);

impl Issuer {
    fn new() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn jwks(&self) -> String {
        let x = URL_SAFE_NO_PAD.encode(self.0.public_key());
        let key = json!({"kty": "OKP", "kid": "k1", "alg": "EdDSA", "crv": "Ed25519", "x": x});
        json!({"keys": [key]}).to_string()
    }

    fn token(&self, subject: &str, exp: i64) -> String {
        let claims = json!({"iss": ISSUER, "sub": subject, "aud": "mainspring", "exp": exp});
        let header = json!({"alg": "EdDSA", "typ": "JWT", "kid": "k1"});
        let b64 = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let message = format!(
            "{}.{}",
            b64(header.to_string().as_bytes()),
            b64(claims.to_string().as_bytes())
        );
        let signature = b64(self.0.sign(message.as_bytes()).as_ref());
        format!("{message}.{signature}")
    }
}

/// A folder with all that a secured server and its clients need.
pub(crate) struct Secured {
    pub(crate) dir: Dir,
    issuer: Issuer,
    authority: CertifiedIssuer<'static, KeyPair>,
    /// How many certificates were issued.
    issued: u64,
}

impl Secured {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let mut this = Self { dir: Dir::new(), issuer: Issuer::new(), authority, issued: 0 };
        this.dir.write("ca.pem", this.authority.pem());
        this.dir.write("jwks.json", this.issuer.jwks());
        this.certify_server("server");
        let uri = SanType::URI(CAROL.try_into().unwrap());
        this.certify("carol", vec![uri]);
        this.dir.write("server.toml", this.server_settings());
        this
    }

    fn certify_server(&mut self, name: &str) {
        let ip = SanType::IpAddress("127.0.0.1".parse().unwrap());
        self.certify(name, vec![ip]);
    }

    fn certify(&mut self, name: &str, names: Vec<SanType>) {
        self.issued += 1;
        let mut params = CertificateParams::default();
        params.subject_alt_names = names;
        params.serial_number = Some(SerialNumber::from(self.issued));
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        self.dir.write(&format!("{name}.pem"), certificate.pem());
        self.dir.write(&format!("{name}.key"), key.serialize_pem());
    }

    /// The server's file: alice, bob and carol may create and list; alice and
    /// carol may approve what is theirs; only olga operates.
    fn server_settings(&self) -> String {
        let mut text = format!(
            "addr = \"127.0.0.1:0\"\nregistry_addr = \"127.0.0.1:0\"\n\
             tool = [\"refund=exec:sh refund.sh\"]\n\
             [tls]\ncertificate = \"server.pem\"\nkey = \"server.key\"\nclient_ca = \"ca.pem\"\n\
             [authn.oidc]\nissuer = \"{ISSUER}\"\naudiences = [\"mainspring\"]\n\
             jwks_file = \"jwks.json\"\n\
             [authn.mtls]\ntrust_domain = \"{TRUST_DOMAIN}\"\n\
             [authz]\npolicy = \"owner+allowlist\"\n[authz.allow]\n"
        );
        let one = |(issuer, subject): (&str, &str)| {
            format!("{{ issuer = \"{issuer}\", subject = \"{subject}\" }}")
        };
        let (alice, bob) = ((ISSUER, "alice"), (ISSUER, "bob"));
        let (carol, olga) = ((TRUST_DOMAIN, CAROL), (ISSUER, "olga"));
        let lists = [
            ("create", vec![alice, bob, carol]),
            ("list", vec![alice, bob, carol]),
            ("approve", vec![alice, carol]),
            ("adopt", vec![olga]),
            ("\"registry.read\"", vec![olga]),
            ("\"registry.list\"", vec![olga]),
            ("\"registry.register\"", vec![olga]),
            ("\"registry.retire\"", vec![olga]),
        ];
        for (action, callers) in lists {
            let callers: Vec<_> = callers.into_iter().map(one).collect();
            writeln!(text, "{action} = [{}]", callers.join(", ")).unwrap();
        }
        text
    }

    /// Serves; also where operators are listened to.
    pub(crate) fn serve(&self) -> (Serving, String) {
        let serving = Serving::start(&self.dir, &["serve", "--config-file", "server.toml"]);
        let operators = serving.line.rsplit_once(" on ").unwrap().1.to_owned();
        (serving, operators)
    }

    /// A good token.
    pub(crate) fn token(&self, subject: &str) -> String {
        self.issuer.token(subject, LATER)
    }

    /// A token that is good for so many seconds.
    pub(crate) fn token_for(&self, subject: &str, seconds: i64) -> String {
        self.issuer.token(subject, SystemClock.now().seconds + seconds)
    }

    /// A token that was good once.
    pub(crate) fn expired_token(&self, subject: &str) -> String {
        self.issuer.token(subject, PAST)
    }

    /// Writes the file of a client, and returns its name.
    pub(crate) fn client(&self, name: &str, address: &str, more: &str, tls: &str) -> String {
        let text = format!(
            "server = \"{address}\"\n{more}\n[client]\nreconnect_max = 5\n\
             [client.tls]\nca = \"ca.pem\"\n{tls}\n"
        );
        let file = format!("{name}.toml");
        self.dir.write(&file, text);
        file
    }

    /// A client with a token in a file.
    pub(crate) fn client_with_token_file(&self, subject: &str, address: &str) -> String {
        let file = format!("{subject}.token");
        self.dir.write(&file, self.token(subject) + "\n");
        self.client(subject, address, &format!("token_file = \"{file}\""), "")
    }

    /// A client with a certificate.
    pub(crate) fn client_with_certificate(&self, address: &str) -> String {
        let tls = "certificate = \"carol.pem\"\nkey = \"carol.key\"";
        self.client("carol", address, "", tls)
    }

    /// Runs a command of one client.
    pub(crate) fn run(&self, client: &str, args: &[&str]) -> Done {
        self.dir.run(&[args, &["--config-file", client]].concat())
    }
}
