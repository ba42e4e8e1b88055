-- Episodes near a limit, and over a limit on trial: of hits of the kinds near and candidate. A table of its own, and not rows
-- of hits told apart by a column: who reads hits, of this build or an older one, has in mind who was over a limit.
CREATE TABLE hits_beside (
    LIKE hits INCLUDING ALL,
    kind text COLLATE "C" NOT NULL
);

CREATE VIEW hits_beside_v AS
SELECT stream, id, kind, rule, rule_version, lineage,
       (ARRAY['open', 'update', 'closed', 'merged'])[phase] AS phase,
       subject, block_subject, ip, device, user_id, api_key, session, grouped,
       rule_limit, make_interval(secs => window_ms / 1000.0) AS window_length,
       events, peak, first, last, seen_first, seen_last, cut, users, devices, samples, into_id,
       generation, source_partition, source_offset, keyed_partition, recorded_at, at_least
FROM hits_beside;
