-- Hits and block decisions of the live stream by the day (UTC) on which they began, each day a table of its own that is dropped as a whole
-- when its time is over (history.retention). The tables of before keep what has no day: replays, what older builds have written and go on
-- writing beside this one, releases (few, and read by the reconcilers of older builds), and decisions of days that were dropped whose blocks
-- are still in force. The views show both.
--
-- One id is one row. The day of an id never changes: of an episode it is that of opened, which never does; of a decision, that of the record
-- that was stored first. An id that stands in an old table goes on there: builds that know the days look, under a lock that they share,
-- and for the others the triggers below do, under the same lock alone.

ALTER TABLE hits
    ADD COLUMN opened     timestamptz,                 -- NULL: of a build that did not tell
    ADD COLUMN known_good smallint NOT NULL DEFAULT 0, -- 0 not judged, 1 not good, 2 good
    ADD COLUMN refused    bigint NOT NULL DEFAULT 0;
ALTER TABLE hits_beside
    ADD COLUMN opened     timestamptz,
    ADD COLUMN known_good smallint NOT NULL DEFAULT 0,
    ADD COLUMN refused    bigint NOT NULL DEFAULT 0;

CREATE TABLE hits_by_day (
    day              date NOT NULL,
    id               text COLLATE "C" NOT NULL,
    rule             text COLLATE "C" NOT NULL,
    rule_version     bigint NOT NULL,
    lineage          bigint NOT NULL,
    phase            smallint NOT NULL CHECK (phase BETWEEN 1 AND 4),
    subject          text COLLATE "C" NOT NULL,
    block_subject    text COLLATE "C" NOT NULL,
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
    samples          text[] COLLATE "C" NOT NULL,
    samples_rank     bigint NOT NULL,
    at_least         boolean NOT NULL,
    reason           text COLLATE "C" NOT NULL,
    opened           timestamptz NOT NULL,
    known_good       smallint NOT NULL,
    refused          bigint NOT NULL,
    recorded_at      timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX hits_by_day_last ON hits_by_day (last);
CREATE INDEX hits_by_day_rule ON hits_by_day (rule, last);
CREATE INDEX hits_by_day_running ON hits_by_day (last) WHERE phase < 3; -- few: for them alone nobody shall read a day
CREATE INDEX hits_by_day_ip ON hits_by_day (ip) WHERE ip IS NOT NULL;
CREATE INDEX hits_by_day_device ON hits_by_day USING hash (device);
CREATE INDEX hits_by_day_user ON hits_by_day USING hash (user_id);
CREATE INDEX hits_by_day_api_key ON hits_by_day USING hash (api_key);
CREATE INDEX hits_by_day_session ON hits_by_day USING hash (session);

CREATE TABLE hits_beside_by_day (
    LIKE hits_by_day INCLUDING ALL EXCLUDING INDEXES,
    kind text COLLATE "C" NOT NULL,
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX hits_beside_by_day_last ON hits_beside_by_day (last);
CREATE INDEX hits_beside_by_day_rule ON hits_beside_by_day (rule, last);
CREATE INDEX hits_beside_by_day_running ON hits_beside_by_day (last) WHERE phase < 3;
CREATE INDEX hits_beside_by_day_ip ON hits_beside_by_day (ip) WHERE ip IS NOT NULL;
CREATE INDEX hits_beside_by_day_device ON hits_beside_by_day USING hash (device);
CREATE INDEX hits_beside_by_day_user ON hits_beside_by_day USING hash (user_id);
CREATE INDEX hits_beside_by_day_api_key ON hits_beside_by_day USING hash (api_key);
CREATE INDEX hits_beside_by_day_session ON hits_beside_by_day USING hash (session);

CREATE TABLE block_decisions_by_day (
    day         date NOT NULL,
    id          text COLLATE "C" NOT NULL,
    action      text COLLATE "C" NOT NULL,
    reason      text COLLATE "C" NOT NULL,
    rule        text COLLATE "C" NOT NULL,
    subject     text COLLATE "C" NOT NULL,
    ip          cidr,
    device      text COLLATE "C",
    user_id     text COLLATE "C",
    api_key     text COLLATE "C",
    session     text COLLATE "C",
    hit         text COLLATE "C" NOT NULL,
    generation  bigint NOT NULL,
    since       timestamptz,
    until       timestamptz,
    at          timestamptz NOT NULL,
    decided_by  text COLLATE "C" NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, day)
) PARTITION BY RANGE (day);
CREATE INDEX block_decisions_by_day_at ON block_decisions_by_day (at);
CREATE INDEX block_decisions_by_day_until ON block_decisions_by_day (until) WHERE action IN ('written', 'extended');
CREATE INDEX block_decisions_by_day_subject ON block_decisions_by_day USING hash (subject);
CREATE INDEX block_decisions_by_day_hit ON block_decisions_by_day USING hash (hit);
CREATE INDEX block_decisions_by_day_ip ON block_decisions_by_day (ip) WHERE ip IS NOT NULL;
CREATE INDEX block_decisions_by_day_device ON block_decisions_by_day USING hash (device);
CREATE INDEX block_decisions_by_day_user ON block_decisions_by_day USING hash (user_id);
CREATE INDEX block_decisions_by_day_api_key ON block_decisions_by_day USING hash (api_key);
CREATE INDEX block_decisions_by_day_session ON block_decisions_by_day USING hash (session);

-- What older builds store about an id that stands in a day goes there. Builds that know the days set weir.days in their transactions: they
-- have looked themselves.
CREATE FUNCTION hit_to_its_day() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
DECLARE
    days text := TG_TABLE_NAME || '_by_day';
    merged bigint;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('weir days ' || current_schema(), 0));
    EXECUTE format($sql$UPDATE %I h SET
            phase = greatest(h.phase, $1.phase), rule_version = greatest(h.rule_version, $1.rule_version),
            rule_limit = greatest(h.rule_limit, $1.rule_limit), events = greatest(h.events, $1.events), peak = greatest(h.peak, $1.peak),
            first = least(h.first, $1.first), last = greatest(h.last, $1.last), seen_first = least(h.seen_first, $1.seen_first),
            seen_last = greatest(h.seen_last, $1.seen_last), cut = h.cut OR $1.cut, into_id = greatest(h.into_id, $1.into_id),
            users = greatest(h.users, $1.users), devices = greatest(h.devices, $1.devices),
            samples = CASE WHEN ($1.samples_rank, $1.samples) > (h.samples_rank, h.samples) THEN $1.samples ELSE h.samples END,
            samples_rank = greatest(h.samples_rank, $1.samples_rank), at_least = h.at_least OR $1.at_least, reason = greatest(h.reason, $1.reason)
        WHERE h.id = $1.id$sql$, days) USING NEW;
    GET DIAGNOSTICS merged = ROW_COUNT;
    RETURN CASE WHEN merged = 0 THEN NEW END;
