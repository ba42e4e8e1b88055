-- Rows of hits that RECORD leaves out, so that whoever makes up sources cannot fill the database: history.rows_per_minute and
-- history.samples_per_minute. Of a rule's rows of one minute (of opened) those with the least ids stay, whatever comes first: ids are hashes
-- under the secret of the deployment. Each partition of the hits topic has its share of the number.

-- How far each partition of the hits topic has been counted. token changes with every transaction that counts: who holds another one
-- in memory reads anew. at and nth are the place of the newest record of each keyed partition (index + 1) in its order, below which nothing
-- is counted again. No row was opened after newest.
CREATE TABLE hit_counts (
    stream         text COLLATE "C" NOT NULL,
    hits_partition bigint NOT NULL,
    token          bigint NOT NULL,
    at             bigint[] NOT NULL,
    nth            bigint[] NOT NULL,
    newest         timestamptz NOT NULL,
    PRIMARY KEY (stream, hits_partition)
);

CREATE TABLE hits_left_out (
    stream          text COLLATE "C" NOT NULL,
    rule            text COLLATE "C" NOT NULL,
    kind            text COLLATE "C" NOT NULL,
    minute          timestamptz NOT NULL,
    hits_partition  bigint NOT NULL,
    beyond          text COLLATE "C" NOT NULL, -- the least id that was left out; empty: samples alone were
    rows            bigint NOT NULL,           -- left out
    merged          bigint NOT NULL,           -- of those, that were joined to others
    ended           bigint NOT NULL,           -- of those, that have ended otherwise
    events          bigint NOT NULL,           -- of those that have ended
    peak            bigint NOT NULL,           -- the greatest of those that have ended
    without_samples bigint NOT NULL,           -- rows that stay, of which the samples were left out
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, rule, kind, minute, hits_partition)
);
CREATE INDEX hits_left_out_minute ON hits_left_out (minute);

CREATE VIEW hits_left_out_v AS
SELECT stream, rule, kind, minute, (minute AT TIME ZONE 'UTC')::date AS day, sum(rows)::bigint AS rows, sum(merged)::bigint AS merged,
       sum(ended)::bigint AS ended, sum(events)::bigint AS events, max(peak) AS peak, sum(without_samples)::bigint AS without_samples
FROM hits_left_out
GROUP BY stream, rule, kind, minute;

-- Sums of episodes, with those that were left out. Whoever they were is not known: sources are those of the rows that stay.
CREATE OR REPLACE VIEW rule_hours_v AS
SELECT day, hour, rule, sum(episodes)::bigint AS episodes, sum(sources)::bigint AS sources, sum(events)::bigint AS events, max(peak) AS peak,
       sum(refused)::bigint AS refused, sum(left_out)::bigint AS left_out
FROM (
  SELECT e.day, date_trunc('hour', greatest(e.first, e.day::timestamp AT TIME ZONE 'UTC')) AS hour, e.rule, count(*) AS episodes,
         count(DISTINCT e.subject) AS sources, sum(e.events) AS events, max(e.peak) AS peak, sum(e.refused) AS refused, 0 AS left_out
  FROM episodes_v e
  GROUP BY 1, 2, 3
  UNION ALL
  SELECT l.day, date_trunc('hour', l.minute), l.rule, sum(l.rows - l.merged), 0, sum(l.events), max(l.peak), 0, sum(l.rows - l.merged)
  FROM hits_left_out_v l
  WHERE l.stream = 'live' AND l.kind = 'hit' AND l.rows > 0
  GROUP BY 1, 2, 3
) parts
GROUP BY day, hour, rule;

CREATE OR REPLACE VIEW rule_days_v AS
SELECT day, rule, sum(episodes)::bigint AS episodes, sum(sources)::bigint AS sources, sum(events)::bigint AS events, max(peak) AS peak,
       sum(refused)::bigint AS refused, sum(left_out)::bigint AS left_out
FROM (
  SELECT e.day, e.rule, count(*) AS episodes, count(DISTINCT e.subject) AS sources, sum(e.events) AS events, max(e.peak) AS peak,
         sum(e.refused) AS refused, 0 AS left_out
  FROM episodes_v e
  GROUP BY 1, 2
  UNION ALL
  SELECT l.day, l.rule, sum(l.rows - l.merged), 0, sum(l.events), max(l.peak), 0, sum(l.rows - l.merged)
  FROM hits_left_out_v l
  WHERE l.stream = 'live' AND l.kind = 'hit' AND l.rows > 0
  GROUP BY 1, 2
) parts
GROUP BY day, rule;
