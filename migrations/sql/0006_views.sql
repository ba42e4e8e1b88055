-- What analysts may rely on (docs/history.md). Tables may change with any version; these columns stay.

CREATE VIEW hits_v AS
SELECT stream, id, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at
FROM hits;

CREATE VIEW late_v AS
SELECT stream, rule, lineage, source_partition, keyed_partition, minute, latest, events, recorded_at
FROM late_sums;

CREATE VIEW losses_v AS
SELECT stream, id, generation, source_partition, source_offset, keyed_partition, offsets, watermark, seen, accepted_by, reason, recorded_at
FROM losses;

CREATE VIEW block_decisions_v AS
SELECT stream, id, action, reason, rule, subject, ip, device, user_id, api_key, session, hit, generation,
       since, until, at, decided_by, recorded_at
FROM block_decisions;

CREATE VIEW rules_v AS
SELECT v.rule, v.version, v.lineage, m.mode, m.generation, m.changed_at, m.changed_by, m.reason AS mode_reason,
       m.removed, v.created_at, v.author, v.reason, v.source
FROM rule_versions v
JOIN rule_modes m ON m.rule = v.rule
WHERE v.version = (SELECT max(n.version) FROM rule_versions n WHERE n.rule = v.rule);

CREATE VIEW rule_versions_v AS
SELECT rule, version, lineage, created_at, author, reason, source
FROM rule_versions;

CREATE VIEW streams_v AS
SELECT name, generation, requests_partitions, keyed_partitions, hits_partitions, created_at, finished_at, summary
FROM streams;

CREATE VIEW audit_v AS
SELECT seq, at, actor, action, object, reason, detail
FROM audit;
