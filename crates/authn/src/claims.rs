//! What a token says, read strictly.

use mainspring_api::Timestamp;
use serde::Deserialize;
use serde_json::Number;

/// The claims that count; others are passed over. A claim of the wrong type, or
/// one that comes twice, makes the token unreadable.
#[derive(Debug, Deserialize)]
pub(crate) struct Claims {
    iss: String,
    sub: String,
    aud: Audience,
    exp: Number,
    nbf: Option<Number>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

/// Claims that hold.
#[derive(Debug)]
pub(crate) struct Accepted {
    pub(crate) subject: String,
    pub(crate) expires: Timestamp,
}

impl Claims {
    /// Whom the token is about, if it is for us and its time is now.
    ///
    /// # Errors
    /// Which check failed, for the host's own log.
    pub(crate) fn check(
        self,
        issuer: &str,
        audiences: &[String],
        now: Timestamp,
        leeway: i64,
    ) -> Result<Accepted, &'static str> {
        if self.iss != issuer {
            return Err("issuer");
        }
        if self.sub.is_empty() {
            return Err("subject");
        }
        let is_ours = |audience: &String| audiences.contains(audience);
        let for_us = match &self.aud {
            Audience::One(audience) => is_ours(audience),
            Audience::Many(many) => many.iter().any(is_ours),
        };
        if !for_us {
            return Err("audience");
        }
        let exp = seconds(&self.exp).ok_or("exp")?;
        // Where the issuer's clock may differ, what it says ends later everywhere.
        let expires = exp.saturating_add(leeway).min(Timestamp::SECONDS_MAX);
        if now.seconds >= expires {
            return Err("expired");
        }
        if let Some(nbf) = &self.nbf
            && seconds(nbf).ok_or("nbf")? > now.seconds.saturating_add(leeway)
        {
            return Err("not yet valid");
        }
        Ok(Accepted { subject: self.sub, expires: Timestamp { seconds: expires, nanos: 0 } })
    }
}

/// Whole seconds of a `NumericDate`, which may have a fraction.
fn seconds(number: &Number) -> Option<i64> {
    let seconds = match number.as_i64() {
        Some(seconds) => seconds,
        None => {
            let value = number.as_f64()?.floor();
            // Within this range every whole number is exact.
            #[expect(clippy::cast_possible_truncation, reason = "it was compared just before")]
            let whole = (value.abs() <= Timestamp::SECONDS_MAX as f64).then_some(value as i64)?;
            whole
        }
    };
    (0..=Timestamp::SECONDS_MAX).contains(&seconds).then_some(seconds)
}
