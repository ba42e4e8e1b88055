-- Streams, the deployment secret, and the audit trail.
--
-- Collation "C" throughout: identifiers compare as bytes, here as in Go, whatever the locale of the server.

-- Never reused, so a generation names one life of one requests topic, and a hit's id is unique across streams.
CREATE SEQUENCE stream_generation;

CREATE TABLE streams (
    name                text COLLATE "C" PRIMARY KEY, -- live, replay/NAME
    generation          bigint NOT NULL UNIQUE DEFAULT nextval('stream_generation'),
    requests_partitions bigint NOT NULL CHECK (requests_partitions > 0),
    keyed_partitions    bigint NOT NULL CHECK (keyed_partitions > 0),
    hits_partitions     bigint NOT NULL CHECK (hits_partitions > 0),
    created_at          timestamptz NOT NULL DEFAULT now(),
    finished_at         timestamptz,
    summary             json -- json, not jsonb: it keeps every legal text, \u0000 included
);

-- Not readable through any view.
CREATE TABLE secrets (
    id         text COLLATE "C" PRIMARY KEY,
    value      bytea NOT NULL CHECK (octet_length(value) = 16),
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE audit (
    seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     timestamptz NOT NULL DEFAULT now(),
    actor  text NOT NULL,
    action text NOT NULL,
    object text COLLATE "C" NOT NULL,
    reason text NOT NULL,
    detail text NOT NULL DEFAULT '',
    ref    text COLLATE "C" -- id of the record that this entry tells of; a record that is read twice is told once
);
CREATE UNIQUE INDEX audit_ref ON audit (ref) WHERE ref IS NOT NULL;
CREATE INDEX audit_object ON audit USING hash (object);
