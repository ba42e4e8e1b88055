-- Sample events say whether they came before the limit: texts have a mark behind the time, where no client has a say. Those that a build
-- before wrote have none, and all of them are over the limit.
CREATE OR REPLACE VIEW samples_v AS
SELECT h.stream, h.id, h.rule, h.subject, h.first, h.last, t.number,
       r.at, r.method, r.host, r.path, r.status, r.user_agent, r.ip, r.device, r.user_id, r.attrs, t.sample, h.day,
       t.sample ~ '^\{"time":"[^"]*","before":true[,}]' AS before
FROM hits_all h
CROSS JOIN LATERAL unnest(h.samples) WITH ORDINALITY AS t (sample, number)
CROSS JOIN LATERAL read_sample(t.sample) r
WHERE h.phase < 4;
