-- Rules: immutable versions, the mode that promote and demote set, and the routing versions made of both.

CREATE TABLE rule_versions (
    rule       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    lineage    bigint NOT NULL,
    document   text NOT NULL,  -- JSON of rules.Document; text keeps it byte for byte
    source     text NOT NULL,  -- the YAML that it was read from
    hash       bytea NOT NULL, -- SHA-256 of document
    created_at timestamptz NOT NULL DEFAULT now(),
    author     text NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (rule, version)
);

CREATE TABLE rule_modes (
    rule       text COLLATE "C" PRIMARY KEY,
    mode       text NOT NULL CHECK (mode IN ('off', 'shadow', 'block')),
    generation bigint NOT NULL, -- rises with every change and never falls, also not when a rule is removed and comes back
    removed    boolean NOT NULL DEFAULT false,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL,
    reason     text NOT NULL
);

CREATE TABLE routing_versions (
    stream     text COLLATE "C" NOT NULL REFERENCES streams (name) ON DELETE CASCADE,
    number     bigint NOT NULL,
    document   text NOT NULL, -- JSON of rules.Routing
    created_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, number)
);
