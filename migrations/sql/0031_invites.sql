-- Who may sign in at a console by the link of an invitation. Of the token in a link only the hash is here: who reads this table, or a backup
-- of it, can sign in as nobody. A row goes when its link is used, taken back or over.
CREATE TABLE invites (
    token      bytea PRIMARY KEY, -- SHA-256 of the link's token
    name       text NOT NULL,     -- as the audit trail will have it
    role       text NOT NULL,     -- viewer, analyst, owner or admin
    owners     text[] NOT NULL,   -- for whom an owner decides
    made_by    text NOT NULL,
    made_at    timestamptz NOT NULL DEFAULT now(),
    expires_at timestamptz NOT NULL
);
CREATE INDEX invites_by_expiry ON invites (expires_at);

-- How who is signed in came and, where no identity provider says it, what he may do. A build before this one writes none of the columns; one
-- that reads a session of an invitation finds no groups in it, and so lets nobody do anything.
ALTER TABLE sessions
    ADD COLUMN via    text NOT NULL DEFAULT 'oidc',       -- oidc, token, invite
    ADD COLUMN role   text NOT NULL DEFAULT '',           -- of an invitation; else the configuration says it
    ADD COLUMN owners text[] NOT NULL DEFAULT '{}';
