-- What each rule counted in a minute of event time, and what its block would have done to the requests of that minute, had it
-- alone blocked: records of kind statistics. A minute has several rows, of other events each, so figures are sums over rows.
CREATE TABLE rule_minutes (
    stream          text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    rule            text COLLATE "C" NOT NULL,
    rule_version    bigint NOT NULL,
    lineage         bigint NOT NULL,
    kind            text COLLATE "C" NOT NULL, -- of the version: hit, or candidate for a pending one
    minute          timestamptz NOT NULL,
    keyed_partition bigint NOT NULL,
    events          bigint NOT NULL,           -- that the rule counted
    reached         bigint NOT NULL,           -- that the block may refuse
    refused         bigint NOT NULL,           -- of those, refused under the rule's own limit
    refused_good    bigint NOT NULL,           -- of those, of subjects that are known to be good
    limits          bigint[] NOT NULL,         -- other limits, ascending from the rule's own; empty: none was refused, or none is exact
    refused_at      bigint[] NOT NULL,         -- what would have been refused under each
    at_least        boolean NOT NULL,          -- what is refused may be more: the block is not tried, or something was forgotten
    seen            timestamptz NOT NULL,
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX rule_minutes_minute ON rule_minutes (stream, rule, minute);

-- One row for each rule, version, kind and minute. The limits of a version are the same in all rows that have any.
CREATE VIEW rule_minutes_v AS
SELECT m.stream, m.rule, m.rule_version, m.kind, m.minute,
       sum(m.events)::bigint AS events, sum(m.reached)::bigint AS reached, sum(m.refused)::bigint AS refused,
       sum(m.refused_good)::bigint AS refused_good,
       coalesce(max(m.limits), '{}') AS limits,
       coalesce((SELECT array_agg(rung.refused ORDER BY rung.at)
                 FROM (SELECT r.at, sum(r.refused)::bigint AS refused
                       FROM rule_minutes p, unnest(p.refused_at) WITH ORDINALITY AS r (refused, at)
                       WHERE p.stream = m.stream AND p.rule = m.rule AND p.rule_version = m.rule_version AND p.kind = m.kind AND p.minute = m.minute
                       GROUP BY r.at) rung), '{}') AS refused_at,
       bool_or(m.at_least) AS at_least, max(m.seen) AS seen
FROM rule_minutes m
GROUP BY m.stream, m.rule, m.rule_version, m.kind, m.minute;
