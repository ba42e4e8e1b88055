-- Who owns a keyed partition, its snapshots, what the stages report, and the gaps that operators accepted.

CREATE TABLE partition_owners (
    stream    text COLLATE "C" NOT NULL,
    partition bigint NOT NULL,
    epoch     bigint NOT NULL,
    owner     text NOT NULL,
    slot      smallint NOT NULL DEFAULT 0, -- of the newest row in checkpoints
    taken_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, partition)
);

-- Two generations of each partition's snapshot; they take turns in two slots.
CREATE TABLE checkpoints (
    stream       text COLLATE "C" NOT NULL,
    partition    bigint NOT NULL,
    slot         smallint NOT NULL CHECK (slot IN (0, 1)),
    epoch        bigint NOT NULL,
    keyed_offset bigint NOT NULL, -- the first keyed offset that is not in data
    data         bytea NOT NULL,
    written_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, partition, slot)
);
-- The snapshot's own encoding is compact; trying to compress it again would only cost time.
ALTER TABLE checkpoints ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE partition_states (
    stream      text COLLATE "C" NOT NULL,
    side        text COLLATE "C" NOT NULL CHECK (side IN ('requests', 'keyed')),
    partition   bigint NOT NULL,
    owner       text NOT NULL,
    state       text NOT NULL,
    reason      text NOT NULL,
    log_offset  bigint NOT NULL,
    log_end     bigint NOT NULL,
    epoch       bigint NOT NULL,
    watermark   timestamptz,
    gap_source  bigint NOT NULL,
    gap_offset  bigint NOT NULL,
    reported_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, side, partition)
);

CREATE TABLE gap_acceptances (
    seq         bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    stream      text COLLATE "C" NOT NULL,
    side        text COLLATE "C" NOT NULL CHECK (side IN ('requests', 'keyed')),
    partition   bigint NOT NULL,
    gap_source  bigint NOT NULL,
    gap_offset  bigint NOT NULL,
    accepted_by text NOT NULL,
    reason      text NOT NULL,
    accepted_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (stream, side, partition, gap_source, gap_offset)
);
