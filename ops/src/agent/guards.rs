//! Who is let in by an agent, and what it shows.

use std::net::SocketAddr;
use std::sync::Arc;

use cell_drill::wire::{AGENT_WIRE, AgentHello, Refused};
use cell_fabric::NodeTls;
use cell_node::{AccessRules, Credential, TokenRole};

use crate::dev::scale_wire::refuse;
use crate::reload;

/// See the module's text. Clones are the same ones.
#[derive(Clone)]
pub(crate) struct Guards {
    access: Arc<AccessRules>,
    tls: Option<NodeTls>,
}

impl Guards {
    /// By tokens, which are asked for.
    pub(super) fn new(access: AccessRules, tls: Option<NodeTls>) -> Guards {
        Guards { access: Arc::new(access), tls }
    }

    /// Reads the tokens again.
    pub(crate) fn reload(&self) {
        reload::tokens(&self.access);
    }

    /// The TLS for a connection that has just come, with certificates as they are now.
    pub(super) fn tls(&self) -> Option<&NodeTls> {
        self.tls.as_ref().inspect(|tls| reload::certificates(tls))
    }

    /// Lets somebody in by the first line, or says why not.
    pub(super) fn admit(&self, line: &str, peer: SocketAddr) -> Result<Credential, Refused> {
        let Ok(hello) = serde_json::from_str::<AgentHello>(line) else {
            return Err(refuse(
                "a connection to an agent begins with a hello".to_owned(),
                "use `cell` of the agent's version",
            ));
        };
        if hello.wire != AGENT_WIRE {
            return Err(refuse(
                format!("it speaks version {AGENT_WIRE} of the agents' lines, not {}", hello.wire),
                "use `cell` of the agent's version",
            ));
        }
        let Some(holder) = self.access.holder(hello.token.as_bytes()) else {
            tracing::warn!(%peer, "somebody without a token that is known was turned away");
            let what = if hello.token.is_empty() { "it wants a token" } else { "it does not know the token" };
            return Err(refuse(what.to_owned(), "give --token (or CELL_TOKEN) one of the role admin"));
        };
        let credential = self.access.credential(None, hello.token.as_bytes());
        if !self.administers(&credential) {
            tracing::warn!(%peer, name = holder.name, "a token without the role admin was turned away");
            return Err(refuse(
                format!("the token of {} has not the role {}", holder.name, TokenRole::Admin.word()),
                "give --token (or CELL_TOKEN) one that has it",
            ));
        }
        tracing::info!(%peer, name = holder.name, "a drill connects");
        Ok(credential)
    }

    /// Whether who was let in by this may still do everything.
    pub(super) fn administers(&self, credential: &Credential) -> bool {
        self.access.grants(credential).is_some_and(|grants| grants.administers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SHA-256 of `a` and of `b`.
    const TOKENS: &str = "\
        admin root ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb\n\
        operator screen 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d\n";

    fn admitted(guards: &Guards, line: &str) -> Result<Credential, String> {
        let peer = "127.0.0.1:1".parse().unwrap();
        guards.admit(line, peer).map_err(|refused| refused.what)
    }

    #[test]
    fn admit_lets_the_role_admin_in_until_its_token_is_taken_away() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), TOKENS).unwrap();
        let guards = Guards::new(AccessRules::open(file.path().to_str().unwrap()).unwrap(), None);
        for (line, why) in [
            (r#"{"do":"status"}"#, "begins with a hello"),
            (r#"{"wire":1,"token":"a"}"#, "speaks version 2"),
            (r#"{"wire":2,"token":""}"#, "wants a token"),
            (r#"{"wire":2,"token":"c"}"#, "does not know the token"),
            (r#"{"wire":2,"token":"b"}"#, "the token of screen has not the role admin"),
        ] {
            let refused = admitted(&guards, line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
        let credential = admitted(&guards, r#"{"wire":2,"token":"a"}"#).unwrap();
        assert!(guards.administers(&credential));
        std::fs::write(file.path(), TOKENS.replace("admin root", "viewer root")).unwrap();
        guards.reload();
        assert!(!guards.administers(&credential));
        std::fs::write(file.path(), "nonsense").unwrap();
        guards.reload();
        assert!(admitted(&guards, r#"{"wire":2,"token":"a"}"#).is_err(), "the tokens stay");
    }
}
