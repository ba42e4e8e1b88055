-- Why an episode was closed before its time, as its record on the hits topic says: 'reset' where an operator reset what its key had counted.
-- Empty for all others, and for what builds before this one have recorded.
ALTER TABLE hits ADD COLUMN reason text COLLATE "C" NOT NULL DEFAULT '';
ALTER TABLE hits_beside ADD COLUMN reason text COLLATE "C" NOT NULL DEFAULT '';

CREATE OR REPLACE VIEW hits_v AS
SELECT stream, id, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason
FROM hits;

CREATE OR REPLACE VIEW hits_beside_v AS
SELECT stream, id, kind, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least, reason
FROM hits_beside;
