-- What DETECT found. Every column of a row with one id only moves one way (see history.HitRecorder), so records may
-- come in any order and any number of times.
--
-- Columns that hold what a client sent are indexed by hash, or as cidr: a btree refuses values above 2.7 kB.

CREATE TABLE hits (
    stream           text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    rule             text COLLATE "C" NOT NULL,
    rule_version     bigint NOT NULL,
    lineage          bigint NOT NULL,
    phase            smallint NOT NULL CHECK (phase BETWEEN 1 AND 4), -- open, update, closed, merged
    subject          text COLLATE "C" NOT NULL,
    block_subject    text COLLATE "C" NOT NULL,
    -- the subject's values; NULL where the key does not have the field, or the event did not
    ip               cidr,
    device           text COLLATE "C",
    user_id          text COLLATE "C",
    api_key          text COLLATE "C",
    session          text COLLATE "C",
    grouped          boolean NOT NULL,
    rule_limit       bigint NOT NULL,
    window_ms        bigint NOT NULL,
    events           bigint NOT NULL,
    peak             bigint NOT NULL,
    first            timestamptz NOT NULL,
    last             timestamptz NOT NULL,
    seen_first       timestamptz NOT NULL,
    seen_last        timestamptz NOT NULL,
    cut              boolean NOT NULL,
    generation       bigint NOT NULL,
    source_partition bigint NOT NULL,
    source_offset    bigint NOT NULL,
    keyed_partition  bigint NOT NULL,
    into_id          text COLLATE "C" NOT NULL,
    users            bigint NOT NULL,
    devices          bigint NOT NULL,
    samples          text[] COLLATE "C" NOT NULL, -- JSON texts, never parsed here: json types refuse some legal ones
    samples_rank     bigint NOT NULL,             -- how good the record was that the samples came from
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX hits_last ON hits (stream, last);
CREATE INDEX hits_rule ON hits (stream, rule, last);
CREATE INDEX hits_ip ON hits (ip) WHERE ip IS NOT NULL;
CREATE INDEX hits_device ON hits USING hash (device);
CREATE INDEX hits_user ON hits USING hash (user_id);
CREATE INDEX hits_api_key ON hits USING hash (api_key);
CREATE INDEX hits_session ON hits USING hash (session);

-- Late events, which count nowhere: sums per rule, source partition and minute.
CREATE TABLE late_sums (
    stream           text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    rule             text COLLATE "C" NOT NULL,
    lineage          bigint NOT NULL,
    generation       bigint NOT NULL,
    source_partition bigint NOT NULL,
    keyed_partition  bigint NOT NULL,
    minute           timestamptz NOT NULL,
    latest           timestamptz NOT NULL,
    seen             timestamptz NOT NULL,
    events           bigint NOT NULL,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX late_sums_minute ON late_sums (stream, minute);

-- Gaps in the log that an operator accepted, or that retention made; source_partition -1: in the keyed log itself.
CREATE TABLE losses (
    stream           text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    generation       bigint NOT NULL,
    source_partition bigint NOT NULL,
    source_offset    bigint NOT NULL,
    keyed_partition  bigint NOT NULL,
    offsets          bigint NOT NULL, -- how many offsets were passed over
    watermark        timestamptz NOT NULL,
    seen             timestamptz NOT NULL,
    accepted_by      text NOT NULL,
    reason           text NOT NULL,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
