-- What dashboards read beside the views that there are (docs/history.md), and the role that may read views and nothing else.

-- Owner, limit and block stand in the documents. Those are JSON of rules.Document, written by weir alone.
CREATE OR REPLACE VIEW rule_versions_v AS
SELECT v.rule, v.version, v.lineage, v.created_at, v.author, v.reason, v.source,
       d.body ->> 'owner' AS owner,
       (d.body ->> 'limit')::bigint AS rule_limit,
       make_interval(secs => (d.body ->> 'window')::float8 / 1e9) AS window_length,
       make_interval(secs => (d.body #>> '{block,ttl}')::float8 / 1e9) AS block_ttl, -- NULL: the rule names no block
       d.body #>> '{block,extend}' AS block_extend,
       make_interval(secs => coalesce((d.body ->> 'cooldown')::float8 / 1e9, 60)) AS cooldown, -- the document leaves out the default
       make_interval(secs => (d.body ->> 'lateness')::float8 / 1e9) AS lateness,
       make_interval(secs => (d.body ->> 'max_lag')::float8 / 1e9) AS max_lag
FROM rule_versions v
CROSS JOIN LATERAL (SELECT v.document::json AS body) d;

CREATE OR REPLACE VIEW rules_v AS
SELECT v.rule, v.version, v.lineage, m.mode, m.generation, m.changed_at, m.changed_by, m.reason AS mode_reason,
       m.removed, v.created_at, v.author, v.reason, v.source,
       v.owner, v.rule_limit, v.window_length, v.block_ttl, v.block_extend, v.cooldown, v.lateness, v.max_lag
FROM rule_versions_v v
JOIN rule_modes m ON m.rule = v.rule
WHERE v.version = (SELECT max(n.version) FROM rule_versions n WHERE n.rule = v.rule);

-- A sample that is no JSON, or not as this build writes it, is shown as its text: one of them must not fail the query for all.
CREATE FUNCTION read_sample(sample text, OUT at timestamptz, OUT method text, OUT host text, OUT path text, OUT status integer,
    OUT user_agent text, OUT ip text, OUT device text, OUT user_id text, OUT attrs text)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    j json;
BEGIN
    j := sample::json;
    at := (j ->> 'time')::timestamptz;
    method := j ->> 'method';
    host := j ->> 'host';
    path := j ->> 'path';
    status := (j ->> 'status')::integer;
    user_agent := j ->> 'user_agent';
    ip := j ->> 'ip';
    device := j ->> 'device';
    user_id := j ->> 'user';
    attrs := j ->> 'attrs';
EXCEPTION WHEN data_exception THEN
    at := NULL; method := NULL; host := NULL; path := NULL; status := NULL; user_agent := NULL; ip := NULL; device := NULL;
    user_id := NULL; attrs := NULL;
END $$;

-- A subject for reading: ip=192.0.2.7 device=tv-7. Keys and sessions are secrets, of which it shows the end only. What is no text when it
-- is decoded stays as it is.
CREATE FUNCTION subject_text(subject text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN (
        SELECT string_agg(CASE
            WHEN part ~ '^(api_key|session)=' THEN split_part(part, '=', 1) || '=…' ||
                right(part, least(4, (length(part) - strpos(part, '=')) / 2))
            WHEN part ~ '^ip=' THEN regexp_replace(part, '^(ip=[0-9.]+)/32|^(ip=[0-9a-f:]+)/128', '\1\2')
            ELSE part END, ' ' ORDER BY number)
        FROM (
            SELECT raw.number, (
                SELECT convert_from(string_agg(CASE WHEN b[1] ~ '^%' THEN decode(substr(b[1], 2), 'hex') ELSE convert_to(b[1], 'UTF8') END, ''), 'UTF8')
                FROM regexp_matches(raw.part, '%[0-9A-Fa-f]{2}|[^%]+', 'g') b) AS part
            FROM regexp_split_to_table(subject, '&') WITH ORDINALITY AS raw (part, number)) decoded);
EXCEPTION WHEN data_exception THEN
    RETURN regexp_replace(subject, '(api_key|session)=[^&]*', '\1=…', 'g');
END $$;

-- An address or prefix, NULL where the text is none.
CREATE FUNCTION parse_address(address text) RETURNS inet
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    RETURN address::inet;
EXCEPTION WHEN data_exception THEN
    RETURN NULL;
END $$;

-- A subject as blocks keep it (docs/blocks.md): each value above 64 bytes is its digest. What cannot be decoded stays as it is.
CREATE FUNCTION stored_subject(subject text) RETURNS text
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF octet_length(subject) <= 64 THEN
        RETURN subject;
    END IF;
    RETURN (
        SELECT string_agg(CASE
            WHEN octet_length(value) <= 64 OR value IS NULL OR part ~ '=sha256:[0-9a-f]{64}$' THEN part
            ELSE split_part(part, '=', 1) || '=sha256:' || encode(sha256(value), 'hex') END, '&' ORDER BY number)
        FROM (
            SELECT raw.number, raw.part, (
                SELECT string_agg(CASE WHEN b[1] ~ '^%' THEN decode(substr(b[1], 2), 'hex') ELSE convert_to(b[1], 'UTF8') END, ''::bytea)
                FROM regexp_matches(substr(raw.part, nullif(strpos(raw.part, '='), 0) + 1), '%[0-9A-Fa-f]{2}|[^%]+', 'g') b) AS value
            FROM regexp_split_to_table(subject, '&') WITH ORDINALITY AS raw (part, number)) decoded);
EXCEPTION WHEN data_exception THEN
    RETURN subject;
END $$;

-- How rows may spell a source that somebody names by a value or by a canonical subject: as it is, and as blocks keep it.
CREATE FUNCTION source_forms(source text) RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path FROM CURRENT AS $$
    SELECT ARRAY[source, stored_subject(source), 'sha256:' || encode(sha256(convert_to(source, 'UTF8')), 'hex')]
$$;

-- Whether a block would hold an address that is nobody's in particular, and nothing else (docs/blocks.md): nobody is ever blocked by it.
-- What an installation lists in never_block is not known here.
CREATE FUNCTION never_blocked(subject text) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF subject !~ '^ip=[^&]+$' THEN
        RETURN false;
    END IF;
    BEGIN
        RETURN replace(replace(substr(subject, 4), '%2F', '/'), '%3A', ':')::inet && ANY ('{0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8,
            169.254.0.0/16, 172.16.0.0/12, 192.168.0.0/16, ::/127, fc00::/7, fe80::/10}'::inet[]);
    EXCEPTION WHEN data_exception THEN
        RETURN false;
    END;
END $$;

-- first and last are those of the episode: a condition on last is what the indexes of hits help with.
CREATE VIEW samples_v AS
SELECT h.stream, h.id, h.rule, h.subject, h.first, h.last, t.number,
       r.at, r.method, r.host, r.path, r.status, r.user_agent, r.ip, r.device, r.user_id, r.attrs, t.sample
FROM hits h
CROSS JOIN LATERAL unnest(h.samples) WITH ORDINALITY AS t (sample, number)
CROSS JOIN LATERAL read_sample(t.sample) r
WHERE h.phase < 4;

-- Blocks in force, as the reconcilers put them back: decided under the rule's present mode, not over, not released. Whom the
-- never-block list holds was never written.
CREATE VIEW blocks_v AS
SELECT DISTINCT ON (d.stream, d.rule, d.subject)
       d.stream, d.rule, d.subject, d.ip, d.device, d.user_id, d.api_key, d.session, d.hit, d.generation, d.since, d.until, d.at
FROM block_decisions d
JOIN rule_modes m ON m.rule = d.rule AND m.mode = 'block' AND m.generation = d.generation
WHERE d.action IN ('written', 'extended') AND d.until > now()
  AND NOT EXISTS (
    SELECT FROM block_decisions r
    WHERE r.action = 'released' AND r.until > now() AND r.stream = d.stream AND r.rule = d.rule AND r.subject = d.subject
      AND (d.since <= r.since OR d.hit = r.hit))
ORDER BY d.stream, d.rule, d.subject, d.until DESC, d.id;

-- Roles belong to the server and not to a database, so there may be one already, and the owner of a schema need not be allowed to
-- make one: then an administrator does, and the next weir migrate gives it the views. It cannot log in until somebody lets it.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'weir_read') THEN
        CREATE ROLE weir_read;
        ALTER ROLE weir_read SET default_transaction_read_only = on;
        ALTER ROLE weir_read SET statement_timeout = '30s';
    END IF;
EXCEPTION
    WHEN insufficient_privilege OR duplicate_object OR unique_violation THEN NULL;
END $$;
