-- Requests that gates refused, as they came back on the requests topic: by rule, block and minute of event time. A minute of a block may have several
-- rows, of other requests each, so figures are sums over rows. block is what the answer names, the first 16 digits of the hit behind it; empty: those of
-- the rule that were too many to be told apart.
CREATE TABLE refusals (
    stream          text COLLATE "C" NOT NULL,
    id              text COLLATE "C" NOT NULL,
    rule            text COLLATE "C" NOT NULL,
    block           text COLLATE "C" NOT NULL,
    keyed_partition bigint NOT NULL,
    minute          timestamptz NOT NULL,
    latest          timestamptz NOT NULL,
    seen            timestamptz NOT NULL,
    events          bigint NOT NULL,
    known_good      bigint NOT NULL, -- of events, those for which known_good holds
    recorded_at     timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, id)
);
CREATE INDEX refusals_rule ON refusals (rule, minute);
CREATE INDEX refusals_block ON refusals (block, minute);
-- Rows are stored about in the order of their minutes, and go in that order.
CREATE INDEX refusals_minute ON refusals USING brin (minute);

CREATE VIEW refusals_v AS
SELECT stream, rule, block, minute, sum(events)::bigint AS events, sum(known_good)::bigint AS known_good,
    max(latest) AS latest, max(seen) AS seen
FROM refusals
GROUP BY stream, rule, block, minute;
