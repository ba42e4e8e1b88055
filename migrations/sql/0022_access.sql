-- Who is signed in at a console. All consoles of an installation share it. Of the tokens that browsers hold, only hashes are here:
-- who reads these tables, or a backup of them, can sign in as nobody.

-- Sign-ins under way: from the redirect to the identity provider until its answer, which takes the row.
CREATE TABLE sign_ins (
    token      bytea PRIMARY KEY, -- SHA-256 of what the browser's cookie holds
    next       text NOT NULL,     -- path to go on with
    expires_at timestamptz NOT NULL
);
CREATE INDEX sign_ins_by_expiry ON sign_ins (expires_at);

CREATE TABLE sessions (
    token      bytea PRIMARY KEY, -- SHA-256 of what the browser's cookie holds
    name       text NOT NULL,     -- as the audit trail has it
    subject    text NOT NULL,     -- who it is to the identity provider: ISSUER SUB
    groups     text[] NOT NULL,   -- as the identity provider named them; the configuration says which role they give
    created_at timestamptz NOT NULL DEFAULT now(),
    seen_at    timestamptz NOT NULL DEFAULT now(), -- to the minute
    expires_at timestamptz NOT NULL                -- whatever happens
);
CREATE INDEX sessions_by_expiry ON sessions (expires_at);
CREATE INDEX sessions_by_subject ON sessions (subject);

-- Views of the explorer that people keep. query holds pseudonyms where the one who kept it was shown them.
CREATE TABLE saved_views (
    made_by text COLLATE "C" NOT NULL, -- as the audit trail has it
    name    text COLLATE "C" NOT NULL,
    query   text NOT NULL,             -- of the explorer's address, without ?
    shared  boolean NOT NULL,          -- everybody sees it
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (made_by, name)
);
