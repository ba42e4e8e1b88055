-- Allow lists: immutable versions. The newest version of a list counts; one that is removed says that the list is gone.
CREATE TABLE allow_versions (
    list       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    document   text NOT NULL,  -- JSON of rules.AllowList; text keeps it byte for byte
    hash       bytea NOT NULL, -- SHA-256 of document
    removed    boolean NOT NULL DEFAULT false,
    created_at timestamptz NOT NULL,
    author     text NOT NULL,
    reason     text NOT NULL,
    PRIMARY KEY (list, version)
);