END $$;
CREATE TRIGGER hits_to_days BEFORE INSERT ON hits FOR EACH ROW
    WHEN (NEW.stream = 'live' AND current_setting('weir.days', true) IS DISTINCT FROM 'known') EXECUTE FUNCTION hit_to_its_day();
CREATE TRIGGER hits_beside_to_days BEFORE INSERT ON hits_beside FOR EACH ROW
    WHEN (NEW.stream = 'live' AND current_setting('weir.days', true) IS DISTINCT FROM 'known') EXECUTE FUNCTION hit_to_its_day();

CREATE FUNCTION decision_to_its_day() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('weir days ' || current_schema(), 0));
    PERFORM FROM block_decisions_by_day h WHERE h.id = NEW.id;
    IF NOT FOUND THEN
        RETURN NEW;
    END IF;
    UPDATE block_decisions_by_day h SET
        at = NEW.at, reason = NEW.reason, decided_by = NEW.decided_by, subject = NEW.subject, ip = NEW.ip, device = NEW.device,
        user_id = NEW.user_id, api_key = NEW.api_key, session = NEW.session, generation = NEW.generation, since = NEW.since
    WHERE h.id = NEW.id AND (NEW.at, NEW.reason, NEW.decided_by) < (h.at, h.reason, h.decided_by);
    RETURN NULL;
END $$;
CREATE TRIGGER block_decisions_to_days BEFORE INSERT ON block_decisions FOR EACH ROW
    WHEN (NEW.stream = 'live' AND NEW.action <> 'released' AND current_setting('weir.days', true) IS DISTINCT FROM 'known')
    EXECUTE FUNCTION decision_to_its_day();

