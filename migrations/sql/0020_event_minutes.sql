-- What ROUTE has seen, by minute of event time: all events, and those that each rule watches. A row is the sum of one router, and only
-- grows; part tells apart the sums that one router has opened for the same minute, one after the other.
CREATE TABLE event_minutes (
    stream      text COLLATE "C" NOT NULL,
    minute      timestamptz NOT NULL,
    router      text COLLATE "C" NOT NULL,
    part        bigint NOT NULL,
    events      bigint NOT NULL,
    refused     bigint NOT NULL, -- by weir itself; the three that follow are of the others
    unwatched   bigint NOT NULL,
    good        bigint NOT NULL,
    unjudged    bigint NOT NULL,
    seen        timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, minute, router, part)
);

CREATE TABLE rule_event_minutes (
    stream      text COLLATE "C" NOT NULL,
    rule        text COLLATE "C" NOT NULL,
    minute      timestamptz NOT NULL,
    router      text COLLATE "C" NOT NULL,
    part        bigint NOT NULL,
    matched     bigint NOT NULL,
    seen        timestamptz NOT NULL,
    recorded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, rule, minute, router, part)
);
-- Rows are stored about in the order of their minutes, and go in that order.
CREATE INDEX rule_event_minutes_minute ON rule_event_minutes USING brin (minute);

CREATE VIEW event_minutes_v AS
SELECT stream, minute, sum(events)::bigint AS events, sum(refused)::bigint AS refused, sum(unwatched)::bigint AS unwatched,
       sum(good)::bigint AS good, sum(unjudged)::bigint AS unjudged, max(seen) AS seen
FROM event_minutes
GROUP BY stream, minute;

CREATE VIEW rule_event_minutes_v AS
SELECT stream, rule, minute, sum(matched)::bigint AS matched, max(seen) AS seen
FROM rule_event_minutes
GROUP BY stream, rule, minute;
