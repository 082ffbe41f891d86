//! Pages of harnesses, the host's own and registered ones, by name.

use mainspring_api::{HarnessRegistration, SessionsError};
use mainspring_eventlog::page_token;

use super::Parts;
use super::row::Stored;
use crate::operations::page_size;
use crate::service::invalid;

impl Parts {
    pub(super) async fn list(
        &self,
        size: i32,
        token: &str,
        include_retired: bool,
    ) -> Result<(Vec<HarnessRegistration>, String), SessionsError> {
        if size < 0 {
            return Err(invalid(format!("page_size is {size}")));
        }
        let size = page_size(size);
        let after = match token {
            "" => String::new(),
            token => {
                page_token::decode_name(token).ok_or_else(|| invalid("page_token is not one"))?
            }
        };
        let _changing = self.routing.changing.lock().await;
        // One more than the page holds says whether there is a next one.
        let registered = self.registered_after(&after, size + 1, include_retired).await?;
        registered.iter().for_each(|(name, stored)| self.follow(name, stored));
        let own = self.harnesses().configured_names();
        let own = own.into_iter().filter(|name| *name > after).map(|name| (name, None));
        let registered = registered.into_iter().map(|(name, stored)| (name, Some(stored)));
        let mut both: Vec<(String, Option<Stored>)> = own.chain(registered).collect();
        // The host's own comes first of its name, and is shown instead of what is registered.
        both.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.is_some().cmp(&b.1.is_some())));
        both.dedup_by(|second, first| second.0 == first.0);
        let has_more = both.len() > size;
        both.truncate(size);
        let next = match both.last() {
            Some((name, _)) if has_more => page_token::encode_name(name),
            _ => String::new(),
        };
        let shown = both.into_iter().map(|(name, stored)| match stored {
            None => self.own(&name),
            Some(stored) => self.shown(&name, stored),
        });
        Ok((shown.collect(), next))
    }

    /// Up to `limit` registrations that are to be listed, after a name.
    async fn registered_after(
        &self,
        after: &str,
        limit: usize,
        include_retired: bool,
    ) -> Result<Vec<(String, Stored)>, SessionsError> {
        let mut found = Vec::new();
        let mut after = after.to_owned();
        while found.len() < limit {
            let page = self.rows()?.page(&after, limit).await?;
            let is_last = page.len() < limit;
            if let Some((name, _)) = page.last() {
                after.clone_from(name);
            }
            let listed = |(_, stored): &(String, Stored)| include_retired || !stored.is_retired();
            found.extend(page.into_iter().filter(listed));
            if is_last {
                break;
            }
        }
        found.truncate(limit);
        Ok(found)
    }
}
