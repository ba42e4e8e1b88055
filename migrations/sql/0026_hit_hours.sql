-- Sums of the live episodes that have ended, by the hour of their last over event: what is asked of days and months is read from them, and not
-- from the rows. They are made by history's keeper, an hour or more after the hour is over, and always anew from the rows.
--
-- Each change of a row that has ended marks its rule in its hour, whoever makes it: RECORD, of this build or an older one, erasure, retention. A
-- marked pair is read from the rows until the keeper has summed it up again. A row that changes soon after its last event is not looked for: its
-- hour has no sums yet.

-- Hours that have sums. Of one that is not ready the changes are marked already, and its sums are being made.
CREATE TABLE hit_hours (
    hour  timestamptz PRIMARY KEY,
    ready boolean NOT NULL
);

CREATE TABLE hit_sums (
    hour     timestamptz NOT NULL,
    rule     text COLLATE "C" NOT NULL,
    begun    timestamptz NOT NULL,     -- the hour of first
    episodes bigint NOT NULL,          -- rows: in hours and rules in which several is false, each is an episode
    events   bigint NOT NULL,
    refused  bigint NOT NULL,
    peak     bigint NOT NULL,
    first    timestamptz NOT NULL,
    last     timestamptz NOT NULL,
    several  boolean NOT NULL,         -- a source has rows for different blocks
    sources  bigint NOT NULL,          -- different ones
    hashes   bigint[] NOT NULL,        -- of the sources, ascending: the 256 least
    PRIMARY KEY (hour, rule, begun)
);

-- Rules whose sums in an hour do not hold. One that is being summed up again is marked anew by who changes a row meanwhile.
CREATE TABLE hit_sums_stale (
    hour   timestamptz NOT NULL,
    rule   text COLLATE "C" NOT NULL,
    since  timestamptz NOT NULL DEFAULT now(),
    making boolean NOT NULL DEFAULT false,
    PRIMARY KEY (hour, rule)
);

-- The keeper waits, by the lock, for those who have looked whether an hour has sums.
CREATE FUNCTION hit_changed() RETURNS trigger
LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtextextended('weir hit sums ' || current_schema(), 0));
    INSERT INTO hit_sums_stale AS s (hour, rule)
    SELECT h.hour, c.rule
    FROM (SELECT OLD.rule AS rule, date_trunc('hour', OLD.last, 'UTC') AS hour WHERE TG_OP <> 'INSERT' AND OLD.phase = 3
          UNION SELECT NEW.rule, date_trunc('hour', NEW.last, 'UTC') WHERE TG_OP <> 'DELETE' AND NEW.phase = 3) c
    JOIN hit_hours h ON h.hour = c.hour
    WHERE NOT EXISTS (SELECT FROM hit_sums_stale m WHERE m.hour = h.hour AND m.rule = c.rule AND NOT m.making)
    ORDER BY h.hour, c.rule
    ON CONFLICT (hour, rule) DO UPDATE SET making = false, since = now();
    RETURN NULL;
END $$;

-- 50 minutes: an hour gets its sums an hour after its end at the earliest, and whoever changes rows has ended within ten minutes.
CREATE TRIGGER hits_by_day_added AFTER INSERT ON hits_by_day FOR EACH ROW
    WHEN (NEW.phase = 3 AND NEW.last < now() - interval '50 minutes') EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_by_day_changed AFTER UPDATE ON hits_by_day FOR EACH ROW
    WHEN (OLD.phase = 3 AND OLD.last < now() - interval '50 minutes' OR NEW.phase = 3 AND NEW.last < now() - interval '50 minutes')
    EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_by_day_removed AFTER DELETE ON hits_by_day FOR EACH ROW
    WHEN (OLD.phase = 3) EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_added AFTER INSERT ON hits FOR EACH ROW
    WHEN (NEW.stream = 'live' AND NEW.phase = 3 AND NEW.last < now() - interval '50 minutes') EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_changed AFTER UPDATE ON hits FOR EACH ROW
    WHEN (NEW.stream = 'live' AND (OLD.phase = 3 AND OLD.last < now() - interval '50 minutes' OR NEW.phase = 3 AND NEW.last < now() - interval '50 minutes'))
    EXECUTE FUNCTION hit_changed();
CREATE TRIGGER hits_removed AFTER DELETE ON hits FOR EACH ROW
    WHEN (OLD.stream = 'live' AND OLD.phase = 3) EXECUTE FUNCTION hit_changed();
