//! Giving a session that has no owner to one.

use mainspring::api::{AdoptRequest, Owner, method};
use serde_json::json;

use crate::args::{Adopt, Global, HarnessArgs};
use crate::context::{Context, Open, caller, uid};
use crate::error::CliError;
use crate::output::{Output, session_json, shown_line};

pub(crate) async fn adopt(global: &Global, args: Adopt, output: Output) -> Result<(), CliError> {
    if args.issuer.is_empty() || args.subject.is_empty() {
        return Err(CliError::usage("--issuer and --subject must not be empty"));
    }
    let owner = Owner { issuer: args.issuer, subject: args.subject };
    let request = AdoptRequest { session: uid(&args.session)?, owner: owner.clone() };
    let context = Context::open(global, &HarnessArgs::default(), None, Open::Existing).await?;
    let adopted = match context.operations().await {
        Ok(operations) => {
            operations.adopt(&caller(method::ADOPT), request).await.map_err(CliError::from)
        }
        Err(error) => Err(error),
    };
    context.close().await;
    let session = adopted?;
    output.line(
        || {
            format!(
                "session {} adopt issuer={} subject={}",
                session.uid,
                shown_line(&owner.issuer),
                shown_line(&owner.subject)
            )
        },
        || {
            let owner = json!({"issuer": owner.issuer, "subject": owner.subject});
            json!({"session": session_json(&session), "owner": owner})
        },
    );
    Ok(())
}
