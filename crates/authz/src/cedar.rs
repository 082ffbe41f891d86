//! Policies in the Cedar language.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use async_trait::async_trait;
use cedar_policy::{
    Authorizer as Engine, Context, Decision, Entities, Entity, EntityId, EntityTypeName, EntityUid,
    PolicyId, PolicySet, Request, RestrictedExpression, Schema, ValidationMode, Validator,
};
use mainspring_api::{Action, AuthorizeRequest, Authorizer, AuthzError};

use crate::owner::is_complete;

/// The bytes that a text of policies may have.
pub const POLICIES_BYTES_MAX: usize = 1 << 20;

/// What policies are about: `User`, `Session`, `Host` and the actions.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// Decides by a set of Cedar policies.
///
/// What no policy permits is denied. So is a request over which a policy fails,
/// also if another one permits it: the one that failed may have been to forbid it.
/// A caller of which a part is empty is denied everything.
///
/// - `principal` is a `User` with `issuer` and `subject`. Its id is the JSON
///   array of the two: `User::"[\"https://id.example\",\"alice\"]"`.
/// - `resource` is the `Session` with its `owner`, if it has one; for create,
///   list and the registry's actions it is `Host::"host"`. An action on a
///   session that there is none of is denied.
/// - `context.method` is the full name of the method that was called.
///
/// ```
/// let policies = r#"
///     @id("owners")
///     permit(principal, action in [Action::"read", Action::"exec"], resource)
///     when { resource has owner && resource.owner == principal };
/// "#;
/// let policy = mainspring_authz::CedarPolicy::parse(policies)?;
/// # drop(policy);
/// # Ok::<(), mainspring_authz::CedarError>(())
/// ```
pub struct CedarPolicy {
    engine: Engine,
    policies: PolicySet,
    types: Types,
}

#[derive(Debug)]
struct Types {
    user: EntityTypeName,
    session: EntityTypeName,
    action: EntityTypeName,
    host: EntityUid,
}

impl fmt::Debug for CedarPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = self.policies.policies().count();
        f.debug_struct("CedarPolicy").field("policies", &policies).finish_non_exhaustive()
    }
}

/// Why there is no policy.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum CedarError {
    /// The file cannot be read.
    #[error("policies {path:?} cannot be read: {message}")]
    File {
        /// Where.
        path: PathBuf,
        /// What the system says.
        message: String,
    },
    /// The text is over [`POLICIES_BYTES_MAX`].
    #[error("policies are over {POLICIES_BYTES_MAX} bytes (POLICIES_BYTES_MAX)")]
    TooLarge,
    /// The text is not in the language.
    #[error("policies cannot be parsed: {0}")]
    Syntax(String),
    /// There is no policy in it, which would deny everything.
    #[error("there is no policy")]
    NoPolicy,
    /// A template, which nothing here fills in.
    #[error("policy {policy:?} is a template: it has a slot that nothing fills")]
    Template {
        /// Its id.
        policy: String,
    },
    /// A policy that does not fit the schema.
    #[error("policy {policy:?} does not fit the schema: {message}")]
    Invalid {
        /// Its id: its `@id`, or `policy` and its position from 0.
        policy: String,
        /// What is wrong with it.
        message: String,
    },
}

impl CedarPolicy {
    /// The policies of a file, which is read once.
    ///
    /// # Errors
    /// [`CedarError`].
    pub fn load(path: &Path) -> Result<Self, CedarError> {
        let failed = |error: std::io::Error| CedarError::File {
            path: path.to_owned(),
            message: error.to_string(),
        };
        let mut text = String::new();
        // One byte more than fits, so that what does not fit is seen.
        let most = u64::try_from(POLICIES_BYTES_MAX).unwrap_or(u64::MAX - 1) + 1;
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(most).read_to_string(&mut text).map_err(failed)?;
        Self::parse(&text)
    }

    /// The policies of a text.
    ///
    /// # Errors
    /// [`CedarError`], naming the policy.
    pub fn parse(text: &str) -> Result<Self, CedarError> {
        if text.len() > POLICIES_BYTES_MAX {
            return Err(CedarError::TooLarge);
        }
        let policies =
            PolicySet::from_str(text).map_err(|error| CedarError::Syntax(error.to_string()))?;
        if let Some(template) = policies.templates().next() {
            let id = template.annotation("id").map(str::to_owned);
            return Err(CedarError::Template {
                policy: id.unwrap_or_else(|| template.id().to_string()),
            });
        }
        if policies.is_empty() {
            return Err(CedarError::NoPolicy);
        }
        let (schema, _) =
            Schema::from_cedarschema_str(SCHEMA).expect("the crate's own schema is well formed");
        let checked = Validator::new(schema).validate(&policies, ValidationMode::Strict);
        if let Some(error) = checked.validation_errors().next() {
            let policy = name(&policies, error.policy_id());
            return Err(CedarError::Invalid { policy, message: error.to_string() });
        }
        for warning in checked.validation_warnings() {
            tracing::warn!(warning = %warning, "a policy may not do what it is meant to");
        }
        Ok(Self { engine: Engine::new(), policies, types: Types::new() })
    }

