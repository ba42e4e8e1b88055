-- Whether an episode's events, first and last are bounds: events came late and met what was not kept of their key any more.
ALTER TABLE hits ADD COLUMN at_least boolean NOT NULL DEFAULT false;

CREATE OR REPLACE VIEW hits_v AS
SELECT stream, id, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least
FROM hits;
