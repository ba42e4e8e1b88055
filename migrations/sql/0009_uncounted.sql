-- Events that a rule watches and did not count, but for late ones, which have a table of their own: sums by rule, reason
-- and minute. ROUTE's sums are of one router over all partitions: of what it leaves out, no detector hears.
CREATE TABLE uncounted_sums (
    stream           text COLLATE "C" NOT NULL,
    id               text COLLATE "C" NOT NULL,
    rule             text COLLATE "C" NOT NULL,
    reason           text COLLATE "C" NOT NULL,
    lineage          bigint,           -- NULL in sums of ROUTE, as are the two partitions and latest
    source_partition bigint,
    keyed_partition  bigint,
    minute           timestamptz NOT NULL,
    latest           timestamptz,
    seen             timestamptz NOT NULL,
    events           bigint NOT NULL,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX uncounted_sums_minute ON uncounted_sums (stream, minute);

CREATE VIEW uncounted_v AS
SELECT stream, rule, 'late' COLLATE "C" AS reason, lineage, source_partition, keyed_partition, minute, latest, events, recorded_at
FROM late_sums
UNION ALL
SELECT stream, rule, reason, lineage, source_partition, keyed_partition, minute, latest, events, recorded_at
FROM uncounted_sums;