    /// The request as the policies see it, with the entities that it names.
    fn ask(&self, asked: &AuthorizeRequest<'_>) -> Result<(Request, Entities), Unasked> {
        let complete = |issuer: &str, subject: &str| {
            is_complete(issuer, subject).then(|| self.types.user(issuer, subject)).transpose()
        };
        let caller = asked.caller.ok_or(Unasked::Nobody)?;
        let caller = complete(&caller.issuer, &caller.subject)?.ok_or(Unasked::Nobody)?;
        let principal = caller.uid();
        let mut entities = vec![caller];
        let resource = if is_about_the_host(asked.action) {
            self.types.host.clone()
        } else {
            let session = asked.session.ok_or(Unasked::Nobody)?;
            let owner = match asked.owner {
                Some(owner) => complete(&owner.issuer, &owner.subject)?,
                None => None,
            };
            let attributes = owner.as_ref().map(|owner| {
                ("owner".to_owned(), RestrictedExpression::new_entity_uid(owner.uid()))
            });
            let id = EntityId::new(session.as_str());
            let uid = EntityUid::from_type_name_and_id(self.types.session.clone(), id);
            let attributes = attributes.into_iter().collect();
            entities.push(Entity::new(uid.clone(), attributes, HashSet::new())?);
            entities.extend(owner.filter(|owner| owner.uid() != principal));
            uid
        };
        let method = RestrictedExpression::new_string(asked.method.to_owned());
        let context = Context::from_pairs([("method".to_owned(), method)])?;
        let action = EntityId::new(asked.action.name());
        let action = EntityUid::from_type_name_and_id(self.types.action.clone(), action);
        let request = Request::new(principal, action, resource, context, None)?;
        Ok((request, Entities::from_entities(entities, None)?))
    }

    fn decide(&self, asked: &AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        let action = asked.action.name();
        let (request, entities) = self.ask(asked).map_err(|unasked| match unasked {
            Unasked::Nobody => AuthzError::Denied,
            Unasked::Failed => {
                tracing::error!(action, "the policies cannot be asked");
                AuthzError::Unavailable
            }
        })?;
        let answer = self.engine.is_authorized(&request, &self.policies, &entities);
        let mut failed = false;
        for error in answer.diagnostics().errors() {
            let cedar_policy::AuthorizationError::PolicyEvaluationError(error) = error;
            let policy = name(&self.policies, error.policy_id());
            tracing::warn!(policy, action, "a policy failed: denied");
            failed = true;
        }
        match answer.decision() {
            Decision::Allow if !failed => Ok(()),
            _ => Err(AuthzError::Denied),
        }
    }
}

/// Why the policies were not asked.
enum Unasked {
    /// There is no caller, or no session where there must be one.
    Nobody,
    /// The engine takes none of it.
    Failed,
}

impl<E: std::error::Error> From<E> for Unasked {
    fn from(_: E) -> Self {
        Self::Failed
    }
}

#[async_trait]
impl Authorizer for CedarPolicy {
    async fn authorize(&self, request: AuthorizeRequest<'_>) -> Result<(), AuthzError> {
        self.decide(&request)
    }
}

impl Types {
    fn new() -> Self {
        let name = |name: &str| EntityTypeName::from_str(name).expect("it is a plain name");
        let host = EntityUid::from_type_name_and_id(name("Host"), EntityId::new("host"));
        Self { user: name("User"), session: name("Session"), action: name("Action"), host }
    }

    fn user(&self, issuer: &str, subject: &str) -> Result<Entity, Unasked> {
        // Escaped, so that no two pairs have one id.
        let id = EntityId::new(serde_json::to_string(&[issuer, subject])?);
        let attributes = [("issuer", issuer), ("subject", subject)];
        let attributes = attributes.map(|(name, value)| {
            (name.to_owned(), RestrictedExpression::new_string(value.to_owned()))
        });
        let uid = EntityUid::from_type_name_and_id(self.user.clone(), id);
        Ok(Entity::new(uid, HashMap::from(attributes), HashSet::new())?)
    }
}

/// Whether the action is about no session.
fn is_about_the_host(action: Action) -> bool {
    matches!(
        action,
        Action::Create
            | Action::List
            | Action::RegistryRead
            | Action::RegistryList
            | Action::RegistryRegister
            | Action::RegistryRetire
    )
}

/// The name by which a policy's author knows it.
fn name(policies: &PolicySet, id: &PolicyId) -> String {
    policies.annotation(id, "id").map_or_else(|| id.to_string(), str::to_owned)
}
