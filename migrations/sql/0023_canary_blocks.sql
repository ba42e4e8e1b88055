-- A canary's blocks hold people as those of a rule that blocks do: who asks whom weir holds is told of them.
CREATE OR REPLACE VIEW blocks_v AS
SELECT DISTINCT ON (d.stream, d.rule, d.subject)
       d.stream, d.rule, d.subject, d.ip, d.device, d.user_id, d.api_key, d.session, d.hit, d.generation, d.since, d.until, d.at
FROM block_decisions_all d
JOIN rule_modes m ON m.rule = d.rule AND m.mode IN ('canary', 'block') AND m.generation = d.generation
WHERE d.action IN ('written', 'extended') AND d.until > now()
  AND NOT EXISTS (
    SELECT FROM block_decisions r
    WHERE r.action = 'released' AND r.until > now() AND r.stream = d.stream AND r.rule = d.rule AND r.subject = d.subject
      AND (d.since <= r.since OR d.hit = r.hit))
ORDER BY d.stream, d.rule, d.subject, d.until DESC, d.id;