-- All rows, for weir itself: columns as the tables have them. Of a row without opened it is first.
CREATE VIEW hits_all AS
SELECT stream, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, window_ms, events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason,
       coalesce(opened, first) AS opened, known_good, refused, (coalesce(opened, first) AT TIME ZONE 'UTC')::date AS day
FROM hits
UNION ALL
SELECT 'live'::text COLLATE "C", id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, window_ms, events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason, opened, known_good, refused, day
FROM hits_by_day;

CREATE VIEW hits_beside_all AS
SELECT stream, id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, window_ms, events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason,
       coalesce(opened, first) AS opened, known_good, refused, (coalesce(opened, first) AT TIME ZONE 'UTC')::date AS day, kind
FROM hits_beside
UNION ALL
SELECT 'live'::text COLLATE "C", id, rule, rule_version, lineage, phase, subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, window_ms, events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason, opened, known_good, refused, day, kind
FROM hits_beside_by_day;

CREATE VIEW block_decisions_all AS
SELECT stream, id, action, reason, rule, subject, ip, device, user_id, api_key, session, hit, generation, since, until, at, decided_by, recorded_at,
       (at AT TIME ZONE 'UTC')::date AS day
FROM block_decisions
UNION ALL
SELECT 'live'::text COLLATE "C", id, action, reason, rule, subject, ip, device, user_id, api_key, session, hit, generation, since, until, at, decided_by,
       recorded_at, day
FROM block_decisions_by_day;

CREATE OR REPLACE VIEW hits_v AS
SELECT stream, id, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason, opened, known_good, refused, day
FROM hits_all;

CREATE OR REPLACE VIEW hits_beside_v AS
SELECT stream, id, kind, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason, opened, known_good, refused, day
FROM hits_beside_all;

CREATE OR REPLACE VIEW block_decisions_v AS
SELECT stream, id, action, reason, rule, subject, ip, device, user_id, api_key, session, hit, generation,
       since, until, at, decided_by, recorded_at, day
FROM block_decisions_all;

CREATE OR REPLACE VIEW samples_v AS
SELECT h.stream, h.id, h.rule, h.subject, h.first, h.last, t.number,
       r.at, r.method, r.host, r.path, r.status, r.user_agent, r.ip, r.device, r.user_id, r.attrs, t.sample, h.day
FROM hits_all h
CROSS JOIN LATERAL unnest(h.samples) WITH ORDINALITY AS t (sample, number)
CROSS JOIN LATERAL read_sample(t.sample) r
WHERE h.phase < 4;

-- Releases have no day.
CREATE OR REPLACE VIEW blocks_v AS
SELECT DISTINCT ON (d.stream, d.rule, d.subject)
       d.stream, d.rule, d.subject, d.ip, d.device, d.user_id, d.api_key, d.session, d.hit, d.generation, d.since, d.until, d.at
FROM block_decisions_all d
JOIN rule_modes m ON m.rule = d.rule AND m.mode = 'block' AND m.generation = d.generation
WHERE d.action IN ('written', 'extended') AND d.until > now()
  AND NOT EXISTS (
    SELECT FROM block_decisions r
    WHERE r.action = 'released' AND r.until > now() AND r.stream = d.stream AND r.rule = d.rule AND r.subject = d.subject
      AND (d.since <= r.since OR d.hit = r.hit))
ORDER BY d.stream, d.rule, d.subject, d.until DESC, d.id;

-- Episodes over limits on live traffic, each once, whatever the number of blocks that it may lead to. The rows of one that has ended have the same
-- first. While one runs, a late event may move its beginning, of which each row learns with the next report about its own block: until then its
-- rows differ, by less than a window from one to the next. One that was not heard of for two days was left open by a DETECT that is gone.
--
-- day is that of its earliest row: a row that was opened on a later day than the episode began counts where no earlier one is found, which
-- is looked up for those rows alone. So a condition on day reads no other days.
CREATE VIEW episodes_v AS
SELECT h.day, h.rule, max(h.rule_version) AS rule_version, h.lineage, h.subject, h.ip, h.device, h.user_id, h.api_key, h.session,
       h.first, max(h.last) AS last, max(h.events) AS events, max(h.peak) AS peak, max(h.rule_limit) AS rule_limit,
       make_interval(secs => max(h.window_ms) / 1000.0) AS window_length, false AS running, bool_or(h.at_least) AS at_least, bool_or(h.cut) AS cut,
       max(h.users) AS users, max(h.devices) AS devices, sum(h.refused)::bigint AS refused, max(h.known_good) AS known_good,
       count(*) AS blocks, min(h.id) AS id
FROM hits_all h
WHERE h.stream = 'live' AND (h.phase = 3 OR h.phase < 3 AND h.last < now() - interval '2 days')
  AND (h.first >= h.day::timestamp AT TIME ZONE 'UTC' OR NOT EXISTS (
    SELECT FROM hits_all o
    WHERE o.stream = 'live' AND o.phase < 4 AND o.rule = h.rule AND o.lineage = h.lineage AND o.subject = h.subject AND o.first = h.first
      AND o.day BETWEEN h.day - 2 AND h.day - 1 AND o.last BETWEEN h.first AND h.first + interval '2 days'))
GROUP BY h.day, h.rule, h.lineage, h.subject, h.ip, h.device, h.user_id, h.api_key, h.session, h.first
UNION ALL
SELECT min(r.day), r.rule, max(r.rule_version), r.lineage, r.subject, r.ip, r.device, r.user_id, r.api_key, r.session,
       min(r.first), max(r.last), max(r.events), max(r.peak), max(r.rule_limit),
       make_interval(secs => max(r.window_ms) / 1000.0), true, bool_or(r.at_least), bool_or(r.cut),
       max(r.users), max(r.devices), sum(r.refused)::bigint, max(r.known_good), count(*), min(r.id)
FROM (
  SELECT a.*, count(*) FILTER (WHERE a.apart) OVER (PARTITION BY a.rule, a.lineage, a.subject ORDER BY a.first, a.id) AS nth
  FROM (
    SELECT h.*, coalesce(h.first >= max(h.last + make_interval(secs => h.window_ms / 1000.0)) OVER (
        PARTITION BY h.rule, h.lineage, h.subject ORDER BY h.first, h.id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), true) AS apart
    FROM hits_all h
    WHERE h.stream = 'live' AND h.phase < 3 AND h.last >= now() - interval '2 days'
  ) a
) r
GROUP BY r.rule, r.lineage, r.subject, r.ip, r.device, r.user_id, r.api_key, r.session, r.nth;

-- Sums of episodes by the hour, or the day, in which they began, for each rule and each source of it.
CREATE VIEW rule_hours_v AS
SELECT e.day, date_trunc('hour', greatest(e.first, e.day::timestamp AT TIME ZONE 'UTC')) AS hour, e.rule, count(*) AS episodes,
       count(DISTINCT e.subject) AS sources, sum(e.events)::bigint AS events, max(e.peak) AS peak, sum(e.refused)::bigint AS refused
FROM episodes_v e
GROUP BY 1, 2, 3;

CREATE VIEW rule_days_v AS
SELECT e.day, e.rule, count(*) AS episodes, count(DISTINCT e.subject) AS sources, sum(e.events)::bigint AS events, max(e.peak) AS peak,
       sum(e.refused)::bigint AS refused
FROM episodes_v e
GROUP BY 1, 2;

CREATE VIEW source_hours_v AS
SELECT e.day, date_trunc('hour', greatest(e.first, e.day::timestamp AT TIME ZONE 'UTC')) AS hour, e.rule, e.subject, e.ip, e.device, e.user_id,
       e.api_key, e.session, count(*) AS episodes, sum(e.events)::bigint AS events, max(e.peak) AS peak, sum(e.refused)::bigint AS refused,
       min(e.first) AS first, max(e.last) AS last
FROM episodes_v e
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;

CREATE VIEW source_days_v AS
SELECT e.day, e.rule, e.subject, e.ip, e.device, e.user_id, e.api_key, e.session, count(*) AS episodes, sum(e.events)::bigint AS events,
       max(e.peak) AS peak, sum(e.refused)::bigint AS refused, min(e.first) AS first, max(e.last) AS last
FROM episodes_v e
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8;
